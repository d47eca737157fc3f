/* The kernels of the CUDA backend. */
#include "kernels/cuda/launch.h"

#define SIMPLE(name, kind)                                                                                             \
    {                                                                                                                  \
        "cuda." #name, kind, TRM_BACKEND_CUDA, trm_cuda_##name##_accepts, NULL, trm_cuda_##name##_run, NULL            \
    }

static const trm_kernel kernels[] = {
    {"cuda.matmul", TRM_LAYER_MATMUL, TRM_BACKEND_CUDA, trm_cuda_matmul_accepts, trm_cuda_matmul_workspace,
     trm_cuda_matmul_run, trm_cuda_matmul_tune},
    SIMPLE(matmul_wide, TRM_LAYER_MATMUL),
    SIMPLE(cast, TRM_LAYER_CAST),
    SIMPLE(reshape, TRM_LAYER_RESHAPE),
    SIMPLE(transpose, TRM_LAYER_TRANSPOSE),
    SIMPLE(slice, TRM_LAYER_SLICE),
    SIMPLE(concat, TRM_LAYER_CONCAT),
    SIMPLE(gather, TRM_LAYER_GATHER),
    SIMPLE(embedding, TRM_LAYER_EMBEDDING),
    SIMPLE(elementwise, TRM_LAYER_ELEMENTWISE),
    SIMPLE(unary, TRM_LAYER_UNARY),
    SIMPLE(glu, TRM_LAYER_GLU),
    SIMPLE(norm, TRM_LAYER_NORM),
    SIMPLE(softmax, TRM_LAYER_SOFTMAX),
    SIMPLE(reduce, TRM_LAYER_REDUCE),
    SIMPLE(rope, TRM_LAYER_ROPE),
    SIMPLE(pad, TRM_LAYER_PAD),
    SIMPLE(select, TRM_LAYER_SELECT),
    SIMPLE(cumulative, TRM_LAYER_CUMULATIVE),
    SIMPLE(quantize, TRM_LAYER_QUANTIZE),
    SIMPLE(quantize, TRM_LAYER_DEQUANTIZE),
    SIMPLE(random, TRM_LAYER_RANDOM),
    {"cuda.fourier", TRM_LAYER_FOURIER, TRM_BACKEND_CUDA, trm_cuda_fourier_accepts, trm_cuda_fourier_workspace,
     trm_cuda_fourier_run, NULL},
    {"cuda.determinant", TRM_LAYER_DETERMINANT, TRM_BACKEND_CUDA, trm_cuda_determinant_accepts,
     trm_cuda_determinant_workspace, trm_cuda_determinant_run, NULL},
    SIMPLE(gather_elements, TRM_LAYER_GATHER_ELEMENTS),
    SIMPLE(gather_nd, TRM_LAYER_GATHER_ND),
    SIMPLE(scatter, TRM_LAYER_SCATTER),
    SIMPLE(one_hot, TRM_LAYER_ONE_HOT),
    SIMPLE(reverse_sequence, TRM_LAYER_REVERSE_SEQUENCE),
    SIMPLE(arg_reduce, TRM_LAYER_ARG_REDUCE),
    {"cuda.topk", TRM_LAYER_TOPK, TRM_BACKEND_CUDA, trm_cuda_topk_accepts, trm_cuda_topk_workspace, trm_cuda_topk_run,
     NULL},
};

const trm_kernel_table trm_cuda_kernels = {kernels, (int32_t)(sizeof(kernels) / sizeof(kernels[0]))};
