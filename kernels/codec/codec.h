/*
 * bf16 without loss in fewer bytes: for weights on their way to a device, where a link is the bound and not memory.
 *
 * The sign and mantissa of a weight are as good as random, its exponent is one of a few. So sign and mantissa are kept
 * as a byte, and an exponent is a code of 2 bits for the three commonest of the elements encoded together, of 3 more
 * bits for the next six, and 8 bits more for any other. Normal and uniform numbers take 10.9 and 10.5 bits; what does
 * not gain takes 21 at most.
 *
 * Layout: a header, then arrays over blocks of 1024 elements, the last filled up with zeros:
 *
 *   uint32_t codes[blocks][32][2]    planes of the bits of the codes 0 to 3, a word each for the 32 elements of a lane
 *   uint8_t rest[blocks][1024]       sign (bit 7) and mantissa, in the order of the elements
 *   uint32_t tails[blocks]           where the tail of a block begins, in words from the first
 *   and the tails: three planes of the bits of the codes 1 to 7 of those whose first code is 3, each filled up to a
 * word, then the exponents of those whose second code is 7, filled up to a word
 *
 * A lane is what one thread of a warp decodes: its elements 8 s to 8 s + 7 are 8 l + 256 s and following of the block,
 * so that 8 elements are one store and those of the lanes lie beside each other. Bit 4 i + s of its words is its
 * element 8 s + i: shifted by s and masked, planes give the codes of 8 elements as nibbles, which is what the GPU's
 * byte permutation looks up four at a time. Second codes and exponents are by lane, then by bit; where a lane's begin
 * follows from counts of bits.
 */
#ifndef TRM_KERNELS_CODEC_CODEC_H
#define TRM_KERNELS_CODEC_CODEC_H

#include "kernels/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_CODEC_BLOCK ((size_t)1024) /* elements */
#define TRM_CODEC_LANES 32
#define TRM_CODEC_FIRST 3  /* exponents with a code of 2 bits */
#define TRM_CODEC_OTHER 6  /* with one of 3 bits more, from 1 on */
#define TRM_CODEC_RAW   7  /* the second code of any other */
#define TRM_CODEC_SLACK 16 /* bytes behind the tails, which a decoder may look at */

typedef struct trm_bf16_codec_header {
    uint8_t first[4], second[8]; /* exponents by code; 0 where it says of none */
    uint32_t blocks;
    uint64_t count; /* elements */
    uint64_t size;  /* bytes of it all, TRM_CODEC_SLACK included */
} trm_bf16_codec_header;

/* Where the arrays begin, in bytes from the header. */
#define TRM_CODEC_CODES_AT         sizeof(trm_bf16_codec_header)
#define TRM_CODEC_REST_AT(blocks)  (TRM_CODEC_CODES_AT + (size_t)(blocks)*TRM_CODEC_BLOCK / 4)
#define TRM_CODEC_TAILS_AT(blocks) (TRM_CODEC_REST_AT(blocks) + (size_t)(blocks)*TRM_CODEC_BLOCK)
#define TRM_CODEC_WORDS_AT(blocks) (TRM_CODEC_TAILS_AT(blocks) + (size_t)(blocks)*4)

struct trm_pool;

/* The most bytes that `count` elements take. */
size_t trm_bf16_encode_bound(size_t count);

/* Encodes `from` [count] into `to`, aligned to 16 bytes, of which there are `room` bytes; on the threads of the pool
 * (may be NULL). Gives the bytes it took, or 0 if they are more than there are. At most 2^31 elements. */
size_t trm_bf16_encode(struct trm_pool *pool, const uint16_t *from, size_t count, void *to, size_t room);

/*
 * Decodes in the order of the stream, also of one beside others: `from`, made by trm_bf16_encode and aligned to 16
 * bytes, to `to` [count], aligned to 16, both memory of the device. On CUDA it keeps at most `multiprocessors` of the
 * device's busy (0: as many as keep up with any link), so that other streams' kernels run beside it.
 */
trm_status trm_bf16_decode(trm_stream *stream, const void *from, void *to, size_t count, int32_t multiprocessors);

#ifdef __cplusplus
}
#endif
#endif
