/*
 * What the matrix products share: the call as batches of [M, K] x [K, N].
 */
#ifndef TRM_KERNELS_MATMUL_HOST_H
#define TRM_KERNELS_MATMUL_HOST_H

#include "kernels/host/host.h"

typedef struct trm_host_matmul {
    const trm_matmul_params *params;
    const trm_view *a, *b, *bias, *out; /* bias may be NULL */
    int64_t m, n, k;
    int64_t batches;
    int32_t n_leading; /* leading dims of the output */
    int64_t leading[TRM_MAX_DIMS];
    /* Elements per step of a leading dim, 0 where repeated. */
    int64_t a_strides[TRM_MAX_DIMS], b_strides[TRM_MAX_DIMS], bias_strides[TRM_MAX_DIMS];
} trm_host_matmul;

/* Checks dims and types; a b without leading dims joins the leading dims of a with its rows. False if the
 * call is not a product these kernels know. */
bool trm_host_matmul_init(trm_host_matmul *matmul, const trm_kernel_call *call);
/* The same of any types. */
bool trm_host_matmul_init_any(trm_host_matmul *matmul, const trm_kernel_call *call);

/* First elements of the operands of one batch. */
typedef struct trm_host_matmul_place {
    int64_t a, b, bias, out;
} trm_host_matmul_place;

trm_host_matmul_place trm_host_matmul_place_of(const trm_host_matmul *matmul, int64_t batch);

/* Adds the bias, of which `bias` is the element for x[0], and applies the activation to n columns of one row. */
void trm_host_matmul_finish(const trm_host_matmul *matmul, int64_t bias, int64_t n, float *x);

#endif
