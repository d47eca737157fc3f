/* Steps of a draft head: one behind every step of the generator, and one for each draft token but the first. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dist/llm/scheduler/scheduler.h"

static const trm_sampling_row choice = {.sampling = &trm_sampling_greedy, .logprobs = -1};

trm_status trm_scheduler_init_head(trm_scheduler *s)
{
    trm_head_steps *h = &s->head;
    if (s->g->head == NULL) {
        return TRM_OK;
    }
    const size_t n = (size_t)s->g->max_sequences;
    h->sequences = calloc(n, sizeof(*h->sequences));
    h->lives = calloc(n, sizeof(trm_sequence *));
    h->slots = calloc(n, sizeof(*h->slots));
    h->chosen = calloc(n, sizeof(*h->chosen));
    h->tokens = calloc((size_t)s->g->max_step_tokens, sizeof(*h->tokens));
    if (h->sequences == NULL || h->lives == NULL || h->slots == NULL || h->chosen == NULL || h->tokens == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the steps of a draft head for %d sequences",
                 s->g->max_sequences);
    }
    h->g = s->g->head;
    return TRM_OK;
}

void trm_scheduler_fini_head(trm_scheduler *s)
{
    free(s->head.sequences);
    free(s->head.lives);
    free(s->head.slots);
    free(s->head.chosen);
    free(s->head.tokens);
    s->head = (trm_head_steps){0};
}

int32_t trm_scheduler_count_right(const trm_sequence *sequence, const int32_t *chosen, int32_t n)
{
    int32_t right = 0;
    while (right < n - 1 && chosen[right] == sequence->tokens[sequence->n_tokens + right]) {
        right++;
    }
    return right;
}

trm_status trm_scheduler_step_head(trm_scheduler *s, int32_t n, bool begins)
{
    trm_head_steps *h = &s->head;
    TRM_TRY(trm_draft_head_feed(h->g, begins ? s->g : h->g));
    return trm_generator_step(h->g, h->sequences, n, h->chosen);
}

/* Runs a step of n sequences on all ranks. Of those that wanted a token, head_token is that, and head_row its row. */
static trm_status run(trm_scheduler *s, int32_t n, bool begins)
{
    trm_head_steps *h = &s->head;
    TRM_TRY(trm_scheduler_send_head(s, n, begins));
    TRM_TRY(trm_scheduler_step_head(s, n, begins));
    for (int32_t i = 0, row = 0; i < n; i++) {
        if (h->sequences[i].n_choices > 0) {
            h->lives[i]->head_token = trm_draft_head_token(h->g, h->chosen[row]);
            h->lives[i]->head_row = row++;
        }
    }
    return TRM_OK;
}

/* Adds the tokens behind those of part `i` of the generator's step to step `n` of the head, as far as they are known:
 * the next of its prompt, or accepted drafts and the token that was sampled behind them. Returns how many. */
static int32_t add_part(trm_scheduler *s, int32_t i, int32_t n, const int32_t *chosen, int32_t *tokens)
{
    trm_head_steps *h = &s->head;
    const trm_step_sequence *part = &s->sequences[i];
    const int32_t drafted = part->n_choices > 0 ? part->n_choices - 1 : 0;
    const int32_t right = trm_scheduler_count_right(s->lives[i], chosen, part->n_choices);
    int32_t rows = part->n_tokens - drafted + right;
    if (part->n_choices == 0 && part->n_cached + rows == s->lives[i]->n_tokens) { /* it ends without a token */
        rows--;
    }
    if (rows == 0) {
        return 0;
    }
    memcpy(tokens, part->tokens + 1, (size_t)(rows - 1) * sizeof(*tokens));
    tokens[rows - 1] = part->n_choices > 0 ? chosen[right] : part->tokens[rows];
    h->lives[n] = s->lives[i];
    h->slots[n] = s->slots[i];
    h->sequences[n] = (trm_step_sequence){.tokens = tokens,
                                          .n_tokens = rows,
                                          .n_cached = part->n_cached,
                                          .n_prompt = part->n_prompt,
                                          .blocks = part->blocks,
                                          .choices = &choice,
                                          .n_choices = part->n_choices > 0};
    return rows;
}

trm_status trm_scheduler_follow_with_head(trm_scheduler *s)
{
    trm_head_steps *h = &s->head;
    const int32_t *chosen = s->chosen;
    int32_t n = 0, at = 0, first = 0;
    if (h->g == NULL) {
        return TRM_OK;
    }
    for (int32_t i = 0; i < s->n_running; i++) {
        s->running[i]->head_row = -1;
    }
    for (int32_t i = 0; i < s->n_sequences; i++) {
        const int32_t rows = add_part(s, i, n, chosen, h->tokens + at);
        if (rows > 0) {
            h->sequences[n++].hidden_row = first;
        }
        at += rows;
        first += s->sequences[i].n_tokens;
        chosen += s->sequences[i].n_choices;
    }
    return n == 0 ? TRM_OK : run(s, n, true);
}

/* Settles how many tokens to draft for each sequence, and takes blocks for them. The first one is there. */
static void begin_drafts(trm_scheduler *s, int32_t most)
{
    for (int32_t i = 0; i < s->n_running; i++) {
        trm_sequence *sequence = s->running[i];
        int32_t wanted = sequence->n_drafted < most ? sequence->n_drafted : most;
        if (sequence->n_drafted > 0) {
            sequence->tokens[sequence->n_tokens] = sequence->guess = sequence->head_token;
        }
        if (wanted > 1) { /* a row of its cache for each but the first */
            const int32_t fits = trm_scheduler_grow_for_drafts(s, sequence, wanted);
            wanted = fits > 1 ? fits : 1;
        }
        sequence->n_drafted = wanted;
    }
}

trm_status trm_scheduler_draft_by_head(trm_scheduler *s, int32_t most)
{
    trm_head_steps *h = &s->head;
    begin_drafts(s, most);
    for (int32_t drafted = 1, n = -1; n != 0; drafted++) {
        n = 0;
        for (int32_t i = 0; i < s->n_running; i++) {
            trm_sequence *sequence = s->running[i];
            if (sequence->n_drafted <= drafted) {
                continue;
            }
            h->lives[n] = sequence;
            h->slots[n] = sequence->slot;
            h->sequences[n++] =
                (trm_step_sequence){.tokens = sequence->tokens + sequence->n_tokens + drafted - 1,
                                    .n_tokens = 1,
                                    .n_cached = sequence->n_tokens - 2 + drafted,
                                    .n_prompt = sequence->request.n_prompt,
                                    .blocks = s->table + (size_t)sequence->slot * (size_t)s->g->blocks_per_sequence,
                                    .choices = &choice,
                                    .n_choices = 1,
                                    .hidden_row = sequence->head_row};
        }
        if (n > 0) {
            TRM_TRY(run(s, n, false));
            for (int32_t i = 0; i < n; i++) {
                h->lives[i]->tokens[h->lives[i]->n_tokens + drafted] = h->lives[i]->head_token;
            }
        }
    }
    return TRM_OK;
}
