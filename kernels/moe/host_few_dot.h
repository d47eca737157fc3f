/*
 * Products of a row of an expert's matrix and a few arranged rows. Where numbers are bf16 and the processor multiplies
 * pairs of bf16 (AVX-512 BF16), 64 columns of weights become bf16 without rounding and meet rows of bf16; otherwise
 * weights become f32 and meet rows of f32.
 */
#ifndef TRM_KERNELS_MOE_HOST_FEW_DOT_H
#define TRM_KERNELS_MOE_HOST_FEW_DOT_H

#include "base/half.h"
#include "kernels/moe/element.h"

#define TRM_MOE_UNIT 64 /* columns */

/* out [n] = row `row` of an expert times n arranged rows, at most TRM_MOE_FEW_TOKENS. */
typedef void (*trm_moe_dot_fn)(const trm_moe_matrix *matrix, int64_t expert, int64_t row, const void *const *x,
                               int32_t n, float *out);
typedef struct trm_moe_dot {
    trm_moe_dot_fn run;
    bool halves, split; /* rows are bf16; of a unit the even columns first, then the odd ones */
} trm_moe_dot;

trm_moe_dot trm_moe_dot_of(const trm_moe_matrix *matrix);

/* Bytes of an arranged row, whatever the product: f32, and whole units. */
static inline size_t trm_moe_row_bytes(int64_t columns)
{
    return (size_t)((columns + TRM_MOE_UNIT - 1) / TRM_MOE_UNIT) * TRM_MOE_UNIT * sizeof(float);
}

/* Puts column i of a row in its place. `x` is a number of the row's type. */
static inline void trm_moe_arrange(const trm_moe_dot *dot, void *row, int64_t i, float x)
{
    if (!dot->halves) {
        ((float *)row)[i] = x;
        return;
    }
    const int64_t in = i % TRM_MOE_UNIT, place = dot->split ? in / 2 + in % 2 * (TRM_MOE_UNIT / 2) : in;
    ((uint16_t *)row)[i - in + place] = trm_f32_to_bf16(x);
}

#endif
