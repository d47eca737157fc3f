/*
 * FNV-1a: a hash of bytes that is the same on every machine. For tables, seeds and detecting mistakes; no protection
 * against attacks.
 */
#ifndef TRM_BASE_HASH_H
#define TRM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define TRM_HASH_START 14695981039346656037ull

/* Continues from `hash`: TRM_HASH_START, or the hash of the bytes before. */
static inline uint64_t trm_hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = (const unsigned char *)bytes;
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ at[i]) * 1099511628211ull;
    }
    return hash;
}

#endif
