/* Building, naming, editing, sorting and cloning networks; what the public calls refuse. */
#include "graph/nets.h"

#include <stdio.h>

static const trm_layer_desc softmax = {.kind = TRM_LAYER_SOFTMAX, .softmax = {-1}};

static void names_are_made_unique(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    assert_string_equal(net_input(network, "x", TRM_F32, DIMS(1))->name, "x.1");
    assert_string_equal(net_layer(network, "x", softmax, x, NULL, NULL, NULL)->name, "x.2");
    assert_string_equal(net_layer(network, NULL, softmax, x, NULL, NULL, NULL)->name, "softmax");
    assert_string_equal(net_layer(network, "", softmax, x, NULL, NULL, NULL)->name, "softmax.1");
    trm_tensor *w = net_values(network, "norm:1", DIMS(4));
    trm_layer_desc norm = {.kind = TRM_LAYER_NORM, .norm = {.residual = true}};
    trm_tensor *inputs[] = {x, x, w}, *outputs[2];
    assert_ok(trm_network_add_layer(network, "norm", &norm, inputs, 3, outputs));
    assert_string_equal(outputs[0]->name, "norm");
    assert_string_equal(outputs[1]->name, "norm:1.1");
    assert_ptr_equal(trm_network_find_tensor(network, "softmax.1")->producer, network->layers[2]);
    assert_string_equal(network->layers[2]->name, "softmax.1");
    assert_null(trm_network_find_tensor(network, "softmax.2"));
    trm_network_destroy(network);
}

static void public_calls_read_back_what_was_built(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *w = net_values(network, "w", DIMS(4));
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *y = net_input(network, "y", TRM_F32, DIMS(4));
    trm_tensor *sum = net_binary(network, "sum", TRM_ELEMENTWISE_ADD, x, y);
    net_output(network, sum);
    net_output(network, w);
    assert_int_equal(trm_network_input_count(network), 2);
    assert_ptr_equal(trm_network_input(network, 0), x);
    assert_ptr_equal(trm_network_input(network, 1), y);
    assert_null(trm_network_input(network, 2));
    assert_null(trm_network_input(network, -1));
    assert_int_equal(trm_network_output_count(network), 2);
    assert_ptr_equal(trm_network_output(network, 0), sum);
    assert_ptr_equal(trm_network_output(network, 1), w);
    assert_null(trm_network_output(network, 2));
    assert_int_equal(trm_network_layer_count(network), 1);
    assert_string_equal(trm_tensor_name(sum), "sum");
    assert_int_equal(trm_tensor_dtype(sum), TRM_F32);
    trm_dims dims = trm_tensor_dims(sum);
    assert_true(trm_dims_equal(&dims, &DIMS(-1, 4)));
    trm_network_destroy(network);
    trm_network_destroy(NULL);
}

static void names_are_found_after_edits(void **state)
{
    (void)state;
    trm_network *network = net_create(), *copy = NULL;
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *last = NULL;
    for (int32_t i = 0; i < 70; i++) {
        char expected[16];
        last = net_layer(network, "s", softmax, x, NULL, NULL, NULL);
        snprintf(expected, sizeof(expected), i == 0 ? "s" : "s.%d", i);
        assert_string_equal(last->name, expected);
    }
    assert_ok(trm_network_rename_tensor(network, last, "probabilities"));
    assert_ptr_equal(trm_network_find_tensor(network, "probabilities"), last);
    assert_null(trm_network_find_tensor(network, "s.69")); /* a layer's name now, and still taken */
    assert_string_equal(net_layer(network, "s", softmax, x, NULL, NULL, NULL)->name, "s.70");
    assert_ok(trm_network_clone(network, &copy));
    assert_string_equal(net_layer(copy, "s", softmax, copy->tensors[0], NULL, NULL, NULL)->name, "s.71");
    bool remove[71] = {false, false, true, true};
    trm_network_remove_layers(network, remove);
    assert_null(trm_network_find_tensor(network, "s.2"));
    for (int32_t i = 0; i < network->n_tensors; i++) {
        assert_ptr_equal(trm_network_find_tensor(network, network->tensors[i]->name), network->tensors[i]);
    }
    assert_string_equal(net_layer(network, "s", softmax, x, NULL, NULL, NULL)->name, "s.2");
    /* Without an index, as when there was no memory for it. */
    network->names_known = false;
    assert_string_equal(net_layer(network, "s", softmax, x, NULL, NULL, NULL)->name, "s.3");
    assert_string_equal(net_layer(network, "s.69", softmax, x, NULL, NULL, NULL)->name, "s.69.1");
    assert_ptr_equal(trm_network_find_tensor(network, "x"), x);
    assert_null(trm_network_find_tensor(network, "y"));
    trm_network_destroy(network);
    trm_network_destroy(copy);
}

/* Runs `call`, which must fail and leave the text of the network as it is. */
#define assert_refused(network, call, part)                                                                            \
    do {                                                                                                               \
        char *before_ = trm_network_to_text(network);                                                                  \
        assert_fails((call), TRM_ERROR_INVALID_ARGUMENT, (part));                                                      \
        assert_text((network), before_);                                                                               \
        trm_free(before_);                                                                                             \
    } while (0)

static void bad_calls_are_refused_and_change_nothing(void **state)
{
    (void)state;
    trm_network *network = net_create(), *other = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *foreign = net_input(other, "f", TRM_F32, DIMS(4));
    trm_tensor *made = NULL, *s = NULL;
    float value = 0;
    assert_ok(trm_network_add_state(network, "s", TRM_F32, DIMS(4), &s));
    assert_refused(network, trm_network_add_input(network, "i", TRM_DTYPE_NONE, DIMS(1), &made),
                   "input i has type none");
    assert_refused(network, trm_network_add_input(network, "i", TRM_F32, DIMS(-2), &made), "input i: found dims [-2]");
    assert_refused(network, trm_network_add_input(network, "i", TRM_F32, (trm_dims){9, {0}}, &made),
                   "input i: found 9 dimensions, expected at most 8");
    assert_refused(network, trm_network_add_input(network, "i", TRM_F32, DIMS(INT64_MAX, 0, 2), &made),
                   "do not fit into memory");
    assert_refused(network, trm_network_add_constant(network, "c", TRM_F32, DIMS(-1), &value, &made),
                   "constant c: found dims [?], expected known sizes");
    assert_refused(network, trm_network_add_constant(network, "c", TRM_F32, DIMS(1), NULL, &made),
                   "constant c has no data, expected 4 bytes");
    trm_tensor *inputs[] = {x, foreign, x, x};
    trm_layer_desc add = {.kind = TRM_LAYER_ELEMENTWISE};
    assert_refused(network, trm_network_add_layer(network, "a", &add, inputs, 2, &made),
                   "layer a reads tensor f, which belongs to another network");
    assert_refused(network, trm_network_add_layer(network, "a", &add, inputs, 17, &made), "layer a has 17 inputs");
    assert_refused(network, trm_network_add_layer(network, "a", &add, inputs, 1, &made),
                   "elementwise a: found 1 inputs, expected 2");
    assert_refused(network, trm_network_add_layer(network, "a", NULL, inputs, 1, &made), "is NULL");
    assert_refused(network, trm_network_mark_output(network, foreign), "f: it belongs to another network");
    assert_refused(network, trm_network_mark_output(network, NULL), "is NULL");
    assert_refused(network, trm_network_mark_output(network, s), "s: it is a state");
    net_output(network, x);
    assert_refused(network, trm_network_mark_output(network, x), "x: it is already an output");
    assert_refused(network, trm_network_pin(network, x, "split"), "pin of x is \"split\", expected \"replicate\" or");
    assert_refused(network, trm_network_pin(network, x, "split 1 "), "pin of x is \"split 1 \"");
    assert_refused(network, trm_network_pin(network, x, "split 2"), "splits axis 2, expected an axis of 2 dimensions");
    assert_refused(network, trm_network_rename_tensor(network, x, "s"), "a tensor has that name");
    trm_network_destroy(network);
    trm_network_destroy(other);
}

static void weights_are_taken_over_and_checked(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_weight *weight = NULL;
    trm_tensor *w = NULL;
    assert_ok(trm_weight_random(TRM_F32, &DIMS(2, 3), 1, 0, 1, &weight));
    assert_ok(trm_network_add_weight(network, "w", weight, TRM_BF16, &w));
    assert_int_equal(w->dtype, TRM_BF16);
    assert_true(trm_dims_equal(&w->dims, &DIMS(2, 3)));
    assert_ok(trm_weight_random(TRM_F32, &DIMS(2, 3), 1, 0, 1, &weight));
    assert_fails(trm_network_add_weight(network, "i", weight, TRM_I32, &w), TRM_ERROR_INVALID_ARGUMENT,
                 "constant i is stored as f32, cannot be read as i32");
    assert_fails(trm_network_add_weight(network, "i", NULL, TRM_I32, &w), TRM_ERROR_INVALID_ARGUMENT, "no weight");
    trm_network_destroy(network);
}

static void pins_are_written_one_way(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    char text[] = "split -1";
    assert_ok(trm_network_pin(network, x, text));
    memset(text, 0, sizeof(text));
    assert_string_equal(x->pin, "split 1");
    assert_ok(trm_network_pin(network, x, "replicate"));
    assert_string_equal(x->pin, "replicate");
    assert_ok(trm_network_pin(network, x, NULL));
    assert_null(x->pin);
    trm_network_destroy(network);
}

static void axes_and_trailing_inputs_are_normalized(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4)), *w = net_values(network, "w", DIMS(3, 4));
    trm_tensor *y = net_linear(network, "y", x, w);
    assert_int_equal(y->producer->n_inputs, 2);
    assert_int_equal(net_layer(network, "s", softmax, x, NULL, NULL, NULL)->producer->desc.softmax.axis, 1);
    trm_layer_desc gather = {.kind = TRM_LAYER_DIST_COLLECTIVE,
                             .collective = {TRM_ALL_GATHER, .axis = -2, .n_ranks = 2}};
    assert_int_equal(net_layer(network, "g", gather, x, NULL, NULL, NULL)->producer->desc.collective.axis, 0);
    trm_network_destroy(network);
}

/* x -> a -> b -> output, with c beside b and an unused constant. */
static trm_network *small_network(void)
{
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4));
    net_values(network, "unused", DIMS(2));
    trm_tensor *w = net_weight(network, "w", DIMS(4, 4), 7);
    trm_tensor *a = net_linear(network, "a", x, w);
    trm_tensor *b = net_unary(network, "b", TRM_ACTIVATION_RELU, a);
    net_binary(network, "c", TRM_ELEMENTWISE_ADD, a, a);
    net_output(network, b);
    assert_ok(trm_network_pin(network, w, "split 0"));
    return network;
}

static void uses_are_counted_and_replaced(void **state)
{
    (void)state;
    trm_network *network = small_network();
    trm_tensor *x = trm_network_find_tensor(network, "x"), *a = trm_network_find_tensor(network, "a"),
               *b = trm_network_find_tensor(network, "b");
    trm_layer *layers[2] = {NULL, NULL};
    assert_int_equal(trm_network_consumers(network, a, layers, 2), 2); /* c reads it twice */
    assert_ptr_equal(layers[0], b->producer);
    assert_int_equal(trm_network_consumers(network, a, NULL, 0), 2);
    assert_int_equal(trm_network_consumers(network, b, layers, 2), 0);
    trm_network_replace_uses(network, a, x);
    assert_int_equal(trm_network_consumers(network, a, NULL, 0), 0);
    assert_int_equal(trm_network_consumers(network, x, NULL, 0), 3);
    trm_network_replace_uses(network, b, a);
    assert_ptr_equal(trm_network_output(network, 0), a);
    assert_true(a->is_output);
    assert_false(b->is_output);
    trm_network_destroy(network);
}

static void removing_layers_drops_what_nothing_uses(void **state)
{
    (void)state;
    trm_network *network = small_network();
    bool remove[3] = {false, false, true};
    trm_network_remove_layers(network, remove);
    assert_int_equal(network->n_layers, 2);
    assert_null(trm_network_find_tensor(network, "c"));
    assert_null(trm_network_find_tensor(network, "unused"));
    assert_non_null(trm_network_find_tensor(network, "w"));
    for (int32_t i = 0; i < network->n_tensors; i++) {
        assert_int_equal(network->tensors[i]->index, i);
    }
    trm_network_replace_uses(network, trm_network_find_tensor(network, "b"), trm_network_find_tensor(network, "x"));
    bool rest[2] = {true, true};
    trm_network_remove_layers(network, rest);
    assert_text(network, "x: f32 [?, 4] = input\noutput x\n");
    trm_network_destroy(network);
}

static void sorting_keeps_the_order_it_can(void **state)
{
    (void)state;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(4)), *t[6];
    for (int32_t i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof(name), "l%d", i);
        t[i] = net_unary(network, name, TRM_ACTIVATION_RELU, x);
    }
    t[1]->producer->inputs[0] = t[4]; /* 0, then 3 and 4 for 1, 2, 5 */
    t[4]->producer->inputs[0] = t[3];
    assert_ok(trm_network_sort(network));
    static const int32_t expected[] = {0, 3, 4, 1, 2, 5};
    for (int32_t i = 0; i < 6; i++) {
        assert_ptr_equal(network->layers[i], t[expected[i]]->producer);
        assert_int_equal(network->layers[i]->index, i);
    }
    t[3]->producer->inputs[0] = t[1];
    assert_fails(trm_network_sort(network), TRM_ERROR_INVALID_MODEL, "the network has a cycle through layers");
    trm_network_destroy(network);
}

static void clones_are_whole_and_apart(void **state)
{
    (void)state;
    trm_network *network = small_network(), *copy = NULL;
    trm_tensor *x = trm_network_input(network, 0);
    assert_ok(trm_network_name_dim(network, x, 0, "rows"));
    char *text = trm_network_to_text(network);
    assert_ok(trm_network_clone(network, &copy));
    assert_text(copy, text);
    for (int32_t i = 0; i < copy->n_tensors; i++) {
        assert_ptr_equal(copy->tensors[i]->network, copy);
    }
    bool remove[3] = {false, false, true};
    trm_network_remove_layers(copy, remove);
    assert_text(network, text);
    trm_network_destroy(network);
    trm_tensor *w = trm_network_find_tensor(copy, "w");
    float values[16];
    assert_ok(trm_weight_read(w->weight, TRM_F32, 0, 16, values));
    assert_string_equal(w->pin, "split 0");
    x = trm_network_input(copy, 0);
    assert_string_equal(trm_tensor_dim_name(x, 0), "rows");
    assert_fails(trm_network_name_dim(copy, x, 0, "n"), TRM_ERROR_INVALID_ARGUMENT, "is named rows already");
    assert_string_equal(trm_network_output(copy, 0)->name, "b");
    assert_ptr_equal(trm_network_output(copy, 0)->producer, copy->layers[1]);
    trm_network_destroy(copy);
    trm_free(text);
}

static char warning[256];

static void keep_warning(void *user, trm_log_level level, const char *message)
{
    (void)user, (void)level;
    snprintf(warning, sizeof(warning), "%s", message);
}

/* Names of dimensions, and the warning where one name has several sizes. */
static void dimensions_of_one_name_may_differ(void **state)
{
    (void)state;
    trm_network *network = net_create(), *other = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(-1, 4, -1)),
               *z = net_input(network, "z", TRM_F32, DIMS(-1, 4)), *foreign = net_input(other, "f", TRM_F32, DIMS(4)),
               *s = NULL;
    assert_ok(trm_network_add_state(network, "s", TRM_F32, DIMS(4), &s));
    char name[] = "n";
    assert_ok(trm_network_name_dim(network, x, 0, name));
    assert_ok(trm_network_name_dim(network, x, 2, "m"));
    assert_ok(trm_network_name_dim(network, z, 1, "m"));
    name[0] = 'k'; /* names are copied */
    assert_ok(trm_network_name_dim(network, z, 0, "n"));
    assert_string_equal(trm_tensor_dim_name(x, 0), "n");
    assert_null(trm_tensor_dim_name(x, 1));
    assert_null(trm_tensor_dim_name(x, 3));
    assert_null(trm_tensor_dim_name(s, 0));
    assert_refused(network, trm_network_name_dim(network, x, 0, "n"), "dimension 0 of input x is named n already");
    assert_refused(network, trm_network_name_dim(network, x, 3, "n"),
                   "expected an input of the network, one of its axes");
    assert_refused(network, trm_network_name_dim(network, x, 1, ""), "cannot name a dimension");
    assert_refused(network, trm_network_name_dim(network, s, 0, "n"), "cannot name a dimension");
    assert_refused(network, trm_network_name_dim(network, foreign, 0, "n"), "cannot name a dimension");
    trm_dims dims[48] = {DIMS(2, 4, 4), DIMS(2, 4), DIMS(4)};
    trm_log_set(keep_warning, NULL, TRM_LOG_WARNING);
    assert_false(trm_network_check_named_dims(network, dims, false, ""));
    dims[1].d[0] = 3;
    assert_true(trm_network_check_named_dims(network, dims, true, "here, "));
    assert_string_equal(warning, "here, dimension n is 2 at position 0 of input x and 3 at position 0 of input z: both "
                                 "are kept");
    dims[1].d[0] = -1;
    assert_false(trm_network_check_named_dims(network, dims, false, ""));
    dims[0].d[2] = 5;
    assert_true(trm_network_check_named_dims(network, dims, false, ""));
    assert_string_equal(warning, "dimension m is 5 at position 2 of input x and 4 at position 1 of input z: both are "
                                 "kept");
    x->dims.d[2] = 5; /* two sizes that no run changes */
    assert_false(trm_network_check_named_dims(network, dims, true, ""));
    assert_true(trm_network_check_named_dims(network, dims, false, ""));
    for (int32_t i = 0; i < 40; i++) { /* of more inputs than there is room for at first */
        char text[16];
        snprintf(text, sizeof(text), "i%d", (int)i);
        assert_ok(trm_network_name_dim(network, net_input(network, text, TRM_F32, DIMS(i == 39 ? 7 : -1)), 0, "n"));
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        dims[i] = network->tensors[i]->dims;
    }
    dims[0].d[2] = 4;
    assert_false(trm_network_check_named_dims(network, dims, false, ""));
    dims[0].d[0] = 6;
    assert_true(trm_network_check_named_dims(network, dims, false, ""));
    assert_non_null(strstr(warning, "dimension n is 6 at position 0 of input x and 7 at position 0 of input i39"));
    trm_log_set(NULL, NULL, TRM_LOG_WARNING);
    trm_network_destroy(network);
    trm_network_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_made_unique),
        cmocka_unit_test(names_are_found_after_edits),
        cmocka_unit_test(public_calls_read_back_what_was_built),
        cmocka_unit_test(bad_calls_are_refused_and_change_nothing),
        cmocka_unit_test(weights_are_taken_over_and_checked),
        cmocka_unit_test(pins_are_written_one_way),
        cmocka_unit_test(axes_and_trailing_inputs_are_normalized),
        cmocka_unit_test(uses_are_counted_and_replaced),
        cmocka_unit_test(removing_layers_drops_what_nothing_uses),
        cmocka_unit_test(sorting_keeps_the_order_it_can),
        cmocka_unit_test(clones_are_whole_and_apart),
        cmocka_unit_test(dimensions_of_one_name_may_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
