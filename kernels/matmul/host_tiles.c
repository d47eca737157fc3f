#include "kernels/matmul/host_tiles.h"

#include <string.h>

#include "base/half.h"
#include "kernels/host/host.h"

#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TILES __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512fp16")))
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
    /* AMX's bf16 and tiles, and half precision in vectors, which came with the same processors. */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 22 & 1) == 0 || (d >> 23 & 1) == 0 || (d >> 24 & 1) == 0 ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl")) {
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
    __asm__ volatile("" ::"r"(&c) : "memory"); /* gcc 12's next line does not say that it reads all of it */
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

typedef struct group {
    const trm_host_quantized *q;
    int64_t row, rows;
    int64_t scales[TRM_TILE_ROWS]; /* the first scale of a row */
} group;

/* F8E4M3 as bf16, the eight bits in the upper half of each word: exponents of four bits move to those of eight. The
 * codes below 8, which have no leading bit, and NaN, the last, are looked up by five of their bits. */
TILES static inline __m512i e4m3_to_bf16(__m512i words, __m512i rare)
{
    const __m512i code = _mm512_and_si512(words, _mm512_set1_epi16(0x7f00));
    const __m512i normal = _mm512_add_epi16(_mm512_srli_epi16(code, 4), _mm512_set1_epi16((127 - 7) << 7));
    const __mmask32 is_rare =
        _mm512_cmpge_epu16_mask(_mm512_sub_epi16(code, _mm512_set1_epi16(8 << 8)), _mm512_set1_epi16((0x7f - 8) << 8));
    const __m512i magnitude = _mm512_mask_permutexvar_epi16(normal, is_rare, _mm512_srli_epi16(words, 8), rare);
    return _mm512_or_si512(magnitude, _mm512_and_si512(words, _mm512_set1_epi16((short)0x8000)));
}

/* `columns` numbers of F8E4M3 as a row of tiles [16, 32] one after the other. */
TILES static inline void widen_e4m3(const uint8_t *from, int64_t columns, int64_t to_next, uint16_t *tiles)
{
    /* Unpacking goes by lanes of 16 bytes: the eight 8 byte parts are put where it leaves them in order. */
    const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0), zero = _mm512_setzero_si512();
    /* Multiples of 2^-9 up to the seventh, and NaN at place 31. */
    const __m512i rare = _mm512_set_epi64(0x7fc0000000000000, 0, 0, 0, 0, 0, 0x3c603c403c203c00, 0x3bc03b803b000000);
    for (int64_t i = 0; i < columns; i += 64, tiles += 1024) {
        _mm_prefetch((const char *)from + i + to_next, _MM_HINT_T0);
        const __m512i parts = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(from + i));
        _mm512_storeu_si512(tiles, e4m3_to_bf16(_mm512_unpacklo_epi8(zero, parts), rare));
        _mm512_storeu_si512(tiles + 512, e4m3_to_bf16(_mm512_unpackhi_epi8(zero, parts), rare));
    }
}

/* The same of I8, through halves, of whose bits seven of the fraction are used. */
TILES static inline void widen_i8(const uint8_t *from, int64_t columns, int64_t to_next, uint16_t *tiles)
{
    for (int64_t i = 0; i < columns; i += 32, tiles += 512) {
        if (i % 64 == 0) {
            _mm_prefetch((const char *)from + i + to_next, _MM_HINT_T0);
        }
        const __m512i numbers = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(from + i)));
        const __m512i half = _mm512_castph_si512(_mm512_cvtepi16_ph(numbers));
        const __m512i magnitude = _mm512_and_si512(_mm512_srli_epi16(half, 3), _mm512_set1_epi16(0x0fff));
        const __m512i biased = _mm512_maskz_add_epi16(_mm512_test_epi16_mask(numbers, numbers), magnitude,
                                                      _mm512_set1_epi16((127 - 15) << 7));
        _mm512_storeu_si512(tiles, _mm512_or_si512(biased, _mm512_and_si512(half, _mm512_set1_epi16((short)0x8000))));
    }
}

/* bf16 of the numbers of 4 bits less a zero point. Twice: a look-up goes by five bits, of which the last is the other
 * number's. */
TILES static inline __m512i nibble_table(int32_t zero)
{
    const __m512i iota = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512 numbers = _mm512_cvtepi32_ps(_mm512_sub_epi32(iota, _mm512_set1_epi32(zero)));
    return _mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(numbers), 16)));
}

/* The same of 4 bits, two in a byte, the first in its low half. */
TILES static inline void widen_nibbles(__m512i table, const uint8_t *from, int64_t columns, int64_t to_next,
                                       uint16_t *tiles)
{
    const __m512i spread =
        _mm512_set_epi64(0x0f0f0f0f0e0e0e0e, 0x0d0d0d0d0c0c0c0c, 0x0b0b0b0b0a0a0a0a, 0x0909090908080808,
                         0x0707070706060606, 0x0505050504040404, 0x0303030302020202, 0x0101010100000000);
    const __m512i shift = _mm512_set1_epi32(4 << 16);
    for (int64_t i = 0; i < columns; i += 32, tiles += 512) {
        if (i % 128 == 0) {
            _mm_prefetch((const char *)from + i / 2 + to_next, _MM_HINT_T0);
        }
        const __m512i numbers = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(from + i / 2)));
        const __m512i places = _mm512_srlv_epi16(_mm512_shuffle_epi8(numbers, spread), shift);
        _mm512_storeu_si512(tiles, _mm512_permutexvar_epi16(places, table));
    }
}

static inline float scale_at(const trm_view *scale, int64_t i)
{
    return scale->dtype == TRM_F32    ? ((const float *)scale->data)[i]
           : scale->dtype == TRM_BF16 ? trm_bf16_to_f32(((const uint16_t *)scale->data)[i])
                                      : trm_f16_to_f32(((const uint16_t *)scale->data)[i]);
}

/* Columns at .. at + columns - 1 of a group, all of block `block` of their rows, as tiles. */
TILES static void widen(const group *g, int64_t at, int64_t columns, int64_t block, uint16_t *tiles)
{
    const trm_dtype type = g->q->weight->dtype;
    const int64_t row_bytes = type == TRM_U8 ? g->q->k / 2 : g->q->k, from = type == TRM_U8 ? at / 2 : at;
    const int64_t to_next = AHEAD + (from + AHEAD < row_bytes ? 0 : (g->rows - 1) * row_bytes);
    const uint8_t *numbers = (const uint8_t *)g->q->weight->data + g->row * row_bytes + from;
    const uint8_t *zeros = g->q->zero_point != NULL ? g->q->zero_point->data : NULL;
    __m512i table = nibble_table(8);
    for (int64_t r = 0; r < g->rows; r++, numbers += row_bytes, tiles += 32) {
        if (type == TRM_F8E4M3) {
            widen_e4m3(numbers, columns, to_next, tiles);
        } else if (type == TRM_I8) {
            widen_i8(numbers, columns, to_next, tiles);
        } else {
            table = zeros != NULL ? nibble_table(zeros[g->scales[r] + block]) : table;
            widen_nibbles(table, numbers, columns, to_next, tiles);
        }
    }
}

/* sums [rows, 16] += scales of a block times its sums, which are in tiles 0 and 1. */
TILES static void add_scaled(const group *g, int64_t block, float *sums)
{
    float parts[2][TRM_TILE_ROWS * TRM_TILE_ROWS]; /* in columns past m the values mean nothing */
    _tile_stored(0, parts[0], TRM_TILE_ROWS * 4);
    _tile_stored(1, parts[1], TRM_TILE_ROWS * 4);
    for (int64_t r = 0; r < g->rows; r++) {
        const __m512 scale = _mm512_set1_ps(scale_at(g->q->scale, g->scales[r] + block));
        const __m512 both =
            _mm512_add_ps(_mm512_loadu_ps(parts[0] + r * TRM_TILE_ROWS), _mm512_loadu_ps(parts[1] + r * TRM_TILE_ROWS));
        float *sum = sums + r * TRM_TILE_ROWS;
        _mm512_storeu_ps(sum, _mm512_fmadd_ps(scale, both, _mm512_loadu_ps(sum)));
    }
}

/* sums [rows, 16] of a group. */
TILES static void dot_quantized(const group *g, const uint16_t *x, int64_t m, float *sums)
{
    const trm_host_quantized *q = g->q;
    uint16_t tiles[GROUPS * 512] __attribute__((aligned(64)));
    const long pair_bytes = (long)(m * 4);
    memset(sums, 0, sizeof(float) * TRM_TILE_ROWS * TRM_TILE_ROWS);
    int64_t block = 0, end = 0;
    for (int64_t at = 0; at < q->k; block++) {
        end = trm_host_min(end + q->block_k, q->k);
        _tile_zero(0);
        _tile_zero(1);
        while (at < end) {
            const int64_t columns = trm_host_min(end - at, PIECE);
            widen(g, at, columns, block, tiles);
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
        add_scaled(g, block, sums);
    }
}

TILES void trm_host_tiles_dot_quantized(const trm_host_quantized *weights, int64_t first, int64_t rows,
                                        const uint16_t *x, int64_t m, float *out, int64_t stride)
{
    float sums[TRM_TILE_ROWS * TRM_TILE_ROWS];
    for (int64_t i = 0; i < rows; i += TRM_TILE_ROWS) {
        group g = {.q = weights, .row = first + i, .rows = trm_host_min(rows - i, TRM_TILE_ROWS)};
        for (int64_t r = 0; r < g.rows; r++) {
            g.scales[r] = (g.row + r) / weights->block_n * weights->scales;
        }
        if (i == 0 || g.rows < TRM_TILE_ROWS) {
            configure(g.rows, m);
        }
        dot_quantized(&g, x, m, sums);
        for (int64_t r = 0; r < m; r++) {
            for (int64_t j = 0; j < g.rows; j++) {
                out[r * stride + i + j] = sums[j * TRM_TILE_ROWS + r];
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
