/* The expert cache on CUDA: one block chooses slots and writes to the CPU, many copy what is missing from pinned host
 * memory, a few wait for the CPU's answer and add it. */
#include "base/error.h"
#include "kernels/cuda/common.cuh"
#include "kernels/element.h"
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

/* What a step makes of an expert. */
enum { UNUSED, CACHED, MISSING, FOR_CPU };

static __device__ __forceinline__ int64_t load_system(const int64_t *from)
{
    int64_t v;
    asm volatile("ld.acquire.sys.global.s64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
    return v;
}

static __device__ __forceinline__ void store_system(int64_t *to, int64_t v)
{
    asm volatile("st.release.sys.global.s64 [%0], %1;" : : "l"(to), "l"(v) : "memory");
}

static __device__ __forceinline__ int64_t nanoseconds()
{
    int64_t v;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(v));
    return v;
}

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

/* Marks the missing experts that are for the CPU; returns how many, to all threads. */
static __device__ int32_t choose_for_cpu(const trm_expert_table &table, int64_t now, int32_t missing,
                                         const unsigned long long *keys, int32_t *marks, int64_t *last)
{
    __shared__ unsigned long long oldest;
    __shared__ int32_t hosted;
    const int32_t thread = (int32_t)threadIdx.x;
    if (thread == 0) {
        oldest = IN_USE;
        hosted = 0;
    }
    for (int32_t e = thread; e < table.experts; e += THREADS) {
        last[e] = marks[e] == MISSING ? table.last[e] : -1;
    }
    __syncthreads();
    for (int32_t s = thread; s < table.slots; s += THREADS) {
        if (keys[s] != IN_USE) {
            atomicMin(&oldest, keys[s]);
        }
    }
    __syncthreads();
    const int32_t stay = missing - table.shares[missing];
    const int64_t idle = oldest == IN_USE ? 0 : now - (int64_t)(oldest >> SLOT_BITS);
    for (int32_t e = thread; e < table.experts; e += THREADS) {
        const int64_t used = last[e];
        int32_t before = 0; /* missing experts that were used later */
        for (int32_t i = 0; used >= 0 && i < table.experts; i++) {
            before += last[i] > used || (last[i] == used && i < e);
        }
        if (used >= 0 && before >= stay && TRM_EXPERT_RETURNS * (now - used) >= idle) {
            marks[e] = FOR_CPU;
            atomicAdd(&hosted, 1);
        }
    }
    __syncthreads();
    return hosted;
}

/* Writes a request: what a kernel writes to host memory goes out before the number does. */
static __device__ void post_request(const trm_expert_table &table, const trm_expert_post &post,
                                    const trm_expert_mailbox &box, const int32_t *ids, const int32_t *marks)
{
    trm_expert_mail *mail = box.mail;
    for (int32_t i = (int32_t)threadIdx.x; i < post.tokens * post.k; i += THREADS) {
        const int32_t local = local_of(table, ids[i]);
        mail->ids[i] = local >= 0 && marks[local] == FOR_CPU ? ids[i] : -1;
        mail->weights[i] = post.weights[i];
    }
    for (size_t at = 0; at < post.x_bytes; at += CHUNK) {
        const size_t left = post.x_bytes - at;
        copy_chunk((unsigned char *)box.x + at, (const unsigned char *)post.x + at, left < CHUNK ? left : CHUNK);
    }
    if (threadIdx.x == 0) {
        mail->layer = post.layer;
        mail->tokens = post.tokens;
        mail->k = post.k;
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        const int64_t number = box.sent[0] + 1;
        box.sent[0] = box.sent[1] = number;
        store_system(&mail->posted, number);
    }
}

/* A block of 256 threads. The place of an expert among the missing ones, and that of a slot among those that may be
 * taken, are found by counting. Shared memory: 24 KiB. Bound by latency. Nothing is for the CPU where post.box is NULL.
 */
static __global__ void __launch_bounds__(THREADS)
    select_slots(const __grid_constant__ trm_expert_table table, const int32_t *ids, int64_t pairs, int32_t *slot_ids,
                 const __grid_constant__ trm_expert_post post, const __grid_constant__ trm_expert_mailbox box)
{
    __shared__ int32_t needed[TRM_MOE_MOST_EXPERTS];
    __shared__ int64_t last[TRM_MOE_MOST_EXPERTS];
    __shared__ unsigned long long keys[TRM_MOE_MOST_EXPERTS];
    __shared__ int32_t victims[TRM_MOE_MOST_EXPERTS];
    __shared__ int32_t n_used, n_missing;
    const int32_t thread = (int32_t)threadIdx.x;
    const int64_t now = table.clock[TRM_EXPERT_STEPS] + 1;
    if (thread == 0) {
        n_used = n_missing = 0;
    }
    for (int32_t e = thread; e < table.experts; e += THREADS) {
        needed[e] = UNUSED;
    }
    __syncthreads();
    for (int64_t i = thread; i < pairs; i += THREADS) {
        const int32_t local = local_of(table, ids[i]);
        if (local >= 0) {
            atomicExch(&needed[local], CACHED);
        }
    }
    __syncthreads();
    for (int32_t e = thread; e < table.experts; e += THREADS) {
        if (needed[e] != UNUSED) {
            const bool is_missing = table.slot_of[e] == 0;
            needed[e] = is_missing ? MISSING : CACHED;
            atomicAdd(is_missing ? &n_missing : &n_used, 1);
        }
    }
    __syncthreads();
    for (int32_t s = thread; s < table.slots; s += THREADS) {
        const int32_t expert = table.expert_of[s] - 1;
        const bool is_needed = expert >= 0 && needed[expert] != UNUSED;
        keys[s] = is_needed ? IN_USE : (unsigned long long)table.used[s] << SLOT_BITS | (unsigned)s;
        if (is_needed) {
            table.used[s] = now;
        }
    }
    __syncthreads();
    int32_t hosted = 0;
    if (post.box != NULL && table.shares != NULL) { /* the same for all threads */
        const bool is_late = box.sent[2] != 0 && load_system(&box.mail->done) != box.sent[0];
        __syncthreads();
        if (thread == 0) {
            box.sent[1] = 0;
            box.sent[2] = is_late;
        }
        hosted = n_missing == 0 || is_late ? 0 : choose_for_cpu(table, now, n_missing, keys, needed, last);
        if (hosted > 0) {
            post_request(table, post, box, ids, needed);
        }
    }
    const int32_t missing = n_missing - hosted;
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
    for (int32_t e = thread; e < table.experts; e += THREADS) {
        int32_t before = 0;
        if (needed[e] != UNUSED) {
            table.last[e] = now;
            table.uses[e]++;
        }
        for (int32_t i = 0; needed[e] == MISSING && i < e; i++) {
            before += needed[i] == MISSING;
        }
        if (needed[e] == MISSING) {
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
        slot_ids[i] = local < 0 || needed[local] == FOR_CPU ? -1 : table.first + table.slot_of[local] - 1;
    }
    if (thread == 0) {
        const int64_t clock[TRM_EXPERT_CLOCKS] = {now, table.clock[TRM_EXPERT_HITS] + n_used,
                                                  table.clock[TRM_EXPERT_MISSES] + missing,
                                                  table.clock[TRM_EXPERT_HOSTED] + hosted};
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

/* A block of 256 threads asks for the missing experts. Bound by latency. */
static __global__ void __launch_bounds__(THREADS)
    post_demand(const __grid_constant__ trm_expert_table table, const __grid_constant__ trm_expert_supply supply,
                int32_t layer)
{
    trm_expert_demand *demand = supply.demand;
    const int32_t n = table.missing[0];
    const bool is_late = n > 0 && supply.sent[2] != 0 && load_system(&demand->done) != supply.sent[0];
    __syncthreads();
    if (threadIdx.x == 0) {
        supply.sent[1] = 0;
        supply.sent[2] = is_late;
    }
    if (n == 0 || is_late) { /* the same for all threads */
        return;
    }
    for (int32_t j = (int32_t)threadIdx.x; j < n; j += THREADS) {
        demand->experts[j] = table.missing[1 + 2 * j];
    }
    if (threadIdx.x == 0) {
        demand->layer = layer;
        demand->n = n;
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        const int64_t number = supply.sent[0] + 1;
        supply.sent[0] = supply.sent[1] = number;
        store_system(&demand->posted, number);
    }
}

/* Waits until the host says where the missing expert j lies; NULL: nowhere, and its slot is empty then. One thread of a
 * block. A read of a file takes milliseconds, so it looks seldom. */
static __device__ const unsigned char *await_supplied(const trm_expert_table &table, const trm_expert_supply &supply,
                                                      int32_t j)
{
    const trm_expert_found *found = &supply.demand->found[j];
    const int64_t number = supply.sent[1], until = nanoseconds() + supply.limit;
    bool is_there = number != 0 && load_system(&found->number) == number;
    while (!is_there && number != 0 && *(const volatile int64_t *)&supply.sent[2] == 0 && nanoseconds() < until) {
        __nanosleep(1000);
        is_there = load_system(&found->number) == number;
    }
    const unsigned char *at = is_there ? *(const unsigned char *volatile const *)&found->at : NULL;
    if (at == NULL) { /* any block may be the one that finds it late */
        const int32_t expert = table.missing[1 + 2 * j], slot = table.missing[2 + 2 * j];
        table.slot_of[expert] = table.expert_of[slot] = 0;
        table.used[slot] = 0;
    }
    if (!is_there) {
        *(volatile int32_t *)&supply.demand->late = 1;
        *(volatile int64_t *)&supply.sent[2] = 1;
    }
    return at;
}

/* Blocks of 256 threads take chunks in turn, expert by expert, each when it is supplied. Bound by the link, or by the
 * files. Nothing is supplied where supply.demand is NULL. */
static __global__ void __launch_bounds__(THREADS)
    fetch_missing(const __grid_constant__ trm_expert_table table, const __grid_constant__ expert_tensors tensors,
                  const __grid_constant__ trm_expert_supply supply)
{
    __shared__ const unsigned char *supplied;
    const int64_t n = (int64_t)table.missing[0] * tensors.chunks;
    int32_t last = -1;
    for (int64_t c = blockIdx.x; c < n; c += gridDim.x) {
        const int32_t j = (int32_t)(c / tensors.chunks);
        int32_t chunk = (int32_t)(c % tensors.chunks), i = 0;
        if (supply.demand != NULL && j != last) { /* the same for all threads */
            __syncthreads();
            if (threadIdx.x == 0) {
                supplied = await_supplied(table, supply, j);
            }
            __syncthreads();
            last = j;
        }
        if (supply.demand != NULL && supplied == NULL) {
            continue;
        }
        for (int32_t here; chunk >= (here = chunks_of(tensors.all[i].bytes)); i++) {
            chunk -= here;
        }
        const trm_expert_tensor &tensor = tensors.all[i];
        const size_t begin = (size_t)chunk * CHUNK, left = tensor.bytes - begin;
        const size_t expert = (size_t)table.missing[1 + 2 * j], slot = (size_t)table.missing[2 + 2 * j];
        const unsigned char *from =
            tensor.from == NULL ? supplied + tensor.offset : (const unsigned char *)tensor.from + expert * tensor.bytes;
        copy_chunk((unsigned char *)tensor.to + slot * tensor.bytes + begin, from + begin, left < CHUNK ? left : CHUNK);
    }
}

trm_status trm_cuda_expert_select(trm_stream *stream, const trm_expert_table *table, const int32_t *ids, int64_t pairs,
                                  int32_t *slot_ids, const trm_expert_post *post)
{
    const trm_expert_post none = {};
    const trm_expert_mailbox no_box = {};
    select_slots<<<1, THREADS, 0, trm_cuda_stream(stream)>>>(*table, ids, pairs, slot_ids, post != NULL ? *post : none,
                                                             post != NULL ? *post->box : no_box);
    return trm_cuda_launched("cuda.expert_select");
}

trm_status trm_cuda_expert_fetch(trm_stream *stream, const trm_expert_table *table, const trm_expert_tensor *tensors,
                                 int32_t n, const trm_expert_supply *supply, int32_t layer)
{
    const trm_expert_supply none = {};
    expert_tensors all = {};
    all.n = n;
    for (int32_t i = 0; i < n; i++) {
        all.all[i] = tensors[i];
        all.chunks += chunks_of(tensors[i].bytes);
    }
    if (supply != NULL) {
        post_demand<<<1, THREADS, 0, trm_cuda_stream(stream)>>>(*table, *supply, layer);
        TRM_TRY(trm_cuda_launched("cuda.expert_demand"));
    }
    const int64_t most = (int64_t)table->slots * all.chunks;
    fetch_missing<<<(unsigned)(most < BLOCKS ? most : BLOCKS), THREADS, 0, trm_cuda_stream(stream)>>>(
        *table, all, supply != NULL ? *supply : none);
    return trm_cuda_launched("cuda.expert_fetch");
}

#define PART       4 /* elements of a thread at a time */
#define ADD_BLOCKS 32

/* Waits for the answer to the last request. */
static __device__ bool await_answer(const trm_expert_mailbox &box, int64_t number)
{
    const int64_t until = nanoseconds() + box.limit;
    bool is_there = load_system(&box.mail->done) == number;
    while (!is_there && nanoseconds() < until) {
        __nanosleep(100);
        is_there = load_system(&box.mail->done) == number;
    }
    return is_there;
}

/* Blocks of 256 threads, each of which waits. Bound by the link's latency: one read that finds the answer, one that
 * brings it. */
static __global__ void __launch_bounds__(THREADS)
    add_answer(const __grid_constant__ trm_expert_mailbox box, trm_dtype type, void *y, int64_t n)
{
    __shared__ bool is_there;
    const int64_t number = box.sent[1];
    if (number == 0) {
        return;
    }
    if (threadIdx.x == 0) {
        is_there = await_answer(box, number);
        if (!is_there) {
            *(volatile int32_t *)&box.mail->late = 1;
            box.sent[2] = 1;
        }
    }
    __syncthreads();
    const int64_t threads = (int64_t)gridDim.x * THREADS;
    for (int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * PART; is_there && i < n; i += threads * PART) {
        float parts[PART] = {};
        if (i + PART <= n) {
            *(float4 *)parts = __ldcv((const float4 *)(box.y + i));
        }
        for (int k = 0; k < PART && i + k < n; k++) {
            const float part = i + PART <= n ? parts[k] : __ldcv(box.y + i + k);
            trm_element_store_f32(type, y, i + k, trm_element_load_f32(type, y, i + k) + part);
        }
    }
}

trm_status trm_cuda_expert_add(trm_stream *stream, const trm_expert_mailbox *box, trm_dtype type, void *y, int64_t n)
{
    const int64_t blocks = (n + THREADS * PART - 1) / (THREADS * PART);
    add_answer<<<(unsigned)(blocks < 1            ? 1
                            : blocks < ADD_BLOCKS ? blocks
                                                  : ADD_BLOCKS),
                 THREADS, 0, trm_cuda_stream(stream)>>>(*box, type, y, n);
    return trm_cuda_launched("cuda.expert_add");
}
