/* Dims of the runs of a context, and what decides them; runs at these dims. */
#ifndef TRM_DIST_RUNTIME_SHAPE_H
#define TRM_DIST_RUNTIME_SHAPE_H

#include <trireme/engine.h>

#include "graph/inference.h"

/* shape.c and walk.c alone look inside. */
typedef struct trm_shaping {
    int32_t profile;                 /* profile of runs; -1: any */
    bool is_current;                 /* dims and program match the current inputs */
    int64_t count;                   /* number of shapings */
    int64_t ran_at;                  /* `count` of the last completely enqueued run; 0: none */
    const trm_tensor **value_inputs; /* [n_value_inputs] whose elements decide dims */
    int32_t n_value_inputs;
    const trm_layer *asking; /* layer that needed a computed value in the last run in parts; NULL: none */
    int64_t walked;          /* layers of the last run in parts, those of loops in every pass */
    unsigned char *read;     /* host [TRM_LARGEST_VALUE], for values that inference stops at */
    bool warned_of_names;    /* of dimensions of one name with several sizes */
} trm_shaping;

trm_status trm_context_shaping_init(trm_context *context);
void trm_context_shaping_fini(trm_context *context);
/* The next run infers dims and chooses kernels again. */
void trm_context_drop_shape(trm_context *context);
/* How often that was done. */
int64_t trm_context_shapings(const trm_context *context);
/* A run is completely enqueued; and whether one was with the current dims. */
void trm_context_note_run(trm_context *context);
bool trm_context_ran(const trm_context *context);
/* Inputs whose elements decide dims. */
const trm_tensor *const *trm_context_value_inputs(const trm_context *context, int32_t *n);
/* Whether runs may have the dims of a profile. */
bool trm_context_runs_profile(const trm_context *context, int32_t profile);

/* Infers all dims and chooses the kernels, if an input's dims, or values that decide dims, have changed.
 * TRM_ERROR_UNSUPPORTED if inference may stop (trm_inference_may_stop), since only a run knows the dims. */
trm_status trm_context_shape(trm_context *context);
/* A run in parts. If it needed no values from the device, the context stays shaped: the run repeats for the same dims
 * and values. walk.c */
trm_status trm_context_walk(trm_context *context, bool uploads);
/* Prepares a run before its layers, or before each part. */
trm_status trm_context_begin_walk(trm_context *context);
trm_status trm_context_stage_values(trm_context *context, int32_t begin, int32_t end, bool upload);
/* Whether a run would equal the last one except for the elements of inputs, also for networks whose inference may stop.
 */
bool trm_context_is_known(const trm_context *context);
/* Enqueues the copy of the inputs and all layers. Can be captured, unless inference needs values that the run computes:
 * then it waits. */
trm_status trm_context_enqueue(trm_context *context);
/* Sets dims and kernels and enqueues the copy of the inputs, for callers that order the layers themselves (not if
 * inference may stop). */
trm_status trm_context_begin_layers(trm_context *context);
/* Enqueues all layers on the inputs on the device, with the dims of the last run. Can be captured. Whatever wrote the
 * inputs must finish before the next kernel starts, since kernels read inputs before they wait. */
trm_status trm_context_enqueue_again(trm_context *context);
/* Of the last run in parts: the layer that needed a computed value, or NULL, and how many layers ran. */
const trm_layer *trm_context_asking(const trm_context *context);
int64_t trm_context_walked(const trm_context *context);

#endif
