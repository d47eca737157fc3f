/*
 * A tokenizer with a vocabulary of the size of Llama 3's: words, numbers, signs and characters of two and three bytes.
 */
#ifndef TESTS_SUPPORT_MADE_UP_TOKENIZER_H
#define TESTS_SUPPORT_MADE_UP_TOKENIZER_H

#include <trireme/tokenizer.h>

#define TEST_MADE_UP_TOKENS 128256 /* the last one ends a text; the first 256 are the bytes */

/* Has no merges: a text is not encoded as its longest tokens. */
trm_tokenizer *test_made_up_tokenizer(void);

#endif
