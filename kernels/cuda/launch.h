/*
 * The entry points of the CUDA kernels, one triple per layer kind; kernels/cuda/table.c lists them.
 */
#ifndef TRM_KERNELS_CUDA_LAUNCH_H
#define TRM_KERNELS_CUDA_LAUNCH_H

#include <cuda_runtime_api.h>

#include "kernels/kernel.h"
#include "kernels/sampling/random.h"
#include "kernels/sampling/sample.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the device current on this thread can run this build's kernels: cudaSuccess, or why not. */
cudaError_t trm_cuda_probe(void);

/* small_copy.cu: of kernels/device/device.h. */
trm_status trm_cuda_copy_small(trm_stream *stream, const trm_small_copy *copies, int32_t n);

/* copy.cu */
bool trm_cuda_cast_accepts(const trm_kernel_call *call);
trm_status trm_cuda_cast_run(const trm_kernel_call *call);
bool trm_cuda_reshape_accepts(const trm_kernel_call *call);
trm_status trm_cuda_reshape_run(const trm_kernel_call *call);
bool trm_cuda_merge_accepts(const trm_kernel_call *call);
trm_status trm_cuda_merge_run(const trm_kernel_call *call);
bool trm_cuda_transpose_accepts(const trm_kernel_call *call);
trm_status trm_cuda_transpose_run(const trm_kernel_call *call);
bool trm_cuda_slice_accepts(const trm_kernel_call *call);
trm_status trm_cuda_slice_run(const trm_kernel_call *call);
bool trm_cuda_concat_accepts(const trm_kernel_call *call);
trm_status trm_cuda_concat_run(const trm_kernel_call *call);
bool trm_cuda_gather_accepts(const trm_kernel_call *call);
trm_status trm_cuda_gather_run(const trm_kernel_call *call);
bool trm_cuda_embedding_accepts(const trm_kernel_call *call);
trm_status trm_cuda_embedding_run(const trm_kernel_call *call);

/* elementwise.cu */
bool trm_cuda_elementwise_accepts(const trm_kernel_call *call);
trm_status trm_cuda_elementwise_run(const trm_kernel_call *call);

/* fused.c */
bool trm_cuda_fused_accepts(const trm_kernel_call *call);
trm_status trm_cuda_fused_run(const trm_kernel_call *call);

/* unary.cu */
bool trm_cuda_unary_accepts(const trm_kernel_call *call);
trm_status trm_cuda_unary_run(const trm_kernel_call *call);
bool trm_cuda_glu_accepts(const trm_kernel_call *call);
trm_status trm_cuda_glu_run(const trm_kernel_call *call);

/* norm.cu, reduce.cu, rope.cu */
bool trm_cuda_norm_accepts(const trm_kernel_call *call);
trm_status trm_cuda_norm_run(const trm_kernel_call *call);
bool trm_cuda_softmax_accepts(const trm_kernel_call *call);
trm_status trm_cuda_softmax_run(const trm_kernel_call *call);
bool trm_cuda_reduce_accepts(const trm_kernel_call *call);
trm_status trm_cuda_reduce_run(const trm_kernel_call *call);
bool trm_cuda_rope_accepts(const trm_kernel_call *call);
trm_status trm_cuda_rope_run(const trm_kernel_call *call);

/* index.cu */
bool trm_cuda_pad_accepts(const trm_kernel_call *call);
trm_status trm_cuda_pad_run(const trm_kernel_call *call);
bool trm_cuda_gather_elements_accepts(const trm_kernel_call *call);
trm_status trm_cuda_gather_elements_run(const trm_kernel_call *call);
bool trm_cuda_gather_nd_accepts(const trm_kernel_call *call);
trm_status trm_cuda_gather_nd_run(const trm_kernel_call *call);
bool trm_cuda_scatter_accepts(const trm_kernel_call *call);
trm_status trm_cuda_scatter_run(const trm_kernel_call *call);
bool trm_cuda_one_hot_accepts(const trm_kernel_call *call);
trm_status trm_cuda_one_hot_run(const trm_kernel_call *call);
bool trm_cuda_reverse_sequence_accepts(const trm_kernel_call *call);
trm_status trm_cuda_reverse_sequence_run(const trm_kernel_call *call);

/* order.cu */
bool trm_cuda_arg_reduce_accepts(const trm_kernel_call *call);
trm_status trm_cuda_arg_reduce_run(const trm_kernel_call *call);
bool trm_cuda_topk_accepts(const trm_kernel_call *call);
size_t trm_cuda_topk_workspace(const trm_kernel_call *call);
trm_status trm_cuda_topk_run(const trm_kernel_call *call);

/* select.cu */
bool trm_cuda_select_accepts(const trm_kernel_call *call);
trm_status trm_cuda_select_run(const trm_kernel_call *call);
bool trm_cuda_rotate_accepts(const trm_kernel_call *call);
trm_status trm_cuda_rotate_run(const trm_kernel_call *call);
bool trm_cuda_cumulative_accepts(const trm_kernel_call *call);
trm_status trm_cuda_cumulative_run(const trm_kernel_call *call);
bool trm_cuda_quantize_accepts(const trm_kernel_call *call); /* and dequantize */
trm_status trm_cuda_quantize_run(const trm_kernel_call *call);
/* convolution.c: by cuDNN or our own kernels; plain: our own */
bool trm_cuda_convolution_accepts(const trm_kernel_call *call);
size_t trm_cuda_convolution_workspace(const trm_kernel_call *call);
trm_status trm_cuda_convolution_run(const trm_kernel_call *call);
trm_status trm_cuda_convolution_tune(const trm_kernel_call *call, struct trm_tuner *tuner);
trm_status trm_cuda_convolution_plain_run(const trm_kernel_call *call);

/* vision.cu, channel_norm.cu, suppression.cu */
bool trm_cuda_pool_accepts(const trm_kernel_call *call);
trm_status trm_cuda_pool_run(const trm_kernel_call *call);
bool trm_cuda_deconvolution_accepts(const trm_kernel_call *call);
trm_status trm_cuda_deconvolution_run(const trm_kernel_call *call);
bool trm_cuda_deformable_convolution_accepts(const trm_kernel_call *call);
trm_status trm_cuda_deformable_convolution_run(const trm_kernel_call *call);
bool trm_cuda_resize_accepts(const trm_kernel_call *call);
trm_status trm_cuda_resize_run(const trm_kernel_call *call);
bool trm_cuda_grid_sample_accepts(const trm_kernel_call *call);
trm_status trm_cuda_grid_sample_run(const trm_kernel_call *call);
bool trm_cuda_roi_pool_accepts(const trm_kernel_call *call);
trm_status trm_cuda_roi_pool_run(const trm_kernel_call *call);
bool trm_cuda_col2im_accepts(const trm_kernel_call *call);
trm_status trm_cuda_col2im_run(const trm_kernel_call *call);
bool trm_cuda_lrn_accepts(const trm_kernel_call *call);
trm_status trm_cuda_lrn_run(const trm_kernel_call *call);
bool trm_cuda_group_norm_accepts(const trm_kernel_call *call);
trm_status trm_cuda_group_norm_run(const trm_kernel_call *call);
bool trm_cuda_non_max_suppression_accepts(const trm_kernel_call *call);
trm_status trm_cuda_non_max_suppression_run(const trm_kernel_call *call);
size_t trm_cuda_non_max_suppression_workspace(const trm_kernel_call *call);

/* recurrent.cu */
bool trm_cuda_recurrent_accepts(const trm_kernel_call *call);
size_t trm_cuda_recurrent_workspace(const trm_kernel_call *call);
trm_status trm_cuda_recurrent_run(const trm_kernel_call *call);

/* shape.cu */
bool trm_cuda_shape_accepts(const trm_kernel_call *call);
trm_status trm_cuda_shape_run(const trm_kernel_call *call);
bool trm_cuda_repeat_accepts(const trm_kernel_call *call);
trm_status trm_cuda_repeat_run(const trm_kernel_call *call);
bool trm_cuda_range_accepts(const trm_kernel_call *call);
trm_status trm_cuda_range_run(const trm_kernel_call *call);
bool trm_cuda_non_zero_accepts(const trm_kernel_call *call);
size_t trm_cuda_non_zero_workspace(const trm_kernel_call *call);
trm_status trm_cuda_non_zero_run(const trm_kernel_call *call);
bool trm_cuda_unique_accepts(const trm_kernel_call *call);
size_t trm_cuda_unique_workspace(const trm_kernel_call *call);
trm_status trm_cuda_unique_run(const trm_kernel_call *call);

/* signal.cu */
bool trm_cuda_random_accepts(const trm_kernel_call *call);
trm_status trm_cuda_random_run(const trm_kernel_call *call);
bool trm_cuda_fourier_accepts(const trm_kernel_call *call);
size_t trm_cuda_fourier_workspace(const trm_kernel_call *call);
trm_status trm_cuda_fourier_run(const trm_kernel_call *call);
bool trm_cuda_determinant_accepts(const trm_kernel_call *call);
size_t trm_cuda_determinant_workspace(const trm_kernel_call *call);
trm_status trm_cuda_determinant_run(const trm_kernel_call *call);

/* matmul_glu.c */
bool trm_cuda_matmul_glu_accepts(const trm_kernel_call *call);
size_t trm_cuda_matmul_glu_workspace(const trm_kernel_call *call);
trm_status trm_cuda_matmul_glu_run(const trm_kernel_call *call);
trm_status trm_cuda_matmul_glu_tune(const trm_kernel_call *call, struct trm_tuner *tuner);

/* norm_matmul.c */
bool trm_cuda_norm_matmul_accepts(const trm_kernel_call *call);
size_t trm_cuda_norm_matmul_workspace(const trm_kernel_call *call);
trm_status trm_cuda_norm_matmul_run(const trm_kernel_call *call);
trm_status trm_cuda_norm_matmul_tune(const trm_kernel_call *call, struct trm_tuner *tuner);

/* matmul.c */
bool trm_cuda_matmul_accepts(const trm_kernel_call *call);
size_t trm_cuda_matmul_workspace(const trm_kernel_call *call);
trm_status trm_cuda_matmul_run(const trm_kernel_call *call);
trm_status trm_cuda_matmul_tune(const trm_kernel_call *call, struct trm_tuner *tuner);

/* dequant_matmul.c */
bool trm_cuda_dequant_matmul_accepts(const trm_kernel_call *call);
size_t trm_cuda_dequant_matmul_workspace(const trm_kernel_call *call);
trm_status trm_cuda_dequant_matmul_run(const trm_kernel_call *call);
trm_status trm_cuda_dequant_matmul_tune(const trm_kernel_call *call, struct trm_tuner *tuner);

/* matmul_invariant.c: floats where a row must not depend on others */
bool trm_cuda_matmul_invariant_accepts(const trm_kernel_call *call);
trm_status trm_cuda_matmul_invariant_run(const trm_kernel_call *call);

/* matmul_wide.cu: f64 and integers, and floats that the one before does not take */
bool trm_cuda_matmul_wide_accepts(const trm_kernel_call *call);
trm_status trm_cuda_matmul_wide_run(const trm_kernel_call *call);

#ifdef __cplusplus
}
#endif
#endif
