/* The public API in wrong hands: every mistake is refused with its cause, and changes nothing. */
#include "support/support.h"

#include "graph/params.h"

#include <pthread.h>

#include <trireme/trireme.h>

#define INVALID TRM_ERROR_INVALID_ARGUMENT

static trm_world *world;

static trm_dims dims(int32_t n, int64_t a, int64_t b)
{
    return (trm_dims){n, {a, b}};
}

/* y = relu(x w'), w twice the identity. */
static trm_network *small_network(void)
{
    enum { WIDTH = 4 };
    float w[WIDTH][WIDTH] = {{2}, {0, 2}, {0, 0, 2}, {0, 0, 0, 2}};
    trm_network *network;
    trm_tensor *x, *weight, *h, *y;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, dims(2, -1, WIDTH), &x));
    assert_ok(trm_network_add_constant(network, "w", TRM_F32, dims(2, WIDTH, WIDTH), w, &weight));
    assert_ok(trm_network_add_matmul(network, "h", x, weight, NULL, true, &h));
    assert_ok(trm_network_add_activation(network, "y", TRM_ACTIVATION_RELU, h, &y));
    assert_ok(trm_network_mark_output(network, y));
    return network;
}

static trm_plan *small_plan(trm_network *network)
{
    const trm_shape_bound bound = {.tensor = "x", .max = {2, {8, 4}}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.bounds = &bound;
    options.n_bounds = 1;
    trm_plan *plan;
    assert_ok(trm_build(network, &options, &plan));
    return plan;
}

static void test_nothing_is_destroyed(void **state)
{
    (void)state;
    trm_network_destroy(NULL);
    trm_plan_destroy(NULL);
    trm_engine_destroy(NULL);
    trm_context_destroy(NULL);
    trm_generator_destroy(NULL);
    trm_model_close(NULL);
    trm_tokenizer_close(NULL);
    trm_decoder_destroy(NULL);
    trm_world_close(NULL);
    trm_world_abort(NULL, TRM_ERROR_INTERNAL);
    trm_tokens_fini(NULL);
    trm_free(NULL);
}

static void test_words(void **state)
{
    (void)state;
    assert_string_equal(trm_status_name((trm_status)-1), "unknown status");
    assert_string_equal(trm_status_name((trm_status)99), "unknown status");
    assert_int_equal(trm_status_exit_code((trm_status)99), 1);
    assert_string_equal(trm_dtype_name((trm_dtype)-1), "invalid");
    assert_int_equal(trm_dtype_size(TRM_DTYPE_COUNT), 0);
    assert_string_equal(trm_layer_kind_name(TRM_LAYER_KIND_COUNT), "invalid");
    assert_string_equal(trm_layer_kind_name((trm_layer_kind)-1), "invalid");
    assert_non_null(trm_backend_name((trm_backend)7));
    assert_null(trm_model_preset_name(-1));
    assert_null(trm_model_preset_name(1000));
}

static void test_network_refuses(void **state)
{
    (void)state;
    trm_network *network = small_network(), *other = small_network();
    char *before = trm_network_to_text(network);
    trm_tensor *x = trm_network_find_tensor(network, "x"), *y = trm_network_output(network, 0), *t = NULL;
    trm_tensor *foreign = trm_network_find_tensor(other, "x");
    assert_fails(trm_network_create(NULL), INVALID, "NULL");
    assert_fails(trm_network_add_input(NULL, "a", TRM_F32, dims(1, 2, 0), &t), INVALID, "NULL");
    assert_fails(trm_network_add_input(network, "a", TRM_F32, dims(1, 2, 0), NULL), INVALID, "NULL");
    assert_fails(trm_network_add_input(network, "a", TRM_DTYPE_NONE, dims(1, 2, 0), &t), INVALID, "type");
    assert_fails(trm_network_add_input(network, "a", (trm_dtype)77, dims(1, 2, 0), &t), INVALID, "type");
    assert_fails(trm_network_add_input(network, "a", TRM_F32, dims(9, 2, 0), &t), INVALID, "9 dimensions");
    assert_fails(trm_network_add_input(network, "a", TRM_F32, dims(-1, 2, 0), &t), INVALID, "dimensions");
    assert_fails(trm_network_add_input(network, "a", TRM_F32, dims(1, -2, 0), &t), INVALID, "dims");
    assert_fails(trm_network_add_state(network, "a", TRM_F32, dims(2, INT64_MAX, INT64_MAX), &t), INVALID, "memory");
    assert_fails(trm_network_add_constant(network, "a", TRM_F32, dims(1, 2, 0), NULL, &t), INVALID, "no data");
    assert_fails(trm_network_add_constant(network, "a", TRM_F32, dims(1, -1, 0), "", &t), INVALID, "known sizes");
    assert_fails(trm_network_add_matmul(network, "a", x, NULL, NULL, false, &t), INVALID, "a");
    assert_fails(trm_network_add_matmul(network, "a", NULL, x, NULL, false, &t), INVALID, "a");
    assert_fails(trm_network_add_matmul(network, "a", x, foreign, NULL, false, &t), INVALID, "another network");
    assert_fails(trm_network_add_matmul(network, "a", x, x, NULL, false, NULL), INVALID, "NULL");
    assert_fails(trm_network_add_elementwise(network, "a", (trm_elementwise_op)50, x, x, &t), INVALID, "op");
    assert_fails(trm_network_add_activation(network, "a", (trm_activation)-3, x, &t), INVALID, "activation");
    assert_fails(trm_network_add_reshape(network, "a", x, dims(9, 1, 1), &t), INVALID, "dimensions");
    assert_fails(trm_network_add_collective(network, "a", NULL, x, &t), INVALID, "NULL");
    assert_fails(trm_network_add_layer(network, "a", NULL, &x, 1, &t), INVALID, "NULL");
    trm_layer_desc desc = {.kind = TRM_LAYER_KIND_COUNT};
    assert_fails(trm_network_add_layer(network, "a", &desc, &x, 1, &t), INVALID, "kind");
    desc.kind = (trm_layer_kind)-1;
    assert_fails(trm_network_add_layer(network, "a", &desc, &x, 1, &t), INVALID, "kind");
    desc.kind = TRM_LAYER_SOFTMAX;
    assert_fails(trm_network_add_layer(network, "a", &desc, &x, -1, &t), INVALID, "inputs");
    assert_fails(trm_network_add_layer(network, "a", &desc, &x, 17, &t), INVALID, "inputs");
    assert_fails(trm_network_add_layer(network, "a", &desc, NULL, 1, &t), INVALID, "inputs");
    assert_fails(trm_network_mark_output(network, y), INVALID, "already");
    assert_fails(trm_network_mark_output(network, foreign), INVALID, "another network");
    assert_fails(trm_network_mark_output(network, NULL), INVALID, "NULL");
    assert_fails(trm_network_pin(network, x, "split"), INVALID, "expected");
    assert_fails(trm_network_pin(network, x, "split 2"), INVALID, "axis");
    assert_fails(trm_network_pin(network, x, "split 1 2"), INVALID, "expected");
    assert_fails(trm_network_pin(network, foreign, "replicate"), INVALID, "another network");
    assert_null(trm_network_find_tensor(network, "nobody"));
    assert_null(trm_network_find_tensor(network, NULL));
    assert_null(trm_network_input(network, 1));
    assert_null(trm_network_input(network, -1));
    assert_null(trm_network_output(network, -1));
    assert_null(trm_network_output(network, 1));
    char *after = trm_network_to_text(network);
    assert_string_equal(before, after);
    assert_null(t);
    trm_free(before);
    trm_free(after);
    trm_network_destroy(network);
    trm_network_destroy(other);
}

/* Small numbers, extremes, and the sizes of the tensors at hand. */
static int32_t odd_number(uint64_t *random)
{
    static const int32_t numbers[] = {0, 1, 2, 3, 4, 8, 64, -1, -2, 65, INT32_MAX, INT32_MIN};
    return numbers[test_random_below(random, sizeof(numbers) / sizeof(numbers[0]))];
}

/* A desc of a kind with arbitrary words in it, except its bools, which can only be 0 or 1. */
static trm_layer_desc odd_desc(uint64_t *random)
{
    trm_layer_desc desc;
    int32_t *words = (int32_t *)(void *)&desc;
    for (size_t i = 0; i < sizeof(desc) / sizeof(*words); i++) {
        words[i] = test_random_below(random, 8) == 0 ? odd_number(random) : (int32_t)test_random_below(random, 2);
    }
    desc.kind = (trm_layer_kind)test_random_below(random, TRM_LAYER_KIND_COUNT);
    int32_t n;
    const trm_field *fields = trm_layer_fields(desc.kind, &n);
    for (int32_t i = 0; i < n; i++) {
        bool value = test_random_below(random, 2) == 0;
        if (fields[i].type == TRM_FIELD_BOOL) {
            memcpy((unsigned char *)&desc + fields[i].offset, &value, sizeof(value));
        }
    }
    return desc;
}

/* Whatever is put into a desc, adding it succeeds or is refused, and what was added can be shown and built or refused.
 */
static void test_odd_layers(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    int32_t added = 0;
    for (int32_t turn = 0; turn < 600; turn++) {
        trm_network *network;
        assert_ok(trm_network_create(&network));
        trm_tensor *tensors[32];
        int32_t n = 0;
        for (; n < 6; n++) {
            static const trm_dtype types[] = {TRM_F32, TRM_F32, TRM_I32, TRM_BF16, TRM_BOOL, TRM_I64};
            trm_dims d = {(int32_t)test_random_below(&random, 5), {0}};
            for (int32_t i = 0; i < d.n; i++) {
                d.d[i] = (int64_t[]){1, 2, 4, 8, 0}[test_random_below(&random, 5)];
            }
            assert_ok(trm_network_add_input(network, "in", types[n], d, &tensors[n]));
        }
        for (int32_t i = 0; i < 40 && n < 28; i++) {
            trm_layer_desc desc = odd_desc(&random);
            trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT], *outputs[TRM_MAX_LAYER_OUTPUTS];
            int32_t n_inputs = 1 + (int32_t)test_random_below(&random, desc.kind == TRM_LAYER_ATTENTION ? 9 : 3);
            for (int32_t j = 0; j < n_inputs; j++) {
                inputs[j] = test_random_below(&random, 12) == 0 ? NULL : tensors[test_random_below(&random, n)];
            }
            if (trm_network_add_layer(network, "layer", &desc, inputs, n_inputs, outputs) == TRM_OK) {
                tensors[n++] = outputs[0];
                added++;
            }
        }
        trm_status marked = trm_network_mark_output(network, tensors[n - 1]);
        char *text = trm_network_to_text(network);
        trm_build_options options = TRM_BUILD_OPTIONS_INIT;
        options.backend = TRM_BACKEND_HOST;
        trm_plan *plan = NULL;
        if (marked == TRM_OK && trm_build(network, &options, &plan) != TRM_OK) {
            assert_string_not_equal(trm_last_error(), "");
        }
        trm_plan_destroy(plan);
        trm_free(text);
        trm_network_destroy(network);
    }
    print_message("%d layers were accepted\n", (int)added);
    assert_true(added > 500);
}

static void count_stages(void *user, const char *stage, const trm_network *network)
{
    static const char *const names[] = {"import", "passes", "partition", "final"};
    int *count = user;
    assert_true(*count < 4);
    assert_string_equal(stage, names[*count]);
    assert_true(trm_network_layer_count(network) > 0);
    ++*count;
}

static void test_build_refuses(void **state)
{
    (void)state;
    trm_network *network = small_network();
    trm_plan *plan = NULL;
    trm_shape_bound bounds[] = {{.tensor = "x", .max = {2, {8, 4}}}, {.tensor = "nobody", .max = {1, {8}}}};
    trm_build_options good = TRM_BUILD_OPTIONS_INIT, bad;
    good.backend = TRM_BACKEND_HOST;
    good.bounds = bounds;
    good.n_bounds = 1;
    assert_fails(trm_build(NULL, &good, &plan), INVALID, "NULL");
    assert_fails(trm_build(network, NULL, &plan), INVALID, "NULL");
    assert_fails(trm_build(network, &good, NULL), INVALID, "NULL");
    bad = good;
    bad.size = 0;
    assert_fails(trm_build(network, &bad, &plan), INVALID, "size 0");
    bad = good;
    bad.backend = (trm_backend)5;
    assert_fails(trm_build(network, &bad, &plan), INVALID, "backend 5");
    bad = good;
    bad.n_bounds = -1;
    assert_fails(trm_build(network, &bad, &plan), INVALID, "-1 bounds");
    bad = good;
    bad.bounds = NULL;
    assert_fails(trm_build(network, &bad, &plan), INVALID, "bounds");
    bad = good;
    bad.n_bounds = 0;
    assert_fails(trm_build(network, &bad, &plan), INVALID, "input x has unknown dimensions and no bound");
    bad = good;
    bad.n_bounds = 2;
    assert_fails(trm_build(network, &bad, &plan), INVALID, "nobody");
    bounds[1].tensor = NULL;
    assert_fails(trm_build(network, &bad, &plan), INVALID, "bound");
    bounds[1].tensor = "w";
    assert_fails(trm_build(network, &bad, &plan), INVALID, "not an input or state");
    bounds[0].max.d[1] = 5;
    assert_fails(trm_build(network, &good, &plan), INVALID, "bound of x has 5 at dimension 1, expected 4");
    bounds[0].max = dims(1, 4, 0);
    assert_fails(trm_build(network, &good, &plan), INVALID, "1 dimensions");
    bounds[0].max = dims(2, -1, 4);
    assert_fails(trm_build(network, &good, &plan), INVALID, "expected a size");
    bounds[0].max = dims(2, INT64_MAX / 4, 4);
    assert_int_not_equal(trm_build(network, &good, &plan), TRM_OK);
    bounds[0].max = dims(2, 8, 4);
    bad = good;
    bad.mesh = (trm_mesh){{-1}};
    assert_fails(trm_build(network, &bad, &plan), INVALID, "axis of size -1");
    bad = good;
    bad.rank = 1;
    assert_fails(trm_build(network, &bad, &plan), INVALID, "rank 1");
    bad.rank = -1;
    assert_fails(trm_build(network, &bad, &plan), INVALID, "rank -1");
    assert_null(plan);
    int stages = 0;
    good.on_stage = count_stages;
    good.stage_user = &stages;
    assert_ok(trm_build(network, &good, &plan));
    assert_int_equal(stages, 4);
    trm_network_destroy(network); /* the plan lives on */
    char *text = trm_plan_to_text(plan);
    assert_non_null(strstr(text, "output y"));
    trm_free(text);
    assert_null(trm_plan_to_text(NULL));
    trm_memory_plan memory;
    trm_plan_memory(plan, &memory);
    assert_true(memory.weights >= 64 && memory.activations >= 128);
    assert_int_equal(memory.total, memory.weights + memory.state + memory.activations + memory.workspace);
    trm_plan_destroy(plan);
}

/* A network may say it, but no kernel does it. */
static void test_context_parallel_needs_ranks(void **state)
{
    (void)state;
    static const trm_dims padded = {4, {1, 2, 8, 16}};
    trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_network *network;
    trm_tensor *inputs[3], *y;
    trm_plan *plan = NULL;
    desc.attention.form = TRM_ATTENTION_PADDED_BHND;
    assert_ok(trm_network_create(&network));
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"q", "k", "v"};
        assert_ok(trm_network_add_input(network, names[i], TRM_F32, padded, &inputs[i]));
    }
    desc.attention.n_ranks = 65;
    assert_fails(trm_network_add_layer(network, "attention", &desc, inputs, 3, &y), INVALID, "n_ranks is 65");
    desc.attention.n_ranks = 2;
    assert_ok(trm_network_add_layer(network, "attention", &desc, inputs, 3, &y));
    assert_ok(trm_network_mark_output(network, y));
    assert_fails(trm_build(network, &options, &plan), INVALID,
                 "layer attention: n_ranks is 2, expected the 1 ranks of the mesh or the 1 along its axis cp");
    assert_null(plan);
    trm_network_destroy(network);
}

static void test_engine_refuses(void **state)
{
    (void)state;
    trm_network *network = small_network();
    trm_engine *engine = NULL;
    const trm_shape_bound bound = {.tensor = "x", .max = {2, {8, 4}}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.bounds = &bound;
    options.n_bounds = 1;
    trm_plan *plan;
    assert_fails(trm_engine_create(NULL, world, NULL, NULL, &engine), INVALID, "NULL");
    /* The plan is taken over also where it is refused: a leak, or a second destruction, shows under the sanitizers. */
    assert_fails(trm_engine_create(small_plan(network), NULL, NULL, NULL, &engine), INVALID, "NULL");
    assert_fails(trm_engine_create(small_plan(network), world, NULL, NULL, NULL), INVALID, "NULL");
    options.mesh.size[TRM_AXIS_TP] = 2;
    assert_ok(trm_build(network, &options, &plan));
    assert_fails(trm_engine_create(plan, world, NULL, NULL, &engine), INVALID, "mesh of 2 ranks, the world has 1");
    options.rank = 1;
    assert_ok(trm_build(network, &options, &plan));
    assert_fails(trm_engine_create(plan, world, NULL, NULL, &engine), INVALID, "rank 1");
    assert_null(engine);
    trm_context *context = NULL;
    assert_fails(trm_context_create(NULL, &context), INVALID, "NULL");
    assert_ok(trm_engine_create(small_plan(network), world, NULL, NULL, &engine));
    assert_fails(trm_context_create(engine, NULL), INVALID, "NULL");
    trm_engine_destroy(engine);
    trm_network_destroy(network);
}

static void count_profile(void *user, const char *layer, trm_layer_kind kind, const char *kernel, double milliseconds,
                          int64_t runs)
{
    assert_true(layer != NULL && kernel != NULL && trm_layer_kind_name(kind) != NULL && milliseconds >= 0);
    assert_int_equal(runs, 2);
    ++*(int *)user;
}

static void test_context_refuses(void **state)
{
    (void)state;
    trm_network *network = small_network();
    assert_ok(trm_network_mark_output(network, trm_network_find_tensor(network, "x"))); /* an input may be an output */
    trm_engine *engine;
    trm_context *context;
    assert_ok(trm_engine_create(small_plan(network), world, NULL, NULL, &engine));
    assert_ok(trm_context_create(engine, &context));
    float x[32];
    for (int i = 0; i < 32; i++) {
        x[i] = (float)(i - 5);
    }
    trm_dims d;
    const void *data = NULL;
    assert_fails(trm_context_run(NULL), INVALID, "NULL");
    assert_fails(trm_context_reset(NULL), INVALID, "NULL");
    assert_fails(trm_context_set_layer_timing(NULL, true), INVALID, "NULL");
    assert_fails(trm_context_set_input(NULL, "x", dims(2, 1, 4), x), INVALID, "NULL");
    assert_fails(trm_context_run(context), INVALID, "input x is not set");
    assert_fails(trm_context_output(context, "y", &d, &data), INVALID, "no run");
    assert_fails(trm_context_set_input(context, NULL, dims(2, 1, 4), x), INVALID, "NULL");
    assert_fails(trm_context_set_input(context, "y", dims(2, 1, 4), x), INVALID, "no input y");
    assert_fails(trm_context_set_input(context, "w", dims(2, 4, 4), x), INVALID, "no input w");
    assert_fails(trm_context_set_input(context, "x", dims(2, 9, 4), x), INVALID, "expected at most 8");
    assert_fails(trm_context_set_input(context, "x", dims(2, -1, 4), x), INVALID, "-1");
    assert_fails(trm_context_set_input(context, "x", dims(2, 1, 3), x), INVALID, "expected exactly 4");
    assert_fails(trm_context_set_input(context, "x", dims(1, 4, 0), x), INVALID, "1 dimensions");
    assert_fails(trm_context_set_input(context, "x", dims(99, 4, 4), x), INVALID, "99 dimensions");
    assert_fails(trm_context_set_input(context, "x", dims(2, 1, 4), NULL), INVALID, "no data");
    assert_fails(trm_context_run(context), INVALID, "input x is not set"); /* nothing of this set it */
    assert_ok(trm_context_set_input(context, "x", dims(2, 2, 4), x));
    assert_ok(trm_context_run(context));
    assert_fails(trm_context_output(context, "z", &d, &data), INVALID, "no output z");
    assert_fails(trm_context_output(context, "h", &d, &data), INVALID, "no output h");
    assert_fails(trm_context_output(context, "y", NULL, &data), INVALID, "NULL");
    assert_fails(trm_context_output(context, "y", &d, NULL), INVALID, "NULL");
    assert_null(data);
    assert_ok(trm_context_output(context, "y", &d, &data));
    assert_true(d.n == 2 && d.d[0] == 2 && d.d[1] == 4);
    for (int i = 0; i < 8; i++) {
        assert_true(((const float *)data)[i] == (x[i] > 0 ? 2 * x[i] : 0));
    }
    /* Inputs of the next run do not change the outputs of the last. */
    assert_ok(trm_context_set_input(context, "x", dims(2, 8, 4), x));
    assert_ok(trm_context_output(context, "x", &d, &data));
    assert_int_equal(d.d[0], 2);
    assert_memory_equal(data, x, 8 * sizeof(*x));
    /* No rows at all. */
    assert_ok(trm_context_set_input(context, "x", dims(2, 0, 4), NULL));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &d, &data));
    assert_int_equal(d.d[0], 0);
    int layers = 0;
    trm_context_layer_times(context, count_profile, &layers);
    assert_int_equal(layers, 0);
    assert_ok(trm_context_set_layer_timing(context, true));
    trm_context_layer_times(context, count_profile, &layers);
    assert_int_equal(layers, 0);
    assert_ok(trm_context_set_input(context, "x", dims(2, 3, 4), x));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_run(context));
    trm_context_layer_times(context, count_profile, &layers);
    assert_true(layers >= 1);
    assert_ok(trm_context_set_layer_timing(context, false));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
}

static void test_exchange_refuses(void **state)
{
    (void)state;
    int32_t from[4] = {1, 2, 3, 4}, to[4] = {0};
    trm_collective_params p = {.op = TRM_ALL_REDUCE, .reduce = TRM_REDUCE_SUM};
    assert_fails(trm_world_collective(NULL, &p, TRM_I32, from, to, 4, false), INVALID, "NULL");
    assert_fails(trm_world_collective(world, NULL, TRM_I32, from, to, 4, false), INVALID, "NULL");
    assert_fails(trm_world_collective(world, &p, TRM_I32, NULL, to, 4, false), INVALID, "no buffer");
    assert_fails(trm_world_collective(world, &p, (trm_dtype)70, from, to, 4, false), INVALID, "type");
    assert_fails(trm_world_collective(world, &p, TRM_I32, from, to, SIZE_MAX / 2, false), INVALID, "too large");
    p.reduce = TRM_REDUCE_NONE;
    assert_fails(trm_world_collective(world, &p, TRM_I32, from, to, 4, false), INVALID, "reduce");
    p = (trm_collective_params){.op = (trm_collective_op)44};
    assert_fails(trm_world_collective(world, &p, TRM_I32, from, to, 4, false), INVALID, "op 44");
    p = (trm_collective_params){.op = TRM_BROADCAST, .root = 1};
    assert_fails(trm_world_collective(world, &p, TRM_I32, from, to, 4, false), INVALID, "root 1");
    p = (trm_collective_params){.op = TRM_SEND, .root = 0};
    assert_fails(trm_world_collective(world, &p, TRM_I32, from, to, 4, false), INVALID, "itself");
    p = (trm_collective_params){.op = TRM_ALL_GATHER, .n_groups = 1, .group_size = 1, .groups = {3}};
    assert_fails(trm_world_collective(world, &p, TRM_I32, from, to, 4, false), INVALID, "rank 3");
    p.group_size = 1000;
    assert_fails(trm_world_collective(world, &p, TRM_I32, from, to, 4, false), INVALID, "1000");
    p = (trm_collective_params){.op = TRM_ALL_GATHER};
    assert_ok(trm_world_collective(world, &p, TRM_I32, from, to, 4, false));
    assert_memory_equal(from, to, sizeof(from));
    assert_fails(trm_world_broadcast(NULL, to, 4, 0), INVALID, "NULL");
    assert_fails(trm_world_broadcast(world, NULL, 4, 0), INVALID, "no buffer");
    assert_fails(trm_world_all_ok(NULL, TRM_OK), INVALID, "NULL");
    assert_ok(trm_world_all_ok(world, TRM_OK));
}

static void test_world_and_mesh_refuse(void **state)
{
    (void)state;
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    trm_world *second = NULL;
    assert_fails(trm_world_open(&options, NULL), INVALID, "NULL");
    options.size--;
    assert_fails(trm_world_open(&options, &second), INVALID, "size");
    options = TRM_WORLD_OPTIONS_INIT;
    options.backend = (trm_backend)9;
    assert_fails(trm_world_open(&options, &second), INVALID, "backend 9");
    options = TRM_WORLD_OPTIONS_INIT;
    options.threads = -1;
    assert_fails(trm_world_open(&options, &second), INVALID, "-1 threads");
    options = TRM_WORLD_OPTIONS_INIT;
    options.replica = options.replicas = 2;
    assert_fails(trm_world_open(&options, &second), INVALID, "replica 2 of 2");
    options.replica = -1;
    assert_fails(trm_world_open(&options, &second), INVALID, "replica -1 of 2");
    options = TRM_WORLD_OPTIONS_INIT;
    options.deadline_seconds = -1;
    assert_fails(trm_world_open(&options, &second), INVALID, "deadline");
    options = TRM_WORLD_OPTIONS_INIT;
    setenv("TRIREME_EXCHANGE", "carrier pigeon", 1);
    assert_fails(trm_world_open(&options, &second), INVALID, "\"carrier pigeon\", expected auto, peer or nccl");
    unsetenv("TRIREME_EXCHANGE");
    assert_null(second);
    trm_mesh mesh = {{1, 1, 1, 1, 1}}, zero = {{0}};
    assert_fails(trm_mesh_parse("tp=2", 2, NULL), INVALID, "NULL");
    assert_fails(trm_mesh_parse("tp=2", 0, &mesh), INVALID, "0 ranks");
    int32_t ranks[TRM_MAX_RANKS] = {-7};
    assert_int_equal(trm_mesh_coordinate(&mesh, TRM_AXIS_TP, 1), -1);
    assert_int_equal(trm_mesh_coordinate(&mesh, TRM_AXIS_TP, -1), -1);
    assert_int_equal(trm_mesh_coordinate(&mesh, TRM_AXIS_COUNT, 0), -1);
    assert_int_equal(trm_mesh_coordinate(&zero, TRM_AXIS_TP, 0), -1);
    trm_mesh_group(&mesh, (trm_axis)-1, 0, ranks);
    trm_mesh_group(&zero, TRM_AXIS_TP, 0, ranks);
    assert_int_equal(ranks[0], -7);
    trm_mesh_group(&mesh, TRM_AXIS_TP, 0, ranks);
    assert_int_equal(ranks[0], 0);
}

static void test_models_refuse(void **state)
{
    (void)state;
    trm_model *model = NULL;
    trm_network *network = NULL;
    trm_generator *generator = NULL;
    trm_plan *plan = NULL;
    int64_t tokens;
    assert_fails(trm_model_open(NULL, &model), INVALID, "model");
    assert_fails(trm_model_open("", &model), INVALID, "model");
    assert_fails(trm_model_open(TRM_SOURCE_DIR "/configs/models/kjv-7m", NULL), INVALID, "model");
    assert_fails(trm_model_open_preset(NULL, 0, 0, &model), INVALID, "model");
    assert_fails(trm_model_open_preset("llama-0", 0, 0, &model), INVALID, "llama-0");
    assert_ok(trm_model_open(TRM_SOURCE_DIR "/configs/models/kjv-7m", &model));
    trm_model_experts experts = TRM_MODEL_EXPERTS_INIT;
    assert_fails(trm_model_get_experts(NULL, &experts), INVALID, "NULL");
    assert_fails(trm_model_get_experts(model, NULL), INVALID, "NULL");
    assert_fails(trm_model_build_network(NULL, TRM_F32, &network), INVALID, "NULL");
    assert_fails(trm_model_build_network(model, TRM_F32, NULL), INVALID, "NULL");
    assert_fails(trm_model_build_network(model, TRM_I32, &network), INVALID, "i32");
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_build_options build = TRM_BUILD_OPTIONS_INIT;
    build.backend = TRM_BACKEND_HOST;
    assert_fails(trm_generator_create(NULL, world, &options, &generator), INVALID, "NULL");
    assert_fails(trm_generator_create(model, NULL, &options, &generator), INVALID, "NULL");
    assert_fails(trm_generator_create(model, world, NULL, &generator), INVALID, "NULL");
    assert_fails(trm_generator_create(model, world, &options, NULL), INVALID, "NULL");
    assert_fails(trm_generator_plan(model, &options, NULL, &plan, &tokens), INVALID, "NULL");
    assert_fails(trm_generator_plan(model, NULL, &build, &plan, &tokens), INVALID, "NULL");
    build.size = 3;
    assert_fails(trm_generator_plan(model, &options, &build, &plan, &tokens), INVALID, "size 3");
    options.size = 0;
    assert_fails(trm_generator_create(model, world, &options, &generator), INVALID, "size 0");
    options = TRM_GENERATOR_OPTIONS_INIT;
    options.max_sequences = -1;
    assert_fails(trm_generator_create(model, world, &options, &generator), INVALID, "negative");
    options = TRM_GENERATOR_OPTIONS_INIT;
    options.mesh.size[TRM_AXIS_TP] = 2;
    assert_fails(trm_generator_create(model, world, &options, &generator), INVALID, "mesh of 2 ranks");
    options = TRM_GENERATOR_OPTIONS_INIT;
    options.dtype = TRM_U8;
    assert_fails(trm_generator_create(model, world, &options, &generator), INVALID, "u8");
    assert_null(generator);
    options = TRM_GENERATOR_OPTIONS_INIT;
    options.max_context = 32;
    assert_ok(trm_generator_create(model, world, &options, &generator));
    trm_request request = {.n_prompt = 1, .max_tokens = 1, .sampling = TRM_SAMPLING_INIT};
    assert_fails(trm_generate(generator, &request, 1, NULL, NULL, NULL), INVALID, "0 prompt tokens");
    assert_fails(trm_generate(generator, NULL, 1, NULL, NULL, NULL), INVALID, "NULL");
    assert_fails(trm_generate(generator, &request, -1, NULL, NULL, NULL), INVALID, "-1");
    assert_fails(trm_generate(NULL, &request, 1, NULL, NULL, NULL), INVALID, "NULL");
    assert_ok(trm_generate(generator, NULL, 0, NULL, NULL, NULL));
    static const int32_t prompt = 5;
    request.prompt = &prompt;
    assert_ok(trm_generate(generator, &request, 1, NULL, NULL, NULL));
    assert_int_equal(request.n_generated, 1);
    trm_generator_destroy(generator);
    trm_model_close(model);
}

static void test_tokenizers_refuse(void **state)
{
    (void)state;
    trm_tokenizer *tokenizer = NULL;
    trm_decoder *decoder = NULL;
    trm_tokens tokens = {0};
    char *text = NULL;
    const char *part;
    size_t size;
    assert_fails(trm_tokenizer_open(NULL, &tokenizer), INVALID, "");
    assert_fails(trm_tokenizer_open(TRM_SOURCE_DIR "/configs/models/kjv-7m", NULL), INVALID, "");
    assert_ok(trm_tokenizer_open(TRM_SOURCE_DIR "/configs/models/kjv-7m", &tokenizer));
    assert_fails(trm_tokenizer_encode(NULL, "a", 1, true, &tokens), INVALID, "");
    assert_fails(trm_tokenizer_encode(tokenizer, NULL, 1, true, &tokens), INVALID, "");
    assert_fails(trm_tokenizer_encode(tokenizer, "a", 1, true, NULL), INVALID, "");
    assert_fails(trm_tokenizer_decode(tokenizer, NULL, 1, true, &text, &size), INVALID, "");
    assert_fails(trm_tokenizer_decode(NULL, NULL, 0, true, &text, &size), INVALID, "");
    assert_fails(trm_decoder_create(NULL, true, &decoder), INVALID, "");
    assert_fails(trm_decoder_create(tokenizer, true, NULL), INVALID, "");
    assert_fails(trm_decoder_push(NULL, 1, &part, &size), INVALID, "");
    assert_fails(trm_decoder_finish(NULL, &part, &size), INVALID, "");
    assert_ok(trm_tokenizer_encode(tokenizer, NULL, 0, false, &tokens));
    assert_int_equal(tokens.count, 0);
    trm_tokens_fini(&tokens);
    trm_tokens_fini(&tokens);
    const int32_t ids[] = {-1, INT32_MAX, INT32_MIN};
    assert_ok(trm_tokenizer_decode(tokenizer, ids, 3, false, &text, &size));
    assert_int_equal(size, 0);
    trm_free(text);
    assert_null(trm_tokenizer_token(tokenizer, -1));
    assert_null(trm_tokenizer_token(tokenizer, INT32_MAX));
    assert_int_equal(trm_tokenizer_find(tokenizer, "no such token at all"), -1);
    trm_tokenizer_close(tokenizer);
}

static void *fail_elsewhere(void *user)
{
    (void)user;
    assert_string_equal(trm_last_error(), ""); /* nothing failed on this thread yet */
    assert_fails(trm_network_create(NULL), INVALID, "network is NULL");
    return NULL;
}

static void test_error_record_is_per_thread(void **state)
{
    (void)state;
    assert_fails(trm_mesh_parse("xp=2", 2, &(trm_mesh){{1, 1, 1, 1, 1}}), INVALID, "xp");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_non_null(strstr(trm_last_error(), "xp"));
}

int main(void)
{
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    if (trm_world_open(&options, &world) != TRM_OK) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_destroyed),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_network_refuses),
        cmocka_unit_test(test_odd_layers),
        cmocka_unit_test(test_build_refuses),
        cmocka_unit_test(test_context_parallel_needs_ranks),
        cmocka_unit_test(test_engine_refuses),
        cmocka_unit_test(test_context_refuses),
        cmocka_unit_test(test_exchange_refuses),
        cmocka_unit_test(test_world_and_mesh_refuse),
        cmocka_unit_test(test_models_refuse),
        cmocka_unit_test(test_tokenizers_refuse),
        cmocka_unit_test(test_error_record_is_per_thread),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trm_world_close(world);
    return failed;
}
