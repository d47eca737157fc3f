/*
 * Sampling: the next token of each row of logits.
 */
#ifndef TRM_KERNELS_SAMPLING_SAMPLE_H
#define TRM_KERNELS_SAMPLING_SAMPLE_H

#include "kernels/call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parameters of one row, as they lie in device memory. */
typedef struct trm_sample_row {
    float temperature; /* 0: the largest logit, the lowest id among equals */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    float typical_p;   /* 1: off */
    int32_t top_k;     /* 0: off */
    int32_t reserved;
    uint64_t seed;    /* of the request */
    uint64_t counter; /* tokens the request has generated: draw number `counter` of `seed` decides */
} trm_sample_row;

/*
 * logits f32 [rows, vocab] (overwritten; kernels/sampling/logits.h has what a request changes before), parameters
 * trm_sample_row [rows] -> tokens i32 [rows].
 *
 * Order: temperature; typical-p (Meister, Pimentel, Wiher, Cotterell 2022: those nearest to the entropy by their
 * surprise, up to a mass of typical_p, and all that are as near as the last of them); top-k; top-p (smallest set whose
 * mass reaches top_p, at least one); min-p (probability at least min_p times the largest); then one draw: the tokens
 * that remain, by descending probability and ascending id among equals, are walked until their mass exceeds
 * trm_random_uniform(seed, counter) times the mass of all that remain. NaN logits count as -inf. Bit-identical on every
 * rank given bit-identical logits.
 */
typedef struct trm_sample_args {
    float *logits;
    int64_t rows, vocab;
    const trm_sample_row *parameters; /* not read with greedy_only */
    int32_t *tokens;
    void *workspace;  /* trm_sample_workspace() bytes */
    bool greedy_only; /* every row has temperature 0: the host knows it and takes the short way */
} trm_sample_args;
size_t trm_sample_workspace(const trm_stream *stream, int64_t rows, int64_t vocab);
trm_status trm_sample(trm_stream *stream, const trm_sample_args *args);

/*
 * From one step of a token per sequence to the next, where nothing but the chosen tokens is new: of every sequence that
 * has a length the token is chosen, position and length grow by one, rope_lengths becomes the length, and the counter
 * of its parameters grows by one. Those without are left alone.
 */
typedef struct trm_sample_advance_args {
    int64_t rows;                             /* sequences */
    const int32_t *chosen;                    /* [rows] */
    int32_t *token_ids, *positions, *lengths; /* [rows] */
    int32_t *rope_lengths;                    /* [rows] or NULL */
    trm_sample_row *parameters;               /* [rows] or NULL */
} trm_sample_advance_args;
trm_status trm_sample_advance(trm_stream *stream, const trm_sample_advance_args *args);

#ifdef __cplusplus
}
#endif
#endif
