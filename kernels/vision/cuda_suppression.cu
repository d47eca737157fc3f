/*
 * Non-maximum suppression. A block per class of an image selects: the best box that is left, as often as asked for,
 * each time hiding what overlaps it; one block then writes all selections one after the other. Bound by the number of
 * selections, which follow from one another.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/kernel_list.h"
#include "kernels/vision/suppression.h"

#define THREADS 256

/* The larger score, the lower index of equal ones; -1: none. */
static __device__ __forceinline__ void better(float *score, int64_t *index, float other, int64_t other_index)
{
    if (other_index >= 0 && (*index < 0 || other > *score || (other == *score && other_index < *index))) {
        *score = other;
        *index = other_index;
    }
}

/* The best over the block, given to all. */
static __device__ int64_t block_best(float score, int64_t index, float *scores, int64_t *indices)
{
    for (int offset = 16; offset > 0; offset /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, score, offset);
        const int64_t other_index = __shfl_xor_sync(0xffffffffu, index, offset);
        better(&score, &index, other, other_index);
    }
    if ((threadIdx.x & 31) == 0) {
        scores[threadIdx.x / 32] = score;
        indices[threadIdx.x / 32] = index;
    }
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++) {
        better(&score, &index, scores[i], indices[i]);
    }
    __syncthreads();
    return index;
}

/* Block: one list of boxes. */
static __global__ void __launch_bounds__(THREADS)
    select_boxes(const trm_suppression_args args, int64_t *selected, int64_t *counts, uint8_t *gone)
{
    __shared__ float scores[THREADS / 32];
    __shared__ int64_t indices[THREADS / 32];
    begin_overlapped();
    const float overlap = args.overlap != NULL ? *args.overlap : 0.0f;
    const float least = args.least != NULL ? *args.least : 0.0f;
    for (int64_t list = blockIdx.x; list < args.batches * args.classes; list += gridDim.x) {
        const float *box = args.box + list / args.classes * args.boxes * 4, *score = args.score + list * args.boxes;
        uint8_t *mine = gone + list * args.boxes;
        int64_t count = 0, best = -1;
        for (int64_t i = threadIdx.x; i < args.boxes; i += THREADS) {
            mine[i] = args.least != NULL && !(score[i] > least);
        }
        while (count < args.most) { /* a thread reads and writes flags of its own boxes only */
            float found = 0.0f;
            int64_t at = -1;
            for (int64_t i = threadIdx.x; i < args.boxes; i += THREADS) {
                if (best >= 0 && mine[i] == 0 &&
                    (i == best || trm_suppression_hides(args.center_point, box + 4 * i, box + 4 * best, overlap))) {
                    mine[i] = 1;
                }
                if (mine[i] == 0) {
                    better(&found, &at, score[i], i);
                }
            }
            best = block_best(found, at, scores, indices);
            if (best < 0) {
                break;
            }
            if (threadIdx.x == 0) {
                selected[list * args.boxes + count] = best;
            }
            count++;
        }
        if (threadIdx.x == 0) {
            counts[list] = count;
        }
    }
}

/* One block: rows of the output, dense. */
static __global__ void __launch_bounds__(THREADS)
    write_selected(const trm_suppression_args args, const int64_t *selected, const int64_t *counts)
{
    begin_overlapped();
    int64_t at = 0;
    for (int64_t list = 0; list < args.batches * args.classes; list++) {
        const int64_t count = counts[list];
        for (int64_t i = threadIdx.x; i < count; i += THREADS) {
            args.y[3 * (at + i)] = list / args.classes;
            args.y[3 * (at + i) + 1] = list % args.classes;
            args.y[3 * (at + i) + 2] = selected[list * args.boxes + i];
        }
        at += count;
    }
    if (threadIdx.x == 0) {
        *args.count = at;
    }
}

bool trm_cuda_non_max_suppression_accepts(const trm_kernel_call *call)
{
    trm_suppression_args args;
    return trm_suppression_args_of(call, &args);
}

size_t trm_cuda_non_max_suppression_workspace(const trm_kernel_call *call)
{
    const trm_dims *score = &call->inputs[1].dims;
    const size_t lists = (size_t)(score->d[0] * score->d[1]), boxes = (size_t)score->d[2];
    return lists * (boxes + 1) * sizeof(int64_t) + lists * boxes;
}

trm_status trm_cuda_non_max_suppression_run(const trm_kernel_call *call)
{
    trm_suppression_args args;
    if (!trm_suppression_args_of(call, &args)) {
        return TRM_OK;
    }
    cudaStream_t stream = trm_cuda_stream(call->stream);
    const int64_t lists = args.batches * args.classes;
    int64_t *selected = (int64_t *)call->workspace, *counts = selected + lists * args.boxes;
    if (lists > 0) {
        launch_overlapped(select_boxes, (unsigned)(lists < 65535 ? lists : 65535), THREADS, 0, stream, args, selected,
                          counts, (uint8_t *)(counts + lists));
    }
    launch_overlapped(write_selected, 1, THREADS, 0, stream, args, (const int64_t *)selected, (const int64_t *)counts);
    return trm_cuda_launched("cuda.non_max_suppression");
}
