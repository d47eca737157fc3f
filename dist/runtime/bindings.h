/* What the caller gives a context and takes from it: elements of inputs, and where outputs go. */
#ifndef TRM_DIST_RUNTIME_BINDINGS_H
#define TRM_DIST_RUNTIME_BINDINGS_H

#include <trireme/engine.h>

#include "graph/network.h"

typedef struct trm_bound_output {
    void *memory; /* the caller's, NULL: none is bound */
    size_t capacity;
    void *staging; /* host memory for outputs that are not bound; grown when needed */
    size_t staging_size;
    trm_dims dims; /* of the last run */
    void *address; /* where it left the output */
} trm_bound_output;

/* bindings.c alone looks inside. */
typedef struct trm_bindings {
    unsigned char *staging; /* host [plan->input_bytes], copied to the device at every run */
    bool *is_set;           /* [n_tensors] */
    bool *on_device;        /* [n_tensors] the caller wrote the input there: it is not copied */
    const void **inputs;    /* [n_tensors] bound memory of the caller, or NULL */
    int32_t n_bound_inputs, n_on_device;
    bool changed;              /* inputs were set since they were last copied to the device */
    trm_bound_output *outputs; /* [network outputs] */
    trm_output_allocate_fn allocate;
    void *allocate_user;
} trm_bindings;

trm_status trm_bindings_init(trm_context *context);
void trm_bindings_fini(trm_context *context);

/* Sets the dims of an input, within the plan's bounds; the caller fills its host memory. */
trm_status trm_context_set_dims(trm_context *context, const trm_tensor *input, const trm_dims *dims);
/* Host memory of an input, or of values computed on the host. */
void *trm_context_staging(trm_context *context, const trm_tensor *input);
/* Bound memory of an input, or NULL. */
const void *trm_context_bound_input(const trm_context *context, const trm_tensor *input);
/* Checks that all inputs are set; an error begins with `before`. */
trm_status trm_context_check_inputs(const trm_context *context, const char *before);
/* No input is set any more. */
void trm_context_forget_inputs(trm_context *context);
/* Whether inputs were set since they were last copied to the device. */
bool trm_context_inputs_changed(const trm_context *context);
void trm_context_set_inputs_changed(trm_context *context, bool changed);
/* Enqueues the copy of the inputs to the device. */
trm_status trm_context_upload(trm_context *context);

/* Checks that all outputs fit their bound memory. *known: the others have host memory already. */
trm_status trm_context_check_places(const trm_context *context, bool *known);
/* Enqueues the copy of the outputs to where they go. */
trm_status trm_context_hand_over_outputs(trm_context *context);

#endif
