/*
 * Runs of a context as CUDA graphs: captured on the second run of the same dims and bound inputs, and kept for a few of
 * them.
 */
#ifndef TRM_DIST_RUNTIME_CAPTURES_H
#define TRM_DIST_RUNTIME_CAPTURES_H

#include <trireme/engine.h>

#include "dist/runtime/capture_cache.h"

/* Number of shapes whose captured runs are kept, in a context that no generator uses. */
#define TRM_KEPT_CAPTURES 64

/* captures.c alone looks inside. */
typedef struct trm_captures {
    trm_capture_cache cache;
    bool wanted;               /* whether runs are to be captured */
    bool ran;                  /* ran once with these shapes, so that libraries are initialized for a capture */
    trm_captured_shape *shape; /* of the current run, with its capture; NULL: not captured */
    int64_t shaped_at;         /* number of shapings when `shape` and `ran` were set */
    void *key;                 /* of the run that is looked up */
} trm_captures;

void trm_captures_fini(trm_context *context);
/* The cache of a context, for a generator that captures its runs as part of its steps. */
trm_capture_cache *trm_context_captures(trm_context *context);
/* Drops all captured runs, because other kernels or addresses would now run. */
void trm_context_drop_captures(trm_context *context);
/* Whether the next run of the same shapes is a captured one. */
bool trm_context_is_captured(const trm_context *context);
/* trm_context_enqueue, captured if the caller asked for it and it is possible, but not for the first run of the same
 * dims. */
trm_status trm_context_enqueue_run(trm_context *context);
/* Captures what enqueue(user) enqueues on the context's stream, a run of all layers with more, as a variant of a shape.
 */
trm_status trm_context_capture(trm_context *context, trm_captured_shape *shape, int32_t variant,
                               trm_status (*enqueue)(void *user), void *user);
/* Launches it. */
trm_status trm_context_launch(trm_context *context, const trm_captured_shape *shape, int32_t variant);
/* Checks whether a run may become part of a graph that the caller captures; the error says why not. Enqueues nothing.
 */
trm_status trm_context_check_capture(const trm_context *context);
/* Whether the caller captures the context's stream, so that calls must not wait for it. */
trm_status trm_context_refuse_captured(const trm_context *context, const char *what);
/* Whether repeated runs of a shape are captured. */
bool trm_context_wants_capture(const trm_context *context);

#endif
