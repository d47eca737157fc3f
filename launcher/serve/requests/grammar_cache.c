/* A small LRU cache of compiled grammars. */
#include "launcher/serve/requests/grammar_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define MAX_KEPT 64 /* unused grammars to keep */

struct cached_grammar {
    cached_grammar *next; /* most recently used first */
    api_format format;
    char *text;
    trm_grammar *grammar;
    int32_t users;
};

struct grammar_cache {
    pthread_mutex_t lock;
    trm_grammar_vocab *vocab;
    cached_grammar *first;
};

trm_status grammar_cache_create(const trm_tokenizer *tokenizer, const int32_t *end_tokens, int32_t n_end, int64_t vocab,
                                grammar_cache **result)
{
    grammar_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the grammar cache");
    }
    trm_status status = trm_grammar_vocab_create(tokenizer, end_tokens, (size_t)n_end, (int32_t)vocab, &cache->vocab);
    if (status != TRM_OK) {
        free(cache);
        return status;
    }
    pthread_mutex_init(&cache->lock, NULL);
    *result = cache;
    return TRM_OK;
}

static void destroy_grammar(cached_grammar *g)
{
    trm_grammar_destroy(g->grammar);
    free(g->text);
    free(g);
}

void grammar_cache_destroy(grammar_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    while (cache->first != NULL) {
        cached_grammar *g = cache->first;
        cache->first = g->next;
        destroy_grammar(g);
    }
    trm_grammar_vocab_destroy(cache->vocab);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

/* Finds a grammar and moves it to the front. Call with the lock held. */
static cached_grammar *find(grammar_cache *cache, api_format format, const char *text)
{
    for (cached_grammar **at = &cache->first; *at != NULL; at = &(*at)->next) {
        cached_grammar *g = *at;
        if (g->format == format && strcmp(g->text, text) == 0) {
            *at = g->next;
            g->next = cache->first;
            cache->first = g;
            g->users++;
            return g;
        }
    }
    return NULL;
}

/* Evicts the least recently used grammars that have no user. Call with the lock held. */
static void trim(grammar_cache *cache)
{
    int32_t idle = 0;
    for (cached_grammar **at = &cache->first; *at != NULL;) {
        cached_grammar *g = *at;
        if (g->users == 0 && ++idle > MAX_KEPT) {
            *at = g->next;
            destroy_grammar(g);
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

trm_status grammar_cache_get(grammar_cache *cache, api_format format, const char *text, cached_grammar **result)
{
    text = text == NULL ? "" : text;
    pthread_mutex_lock(&cache->lock);
    cached_grammar *g = find(cache, format, text);
    pthread_mutex_unlock(&cache->lock);
    if (g == NULL) { /* two threads may compile the same grammar: both are kept until unused */
        trm_status status;
        g = calloc(1, sizeof(*g));
        char *copy = strdup(text);
        if (g == NULL || copy == NULL) {
            free(g);
            free(copy);
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a grammar");
        }
        *g = (cached_grammar){.format = format, .text = copy, .users = 1};
        status = trm_grammar_compile(cache->vocab, kind_of(format), text, strlen(text), &g->grammar);
        if (status != TRM_OK) {
            destroy_grammar(g);
            return status;
        }
        pthread_mutex_lock(&cache->lock);
        g->next = cache->first;
        cache->first = g;
        pthread_mutex_unlock(&cache->lock);
    }
    *result = g;
    return TRM_OK;
}

void grammar_cache_release(grammar_cache *cache, cached_grammar *g)
{
    if (g != NULL) {
        pthread_mutex_lock(&cache->lock);
        g->users--;
        trim(cache);
        pthread_mutex_unlock(&cache->lock);
    }
}

trm_status grammar_walk_init(cached_grammar *g, grammar_walk *walk)
{
    *walk = (grammar_walk){.grammar = g};
    return trm_grammar_state_create(g->grammar, &walk->states[0]);
}

void grammar_walk_fini(grammar_walk *walk)
{
    for (int32_t i = 0; i < GRAMMAR_WALK_STATES; i++) {
        trm_grammar_state_destroy(walk->states[i]);
    }
    *walk = (grammar_walk){0};
}

/* Goes back to the newest state whose tokens are a prefix of these. */
static void go_back(grammar_walk *walk, const int32_t *tokens, int64_t n_tokens)
{
    int64_t same = walk->oldest;
    while (same < walk->seen && same < n_tokens && walk->tokens[(same + 1) % GRAMMAR_WALK_STATES] == tokens[same]) {
        same++;
    }
    walk->seen = same;
}

trm_status grammar_walk_mask(grammar_walk *walk, const int32_t *tokens, int64_t n_tokens, uint32_t *mask)
{
    go_back(walk, tokens, n_tokens);
    for (; walk->seen < n_tokens; walk->seen++) {
        bool accepted;
        int64_t next = (walk->seen + 1) % GRAMMAR_WALK_STATES;
        walk->oldest += walk->seen + 1 - walk->oldest == GRAMMAR_WALK_STATES; /* its slot is reused */
        trm_grammar_state_destroy(walk->states[next]);
        walk->states[next] = NULL;
        TRM_TRY(trm_grammar_state_copy(walk->states[walk->seen % GRAMMAR_WALK_STATES], &walk->states[next]));
        TRM_TRY(trm_grammar_state_accept(walk->states[next], tokens[walk->seen], &accepted));
        if (!accepted) {
            TRM_FAIL(TRM_ERROR_INTERNAL, "token %d of the output does not follow its grammar", (int)walk->seen);
        }
        walk->tokens[next] = tokens[walk->seen];
    }
    return trm_grammar_state_mask(walk->states[walk->seen % GRAMMAR_WALK_STATES], mask);
}
