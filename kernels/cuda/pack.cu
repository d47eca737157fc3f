/* Unpacking bf16 on the GPU: kernels/pack.h says what the bytes are. */
#include "kernels/cuda/common.cuh"
#include "kernels/pack_impl.h"

#define THREADS 512
/* Enough for several times what a link brings, few enough that others' kernels do not notice. */
#define MULTIPROCESSORS 24

/* What a lane loads of a block before it can know more. */
struct lane_block {
    uint2 codes, rest[4];
    uint32_t tail;
};

struct packed {
    const uint2 *codes;
    const uint2 *rest;
    const uint32_t *tails, *words;
    uint32_t first, second_low, second_high; /* exponents by code, a byte each */
};

static __device__ __forceinline__ lane_block load_block(const packed &p, uint32_t b, uint32_t lane)
{
    lane_block loaded;
    loaded.codes = __ldcs(p.codes + (size_t)b * 32 + lane);
    for (int i = 0; i < 4; i++) {
        loaded.rest[i] = __ldcs(p.rest + (size_t)b * 128 + i * 32 + lane);
    }
    loaded.tail = __ldg(p.tails + b);
    return loaded;
}

/* Sum over the lanes up to this one. */
static __device__ __forceinline__ uint32_t scan(uint32_t value, uint32_t lane)
{
    for (int step = 1; step < 32; step *= 2) {
        uint32_t other = __shfl_up_sync(~0u, value, step);
        value += lane >= (uint32_t)step ? other : 0;
    }
    return value;
}

/* 32 bits of a plane from bit `at` on. */
static __device__ __forceinline__ uint32_t window(const uint32_t *plane, uint32_t at)
{
    return __funnelshift_r(__ldg(plane + at / 32), __ldg(plane + at / 32 + 1), at);
}

/* The 32 elements of a lane, 8 in each of four words of 16 bytes. */
static __device__ __forceinline__ void unpack_lane(const packed &p, const lane_block &block, uint32_t lane, uint4 *to)
{
    uint32_t other = block.codes.x & block.codes.y, n = __popc(other);
    uint32_t sum = scan(n, lane), begin = sum - n, words = (__shfl_sync(~0u, sum, 31) + 31) / 32;
    const uint32_t *tail = p.words + block.tail;
    uint32_t planes[3] = {window(tail, begin), window(tail + words, begin), window(tail + 2 * words, begin)};
    uint32_t own = n == 32 ? ~0u : (1u << n) - 1, none = __popc(planes[0] & planes[1] & planes[2] & own);
    const uint8_t *exponents = (const uint8_t *)(tail + 3 * words) + scan(none, lane) - none;
#pragma unroll
    for (int step = 0; step < 4; step++) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int bit = step * 8 + i;
            uint32_t code = (block.codes.x >> bit & 1) | (block.codes.y >> bit & 1) << 1;
            uint32_t exponent = __byte_perm(p.first, 0, code) & 0xff;
            if (code == TRM_PACK_FIRST) {
                uint32_t second = (planes[0] & 1) | (planes[1] & 1) << 1 | (planes[2] & 1) << 2;
                planes[0] >>= 1;
                planes[1] >>= 1;
                planes[2] >>= 1;
                exponent = __byte_perm(p.second_low, p.second_high, second) & 0xff;
                if (second == TRM_PACK_OTHER) {
                    exponent = __ldg(exponents++);
                }
            }
            uint32_t rest = (i < 4 ? block.rest[step].x : block.rest[step].y) >> (8 * (i % 4));
            uint32_t element = (rest & 0x80) << 8 | exponent << 7 | (rest & 0x7f);
            pairs[i / 2] = i % 2 == 0 ? element : pairs[i / 2] | element << 16;
        }
        to[step] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

static __device__ __forceinline__ void store_some(const uint4 *from, uint16_t *to, size_t left, uint32_t lane)
{
    for (int step = 0; step < 4; step++) {
        const uint32_t words[4] = {from[step].x, from[step].y, from[step].z, from[step].w};
        for (uint32_t i = 0; i < 8; i++) {
            uint32_t at = (uint32_t)step * 256 + lane * 8 + i;
            if (at < left) {
                to[at] = (uint16_t)(words[i / 2] >> (16 * (i % 2)));
            }
        }
    }
}

/* A warp takes a block of 1024 elements at a time and loads the next before it unpacks one. Reads about 1.35 bytes and
 * writes 2 of an element. */
static __global__ void __launch_bounds__(THREADS) unpack(const unsigned char *from, uint16_t *to, size_t count)
{
    const trm_pack_header *header = (const trm_pack_header *)from;
    const uint32_t lane = threadIdx.x % 32, blocks = header->blocks;
    const uint32_t step = gridDim.x * (THREADS / 32);
    uint32_t b = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    packed p;
    p.codes = (const uint2 *)(from + TRM_PACK_CODES_AT);
    p.rest = (const uint2 *)(from + TRM_PACK_REST_AT(blocks));
    p.tails = (const uint32_t *)(from + TRM_PACK_TAILS_AT(blocks));
    p.words = (const uint32_t *)(from + TRM_PACK_WORDS_AT(blocks));
    p.first = *(const uint32_t *)header->first;
    p.second_low = *(const uint32_t *)header->second;
    p.second_high = *(const uint32_t *)(header->second + 4);
    if (b >= blocks) {
        return;
    }
    lane_block next = load_block(p, b, lane);
    for (; b < blocks; b += step) {
        lane_block block = next;
        if (b + step < blocks) {
            next = load_block(p, b + step, lane);
        }
        uint4 made[4];
        unpack_lane(p, block, lane, made);
        size_t begin = (size_t)b * TRM_PACK_BLOCK;
        if (count - begin < TRM_PACK_BLOCK) {
            store_some(made, to + begin, count - begin, lane);
            continue;
        }
        for (int i = 0; i < 4; i++) {
            __stcs((uint4 *)(to + begin) + i * 32 + lane, made[i]);
        }
    }
}

trm_status trm_cuda_unpack(trm_stream *stream, const void *from, void *to, size_t count, int32_t multiprocessors)
{
    size_t blocks = (count + TRM_PACK_BLOCK - 1) / TRM_PACK_BLOCK, warps = THREADS / 32;
    size_t most = multiprocessors > 0 ? (size_t)multiprocessors : MULTIPROCESSORS;
    size_t grid = (blocks + warps - 1) / warps;
    if (grid == 0) {
        return TRM_OK;
    }
    cudaStream_t handle = trm_cuda_stream(stream);
    unpack<<<(unsigned)(grid < most ? grid : most), THREADS, 0, handle>>>((const unsigned char *)from, (uint16_t *)to,
                                                                          count);
    return trm_cuda_launched("cuda.unpack");
}
