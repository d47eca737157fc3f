/* Decoding bf16 on the GPU: kernels/codec/codec.h says what the bytes are. */
#include "kernels/cuda/common.cuh"
#include "kernels/codec/codec_impl.h"

#define THREADS 1024
/* All of an H200: 32 MiB take 21 us then. Few of them for longer delay products on them more, whose blocks cannot wait.
 */
#define MULTIPROCESSORS 132

/* What a lane loads of a block before it can know more. */
struct lane_block {
    uint2 codes, rest[4];
    uint32_t tail;
};

struct encoded {
    const uint2 *codes;
    const uint2 *rest;
    const uint32_t *tails, *words;
    uint32_t first, second_low, second_high; /* exponents by code, a byte each */
};

static __device__ __forceinline__ lane_block load_block(const encoded &p, uint32_t b, uint32_t lane)
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

/* Moves the lowest bits of words to where a mask has ones, in their order (Hacker's Delight 7-5, expand): the moves of
 * the mask, for as many words as there are. */
struct moves {
    uint32_t of[5];
};

static __device__ __forceinline__ moves moves_of(uint32_t mask)
{
    moves m;
    uint32_t zeros = ~mask << 1;
#pragma unroll
    for (int i = 0; i < 5; i++) {
        uint32_t parity = zeros ^ zeros << 1;
        parity ^= parity << 2;
        parity ^= parity << 4;
        parity ^= parity << 8;
        parity ^= parity << 16;
        m.of[i] = parity & mask;
        mask = (mask ^ m.of[i]) | m.of[i] >> (1 << i);
        zeros &= ~parity;
    }
    return m;
}

static __device__ __forceinline__ uint32_t spread(uint32_t word, const moves &m, uint32_t mask)
{
#pragma unroll
    for (int i = 4; i >= 0; i--) {
        word = (word & ~m.of[i]) | (word << (1 << i) & m.of[i]);
    }
    return word & mask;
}

/* Signs and mantissas of four elements with their exponents. */
static __device__ __forceinline__ uint2 join(uint32_t rest, uint32_t exponents)
{
    const uint32_t top = 0x80808080u;
    uint32_t high = (rest & top) | (exponents >> 1 & ~top), low = (rest & ~top) | (exponents << 7 & top);
    return make_uint2(__byte_perm(low, high, 0x5140), __byte_perm(low, high, 0x7362));
}

/* Where a lane's elements are that have exponents of their own, and those. */
struct raw {
    uint32_t bits;
    const uint8_t *exponents;
};

/* The 32 elements of a lane, 8 in each of four words of 16 bytes; raw ones, which the caller knows, with an exponent of
 * 0. */
static __device__ __forceinline__ raw decode_lane(const encoded &p, const lane_block &block, uint32_t lane, uint4 *to)
{
    uint32_t other = block.codes.x & block.codes.y, n = __popc(other);
    uint32_t sum = scan(n, lane), begin = sum - n, words = (__shfl_sync(~0u, sum, 31) + 31) / 32;
    const uint32_t *tail = p.words + block.tail;
    const moves m = moves_of(other);
    uint32_t second[3];
    for (int i = 0; i < 3; i++) {
        second[i] = spread(window(tail + i * words, begin), m, other);
    }
#pragma unroll
    for (int step = 0; step < 4; step++) {
        const uint32_t nibbles = 0x11111111u;
        uint32_t first_at = (block.codes.x >> step & nibbles) + (block.codes.y >> step & nibbles) * 2;
        uint32_t second_at =
            (second[0] >> step & nibbles) + (second[1] >> step & nibbles) * 2 + (second[2] >> step & nibbles) * 4;
        uint2 half[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t exponents = __byte_perm(p.first, 0, first_at >> 16 * i) |
                                 __byte_perm(p.second_low, p.second_high, second_at >> 16 * i);
            half[i] = join(i == 0 ? block.rest[step].x : block.rest[step].y, exponents);
        }
        to[step] = make_uint4(half[0].x, half[0].y, half[1].x, half[1].y);
    }
    raw left = {second[0] & second[1] & second[2], NULL};
    uint32_t own = __popc(left.bits);
    left.exponents = (const uint8_t *)(tail + 3 * words) + scan(own, lane) - own;
    return left;
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

/* Stores those with exponents of their own again: few. */
static __device__ __forceinline__ void store_raw(raw left, const uint8_t *rest, uint16_t *to, size_t count,
                                                 uint32_t lane)
{
    for (; left.bits != 0; left.bits &= left.bits - 1, left.exponents++) {
        uint32_t bit = (uint32_t)__ffs((int)left.bits) - 1, at = bit % 4 * 256 + lane * 8 + bit / 4;
        uint32_t value = __ldg(rest + at), exponent = __ldg(left.exponents);
        if (at < count) {
            to[at] = (uint16_t)((value & 0x80) << 8 | exponent << 7 | (value & 0x7f));
        }
    }
}

/* A warp takes a block of 1024 elements at a time and loads the next before it decodes one. Reads about 1.35 bytes and
 * writes 2 of an element. */
static __global__ void __launch_bounds__(THREADS) decode(const unsigned char *from, uint16_t *to, size_t count)
{
    const trm_bf16_codec_header *header = (const trm_bf16_codec_header *)from;
    const uint32_t lane = threadIdx.x % 32, blocks = header->blocks;
    const uint32_t step = gridDim.x * (THREADS / 32);
    uint32_t b = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    encoded p;
    p.codes = (const uint2 *)(from + TRM_CODEC_CODES_AT);
    p.rest = (const uint2 *)(from + TRM_CODEC_REST_AT(blocks));
    p.tails = (const uint32_t *)(from + TRM_CODEC_TAILS_AT(blocks));
    p.words = (const uint32_t *)(from + TRM_CODEC_WORDS_AT(blocks));
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
        raw left = decode_lane(p, block, lane, made);
        size_t begin = (size_t)b * TRM_CODEC_BLOCK;
        if (count - begin < TRM_CODEC_BLOCK) {
            store_some(made, to + begin, count - begin, lane);
        } else {
            for (int i = 0; i < 4; i++) {
                __stcs((uint4 *)(to + begin) + i * 32 + lane, made[i]);
            }
        }
        store_raw(left, (const uint8_t *)p.rest + begin, to + begin, count - begin, lane);
    }
}

trm_status trm_cuda_bf16_decode(trm_stream *stream, const void *from, void *to, size_t count, int32_t multiprocessors)
{
    size_t blocks = (count + TRM_CODEC_BLOCK - 1) / TRM_CODEC_BLOCK, warps = THREADS / 32;
    size_t most = multiprocessors > 0 ? (size_t)multiprocessors : MULTIPROCESSORS;
    size_t grid = (blocks + warps - 1) / warps;
    if (grid == 0) {
        return TRM_OK;
    }
    cudaStream_t handle = trm_cuda_stream(stream);
    decode<<<(unsigned)(grid < most ? grid : most), THREADS, 0, handle>>>((const unsigned char *)from, (uint16_t *)to,
                                                                          count);
    return trm_cuda_launched("cuda.bf16_decode");
}
