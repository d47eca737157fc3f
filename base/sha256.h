/*
 * SHA-256 (FIPS 180-4) and HMAC over it (RFC 2104), for the few bytes by which ranks prove who they are.
 */
#ifndef TRM_BASE_SHA256_H
#define TRM_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define TRM_SHA256_SIZE 32

typedef struct trm_sha256 {
    uint32_t state[8];
    uint8_t block[64];
    uint64_t size; /* bytes so far */
} trm_sha256;

void trm_sha256_begin(trm_sha256 *hash);
void trm_sha256_add(trm_sha256 *hash, const void *bytes, size_t size);
void trm_sha256_end(trm_sha256 *hash, uint8_t digest[TRM_SHA256_SIZE]);

/* The parts of the message are hashed one after the other. */
typedef struct trm_hmac_part {
    const void *bytes;
    size_t size;
} trm_hmac_part;
void trm_hmac_sha256(const void *key, size_t key_size, const trm_hmac_part *parts, int32_t n_parts,
                     uint8_t digest[TRM_SHA256_SIZE]);

#endif
