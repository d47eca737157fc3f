/*
 * The gated delta rule by chunks of 64 tokens, for the prompts of a DELTA_NET: two launches between the one that
 * prepares tokens and the one that goes token by token.
 */
#ifndef TRM_KERNELS_DELTA_CUDA_CHUNK_CUH
#define TRM_KERNELS_DELTA_CUDA_CHUNK_CUH

#include "kernels/delta/cuda_run.cuh"

#define TRM_DELTA_DIM 128 /* of keys and values */

typedef struct trm_delta_chunks {
    trm_delta_sequences sequences;
    int64_t tokens;
    int32_t key_heads, heads, places;
    trm_dtype dtype; /* of 16 bits */
    float *state;    /* [slots, places, heads, DIM, DIM] */
    /* Rows of tokens that go by chunks; the others are not touched. */
    const void *q, *k; /* [tokens, key_heads, 2 * DIM], of which the first DIM are there: of length 1, q divided by its
                          root of DIM besides */
    float *rates;      /* [tokens, heads, 2]: logarithm of the decay, strength; then the decays from the chunk's begin
                          to the token and from there to its end */
    void *v;           /* [tokens, heads, DIM], overwritten */
    void *w;           /* [tokens, heads, DIM], written and read */
    void *scores;      /* [tokens, heads, CHUNK], likewise */
    void *y;           /* [tokens, heads, DIM] */
} trm_delta_chunks;

/* Launches, whose argument is a trm_delta_chunks: what needs no state of all chunks at once, then the chunks of a
 * sequence one after the other. */
trm_status trm_cuda_delta_solve_chunks(void *chunks, trm_stream *stream);
trm_status trm_cuda_delta_run_chunks(void *chunks, trm_stream *stream);
#endif
