/* Memory on the way from a network to tokens: each allocation fails once and is reported, nothing leaks, plans say what
 * is really allocated, and steps allocate nothing. */
#include "support/support.h"

#include <stdatomic.h>

#include <trireme/trireme.h>

#include "dist/llm/generator.h"
#include "kernels/device/device.h"
#include "support/hf_golden.h"

static atomic_long allocations_left = -1; /* until one fails; negative: none does */
static atomic_long allocations, live;     /* made so far; not freed yet */
static size_t device_bytes;               /* asked for since it was set to 0 */

static bool fails_now(void)
{
    atomic_fetch_add(&allocations, 1);
    return allocations_left >= 0 && atomic_fetch_sub(&allocations_left, 1) == 0;
}

static void *counted(void *memory)
{
    atomic_fetch_add(&live, memory != NULL);
    return memory;
}

/* The linker sends the library's calls here (CMakeLists.txt). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void __real_free(void *memory);
trm_status __real_trm_device_alloc(trm_device *device, size_t size, void **memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *memory);
trm_status __wrap_trm_device_alloc(trm_device *device, size_t size, void **memory);

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *memory, size_t size)
{
    if (fails_now()) {
        return NULL;
    }
    void *moved = __real_realloc(memory, size);
    return memory == NULL ? counted(moved) : moved;
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails_now() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

char *__wrap_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = fails_now() ? NULL : counted(__real_malloc(size));
    return copy == NULL ? NULL : memcpy(copy, text, size);
}

void __wrap_free(void *memory)
{
    atomic_fetch_sub(&live, memory != NULL);
    __real_free(memory);
}

trm_status __wrap_trm_device_alloc(trm_device *device, size_t size, void **memory)
{
    device_bytes += size;
    return __real_trm_device_alloc(device, size, memory);
}

static trm_world *world;
static test_golden golden;
static trm_network *network;
static trm_shape_bound bounds[TEST_GOLDEN_MAX_BOUNDS];

typedef trm_status (*scenario)(void *argument);

/* Runs a scenario with the first, second, ... allocation failing, until none is left to fail. */
static void exhaust(scenario run, void *argument)
{
    assert_ok(run(argument)); /* what is set up once, in any library, is there */
    for (long n = 0;; n++) {
        assert_true(n < 20000);
        long before = live;
        trm_fail(TRM_ERROR_INTERNAL, "stale");
        allocations_left = n;
        trm_status status = run(argument);
        bool failed = allocations_left < 0;
        allocations_left = -1;
        if (live != before) {
            fail_msg("allocation %ld failed: %ld blocks were not freed", n, (long)live - before);
        }
        if (!failed) {
            assert_ok(status);
            assert_true(n > 0);
            return;
        }
        if (status == TRM_OK) { /* something that it can do without: a table of names */
            continue;
        }
        if (status != TRM_ERROR_OUT_OF_MEMORY || strcmp(trm_last_error(), "stale") == 0) {
            fail_msg("allocation %ld failed: %s: \"%s\"", n, trm_status_name(status), trm_last_error());
        }
    }
}

static trm_status build(void *plan)
{
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.bounds = bounds;
    options.n_bounds = test_golden_bounds(network, bounds);
    trm_plan *made = NULL;
    TRM_TRY(trm_build(network, &options, &made));
    if (plan == NULL) {
        trm_plan_destroy(made);
    } else {
        *(trm_plan **)plan = made;
    }
    return TRM_OK;
}

static trm_status load_and_run(void *unused)
{
    (void)unused;
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    trm_context *context = NULL;
    trm_status status;
    TRM_TRY(build(&plan));
    TRM_TRY(trm_engine_create(plan, world, NULL, NULL, &engine)); /* takes the plan over */
    TRM_TRY_GOTO(status, trm_context_create(engine, &context), destroy);
    TRM_TRY_GOTO(status, trm_context_set_layer_timing(context, true), destroy);
    for (int32_t i = 0; i < trm_network_input_count(network); i++) {
        const trm_tensor *input = trm_network_input(network, i);
        trm_dims dims = trm_tensor_dims(input);
        static const int32_t zeros[64] = {0};
        dims.d[0] = strcmp(trm_tensor_name(input), "sequence_starts") == 0 ? 2 : 1;
        if (dims.n == 2) {
            dims.d[1] = 1;
        }
        TRM_TRY_GOTO(status, trm_context_set_input(context, trm_tensor_name(input), dims, zeros), destroy);
    }
    status = trm_context_run(context);
destroy:
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    return status;
}

static trm_weight_budget budget; /* of the generators made */
static bool drafts;              /* they speculate, and have embeddings */

static const int32_t prompt[] = {5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 3, 2, 4, 6, 8};
#define N_PROMPT ((int64_t)(sizeof(prompt) / sizeof(prompt[0])))

static trm_status create(trm_generator **generator)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    options.max_context = 60;
    options.max_sequences = 3;
    options.max_step_tokens = 16;
    options.weight_budget = budget;
    options.speculation.kind = drafts ? TRM_SPECULATION_NGRAM : TRM_SPECULATION_OFF;
    options.embeddings = drafts;
    return trm_generator_create(golden.model, world, &options, generator);
}

static trm_status generate(void *generator)
{
    trm_request requests[4];
    for (int32_t i = 0; i < 4; i++) {
        requests[i] = (trm_request){.prompt = prompt,
                                    .n_prompt = N_PROMPT - i,
                                    .max_tokens = 20,
                                    .sampling = TRM_SAMPLING_INIT,
                                    .ignore_eos = true};
        requests[i].sampling.repetition_penalty = i % 2 == 0 ? 1.0f : 1.5f;
    }
    return trm_generate(generator, requests, 4, NULL, NULL, NULL);
}

static trm_status create_and_generate(void *unused)
{
    (void)unused;
    trm_generator *generator = NULL;
    TRM_TRY(create(&generator));
    trm_status status = generate(generator);
    trm_generator_destroy(generator);
    return status;
}

static trm_status plan_alone(void *unused)
{
    (void)unused;
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_build_options for_rank = TRM_BUILD_OPTIONS_INIT;
    for_rank.backend = TRM_BACKEND_HOST;
    trm_plan *plan = NULL;
    int64_t tokens;
    TRM_TRY(trm_generator_plan(golden.model, &options, &for_rank, &plan, &tokens));
    trm_plan_destroy(plan);
    return TRM_OK;
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    trm_generator *generator;
    exhaust(build, NULL);
    exhaust(load_and_run, NULL);
    exhaust(plan_alone, NULL);
    exhaust(create_and_generate, NULL);
    assert_ok(create(&generator));
    exhaust(generate, generator);
    trm_generator_destroy(generator);
}

/* With weights that stream, from host memory and from their files. */
static void each_allocation_may_fail_while_weights_stream(void **state)
{
    (void)state;
    budget = (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT, .percent = 30};
    exhaust(create_and_generate, NULL);
    budget.host_bytes = 1;
    exhaust(create_and_generate, NULL);
    budget = (trm_weight_budget){0};
}

/* The same with layers on the CPU. */
static void each_allocation_may_fail_where_processors_compute(void **state)
{
    (void)state;
    budget = (trm_weight_budget){
        .kind = TRM_WEIGHT_BUDGET_PERCENT, .percent = 30, .host_compute = TRM_HOST_COMPUTE_PERCENT, .host_percent = 60};
    exhaust(create_and_generate, NULL);
    budget = (trm_weight_budget){0};
}

static void plans_tell_what_is_allocated(void **state)
{
    (void)state;
    trm_plan *plan = NULL;
    trm_engine *engine;
    trm_context *context;
    trm_memory_plan memory;
    assert_ok(build(&plan));
    trm_plan_memory(plan, &memory);
    device_bytes = 0;
    assert_ok(trm_engine_create(plan, world, NULL, NULL, &engine));
    assert_int_equal(device_bytes, memory.weights);
    assert_ok(trm_context_create(engine, &context));
    assert_int_equal(device_bytes, memory.total);
    trm_context_destroy(context);
    trm_engine_destroy(engine);

    trm_generator *generator;
    trm_generator_limits limits;
    device_bytes = 0;
    assert_ok(create(&generator));
    assert_ok(generate(generator));
    trm_generator_get_limits(generator, &limits);
    assert_int_equal(device_bytes, limits.memory.total);
    assert_int_equal(limits.memory.total,
                     limits.memory.weights + limits.memory.state + limits.memory.activations + limits.memory.workspace);
    trm_generator_destroy(generator);
}

static void check_steps_allocate_nothing(void)
{
    trm_generator *generator;
    assert_ok(create(&generator));
    assert_ok(generate(generator));
    static const int32_t blocks[3][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}};
    static const trm_serving_sampling samplings[3] = {
        {.base = TRM_SAMPLING_INIT, .typical_p = 1.0f},
        {.base = {1.0f, 5, 0.9f, 0.0f, 1.0f, 1}, .typical_p = 1.0f},
        {.base = {1.0f, 0, 1.0f, 0.1f, 1.3f, 2}, .typical_p = 0.9f, .presence_penalty = 0.5f},
    };
    trm_sampling_row choices[3];
    trm_step_sequence sequences[3];
    int32_t chosen[3] = {0};
    long before = allocations;
    for (int32_t i = 0; i < 3; i++) { /* prompts, of another length each */
        sequences[i] = (trm_step_sequence){.tokens = prompt,
                                           .n_tokens = 3 + i,
                                           .n_prompt = 3 + i,
                                           .blocks = blocks[i],
                                           .choices = &choices[i],
                                           .n_choices = 1};
        choices[i] = (trm_sampling_row){.sampling = &samplings[0], .logprobs = -1, .slot = i};
    }
    assert_ok(trm_generator_step(generator, sequences, 3, chosen));
    for (int32_t step = 0; step < 30; step++) {
        for (int32_t i = 0; i < 3; i++) {
            sequences[i].tokens = &chosen[i];
            sequences[i].n_cached += sequences[i].n_tokens;
            sequences[i].n_tokens = 1;
            choices[i] = (trm_sampling_row){.sampling = &samplings[step % 3],
                                            .logprobs = step % 5 == 0 ? 3 : -1,
                                            .slot = i,
                                            .history = prompt,
                                            .n_history = 3 + i,
                                            .n_prompt = 3};
        }
        assert_ok(trm_generator_step(generator, sequences, 1 + step % 3, chosen));
        for (int32_t i = 1 + step % 3; i < 3; i++) {
            sequences[i].n_tokens = 0; /* was not run */
        }
    }
    assert_int_equal(allocations, before);
    trm_generator_destroy(generator);
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    check_steps_allocate_nothing();
    budget = (trm_weight_budget){.kind = TRM_WEIGHT_BUDGET_PERCENT, .percent = 10};
    check_steps_allocate_nothing();
    budget.host_compute = TRM_HOST_COMPUTE_AUTO;
    check_steps_allocate_nothing();
    budget.host_bytes = 1;
    check_steps_allocate_nothing();
    budget = (trm_weight_budget){0};
}

/* Neither do the scheduler's steps: a request has its memory from submit on. */
static void check_scheduled_steps(bool with_draft_model)
{
    trm_generator *generator, *draft = NULL;
    trm_scheduler *s;
    const trm_scheduler_options options = TRM_SCHEDULER_OPTIONS_INIT;
    assert_ok(create(&generator));
    if (with_draft_model) {
        assert_ok(create(&draft));
        assert_ok(trm_generator_set_draft(generator, draft));
    }
    assert_ok(trm_scheduler_create(generator, &options, &s));
    long before = 0;
    for (int32_t turn = 0; turn < 2; turn++) { /* the first lets libraries set themselves up */
        for (uint64_t id = 0; id < 9; id++) {
            trm_serving_request request = TRM_SERVING_REQUEST_INIT;
            request.id = id;
            request.prompt = prompt;
            request.n_prompt = 2 + (int64_t)id % 3;
            request.sampling.base.repetition_penalty = id % 2 == 0 ? 1.2f : 1.0f;
            request.logprobs = id % 3 == 0 ? 4 : 0;
            request.prompt_logprobs = id % 4 == 0 ? 2 : 0;
            request.sampling.base.temperature = 1.0f;
            request.max_tokens = 16;
            static const trm_logit_bias favour = {17, 90.0f}; /* so that texts repeat themselves */
            request.sampling.bias = &favour;
            request.sampling.n_bias = drafts && id % 4 == 2;
            if (drafts && id % 4 == 3) {
                request.embedding = id == 3 ? TRM_EMBEDDING_MEAN : TRM_EMBEDDING_LAST;
                request.max_tokens = TRM_NO_TOKENS;
            }
            assert_ok(trm_scheduler_submit(s, &request));
        }
        before = allocations;
        while (trm_scheduler_has_work(s)) {
            const trm_serving_event *events;
            int32_t n;
            assert_ok(trm_scheduler_step(s, &events, &n));
        }
    }
    assert_int_equal(allocations, before);
    trm_scheduler_stats stats;
    trm_scheduler_get_stats(s, &stats);
    assert_int_equal(stats.drafted_tokens > 0, drafts);
    trm_scheduler_destroy(s);
    trm_generator_destroy(generator);
    trm_generator_destroy(draft);
}

static void scheduled_steps_allocate_nothing(void **state)
{
    (void)state;
    check_scheduled_steps(false);
    drafts = true;
    check_scheduled_steps(false);
    check_scheduled_steps(true);
    drafts = false;
}

/* With drafts and embeddings. */
static void each_allocation_may_fail_while_drafting(void **state)
{
    (void)state;
    drafts = true;
    exhaust(create_and_generate, NULL);
    drafts = false;
}

static int open_all(void **state)
{
    (void)state;
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.threads = 1;
    options.no_bind = true;
    assert_ok(trm_world_open(&options, &world));
    test_golden_open("llama", &golden);
    assert_ok(trm_model_build_network(golden.model, TRM_F32, &network));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    trm_network_destroy(network);
    test_golden_close(&golden);
    trm_world_close(world);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_may_fail),
        cmocka_unit_test(each_allocation_may_fail_while_weights_stream),
        cmocka_unit_test(each_allocation_may_fail_where_processors_compute),
        cmocka_unit_test(each_allocation_may_fail_while_drafting),
        cmocka_unit_test(plans_tell_what_is_allocated),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(scheduled_steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
