/*
 * Chooses the replica of a request. Each replica has its own prefix cache, so a prompt is cheapest where its prefix is
 * cached; but a replica with much to do is slower. Used by one thread.
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_ROUTER_H
#define TRM_LAUNCHER_SERVE_REPLICAS_ROUTER_H

#include <trireme/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROUTER_MAX_REPLICAS 64

/* The state of a replica. */
typedef struct router_replica {
    bool serves;    /* it accepts requests */
    int32_t live;   /* requests it has, running or waiting */
    int32_t places; /* maximum running requests; those beyond wait */
    int64_t prompt; /* unprocessed tokens of their prompts */
} router_replica;

/* Hashes of prompt prefixes, by block, and the replicas that were given them. It keeps the latest 65536, as caches
 * forget older ones too. */
typedef struct router {
    struct router_block *blocks; /* NULL: prefixes are not tracked */
    int32_t n_replicas;
    int32_t last; /* the replica chosen last */
} router;

/* `prefix_cache`: replicas have one. Error: OUT_OF_MEMORY. */
trm_status router_init(router *r, int32_t n_replicas, bool prefix_cache);
void router_fini(router *r);

/*
 * The replica with the least work for a prompt, among those that are serving and, if any is, not full. Work is the
 * tokens of this prompt it has not cached, the unprocessed tokens of others, and for each of its requests the tokens
 * that take as long as its decode steps. Equals take turns. -1: none is serving. *unseen: the tokens to process, at
 * least 1.
 */
int32_t router_choose(router *r, const int32_t *tokens, size_t n_tokens, const router_replica *replicas,
                      int64_t *unseen);
/* Notes that the prompt goes to the replica. */
void router_note(router *r, const int32_t *tokens, size_t n_tokens, int32_t replica);
/* Notes that the replica's cache is empty. */
void router_forget(router *r, int32_t replica);

#endif
