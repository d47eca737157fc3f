/* SHA-256 and HMAC. */
#include "base/sha256.h"

#include <string.h>

#define BLOCK ((size_t)64)

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void add_block(trm_sha256 *hash)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) {
        const uint8_t *at = hash->block + 4 * i;
        w[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15], b = w[i - 2];
        w[i] =
            w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(v, hash->state, sizeof(v));
    for (int i = 0; i < 64; i++) {
        const uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        const uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        const uint32_t one =
            v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) + choice + round_constants[i] + w[i];
        const uint32_t two = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) + majority;
        memmove(v + 1, v, 7 * sizeof(v[0]));
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) {
        hash->state[i] += v[i];
    }
}

void trm_sha256_begin(trm_sha256 *hash)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, start, sizeof(start));
    hash->size = 0;
}

void trm_sha256_add(trm_sha256 *hash, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    for (size_t i = 0; i < size; i++) {
        hash->block[hash->size++ % BLOCK] = from[i];
        if (hash->size % BLOCK == 0) {
            add_block(hash);
        }
    }
}

void trm_sha256_end(trm_sha256 *hash, uint8_t digest[TRM_SHA256_SIZE])
{
    const uint64_t bits = 8 * hash->size;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) {
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    trm_sha256_add(hash, "\x80", 1);
    while (hash->size % BLOCK != BLOCK - sizeof(length)) {
        trm_sha256_add(hash, "", 1);
    }
    trm_sha256_add(hash, length, sizeof(length));
    for (int i = 0; i < TRM_SHA256_SIZE; i++) {
        digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
    }
}

void trm_hmac_sha256(const void *key, size_t key_size, const trm_hmac_part *parts, int32_t n_parts,
                     uint8_t digest[TRM_SHA256_SIZE])
{
    trm_sha256 hash;
    uint8_t padded[BLOCK] = {0};
    if (key_size > BLOCK) {
        trm_sha256_begin(&hash);
        trm_sha256_add(&hash, key, key_size);
        trm_sha256_end(&hash, padded);
    } else if (key_size > 0) {
        memcpy(padded, key, key_size);
    }
    for (size_t i = 0; i < BLOCK; i++) {
        padded[i] ^= 0x36;
    }
    trm_sha256_begin(&hash);
    trm_sha256_add(&hash, padded, BLOCK);
    for (int32_t i = 0; i < n_parts; i++) {
        trm_sha256_add(&hash, parts[i].bytes, parts[i].size);
    }
    trm_sha256_end(&hash, digest);
    for (size_t i = 0; i < BLOCK; i++) {
        padded[i] ^= 0x36 ^ 0x5c;
    }
    trm_sha256_begin(&hash);
    trm_sha256_add(&hash, padded, BLOCK);
    trm_sha256_add(&hash, digest, TRM_SHA256_SIZE);
    trm_sha256_end(&hash, digest);
}
