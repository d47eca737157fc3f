#include "kernels/host/tiles.h"

#include <string.h>

#include "base/half.h"
#include "kernels/element/small.h"
#include "kernels/host/host.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TILES __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512vbmi")))
/* How far ahead weights are asked for. Alone, the processor's own prefetching reads 7 % slower. */
#define AHEAD 512

/* Of arch_prctl: the unit's registers are large, so that a process asks the system for them. */
#define REQUEST_PERMISSION 0x1023
#define TILE_DATA          18

static pthread_once_t asked = PTHREAD_ONCE_INIT;
static bool are_there;

static void ask(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 22 & 1) == 0 || (d >> 24 & 1) == 0 ||
        !__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512vl")) {
        return;
    }
    are_there = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

bool trm_host_tiles_are_there(void)
{
    (void)pthread_once(&asked, ask);
    return are_there;
}

typedef struct configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} configuration;

/* Tiles 0 and 1: sums [rows, m] f32; 2 and 4: weights [rows, 32]; 3 and 5: x [16, m, 2]. */
TILES static void configure(int64_t rows, int64_t m)
{
    configuration c = {.palette = 1};
    for (int i = 0; i < 6; i++) {
        const bool is_weight = i == 2 || i == 4, is_x = i == 3 || i == 5;
        c.row_bytes[i] = is_weight ? 64 : (uint16_t)(m * 4);
        c.rows[i] = is_x ? 16 : (uint8_t)rows;
    }
    _tile_loadconfig(&c);
}

/* sums [rows, m] of a group of weight rows. */
TILES static void dot_group(const uint16_t *weights, int64_t rows, const uint16_t *x, int64_t m, int64_t k, float *sums)
{
    /* Past the end of a row comes the next group, not the next row. */
    const int64_t ahead = AHEAD / 2, to_next = (rows - 1) * k;
    const long row_bytes = (long)(k * 2), pair_bytes = (long)(m * 4);
    int64_t i = 0;
    _tile_zero(0);
    _tile_zero(1);
    for (; i + 64 <= k; i += 64) {
        const uint16_t *next = weights + i + ahead + (i + ahead < k ? 0 : to_next);
        for (int64_t r = 0; r < rows; r++) {
            _mm_prefetch((const char *)(next + r * k), _MM_HINT_T0);
            _mm_prefetch((const char *)(next + r * k + 32), _MM_HINT_T0);
        }
        _tile_loadd(2, weights + i, row_bytes);
        _tile_loadd(3, x + i * m, pair_bytes);
        _tile_dpbf16ps(0, 2, 3);
        _tile_loadd(4, weights + i + 32, row_bytes);
        _tile_loadd(5, x + (i + 32) * m, pair_bytes);
        _tile_dpbf16ps(1, 4, 5);
    }
    if (i < k) {
        _tile_loadd(2, weights + i, row_bytes);
        _tile_loadd(3, x + i * m, pair_bytes);
        _tile_dpbf16ps(0, 2, 3);
    }
    float other[TRM_TILE_ROWS * TRM_TILE_ROWS];
    _tile_stored(0, sums, pair_bytes);
    _tile_stored(1, other, pair_bytes);
    for (int64_t j = 0; j < rows * m; j++) {
        sums[j] += other[j];
    }
}

TILES void trm_host_tiles_dot(const uint16_t *weights, int64_t rows, const uint16_t *x, int64_t m, int64_t k,
                              float *out, int64_t stride)
{
    float sums[TRM_TILE_ROWS * TRM_TILE_ROWS];
    for (int64_t i = 0; i < rows; i += TRM_TILE_ROWS) {
        const int64_t group = rows - i < TRM_TILE_ROWS ? rows - i : TRM_TILE_ROWS;
        if (i == 0 || group < TRM_TILE_ROWS) {
            configure(group, m);
        }
        dot_group(weights + i * k, group, x, m, k, sums);
        for (int64_t r = 0; r < m; r++) {
            for (int64_t j = 0; j < group; j++) {
                out[r * stride + i + j] = sums[j * m + r];
            }
        }
    }
    _tile_release();
}

#define PIECE  256          /* columns that become bf16 at a time */
#define GROUPS (PIECE / 32) /* tiles of them */

typedef struct byte_table {
    uint8_t low[256], high[256]; /* bytes of the bf16 that a byte stands for */
} byte_table;

static pthread_once_t filled = PTHREAD_ONCE_INIT;
static byte_table e4m3, i8;

static void set_number(byte_table *table, int byte, float number)
{
    const uint16_t bits = trm_f32_to_bf16(number);
    table->low[byte] = (uint8_t)bits;
    table->high[byte] = (uint8_t)(bits >> 8);
}

static void fill_tables(void)
{
    for (int i = 0; i < 256; i++) {
        set_number(&e4m3, i, (float)trm_small_float_decode(TRM_F8E4M3, (uint8_t)i));
        set_number(&i8, i, (float)(int8_t)i);
    }
}

TILES static inline __m512i look_up(const uint8_t *table, __m512i bytes, __mmask64 upper)
{
    const __m512i *part = (const __m512i *)table; /* by the low seven bits, then by the eighth */
    const __m512i from_lower = _mm512_permutex2var_epi8(_mm512_loadu_si512(part), bytes, _mm512_loadu_si512(part + 1));
    const __m512i from_upper =
        _mm512_permutex2var_epi8(_mm512_loadu_si512(part + 2), bytes, _mm512_loadu_si512(part + 3));
    return _mm512_mask_mov_epi8(from_lower, upper, from_upper);
}

/* `columns` numbers of a byte each, as row r of tiles [16, 32] one after the other. */
TILES static void widen_bytes(const byte_table *table, const uint8_t *from, int64_t columns, int64_t to_next,
                              uint16_t *tiles)
{
    /* Unpacking goes by lanes of 16 bytes: the eight 8 byte parts are put where it leaves them in order. */
    const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
    for (int64_t i = 0; i < columns; i += 64) {
        _mm_prefetch((const char *)from + i + to_next, _MM_HINT_T0);
        const __m512i bytes = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(from + i));
        const __mmask64 upper = _mm512_movepi8_mask(bytes);
        const __m512i low = look_up(table->low, bytes, upper), high = look_up(table->high, bytes, upper);
        _mm512_storeu_si512(tiles + i / 32 * 512, _mm512_unpacklo_epi8(low, high));
        _mm512_storeu_si512(tiles + i / 32 * 512 + 512, _mm512_unpackhi_epi8(low, high));
    }
}

/* The same of 4 bits less a zero point, two in a byte, the first in its low half. */
TILES static void widen_nibbles(int32_t zero, const uint8_t *from, int64_t columns, int64_t to_next, uint16_t *tiles)
{
    const __m512i iota = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512 numbers = _mm512_cvtepi32_ps(_mm512_sub_epi32(iota, _mm512_set1_epi32(zero)));
    const __m256i words = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(numbers), 16));
    /* Twice: a look-up goes by five bits, of which the last is the other number's. */
    const __m512i table = _mm512_broadcast_i64x4(words);
    const __m512i spread =
        _mm512_set_epi64(0x0f0f0f0f0e0e0e0e, 0x0d0d0d0d0c0c0c0c, 0x0b0b0b0b0a0a0a0a, 0x0909090908080808,
                         0x0707070706060606, 0x0505050504040404, 0x0303030302020202, 0x0101010100000000);
    const __m512i shift = _mm512_set1_epi32(4 << 16);
    for (int64_t i = 0; i < columns; i += 32) {
        if (i % 128 == 0) {
            _mm_prefetch((const char *)from + i / 2 + to_next, _MM_HINT_T0);
        }
        const __m512i bytes = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(from + i / 2)));
        const __m512i places = _mm512_srlv_epi16(_mm512_shuffle_epi8(bytes, spread), shift);
        _mm512_storeu_si512(tiles + i / 32 * 512, _mm512_permutexvar_epi16(places, table));
    }
}

static inline float scale_at(const trm_view *scale, int64_t i)
{
    return scale->dtype == TRM_F32    ? ((const float *)scale->data)[i]
           : scale->dtype == TRM_BF16 ? trm_bf16_to_f32(((const uint16_t *)scale->data)[i])
                                      : trm_f16_to_f32(((const uint16_t *)scale->data)[i]);
}

/* Columns at .. at + columns - 1 of a group of rows, all of block `block` of their rows, as tiles. */
TILES static void widen(const trm_host_quantized *q, int64_t row, int64_t rows, int64_t at, int64_t columns,
                        int64_t block, uint16_t *tiles)
{
    const bool is_packed = q->weight->dtype == TRM_U8;
    const byte_table *table = q->weight->dtype == TRM_I8 ? &i8 : &e4m3;
    const int64_t row_bytes = is_packed ? q->k / 2 : q->k, from = is_packed ? at / 2 : at;
    const int64_t to_next = AHEAD + (from + AHEAD < row_bytes ? 0 : (rows - 1) * row_bytes);
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *bytes = (const uint8_t *)q->weight->data + (row + r) * row_bytes + from;
        if (is_packed) {
            const int64_t place = (row + r) / q->block_n * q->scales + block;
            const int32_t zero = q->zero_point != NULL ? ((const uint8_t *)q->zero_point->data)[place] : 8;
            widen_nibbles(zero, bytes, columns, to_next, tiles + r * 32);
        } else {
            widen_bytes(table, bytes, columns, to_next, tiles + r * 32);
        }
    }
}

/* sums [rows, m] += scales of a block times its sums, which are in tiles 0 and 1. */
TILES static void add_scaled(const trm_host_quantized *q, int64_t row, int64_t rows, int64_t block, int64_t m,
                             float *sums)
{
    float parts[2][TRM_TILE_ROWS * TRM_TILE_ROWS];
    _tile_stored(0, parts[0], (long)(m * 4));
    _tile_stored(1, parts[1], (long)(m * 4));
    for (int64_t r = 0; r < rows; r++) {
        const float scale = scale_at(q->scale, (row + r) / q->block_n * q->scales + block);
        for (int64_t j = r * m; j < (r + 1) * m; j++) {
            sums[j] += scale * (parts[0][j] + parts[1][j]);
        }
    }
}

TILES static void dot_quantized(const trm_host_quantized *q, int64_t row, int64_t rows, const uint16_t *x, int64_t m,
                                float *sums)
{
    uint16_t tiles[GROUPS * 512] __attribute__((aligned(64)));
    const long pair_bytes = (long)(m * 4);
    memset(sums, 0, (size_t)(rows * m) * sizeof(*sums));
    for (int64_t at = 0; at < q->k;) {
        const int64_t block = at / q->block_k, end = trm_host_min((block + 1) * q->block_k, q->k);
        _tile_zero(0);
        _tile_zero(1);
        while (at < end) {
            const int64_t columns = trm_host_min(end - at, PIECE);
            widen(q, row, rows, at, columns, block, tiles);
            __asm__ volatile("" ::: "memory"); /* the loads of tiles do not say what they read */
            for (int64_t i = 0; i < columns; i += 64) {
                _tile_loadd(2, tiles + i * 16, 64);
                _tile_loadd(3, x + (at + i) * m, pair_bytes);
                _tile_dpbf16ps(0, 2, 3);
                if (i + 32 < columns) {
                    _tile_loadd(4, tiles + i * 16 + 512, 64);
                    _tile_loadd(5, x + (at + i + 32) * m, pair_bytes);
                    _tile_dpbf16ps(1, 4, 5);
                }
            }
            at += columns;
        }
        add_scaled(q, row, rows, block, m, sums);
    }
}

TILES void trm_host_tiles_dot_quantized(const trm_host_quantized *weights, int64_t first, int64_t rows,
                                        const uint16_t *x, int64_t m, float *out, int64_t stride)
{
    float sums[TRM_TILE_ROWS * TRM_TILE_ROWS];
    (void)pthread_once(&filled, fill_tables);
    for (int64_t i = 0; i < rows; i += TRM_TILE_ROWS) {
        const int64_t group = trm_host_min(rows - i, TRM_TILE_ROWS);
        configure(group, m);
        dot_quantized(weights, first + i, group, x, m, sums);
        for (int64_t r = 0; r < m; r++) {
            for (int64_t j = 0; j < group; j++) {
                out[r * stride + i + j] = sums[j * m + r];
            }
        }
    }
    _tile_release();
}

#else

void trm_host_tiles_dot_quantized(const trm_host_quantized *weights, int64_t first, int64_t rows, const uint16_t *x,
                                  int64_t m, float *out, int64_t stride)
{
    (void)weights, (void)first, (void)rows, (void)x, (void)m, (void)out, (void)stride; /* the same */
}

bool trm_host_tiles_are_there(void)
{
    return false;
}

void trm_host_tiles_dot(const uint16_t *weights, int64_t rows, const uint16_t *x, int64_t m, int64_t k, float *out,
                        int64_t stride)
{
    (void)weights, (void)rows, (void)x, (void)m, (void)k, (void)out, (void)stride; /* not there, so never called */
}

#endif

bool trm_host_tiles_take(const trm_host_quantized *weights)
{
    const int64_t unit = weights->weight->dtype == TRM_U8 ? 32 : 64; /* columns that become bf16 at once */
    return weights->k > 0 && weights->k % unit == 0 && weights->block_k % unit == 0 && trm_host_tiles_are_there();
}

typedef struct arrangement {
    const uint16_t *x;
    int64_t m, k;
    uint16_t *room;
} arrangement;

static void arrange_pairs(void *user, int64_t begin, int64_t end)
{
    const arrangement *a = user;
    for (int64_t r = 0; r < a->m; r++) {
        for (int64_t i = begin; i < end; i++) {
            memcpy(a->room + (i * a->m + r) * 2, a->x + r * a->k + i * 2, 4);
        }
    }
}

const uint16_t *trm_host_tiles_arrange(trm_pool *pool, const uint16_t *x, int64_t m, int64_t k, uint16_t *room)
{
    if (m == 1) {
        return x;
    }
    arrangement a = {x, m, k, room};
    trm_pool_for(pool, k / 2, 1 + 16384 / m, arrange_pairs, &a);
    return room;
}
