/*
 * SELECTIVE_SCAN, token by token with the matrix of a head in registers: a decode step reads and writes it once, and a
 * prompt has the same bits however it is cut. Where that need not be and prompts may be among the sequences of 16-bit
 * floats, their tokens go by chunks before (cuda_chunk.cu). Grids follow from dims alone; starts, lengths and slots are
 * read on the device.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/kernel_list.h"
#include "kernels/program.h"
#include "kernels/scan/cuda_chunk.cuh"

#define THREADS 128
#define WARPS   (THREADS / 32)
#define LANES   4                 /* that share a row */
#define ROWS    (THREADS / LANES) /* of a block */
#define TOKENS  8                 /* in shared memory at a time */

typedef struct token_scan {
    trm_selective_scan_args scan;
    bool early;   /* starts, lengths, slots and the state may be read before the wait */
    bool chunked; /* tokens go by chunks where a sequence has enough */
} token_scan;

template <int COLUMNS> struct scan_memory {
    float b[TOKENS][COLUMNS], c[TOKENS][COLUMNS];
    float x[TOKENS][ROWS], y[TOKENS][ROWS];
    float step[TOKENS], decay[TOKENS];
};

/* Tokens `token` .. + n - 1 of the step into shared memory, a warp each. */
template <typename T, int COLUMNS>
static __device__ __forceinline__ void stage_tokens(const trm_selective_scan_args &a, scan_memory<COLUMNS> &memory,
                                                    int64_t token, int n, int head, int first_row)
{
    const int lane = threadIdx.x & 31, group = head / (int)(a.heads / a.groups);
    for (int t = threadIdx.x >> 5; t < n; t += WARPS) {
        const int64_t at = (token + t) * a.heads + head, group_at = ((token + t) * a.groups + group) * a.columns;
#pragma unroll
        for (int i = 0; i < COLUMNS / 32; i++) {
            const int j = lane + 32 * i;
            memory.b[t][j] = j < a.columns ? to_float(((const T *)a.b)[group_at + j]) : 0.0f;
            memory.c[t][j] = j < a.columns ? to_float(((const T *)a.c)[group_at + j]) : 0.0f;
        }
        memory.x[t][lane] = first_row + lane < a.dim ? to_float(((const T *)a.x)[at * a.dim + first_row + lane]) : 0.0f;
        if (lane == 0) {
            const float step = to_float(((const T *)a.step)[at]) + a.step_bias[head];
            const float softplus = fmaxf(step, 0.0f) + log1pf(expf(-fabsf(step)));
            const float dt = fminf(fmaxf(softplus, a.step_min), a.step_max);
            memory.step[t] = dt;
            memory.decay[t] = expf(-expf(a.a_log[head]) * dt);
        }
    }
}

/* Four elements of a row from column j on; `whole`: all are there, and aligned. */
static __device__ __forceinline__ float4 load_state(const float *row, int j, int columns, bool whole)
{
    if (whole) {
        return *(const float4 *)(row + j);
    }
    return make_float4(j < columns ? row[j] : 0.0f, j + 1 < columns ? row[j + 1] : 0.0f,
                       j + 2 < columns ? row[j + 2] : 0.0f, j + 3 < columns ? row[j + 3] : 0.0f);
}

static __device__ __forceinline__ void store_state(float *row, int j, int columns, bool whole, const float4 &s)
{
    const float each[4] = {s.x, s.y, s.z, s.w};
    if (whole) {
        *(float4 *)(row + j) = s;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (j + i < columns) {
            row[j + i] = each[i];
        }
    }
}

/*
 * A block has 128 threads and 32 rows of a head of a sequence, for all its tokens: 4 lanes a row, each with every
 * fourth group of 4 columns in registers. Shared memory: 10 KB for 128 columns. A decode step moves the state twice, 4
 * MB of a sequence with 64 heads of 64 by 128, against which all else is little: bound by device memory with many
 * sequences. `early`: starts, lengths and slots are there before the wait, and with them the state, which only this
 * layer writes, in the step before.
 */
template <typename T, int COLUMNS>
static __global__ void __launch_bounds__(THREADS) scan(const token_scan call, int blocks_of_head)
{
    const trm_selective_scan_args &a = call.scan;
    __shared__ __align__(16) scan_memory<COLUMNS> memory;
    const int parts = COLUMNS / (4 * LANES), lane = threadIdx.x % LANES, own = threadIdx.x / LANES;
    const int of_sequence = (int)a.heads * blocks_of_head, block = blockIdx.x % of_sequence;
    const int32_t sequence = (int32_t)(blockIdx.x / of_sequence);
    const int head = block / blocks_of_head, first_row = block % blocks_of_head * ROWS;
    const int columns = (int)a.columns;
    const bool is_there = first_row + own < a.dim, whole = columns == COLUMNS;
    const int64_t size = a.dim * a.columns, place = a.heads * size;
    float4 s[parts];
    start_next();
    if (!call.early) {
        wait_for_previous();
    }
    int64_t start = a.sequences.starts[sequence], count = a.sequences.starts[sequence + 1] - start;
    const int64_t chunked = call.chunked ? chunked_tokens(count, a.places) : 0;
    const int64_t old = a.sequences.lengths[sequence] - count + chunked;
    start += chunked;
    count -= chunked;
    const int64_t of_row = head * size + (int64_t)(first_row + own) * a.columns;
    const int64_t read = count > 0 ? a.sequences.slots[2 * sequence + (chunked > 0)] : 0;
    const int64_t written = count > 0 ? a.sequences.slots[2 * sequence + 1] : 0;
    const float *from = a.state + (read * a.places + old % a.places) * place + of_row;
    float *state = a.state + written * a.places * place + of_row;
#pragma unroll
    for (int i = 0; i < parts; i++) {
        s[i] = count > 0 && old > 0 && is_there ? load_state(from, 4 * (lane + LANES * i), columns, whole)
                                                : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    if (call.early) {
        wait_for_previous();
    }
    for (int64_t token = 0; token < count; token += TOKENS) {
        const int n = count - token < TOKENS ? (int)(count - token) : TOKENS;
        stage_tokens<T, COLUMNS>(a, memory, start + token, n, head, first_row);
        __syncthreads();
        for (int t = 0; t < n; t++) {
            const float x = memory.x[t][own], decay = memory.decay[t], factor = memory.step[t] * x;
            float sum[4] = {};
#pragma unroll
            for (int i = 0; i < parts; i++) {
                const int j = 4 * (lane + LANES * i);
                const float4 b = *(const float4 *)(memory.b[t] + j), c = *(const float4 *)(memory.c[t] + j);
                s[i].x = decay * s[i].x + factor * b.x;
                s[i].y = decay * s[i].y + factor * b.y;
                s[i].z = decay * s[i].z + factor * b.z;
                s[i].w = decay * s[i].w + factor * b.w;
                sum[0] += s[i].x * c.x;
                sum[1] += s[i].y * c.y;
                sum[2] += s[i].z * c.z;
                sum[3] += s[i].w * c.w;
            }
            float y = (sum[0] + sum[1]) + (sum[2] + sum[3]);
            y += __shfl_xor_sync(0xffffffffu, y, 1);
            y += __shfl_xor_sync(0xffffffffu, y, 2);
            if (lane == 0) {
                memory.y[t][own] = y + a.skip[head] * x;
            }
            if (token + t >= count - a.places && is_there) {
                float *to = state + (old + token + t + 1) % a.places * place;
#pragma unroll
                for (int i = 0; i < parts; i++) {
                    store_state(to, 4 * (lane + LANES * i), columns, whole, s[i]);
                }
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n * ROWS; i += THREADS) {
            const int t = i / ROWS, row = first_row + i % ROWS;
            if (row < a.dim) {
                ((T *)a.y)[((start + token + t) * a.heads + head) * a.dim + row] = from_float<T>(memory.y[t][i % ROWS]);
            }
        }
    }
}

template <typename T> static void launch_scan_of(const token_scan *a, cudaStream_t stream)
{
    const int blocks_of_head = (int)((a->scan.dim + ROWS - 1) / ROWS);
    const dim3 grid((unsigned)(a->scan.sequences.n * a->scan.heads * blocks_of_head));
    if (a->scan.columns <= 32) {
        launch_overlapped(scan<T, 32>, grid, THREADS, 0, stream, *a, blocks_of_head);
    } else if (a->scan.columns <= 128) {
        launch_overlapped(scan<T, 128>, grid, THREADS, 0, stream, *a, blocks_of_head);
    } else {
        launch_overlapped(scan<T, 256>, grid, THREADS, 0, stream, *a, blocks_of_head);
    }
}

static trm_status launch_scan(void *user, trm_stream *stream)
{
    const token_scan *a = (const token_scan *)user;
    DISPATCH_FLOAT(a->scan.dtype, launch_scan_of<T>(a, trm_cuda_stream(stream)));
    return trm_cuda_launched("cuda.selective_scan");
}

bool trm_cuda_selective_scan_accepts(const trm_kernel_call *call)
{
    trm_selective_scan_args args;
    return trm_selective_scan_args_of(call, &args) && args.columns <= 256 &&
           args.sequences.n * args.heads * ((args.dim + ROWS - 1) / ROWS) <= INT32_MAX;
}

/* Whether prompts may go by chunks, however many sequences there are. */
static bool may_chunk(const trm_kernel_call *call, const trm_selective_scan_args *a)
{
    return a->dtype != TRM_F32 && !call->batch_invariant && a->tokens >= LEAST && a->dim % 16 == 0 &&
           (a->columns == 64 || a->columns == 128 || a->columns == 256);
}

static size_t rates_size(const trm_selective_scan_args *a)
{
    return ((size_t)(a->tokens * a->heads) * 2 * sizeof(float) + 255) / 256 * 256;
}

size_t trm_cuda_selective_scan_workspace(const trm_kernel_call *call)
{
    trm_selective_scan_args args;
    return trm_selective_scan_args_of(call, &args) && may_chunk(call, &args)
               ? rates_size(&args) + (size_t)(args.tokens * args.heads) * CHUNK * 2
               : 0;
}

static trm_status append_chunks(const trm_kernel_call *call, const trm_selective_scan_args *a, trm_program *program)
{
    trm_scan_chunks *chunks = (trm_scan_chunks *)trm_program_alloc(program, sizeof(*chunks));
    if (chunks == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *chunks = trm_scan_chunks{*a, (float *)call->workspace, (char *)call->workspace + rates_size(a)};
    TRM_TRY(trm_program_append(program, "cuda.selective_scan.score", trm_cuda_scan_score_chunks, chunks));
    return trm_program_append(program, "cuda.selective_scan.chunks", trm_cuda_scan_run_chunks, chunks);
}

trm_status trm_cuda_selective_scan_prepare(const trm_kernel_call *call, trm_program *program)
{
    const uint32_t inputs = 1u << TRM_SELECTIVE_SCAN_SEQUENCE_STARTS | 1u << TRM_SELECTIVE_SCAN_SEQUENCE_LENGTHS |
                            1u << TRM_SELECTIVE_SCAN_SEQUENCE_SLOTS;
    token_scan *a = (token_scan *)trm_program_alloc(program, sizeof(*a));
    if (a == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    const trm_selective_scan_args *scan = &a->scan;
    if (!trm_selective_scan_args_of(call, &a->scan) || scan->tokens * scan->heads * scan->dim == 0 ||
        scan->sequences.n == 0) {
        return TRM_OK;
    }
    /* Not if every sequence has its drafts at most. */
    a->chunked = may_chunk(call, scan) && scan->tokens >= scan->sequences.n * scan->places + LEAST - 1 &&
                 trm_aligned16(scan->x) && trm_aligned16(scan->b) && trm_aligned16(scan->c) && trm_aligned16(scan->y);
    if (a->chunked) {
        TRM_TRY(append_chunks(call, scan, program));
    }
    a->early = !a->chunked && (call->constants & inputs) == inputs;
    return trm_program_append(program, "cuda.selective_scan", launch_scan, a);
}
