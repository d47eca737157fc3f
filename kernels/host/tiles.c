#include "kernels/host/tiles.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TILES __attribute__((target("amx-tile,amx-bf16,avx512f")))
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
        !__builtin_cpu_supports("avx512f")) {
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

#else

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
