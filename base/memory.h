/*
 * Large blocks of host memory, and how much memory is available.
 */
#ifndef TRM_BASE_MEMORY_H
#define TRM_BASE_MEMORY_H

#include <stddef.h>

#include <trireme/status.h>

/* Bytes that this process could use without swapping: of the machine, and of its control group if that has a limit. */
size_t trm_memory_available(void);

/*
 * Allocates whole pages, large ones if the system has them, aligned to at least 4 KiB. They are not touched: the first
 * thread that writes decides their NUMA node. TRM_ERROR_OUT_OF_MEMORY with the size.
 */
trm_status trm_pages_alloc(size_t size, void **memory);
/* Frees all but the first `used` bytes of `size`. */
void trm_pages_trim(void *memory, size_t size, size_t used);
void trm_pages_free(void *memory, size_t size); /* NULL is ignored */

#endif
