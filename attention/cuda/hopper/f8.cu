/*
 * hopper.cuh's kernel over an e4m3 cache: two warps bring keys and two bring values, which they read without tensor
 * copies and expand to the 16-bit type on their way into shared memory.
 */
#include "attention/cuda/hopper/hopper.cuh"

/* Fewer keys a tile than in hopper.cu where registers and shared memory ask for it. */
template <typename T> static trm_status launch_dim(const trm_cuda_attention *a, cudaStream_t stream)
{
    if (a->dim <= 64) {
        return launch_shape<T, hopper_shape<64, 128, 2, true>, true>(a, stream);
    }
    if (a->dim <= 96) {
        return launch_shape<T, hopper_shape<96, 128, 2, true>, true>(a, stream);
    }
    if (a->dim <= 128) {
        return launch_shape<T, hopper_shape<128, 144, 2, true>, true>(a, stream);
    }
    if (a->dim <= 192) {
        return launch_shape<T, hopper_shape<192, 112, 2, true>, true>(a, stream);
    }
    return launch_shape<T, hopper_shape<256, 64, 2, true>, true>(a, stream);
}

trm_status trm_cuda_attention_hopper_f8(const trm_cuda_attention *a, cudaStream_t stream)
{
    return a->dtype == TRM_F16 ? launch_dim<__half>(a, stream) : launch_dim<__nv_bfloat16>(a, stream);
}
