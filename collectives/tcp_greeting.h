/*
 * How two ranks that meet over TCP make sure of each other: the one that connects sends a hello, the other a challenge;
 * both then prove by HMAC-SHA256 over these that they know the job's secret, the connecting one first. The secret
 * itself is never sent. Without a secret the key is empty, and proofs only show that both speak the same protocol.
 */
#ifndef TRM_COLLECTIVES_TCP_GREETING_H
#define TRM_COLLECTIVES_TCP_GREETING_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/status.h>

#include "base/sha256.h"

#define TRM_TCP_MAGIC 0x54524d32u

typedef struct trm_tcp_nonce {
    uint8_t bytes[16];
} trm_tcp_nonce;

/* The first bytes of a connection. */
typedef struct trm_tcp_hello {
    uint32_t magic;
    int32_t rank, size, stream;
    uint32_t port; /* where the rank listens */
    trm_tcp_nonce nonce;
} trm_tcp_hello;

typedef struct trm_tcp_challenge {
    uint32_t magic;
    trm_tcp_nonce nonce;
} trm_tcp_challenge;

typedef struct trm_tcp_proof {
    uint8_t bytes[TRM_SHA256_SIZE];
} trm_tcp_proof;

typedef enum trm_tcp_verdict {
    TRM_TCP_WELCOME,
    TRM_TCP_WRONG_SECRET,
    TRM_TCP_WRONG_SIZE,
    TRM_TCP_RANK_TAKEN
} trm_tcp_verdict;

/* The reply to the connecting rank's proof. */
typedef struct trm_tcp_welcome {
    int32_t verdict, size; /* size: of the other's job; only with a right proof */
    trm_tcp_proof proof;   /* only with WELCOME */
} trm_tcp_welcome;

typedef enum trm_tcp_side { TRM_TCP_CONNECTS, TRM_TCP_ACCEPTS } trm_tcp_side;

/* Random; INTERNAL if the system has none. */
trm_status trm_tcp_make_nonce(trm_tcp_nonce *nonce);
/* What `side` sends to prove that it knows the secret (NULL: none). */
trm_tcp_proof trm_tcp_prove(const char *secret, trm_tcp_side side, const trm_tcp_hello *hello,
                            const trm_tcp_challenge *challenge);
/* Compares in constant time. */
bool trm_tcp_same_proof(const trm_tcp_proof *a, const trm_tcp_proof *b);

#endif
