#include "kernels/matmul_fused/pair.h"

#include "base/error.h"

#define ALIGNMENT ((size_t)256)

/* The pair with its kernels, and the bytes of workspace that it takes in all; false where one has no kernel. */
static bool find(const trm_kernel_call *call, trm_backend backend, trm_kernel_pair_fn take_apart, trm_kernel_pair *pair,
                 size_t *bytes)
{
    static const trm_kernel_table *const tables[] = {&trm_host_kernels, &trm_cuda_kernels};
    *pair = (trm_kernel_pair){0};
    if (!take_apart(call, pair)) {
        return false;
    }
    const trm_view *between = &pair->calls[0].outputs[0];
    pair->room = (size_t)trm_dims_count(&between->dims) * trm_dtype_size(between->dtype);
    pair->room = (pair->room + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t own = 0;
    for (int i = 0; i < 2; i++) {
        trm_kernel_call *part = &pair->calls[i];
        const trm_kernel *kernel = trm_kernel_find(tables, 2, backend, part);
        if (kernel == NULL) {
            return false;
        }
        size_t needed = kernel->workspace != NULL ? kernel->workspace(part) : 0;
        own = needed > own ? needed : own;
        pair->kernels[i] = kernel;
        if (call->workspace != NULL) {
            part->workspace = (char *)call->workspace + pair->room;
            part->workspace_size = call->workspace_size > pair->room ? call->workspace_size - pair->room : 0;
        }
    }
    *bytes = pair->room + own;
    return true;
}

static trm_status find_to_run(const trm_kernel_call *call, trm_backend backend, trm_kernel_pair_fn take_apart,
                              trm_kernel_pair *pair)
{
    size_t bytes;
    if (!find(call, backend, take_apart, pair, &bytes) || bytes > call->workspace_size) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a %s call does not fit the layer it was accepted for",
                 trm_layer_kind_name(call->layer->kind));
    }
    return TRM_OK;
}

bool trm_kernel_pair_accepts(const trm_kernel_call *call, trm_backend backend, trm_kernel_pair_fn take_apart)
{
    trm_kernel_pair pair;
    size_t bytes;
    return find(call, backend, take_apart, &pair, &bytes);
}

size_t trm_kernel_pair_workspace(const trm_kernel_call *call, trm_backend backend, trm_kernel_pair_fn take_apart)
{
    trm_kernel_pair pair;
    size_t bytes;
    return find(call, backend, take_apart, &pair, &bytes) ? bytes : 0;
}

trm_status trm_kernel_pair_run(const trm_kernel_call *call, trm_backend backend, trm_kernel_pair_fn take_apart)
{
    trm_kernel_pair pair;
    TRM_TRY(find_to_run(call, backend, take_apart, &pair));
    TRM_TRY(pair.kernels[0]->run(&pair.calls[0]));
    return pair.kernels[1]->run(&pair.calls[1]);
}

trm_status trm_kernel_pair_tune(const trm_kernel_call *call, trm_backend backend, trm_kernel_pair_fn take_apart,
                                struct trm_tuner *tuner)
{
    trm_kernel_pair pair;
    TRM_TRY(find_to_run(call, backend, take_apart, &pair));
    for (int i = 0; i < 2; i++) {
        if (pair.kernels[i]->tune != NULL) {
            TRM_TRY(pair.kernels[i]->tune(&pair.calls[i], tuner));
        }
    }
    return TRM_OK;
}
