/* Debug tensors and the look at a network's layers: what every layer made is shown once, in order, as it was. */
#include "support/support.h"
#include "graph/network.h"
#include "support/world.h"

#include <stdio.h>

#include <trireme/trireme.h>

enum { MOST = 16 };

typedef struct seen {
    int32_t n, stop_at; /* false is returned at tensor stop_at; -1: never */
    char names[MOST][32], layers[MOST][32];
    trm_dims dims[MOST];
    double first[MOST];
    trm_tensor_part parts[MOST];
} seen;

static bool look(void *user, const trm_debug_tensor *tensor)
{
    seen *s = user;
    assert_true(s->n < MOST);
    assert_non_null(tensor->kernel);
    snprintf(s->names[s->n], sizeof(s->names[0]), "%s", tensor->name);
    snprintf(s->layers[s->n], sizeof(s->layers[0]), "%s", tensor->layer);
    s->dims[s->n] = tensor->dims;
    s->parts[s->n] = tensor->part;
    s->first[s->n] = tensor->dtype == TRM_F32   ? (double)((const float *)tensor->data)[0]
                     : tensor->dtype == TRM_I64 ? (double)((const int64_t *)tensor->data)[0]
                                                : -1;
    return s->n++ != s->stop_at;
}

static trm_context *make_context(const trm_network *network, trm_engine **engine)
{
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = test_backend();
    trm_plan *plan;
    assert_ok(trm_build(network, &options, &plan));
    return test_open_context(plan, engine);
}

/* p = x x', s = softmax(p), r = s as one row, y = r r'; sums of 2 3 rows. */
static trm_network *make_network(void)
{
    trm_network *network;
    trm_tensor *x, *p, *s, *r, *y;
    const trm_layer_desc softmax = {.kind = TRM_LAYER_SOFTMAX, .softmax = {.axis = -1}};
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {2, 3}}, &x));
    assert_ok(trm_network_add_matmul(network, "p", x, x, NULL, true, &p));
    assert_ok(trm_network_add_layer(network, "s", &softmax, &p, 1, &s));
    assert_ok(trm_network_add_reshape(network, "r", s, (trm_dims){2, {1, 4}}, &r));
    assert_ok(trm_network_add_matmul(network, "y", r, r, NULL, true, &y));
    assert_ok(trm_network_mark_output(network, y));
    return network;
}

static const float ones[] = {1, 1, 1, 1, 1, 1};

static void every_layer_is_shown_in_order(void **state)
{
    (void)state;
    static const char *const names[] = {"p", "s", "r", "y"};
    static const double first[] = {3, 0.5, 0.5, 1};
    trm_engine *engine;
    trm_network *network = make_network();
    trm_context *context = make_context(network, &engine);
    trm_network_destroy(network);
    seen s = {.stop_at = -1};
    assert_ok(trm_context_set_capture(context, true));
    assert_ok(trm_context_set_debug(context, look, &s));
    assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {2, 3}}, ones));
    for (int32_t run = 0; run < 3; run++) { /* the same in every run */
        s.n = 0;
        assert_ok(trm_context_run(context));
        assert_int_equal(s.n, 4);
        for (int32_t i = 0; i < 4; i++) {
            assert_string_equal(s.names[i], names[i]);
            assert_string_equal(s.layers[i], names[i]);
            assert_true(s.first[i] > first[i] - 1e-6 && s.first[i] < first[i] + 1e-6);
            assert_int_equal(s.parts[i].kind, TRM_PART_WHOLE);
            assert_string_equal(s.parts[i].of, names[i]);
        }
        assert_int_equal(s.dims[2].n, 2);
        assert_int_equal(s.dims[2].d[1], 4);
    }
    assert_ok(trm_context_set_debug(context, NULL, NULL));
    s.n = 0;
    assert_ok(trm_context_run(context));
    assert_int_equal(s.n, 0);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

static void a_look_can_end_the_run(void **state)
{
    (void)state;
    trm_engine *engine;
    trm_dims dims;
    const void *data;
    trm_network *network = make_network();
    trm_context *context = make_context(network, &engine);
    trm_network_destroy(network);
    seen s = {.stop_at = 1};
    assert_ok(trm_context_set_debug(context, look, &s));
    assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {2, 3}}, ones));
    assert_fails(trm_context_run(context), TRM_ERROR_CANCELLED, "the run was cancelled at debug tensor s");
    assert_int_equal(s.n, 2);
    assert_fails(trm_context_output(context, "y", &dims, &data), TRM_ERROR_INVALID_ARGUMENT, "no run has succeeded");
    assert_fails(trm_context_set_debug(NULL, look, &s), TRM_ERROR_INVALID_ARGUMENT, "context is NULL");
    assert_ok(trm_context_set_debug(context, NULL, NULL));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &dims, &data));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

/* Where the number of entries depends on data, it is the number that was found. */
static void entries_are_counted_before_they_are_shown(void **state)
{
    (void)state;
    trm_network *network;
    trm_tensor *x, *found[TRM_MAX_LAYER_OUTPUTS], *sum;
    const trm_layer_desc nonzero = {.kind = TRM_LAYER_NON_ZERO};
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {2, 3}}, &x));
    assert_ok(trm_network_add_layer(network, "at", &nonzero, &x, 1, found));
    assert_ok(trm_network_add_elementwise(network, "sum", TRM_ELEMENTWISE_ADD, found[0], found[0], &sum));
    assert_ok(trm_network_mark_output(network, sum));
    trm_engine *engine;
    trm_context *context = make_context(network, &engine);
    trm_network_destroy(network);
    for (int32_t n = 1; n <= 6; n++) {
        float values[6] = {0};
        for (int32_t i = 0; i < n; i++) {
            values[5 - i] = 1;
        }
        seen s = {.stop_at = -1};
        assert_ok(trm_context_set_debug(context, look, &s));
        assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {2, 3}}, values));
        assert_ok(trm_context_run(context));
        assert_true(s.n >= 2);
        assert_string_equal(s.names[0], "at");
        assert_int_equal(s.dims[0].d[1], n);
        assert_string_equal(s.names[s.n - 1], "sum");
        assert_int_equal(s.dims[s.n - 1].d[1], n);
        assert_true(s.first[0] == (double)((6 - n) / 3));
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

/* Copies, layers and the caller's time of a run, while they are asked for. */
static void runs_can_be_timed(void **state)
{
    (void)state;
    trm_engine *engine;
    trm_run_times times;
    trm_network *network = make_network();
    trm_context *context = make_context(network, &engine);
    trm_network_destroy(network);
    assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {2, 3}}, ones));
    assert_ok(trm_context_run(context));
    assert_fails(trm_context_times(context, &times), TRM_ERROR_INVALID_ARGUMENT, "no run has been timed");
    assert_fails(trm_context_times(NULL, &times), TRM_ERROR_INVALID_ARGUMENT, "context or times is NULL");
    assert_ok(trm_context_set_timing(context, true));
    assert_fails(trm_context_times(context, &times), TRM_ERROR_INVALID_ARGUMENT, "no run has been timed");
    for (int32_t i = 0; i < 3; i++) {
        assert_ok(trm_context_run(context));
        assert_ok(trm_context_times(context, &times));
        assert_true(times.upload_milliseconds >= 0 && times.compute_milliseconds > 0);
        assert_true(times.download_milliseconds >= 0 && times.enqueue_milliseconds > 0);
        /* the host's layers run while they are enqueued */
        assert_true(test_backend() != TRM_BACKEND_HOST ||
                    times.compute_milliseconds <= times.enqueue_milliseconds * 1.01 + 0.01);
    }
    assert_ok(trm_context_set_timing(context, false));
    assert_ok(trm_context_run(context));
    assert_fails(trm_context_times(context, &times), TRM_ERROR_INVALID_ARGUMENT, "no run has been timed");
    assert_fails(trm_context_set_timing(NULL, true), TRM_ERROR_INVALID_ARGUMENT, "context is NULL");
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

static void layers_of_a_network_can_be_listed(void **state)
{
    (void)state;
    trm_network *network = make_network();
    trm_layer_info info;
    assert_false(trm_network_get_layer(network, -1, &info));
    assert_false(trm_network_get_layer(network, 4, &info));
    assert_false(trm_network_get_layer(NULL, 0, &info));
    assert_false(trm_network_get_layer(network, 0, NULL));
    assert_true(trm_network_get_layer(network, 0, &info));
    assert_string_equal(info.name, "p");
    assert_int_equal(info.desc->kind, TRM_LAYER_MATMUL);
    assert_true(info.inputs[0] == trm_network_find_tensor(network, "x"));
    assert_true(trm_network_get_layer(network, 3, &info));
    assert_int_equal(info.n_outputs, 1);
    assert_string_equal(trm_tensor_name(info.outputs[0]), "y");
    assert_int_equal(info.outputs[0]->part.kind, TRM_PART_UNKNOWN); /* of no rank */
    assert_string_equal(trm_part_kind_name(TRM_PART_SUMMAND), "summand");
    trm_network_destroy(network);
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_is_shown_in_order),
        cmocka_unit_test(a_look_can_end_the_run),
        cmocka_unit_test(entries_are_counted_before_they_are_shown),
        cmocka_unit_test(runs_can_be_timed),
        cmocka_unit_test(layers_of_a_network_can_be_listed),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
