/* Attention of sequences with several queries on Hopper GPUs: the launch of hopper.cuh's kernel. */
#include "attention/cuda/hopper/hopper.cuh"

bool trm_cuda_attention_hopper_ready(void)
{
    return trm_cuda_hopper_ready();
}

static __global__ void clear_counter(uint32_t *counter)
{
    begin_overlapped();
    *counter = 0;
}

void trm_cuda_hopper_clear(uint32_t *counter, cudaStream_t stream)
{
    launch_overlapped(clear_counter, 1, 1, 0, stream, counter);
}

template <typename T> static trm_status launch_dim(const trm_cuda_attention *a, cudaStream_t stream)
{
    if (a->dim <= 64) {
        return launch_shape<T, hopper_shape<64, 128, 3>, true>(a, stream);
    }
    if (a->dim <= 96) {
        return launch_shape<T, hopper_shape<96, 160, 2>, true>(a, stream);
    }
    if (a->dim <= 128) {
        return launch_shape<T, hopper_shape<128, 160, 2>, true>(a, stream);
    }
    if (a->dim <= 192) {
        return launch_shape<T, hopper_shape<192, 112, 2>, true>(a, stream);
    }
    return launch_shape<T, hopper_shape<256, 80, 2>, true>(a, stream);
}

trm_status trm_cuda_attention_hopper(const trm_cuda_attention *a, cudaStream_t stream)
{
    if (a->cache_f8) {
        return trm_cuda_attention_hopper_f8(a, stream);
    }
    return a->dtype == TRM_F16 ? launch_dim<__half>(a, stream) : launch_dim<__nv_bfloat16>(a, stream);
}
