/* The expert cache on CUDA: one block chooses slots, many copy what is missing from pinned host memory. */
#include "kernels/cuda/common.cuh"
#include "kernels/moe/expert_table.h"
#include "kernels/moe/moe.h"

#define THREADS 256
/* Bytes of a tensor that a block copies at a time: four loads of 16 bytes by each thread, all on their way at once.
 * With these blocks 2 MiB are; a link of 55 GB/s brings about 0.1 MiB in the 2 us that a read takes. */
#define LOADS  4
#define CHUNK  ((size_t)THREADS * LOADS * 16)
#define BLOCKS 128

/* Slot 0 .. 1023 below the step that used it: all differ. */
#define SLOT_BITS 10
#define IN_USE    (~(unsigned long long)0)

static __device__ __forceinline__ int32_t local_of(const trm_expert_table &table, int32_t id)
{
    const int64_t local = (int64_t)id - table.first;
    return id >= 0 && local >= 0 && local < table.experts ? (int32_t)local : -1;
}

/* A block of 256 threads. The place of an expert among the missing ones, and that of a slot among those that may be
 * taken, are found by counting. Shared memory: 13 KiB. Bound by latency. */
static __global__ void __launch_bounds__(THREADS)
    select_slots(const __grid_constant__ trm_expert_table table, const int32_t *ids, int64_t pairs, int32_t *slot_ids)
{
    __shared__ int32_t needed[TRM_MOE_MOST_EXPERTS]; /* 1: used and cached, 2: used and missing */
    __shared__ unsigned long long keys[TRM_MOE_MOST_EXPERTS];
    __shared__ int32_t victims[TRM_MOE_MOST_EXPERTS];
    __shared__ int32_t n_used, n_missing;
    const int32_t thread = (int32_t)threadIdx.x;
    const int64_t now = table.clock[TRM_EXPERT_STEPS] + 1;
    if (thread == 0) {
        n_used = n_missing = 0;
    }
    for (int32_t e = thread; e < table.experts; e += THREADS) {
        needed[e] = 0;
    }
    __syncthreads();
    for (int64_t i = thread; i < pairs; i += THREADS) {
        const int32_t local = local_of(table, ids[i]);
        if (local >= 0) {
            atomicExch(&needed[local], 1);
        }
    }
    __syncthreads();
    for (int32_t e = thread; e < table.experts; e += THREADS) {
        if (needed[e] != 0) {
            const bool is_missing = table.slot_of[e] == 0;
            needed[e] = is_missing ? 2 : 1;
            atomicAdd(is_missing ? &n_missing : &n_used, 1);
        }
    }
    __syncthreads();
    for (int32_t s = thread; s < table.slots; s += THREADS) {
        const int32_t expert = table.expert_of[s] - 1;
        const bool is_needed = expert >= 0 && needed[expert] != 0;
        keys[s] = is_needed ? IN_USE : (unsigned long long)table.used[s] << SLOT_BITS | (unsigned)s;
        if (is_needed) {
            table.used[s] = now;
        }
    }
    __syncthreads();
    const int32_t missing = n_missing;
    for (int32_t s = thread; missing > 0 && s < table.slots; s += THREADS) {
        const unsigned long long key = keys[s];
        int32_t before = 0;
        for (int32_t i = 0; key != IN_USE && i < table.slots; i++) {
            before += keys[i] < key;
        }
        if (key != IN_USE && before < missing) {
            victims[before] = s;
        }
    }
    __syncthreads();
    for (int32_t e = thread; missing > 0 && e < table.experts; e += THREADS) {
        int32_t before = 0;
        for (int32_t i = 0; needed[e] == 2 && i < e; i++) {
            before += needed[i] == 2;
        }
        if (needed[e] == 2) {
            const int32_t slot = victims[before], old = table.expert_of[slot] - 1;
            if (old >= 0) {
                table.slot_of[old] = 0; /* no expert of this step */
            }
            table.expert_of[slot] = e + 1;
            table.slot_of[e] = slot + 1;
            table.used[slot] = now;
            table.missing[1 + 2 * before] = e;
            table.missing[2 + 2 * before] = slot;
        }
    }
    __syncthreads();
    for (int64_t i = thread; i < pairs; i += THREADS) {
        const int32_t local = local_of(table, ids[i]);
        slot_ids[i] = local < 0 ? -1 : table.first + table.slot_of[local] - 1;
    }
    if (thread == 0) {
        const int64_t clock[TRM_EXPERT_CLOCKS] = {now, table.clock[TRM_EXPERT_HITS] + n_used,
                                                  table.clock[TRM_EXPERT_MISSES] + missing};
        table.missing[0] = missing;
        for (int32_t i = 0; i < TRM_EXPERT_CLOCKS; i++) {
            table.clock[i] = clock[i];
            *(volatile int64_t *)&table.counts[i] = clock[i];
        }
    }
}

struct expert_tensors {
    trm_expert_tensor all[TRM_EXPERT_MOST_TENSORS];
    int32_t n, chunks; /* chunks: of all tensors of an expert */
};

static __host__ __device__ __forceinline__ int32_t chunks_of(size_t bytes)
{
    return (int32_t)((bytes + CHUNK - 1) / CHUNK);
}

/* 16 bytes that are read once, past L1. */
static __device__ __forceinline__ uint4 load_once(const uint4 *from)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

static __device__ __forceinline__ void copy_chunk(unsigned char *to, const unsigned char *from, size_t size)
{
    const size_t quads = (((uintptr_t)to | (uintptr_t)from) & 15u) == 0 ? size / 16 : 0;
    uint4 loaded[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const size_t at = (size_t)i * THREADS + threadIdx.x;
        if (at < quads) {
            loaded[i] = load_once((const uint4 *)from + at);
        }
    }
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        const size_t at = (size_t)i * THREADS + threadIdx.x;
        if (at < quads) {
            ((uint4 *)to)[at] = loaded[i];
        }
    }
    for (size_t at = quads * 16 + threadIdx.x; at < size; at += THREADS) {
        to[at] = from[at];
    }
}

/* Blocks of 256 threads take chunks in turn, expert by expert. Bound by the link. */
static __global__ void __launch_bounds__(THREADS)
    fetch_missing(const __grid_constant__ trm_expert_table table, const __grid_constant__ expert_tensors tensors)
{
    const int64_t n = (int64_t)table.missing[0] * tensors.chunks;
    for (int64_t c = blockIdx.x; c < n; c += gridDim.x) {
        const int32_t j = (int32_t)(c / tensors.chunks);
        int32_t chunk = (int32_t)(c % tensors.chunks), i = 0;
        for (int32_t here; chunk >= (here = chunks_of(tensors.all[i].bytes)); i++) {
            chunk -= here;
        }
        const trm_expert_tensor &tensor = tensors.all[i];
        const size_t begin = (size_t)chunk * CHUNK, left = tensor.bytes - begin;
        const size_t expert = (size_t)table.missing[1 + 2 * j], slot = (size_t)table.missing[2 + 2 * j];
        copy_chunk((unsigned char *)tensor.to + slot * tensor.bytes + begin,
                   (const unsigned char *)tensor.from + expert * tensor.bytes + begin, left < CHUNK ? left : CHUNK);
    }
}

trm_status trm_cuda_expert_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                  int32_t *slot_ids)
{
    select_slots<<<1, THREADS, 0, trm_cuda_stream(stream)>>>(*table, ids, pairs, slot_ids);
    return trm_cuda_launched("cuda.expert_select");
}

trm_status trm_cuda_expert_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                 int32_t n)
{
    expert_tensors all = {};
    all.n = n;
    for (int32_t i = 0; i < n; i++) {
        all.all[i] = tensors[i];
        all.chunks += chunks_of(tensors[i].bytes);
    }
    const int64_t most = (int64_t)table->slots * all.chunks;
    fetch_missing<<<(unsigned)(most < BLOCKS ? most : BLOCKS), THREADS, 0, trm_cuda_stream(stream)>>>(*table, all);
    return trm_cuda_launched("cuda.expert_fetch");
}
