/*
 * Networks in which rows are chosen, and the pass that moves the choices.
 */
#ifndef TESTS_GRAPH_CHOICES_H
#define TESTS_GRAPH_CHOICES_H

#include "graph/check_pass.h"

#define RELU TRM_ACTIVATION_RELU
#define ADD  TRM_ELEMENTWISE_ADD
#define MUL  TRM_ELEMENTWISE_MUL

#define GATHER(axis_)     ((trm_layer_desc){.kind = TRM_LAYER_GATHER, .gather = {axis_}})
#define SLICE(...)        ((trm_layer_desc){.kind = TRM_LAYER_SLICE, .slice = {__VA_ARGS__}})
#define SOFTMAX(axis_)    ((trm_layer_desc){.kind = TRM_LAYER_SOFTMAX, .softmax = {axis_}})
#define CUMULATIVE(axis_) ((trm_layer_desc){.kind = TRM_LAYER_CUMULATIVE, .cumulative = {.axis = axis_}})
#define TRANSPOSE(...)    ((trm_layer_desc){.kind = TRM_LAYER_TRANSPOSE, .transpose = {{__VA_ARGS__}}})
#define LARGEST(...)      ((trm_layer_desc){.kind = TRM_LAYER_REDUCE, .reduce = {TRM_REDUCE_MAX, __VA_ARGS__}})
#define MATMUL(...)       ((trm_layer_desc){.kind = TRM_LAYER_MATMUL, .matmul = {__VA_ARGS__}})

/* mixed [batch, rows, 4]: each row made from all rows of x. */
typedef struct net {
    trm_network *network;
    trm_tensor *x, *mixed;
} net;

static inline net start(int64_t batch, int64_t rows)
{
    net n = {.network = net_create()};
    n.x = net_input(n.network, "x", TRM_F32, DIMS(batch, rows, 4));
    n.mixed = net_layer(n.network, "mixed", SOFTMAX(1), n.x, NULL, NULL, NULL);
    return n;
}

static inline trm_tensor *add(net *n, const char *name, trm_layer_desc desc, trm_tensor *a, trm_tensor *b)
{
    return net_layer(n->network, name, desc, a, b, NULL, NULL);
}

/* A product of rows with a weight of its own. */
static inline trm_tensor *product(net *n, const char *name, trm_tensor *a, int64_t to)
{
    return net_linear(n->network, name, a, net_weight(n->network, "w", DIMS(to, a->dims.d[a->dims.n - 1]), 1));
}

static inline trm_tensor *index_of(net *n, trm_dims dims, int64_t first, int64_t second, int64_t third)
{
    trm_tensor *tensor = NULL;
    assert_ok(
        trm_network_add_constant(n->network, "i", TRM_I64, dims, (const int64_t[]){first, second, third}, &tensor));
    return tensor;
}

static inline trm_tensor *take_one(net *n, trm_tensor *from, int32_t axis, int64_t index)
{
    return add(n, "y", GATHER(axis), from, index_of(n, (trm_dims){0}, index, 0, 0));
}

/* The network ends in y; its layers read `after` once the pass is over, or stay as they are if that is NULL. */
static inline void check(net *n, trm_tensor *y, const char *after)
{
    net_output(n->network, y);
    check_pass(n->network, trm_pass_select_rows, after);
}

/* The same numbers also where there are no rows, or too few, which gives zeros. */
static inline void check_sizes(net *n, trm_tensor *y, const char *after)
{
    trm_network *changed = NULL;
    int32_t changes = 0;
    net_output(n->network, y);
    assert_ok(trm_network_clone(n->network, &changed));
    assert_ok(trm_pass_select_rows(changed, NULL));
    for (int64_t size = 0; size < 5; size++) {
        assert_same_numbers(n->network, changed, size, test_seed());
    }
    assert_ok(trm_run_passes(changed, TRM_PASSES_BEFORE_PARTITION)); /* ends */
    assert_ok(trm_pass_select_rows(changed, &changes));
    assert_int_equal(changes, 0);
    assert_same_numbers(n->network, changed, 5, test_seed());
    trm_network_destroy(changed);
    check_pass(n->network, trm_pass_select_rows, after);
}

/* All passes before partitioning, for check_pass. */
static inline trm_status run_passes(trm_network *network, int32_t *changes)
{
    char *before = trm_network_to_text(network);
    assert_ok(trm_run_passes(network, TRM_PASSES_BEFORE_PARTITION));
    char *after = trm_network_to_text(network);
    *changes += strcmp(before, after) != 0;
    trm_free(before);
    trm_free(after);
    return TRM_OK;
}

#endif
