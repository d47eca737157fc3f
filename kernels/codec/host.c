/* Decoding on the host: the reference. */
#include "kernels/codec/codec.h"

#include <string.h>

#include "kernels/host/host.h"
#include "kernels/codec/codec_impl.h"

static uint32_t word_at(const unsigned char *words, size_t i)
{
    uint32_t word;
    memcpy(&word, words + i * 4, 4);
    return word;
}

/* Bit i of a plane. */
static uint32_t bit_at(const unsigned char *plane, size_t i)
{
    return word_at(plane, i / 32) >> i % 32 & 1;
}

static size_t count_other(const unsigned char *codes)
{
    size_t n = 0;
    for (size_t lane = 0; lane < TRM_CODEC_LANES; lane++) {
        n += (size_t)__builtin_popcount(word_at(codes, 2 * lane) & word_at(codes, 2 * lane + 1));
    }
    return n;
}

/* Elements of block b, all 1024. */
static void decode_block(const unsigned char *from, size_t b, uint16_t *to)
{
    trm_bf16_codec_header header;
    memcpy(&header, from, sizeof(header));
    const unsigned char *codes = from + TRM_CODEC_CODES_AT + b * TRM_CODEC_BLOCK / 4;
    const unsigned char *rest = from + TRM_CODEC_REST_AT(header.blocks) + b * TRM_CODEC_BLOCK;
    size_t tail = word_at(from + TRM_CODEC_TAILS_AT(header.blocks), b), words = (count_other(codes) + 31) / 32;
    const unsigned char *planes = from + TRM_CODEC_WORDS_AT(header.blocks) + tail * 4;
    const unsigned char *exponents = planes + 3 * words * 4;
    size_t n = 0;
    for (size_t lane = 0; lane < TRM_CODEC_LANES; lane++) {
        for (size_t bit = 0; bit < TRM_CODEC_BLOCK / TRM_CODEC_LANES; bit++) {
            size_t at = bit % 4 * TRM_CODEC_LANES * 8 + lane * 8 + bit / 4;
            uint32_t code = (word_at(codes, 2 * lane) >> bit & 1) | (word_at(codes, 2 * lane + 1) >> bit & 1) << 1;
            uint32_t exponent = header.first[code];
            if (code == TRM_CODEC_FIRST) {
                uint32_t second =
                    bit_at(planes, n) | bit_at(planes + words * 4, n) << 1 | bit_at(planes + 2 * words * 4, n) << 2;
                exponent = second == TRM_CODEC_RAW ? *exponents++ : header.second[second];
                n++;
            }
            to[at] = (uint16_t)((uint32_t)(rest[at] & 0x80) << 8 | exponent << 7 | (uint32_t)(rest[at] & 0x7f));
        }
    }
}

typedef struct decoding {
    const unsigned char *from;
    uint16_t *to;
    size_t count;
} decoding;

static void decode_blocks(void *user, int64_t begin, int64_t end)
{
    const decoding *u = user;
    for (int64_t b = begin; b < end; b++) {
        uint16_t block[TRM_CODEC_BLOCK];
        size_t first = (size_t)b * TRM_CODEC_BLOCK, n = u->count - first;
        decode_block(u->from, (size_t)b, block);
        memcpy(u->to + first, block, (n < TRM_CODEC_BLOCK ? n : TRM_CODEC_BLOCK) * sizeof(*block));
    }
}

static void decode(void *pool, void *to, const void *from, size_t count)
{
    decoding u = {from, to, count};
    trm_pool_for(pool, (int64_t)((count + TRM_CODEC_BLOCK - 1) / TRM_CODEC_BLOCK), 16, decode_blocks, &u);
}

trm_status trm_host_bf16_decode(trm_stream *stream, const void *from, void *to, size_t count, int32_t multiprocessors)
{
    (void)multiprocessors;
    return trm_host_stream_call(stream, decode, to, from, count);
}
