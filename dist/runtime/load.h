/*
 * Loads an engine's weights from their sources through pinned memory to the device.
 */
#ifndef TRM_DIST_RUNTIME_LOAD_H
#define TRM_DIST_RUNTIME_LOAD_H

#include "dist/runtime/engine.h"

/* How weights are read; zeros: defaults for the device. */
typedef struct trm_load_options {
    const bool *only;   /* [n_tensors] which constants; NULL: all */
    size_t piece_bytes; /* bytes that a thread reads at a time */
    int32_t threads;
    bool staged; /* use pinned memory also on the host backend */
} trm_load_options;

typedef struct trm_load trm_load;

/* Loads constants and waits. Nothing may run meanwhile. */
trm_status trm_load_run(trm_engine *engine, const trm_load_options *options);
/*
 * Starts loading on a thread of its own. Until trm_load_wait a weight holds zeros, its elements, or a part of each, so
 * that kernels may run meanwhile, on wrong numbers.
 */
trm_status trm_load_start(trm_engine *engine, const trm_load_options *options, trm_load **load);
/* Waits until all weights are loaded, calls `progress` (may be NULL) from this thread meanwhile, and returns the
 * status; later calls return it again. NULL: nothing to wait for. */
trm_status trm_load_wait(trm_load *load, trm_progress_fn progress, void *user);
/* Seconds and bytes of the load, after the wait. */
double trm_load_seconds(const trm_load *load);
size_t trm_load_bytes(const trm_load *load);
/* Stops the load and waits for its threads. */
void trm_load_destroy(trm_load *load);

#endif
