/*
 * Which of several models are loaded. Each has a dispatcher and jobs of its own, so that the loss of one is no concern
 * of the others; the pool only says when jobs start and end. Used by one thread.
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_MODEL_POOL_H
#define TRM_LAUNCHER_SERVE_REPLICAS_MODEL_POOL_H

#include "launcher/serve/replicas/dispatcher.h"

#define POOL_MAX_MODELS 64

/* What to do with the models at a time; a model is its index, -1: none. */
typedef struct pool_step {
    int32_t load, unload, give_up;
    int32_t retry; /* lacked memory, and is loaded when what is unloaded has ended */
} pool_step;

/*
 * Chooses the next step from where `n` models stand. The model that is wanted for longest is loaded if fewer than
 * `most_loaded` are, one at a time: a job takes whatever memory it finds. Otherwise the least recently used model is
 * unloaded, an idle one if there is any. A busy one ends what runs on it first; its new requests wait, so that models
 * take turns. A model that lacked memory is tried again when another is unloaded, and given up when no other is loaded.
 */
pool_step pool_choose(const dispatcher_use *models, int32_t n, int32_t most_loaded);
/* Carries out the next step. To be called some times a second. */
void pool_tend(dispatcher *const *models, int32_t n, int32_t most_loaded);

#endif
