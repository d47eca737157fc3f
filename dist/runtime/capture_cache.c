/* The cache of captured runs. It is searched in order: keys are short and shapes are few. */
#include "dist/runtime/capture_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

trm_status trm_capture_cache_init(trm_capture_cache *cache, int32_t capacity, size_t key_size)
{
    *cache = (trm_capture_cache){.shapes = calloc((size_t)capacity, sizeof(*cache->shapes)),
                                 .keys = calloc((size_t)capacity, key_size),
                                 .capacity = capacity,
                                 .key_size = key_size};
    if (cache->shapes == NULL || cache->keys == NULL) {
        trm_capture_cache_fini(cache);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a cache of %d captured runs", capacity);
    }
    return TRM_OK;
}

static void drop(trm_captured_shape *shape)
{
    for (int32_t i = 0; i < TRM_CAPTURE_VARIANTS; i++) {
        trm_graph_exec_destroy(shape->execs[i]);
        shape->execs[i] = NULL;
    }
}

void trm_capture_cache_drop(trm_capture_cache *cache)
{
    for (int32_t i = 0; cache->shapes != NULL && i < cache->capacity; i++) {
        drop(&cache->shapes[i]);
    }
}

void trm_capture_cache_fini(trm_capture_cache *cache)
{
    trm_capture_cache_drop(cache);
    free(cache->shapes);
    free(cache->keys);
    *cache = (trm_capture_cache){0};
}

trm_captured_shape *trm_capture_cache_find(trm_capture_cache *cache, const void *key)
{
    for (int32_t i = 0; i < cache->capacity; i++) {
        trm_captured_shape *shape = &cache->shapes[i];
        if (shape->last_use > 0 && memcmp(shape->key, key, cache->key_size) == 0) {
            shape->last_use = ++cache->uses;
            return shape;
        }
    }
    return NULL;
}

trm_captured_shape *trm_capture_cache_get(trm_capture_cache *cache, const void *key)
{
    trm_captured_shape *found = trm_capture_cache_find(cache, key);
    if (found != NULL) {
        return found;
    }
    int32_t oldest = -1;
    for (int32_t i = 0; i < cache->capacity; i++) {
        if (!cache->shapes[i].stays && (oldest < 0 || cache->shapes[i].last_use < cache->shapes[oldest].last_use)) {
            oldest = i;
        }
    }
    trm_captured_shape *shape = &cache->shapes[oldest];
    void *own = cache->keys + (size_t)oldest * cache->key_size;
    drop(shape);
    memcpy(own, key, cache->key_size);
    *shape = (trm_captured_shape){.key = own, .last_use = ++cache->uses};
    return shape;
}
