/* A small store of compiled grammars, the least recently used one given up first. */
#include "launcher/serve/requests/guide.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define MOST_KEPT 64 /* grammars without a user */

struct guide {
    guide *next; /* more recently used first */
    api_format format;
    char *text;
    trm_grammar *grammar;
    int32_t users;
};

struct guide_store {
    pthread_mutex_t lock;
    trm_grammar_vocab *vocab;
    guide *first;
};

trm_status guide_store_create(const trm_tokenizer *tokenizer, const int32_t *end_tokens, int32_t n_end, int64_t vocab,
                              guide_store **result)
{
    guide_store *store = calloc(1, sizeof(*store));
    if (store == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the store of grammars");
    }
    trm_status status = trm_grammar_vocab_create(tokenizer, end_tokens, (size_t)n_end, (int32_t)vocab, &store->vocab);
    if (status != TRM_OK) {
        free(store);
        return status;
    }
    pthread_mutex_init(&store->lock, NULL);
    *result = store;
    return TRM_OK;
}

static void destroy_guide(guide *g)
{
    trm_grammar_destroy(g->grammar);
    free(g->text);
    free(g);
}

void guide_store_destroy(guide_store *store)
{
    if (store == NULL) {
        return;
    }
    while (store->first != NULL) {
        guide *g = store->first;
        store->first = g->next;
        destroy_guide(g);
    }
    trm_grammar_vocab_destroy(store->vocab);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* With the lock held: the guide, moved to the front. */
static guide *find(guide_store *store, api_format format, const char *text)
{
    for (guide **at = &store->first; *at != NULL; at = &(*at)->next) {
        guide *g = *at;
        if (g->format == format && strcmp(g->text, text) == 0) {
            *at = g->next;
            g->next = store->first;
            store->first = g;
            g->users++;
            return g;
        }
    }
    return NULL;
}

/* With the lock held: gives up what was not used for longest. */
static void trim(guide_store *store)
{
    int32_t idle = 0;
    for (guide **at = &store->first; *at != NULL;) {
        guide *g = *at;
        if (g->users == 0 && ++idle > MOST_KEPT) {
            *at = g->next;
            destroy_guide(g);
        } else {
            at = &g->next;
        }
    }
}

static trm_grammar_kind kind_of(api_format format)
{
    switch (format) {
    case API_FORMAT_SCHEMA:
        return TRM_GRAMMAR_JSON_SCHEMA;
    case API_FORMAT_REGEX:
        return TRM_GRAMMAR_REGEX;
    case API_FORMAT_EBNF:
        return TRM_GRAMMAR_EBNF;
    case API_FORMAT_CHOICE:
        return TRM_GRAMMAR_CHOICE;
    case API_FORMAT_TEXT:
    case API_FORMAT_JSON:
        break;
    }
    return TRM_GRAMMAR_JSON;
}

trm_status guide_open(guide_store *store, api_format format, const char *text, guide **result)
{
    text = text == NULL ? "" : text;
    pthread_mutex_lock(&store->lock);
    guide *g = find(store, format, text);
    pthread_mutex_unlock(&store->lock);
    if (g == NULL) { /* two threads may compile the same: both are kept until unused */
        trm_status status;
        g = calloc(1, sizeof(*g));
        char *copy = strdup(text);
        if (g == NULL || copy == NULL) {
            free(g);
            free(copy);
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a grammar");
        }
        *g = (guide){.format = format, .text = copy, .users = 1};
        status = trm_grammar_compile(store->vocab, kind_of(format), text, strlen(text), &g->grammar);
        if (status != TRM_OK) {
            destroy_guide(g);
            return status;
        }
        pthread_mutex_lock(&store->lock);
        g->next = store->first;
        store->first = g;
        pthread_mutex_unlock(&store->lock);
    }
    *result = g;
    return TRM_OK;
}

void guide_release(guide_store *store, guide *g)
{
    if (g != NULL) {
        pthread_mutex_lock(&store->lock);
        g->users--;
        trim(store);
        pthread_mutex_unlock(&store->lock);
    }
}

trm_status guide_walk_init(guide *g, guide_walk *walk)
{
    *walk = (guide_walk){.guide = g};
    return trm_grammar_state_create(g->grammar, &walk->states[0]);
}

void guide_walk_fini(guide_walk *walk)
{
    for (int32_t i = 0; i < GUIDE_STATES; i++) {
        trm_grammar_state_destroy(walk->states[i]);
    }
    *walk = (guide_walk){0};
}

/* Goes back to the newest state whose tokens are the first of those. */
static void go_back(guide_walk *walk, const int32_t *tokens, int64_t n_tokens)
{
    int64_t same = walk->oldest;
    while (same < walk->seen && same < n_tokens && walk->tokens[(same + 1) % GUIDE_STATES] == tokens[same]) {
        same++;
    }
    walk->seen = same;
}

trm_status guide_walk_mask(guide_walk *walk, const int32_t *tokens, int64_t n_tokens, uint32_t *mask)
{
    go_back(walk, tokens, n_tokens);
    for (; walk->seen < n_tokens; walk->seen++) {
        bool accepted;
        int64_t next = (walk->seen + 1) % GUIDE_STATES;
        walk->oldest += walk->seen + 1 - walk->oldest == GUIDE_STATES; /* whose place it takes */
        trm_grammar_state_destroy(walk->states[next]);
        walk->states[next] = NULL;
        TRM_TRY(trm_grammar_state_copy(walk->states[walk->seen % GUIDE_STATES], &walk->states[next]));
        TRM_TRY(trm_grammar_state_accept(walk->states[next], tokens[walk->seen], &accepted));
        if (!accepted) {
            TRM_FAIL(TRM_ERROR_INTERNAL, "token %d of the output does not follow its grammar", (int)walk->seen);
        }
        walk->tokens[next] = tokens[walk->seen];
    }
    return trm_grammar_state_mask(walk->states[walk->seen % GUIDE_STATES], mask);
}
