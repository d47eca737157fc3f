/* Async decode steps: the device runs the next step before the host has read the last one's tokens. */
#include "dist/llm/async_step.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dist/llm/generator.h"
#include "kernels/sampling/sample.h"

static int32_t next_turn(const trm_async_step *ahead)
{
    return (ahead->turn + 1) % TRM_ASYNC_STEP_TURNS;
}

trm_status trm_async_step_init(trm_generator *g)
{
    trm_async_step *ahead = &g->ahead;
    const size_t n = (size_t)g->max_sequences;
    ahead->n_cached = calloc(n, sizeof(*ahead->n_cached));
    ahead->tokens = calloc(n, sizeof(*ahead->tokens));
    ahead->rows = calloc(n, sizeof(*ahead->rows));
    if (ahead->n_cached == NULL || ahead->tokens == NULL || ahead->rows == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the async steps of %d sequences", g->max_sequences);
    }
    for (int32_t i = 0; i < TRM_ASYNC_STEP_TURNS; i++) {
        void *memory;
        TRM_TRY(trm_event_create(g->world->device, &ahead->ends[i]));
        TRM_TRY(trm_device_alloc_host(g->world->device, n * sizeof(int32_t), &memory));
        ahead->chosen[i] = memory;
    }
    return TRM_OK;
}

void trm_async_step_fini(trm_generator *g)
{
    trm_async_step *ahead = &g->ahead;
    for (int32_t i = 0; i < TRM_ASYNC_STEP_TURNS; i++) {
        trm_event_destroy(ahead->ends[i]);
        trm_device_free_host(g->world->device, ahead->chosen[i]);
    }
    free(ahead->n_cached);
    free(ahead->tokens);
    free(ahead->rows);
    *ahead = (trm_async_step){0};
}

/* Of the step in bucket `step`. */
static int32_t *table_row(trm_generator *g, const trm_captured_shape *step, int32_t sequence)
{
    int32_t *table = trm_context_staging(g->context, g->block_table);
    return table + (size_t)sequence * (size_t)trm_generator_table_blocks(g, trm_graph_bucket_form(step));
}

/* Whether row `row` of the async step is this sequence's next step. */
static bool is_row(trm_generator *g, int32_t row, const trm_step_sequence *s)
{
    const int32_t *slots = g->sequence_slots == NULL ? NULL : trm_context_staging(g->context, g->sequence_slots);
    const int32_t *adapters = g->adapter_slots == NULL ? NULL : trm_context_staging(g->context, g->adapter_slots);
    const size_t blocks = (size_t)(s->n_cached / g->block_tokens + 1);
    return s->n_tokens == 1 && s->n_choices == 1 && s->n_targets + s->n_hidden == 0 &&
           s->n_cached == g->ahead.n_cached[row] && s->tokens[0] == g->ahead.tokens[row] &&
           (adapters == NULL || s->adapter - 1 == adapters[row]) &&
           (slots == NULL || (s->read_slot == slots[2 * row] && s->write_slot == slots[2 * row + 1])) &&
           memcmp(s->blocks, table_row(g, g->ahead.step, row), blocks * sizeof(*s->blocks)) == 0;
}

bool trm_async_step_applies(trm_generator *g, const trm_step_sequence *sequences, int32_t n)
{
    trm_async_step *ahead = &g->ahead;
    trm_sample_mode mode = g->sampler.least_mode;
    bool same = ahead->step != NULL;
    for (int32_t i = 0, row = 0; same && i < n; i++, row++) {
        while (row < ahead->n && !is_row(g, row, &sequences[i])) {
            row++;
        }
        same = row < ahead->n;
        ahead->rows[i] = row;
        trm_sample_mode own = same ? trm_choice_mode(&sequences[i].choices[0]) : mode;
        mode = own > mode ? own : mode;
    }
    return same && (n < ahead->n ? mode <= ahead->mode : mode == ahead->mode);
}

trm_status trm_async_step_settle(trm_generator *g)
{
    trm_async_step *ahead = &g->ahead;
    if (ahead->step == NULL) {
        return TRM_OK;
    }
    ahead->step = NULL;
    ahead->n_vain++;
    return trm_world_await(g->world, ahead->ends[next_turn(ahead)], "a step");
}

typedef struct async_run {
    trm_generator *g;
    int64_t sequences;
    trm_sample_mode mode;
} async_run;

/* Enqueues a step on the tokens of the step before, and the sampling of its own. */
static trm_status enqueue(void *user)
{
    const async_run *run = user;
    trm_generator *g = run->g;
    trm_context *context = g->context;
    trm_sampler *sampler = &g->sampler;
    const trm_sample_advance_args advance = {
        .rows = run->sequences,
        .chosen = sampler->chosen,
        .token_ids = trm_context_view(context, g->token_ids).data,
        .positions = trm_context_view(context, g->positions).data,
        .lengths = trm_context_view(context, g->sequence_lengths).data,
        .rope_lengths = g->rope_lengths == NULL ? NULL : trm_context_view(context, g->rope_lengths).data,
        .parameters = run->mode == TRM_SAMPLE_GREEDY ? NULL : sampler->rows};
    TRM_TRY(trm_sample_advance(context->stream, &advance));
    TRM_TRY(trm_context_enqueue_again(context));
    TRM_TRY(trm_sampler_enqueue(sampler, context->stream, trm_context_view(context, g->logits).data, 0,
                                (int32_t)run->sequences, run->mode));
    return trm_generator_agree_on_tokens(g, (int32_t)run->sequences);
}

/* Uploads the new block table entries of the step's tokens. A copy of the staged tables may still be running: only
 * entries after the keys of the running step change, which it does not read, and this copy comes after it. */
static trm_status upload_blocks(trm_generator *g, const trm_captured_shape *step, const trm_step_sequence *sequences,
                                int32_t n)
{
    bool changed = false;
    for (int32_t i = 0; i < n; i++) {
        const int64_t last = (sequences[i].n_cached + 1) / g->block_tokens;
        int32_t *entry = table_row(g, step, i) + last;
        changed = changed || *entry != sequences[i].blocks[last];
        *entry = sequences[i].blocks[last];
    }
    const size_t bytes =
        (size_t)n * (size_t)trm_generator_table_blocks(g, trm_graph_bucket_form(step)) * sizeof(int32_t);
    return changed ? trm_stream_upload(g->context->stream, trm_context_view(g->context, g->block_table).data,
                                       table_row(g, step, 0), bytes)
                   : TRM_OK;
}

trm_status trm_async_step_enqueue(trm_generator *g, trm_captured_shape *step, trm_sample_mode mode,
                                  const trm_step_sequence *sequences, int32_t n)
{
    trm_async_step *ahead = &g->ahead;
    trm_stream *stream = g->context->stream;
    const int32_t turn = next_turn(ahead);
    const bool captures = trm_device_backend(g->world->device) == TRM_BACKEND_CUDA;
    const int32_t variant = trm_graph_bucket_variant(mode, true);
    async_run run = {g, trm_graph_bucket_form(step)->sequences, mode};
    TRM_TRY(upload_blocks(g, step, sequences, n));
    if (captures && step->execs[variant] == NULL) {
        TRM_TRY(trm_context_capture(g->context, step, variant, enqueue, &run));
    }
    TRM_TRY(captures ? trm_context_launch(g->context, step, variant) : enqueue(&run));
    TRM_TRY(trm_stream_download(stream, ahead->chosen[turn], g->sampler.chosen, (size_t)n * sizeof(int32_t)));
    TRM_TRY(trm_event_record(ahead->ends[turn], stream));
    ahead->step = step;
    ahead->mode = mode;
    ahead->n = n;
    for (int32_t i = 0; i < n; i++) {
        ahead->n_cached[i] = sequences[i].n_cached + 1;
    }
    return TRM_OK;
}
