/*
 * INT8_PRODUCT on Hopper's tensor cores: i8 operands of which all channels of a position lie in a multiple of 16 bytes.
 */
#ifndef TRM_KERNELS_INT8_CUDA_TILES_H
#define TRM_KERNELS_INT8_CUDA_TILES_H

#include <cuda_runtime_api.h>

#include "kernels/int8/element.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_int8_tiles {
    trm_int8_product_args product;
    int64_t strides[3]; /* bytes from one position, row and image of x to the next */
    bool constant;      /* no kernel writes the weight */
} trm_int8_tiles;

/* Sizes of tiles: rows by columns of the output, parts of k that blocks of a cluster have, or blocks of a cluster that
 * share rows of the weight. */
/* clang-format off */
#define TRM_INT8_TILES(X) \
    X(128, 256, 1, 1) X(128, 128, 1, 1) X(128, 64, 1, 1) X(64, 128, 1, 1) X(64, 64, 1, 1) X(64, 32, 1, 1) \
    X(128, 256, 1, 2) X(128, 128, 1, 2) X(128, 64, 1, 2) \
    X(128, 64, 2, 1) X(64, 64, 2, 1) X(64, 64, 4, 1) X(64, 32, 2, 1) X(64, 32, 4, 1) X(64, 32, 8, 1)
/* clang-format on */
enum {
#define TRM_INT8_TILE(rows, columns, splits, share) TRM_INT8_TILE_##rows##x##columns##x##splits##x##share,
    TRM_INT8_TILES(TRM_INT8_TILE)
#undef TRM_INT8_TILE
        TRM_INT8_TILE_COUNT
};

bool trm_cuda_int8_tiles_fit(const trm_int8_tiles *tiles);
/* By tiles of one of these sizes; INVALID_ARGUMENT for no such size. */
trm_status trm_cuda_int8_tiles_launch(const trm_int8_tiles *tiles, int32_t size, cudaStream_t stream);
/* Whether k is long enough for the parts of a size; if not, it is launched with fewer. */
bool trm_cuda_int8_tiles_can_split(const trm_int8_tiles *tiles, int32_t size);
/* The size that is likely the fastest. */
int32_t trm_cuda_int8_tiles_choose(const trm_int8_tiles *tiles);

/* cuda.c: a call that trm_cuda_int8_tiles_accepts() takes, by tiles of this size. */
trm_status trm_cuda_int8_tiles_run(const trm_kernel_call *call, int32_t size);

/* Images [images, in[0], in[1], channels] as blocks of 2 x 2 positions, [images, grid[0], grid[1], 16]: channels of
 * (0, 0), (0, 1), (1, 0), (1, 1), then zeros. Block 0 begins `before` positions before the image; zeros outside. 4
 * channels at most. */
typedef struct trm_int8_blocks {
    const int8_t *from;
    int8_t *to; /* aligned to 16 bytes */
    int64_t images;
    int32_t channels, in[2], grid[2], before[2];
} trm_int8_blocks;
static inline int64_t trm_int8_block_count(const trm_int8_blocks *b)
{
    return b->images * b->grid[0] * b->grid[1];
}
/* Of x and of the weight. */
trm_status trm_cuda_int8_blocks(const trm_int8_blocks blocks[2], cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
