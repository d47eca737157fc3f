/* Generation: a scheduler on every rank in lockstep, whose events fill in the caller's requests. */
#include "dist/llm/generator.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/recorder.h"
#include "dist/llm/scheduler/scheduler.h"

typedef struct run {
    trm_scheduler *s;
    trm_request *requests;
    trm_token_fn fn;
    void *user;
    uint64_t *declined; /* [max_sequences] requests ended by the callback in this step */
    int32_t n_declined;
    trm_generate_stats stats;
    double began;
} run;

/* The scheduler's request for request `index`. */
static trm_serving_request order_of(const trm_request *request, int32_t index)
{
    trm_serving_request order = TRM_SERVING_REQUEST_INIT;
    order.id = (uint64_t)index;
    order.prompt = request->prompt;
    order.n_prompt = request->n_prompt;
    order.max_tokens = request->max_tokens;
    order.sampling.base = request->sampling;
    order.ignore_eos = request->ignore_eos;
    order.adapter = request->adapter;
    return order;
}

static trm_status check(const trm_generator *g, const trm_request *requests, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        trm_serving_request order = order_of(&requests[i], i);
        /* a prompt needs room for a token even if none is asked for */
        order.max_tokens = order.max_tokens == TRM_NO_TOKENS ? 1 : order.max_tokens;
        TRM_TRY(trm_scheduler_check(g, &order));
    }
    return TRM_OK;
}

static trm_status submit(run *r, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        trm_request *request = &r->requests[i];
        request->n_generated = 0;
        request->finish = request->max_tokens == TRM_NO_TOKENS ? TRM_FINISH_LENGTH : TRM_FINISH_NONE;
        if (request->max_tokens != TRM_NO_TOKENS) {
            const trm_serving_request order = order_of(request, i);
            TRM_TRY(trm_scheduler_submit(r->s, &order));
            r->stats.prompt_tokens += request->n_prompt;
        }
    }
    return TRM_OK;
}

static void take_token(run *r, uint64_t id, int32_t token)
{
    trm_request *request = &r->requests[id];
    request->n_generated++;
    if (r->stats.generated_tokens++ == 0) {
        r->stats.first_token_seconds = trm_scheduler_now() - r->began;
    }
    if (r->fn != NULL && !r->fn(r->user, (int32_t)id, token)) {
        request->finish = TRM_FINISH_CALLBACK;
        r->declined[r->n_declined++] = id;
    }
}

static void take_events(run *r, const trm_serving_event *events, int32_t n)
{
    r->n_declined = 0;
    for (int32_t i = 0; i < n; i++) {
        trm_request *request = &r->requests[events[i].id];
        if (request->finish != TRM_FINISH_NONE) {
            continue; /* the callback has ended it */
        }
        if (events[i].kind == TRM_EVENT_TOKEN) {
            take_token(r, events[i].id, events[i].token);
        } else if (events[i].kind == TRM_EVENT_FINISHED) {
            request->finish = events[i].finish;
        }
    }
    for (int32_t i = 0; i < r->n_declined; i++) { /* not earlier: events are valid until the next call */
        trm_scheduler_cancel(r->s, r->declined[i]);
    }
}

static trm_status step(run *r)
{
    const trm_serving_event *events;
    int32_t n;
    int64_t decodes = r->s->stats.decode_steps, tokens = r->stats.generated_tokens;
    double start = trm_scheduler_now();
    TRM_TRY(trm_scheduler_step(r->s, &events, &n));
    take_events(r, events, n);
    double seconds = trm_scheduler_now() - start;
    if (r->s->stats.decode_steps > decodes) {
        r->stats.decode_seconds += seconds;
        r->stats.decode_tokens += r->stats.generated_tokens - tokens;
    } else {
        r->stats.prefill_seconds += seconds;
    }
    r->stats.steps = r->s->stats.steps;
    r->stats.drafted_tokens = r->s->stats.drafted_tokens;
    r->stats.accepted_tokens = r->s->stats.accepted_tokens;
    return TRM_OK;
}

/* Everything except steps that can fail on one rank alone. */
static trm_status prepare(run *r, const trm_generator *g, int32_t n)
{
    TRM_TRY(check(g, r->requests, n));
    r->declined = calloc((size_t)g->max_sequences, sizeof(*r->declined));
    if (r->declined == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the run of %d sequences", g->max_sequences);
    }
    return submit(r, n);
}

TRM_CALL(trm_generator_recorder(g), trm_generate,
         (trm_generator *g, trm_request *requests, int32_t n, trm_token_fn fn, void *user, trm_generate_stats *stats),
         (g, requests, n, fn, user, stats))
{
    if (g == NULL || n < 0 || (requests == NULL && n > 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot generate: generator or requests is NULL, or n is %d", n);
    }
    run r = {.requests = requests, .fn = fn, .user = user, .began = trm_scheduler_now()};
    const trm_scheduler_options options = {.size = sizeof(options),
                                           .no_prefix_cache = true,
                                           .step_tokens = g->max_step_tokens,
                                           .max_waiting = n,
                                           .prefill_chunk = INT32_MAX};
    trm_status status = trm_scheduler_create_lockstep(g, &options, &r.s);
    if (status == TRM_OK) {
        status = trm_world_all_ok(g->world, prepare(&r, g, n));
    }
    while (status == TRM_OK && trm_scheduler_has_work(r.s)) {
        status = step(&r);
    }
    status = status == TRM_OK ? trm_async_step_settle(g) : status; /* some requests ended earlier than by length */
    if (stats != NULL) {
        *stats = r.stats;
    }
    trm_scheduler_destroy(r.s);
    free(r.declined);
    return status;
}
