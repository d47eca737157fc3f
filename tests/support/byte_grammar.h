/*
 * Grammars over a vocabulary of bytes: which texts they accept.
 */
#ifndef TESTS_SUPPORT_BYTE_GRAMMAR_H
#define TESTS_SUPPORT_BYTE_GRAMMAR_H

#include <trireme/grammar.h>

/* A vocabulary of the 256 bytes and an end token: the byte's number is its token's. */
void test_byte_vocab(trm_tokenizer **tokenizer, trm_grammar_vocab **vocab);
/* Fails unless a grammar accepts all texts before a NULL and none of those between it and a second NULL. Masks are
 * compared with what is accepted. */
void test_grammar_texts(const trm_grammar_vocab *vocab, trm_grammar_kind kind, const char *grammar_text,
                        const char *const *texts);

#endif
