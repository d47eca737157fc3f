/* Logits before and after sampling, on the GPU: see kernels/sampling/logits.h. Rows of a step that ask for nothing cost
 * their copy in `adjust`, and a block that ends at once in `report`. */
#include "kernels/cuda/common.cuh"
#include "kernels/sampling/backends.h"
#include "kernels/sampling/cuda_block.cuh"

#define ADJUST_THREADS 256
#define ADJUST_BLOCKS  32 /* per row */
#define REPORT_THREADS 1024

static __device__ __forceinline__ float penalise(float x, const trm_logits_row &p, uint32_t count)
{
    if (count != 0 && p.repetition_penalty != 1.0f) {
        x = x > 0.0f ? x / p.repetition_penalty : x * p.repetition_penalty;
    }
    uint32_t times = count & TRM_LOGITS_MOST;
    /* rounded as on the host, where nothing is fused */
    return times == 0 ? x : x - __fadd_rn(p.presence_penalty, __fmul_rn((float)times, p.frequency_penalty));
}

/* What a draft of a row, output that is not counted yet, comes to. */
static __device__ float adjusted_draft(const trm_logits_adjust_args &args, const trm_logits_row &p, float x, int32_t i,
                                       const uint16_t *counts, const uint32_t *mask)
{
    const int32_t *drafts = args.drafts + p.first_draft;
    uint32_t more = 0;
    for (int32_t k = 0; k < p.n_drafts; k++) {
        more += drafts[k] == i;
    }
    bool banned = mask != NULL && (mask[i / 32] >> (i % 32) & 1u) == 0;
    for (int32_t b = 0; b < p.n_bias; b++) {
        trm_logits_bias bias = args.bias[p.first_bias + b];
        if (bias.token == i) {
            banned = banned || bias.bias <= -100.0f;
            x += bias.bias;
        }
    }
    uint32_t times = (counts[i] & TRM_LOGITS_MOST) + more, bit = counts[i] & TRM_LOGITS_IN_PROMPT;
    return penalise(banned ? -INFINITY : x, p, bit | (times < TRM_LOGITS_MOST ? times : TRM_LOGITS_MOST));
}

/* Block (part, row) writes a part of the row, then what the row's bias changes in it. Bound by 8 * vocab bytes a row.
 */
static __global__ void __launch_bounds__(ADJUST_THREADS) adjust(trm_logits_adjust_args args)
{
    begin_overlapped();
    int64_t row = blockIdx.y, vocab = args.vocab, each = (vocab + gridDim.x - 1) / gridDim.x;
    int64_t begin = (int64_t)blockIdx.x * each, end = begin + each < vocab ? begin + each : vocab;
    trm_logits_row p = args.parameters[row];
    const float *from = args.logits + row * vocab;
    float *to = args.adjusted + row * vocab;
    const uint16_t *counts = p.history >= 0 ? args.counts + p.history * vocab : NULL;
    const uint32_t *mask = p.mask >= 0 ? args.masks + p.mask * ((vocab + 31) / 32) : NULL;
    for (int64_t i = begin + threadIdx.x; i < end; i += ADJUST_THREADS) {
        float x = mask == NULL || (mask[i / 32] >> (i % 32) & 1u) != 0 ? from[i] : -INFINITY;
        to[i] = counts == NULL ? x : penalise(x, p, counts[i]);
    }
    __syncthreads();
    for (int32_t b = threadIdx.x; b < p.n_bias; b += ADJUST_THREADS) {
        trm_logits_bias bias = args.bias[p.first_bias + b];
        int64_t i = bias.token;
        if (i < begin || i >= end) {
            continue;
        }
        bool banned = bias.bias <= -100.0f || (mask != NULL && (mask[i / 32] >> (i % 32) & 1u) == 0);
        float x = banned ? -INFINITY : from[i] + bias.bias;
        to[i] = counts == NULL ? x : penalise(x, p, counts[i]);
    }
    if (counts != NULL && p.n_drafts > 0) {
        __syncthreads();
        for (int32_t d = threadIdx.x; d < p.n_drafts; d += ADJUST_THREADS) { /* equal ones write the same */
            int64_t i = args.drafts[p.first_draft + d];
            if (i >= begin && i < end) {
                to[i] = adjusted_draft(args, p, from[i], (int32_t)i, counts, mask);
            }
        }
    }
}

trm_status trm_cuda_logits_adjust(trm_stream *stream, const trm_logits_adjust_args *args)
{
    for (int64_t row = 0; row < args->rows; row += 32768) {
        trm_logits_adjust_args part = *args;
        part.rows = args->rows - row < 32768 ? args->rows - row : 32768;
        part.logits += row * args->vocab;
        part.adjusted += row * args->vocab;
        part.parameters += row;
        launch_overlapped(adjust, dim3(ADJUST_BLOCKS, (unsigned)part.rows), ADJUST_THREADS, 0, trm_cuda_stream(stream),
                          part);
    }
    return trm_cuda_launched("cuda.logits adjust");
}

/* A token's place: descending logit, ascending id; larger comes first, and 0 is before no token. NaN is -inf. */
static __device__ __forceinline__ uint64_t place_of(float x, int64_t id)
{
    uint32_t bits = __float_as_uint(x == x ? (x == 0.0f ? 0.0f : x) : -INFINITY);
    uint32_t order = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return (uint64_t)order << 32 | (uint32_t) ~(uint32_t)id;
}

/* The first place of this thread's tokens that comes after `after` (all ones: of all). */
static __device__ uint64_t own_best(const float *logits, int64_t vocab, uint64_t after)
{
    uint64_t best = 0;
    for (int64_t i = threadIdx.x; i < vocab; i += REPORT_THREADS) {
        uint64_t place = place_of(logits[i], i);
        best = place > best && place < after ? place : best;
    }
    return best;
}

/* A block per row: one pass for the largest, one for the sum, and for each of the top one the reads of one thread. */
static __global__ void __launch_bounds__(REPORT_THREADS) report(trm_logits_report_args args)
{
    __shared__ uint64_t places[32];
    __shared__ double sums[32];
    begin_overlapped();
    int64_t row = blockIdx.x, vocab = args.vocab;
    trm_logits_row p = args.parameters[row];
    const float *logits = args.logits + row * vocab;
    if (p.n_top >= 0) {
        uint64_t best = own_best(logits, vocab, ~(uint64_t)0);
        uint64_t first = block_max_u64(best, places);
        float largest = logits[(int32_t) ~(uint32_t)first];
        largest = largest == largest ? largest : -INFINITY;
        float part = 0.0f;
        for (int64_t i = threadIdx.x; i < vocab; i += REPORT_THREADS) {
            float x = logits[i];
            part += x == largest ? 1.0f : x == x ? expf(x - largest) : largest == -INFINITY ? 1.0f : 0.0f;
        }
        double all = (double)largest + log(block_sum_f64((double)part, sums));
        int32_t *top = args.top_tokens + row * TRM_LOGITS_MAX_TOP;
        float *top_logprobs = args.top_logprobs + row * TRM_LOGITS_MAX_TOP;
        for (int32_t n = 0; n < p.n_top; n++) {
            if (threadIdx.x == 0) {
                int32_t id = first == 0 ? -1 : (int32_t) ~(uint32_t)first;
                float x = first == 0 || !(logits[id] == logits[id]) ? -INFINITY : logits[id];
                top[n] = id;
                top_logprobs[n] = (float)((double)x - all);
            }
            if (best == first) { /* its owner's next; the same for all where none is left */
                best = first == 0 ? 0 : own_best(logits, vocab, first);
            }
            first = block_max_u64(best, places);
        }
        if (threadIdx.x == 0) {
            float x = logits[p.target >= 0 ? p.target : args.tokens[row]];
            args.logprobs[row] = (float)((double)(x == x ? x : -INFINITY) - all);
        }
    }
    if (threadIdx.x == 0 && p.history >= 0 && p.target < 0 && p.n_drafts == 0) {
        uint16_t *counts = args.counts + p.history * vocab;
        for (int32_t i = 0; i <= p.n_behind; i++) {
            int32_t token = args.tokens[row + i];
            counts[token] = (uint16_t)(counts[token] + ((counts[token] & TRM_LOGITS_MOST) < TRM_LOGITS_MOST ? 1 : 0));
            if (i == p.n_behind || token != args.drafts[p.first_draft + i]) {
                break;
            }
        }
    }
}

trm_status trm_cuda_logits_report(trm_stream *stream, const trm_logits_report_args *args)
{
    launch_overlapped(report, dim3((unsigned)args->rows), REPORT_THREADS, 0, trm_cuda_stream(stream), *args);
    return trm_cuda_launched("cuda.logits report");
}
