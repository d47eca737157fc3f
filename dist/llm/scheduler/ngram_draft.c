/* N-gram drafts: predicts tokens from what followed the same tokens before. */
#include "dist/llm/scheduler/ngram_draft.h"

#include <string.h>

/* Places to examine, newest first. */
#define MOST_PLACES 16

static int32_t count_lists(int64_t tokens)
{
    int32_t n = 16;
    while (n < tokens && n < 1 << 30) {
        n *= 2;
    }
    return n;
}

size_t trm_ngram_draft_bytes(int64_t tokens)
{
    return ((size_t)count_lists(tokens) + (size_t)tokens) * sizeof(int32_t);
}

void trm_ngram_draft_init(trm_ngram_draft *lookup, int32_t *memory, int64_t tokens)
{
    *lookup = (trm_ngram_draft){.newest = memory, .n_lists = count_lists(tokens), .n_noted = 2};
    lookup->older = memory + lookup->n_lists;
    memset(lookup->newest, 0, (size_t)lookup->n_lists * sizeof(*lookup->newest));
}

/* The list of places after tokens[at - 2] and tokens[at - 1]. */
static int32_t *list_of(const trm_ngram_draft *lookup, const int32_t *tokens, int64_t at)
{
    uint64_t pair = (uint64_t)(uint32_t)tokens[at - 2] << 32 | (uint32_t)tokens[at - 1];
    pair *= 0x9e3779b97f4a7c15ull;
    return &lookup->newest[(pair >> 32) & (uint64_t)(lookup->n_lists - 1)];
}

/* Number of tokens before `at` that equal those before `n`. */
static int32_t count_agreeing(const int32_t *tokens, int64_t at, int64_t n)
{
    int32_t agreeing = 0;
    while (agreeing < TRM_NGRAM_LONGEST && agreeing < at && tokens[at - 1 - agreeing] == tokens[n - 1 - agreeing]) {
        agreeing++;
    }
    return agreeing;
}

int32_t trm_ngram_draft_guess(trm_ngram_draft *lookup, const int32_t *tokens, int64_t n, int32_t most, int32_t *draft,
                              int32_t *agreed)
{
    for (; lookup->n_noted < n; lookup->n_noted++) {
        int32_t *list = list_of(lookup, tokens, lookup->n_noted);
        lookup->older[lookup->n_noted] = *list;
        *list = (int32_t)lookup->n_noted;
    }
    *agreed = 0;
    if (n < 2) {
        return 0;
    }
    int64_t best = 0;
    int32_t places = 0;
    for (int32_t at = *list_of(lookup, tokens, n); at > 0 && places < MOST_PLACES; at = lookup->older[at], places++) {
        int32_t agreeing = count_agreeing(tokens, at, n);
        if (agreeing >= 2 && agreeing > *agreed) {
            *agreed = agreeing;
            best = at;
        }
    }
    if (best == 0) {
        return 0;
    }
    for (int32_t i = 0; i < most; i++) { /* a repetition continues */
        draft[i] = best + i < n ? tokens[best + i] : draft[best + i - n];
    }
    return most;
}
