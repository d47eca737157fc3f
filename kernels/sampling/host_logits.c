/* Logits before and after sampling, on the host: the reference. */
#include <math.h>

#include "base/pool.h"
#include "kernels/sampling/backends.h"

/* A logit after its bias: penalties by how its token came up. */
static float penalize(float x, const trm_logits_row *p, uint32_t count)
{
    if (count != 0 && p->repetition_penalty != 1.0f) {
        x = x > 0.0f ? x / p->repetition_penalty : x * p->repetition_penalty;
    }
    const uint32_t times = count & TRM_LOGITS_MOST;
    return times == 0 ? x : x - (p->presence_penalty + (float)times * p->frequency_penalty);
}

/* The tokens drafted before a row's, which are output that is not counted yet. */
static void adjust_drafts(const trm_logits_adjust_args *args, const trm_logits_row *p, const float *from, float *to,
                          const uint16_t *counts, const uint32_t *mask)
{
    const int32_t *drafts = args->drafts + p->first_draft;
    for (int32_t d = 0; d < p->n_drafts; d++) {
        const int32_t i = drafts[d];
        uint32_t more = 0;
        for (int32_t k = 0; k < p->n_drafts; k++) {
            more += drafts[k] == i;
        }
        bool banned = mask != NULL && (mask[i / 32] >> (i % 32) & 1u) == 0;
        float x = from[i];
        for (int32_t b = 0; b < p->n_bias; b++) {
            const trm_logits_bias *bias = &args->bias[p->first_bias + b];
            if (bias->token == i) {
                banned = banned || bias->bias <= -100.0f;
                x += bias->bias;
            }
        }
        to[i] = penalize(banned ? -INFINITY : x, p, trm_logits_count_more(counts[i], more));
    }
}

static void adjust_rows(void *user, int64_t begin, int64_t end)
{
    const trm_logits_adjust_args *args = user;
    const int64_t vocab = args->vocab, words = (vocab + 31) / 32;
    for (int64_t r = begin; r < end; r++) {
        const trm_logits_row *p = &args->parameters[r];
        const float *from = args->logits + r * vocab;
        float *to = args->adjusted + r * vocab;
        const uint16_t *counts = p->history >= 0 ? args->counts + p->history * vocab : NULL;
        const uint32_t *mask = p->mask >= 0 ? args->masks + p->mask * words : NULL;
        for (int64_t i = 0; i < vocab; i++) {
            const float x = mask == NULL || (mask[i / 32] >> (i % 32) & 1u) != 0 ? from[i] : -INFINITY;
            to[i] = counts == NULL ? x : penalize(x, p, counts[i]);
        }
        for (int32_t b = 0; b < p->n_bias; b++) {
            const trm_logits_bias *bias = &args->bias[p->first_bias + b];
            const int64_t i = bias->token;
            const bool banned = bias->bias <= -100.0f || (mask != NULL && (mask[i / 32] >> (i % 32) & 1u) == 0);
            const float x = banned ? -INFINITY : from[i] + bias->bias;
            to[i] = counts == NULL ? x : penalize(x, p, counts[i]);
        }
        if (counts != NULL) {
            adjust_drafts(args, p, from, to, counts, mask);
        }
    }
}

trm_status trm_host_logits_adjust(trm_stream *stream, const trm_logits_adjust_args *args)
{
    trm_logits_adjust_args copy = *args;
    trm_pool_for(trm_stream_native(stream), args->rows, 1, adjust_rows, &copy);
    return TRM_OK;
}

static float without_nan(float x)
{
    return isnan(x) ? -INFINITY : x;
}

/* Logarithm of the sum of e^logit over a row. */
static double log_sum(const float *logits, int64_t vocab, float largest)
{
    double sum = 0.0;
    for (int64_t i = 0; i < vocab; i++) {
        const float x = without_nan(logits[i]);
        sum += x == largest ? 1.0 : exp((double)x - (double)largest); /* equal first: infinities */
    }
    return (double)largest + log(sum);
}

static int32_t find_first(const float *logits, int64_t vocab)
{
    int32_t first = 0;
    for (int32_t i = 1; i < vocab; i++) {
        first = without_nan(logits[i]) > without_nan(logits[first]) ? i : first;
    }
    return first;
}

/* The n most probable tokens, by insertion: most tokens are behind the last of them. */
static int32_t find_top(const float *logits, int64_t vocab, int32_t n, int32_t *top)
{
    int32_t found = 0;
    for (int64_t i = 0; i < vocab && n > 0; i++) {
        const float x = without_nan(logits[i]);
        if (found == n && !(x > without_nan(logits[top[n - 1]]))) {
            continue;
        }
        int32_t at = found < n ? found++ : n - 1;
        for (; at > 0 && x > without_nan(logits[top[at - 1]]); at--) {
            top[at] = top[at - 1];
        }
        top[at] = (int32_t)i;
    }
    return found;
}

static void report_rows(void *user, int64_t begin, int64_t end)
{
    const trm_logits_report_args *args = user;
    for (int64_t r = begin; r < end; r++) {
        const trm_logits_row *p = &args->parameters[r];
        const float *logits = args->logits + r * args->vocab;
        if (p->n_top >= 0) {
            int32_t *top = args->top_tokens + r * TRM_LOGITS_MAX_TOP;
            float *top_logprobs = args->top_logprobs + r * TRM_LOGITS_MAX_TOP;
            const int32_t first = find_first(logits, args->vocab);
            const double all = log_sum(logits, args->vocab, without_nan(logits[first]));
            const int32_t target = p->target >= 0 ? p->target : args->tokens[r];
            args->logprobs[r] = (float)((double)without_nan(logits[target]) - all);
            const int32_t n = find_top(logits, args->vocab, p->n_top, top);
            for (int32_t i = 0; i < p->n_top; i++) {
                if (i >= n) { /* a vocabulary of fewer tokens */
                    top[i] = -1;
                }
                top_logprobs[i] = i < n ? (float)((double)without_nan(logits[top[i]]) - all) : -INFINITY;
            }
        }
        if (p->history >= 0 && p->target < 0 && p->n_drafts == 0) {
            uint16_t *counts = args->counts + p->history * args->vocab;
            for (int32_t i = 0; i <= p->n_behind; i++) {
                const int32_t token = args->tokens[r + i];
                counts[token] = (uint16_t)trm_logits_count_more(counts[token], 1);
                if (i == p->n_behind || token != args->drafts[p->first_draft + i]) {
                    break;
                }
            }
        }
    }
}

trm_status trm_host_logits_report(trm_stream *stream, const trm_logits_report_args *args)
{
    trm_logits_report_args copy = *args;
    trm_pool_for(trm_stream_native(stream), args->rows, 1, report_rows, &copy);
    return TRM_OK;
}
