/* What the CUDA files of the experts' layer share. Internal to them. */
#ifndef TRM_KERNELS_MOE_CUDA_MOE_H
#define TRM_KERNELS_MOE_CUDA_MOE_H

#include <cuda_runtime_api.h>

#include "kernels/moe/moe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* cuda_plain.cu: for what the others do not take. */
trm_status trm_cuda_moe_router_plain(const trm_moe_router *p, cudaStream_t stream);
bool trm_cuda_moe_experts_plain_accepts(const trm_moe_experts *p);
trm_status trm_cuda_moe_experts_plain(const trm_moe_experts *p, cudaStream_t stream);

/* cuda_pairs.cu: two kernels for a few tokens. The form of either is a number below trm_cuda_moe_pairs_forms(). */
void trm_cuda_moe_pairs_choose(const trm_moe_experts *p, trm_moe_plan *plan);
size_t trm_cuda_moe_pairs_workspace(const trm_moe_experts *p);
trm_status trm_cuda_moe_pairs_run(const trm_moe_experts *p, const trm_moe_plan *plan, void *workspace,
                                  cudaStream_t stream);

/* cuda_pairs_f4.cu: the same with weights of MXFP4, and bf16. */
size_t trm_cuda_moe_pairs_f4_workspace(const trm_moe_experts *p);
trm_status trm_cuda_moe_pairs_f4_run(const trm_moe_experts *p, void *workspace, cudaStream_t stream);

/* cuda_pairs_f8.cu: the same with weights of e4m3. */
trm_status trm_cuda_moe_pairs_f8_run(const trm_moe_experts *p, void *workspace, cudaStream_t stream);

/* cuda_sort.cu: which tokens every expert has, and how they are cut into tiles. */
typedef struct trm_moe_tile {
    int32_t expert, row, rows; /* rows of the sorted order from `row` on */
    int32_t first, tiles;      /* the first of the expert's tiles, and how many it has */
} trm_moe_tile;

typedef struct trm_moe_order {
    int32_t *tiles_n;    /* [1]: how many there are */
    trm_moe_tile *tiles; /* those of an expert one after the other */
    int32_t *pairs;      /* [tokens * k]: token * k + slot, in the order of experts, then of themselves */
} trm_moe_order;

/* Most tiles of up to `rows` rows that there can be. */
int64_t trm_cuda_moe_most_tiles(const trm_moe_experts *p, int32_t rows);
bool trm_cuda_moe_sort_accepts(const trm_moe_experts *p);
trm_status trm_cuda_moe_sort_run(const trm_moe_experts *p, const trm_moe_order *order, int32_t rows,
                                 cudaStream_t stream);

/* cuda_grouped.cu: products over tiles of the sorted order. */
bool trm_cuda_moe_grouped_accepts(const trm_moe_experts *p);
bool trm_cuda_moe_splits(const trm_moe_experts *p); /* tokens into e4m3: then few tokens are enough to win */
void trm_cuda_moe_grouped_choose(const trm_moe_experts *p, trm_moe_plan *plan);
size_t trm_cuda_moe_grouped_workspace(const trm_moe_experts *p, const trm_moe_plan *plan);
/* What lies where in the workspace. */
typedef struct grouped_room {
    trm_moe_order order;
    void *x, *h, *parts; /* x: rows in their order, or NULL */
    void *h_split;       /* h as numbers of e4m3, and the units of its or x's rows; NULL if they are not split */
    float *units;
    size_t bytes;
} grouped_room;

trm_status trm_cuda_moe_grouped_f4_run(const trm_moe_experts *p, const trm_moe_plan *plan, const grouped_room *room,
                                       cudaStream_t stream); /* cuda_grouped_f4.cu */
trm_status trm_cuda_moe_grouped_f8_run(const trm_moe_experts *p, const trm_moe_plan *plan, const grouped_room *room,
                                       cudaStream_t stream); /* cuda_grouped_f8.cu */
trm_status trm_cuda_moe_grouped_run(const trm_moe_experts *p, const trm_moe_plan *plan, void *workspace,
                                    cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
