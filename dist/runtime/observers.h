/*
 * What watches runs of a context: the clock of their parts, the times of their layers, and debug tensors. None of it is
 * in the loop that runs a program (program.c).
 */
#ifndef TRM_DIST_RUNTIME_OBSERVERS_H
#define TRM_DIST_RUNTIME_OBSERVERS_H

#include <trireme/engine.h>

#include "base/trace.h"
#include "kernels/device/device.h"

/* Moments of a run that is timed. */
enum { TRM_CLOCK_BEGIN, TRM_CLOCK_UPLOADED, TRM_CLOCK_COMPUTED, TRM_CLOCK_DONE, TRM_CLOCK_COUNT };

/* Times of a layer. */
typedef struct trm_watched_layer {
    trm_event *begun;
    trm_event *arrived;         /* its weights, if they stream; else NULL */
    bool waited;                /* for them, in the last run */
    double milliseconds, stall; /* of all profiled runs; stall: from the end of the previous layer until `arrived` */
} trm_watched_layer;

/* observers.c alone looks inside. */
typedef struct trm_observers {
    trm_event *clock[TRM_CLOCK_COUNT]; /* if runs are timed, else NULL */
    double enqueue_began, enqueue_seconds;
    bool is_clocked; /* the last finished run was timed */
    bool is_profiling;
    trm_watched_layer *layers; /* [n_layers + 1], of the end too; NULL unless there is profiling */
    int64_t profiled_runs;
    trm_event *traced_from; /* the beginning of a run, for the timeline; NULL: none was recorded yet */
    int32_t trace_number;   /* of the context in timelines, from 1; 0: it has none yet */
    bool is_traced;         /* the run that was started is one of the timeline */
    bool is_trace_sample;   /* and its layers are timed for that alone */
    trm_debug_fn debug;     /* NULL: off */
    void *debug_user;
    void *debug_memory; /* host memory for one tensor */
    size_t debug_capacity;
} trm_observers;

void trm_observers_fini(trm_context *context);

/* Whether runs are profiled, and whether they show debug tensors; if either, they go layer by layer on one stream. */
bool trm_context_is_profiling(const trm_context *context);
bool trm_context_shows_layers(const trm_context *context);
bool trm_context_is_watched(const trm_context *context);

/* Records a moment of the run, if runs are timed. */
trm_status trm_context_note(trm_context *context, int32_t moment);

/* Marks the beginning of a layer, or the end of them all, if runs are profiled. */
trm_status trm_context_mark(trm_context *context, int32_t layer);
/* Its weights have arrived, if it had to wait for them. */
trm_status trm_context_mark_arrival(trm_context *context, int32_t layer, bool waited);
/* Adds the layer times of the run that just finished; profiling must be on. */
trm_status trm_context_collect_profile(trm_context *context);
/* Profiles single steps: prepares memory and events, then turns profiling on for one step; false if that is impossible
 * or it is already on. Its times stay until the next. */
trm_status trm_context_prepare_sample(trm_context *context);
bool trm_context_begin_sample(trm_context *context);
void trm_context_end_sample(trm_context *context);
/* Seconds of all layers of a profiled step, and of its collectives. */
void trm_context_sum_sample(const trm_context *context, double *layers, double *collectives);
/* Calls fn (NULL: nothing) with the layers of it that waited for weights. Whether layers may wait. */
bool trm_context_sample_stalls(const trm_context *context, trm_stall_fn fn, void *user);

/* Begins a run of the caller in the timeline, if one is recorded. Its layers are timed if it runs layer by layer
 * anyway, or is the first. */
trm_status trm_context_begin_trace(trm_context *context);
/* Ends it, when the run has finished at the event `done`. */
trm_status trm_context_end_trace(trm_context *context);
/* What is known of a run that has just finished, for the timeline. */
typedef struct trm_traced_run {
    const char *row, *name; /* of the row, to which the context's number is added */
    trm_event *began, *ended;
    bool follows; /* it began when the run before it ended */
    const trm_trace_value *values;
    int32_t n_values;
} trm_traced_run;
/* Adds a run, the layers if they were timed, and copies of weights. */
trm_status trm_context_trace_run(trm_context *context, const trm_traced_run *run);

/* Passes the outputs of a finished layer, if their dims are known, to the caller of trm_context_set_debug, if any. */
trm_status trm_context_show_layer(trm_context *context, int32_t layer);

#endif
