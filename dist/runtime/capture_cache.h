/*
 * The cache of captured runs: CUDA graphs by the shape of the run that they repeat. Every context has one. A generator
 * keeps its steps in that of its context, by graph bucket.
 */
#ifndef TRM_DIST_RUNTIME_CAPTURE_CACHE_H
#define TRM_DIST_RUNTIME_CAPTURE_CACHE_H

#include "kernels/device/device.h"

/* Runs of one shape that are captured apart: a step has one for each sample mode, and one more for each as async. */
#define TRM_CAPTURE_VARIANTS 6

typedef struct trm_captured_shape {
    const void *key;                             /* [key_size] */
    trm_graph_exec *execs[TRM_CAPTURE_VARIANTS]; /* NULL: not captured */
    int32_t schedule;                            /* copy schedule of the ring that they were captured with */
    bool stays;                                  /* never gives way to another shape */
    bool is_ready;                               /* its user has prepared it for a capture */
    int32_t uses;                                /* of it by its user before it was captured */
    uint64_t last_use;                           /* 0: the place is free */
} trm_captured_shape;

/* Zero-initialized is empty. */
typedef struct trm_capture_cache {
    trm_captured_shape *shapes; /* [capacity] */
    unsigned char *keys;        /* [capacity, key_size] */
    int32_t capacity;
    size_t key_size;
    uint64_t uses;
} trm_capture_cache;

/* Room for `capacity` shapes, whose keys are compared as bytes. */
trm_status trm_capture_cache_init(trm_capture_cache *cache, int32_t capacity, size_t key_size);
void trm_capture_cache_fini(trm_capture_cache *cache);
/* Destroys all captured runs; the shapes stay. */
void trm_capture_cache_drop(trm_capture_cache *cache);

/* The shape with this key, or NULL. */
trm_captured_shape *trm_capture_cache_find(trm_capture_cache *cache, const void *key);
/* The same; a new shape takes the place of the least recently used one that does not stay. */
trm_captured_shape *trm_capture_cache_get(trm_capture_cache *cache, const void *key);

#endif
