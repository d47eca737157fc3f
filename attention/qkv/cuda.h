/*
 * The CUDA kernels of QKV_ATTENTION: their arguments and entry points.
 */
#ifndef TRM_ATTENTION_QKV_CUDA_H
#define TRM_ATTENTION_QKV_CUDA_H

#include "attention/cuda/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_QKV_BLOCKS     264 /* of 128 threads that run at once: two per multiprocessor of an H200 */
#define TRM_QKV_MOST_HEADS 4   /* key-value heads of a block */
/* Floats of a head's partial result in cuda_shares.cu: sums, maximum, sum of weights, aligned to 16 bytes. */
#define TRM_QKV_PART_ROW(dim) ((dim) + 4)

typedef struct trm_cuda_qkv {
    trm_cuda_attention a; /* as for ATTENTION, without q, k and v */
    const void *qkv;      /* [tokens, width]: (query_heads + 2 * kv_heads) * dim elements or more */
    int64_t width;
    const int32_t *positions, *rope_lengths; /* [tokens]; rope_lengths may be NULL */
    const float *inv_freq;
    const void *q_norm, *k_norm; /* [dim], or NULL */
    trm_rope_params rope;
    float eps, weight_offset;
    bool early;         /* what the caller gave (starts, lengths, table, positions) may be read before the wait */
    bool apart;         /* sequences of one query are done by trm_cuda_qkv_decode() alone, and others not by it */
    int32_t cluster;    /* blocks that share the keys of a head of a sequence: 1, 2, 4 or 8 */
    int32_t heads;      /* key-value heads of a block in cuda_direct.cu and cuda_shares.cu: 1, 2 or 4 */
    int32_t clusters;   /* such clusters at most in cuda.cu; each has a place in a.partial if there are several */
    bool shared_out;    /* cuda_shares.cu runs what it can */
    bool joined_apart;  /* and joins what blocks share by a kernel behind it */
    uint32_t *counters; /* of the stream, for cuda_shares.cu: see trm_cuda_stream_counters() */
} trm_cuda_qkv;

/* cuda.cu. Both: 16-bit floats, dim a multiple of 8 up to 256, addresses aligned to 16 bytes. */

/* Rotated keys, and values, into the cache; rotated queries into `queries` [tokens, query_heads, dim]; with qkv->apart
 * of sequences with several queries alone. Sets *next_tile to 0. */
trm_status trm_cuda_qkv_prepare(const trm_cuda_qkv *qkv, void *queries, uint32_t *next_tile, cudaStream_t stream);

/* cuda_prepare.cu: the same, to the bit, for what trm_cuda_qkv_prepares_whole(): not with qkv->apart. */
bool trm_cuda_qkv_prepares_whole(const trm_cuda_qkv *qkv);
trm_status trm_cuda_qkv_prepare_whole(const trm_cuda_qkv *qkv, void *queries, uint32_t *next_tile, cudaStream_t stream);

/* Everything, for steps in which hardly any sequence has several queries; with qkv->apart, which is for what
 * trm_cuda_qkv_is_direct(), all that the sequences of one query need. */
trm_status trm_cuda_qkv_decode(const trm_cuda_qkv *qkv, cudaStream_t stream);
/* cuda_direct.cu: the same, for what trm_cuda_qkv_is_direct(), by one cluster for each sequence and heads. */
bool trm_cuda_qkv_is_direct(const trm_cuda_qkv *qkv);
/* Sets qkv->cluster for qkv->heads. */
void trm_cuda_qkv_direct_cut(trm_cuda_qkv *qkv);
trm_status trm_cuda_qkv_direct(const trm_cuda_qkv *qkv, cudaStream_t stream);
/* cuda_shares.cu: the same, for what trm_cuda_qkv_is_direct(), all of it, whatever the lengths. */
trm_status trm_cuda_qkv_shares(const trm_cuda_qkv *qkv, cudaStream_t stream);
/* Chooses `cluster` and `clusters` for these dims; the same at every length a sequence may reach. */
void trm_cuda_qkv_clusters(const trm_attention_shape *shape, int32_t *cluster, int32_t *clusters);

#ifdef __cplusplus
}
#endif
#endif
