/*
 * Random texts that follow a grammar, written token by token within its masks.
 */
#ifndef TESTS_SUPPORT_GRAMMAR_WALK_H
#define TESTS_SUPPORT_GRAMMAR_WALK_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/grammar.h>

/* *text (free() it) is NULL if the text did not come to an end in 3000 tokens. Fails if a mask has no token, or if a
 * token of a mask is not accepted. */
trm_status test_grammar_walk(trm_grammar *grammar, const trm_tokenizer *tokenizer, int32_t vocab_size, uint64_t *seed,
                             char **text, size_t *size);

#endif
