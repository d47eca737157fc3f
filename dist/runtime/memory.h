/* The device memory of a context: inputs, states, activations and workspace, and where each tensor lies. */
#ifndef TRM_DIST_RUNTIME_MEMORY_H
#define TRM_DIST_RUNTIME_MEMORY_H

#include <trireme/engine.h>

#include "graph/network.h"
#include "kernels/kernel.h"

/* Memory that the plan could not size. */
typedef struct trm_grown_memory {
    void *memory;
    size_t capacity;
} trm_grown_memory;

/* memory.c alone looks inside. */
typedef struct trm_context_memory {
    unsigned char *begin; /* device: inputs, state unless it is another's, activations, workspace */
    bool is_lodger;       /* it is the caller's */
    unsigned char *state, *activations, *workspace;
    const size_t *offsets;             /* [n_tensors] of activations: the plan's, or for dims that it did not cover */
    size_t *own_offsets, *sizes;       /* those; allocated when first needed */
    trm_grown_memory *extra;           /* [n_tensors], NULL unless the plan grows or inference may stop */
    trm_grown_memory larger_workspace; /* than the plan's */
} trm_context_memory;

/* In memory of trm_engine_context_bytes that the caller gave, or NULL: allocates it. The inference must be there. */
trm_status trm_context_memory_init(trm_context *context, void *given);
void trm_context_memory_fini(trm_context *context);

/* Whether memory may be allocated in a run. */
bool trm_context_may_grow(const trm_context *context);
/* A tensor of the network at its current device address. */
void *trm_context_address(trm_context *context, const trm_tensor *tensor);
trm_view trm_context_view(trm_context *context, const trm_tensor *tensor);
/* The memory of inputs and of values computed on the host, at the plan's input offsets. */
unsigned char *trm_context_input_memory(const trm_context *context);
/* Places activations as planned, before the dims of a run are known. */
void trm_context_place_as_planned(trm_context *context);
/* Makes room for the outputs of layers begin .. end - 1 at their dims. */
trm_status trm_context_make_room(trm_context *context, int32_t begin, int32_t end);
/* Workspace of at least `needed` bytes; *size of it for each stream. */
trm_status trm_context_find_workspace(trm_context *context, size_t needed, unsigned char **workspace, size_t *size);
/* Enqueues the zeroing of all states. */
trm_status trm_context_zero_state(trm_context *context);

#endif
