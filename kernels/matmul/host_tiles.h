/*
 * Products of bf16 by the matrix unit of x86 processors that have one (AMX): up to 16 rows of weights meet up to 16
 * rows of x at once, summed in f32. What a row of x gives does not depend on how many there are. Denormal numbers
 * count as zero.
 */
#ifndef TRM_KERNELS_MATMUL_HOST_TILES_H
#define TRM_KERNELS_MATMUL_HOST_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "kernels/kernel.h"

#define TRM_TILE_ROWS 16 /* of weights, and of x at most */
#define TRM_TILE_K    32 /* K is a multiple of it */

/* Whether this processor and its system have it. */
bool trm_host_tiles_are_there(void);

/* Rows [m, k] of x in the order the unit reads, pairs of a column [k / 2, m, 2]: in `room` of as many elements, or x
 * itself where that is the same. */
const uint16_t *trm_host_tiles_arrange(trm_pool *pool, const uint16_t *x, int64_t m, int64_t k, uint16_t *room);

/* out[r * stride + i] = row r of arranged x times row i of `rows` weight rows, each k long. */
void trm_host_tiles_dot(const uint16_t *weights, int64_t rows, const uint16_t *x, int64_t m, int64_t k, float *out,
                        int64_t stride);

/* Weights [n, k] in 8 or 4 bits, as DEQUANT_MATMUL has them. */
typedef struct trm_host_quantized {
    const trm_view *weight, *scale, *zero_point; /* zero_point may be NULL */
    int64_t k;
    int64_t block_n, block_k; /* the rows and columns of one scale; block_k is k for whole rows */
    int64_t scales;           /* in a row */
} trm_host_quantized;

/* Whether K and the blocks are such that the unit takes them. */
bool trm_host_tiles_take(const trm_host_quantized *weights);

/* As trm_host_tiles_dot, of weight rows first .. first + rows - 1, which become bf16 without rounding; each block's
 * sums are scaled. */
void trm_host_tiles_dot_quantized(const trm_host_quantized *weights, int64_t first, int64_t rows, const uint16_t *x,
                                  int64_t m, float *out, int64_t stride);

#endif
