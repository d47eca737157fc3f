/* Random texts that follow a grammar. */
#include "support/grammar_walk.h"

#include <stdlib.h>
#include <string.h>

#include <trireme/network.h>

#include "base/error.h"
#include "support/support.h"

#define MOST_TOKENS 3000

static size_t list_allowed(const uint32_t *mask, int32_t vocab_size, const trm_tokenizer *tokenizer, bool only_short,
                           int32_t *allowed)
{
    size_t n = 0;
    for (int32_t id = 0; id < vocab_size; id++) {
        const char *token = trm_tokenizer_token(tokenizer, id);
        bool is_short = token != NULL && strlen(token) <= 1 && !(token[0] >= 'a' && token[0] <= 'z');
        is_short |= token != NULL && (strcmp(token, "<0x22>") == 0 || strcmp(token, "<0x7D>") == 0 ||
                                      strcmp(token, "<0x5D>") == 0 || strcmp(token, "<0x2C>") == 0);
        if ((mask[id / 32] >> id % 32 & 1) != 0 && (!only_short || is_short)) {
            allowed[n++] = id;
        }
    }
    return n;
}

/* Texts end sooner when short tokens, among which are quotes and brackets, are taken more often. */
static trm_status choose(trm_grammar_state *state, const trm_tokenizer *tokenizer, int32_t vocab_size, size_t step,
                         uint64_t *seed, uint32_t *mask, int32_t *allowed, int32_t *token)
{
    TRM_TRY(trm_grammar_state_mask(state, mask));
    bool want_short = step > 60 || test_random_below(seed, 3) == 0;
    size_t n = list_allowed(mask, vocab_size, tokenizer, want_short, allowed);
    if (n == 0) {
        n = list_allowed(mask, vocab_size, tokenizer, false, allowed);
    }
    if (n == 0) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a mask has no token");
    }
    *token = allowed[test_random_below(seed, (int64_t)n)];
    int32_t end = vocab_size - 1; /* the end token of the tests */
    if (trm_grammar_state_is_complete(state) && test_random_below(seed, 4) == 0) {
        *token = end;
    }
    return TRM_OK;
}

trm_status test_grammar_walk(trm_grammar *grammar, const trm_tokenizer *tokenizer, int32_t vocab_size, uint64_t *seed,
                             char **text, size_t *size)
{
    trm_grammar_state *state = NULL;
    int32_t tokens[MOST_TOKENS];
    size_t n = 0;
    bool ended = false;
    uint32_t *mask = calloc((size_t)vocab_size / 32 + 1, sizeof(*mask));
    int32_t *allowed = calloc((size_t)vocab_size, sizeof(*allowed));
    *text = NULL;
    trm_status status = mask == NULL || allowed == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
    if (status == TRM_OK) {
        status = trm_grammar_state_create(grammar, &state);
    }
    while (status == TRM_OK && n < MOST_TOKENS && !ended) {
        bool accepted = false;
        status = choose(state, tokenizer, vocab_size, n, seed, mask, allowed, &tokens[n]);
        if (status == TRM_OK) {
            status = trm_grammar_state_accept(state, tokens[n], &accepted);
        }
        if (status == TRM_OK && !accepted) {
            status = trm_fail(TRM_ERROR_INTERNAL, "token %d of a mask is not accepted", tokens[n]);
        }
        ended = tokens[n] == vocab_size - 1;
        n += !ended;
    }
    if (status == TRM_OK && ended) {
        status = trm_tokenizer_decode(tokenizer, tokens, n, false, text, size);
    }
    trm_grammar_state_destroy(state);
    free(mask);
    free(allowed);
    return status;
}
