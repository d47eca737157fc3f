/*
 * Products of bf16 by the matrix unit of x86 processors that have one (AMX): up to 16 rows of weights meet up to 16
 * rows of x at once, summed in f32. What a row of x gives does not depend on how many there are. Denormal numbers
 * count as zero.
 */
#ifndef TRM_KERNELS_HOST_TILES_H
#define TRM_KERNELS_HOST_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"

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

#endif
