/*
 * What the implementations of the attention layer share: one call, checked and described.
 */
#ifndef TRM_ATTENTION_ATTENTION_IMPL_H
#define TRM_ATTENTION_ATTENTION_IMPL_H

#include <trireme/layers/attention.h>

#include "attention/cache_share.h"
#include "kernels/program.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trm_kernel_parts; /* kernels/parts.h */

typedef struct trm_attention_shape {
    bool packed;           /* PACKED_NHD */
    bool rows_first;       /* PADDED_BNHD: a row's heads lie together */
    bool cached;           /* packed with a paged cache */
    int64_t sequences;     /* S, or B in the padded form */
    int64_t tokens;        /* T; 0 in the padded form */
    int64_t queries, keys; /* N, M of the padded form; 0 in the packed form, where each sequence has its own */
    int64_t query_heads, kv_heads;
    int64_t dim, value_dim;  /* D, Dv */
    int64_t table_blocks;    /* columns of the block table */
    int64_t block_size;      /* keys per block of the cache */
    int64_t mask_strides[4]; /* elements per step of [B, Hq, N, M], 0 where the mask repeats */
    bool masked, sinks;
    trm_dtype cache_dtype; /* cached: q's type or F8E4M3 */
    float scale;           /* 1/sqrt(D) put in for 0; of an F8E4M3 cache times k_scale: keys are taken as stored */
    /* What keys and values are multiplied by before they are stored, and the sum of weighted values as stored; 1 where
     * the cache is not F8E4M3. */
    float key_inverse, value_inverse, value_scale;
    trm_cache_share share; /* of the keys that the cache has */
} trm_attention_shape;

/* Describes a call; false if its inputs do not fit the layer. Types other than f32, f16 and bf16, and n_ranks are the
 * caller's to judge. */
bool trm_attention_describe(const trm_kernel_call *call, trm_attention_shape *shape);

/* LATENT_ATTENTION. */
typedef struct trm_latent_shape {
    trm_view weight; /* [heads, plain + value_dim, rank] */
    int64_t heads, plain, rotated, value_dim, rank;
    /* The absorbed form: queries times the weights of keys, over latents and rope keys of one head whose first `rank`
     * elements are the values; then times the weights of values. */
    trm_attention_shape absorbed;
} trm_latent_shape;

/* Describes a call; false if its inputs do not fit the layer. *attention, with its layer in *desc, is the absorbed form
 * over the cache: its q and output have the addresses, but not the dims, of this call's; k is latents, v rope keys. */
bool trm_latent_attention_describe(const trm_kernel_call *call, struct trm_layer_desc *desc, trm_kernel_call *attention,
                                   trm_latent_shape *shape);

/* A QKV_ATTENTION call as one of ATTENTION, in *attention with its layer in *desc: the same except for q, k and v,
 * which have no addresses. False if the inputs do not fit. */
bool trm_qkv_attention_describe(const trm_kernel_call *call, struct trm_layer_desc *desc, trm_kernel_call *attention,
                                trm_attention_shape *shape);

/* An ATTENTION_QUANTIZE call as one of ATTENTION, whose output has no address. False if it is none. */
bool trm_attention_quantize_describe(const trm_kernel_call *call, trm_kernel_call *attention,
                                     trm_attention_shape *shape);
/* ATTENTION_QUANTIZE and QKV_ATTENTION as the layers they stand for. */
bool trm_attention_quantize_parts(const trm_kernel_call *call, struct trm_kernel_parts *parts);
bool trm_qkv_attention_parts(const trm_kernel_call *call, struct trm_kernel_parts *parts);

/* ATTENTION_JOIN. */
typedef struct trm_attention_join_shape {
    int64_t tokens, heads, value_dim; /* of the output */
    int32_t ranks;
} trm_attention_join_shape;

/* Describes a call; false if its inputs do not fit the layer. */
bool trm_attention_join_describe(const trm_kernel_call *call, trm_attention_join_shape *shape);

bool trm_host_attention_join_accepts(const trm_kernel_call *call);
trm_status trm_host_attention_join_run(const trm_kernel_call *call);
bool trm_host_attention_accepts(const trm_kernel_call *call);
trm_status trm_host_attention_prepare(const trm_kernel_call *call, trm_program *program);
bool trm_host_latent_attention_accepts(const trm_kernel_call *call);
trm_status trm_host_latent_attention_prepare(const trm_kernel_call *call, trm_program *program);

#if TRM_HAVE_CUDA
bool trm_cuda_attention_join_accepts(const trm_kernel_call *call);
trm_status trm_cuda_attention_join_run(const trm_kernel_call *call);
bool trm_cuda_attention_accepts(const trm_kernel_call *call);
size_t trm_cuda_attention_workspace(const trm_kernel_call *call);
trm_status trm_cuda_attention_prepare(const trm_kernel_call *call, trm_program *program);
/* The padded form by two products of the library with the scores in the workspace, where tensor cores do not take it.
 */
bool trm_cuda_attention_products_accepts(const trm_kernel_call *call);
size_t trm_cuda_attention_products_workspace(const trm_kernel_call *call);
trm_status trm_cuda_attention_products_prepare(const trm_kernel_call *call, trm_program *program);
/* The first with prefill by Hopper's products, where the device is one. */
bool trm_cuda_attention_hopper_accepts(const trm_kernel_call *call);
trm_status trm_cuda_attention_hopper_prepare(const trm_kernel_call *call, trm_program *program);
/* ATTENTION_QUANTIZE as one launch, if *joined: where short.cu does it. */
trm_status trm_cuda_attention_quantize_prepare(const trm_kernel_call *call, trm_program *program, bool *joined);
bool trm_cuda_qkv_attention_accepts(const trm_kernel_call *call);
size_t trm_cuda_qkv_attention_workspace(const trm_kernel_call *call);
trm_status trm_cuda_qkv_attention_prepare(const trm_kernel_call *call, trm_program *program);
bool trm_cuda_latent_attention_accepts(const trm_kernel_call *call);
size_t trm_cuda_latent_attention_workspace(const trm_kernel_call *call);
trm_status trm_cuda_latent_attention_prepare(const trm_kernel_call *call, trm_program *program);
#endif

#ifdef __cplusplus
}
#endif
#endif
