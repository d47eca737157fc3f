/*
 * Tiles of two cache lines of up to TILE_LINES lines are transposed in registers into a buffer that stays in the L1
 * cache, and written as rows: lines are read and rows written in whole cache lines, for any pitch. No CPU prefetches
 * that many streams, so the reads of the next tile are prefetched while this one is transposed.
 */
#include "weight_stream/transpose.h"

#include <assert.h>
#include <string.h>

#include "weight_stream/convert.h"

#define CACHE_LINE   64
#define TILE_BYTES   (2 * CACHE_LINE) /* of each line */
#define VECTOR_BYTES 16
#define TILE_LINES   64

/* Blocks of as many lines as a vector has elements: lines i and i + half are interleaved, again and again, which turns
 * the block when it has been done once for each bit of the number of a line. */
#define DEFINE_BLOCK(name, type, lanes, rounds, LOW, HIGH)                                                             \
    typedef type name##_vector __attribute__((vector_size(VECTOR_BYTES)));                                             \
    static inline void name(const unsigned char *source, size_t pitch, unsigned char *target, size_t target_pitch)     \
    {                                                                                                                  \
        name##_vector a[lanes], b[lanes];                                                                              \
        for (int i = 0; i < (lanes); i++) {                                                                            \
            memcpy(&a[i], source + (size_t)i * pitch, VECTOR_BYTES);                                                   \
        }                                                                                                              \
        for (int round = 0; round < (rounds); round++) {                                                               \
            for (int i = 0; i < (lanes) / 2; i++) {                                                                    \
                b[2 * i] = __builtin_shufflevector(a[i], a[i + (lanes) / 2], LOW);                                     \
                b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + (lanes) / 2], HIGH);                                \
            }                                                                                                          \
            for (int i = 0; i < (lanes); i++) {                                                                        \
                a[i] = b[i];                                                                                           \
            }                                                                                                          \
        }                                                                                                              \
        for (int i = 0; i < (lanes); i++) {                                                                            \
            memcpy(target + (size_t)i * target_pitch, &a[i], VECTOR_BYTES);                                            \
        }                                                                                                              \
    }

#define LOW_16  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOW_8   0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8  4, 12, 5, 13, 6, 14, 7, 15
#define LOW_4   0, 4, 1, 5
#define HIGH_4  2, 6, 3, 7
#define LOW_2   0, 2
#define HIGH_2  1, 3

DEFINE_BLOCK(turn_1, uint8_t, 16, 4, LOW_16, HIGH_16)
DEFINE_BLOCK(turn_2, uint16_t, 8, 3, LOW_8, HIGH_8)
DEFINE_BLOCK(turn_4, uint32_t, 4, 2, LOW_4, HIGH_4)
DEFINE_BLOCK(turn_8, uint64_t, 2, 1, LOW_2, HIGH_2)

/* A whole tile of each of `lines`, a multiple of a vector's elements, into rows TILE_LINES apart. */
#define DEFINE_TILE(name, block, size)                                                                                 \
    static void name(const unsigned char *source, size_t pitch, size_t lines, unsigned char *tile)                     \
    {                                                                                                                  \
        const size_t lanes = VECTOR_BYTES / (size);                                                                    \
        for (size_t k = 0; k < lines; k += lanes) {                                                                    \
            for (size_t i = 0; i < lanes; i++) {                                                                       \
                __builtin_prefetch(source + (k + i) * pitch + TILE_BYTES, 0, 2);                                       \
                __builtin_prefetch(source + (k + i) * pitch + TILE_BYTES + CACHE_LINE, 0, 2);                          \
            }                                                                                                          \
            for (size_t i = 0; i < TILE_BYTES / (size); i += lanes) {                                                  \
                block(source + k * pitch + i * (size), pitch, tile + (i * TILE_LINES + k) * (size),                    \
                      (size_t)TILE_LINES * (size));                                                                    \
            }                                                                                                          \
        }                                                                                                              \
    }

DEFINE_TILE(turn_tile_1, turn_1, 1)
DEFINE_TILE(turn_tile_2, turn_2, 2)
DEFINE_TILE(turn_tile_4, turn_4, 4)
DEFINE_TILE(turn_tile_8, turn_8, 8)

/* Any part of a tile. */
#define DEFINE_EDGE(name, size)                                                                                        \
    static void name(const unsigned char *source, size_t pitch, size_t lines, size_t count, unsigned char *tile)       \
    {                                                                                                                  \
        for (size_t k = 0; k < lines; k++) {                                                                           \
            for (size_t i = 0; i < count; i++) {                                                                       \
                memcpy(tile + (i * TILE_LINES + k) * (size), source + k * pitch + i * (size), (size));                 \
            }                                                                                                          \
        }                                                                                                              \
    }

DEFINE_EDGE(turn_edge_1, 1)
DEFINE_EDGE(turn_edge_2, 2)
DEFINE_EDGE(turn_edge_4, 4)
DEFINE_EDGE(turn_edge_8, 8)

static void turn_edge(size_t size, const unsigned char *source, size_t pitch, size_t lines, size_t count,
                      unsigned char *tile)
{
    switch (size) {
    case 1:
        turn_edge_1(source, pitch, lines, count, tile);
        return;
    case 2:
        turn_edge_2(source, pitch, lines, count, tile);
        return;
    case 4:
        turn_edge_4(source, pitch, lines, count, tile);
        return;
    default:
        assert(size == 8);
        turn_edge_8(source, pitch, lines, count, tile);
    }
}

static void turn_tile(size_t size, const unsigned char *source, size_t pitch, size_t lines, size_t count,
                      unsigned char *tile)
{
    const size_t whole = count * size == TILE_BYTES ? lines * size / VECTOR_BYTES * VECTOR_BYTES / size : 0;
    switch (size) {
    case 1:
        turn_tile_1(source, pitch, whole, tile);
        break;
    case 2:
        turn_tile_2(source, pitch, whole, tile);
        break;
    case 4:
        turn_tile_4(source, pitch, whole, tile);
        break;
    default:
        assert(size == 8);
        turn_tile_8(source, pitch, whole, tile);
    }
    turn_edge(size, source + whole * pitch, pitch, lines - whole, count, tile + whole * size);
}

/* Of most tiles the length is a constant, and short. */
static void copy_rows(const unsigned char *tile, size_t size, size_t n, size_t height, unsigned char *rows,
                      size_t pitch)
{
    const size_t tile_pitch = TILE_LINES * size;
    if (n == TILE_LINES && size == 2) {
        for (size_t row = 0; row < height; row++) {
            memcpy(rows + row * pitch, tile + row * tile_pitch, (size_t)TILE_LINES * 2);
        }
        return;
    }
    for (size_t row = 0; row < height; row++) {
        memcpy(rows + row * pitch, tile + row * tile_pitch, n * size);
    }
}

void trm_transpose(trm_dtype from, const void *source, size_t pitch, size_t lines, size_t count, trm_dtype to,
                   void *target, size_t target_pitch)
{
    unsigned char tile[TILE_BYTES * TILE_LINES];
    const size_t size = trm_dtype_size(from), to_size = trm_dtype_size(to), most = TILE_BYTES / size;
    for (size_t k = 0; k < lines; k += TILE_LINES) {
        const size_t n = lines - k < TILE_LINES ? lines - k : TILE_LINES;
        for (size_t i = 0; i < count; i += most) {
            const size_t height = count - i < most ? count - i : most;
            turn_tile(size, (const unsigned char *)source + k * pitch + i * size, pitch, n, height, tile);
            unsigned char *rows = (unsigned char *)target + i * target_pitch + k * to_size;
            if (from == to) {
                copy_rows(tile, size, n, height, rows, target_pitch);
                continue;
            }
            for (size_t row = 0; row < height; row++) {
                trm_convert(from, tile + row * TILE_LINES * size, to, rows + row * target_pitch, n);
            }
        }
    }
}
