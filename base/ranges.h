/*
 * Ranges of NVTX, the tools extension of NVIDIA's profilers: names for what the host does, which Nsight Systems shows
 * beside the kernels. A tool names its library in NVTX_INJECTION64_PATH; without one there are no ranges. This speaks
 * the protocol by which NVTX 3 meets such a library (nvtxTypes.h of the CUDA toolkit), and needs no headers of it.
 */
#ifndef TRM_BASE_RANGES_H
#define TRM_BASE_RANGES_H

#include <stdbool.h>

extern bool trm_ranges_on_;

/* Loads the tool's library, once. Failures are a warning. Not while ranges are in use. */
void trm_ranges_open(void);

static inline bool trm_ranges_are_on(void)
{
    return trm_ranges_on_;
}

/* Begins a range of the calling thread within the one that it began last, and ends that; nothing without a tool. */
void trm_range_begin(const char *name);
void trm_range_end(void);

#endif
