/*
 * N-gram drafts (prompt lookup): finds where the last tokens of a sequence occurred before, and drafts what followed
 * them. Works well for texts that repeat themselves or quote their prompt.
 *
 * Pairs of tokens are kept in a hash table of lists, newest first. The caller owns its memory; nothing is allocated.
 */
#ifndef TRM_DIST_LLM_SCHEDULER_NGRAM_DRAFT_H
#define TRM_DIST_LLM_SCHEDULER_NGRAM_DRAFT_H

#include <stddef.h>
#include <stdint.h>

typedef struct trm_ngram_draft {
    int32_t *newest; /* [n_lists] newest place after a pair of the list; 0: none */
    int32_t *older;  /* [tokens] previous place in its list; 0: none */
    int32_t n_lists; /* a power of two */
    int64_t n_noted; /* places below this are noted */
} trm_ngram_draft;

/* Bytes for a sequence of at most `tokens` tokens, aligned as int32_t. */
size_t trm_ngram_draft_bytes(int64_t tokens);
void trm_ngram_draft_init(trm_ngram_draft *lookup, int32_t *memory, int64_t tokens);

/*
 * Drafts at most `most` tokens after tokens [n] into `draft` and returns their number. Of the newest places after the
 * same two tokens it takes the one with the longest match; *agreed is its length (at most TRM_NGRAM_LONGEST). Sequences
 * only grow: later calls have the same tokens and more.
 */
#define TRM_NGRAM_LONGEST 8
int32_t trm_ngram_draft_guess(trm_ngram_draft *lookup, const int32_t *tokens, int64_t n, int32_t most, int32_t *draft,
                              int32_t *agreed);

#endif
