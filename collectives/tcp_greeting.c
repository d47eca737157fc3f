/* Nonces and proofs. */
#include "collectives/tcp_greeting.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/error.h"

trm_status trm_tcp_make_nonce(trm_tcp_nonce *nonce)
{
    if (getrandom(nonce, sizeof(*nonce), 0) != sizeof(*nonce)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "cannot get random numbers: %s", strerror(errno));
    }
    return TRM_OK;
}

trm_tcp_proof trm_tcp_prove(const char *secret, trm_tcp_side side, const trm_tcp_hello *hello,
                            const trm_tcp_challenge *challenge)
{
    static const char *const words[] = {"trireme rank connects", "trireme rank accepts"};
    const trm_hmac_part parts[] = {
        {words[side], strlen(words[side]) + 1}, {hello, sizeof(*hello)}, {challenge, sizeof(*challenge)}};
    trm_tcp_proof proof;
    trm_hmac_sha256(secret, secret != NULL ? strlen(secret) : 0, parts, 3, proof.bytes);
    return proof;
}

bool trm_tcp_same_proof(const trm_tcp_proof *a, const trm_tcp_proof *b)
{
    uint8_t differs = 0;
    for (size_t i = 0; i < sizeof(a->bytes); i++) {
        differs |= a->bytes[i] ^ b->bytes[i];
    }
    return differs == 0;
}
