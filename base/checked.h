/*
 * Arithmetic on sizes that come from files, requests and networks. Each returns false on overflow.
 */
#ifndef TRM_BASE_CHECKED_H
#define TRM_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool trm_checked_add(size_t a, size_t b, size_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool trm_checked_mul(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* value rounded up to a multiple of `alignment`, a power of two. */
static inline size_t trm_align_up(size_t value, size_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

#endif
