/*
 * Grammars in use: compiled once for all requests that ask for the same, kept for the next ones, and followed token by
 * token. The front end compiles to check a request, rank 0 to make its masks.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_GRAMMAR_CACHE_H
#define TRM_LAUNCHER_SERVE_REQUESTS_GRAMMAR_CACHE_H

#include <trireme/grammar.h>

#include "launcher/serve/requests/api_request.h"

typedef struct grammar_cache grammar_cache;
typedef struct cached_grammar cached_grammar; /* a compiled grammar, with the number of its users */

/* `vocab` is the width of the logits, end_tokens [n_end] end a text. */
trm_status grammar_cache_create(const trm_tokenizer *tokenizer, const int32_t *end_tokens, int32_t n_end, int64_t vocab,
                                grammar_cache **result);
void grammar_cache_destroy(grammar_cache *cache); /* NULL is ignored; grammars must be released */
/* Finds or compiles. Any thread. Errors as for trm_grammar_compile. */
trm_status grammar_cache_get(grammar_cache *cache, api_format format, const char *text, cached_grammar **result);
void grammar_cache_release(grammar_cache *cache, cached_grammar *g); /* NULL is ignored */

/* A request that follows a grammar. One thread. The last states are kept: drafted tokens may be taken back. */
#define GRAMMAR_WALK_STATES 32 /* more than a step drafts */
typedef struct grammar_walk {
    cached_grammar *grammar;
    trm_grammar_state *states[GRAMMAR_WALK_STATES]; /* after i tokens at i % GRAMMAR_WALK_STATES */
    int32_t tokens[GRAMMAR_WALK_STATES];            /* the last of those */
    int64_t oldest, seen;                           /* tokens that the oldest and the newest state have passed */
} grammar_walk;
trm_status grammar_walk_init(cached_grammar *g, grammar_walk *walk); /* keeps the guide; the caller releases it */
void grammar_walk_fini(grammar_walk *walk);
/* What may follow tokens [n_tokens], all from the beginning of the output: bits of the vocabulary into `mask`. The last
 * GRAMMAR_WALK_STATES - 2 of an earlier call may be others now. */
trm_status grammar_walk_mask(grammar_walk *walk, const int32_t *tokens, int64_t n_tokens, uint32_t *mask);

#endif
