/*
 * Logits before and after sampling: what a request forbids, favours and repeats changes them; what the model said is
 * reported.
 */
#ifndef TRM_KERNELS_SAMPLING_LOGITS_H
#define TRM_KERNELS_SAMPLING_LOGITS_H

#include "kernels/call.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_LOGITS_MAX_TOP 20

/* Parameters of one row, as they lie in device memory. */
typedef struct trm_logits_row {
    float repetition_penalty;                  /* 1: off */
    float presence_penalty, frequency_penalty; /* 0: off */
    int32_t history;                           /* row of `counts`; -1: none */
    int32_t mask;                              /* row of `masks`; -1: none */
    int32_t first_bias, n_bias;                /* entries of `bias`, no token twice */
    int32_t first_draft, n_drafts;             /* entries of `drafts`: tokens of the output that are not counted yet */
    int32_t n_behind;                          /* rows behind this one that continue it, if it has no drafts itself */
    int32_t n_top;                             /* most probable tokens to report; -1: nothing of this row */
    int32_t target;                            /* whose logprob to report; -1: the sampled token's */
} trm_logits_row;

typedef struct trm_logits_bias {
    int32_t token;
    float bias;
} trm_logits_bias;

/* How a token came up in a sequence: the number of times in the output, as far as it can be counted, and a bit. */
#define TRM_LOGITS_IN_PROMPT 0x8000u
#define TRM_LOGITS_MOST      0x7fffu

/* The number of times and the bit, with `more` added to the number. */
static inline uint32_t trm_logits_count_more(uint32_t count, uint32_t more)
{
    uint32_t times = (count & TRM_LOGITS_MOST) + more;
    return (count & TRM_LOGITS_IN_PROMPT) | (times < TRM_LOGITS_MOST ? times : TRM_LOGITS_MOST);
}

/*
 * Rows of drafted tokens: a row without drafts and the n_behind rows after it are of one sequence. Row i of them
 * chooses what follows if the first i of n_behind drafts come true; it has the same first_draft, n_drafts i, and the
 * same history. A row of its own has n_behind 0.
 *
 * logits f32 [rows, vocab], parameters [rows], counts u16 [.., vocab], bias, masks u32 [.., (vocab + 31) / 32] ->
 * adjusted f32 [rows, vocab] (not logits).
 *
 * In this order: a token whose bit in the mask is 0 becomes -inf; the bias is added, one of -100 or less makes it -inf;
 * of a token in prompt or output, a positive logit is divided by the repetition penalty, others multiplied; of one in
 * the output c times, presence_penalty + c * frequency_penalty is subtracted. A row's drafts count as output. counts,
 * bias, masks and drafts may be NULL where no row has any. 4 * 2 * vocab bytes a row are moved, and 2 * vocab of
 * counts.
 */
typedef struct trm_logits_adjust_args {
    const float *logits;
    float *adjusted;
    int64_t rows, vocab;
    const trm_logits_row *parameters;
    const uint16_t *counts;
    const trm_logits_bias *bias;
    const uint32_t *masks;
    const int32_t *drafts;
} trm_logits_adjust_args;
trm_status trm_logits_adjust(trm_stream *stream, const trm_logits_adjust_args *args);

/*
 * For rows with n_top >= 0: the natural logarithm of the probability of the target or else of tokens [row], and the
 * n_top most probable tokens, by descending logit and ascending id, into top_tokens, top_logprobs [rows,
 * TRM_LOGITS_MAX_TOP]. NaN logits count as -inf. Then the token of each row with a history and without a target is
 * counted in it; of the rows behind another, as long as the tokens before theirs were as drafted.
 */
typedef struct trm_logits_report_args {
    const float *logits; /* [rows, vocab] as the model gave them */
    int64_t rows, vocab;
    const trm_logits_row *parameters;
    const int32_t *tokens; /* [rows] */
    const int32_t *drafts; /* NULL where no row has any */
    uint16_t *counts;      /* NULL where no row has a history */
    float *logprobs;       /* [rows] */
    int32_t *top_tokens;   /* [rows, TRM_LOGITS_MAX_TOP] */
    float *top_logprobs;   /* [rows, TRM_LOGITS_MAX_TOP] */
} trm_logits_report_args;
trm_status trm_logits_report(trm_stream *stream, const trm_logits_report_args *args);

#ifdef __cplusplus
}
#endif
#endif
