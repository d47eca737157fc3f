/*
 * Host memory in large pieces, and how much of it there is.
 */
#ifndef TRM_BASE_MEMORY_H
#define TRM_BASE_MEMORY_H

#include <stddef.h>

#include <trireme/status.h>

/* What this process could use without swapping: of the machine, and of its control group where that has a limit. */
size_t trm_memory_available(void);

/*
 * Pages of their own, large ones where the system has them, aligned to 4 KiB at least. Not touched: who writes first
 * has them on its NUMA node. TRM_ERROR_OUT_OF_MEMORY names the size.
 */
trm_status trm_pages_alloc(size_t size, void **memory);
/* Gives back all but the first `used` bytes of `size`; they are then pages of `used` bytes. */
void trm_pages_trim(void *memory, size_t size, size_t used);
void trm_pages_free(void *memory, size_t size); /* NULL is ignored */

#endif
