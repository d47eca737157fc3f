/* Open addressing with linear probing, at most three quarters full. */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

static uint64_t mix(uint64_t value)
{
    value = (value ^ (value >> 32)) * 0x9e3779b97f4a7c15ull;
    return value ^ (value >> 29);
}

static uint64_t hash_bytes(const char *key, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325ull ^ size;
    for (; size >= 8; key += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, key, 8);
        hash = mix(hash ^ word) * 0x2545f4914f6cdd1dull;
    }
    uint64_t tail = 0;
    memcpy(&tail, key, size);
    return mix(mix(hash ^ tail));
}

/* The entry of the key, or the free entry for it. */
static trm_map_entry *probe(const trm_map *map, const char *key, size_t size, uint64_t hash)
{
    for (size_t at = (size_t)hash & (map->capacity - 1);; at = (at + 1) & (map->capacity - 1)) {
        trm_map_entry *entry = &map->entries[at];
        if (entry->key == NULL || (entry->hash == hash && entry->size == size && memcmp(entry->key, key, size) == 0)) {
            return entry;
        }
    }
}

trm_status trm_map_reserve(trm_map *map, size_t count)
{
    size_t capacity = map->capacity == 0 ? 16 : map->capacity;
    while (capacity - capacity / 4 < count) {
        if (!trm_checked_mul(capacity, 2, &capacity)) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a table of %zu names", count);
        }
    }
    if (capacity == map->capacity) {
        return TRM_OK;
    }
    trm_map grown = {.capacity = capacity, .count = map->count};
    grown.entries = calloc(capacity, sizeof(*grown.entries));
    if (grown.entries == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a table of %zu names", count);
    }
    for (size_t i = 0; i < map->capacity; i++) {
        const trm_map_entry *entry = &map->entries[i];
        if (entry->key != NULL) {
            *probe(&grown, entry->key, entry->size, entry->hash) = *entry;
        }
    }
    free(map->entries);
    *map = grown;
    return TRM_OK;
}

trm_status trm_map_add(trm_map *map, const char *key, size_t size, uint32_t value, bool *existing)
{
    if (size > UINT32_MAX) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a name has %zu bytes, more than %u", size, UINT32_MAX);
    }
    TRM_TRY(trm_map_reserve(map, map->count + 1));
    uint64_t hash = hash_bytes(key, size);
    trm_map_entry *entry = probe(map, key, size, hash);
    *existing = entry->key != NULL;
    if (!*existing) {
        *entry = (trm_map_entry){.key = key, .size = (uint32_t)size, .value = value, .hash = hash};
        map->count++;
    }
    return TRM_OK;
}

trm_status trm_map_set(trm_map *map, const char *key, size_t size, uint32_t value)
{
    bool existing;
    TRM_TRY(trm_map_add(map, key, size, value, &existing));
    if (existing) {
        probe(map, key, size, hash_bytes(key, size))->value = value;
    }
    return TRM_OK;
}

bool trm_map_find(const trm_map *map, const char *key, size_t size, uint32_t *value)
{
    if (map->count == 0 || size > UINT32_MAX) {
        return false;
    }
    const trm_map_entry *entry = probe(map, key, size, hash_bytes(key, size));
    if (entry->key != NULL && value != NULL) {
        *value = entry->value;
    }
    return entry->key != NULL;
}

void trm_map_fini(trm_map *map)
{
    free(map->entries);
    *map = (trm_map){0};
}
