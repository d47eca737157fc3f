/* Draft heads over ranks: MTP layers and EAGLE-3 heads give the logits of their published equations, change no token of
 * any request, and are right where they must be. */
#include "support/support.h"

#include <math.h>

#include "scheduler/scheduler_load.h"
#include "support/world.h"
#include "weight_stream/weight.h"

#define CONTEXT 112
#define CHAIN   4

static const char *const heads[] = {"deepseek-v3",  "glm4-moe", "qwen3-next", "qwen3-5",   "qwen3-5-moe",
                                    "qwen3-5-told", "eagle",    "eagle-taps", "eagle-told"};
enum { HEADS = sizeof(heads) / sizeof(heads[0]) };

/* Links cost nothing, so that the tiny models are split; the linker sends the library's calls here. */
void __wrap_trm_cost_model_default(trm_backend backend, trm_cost_model *model);
void __wrap_trm_cost_model_default(trm_backend backend, trm_cost_model *model)
{
    (void)backend;
    *model = (trm_cost_model){.memory_bandwidth = 1e6,
                              .compute_rate = 1e6,
                              .link_bandwidth = 1e15,
                              .link_latency = 0.0,
                              .unknown_dimension = 16};
}

/* ---- models ------------------------------------------------------------------------------------ */

typedef struct headed {
    const char *name;
    bool is_eagle, is_told;
    trm_model *model, *head; /* head: NULL for MTP */
    int32_t vocab;
} headed;

static const char *path_of(const char *name, const char *part)
{
    static char path[4096];
    snprintf(path, sizeof(path), "%s/tests/goldens/draft_heads/%s%s", TRM_SOURCE_DIR, name, part);
    return path;
}

static headed open_headed(const char *name)
{
    headed h = {.name = name, .is_eagle = strncmp(name, "eagle", 5) == 0, .is_told = strstr(name, "-told") != NULL};
    trm_model_info info;
    assert_ok(trm_model_open(path_of(name, ""), &h.model));
    assert_false(trm_model_is_draft_head(h.model));
    if (h.is_eagle) {
        assert_ok(trm_model_open(path_of(name, "/head"), &h.head));
        assert_true(trm_model_is_draft_head(h.head));
    }
    trm_model_get_info(h.model, &info);
    h.vocab = (int32_t)info.vocab;
    return h;
}

static void close_headed(headed *h)
{
    trm_model_close(h->head);
    trm_model_close(h->model);
}

static trm_speculation_kind kind_of(const headed *h)
{
    return h->is_eagle ? TRM_SPECULATION_NGRAM : TRM_SPECULATION_MTP;
}

/* drafts 0: without a head. */
static trm_generator *make(const headed *h, trm_speculation_kind kind, int32_t drafts, int32_t sequences,
                           int32_t step_tokens, int64_t cache_tokens)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *g;
    options.max_context = CONTEXT;
    options.max_sequences = sequences;
    options.max_step_tokens = step_tokens;
    options.cache_tokens = cache_tokens;
    options.dtype = TRM_F32;
    options.no_tune = true;
    options.mesh = test_mesh();
    options.batch_invariant = test_backend() == TRM_BACKEND_CUDA; /* else rounding may decide a token */
    if (drafts > 0) {
        options.speculation = (trm_speculation){kind, drafts};
        options.draft_head = h->head;
    }
    assert_ok(trm_generator_create(h->model, test_world, &options, &g));
    assert_int_equal(g->head != NULL, drafts > 0);
    if (trm_world_size(test_world) > 1) {
        assert_true(g->engine->plan->partition.n_collectives > 0);
        assert_true(drafts == 0 || g->head->engine->plan->partition.n_collectives > 0);
    }
    return g;
}

/* The model's weights that a head uses are not there twice. */
static void weights_are_shared(void **state)
{
    (void)state;
    for (int32_t i = 0; i < HEADS; i++) {
        headed h = open_headed(heads[i]);
        trm_generator *g = make(&h, kind_of(&h), 2, 2, 64, 0);
        const trm_plan *plan = g->head->engine->plan;
        int32_t shared = 0;
        for (int32_t k = 0; k < plan->network->n_tensors; k++) {
            const trm_tensor *tensor = plan->network->tensors[k];
            if (trm_plan_borrows(plan, tensor)) {
                const trm_tensor *theirs = trm_network_find_tensor(g->engine->plan->network, tensor->name);
                assert_ptr_equal(trm_context_address(g->head->context, tensor),
                                 trm_context_address(g->context, theirs));
                shared++;
            }
        }
        /* embedding and output projection, unless the folder has its own */
        assert_int_equal(shared, !h.is_eagle ? 2 : strcmp(h.name, "eagle-taps") != 0);
        trm_generator_destroy(g);
        close_headed(&h);
    }
}

/* ---- logits ------------------------------------------------------------------------------------ */

typedef struct prompt {
    int32_t n;
    int32_t *tokens, *chain;      /* [n], [CHAIN] */
    float *logits, *chain_logits; /* [n - 1, vocab], [CHAIN - 1, vocab] of the head */
} prompt;

static void *read_all(const trm_safetensors *set, int32_t i, const char *what, trm_dtype dtype, int64_t *count)
{
    char name[64];
    trm_weight *weight;
    snprintf(name, sizeof(name), "prompt.%d.%s", i, what);
    assert_ok(trm_safetensors_weight(set, name, &weight));
    const trm_dims dims = trm_weight_dims(weight);
    *count = trm_dims_count(&dims);
    void *values = malloc((size_t)*count * trm_dtype_size(dtype));
    assert_non_null(values);
    assert_ok(trm_weight_read(weight, dtype, 0, (size_t)*count, values));
    trm_weight_destroy(weight);
    return values;
}

static prompt read_prompt(const trm_safetensors *set, int32_t i)
{
    prompt p;
    int64_t n;
    p.tokens = read_all(set, i, "tokens", TRM_I32, &n);
    p.n = (int32_t)n;
    p.logits = read_all(set, i, "logits", TRM_F32, &n);
    p.chain = read_all(set, i, "chain", TRM_I32, &n);
    p.chain_logits = read_all(set, i, "chain_logits", TRM_F32, &n);
    return p;
}

static void free_prompt(prompt *p)
{
    free(p->tokens);
    free(p->logits);
    free(p->chain);
    free(p->chain_logits);
}

/* The head's last step had the rows of `expected` [n, vocab]. */
static void check_logits(const headed *h, trm_generator *head, const float *expected, int32_t n, const char *what)
{
    const size_t count = (size_t)n * (size_t)head->vocab;
    float *found = malloc(count * sizeof(*found));
    double largest = 0.0, worst = 0.0;
    assert_non_null(found);
    assert_ok(trm_stream_download(head->context->stream, found, trm_context_address(head->context, head->logits),
                                  count * sizeof(*found)));
    assert_ok(trm_stream_synchronize(head->context->stream));
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs((double)expected[i]));
        worst = fmax(worst, fabs((double)found[i] - (double)expected[i]));
    }
    if (!(worst <= 1e-4 * largest)) {
        fail_msg("%s on %d ranks, %s: logits differ by %g of %g", h->name, trm_world_size(test_world), what, worst,
                 largest);
    }
    free(found);
}

enum { MOST_ROWS = 48 };
static trm_sampling_row greedy[MOST_ROWS];

/* Runs tokens first .. first + n - 1 of the prompt, then the head's rows for them, one less at the end. */
static void run_chunk(const headed *h, trm_generator *g, const prompt *p, int32_t first, int32_t n,
                      const int32_t *blocks, int32_t *chosen)
{
    const int32_t rows = first + n < p->n ? n : n - 1;
    trm_step_sequence sequence = {
        .tokens = p->tokens + first, .n_tokens = n, .n_cached = first, .n_prompt = p->n, .blocks = blocks};
    assert_ok(trm_generator_step(g, &sequence, 1, NULL));
    if (rows == 0) {
        return;
    }
    sequence.tokens++;
    sequence.n_tokens = sequence.n_choices = rows;
    sequence.choices = greedy;
    assert_ok(trm_draft_head_feed(g->head, g));
    assert_ok(trm_generator_step(g->head, &sequence, 1, chosen));
    check_logits(h, g->head, p->logits + (size_t)first * (size_t)g->head->vocab, rows, "prompt");
}

/* In chunks, then token by token what the head drafts. */
static void check_prompt(const headed *h, trm_generator *g, const prompt *p, int32_t chunk)
{
    int32_t blocks[CONTEXT / TRM_KV_BLOCK_SIZE], chosen[MOST_ROWS], rows = 0;
    for (int32_t i = 0; i < CONTEXT / TRM_KV_BLOCK_SIZE; i++) {
        blocks[i] = CONTEXT / TRM_KV_BLOCK_SIZE - 1 - i;
    }
    for (int32_t first = 0; first < p->n; first += chunk) {
        const int32_t n = p->n - first < chunk ? p->n - first : chunk;
        rows = first + n < p->n ? n : n > 1 ? n - 1 : rows;
        run_chunk(h, g, p, first, n, blocks, chosen);
    }
    int32_t token = trm_draft_head_token(g->head, chosen[rows - 1]);
    for (int32_t k = 0; k < CHAIN - 1; k++) {
        assert_int_equal(token, p->chain[k]);
        const trm_step_sequence sequence = {.tokens = &token,
                                            .n_tokens = 1,
                                            .n_cached = p->n - 1 + k,
                                            .n_prompt = p->n,
                                            .blocks = blocks,
                                            .choices = greedy,
                                            .n_choices = 1,
                                            .hidden_row = k == 0 ? rows - 1 : 0};
        assert_ok(trm_draft_head_feed(g->head, g->head));
        assert_ok(trm_generator_step(g->head, &sequence, 1, chosen));
        check_logits(h, g->head, p->chain_logits + (size_t)k * (size_t)g->head->vocab, 1, "chain");
        token = trm_draft_head_token(g->head, chosen[0]);
    }
    assert_int_equal(token, p->chain[CHAIN - 1]);
}

static void logits_are_those_of_the_equations(void **state)
{
    (void)state;
    for (int32_t i = 0; i < HEADS; i++) {
        headed h = open_headed(heads[i]);
        trm_safetensors *set;
        trm_generator *g = make(&h, kind_of(&h), 3, MOST_ROWS, 64, CONTEXT);
        assert_ok(trm_safetensors_open(path_of(heads[i], "/expected"), &set));
        for (int32_t k = 0; k < 3; k++) {
            prompt p = read_prompt(set, k);
            static const int32_t chunks[] = {64, 7, 1};
            for (int32_t way = 0; way < 3; way++) {
                check_prompt(&h, g, &p, chunks[way]);
            }
            free_prompt(&p);
        }
        trm_safetensors_close(set);
        trm_generator_destroy(g);
        close_headed(&h);
    }
}

/* ---- text -------------------------------------------------------------------------------------- */

static trm_scheduler *schedule(trm_generator *g, bool prefix_cache)
{
    trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
    trm_scheduler *s;
    options.no_prefix_cache = !prefix_cache;
    assert_ok(trm_scheduler_create(g, &options, &s));
    return s;
}

/* Rank 0 runs the load, the others follow. */
static void run_load(trm_generator *g, bool prefix_cache, load *l, const load *alone, uint64_t *random, bool cancels,
                     trm_scheduler_stats *stats)
{
    trm_scheduler *s = schedule(g, prefix_cache);
    if (trm_world_rank(test_world) != 0) {
        assert_ok(trm_scheduler_follow(s));
    } else if (alone == NULL) {
        load_run_alone(s, l);
    } else {
        load_run_together(s, l, alone, random, cancels);
        trm_scheduler_get_stats(s, stats);
        assert_int_equal(stats->blocks_used, 0);
    }
    if (trm_world_rank(test_world) == 0) {
        assert_ok(trm_scheduler_end(s));
    }
    trm_scheduler_destroy(s);
}

/* Whatever is drafted under whatever pressure, every request gets what it gets alone without drafts. */
static void load_changes_no_token(void **state)
{
    (void)state;
    static load l, alone;
    static const struct {
        int32_t drafts, sequences, step_tokens;
        int64_t cache_tokens;
        bool prefix_cache, cancels, is_auto;
    } shapes[] = {
        {3, 24, 128, 0, false, false, false}, /* room for all */
        {2, 6, 16, 0, true, false, false},    /* small chunks beside decodes */
        {4, 8, 24, 208, true, true, false},   /* not enough cache: preemption */
        {1, 5, 64, 176, true, false, false},  {5, 24, 40, 512, true, true, true},
    };
    enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };
    const bool several = trm_world_size(test_world) > 1;
    uint64_t random = test_seed();
    int64_t preemptions = 0, hits = 0;
    for (int32_t i = 0; i < HEADS; i++) {
        headed h = open_headed(heads[i]);
        int32_t text[60];
        for (int32_t k = 0; k < 60; k++) {
            text[k] = (int32_t)test_random_below(&random, h.vocab);
        }
        load_make(&l, several ? 8 : LOAD_REQUESTS, &random, text, 60, h.vocab, 60, 40);
        trm_generator *g = make(&h, TRM_SPECULATION_OFF, 0, 1, 128, 0);
        trm_scheduler_stats stats = {0};
        run_load(g, false, &l, NULL, &random, false, &stats);
        alone = l;
        trm_generator_destroy(g);
        for (int32_t k = 0; k < SHAPES; k++) {
            if (shapes[k].is_auto && !h.is_eagle) {
                continue;
            }
            const trm_speculation_kind kind = shapes[k].is_auto ? TRM_SPECULATION_AUTO : kind_of(&h);
            g = make(&h, kind, shapes[k].drafts, shapes[k].sequences, shapes[k].step_tokens, shapes[k].cache_tokens);
            run_load(g, shapes[k].prefix_cache, &l, &alone, &random, shapes[k].cancels, &stats);
            if (trm_world_rank(test_world) == 0) {
                preemptions += stats.preemptions;
                hits += stats.prefix_hits;
                assert_true(shapes[k].is_auto || stats.drafted_tokens > stats.accepted_tokens);
                assert_true(!h.is_told || shapes[k].is_auto || stats.accepted_tokens > 0);
            }
            trm_generator_destroy(g);
        }
        close_headed(&h);
    }
    assert_true(several || (preemptions > 0 && hits > 0));
}

#define DRAFTS 3

/* Drafts by request and number of tokens before them; -1: not seen. */
typedef struct seen_drafts {
    int32_t tokens[LOAD_REQUESTS][CONTEXT + 1][DRAFTS];
} seen_drafts;

/* Of the step that has run, and the first ones of the next. */
static void see_drafts(const trm_scheduler *s, seen_drafts *seen)
{
    for (int32_t k = 0; k < s->n_running; k++) {
        const trm_sequence *sequence = s->running[k];
        if (sequence->head_row >= 0) {
            seen->tokens[sequence->request.id - 1000][sequence->n_tokens][0] = sequence->head_token;
        }
        for (int32_t i = 0; i < s->n_sequences; i++) { /* what was sampled has replaced the first that was wrong */
            const trm_step_sequence *part = &s->sequences[i];
            const int64_t before = part->n_cached + part->n_tokens - (part->n_choices > 0 ? part->n_choices - 1 : 0);
            for (int64_t at = sequence->n_tokens; s->lives[i] == sequence && at < before + part->n_choices - 1; at++) {
                seen->tokens[sequence->request.id - 1000][before][at - before] = sequence->tokens[at];
            }
        }
    }
}

static void run_crowd(trm_scheduler *s, load *l, seen_drafts *seen)
{
    memset(seen, -1, sizeof(*seen));
    for (int32_t i = 0; i < l->n; i++) {
        assert_ok(trm_scheduler_submit(s, &l->requests[i].request));
    }
    while (trm_scheduler_has_work(s)) {
        const trm_serving_event *events;
        int32_t n;
        assert_ok(trm_scheduler_step(s, &events, &n));
        load_take(l, events, n);
        see_drafts(s, seen);
    }
}

/* What the head drafts behind n tokens, in steps of one sequence. */
static void draft_alone(trm_generator *g, const int32_t *tokens, int32_t n, int32_t *drafts)
{
    int32_t blocks[CONTEXT / TRM_KV_BLOCK_SIZE];
    for (int32_t i = 0; i < CONTEXT / TRM_KV_BLOCK_SIZE; i++) {
        blocks[i] = i;
    }
    trm_step_sequence sequence = {.tokens = tokens, .n_tokens = n, .n_prompt = n, .blocks = blocks};
    assert_ok(trm_generator_step(g, &sequence, 1, NULL));
    assert_ok(trm_draft_head_feed(g->head, g));
    sequence.tokens = tokens + 1;
    sequence.n_tokens = n - 1;
    sequence.choices = greedy;
    sequence.n_choices = 1;
    assert_ok(trm_generator_step(g->head, &sequence, 1, drafts));
    for (int32_t k = 1; k < DRAFTS; k++) {
        drafts[k - 1] = trm_draft_head_token(g->head, drafts[k - 1]);
        assert_ok(trm_draft_head_feed(g->head, g->head));
        sequence.tokens = &drafts[k - 1];
        sequence.n_tokens = 1;
        sequence.n_cached = n - 2 + k;
        assert_ok(trm_generator_step(g->head, &sequence, 1, &drafts[k]));
    }
    drafts[DRAFTS - 1] = trm_draft_head_token(g->head, drafts[DRAFTS - 1]);
}

/* Compares what was drafted for a request; returns how many drafts. */
static int64_t compare_drafts(const headed *h, trm_generator *g, const load_request *r, int32_t (*seen)[DRAFTS])
{
    int32_t tokens[CONTEXT], n = (int32_t)r->request.n_prompt + (int32_t)r->n_tokens;
    int64_t compared = 0;
    memcpy(tokens, r->prompt, (size_t)r->request.n_prompt * sizeof(*tokens));
    memcpy(tokens + r->request.n_prompt, r->tokens, (size_t)r->n_tokens * sizeof(*tokens));
    for (int32_t at = 2; at <= n; at++) {
        int32_t expected[DRAFTS];
        if (seen[at][0] < 0 && seen[at][1] < 0 && seen[at][2] < 0) {
            continue;
        }
        draft_alone(g, tokens, at, expected);
        for (int32_t k = 0; k < DRAFTS; k++) {
            if (seen[at][k] >= 0 && seen[at][k] != expected[k]) {
                fail_msg("%s: draft %d behind %d tokens of request %d is %d, alone it is %d", h->name, k, at,
                         (int)(r->request.id - 1000), seen[at][k], expected[k]);
            }
            compared += seen[at][k] >= 0;
        }
    }
    return compared;
}

/* Beside others, in chunks, after a preemption and behind accepted drafts a head sees what it sees alone. */
static void neighbours_change_no_draft(void **state)
{
    (void)state;
    static load l;
    static seen_drafts seen;
    uint64_t random = test_seed();
    int64_t accepted = 0, preemptions = 0, compared = 0;
    for (int32_t i = 0; i < HEADS && trm_world_size(test_world) == 1; i++) {
        headed h = open_headed(heads[i]);
        load_make(&l, LOAD_REQUESTS, &random, (const int32_t[]){7}, 1, h.vocab, 50, 40);
        trm_generator *one = make(&h, kind_of(&h), 1, 1, 128, 0), *g = make(&h, kind_of(&h), DRAFTS, 8, 24, 208);
        trm_scheduler *s = schedule(g, false);
        run_crowd(s, &l, &seen);
        for (int32_t k = 0; k < l.n; k++) {
            compared += compare_drafts(&h, one, &l.requests[k], seen.tokens[k]);
        }
        accepted += s->stats.accepted_tokens;
        preemptions += s->stats.preemptions;
        trm_scheduler_destroy(s);
        trm_generator_destroy(g);
        trm_generator_destroy(one);
        close_headed(&h);
    }
    assert_true(trm_world_size(test_world) > 1 || (accepted > 100 && preemptions > 0 && compared > 4000));
}

enum { N = 4, TOKENS = 40 }; /* of generate */

typedef struct texts {
    int32_t tokens[N][TOKENS], n[N];
} texts;

static bool take_token(void *user, int32_t request, int32_t token)
{
    texts *t = user;
    t->tokens[request][t->n[request]++] = token;
    return true;
}

/* Generates the tokens of four prompts. */
static trm_generate_stats generate(trm_generator *g, const headed *h, float temperature, texts *t)
{
    enum { PROMPT = 20 };
    int32_t prompts[N][PROMPT];
    uint64_t random = 5;
    trm_request requests[N];
    trm_generate_stats stats;
    *t = (texts){0};
    for (int32_t i = 0; i < N; i++) {
        for (int32_t k = 0; k < PROMPT; k++) {
            prompts[i][k] = (int32_t)test_random_below(&random, h->vocab);
        }
        requests[i] = (trm_request){.prompt = prompts[i],
                                    .n_prompt = PROMPT - i,
                                    .max_tokens = TOKENS,
                                    .ignore_eos = true,
                                    .sampling = {.temperature = temperature, .seed = 17 + (uint64_t)i}};
    }
    assert_ok(trm_generate(g, requests, N, take_token, t, &stats));
    return stats;
}

/* A head that says what the model will say is right every time: as many tokens come of a step as it may have. */
static void what_must_be_right_is_accepted(void **state)
{
    (void)state;
    for (int32_t i = 0; i < HEADS; i++) {
        headed h = open_headed(heads[i]);
        static texts plain, drafted;
        trm_generator *off = make(&h, TRM_SPECULATION_OFF, 0, 4, 128, 0), *on = make(&h, kind_of(&h), 3, 4, 128, 0);
        for (int32_t way = 0; way < 2; way++) {
            const float temperature = way == 0 ? 0.0f : 1.0f;
            (void)generate(off, &h, temperature, &plain);
            const trm_generate_stats stats = generate(on, &h, temperature, &drafted);
            assert_memory_equal(&plain, &drafted, sizeof(plain));
            if (getenv("TRM_TEST_VERBOSE") != NULL && trm_world_rank(test_world) == 0) {
                print_message("%-14s temperature %g: %lld of %lld draft tokens accepted, %lld steps for %d tokens\n",
                              h.name, (double)temperature, (long long)stats.accepted_tokens,
                              (long long)stats.drafted_tokens, (long long)stats.steps, N * TOKENS);
            }
            if (h.is_told && way == 0) {
                assert_int_equal(stats.accepted_tokens, stats.drafted_tokens);
                assert_true(stats.drafted_tokens >= 110);
                assert_true(stats.steps <= 12);
            }
        }
        trm_generator_destroy(on);
        trm_generator_destroy(off);
        close_headed(&h);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------- */

static void check_refused(trm_model *model, trm_model *head, trm_speculation_kind kind, trm_mesh mesh,
                          trm_status expected, const char *text)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *g;
    options.max_context = CONTEXT;
    options.speculation.kind = kind;
    options.draft_head = head;
    options.mesh = mesh;
    assert_fails(trm_generator_create(model, test_world, &options, &g), expected, text);
}

static void what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    headed mtp = open_headed("qwen3-5"), eagle = open_headed("eagle");
    trm_network *network;
    check_refused(test_model, NULL, TRM_SPECULATION_MTP, (trm_mesh){0}, TRM_ERROR_UNSUPPORTED, "has no MTP layer");
    check_refused(eagle.head, NULL, TRM_SPECULATION_OFF, (trm_mesh){0}, TRM_ERROR_UNSUPPORTED, "is a draft head");
    check_refused(eagle.model, eagle.head, TRM_SPECULATION_OFF, (trm_mesh){0}, TRM_ERROR_INVALID_ARGUMENT,
                  "speculation is off");
    check_refused(eagle.model, eagle.head, TRM_SPECULATION_MTP, (trm_mesh){0}, TRM_ERROR_INVALID_ARGUMENT,
                  "speculation is mtp");
    check_refused(eagle.model, mtp.model, TRM_SPECULATION_NGRAM, (trm_mesh){0}, TRM_ERROR_INVALID_ARGUMENT, "is none");
    check_refused(test_model, eagle.head, TRM_SPECULATION_AUTO, (trm_mesh){0}, TRM_ERROR_INVALID_MODEL,
                  "is for a model of hidden size 32");
    assert_fails(trm_model_build_network(eagle.head, TRM_F32, &network), TRM_ERROR_UNSUPPORTED, "is a draft head");
    const int32_t ranks = trm_world_size(test_world);
    for (int32_t axis = 0; ranks > 1 && axis < TRM_AXIS_COUNT; axis++) {
        if (axis != TRM_AXIS_TP && axis != TRM_AXIS_EP) { /* no model is split over ep */
            trm_mesh mesh = {0};
            mesh.size[axis] = ranks;
            check_refused(mtp.model, NULL, TRM_SPECULATION_MTP, mesh, TRM_ERROR_UNSUPPORTED, "along tp alone");
        }
    }
    trm_generator *g = make(&mtp, TRM_SPECULATION_MTP, 2, 2, 64, 0),
                  *other = make(&eagle, kind_of(&eagle), 0, 2, 64, 0);
    assert_fails(trm_generator_set_draft(g, other), TRM_ERROR_INVALID_ARGUMENT, "has a draft head");
    trm_generator_destroy(other);
    trm_generator_destroy(g);
    close_headed(&mtp);
    close_headed(&eagle);
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_equations),
        cmocka_unit_test(weights_are_shared),
        cmocka_unit_test(load_changes_no_token),
        cmocka_unit_test(neighbours_change_no_draft),
        cmocka_unit_test(what_must_be_right_is_accepted),
        cmocka_unit_test(what_does_not_go_together_is_refused),
    };
    for (int32_t i = 0; i < MOST_ROWS; i++) {
        greedy[i] = (trm_sampling_row){.sampling = &trm_sampling_greedy, .logprobs = -1};
    }
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
}
