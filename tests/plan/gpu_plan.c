/*
 * Tuned plans on a GPU: what tuning chose comes back from the file and is used without timing anything; the same cache
 * gives the same bytes; one GPU tunes the plans of two ranks; another device or another version of a library is
 * refused; what was captured for shapes that come again gives the same. Exits 77 if there is no GPU.
 */
#include "support/device.h"
#include "support/support.h"

#include <math.h>
#include <stdio.h>

#include <trireme/trireme.h>

#include "base/file.h"
#include "dist/plan/plan.h"
#include "dist/parallel/world.h"
#include "support/random_network.h"
#include "weight_stream/weight.h"

enum { CHANNELS = 64, SIZE = 28, PIXELS = SIZE * SIZE, INNER = 256, MOST = 20 };

static trm_world *world;

static trm_tensor *weight(trm_network *network, const char *name, trm_dims dims, uint64_t seed)
{
    trm_weight *random;
    trm_tensor *tensor;
    assert_ok(trm_weight_random(TRM_F16, &dims, seed, 0, 0.05f, &random));
    assert_ok(trm_network_add_weight(network, name, random, TRM_F16, &tensor));
    return tensor;
}

/* relu(x * w) convolved, pixels by channels, times p and q. */
static trm_network *make_network(void)
{
    trm_network *network;
    trm_tensor *x, *y, *flat, *product, *out;
    trm_layer_desc convolution = {.kind = TRM_LAYER_CONVOLUTION};
    convolution.convolution = (trm_convolution_params){.groups = 1, .activation = TRM_ACTIVATION_RELU};
    for (int i = 0; i < 2; i++) {
        convolution.convolution.stride[i] = convolution.convolution.dilation[i] = 1;
        convolution.convolution.before[i] = convolution.convolution.after[i] = 1;
    }
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F16, (trm_dims){4, {-1, CHANNELS, SIZE, SIZE}}, &x));
    trm_tensor *inputs[] = {x, weight(network, "w", (trm_dims){4, {CHANNELS, CHANNELS, 3, 3}}, 1)};
    assert_ok(trm_network_add_layer(network, "convolution", &convolution, inputs, 2, &y));
    assert_ok(trm_network_add_reshape(network, "flat", y, (trm_dims){2, {-1, PIXELS}}, &flat));
    assert_ok(trm_network_add_matmul(network, "product", flat, weight(network, "p", (trm_dims){2, {INNER, PIXELS}}, 2),
                                     NULL, true, &product));
    assert_ok(trm_network_add_matmul(network, "out", product, weight(network, "q", (trm_dims){2, {INNER, INNER}}, 3),
                                     NULL, true, &out));
    assert_ok(trm_network_mark_output(network, out));
    return network;
}

static trm_plan *build(const char *mesh, int32_t ranks, int32_t rank)
{
    const trm_shape_bound bounds[] = {{.tensor = "x",
                                       .max = {4, {MOST, CHANNELS, SIZE, SIZE}},
                                       .opt = {4, {2, CHANNELS, SIZE, SIZE}},
                                       .min = {4, {2, CHANNELS, SIZE, SIZE}}},
                                      {.tensor = "x", .max = {4, {1, CHANNELS, SIZE, SIZE}}, .profile = 1}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan;
    trm_network *network = make_network();
    options.backend = TRM_BACKEND_CUDA;
    options.rank = rank;
    options.bounds = bounds;
    options.n_bounds = 2;
    assert_ok(trm_mesh_parse(mesh, ranks, &options.mesh));
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    return plan;
}

static int progress_calls, progress_total;

static bool count_progress(void *user, int32_t done, int32_t total, double seconds_left)
{
    (void)user;
    assert_true(done >= 0 && done <= total && seconds_left >= 0);
    progress_calls++;
    progress_total = total;
    return true;
}

static trm_plan *build_tuned(const char *mesh, int32_t ranks, int32_t rank, const char *cache, int32_t level)
{
    trm_plan *plan = build(mesh, ranks, rank);
    trm_tune_options options = TRM_TUNE_OPTIONS_INIT;
    options.cache = cache;
    options.level = level;
    options.progress = count_progress;
    progress_calls = 0;
    assert_ok(trm_plan_tune(plan, world, &options));
    return plan;
}

static void save(trm_plan *plan, const char *path)
{
    const trm_plan *plans[] = {plan};
    assert_ok(trm_plan_save(plans, 1, false, path));
}

/* Runs with a batch; gives the sum of all outputs' magnitudes. The plan is used up. */
static double run(trm_plan *plan, int64_t batch)
{
    static uint16_t x[MOST * CHANNELS * PIXELS];
    uint64_t state = 5;
    trm_engine *engine;
    trm_context *context;
    trm_dims dims;
    const void *data;
    double sum = 0;
    for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++) { /* f16, 1 to 2 */
        x[i] = (uint16_t)(0x3c00 | (test_random(&state) & 0x3ff));
    }
    assert_ok(trm_engine_create(plan, world, NULL, NULL, &engine));
    assert_ok(trm_context_create(engine, &context));
    assert_ok(trm_context_set_capture(context, true));
    for (int i = 0; i < 3; i++) {
        assert_ok(trm_context_set_input(context, "x", (trm_dims){4, {batch, CHANNELS, SIZE, SIZE}}, x));
        assert_ok(trm_context_run(context));
    }
    assert_ok(trm_context_output(context, "out", &dims, &data));
    assert_true(dims.d[0] == batch * CHANNELS && dims.d[1] == INNER);
    for (int64_t i = 0; i < dims.d[0] * dims.d[1]; i++) {
        const uint16_t bits = ((const uint16_t *)data)[i];
        const double value = ldexp((bits >> 10 & 0x1f) == 0 ? bits & 0x3ff : 0x400 | (bits & 0x3ff),
                                   (bits >> 10 & 0x1f) == 0 ? -24 : (bits >> 10 & 0x1f) - 25);
        assert_true((bits >> 10 & 0x1f) != 0x1f);
        sum += value;
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    return sum;
}

static void tuned_plans_come_back(void **state)
{
    (void)state;
    char cache[512], first[512], second[512];
    const char *folder = test_temporary_folder();
    char *bytes, *again;
    size_t size, size_again;
    trm_plan_info info;
    snprintf(cache, sizeof(cache), "%s/cache.txt", folder);
    snprintf(first, sizeof(first), "%s/first.plan", folder);
    snprintf(second, sizeof(second), "%s/second.plan", folder);
    trm_plan *plan = build_tuned("", 1, 0, cache, 3);
    trm_plan_get_info(plan, &info);
    assert_true(info.n_tactics >= 6 && info.cc_major > 0 && info.multiprocessors > 0); /* 3 layers, 2 profiles */
    assert_int_equal(progress_calls, progress_total + 1);
    save(plan, first);
    trm_plan_destroy(plan);
    plan = build_tuned("", 1, 0, cache, 1); /* by the cache alone */
    save(plan, second);
    trm_plan_destroy(plan);
    assert_ok(trm_file_read(first, (size_t)1 << 20, &bytes, &size));
    assert_ok(trm_file_read(second, (size_t)1 << 20, &again, &size_again));
    assert_int_equal(size, size_again);
    assert_memory_equal(bytes, again, size);
    free(bytes);
    free(again);
    const int64_t batches[] = {2, 1, 5, MOST};
    for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
        assert_ok(trm_plan_load(first, 0, &plan));
        double expected = run(build("", 1, 0), batches[i]), found = run(plan, batches[i]);
        assert_true(expected > 0 && fabs(found - expected) <= 2e-3 * expected);
    }
}

static void ranks_are_tuned_alone(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof(path), "%s/two.plan", test_temporary_folder());
    trm_plan *plans[2], *loaded;
    trm_plan_info info;
    for (int32_t rank = 0; rank < 2; rank++) {
        plans[rank] = build_tuned("tp=2", 2, rank, NULL, 2);
        trm_plan_get_info(plans[rank], &info);
        assert_true(info.n_tactics > 0);
    }
    assert_ok(trm_plan_save((const trm_plan *const *)plans, 2, false, path));
    assert_ok(trm_plan_load(path, 1, &loaded));
    trm_plan_get_info(loaded, &info);
    assert_int_equal(info.n_tactics, plans[1]->n_tactics);
    assert_ok(trm_plan_check_device(loaded, world));
    trm_plan_destroy(loaded);
    trm_plan_destroy(plans[0]);
    trm_plan_destroy(plans[1]);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    trm_engine *engine;
    trm_plan *plan = build_tuned("", 1, 0, NULL, 2);
    plan->device.multiprocessors++;
    assert_fails(trm_plan_check_device(plan, world), TRM_ERROR_INVALID_ARGUMENT, "the plan was tuned on");
    plan->device.multiprocessors--;
    assert_ok(trm_plan_check_device(plan, world));
    int32_t changed = 0;
    for (int32_t i = 0; i < plan->n_tactics; i++) { /* as the next version of cuBLASLt would be called */
        char *problem = strdup(plan->tactics[i].problem);
        if (strncmp(problem, "cublasLt 1", 10) == 0) {
            problem[9] = '9';
            plan->tactics[i].problem = problem;
            changed++;
        } else {
            free(problem);
        }
    }
    assert_true(changed > 0);
    assert_fails(trm_engine_create(plan, world, NULL, NULL, &engine), TRM_ERROR_INVALID_ARGUMENT,
                 "the plan was tuned with cublasLt 9");
}

static bool stop_at_second(void *user, int32_t done, int32_t total, double seconds_left)
{
    (void)user, (void)total, (void)seconds_left;
    return done < 1;
}

static void tuning_can_be_ended(void **state)
{
    (void)state;
    char cache[512];
    snprintf(cache, sizeof(cache), "%s/cache.txt", test_temporary_folder());
    trm_tune_options options = TRM_TUNE_OPTIONS_INIT;
    trm_plan *plan = build("", 1, 0);
    trm_plan_info info;
    options.cache = cache;
    options.progress = stop_at_second;
    assert_fails(trm_plan_tune(plan, world, &options), TRM_ERROR_CANCELLED, "cancelled after 1 of ");
    trm_plan_get_info(plan, &info);
    assert_int_equal(info.n_tactics, 0);
    assert_true(trm_file_exists(cache));
    trm_plan_destroy(plan);
}

/* ---- shapes -------------------------------------------------------------------------------------------- */

/* One run with a batch on new data; gives the output's elements. */
static const void *run_batch(trm_context *context, int64_t batch, uint64_t seed)
{
    static uint16_t x[MOST * CHANNELS * PIXELS];
    trm_dims dims;
    const void *data;
    for (size_t i = 0; i < (size_t)batch * CHANNELS * PIXELS; i++) { /* f16, 1 to 2 */
        x[i] = (uint16_t)(0x3c00 | (test_random(&seed) & 0x3ff));
    }
    assert_ok(trm_context_set_input(context, "x", (trm_dims){4, {batch, CHANNELS, SIZE, SIZE}}, x));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "out", &dims, &data));
    assert_int_equal(dims.d[0], batch * CHANNELS);
    return data;
}

/* More shapes than are kept, in turn and back and forth: the bits of runs that are not captured. */
static void shapes_that_come_again_give_the_same(void **state)
{
    (void)state;
    enum { TURNS = 150 };
    trm_engine *engine;
    trm_context *captured, *plain;
    uint64_t random = test_seed();
    assert_ok(trm_engine_create(build_tuned("", 1, 0, NULL, 2), world, NULL, NULL, &engine));
    assert_ok(trm_context_create(engine, &captured));
    assert_ok(trm_context_create(engine, &plain));
    assert_ok(trm_context_set_capture(captured, true));
    for (int i = 0; i < (test_is_brief() ? 50 : TURNS); i++) {
        const int64_t batch = i < 2 * MOST ? 1 + i % MOST : 1 + (int64_t)(test_random(&random) % MOST);
        for (uint64_t k = 0; k < 1 + test_random(&random) % 3; k++) {
            const void *expected = run_batch(plain, batch, (uint64_t)i + k);
            const void *found = run_batch(captured, batch, (uint64_t)i + k);
            assert_memory_equal(found, expected, (size_t)batch * CHANNELS * INNER * sizeof(uint16_t));
        }
    }
    trm_context_destroy(captured);
    trm_context_destroy(plain);
    trm_engine_destroy(engine);
}

/* ---- streams ------------------------------------------------------------------------------------------- */

enum { LARGEST_INPUT = 16384, LARGEST_OUTPUT = 1 << 20, RUNS = 4 };

/* All outputs of a few runs, captured from the second on, into `to`; returns their bytes. */
static size_t run_random(const trm_network *network, int32_t aux, uint64_t seed, bool captured, unsigned char *to,
                         int32_t *n_streams)
{
    static float data[LARGEST_INPUT];
    trm_shape_bound bounds[16];
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan;
    trm_engine *engine;
    trm_context *context;
    size_t used = 0;
    options.backend = TRM_BACKEND_CUDA;
    options.max_aux_streams = aux;
    for (int32_t i = 0; i < trm_network_input_count(network); i++) {
        const trm_tensor *input = trm_network_input(network, i);
        trm_shape_bound *bound = &bounds[options.n_bounds++];
        *bound = (trm_shape_bound){.tensor = input->name, .max = input->dims};
        for (int32_t k = 0; k < input->dims.n; k++) {
            bound->max.d[k] = input->dims.d[k] < 0 ? 7 : input->dims.d[k];
        }
    }
    options.bounds = bounds;
    assert_ok(trm_build(network, &options, &plan));
    *n_streams = plan->streams.n;
    assert_ok(trm_engine_create(plan, world, NULL, NULL, &engine));
    assert_ok(trm_context_create(engine, &context));
    assert_ok(trm_context_set_capture(context, captured));
    for (int r = 0; r < RUNS; r++) {
        for (int32_t i = 0; i < trm_network_input_count(network); i++) {
            const trm_tensor *input = trm_network_input(network, i);
            trm_dims dims;
            test_random_input(input, 5, seed + (uint64_t)i + (uint64_t)(r / 2), &dims, data);
            assert_ok(trm_context_set_input(context, input->name, dims, data));
        }
        assert_ok(trm_context_run(context));
        for (int32_t i = 0; i < network->n_outputs; i++) {
            trm_dims dims;
            const void *result;
            assert_ok(trm_context_output(context, network->outputs[i]->name, &dims, &result));
            size_t bytes = trm_dims_bytes(&dims, network->outputs[i]->dtype);
            assert_true(used + bytes <= LARGEST_OUTPUT);
            memcpy(to + used, result, bytes);
            used += bytes;
        }
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    return used;
}

/* Branches beside each other give the bits that one stream gives. */
static void streams_change_no_result(void **state)
{
    (void)state;
    static unsigned char expected[LARGEST_OUTPUT], found[LARGEST_OUTPUT];
    uint64_t seed = test_seed();
    int32_t n_streams, beside = 0;
    for (int32_t i = 0; i < (test_is_brief() ? 5 : 60); i++) {
        uint64_t mine = seed + (uint64_t)i;
        trm_network *network = test_random_network(mine, 10 + i % 40);
        size_t size = run_random(network, 0, mine, false, expected, &n_streams);
        assert_int_equal(n_streams, 0);
        for (int captured = 0; captured < 2; captured++) {
            assert_int_equal(run_random(network, 1 + i % 4, mine, captured == 1, found, &n_streams), size);
            if (memcmp(found, expected, size) != 0) {
                fail_msg("network of seed %llu: other results on %d streams", (unsigned long long)mine, n_streams + 1);
            }
        }
        beside += n_streams > 0;
        trm_network_destroy(network);
    }
    print_message("%d networks with branches\n", (int)beside);
    assert_true(beside > 0);
}

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tuned_plans_come_back),        cmocka_unit_test(ranks_are_tuned_alone),
        cmocka_unit_test(what_does_not_fit_is_refused), cmocka_unit_test(tuning_can_be_ended),
        cmocka_unit_test(streams_change_no_result),     cmocka_unit_test(shapes_that_come_again_give_the_same),
    };
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_CUDA;
    if (trm_world_open(&options, &world) != TRM_OK) {
        print_error("%s\n", trm_last_error());
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trm_world_close(world);
    return failed;
}
