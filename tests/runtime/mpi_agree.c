/* What goes wrong on one rank ends on all of them at once: nobody waits for the deadline. */
#include "support/support.h"

#include <stdatomic.h>
#include <stdio.h>

#include <trireme/trireme.h>

#include "graph/nets.h"
#include "support/hf_golden.h"

#define KIND(kind_) ((trm_layer_desc){.kind = (kind_)})

static atomic_long allocations_left = -1; /* until one fails; negative: none does */

static bool fails_now(void)
{
    return allocations_left >= 0 && atomic_fetch_sub(&allocations_left, 1) == 0;
}

/* The linker sends the library's calls here (CMakeLists.txt). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails_now() ? NULL : __real_aligned_alloc(alignment, size);
}

static trm_world *world;
static test_golden golden;
static int32_t rank, size;

static trm_status create_tuned(int64_t context, bool tune, trm_generator **generator)
{
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    options.max_context = context;
    options.max_sequences = 2;
    options.max_step_tokens = 16;
    options.no_tune = !tune;
    assert_ok(trm_mesh_parse(NULL, size, &options.mesh));
    return trm_generator_create(golden.model, world, &options, generator);
}

static trm_status create(int64_t context, trm_generator **generator)
{
    return create_tuned(context, true, generator);
}

static trm_status generate(trm_generator *generator, int64_t max_tokens)
{
    static const int32_t prompt[] = {5, 7, 11, 13};
    trm_request request = {
        .prompt = prompt, .n_prompt = 4, .max_tokens = max_tokens, .sampling = TRM_SAMPLING_INIT, .ignore_eos = true};
    request.sampling.repetition_penalty = 1.5f;
    return trm_generate(generator, &request, 1, NULL, NULL, NULL);
}

static trm_status create_and_generate(void *unused)
{
    (void)unused;
    trm_generator *generator = NULL;
    TRM_TRY(create(60, &generator));
    trm_status status = generate(generator, 3);
    trm_generator_destroy(generator);
    return status;
}

/* Whether every `stride`-th allocation of the culprit alone, failing, is reported to all. */
static void exhaust(int32_t culprit, long stride)
{
    for (long n = 0;; n += stride) {
        if (rank == culprit) {
            allocations_left = n;
        }
        trm_status status = create_and_generate(NULL);
        char failed = allocations_left < 0;
        allocations_left = -1;
        assert_true(status == TRM_OK || status == TRM_ERROR_OUT_OF_MEMORY);
        char cause[32];
        snprintf(cause, sizeof(cause), "rank %d: ", culprit);
        if (status != TRM_OK && rank != culprit && strncmp(trm_last_error(), cause, strlen(cause)) != 0) {
            fail_msg("allocation %ld of rank %d: rank %d says \"%s\"", n, culprit, rank, trm_last_error());
        }
        assert_ok(trm_world_broadcast(world, &failed, 1, culprit));
        if (!failed) {
            assert_ok(status);
            assert_true(n > 0);
            return;
        }
    }
}

static void memory_that_ends_on_one_rank(void **state)
{
    (void)state;
    assert_ok(create_and_generate(NULL)); /* what exchanges allocate once is there */
    for (int32_t culprit = 0; culprit < size; culprit++) {
        exhaust(culprit, culprit == 0 ? 3 : 11);
    }
}

static void ranks_that_ask_for_different_things(void **state)
{
    (void)state;
    trm_generator *generator = NULL;
    if (size > 1) {
        assert_fails(create(rank == size - 1 ? 60 : 61, &generator), TRM_ERROR_INVALID_ARGUMENT, "in model");
        assert_null(generator);
        assert_fails(create_tuned(60, rank == size - 1, &generator), TRM_ERROR_INVALID_ARGUMENT,
                     "tuning, padding of steps or adapters");
        assert_null(generator);
        trm_status status = create(rank == size - 1 ? 100000 : 61, &generator); /* refused on one rank alone */
        assert_int_equal(status, TRM_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(trm_last_error(), "the model has 128"));
    }
    assert_ok(create(60, &generator));
    trm_status status = generate(generator, rank == size - 1 ? -2 : 5);
    assert_int_equal(status, TRM_ERROR_INVALID_ARGUMENT);
    assert_ok(generate(generator, 5)); /* and it goes on */
    trm_generator_destroy(generator);
}

/* A network of this rank's own, with an exchange; with a loop, as long as `again`. */
static trm_plan *build_written(bool loops)
{
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_plan *plan;
    trm_network *network = net_create();
    const trm_layer_desc sum = {.kind = TRM_LAYER_DIST_COLLECTIVE,
                                .collective = {.op = TRM_ALL_REDUCE, .reduce = TRM_REDUCE_SUM, .n_ranks = size}};
    trm_tensor *y = net_input(network, "x", TRM_F32, DIMS(4));
    trm_tensor *again = net_input(network, "again", TRM_BOOL, (trm_dims){0});
    y = net_layer(network, "sum", sum, y, NULL, NULL, NULL);
    if (loops) {
        const trm_layer_desc relu = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_ACTIVATION}};
        trm_tensor *carried = net_layer(network, "carried", KIND(TRM_LAYER_RECURRENCE), y, NULL, NULL, NULL);
        trm_tensor *begun = net_layer(network, "loop", KIND(TRM_LAYER_LOOP), again, NULL, NULL, NULL);
        trm_tensor *made = net_layer(network, "made", relu, carried, NULL, NULL, NULL);
        trm_tensor *here = net_layer(network, "here", KIND(TRM_LAYER_ENTER), again, NULL, NULL, NULL);
        net_layer(network, "next", KIND(TRM_LAYER_NEXT), made, carried, NULL, NULL);
        trm_tensor *end = net_layer(network, "end", KIND(TRM_LAYER_END_LOOP), here, begun, NULL, NULL);
        y = net_layer(network, "y", KIND(TRM_LAYER_LOOP_OUTPUT), carried, end, NULL, NULL);
    }
    net_output(network, y);
    options.rank = rank;
    assert_ok(trm_mesh_parse(NULL, size, &options.mesh));
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    return plan;
}

/* Processors cannot compute a share of a network with loops: where one rank has some, no rank gets an engine. */
static void one_rank_with_loops(void **state)
{
    (void)state;
    const trm_weight_budget share = {
        .kind = TRM_WEIGHT_BUDGET_PERCENT, .host_compute = TRM_HOST_COMPUTE_PERCENT, .host_percent = 50};
    trm_engine *engine = NULL;
    trm_plan *plan = build_written(rank == size - 1);
    trm_status status = trm_plan_set_weight_budget(plan, &share);
    assert_true(size == 1 || status == TRM_OK);
    if (status == TRM_OK) {
        status = trm_engine_create(plan, world, NULL, NULL, &engine);
        assert_null(engine);
    } else {
        trm_plan_destroy(plan);
    }
    assert_int_equal(status, TRM_ERROR_UNSUPPORTED);
    assert_non_null(strstr(trm_last_error(), "CPU offload does not support networks with loops"));
    plan = build_written(false);
    assert_ok(trm_plan_set_weight_budget(plan, &share));
    assert_ok(trm_engine_create(plan, world, NULL, NULL, &engine));
    trm_engine_destroy(engine);
}

static int open_all(void **state)
{
    (void)state;
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.threads = 1;
    options.deadline_seconds = 300; /* LOST_RANK, if one waits */
    assert_ok(trm_world_open(&options, &world));
    rank = trm_world_rank(world);
    size = trm_world_size(world);
    test_golden_open("llama", &golden);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    test_golden_close(&golden);
    trm_world_close(world);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_ask_for_different_things),
        cmocka_unit_test(one_rank_with_loops),
        cmocka_unit_test(memory_that_ends_on_one_rank),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
