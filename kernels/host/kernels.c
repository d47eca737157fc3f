/* The table of host kernels, best first. */
#include "kernels/host/host.h"

#include "kernels/matmul_fused/norm_matmul.h"
#include "kernels/matmul_fused/matmul_glu.h"

#define NAMED(layer, text, family)                                                                                     \
    {                                                                                                                  \
        .name = "host." text, .kind = (layer), .backend = TRM_BACKEND_HOST, .accepts = trm_host_##family##_accepts,    \
        .run = trm_host_##family##_run                                                                                 \
    }
#define REFERENCE(layer, family)                                                                                       \
    {                                                                                                                  \
        .name = "host." #family, .kind = (layer), .backend = TRM_BACKEND_HOST, .accepts = trm_host_##family##_accepts, \
        .run = trm_host_##family##_run                                                                                 \
    }

static bool matmul_glu_accepts(const trm_kernel_call *call)
{
    return trm_matmul_glu_accepts(call, TRM_BACKEND_HOST);
}

static size_t matmul_glu_workspace(const trm_kernel_call *call)
{
    return trm_matmul_glu_workspace(call, TRM_BACKEND_HOST);
}

static trm_status matmul_glu_run(const trm_kernel_call *call)
{
    return trm_matmul_glu_run(call, TRM_BACKEND_HOST);
}

static bool norm_matmul_accepts(const trm_kernel_call *call)
{
    return trm_norm_matmul_accepts(call, TRM_BACKEND_HOST);
}

static size_t norm_matmul_workspace(const trm_kernel_call *call)
{
    return trm_norm_matmul_workspace(call, TRM_BACKEND_HOST);
}

static trm_status norm_matmul_run(const trm_kernel_call *call)
{
    return trm_norm_matmul_run(call, TRM_BACKEND_HOST);
}

static const trm_kernel kernels[] = {
    REFERENCE(TRM_LAYER_CAST, cast),
    REFERENCE(TRM_LAYER_RESHAPE, reshape),
    REFERENCE(TRM_LAYER_TRANSPOSE, transpose),
    REFERENCE(TRM_LAYER_SLICE, slice),
    REFERENCE(TRM_LAYER_CONCAT, concat),
    REFERENCE(TRM_LAYER_GATHER, gather),
    REFERENCE(TRM_LAYER_EMBEDDING, embedding),
    {.name = "host.matmul.gemv",
     .kind = TRM_LAYER_MATMUL,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_gemv_accepts,
     .workspace = trm_host_gemv_workspace,
     .run = trm_host_gemv_run},
    {.name = "host.matmul.openblas",
     .kind = TRM_LAYER_MATMUL,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_matmul_openblas_accepts,
     .workspace = trm_host_gemv_workspace,
     .run = trm_host_matmul_openblas_run},
    {.name = "host.matmul.reference",
     .kind = TRM_LAYER_MATMUL,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_matmul_reference_accepts,
     .workspace = trm_host_gemv_workspace,
     .run = trm_host_matmul_reference_run},
    NAMED(TRM_LAYER_CONVOLUTION, "convolution.rows", convolution_rows),
    NAMED(TRM_LAYER_CONVOLUTION, "convolution.columns", convolution_columns),
    NAMED(TRM_LAYER_CONVOLUTION, "convolution.reference", convolution),
    REFERENCE(TRM_LAYER_POOL, pool),
    REFERENCE(TRM_LAYER_DECONVOLUTION, deconvolution),
    REFERENCE(TRM_LAYER_DEFORMABLE_CONVOLUTION, deformable_convolution),
    REFERENCE(TRM_LAYER_RESIZE, resize),
    REFERENCE(TRM_LAYER_GRID_SAMPLE, grid_sample),
    REFERENCE(TRM_LAYER_ROI_POOL, roi_pool),
    REFERENCE(TRM_LAYER_COL2IM, col2im),
    REFERENCE(TRM_LAYER_LRN, lrn),
    REFERENCE(TRM_LAYER_GROUP_NORM, group_norm),
    {.name = "host.recurrent",
     .kind = TRM_LAYER_RECURRENT,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_recurrent_accepts,
     .workspace = trm_host_recurrent_workspace,
     .run = trm_host_recurrent_run},
    {.name = "host.non_max_suppression",
     .kind = TRM_LAYER_NON_MAX_SUPPRESSION,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_non_max_suppression_accepts,
     .workspace = trm_host_non_max_suppression_workspace,
     .run = trm_host_non_max_suppression_run},
    REFERENCE(TRM_LAYER_MATMUL, matmul_wide),
    REFERENCE(TRM_LAYER_ELEMENTWISE, elementwise),
    REFERENCE(TRM_LAYER_UNARY, unary),
    REFERENCE(TRM_LAYER_FUSED_ELEMENTWISE, fused),
    REFERENCE(TRM_LAYER_GLU, glu),
    {.name = "host.matmul_glu",
     .kind = TRM_LAYER_MATMUL_GLU,
     .backend = TRM_BACKEND_HOST,
     .accepts = matmul_glu_accepts,
     .workspace = matmul_glu_workspace,
     .run = matmul_glu_run},
    {.name = "host.norm_matmul",
     .kind = TRM_LAYER_NORM_MATMUL,
     .backend = TRM_BACKEND_HOST,
     .accepts = norm_matmul_accepts,
     .workspace = norm_matmul_workspace,
     .run = norm_matmul_run},
    {.name = "host.dequant_matmul",
     .kind = TRM_LAYER_DEQUANT_MATMUL,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_dequant_matmul_accepts,
     .workspace = trm_host_dequant_matmul_workspace,
     .run = trm_host_dequant_matmul_run},
    REFERENCE(TRM_LAYER_NORM, norm),
    REFERENCE(TRM_LAYER_SOFTMAX, softmax),
    REFERENCE(TRM_LAYER_REDUCE, reduce),
    REFERENCE(TRM_LAYER_ROPE, rope),
    REFERENCE(TRM_LAYER_ROTATE, rotate),
    REFERENCE(TRM_LAYER_SHAPE, shape),
    REFERENCE(TRM_LAYER_EXPAND, repeat),
    REFERENCE(TRM_LAYER_TILE, repeat),
    REFERENCE(TRM_LAYER_RANGE, range),
    REFERENCE(TRM_LAYER_NON_ZERO, non_zero),
    {.name = "host.unique",
     .kind = TRM_LAYER_UNIQUE,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_unique_accepts,
     .workspace = trm_host_unique_workspace,
     .run = trm_host_unique_run},
    REFERENCE(TRM_LAYER_PAD, pad),
    REFERENCE(TRM_LAYER_SELECT, select),
    REFERENCE(TRM_LAYER_CUMULATIVE, cumulative),
    REFERENCE(TRM_LAYER_QUANTIZE, quantize),
    REFERENCE(TRM_LAYER_DEQUANTIZE, quantize),
    REFERENCE(TRM_LAYER_RANDOM, random),
    {.name = "host.fourier",
     .kind = TRM_LAYER_FOURIER,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_fourier_accepts,
     .workspace = trm_host_fourier_workspace,
     .run = trm_host_fourier_run},
    {.name = "host.determinant",
     .kind = TRM_LAYER_DETERMINANT,
     .backend = TRM_BACKEND_HOST,
     .accepts = trm_host_determinant_accepts,
     .workspace = trm_host_determinant_workspace,
     .run = trm_host_determinant_run},
    REFERENCE(TRM_LAYER_GATHER_ELEMENTS, gather_elements),
    REFERENCE(TRM_LAYER_GATHER_ND, gather_nd),
    REFERENCE(TRM_LAYER_SCATTER, scatter),
    REFERENCE(TRM_LAYER_ONE_HOT, one_hot),
    REFERENCE(TRM_LAYER_REVERSE_SEQUENCE, reverse_sequence),
    REFERENCE(TRM_LAYER_TOPK, topk),
    REFERENCE(TRM_LAYER_ARG_REDUCE, arg_reduce),
    REFERENCE(TRM_LAYER_IF, hand_on),
    REFERENCE(TRM_LAYER_END_IF, hand_on),
    REFERENCE(TRM_LAYER_LOOP, hand_on),
    REFERENCE(TRM_LAYER_END_LOOP, hand_on),
    REFERENCE(TRM_LAYER_ENTER, hand_on),
    REFERENCE(TRM_LAYER_RECURRENCE, hand_on),
    REFERENCE(TRM_LAYER_NEXT, hand_on),
    REFERENCE(TRM_LAYER_LOOP_OUTPUT, hand_on),
    REFERENCE(TRM_LAYER_MERGE, merge),
};

const trm_kernel_table trm_host_kernels = {kernels, (int32_t)(sizeof(kernels) / sizeof(kernels[0]))};
