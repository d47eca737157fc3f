/* What the warps of a block of hopper.cuh share: the call, tiles of queries, shared memory and its barriers. */
#ifndef TRM_ATTENTION_CUDA_HOPPER_SHAPE_CUH
#define TRM_ATTENTION_CUDA_HOPPER_SHAPE_CUH

#include "attention/cuda/attention.h"
#include "attention/cuda/geometry.h"
#include "kernels/cuda/wgmma.cuh"

/* What the kernel needs besides the call. */
typedef struct hopper_call {
    trm_cuda_attention a;
    int32_t box_keys; /* rows of a box of keys or values: neighbours in memory whatever the block table says */
    int32_t pack;     /* query heads of one key-value head that share a tile; 1: a tile has one head */
    uint32_t *next;   /* number of the next tile, 0 when the kernel starts; NULL: tiles are dealt out in advance */
} hopper_call;

/* One tile of queries, as the loading warp describes it to the others. */
typedef struct hopper_tile {
    int32_t first;     /* token of the sequence's first query; -1: there are no more tiles */
    int32_t start;     /* query of the tile's first row */
    int32_t queries;   /* of the sequence */
    int32_t keys;      /* of the sequence */
    int32_t head;      /* query head of the tile's first row */
    int32_t low, high; /* tiles of keys that any row sees */
    int32_t sequence;
} hopper_tile;

/* The tensor maps of a call: boxes of 64 rows of queries, of `box_keys` keys or values, of a whole tile of them. */
typedef struct hopper_maps {
    CUtensorMap q, k_boxes, v_boxes, k_tiles, v_tiles;
} hopper_maps;

/* F8: keys and values are of an e4m3 cache, and two warps each expand them. VP: of a value, if not as many as of a key;
 * then it is latent attention, whose k_tiles are [tokens, heads, DP - 64 of a key and VP of a value], and k_boxes the
 * 64 of a key that all heads share. */
template <int DP_, int KEYS_, int GROUPS_, bool F8_ = false, int VP_ = DP_> struct hopper_shape {
    static const int DP = DP_, VP = VP_, KEYS = KEYS_, GROUPS = GROUPS_, STAGES = 2;
    static const bool F8 = F8_, LATENT = VP != DP;
    static const int ROWS = 64 * GROUPS;                /* of a tile of queries, 64 for each consuming warp group */
    static const int THREADS = 128 * (GROUPS + 1);      /* the first warp group loads */
    static const int SWIZZLE = DP % 64 == 0 ? 128 : 64; /* bytes of a panel's row */
    static const int COLUMNS = SWIZZLE / 2;             /* elements of it */
    static const int PANELS = DP / COLUMNS;
    static const int Q_BYTES = 64 * DP * 2;      /* of one warp group */
    static const int TILE_BYTES = KEYS * DP * 2; /* of a tile of keys */
    static const int VALUE_BYTES = KEYS * VP * 2;
    static const int BARRIERS = 4 * STAGES + 2 * GROUPS + 4 + 1;
    static const int TILES_AT = GROUPS * Q_BYTES + STAGES * (TILE_BYTES + VALUE_BYTES);
    static const int BARRIERS_AT = TILES_AT + 2 * 32;
    static const int SHARED = BARRIERS_AT + 8 * BARRIERS + 1024; /* 1024: to align the panels */
    static const int LOAD_REGISTERS = F8 ? 72 : GROUPS == 2 ? 40 : 32;
    static const int REGISTERS = F8 ? 216 : GROUPS == 2 ? 232 : GROUPS == 3 ? 160 : 0;
    static const int LOADERS = F8 ? 2 : 1; /* warps that bring keys, and as many that bring values */
    static_assert(!LATENT || (SWIZZLE == 128 && VP % 64 == 0 && !F8), "values are whole panels");
    static_assert(!F8 || GROUPS == 2, "the loaders' registers are those that two groups leave");
};

/* Addresses in shared memory. */
template <typename S> struct hopper_shared {
    uint32_t q, k, v, tiles, barriers;
    __device__ __forceinline__ uint32_t k_full(int stage) const
    {
        return barriers + 8 * stage;
    }
    __device__ __forceinline__ uint32_t k_empty(int stage) const
    {
        return barriers + 8 * (S::STAGES + stage);
    }
    __device__ __forceinline__ uint32_t v_full(int stage) const
    {
        return barriers + 8 * (2 * S::STAGES + stage);
    }
    __device__ __forceinline__ uint32_t v_empty(int stage) const
    {
        return barriers + 8 * (3 * S::STAGES + stage);
    }
    __device__ __forceinline__ uint32_t q_full(int group) const
    {
        return barriers + 8 * (4 * S::STAGES + group);
    }
    __device__ __forceinline__ uint32_t q_empty(int group) const
    {
        return barriers + 8 * (4 * S::STAGES + S::GROUPS + group);
    }
    __device__ __forceinline__ uint32_t tile_full(int slot) const
    {
        return barriers + 8 * (4 * S::STAGES + 2 * S::GROUPS + slot);
    }
    __device__ __forceinline__ uint32_t tile_empty(int slot) const
    {
        return tile_full(2 + slot);
    }
    __device__ __forceinline__ uint32_t tail_full(void) const
    {
        return tile_full(4);
    }
};

/* The tile that the loading warp gives out in turn number `turn`; called by a warp that did not find it itself. */
template <typename S>
static __device__ __forceinline__ hopper_tile take_tile(const hopper_shared<S> &shared, const unsigned char *slots,
                                                        int32_t turn, int lane)
{
    int slot = turn & 1;
    barrier_wait(shared.tile_full(slot), turn >> 1 & 1);
    hopper_tile t = *(const hopper_tile *)(slots + 32 * slot);
    __syncwarp();
    if (lane == 0) {
        barrier_arrive(shared.tile_empty(slot));
    }
    return t;
}

#endif
