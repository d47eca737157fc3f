/* Chains of elementwise layers as one layer: text before and after, the numbers of both, and what must stay. */
#include <time.h>

#include "graph/check_pass.h"

#define ADD TRM_ELEMENTWISE_ADD
#define MUL TRM_ELEMENTWISE_MUL

static trm_tensor *cast(trm_network *network, const char *name, trm_dtype to, trm_tensor *x)
{
    return net_layer(network, name, (trm_layer_desc){.kind = TRM_LAYER_CAST, .cast = {.to = to}}, x, NULL, NULL, NULL);
}

static trm_tensor *scalar(trm_network *network, float value)
{
    trm_tensor *tensor = NULL;
    assert_ok(trm_network_add_constant(network, "c", TRM_F32, (trm_dims){0}, &value, &tensor));
    return tensor;
}

static void a_chain_becomes_one_layer(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 3, 4)), *w = net_values(network, "w", DIMS(4));
    trm_tensor *a = net_binary(network, "a", MUL, x, w);
    trm_tensor *b =
        net_binary(network, "b", ADD, scalar(network, 0.5f), net_unary(network, "r", TRM_ACTIVATION_TANH, a));
    trm_layer_desc clip = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_CLIP, .alpha = -1, .beta = 1}};
    net_output(network, net_layer(network, "y", clip, b, NULL, NULL, NULL));
    check_pass(network, trm_pass_fuse_elementwise,
               "y: f32 [?, 3, 4] = fused_elementwise(x, w) steps=[f32 mul(i0, i1), f32 tanh(s0), f32 value(0.5), "
               "f32 add(s2, s1), f32 clip(s3; -1, 1)]\n"
               "output y\n");
}

/* Select by a comparison, a cast there and back, a gated unit, one column that is repeated. */
static void types_and_broadcasts(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(5, 4)), *z = net_input(network, "z", TRM_F32, DIMS(5, 4));
    trm_tensor *column = net_input(network, "column", TRM_F32, DIMS(5, 1));
    trm_layer_desc glu = {.kind = TRM_LAYER_GLU, .glu = {TRM_ACTIVATION_SILU}};
    trm_tensor *gated = net_layer(network, "gated", glu, x, z, NULL, NULL);
    trm_tensor *less = net_binary(network, "less", TRM_ELEMENTWISE_LESS, gated, column);
    trm_tensor *h = cast(network, "h", TRM_F16, gated);
    trm_tensor *chosen = net_layer(network, "chosen", (trm_layer_desc){.kind = TRM_LAYER_SELECT}, less,
                                   cast(network, "wide", TRM_F32, h), z, NULL);
    net_output(network, chosen);
    check_pass(network, trm_pass_fuse_elementwise,
               "chosen: f32 [5, 4] = fused_elementwise(x, z, column) steps=[f32 silu(i0), f32 mul(s0, i1), "
               "bool less(s1, i2), f16 cast(s1), f32 cast(s3), f32 select(s2, s4, i1)]\n"
               "output chosen\n");
}

static void what_others_read_is_an_output(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    trm_tensor *a = net_unary(network, "a", TRM_ACTIVATION_RELU, x);
    trm_tensor *b = net_unary(network, "b", TRM_ACTIVATION_TANH, a);
    trm_tensor *later = net_linear(network, "later", a, net_weight(network, "w", DIMS(3, 4), 1));
    net_output(network, later);
    net_output(network, b);
    check_pass(network, trm_pass_fuse_elementwise,
               "a: f32 [?, 4], b: f32 [?, 4] = fused_elementwise(x) steps=[f32 relu(i0), f32 tanh(s0)] outputs=[0, 1] "
               "# b\n"
               "later: f32 [?, 3] = matmul(a, w) transpose_b\n"
               "output later\n"
               "output b\n");
}

/* A product between two layers: its result is read by the later one, so the earlier one cannot move behind it. */
static void what_a_layer_between_reads_stays(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(4, 4));
    trm_tensor *a = net_unary(network, "a", TRM_ACTIVATION_RELU, x);
    trm_tensor *p = net_linear(network, "p", a, net_weight(network, "w", DIMS(4, 4), 1));
    net_output(network, net_binary(network, "y", ADD, a, p));
    check_pass(network, trm_pass_fuse_elementwise, NULL);
}

/* A gate by channel: computed again for every element of its channel. */
static void small_layers_join_their_reader(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(4, 1)), *z = net_input(network, "z", TRM_F32, DIMS(4, 4));
    net_output(network, net_binary(network, "y", MUL, net_unary(network, "gate", TRM_ACTIVATION_SIGMOID, x), z));
    check_pass(network, trm_pass_fuse_elementwise,
               "y: f32 [4, 4] = fused_elementwise(x, z) steps=[f32 sigmoid(i0), f32 mul(s0, i1)]\noutput y\n");

    network = net_create();
    x = net_input(network, "x", TRM_F32, DIMS(-1));
    z = net_input(network, "z", TRM_F32, DIMS(-1));
    net_output(network, net_binary(network, "y", ADD, net_unary(network, "a", TRM_ACTIVATION_TANH, x), z));
    check_pass(network, trm_pass_fuse_elementwise,
               "y: f32 [?] = fused_elementwise(x, z) steps=[f32 tanh(i0), f32 add(s0, i1)]\noutput y\n");

    network = net_create(); /* one that others read cannot be an output beside a larger one */
    x = net_input(network, "x", TRM_F32, DIMS(4, 1));
    z = net_input(network, "z", TRM_F32, DIMS(4, 4));
    trm_tensor *gate = net_unary(network, "gate", TRM_ACTIVATION_SIGMOID, x);
    net_output(network, net_binary(network, "y", MUL, gate, z));
    net_output(network, gate);
    check_pass(network, trm_pass_fuse_elementwise, NULL);
}

/* Types that are only stored. */
static void what_does_not_fit_stays(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(4));
    trm_tensor *small = cast(network, "small", TRM_F8E4M3, x);
    net_output(network, cast(network, "y", TRM_F32, small));
    check_pass(network, trm_pass_fuse_elementwise, NULL);
}

/* Numbers of more axes than what they meet: as steps they would no longer give the result its axes. */
static void numbers_that_add_axes_stay(void **state)
{
    (void)state;
    const float number = 2;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 3)), *c = NULL;
    assert_ok(trm_network_add_constant(network, "c", TRM_F32, DIMS(1, 1, 1), &number, &c));
    net_output(network, net_unary(network, "y", TRM_ACTIVATION_TANH, net_binary(network, "a", MUL, x, c)));
    check_pass(network, trm_pass_fuse_elementwise, NULL);

    network = net_create(); /* another input has as many */
    x = net_input(network, "x", TRM_F32, DIMS(4, 3));
    trm_tensor *z = net_input(network, "z", TRM_F32, DIMS(1, 4, 3));
    assert_ok(trm_network_add_constant(network, "c", TRM_F32, DIMS(1, 1, 1), &number, &c));
    net_output(network, net_binary(network, "y", ADD, net_binary(network, "a", MUL, x, c), z));
    check_pass(network, trm_pass_fuse_elementwise,
               "y: f32 [1, 4, 3] = fused_elementwise(x, z) steps=[f32 value(2), f32 mul(i0, s0), f32 add(s1, i1)]\n"
               "output y\n");
}

static void values_of_dims_stay(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *two = NULL;
    trm_tensor *shape =
        net_layer(network, "shape", (trm_layer_desc){.kind = TRM_LAYER_SHAPE, .shape = {0, 2}}, x, NULL, NULL, NULL);
    const int64_t factors[] = {2, 1};
    assert_ok(trm_network_add_constant(network, "factors", TRM_I64, DIMS(2), factors, &two));
    trm_tensor *doubled = net_binary(network, "doubled", MUL, shape, two);
    trm_tensor *sizes = net_binary(network, "sizes", TRM_ELEMENTWISE_MAX, doubled, two);
    trm_tensor *row = net_values(network, "row", DIMS(4));
    net_output(network, net_layer(network, "y", (trm_layer_desc){.kind = TRM_LAYER_EXPAND}, row, sizes, NULL, NULL));
    check_pass(network, trm_pass_fuse_elementwise, NULL);
}

/* More steps and inputs than one layer has: several layers. */
static void long_chains_are_cut(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(3, 4));
    for (int32_t i = 0; i < 40; i++) {
        x = net_unary(network, "t", TRM_ACTIVATION_TANH, x);
        x = i % 2 == 0 ? net_binary(network, "b", ADD, x, net_values(network, "v", DIMS(4))) : x;
    }
    net_output(network, x);
    trm_network *fused = NULL;
    assert_ok(trm_network_clone(network, &fused));
    assert_ok(trm_pass_fuse_elementwise(fused, NULL));
    assert_consistent(fused);
    assert_in_range(fused->n_layers, 3, 5);
    assert_same_numbers(network, fused, 5, test_seed());
    trm_network_destroy(fused);
    trm_network_destroy(network);
}

/* As unrolled loops are, each pass of which reads the same tensor: 0.2 s, not half a minute. */
static void many_layers_take_seconds(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_unary(network, "x", TRM_ACTIVATION_TANH, net_input(network, "given", TRM_F32, DIMS(4, 4)));
    trm_tensor *common = net_linear(network, "common", x, net_weight(network, "w", DIMS(4, 4), 1));
    for (int32_t i = 0; i < 50000; i++) {
        x = net_binary(network, "t", ADD, net_unary(network, "u", TRM_ACTIVATION_TANH, x), common);
    }
    net_output(network, x);
    const clock_t start = clock();
    assert_ok(trm_pass_fuse_elementwise(network, NULL));
    assert_in_range(clock() - start, 0, 10 * CLOCKS_PER_SEC);
    assert_in_range(network->n_layers, 100000 / TRM_MAX_FUSED_STEPS, 100000 / 8);
    trm_network_destroy(network);
}

static void bad_steps_are_refused(void **state)
{
    (void)state;
    const trm_fused_step add = {.op = TRM_FUSED_ELEMENTWISE, .type = TRM_F32, .a = 0, .b = 1};
    const struct {
        trm_fused_elementwise_params params;
        const char *error;
    } cases[] = {
        {{0, 1, {0}, {{0}}}, "found 0 steps and 1 outputs"},
        {{1, 1, {1}, {add}}, "output 0 is step 1"},
        {{1, 0, {0}, {add}}, "found 1 steps and 0 outputs"},
        {{1, 1, {0}, {{.op = TRM_FUSED_OP_COUNT, .type = TRM_F32}}}, "operation 72, which does not exist"},
        {{1, 1, {0}, {{.op = TRM_FUSED_UNARY, .type = TRM_F32}}}, "which does not exist"},
        {{1, 1, {0}, {{.type = TRM_F32, .a = 0, .b = TRM_MAX_LAYER_INPUTS}}}, "step 0 reads value 16"},
        {{1, 1, {0}, {{.type = TRM_F32, .a = 0, .b = 5}}}, "step 0 reads value 5"},
        {{1, 1, {0}, {{.type = TRM_F32, .a = -1, .b = 0}}}, "step 0 reads value -1"},
        {{1, 1, {0}, {{.type = TRM_F16, .a = 0, .b = 1}}}, "step 0 has type f16, expected f32"},
        {{1, 1, {0}, {{.op = TRM_FUSED_CAST, .type = TRM_I32}}}, "casts f32 to i32"},
        {{1, 1, {0}, {{.op = TRM_FUSED_CAST, .type = TRM_F8E5M2}}}, "has type f8e5m2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        trm_network *network = net_create();
        trm_tensor *inputs[] = {net_input(network, "x", TRM_F32, DIMS(3, 4)),
                                net_input(network, "z", TRM_F32, DIMS(4))},
                   *output = NULL;
        trm_layer_desc desc = {.kind = TRM_LAYER_FUSED_ELEMENTWISE, .fused_elementwise = cases[i].params};
        assert_fails(trm_network_add_layer(network, "f", &desc, inputs, 2, &output), TRM_ERROR_INVALID_ARGUMENT,
                     cases[i].error);
        trm_network_destroy(network);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_becomes_one_layer),
        cmocka_unit_test(types_and_broadcasts),
        cmocka_unit_test(what_others_read_is_an_output),
        cmocka_unit_test(what_a_layer_between_reads_stays),
        cmocka_unit_test(small_layers_join_their_reader),
        cmocka_unit_test(what_does_not_fit_stays),
        cmocka_unit_test(numbers_that_add_axes_stay),
        cmocka_unit_test(values_of_dims_stay),
        cmocka_unit_test(long_chains_are_cut),
        cmocka_unit_test(many_layers_take_seconds),
        cmocka_unit_test(bad_steps_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
