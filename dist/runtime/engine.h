/*
 * Engine and execution context as the generator sees them. The public calls are in <trireme/engine.h>.
 */
#ifndef TRM_DIST_RUNTIME_ENGINE_H
#define TRM_DIST_RUNTIME_ENGINE_H

#include <pthread.h>

#include "base/pool.h"
#include "weight_stream/offload/cpu_offload.h"
#include "dist/plan/plan.h"
#include "weight_stream/offload/streaming.h"
#include "dist/parallel/world.h"
#include "graph/inference.h"
#include "kernels/program.h"
#include "kernels/tuner/tuner.h"
#include "weight_stream/ring.h"

struct trm_engine {
    trm_plan *plan;
    trm_world *world;
    unsigned char *weights;      /* device memory [plan->weight_bytes] */
    struct trm_load *load;       /* under way, or NULL */
    size_t loaded_bytes;         /* of all weights that were read */
    double load_seconds;         /* that took */
    trm_weight_residency places; /* of those that can be streamed, if the plan has a budget */
    trm_communicator *sharers;   /* ranks that fetch them together, or NULL */
    bool others_stay;            /* no other rank fetched any when the engine was made, and no budget changed since */
    trm_offload_device offload_device; /* for layers that processors run; its stream is NULL until there are some */
    trm_pool *planners;                /* threads that prepare kernels for dims that are new; NULL before the first */
    pthread_mutex_t planning;          /* of contexts that make and look up `planners`; their loops run without it */
    trm_recorder *recorder;            /* the caller's, or NULL: the world's */
};

/* Where failures of calls about them go (base/recorder.h); they may be NULL. */
trm_recorder *trm_engine_recorder(const trm_engine *engine);
trm_recorder *trm_context_recorder(const trm_context *context);

/* One layer of the rank's network as it runs for the dims in force. */
typedef struct trm_context_step {
    const trm_kernel *kernel;
    trm_kernel_call call; /* on the device, also of an offloaded layer */
    bool is_offloaded;
    int32_t first, n; /* its launches */
} trm_context_step;

/* Memory of a context that no plan could know of. */
typedef struct trm_context_extra {
    void *memory;
    size_t capacity;
} trm_context_extra;

/* For how many shapes of inputs what was captured is kept. */
#define TRM_KEPT_CAPTURES 64

/* A captured run, and the shapes of inputs that it is for. */
typedef struct trm_kept_capture {
    trm_graph_exec *exec;
    void *key;
    size_t key_size;
    int32_t schedule;
    int64_t used; /* a larger number: later */
} trm_kept_capture;

/* Moments of a run that is timed. */
enum { TRM_CLOCK_BEGIN, TRM_CLOCK_UPLOADED, TRM_CLOCK_COMPUTED, TRM_CLOCK_DONE, TRM_CLOCK_COUNT };

struct trm_context {
    trm_engine *engine;
    trm_recorder *recorder; /* the caller's, or NULL: the engine's */
    trm_context *beside;    /* whose stream and state these are; NULL: its own */
    trm_stream *stream;
    trm_event *done;
    trm_stream *aux[TRM_MAX_AUX_STREAMS]; /* [plan->streams.n] for branches beside each other */
    trm_event **layer_done;               /* [n_layers] of those that other streams wait for, and the last of each */
    trm_event *begun;                     /* inputs are there */
    unsigned char *memory;                /* device: inputs, state unless it is another's, activations, workspace */
    bool is_lodger;                       /* it is the caller's */
    unsigned char *state, *activations, *workspace;
    unsigned char *input_staging; /* host [plan->input_bytes], copied to the device at every run */
    unsigned char **outputs;      /* host [network outputs], grown at need */
    size_t *output_capacity;
    trm_dims *output_dims;     /* [network outputs] of the last run */
    const void **bound_inputs; /* [n_tensors] device memory of the caller, or NULL */
    int32_t n_bound_inputs;
    trm_context_extra *bound_outputs; /* [network outputs] the caller's, memory NULL where there is none */
    void **output_memory;             /* [network outputs] where those of the last run are */
    trm_output_allocate_fn allocate_output;
    void *allocate_user;
    bool has_outputs, is_started;
    trm_dims *dims;          /* [n_tensors] of the run */
    bool *input_is_set;      /* [n_tensors] */
    int32_t profile;         /* that runs are held to; -1: any */
    bool shaped;             /* dims and steps are those of the inputs that are set */
    int64_t ran_at;          /* `shapings` of the last run that was enqueued to its end; 0: none was */
    const trm_layer *asking; /* which asked for what the last run in parts computed; NULL: none */
    int64_t walked;          /* layers of the last run in parts, those of loops in every pass */
    trm_context_step *steps; /* [n_layers] */
    trm_program program;     /* of the dims in force, or of the part of a walk that ran last */
    trm_inference *inference;
    const trm_tensor **value_inputs; /* [n_value_inputs] whose elements decide dims */
    int32_t n_value_inputs;
    const size_t *offsets;       /* [n_tensors] of activations: the plan's, or for dims it did not foresee */
    size_t *own_offsets, *sizes; /* those; allocated at first need */
    int32_t *to_plan;            /* launches that plan ahead, of the last time; likewise */
    int32_t to_plan_capacity;
    trm_context_extra *extra;       /* [n_tensors], NULL unless the plan grows or the walk may stop */
    trm_context_extra workspace2;   /* larger than the plan's */
    unsigned char *read;            /* host [TRM_LARGEST_VALUE], for what a walk stops at */
    trm_tuner *tuner;               /* what was timed; NULL before the first tuning */
    const trm_timing **timings;     /* [n_layers] of the last tuning, NULL where nothing was chosen */
    struct trm_tuning *tuning;      /* while it goes on */
    bool captures;                  /* whether runs are to be captured */
    int64_t shapings, captured_at;  /* how often shapes were settled; and when `captured` and `ran` were made */
    trm_graph_exec *captured;       /* all layers, one of `kept`, or NULL */
    trm_kept_capture *kept;         /* [TRM_KEPT_CAPTURES], NULL before the first */
    int64_t launches;               /* of all of them: a clock of their use */
    bool inputs_changed;            /* since they were last copied to the device */
    bool ran;                       /* once, as they now are, so that a capture finds libraries set up */
    trm_ring *ring;                 /* NULL without a weight budget */
    trm_cpu_offload *offload;       /* NULL where processors run no layer */
    int32_t schedule, ran_schedule; /* of the ring: for the dims in force, and of the last run */
    uint64_t places_version;        /* of the engine's places when the ring was made and kernels got addresses */
    trm_debug_fn debug;             /* NULL: off */
    void *debug_user;
    trm_context_extra debug_memory;    /* host: one tensor */
    trm_event *clock[TRM_CLOCK_COUNT]; /* while runs are timed, else NULL */
    double enqueue_began, enqueue_seconds;
    bool is_clocked; /* the last run that finished has its times */
    bool profiling;
    trm_event **marks;    /* [n_layers + 1] while profiling */
    double *milliseconds; /* [n_layers] */
    trm_event **arrivals; /* [n_layers] a layer's weights have come, while profiling what streams; else NULL */
    bool *waited;         /* [n_layers] in the last run */
    double *stalls;       /* [n_layers] milliseconds from the end of the layer before until then */
    int64_t profiled_runs;
};

/*
 * trm_engine_create in two parts, both collective where ranks may fail apart. The first returns while weights that all
 * stay on the device are being read (load.h): contexts may be made and run meanwhile, on numbers that are not the
 * weights yet. Others are there when it returns. The second waits for them; it is each rank's own, and who calls it
 * tells the others how it went.
 */
trm_status trm_engine_begin(trm_plan *plan, trm_world *world, trm_progress_fn progress, void *user,
                            trm_engine **engine);
trm_status trm_engine_finish_loading(trm_engine *engine, trm_progress_fn progress, void *user);

/* The parts of an engine that CPU offload works on. */
trm_offload_site trm_engine_offload_site(trm_engine *engine);

/* Sets the dims of an input, within the plan's bounds; its host memory is filled by the caller. */
trm_status trm_context_set_dims(trm_context *context, const trm_tensor *input, const trm_dims *dims);
void *trm_context_staging(trm_context *context, const trm_tensor *input);

/* Infers all dims and chooses the kernels, if an input's dims, or values that decide dims, have changed. Of a network
 * that must be asked on the way (trm_inference_may_stop), only a run can tell: TRM_ERROR_UNSUPPORTED. */
trm_status trm_context_shape(trm_context *context);
/* Plans ahead what kernels of the program have not planned for their dims, on all processors of the rank.
 * context_prepare.c */
trm_status trm_context_plan_ahead(trm_context *context);
/* Chooses kernels for layers begin .. end - 1 and makes the program that runs them; `last`: nothing runs behind them.
 * program.c */
trm_status trm_context_prepare_program(trm_context *context, int32_t begin, int32_t end, bool last);
/* Takes the memory of the program for the largest dims, so that steps, which prepare others, allocate none. */
trm_status trm_context_reserve_program(trm_context *context);
/* Runs it. `uncounted`: a layer whose number of entries is not known yet, or -1. */
trm_status trm_context_run_program(trm_context *context, int32_t begin, int32_t end, bool last, int32_t uncounted);
/* Runs the launches of a layer alone. */
trm_status trm_context_run_layer(const trm_context *context, int32_t index, trm_stream *stream);
/* A run in parts. One that asks the device for nothing leaves the context shaped: it is the same run again for the same
 * dims and values. walk.c */
trm_status trm_context_walk(trm_context *context, bool uploads);
/* What a run needs before its layers, and a walk before each part. context_shape.c */
trm_status trm_context_begin_walk(trm_context *context);
trm_status trm_context_make_room(trm_context *context, int32_t begin, int32_t end);
trm_status trm_context_stage_values(trm_context *context, int32_t begin, int32_t end, bool upload);
trm_status trm_context_upload(trm_context *context);
trm_status trm_context_grow(trm_context *context, trm_context_extra *extra, size_t size);
void *trm_context_address(trm_context *context, const trm_tensor *tensor);
/* trm_context_tune without the exchanges between ranks: for steps of a generator, which has chosen those before its
 * context was made. context_tune.c */
trm_status trm_context_tune_kernels(trm_context *context, const trm_tune_options *options);
/* Lets the kernel of a layer choose among its variants, while context->tuning. context_tune.c */
trm_status trm_context_tune_step(trm_context *context, int32_t layer);
/* What was captured is not what would run any more, whatever the shapes. context_capture.c */
void trm_context_drop_capture(trm_context *context);
/* Notes a moment of the run, if runs are timed. context_clock.c */
trm_status trm_context_note(trm_context *context, int32_t moment);
void trm_context_drop_clock(trm_context *context);
/* Gives the outputs of a layer that has run, as far as their dims are known, to context->debug. context_debug.c */
trm_status trm_context_show_layer(trm_context *context, int32_t layer);
/* Whether a run would be the one before again, but for the elements of inputs: nothing has to be asked for. Of networks
 * whose walk may stop, too. */
bool trm_context_is_known(const trm_context *context);
/* Enqueues the copy of the inputs and all layers; can be captured, unless the walk asks for what a run computes: then
 * it waits on the way. */
trm_status trm_context_enqueue(trm_context *context);
/* The same, captured where the caller asked for it and it can be: the first run of the same dims is not. What was
 * captured is kept for when those dims come again. context_capture.c */
trm_status trm_context_enqueue_run(trm_context *context);
/* Whether a run may become part of a graph that the caller captures; the error says why not. Enqueues nothing. */
trm_status trm_context_check_capture(const trm_context *context);
/* Whether network output `i`, of so many bytes, fits the memory that it is bound to, if it is. context.c */
trm_status trm_context_check_bound(const trm_context *context, int32_t i, size_t bytes);
/* Whether the caller captures the context's stream, so that nothing may wait for it. */
trm_status trm_context_refuse_captured(const trm_context *context, const char *what);
/* Launches a captured run of all layers, which was captured with this schedule of the ring. */
trm_status trm_context_launch(trm_context *context, trm_graph_exec *exec, int32_t schedule);
/* The dims, kernels and the copy of the inputs, for those who order the layers themselves (not of a network that must
 * be asked on the way). */
trm_status trm_context_begin_layers(trm_context *context);
/* All layers on the inputs as they lie on the device, with the dims of the run before; can be captured. What has
 * written them must have ended before a kernel behind it can start, as kernels read inputs before they wait. */
trm_status trm_context_enqueue_again(trm_context *context);
/* A context that runs on `main`'s stream and reads and writes its state, with inputs and activations of its own; `main`
 * must outlive it. */
trm_status trm_context_create_beside(trm_context *main, trm_context **context);
/* Waits for the stream, at most the world's deadline, watching the peers. */
trm_status trm_context_wait(trm_context *context);
/* Adds the layer times of the run that has just been waited for; profiling must be on. */
trm_status trm_context_collect_profile(trm_context *context);
/* Looking at single steps: memory and events for it, then, for one step, profiling; false where it cannot be or is on
 * anyway. context->milliseconds and ->stalls have what came of it until the next. */
trm_status trm_context_prepare_sample(trm_context *context);
bool trm_context_begin_sample(trm_context *context);
/* The seconds of all layers of a step that was looked at, and of those that exchange with other ranks. */
void trm_context_sum_sample(const trm_context *context, double *layers, double *collectives);
void trm_context_end_sample(trm_context *context);
/* Streams beside the context's own, where the plan has some. context_streams.c */
trm_status trm_context_open_streams(trm_context *context);
void trm_context_close_streams(trm_context *context);

/* What contexts have for shapes: made and dropped. context_shape.c */
trm_status trm_context_prepare_shapes(trm_context *context);
void trm_context_drop_shapes(trm_context *context);
/* Makes the ring anew and forgets addresses if weights have moved since. */
trm_status trm_context_follow_weights(trm_context *context);
/* A tensor of the network as it lies on the device now. */
trm_view trm_context_view(trm_context *context, const trm_tensor *tensor);

#endif
