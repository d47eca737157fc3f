#include "kernels/moe/host_few_dot.h"

#include <string.h>

#include "kernels/host/host.h"
#include "kernels/moe/host_few.h"

#define MAX_ROWS TRM_MOE_FEW_TOKENS

static const float f4_numbers[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* ---- f32 ------------------------------------------------------------------------------------------ */

#define PIECE  512 /* columns that become f32 at a time */
#define LANES  16
#define CHAINS 4

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

/* `n` numbers of 4 bits, from an even column on, less `zero` by the table, times their scale. */
static inline void load_nibbles(const uint8_t *from, const float *table, float scale, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = table[from[i / 2] >> (i % 2 * 4) & 15u] * scale;
    }
}

/* Columns at .. at + n - 1 of absolute row r, all of one scale. */
static inline void load_columns(const trm_moe_matrix *m, int64_t expert, int64_t row, int64_t at, int64_t n, float *to)
{
    const int64_t r = expert * m->rows + row, first = r * m->columns + at;
    const uint8_t *bytes = m->data;
    float buffer[PIECE], table[16];
    switch (m->format) {
    case TRM_MOE_HALVES: {
        const float *from = trm_host_load(m->type, m->data, first, n, buffer);
        memcpy(to, from, (size_t)n * sizeof(*to));
        return;
    }
    case TRM_MOE_MXFP4: {
        const float scale = (float)trm_small_float_decode(TRM_F8E8M0, ((const uint8_t *)m->scale)[first / 32]);
        load_nibbles(bytes + first / 2, f4_numbers, scale, n, to);
        return;
    }
    case TRM_MOE_INT4: {
        const int32_t zero = m->zero != NULL ? ((const uint8_t *)m->zero)[first / m->group] : 8;
        for (int32_t i = 0; i < 16; i++) {
            table[i] = (float)(i - zero);
        }
        load_nibbles(bytes + first / 2, table, trm_element_load_f32(m->scale_type, m->scale, first / m->group), n, to);
        return;
    }
    case TRM_MOE_INT8: {
        const float scale = trm_element_load_f32(m->scale_type, m->scale, first / m->group);
        for (int64_t i = 0; i < n; i++) {
            to[i] = (float)((const int8_t *)m->data)[first + i] * scale;
        }
        return;
    }
    default: {
        const int64_t down = trm_moe_divide_up(m->rows, 128), across = trm_moe_divide_up(m->columns, 128);
        const float *scales = m->scale;
        const float scale =
            m->format == TRM_MOE_F8_ROWS ? scales[r] : scales[(expert * down + row / 128) * across + at / 128];
        for (int64_t i = 0; i < n; i++) {
            to[i] = trm_f8e4m3_to_f32(bytes[first + i]) * scale;
        }
    }
    }
}

/* Columns that share a scale. */
static int64_t block_of(const trm_moe_matrix *m)
{
    switch (m->format) {
    case TRM_MOE_MXFP4:
        return 32;
    case TRM_MOE_F8_BLOCKS:
        return 128;
    case TRM_MOE_INT4:
    case TRM_MOE_INT8:
        return m->group;
    default:
        return m->columns;
    }
}

static inline float dot_f32(const float *a, const float *b, int64_t n)
{
    lanes sums[CHAINS] = {{0}};
    float parts[LANES], rest = 0.0f;
    int64_t i = 0;
    for (; i + CHAINS * LANES <= n; i += CHAINS * LANES) {
        for (int c = 0; c < CHAINS; c++) {
            sums[c] += *(const lanes *)(a + i + c * LANES) * *(const lanes *)(b + i + c * LANES);
        }
    }
    for (; i < n; i++) {
        rest += a[i] * b[i];
    }
    const lanes all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    memcpy(parts, &all, sizeof(parts));
    for (int half = LANES / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++) {
            parts[j] += parts[j + half];
        }
    }
    return parts[0] + rest;
}

TRM_VECTOR_CLONES static void dot_floats(const trm_moe_matrix *m, int64_t expert, int64_t row, const void *const *x,
                                         int32_t n, float *out)
{
    float piece[PIECE];
    double sums[MAX_ROWS] = {0};
    const int64_t block = block_of(m);
    for (int64_t at = 0; at < m->columns;) {
        int64_t filled = 0; /* several blocks to a piece */
        const int64_t begin = at;
        while (at < m->columns && filled < PIECE) {
            const int64_t end = trm_host_min((at / block + 1) * block, m->columns);
            const int64_t count = trm_host_min(end - at, PIECE - filled);
            load_columns(m, expert, row, at, count, piece + filled);
            filled += count;
            at += count;
        }
        for (int32_t r = 0; r < n; r++) {
            sums[r] += (double)dot_f32((const float *)x[r] + begin, piece, filled);
        }
    }
    for (int32_t r = 0; r < n; r++) {
        out[r] = (float)sums[r];
    }
}

/* ---- bf16 ----------------------------------------------------------------------------------------- */

#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__)

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define INLINE TARGET static inline __attribute__((always_inline))
/* How far ahead weights are asked for: the processor's own prefetching ends with a page. */
#define AHEAD 1024

/* What does not change along a row. */
typedef struct row_source {
    const uint8_t *numbers, *zeros;
    const void *scales;
    trm_dtype scale_type;
    int64_t group; /* INT4, INT8 */
    __m512i table; /* bf16 of numbers of 4 bits, twice */
} row_source;

INLINE float scale_at(trm_dtype type, const void *scales, int64_t i)
{
    return type == TRM_F32    ? ((const float *)scales)[i]
           : type == TRM_BF16 ? trm_bf16_to_f32(((const uint16_t *)scales)[i])
                              : trm_f16_to_f32(((const uint16_t *)scales)[i]);
}

/* bf16 of 0 .. 15 less a zero point, twice: a look-up goes by five bits, of which the last is another number's. */
INLINE __m512i integer_table(int32_t zero)
{
    const __m512i iota = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512 numbers = _mm512_cvtepi32_ps(_mm512_sub_epi32(iota, _mm512_set1_epi32(zero)));
    return _mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(numbers), 16)));
}

INLINE __m512i f4_table(void)
{
    const __m512i bits = _mm512_srli_epi32(_mm512_castps_si512(_mm512_loadu_ps(f4_numbers)), 16);
    return _mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(bits));
}

/* F8E4M3 in the upper half of each word as bf16: exponents of four bits move to those of eight. The codes below 8,
 * which have no leading bit, and NaN, the last, are looked up by five of their bits. */
INLINE __m512i widen_e4m3(__m256i codes)
{
    /* multiples of 2^-9 up to the seventh, and NaN at place 31 */
    const __m512i rare = _mm512_set_epi64(0x7fc0000000000000, 0, 0, 0, 0, 0, 0x3c603c403c203c00, 0x3bc03b803b000000);
    const __m512i words = _mm512_slli_epi16(_mm512_cvtepu8_epi16(codes), 8);
    const __m512i code = _mm512_and_si512(words, _mm512_set1_epi16(0x7f00));
    const __m512i normal = _mm512_add_epi16(_mm512_srli_epi16(code, 4), _mm512_set1_epi16((127 - 7) << 7));
    const __mmask32 is_rare =
        _mm512_cmpge_epu16_mask(_mm512_sub_epi16(code, _mm512_set1_epi16(8 << 8)), _mm512_set1_epi16((0x7f - 8) << 8));
    const __m512i magnitude = _mm512_mask_permutexvar_epi16(normal, is_rare, _mm512_srli_epi16(words, 8), rare);
    return _mm512_or_si512(magnitude, _mm512_and_si512(words, _mm512_set1_epi16((short)0x8000)));
}

INLINE __m512i widen_i8(__m256i bytes)
{
    const __m512i words = _mm512_cvtepi8_epi16(bytes);
    const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_castsi512_si256(words)));
    const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(words, 1)));
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* `n` columns of a unit, from column `at` on, as two registers of bf16; what is past them is a number. */
INLINE void load_unit(trm_moe_format format, const row_source *s, int64_t at, int64_t n, __m512i to[2])
{
    const __mmask64 mask = n >= TRM_MOE_UNIT ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
    if (format == TRM_MOE_HALVES) {
        const uint8_t *from = s->numbers + at * 2;
        _mm_prefetch((const char *)from + AHEAD, _MM_HINT_T0);
        _mm_prefetch((const char *)from + AHEAD + 64, _MM_HINT_T0);
        to[0] = _mm512_maskz_loadu_epi16((__mmask32)mask, from);
        to[1] = _mm512_maskz_loadu_epi16((__mmask32)(mask >> 32), from + 64);
        return;
    }
    if (format == TRM_MOE_MXFP4 || format == TRM_MOE_INT4) { /* bytes of an even and an odd column */
        const uint8_t *from = s->numbers + at / 2;
        const __mmask32 bytes = n >= TRM_MOE_UNIT ? ~(__mmask32)0 : ((__mmask32)1 << n / 2) - 1;
        _mm_prefetch((const char *)from + AHEAD, _MM_HINT_T0);
        const __m512i words = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(bytes, from));
        __m512i table = s->table;
        if (format == TRM_MOE_INT4 && s->zeros != NULL) {
            table = integer_table(s->zeros[at / s->group]);
        }
        to[0] = _mm512_permutexvar_epi16(words, table);
        to[1] = _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), table);
        return;
    }
    const uint8_t *from = s->numbers + at;
    _mm_prefetch((const char *)from + AHEAD, _MM_HINT_T0);
    const __m256i low = _mm256_maskz_loadu_epi8((__mmask32)mask, from);
    const __m256i high = _mm256_maskz_loadu_epi8((__mmask32)(mask >> 32), from + 32);
    to[0] = format == TRM_MOE_INT8 ? widen_i8(low) : widen_e4m3(low);
    to[1] = format == TRM_MOE_INT8 ? widen_i8(high) : widen_e4m3(high);
}

INLINE __m512 multiply(__m512 sums, __m512i weights, const uint16_t *x)
{
    return _mm512_dpbf16_ps(sums, (__m512bh)weights, (__m512bh)_mm512_loadu_si512(x));
}

/* Scales of MXFP4 of up to 16 blocks as f32. */
INLINE __m512 load_e8m0(const uint8_t *scales, int64_t n)
{
    const __mmask16 mask = n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1);
    const __m512i codes = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, scales));
    const __m512i bits = _mm512_max_epu32(_mm512_slli_epi32(codes, 23), _mm512_set1_epi32(0x00400000)); /* 2^-127 */
    const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255));
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, is_nan, _mm512_set1_epi32(0x7fc00000)));
}

/* out [m] = a row of weights times m rows. Inlined with constant format and m. */
INLINE void dot_row(trm_moe_format format, int m, const trm_moe_matrix *w, int64_t expert, int64_t row,
                    const void *const *x, float *out)
{
    const int64_t r = expert * w->rows + row, columns = w->columns;
    const int64_t across = trm_moe_divide_up(columns, 128), down = trm_moe_divide_up(w->rows, 128);
    const bool nibbles = format == TRM_MOE_MXFP4 || format == TRM_MOE_INT4;
    const int64_t block = format == TRM_MOE_F8_BLOCKS ? 128 : w->group; /* not of MXFP4 */
    row_source s = {.numbers = (const uint8_t *)w->data + r * (nibbles                    ? columns / 2
                                                               : format == TRM_MOE_HALVES ? columns * 2
                                                                                          : columns)};
    if (format == TRM_MOE_MXFP4) {
        s.scales = (const uint8_t *)w->scale + r * (columns / 32);
        s.table = f4_table();
    } else if (format == TRM_MOE_F8_BLOCKS) {
        s.scales = (const float *)w->scale + (expert * down + row / 128) * across;
        s.scale_type = TRM_F32;
    } else if (format == TRM_MOE_INT4 || format == TRM_MOE_INT8) {
        const int64_t groups = columns / w->group;
        s.group = w->group;
        s.scale_type = w->scale_type;
        s.scales = (const uint8_t *)w->scale + r * groups * (w->scale_type == TRM_F32 ? 4 : 2);
        s.zeros = w->zero != NULL ? (const uint8_t *)w->zero + r * groups : NULL;
        s.table = integer_table(8);
    }
    __m512 sums[MAX_ROWS], parts[MAX_ROWS], scales = _mm512_setzero_ps();
    const __m512i halves = _mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    for (int i = 0; i < m; i++) {
        sums[i] = parts[i] = _mm512_setzero_ps();
    }
    for (int64_t at = 0; at < columns; at += TRM_MOE_UNIT) {
        const int64_t left = columns - at;
        __m512i weights[2];
        load_unit(format, &s, at, left, weights);
        for (int i = 0; i < m; i++) {
            const uint16_t *with = (const uint16_t *)x[i] + at;
            if (format == TRM_MOE_HALVES) { /* two chains */
                sums[i] = multiply(sums[i], weights[0], with);
                parts[i] = multiply(parts[i], weights[1], with + 32);
            } else {
                parts[i] = multiply(multiply(parts[i], weights[0], with), weights[1], with + 32);
            }
        }
        if (format == TRM_MOE_MXFP4) { /* lanes 0 to 7 have the first 32 columns, 8 to 15 the others */
            if (at % (8 * TRM_MOE_UNIT) == 0) {
                scales = load_e8m0((const uint8_t *)s.scales + at / 32, left / 32);
            }
            const int32_t pair = (int32_t)(at / TRM_MOE_UNIT % 8 * 2);
            const __m512 both = _mm512_permutexvar_ps(_mm512_add_epi32(halves, _mm512_set1_epi32(pair)), scales);
            for (int i = 0; i < m; i++) {
                sums[i] = _mm512_fmadd_ps(parts[i], both, sums[i]);
                parts[i] = _mm512_setzero_ps();
            }
        } else if (format != TRM_MOE_HALVES && format != TRM_MOE_F8_ROWS &&
                   (left <= TRM_MOE_UNIT || (at + TRM_MOE_UNIT) % block == 0)) {
            const __m512 scale = _mm512_set1_ps(scale_at(s.scale_type, s.scales, at / block));
            for (int i = 0; i < m; i++) {
                sums[i] = _mm512_fmadd_ps(parts[i], scale, sums[i]);
                parts[i] = _mm512_setzero_ps();
            }
        }
    }
    for (int i = 0; i < m; i++) {
        const float sum = _mm512_reduce_add_ps(_mm512_add_ps(sums[i], parts[i]));
        out[i] = format == TRM_MOE_F8_ROWS ? sum * ((const float *)w->scale)[r] : sum;
    }
}

/* By 8, 4, 2 and 1 rows. */
#define DOT(format, suffix)                                                                                            \
    TARGET static void dot_##suffix(const trm_moe_matrix *w, int64_t expert, int64_t row, const void *const *x,        \
                                    int32_t n, float *out)                                                             \
    {                                                                                                                  \
        for (; n >= 8; n -= 8, x += 8, out += 8) {                                                                     \
            dot_row(format, 8, w, expert, row, x, out);                                                                \
        }                                                                                                              \
        for (; n >= 4; n -= 4, x += 4, out += 4) {                                                                     \
            dot_row(format, 4, w, expert, row, x, out);                                                                \
        }                                                                                                              \
        for (; n >= 2; n -= 2, x += 2, out += 2) {                                                                     \
            dot_row(format, 2, w, expert, row, x, out);                                                                \
        }                                                                                                              \
        for (; n >= 1; n--, x++, out++) {                                                                              \
            dot_row(format, 1, w, expert, row, x, out);                                                                \
        }                                                                                                              \
    }

DOT(TRM_MOE_HALVES, halves)
DOT(TRM_MOE_MXFP4, mxfp4)
DOT(TRM_MOE_F8_BLOCKS, f8_blocks)
DOT(TRM_MOE_F8_ROWS, f8_rows)
DOT(TRM_MOE_INT4, int4)
DOT(TRM_MOE_INT8, int8)

static trm_moe_dot_fn halves_dot(const trm_moe_matrix *m)
{
    static const trm_moe_dot_fn all[] = {
        [TRM_MOE_HALVES] = dot_halves,   [TRM_MOE_MXFP4] = dot_mxfp4, [TRM_MOE_F8_BLOCKS] = dot_f8_blocks,
        [TRM_MOE_F8_ROWS] = dot_f8_rows, [TRM_MOE_INT4] = dot_int4,   [TRM_MOE_INT8] = dot_int8};
    const bool grouped = m->format == TRM_MOE_INT4 || m->format == TRM_MOE_INT8;
    const bool whole = !grouped || m->group % TRM_MOE_UNIT == 0 || m->group == m->columns;
    return m->type == TRM_BF16 && whole && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
               ? all[m->format]
               : NULL;
}

#else

static trm_moe_dot_fn halves_dot(const trm_moe_matrix *m)
{
    (void)m;
    return NULL;
}

#endif

trm_moe_dot trm_moe_dot_of(const trm_moe_matrix *m)
{
    const trm_moe_dot_fn fast = halves_dot(m);
    const bool nibbles = m->format == TRM_MOE_MXFP4 || m->format == TRM_MOE_INT4;
    return (trm_moe_dot){fast != NULL ? fast : dot_floats, fast != NULL, nibbles};
}
