/*
 * NORM_DEQUANT_MATMUL and GLU_DEQUANT_MATMUL on CUDA: where the product is one of e4m3, its kernel before quantizes
 * what it makes, and nothing else is written. Elsewhere one layer after the other.
 */
#include "kernels/matmul_fused/dequant.h"

#include "base/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/dequant/cuda.h"
#include "kernels/kernel_list.h"
#include "kernels/norm/cuda.h"

/* What runs before the product, with the product's rows as where its results go. */
typedef struct before_args {
    trm_layer_desc layer;
    trm_kernel_call call;
    trm_quantized_rows to;
} before_args;

static trm_status run_norm(void *user, trm_stream *stream)
{
    const before_args *args = user;
    return trm_cuda_norm_quantized(&args->call, &args->to, trm_cuda_stream(stream));
}

static trm_status run_glu(void *user, trm_stream *stream)
{
    const before_args *args = user;
    const trm_view *x = &args->call.inputs[0];
    return trm_cuda_quantize_glu(x->data, x->dtype, args->layer.glu.activation, &args->to, trm_cuda_stream(stream));
}

/* Both alike: the first part, and how it runs. */
typedef struct form {
    trm_kernel_parts_fn describe;
    bool (*accepts)(const trm_kernel_call *before);
    const char *name;
    trm_status (*run)(void *user, trm_stream *stream);
} form;

static bool glu_is_aligned(const trm_kernel_call *glu)
{
    return (uintptr_t)glu->inputs[0].data % 16 == 0;
}

static const form norm_form = {trm_norm_dequant_matmul_parts, trm_cuda_norm_quantized_accepts, "cuda.norm quantized",
                               run_norm};
static const form glu_form = {trm_glu_dequant_matmul_parts, glu_is_aligned, "cuda.glu quantized", run_glu};

static trm_status prepare(const trm_kernel_call *call, const form *f, trm_program *program)
{
    trm_kernel_parts parts = {0};
    trm_fp8_product product;
    struct trm_tuner *tuner;
    if (trm_program_take_tuner(program, &tuner)) {
        TRM_TRY(trm_kernel_parts_tune(call, TRM_BACKEND_CUDA, f->describe, tuner));
    }
    if (!f->describe(call, &parts)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a %s call does not fit the layer it was accepted for",
                 trm_layer_kind_name(call->layer->kind));
    }
    trm_kernel_call *second = &parts.calls[1];
    second->workspace = (char *)call->workspace + parts.between;
    second->workspace_size = call->workspace_size - parts.between;
    if (!trm_cuda_dequant_takes_fp8(second, &product) || !f->accepts(&parts.calls[0])) {
        return trm_kernel_parts_prepare(call, TRM_BACKEND_CUDA, f->describe, program);
    }
    before_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = (before_args){parts.layers[0], parts.calls[0], product.x};
    args->call.layer = &args->layer;
    TRM_TRY(trm_program_append(program, f->name, f->run, args));
    return trm_cuda_fp8_append(&product, program);
}

bool trm_cuda_norm_dequant_matmul_accepts(const trm_kernel_call *call)
{
    return trm_kernel_parts_accepts(call, TRM_BACKEND_CUDA, norm_form.describe);
}

bool trm_cuda_glu_dequant_matmul_accepts(const trm_kernel_call *call)
{
    return trm_kernel_parts_accepts(call, TRM_BACKEND_CUDA, glu_form.describe);
}

size_t trm_cuda_norm_dequant_matmul_workspace(const trm_kernel_call *call)
{
    return trm_kernel_parts_workspace(call, TRM_BACKEND_CUDA, norm_form.describe);
}

size_t trm_cuda_glu_dequant_matmul_workspace(const trm_kernel_call *call)
{
    return trm_kernel_parts_workspace(call, TRM_BACKEND_CUDA, glu_form.describe);
}

trm_status trm_cuda_norm_dequant_matmul_prepare(const trm_kernel_call *call, trm_program *program)
{
    return prepare(call, &norm_form, program);
}

trm_status trm_cuda_glu_dequant_matmul_prepare(const trm_kernel_call *call, trm_program *program)
{
    return prepare(call, &glu_form, program);
}
