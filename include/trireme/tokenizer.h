/*
 * Tokenizer: text to token ids and back, from a Hugging Face tokenizer.json.
 *
 * A tokenizer may be used by several threads; a decoder by one.
 */
#ifndef TRIREME_TOKENIZER_H
#define TRIREME_TOKENIZER_H

#include <trireme/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_tokenizer trm_tokenizer;
typedef struct trm_decoder trm_decoder;

/* Opens tokenizer.json, given its path or its folder. Errors: IO, INVALID_MODEL, UNSUPPORTED (naming the model,
 * normalizer, pre-tokenizer or decoder type). */
TRM_API trm_status trm_tokenizer_open(const char *path, trm_tokenizer **tokenizer);
TRM_API void trm_tokenizer_close(trm_tokenizer *tokenizer);
TRM_API int32_t trm_tokenizer_vocab_size(const trm_tokenizer *tokenizer); /* highest id + 1 */
/* The token with this exact content; -1 if there is none. */
TRM_API int32_t trm_tokenizer_find(const trm_tokenizer *tokenizer, const char *token);
/* Content of a token as the vocabulary has it; NULL if there is none. */
TRM_API const char *trm_tokenizer_token(const trm_tokenizer *tokenizer, int32_t id);

typedef struct trm_tokens {
    int32_t *ids; /* [count], release with trm_tokens_fini */
    size_t count;
} trm_tokens;
TRM_API void trm_tokens_fini(trm_tokens *tokens);

/* Encodes `text` [size] bytes of UTF-8; invalid bytes become U+FFFD. With add_special the post-processor's
 * tokens (bos, eos, ...) are added; added tokens inside the text are recognized either way. */
TRM_API trm_status trm_tokenizer_encode(const trm_tokenizer *tokenizer, const char *text, size_t size, bool add_special,
                                        trm_tokens *tokens);
/* Decodes ids as a whole; *text is NUL-terminated, *size without the NUL; release with trm_free. Ids out of range are
 * skipped. */
TRM_API trm_status trm_tokenizer_decode(const trm_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                        bool skip_special, char **text, size_t *size);

/* A streaming decoder: text comes out as soon as it is certain, never half a character. What it emits in all equals
 * trm_tokenizer_decode of all ids. The tokenizer must outlive it. */
TRM_API trm_status trm_decoder_create(const trm_tokenizer *tokenizer, bool skip_special, trm_decoder **decoder);
TRM_API void trm_decoder_destroy(trm_decoder *decoder);
/* Text (may be empty) that `id` made certain; valid until the next call. */
TRM_API trm_status trm_decoder_push(trm_decoder *decoder, int32_t id, const char **text, size_t *size);
/* What is left at the end, incomplete bytes as U+FFFD; the decoder can then be used anew. */
TRM_API trm_status trm_decoder_finish(trm_decoder *decoder, const char **text, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
