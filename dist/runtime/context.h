/*
 * Execution context, for the generator. The public calls are in <trireme/engine.h>. Each part has a header and a file
 * that alone looks inside.
 */
#ifndef TRM_DIST_RUNTIME_CONTEXT_H
#define TRM_DIST_RUNTIME_CONTEXT_H

#include "dist/runtime/bindings.h"
#include "dist/runtime/captures.h"
#include "dist/runtime/engine.h"
#include "dist/runtime/memory.h"
#include "dist/runtime/observers.h"
#include "dist/runtime/program.h"
#include "dist/runtime/shape.h"
#include "dist/runtime/tune.h"
#include "dist/runtime/weights.h"
#include "graph/inference.h"

struct trm_context {
    trm_engine *engine;
    trm_recorder *recorder; /* the caller's, or NULL: the engine's */
    trm_context *beside;    /* the context whose stream and state it uses; NULL: its own */
    trm_stream *stream;
    trm_event *done;
    bool has_outputs, is_started;
    trm_dims *dims; /* [n_tensors] of the run */
    trm_inference *inference;
    trm_shaping shaping;
    trm_context_program program;
    trm_context_weights weights;
    trm_bindings bindings;
    trm_context_memory memory;
    trm_captures captures;
    trm_context_tuning tuning;
    trm_observers observers;
};

/* The recorder for failed calls about a context (base/recorder.h), which may be NULL. */
trm_recorder *trm_context_recorder(const trm_context *context);

/* A context that runs on `main`'s stream and reads and writes its state, with inputs and activations of its own; `main`
 * must outlive it. */
trm_status trm_context_create_beside(trm_context *main, trm_context **context);
/* Waits for the stream, at most the world's deadline, watching the peers. */
trm_status trm_context_wait(trm_context *context);

#endif
