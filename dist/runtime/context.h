/*
 * Execution context, for the generator. The public calls are in <trireme/engine.h>.
 */
#ifndef TRM_DIST_RUNTIME_CONTEXT_H
#define TRM_DIST_RUNTIME_CONTEXT_H

#include "dist/runtime/bindings.h"
#include "dist/runtime/captures.h"
#include "dist/runtime/engine.h"
#include "dist/runtime/observers.h"
#include "graph/inference.h"
#include "kernels/program.h"
#include "kernels/tuner/tuner.h"
#include "weight_stream/ring.h"

/* A layer of the rank's network, as it runs for the current dims. */
typedef struct trm_context_step {
    const trm_kernel *kernel;
    trm_kernel_call call; /* on the device, also for an offloaded layer */
    bool is_offloaded;
    int32_t first, n; /* its launches */
} trm_context_step;

/* Memory of a context that the plan could not size. */
typedef struct trm_context_extra {
    void *memory;
    size_t capacity;
} trm_context_extra;

struct trm_context {
    trm_engine *engine;
    trm_recorder *recorder; /* the caller's, or NULL: the engine's */
    trm_context *beside;    /* the context whose stream and state it uses; NULL: its own */
    trm_stream *stream;
    trm_event *done;
    trm_stream *aux[TRM_MAX_AUX_STREAMS]; /* [plan->streams.n] for parallel branches */
    trm_event **layer_done;               /* [n_layers] of those that other streams wait for, and the last of each */
    trm_event *begun;                     /* inputs are copied */
    unsigned char *memory;                /* device: inputs, state unless it is another's, activations, workspace */
    bool is_lodger;                       /* it is the caller's */
    unsigned char *state, *activations, *workspace;
    bool has_outputs, is_started;
    trm_dims *dims;          /* [n_tensors] of the run */
    int32_t profile;         /* profile of runs; -1: any */
    bool shaped;             /* dims and steps match the current inputs */
    int64_t ran_at;          /* `shapings` of the last completely enqueued run; 0: none */
    const trm_layer *asking; /* layer that needed a computed value in the last run in parts; NULL: none */
    int64_t walked;          /* layers of the last run in parts, those of loops in every pass */
    trm_context_step *steps; /* [n_layers] */
    trm_program program;     /* for the current dims, or of the last part of a run */
    trm_inference *inference;
    const trm_tensor **value_inputs; /* [n_value_inputs] whose elements decide dims */
    int32_t n_value_inputs;
    const size_t *offsets;       /* [n_tensors] of activations: the plan's, or for dims that it did not cover */
    size_t *own_offsets, *sizes; /* those; allocated when first needed */
    int32_t *to_plan;            /* launches to prepare, of the last time; likewise */
    int32_t to_plan_capacity;
    trm_context_extra *extra;       /* [n_tensors], NULL unless the plan grows or inference may stop */
    trm_context_extra workspace2;   /* larger than the plan's */
    unsigned char *read;            /* host [TRM_LARGEST_VALUE], for values that inference stops at */
    trm_tuner *tuner;               /* NULL before the first tuning */
    const trm_timing **timings;     /* [n_layers] of the last tuning, NULL if nothing was chosen */
    struct trm_tuning *tuning;      /* during tuning */
    bool warned_of_names;           /* of dimensions of one name with several sizes */
    int64_t shapings;               /* number of shapings */
    trm_ring *ring;                 /* NULL without a weight budget */
    trm_cpu_offload *offload;       /* NULL without CPU offload */
    int32_t schedule, ran_schedule; /* copy schedule: for the current dims, and of the last run */
    uint64_t places_version; /* version of the engine's residency when the ring was made and kernels got addresses */
    trm_bindings bindings;
    trm_captures captures;
    trm_observers observers;
};

/* The recorder for failed calls about a context (base/recorder.h), which may be NULL. */
trm_recorder *trm_context_recorder(const trm_context *context);

/* Infers all dims and chooses the kernels, if an input's dims, or values that decide dims, have changed.
 * TRM_ERROR_UNSUPPORTED if inference may stop (trm_inference_may_stop), since only a run knows the dims. */
trm_status trm_context_shape(trm_context *context);
/* Prepares the program's kernels that are not yet prepared for their dims, on all CPUs of the rank. context_prepare.c
 */
trm_status trm_context_plan_ahead(trm_context *context);
/* Chooses kernels for layers begin .. end - 1 and makes the program that runs them; `last`: no layers follow. program.c
 */
trm_status trm_context_prepare_program(trm_context *context, int32_t begin, int32_t end, bool last);
/* Allocates the program's memory for the largest dims, so that later steps of other dims allocate none. */
trm_status trm_context_reserve_program(trm_context *context);
/* Runs it. `uncounted`: a layer whose number of entries is not yet known, or -1. */
trm_status trm_context_run_program(trm_context *context, int32_t begin, int32_t end, bool last, int32_t uncounted);
/* Runs only the launches of a layer. */
trm_status trm_context_run_layer(const trm_context *context, int32_t index, trm_stream *stream);
/* A run in parts. If it needed no values from the device, the context stays shaped: the run repeats for the same dims
 * and values. walk.c */
trm_status trm_context_walk(trm_context *context, bool uploads);
/* Prepares a run before its layers, or before each part. context_shape.c */
trm_status trm_context_begin_walk(trm_context *context);
trm_status trm_context_make_room(trm_context *context, int32_t begin, int32_t end);
trm_status trm_context_stage_values(trm_context *context, int32_t begin, int32_t end, bool upload);
trm_status trm_context_grow(trm_context *context, trm_context_extra *extra, size_t size);
void *trm_context_address(trm_context *context, const trm_tensor *tensor);
/* trm_context_tune without exchanges between ranks, for a generator, which chose those before its context was created.
 * context_tune.c */
trm_status trm_context_tune_kernels(trm_context *context, const trm_tune_options *options);
/* Makes the kernel of a layer choose among its variants, during tuning. context_tune.c */
trm_status trm_context_tune_step(trm_context *context, int32_t layer);
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
/* A context that runs on `main`'s stream and reads and writes its state, with inputs and activations of its own; `main`
 * must outlive it. */
trm_status trm_context_create_beside(trm_context *main, trm_context **context);
/* Waits for the stream, at most the world's deadline, watching the peers. */
trm_status trm_context_wait(trm_context *context);
/* Extra streams of a context, if the plan has some. context_streams.c */
trm_status trm_context_open_streams(trm_context *context);
void trm_context_close_streams(trm_context *context);

/* Creates and destroys a context's data for shapes. context_shape.c */
trm_status trm_context_prepare_shapes(trm_context *context);
void trm_context_drop_shapes(trm_context *context);
/* Makes the ring again and drops addresses if weights have moved. */
trm_status trm_context_follow_weights(trm_context *context);
/* A tensor of the network at its current device address. */
trm_view trm_context_view(trm_context *context, const trm_tensor *tensor);

#endif
