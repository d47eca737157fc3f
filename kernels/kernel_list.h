/*
 * The kernels of kernels/, best first for each kind: a row declares a kernel's entry points and puts it into the tables
 * of kernel.h. A new kernel is a file of its family and a row here.
 */
#ifndef TRM_KERNELS_KERNEL_LIST_H
#define TRM_KERNELS_KERNEL_LIST_H

#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * EACH(kind, name, form, family): a kernel of both backends, "host.<name>" and "cuda.<name>"; HOST and CUDA: of one.
 * The entry points are trm_<backend>_<family>_{accepts,run}. A WORKSPACE kernel has trm_<backend>_<family>_workspace,
 * too. A PREPARED kernel has trm_<backend>_<family>_prepare instead of `run`, and a workspace; a PREPARED_TUNED one
 * tunes in it.
 */
/* clang-format off */
#define TRM_KERNELS(EACH, HOST, CUDA)                                                            \
    EACH(CAST,                    "cast",                    PLAIN,     cast)                    \
    EACH(RESHAPE,                 "reshape",                 PLAIN,     reshape)                 \
    EACH(TRANSPOSE,               "transpose",               PLAIN,     transpose)               \
    EACH(SLICE,                   "slice",                   PLAIN,     slice)                   \
    EACH(CONCAT,                  "concat",                  PLAIN,     concat)                  \
    EACH(GATHER,                  "gather",                  PLAIN,     gather)                  \
    EACH(EMBEDDING,               "embedding",               PLAIN,     embedding)               \
    HOST(MATMUL,                  "matmul.gemv",             WORKSPACE, gemv)                    \
    HOST(MATMUL,                  "matmul.tiled",            WORKSPACE, matmul_tiled)            \
    HOST(MATMUL,                  "matmul.reference",        WORKSPACE, matmul_reference)        \
    HOST(MATMUL,                  "matmul_wide",             PLAIN,     matmul_wide)             \
    CUDA(MATMUL,                  "matmul_invariant",        PLAIN,     matmul_invariant)        \
    CUDA(MATMUL,                  "matmul",                  PREPARED_TUNED, matmul)             \
    CUDA(MATMUL,                  "matmul_wide",             PLAIN,     matmul_wide)             \
    HOST(CONVOLUTION,             "convolution.rows",        PLAIN,     convolution_rows)        \
    HOST(CONVOLUTION,             "convolution.columns",     PLAIN,     convolution_columns)     \
    HOST(CONVOLUTION,             "convolution.reference",   PLAIN,     convolution)             \
    CUDA(CONVOLUTION,             "convolution",             PREPARED_TUNED, convolution)        \
    CUDA(CONVOLUTION,             "convolution.plain",       PLAIN,     convolution_plain)       \
    EACH(POOL,                    "pool",                    PLAIN,     pool)                    \
    HOST(DECONVOLUTION,           "deconvolution.products",  PLAIN,     deconvolution_products)  \
    EACH(DECONVOLUTION,           "deconvolution",           PLAIN,     deconvolution)           \
    EACH(DEFORMABLE_CONVOLUTION,  "deformable_convolution",  PLAIN,     deformable_convolution)  \
    EACH(RESIZE,                  "resize",                  PLAIN,     resize)                  \
    EACH(GRID_SAMPLE,             "grid_sample",             PLAIN,     grid_sample)             \
    EACH(ROI_POOL,                "roi_pool",                PLAIN,     roi_pool)                \
    EACH(COL2IM,                  "col2im",                  PLAIN,     col2im)                  \
    EACH(LRN,                     "lrn",                     PLAIN,     lrn)                     \
    EACH(GROUP_NORM,              "group_norm",              PLAIN,     group_norm)              \
    EACH(RECURRENT,               "recurrent",               WORKSPACE, recurrent)               \
    EACH(NON_MAX_SUPPRESSION,     "non_max_suppression",     WORKSPACE, non_max_suppression)     \
    EACH(ELEMENTWISE,             "elementwise",             PLAIN,     elementwise)             \
    EACH(UNARY,                   "unary",                   PLAIN,     unary)                   \
    EACH(FUSED_ELEMENTWISE,       "fused",                   PLAIN,     fused)                   \
    EACH(GLU,                     "glu",                     PLAIN,     glu)                     \
    HOST(MATMUL_GLU,              "matmul_glu",              PREPARED,  matmul_glu)              \
    CUDA(MATMUL_GLU,              "matmul_glu",              PREPARED_TUNED, matmul_glu)         \
    HOST(NORM_MATMUL,             "norm_matmul",             PREPARED,  norm_matmul)             \
    CUDA(NORM_MATMUL,             "norm_matmul",             PREPARED_TUNED, norm_matmul)        \
    HOST(DEQUANT_MATMUL,          "dequant_matmul",          WORKSPACE, dequant_matmul)          \
    CUDA(DEQUANT_MATMUL,          "dequant_matmul",          PREPARED_TUNED, dequant_matmul)     \
    HOST(NORM_DEQUANT_MATMUL,     "norm_dequant_matmul",     PREPARED,  norm_dequant_matmul)     \
    CUDA(NORM_DEQUANT_MATMUL,     "norm_dequant_matmul",     PREPARED_TUNED, norm_dequant_matmul)\
    HOST(GLU_DEQUANT_MATMUL,      "glu_dequant_matmul",      PREPARED,  glu_dequant_matmul)      \
    CUDA(GLU_DEQUANT_MATMUL,      "glu_dequant_matmul",      PREPARED_TUNED, glu_dequant_matmul) \
    CUDA(INT8_PRODUCT,            "int8_product.tiles",      PREPARED_TUNED, int8_tiles)         \
    EACH(INT8_PRODUCT,            "int8_product",            PLAIN,     int8_product)            \
    HOST(ROUTER,                  "router",                  PLAIN,     router)                  \
    CUDA(ROUTER,                  "router",                  PREPARED_TUNED, router)             \
    HOST(NORM_ROUTER,             "norm_router",             PREPARED,  norm_router)             \
    CUDA(NORM_ROUTER,             "norm_router",             PREPARED_TUNED, norm_router)        \
    HOST(EXPERTS,                 "experts",                 PLAIN,     experts)                 \
    CUDA(EXPERTS,                 "experts",                 WORKSPACE, experts)                 \
    EACH(SHORT_CONVOLUTION,       "short_convolution",       PLAIN,     short_convolution)       \
    EACH(GATED_DELTA,             "gated_delta",             PLAIN,     gated_delta)             \
    HOST(SELECTIVE_SCAN,          "selective_scan",          PLAIN,     selective_scan)          \
    CUDA(SELECTIVE_SCAN,          "selective_scan",          PREPARED,  selective_scan)          \
    CUDA(DELTA_NET,               "delta_net",               PREPARED,  delta_net)               \
    EACH(DELTA_NET,               "delta_net.parts",         PREPARED,  delta_net_parts)         \
    EACH(PLUGIN,                  "plugin",                  PREPARED,  plugin)                  \
    HOST(LORA,                    "lora",                    PLAIN,     lora)                    \
    CUDA(LORA,                    "lora",                    WORKSPACE, lora)                    \
    EACH(NORM,                    "norm",                    PLAIN,     norm)                    \
    EACH(NORM_QUANTIZE,           "norm_quantize",           PLAIN,     norm_quantize)           \
    EACH(SOFTMAX,                 "softmax",                 PLAIN,     softmax)                 \
    EACH(REDUCE,                  "reduce",                  PLAIN,     reduce)                  \
    EACH(ROPE,                    "rope",                    PLAIN,     rope)                    \
    EACH(ROTATE,                  "rotate",                  PLAIN,     rotate)                  \
    EACH(SHAPE,                   "shape",                   PLAIN,     shape)                   \
    EACH(EXPAND,                  "expand",                  PLAIN,     repeat)                  \
    EACH(TILE,                    "tile",                    PLAIN,     repeat)                  \
    EACH(RANGE,                   "range",                   PLAIN,     range)                   \
    HOST(NON_ZERO,                "non_zero",                PLAIN,     non_zero)                \
    CUDA(NON_ZERO,                "non_zero",                WORKSPACE, non_zero)                \
    EACH(UNIQUE,                  "unique",                  WORKSPACE, unique)                  \
    EACH(PAD,                     "pad",                     PLAIN,     pad)                     \
    EACH(SELECT,                  "select",                  PLAIN,     select)                  \
    EACH(CUMULATIVE,              "cumulative",              PLAIN,     cumulative)              \
    EACH(QUANTIZE,                "quantize",                PLAIN,     quantize)                \
    EACH(DEQUANTIZE,              "dequantize",              PLAIN,     quantize)                \
    EACH(RANDOM,                  "random",                  PLAIN,     random)                  \
    EACH(FOURIER,                 "fourier",                 WORKSPACE, fourier)                 \
    EACH(DETERMINANT,             "determinant",             WORKSPACE, determinant)             \
    EACH(GATHER_ELEMENTS,         "gather_elements",         PLAIN,     gather_elements)         \
    EACH(GATHER_ND,               "gather_nd",               PLAIN,     gather_nd)               \
    EACH(SCATTER,                 "scatter",                 PLAIN,     scatter)                 \
    EACH(ONE_HOT,                 "one_hot",                 PLAIN,     one_hot)                 \
    EACH(REVERSE_SEQUENCE,        "reverse_sequence",        PLAIN,     reverse_sequence)        \
    HOST(TOPK,                    "topk",                    PLAIN,     topk)                    \
    CUDA(TOPK,                    "topk",                    WORKSPACE, topk)                    \
    EACH(ARG_REDUCE,              "arg_reduce",              PLAIN,     arg_reduce)              \
    EACH(IF,                      "if",                      PLAIN,     hand_on)                 \
    EACH(END_IF,                  "end_if",                  PLAIN,     hand_on)                 \
    EACH(LOOP,                    "loop",                    PLAIN,     hand_on)                 \
    EACH(END_LOOP,                "end_loop",                PLAIN,     hand_on)                 \
    EACH(ENTER,                   "enter",                   PLAIN,     hand_on)                 \
    EACH(RECURRENCE,              "recurrence",              PLAIN,     hand_on)                 \
    EACH(NEXT,                    "next",                    PLAIN,     hand_on)                 \
    EACH(LOOP_OUTPUT,             "loop_output",             PLAIN,     hand_on)                 \
    EACH(MERGE,                   "merge",                   PLAIN,     merge)

/* clang-format on */

#define TRM_DECLARE_PLAIN(function)                                                                                    \
    bool function##_accepts(const trm_kernel_call *call);                                                              \
    trm_status function##_run(const trm_kernel_call *call);
#define TRM_DECLARE_WORKSPACE(function)                                                                                \
    TRM_DECLARE_PLAIN(function)                                                                                        \
    size_t function##_workspace(const trm_kernel_call *call);
#define TRM_DECLARE_PREPARED(function)                                                                                 \
    bool function##_accepts(const trm_kernel_call *call);                                                              \
    size_t function##_workspace(const trm_kernel_call *call);                                                          \
    trm_status function##_prepare(const trm_kernel_call *call, struct trm_program *program);
#define TRM_DECLARE_PREPARED_TUNED(function)       TRM_DECLARE_PREPARED(function)
#define TRM_DECLARE_HOST(kind, name, form, family) TRM_DECLARE_##form(trm_host_##family)
#define TRM_DECLARE_CUDA(kind, name, form, family) TRM_DECLARE_##form(trm_cuda_##family)
#define TRM_DECLARE_EACH(kind, name, form, family)                                                                     \
    TRM_DECLARE_HOST(kind, name, form, family) TRM_DECLARE_CUDA(kind, name, form, family)

TRM_KERNELS(TRM_DECLARE_EACH, TRM_DECLARE_HOST, TRM_DECLARE_CUDA)

#undef TRM_DECLARE_PLAIN
#undef TRM_DECLARE_WORKSPACE
#undef TRM_DECLARE_PREPARED
#undef TRM_DECLARE_PREPARED_TUNED
#undef TRM_DECLARE_HOST
#undef TRM_DECLARE_CUDA
#undef TRM_DECLARE_EACH

#ifdef __cplusplus
}
#endif
#endif
