/*
 * Prompts of latent attention in the expanded form, among a step's own tokens: the kernel of cuda/hopper, with keys of
 * 192 elements, the last 64 of which all heads share, and values of 128. What it leaves beside the output, the logs of
 * the sums of weights, joins it with what the prompt's earlier tokens give.
 */
#include "attention/cuda/hopper/hopper.cuh"
#include "attention/latent/cuda.h"

template <typename T> static trm_status launch(const trm_cuda_latent *l, cudaStream_t stream)
{
    typedef hopper_shape<TRM_LATENT_PLAIN + TRM_LATENT_ROTATED, 128, 2, false, TRM_LATENT_VALUES> shape;
    hopper_call call;
    call.a = l->a;
    call.a.q = l->q;
    call.a.k = l->expanded;
    call.a.out = l->out;
    call.a.query_heads = call.a.kv_heads = l->heads;
    call.a.group = 1;
    call.a.dim = TRM_LATENT_PLAIN + TRM_LATENT_ROTATED;
    call.a.value_dim = TRM_LATENT_VALUES;
    call.a.cached = false;
    call.a.skipped = TRM_LATENT_FEW;
    call.a.logs = l->expanded_logs;
    call.box_keys = shape::KEYS;
    call.pack = 1;
    /* The tiles of one sequence are dealt out as evenly as first come, first served would. */
    call.next = l->a.sequences > 1 ? l->a.next_tile : NULL;
    if (call.next != NULL) {
        trm_cuda_hopper_clear(call.next, stream);
    }
    return launch_hopper<T, shape, false, true>(&call, trm_cuda_hopper_processors(), stream);
}

trm_status trm_cuda_latent_prefill(const trm_cuda_latent *l, cudaStream_t stream)
{
    return l->a.dtype == TRM_F16 ? launch<__half>(l, stream) : launch<__nv_bfloat16>(l, stream);
}
