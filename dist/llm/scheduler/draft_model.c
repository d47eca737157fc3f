/* Steps of a draft model. */
#include "dist/llm/scheduler/draft_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

trm_status trm_draft_model_init(trm_draft_model *d, trm_generator *g, int32_t slots, int32_t step_tokens)
{
    size_t n = (size_t)slots, width = (size_t)g->blocks_per_sequence;
    *d = (trm_draft_model){.g = g, .slots = slots};
    d->step_tokens = step_tokens < g->max_step_tokens ? step_tokens : g->max_step_tokens;
    d->blocks = calloc(n * width, sizeof(*d->blocks));
    d->n_cached = calloc(n, sizeof(*d->n_cached));
    d->wanted = calloc(n, sizeof(*d->wanted));
    d->sequences = calloc(n, sizeof(*d->sequences));
    d->slot_of = calloc(n, sizeof(*d->slot_of));
    d->chosen = calloc(n, sizeof(*d->chosen));
    if (d->blocks == NULL || d->n_cached == NULL || d->wanted == NULL || d->sequences == NULL || d->slot_of == NULL ||
        d->chosen == NULL) {
        trm_draft_model_fini(d);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a draft model's %d sequences", slots);
    }
    for (size_t i = 0; i < n * width; i++) {
        d->blocks[i] = (int32_t)i;
    }
    return TRM_OK;
}

void trm_draft_model_fini(trm_draft_model *d)
{
    free(d->blocks);
    free(d->n_cached);
    free(d->wanted);
    free(d->sequences);
    free(d->slot_of);
    free(d->chosen);
    *d = (trm_draft_model){0};
}

void trm_draft_model_forget(trm_draft_model *d, int32_t slot)
{
    if (d->n_cached != NULL) {
        d->n_cached[slot] = 0;
    }
}

void trm_draft_model_keep(trm_draft_model *d, int32_t slot, int64_t n_tokens, int32_t drafted, int32_t right)
{
    if (drafted > 0) { /* the cache lacks the last draft token */
        d->n_cached[slot] = n_tokens + (right < drafted - 1 ? right : drafted - 1);
    }
}

/* Number of tokens that a slot's cache lacks before it can draft the next token. */
static int64_t missing(const trm_draft_model *d, const trm_draft_slot *w)
{
    return w->n_tokens + w->n - d->n_cached[w->slot];
}

int32_t trm_draft_model_fill(trm_draft_model *d, int32_t n)
{
    static const trm_sampling_row choice = {.sampling = &trm_sampling_greedy, .logprobs = -1};
    int32_t filled = 0, tokens = 0;
    bool behind = false; /* sequences that must catch up go first */
    for (int32_t i = 0; i < n; i++) {
        behind = behind || (d->wanted[i].n == 0 && d->wanted[i].most > 0);
    }
    for (int32_t i = 0; i < n && tokens < d->step_tokens; i++) {
        trm_draft_slot *w = &d->wanted[i];
        w->given = 0;
        if (w->n == w->most || (behind && w->n > 0)) {
            continue;
        }
        int64_t left = missing(d, w);
        int32_t room = d->step_tokens - tokens;
        w->given = left < room ? (int32_t)left : room;
        d->slot_of[filled] = w->slot;
        d->sequences[filled++] =
            (trm_step_sequence){.tokens = w->tokens + d->n_cached[w->slot],
                                .n_tokens = w->given,
                                .n_cached = d->n_cached[w->slot],
                                .n_prompt = w->n_tokens,
                                .blocks = d->blocks + (size_t)w->slot * (size_t)d->g->blocks_per_sequence,
                                .choices = &choice,
                                .n_choices = w->given == left};
        tokens += w->given;
    }
    return filled;
}

trm_status trm_draft_model_step(trm_draft_model *d, int32_t n)
{
    return trm_generator_step(d->g, d->sequences, n, d->chosen);
}

void trm_draft_model_take(trm_draft_model *d, int32_t n)
{
    const int32_t *chosen = d->chosen;
    for (int32_t i = 0; i < n; i++) {
        trm_draft_slot *w = &d->wanted[i];
        if (w->given == 0) {
            continue;
        }
        bool drafted = missing(d, w) == w->given;
        d->n_cached[w->slot] += w->given;
        if (drafted) {
            w->tokens[w->n_tokens + w->n++] = *chosen++;
        }
        w->given = 0;
    }
}
