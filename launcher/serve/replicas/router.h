/*
 * Which replica a request goes to. Each has a prefix cache of its own, so a prompt is cheapest where its beginning was
 * seen before; but a replica that has much to do already is slower. Used by one thread.
 */
#ifndef TRM_LAUNCHER_SERVE_REPLICAS_ROUTER_H
#define TRM_LAUNCHER_SERVE_REPLICAS_ROUTER_H

#include <trireme/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROUTER_MAX_REPLICAS 64

/* A replica as the router sees it. */
typedef struct router_replica {
    bool serves;    /* requests can go to it */
    int32_t live;   /* requests it has, running or waiting */
    int32_t places; /* requests that run at a time; those beyond wait */
    int64_t prompt; /* tokens of their prompts that it has not run yet */
} router_replica;

/* Blocks of prompts by the hash of all tokens up to their end, and the replicas that were given them. It remembers the
 * latest 65536: older ones are forgotten, as caches forget them. */
typedef struct router {
    struct router_block *blocks; /* NULL: there is nothing to remember */
    int32_t n_replicas;
    int32_t last; /* that was chosen */
} router;

/* `prefix_cache`: replicas have one. Error: OUT_OF_MEMORY. */
trm_status router_init(router *r, int32_t n_replicas, bool prefix_cache);
void router_fini(router *r);

/*
 * The replica for a prompt: of those that serve, and have a free place if any has, the one with the least work for it,
 * which is the tokens of this prompt that it has not seen, those of others, and as many tokens for each request that
 * it has as such a request takes time. Among equals they take turns. -1: none serves. *unseen: the first of these, at
 * least 1.
 */
int32_t router_choose(router *r, const int32_t *tokens, size_t n_tokens, const router_replica *replicas,
                      int64_t *unseen);
/* The prompt goes there. */
void router_note(router *r, const int32_t *tokens, size_t n_tokens, int32_t replica);
/* Its cache is empty again. */
void router_forget(router *r, int32_t replica);

#endif
