/*
 * Selective scans by chunks of 64 tokens, for prompts: two launches before the one that goes token by token.
 */
#ifndef TRM_KERNELS_SCAN_CUDA_CHUNK_CUH
#define TRM_KERNELS_SCAN_CUDA_CHUNK_CUH

#include "kernels/delta/cuda_run.cuh"
#include "kernels/scan/scan.h"

typedef struct trm_scan_chunks {
    trm_selective_scan_args scan; /* of 16 bits; dim is a multiple of 16; columns are 64, 128 or 256 */
    /* In the workspace, of tokens that go by chunks: */
    float *rates; /* [tokens, heads, 2]: decay from the chunk's begin to the token; from there to its end, times the
                     step */
    void *scores; /* [tokens, heads, CHUNK]: what a token of the chunk is for this one */
} trm_scan_chunks;

/* Launches, whose argument is a trm_scan_chunks: what needs no state of all chunks at once, then the chunks of a
 * sequence one after the other. */
trm_status trm_cuda_scan_score_chunks(void *chunks, trm_stream *stream);
trm_status trm_cuda_scan_run_chunks(void *chunks, trm_stream *stream);

#endif
