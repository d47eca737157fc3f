/*
 * Builder, plan, engine and execution context: from a network to results.
 *
 *   network -> trm_build -> plan (this rank's network, memory plan) -> trm_engine (weights on the device)
 *           -> trm_context (activations and state) -> trm_context_run
 *
 * A plan and an engine may be read by several threads; a context belongs to one thread at a time. An engine may have
 * several contexts, each with activations and state of its own: on one rank they may run on several threads at a time,
 * on several ranks they run in the same order on every rank, on one thread.
 */
#ifndef TRIREME_ENGINE_H
#define TRIREME_ENGINE_H

#include <trireme/mesh.h>
#include <trireme/network.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_plan trm_plan;
typedef struct trm_engine trm_engine;
typedef struct trm_context trm_context;

/*
 * The dims of an input (or a state) in one optimization profile. The dims of a run must lie in one of the engine's
 * profiles (trm_context_set_optimization_profile says which); memory and kernels are planned for all of them.
 *
 * max is the largest dims; min and opt are the smallest and the usual ones, or have n = 0 if they are not known. Memory
 * is planned from all that are given: some networks need most of it for smaller inputs.
 *
 * For an input whose elements decide dims (a value input, layers.h, or what one is computed from), *_values are its
 * elements in the input's type, as many as the dims of the same name have. Without max_values they are not known until
 * a run, which then allocates what depends on them. Other elements than these may be given to a run, as long as what it
 * needs fits into the memory planned. What they tell of the passes of loops decides where pipeline stages are cut: all
 * ranks of a pipeline are to give the same.
 */
typedef struct trm_shape_bound {
    const char *tensor;
    trm_dims max, min, opt;
    const void *max_values, *min_values, *opt_values; /* copied */
    int32_t profile; /* 0 .. TRM_MAX_PROFILES - 1; where a profile has no bound of a tensor, that of profile 0 holds */
} trm_shape_bound;
#define TRM_MAX_PROFILES 16

/* Called with the network after each stage of the build: "import", "passes", "partition" and "final". */
typedef void (*trm_stage_fn)(void *user, const char *stage, const trm_network *network);

typedef struct trm_build_options {
    size_t size; /* sizeof(trm_build_options) */
    trm_backend backend;
    trm_mesh mesh; /* of zeros: one rank, as a build knows of no world */
    int32_t rank;
    const trm_shape_bound *bounds; /* [n_bounds]; every input or state with -1 dims needs one; of states, profile 0 */
    int32_t n_bounds;
    trm_stage_fn on_stage; /* may be NULL */
    void *stage_user;
    bool allow_tf32; /* CUDA: factors of f32 products and convolutions may be rounded to TF32 (10 bits of fraction) */
    int32_t
        max_aux_streams;  /* CUDA: independent branches of a network may run on so many streams beside the context's
                             own, captured or not. Costs a workspace each, and activations that are shared less.
                             0 to TRM_MAX_AUX_STREAMS, or TRM_AUX_STREAMS_AUTO: two, where at least a
                             quarter more layers can run at a time than one; of no effect on networks with states, on
                             those whose dims  depend on data, and while weights stream, layers are profiled or shown */
    bool batch_invariant; /* what comes of a sequence whose keys and values are cached has the same bits whatever else
                             is in its steps and however its tokens are spread over them; costs time */
    size_t max_workspace; /* bytes of scratch that kernels may take to be faster, on each stream; 0: as much as they ask
                             for. Convolutions on CUDA ask for up to 512 MiB, and have engines that need less; products
                             keep 32 MiB, and others what they cannot do without */
} trm_build_options;
#define TRM_MAX_AUX_STREAMS  8
#define TRM_AUX_STREAMS_AUTO (-1)
#define TRM_BUILD_OPTIONS_INIT TRM_MAKE(trm_build_options, TRM_SET(size, sizeof(trm_build_options)))

/* Partitions the network over the mesh for `rank`, runs the passes and plans memory. The network is not changed
 * and may be destroyed afterwards. Makes the same decisions on every rank, without communication and without a device.
 *
 * A network that has DIST_COLLECTIVE layers already, or ATTENTION of several ranks, is not partitioned: it is what
 * `rank` runs, and may differ between ranks. Each must then have such a layer, and none that names no group with the
 * rank. Errors: INVALID_ARGUMENT (bounds that are missing or do not fit, a pin, mesh or collective that cannot be met,
 * a layer whose dims do not fit), UNSUPPORTED (a layer without a kernel on this backend). Dims that follow from the
 * number of entries of a data-dependent layer and do not fit for the largest number are no error here, as others may
 * fit: a debug line says which layer, and a run with a number that does not fit fails there. */
TRM_API trm_status trm_build(const trm_network *network, const trm_build_options *options, trm_plan **plan);
TRM_API void trm_plan_destroy(trm_plan *plan);
/* The per-rank network as text; release with trm_free. NULL when out of memory. */
TRM_API char *trm_plan_to_text(const trm_plan *plan);

/*
 * The inspector: the rank's network as JSON. Mesh, profiles, memory and collectives of the plan; every layer with its
 * parameters, inputs and outputs, the kernel that runs it at the usual dims of the first profile and its workspace;
 * every tensor with type, dims (declared, usual), largest dims or bytes, place in memory, what it is of a whole tensor,
 * and where its elements are read from. Release with trm_free. NULL when out of memory, or when the dims cannot be
 * inferred.
 */
TRM_API char *trm_plan_to_json(trm_plan *plan);

/* Device bytes a plan needs, by use. With a weight budget, weights are those that stay, and staging is what the others
 * pass through; every context has staging of its own. */
typedef struct trm_memory_plan {
    size_t weights, staging, state, activations, workspace, total;
} trm_memory_plan;
TRM_API void trm_plan_memory(const trm_plan *plan, trm_memory_plan *memory);

/*
 * Weight streaming. Weights that do not stay on the device lie in host memory and flow through a ring of staging memory
 * while a run uses them, with the same results. A budget says how many bytes of the weights that can be streamed stay;
 * small ones always do. Every rank has a budget of its own for its own part. Networks with loops or branches that only
 * a run decides stream, too, a loop being thought to make eight passes; their runs are then not captured.
 */
typedef enum trm_weight_budget_kind {
    TRM_WEIGHT_BUDGET_OFF = 0, /* every weight stays */
    TRM_WEIGHT_BUDGET_AUTO,    /* as many as the memory that is free when the engine is made has room for */
    TRM_WEIGHT_BUDGET_PERCENT, /* of the bytes that can be streamed */
    TRM_WEIGHT_BUDGET_BYTES
} trm_weight_budget_kind;

/* Whether streamed weights are packed without loss in host memory and unpacked on the device: bf16 then takes about two
 * thirds of the bytes, on the link and in host memory. The weights that come out are the same bit by bit. */
typedef enum trm_weight_compression {
    TRM_WEIGHT_COMPRESSION_AUTO = 0, /* on CUDA */
    TRM_WEIGHT_COMPRESSION_OFF,
    TRM_WEIGHT_COMPRESSION_LOSSLESS
} trm_weight_compression;
/* "auto", "off" or "lossless". */
TRM_API trm_status trm_weight_compression_parse(const char *text, trm_weight_compression *compression);

/* Whether ranks with the same weights (replicas along dp) fetch them together: each a part over its own link, which the
 * others get from it when a layer needs it. All of them must then make the same runs at the same time. */
typedef enum trm_weight_sharing {
    TRM_WEIGHT_SHARING_AUTO = 0, /* in generators, whose ranks make every step together, unless processors are to
                                    compute a share (host_compute PERCENT) */
    TRM_WEIGHT_SHARING_OFF,
    TRM_WEIGHT_SHARING_ON
} trm_weight_sharing;
/* "auto", "off" or "on". */
TRM_API trm_status trm_weight_sharing_parse(const char *text, trm_weight_sharing *sharing);

/* The most rows (tokens of a step) of layers that processors compute. */
#define TRM_HOST_COMPUTE_ROWS 8

/* Whether the CPU runs some of the layers whose weights are not on the device, from host memory, while the weights of
 * others are copied. Only in runs with few rows (decode steps of few sequences), whose time is that of reading weights.
 * Sums are added in another order than on the device, so last bits may differ. */
typedef enum trm_host_compute {
    TRM_HOST_COMPUTE_OFF = 0,
    TRM_HOST_COMPUTE_AUTO,   /* the layers with which a run takes least, by rates that are measured: not always the
                                same */
    TRM_HOST_COMPUTE_PERCENT /* layers that read so much of what does not stay: always the same */
} trm_host_compute;

/* Where `kind` is OFF, nothing streams and the other fields are not looked at. */
typedef struct trm_weight_budget {
    trm_weight_budget_kind kind;
    double percent;    /* 0 .. 100, of PERCENT */
    size_t bytes;      /* of BYTES */
    size_t host_bytes; /* host memory that streamed weights may take; 0: what is free. What has no room there is read
                          from its files in every run, through buffers beside it */
    trm_weight_compression compression;
    trm_weight_sharing sharing;
    trm_host_compute host_compute;
    double host_percent; /* 0 .. 100, of PERCENT */
} trm_weight_budget;

/* "off", "auto", or a percentage with or without its sign, into host_compute and host_percent. */
TRM_API trm_status trm_host_compute_parse(const char *text, trm_weight_budget *budget);

/* "off", "auto", "25%", or bytes with B, K, M or G (powers of 1024; none: bytes), such as "8G" or "1.5G". host_bytes
 * becomes 0, compression and sharing AUTO, host_compute OFF. */
TRM_API trm_status trm_weight_budget_parse(const char *text, trm_weight_budget *budget);

/* Plans which weights stay. To be called before the engine is made; AUTO is resolved by then. UNSUPPORTED: processors
 * are to compute a share (host_compute PERCENT, more than 0) of a network with loops or branches, on whatever rank
 * those are; where each rank's network is its author's, the engine is refused instead, on all ranks. INVALID_ARGUMENT:
 * they are to in a plan that is batch invariant, or where replicas fetch weights together. A share that cannot be
 * computed for other reasons (weights are read from files, layers are of kinds that processors do not run) is told by a
 * warning when the engine is made. */
TRM_API trm_status trm_plan_set_weight_budget(trm_plan *plan, const trm_weight_budget *budget);

/* What a budget comes to, on one rank. */
typedef struct trm_streaming_info {
    bool on;                   /* a budget is set; otherwise all else but `streamable` and `budget` is 0 */
    bool pinned;               /* host memory is pinned; if not, copies are several times slower */
    bool measured;             /* the link's rate is, which else is a guess: without an engine, or if nothing streams */
    size_t streamable, budget; /* bytes of weights that can be streamed; of them may stay */
    size_t resident, streamed; /* bytes of them that stay; that are copied in every run (where processors compute: in
                                  every one with few rows), which before the engine is made is a guess where weights are
                                  packed */
    size_t unpacked;           /* bytes of weights that those copied become */
    size_t offloaded;          /* bytes of weights that processors read in such a run */
    int32_t offloaded_layers;  /* that they compute */
    double host_rate;      /* bytes per second at which they read, measured when the engine was made; 0: they compute
                              nothing */
    double host_seconds;   /* of such a run, that they are busy */
    size_t large_streamed; /* bytes that are copied in every run with more rows: the same as `streamed` where processors
                              compute nothing */
    double large_run_seconds;   /* the least such a run takes */
    double host_run_seconds;    /* the least a run with few rows is thought to take if processors computed (AUTO), where
                                   that is clearly less and they do not; else 0 */
    size_t staging, host;       /* bytes of the ring of one context; of weights in host memory */
    size_t files;               /* bytes that are read from files in every run */
    size_t file_buffers;        /* bytes of host memory that one context reads them through; 0: it reads none */
    int32_t copies;             /* in every run */
    int32_t loop_passes;        /* that a loop is counted as, in bytes and copies of a run as in times, where the usual
                                   inputs of profile 0 do not tell: trm_context_streamed has the bytes of a run. 0:
                                   there is no such loop */
    int32_t sharers;            /* ranks that fetch weights together; 1: this one alone */
    size_t gathered;            /* bytes of weights that come from them in every run; `unpacked` has them, too */
    double link_rate;           /* bytes per second, once `measured` */
    double unpack_rate;         /* bytes of weights per second, the same; 0: none is packed */
    double run_seconds;         /* the least a run takes: the time of the link, or that of reading all weights */
    double link_seconds;        /* of that, how long the link is busy */
    double largest_run_seconds; /* about what a run with the largest inputs takes: of a prompt that fills a step */
} trm_streaming_info;
TRM_API void trm_plan_streaming(const trm_plan *plan, trm_streaming_info *info);

/* A layer that waits for weights, and for how long; "next step": what the step after this one begins with, for which a
 * step waits at its end. */
typedef void (*trm_stall_fn)(void *user, const char *layer, double seconds);
/* Calls fn for every layer that waits in a step that does no more than read its weights, in their order. Seconds;
 * `layer` lives with the plan. */
TRM_API void trm_plan_stalls(const trm_plan *plan, trm_stall_fn fn, void *user);

/* The rank's network after all passes: its inputs, outputs and layers. It lives with the plan, and with the engine that
 * takes the plan over. */
TRM_API const trm_network *trm_plan_network(const trm_plan *plan);

typedef struct trm_plan_info {
    trm_backend backend;
    trm_mesh mesh;
    int32_t rank, n_ranks, n_profiles, n_collectives;
    bool refittable;                             /* the network was */
    int32_t n_aux_streams;                       /* that layers run on */
    int32_t n_tactics;                           /* below; 0: the plan was not tuned */
    const char *device;                          /* the device they were timed on; NULL without tactics */
    int32_t multiprocessors, cc_major, cc_minor; /* of that device */
    const char *library;                         /* version that built it */
    int32_t format;                              /* of the file that it was loaded from; 0: of none */
    int32_t n_weights[3]; /* of that file, by trm_plan_weights: how it has those of this rank; 0 of constants */
} trm_plan_info;
TRM_API void trm_plan_get_info(const trm_plan *plan, trm_plan_info *info);
/* The bounds of inputs that the plan was built with; false past the last. What they name lives with the plan. */
TRM_API bool trm_plan_get_bound(const trm_plan *plan, int32_t index, trm_shape_bound *bound);

/*
 * Plan files. One file holds the networks of all ranks of a mesh: plans [n_plans] are those of rank 0, 1, ..., built
 * with the same options. The same plans give the same bytes.
 *
 * REFERENCED weights stay where they are and are named by file, place and a checksum of a sample of their bytes, files
 * in the folder of the plan or below it relative to that. EMBEDDED: each rank's part of them is written into the plan,
 * in the type it is computed in; of a refittable network all of each, under its name. STRIPPED: the plan has their
 * names, types, dims and checksums, and weights are given when it is loaded. Constants are always written. An existing
 * file is replaced when all is written. Errors: INVALID_ARGUMENT (plans that do not belong together, names with control
 * characters, two weights of one name where they are stripped), IO, OUT_OF_MEMORY, and those of reading weights.
 */
typedef enum trm_plan_weights {
    TRM_PLAN_WEIGHTS_REFERENCED = 0,
    TRM_PLAN_WEIGHTS_EMBEDDED,
    TRM_PLAN_WEIGHTS_STRIPPED
} trm_plan_weights;
TRM_API trm_status trm_plan_save(const trm_plan *const *plans, int32_t n_plans, trm_plan_weights weights,
                                 const char *path);
/*
 * Reads the plan of a rank. Nothing of the model it was built from is opened but the weight files. What the file says
 * is checked as a network built by hand is, and memory is planned anew.
 * Errors: IO; INVALID_MODEL (no plan file, cut off, damaged; a weight file that has changed; a stripped plan);
 * UNSUPPORTED (written by another version); INVALID_ARGUMENT (there is no such rank).
 */
TRM_API trm_status trm_plan_load(const char *path, int32_t rank, trm_plan **plan);
/*
 * The same with weights from elsewhere, found by their names: `weights` is an ONNX file or a folder of safetensors. It
 * must have all those that were stripped, and takes the place of those that are referenced as far as it has them; what
 * is embedded stays, but of a refittable network. Types and dims must be those of the plan. A plan whose network was
 * refittable (onnx.h) takes any elements; from those of another one constants were computed, so that it takes only the
 * elements that it was built with. Further errors: INVALID_ARGUMENT names the first weight that does not fit, or those
 * that are missing.
 */
TRM_API trm_status trm_plan_refit(const char *path, int32_t rank, const char *weights, trm_plan **plan);

/* One call for each weight of the model that the rank has parts of, by the name that a refit finds it by. */
typedef void (*trm_weight_fn)(void *user, const char *name, trm_dtype dtype, const trm_dims *dims);
TRM_API trm_status trm_plan_for_weights(const trm_plan *plan, trm_weight_fn fn, void *user);

/* Called while weights load, from one thread: bytes done and in all, on this rank. */
typedef void (*trm_progress_fn)(void *user, size_t done, size_t total);

/*
 * Tactics: on CUDA several implementations of a layer, and several algorithms of a library, are timed on the dims that
 * are set, and the fastest is used. The choice holds for every context of the process; a timing cache file keeps it for
 * the next process, one line of text per problem. Files are merged when they are written.
 *
 * level TRM_TUNE_OFF takes a library's first proposal; 1 takes what the cache knows and times nothing else; 2, 3 and 4
 * time more and more proposals, 5 all of them; 0, the default, is 3. `progress` is called before each layer; if it returns false, the
 * call ends with TRM_ERROR_CANCELLED and keeps what was timed, in the file too.
 */
typedef bool (*trm_tune_progress_fn)(void *user, int32_t done, int32_t total, double seconds_left);
typedef struct trm_tune_options {
    size_t size; /* sizeof(trm_tune_options) */
    int32_t level;
    const char *cache;             /* file, made with its folders where there is none; NULL: no file */
    trm_tune_progress_fn progress; /* may be NULL */
    void *progress_user;
} trm_tune_options;
#define TRM_TUNE_OPTIONS_INIT TRM_MAKE(trm_tune_options, TRM_SET(size, sizeof(trm_tune_options)))
#define TRM_TUNE_OFF          (-1) /* of level */

/*
 * Tactics of a plan: timed before there is an engine, and kept in the plan and its file. Layers are timed one by one at
 * the usual dims of every profile (opt, else max), on random numbers; weights are not read and other ranks not needed,
 * so that a world of one rank tunes the plans of all. A plan for the host has nothing to choose.
 *
 * An engine of a tuned plan times nothing. It is refused where the tactics cannot be used: on another kind of device,
 * or with other versions of the libraries that they belong to. Other dims than the usual ones take what was timed for
 * those of the same problem that are near, else what a library proposes first.
 */
TRM_API trm_status trm_plan_tune(trm_plan *plan, trm_world *world, const trm_tune_options *options);
/* Whether the tactics can be used on the world's device; INVALID_ARGUMENT says what does not fit. */
TRM_API trm_status trm_plan_check_device(trm_plan *plan, trm_world *world);
/* Forgets the tactics, so that the plan fits every device. */
TRM_API void trm_plan_drop_tactics(trm_plan *plan);
/* Tactics in the order in which layers ask for them; false past the last. Strings live with the plan. */
TRM_API bool trm_plan_get_tactic(const trm_plan *plan, int32_t index, const char **problem, const char **tactic,
                                 double *microseconds);

/* Reads this rank's weights into the world's device. The engine takes the plan over, also when it fails. The world must
 * outlive it. Collective over the world: where one rank fails, all do. Errors: INVALID_ARGUMENT (the plan is for
 * another rank, mesh or backend, its tactics for another device or library), OUT_OF_MEMORY with the memory plan in the
 * record, IO and INVALID_MODEL from the files. */
TRM_API trm_status trm_engine_create(trm_plan *plan, trm_world *world, trm_progress_fn progress, void *user,
                                     trm_engine **engine);
/* Its contexts must be destroyed before it. */
TRM_API void trm_engine_destroy(trm_engine *engine);
/* The recorder of failures (recorder.h) of calls about the engine and those of its contexts that have none of their
 * own; NULL: the world's. Not while another thread makes such a call. */
TRM_API void trm_engine_set_recorder(trm_engine *engine, trm_recorder *recorder);

/*
 * Gives an engine whose network was refittable new weights between runs; its contexts, and what they have captured,
 * live on. trm_engine_refit: one weight by its name, `data` being all of it, whatever part the rank has; a copy stays
 * in host memory. trm_engine_refit_from: all that an ONNX file or a folder of safetensors has, at least one. Not
 * collective: every rank is told. Errors: INVALID_ARGUMENT (not refittable, weights that are read from files in every
 * run, no such weight, another type or other dims), and those of reading weights, after which some may be new and some
 * not.
 */
TRM_API trm_status trm_engine_refit(trm_engine *engine, const char *name, trm_dtype dtype, trm_dims dims,
                                    const void *data);
TRM_API trm_status trm_engine_refit_from(trm_engine *engine, const char *weights);

/*
 * Changes the budget of an engine whose plan had one, between runs; its contexts may live on. Collective where ranks
 * share weights, which must all give the same, otherwise not. Errors: INVALID_ARGUMENT (the plan had no budget),
 * OUT_OF_MEMORY: the engine works on with what could be done.
 */
TRM_API trm_status trm_engine_set_weight_budget(trm_engine *engine, size_t bytes);
TRM_API void trm_engine_streaming(const trm_engine *engine, trm_streaming_info *info);

/* Allocates what a run needs, state zeroed; inputs are not set. Host memory of outputs comes with the first run that
 * needs it. Not collective. */
TRM_API trm_status trm_context_create(trm_engine *engine, trm_context **context);
/*
 * The same in device memory of the caller: `memory` of the engine's device, aligned to 256 bytes, of at least
 * trm_engine_context_bytes, which must outlive the context. What only a run can tell, and staging of streamed weights,
 * the context allocates itself. Contexts without state that take turns may share memory, if inputs are set anew before
 * every run.
 */
TRM_API size_t trm_engine_context_bytes(const trm_engine *engine);
TRM_API trm_status trm_context_create_in(trm_engine *engine, void *memory, size_t bytes, trm_context **context);
TRM_API void trm_context_destroy(trm_context *context);
/* The recorder of failures (recorder.h) of calls about the context, those of its runs among them; NULL: the engine's.
 */
TRM_API void trm_context_set_recorder(trm_context *context, trm_recorder *recorder);

/* Sets an input: dims within the plan's bounds, `data` host memory of dims elements, copied before it returns. */
TRM_API trm_status trm_context_set_input(trm_context *context, const char *name, trm_dims dims, const void *data);
/* Runs the network on the inputs set. Collective over the ranks of the plan. Waits for the results. */
TRM_API trm_status trm_context_run(trm_context *context);
/* Dims and host data of an output of the last run; data is valid until the next run or the context's end. Fails if the
 * last run failed or there was none. */
TRM_API trm_status trm_context_output(trm_context *context, const char *name, trm_dims *dims, const void **data);
/*
 * A run in two halves: start enqueues it on the context's stream, finish waits for the results. In between the
 * inputs must not be set. Networks whose dims depend on data are waited for within start. trm_context_run is both.
 */
TRM_API trm_status trm_context_start(trm_context *context);
TRM_API trm_status trm_context_finish(trm_context *context);
/*
 * The stream that a context runs on: a cudaStream_t on CUDA, NULL on the host. With it a caller orders runs with other
 * work by events, or makes a run part of a CUDA graph of its own:
 *
 *     trm_context_run(context);                                  // once, with the same dims and the same memory bound
 *     cudaStreamBeginCapture(trm_context_stream(context), mode); // any mode; or the stream waits for an event of one
 *     trm_context_start(context);                                // that is captured; no trm_context_finish
 *     cudaStreamEndCapture(trm_context_stream(context), &graph);
 *
 * Each launch of the graph, on any stream, is one run with the dims of the capture. It reads the inputs that were set
 * last and the memory that is bound, continues from the context's state, and writes outputs that are not bound to the
 * memory that trm_context_output gives. An output allocator is asked once, during the capture.
 *
 * The caller keeps launches, other runs of the context and the setting of inputs in order, and waits for the launches.
 * Several ranks all capture, and launch in the same order; a lost rank is not noticed. A graph is of no more use when
 * the context is destroyed or runs with other dims or other bound memory, or when the engine's weight budget changes.
 * It follows a refit of the engine.
 *
 * trm_context_start refuses what cannot be captured before it enqueues anything, so the capture stays valid:
 *   UNSUPPORTED       dims or layers depend on what a run computes; weights are read from files or shared by ranks in
 *                     every run, or stream in a network with loops or branches; the CPU runs layers; debug tensors
 *   INVALID_ARGUMENT  no finished run had the same dims, bound inputs and deciding elements; an output is bound to too
 *                     little memory, or is bound no longer and has no host memory yet
 * Calls that wait (trm_context_run, finish, reset, tune) are INVALID_ARGUMENT during a capture and leave it valid too.
 * After any other error end the capture and drop it.
 */
TRM_API void *trm_context_stream(trm_context *context);

/*
 * Memory of the caller on the context's device instead of the context's: an input that runs read, `data` aligned to 256
 * bytes, until it is set or bound again; an output that runs write, NULL for the context's host memory again. It must
 * be there until a run has finished, and capacity suffice for the dims of the run. Inputs whose elements decide dims
 * cannot be bound: they are needed on the host. trm_context_output then gives `memory`.
 */
TRM_API trm_status trm_context_bind_input(trm_context *context, const char *name, trm_dims dims, const void *data);
TRM_API trm_status trm_context_bind_output(trm_context *context, const char *name, void *memory, size_t capacity);
/* Asked for the device memory of every output that is not bound when its dims are known, which may be late in a run;
 * NULL from `allocate` ends the run with OUT_OF_MEMORY. A NULL `allocate` switches it off. */
typedef void *(*trm_output_allocate_fn)(void *user, const char *output, const trm_dims *dims, size_t bytes);
TRM_API trm_status trm_context_set_output_allocator(trm_context *context, trm_output_allocate_fn allocate, void *user);
/* Needs inputs that are set; runs the network once, on a backend where there is something to choose. `options` may be
 * NULL. Collective over the ranks of the plan. A file that cannot be read or written is a warning. With a file,
 * exchanges between the GPUs of one host are measured too, unless it has their times: rank 0's file is that of all.
 * No run of the world may be in flight, of this context (INVALID_ARGUMENT between start and finish), of another, or of
 * a captured graph. */
TRM_API trm_status trm_context_tune(trm_context *context, const trm_tune_options *options);

/* The file that the command line keeps timings of a device in, "$XDG_CACHE_HOME/trireme/timing/<device>.txt"; release
 * with trm_free. NULL where neither XDG_CACHE_HOME nor HOME is set, or out of memory. */
TRM_API char *trm_timing_cache_path(trm_world *world);

/* One call of `fn` for each tactic that was timed for a layer, best first, in the order of the layers; `best` for that
 * which is used. Of the last trm_context_tune. */
typedef void (*trm_tactic_fn)(void *user, const char *layer, const char *problem, const char *tactic,
                              double microseconds, bool best);
TRM_API void trm_context_tactics(const trm_context *context, trm_tactic_fn fn, void *user);

/* The inspector (trm_plan_to_json) with the dims of the last run, their kernels, and what was timed for each layer. */
TRM_API char *trm_context_to_json(const trm_context *context);

/* Runs after the first of the same dims are captured and launched as one where the backend can (CUDA graphs) and
 * neither dims nor what loops and branches do depends on what a run computes; what was captured is kept for the dims
 * used last. Inputs are then copied to the device only after they were set. Off at first. */
TRM_API trm_status trm_context_set_capture(trm_context *context, bool on);

/*
 * Holds runs to one optimization profile: dims of inputs must lie in it, and elements of a value input whose bound has
 * min_values and max_values, between them. -1, as at first: dims may lie in any. Errors: INVALID_ARGUMENT (the plan has
 * no such profile).
 */
TRM_API trm_status trm_context_set_optimization_profile(trm_context *context, int32_t profile);

/*
 * Runs the network at the shapes that its profiles name (min, opt, max; of the context's profile, if it is held to one)
 * with zeros for inputs, so that later runs of them, and of shapes near them, find kernels loaded, planned and, where
 * runs are captured, captured; and at every shape from min to max where these are no more than 64, dims of equal bounds
 * taken for the same size, and no elements decide dims. A shape with value inputs is left out where the profile does
 * not say their elements.
 * Inputs, bound ones too, are to be set again after it, states are as after trm_context_reset, outputs that are bound
 * are written. Collective over the ranks of the plan. Errors: as of trm_context_run; INVALID_ARGUMENT between start and
 * finish; UNSUPPORTED for networks with loops or branches that only a run decides.
 */
TRM_API trm_status trm_context_warm_up(trm_context *context);

/* Sets all state back to zero. Inputs stay set. */
TRM_API trm_status trm_context_reset(trm_context *context);

/*
 * Debug tensors: what the layers of a run make, one call of `fn` for every output of each layer that the passes left,
 * when it was made, in the order in which layers run. Tensors keep the names of the network that was built; one that is
 * to be there whatever the passes do is marked as an output. The run waits for every layer and is not captured: its
 * results are the same, its times are not. False from `fn` ends the run with TRM_ERROR_CANCELLED, on this rank alone. A
 * NULL `fn` switches it off.
 */
typedef struct trm_debug_tensor {
    const char *name, *layer, *kernel; /* kernel: "" where nothing ran, as for a view */
    trm_layer_kind kind;
    trm_dtype dtype;
    trm_dims dims;
    const void *data;     /* [dims] host memory, until `fn` returns */
    trm_tensor_part part; /* what it is of the whole tensor, where there are several ranks */
} trm_debug_tensor;
typedef bool (*trm_debug_fn)(void *user, const trm_debug_tensor *tensor);
TRM_API trm_status trm_context_set_debug(trm_context *context, trm_debug_fn fn, void *user);

/*
 * The times of the last finished run: copies of inputs, layers and copies of outputs on the device's clock, and how
 * long the calling thread took to enqueue them. Captured runs copy only inputs that were set again. Off at first, as
 * the events take some microseconds. INVALID_ARGUMENT if no run has finished.
 */
typedef struct trm_run_times {
    double upload_milliseconds, compute_milliseconds, download_milliseconds, enqueue_milliseconds;
} trm_run_times;
TRM_API trm_status trm_context_set_timing(trm_context *context, bool on);
TRM_API trm_status trm_context_times(const trm_context *context, trm_run_times *times);

/* Times each layer of the runs from now on; trm_context_layer_times then calls `fn` once per layer, in order. A layer
 * whose weights stream has one more call before it, with the time it waited for them and TRM_KERNEL_WAIT. */
#define TRM_KERNEL_WAIT "weight_stream.wait"
TRM_API trm_status trm_context_set_layer_timing(trm_context *context, bool on);
/* Bytes of weights that the last run copied, those that are packed as they are on their way; of loops in every pass
 * that it made. 0 before a run. */
TRM_API size_t trm_context_streamed(const trm_context *context);
typedef void (*trm_layer_time_fn)(void *user, const char *layer, trm_layer_kind kind, const char *kernel,
                                  double mean_milliseconds, int64_t runs);
TRM_API void trm_context_layer_times(trm_context *context, trm_layer_time_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
