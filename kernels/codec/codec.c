/* Encoding is the host's; decoding is the device's. */
#include "kernels/codec/codec.h"

#include <assert.h>
#include <string.h>

#include "base/pool.h"
#include "kernels/device/device_impl.h"
#include "kernels/host/host.h"

/* A dictionary is made of the exponents in one block out of this many. */
#define SAMPLE 32

#define CODE_OTHER 3 /* first code of what the second says */
#define CODE_NONE  9 /* place in the dictionary of what is not in it */
#define LANE       (TRM_CODEC_BLOCK / TRM_CODEC_LANES)

typedef struct encoding {
    const uint16_t *from;
    size_t count, blocks;
    uint8_t dictionary[CODE_NONE];
    unsigned char *to;
    uint32_t *tails; /* [blocks] first their words, then where they begin */
} encoding;

/* Elements of a block taken apart: exponent, and the rest as it is stored. */
typedef struct parts {
    uint8_t exponents[TRM_CODEC_BLOCK], rest[TRM_CODEC_BLOCK], places[TRM_CODEC_BLOCK]; /* in the dictionary */
} parts;

/* ---- the dictionary ---------------------------------------------------------------------------- */

static void make_dictionary(encoding *p)
{
    uint32_t counts[256] = {0};
    size_t step = p->blocks > SAMPLE * 4 ? SAMPLE : 1;
    for (size_t b = 0; b < p->blocks; b += step) {
        size_t end = (b + 1) * TRM_CODEC_BLOCK < p->count ? (b + 1) * TRM_CODEC_BLOCK : p->count;
        for (size_t i = b * TRM_CODEC_BLOCK; i < end; i++) {
            counts[p->from[i] >> 7 & 0xff]++;
        }
    }
    for (int32_t k = 0; k < CODE_NONE; k++) {
        int32_t best = 0;
        for (int32_t i = 1; i < 256; i++) {
            best = counts[i] > counts[best] ? i : best;
        }
        p->dictionary[k] = (uint8_t)best;
        counts[best] = 0;
    }
}

/* ---- blocks ------------------------------------------------------------------------------------ */

TRM_VECTOR_CLONES static void take_apart(const uint16_t *from, const uint8_t *dictionary, parts *made)
{
    for (size_t i = 0; i < TRM_CODEC_BLOCK; i++) {
        made->exponents[i] = (uint8_t)(from[i] >> 7);
        made->rest[i] = (uint8_t)((from[i] >> 8 & 0x80) | (from[i] & 0x7f));
    }
    memset(made->places, CODE_NONE, sizeof(made->places));
    for (int32_t k = CODE_NONE - 1; k >= 0; k--) { /* of equal entries, the first */
        uint8_t exponent = dictionary[k];
        for (size_t i = 0; i < TRM_CODEC_BLOCK; i++) {
            made->places[i] = made->exponents[i] == exponent ? (uint8_t)k : made->places[i];
        }
    }
}

/* What there is of a block, filled up with zeros. */
static const uint16_t *block_of(const encoding *p, size_t b, uint16_t *filled)
{
    size_t begin = b * TRM_CODEC_BLOCK, n = p->count - begin;
    if (n >= TRM_CODEC_BLOCK) {
        return p->from + begin;
    }
    memset(filled, 0, TRM_CODEC_BLOCK * sizeof(*filled));
    memcpy(filled, p->from + begin, n * sizeof(*filled));
    return filled;
}

TRM_VECTOR_CLONES static void count_codes(const uint8_t *places, uint32_t *other, uint32_t *none)
{
    uint32_t n = 0, m = 0;
    for (size_t i = 0; i < TRM_CODEC_BLOCK; i++) {
        n += places[i] >= CODE_OTHER;
        m += places[i] == CODE_NONE;
    }
    *other = n;
    *none = m;
}

static void measure_blocks(void *user, int64_t begin, int64_t end)
{
    const encoding *p = user;
    uint16_t filled[TRM_CODEC_BLOCK];
    parts made;
    for (int64_t b = begin; b < end; b++) {
        uint32_t other, none;
        take_apart(block_of(p, (size_t)b, filled), p->dictionary, &made);
        count_codes(made.places, &other, &none);
        p->tails[b] = (other + 31) / 32 * 3 + (none + 3) / 4;
    }
}

/* Bits 0 of 8 bytes as bits 0 of 8 nibbles. */
static uint32_t to_nibbles(uint64_t bytes)
{
    bytes &= 0x0101010101010101;
    bytes = (bytes | bytes >> 4) & 0x0011001100110011;
    bytes = (bytes | bytes >> 8) & 0x0000111100001111;
    return (uint32_t)(bytes | bytes >> 16);
}

/* The first codes of a lane, in planes; 8 bytes of places at a time, of which those from CODE_OTHER on count as that.
 */
static void first_codes(const uint8_t *places, size_t lane, uint32_t codes[2])
{
    codes[0] = codes[1] = 0;
    for (size_t step = 0; step < LANE / 8; step++) {
        uint64_t p;
        memcpy(&p, places + step * TRM_CODEC_LANES * 8 + lane * 8, 8);
        uint64_t at_least_3 = (p + 0x7d7d7d7d7d7d7d7d) >> 7; /* bit 0 of each byte */
        codes[0] |= to_nibbles(p | at_least_3) << step;
        codes[1] |= to_nibbles(p >> 1 | at_least_3) << step;
    }
}

/* Of a bit of a lane's words, in the block. */
static size_t element_of(size_t lane, uint32_t bit)
{
    return (size_t)(bit % 4) * TRM_CODEC_LANES * 8 + lane * 8 + bit / 4;
}

static void write_block(const encoding *p, size_t b, const parts *made)
{
    uint32_t *codes = (uint32_t *)(void *)(p->to + TRM_CODEC_CODES_AT) + b * TRM_CODEC_LANES * 2;
    memcpy(p->to + TRM_CODEC_REST_AT(p->blocks) + b * TRM_CODEC_BLOCK, made->rest, TRM_CODEC_BLOCK);
    uint32_t planes[3][TRM_CODEC_BLOCK / 32] = {{0}}, n = 0, m = 0;
    uint8_t exponents[TRM_CODEC_BLOCK + 3];
    for (size_t lane = 0; lane < TRM_CODEC_LANES; lane++, codes += 2) {
        first_codes(made->places, lane, codes);
        for (uint32_t left = codes[0] & codes[1]; left != 0; left &= left - 1, n++) {
            size_t i = element_of(lane, (uint32_t)__builtin_ctz(left));
            uint32_t second = (uint32_t)made->places[i] - CODE_OTHER + 1;
            planes[0][n / 32] |= (second & 1) << n % 32;
            planes[1][n / 32] |= (second >> 1 & 1) << n % 32;
            planes[2][n / 32] |= (second >> 2) << n % 32;
            exponents[m] = made->exponents[i];
            m += second == TRM_CODEC_RAW;
        }
    }
    memset(exponents + m, 0, 3);
    unsigned char *tail = p->to + TRM_CODEC_WORDS_AT(p->blocks) + (size_t)p->tails[b] * 4;
    size_t words = (n + 31) / 32;
    for (int32_t k = 0; k < 3; k++) {
        memcpy(tail + (size_t)k * words * 4, planes[k], words * 4);
    }
    memcpy(tail + 3 * words * 4, exponents, (m + 3) / 4 * 4);
}

static void write_blocks(void *user, int64_t begin, int64_t end)
{
    const encoding *p = user;
    uint16_t filled[TRM_CODEC_BLOCK];
    parts made;
    for (int64_t b = begin; b < end; b++) {
        take_apart(block_of(p, (size_t)b, filled), p->dictionary, &made);
        write_block(p, (size_t)b, &made);
    }
}

/* ---- the calls --------------------------------------------------------------------------------- */

static size_t blocks_of(size_t count)
{
    return (count + TRM_CODEC_BLOCK - 1) / TRM_CODEC_BLOCK;
}

size_t trm_bf16_encode_bound(size_t count)
{
    size_t blocks = blocks_of(count);
    return TRM_CODEC_WORDS_AT(blocks) + blocks * (TRM_CODEC_BLOCK / 8 * 3 + TRM_CODEC_BLOCK) + TRM_CODEC_SLACK;
}

size_t trm_bf16_encode(trm_pool *pool, const uint16_t *from, size_t count, void *to, size_t room)
{
    encoding p = {.from = from, .count = count, .blocks = blocks_of(count), .to = to};
    size_t at = TRM_CODEC_WORDS_AT(p.blocks), words = 0;
    assert(count <= (size_t)1 << 31);
    if (at > room) {
        return 0;
    }
    p.tails = (uint32_t *)(void *)(p.to + TRM_CODEC_TAILS_AT(p.blocks));
    make_dictionary(&p);
    trm_pool_for(pool, (int64_t)p.blocks, 16, measure_blocks, &p);
    for (size_t b = 0; b < p.blocks; b++) {
        uint32_t tail = p.tails[b];
        p.tails[b] = (uint32_t)words;
        words += tail;
    }
    size_t size = at + words * 4 + TRM_CODEC_SLACK;
    if (size > room) {
        return 0;
    }
    trm_pool_for(pool, (int64_t)p.blocks, 16, write_blocks, &p);
    memset(p.to + at + words * 4, 0, TRM_CODEC_SLACK);
    trm_bf16_codec_header *header = to;
    *header = (trm_bf16_codec_header){.blocks = (uint32_t)p.blocks, .count = count, .size = size};
    memcpy(header->first, p.dictionary, TRM_CODEC_FIRST);
    memcpy(header->second + 1, p.dictionary + TRM_CODEC_FIRST, TRM_CODEC_OTHER);
    return size;
}

trm_status trm_bf16_decode(trm_stream *stream, const void *from, void *to, size_t count, int32_t multiprocessors)
{
    return stream->ops->bf16_decode(stream, from, to, count, multiprocessors);
}
