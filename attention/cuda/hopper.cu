/* Attention of sequences with several queries on Hopper GPUs: the launch of hopper.cuh's kernel. */
#include "attention/cuda/hopper.cuh"

/* The driver's function that describes tensors for copies, or NULL. */
static hopper_encode find_encode(void)
{
    static void *found = NULL; /* the same whoever stores it first */
    void *function = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (function == NULL) {
        cudaDriverEntryPointQueryResult result;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result) !=
                cudaSuccess ||
            result != cudaDriverEntryPointSuccess) {
            (void)cudaGetLastError();
            return NULL;
        }
        __atomic_store_n(&found, function, __ATOMIC_RELAXED);
    }
    return (hopper_encode)function;
}

/* Multiprocessors of the current device if it is a Hopper, else 0. */
static int hopper_processors(void)
{
    int device, major, minor, processors;
    bool known = cudaGetDevice(&device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
                 cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
    return known && major == 9 && minor == 0 ? processors : 0;
}

bool trm_cuda_attention_hopper_ready(void)
{
    return hopper_processors() > 0 && find_encode() != NULL;
}

static int32_t common_divisor(int32_t a, int32_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

static __global__ void clear_counter(uint32_t *counter)
{
    begin_overlapped();
    *counter = 0;
}

template <typename T, typename S, bool PINGPONG>
static trm_status launch_shape(const trm_cuda_attention *a, cudaStream_t stream)
{
    hopper_call call;
    call.a = *a;
    call.box_keys = a->cached ? common_divisor(S::KEYS, a->block_size) : S::KEYS;
    call.pack = 64 % a->group == 0 ? a->group : 1;
    /* The tiles of one sequence are dealt out as evenly as first come, first served would. */
    call.next = a->sequences > 1 ? a->next_tile : NULL;
    if (call.next != NULL && !a->cached) {
        launch_overlapped(clear_counter, 1, 1, 0, stream, call.next);
    }
    int blocks = hopper_processors();
    return a->softcap > 0.0f ? launch_hopper<T, S, true, PINGPONG>(find_encode(), &call, blocks, stream)
                             : launch_hopper<T, S, false, PINGPONG>(find_encode(), &call, blocks, stream);
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
    return a->dtype == TRM_F16 ? launch_dim<__half>(a, stream) : launch_dim<__nv_bfloat16>(a, stream);
}
