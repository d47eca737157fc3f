/*
 * Prompt lookup: where the last tokens of a sequence came before, and what followed them there, as a guess at what
 * follows now. Texts that repeat themselves or quote their prompt are guessed well.
 *
 * Pairs of tokens are kept in a hash table of lists, newest first. Its memory is the caller's; nothing is allocated.
 */
#ifndef TRM_DIST_LLM_SCHEDULER_NGRAM_DRAFT_H
#define TRM_DIST_LLM_SCHEDULER_NGRAM_DRAFT_H

#include <stddef.h>
#include <stdint.h>

typedef struct trm_ngram_draft {
    int32_t *newest; /* [n_lists] the newest place behind a pair of the list; 0: none */
    int32_t *older;  /* [tokens] the place before it in its list; 0: none */
    int32_t n_lists; /* a power of two */
    int64_t n_noted; /* places noted are less than that */
} trm_ngram_draft;

/* Bytes for a sequence of at most `tokens` tokens, aligned as int32_t. */
size_t trm_ngram_draft_bytes(int64_t tokens);
void trm_ngram_draft_init(trm_ngram_draft *lookup, int32_t *memory, int64_t tokens);

/*
 * Guesses what follows tokens [n]: at most `most` tokens into `draft`, whose number is returned. Of the newest places
 * with the same two tokens before them the one is taken where most tokens agree; *agreed is how many (at most
 * TRM_NGRAM_LONGEST). What a call says of tokens holds in later ones: sequences only grow.
 */
#define TRM_NGRAM_LONGEST 8
int32_t trm_ngram_draft_guess(trm_ngram_draft *lookup, const int32_t *tokens, int64_t n, int32_t most, int32_t *draft,
                              int32_t *agreed);

#endif
