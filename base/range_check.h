/*
 * Inner loops under AddressSanitizer and UndefinedBehaviorSanitizer. A loop over plain arrays that writes only to its
 * caller's own variables is marked TRM_RANGES_CHECKED: it then compiles as in an optimized build, and trm_check_range()
 * checks what it reads elsewhere as a whole before it runs. Both do nothing in other builds.
 */
#ifndef TRM_BASE_RANGE_CHECK_H
#define TRM_BASE_RANGE_CHECK_H

#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#include <assert.h>
#include <sanitizer/asan_interface.h>

#define TRM_RANGES_CHECKED __attribute__((no_sanitize("address", "undefined")))

/* Checks that `count` elements of `size` bytes at `from` are usable memory, aligned to one element. */
static inline void trm_check_range(const void *from, int64_t count, int64_t size)
{
    const int64_t bytes = count * size;
    assert(bytes >= 0 && (uintptr_t)from % (uintptr_t)size == 0);
    if (bytes > 0) {
        const volatile char *bad = (const volatile char *)__asan_region_is_poisoned((void *)from, (size_t)bytes);
        if (bad != NULL) {
            (void)*bad; /* the sanitizer reports it */
        }
    }
}
#else
#define TRM_RANGES_CHECKED

static inline void trm_check_range(const void *from, int64_t count, int64_t size)
{
    (void)from;
    (void)count;
    (void)size;
}
#endif

#endif
