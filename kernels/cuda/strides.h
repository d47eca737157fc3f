/*
 * Index arithmetic of strided copies and broadcasts, on the host: fewer and longer axes, wider elements. Plain C,
 * tested without a GPU.
 */
#ifndef TRM_KERNELS_CUDA_STRIDES_H
#define TRM_KERNELS_CUDA_STRIDES_H

#include <trireme/types.h>

#define TRM_MAX_OPERANDS 4

/* A loop over `n` axes of sizes d, outermost first; stride[o][i] is operand o's step along axis i in elements. */
typedef struct trm_strided {
    int32_t n, operands;
    int64_t d[TRM_MAX_DIMS];
    int64_t stride[TRM_MAX_OPERANDS][TRM_MAX_DIMS];
} trm_strided;

/* Drops axes of size 1 and joins neighbours that every operand walks as one. At least one axis remains. */
static inline void trm_strided_collapse(trm_strided *s)
{
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        if (s->d[i] == 1) {
            continue;
        }
        bool joined = n > 0;
        for (int32_t o = 0; joined && o < s->operands; o++) {
            joined = s->stride[o][n - 1] == s->stride[o][i] * s->d[i];
        }
        if (joined) {
            s->d[n - 1] *= s->d[i];
        } else {
            s->d[n++] = s->d[i];
        }
        for (int32_t o = 0; o < s->operands; o++) {
            s->stride[o][n - 1] = s->stride[o][i];
        }
    }
    if (n == 0) {
        s->d[0] = 1;
        for (int32_t o = 0; o < s->operands; o++) {
            s->stride[o][0] = 1;
        }
        n = 1;
    }
    s->n = n;
}

/*
 * Treats runs of elements as one where every operand has the last axis contiguous. `element` is the size in bytes,
 * `alignment` the bitwise or of the operands' addresses. Returns the new size: 1, 2, 4, 8 or 16 bytes, at least
 * `element`.
 */
static inline size_t trm_strided_widen(trm_strided *s, size_t element, uintptr_t alignment)
{
    int32_t last = s->n - 1;
    for (int32_t o = 0; o < s->operands; o++) {
        if (s->stride[o][last] != 1) {
            return element;
        }
    }
    for (size_t wide = 16; wide > element; wide /= 2) {
        int64_t factor = (int64_t)(wide / element);
        bool fits = alignment % wide == 0 && s->d[last] % factor == 0;
        for (int32_t o = 0; fits && o < s->operands; o++) {
            for (int32_t i = 0; fits && i < last; i++) {
                fits = s->stride[o][i] % factor == 0;
            }
        }
        if (!fits) {
            continue;
        }
        s->d[last] /= factor;
        for (int32_t o = 0; o < s->operands; o++) {
            for (int32_t i = 0; i < last; i++) {
                s->stride[o][i] /= factor;
            }
        }
        return wide;
    }
    return element;
}

static inline int64_t trm_strided_count(const trm_strided *s)
{
    int64_t count = 1;
    for (int32_t i = 0; i < s->n; i++) {
        count *= s->d[i];
    }
    return count;
}

/* Row-major strides of `dims`. */
static inline void trm_contiguous_strides(const trm_dims *dims, int64_t *strides)
{
    int64_t step = 1;
    for (int32_t i = dims->n - 1; i >= 0; i--) {
        strides[i] = step;
        step *= dims->d[i];
    }
}

/* Strides of `dims` as broadcast to `to`: 0 along axes of size 1 that `to` stretches, and along missing leading axes.
 */
static inline void trm_broadcast_strides(const trm_dims *dims, const trm_dims *to, int64_t *strides)
{
    int64_t step = 1;
    for (int32_t i = to->n - 1; i >= 0; i--) {
        int32_t own = i - (to->n - dims->n);
        int64_t size = own >= 0 ? dims->d[own] : 1;
        strides[i] = size == 1 ? 0 : step;
        step *= size;
    }
}

/* Steps through the bias of a matrix product, [n] or [..., 1, n], along the product's leading dims. */
static inline void trm_bias_strides(const trm_dims *bias, const trm_dims *leading, int64_t *strides)
{
    trm_dims own = *bias;
    own.n = own.n > 2 ? own.n - 2 : 0;
    trm_broadcast_strides(&own, leading, strides);
    for (int32_t i = 0; i < leading->n; i++) {
        strides[i] *= bias->n > 0 ? bias->d[bias->n - 1] : 0;
    }
}

/* An axis that may be negative. */
static inline int32_t trm_axis_of(int32_t axis, int32_t n)
{
    return axis < 0 ? axis + n : axis;
}

/* A tensor seen as [outer, n, inner] around one axis. */
typedef struct trm_axis_view {
    int64_t outer, n, inner;
} trm_axis_view;

static inline trm_axis_view trm_view_around(const trm_dims *dims, int32_t axis)
{
    trm_axis_view v = {1, 1, 1};
    axis = trm_axis_of(axis, dims->n);
    for (int32_t i = 0; i < dims->n; i++) {
        if (i < axis) {
            v.outer *= dims->d[i];
        } else if (i == axis) {
            v.n = dims->d[i];
        } else {
            v.inner *= dims->d[i];
        }
    }
    return v;
}

#endif
