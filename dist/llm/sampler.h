/*
 * How the tokens of a step are chosen: the parameters of its rows of logits, device memory for them, and the kernels
 * from logits to tokens. Knows nothing of the network or the cache; step.c has those.
 */
#ifndef TRM_DIST_LLM_SAMPLER_H
#define TRM_DIST_LLM_SAMPLER_H

#include <trireme/serving.h>

#include "kernels/sampling/logits.h"
#include "kernels/sampling/sample.h"

/* What a step needs of the kernels; each is a captured step of its own. */
typedef enum trm_sample_mode {
    TRM_SAMPLE_GREEDY = 0,
    TRM_SAMPLE_DRAW, /* temperature, typical-p, top-k, top-p, min-p */
    TRM_SAMPLE_FULL, /* the same with bias, masks, penalties and logprobs */
    TRM_SAMPLE_MODE_COUNT
} trm_sample_mode;

/* How one token is chosen. */
typedef struct trm_sampling_row {
    const trm_serving_sampling *sampling; /* without any token twice in its bias */
    const int32_t *banned;                /* [n_banned], at most TRM_MAX_BANNED */
    int32_t n_banned;
    const uint32_t *mask; /* [(vocab + 31) / 32] or NULL */
    int32_t logprobs;     /* -1: none */
    uint64_t counter;     /* tokens of output so far */
    int32_t slot;         /* whose tokens are counted on the device, where there are penalties */
    /* They are counted from that on: at a sequence's first step in a slot all it has, else NULL. */
    const int32_t *history; /* [n_history] */
    int64_t n_history, n_prompt;
    /* Of a sequence with drafted tokens each has a choice: after n_before of them, with n_behind more. */
    const int32_t *drafts; /* [n_before + n_behind] */
    int32_t n_before, n_behind;
} trm_sampling_row;
#define TRM_MAX_BANNED (TRM_MAX_STOP_TOKENS + 8)

extern const trm_serving_sampling trm_sampling_greedy;
/* Puts the defaults in place of zeros that have no meaning of their own. */
void trm_sampling_fill(trm_serving_sampling *sampling);

typedef struct trm_sampler {
    trm_device *device;
    int64_t max_rows, slots, vocab, words;
    bool follows; /* another rank's choice counts: this one's only has to be made, in the same mode: a step is captured
                     by all ranks together */
    trm_sample_mode least_mode; /* of steps that begin, where another rank knows more */
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

    /* the step under way */
    trm_sample_mode mode;
    int32_t n_rows, n_masks, n_bias, n_drafts;
    int32_t first_draft; /* of the sequence that rows are added of */
} trm_sampler;

/* Device bytes of a sampler. */
size_t trm_sampler_bytes(const trm_stream *stream, int64_t max_rows, int64_t slots, int64_t vocab);
trm_status trm_sampler_init(trm_sampler *sampler, trm_stream *stream, int64_t max_rows, int64_t slots, int64_t vocab);
void trm_sampler_fini(trm_sampler *sampler);

/* The mode that a choice needs. */
trm_sample_mode trm_choice_mode(const trm_sampling_row *choice);

/* A new step: no rows. */
void trm_sampler_begin(trm_sampler *sampler);
/* Adds a row whose token is wanted. May wait for the stream, to count a history. */
trm_status trm_sampler_add(trm_sampler *sampler, trm_stream *stream, const trm_sampling_row *choice);
/* Adds a row of which only the logprob of `target` and of n_top others is wanted. */
void trm_sampler_add_target(trm_sampler *sampler, int32_t target, int32_t n_top);
/* Adds a row whose token is of no interest. */
void trm_sampler_add_padding(trm_sampler *sampler);
/* Uploads what has another size in every step; not to be captured. */
trm_status trm_sampler_stage(trm_sampler *sampler, trm_stream *stream);
/* Enqueues the upload of the parameters of n_rows rows; can be captured, as can what follows. */
trm_status trm_sampler_upload(trm_sampler *sampler, trm_stream *stream, int32_t n_rows, trm_sample_mode mode);
/* Enqueues everything from logits f32 [n_rows, vocab], the step's rows from `first` on, to the chosen tokens. */
trm_status trm_sampler_enqueue(trm_sampler *sampler, trm_stream *stream, float *logits, int32_t first, int32_t n_rows,
                               trm_sample_mode mode);
/* Enqueues the way of tokens and logprobs to the host. */
trm_status trm_sampler_download(trm_sampler *sampler, trm_stream *stream, int32_t n_rows, trm_sample_mode mode);

#endif
