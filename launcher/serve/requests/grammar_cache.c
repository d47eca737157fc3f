/* A small LRU cache of compiled grammars, and the threads that compile them. */
#include "launcher/serve/requests/grammar_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "launcher/text/grammar/vocab.h"

#define THREADS     2                   /* that compile */
#define NICENESS    10                  /* serving comes first */
#define MAX_WAITING 256                 /* grammars to compile */
#define MAX_KEPT    64                  /* unused grammars to keep */
#define MAX_BYTES   ((size_t)256 << 20) /* of unused grammars */

/* Somebody who waits for a grammar. */
typedef struct grammar_waiter grammar_waiter;
struct grammar_waiter {
    grammar_waiter *next;
    grammar_ready_fn *ready;
    void *user;
};

struct cached_grammar {
    cached_grammar *next;    /* most recently used first */
    cached_grammar *waiting; /* the next one to compile */
    grammar_waiter *waiters;
    api_format format;
    char *text;
    trm_grammar *grammar;
    bool is_ready;
    trm_status status; /* of compiling */
    char *error;
    int32_t users; /* with the thread that compiles it */
};

struct grammar_cache {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something waits, or the cache ends */
    trm_grammar_vocab *vocab;
    cached_grammar *first, *first_waiting;
    int32_t n_waiting;
    pthread_t threads[THREADS];
    int32_t n_threads;
    bool ends;
};

static void *compile_main(void *user);

trm_status grammar_cache_create(const trm_tokenizer *tokenizer, const int32_t *end_tokens, int32_t n_end, int64_t vocab,
                                grammar_cache **result)
{
    grammar_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the grammar cache");
    }
    trm_status status = trm_grammar_vocab_create(tokenizer, end_tokens, (size_t)n_end, (int32_t)vocab, &cache->vocab);
    pthread_mutex_init(&cache->lock, NULL);
    pthread_cond_init(&cache->changed, NULL);
    while (status == TRM_OK && cache->n_threads < THREADS) {
        if (pthread_create(&cache->threads[cache->n_threads], NULL, compile_main, cache) != 0) {
            status = trm_fail(TRM_ERROR_INTERNAL, "cannot start a thread that compiles grammars");
        }
        cache->n_threads += status == TRM_OK;
    }
    if (status != TRM_OK) {
        grammar_cache_destroy(cache);
        return status;
    }
    *result = cache;
    return TRM_OK;
}

static void destroy_grammar(cached_grammar *g)
{
    if (g != NULL) {
        trm_grammar_destroy(g->grammar);
        free(g->text);
        free(g->error);
        free(g);
    }
}

void grammar_cache_stop(grammar_cache *cache)
{
    if (cache != NULL) {
        pthread_mutex_lock(&cache->lock);
        cache->ends = true;
        pthread_cond_broadcast(&cache->changed);
        pthread_mutex_unlock(&cache->lock);
    }
}

void grammar_cache_destroy(grammar_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    grammar_cache_stop(cache);
    for (int32_t i = 0; i < cache->n_threads; i++) {
        pthread_join(cache->threads[i], NULL);
    }
    while (cache->first != NULL) {
        cached_grammar *g = cache->first;
        cache->first = g->next;
        destroy_grammar(g);
    }
    trm_grammar_vocab_destroy(cache->vocab);
    pthread_cond_destroy(&cache->changed);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

/* Finds a grammar and moves it to the front. Call with the lock held. */
static cached_grammar *find(grammar_cache *cache, api_format format, const char *text)
{
    for (cached_grammar **at = &cache->first; *at != NULL; at = &(*at)->next) {
        cached_grammar *g = *at;
        if (g->format == format && g->status != TRM_ERROR_OUT_OF_MEMORY && strcmp(g->text, text) == 0) {
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
    size_t bytes = 0;
    for (cached_grammar **at = &cache->first; *at != NULL;) {
        cached_grammar *g = *at;
        bytes += g->users == 0 && g->grammar != NULL ? trm_grammar_bytes(g->grammar) : 0;
        if (g->users == 0 && (++idle > MAX_KEPT || bytes > MAX_BYTES)) {
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

/* Compiles a grammar, without the lock; `ends`: refuses it. */
static void compile(grammar_cache *cache, cached_grammar *g, bool ends)
{
    trm_grammar *made = NULL;
    trm_status status = ends ? trm_fail(TRM_ERROR_BUSY, "the server is ending")
                             : trm_grammar_compile(cache->vocab, kind_of(g->format), g->text, strlen(g->text), &made);
    char *error = status == TRM_OK ? NULL : strdup(trm_last_error());
    pthread_mutex_lock(&cache->lock);
    g->grammar = made;
    g->status = status;
    g->error = error;
    g->is_ready = true;
    grammar_waiter *waiters = g->waiters;
    g->waiters = NULL;
    pthread_mutex_unlock(&cache->lock);
    while (waiters != NULL) {
        grammar_waiter *waiter = waiters;
        waiters = waiter->next;
        waiter->ready(waiter->user);
        free(waiter);
    }
    grammar_cache_release(cache, g);
}

static void *compile_main(void *user)
{
    grammar_cache *cache = user;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICENESS); /* of this thread */
    pthread_mutex_lock(&cache->lock);
    while (true) {
        cached_grammar *g = cache->first_waiting;
        if (g != NULL) {
            cache->first_waiting = g->waiting;
            cache->n_waiting--;
            const bool ends = cache->ends;
            pthread_mutex_unlock(&cache->lock);
            compile(cache, g, ends);
            pthread_mutex_lock(&cache->lock);
        } else if (cache->ends) {
            break;
        } else {
            pthread_cond_wait(&cache->changed, &cache->lock);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return NULL;
}

/* A new grammar at the end of those that wait. Call with the lock held. */
static trm_status add_grammar(grammar_cache *cache, api_format format, const char *text, cached_grammar **result)
{
    if (cache->ends) {
        TRM_FAIL(TRM_ERROR_BUSY, "the server is ending");
    }
    if (cache->n_waiting == MAX_WAITING) {
        TRM_FAIL(TRM_ERROR_BUSY, "%d grammars are waiting to be compiled, try again later", MAX_WAITING);
    }
    cached_grammar *g = calloc(1, sizeof(*g));
    char *copy = strdup(text);
    if (g == NULL || copy == NULL) {
        free(g);
        free(copy);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a grammar");
    }
    *g = (cached_grammar){.next = cache->first, .format = format, .text = copy, .users = 2};
    cached_grammar **last = &cache->first_waiting;
    while (*last != NULL) {
        last = &(*last)->waiting;
    }
    *last = g;
    cache->n_waiting++;
    cache->first = g;
    pthread_cond_broadcast(&cache->changed);
    *result = g;
    return TRM_OK;
}

trm_status grammar_cache_ask(grammar_cache *cache, api_format format, const char *text, cached_grammar **result)
{
    text = text == NULL ? "" : text;
    pthread_mutex_lock(&cache->lock);
    cached_grammar *g = find(cache, format, text);
    trm_status status = g != NULL ? TRM_OK : add_grammar(cache, format, text, &g);
    pthread_mutex_unlock(&cache->lock);
    *result = status == TRM_OK ? g : NULL;
    return status;
}

trm_status grammar_cache_notify(grammar_cache *cache, cached_grammar *g, grammar_ready_fn *ready, void *user)
{
    grammar_waiter *waiter = calloc(1, sizeof(*waiter));
    if (waiter == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a grammar");
    }
    pthread_mutex_lock(&cache->lock);
    const bool is_ready = g->is_ready;
    if (!is_ready) {
        *waiter = (grammar_waiter){.next = g->waiters, .ready = ready, .user = user};
        g->waiters = waiter;
    }
    pthread_mutex_unlock(&cache->lock);
    if (is_ready) {
        free(waiter);
        ready(user);
    }
    return TRM_OK;
}

trm_status grammar_cache_outcome(const cached_grammar *g)
{
    return g->status == TRM_OK ? TRM_OK : trm_fail(g->status, "%s", g->error == NULL ? "out of memory" : g->error);
}

bool grammar_cache_is_ready(grammar_cache *cache, const cached_grammar *g)
{
    pthread_mutex_lock(&cache->lock);
    const bool ready = g->is_ready;
    pthread_mutex_unlock(&cache->lock);
    return ready;
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
