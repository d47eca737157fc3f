/*
 * Builder, plan, engine and execution context: from a network to results.
 *
 *   network -> trm_build -> plan (this rank's network, memory plan) -> trm_engine (weights on the device)
 *           -> trm_context (activations and state) -> trm_context_run
 *
 * Several threads may read a plan and an engine; one thread at a time uses a context. An engine may have several
 * contexts, each with activations and state of its own. With one rank they may run on several threads at once; with
 * several ranks they run on one thread, in the same order on every rank.
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
 * The dims of an input or a state in one optimization profile. The dims of a run must lie in one of the engine's
 * profiles (trm_context_set_optimization_profile chooses one); memory and kernels are planned for all of them.
 *
 * max is the largest dims; min and opt are the smallest and the usual ones, or have n = 0 if unknown. Memory is planned
 * from all of them, since some networks need most memory for smaller inputs.
 *
 * If the elements of an input decide dims (a value input, layers.h, or an input that one is computed from), *_values
 * are its elements, in the input's type and with the dims of the same name. Without max_values a run allocates what
 * depends on them. A run may have other elements if the memory planned suffices. The elements also tell how often loops
 * repeat, which decides where pipeline stages are cut: all ranks of a pipeline must give the same.
 */
typedef struct trm_shape_bound {
    const char *tensor;
    trm_dims max, min, opt;
    const void *max_values, *min_values, *opt_values; /* copied */
    int32_t profile; /* 0 .. TRM_MAX_PROFILES - 1; a profile without a bound for a tensor uses that of profile 0 */
} trm_shape_bound;
#define TRM_MAX_PROFILES 16

/* Called with the network after each stage of the build: "import", "passes", "partition" and "final". */
typedef void (*trm_stage_fn)(void *user, const char *stage, const trm_network *network);

typedef struct trm_build_options {
    size_t size; /* sizeof(trm_build_options) */
    trm_backend backend;
    trm_mesh mesh; /* of zeros: one rank, since a build has no world */
    int32_t rank;
    const trm_shape_bound *bounds; /* [n_bounds]; one for each input or state with -1 dims, of states in profile 0 */
    int32_t n_bounds;
    trm_stage_fn on_stage; /* may be NULL */
    void *stage_user;
    bool allow_tf32; /* CUDA: round inputs of f32 matrix products and convolutions to TF32 (10 bits of fraction) */
    int32_t max_aux_streams; /* CUDA: streams beside the context's own for independent branches, captured or not; 0 to
                                TRM_MAX_AUX_STREAMS. Each costs a workspace and more activation memory.
                                TRM_AUX_STREAMS_AUTO: two, if at least a quarter of the layers can run beside others.
                                Unused for networks with states or data-dependent dims, and while weights stream, layers
                                are timed or debug tensors are read */
    bool batch_invariant; /* the bits of a sequence's results do not depend on what else is in its steps, or on how its
                             tokens are spread over them; costs time */
    size_t max_workspace; /* most bytes of scratch per stream that kernels may take to be faster; 0: no limit.
                             Convolutions on CUDA ask for up to 512 MiB and also work with less; products keep 32 MiB,
                             other kernels what they need */
} trm_build_options;
#define TRM_MAX_AUX_STREAMS    8
#define TRM_AUX_STREAMS_AUTO   (-1)
#define TRM_BUILD_OPTIONS_INIT TRM_MAKE(trm_build_options, TRM_SET(size, sizeof(trm_build_options)))

/*
 * Partitions the network over the mesh for `rank`, runs the passes and plans memory. Does not change the network, which
 * may be destroyed afterwards. Decides the same on every rank, without communication and without a device.
 *
 * A network with DIST_COLLECTIVE layers, or ATTENTION over several ranks, is not partitioned: `rank` runs it as
 * written, and it may differ between ranks. Each rank must then have such a layer, and every such layer a group with
 * the rank.
 *
 * Errors: INVALID_ARGUMENT (missing or wrong bounds, a pin, mesh or collective that cannot be met, dims that do not
 * fit), UNSUPPORTED (a layer without a kernel on this backend). Dims that do not fit the largest possible output of a
 * data-dependent layer are not an error, since smaller outputs may fit: a debug message names the layer, and a run
 * whose dims do not fit fails.
 */
TRM_API trm_status trm_build(const trm_network *network, const trm_build_options *options, trm_plan **plan);
TRM_API void trm_plan_destroy(trm_plan *plan);
/* The rank's network as text; release with trm_free. NULL if memory is out. */
TRM_API char *trm_plan_to_text(const trm_plan *plan);

/*
 * The plan as JSON: mesh, profiles, memory and collectives; each layer with parameters, inputs, outputs, and the kernel
 * and workspace at the usual dims of the first profile; each tensor with type, dims (declared, usual, largest), bytes,
 * place in memory, part of a whole tensor, and the source of its elements. Release with trm_free. NULL if memory is out
 * or the dims cannot be inferred.
 */
TRM_API char *trm_plan_to_json(trm_plan *plan);

/* Device bytes that a plan needs, by use. With a weight budget, `weights` are those that stay, and the others pass
 * through `staging`, which each context has for itself. */
typedef struct trm_memory_plan {
    size_t weights, staging, state, activations, workspace, total;
} trm_memory_plan;
TRM_API void trm_plan_memory(const trm_plan *plan, trm_memory_plan *memory);

/*
 * Weight streaming. Weights that do not stay on the device lie in host memory and pass through a ring of staging memory
 * while a run uses them, with the same results. A budget says how many bytes of the streamable weights stay; small
 * weights always stay. Every rank has a budget of its own for its own part. Networks with loops or branches that a run
 * decides stream too: a loop counts as eight passes, and their runs are not captured.
 */
typedef enum trm_weight_budget_kind {
    TRM_WEIGHT_BUDGET_OFF = 0, /* every weight stays */
    TRM_WEIGHT_BUDGET_AUTO,    /* as many as fit into the memory that is free when the engine is created */
    TRM_WEIGHT_BUDGET_PERCENT, /* of the streamable bytes */
    TRM_WEIGHT_BUDGET_BYTES
} trm_weight_budget_kind;

/* Lossless compression of streamed weights: packed in host memory, unpacked on the device, the same bits. bf16 weights
 * then take about two thirds of the bytes, on the link and in host memory. */
typedef enum trm_weight_compression {
    TRM_WEIGHT_COMPRESSION_AUTO = 0, /* on CUDA */
    TRM_WEIGHT_COMPRESSION_OFF,
    TRM_WEIGHT_COMPRESSION_LOSSLESS
} trm_weight_compression;
/* Parses "auto", "off" or "lossless". Error: INVALID_ARGUMENT. */
TRM_API trm_status trm_weight_compression_parse(const char *text, trm_weight_compression *compression);

/* Whether ranks with the same weights (replicas along dp) stream them together: each copies a part over its own link
 * and sends it to the others when a layer needs it. All of them must then make the same runs at the same time. */
typedef enum trm_weight_sharing {
    TRM_WEIGHT_SHARING_AUTO = 0, /* on for generators, whose ranks step together, unless host_compute is PERCENT */
    TRM_WEIGHT_SHARING_OFF,
    TRM_WEIGHT_SHARING_ON
} trm_weight_sharing;
/* Parses "auto", "off" or "on". Error: INVALID_ARGUMENT. */
TRM_API trm_status trm_weight_sharing_parse(const char *text, trm_weight_sharing *sharing);

/* Most rows (tokens of a step) for which the CPU runs layers. */
#define TRM_HOST_COMPUTE_ROWS 8

/* CPU offload: in runs of few rows (decode steps of few sequences), which are bound by reading weights, the CPU runs
 * some streamed layers from host memory while the weights of others are copied. With an expert cache it computes some
 * of a layer's missing experts while the others are copied. It adds sums in another order than the device, so last bits
 * may differ. */
typedef enum trm_host_compute {
    TRM_HOST_COMPUTE_OFF = 0,
    TRM_HOST_COMPUTE_AUTO,   /* the layers that give the fastest run by measured rates; may vary from start to start */
    TRM_HOST_COMPUTE_PERCENT /* layers with this share of the streamed bytes, always the same layers; or this share of
                                the missing experts of a layer */
} trm_host_compute;

/* If `kind` is OFF, nothing streams and the other fields are ignored. */
typedef struct trm_weight_budget {
    trm_weight_budget_kind kind;
    double percent;    /* 0 .. 100, for PERCENT */
    size_t bytes;      /* for BYTES */
    size_t host_bytes; /* host memory for streamed weights; 0: what is free. Every run reads the rest from files,
                          through buffers beside it */
    trm_weight_compression compression;
    trm_weight_sharing sharing;
    trm_host_compute host_compute;
    double host_percent; /* 0 .. 100, for host_compute PERCENT */
} trm_weight_budget;

/* Parses "off", "auto", or a percentage with or without its sign into host_compute and host_percent. Error:
 * INVALID_ARGUMENT. */
TRM_API trm_status trm_host_compute_parse(const char *text, trm_weight_budget *budget);

/* Parses "off", "auto", "25%", or bytes such as "8G" or "1.5G" (B, K, M, G: powers of 1024; no unit: bytes). Sets the
 * other fields to 0. Error: INVALID_ARGUMENT. */
TRM_API trm_status trm_weight_budget_parse(const char *text, trm_weight_budget *budget);

/* Plans which weights stay; before the engine is created, which resolves AUTO. Errors, if the CPU is to compute a share
 * (host_compute PERCENT above 0): UNSUPPORTED (the network has loops or branches on any rank; with a network of
 * collectives of its own, trm_engine_create fails instead, on all ranks), INVALID_ARGUMENT (the plan is batch
 * invariant, or replicas stream weights together). If the CPU cannot run such layers for another reason (weights are
 * read from files, or the CPU does not run the kind), trm_engine_create logs a warning. */
TRM_API trm_status trm_plan_set_weight_budget(trm_plan *plan, const trm_weight_budget *budget);

/* What a budget means on one rank. "Few rows": at most TRM_HOST_COMPUTE_ROWS. Sizes are bytes, rates bytes per second.
 */
typedef struct trm_streaming_info {
    bool on;       /* a budget is set; if not, everything except `streamable` and `budget` is 0 */
    bool pinned;   /* host memory is pinned; if not, copies are several times slower */
    bool measured; /* link_rate and unpack_rate are measured; if not (no engine yet, or nothing streams), they
                      are estimates */
    size_t streamable, budget; /* weights that can be streamed; of these, how many may stay */
    size_t resident, streamed; /* weights that stay; bytes that every run copies (with CPU offload: every run with few
                                  rows), an estimate before the engine is created if weights are packed */
    size_t unpacked;           /* weights that `streamed` unpacks to */
    size_t offloaded;          /* weights that the CPU reads in a run with few rows */
    int32_t offloaded_layers;  /* layers that the CPU runs */
    double host_rate;          /* at which the CPU reads weights, measured by the engine; 0: no CPU offload */
    double host_seconds;       /* time that the CPU is busy in a run with few rows */
    size_t large_streamed;     /* bytes that a run with more rows copies; equals `streamed` without CPU offload */
    double large_run_seconds;  /* least time of such a run */
    double host_run_seconds;   /* estimated time of a run with few rows with CPU offload, if that is clearly less than
                                  now and offload (AUTO) is not in use; else 0 */
    size_t staging, host;      /* the ring of one context; weights in host memory */
    size_t files;              /* read from files in every run */
    size_t file_buffers;       /* host memory through which one context reads them; 0: it reads none */
    int32_t copies;            /* in every run */
    int32_t loop_passes;       /* passes that a loop counts as, in bytes, copies and times of a run, if the usual inputs
                                  of profile 0 do not tell; trm_context_streamed has the actual bytes. 0: no such loop */
    int32_t sharers;           /* ranks that stream weights together; 1: this one alone */
    size_t gathered;           /* weights that come from the other sharers in every run; part of `unpacked` */
    double link_rate;          /* of copies to the device */
    double unpack_rate;        /* of unpacking, in weights; 0: none is packed */
    double run_seconds;        /* least time of a run: that of the link, or of reading all weights */
    double link_seconds;       /* of run_seconds, time that the link is busy */
    double
        largest_run_seconds; /* estimated time of a run with the largest inputs, such as a prompt that fills a step */
    size_t expert_cache;  /* experts that stay between runs with few rows, and their tables, besides `resident`; of one
                             context of the engine. 0: none */
    int32_t expert_slots; /* experts that stay in each layer that has more */
    int32_t experts, cached_layers; /* experts of a layer here, and such layers */
    double expert_hit_rate; /* predicted share of a token's experts that are cached; `streamed` has the others of one
                               token */
    int64_t expert_hits, expert_misses; /* experts that runs found in the cache, and fetched, each once per layer and
                                           run; counted by the engine */
    int64_t expert_hosted;              /* and that the CPU computed */
    int32_t host_experts; /* of all layers, experts that a cache in host memory holds, while the others are read from
                             files; 0: host memory holds all */
    double host_expert_hit_rate; /* share of the experts to fetch that lie in host memory */
    bool expert_profile;  /* both rates are predicted from an expert profile; false: as if all were equally likely */
    size_t expert_read;   /* bytes of one token's experts that are read from files */
    int64_t expert_reads; /* of expert_misses, experts that were read from files */
    double file_rate;     /* of reading files; assumed until an engine has read some */
} trm_streaming_info;
TRM_API void trm_plan_streaming(const trm_plan *plan, trm_streaming_info *info);

/* Receives a layer that waits for weights, and how long; `layer` "next step" is the wait at the end of a step for the
 * first weights of the next. */
typedef void (*trm_stall_fn)(void *user, const char *layer, double seconds);
/* Estimates which layers wait for weights in a step that only reads its weights, and calls fn for them in order.
 * `layer` lives with the plan. */
TRM_API void trm_plan_stalls(const trm_plan *plan, trm_stall_fn fn, void *user);

/* The rank's network after all passes. It lives as long as the plan, or as the engine that takes the plan over. */
TRM_API const trm_network *trm_plan_network(const trm_plan *plan);

typedef struct trm_plan_info {
    trm_backend backend;
    trm_mesh mesh;
    int32_t rank, n_ranks, n_profiles, n_collectives;
    bool refittable;                             /* its network was (onnx.h) */
    int32_t n_aux_streams;                       /* streams beside the context's own that layers run on */
    int32_t n_tactics;                           /* 0: the plan was not tuned */
    const char *device;                          /* on which the tactics were timed; NULL without tactics */
    int32_t multiprocessors, cc_major, cc_minor; /* of that device */
    const char *library;                         /* version of Trireme that built the plan */
    int32_t format;                              /* of its plan file; 0: it was not loaded from a file */
    int32_t n_weights[3];                        /* in that file, for this rank, by trm_plan_weights */
} trm_plan_info;
TRM_API void trm_plan_get_info(const trm_plan *plan, trm_plan_info *info);
/* The bounds of inputs that the plan was built with; false past the last. Pointers in `bound` live with the plan. */
TRM_API bool trm_plan_get_bound(const trm_plan *plan, int32_t index, trm_shape_bound *bound);

/*
 * Plan files. One file holds the networks of all ranks of a mesh: plans [n_plans] are those of rank 0, 1, ..., built
 * with the same options. Equal plans give equal bytes.
 *
 * REFERENCED: weights stay in their files; the plan has file, offset and a checksum of a sample of the bytes. Files in
 * the plan's folder or below it are named relative to it. EMBEDDED: the plan holds each rank's part of the weights, in
 * the type that it computes in; for a refittable network it holds whole weights, by name. STRIPPED: the plan has names,
 * types, dims and checksums, and trm_plan_refit supplies the weights. Constants are always in the plan. An existing
 * file is replaced once the new one is complete. Errors: INVALID_ARGUMENT (plans that do not belong together, names
 * with control characters, two stripped weights of one name), IO, OUT_OF_MEMORY, and those of reading weights.
 */
typedef enum trm_plan_weights {
    TRM_PLAN_WEIGHTS_REFERENCED = 0,
    TRM_PLAN_WEIGHTS_EMBEDDED,
    TRM_PLAN_WEIGHTS_STRIPPED
} trm_plan_weights;
TRM_API trm_status trm_plan_save(const trm_plan *const *plans, int32_t n_plans, trm_plan_weights weights,
                                 const char *path);
/*
 * Reads the plan of a rank. Of the model that it was built from only the weight files are opened. The network is
 * checked like one built by hand, and memory is planned again. Errors: IO, INVALID_MODEL (not a plan file, cut off or
 * damaged; a weight file has changed; a stripped plan), UNSUPPORTED (written by another version), INVALID_ARGUMENT (no
 * such rank).
 */
TRM_API trm_status trm_plan_load(const char *path, int32_t rank, trm_plan **plan);
/*
 * Reads the plan of a rank with weights from `weights`, an ONNX file or a folder of safetensors, found by name. It must
 * have all stripped weights and replaces referenced ones that it has; embedded weights stay, unless the network is
 * refittable. Types and dims must be those of the plan. The plan of a refittable network (onnx.h) takes any elements;
 * other plans take only the elements that they were built with, since constants were computed from them. Errors also:
 * INVALID_ARGUMENT (with the first weight that does not fit, or those that are missing).
 */
TRM_API trm_status trm_plan_refit(const char *path, int32_t rank, const char *weights, trm_plan **plan);

typedef void (*trm_weight_fn)(void *user, const char *name, trm_dtype dtype, const trm_dims *dims);
/* Calls fn for each weight of the model that the rank uses, with the name by which a refit finds it. */
TRM_API trm_status trm_plan_for_weights(const trm_plan *plan, trm_weight_fn fn, void *user);

/* Called while weights load, from one thread at a time: bytes loaded, and in total, on this rank. */
typedef void (*trm_progress_fn)(void *user, size_t done, size_t total);

/*
 * Tactics. On CUDA, tuning times several kernels and library algorithms of a layer at the dims that are set, and uses
 * the fastest. The choice holds for every context of the process. A timing cache file keeps it for later processes, one
 * line of text per problem; writing a file merges it with what is there.
 *
 * level TRM_TUNE_OFF takes a library's first proposal; 1 takes what the cache knows and times nothing else; 2, 3 and 4
 * time more and more proposals, 5 all of them; 0, the default, is 3. `progress` is called before each layer; if it
 * returns false, the call ends with TRM_ERROR_CANCELLED and keeps what was timed, in the file too.
 */
typedef bool (*trm_tune_progress_fn)(void *user, int32_t done, int32_t total, double seconds_left);
typedef struct trm_tune_options {
    size_t size; /* sizeof(trm_tune_options) */
    int32_t level;
    const char *cache;             /* timing cache file, created with its folders if missing; NULL: no file */
    trm_tune_progress_fn progress; /* may be NULL */
    void *progress_user;
} trm_tune_options;
#define TRM_TUNE_OPTIONS_INIT TRM_MAKE(trm_tune_options, TRM_SET(size, sizeof(trm_tune_options)))
#define TRM_TUNE_OFF          (-1) /* of level */

/*
 * Tunes a plan before there is an engine, and keeps the tactics in the plan and its file. Times layers one by one at
 * the usual dims of every profile (opt, else max) on random numbers. It reads no weights and needs no other ranks, so
 * that a world of one rank can tune the plans of all ranks. A plan for the host has nothing to choose.
 *
 * An engine of a tuned plan times nothing. trm_engine_create fails if the tactics are for another kind of device or
 * other versions of their libraries. Other dims than the usual ones use the tactic of near dims of the same problem,
 * else a library's first proposal.
 */
TRM_API trm_status trm_plan_tune(trm_plan *plan, trm_world *world, const trm_tune_options *options);
/* Checks that the tactics can be used on the world's device. Error: INVALID_ARGUMENT (with what does not fit). */
TRM_API trm_status trm_plan_check_device(trm_plan *plan, trm_world *world);
/* Removes the tactics, so that the plan fits every device. */
TRM_API void trm_plan_drop_tactics(trm_plan *plan);
/* The tactics in the order in which layers use them; false past the last. Strings live with the plan. */
TRM_API bool trm_plan_get_tactic(const trm_plan *plan, int32_t index, const char **problem, const char **tactic,
                                 double *microseconds);

/* Loads this rank's weights onto the world's device. Takes the plan over, also on failure. The world must outlive the
 * engine. Collective: if one rank fails, all do. Errors: INVALID_ARGUMENT (the plan is for another rank, mesh or
 * backend, its tactics for another device or library), OUT_OF_MEMORY (with the memory plan), IO, INVALID_MODEL. */
TRM_API trm_status trm_engine_create(trm_plan *plan, trm_world *world, trm_progress_fn progress, void *user,
                                     trm_engine **engine);
/* Destroy its contexts before. */
TRM_API void trm_engine_destroy(trm_engine *engine);
/* Sets the recorder (recorder.h) for failed calls about the engine and its contexts without a recorder of their own;
 * NULL: the world's. Must not run while another thread makes such a call. */
TRM_API void trm_engine_set_recorder(trm_engine *engine, trm_recorder *recorder);

/*
 * Gives an engine of a refittable network new weights between runs. Its contexts and their captured runs stay valid.
 * trm_engine_refit sets one weight by name: `data` is the whole weight, whatever part the rank has, and a copy stays in
 * host memory. trm_engine_refit_from sets all weights that an ONNX file or a folder of safetensors has, at least one.
 * Not collective: call it on every rank. Errors: INVALID_ARGUMENT (not refittable, weights that every run reads from
 * files, no such weight, another type or other dims), and those of reading weights, after which some weights may be new
 * and others old.
 */
TRM_API trm_status trm_engine_refit(trm_engine *engine, const char *name, trm_dtype dtype, trm_dims dims,
                                    const void *data);
TRM_API trm_status trm_engine_refit_from(trm_engine *engine, const char *weights);

/*
 * Changes the budget of an engine whose plan had one, between runs; its contexts stay valid. Collective among ranks
 * that share weights, which must all give the same budget. Errors: INVALID_ARGUMENT (the plan had no budget),
 * OUT_OF_MEMORY (the engine stays usable with the part of the change that was done).
 */
TRM_API trm_status trm_engine_set_weight_budget(trm_engine *engine, size_t bytes);
TRM_API void trm_engine_streaming(const trm_engine *engine, trm_streaming_info *info);

/* Allocates the memory of runs. States are zero, inputs are not set. Host memory of outputs is allocated by the first
 * run that needs it. Not collective. Error: OUT_OF_MEMORY. */
TRM_API trm_status trm_context_create(trm_engine *engine, trm_context **context);
/*
 * The same in memory [bytes] of the caller on the engine's device: aligned to 256 bytes, at least
 * trm_engine_context_bytes. It must outlive the context. The context itself allocates staging for streamed weights and
 * what only a run can size. Contexts without state that run in turn may share memory if inputs are set before every
 * run.
 */
TRM_API size_t trm_engine_context_bytes(const trm_engine *engine);
TRM_API trm_status trm_context_create_in(trm_engine *engine, void *memory, size_t bytes, trm_context **context);
TRM_API void trm_context_destroy(trm_context *context);
/* Sets the recorder (recorder.h) for failed calls about the context and its runs; NULL: the engine's. */
TRM_API void trm_context_set_recorder(trm_context *context, trm_recorder *recorder);

/* Sets an input: dims within the plan's bounds, `data` [dims] in host memory, which is copied. */
TRM_API trm_status trm_context_set_input(trm_context *context, const char *name, trm_dims dims, const void *data);
/*
 * Sets the dims of an input whose elements the caller writes itself: *memory [dims] is the context's own. If
 * *on_device, it is on the device, where the next run reads it; otherwise, and if elements of the input decide dims,
 * which sets *on_device to false, it is host memory that a device copies from at full speed. Write it before the next
 * run.
 */
TRM_API trm_status trm_context_map_input(trm_context *context, const char *name, trm_dims dims, bool *on_device,
                                         void **memory);
/* Runs the network and waits for the results. Collective over the ranks of the plan. */
TRM_API trm_status trm_context_run(trm_context *context);
/* Dims and host data of an output of the last run; data is valid until the next run or the context's end. Error:
 * INVALID_ARGUMENT (no such output; the last run failed, or there was none). */
TRM_API trm_status trm_context_output(trm_context *context, const char *name, trm_dims *dims, const void **data);
/*
 * The two halves of trm_context_run: start enqueues the run on the context's stream, finish waits for the results.
 * Inputs must not be set in between. If dims depend on data, start itself waits.
 */
TRM_API trm_status trm_context_start(trm_context *context);
TRM_API trm_status trm_context_finish(trm_context *context);
/*
 * The stream that a context runs on: a cudaStream_t on CUDA, NULL on the host. The caller can order runs and other work
 * by events, or capture a run into a CUDA graph:
 *
 *     trm_context_run(context);                                  // once, with the same dims and the same memory bound
 *     cudaStreamBeginCapture(trm_context_stream(context), mode); // any mode; or the stream waits for an event of one
 *     trm_context_start(context);                                // that is captured; no trm_context_finish
 *     cudaStreamEndCapture(trm_context_stream(context), &graph);
 *
 * Each launch of the graph, on any stream, is one run with the dims of the capture. It reads the inputs that were set
 * last and the memory that is bound, continues from the context's state, and writes outputs without bound memory to the
 * memory of trm_context_output. An output allocator is called once, during the capture.
 *
 * The caller orders launches, other runs of the context and changes of inputs, and waits for the launches. All ranks
 * capture, and launch in the same order; a lost rank is not detected. The graph becomes invalid if the context is
 * destroyed or runs with other dims or bound memory, or if the engine's weight budget changes. It stays valid after a
 * refit of the engine.
 *
 * trm_context_start fails before it enqueues anything, so that the capture stays valid, with
 *   UNSUPPORTED       dims or layers depend on what a run computes; every run reads weights from files or shares them
 *                     between ranks; weights stream in a network with loops or branches; CPU offload; debug tensors
 *   INVALID_ARGUMENT  no finished run had the same dims, bound inputs and elements that decide dims; an output is bound
 *                     to too little memory, or is not bound and has no host memory yet
 * Calls that wait (trm_context_run, finish, reset, tune) fail with INVALID_ARGUMENT during a capture and leave it valid
 * too. After any other error end the capture and drop it.
 */
TRM_API void *trm_context_stream(trm_context *context);

/*
 * Binds device memory of the caller. Runs read a bound input from `data`, aligned to 256 bytes, until the input is set
 * or bound again. Runs write a bound output to `memory` of `capacity` bytes, which trm_context_output then returns;
 * NULL unbinds it. The memory must exist until the run has finished. Inputs whose elements decide dims cannot be bound,
 * since they are read on the host. Error: INVALID_ARGUMENT; a run fails if the capacity is too small for its dims.
 */
TRM_API trm_status trm_context_bind_input(trm_context *context, const char *name, trm_dims dims, const void *data);
TRM_API trm_status trm_context_bind_output(trm_context *context, const char *name, void *memory, size_t capacity);
/* Returns device memory for an output, or NULL to end the run with OUT_OF_MEMORY. Called for every output without bound
 * memory once its dims are known, which may be late in a run. A NULL `allocate` removes the allocator. */
typedef void *(*trm_output_allocate_fn)(void *user, const char *output, const trm_dims *dims, size_t bytes);
TRM_API trm_status trm_context_set_output_allocator(trm_context *context, trm_output_allocate_fn allocate, void *user);
/* Tunes a context (see "Tactics"): runs the network once on the inputs that are set, if the backend has something to
 * choose. `options` may be NULL. With a cache file it also measures exchanges between the GPUs of one host, unless the
 * file has their times; rank 0's file counts for all. A file that cannot be read or written is a warning. Collective
 * over the ranks of the plan. No run of the world may be in flight, of this context, another one or a captured graph.
 * Errors: INVALID_ARGUMENT (an input is not set; between start and finish), CANCELLED, and those of trm_context_run. */
TRM_API trm_status trm_context_tune(trm_context *context, const trm_tune_options *options);

/* The timing cache file that the command line uses, "$XDG_CACHE_HOME/trireme/timing/<device>.txt"; release with
 * trm_free. NULL if neither XDG_CACHE_HOME nor HOME is set, or memory is out. */
TRM_API char *trm_timing_cache_path(trm_world *world);
/* The usual folder of expert profiles, to free(): XDG_CACHE_HOME/trireme/experts. NULL if neither XDG_CACHE_HOME nor
 * HOME is set. */
TRM_API char *trm_expert_profile_path(void);

/* Receives a tactic that was timed for a layer; `best`: it is used. */
typedef void (*trm_tactic_fn)(void *user, const char *layer, const char *problem, const char *tactic,
                              double microseconds, bool best);
/* Calls fn for each tactic of the last trm_context_tune, layer by layer, the fastest first. */
TRM_API void trm_context_tactics(const trm_context *context, trm_tactic_fn fn, void *user);

/* trm_plan_to_json with the dims of the last run, the kernels for them, and the times of each layer's tactics. */
TRM_API char *trm_context_to_json(const trm_context *context);

/* Switches capture on or off; off at first. With capture, runs after the first of the same dims are launched as one
 * CUDA graph, if no dims, loops or branches depend on what a run computes. Graphs are kept for the dims used last.
 * Inputs are then copied to the device only after they were set. */
TRM_API trm_status trm_context_set_capture(trm_context *context, bool on);

/*
 * Restricts runs to one optimization profile: dims of inputs must lie in it, and elements of value inputs between
 * min_values and max_values, if the bound has both. -1, the initial value: any profile. Error: INVALID_ARGUMENT (the
 * plan has no such profile).
 */
TRM_API trm_status trm_context_set_optimization_profile(trm_context *context, int32_t profile);

/*
 * Runs the network with zeros at the min, opt and max shapes of its profiles (or of the context's profile), so that
 * later runs at these shapes, and near them, find their kernels loaded, prepared and captured. Runs every shape from
 * min to max if these are at most 64 (dims with equal bounds count as one) and no elements decide dims. Leaves out
 * shapes whose value inputs have no elements in the profile.
 *
 * Afterwards set all inputs again, bound ones too; states are as after trm_context_reset, and bound outputs have been
 * written. Collective over the ranks of the plan. Errors: those of trm_context_run, INVALID_ARGUMENT (between start and
 * finish), UNSUPPORTED (loops or branches that a run decides).
 */
TRM_API trm_status trm_context_warm_up(trm_context *context);

/* Sets all states to zero. Inputs stay set. */
TRM_API trm_status trm_context_reset(trm_context *context);

/*
 * Debug tensors: a run calls `fn` for every output of every layer that is left after the passes, in the order in which
 * layers run. Tensors keep the names of the network that was built; mark a tensor as an output to keep it through all
 * passes. Such runs wait for every layer and are not captured: the results are the same, but they take longer. `fn`
 * returns false to end the run with TRM_ERROR_CANCELLED, on this rank alone. A NULL `fn` switches it off.
 */
typedef struct trm_debug_tensor {
    const char *name, *layer, *kernel; /* kernel: "" if none ran, as for a view */
    trm_layer_kind kind;
    trm_dtype dtype;
    trm_dims dims;
    const void *data;     /* [dims] in host memory, valid until `fn` returns */
    trm_tensor_part part; /* which part of the whole tensor this rank has */
} trm_debug_tensor;
typedef bool (*trm_debug_fn)(void *user, const trm_debug_tensor *tensor);
TRM_API trm_status trm_context_set_debug(trm_context *context, trm_debug_fn fn, void *user);

/*
 * Times of the last finished run, by the device's clock: copies of inputs, layers, copies of outputs; and the time that
 * the calling thread took to enqueue them. Captured runs copy only inputs that were set again. Off at first, because
 * the events take some microseconds. Error: INVALID_ARGUMENT (no run has finished).
 */
typedef struct trm_run_times {
    double upload_milliseconds, compute_milliseconds, download_milliseconds, enqueue_milliseconds;
} trm_run_times;
TRM_API trm_status trm_context_set_timing(trm_context *context, bool on);
TRM_API trm_status trm_context_times(const trm_context *context, trm_run_times *times);

/* Times each layer of later runs. trm_context_layer_times then calls `fn` once per layer, in order. A layer whose
 * weights stream has one more call before it, with kernel TRM_KERNEL_WAIT and the time that it waited for them. */
#define TRM_KERNEL_WAIT "weight_stream.wait"
TRM_API trm_status trm_context_set_layer_timing(trm_context *context, bool on);
/* Bytes that the last run copied for streamed weights, packed ones as packed, in all passes of loops; 0 before a run.
 */
TRM_API size_t trm_context_streamed(const trm_context *context);
typedef void (*trm_layer_time_fn)(void *user, const char *layer, trm_layer_kind kind, const char *kernel,
                                  double mean_milliseconds, int64_t runs);
TRM_API void trm_context_layer_times(trm_context *context, trm_layer_time_fn fn, void *user);

#ifdef __cplusplus
}
#endif
#endif
