/* Chooses replicas by the prefixes they have cached and by their load. */
#include "launcher/serve/replicas/router.h"

#include <stdlib.h>

#include <trireme/serving.h>

#include "base/error.h"
#include "base/hash.h"

#define N_BLOCKS ((size_t)1 << 16)
/* The decode steps of a request take about as long as this many prompt tokens. */
#define REQUEST_TOKENS 256

typedef struct router_block {
    uint64_t hash; /* 0: none */
    uint64_t replicas;
} router_block;

trm_status router_init(router *r, int32_t n_replicas, bool prefix_cache)
{
    *r = (router){.n_replicas = n_replicas, .last = n_replicas - 1};
    if (n_replicas < 1 || n_replicas > ROUTER_MAX_REPLICAS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%d replicas, expected 1 to %d", n_replicas, ROUTER_MAX_REPLICAS);
    }
    if (n_replicas > 1 && prefix_cache && (r->blocks = calloc(N_BLOCKS, sizeof(*r->blocks))) == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the prefix table of the router");
    }
    return TRM_OK;
}

void router_fini(router *r)
{
    free(r->blocks);
    *r = (router){0};
}

/* Continues from the hash of the tokens before a block. */
static uint64_t hash_block(uint64_t hash, const int32_t *tokens)
{
    return trm_hash_bytes(hash, tokens, TRM_KV_BLOCK_SIZE * sizeof(*tokens));
}

static router_block *block_of(const router *r, uint64_t hash)
{
    return &r->blocks[(hash ^ hash >> 32) % N_BLOCKS];
}

/* Number of leading tokens that each replica was given before. A known block implies all blocks before it, some of
 * which may be forgotten. */
static void count_seen(const router *r, const int32_t *tokens, size_t n_tokens, int64_t *seen)
{
    uint64_t hash = TRM_HASH_START;
    for (size_t end = TRM_KV_BLOCK_SIZE; r->blocks != NULL && end <= n_tokens; end += TRM_KV_BLOCK_SIZE) {
        hash = hash_block(hash, tokens + end - TRM_KV_BLOCK_SIZE);
        const router_block *block = block_of(r, hash);
        for (int32_t i = 0; block->hash == hash && i < r->n_replicas; i++) {
            seen[i] = block->replicas >> i & 1 ? (int64_t)end : seen[i];
        }
    }
}

int32_t router_choose(router *r, const int32_t *tokens, size_t n_tokens, const router_replica *replicas,
                      int64_t *unseen)
{
    int64_t seen[ROUTER_MAX_REPLICAS] = {0}, least = 0;
    int32_t best = -1;
    bool has_place = false;
    for (int32_t i = 0; i < r->n_replicas; i++) {
        has_place = has_place || (replicas[i].serves && replicas[i].live < replicas[i].places);
    }
    count_seen(r, tokens, n_tokens, seen);
    for (int32_t turn = 1; turn <= r->n_replicas; turn++) {
        const int32_t i = (r->last + turn) % r->n_replicas;
        const router_replica *at = &replicas[i];
        if (!at->serves || (has_place && at->live >= at->places)) {
            continue;
        }
        const int64_t left =
            (int64_t)n_tokens > seen[i] ? (int64_t)n_tokens - seen[i] : 1; /* the last token is always processed */
        const int64_t work = left + at->prompt + (int64_t)at->live * REQUEST_TOKENS;
        if (best < 0 || work < least) {
            best = i;
            least = work;
            *unseen = left;
        }
    }
    r->last = best >= 0 ? best : r->last;
    return best;
}

void router_note(router *r, const int32_t *tokens, size_t n_tokens, int32_t replica)
{
    uint64_t hash = TRM_HASH_START;
    for (size_t end = TRM_KV_BLOCK_SIZE; r->blocks != NULL && end <= n_tokens; end += TRM_KV_BLOCK_SIZE) {
        hash = hash_block(hash, tokens + end - TRM_KV_BLOCK_SIZE);
        router_block *block = block_of(r, hash);
        block->replicas = (block->hash == hash ? block->replicas : 0) | (uint64_t)1 << replica;
        block->hash = hash;
    }
}

void router_forget(router *r, int32_t replica)
{
    for (size_t i = 0; r->blocks != NULL && i < N_BLOCKS; i++) {
        r->blocks[i].replicas &= ~((uint64_t)1 << replica);
    }
}
