/*
 * Plugins (<trireme/plugin.h>) inside the engine: the table of those that are loaded, their layers, and calls of
 * their functions, whose answers are checked here and nowhere else.
 *
 * A layer is made once for equal settings and stays until the process ends, so that parameters of PLUGIN layers are a
 * number that can be copied and compared.
 */
#ifndef TRM_KERNELS_PLUGIN_PLUGIN_H
#define TRM_KERNELS_PLUGIN_PLUGIN_H

#include <trireme/plugin.h>

#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_PLUGIN_MOST_FIELDS    64
#define TRM_PLUGIN_MOST_SETTINGS  ((size_t)1 << 20)  /* bytes of the settings of a layer */
#define TRM_PLUGIN_MOST_SAVED     ((size_t)16 << 20) /* bytes that a plan keeps of a layer */
#define TRM_PLUGIN_MOST_WORKSPACE ((size_t)1 << 40)

/* A plugin that is loaded. */
typedef struct trm_plugin_entry {
    trm_plugin table;    /* a copy, zeros where the plugin's is shorter */
    const char *label;   /* "domain.name 1", for messages */
    const char *library; /* path; "" for one of the program itself */
    uint64_t checksum;   /* of the library's file; 0: unknown */
} trm_plugin_entry;

typedef struct trm_plugin_layer {
    const trm_plugin_entry *plugin;
    const trm_plugin_setting *settings; /* [n_settings], in the order of the plugin's fields */
    int32_t n_settings;
    void *self;
    const void *saved; /* bytes that a plan keeps beside the settings, or NULL */
    size_t saved_size;
} trm_plugin_layer;

/* The newest loaded plugin of a domain and name up to a version, or NULL. `known` (may be NULL): whether there is one
 * of any version. */
const trm_plugin_entry *trm_plugin_find(const char *domain, const char *name, int32_t version, bool *known);
/* The layer of a number; NULL for a number of none. */
const trm_plugin_layer *trm_plugin_layer_of(const trm_layer_desc *desc);
/* Makes or finds the layer of a plugin. `saved` (may be NULL): the bytes that a plan keeps. */
trm_status trm_plugin_add_layer(const trm_plugin_entry *plugin, const trm_plugin_setting *settings, int32_t n_settings,
                                const void *saved, size_t saved_size, int32_t *layer);

static inline bool trm_plugin_has_kernel(const trm_plugin_entry *plugin, trm_backend backend)
{
    return backend == TRM_BACKEND_HOST ? plugin->table.run != NULL
                                       : plugin->table.enqueue != NULL || plugin->table.launch != NULL;
}

/* The shape and type rule. If all inputs are known, also checks the workspace that kernels will want. */
trm_status trm_plugin_infer(const trm_plugin_layer *layer, const trm_plugin_tensor *inputs, int32_t n_inputs,
                            trm_dims *output_dims, trm_dtype *output_types);

/* A call of a kernel, with memory for what it points to. */
typedef struct trm_plugin_run {
    const trm_plugin_layer *layer;
    trm_plugin_call call;
    trm_plugin_tensor inputs[TRM_MAX_LAYER_INPUTS], outputs[TRM_MAX_LAYER_OUTPUTS];
    trm_status failure; /* of its functions: INVALID_ARGUMENT for what is asked before a run, INTERNAL in one */
    char error[512];
} trm_plugin_run;

/* Fills in all but the stream. The struct must not move after this. */
void trm_plugin_describe(const trm_kernel_call *call, const trm_plugin_layer *layer, trm_backend backend,
                         trm_plugin_run *run);
/* Asks for the workspace. */
trm_status trm_plugin_workspace(trm_plugin_run *run, size_t *size);
/* Calls a function; `what` it does is part of the message if it fails: "run", "infer its dims". */
trm_status trm_plugin_do(trm_plugin_run *run, trm_plugin_function function, const char *what);
/* The failure of a function that returned false: the plugin's name, and the cause that it left. */
trm_status trm_plugin_fail(trm_plugin_run *run, const char *what);
/* For `workspace` of kernels. What is wrong with an answer was found by the rule of the kind, or is by `prepare`. */
size_t trm_plugin_asked(const trm_kernel_call *call, trm_backend backend);
/* For `prepare` of kernels: a run in the program's memory whose workspace is there; NULL if there is nothing to
 * compute. */
trm_status trm_plugin_prepare(const trm_kernel_call *call, trm_backend backend, struct trm_program *program,
                              trm_plugin_run **run);

#ifdef __cplusplus
}
#endif
#endif
