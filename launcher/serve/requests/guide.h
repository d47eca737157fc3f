/*
 * Grammars in use: compiled once for all requests that ask for the same, kept for the next ones, and followed token by
 * token. The front end compiles to check a request, rank 0 to make its masks.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_GUIDE_H
#define TRM_LAUNCHER_SERVE_REQUESTS_GUIDE_H

#include <trireme/grammar.h>

#include "launcher/serve/requests/api_request.h"

typedef struct guide_store guide_store;
typedef struct guide guide; /* a compiled grammar, with the number of its users */

/* `vocab` is the width of the logits, end_tokens [n_end] end a text. */
trm_status guide_store_create(const trm_tokenizer *tokenizer, const int32_t *end_tokens, int32_t n_end, int64_t vocab,
                              guide_store **result);
void guide_store_destroy(guide_store *store); /* NULL is ignored; guides must be released */
/* Finds or compiles. Any thread. Errors as for trm_grammar_compile. */
trm_status guide_open(guide_store *store, api_format format, const char *text, guide **result);
void guide_release(guide_store *store, guide *g); /* NULL is ignored */

/* A request that follows a grammar. One thread. The last states are kept: drafted tokens may be taken back. */
#define GUIDE_STATES 32 /* more than a step drafts */
typedef struct guide_walk {
    guide *guide;
    trm_grammar_state *states[GUIDE_STATES]; /* after i tokens at i % GUIDE_STATES */
    int32_t tokens[GUIDE_STATES];            /* the last of those */
    int64_t oldest, seen;                    /* tokens that the oldest and the newest state have passed */
} guide_walk;
trm_status guide_walk_init(guide *g, guide_walk *walk); /* keeps the guide; the caller releases it */
void guide_walk_fini(guide_walk *walk);
/* What may follow tokens [n_tokens], all from the beginning of the output: bits of the vocabulary into `mask`. The last
 * GUIDE_STATES - 2 of an earlier call may be others now. */
trm_status guide_walk_mask(guide_walk *walk, const int32_t *tokens, int64_t n_tokens, uint32_t *mask);

#endif
