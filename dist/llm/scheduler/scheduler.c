/* Creates and destroys schedulers, submits and cancels requests, and counts. */
#include "dist/llm/scheduler/scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/options.h"
#include "base/recorder.h"

#define DEFAULT_WAITING    1024
#define MOST_WAITING       (1 << 20)
#define DEFAULT_CHUNK_CUDA 512  /* docs/measurements/2026-11-21.md compares other values */
#define FILLED_CHUNKS      4    /* beside many sequences; docs/measurements/2026-11-27.md compares other values */
#define MOST_TUNED_TOKENS  2048 /* for longer steps the choice of algorithm hardly matters */
#define LONG_PROMPT        2048

double trm_scheduler_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---- events ------------------------------------------------------------------------------------ */

trm_serving_event *trm_scheduler_event(trm_scheduler *s, trm_serving_event_kind kind, const trm_sequence *sequence)
{
    if (s->events_given) {
        s->n_events = s->n_errors = s->n_embeddings = 0;
        s->events_given = false;
    }
    trm_serving_event *event = &s->events[s->n_events++];
    *event = (trm_serving_event){.kind = kind, .id = sequence->request.id, .token = -1};
    return event;
}

void trm_scheduler_finish(trm_scheduler *s, trm_sequence *sequence, trm_finish finish, int32_t token, const char *error)
{
    trm_serving_event *event = trm_scheduler_event(s, TRM_EVENT_FINISHED, sequence);
    event->finish = finish;
    event->token = token;
    event->n_prompt = sequence->request.n_prompt;
    event->n_cached = sequence->n_found;
    event->n_output = sequence->n_tokens - sequence->request.n_prompt;
    event->queue_seconds = (sequence->started > 0.0 ? sequence->started : trm_scheduler_now()) - sequence->submitted;
    if (sequence->request.embedding != TRM_EMBEDDING_NONE && finish == TRM_FINISH_LENGTH) {
        event->n_embedding = s->g->hidden->dims.d[1];
        float *to = s->embeddings + (size_t)s->n_embeddings++ * (size_t)event->n_embedding;
        float scale =
            sequence->request.embedding == TRM_EMBEDDING_MEAN ? 1.0f / (float)sequence->request.n_prompt : 1.0f;
        for (int64_t i = 0; i < event->n_embedding; i++) {
            to[i] = scale * sequence->pooled[i];
        }
        event->embedding = to;
    }
    if (error != NULL) {
        char *text = s->errors[s->n_errors++];
        strncpy(text, error, sizeof(s->errors[0]) - 1);
        event->error = text;
    }
    s->stats.finished[finish]++;
    trm_scheduler_trace(s, sequence, finish);
    trm_scheduler_leave(s, sequence);
    trm_scheduler_drop_adapter(s, sequence->request.adapter);
    free(sequence);
}

/* ---- requests ---------------------------------------------------------------------------------- */

static bool is_in(float x, float low, float high)
{
    return x >= low && x <= high; /* not NaN */
}

static trm_status check_sampling(const trm_generator *g, const trm_serving_request *r)
{
    const trm_serving_sampling *s = &r->sampling;
    const trm_sampling *b = &s->base;
    unsigned long long id = r->id;
    if (!is_in(b->temperature, 0.0f, 1e6f) || b->top_k < 0 || !is_in(b->top_p, 0.0f, 1.0f) ||
        !is_in(b->min_p, 0.0f, 1.0f) || !is_in(s->typical_p, 0.0f, 1.0f)) {
        TRM_FAIL(
            TRM_ERROR_INVALID_ARGUMENT,
            "request %llu has temperature %g, top_k %d, top_p %g, min_p %g, typical_p %g; expected temperature >= 0, "
            "top_k >= 0, and the others from 0 to 1",
            id, (double)b->temperature, b->top_k, (double)b->top_p, (double)b->min_p, (double)s->typical_p);
    }
    if (!is_in(b->repetition_penalty, 0.0f, 1e6f) || !is_in(s->presence_penalty, -100.0f, 100.0f) ||
        !is_in(s->frequency_penalty, -100.0f, 100.0f)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "request %llu has repetition_penalty %g, presence_penalty %g, frequency_penalty %g; expected "
                 "repetition_penalty >= 0 and the others between -100 and 100",
                 id, (double)b->repetition_penalty, (double)s->presence_penalty, (double)s->frequency_penalty);
    }
    if (s->n_bias < 0 || s->n_bias > TRM_MAX_LOGIT_BIAS || (s->n_bias > 0 && s->bias == NULL)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "request %llu has %d logit biases, expected at most %d", id, s->n_bias,
                 TRM_MAX_LOGIT_BIAS);
    }
    for (int32_t i = 0; i < s->n_bias; i++) {
        if (s->bias[i].token < 0 || s->bias[i].token >= g->vocab || !is_in(s->bias[i].bias, -1e6f, 1e6f)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "logit bias %d of request %llu is %g for token %d, the vocabulary has %lld tokens", i, id,
                     (double)s->bias[i].bias, s->bias[i].token, (long long)g->vocab);
        }
    }
    return TRM_OK;
}

static trm_status check_tokens(const trm_generator *g, const trm_serving_request *r)
{
    unsigned long long id = r->id;
    if (r->prompt == NULL || r->n_prompt < 1 || r->n_resumed < 0 || r->n_resumed >= r->n_prompt ||
        r->max_tokens < TRM_NO_TOKENS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "request %llu has %lld prompt tokens, %lld of them resumed, and max_tokens %lld; expected at least 1, "
                 "fewer than n_prompt, and at least -1",
                 id, r->prompt == NULL ? 0 : (long long)r->n_prompt, (long long)r->n_resumed, (long long)r->max_tokens);
    }
    const bool grows = r->max_tokens != TRM_NO_TOKENS;
    if (r->n_prompt > g->max_context - grows) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "prompt of request %llu has %lld tokens, the context holds %lld%s", id,
                 (long long)r->n_prompt, (long long)g->max_context, grows ? " including at least one new token" : "");
    }
    for (int64_t i = 0; i < r->n_prompt; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= g->vocab) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "token %d at position %lld of request %llu is outside the vocabulary of %lld", r->prompt[i],
                     (long long)i, id, (long long)g->vocab);
        }
    }
    for (int32_t i = 0; r->stop_tokens != NULL && i < r->n_stop_tokens && i < TRM_MAX_STOP_TOKENS; i++) {
        if (r->stop_tokens[i] < 0 || r->stop_tokens[i] >= g->vocab) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "stop token %d of request %llu is outside the vocabulary of %lld",
                     r->stop_tokens[i], id, (long long)g->vocab);
        }
    }
    if (r->n_stop_tokens < 0 || r->n_stop_tokens > TRM_MAX_STOP_TOKENS ||
        (r->n_stop_tokens > 0 && r->stop_tokens == NULL) || r->min_tokens < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "request %llu has %d stop tokens and min_tokens %d, expected at most %d and at least 0", id,
                 r->n_stop_tokens, r->min_tokens, TRM_MAX_STOP_TOKENS);
    }
    if (r->logprobs < TRM_LOGPROBS_CHOSEN || r->logprobs > TRM_MAX_TOP_LOGPROBS ||
        r->prompt_logprobs < TRM_LOGPROBS_CHOSEN || r->prompt_logprobs > TRM_MAX_TOP_LOGPROBS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "request %llu has logprobs %d and prompt_logprobs %d, expected -1 to %d",
                 id, r->logprobs, r->prompt_logprobs, TRM_MAX_TOP_LOGPROBS);
    }
    return TRM_OK;
}

trm_status trm_scheduler_check(const trm_generator *g, const trm_serving_request *request)
{
    if (request->embedding != TRM_EMBEDDING_NONE && (g->hidden == NULL || request->max_tokens != TRM_NO_TOKENS)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "request %llu asks for an embedding, but %s",
                 (unsigned long long)request->id,
                 g->hidden == NULL ? "the generator was created without embeddings, or the model has none"
                                   : "max_tokens is not TRM_NO_TOKENS");
    }
    if (!trm_generator_has_adapter(g, request->adapter)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "request %llu has adapter %d, which is not loaded",
                 (unsigned long long)request->id, request->adapter);
    }
    TRM_TRY(check_tokens(g, request));
    return check_sampling(g, request);
}

static trm_sequence *find_running(const trm_scheduler *s, uint64_t id)
{
    for (int32_t i = 0; i < s->n_running; i++) {
        if (s->running[i]->request.id == id) {
            return s->running[i];
        }
    }
    return NULL;
}

/* Adds a bias; those of one token add up. */
static void add_bias(trm_serving_sampling *sampling, trm_logit_bias *to, const trm_logit_bias *bias)
{
    int32_t at = 0;
    while (at < sampling->n_bias && to[at].token != bias->token) {
        at++;
    }
    if (at < sampling->n_bias) {
        to[at].bias += bias->bias;
    } else {
        to[sampling->n_bias++] = *bias;
    }
}

static void list_banned(const trm_scheduler *s, trm_sequence *sequence)
{
    const trm_model_info *info = &s->g->info;
    for (int32_t i = 0; i < sequence->request.n_stop_tokens; i++) {
        sequence->banned[sequence->n_banned++] = sequence->request.stop_tokens[i];
    }
    for (int32_t i = 0; !sequence->request.ignore_eos && i < info->n_eos_tokens; i++) {
        sequence->banned[sequence->n_banned++] = info->eos_tokens[i];
    }
}

/* How many of the most probable tokens a request's logprobs are wanted of, beside the token's own; -1: no logprobs. */
static int32_t n_top_of(int32_t logprobs)
{
    return logprobs == 0 ? -1 : logprobs == TRM_LOGPROBS_CHOSEN ? 0 : logprobs;
}

static size_t text_size(const char *text)
{
    return text == NULL ? 0 : strlen(text) + 1;
}

/* Copies a text to *to, which moves behind it, and returns the copy. Returns NULL for NULL. */
static const char *copy_text(char **to, const char *text)
{
    const size_t size = text_size(text);
    char *copy = *to;
    if (size > 0) {
        memcpy(copy, text, size);
    }
    *to += size;
    return size > 0 ? copy : NULL;
}

/* A request with copies of all it points to, in one allocation. */
static trm_status copy_request(const trm_scheduler *s, const trm_serving_request *request, trm_sequence **sequence)
{
    int64_t room = s->g->max_context - request->n_prompt;
    int64_t wanted = request->max_tokens == 0 ? room : request->max_tokens == TRM_NO_TOKENS ? 0 : request->max_tokens;
    int64_t most = request->n_prompt + (wanted < room ? wanted : room);
    size_t bias = (size_t)request->sampling.n_bias * sizeof(trm_logit_bias);
    size_t stops = (size_t)request->n_stop_tokens * sizeof(int32_t), tokens = (size_t)most * sizeof(int32_t);
    size_t lookup = s->g->speculation.kind != TRM_SPECULATION_OFF ? trm_ngram_draft_bytes(most) : 0;
    size_t traced = text_size(request->traceparent) + text_size(request->tracestate);
    size_t pooled = request->embedding == TRM_EMBEDDING_NONE ? 0 : (size_t)s->g->hidden->dims.d[1] * sizeof(float);
    trm_sequence *made =
        malloc(sizeof(*made) + bias + stops + tokens + lookup + pooled + traced); /* in order of alignment */
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate request %llu of %lld tokens",
                 (unsigned long long)request->id, (long long)most);
    }
    *made = (trm_sequence){
        .request = *request, .n_tokens = request->n_prompt, .n_most = most, .slot = -1, .guess = -1, .head_row = -1};
    trm_logit_bias *bias_copy = (trm_logit_bias *)(made + 1);
    int32_t *stop_copy = (int32_t *)(void *)((unsigned char *)bias_copy + bias);
    made->tokens = stop_copy + request->n_stop_tokens;
    made->pooled = (float *)(void *)((unsigned char *)(made->tokens + most) + lookup);
    if (lookup > 0) {
        trm_ngram_draft_init(&made->lookup, made->tokens + most, most);
        trm_draft_record_init(&made->record);
    }
    trm_sampling_fill(&made->request.sampling);
    made->request.sampling.n_bias = 0;
    for (int32_t i = 0; i < request->sampling.n_bias; i++) {
        add_bias(&made->request.sampling, bias_copy, &request->sampling.bias[i]);
    }
    if (stops > 0) {
        memcpy(stop_copy, request->stop_tokens, stops);
    }
    memcpy(made->tokens, request->prompt, (size_t)request->n_prompt * sizeof(int32_t));
    made->request.sampling.bias = bias_copy;
    made->request.stop_tokens = stop_copy;
    made->request.prompt = made->tokens;
    made->request.logprobs = n_top_of(request->logprobs);
    made->request.prompt_logprobs = n_top_of(request->prompt_logprobs);
    char *text = (char *)made->pooled + pooled;
    made->request.traceparent = copy_text(&text, request->traceparent);
    made->request.tracestate = copy_text(&text, request->tracestate);
    list_banned(s, made);
    *sequence = made;
    return TRM_OK;
}

TRM_CALL(trm_scheduler_recorder(s), trm_scheduler_submit, (trm_scheduler *s, const trm_serving_request *request),
         (s, request))
{
    if (s == NULL || request == NULL || !trm_scheduler_leads(s) || s->ended) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot submit: %s",
                 s == NULL || request == NULL ? "scheduler or request is NULL"
                 : s->ended                   ? "the scheduler has ended"
                                              : "this rank follows rank 0");
    }
    trm_serving_request own = TRM_SERVING_REQUEST_INIT;
    TRM_TRY(trm_options_read("a serving request's fields", request, &own));
    request = &own;
    TRM_TRY(trm_scheduler_check(s->g, request));
    if (request->adapter > 0 && s->adapters[request->adapter - 1].leaves) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "request %llu has adapter %d, which is being unloaded",
                 (unsigned long long)request->id, request->adapter);
    }
    if (trm_scheduler_find_waiting(s, request->id) != NULL || find_running(s, request->id) != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "request %llu is already running or waiting",
                 (unsigned long long)request->id);
    }
    int32_t ended = s->events_given ? 0 : s->n_events; /* requests whose last event waits for the next step */
    if (s->n_waiting >= s->max_waiting || ended + s->n_waiting + s->n_running >= s->max_waiting + s->g->max_sequences) {
        TRM_FAIL(TRM_ERROR_BUSY, "%d requests wait, the limit is %d", s->n_waiting + ended, s->max_waiting);
    }
    trm_sequence *sequence = NULL;
    TRM_TRY(copy_request(s, request, &sequence));
    trm_status status = trm_scheduler_join(s, sequence);
    if (status != TRM_OK) {
        free(sequence);
        return status;
    }
    trm_scheduler_hold_adapter(s, request->adapter);
    sequence->chain = trm_scheduler_root(s, sequence);
    sequence->arrival = s->arrivals++;
    sequence->submitted = trm_scheduler_now();
    sequence->turn = request->n_resumed > 0 ? ++s->turns : 0; /* it was admitted in an earlier run */
    trm_scheduler_enqueue(s, sequence);
    return TRM_OK;
}

bool trm_scheduler_cancel(trm_scheduler *s, uint64_t id)
{
    trm_sequence *sequence = trm_scheduler_find_waiting(s, id);
    if (sequence != NULL) {
        trm_scheduler_dequeue(s, sequence);
    } else if ((sequence = find_running(s, id)) != NULL) {
        trm_scheduler_evict(s, sequence);
    } else {
        return false;
    }
    trm_scheduler_finish(s, sequence, TRM_FINISH_CANCELLED, -1, NULL);
    return true;
}

bool trm_scheduler_has_work(const trm_scheduler *s)
{
    return s->n_running > 0 || s->n_waiting > 0 || (s->n_events > 0 && !s->events_given);
}

void trm_scheduler_get_stats(const trm_scheduler *s, trm_scheduler_stats *stats)
{
    *stats = s->stats;
    stats->running = s->n_running;
    stats->waiting = s->n_waiting;
    stats->max_running = s->g->max_sequences;
    stats->max_waiting = s->max_waiting;
    stats->block_tokens = s->g->block_tokens;
    stats->blocks = s->blocks.n;
    stats->blocks_used = s->blocks.n - s->blocks.n_free;
    stats->blocks_cached = s->blocks.n_cached;
}

/* ---- life -------------------------------------------------------------------------------------- */

static trm_status allocate(trm_scheduler *s)
{
    const trm_generator *g = s->g;
    size_t n = (size_t)g->max_sequences, rows = (size_t)g->max_rows;
    s->message_words = trm_scheduler_message_words(g, s->step_tokens);
    /* Between two calls every request may end once, and a step has one event per logits row. */
    s->max_events = s->max_waiting + 2 * g->max_sequences + g->max_rows;
    s->running = calloc(n, sizeof(trm_sequence *));
    s->lives = calloc(n, sizeof(trm_sequence *));
    s->free_slots = calloc(n, sizeof(int32_t));
    s->slots = calloc(n, sizeof(int32_t));
    s->n_sent = calloc(n, sizeof(int32_t));
    s->chosen = calloc(rows, sizeof(int32_t));
    s->table = calloc(n * (size_t)g->blocks_per_sequence, sizeof(int32_t));
    s->choices = calloc(rows, sizeof(*s->choices));
    s->masks = calloc(rows * (size_t)g->sampler.words, sizeof(*s->masks));
    s->tops = calloc(rows * TRM_LOGITS_MAX_TOP, sizeof(*s->tops));
    s->sequences = calloc(n, sizeof(*s->sequences));
    s->drafts = calloc(n, sizeof(*s->drafts));
    s->embeddings = calloc(g->hidden == NULL ? 1 : n * (size_t)g->hidden->dims.d[1], sizeof(*s->embeddings));
    s->message = calloc(s->message_words, sizeof(int32_t));
    s->events = calloc((size_t)s->max_events, sizeof(*s->events));
    s->errors = calloc(n, sizeof(*s->errors));
    if (s->running == NULL || s->lives == NULL || s->free_slots == NULL || s->slots == NULL || s->n_sent == NULL ||
        s->chosen == NULL || s->table == NULL || s->choices == NULL || s->masks == NULL || s->tops == NULL ||
        s->sequences == NULL || s->drafts == NULL || s->embeddings == NULL || s->message == NULL || s->events == NULL ||
        s->errors == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a scheduler of %d sequences", g->max_sequences);
    }
    if (g->draft != NULL) {
        TRM_TRY(trm_draft_model_init(&s->drafter, g->draft, g->max_sequences, s->step_tokens));
    }
    TRM_TRY(trm_scheduler_init_head(s));
    for (int32_t i = g->max_sequences - 1; i >= 0; i--) {
        s->free_slots[s->n_free_slots++] = i;
    }
    TRM_TRY(trm_state_pool_init(&s->states, g->versions > 0 ? g->state_slots : 0));
    TRM_TRY(trm_kv_block_pool_init(&s->blocks, g->n_blocks, g->block_tokens));
    trm_scheduler_init_adapters(s);
    return TRM_OK;
}

static trm_status check_options(const trm_scheduler_options *options)
{
    if (options->step_tokens < 0 || options->prefill_chunk < 0 || options->max_waiting < 0 ||
        options->max_waiting > MOST_WAITING) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "step_tokens is %d, prefill_chunk %d and max_waiting %d, expected at least 0 and max_waiting at "
                 "most %d",
                 options->step_tokens, options->prefill_chunk, options->max_waiting, MOST_WAITING);
    }
    return TRM_OK;
}

/* Prompts in a step delay sequences that decode. While weights stream they cost nothing. */
static int32_t default_chunk(const trm_generator *g)
{
    const trm_plan *plan = g->engine->plan;
    bool waits = plan->backend == TRM_BACKEND_CUDA && plan->streaming == NULL;
    return waits ? DEFAULT_CHUNK_CUDA * plan->mesh.size[TRM_AXIS_TP] : INT32_MAX;
}

static trm_status make(trm_generator *g, const trm_scheduler_options *options, trm_scheduler *s)
{
    TRM_TRY(check_options(options));
    s->g = g;
    /* Rotary scaling that depends on the whole length makes equal prefixes differ. */
    s->prefix_cache = !options->no_prefix_cache && g->rope_lengths == NULL;
    s->max_waiting = options->max_waiting > 0 ? options->max_waiting : DEFAULT_WAITING;
    s->step_tokens = options->step_tokens > 0 ? options->step_tokens : g->max_step_tokens;
    /* so that a step has room for all running sequences and at least one prompt token */
    s->step_tokens = s->step_tokens > g->max_sequences ? s->step_tokens : g->max_sequences;
    s->step_tokens = s->step_tokens < g->max_step_tokens ? s->step_tokens : g->max_step_tokens;
    s->prefill_chunk = options->prefill_chunk > 0 ? options->prefill_chunk : default_chunk(g);
    if (options->prefill_chunk == 0 && s->prefill_chunk < INT32_MAX) {
        s->filled_step = FILLED_CHUNKS * s->prefill_chunk;
    }
    s->long_prompt = LONG_PROMPT;
    s->on_step = options->on_step;
    s->on_heard = options->on_heard;
    s->user = options->user;
    return allocate(s);
}

/* Times products for the steps that prompts fill, and for shorter ones. */
static trm_status tune(const trm_scheduler *s)
{
    const int64_t grain = TRM_CHUNK_GRAIN, chunk = s->prefill_chunk, most = MOST_TUNED_TOKENS;
    const int64_t wide = s->filled_step > 0 ? 2 * chunk : chunk + s->g->max_sequences;
    for (int64_t n = grain; chunk <= most && n <= wide && n <= most; n += grain) {
        TRM_TRY(trm_generator_tune_mixed(s->g, (int32_t)n));
    }
    for (int64_t n = 2 * wide; n <= s->filled_step && n <= most; n += wide) {
        TRM_TRY(trm_generator_tune_mixed(s->g, (int32_t)n));
    }
    return TRM_OK;
}

/* samples: whether some steps are profiled. */
static trm_status create(trm_generator *generator, const trm_scheduler_options *options, bool samples,
                         trm_scheduler **scheduler)
{
    trm_scheduler *s = calloc(1, sizeof(*s));
    trm_status status =
        s == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a scheduler") : make(generator, options, s);
    generator->samples = false;
    if (status == TRM_OK && samples) {
        status = trm_generator_time_steps(generator);
    }
    status = trm_world_all_ok(generator->world, status);
    if (status == TRM_OK) {
        status = tune(s); /* collective steps, like those of a generator's warm-up */
    }
    if (status != TRM_OK) {
        trm_scheduler_destroy(s);
        return status;
    }
    *scheduler = s;
    return TRM_OK;
}

TRM_CALL(trm_generator_recorder(generator), trm_scheduler_create,
         (trm_generator *generator, const trm_scheduler_options *options, trm_scheduler **scheduler),
         (generator, options, scheduler))
{
    if (generator == NULL || options == NULL || scheduler == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot create a scheduler: generator, options or scheduler is NULL");
    }
    trm_scheduler_options own = TRM_SCHEDULER_OPTIONS_INIT;
    TRM_TRY(trm_options_read("scheduler options", options, &own));
    return create(generator, &own, true, scheduler);
}

trm_status trm_scheduler_create_lockstep(trm_generator *generator, const trm_scheduler_options *options,
                                         trm_scheduler **scheduler)
{
    TRM_TRY(create(generator, options, false, scheduler));
    (*scheduler)->lockstep = true;
    if (generator->versions > 0) { /* async steps go on in the same slots */
        (*scheduler)->prefix_cache = false;
    }
    return TRM_OK;
}

int64_t trm_scheduler_stalls(const trm_scheduler *s, trm_stall_fn fn, void *user)
{
    const int64_t n = s->g->n_sampled;
    return trm_context_sample_stalls(s->g->context, n > 0 ? fn : NULL, user) ? n : 0;
}

TRM_CALL(trm_scheduler_recorder(s), trm_scheduler_end, (trm_scheduler *s), (s))
{
    if (s == NULL || !trm_scheduler_leads(s) || s->ended) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot end: %s",
                 s == NULL  ? "scheduler is NULL"
                 : s->ended ? "the scheduler has ended"
                            : "this rank follows rank 0");
    }
    s->ended = true;
    return trm_scheduler_send_end(s);
}

void trm_scheduler_destroy(trm_scheduler *s)
{
    if (s == NULL) {
        return;
    }
    if (s->g != NULL) {
        (void)trm_async_step_settle(s->g); /* there is one if its requests were cancelled or stopped */
    }
    for (int32_t i = 0; i < s->n_running; i++) {
        trm_scheduler_trace(s, s->running[i], TRM_FINISH_NONE);
        free(s->running[i]);
    }
    trm_scheduler_drop_waiting(s);
    trm_kv_block_pool_fini(&s->blocks);
    trm_state_pool_fini(&s->states);
    trm_draft_model_fini(&s->drafter);
    trm_scheduler_fini_head(s);
    free(s->running);
    free(s->lives);
    free(s->free_slots);
    free(s->slots);
    free(s->n_sent);
    free(s->chosen);
    free(s->table);
    free(s->choices);
    free(s->masks);
    free(s->tops);
    free(s->sequences);
    free(s->drafts);
    free(s->embeddings);
    free(s->message);
    free(s->events);
    free(s->errors);
    free(s);
}
