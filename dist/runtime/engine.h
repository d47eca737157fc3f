/*
 * Engine, for contexts and the generator. The public calls are in <trireme/engine.h>.
 */
#ifndef TRM_DIST_RUNTIME_ENGINE_H
#define TRM_DIST_RUNTIME_ENGINE_H

#include <pthread.h>

#include "base/pool.h"
#include "weight_stream/offload/cpu_offload.h"
#include "dist/plan/plan.h"
#include "weight_stream/offload/expert_cache.h"
#include "weight_stream/offload/streaming.h"
#include "dist/parallel/world.h"

struct trm_engine {
    trm_plan *plan;
    trm_world *world;
    unsigned char *weights;   /* device memory [plan->weight_bytes] */
    const trm_engine *lender; /* whose weights the plan borrows (trm_plan_borrow_weights), before contexts are made */
    struct trm_load *load;    /* loading, or NULL */
    size_t loaded_bytes;      /* bytes of all weights read */
    double load_seconds;      /* seconds of reading them */
    trm_weight_residency places; /* of streamable weights, if the plan has a budget */
    trm_communicator *sharers;   /* ranks that stream them together, or NULL */
    bool others_stay;            /* no weight was shared when the engine was created, and no budget changed since */
    trm_offload_device offload_device; /* for CPU offload; its stream is NULL until used */
    pthread_mutex_t sharing;           /* of the next one */
    trm_expert_cache *experts;         /* of the first context that asked for it; NULL: of none */
    trm_pool *planners;                /* threads that prepare kernels for new dims; NULL until first used */
    pthread_mutex_t planning;          /* for contexts that create and look up `planners`; their loops run without it */
    trm_recorder *recorder;            /* the caller's, or NULL: the world's */
};

/* The recorder for failed calls about an engine (base/recorder.h), which may be NULL. */
trm_recorder *trm_engine_recorder(const trm_engine *engine);

/*
 * trm_engine_create in two parts. The first is collective; if all weights stay on the device, it returns while they
 * load (load.h): contexts may be created and run meanwhile, on numbers that are not yet the weights. Otherwise they are
 * loaded when it returns. The second waits for them; it is not collective, and its caller compares the status of the
 * ranks.
 */
trm_status trm_engine_begin(trm_plan *plan, trm_world *world, trm_progress_fn progress, void *user,
                            trm_engine **engine);
trm_status trm_engine_finish_loading(trm_engine *engine, trm_progress_fn progress, void *user);

/* The parts of an engine that CPU offload uses. */
trm_offload_site trm_engine_offload_site(trm_engine *engine);

#endif
