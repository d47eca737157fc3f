/*
 * DELTA_NET for heads of 128 keys and 128 values: what its launches are given.
 */
#ifndef TRM_KERNELS_DELTA_CUDA_NET_CUH
#define TRM_KERNELS_DELTA_CUDA_NET_CUH

#include "kernels/delta/cuda_chunk.cuh"

#define DIM    TRM_DELTA_DIM
#define TAPS   4 /* at most */
#define ROWS   (DIM / 4)
#define STRIDE (ROWS + 4) /* of a quarter of q or k in shared memory: four lanes read 16 bytes each of other banks */

typedef struct trm_delta_net {
    trm_delta_sequences sequences;
    const void *x, *gates; /* rows of x_width and gates_width elements */
    int64_t x_width, gates_width, tokens;
    int32_t key_heads, heads, taps, cache_places, places, z, a, b;
    const void *weights[3];      /* [channels, taps] of q, k and v */
    void *caches[3];             /* [slots, cache_places, channels] */
    const float *a_log, *a_bias; /* [heads] */
    float *state;                /* [slots, places, heads, DIM, DIM] */
    const void *norm;            /* [DIM] */
    void *out;                   /* [tokens, heads * DIM] */
    trm_activation activation, gate;
    float eps, norm_eps, weight_offset;
    bool by_run;  /* of the first launch: a block has RUN tokens, not a sequence */
    bool early;   /* starts, lengths and slots may be read before the wait, and so may the state */
    bool chunked; /* tokens go by chunks where a sequence has enough */
    trm_dtype dtype;
    /* In the workspace: */
    float *unit_q, *unit_k; /* [tokens, key_heads, DIM], by chunks of the other type and half as long */
    float *qk;              /* [tokens, key_heads]: their products */
    float *rates;           /* [tokens, heads, 2]: decay, by chunks its logarithm; strength */
    void *v, *y, *w;        /* [tokens, heads, DIM]; w by chunks alone */
    void *scores;           /* [tokens, heads, CHUNK], likewise */
} trm_delta_net;

/* All of a step whose sequences have a token or few, as one launch that needs no workspace. Its argument is a
 * trm_delta_net. */
bool trm_cuda_delta_step_fits(const trm_delta_net *a);
trm_status trm_cuda_delta_step(void *net, trm_stream *stream);

#endif
