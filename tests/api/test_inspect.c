/* The inspector: what a plan and a context say of themselves as JSON is what they are. */
#include "support/support.h"
#include "support/world.h"

#include <stdio.h>

#include <trireme/trireme.h>

#include "base/json.h"

/* y = softmax(x w' + b) [rows, 4], with names that need care. */
static trm_network *make_network(void)
{
    static const float w[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, b[4] = {1, 2, 3, 4};
    trm_network *network;
    trm_tensor *x, *weight, *bias, *h, *y;
    const trm_layer_desc softmax = {.kind = TRM_LAYER_SOFTMAX, .softmax = {.axis = -1}};
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x \"in\"", TRM_F32, (trm_dims){2, {-1, 3}}, &x));
    assert_ok(trm_network_add_constant(network, "w", TRM_F32, (trm_dims){2, {4, 3}}, w, &weight));
    assert_ok(trm_network_add_constant(network, "b\xFF", TRM_F32, (trm_dims){1, {4}}, b, &bias));
    assert_ok(trm_network_add_matmul(network, "h", x, weight, bias, true, &h));
    assert_ok(trm_network_add_layer(network, "y", &softmax, &h, 1, &y));
    assert_ok(trm_network_mark_output(network, y));
    return network;
}

static trm_plan *make_plan(trm_mesh mesh, int32_t rank)
{
    trm_network *network = make_network();
    const trm_shape_bound bounds[] = {
        {.tensor = "x \"in\"", .min = {2, {1, 3}}, .opt = {2, {2, 3}}, .max = {2, {8, 3}}},
        {.tensor = "x \"in\"", .max = {2, {16, 3}}, .profile = 1},
    };
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_plan *plan;
    options.mesh = mesh;
    options.rank = rank;
    options.bounds = bounds;
    options.n_bounds = 2;
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    return plan;
}

static trm_json_document *parse(char *text)
{
    trm_json_document *document;
    assert_non_null(text);
    assert_ok(trm_json_parse("inspector", text, strlen(text), &document));
    trm_free(text);
    return document;
}

static const trm_json *at(const trm_json_document *document, const char *list, size_t index, const char *key)
{
    return trm_json_get(trm_json_at(trm_json_get(trm_json_root(document), list), index), key);
}

static const trm_json *tensor_member(const trm_json_document *document, const char *name, const char *key)
{
    const trm_json *tensors = trm_json_get(trm_json_root(document), "tensors");
    for (const trm_json *tensor = trm_json_first(tensors); tensor != NULL; tensor = trm_json_next(tensor)) {
        if (strcmp(trm_json_string(trm_json_get(tensor, "name")), name) == 0) {
            return trm_json_get(tensor, key);
        }
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

static void a_plan_tells_what_it_is(void **state)
{
    (void)state;
    trm_plan *plan = make_plan((trm_mesh){{1, 1, 1, 1, 1}}, 0);
    trm_json_document *document = parse(trm_plan_to_json(plan));
    const trm_json *root = trm_json_root(document);
    trm_memory_plan memory;
    trm_plan_memory(plan, &memory);
    assert_string_equal(trm_json_string(trm_json_get(root, "backend")), "host");
    assert_string_equal(trm_json_string(trm_json_get(root, "version")), trm_version());
    assert_true(trm_json_number(trm_json_get(trm_json_get(root, "memory"), "total"), 0) == (double)memory.total);
    assert_int_equal(trm_json_count(trm_json_get(root, "profiles")), 2);
    const trm_json *bound = at(document, "profiles", 1, "x \"in\"");
    assert_true(trm_json_number(trm_json_at(trm_json_get(bound, "max"), 0), 0) == 16);
    assert_int_equal(trm_json_count(trm_json_get(root, "layers")), trm_network_layer_count(trm_plan_network(plan)));
    assert_non_null(strstr(trm_json_string(at(document, "layers", 0, "kernel")), "host.matmul"));
    assert_string_equal(trm_json_string(trm_json_at(at(document, "layers", 0, "inputs"), 0)), "x \"in\"");
    assert_string_equal(trm_json_string(trm_json_at(at(document, "layers", 0, "inputs"), 2)), "b\xEF\xBF\xBD");
    assert_true(trm_json_truth(trm_json_get(at(document, "layers", 0, "parameters"), "transpose_b"), false));
    assert_string_equal(trm_json_string(tensor_member(document, "w", "region")), "weights");
    assert_string_equal(trm_json_string(tensor_member(document, "x \"in\"", "region")), "inputs");
    assert_true(trm_json_number(trm_json_at(tensor_member(document, "y", "dims"), 0), 0) == -1);
    assert_true(trm_json_number(trm_json_at(tensor_member(document, "y", "usual_dims"), 0), 0) == 2);
    assert_true(trm_json_number(trm_json_at(tensor_member(document, "x \"in\"", "largest_dims"), 0), 0) == 16);
    assert_true(trm_json_number(tensor_member(document, "y", "largest_bytes"), 0) == 16 * 4 * 4);
    assert_true(trm_json_truth(tensor_member(document, "y", "output"), false));
    assert_string_equal(trm_json_string(trm_json_get(tensor_member(document, "y", "part"), "kind")), "whole");
    trm_json_close(document);
    trm_plan_destroy(plan);
    assert_null(trm_plan_to_json(NULL));
}

static void ranks_tell_their_collectives(void **state)
{
    (void)state;
    for (int32_t rank = 0; rank < 2; rank++) {
        trm_plan *plan = make_plan((trm_mesh){{2, 1, 1, 1, 1}}, rank);
        trm_json_document *document = parse(trm_plan_to_json(plan));
        assert_true(trm_json_number(trm_json_get(trm_json_root(document), "rank"), -1) == rank);
        trm_plan_info info;
        trm_plan_get_info(plan, &info);
        int32_t collectives = 0;
        const trm_json *layers = trm_json_get(trm_json_root(document), "layers");
        for (const trm_json *layer = trm_json_first(layers); layer != NULL; layer = trm_json_next(layer)) {
            collectives += trm_json_truth(trm_json_get(layer, "collective"), false);
        }
        assert_int_equal(collectives, info.n_collectives);
        trm_json_close(document);
        trm_plan_destroy(plan);
    }
}

static void a_context_tells_the_dims_of_its_run(void **state)
{
    (void)state;
    static const float x[9] = {0};
    trm_plan *plan = make_plan((trm_mesh){{1, 1, 1, 1, 1}}, 0);
    trm_engine *engine;
    trm_context *context = test_open_context(plan, &engine);
    for (int32_t rows = 1; rows <= 3; rows++) {
        assert_ok(trm_context_set_input(context, "x \"in\"", (trm_dims){2, {rows, 3}}, x));
        assert_ok(trm_context_run(context));
        trm_json_document *document = parse(trm_context_to_json(context));
        assert_true(trm_json_number(trm_json_at(tensor_member(document, "y", "run_dims"), 0), 0) == rows);
        assert_non_null(strstr(trm_json_string(at(document, "layers", 0, "kernel")), "host.matmul"));
        trm_json_close(document);
    }
    assert_null(trm_context_to_json(NULL));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

/* A chain of layers that is one layer tells its steps. */
static void fused_layers_tell_their_steps(void **state)
{
    (void)state;
    trm_network *network;
    trm_tensor *x, *a, *b, *c;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {4, 5}}, &x));
    assert_ok(trm_network_add_elementwise(network, "a", TRM_ELEMENTWISE_ADD, x, x, &a));
    assert_ok(trm_network_add_elementwise(network, "b", TRM_ELEMENTWISE_MUL, a, x, &b));
    assert_ok(trm_network_add_activation(network, "c", TRM_ACTIVATION_RELU, b, &c));
    assert_ok(trm_network_mark_output(network, c));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_plan *plan;
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    trm_json_document *document = parse(trm_plan_to_json(plan));
    const trm_json *program = trm_json_get(at(document, "layers", 0, "parameters"), "steps");
    assert_string_equal(trm_json_string(at(document, "layers", 0, "kind")), "fused_elementwise");
    assert_int_equal(trm_json_count(program), 3);
    assert_string_equal(trm_json_string(trm_json_get(trm_json_at(program, 1), "op")), "mul");
    assert_string_equal(trm_json_string(trm_json_at(trm_json_get(trm_json_at(program, 1), "of"), 0)), "s0");
    assert_string_equal(trm_json_string(trm_json_at(trm_json_get(trm_json_at(program, 1), "of"), 1)), "i0");
    trm_json_close(document);
    trm_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_tells_what_it_is),
        cmocka_unit_test(fused_layers_tell_their_steps),
        cmocka_unit_test(ranks_tell_their_collectives),
        cmocka_unit_test(a_context_tells_the_dims_of_its_run),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
