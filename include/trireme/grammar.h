/*
 * Grammars for structured output: which tokens may come next so that a text follows a JSON schema, a regular
 * expression, a grammar, or is one of several texts.
 *
 * A grammar is compiled to a pushdown automaton over bytes. A state is a place in it; a state's mask is found by one
 * walk over the vocabulary's bytes and kept, so that a place met again costs a copy. A vocabulary and a grammar may be
 * used by several threads, a state by one at a time.
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

/* The bytes of a tokenizer's tokens, made once per tokenizer. `size` is the width of the model's logits (0: the
 * tokenizer's size); tokens behind the tokenizer's last are never allowed. end_tokens [n] are those that end a text:
 * they are allowed where the grammar is complete. Other special tokens are never allowed. The tokenizer may be closed
 * afterwards; the vocabulary must outlive its grammars. */
TRM_API trm_status trm_grammar_vocab_create(const trm_tokenizer *tokenizer, const int32_t *end_tokens, size_t n,
                                            int32_t size, trm_grammar_vocab **vocab);
TRM_API void trm_grammar_vocab_destroy(trm_grammar_vocab *vocab);

typedef enum trm_grammar_kind {
    TRM_GRAMMAR_JSON = 1,    /* any JSON object; the text is not looked at */
    TRM_GRAMMAR_JSON_SCHEMA, /* a JSON schema, see docs/internals/text.md for the keywords */
    TRM_GRAMMAR_REGEX,       /* a regular expression that the whole text matches */
    TRM_GRAMMAR_EBNF,        /* "root ::= ..." as llama.cpp writes it, or "start: ..." as Lark does */
    TRM_GRAMMAR_CHOICE       /* a JSON array of strings, of which the text is one */
} trm_grammar_kind;

/* Errors: INVALID_ARGUMENT with the place for what is wrong or too large, or what no text can follow; UNSUPPORTED
 * naming a keyword or construct. */
TRM_API trm_status trm_grammar_compile(const trm_grammar_vocab *vocab, trm_grammar_kind kind, const char *text,
                                       size_t size, trm_grammar **grammar);
/* Its states must be gone. */
TRM_API void trm_grammar_destroy(trm_grammar *grammar);

/* The place before the first token. */
TRM_API trm_status trm_grammar_state_create(trm_grammar *grammar, trm_grammar_state **state);
TRM_API trm_status trm_grammar_state_copy(const trm_grammar_state *state, trm_grammar_state **copy);
TRM_API void trm_grammar_state_destroy(trm_grammar_state *state);
/* Moves over a token. *accepted tells whether it was allowed; if not, the state stays where it is. */
TRM_API trm_status trm_grammar_state_accept(trm_grammar_state *state, int32_t token, bool *accepted);
/* Sets bits [(size + 31) / 32]: bit id % 32 of word id / 32 is 1 if the token is allowed, 0 for all others. Behind an
 * end token only those are allowed. INVALID_ARGUMENT if the grammar has too many ways to read the text so far. */
TRM_API trm_status trm_grammar_state_mask(trm_grammar_state *state, uint32_t *bits);
/* Whether the text so far is complete: it follows the grammar as it stands. */
TRM_API bool trm_grammar_state_is_complete(const trm_grammar_state *state);
/* Whether nothing can follow but the end. */
TRM_API bool trm_grammar_state_is_final(const trm_grammar_state *state);

#ifdef __cplusplus
}
#endif
#endif
