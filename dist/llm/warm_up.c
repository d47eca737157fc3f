/* Warm-up: the first steps of a generator, which tune, capture and load what later ones need. */
#include <stdlib.h>

#include "base/error.h"
#include "dist/llm/generator.h"

#define WARM_PROMPT 64 /* tokens of the warm-up prompt: more than kernels for few rows accept */

/* Tunes and captures steps that verify draft tokens of one sequence. */
static trm_status warm_up_drafts(trm_generator *g, const trm_step_sequence *decode, const trm_sampling_row *choice,
                                 int32_t *chosen)
{
    int32_t tokens[TRM_MAX_DRAFT + 1] = {0};
    trm_sampling_row choices[TRM_MAX_DRAFT + 1];
    for (int32_t i = 0; i < TRM_MAX_DRAFT + 1; i++) {
        choices[i] = *choice;
    }
    for (int32_t i = 0; i < g->buckets.n_draft; i++) {
        trm_step_sequence sequence = *decode;
        sequence.tokens = tokens;
        sequence.choices = choices;
        sequence.n_tokens = sequence.n_choices = g->buckets.fixed[g->buckets.n_decode + i].tokens;
        if (sequence.n_tokens <= g->max_context) {
            TRM_TRY(trm_generator_step(g, &sequence, 1, chosen));
        }
    }
    return TRM_OK;
}

/* Runs a short prompt, so that libraries and prefill kernels are loaded. Not while weights stream: it would stream all
 * of them. */
static trm_status warm_up_prompts(trm_generator *g, const trm_step_sequence *decode, int32_t *chosen)
{
    int32_t tokens[WARM_PROMPT] = {0};
    trm_step_sequence sequence = *decode;
    int64_t n = WARM_PROMPT < g->max_context ? WARM_PROMPT : g->max_context;
    sequence.tokens = tokens;
    sequence.n_tokens = (int32_t)(n < g->max_step_tokens ? n : g->max_step_tokens);
    return g->engine->plan->streaming == NULL ? trm_generator_step(g, &sequence, 1, chosen) : TRM_OK;
}

trm_status trm_generator_warm_up(trm_generator *g)
{
    if (trm_device_backend(g->world->device) != TRM_BACKEND_CUDA) {
        return TRM_OK;
    }
    int32_t *blocks = calloc((size_t)g->blocks_per_sequence, sizeof(*blocks));
    trm_step_sequence *sequences = calloc((size_t)g->max_sequences, sizeof(*sequences));
    int32_t *chosen = calloc((size_t)g->max_rows, sizeof(*chosen));
    trm_status status = TRM_OK;
    if (blocks == NULL || sequences == NULL || chosen == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the warm-up");
    }
    static const int32_t token = 0;
    static const trm_sampling_row choice = {.sampling = &trm_sampling_greedy, .logprobs = -1};
    status = trm_world_all_ok(g->world, status); /* steps are collective */
    for (int32_t i = 0; status == TRM_OK && i < g->max_sequences; i++) {
        sequences[i] = (trm_step_sequence){.tokens = &token,
                                           .n_tokens = 1,
                                           .blocks = blocks,
                                           .read_slot = i,
                                           .write_slot = i,
                                           .choices = &choice,
                                           .n_choices = 1};
    }
    for (int32_t i = 0; status == TRM_OK && i < g->buckets.n_decode; i++) {
        status = trm_generator_step(g, sequences, g->buckets.fixed[i].sequences, chosen);
    }
    if (status == TRM_OK) {
        status = warm_up_drafts(g, sequences, &choice, chosen);
    }
    if (status == TRM_OK) {
        status = warm_up_prompts(g, sequences, chosen);
    }
    free(blocks);
    free(sequences);
    free(chosen);
    return status;
}
