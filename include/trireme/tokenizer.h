/*
 * Tokenizer: text to token ids and back, from a Hugging Face tokenizer.json.
 *
 * Several threads may use a tokenizer, one at a time a decoder.
 */
#ifndef TRIREME_TOKENIZER_H
#define TRIREME_TOKENIZER_H

#include <trireme/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_tokenizer trm_tokenizer;
typedef struct trm_decoder trm_decoder;

/* Opens tokenizer.json, given its path or its folder. Errors: IO, INVALID_MODEL, UNSUPPORTED (with the type of model,
 * normalizer, pre-tokenizer or decoder). */
TRM_API trm_status trm_tokenizer_open(const char *path, trm_tokenizer **tokenizer);
TRM_API void trm_tokenizer_close(trm_tokenizer *tokenizer);
TRM_API int32_t trm_tokenizer_vocab_size(const trm_tokenizer *tokenizer); /* highest id + 1 */
/* Id of the token with this exact content; -1 if the vocabulary lacks it. */
TRM_API int32_t trm_tokenizer_find(const trm_tokenizer *tokenizer, const char *token);
/* Content of a token as it stands in the vocabulary; NULL if the vocabulary lacks it. Valid until close. */
TRM_API const char *trm_tokenizer_token(const trm_tokenizer *tokenizer, int32_t id);

typedef struct trm_tokens {
    int32_t *ids; /* [count], release with trm_tokens_fini */
    size_t count;
} trm_tokens;
TRM_API void trm_tokens_fini(trm_tokens *tokens);

/* Encodes text [size] bytes of UTF-8; invalid bytes become U+FFFD. With add_special the post-processor adds its tokens
 * (bos, eos, ...); added tokens inside the text are recognized either way. */
TRM_API trm_status trm_tokenizer_encode(const trm_tokenizer *tokenizer, const char *text, size_t size, bool add_special,
                                        trm_tokens *tokens);
/* Decodes ids [count]. *text is NUL-terminated, *size does not count the NUL; release with trm_free. Ids out of range
 * are skipped. */
TRM_API trm_status trm_tokenizer_decode(const trm_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                        bool skip_special, char **text, size_t *size);

/* A streaming decoder: returns text as soon as it is certain, never half a character. All its text together equals
 * trm_tokenizer_decode of all ids. The tokenizer must outlive it. */
TRM_API trm_status trm_decoder_create(const trm_tokenizer *tokenizer, bool skip_special, trm_decoder **decoder);
TRM_API void trm_decoder_destroy(trm_decoder *decoder);
/* Adds a token and returns the text that is now certain, which may be empty; valid until the next call. */
TRM_API trm_status trm_decoder_push(trm_decoder *decoder, int32_t id, const char **text, size_t *size);
/* Returns the rest, with incomplete bytes as U+FFFD, and resets the decoder. */
TRM_API trm_status trm_decoder_finish(trm_decoder *decoder, const char **text, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
