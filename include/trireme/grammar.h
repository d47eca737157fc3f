/*
 * Grammars for structured output: which tokens may come next, so that a text follows a JSON schema, a regular
 * expression or a grammar, or is one of several texts.
 *
 * A grammar is compiled to a pushdown automaton over bytes. A state is a place in it. Its mask is computed by one walk
 * over the vocabulary's bytes and cached: the next mask at the same place is a copy. Several threads may use a
 * vocabulary and a grammar, one at a time a state.
 */
#ifndef TRIREME_GRAMMAR_H
#define TRIREME_GRAMMAR_H

#include <trireme/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_grammar_vocab trm_grammar_vocab;
typedef struct trm_grammar trm_grammar;
typedef struct trm_grammar_state trm_grammar_state;

/* Collects the bytes of a tokenizer's tokens, once per tokenizer. `size` is the width of the model's logits (0: the
 * tokenizer's size); tokens after the tokenizer's last are never allowed. end_tokens [n] end a text: they are allowed
 * if the grammar is complete. Other special tokens are never allowed. The tokenizer may be closed afterwards; the
 * vocabulary must outlive its grammars. */
TRM_API trm_status trm_grammar_vocab_create(const trm_tokenizer *tokenizer, const int32_t *end_tokens, size_t n,
                                            int32_t size, trm_grammar_vocab **vocab);
TRM_API void trm_grammar_vocab_destroy(trm_grammar_vocab *vocab);

typedef enum trm_grammar_kind {
    TRM_GRAMMAR_JSON = 1,    /* any JSON object; `text` is ignored */
    TRM_GRAMMAR_JSON_SCHEMA, /* a JSON schema, see docs/internals/text.md for the keywords */
    TRM_GRAMMAR_REGEX,       /* a regular expression that the whole text matches */
    TRM_GRAMMAR_EBNF,        /* "root ::= ..." as llama.cpp writes it, or "start: ..." as Lark does */
    TRM_GRAMMAR_CHOICE       /* a JSON array of strings; the output is one of them */
} trm_grammar_kind;

/* Compiles a grammar from text [size]. Errors: INVALID_ARGUMENT (wrong syntax or too large, with the place; a grammar
 * that no text can follow), UNSUPPORTED (with the keyword or construct). */
TRM_API trm_status trm_grammar_compile(const trm_grammar_vocab *vocab, trm_grammar_kind kind, const char *text,
                                       size_t size, trm_grammar **grammar);
/* Destroy its states before. */
TRM_API void trm_grammar_destroy(trm_grammar *grammar);

/* A state at the start of the grammar. */
TRM_API trm_status trm_grammar_state_create(trm_grammar *grammar, trm_grammar_state **state);
TRM_API trm_status trm_grammar_state_copy(const trm_grammar_state *state, trm_grammar_state **copy);
TRM_API void trm_grammar_state_destroy(trm_grammar_state *state);
/* Advances the state by a token if it is allowed; *accepted says whether it was. */
TRM_API trm_status trm_grammar_state_accept(trm_grammar_state *state, int32_t token, bool *accepted);
/* Writes bits [(size + 31) / 32]: bit id % 32 of word id / 32 is 1 if the token is allowed, else 0. After an end token
 * only end tokens are allowed. Error: INVALID_ARGUMENT (the grammar has too many ways to read the text so far). */
TRM_API trm_status trm_grammar_state_mask(trm_grammar_state *state, uint32_t *bits);
/* Whether the text so far follows the grammar as it stands, so that it may end here. */
TRM_API bool trm_grammar_state_is_complete(const trm_grammar_state *state);
/* Whether the text so far is complete and only an end token may follow. */
TRM_API bool trm_grammar_state_is_final(const trm_grammar_state *state);

#ifdef __cplusplus
}
#endif
#endif
