/*
 * Loading an engine's weights: from their sources through pinned memory to their places.
 */
#ifndef TRM_DIST_RUNTIME_LOAD_H
#define TRM_DIST_RUNTIME_LOAD_H

#include "dist/runtime/engine.h"

/* How weights are read; zeros: as it suits the device. */
typedef struct trm_load_options {
    const bool *only;   /* [n_tensors] which constants; NULL: all */
    size_t piece_bytes; /* that a thread reads at a time */
    int32_t threads;
    bool staged; /* through pinned memory also where the device's memory is the host's */
} trm_load_options;

typedef struct trm_load trm_load;

/* Reads constants into their places, and waits for it. Nothing may run meanwhile. */
trm_status trm_load_run(trm_engine *engine, const trm_load_options *options);
/*
 * Starts to do so on a thread of its own. Until trm_load_wait a weight is zeros, what it will be, or a part of each, so
 * that kernels may run meanwhile, though not on the numbers they are meant for.
 */
trm_status trm_load_start(trm_engine *engine, const trm_load_options *options, trm_load **load);
/* Waits until all weights are there, with calls of `progress` (may be NULL) now and then from this thread, and says how
 * it went; once it has been called, more calls only say that. NULL: nothing is under way. */
trm_status trm_load_wait(trm_load *load, trm_progress_fn progress, void *user);
/* Seconds and bytes of what was loaded, after the wait. */
double trm_load_seconds(const trm_load *load);
size_t trm_load_bytes(const trm_load *load);
/* Ends what is under way and waits for that. */
void trm_load_destroy(trm_load *load);

#endif
