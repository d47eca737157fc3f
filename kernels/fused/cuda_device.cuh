/*
 * What generated kernels (cuda_source.c) are written in: conversions, offsets, loads and stores of runs. Compiled at
 * run time only, with headers of ours alone.
 */
#include "kernels/fused/cuda_args.h"
#include "kernels/pointwise/element.h"

typedef unsigned short f16_bits;
typedef unsigned short bf16_bits;

static __device__ __forceinline__ float from_f16(f16_bits bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
static __device__ __forceinline__ f16_bits to_f16(float value)
{
    f16_bits bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
static __device__ __forceinline__ float from_bf16(bf16_bits bits)
{
    return __uint_as_float((unsigned)bits << 16);
}
static __device__ __forceinline__ bf16_bits to_bf16(float value)
{
    bf16_bits bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

/* See kernels/cuda/overlap.cuh. */
static __device__ __forceinline__ void begin_overlapped(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

/* Where run i of each input begins. */
template <int N>
static __device__ __forceinline__ void offsets_of(const trm_fused_args &a, long long i, long long (&at)[N])
{
    if (a.n == 1) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            at[k] = i * a.stride[k][0];
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        at[k] = 0;
    }
    if (a.count <= 0xffffffffLL) { /* then all sizes are: 32-bit division is several times cheaper */
        unsigned rest = (unsigned)i;
        for (int axis = a.n - 1; axis > 0; axis--) {
            unsigned next = rest / (unsigned)a.d[axis], index = rest - next * (unsigned)a.d[axis];
            rest = next;
#pragma unroll
            for (int k = 0; k < N; k++) {
                at[k] += index * a.stride[k][axis];
            }
        }
        i = rest;
    } else {
        for (int axis = a.n - 1; axis > 0; axis--) {
            long long next = i / a.d[axis], index = i - next * a.d[axis];
            i = next;
#pragma unroll
            for (int k = 0; k < N; k++) {
                at[k] += index * a.stride[k][axis];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        at[k] += i * a.stride[k][0];
    }
}

/* V elements as words of up to 16 bytes. */
template <typename T, int V> union run_of {
    static const int bytes = V * (int)sizeof(T);
    T e[V];
    uint4 w16[bytes / 16 == 0 ? 1 : bytes / 16];
    uint2 w8;
    unsigned w4;
    unsigned short w2;
};

template <typename T, int V>
static __device__ __forceinline__ void load_run(const void *from, long long at, bool advances, T (&to)[V])
{
    const T *p = (const T *)from + at;
    run_of<T, V> run;
    const int bytes = run_of<T, V>::bytes;
    if (V == 1 || !advances) {
        T one = *p;
#pragma unroll
        for (int j = 0; j < V; j++) {
            to[j] = one;
        }
        return;
    }
    if (bytes >= 16) {
#pragma unroll
        for (int j = 0; j < bytes / 16; j++) {
            run.w16[j] = ((const uint4 *)p)[j];
        }
    } else if (bytes == 8) {
        run.w8 = *(const uint2 *)p;
    } else if (bytes == 4) {
        run.w4 = *(const unsigned *)p;
    } else {
        run.w2 = *(const unsigned short *)p;
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        to[j] = run.e[j];
    }
}

template <typename T, int V>
static __device__ __forceinline__ void store_run(void *to, long long at, const T (&from)[V])
{
    T *p = (T *)to + at;
    run_of<T, V> run;
    const int bytes = run_of<T, V>::bytes;
    if (V == 1) {
        *p = from[0];
        return;
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        run.e[j] = from[j];
    }
    if (bytes >= 16) {
#pragma unroll
        for (int j = 0; j < bytes / 16; j++) {
            ((uint4 *)p)[j] = run.w16[j];
        }
    } else if (bytes == 8) {
        *(uint2 *)p = run.w8;
    } else if (bytes == 4) {
        *(unsigned *)p = run.w4;
    } else {
        *(unsigned short *)p = run.w2;
    }
}
