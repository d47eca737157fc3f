/*
 * A map from byte strings to indices: open addressing; the caller owns the keys. It only grows.
 */
#ifndef TRM_BASE_MAP_H
#define TRM_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

typedef struct trm_map_entry {
    const char *key; /* NULL: free */
    uint32_t size, value;
    uint64_t hash;
} trm_map_entry;

/* Zero-initialized is empty and ready. */
typedef struct trm_map {
    trm_map_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
} trm_map;

/* Reserves room for `count` keys, so that adding them never moves entries. */
trm_status trm_map_reserve(trm_map *map, size_t count);
/* Adds a key, which must outlive the map. If the map has it already, nothing changes and *existing is true. */
trm_status trm_map_add(trm_map *map, const char *key, size_t size, uint32_t value, bool *existing);
/* Adds a key, or changes the value of an existing one. */
trm_status trm_map_set(trm_map *map, const char *key, size_t size, uint32_t value);
/* Whether the map has the key; sets *value (may be NULL) if so. */
bool trm_map_find(const trm_map *map, const char *key, size_t size, uint32_t *value);
void trm_map_fini(trm_map *map);

#endif
