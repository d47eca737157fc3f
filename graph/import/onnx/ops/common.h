/* Helpers that operators of several families share. */
#ifndef TRM_GRAPH_IMPORT_ONNX_OPS_COMMON_H
#define TRM_GRAPH_IMPORT_ONNX_OPS_COMMON_H

#include "graph/import/onnx/ops/ops.h"

/* 0 .. size - 1 as i64 [size]. */
trm_tensor *trm_onnx_positions(trm_onnx_node *node, trm_onnx_dim size);

/* The type in which sums of products of `dtype` are taken where several layers do what one kernel would do at once: f32
 * for the shorter floats, f64 for integers, else itself. */
trm_dtype trm_onnx_wide(trm_dtype dtype);

/* Softmax or its logarithm along axes of a tensor of any float type. */
trm_tensor *trm_onnx_log_softmax(trm_onnx_node *node, trm_tensor *x, int32_t axis);

/* A norm of catalogue kind NORM over dims `axis` .. of x; weight and bias (may be NULL) broadcast to those. */
trm_tensor *trm_onnx_norm(trm_onnx_node *node, trm_norm_op op, float eps, trm_tensor *x, int32_t axis,
                          trm_tensor *weight, trm_tensor *bias);

/* [B, N, heads * d] as [B, heads, N, d], and back. */
trm_tensor *trm_onnx_split_heads(trm_onnx_node *node, trm_tensor *x, int64_t heads);
trm_tensor *trm_onnx_join_heads(trm_onnx_node *node, trm_tensor *x);

/* [N, ..., C] as [N, C, ...], and back. */
trm_tensor *trm_onnx_channels_first(trm_onnx_node *node, trm_tensor *x);
trm_tensor *trm_onnx_channels_last(trm_onnx_node *node, trm_tensor *x);

/* x under the activation that a fused operator of com.microsoft names (attribute `activation`), with its parameters. */
trm_tensor *trm_onnx_fused_activation(trm_onnx_node *node, trm_tensor *x);

/* a [.., K] times b [K, N], integers of 8 bits less their zero points (may be NULL), as i32. */
trm_tensor *trm_onnx_integer_product(trm_onnx_node *node, trm_tensor *a, trm_tensor *a_zero, trm_tensor *b,
                                     trm_tensor *b_zero);

/* x [B, heads, N, d] turned by cos and sin [B or 1, N, pairs], of which the first 2 * pairs elements of a head: pairs
 * (i, i + pairs), or (2 i, 2 i + 1) if interleaved. */
trm_tensor *trm_onnx_rotate(trm_onnx_node *node, trm_tensor *x, trm_tensor *cosines, trm_tensor *sines,
                            int64_t rotary_dim, bool interleaved);

#endif
