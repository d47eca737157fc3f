/*
 * The program of a context (kernels/program.h): the kernels for the current dims with their addresses, and the list of
 * their launches on the plan's streams.
 */
#ifndef TRM_DIST_RUNTIME_PROGRAM_H
#define TRM_DIST_RUNTIME_PROGRAM_H

#include <trireme/engine.h>

#include "graph/streams.h"
#include "kernels/program.h"

/* A layer of the rank's network, as it runs for the current dims. */
typedef struct trm_program_step {
    const trm_kernel *kernel;
    trm_kernel_call call; /* on the device, also for an offloaded layer */
    bool is_offloaded;
    int32_t first, n; /* its launches */
} trm_program_step;

/* program.c alone looks inside. */
typedef struct trm_context_program {
    trm_program_step *steps;              /* [n_layers] */
    trm_program list;                     /* for the current dims, or of the last part of a run */
    trm_stream *aux[TRM_MAX_AUX_STREAMS]; /* [plan->streams.n] for parallel branches */
    trm_event **layer_done;               /* [n_layers] of those that other streams wait for, and the last of each */
    trm_event *begun;                     /* inputs are copied */
    int32_t *to_plan;                     /* launches to prepare, of the last time */
    int32_t to_plan_capacity;
} trm_context_program;

trm_status trm_context_program_init(trm_context *context);
void trm_context_program_fini(trm_context *context);
/* Allocates the program's memory for the largest dims, so that later steps of other dims allocate none. */
trm_status trm_context_reserve_program(trm_context *context);
/* Chooses kernels for layers begin .. end - 1 and makes the program that runs them; `last`: no layers follow. */
trm_status trm_context_prepare_program(trm_context *context, int32_t begin, int32_t end, bool last);
/* Runs it. `uncounted`: a layer whose number of entries is not yet known, or -1. */
trm_status trm_context_run_program(trm_context *context, int32_t begin, int32_t end, bool last, int32_t uncounted);
/* Runs only the launches of a layer. */
trm_status trm_context_run_layer(const trm_context *context, int32_t index, trm_stream *stream);

/* Whether a layer has launches. */
bool trm_context_is_launched(const trm_context *context, int32_t layer);
/* The kernel of a layer, NULL if it is computed with the dims, and its call. */
const trm_kernel *trm_context_kernel(const trm_context *context, int32_t layer);
const trm_kernel_call *trm_context_call(const trm_context *context, int32_t layer);
/* The list, and which of the plan's streams a launch is on: 0 is the context's. */
const trm_program *trm_context_launches(const trm_context *context);
int32_t trm_context_stream_number(const trm_context *context, const trm_stream *stream);

#endif
