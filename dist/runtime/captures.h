/*
 * Runs of a context as CUDA graphs: captured on the second run of the same dims and bound inputs, and kept for a few of
 * them.
 */
#ifndef TRM_DIST_RUNTIME_CAPTURES_H
#define TRM_DIST_RUNTIME_CAPTURES_H

#include <trireme/engine.h>

#include "kernels/device/device.h"

/* Number of shapes whose captured runs are kept. */
#define TRM_KEPT_CAPTURES 64

/* A captured run and its shapes of inputs. */
typedef struct trm_kept_capture {
    trm_graph_exec *exec;
    void *key;
    size_t key_size;
    int32_t schedule;
    int64_t used; /* a larger number: later */
} trm_kept_capture;

/* captures.c alone looks inside. */
typedef struct trm_captures {
    bool wanted;            /* whether runs are to be captured */
    bool ran;               /* ran once with these shapes, so that libraries are initialized for a capture */
    trm_graph_exec *exec;   /* all layers, one of `kept`, or NULL */
    int64_t shaped_at;      /* number of shapings when `exec` and `ran` were set */
    trm_kept_capture *kept; /* [TRM_KEPT_CAPTURES], NULL before the first */
    int64_t launches;       /* clock of their use */
} trm_captures;

/* Drops all captured runs, because other kernels or addresses would now run. */
void trm_context_drop_captures(trm_context *context);
/* Whether the next run of the same shapes is a captured one. */
bool trm_context_is_captured(const trm_context *context);
/* trm_context_enqueue, captured if the caller asked for it and it is possible, but not for the first run of the same
 * dims. */
trm_status trm_context_enqueue_run(trm_context *context);
/* Launches a captured run of all layers, captured with this copy schedule. */
trm_status trm_context_launch(trm_context *context, trm_graph_exec *exec, int32_t schedule);
/* Checks whether a run may become part of a graph that the caller captures; the error says why not. Enqueues nothing.
 */
trm_status trm_context_check_capture(const trm_context *context);
/* Whether the caller captures the context's stream, so that calls must not wait for it. */
trm_status trm_context_refuse_captured(const trm_context *context, const char *what);

#endif
