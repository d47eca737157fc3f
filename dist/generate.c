/* Generation: requests admitted to the cache, prompts run in chunks, and one token a step for each sequence. */
#include "dist/generate.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

/* A request while it runs. */
typedef struct active {
    trm_request *request;
    int32_t index;       /* of the request */
    int32_t *blocks;     /* [blocks_per_sequence] */
    int32_t n_blocks;    /* taken so far */
    int32_t most_blocks; /* that it may come to take */
    int32_t slot;        /* of the counts of its tokens on the device */
    trm_serving_sampling sampling;
    trm_step_choice choice;
    int64_t n_cached; /* tokens in the cache */
    int32_t last;     /* the newest token, not yet in the cache once the prompt is */
} active;

typedef struct run {
    trm_generator *g;
    trm_token_fn fn;
    void *user;
    active *slots; /* [max_sequences], the first n_active in use */
    int32_t n_active;
    int32_t *free_blocks; /* [n_blocks] */
    int32_t n_free;
    int32_t n_unpromised;         /* blocks that no active request may come to take */
    int32_t *block_memory;        /* [max_sequences, blocks_per_sequence] */
    trm_step_sequence *sequences; /* [max_sequences] */
    int32_t *slot_of;             /* [max_sequences]: slot of each sequence of the step */
    int32_t *chosen;              /* [max_sequences] */
    trm_generate_stats stats;
    double began;
} run;

static double now_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static trm_status check_request(const trm_generator *g, const trm_request *request, int32_t index)
{
    const trm_sampling *s = &request->sampling;
    if (request->prompt == NULL || request->n_prompt < 1 || request->max_tokens < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "request %d has %lld prompt tokens and asks for %lld, expected at least 1 and 0", index,
                 request->prompt == NULL ? 0 : (long long)request->n_prompt, (long long)request->max_tokens);
    }
    if (request->n_prompt >= g->max_context) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "prompt of request %d has %lld tokens, the context holds %lld including at least one new token", index,
                 (long long)request->n_prompt, (long long)g->max_context);
    }
    for (int64_t i = 0; i < request->n_prompt; i++) {
        if (request->prompt[i] < 0 || request->prompt[i] >= g->vocab) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "token %d at position %lld of request %d is outside the vocabulary of %lld", request->prompt[i],
                     (long long)i, index, (long long)g->vocab);
        }
    }
    if (!(s->temperature >= 0.0f) || !(s->top_p > 0.0f && s->top_p <= 1.0f) ||
        !(s->min_p >= 0.0f && s->min_p <= 1.0f) || s->top_k < 0 || !(s->repetition_penalty > 0.0f)) {
        TRM_FAIL(
            TRM_ERROR_INVALID_ARGUMENT,
            "request %d has temperature %g, top_k %d, top_p %g, min_p %g, repetition_penalty %g; expected temperature "
            ">= 0, top_k >= 0, 0 < top_p <= 1, 0 <= min_p <= 1, repetition_penalty > 0",
            index, (double)s->temperature, s->top_k, (double)s->top_p, (double)s->min_p, (double)s->repetition_penalty);
    }
    return TRM_OK;
}

/* Blocks for the longest that a request may become. */
static int32_t most_blocks(const trm_generator *g, const trm_request *request)
{
    int64_t room = g->max_context - request->n_prompt;
    int64_t tokens = request->n_prompt + (request->max_tokens < room ? request->max_tokens : room);
    return (int32_t)((tokens + TRM_KV_BLOCK_SIZE - 1) / TRM_KV_BLOCK_SIZE);
}

/* Takes the blocks for `tokens` tokens in the cache, which admission has promised. */
static void reserve_blocks(run *r, active *a, int64_t tokens)
{
    int32_t needed = (int32_t)((tokens + TRM_KV_BLOCK_SIZE - 1) / TRM_KV_BLOCK_SIZE);
    while (a->n_blocks < needed) {
        a->blocks[a->n_blocks++] = r->free_blocks[--r->n_free];
    }
}

static void admit(run *r, trm_request *request, int32_t index)
{
    active *a = &r->slots[r->n_active++];
    /* a slot keeps its table and its counts */
    *a = (active){.request = request, .index = index, .blocks = a->blocks, .slot = a->slot};
    a->sampling = (trm_serving_sampling){.base = request->sampling, .typical_p = 1.0f};
    a->most_blocks = most_blocks(r->g, request);
    r->n_unpromised -= a->most_blocks;
    r->stats.prompt_tokens += request->n_prompt;
}

/* Gives back what finished requests hold and closes the gaps they leave. */
static void retire(run *r)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < r->n_active; i++) {
        active *a = &r->slots[i];
        if (a->request->finish == TRM_FINISH_NONE) {
            active swapped = r->slots[kept];
            r->slots[kept++] = *a;
            *a = swapped; /* so that what the slot ahead keeps is not lost */
            continue;
        }
        r->n_unpromised += a->most_blocks;
        while (a->n_blocks > 0) {
            r->free_blocks[r->n_free++] = a->blocks[--a->n_blocks];
        }
    }
    r->n_active = kept;
}

static bool is_end(const trm_generator *g, int32_t token)
{
    for (int32_t i = 0; i < g->info.n_eos_tokens; i++) {
        if (g->info.eos_tokens[i] == token) {
            return true;
        }
    }
    return false;
}

/* What a newly chosen token means for its request. */
static void take_token(run *r, active *a, int32_t token)
{
    trm_request *request = a->request;
    if (!request->ignore_eos && is_end(r->g, token)) {
        request->finish = TRM_FINISH_STOP;
        return;
    }
    a->last = token;
    request->n_generated++;
    r->stats.generated_tokens++;
    if (r->stats.generated_tokens == 1) {
        r->stats.first_token_seconds = now_seconds() - r->began;
    }
    if (r->fn != NULL && !r->fn(r->user, a->index, token)) {
        request->finish = TRM_FINISH_CALLBACK;
    } else if (request->n_generated >= request->max_tokens ||
               request->n_prompt + request->n_generated >= r->g->max_context) {
        request->finish = TRM_FINISH_LENGTH;
    }
}

/* How the next token of a sequence is chosen. Lives in its slot until the step is over. */
static const trm_step_choice *choice_of(active *a)
{
    bool first = a->request->n_generated == 0;
    a->choice = (trm_step_choice){.sampling = &a->sampling,
                                  .logprobs = -1,
                                  .counter = (uint64_t)a->request->n_generated,
                                  .slot = a->slot,
                                  .history = first ? a->request->prompt : NULL,
                                  .n_history = a->request->n_prompt,
                                  .n_prompt = a->request->n_prompt};
    return &a->choice;
}

/* The next chunks of prompts that are not in the cache yet, up to max_step_tokens; 0 when there are none. */
static int32_t gather_prompts(run *r)
{
    int32_t n = 0, tokens = 0;
    for (int32_t i = 0; i < r->n_active && tokens < r->g->max_step_tokens; i++) {
        active *a = &r->slots[i];
        int64_t left = a->request->n_prompt - a->n_cached;
        if (left <= 0) {
            continue;
        }
        int32_t room = r->g->max_step_tokens - tokens;
        int32_t chunk = left < room ? (int32_t)left : room;
        reserve_blocks(r, a, a->n_cached + chunk);
        r->slot_of[n] = i;
        r->sequences[n++] = (trm_step_sequence){.tokens = a->request->prompt + a->n_cached,
                                                .n_tokens = chunk,
                                                .n_cached = a->n_cached,
                                                .n_prompt = a->request->n_prompt,
                                                .blocks = a->blocks,
                                                .choice = chunk == left ? choice_of(a) : NULL};
        tokens += chunk;
    }
    return n;
}

/* The newest token of every sequence. */
static int32_t gather_decodes(run *r)
{
    for (int32_t i = 0; i < r->n_active; i++) {
        active *a = &r->slots[i];
        reserve_blocks(r, a, a->n_cached + 1);
        r->slot_of[i] = i;
        r->sequences[i] = (trm_step_sequence){.tokens = &a->last,
                                              .n_tokens = 1,
                                              .n_cached = a->n_cached,
                                              .n_prompt = a->request->n_prompt,
                                              .blocks = a->blocks,
                                              .choice = choice_of(a)};
    }
    return r->n_active;
}

static trm_status step(run *r)
{
    double start = now_seconds();
    int32_t n = gather_prompts(r);
    bool decode = n == 0;
    if (decode) {
        n = gather_decodes(r);
    }
    TRM_TRY(trm_generator_step(r->g, r->sequences, n, r->chosen));
    for (int32_t i = 0; i < n; i++) {
        active *a = &r->slots[r->slot_of[i]];
        a->n_cached += r->sequences[i].n_tokens;
        if (r->sequences[i].choice != NULL) {
            take_token(r, a, r->chosen[i]);
        }
    }
    r->stats.steps++;
    *(decode ? &r->stats.decode_seconds : &r->stats.prefill_seconds) += now_seconds() - start;
    return TRM_OK;
}

static trm_status run_init(run *r, trm_generator *g)
{
    size_t s = (size_t)g->max_sequences;
    r->slots = calloc(s, sizeof(*r->slots));
    r->free_blocks = calloc((size_t)g->n_blocks, sizeof(*r->free_blocks));
    r->block_memory = calloc(s * (size_t)g->blocks_per_sequence, sizeof(*r->block_memory));
    r->sequences = calloc(s, sizeof(*r->sequences));
    r->slot_of = calloc(s, sizeof(*r->slot_of));
    r->chosen = calloc(s, sizeof(*r->chosen));
    if (r->slots == NULL || r->free_blocks == NULL || r->block_memory == NULL || r->sequences == NULL ||
        r->slot_of == NULL || r->chosen == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the run of %d sequences", g->max_sequences);
    }
    for (size_t i = 0; i < s; i++) {
        r->slots[i].blocks = r->block_memory + i * (size_t)g->blocks_per_sequence;
        r->slots[i].slot = (int32_t)i;
    }
    for (r->n_free = 0; r->n_free < g->n_blocks; r->n_free++) {
        r->free_blocks[r->n_free] = g->n_blocks - 1 - r->n_free;
    }
    r->n_unpromised = r->n_free;
    return TRM_OK;
}

static void run_fini(run *r)
{
    free(r->slots);
    free(r->free_blocks);
    free(r->block_memory);
    free(r->sequences);
    free(r->slot_of);
    free(r->chosen);
}

/* All of a run that can fail on one rank alone but for its steps. */
static trm_status prepare(run *r, trm_generator *g, trm_request *requests, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        TRM_TRY(check_request(g, &requests[i], i));
    }
    return run_init(r, g);
}

trm_status trm_generate(trm_generator *g, trm_request *requests, int32_t n, trm_token_fn fn, void *user,
                        trm_generate_stats *stats)
{
    if (g == NULL || n < 0 || (requests == NULL && n > 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot generate: generator or requests is NULL, or there are %d", n);
    }
    run r = {.g = g, .fn = fn, .user = user, .began = now_seconds()};
    trm_status status = trm_world_all_ok(g->world, prepare(&r, g, requests, n));
    for (int32_t i = 0; status == TRM_OK && i < n; i++) {
        requests[i].n_generated = 0;
        requests[i].finish = requests[i].max_tokens == 0 ? TRM_FINISH_LENGTH : TRM_FINISH_NONE;
    }
    for (int32_t next = 0; status == TRM_OK && (next < n || r.n_active > 0);) {
        for (; next < n && r.n_active < g->max_sequences; next++) {
            if (requests[next].finish != TRM_FINISH_NONE) {
                continue;
            }
            if (most_blocks(g, &requests[next]) > r.n_unpromised) {
                break; /* the cache is smaller than max_sequences full sequences: wait for one to end */
            }
            admit(&r, &requests[next], next);
        }
        if (r.n_active > 0) {
            status = step(&r);
            retire(&r);
        }
    }
    if (stats != NULL) {
        *stats = r.stats;
    }
    run_fini(&r);
    return status;
}
