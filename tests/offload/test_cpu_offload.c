/* Layers that the CPU runs while the weights of others stream: the same results as on the device, whatever
 * stays, whatever they run, and however large the steps are. */
#include "support/support.h"

#include <stdatomic.h>
#include <stdio.h>

#include <trireme/trireme.h>

#include "dist/llm/generator.h"
#include "weight_stream/offload/cpu_offload.h"
#include "weight_stream/offload/streaming.h"
#include "support/world.h"

#define PROMPT 24
#define TOKENS 10
#define MOST   4 /* sequences */

static bool on_cuda(void)
{
    return test_backend() == TRM_BACKEND_CUDA;
}

/* On a GPU f32, whose sums in another order choose the same tokens. */
static trm_generator *open_generator(const char *budget, const char *host, trm_dtype dtype)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator = NULL;
    options.max_context = 64;
    options.max_sequences = MOST;
    options.dtype = dtype;
    options.no_tune = options.no_tune || test_is_brief();
    assert_ok(trm_weight_budget_parse(budget, &options.weight_budget));
    assert_ok(trm_host_compute_parse(host, &options.weight_budget));
    options.weight_budget.compression = TRM_WEIGHT_COMPRESSION_LOSSLESS;
    assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
    return generator;
}

typedef struct tokens {
    int32_t all[MOST][TOKENS], n[MOST];
} tokens;

static bool keep_token(void *user, int32_t request, int32_t token)
{
    tokens *kept = user;
    kept->all[request][kept->n[request]++] = token;
    return true;
}

/* `n` sequences; the first has a short prompt, whose step is a small one. */
static trm_status try_to_generate(trm_generator *generator, int32_t n, tokens *kept)
{
    int32_t prompts[MOST][PROMPT];
    trm_request requests[MOST];
    *kept = (tokens){0};
    for (int32_t r = 0; r < n; r++) {
        for (int32_t i = 0; i < PROMPT; i++) {
            prompts[r][i] = (i * 37 + r * 101) % 4000 + 2;
        }
        requests[r] = (trm_request){.prompt = prompts[r],
                                    .n_prompt = r == 0 ? 5 : PROMPT,
                                    .max_tokens = test_is_brief() ? 3 : TOKENS,
                                    .sampling = TRM_SAMPLING_INIT,
                                    .ignore_eos = true};
        requests[r].sampling.temperature = 0.7f;
        requests[r].sampling.seed = 11 + (uint64_t)r;
    }
    return trm_generate(generator, requests, n, keep_token, kept, NULL);
}

static tokens generate(trm_generator *generator, int32_t n)
{
    tokens kept;
    assert_ok(try_to_generate(generator, n, &kept));
    return kept;
}

static void check_alike(trm_generator *generator, const tokens *expected)
{
    for (int32_t n = 1; n <= MOST; n += MOST - 1) { /* one sequence, then all: small and large steps in turn */
        tokens found = generate(generator, n);
        assert_memory_equal(found.all, expected->all, (size_t)n * sizeof(found.all[0]));
    }
}

static void any_share_gives_the_same(void **state)
{
    (void)state;
    static const char *const budgets[] = {"0", "30%", "100%"}, *const shares[] = {"0", "30%", "70%", "100%", "auto"};
    const trm_dtype types[] = {TRM_F32, TRM_BF16};
    for (size_t t = test_is_brief() && !on_cuda() ? 1 : 0; t < (on_cuda() ? 1 : 2); t++) {
        trm_generator *generator = open_generator("off", "off", types[t]);
        tokens expected = generate(generator, MOST);
        trm_generator_destroy(generator);
        for (size_t b = 0; b < sizeof(budgets) / sizeof(budgets[0]); b++) {
            size_t before = 0;
            for (size_t i = test_is_brief() ? 2 + b : 0; i < sizeof(shares) / sizeof(shares[0]);
                 i += test_is_brief() ? 2 : 1) {
                trm_generator_limits limits;
                generator = open_generator(budgets[b], shares[i], types[t]);
                check_alike(generator, &expected);
                trm_generator_get_limits(generator, &limits);
                const trm_streaming_info *info = &limits.streaming;
                assert_true(info->resident + info->offloaded + info->unpacked >= info->streamable);
                assert_int_equal(info->offloaded_layers > 0, info->offloaded > 0);
                assert_true(i == 4 || info->offloaded >= before);
                assert_true((i == 0 || b == 2) == (info->offloaded == 0) || i == 4);
                assert_int_equal(limits.memory.staging, info->staging);
                before = info->offloaded;
                trm_generator_destroy(generator);
            }
        }
    }
}

/* Weights become resident, packed, and readable by processors in turn. */
static void budgets_change(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("off", "off", TRM_F32);
    tokens expected = generate(generator, MOST);
    trm_generator_destroy(generator);
    const trm_dtype types[] = {TRM_F32, TRM_BF16};
    for (size_t t = test_is_brief() && !on_cuda() ? 1 : 0; t < (on_cuda() ? 1 : 2); t++) {
        generator = open_generator("100%", "60%", types[t]);
        expected = generate(generator, MOST);
        trm_generator_limits limits;
        trm_generator_get_limits(generator, &limits);
        const size_t all = limits.streaming.streamable;
        const size_t budgets[] = {0, all / 2, all / 4, all, all * 3 / 4, 0, all / 5};
        for (size_t i = 0; i < (test_is_brief() ? 3 : sizeof(budgets) / sizeof(budgets[0])); i++) {
            assert_ok(trm_generator_set_weight_budget(generator, budgets[i]));
            check_alike(generator, &expected);
            trm_generator_get_limits(generator, &limits);
            assert_true(limits.streaming.resident <= budgets[i]);
            assert_int_equal(limits.streaming.offloaded > 0, budgets[i] < all);
        }
        trm_generator_destroy(generator);
    }
}

/* What is asked for by a share does not depend on what is measured. */
static void shares_choose_alike(void **state)
{
    (void)state;
    trm_generator *generators[2];
    for (int32_t i = 0; i < 2; i++) {
        generators[i] = open_generator("40%", "50%", TRM_F32);
    }
    const trm_plan *a = generators[0]->engine->plan, *b = generators[1]->engine->plan;
    const size_t n = (size_t)a->network->n_layers;
    assert_memory_equal(a->streaming->offloaded, b->streaming->offloaded, n * sizeof(bool));
    trm_cpu_offload_rates slow = a->streaming->rates;
    slow.host /= 100;
    bool before[1024];
    assert_true(n <= 1024);
    memcpy(before, a->streaming->offloaded, n * sizeof(bool));
    assert_ok(trm_streaming_use_rates(generators[0]->engine->plan, &slow));
    assert_ok(trm_streaming_replan(generators[0]->engine->plan, a->streaming->problem.budget));
    assert_memory_equal(a->streaming->offloaded, before, n * sizeof(bool));
    trm_generator_destroy(generators[0]);
    trm_generator_destroy(generators[1]);
}

static char logged[4096]; /* lines one after the other */

static void keep_log(void *user, trm_log_level level, const char *message)
{
    const size_t used = strlen(logged);
    (void)user;
    snprintf(logged + used, sizeof(logged) - used, "%d %s\n", (int)level, message);
}

/* Everything that is logged from here on, or nothing more. */
static void log_here(bool keeps)
{
    if (keeps) {
        logged[0] = '\0';
    }
    trm_log_set(keeps ? keep_log : NULL, NULL, keeps ? TRM_LOG_INFO : TRM_LOG_WARNING);
}

/* Where some weights are read from files in every step no CPU offload, and a warning says so. */
static void files_are_left_to_the_link(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("off", "off", TRM_F32);
    tokens expected = generate(generator, MOST);
    trm_generator_destroy(generator);
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator_limits limits;
    options.max_context = 64;
    options.max_sequences = MOST;
    options.dtype = TRM_F32;
    options.weight_budget = (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT,
                                                .percent = 20,
                                                .host_bytes = (size_t)6 << 20,
                                                .host_compute = TRM_HOST_COMPUTE_PERCENT,
                                                .host_percent = 60};
    for (int32_t i = 0; i < 2; i++) {
        log_here(true);
        assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
        log_here(false);
        assert_non_null(strstr(logged, i == 0 ? "1 rank 0: no CPU offload, although 60 % of the streamed "
                                                "weights was asked for: every step reads "
                                              : "2 rank 0: no CPU offload (host compute auto): "));
        assert_non_null(strstr(logged, " MiB from files\n"));
        check_alike(generator, &expected);
        trm_generator_get_limits(generator, &limits);
        assert_true(limits.streaming.files > 0 && limits.streaming.offloaded_layers == 0);
        options.weight_budget.host_compute = TRM_HOST_COMPUTE_AUTO;
        if (i == 1) { /* everything stays: there is nothing to compute, and nothing to say */
            log_here(true);
            assert_ok(trm_generator_set_weight_budget(generator, limits.streaming.streamable));
            log_here(false);
            assert_null(strstr(logged, "CPU offload"));
        }
        trm_generator_destroy(generator);
    }
}

/* A share that processors cannot compute is refused; `auto` says why it computes nothing. */
static void batch_invariance_comes_before_shares(void **state)
{
    (void)state;
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_generator *generator;
    trm_generator_limits limits;
    options.max_context = 64;
    options.no_tune = true;
    options.batch_invariant = true;
    options.weight_budget = (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT,
                                                .percent = 20,
                                                .host_compute = TRM_HOST_COMPUTE_PERCENT,
                                                .host_percent = 12.5};
    assert_fails(trm_generator_create(test_model, test_world, &options, &generator), TRM_ERROR_INVALID_ARGUMENT,
                 "CPU offload cannot take 12.5 % of the streamed weights (host compute): the plan is batch invariant");
    options.weight_budget.host_compute = TRM_HOST_COMPUTE_AUTO;
    for (int32_t i = 0; i < 2; i++) {
        log_here(true);
        assert_ok(trm_generator_create(test_model, test_world, &options, &generator));
        log_here(false);
        const char *told = strstr(logged, "no CPU offload");
        assert_int_equal(told != NULL, i == 0);
        assert_true(i == 1 || strstr(logged, "2 rank 0: no CPU offload (host compute auto): the plan is"));
        assert_true(i == 1 || strstr(told + 1, "no CPU offload") == NULL);
        trm_generator_get_limits(generator, &limits);
        assert_int_equal(limits.streaming.offloaded_layers, 0);
        trm_generator_destroy(generator);
        options.weight_budget.host_compute = TRM_HOST_COMPUTE_PERCENT; /* of nothing */
        options.weight_budget.host_percent = 0;
    }
}

/* The linker sends the library's calls of these here (CMakeLists.txt). */
trm_status __real_trm_host_gemv_run(const trm_kernel_call *call);
trm_status __wrap_trm_host_gemv_run(const trm_kernel_call *call);
size_t __real_trm_memory_available(void);
size_t __wrap_trm_memory_available(void);
trm_status __real_trm_pages_alloc(size_t size, void **memory);
trm_status __wrap_trm_pages_alloc(size_t size, void **memory);
trm_status __real_trm_device_pin(trm_device *device, void *memory, size_t size);
trm_status __wrap_trm_device_pin(trm_device *device, void *memory, size_t size);

static atomic_int products_left = -1; /* until one fails, if not negative */
static atomic_size_t bytes_read;      /* of weights, by products */
static size_t available = SIZE_MAX, allocated,
              pinned; /* the former: what the system says; the others: at most at once */

trm_status __wrap_trm_host_gemv_run(const trm_kernel_call *call)
{
    if (atomic_load(&products_left) >= 0 && atomic_fetch_sub(&products_left, 1) == 0) {
        return trm_fail(TRM_ERROR_INTERNAL, "the processors are on fire");
    }
    atomic_fetch_add(&bytes_read, trm_dims_bytes(&call->inputs[1].dims, call->inputs[1].dtype));
    return __real_trm_host_gemv_run(call);
}

size_t __wrap_trm_memory_available(void)
{
    return available == SIZE_MAX ? __real_trm_memory_available() : available;
}

trm_status __wrap_trm_pages_alloc(size_t size, void **memory)
{
    allocated = size > allocated ? size : allocated;
    return __real_trm_pages_alloc(size, memory);
}

trm_status __wrap_trm_device_pin(trm_device *device, void *memory, size_t size)
{
    pinned = size > pinned ? size : pinned;
    return __real_trm_device_pin(device, memory, size);
}

/* What measuring takes is bounded: an eighth of the memory that is free, and weights are read once and a quarter. */
static void measuring_is_bounded(void **state)
{
    (void)state;
    static const size_t free_bytes[] = {(size_t)64 << 30, (size_t)128 << 20, 0};
    trm_generator *generator = open_generator("0", "auto", TRM_F32);
    trm_engine *engine = generator->engine;
    const trm_offload_site site = trm_engine_offload_site(engine);
    const size_t all = engine->plan->streaming->streamable;
    assert_true(2 * all > (size_t)16 << 20);
    for (int32_t i = 0; i < 3; i++) {
        const size_t expected = i == 0 ? 2 * all : i == 1 ? (size_t)16 << 20 : (size_t)4 << 20;
        trm_cpu_offload_rates rates = {0};
        available = free_bytes[i];
        allocated = pinned = 0;
        atomic_store(&bytes_read, 0);
        assert_ok(trm_cpu_offload_measure(&site, &rates));
        available = SIZE_MAX;
        assert_int_equal(allocated, expected);
        assert_int_equal(pinned, expected);
        assert_true(rates.link > 0 && rates.n_kinds > 0);
        assert_true(atomic_load(&bytes_read) <= (size_t)rates.n_kinds * (expected + expected / 2));
        assert_true(atomic_load(&bytes_read) > expected / 2);
    }
    trm_generator_destroy(generator);
}

/* Rates that are measured are of this machine, and what auto chooses follows them. */
static void rates_are_measured(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("20%", "auto", TRM_F32);
    trm_engine *engine = generator->engine;
    const trm_offload_site site = trm_engine_offload_site(engine);
    trm_streaming_plan *s = engine->plan->streaming;
    trm_cpu_offload_rates rates = {0};
    assert_ok(trm_cpu_offload_measure(&site, &rates));
    assert_true(rates.link > 0 && rates.handover > 0 && rates.n_kinds > 0);
    for (int32_t i = 0; i < rates.n_kinds; i++) {
        assert_true(rates.kinds[i].host > 0 && trm_cpu_offload_alike(rates.kinds[i].layer, rates.kinds[i].layer));
        for (int32_t k = 0; k < i; k++) {
            assert_false(trm_cpu_offload_alike(rates.kinds[i].layer, rates.kinds[k].layer));
        }
    }
    for (int32_t i = 0; i < 2; i++) { /* with a very slow link the CPU runs all it can; a slow CPU nothing */
        rates.link = i == 0 ? 1e6 : 1e15;
        rates.handover = i == 0 ? 0 : rates.handover;
        for (int32_t k = 0; k < rates.n_kinds; k++) {
            rates.kinds[k].host = i == 0 ? 1e12 : 1e6;
        }
        assert_ok(trm_streaming_use_rates(engine->plan, &rates));
        assert_int_equal(s->hosts, i == 0);
        assert_true(i == 1 || s->small.n_fetches == 0);
    }
    trm_generator_destroy(generator);
}

/* A layer that fails on the processors is the error of its step; the next call works. */
static void a_failed_layer_ends_the_step(void **state)
{
    (void)state;
    trm_generator *generator = open_generator("0", "100%", TRM_F32);
    tokens expected = generate(generator, 1), found;
    for (int32_t at = 0; at < 60; at += 13) {
        atomic_store(&products_left, at);
        assert_int_equal(try_to_generate(generator, 1, &found), TRM_ERROR_INTERNAL);
        assert_non_null(strstr(trm_last_error(), "the processors are on fire"));
        assert_non_null(strstr(trm_last_error(), "layer "));
        assert_true(atomic_load(&products_left) < 0);
        found = generate(generator, 1);
        assert_memory_equal(&found, &expected, sizeof(found));
    }
    trm_generator_destroy(generator);
}

/* ---- any network ---- */

enum { WIDTH = 160, HIDDEN = 320, MOST_BATCH = 3, MOST_LENGTH = 5, CONTEXTS = 2 };

static trm_tensor *add_weight(trm_network *network, uint64_t *random, const char *name, int64_t rows, int64_t columns)
{
    static float elements[HIDDEN * WIDTH];
    trm_tensor *tensor;
    for (int64_t i = 0; i < rows * columns; i++) {
        elements[i] = (float)test_random_below(random, 2001) * 1e-4f - 0.1f;
    }
    trm_dims dims = rows == 1 ? (trm_dims){1, {columns}} : (trm_dims){2, {rows, columns}};
    assert_ok(trm_network_add_constant(network, name, TRM_F32, dims, elements, &tensor));
    return tensor;
}

/* x [batch, length, WIDTH] through six products: with a bias, without, and with a weight that is not transposed, which
 * processors leave to the device. */
static trm_plan *plan_products(const trm_weight_budget *budget)
{
    uint64_t random = 5;
    trm_network *network;
    trm_tensor *x;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){3, {-1, -1, WIDTH}}, &x));
    for (int32_t i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof(name), "up.%d", (int)i);
        trm_tensor *up = add_weight(network, &random, name, HIDDEN, WIDTH);
        snprintf(name, sizeof(name), "bias.%d", (int)i);
        trm_tensor *bias = add_weight(network, &random, name, 1, HIDDEN);
        snprintf(name, sizeof(name), "down.%d", (int)i);
        trm_tensor *down = i == 1 ? add_weight(network, &random, name, HIDDEN, WIDTH)
                                  : add_weight(network, &random, name, WIDTH, HIDDEN);
        snprintf(name, sizeof(name), "h.%d", (int)i);
        assert_ok(trm_network_add_matmul(network, name, x, up, bias, true, &x));
        snprintf(name, sizeof(name), "a.%d", (int)i);
        assert_ok(trm_network_add_activation(network, name, TRM_ACTIVATION_TANH, x, &x));
        snprintf(name, sizeof(name), "y.%d", (int)i);
        assert_ok(trm_network_add_matmul(network, name, x, down, NULL, i != 1, &x));
    }
    assert_ok(trm_network_mark_output(network, x));
    const trm_shape_bound bound = {.tensor = "x",
                                   .min = {3, {1, 1, WIDTH}},
                                   .opt = {3, {1, 1, WIDTH}},
                                   .max = {3, {MOST_BATCH, MOST_LENGTH, WIDTH}}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan;
    options.backend = test_backend();
    options.bounds = &bound;
    options.n_bounds = 1;
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    assert_ok(trm_plan_set_weight_budget(plan, budget));
    return plan;
}

static void start(trm_context *context, int64_t batch, int64_t length, int32_t salt)
{
    static float x[MOST_BATCH * MOST_LENGTH * WIDTH];
    for (int64_t i = 0; i < batch * length * WIDTH; i++) {
        x[i] = (float)((i * 7 + salt * 13) % 101) * 0.02f - 1;
    }
    assert_ok(trm_context_set_input(context, "x", (trm_dims){3, {batch, length, WIDTH}}, x));
    assert_ok(trm_context_start(context));
}

static void finish(trm_context *context, int64_t rows, float *found)
{
    trm_dims dims;
    const void *data;
    assert_ok(trm_context_finish(context));
    assert_ok(trm_context_output(context, "y.2", &dims, &data));
    assert_int_equal(dims.n, 3);
    memcpy(found, data, (size_t)(rows * WIDTH) * sizeof(float));
}

static void note_kernel(void *user, const char *layer, trm_layer_kind kind, const char *kernel, double milliseconds,
                        int64_t runs)
{
    int32_t *offloaded = user;
    (void)layer;
    (void)kind;
    (void)runs;
    assert_true(milliseconds >= 0);
    *offloaded += strncmp(kernel, "host.", 5) == 0;
}

/* Two contexts of an engine, whose runs of any shape are in flight at the same time; captured, too. */
static void networks_and_contexts(void **state)
{
    (void)state;
    static float expected[MOST_BATCH][MOST_LENGTH][MOST_BATCH * MOST_LENGTH * WIDTH], found[sizeof(expected[0][0]) / 4];
    const int32_t same = test_is_brief() ? 2 : 6; /* runs of a shape, one after the other */
    for (int32_t share = 0; share < 3; share++) {
        trm_weight_budget budget = {.kind = share == 0 ? TRM_WEIGHT_BUDGET_OFF : TRM_WEIGHT_BUDGET_PERCENT,
                                    .percent = share == 1 ? 0 : 30,
                                    .host_compute = TRM_HOST_COMPUTE_PERCENT,
                                    .host_percent = share == 1 ? 100 : 60};
        trm_plan *plan = plan_products(&budget);
        trm_streaming_info info;
        trm_engine *engine;
        trm_context *contexts[CONTEXTS];
        trm_plan_streaming(plan, &info);
        assert_true(share != 1 || (info.offloaded_layers == 5 && info.copies == 1));
        assert_true(share == 1 || (share == 2) == (info.offloaded_layers > 0));
        log_here(true);
        assert_ok(trm_engine_create(plan, test_world, NULL, NULL, &engine));
        log_here(false);
        const char *told = strstr(logged, "83 % of the streamed weights, although 100 % was asked for: it cannot");
        assert_int_equal(share == 1, told != NULL);
        for (int32_t i = 0; i < CONTEXTS; i++) {
            assert_ok(trm_context_create(engine, &contexts[i]));
            assert_ok(trm_context_set_capture(contexts[i], i == 1));
        }
        for (int32_t turn = 0; turn < MOST_BATCH * MOST_LENGTH * same; turn++) {
            int64_t batch[CONTEXTS], length[CONTEXTS];
            for (int32_t i = 0; i < CONTEXTS; i++) { /* the second one's stay for some runs */
                int32_t shape =
                    share == 0 ? turn / same : (i == 0 ? turn * 7 : turn / same) % (MOST_BATCH * MOST_LENGTH);
                batch[i] = 1 + shape / MOST_LENGTH;
                length[i] = 1 + shape % MOST_LENGTH;
                start(contexts[i], batch[i], length[i], 0);
            }
            for (int32_t i = 0; i < CONTEXTS; i++) {
                const int64_t rows = batch[i] * length[i];
                float *wanted = expected[batch[i] - 1][length[i] - 1];
                finish(contexts[i], rows, share == 0 ? wanted : found);
                const bool offloads = trm_context_offloads(contexts[i]) &&
                                      trm_context_ran_schedule(contexts[i]) == TRM_COPY_SCHEDULE_SMALL;
                assert_int_equal(offloads, share > 0 && rows <= TRM_HOST_COMPUTE_ROWS);
                for (int64_t k = 0; share > 0 && k < rows * WIDTH; k++) {
                    float off = on_cuda() ? 1e-5f : 0;
                    assert_true(found[k] >= wanted[k] - off && found[k] <= wanted[k] + off);
                }
            }
        }
        int32_t offloaded = 0;
        assert_ok(trm_context_set_layer_timing(contexts[0], true));
        start(contexts[0], 1, 2, 0);
        finish(contexts[0], 2, found);
        trm_context_layer_times(contexts[0], note_kernel, &offloaded);
        assert_int_equal(on_cuda() ? offloaded : info.offloaded_layers, info.offloaded_layers);
        for (int32_t i = 0; i < CONTEXTS; i++) {
            trm_context_destroy(contexts[i]);
        }
        trm_engine_destroy(engine);
    }
}

static void too_small_a_share_is_told(void **state)
{
    (void)state;
    const trm_weight_budget budget = {
        .kind = TRM_WEIGHT_BUDGET_PERCENT, .host_compute = TRM_HOST_COMPUTE_PERCENT, .host_percent = 0.5};
    trm_engine *engine;
    log_here(true);
    assert_ok(trm_engine_create(plan_products(&budget), test_world, NULL, NULL, &engine));
    log_here(false);
    assert_non_null(strstr(logged, "1 rank 0: no CPU offload, although 0.5 % of the streamed weights was asked for: "
                                   "every layer reads more\n"));
    trm_engine_destroy(engine);
}

static void shares_as_text(void **state)
{
    (void)state;
    trm_weight_budget budget = {0};
    assert_ok(trm_host_compute_parse("auto", &budget));
    assert_int_equal(budget.host_compute, TRM_HOST_COMPUTE_AUTO);
    assert_ok(trm_host_compute_parse("12.5%", &budget));
    assert_int_equal(budget.host_compute, TRM_HOST_COMPUTE_PERCENT);
    assert_true(budget.host_percent == 12.5);
    assert_ok(trm_host_compute_parse("70", &budget));
    assert_true(budget.host_percent == 70);
    assert_ok(trm_host_compute_parse("off", &budget));
    assert_int_equal(budget.host_compute, TRM_HOST_COMPUTE_OFF);
    static const char *const wrong[] = {"", "on", "-1", "101", "50%%", "0x10", "nan", "5G", "autos"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_fails(trm_host_compute_parse(wrong[i], &budget), TRM_ERROR_INVALID_ARGUMENT,
                     "expected off, auto, or 0%");
    }
    assert_fails(trm_host_compute_parse(NULL, &budget), TRM_ERROR_INVALID_ARGUMENT, "NULL");
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_share_gives_the_same),
        cmocka_unit_test(budgets_change),
        cmocka_unit_test(shares_choose_alike),
        cmocka_unit_test(rates_are_measured),
        cmocka_unit_test(measuring_is_bounded),
        cmocka_unit_test(files_are_left_to_the_link),
        cmocka_unit_test(batch_invariance_comes_before_shares),
        cmocka_unit_test(a_failed_layer_ends_the_step),
        cmocka_unit_test(networks_and_contexts),
        cmocka_unit_test(too_small_a_share_is_told),
        cmocka_unit_test(shares_as_text),
    };
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, test_open_two_threads, test_close_world);
}
