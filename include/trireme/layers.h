/*
 * The catalogue of layer kinds. Each family's kinds and parameters are documented in a header of <trireme/layers/>.
 *
 * A layer is a trm_layer_desc, its input tensors and its output tensors. The row of each
 * kind in graph/kinds has its shape and type rule; its meaning is its host reference kernel. Arithmetic on f16 and
 * bf16 is done in f32 and rounded once when a layer's output is stored.
 *
 * Shapes are row-major; T is tokens (all sequences of a step, one after the other), S sequences.
 *
 * A value input is a small tensor whose values, not only dims, decide the dims of the outputs. A context knows them
 * on the host before the layer is enqueued: they are constants, inputs of the network, or follow from dims and
 * those. Where the value is not known (a network is being defined), the dims it decides are -1.
 *
 * Kinds whose output dims depend on data (NON_ZERO, UNIQUE, NON_MAX_SUPPRESSION) have as their last output the number
 * of entries, i64 scalar: memory is planned for the largest number, and a context reads the actual one and continues
 * with it.
 */
#ifndef TRIREME_LAYERS_H
#define TRIREME_LAYERS_H

#include <trireme/layers/attention.h>
#include <trireme/layers/collective.h>
#include <trireme/layers/control.h>
#include <trireme/layers/convolution.h>
#include <trireme/layers/delta.h>
#include <trireme/layers/index.h>
#include <trireme/layers/lora.h>
#include <trireme/layers/matmul.h>
#include <trireme/layers/moe.h>
#include <trireme/layers/norm.h>
#include <trireme/layers/plugin.h>
#include <trireme/layers/pointwise.h>
#include <trireme/layers/shape.h>
#include <trireme/layers/tensor.h>
#include <trireme/layers/vision.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds: X(KIND, name). A kind has its row in graph/kinds. */
#define TRM_LAYER_KINDS(X)                                                                                             \
    X(CAST, cast)                                                                                                      \
    X(RESHAPE, reshape)                                                                                                \
    X(TRANSPOSE, transpose)                                                                                            \
    X(SLICE, slice)                                                                                                    \
    X(CONCAT, concat)                                                                                                  \
    X(GATHER, gather)                                                                                                  \
    X(EMBEDDING, embedding)                                                                                            \
    X(MATMUL, matmul)                                                                                                  \
    X(ELEMENTWISE, elementwise)                                                                                        \
    X(UNARY, unary)                                                                                                    \
    X(GLU, glu)                                                                                                        \
    X(NORM, norm)                                                                                                      \
    X(SOFTMAX, softmax)                                                                                                \
    X(REDUCE, reduce)                                                                                                  \
    X(ROPE, rope)                                                                                                      \
    X(ATTENTION, attention)                                                                                            \
    X(DIST_COLLECTIVE, dist_collective)                                                                                \
    X(SHAPE, shape)                                                                                                    \
    X(EXPAND, expand)                                                                                                  \
    X(TILE, tile)                                                                                                      \
    X(PAD, pad)                                                                                                        \
    X(RANGE, range)                                                                                                    \
    X(SELECT, select)                                                                                                  \
    X(GATHER_ELEMENTS, gather_elements)                                                                                \
    X(GATHER_ND, gather_nd)                                                                                            \
    X(SCATTER, scatter)                                                                                                \
    X(ONE_HOT, one_hot)                                                                                                \
    X(REVERSE_SEQUENCE, reverse_sequence)                                                                              \
    X(TOPK, topk)                                                                                                      \
    X(ARG_REDUCE, arg_reduce)                                                                                          \
    X(CUMULATIVE, cumulative)                                                                                          \
    X(NON_ZERO, non_zero)                                                                                              \
    X(UNIQUE, unique)                                                                                                  \
    X(NON_MAX_SUPPRESSION, non_max_suppression)                                                                        \
    X(CONVOLUTION, convolution)                                                                                        \
    X(DECONVOLUTION, deconvolution)                                                                                    \
    X(DEFORMABLE_CONVOLUTION, deformable_convolution)                                                                  \
    X(POOL, pool)                                                                                                      \
    X(RESIZE, resize)                                                                                                  \
    X(GRID_SAMPLE, grid_sample)                                                                                        \
    X(ROI_POOL, roi_pool)                                                                                              \
    X(COL2IM, col2im)                                                                                                  \
    X(GROUP_NORM, group_norm)                                                                                          \
    X(LRN, lrn)                                                                                                        \
    X(RECURRENT, recurrent)                                                                                            \
    X(QUANTIZE, quantize)                                                                                              \
    X(DEQUANTIZE, dequantize)                                                                                          \
    X(DETERMINANT, determinant)                                                                                        \
    X(FOURIER, fourier)                                                                                                \
    X(RANDOM, random)                                                                                                  \
    X(IF, if)                                                                                                          \
    X(END_IF, end_if)                                                                                                  \
    X(LOOP, loop)                                                                                                      \
    X(END_LOOP, end_loop)                                                                                              \
    X(ENTER, enter)                                                                                                    \
    X(RECURRENCE, recurrence)                                                                                          \
    X(NEXT, next)                                                                                                      \
    X(LOOP_OUTPUT, loop_output)                                                                                        \
    X(MERGE, merge)                                                                                                    \
    X(DEQUANT_MATMUL, dequant_matmul)                                                                                  \
    X(ROUTER, router)                                                                                                  \
    X(EXPERTS, experts)                                                                                                \
    X(LATENT_ATTENTION, latent_attention)                                                                              \
    X(SHORT_CONVOLUTION, short_convolution)                                                                            \
    X(GATED_DELTA, gated_delta)                                                                                        \
    X(SELECTIVE_SCAN, selective_scan)                                                                                  \
    X(LORA, lora)                                                                                                      \
    X(PLUGIN, plugin)

/* Behind these are the kinds that only passes and the partitioner make, which the engine's own sources see. */
#ifdef TRM_PASS_KINDS
#include TRM_PASS_KINDS
#else
#define TRM_PASS_LAYER_KINDS(X)
#define TRM_PASS_LAYER_PARAMS
#endif

#define TRM_LAYER_ENUMERATOR(kind, name) TRM_LAYER_##kind,
typedef enum trm_layer_kind {
    TRM_LAYER_KINDS(TRM_LAYER_ENUMERATOR) TRM_LAYER_KIND_COUNT,
    TRM_PASS_LAYER_KINDS(TRM_LAYER_ENUMERATOR)
} trm_layer_kind;

/* A kind and its parameters. */
typedef struct trm_layer_desc {
    trm_layer_kind kind;
    union {
        trm_cast_params cast;
        trm_reshape_params reshape;
        trm_transpose_params transpose;
        trm_slice_params slice;
        trm_concat_params concat;
        trm_gather_params gather;
        trm_embedding_params embedding;
        trm_matmul_params matmul;
        trm_elementwise_params elementwise;
        trm_unary_params unary;
        trm_glu_params glu;
        trm_norm_params norm;
        trm_dequant_matmul_params dequant_matmul;
        trm_router_params router;
        trm_experts_params experts;
        trm_softmax_params softmax;
        trm_reduce_params reduce;
        trm_rope_params rope;
        trm_attention_params attention;
        trm_latent_attention_params latent_attention;
        trm_short_convolution_params short_convolution;
        trm_gated_delta_params gated_delta;
        trm_selective_scan_params selective_scan;
        trm_collective_params collective;
        trm_shape_params shape;
        trm_expand_params expand;
        trm_pad_params pad;
        trm_gather_elements_params gather_elements;
        trm_gather_nd_params gather_nd;
        trm_scatter_params scatter;
        trm_one_hot_params one_hot;
        trm_reverse_sequence_params reverse_sequence;
        trm_topk_params topk;
        trm_arg_reduce_params arg_reduce;
        trm_cumulative_params cumulative;
        trm_unique_params unique;
        trm_non_max_suppression_params non_max_suppression;
        trm_convolution_params convolution; /* and DECONVOLUTION */
        trm_deformable_convolution_params deformable_convolution;
        trm_pool_params pool;
        trm_resize_params resize;
        trm_grid_sample_params grid_sample;
        trm_roi_pool_params roi_pool;
        trm_col2im_params col2im;
        trm_group_norm_params group_norm;
        trm_lrn_params lrn;
        trm_recurrent_params recurrent;
        trm_quantize_params quantize; /* and DEQUANTIZE */
        trm_fourier_params fourier;
        trm_random_params random;
        trm_if_params branch;             /* IF */
        trm_recurrence_params recurrence; /* and NEXT */
        trm_plugin_params plugin;
        uint64_t reserved[88]; /* for what passes make */
        TRM_PASS_LAYER_PARAMS
    };
} trm_layer_desc;

/* "matmul", "dist_collective", ...; "invalid" out of range. */
TRM_API const char *trm_layer_kind_name(trm_layer_kind kind);

#ifdef __cplusplus
}
#endif
#endif
