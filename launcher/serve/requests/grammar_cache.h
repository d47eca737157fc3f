/*
 * Compiled grammars, shared by all requests that ask for the same and cached for later ones, and their state after
 * each token. The front end compiles a grammar to check a request, rank 0 to make masks.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_GRAMMAR_CACHE_H
#define TRM_LAUNCHER_SERVE_REQUESTS_GRAMMAR_CACHE_H

#include <trireme/grammar.h>

#include "launcher/serve/requests/api_request.h"

typedef struct grammar_cache grammar_cache;
typedef struct cached_grammar cached_grammar; /* a compiled grammar with a reference count */

/* `vocab` is the width of the logits; any of end_tokens [n_end] ends a text. */
trm_status grammar_cache_create(const trm_tokenizer *tokenizer, const int32_t *end_tokens, int32_t n_end, int64_t vocab,
                                grammar_cache **result);
/* Compiles nothing more: what waits is refused, so that nobody waits any longer. NULL is ignored. */
void grammar_cache_stop(grammar_cache *cache);
void grammar_cache_destroy(grammar_cache *cache); /* NULL is ignored; release all grammars before */
/* Grammars are compiled by threads of the cache, few at a time, so that no caller is held up. All calls: any thread. */
/* A grammar that is compiled, or is going to be; release it in either case. BUSY if too many are waiting. */
trm_status grammar_cache_ask(grammar_cache *cache, api_format format, const char *text, cached_grammar **result);
bool grammar_cache_is_ready(grammar_cache *cache, const cached_grammar *g);
/* Calls `ready` with `user` once the grammar is compiled: from a thread of the cache, or at once. */
typedef void grammar_ready_fn(void *user);
trm_status grammar_cache_notify(grammar_cache *cache, cached_grammar *g, grammar_ready_fn *ready, void *user);
/* The outcome of a grammar that is ready: errors as for trm_grammar_compile. */
trm_status grammar_cache_outcome(const cached_grammar *g);
void grammar_cache_release(grammar_cache *cache, cached_grammar *g); /* NULL is ignored */

/* The grammar state of a request. One thread. It keeps the last states, because draft tokens may be rejected. */
#define GRAMMAR_WALK_STATES 32 /* more than a step drafts */
typedef struct grammar_walk {
    cached_grammar *grammar;
    trm_grammar_state *states[GRAMMAR_WALK_STATES]; /* the state after i tokens is at i % GRAMMAR_WALK_STATES */
    int32_t tokens[GRAMMAR_WALK_STATES];            /* the last token of each */
    int64_t oldest, seen;                           /* tokens passed by the oldest and the newest state */
} grammar_walk;
trm_status grammar_walk_init(cached_grammar *g, grammar_walk *walk); /* keeps the grammar; the caller releases it */
void grammar_walk_fini(grammar_walk *walk);
/* Writes the tokens that may follow tokens [n_tokens], which begin with the output, as bits of the vocabulary into
 * `mask`. The last GRAMMAR_WALK_STATES - 2 tokens may differ from those of an earlier call. */
trm_status grammar_walk_mask(grammar_walk *walk, const int32_t *tokens, int64_t n_tokens, uint32_t *mask);

#endif
