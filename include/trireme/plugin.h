/*
 * Plugins: layers that a shared library, or the program itself, adds to those of <trireme/layers.h>.
 *
 * A plugin is a table of functions and facts, found by domain, name and version. A library exports one list of them as
 * the object `trm_plugins`; it needs this header and no function of libtrireme. Networks get its layers from ONNX nodes
 * of the domain and name, or by trm_plugin_make_layer.
 *
 * What a plugin promises:
 *   - A layer is a function of its inputs and settings: same bits in, same bits out, and nothing else is written.
 *     Equal layers may be merged, layers of constants may run once.
 *   - Tables, and all that they point to, stay as they are as long as the process lives. Libraries are never unloaded.
 *     What `create` makes stays, too: there is one for equal settings, and no destroy.
 *   - Every function may be called by several threads at once, also for one layer. None keeps the call or what it
 *     points to, none throws or ends the process, none calls libtrireme.
 *   - Weights are inputs, not settings: constants are cut for ranks, streamed and refitted without the plugin.
 *
 * What is checked: the version and sizes of the tables, that functions are there, dims and types of the rule, that the
 * rule gives the same answer for the same question and for known dims what it gave for unknown ones, the size of the
 * workspace, and that parts of a split have the dims they should have. A function that fails writes why. A plugin that
 * breaks a rule is refused with an error that names it. It runs in the process, so nothing protects from wild writes.
 */
#ifndef TRIREME_PLUGIN_H
#define TRIREME_PLUGIN_H

#include <trireme/layers.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- settings ---------------------------------------------------------------------------------- */

typedef enum trm_plugin_type {
    TRM_PLUGIN_INT = 1,
    TRM_PLUGIN_FLOAT = 2,
    TRM_PLUGIN_STRING = 3,
    TRM_PLUGIN_INTS = 4,
    TRM_PLUGIN_FLOATS = 5,
    TRM_PLUGIN_STRINGS = 6,
    TRM_PLUGIN_TENSOR = 7
} trm_plugin_type;

/* A setting that a plugin knows: an attribute of its ONNX nodes. */
typedef struct trm_plugin_field {
    const char *name;
    trm_plugin_type type;
    bool required;
} trm_plugin_field;

/* A setting that a layer has. Strings have no control characters. All values of a layer take at most 1 MiB. */
typedef struct trm_plugin_setting {
    const char *name;
    trm_plugin_type type;
    int32_t count;              /* of values; 1 for INT, FLOAT and STRING; of a TENSOR not read */
    const int64_t *ints;        /* INT, INTS */
    const float *floats;        /* FLOAT, FLOATS */
    const char *const *strings; /* STRING, STRINGS */
    trm_dtype dtype;            /* TENSOR: these three */
    trm_dims dims;
    const void *data;
} trm_plugin_setting;

/* ---- calls ------------------------------------------------------------------------------------- */

typedef struct trm_plugin_tensor {
    trm_dtype dtype; /* NONE: an optional input that is not given */
    trm_dims dims;   /* -1, in `infer`: unknown until a run */
    void *data; /* `run`, `enqueue`, `launch`: row-major elements in the backend's memory; inputs are not written */
    const void *values; /* of a value input (layers.h), in host memory; NULL if not known yet */
} trm_plugin_tensor;

/* What a function of a plugin gets. A function that returns false has failed, and leaves the cause in `error`: one
 * line, lowercase, no trailing dot. */
typedef struct trm_plugin_call {
    size_t size;                        /* of this struct in the library that calls */
    void *self;                         /* what `create` made; NULL without one */
    const trm_plugin_setting *settings; /* [n_settings], those given, in the order of the plugin's fields */
    int32_t n_settings;
    int32_t n_inputs, n_outputs;
    const trm_plugin_tensor *inputs; /* [n_inputs] */
    trm_plugin_tensor *outputs;      /* [n_outputs] */
    trm_backend backend;             /* HOST or CUDA */
    void *workspace;                 /* `run`, `enqueue`, `launch`: memory of the backend, aligned to 256 bytes */
    size_t workspace_size;
    void *stream;      /* `enqueue`: the cudaStream_t, whose device is current */
    const void *saved; /* `create`: the bytes of a plan, or NULL. `save` sets both */
    size_t saved_size;
    char *error; /* [error_size] */
    size_t error_size;
} trm_plugin_call;

typedef bool (*trm_plugin_function)(trm_plugin_call *call);

#define TRM_PLUGIN_MAX_ARGUMENTS 64

/* A launch of a kernel that is given as source or image. */
typedef struct trm_plugin_launch {
    size_t size; /* of this struct in the library that calls */
    uint32_t grid[3], block[3];
    uint32_t shared_memory; /* dynamic, bytes */
    int32_t n_arguments;
    uint64_t arguments[TRM_PLUGIN_MAX_ARGUMENTS]; /* each argument of the kernel at the beginning of 8 bytes */
} trm_plugin_launch;

typedef bool (*trm_plugin_launch_function)(trm_plugin_call *call, trm_plugin_launch *launch);

/* ---- the table --------------------------------------------------------------------------------- */

/* How a tensor is split in one way to run over ranks: whole on each (0), cut into equal parts along an axis that is
 * counted from the front or, if negative, from the end, or a summand on each. */
#define TRM_PLUGIN_WHOLE      0
#define TRM_PLUGIN_AXIS(axis) ((axis) < 0 ? (axis) : (axis) + 1)
#define TRM_PLUGIN_SUM        100

/* The layer of one part of each input, with the same settings, gives that part of each output. */
typedef struct trm_plugin_split {
    int8_t inputs[TRM_MAX_LAYER_INPUTS];
    int8_t outputs[TRM_MAX_LAYER_OUTPUTS];
} trm_plugin_split;

typedef struct trm_plugin {
    size_t size; /* sizeof(trm_plugin) */
    const char *domain, *name;
    int32_t version;                   /* from 1 on */
    int32_t least_inputs, most_inputs; /* at most TRM_MAX_LAYER_INPUTS; the first `least_inputs` are always given */
    int32_t n_outputs;                 /* at most TRM_MAX_LAYER_OUTPUTS */
    uint32_t value_inputs;             /* bit i: the elements of input i may decide dims (layers.h) */
    const trm_plugin_field *fields;    /* [n_fields] */
    int32_t n_fields;
    const trm_plugin_split *splits; /* [n_splits]; without one the layer is whole on every rank */
    int32_t n_splits;
    /* Checks the settings, and `saved` if there is any, and sets `self`. May be NULL. */
    trm_plugin_function create;
    /* Sets `saved` to bytes that a plan keeps beside the settings. May be NULL. */
    trm_plugin_function save;
    /* Sets dtype and dims of the outputs; allocates nothing. A dimension that follows from unknown ones is -1. */
    trm_plugin_function infer;
    /* Sets workspace_size, which does not fall when dims grow, for the backend of the call. May be NULL: none. */
    trm_plugin_function workspace;
    /* Writes the outputs, on the host. May be NULL: no host kernel. Kernels are not called for outputs without
     * elements. */
    trm_plugin_function run;
    /* Enqueues on `stream` what writes the outputs: allocates nothing, waits for nothing, may be captured. May be NULL:
     * no CUDA kernel, or the one below. */
    trm_plugin_function enqueue;
    /* A CUDA kernel as source for the run-time compiler, or as an image: a cubin, a fat binary, or PTX with a zero
     * byte at its end. The kernel is extern "C". `launch` says how it is launched for these dims and addresses. */
    const char *cuda_source;
    const void *cuda_image;
    const char *cuda_kernel;
    trm_plugin_launch_function launch;
} trm_plugin;

#define TRM_PLUGIN_ABI 1

typedef struct trm_plugin_list {
    size_t size; /* sizeof(trm_plugin_list) */
    int32_t abi; /* TRM_PLUGIN_ABI */
    int32_t n_plugins;
    const trm_plugin *const *plugins; /* [n_plugins] */
} trm_plugin_list;

/* The object that a library exports: `TRM_PLUGIN_EXPORT const trm_plugin_list trm_plugins = {...};`. */
#ifdef __cplusplus
#define TRM_PLUGIN_EXPORT                                                                                              \
    extern "C" {                                                                                                       \
    extern TRM_API const trm_plugin_list trm_plugins;                                                                  \
    }
#else
#define TRM_PLUGIN_EXPORT                                                                                              \
    extern TRM_API const trm_plugin_list trm_plugins;                                                                  \
    TRM_API
#endif

/* ---- for programs ------------------------------------------------------------------------------ */

/* Loads a library of plugins; all of them or none. A library that is loaded already is left as it is. Errors: IO (it
 * cannot be loaded), UNSUPPORTED (another ABI), INVALID_ARGUMENT (a table is wrong, or its name is taken). */
TRM_API trm_status trm_plugin_load(const char *path);
/* The same for plugins of the program itself. */
TRM_API trm_status trm_plugin_register(const trm_plugin_list *list);

typedef struct trm_plugin_info {
    const char *domain, *name;
    int32_t version;
    const char *library; /* path; "" for one of the program itself */
    bool host, cuda;     /* backends that it has a kernel for */
} trm_plugin_info;
/* In the order of loading; false past the last. Strings live as long as the process. */
TRM_API bool trm_plugin_get_info(int32_t index, trm_plugin_info *info);

/* Makes a layer of the newest plugin that is not newer than `version`, with these settings, for the parameters of a
 * PLUGIN layer: *layer lives as long as the process. Errors: UNSUPPORTED (no such plugin), INVALID_ARGUMENT (settings
 * that it refuses). */
TRM_API trm_status trm_plugin_make_layer(const char *domain, const char *name, int32_t version,
                                         const trm_plugin_setting *settings, int32_t n_settings, int32_t *layer);

#ifdef __cplusplus
}
#endif
#endif
