/*
 * The sampler: parameters of a step's logits rows, device memory for them, and the kernels from logits to tokens. It
 * knows nothing of the network or the cache.
 */
#ifndef TRM_DIST_LLM_SAMPLER_H
#define TRM_DIST_LLM_SAMPLER_H

#include <trireme/serving.h>

#include "kernels/sampling/logits.h"
#include "kernels/sampling/sample.h"

/* Which kernels a step needs; each mode is captured separately. */
typedef enum trm_sample_mode {
    TRM_SAMPLE_GREEDY = 0,
    TRM_SAMPLE_DRAW, /* temperature, typical-p, top-k, top-p, min-p */
    TRM_SAMPLE_FULL, /* also bias, masks, penalties and logprobs */
    TRM_SAMPLE_MODE_COUNT
} trm_sample_mode;

/* How one token is sampled. */
typedef struct trm_sampling_row {
    const trm_serving_sampling *sampling; /* no token twice in its bias */
    const int32_t *banned;                /* [n_banned], at most TRM_MAX_BANNED */
    int32_t n_banned;
    const uint32_t *mask; /* [(vocab + 31) / 32] or NULL */
    int32_t logprobs;     /* -1: none */
    uint64_t counter;     /* number of output tokens so far */
    int32_t slot;         /* the slot whose tokens the device counts, for penalties */
    /* At a sequence's first step in a slot, all its tokens, from which the device counts on; else NULL. */
    const int32_t *history; /* [n_history] */
    int64_t n_history, n_prompt;
    /* A sequence with draft tokens has a row for each: after n_before of them, with n_behind more. */
    const int32_t *drafts; /* [n_before + n_behind] */
    int32_t n_before, n_behind;
} trm_sampling_row;
#define TRM_MAX_BANNED (TRM_MAX_STOP_TOKENS + 8)

extern const trm_serving_sampling trm_sampling_greedy;
/* Replaces zeros that mean a default. */
void trm_sampling_fill(trm_serving_sampling *sampling);

typedef struct trm_sampler {
    trm_device *device;
    int64_t max_rows, slots, vocab, words;
    bool follows; /* another rank's tokens count: this one only samples in the same mode, since all ranks capture a step
                     together */
    trm_sample_mode least_mode; /* lowest mode of new steps, if another rank decides it */
    size_t bytes;               /* of `memory` */
    unsigned char *memory, *staging;

    /* device */
    trm_sample_row *rows;        /* [max_rows] */
    trm_logits_row *logits_rows; /* [max_rows] */
    int32_t *chosen;             /* [max_rows] */
    float *logprobs;             /* [max_rows] */
    int32_t *top_tokens;         /* [max_rows, TRM_LOGITS_MAX_TOP] */
    float *top_logprobs;         /* [max_rows, TRM_LOGITS_MAX_TOP] */
    uint16_t *counts;            /* [slots, vocab] */
    float *adjusted;             /* [max_rows, vocab] */
    uint32_t *masks;             /* [max_rows, words] */
    trm_logits_bias *bias;       /* [max_rows, MAX_BIAS] */
    int32_t *drafts;             /* [max_rows] */
    void *workspace;

    /* host, copied to and from those in the step */
    trm_sample_row *rows_staging;
    trm_logits_row *logits_rows_staging;
    int32_t *chosen_staging;
    float *logprobs_staging;
    int32_t *top_tokens_staging;
    float *top_logprobs_staging;
    uint32_t *masks_staging;
    trm_logits_bias *bias_staging;
    int32_t *drafts_staging;
    uint16_t *counts_staging; /* [vocab] */

    /* the current step */
    trm_sample_mode mode;
    int32_t n_rows, n_masks, n_bias, n_drafts;
    int32_t first_draft; /* of the sequence whose rows are being added */
} trm_sampler;

/* Device bytes of a sampler. */
size_t trm_sampler_bytes(const trm_stream *stream, int64_t max_rows, int64_t slots, int64_t vocab);
trm_status trm_sampler_init(trm_sampler *sampler, trm_stream *stream, int64_t max_rows, int64_t slots, int64_t vocab);
void trm_sampler_fini(trm_sampler *sampler);

/* The mode that a row needs. */
trm_sample_mode trm_choice_mode(const trm_sampling_row *choice);

/* Begins a step without rows. */
void trm_sampler_begin(trm_sampler *sampler);
/* Adds a row to sample. May wait for the stream, to count a history. */
trm_status trm_sampler_add(trm_sampler *sampler, trm_stream *stream, const trm_sampling_row *choice);
/* Adds a row for the logprobs of `target` and of the n_top most probable tokens. */
void trm_sampler_add_target(trm_sampler *sampler, int32_t target, int32_t n_top);
/* Adds a row that pads the step. */
void trm_sampler_add_padding(trm_sampler *sampler);
/* Uploads what varies in size from step to step; not part of a capture. */
trm_status trm_sampler_stage(trm_sampler *sampler, trm_stream *stream);
/* Enqueues the upload of the parameters of n_rows rows. This and the calls below can be captured. */
trm_status trm_sampler_upload(trm_sampler *sampler, trm_stream *stream, int32_t n_rows, trm_sample_mode mode);
/* Enqueues the sampling of logits f32 [n_rows, vocab], the step's rows from `first` on. */
trm_status trm_sampler_enqueue(trm_sampler *sampler, trm_stream *stream, float *logits, int32_t first, int32_t n_rows,
                               trm_sample_mode mode);
/* Enqueues the copy of tokens and logprobs to the host. */
trm_status trm_sampler_download(trm_sampler *sampler, trm_stream *stream, int32_t n_rows, trm_sample_mode mode);

#endif
