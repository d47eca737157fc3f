/* The sampler: from a step's logits to its tokens. */
#include "dist/llm/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "graph/memory_plan.h"

#define MAX_BIAS (TRM_MAX_LOGIT_BIAS + TRM_MAX_BANNED)

const trm_serving_sampling trm_sampling_greedy = {.base = {.top_p = 1.0f, .repetition_penalty = 1.0f},
                                                  .typical_p = 1.0f};

void trm_sampling_fill(trm_serving_sampling *sampling)
{
    trm_sampling *base = &sampling->base;
    base->top_p = base->top_p == 0.0f ? 1.0f : base->top_p;
    base->repetition_penalty = base->repetition_penalty == 0.0f ? 1.0f : base->repetition_penalty;
    sampling->typical_p = sampling->typical_p == 0.0f ? 1.0f : sampling->typical_p;
}

/* Lays out a memory region; with `base` NULL only its size counts. */
static void *take(unsigned char *base, size_t *at, size_t size)
{
    unsigned char *place = base == NULL ? NULL : base + *at;
    *at += trm_align_up(size, TRM_TENSOR_ALIGNMENT);
    return place;
}

static size_t place_device(trm_sampler *c, const trm_stream *stream)
{
    size_t at = 0, rows = (size_t)c->max_rows, vocab = (size_t)c->vocab;
    c->rows = take(c->memory, &at, rows * sizeof(*c->rows));
    c->logits_rows = take(c->memory, &at, rows * sizeof(*c->logits_rows));
    c->chosen = take(c->memory, &at, rows * sizeof(*c->chosen));
    c->logprobs = take(c->memory, &at, rows * sizeof(*c->logprobs));
    c->top_tokens = take(c->memory, &at, rows * TRM_LOGITS_MAX_TOP * sizeof(*c->top_tokens));
    c->top_logprobs = take(c->memory, &at, rows * TRM_LOGITS_MAX_TOP * sizeof(*c->top_logprobs));
    c->counts = take(c->memory, &at, (size_t)c->slots * vocab * sizeof(*c->counts));
    c->adjusted = take(c->memory, &at, rows * vocab * sizeof(*c->adjusted));
    c->masks = take(c->memory, &at, rows * (size_t)c->words * sizeof(*c->masks));
    c->bias = take(c->memory, &at, rows * MAX_BIAS * sizeof(*c->bias));
    c->drafts = take(c->memory, &at, rows * sizeof(*c->drafts));
    c->workspace = take(c->memory, &at, trm_sample_workspace(stream, c->max_rows, c->vocab));
    return at;
}

static size_t place_staging(trm_sampler *c)
{
    size_t at = 0, rows = (size_t)c->max_rows;
    c->rows_staging = take(c->staging, &at, rows * sizeof(*c->rows));
    c->logits_rows_staging = take(c->staging, &at, rows * sizeof(*c->logits_rows));
    c->chosen_staging = take(c->staging, &at, rows * sizeof(*c->chosen));
    c->logprobs_staging = take(c->staging, &at, rows * sizeof(*c->logprobs));
    c->top_tokens_staging = take(c->staging, &at, rows * TRM_LOGITS_MAX_TOP * sizeof(*c->top_tokens));
    c->top_logprobs_staging = take(c->staging, &at, rows * TRM_LOGITS_MAX_TOP * sizeof(*c->top_logprobs));
    c->masks_staging = take(c->staging, &at, rows * (size_t)c->words * sizeof(*c->masks));
    c->bias_staging = take(c->staging, &at, rows * MAX_BIAS * sizeof(*c->bias));
    c->drafts_staging = take(c->staging, &at, rows * sizeof(*c->drafts));
    c->counts_staging = take(c->staging, &at, (size_t)c->vocab * sizeof(*c->counts));
    return at;
}

static trm_sampler sized(int64_t max_rows, int64_t slots, int64_t vocab)
{
    return (trm_sampler){.max_rows = max_rows, .slots = slots, .vocab = vocab, .words = (vocab + 31) / 32};
}

size_t trm_sampler_bytes(const trm_stream *stream, int64_t max_rows, int64_t slots, int64_t vocab)
{
    trm_sampler c = sized(max_rows, slots, vocab);
    return place_device(&c, stream);
}

trm_status trm_sampler_init(trm_sampler *c, trm_stream *stream, int64_t max_rows, int64_t slots, int64_t vocab)
{
    *c = sized(max_rows, slots, vocab);
    c->device = trm_stream_device(stream);
    c->bytes = place_device(c, stream);
    void *memory;
    TRM_TRY(trm_device_alloc(c->device, c->bytes, &memory));
    c->memory = memory;
    trm_status status = trm_device_alloc_host(c->device, place_staging(c), &memory);
    if (status != TRM_OK) {
        trm_sampler_fini(c);
        return status;
    }
    c->staging = memory;
    place_device(c, stream);
    place_staging(c);
    return TRM_OK;
}

void trm_sampler_fini(trm_sampler *c)
{
    if (c->device != NULL) {
        trm_device_free(c->device, c->memory);
        trm_device_free_host(c->device, c->staging);
    }
    *c = (trm_sampler){0};
}

/* ---- rows -------------------------------------------------------------------------------------- */

void trm_sampler_begin(trm_sampler *c)
{
    c->mode = c->least_mode;
    c->n_rows = c->n_masks = c->n_bias = c->n_drafts = 0;
}

static int32_t add_neutral(trm_sampler *c)
{
    int32_t row = c->n_rows++;
    c->rows_staging[row] = (trm_sample_row){.top_p = 1.0f, .typical_p = 1.0f};
    c->logits_rows_staging[row] =
        (trm_logits_row){.repetition_penalty = 1.0f, .history = -1, .mask = -1, .n_top = -1, .target = -1};
    return row;
}

void trm_sampler_add_padding(trm_sampler *c)
{
    add_neutral(c);
}

void trm_sampler_add_target(trm_sampler *c, int32_t target, int32_t n_top)
{
    trm_logits_row *row = &c->logits_rows_staging[add_neutral(c)];
    c->mode = TRM_SAMPLE_FULL;
    if (!c->follows) {
        row->target = target;
        row->n_top = n_top;
    }
}

static void add_bias(trm_sampler *c, trm_logits_row *row, const trm_sampling_row *choice)
{
    trm_logits_bias *to = c->bias_staging + c->n_bias;
    row->first_bias = c->n_bias;
    for (int32_t i = 0; i < choice->sampling->n_bias; i++) {
        to[row->n_bias++] = (trm_logits_bias){choice->sampling->bias[i].token, choice->sampling->bias[i].bias};
    }
    for (int32_t i = 0; i < choice->n_banned; i++) {
        int32_t at = 0;
        while (at < row->n_bias && to[at].token != choice->banned[i]) {
            at++;
        }
        to[at] = (trm_logits_bias){choice->banned[i], -INFINITY};
        row->n_bias += at == row->n_bias;
    }
    c->n_bias += row->n_bias;
}

/* All rows of a sequence share its draft tokens. */
static void add_drafts(trm_sampler *c, trm_logits_row *row, const trm_sampling_row *choice)
{
    if (choice->n_before == 0 && choice->n_behind > 0) {
        c->first_draft = c->n_drafts;
        memcpy(c->drafts_staging + c->n_drafts, choice->drafts, (size_t)choice->n_behind * sizeof(*choice->drafts));
        c->n_drafts += choice->n_behind;
    }
    row->first_draft = c->first_draft;
    row->n_drafts = choice->n_before;
    row->n_behind = choice->n_before == 0 ? choice->n_behind : 0;
}

static trm_status count_history(trm_sampler *c, trm_stream *stream, const trm_sampling_row *choice)
{
    uint16_t *counts = c->counts_staging;
    memset(counts, 0, (size_t)c->vocab * sizeof(*counts));
    for (int64_t i = 0; i < choice->n_history; i++) {
        uint16_t *count = &counts[choice->history[i]];
        if (i < choice->n_prompt) {
            *count = TRM_LOGITS_IN_PROMPT;
        } else if ((*count & TRM_LOGITS_MOST) < TRM_LOGITS_MOST) {
            (*count)++;
        }
    }
    TRM_TRY(trm_stream_upload(stream, c->counts + (size_t)choice->slot * (size_t)c->vocab, counts,
                              (size_t)c->vocab * sizeof(*counts)));
    return trm_stream_synchronize(stream); /* the next history uses the same memory */
}

static bool is_penalized(const trm_serving_sampling *sampling)
{
    return sampling->base.repetition_penalty != 1.0f || sampling->presence_penalty != 0.0f ||
           sampling->frequency_penalty != 0.0f;
}

trm_sample_mode trm_choice_mode(const trm_sampling_row *choice)
{
    const trm_serving_sampling *sampling = choice->sampling;
    if (is_penalized(sampling) || sampling->n_bias + choice->n_banned > 0 || choice->mask != NULL ||
        choice->logprobs >= 0) {
        return TRM_SAMPLE_FULL;
    }
    return sampling->base.temperature > 0.0f ? TRM_SAMPLE_DRAW : TRM_SAMPLE_GREEDY;
}

trm_status trm_sampler_add(trm_sampler *c, trm_stream *stream, const trm_sampling_row *choice)
{
    const trm_serving_sampling *sampling = choice->sampling;
    int32_t at = add_neutral(c);
    trm_sample_row *row = &c->rows_staging[at];
    trm_logits_row *logits_row = &c->logits_rows_staging[at];
    trm_sample_mode mode = trm_choice_mode(choice);
    c->mode = mode > c->mode ? mode : c->mode;
    if (c->follows) {
        return TRM_OK;
    }
    row->temperature = sampling->base.temperature;
    row->top_p = sampling->base.top_p;
    row->min_p = sampling->base.min_p;
    row->typical_p = sampling->typical_p;
    row->top_k = sampling->base.top_k;
    row->seed = sampling->base.seed;
    row->counter = choice->counter;
    logits_row->n_top = choice->logprobs;
    if (is_penalized(sampling)) {
        logits_row->repetition_penalty = sampling->base.repetition_penalty;
        logits_row->presence_penalty = sampling->presence_penalty;
        logits_row->frequency_penalty = sampling->frequency_penalty;
        logits_row->history = choice->slot;
        if (choice->history != NULL) {
            TRM_TRY(count_history(c, stream, choice));
        }
        add_drafts(c, logits_row, choice);
    }
    if (sampling->n_bias + choice->n_banned > 0) {
        add_bias(c, logits_row, choice);
    }
    if (choice->mask != NULL) {
        logits_row->mask = c->n_masks++;
        memcpy(c->masks_staging + (size_t)logits_row->mask * (size_t)c->words, choice->mask,
               (size_t)c->words * sizeof(*choice->mask));
    }
    return TRM_OK;
}

/* ---- kernels ----------------------------------------------------------------------------------- */

trm_status trm_sampler_stage(trm_sampler *c, trm_stream *stream)
{
    if (c->n_masks > 0) {
        TRM_TRY(trm_stream_upload(stream, c->masks, c->masks_staging,
                                  (size_t)c->n_masks * (size_t)c->words * sizeof(*c->masks)));
    }
    if (c->n_drafts > 0) {
        TRM_TRY(trm_stream_upload(stream, c->drafts, c->drafts_staging, (size_t)c->n_drafts * sizeof(*c->drafts)));
    }
    return c->n_bias == 0 ? TRM_OK
                          : trm_stream_upload(stream, c->bias, c->bias_staging, (size_t)c->n_bias * sizeof(*c->bias));
}

trm_status trm_sampler_upload(trm_sampler *c, trm_stream *stream, int32_t n_rows, trm_sample_mode mode)
{
    size_t n = (size_t)n_rows;
    if (mode != TRM_SAMPLE_GREEDY) {
        TRM_TRY(trm_stream_upload(stream, c->rows, c->rows_staging, n * sizeof(*c->rows)));
    }
    return mode != TRM_SAMPLE_FULL
               ? TRM_OK
               : trm_stream_upload(stream, c->logits_rows, c->logits_rows_staging, n * sizeof(*c->logits_rows));
}

trm_status trm_sampler_enqueue(trm_sampler *c, trm_stream *stream, float *logits, int32_t first, int32_t n_rows,
                               trm_sample_mode mode)
{
    float *adjusted = c->adjusted + first * c->vocab;
    if (mode == TRM_SAMPLE_FULL) {
        const trm_logits_adjust_args adjust = {.logits = logits,
                                               .adjusted = adjusted,
                                               .rows = n_rows,
                                               .vocab = c->vocab,
                                               .parameters = c->logits_rows + first,
                                               .counts = c->counts,
                                               .bias = c->bias,
                                               .masks = c->masks,
                                               .drafts = c->drafts};
        TRM_TRY(trm_logits_adjust(stream, &adjust));
    }
    const trm_sample_args sample = {.logits = mode == TRM_SAMPLE_FULL ? adjusted : logits,
                                    .rows = n_rows,
                                    .vocab = c->vocab,
                                    .parameters = c->rows + first,
                                    .tokens = c->chosen + first,
                                    .workspace = c->workspace,
                                    .greedy_only = mode == TRM_SAMPLE_GREEDY};
    TRM_TRY(trm_sample(stream, &sample));
    if (mode != TRM_SAMPLE_FULL) {
        return TRM_OK;
    }
    const trm_logits_report_args report = {.logits = logits,
                                           .rows = n_rows,
                                           .vocab = c->vocab,
                                           .parameters = c->logits_rows + first,
                                           .tokens = c->chosen + first,
                                           .drafts = c->drafts,
                                           .counts = c->counts,
                                           .logprobs = c->logprobs + first,
                                           .top_tokens = c->top_tokens + first * TRM_LOGITS_MAX_TOP,
                                           .top_logprobs = c->top_logprobs + first * TRM_LOGITS_MAX_TOP};
    return trm_logits_report(stream, &report);
}

trm_status trm_sampler_download(trm_sampler *c, trm_stream *stream, int32_t n_rows, trm_sample_mode mode)
{
    size_t n = (size_t)n_rows;
    if (mode == TRM_SAMPLE_FULL) {
        TRM_TRY(trm_stream_download(stream, c->logprobs_staging, c->logprobs, n * sizeof(*c->logprobs)));
        TRM_TRY(trm_stream_download(stream, c->top_tokens_staging, c->top_tokens,
                                    n * TRM_LOGITS_MAX_TOP * sizeof(*c->top_tokens)));
        TRM_TRY(trm_stream_download(stream, c->top_logprobs_staging, c->top_logprobs,
                                    n * TRM_LOGITS_MAX_TOP * sizeof(*c->top_logprobs)));
    }
    return trm_stream_download(stream, c->chosen_staging, c->chosen, n * sizeof(*c->chosen));
}
