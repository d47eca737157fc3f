/*
 * Convolutions on CUDA: our own kernels, and cuDNN, which is loaded when first used. Both take a call laid out as
 * kernels/convolution/element.h does; f64 is ours alone.
 */
#ifndef TRM_KERNELS_CONVOLUTION_CUDA_H
#define TRM_KERNELS_CONVOLUTION_CUDA_H

#include <cuda_runtime_api.h>

#include "kernels/convolution/element.h"
#include "kernels/tuner/shortlist.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cuda.cu: any case. */
trm_status trm_cuda_convolution_own(const trm_convolution_args *args, cudaStream_t stream);
/* y = activation(y + bias + residual), where a library left y at the sums. */
trm_status trm_cuda_convolution_finish(const trm_convolution_args *args, cudaStream_t stream);
/* x [images, in, channels] and weight [outputs, kernel, channels] as a convolution of more channels wants them, to_x
 * [images, grid, vectors of 16 bytes] and to_weight [outputs, taps, vectors]: fold x fold positions become the channels
 * of one, zeros fill up the last vector. Block 0 of the grid begins `before` blocks before x, tap 0 `extra` positions
 * before the weight. */
typedef struct trm_folding {
    const void *x, *weight;
    void *to_x, *to_weight; /* aligned to 16 bytes */
    int64_t images, outputs;
    int channels, vectors, fold;
    int in[2], grid[2], before[2];
    int kernel[2], taps[2], extra[2];
} trm_folding;
trm_status trm_cuda_convolution_fold(const trm_folding *folding, trm_dtype dtype, cudaStream_t stream);
/* cuda_cudnn.c: f32, f16, bf16. Thread safe. UNSUPPORTED where there is no library, it has no engine for the problem
 * within the workspace, or tuning found another way faster. Engines are remembered per problem; without tuning it is
 * the first that the library proposes. Capturable. */
trm_status trm_cudnn_convolution_run(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                                     cudaStream_t stream);
/* Chooses an engine for the problem as a run does, unless another thread is about to; whether that is done. Any thread.
 * UNSUPPORTED where there is no library or no engine. */
trm_status trm_cudnn_convolution_prepare(const trm_convolution_args *args, size_t workspace_size);
bool trm_cudnn_convolution_is_prepared(const trm_convolution_args *args, size_t workspace_size);
/* Times up to `proposals` of the library's engines for each of its two graphs, and appends them to tactics
 * [TRM_MOST_TACTICS]. UNSUPPORTED where there is no library. Not while capturing; overwrites y. */
trm_status trm_cudnn_convolution_time(const trm_convolution_args *args, void *workspace, size_t workspace_size,
                                      cudaStream_t stream, int32_t proposals, trm_tactic *tactics, int32_t *n_tactics);
/* Remembers the first of the engines for the problem, and all of them, in place of those that were known, for other
 * batches of it; with NULL that our own kernel is to do it. UNSUPPORTED, and nothing changes, if there is no such
 * engine. */
trm_status trm_cudnn_convolution_use(const trm_convolution_args *args, size_t workspace_size,
                                     const trm_shortlist *engines);
/* Whether one of them was chosen already, or there is nothing to choose. */
bool trm_cudnn_convolution_is_tuned(const trm_convolution_args *args, size_t workspace_size);
/* Whether an engine was chosen, by its name. */
bool trm_cudnn_convolution_is_chosen(const trm_convolution_args *args, size_t workspace_size);
/* Whether one was for this problem or, of what nothing is known, the same with another batch. */
bool trm_cudnn_convolution_is_likely(const trm_convolution_args *args, size_t workspace_size);
/* As 91900; 0 without a library. */
size_t trm_cudnn_version(void);

#ifdef __cplusplus
}
#endif
#endif
