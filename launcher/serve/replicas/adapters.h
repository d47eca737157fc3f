/*
 * The LoRA adapters of a server: which names there are, and which replicas have loaded them. A replica that is started
 * again gets all of them before any request.
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_ADAPTERS_H
#define TRM_LAUNCHER_SERVE_REPLICAS_ADAPTERS_H

#include <trireme/status.h>

#include "base/arena.h"
#include "base/error.h"
#include "launcher/serve/ipc/ipc_frames.h"

typedef enum adapter_state { ADAPTER_LOADING, ADAPTER_LOADED, ADAPTER_FAILED, ADAPTER_LEAVING } adapter_state;

typedef struct served_adapter {
    char *name, *folder;
    int32_t key; /* names it to the replicas; never reused, at least 1 */
    int64_t created;
    bool required; /* the server ends if it cannot be loaded */
    adapter_state state;
    uint64_t sent, loaded; /* bit r: replica r was sent it, and has loaded it */
    trm_held_error failure;
} served_adapter;

/* Guarded by the dispatcher's lock. */
typedef struct served_adapters {
    served_adapter *items; /* [n] */
    size_t n, capacity;
    int32_t last_key;
} served_adapters;

struct dispatcher;
struct replica;

/* In adapters.c, for the dispatcher's thread: */
/* Adds one of "NAME=FOLDER" before the jobs start. INVALID_ARGUMENT: it is not of this form, or the name is taken. */
trm_status adapters_require(struct dispatcher *d, const char *text);
/* Tells replicas what to load and to unload. Before requests are submitted. */
void adapters_tend(struct dispatcher *d);
/* The job of a replica has ended. */
void adapters_forget(struct dispatcher *d, int32_t index);
/* Takes what became of an adapter at a replica. */
void adapters_take(struct replica *r, const ipc_adapter *outcome);
void adapters_fini(struct dispatcher *d);

#endif
