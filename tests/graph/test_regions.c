/* Regions: what is refused, that passes and sorting keep layers in theirs, and how long memory is in use. */
#include "support/support.h"

#include "graph/memory_plan.h"
#include "graph/regions.h"
#include "nets.h"

#define KIND(kind_) ((trm_layer_desc){.kind = (kind_)})

static const trm_layer_desc relu = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_ACTIVATION}};

/* x [4] and a condition. */
typedef struct net {
    trm_network *network;
    trm_tensor *x, *condition;
} net;

static net start(void)
{
    net n = {.network = net_create()};
    n.x = net_input(n.network, "x", TRM_F32, DIMS(4));
    n.condition = net_input(n.network, "condition", TRM_BOOL, (trm_dims){0});
    return n;
}

static trm_tensor *add(net *n, const char *name, trm_layer_desc desc, trm_tensor *a, trm_tensor *b)
{
    return net_layer(n->network, name, desc, a, b, NULL, NULL);
}

static void refuse(net *n, const char *cause)
{
    trm_regions regions;
    assert_fails(trm_regions_init(n->network, &regions), TRM_ERROR_INVALID_MODEL, cause);
    trm_network_destroy(n->network);
}

static void regions_that_do_not_nest(void **state)
{
    (void)state;
    net n = start();
    add(&n, "end", KIND(TRM_LAYER_END_IF), n.condition, NULL);
    refuse(&n, "layer end (end_if) does not end its region");
    n = start();
    add(&n, "if", KIND(TRM_LAYER_IF), n.condition, NULL);
    refuse(&n, "the region of layer if does not end");
    n = start();
    trm_tensor *outer = add(&n, "if", KIND(TRM_LAYER_IF), n.condition, NULL);
    trm_tensor *inside = add(&n, "enter", KIND(TRM_LAYER_ENTER), n.condition, NULL);
    trm_tensor *inner = add(&n, "loop", KIND(TRM_LAYER_LOOP), inside, NULL);
    add(&n, "end", KIND(TRM_LAYER_END_IF), outer, NULL);
    add(&n, "end_loop", KIND(TRM_LAYER_END_LOOP), inside, inner);
    refuse(&n, "layer end (end_if) does not end");
    n = start();
    outer = add(&n, "if", KIND(TRM_LAYER_IF), n.condition, NULL);
    add(&n, "end", KIND(TRM_LAYER_END_LOOP), n.condition, outer);
    refuse(&n, "layer end (end_loop) does not end");
}

static void tensors_stay_in_their_region(void **state)
{
    (void)state;
    net n = start();
    trm_tensor *begun = add(&n, "if", KIND(TRM_LAYER_IF), n.condition, NULL);
    trm_tensor *here = add(&n, "here", KIND(TRM_LAYER_ENTER), n.x, NULL);
    trm_tensor *y = add(&n, "y", relu, here, NULL);
    add(&n, "end", KIND(TRM_LAYER_END_IF), begun, NULL);
    add(&n, "z", relu, y, NULL);
    refuse(&n, "layer z reads y, which is made in the region of layer if");
    n = start();
    begun = add(&n, "if", KIND(TRM_LAYER_IF), n.condition, NULL);
    add(&n, "y", relu, n.x, NULL);
    add(&n, "end", KIND(TRM_LAYER_END_IF), begun, NULL);
    refuse(&n, "layer y reads x, which is made outside regions");
    n = start();
    begun = add(&n, "if", KIND(TRM_LAYER_IF), n.condition, NULL);
    here = add(&n, "here", KIND(TRM_LAYER_ENTER), n.x, NULL);
    y = add(&n, "y", relu, here, NULL);
    add(&n, "end", KIND(TRM_LAYER_END_IF), begun, NULL);
    net_output(n.network, y);
    refuse(&n, "output y is made inside the region of layer if");
}

static void what_loops_carry_on(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        net n = start();
        trm_tensor *carried = add(&n, "carried", KIND(TRM_LAYER_RECURRENCE), n.x, NULL);
        trm_tensor *begun = add(&n, "loop", KIND(way == 2 ? TRM_LAYER_IF : TRM_LAYER_LOOP), n.condition, NULL);
        trm_tensor *y = add(&n, "y", relu, carried, NULL);
        trm_tensor *again = add(&n, "again", KIND(TRM_LAYER_ENTER), n.condition, NULL);
        add(&n, "next", KIND(TRM_LAYER_NEXT), y, carried);
        if (way == 1) {
            add(&n, "next2", KIND(TRM_LAYER_NEXT), y, carried);
        }
        trm_tensor *end = way == 2 ? add(&n, "end", KIND(TRM_LAYER_END_IF), begun, NULL)
                                   : add(&n, "end", KIND(TRM_LAYER_END_LOOP), again, begun);
        net_output(n.network, add(&n, "out", KIND(TRM_LAYER_LOOP_OUTPUT), carried, end));
        if (way > 0) {
            refuse(&n, way == 1 ? "layer next2 carries on carried" : "layer next carries on carried");
            continue;
        }
        trm_regions regions;
        assert_ok(trm_regions_init(n.network, &regions));
        const int32_t inside[] = {-1, -1, 1, 1, 1, -1, -1}, other[] = {-1, 5, -1, -1, 0, 1, -1};
        assert_int_equal(regions.n, 1);
        assert_memory_equal(regions.inside, inside, sizeof(inside));
        assert_memory_equal(regions.other, other, sizeof(other));
        trm_regions_fini(&regions);
        trm_network_destroy(n.network);
    }
}

/* y = relu(x) in a branch, and the same in the other one. */
static trm_tensor *two_branches(net *n, trm_tensor **first, trm_tensor *entered)
{
    trm_tensor *made[2], *ends[2];
    for (int i = 0; i < 2; i++) {
        const trm_layer_desc begin = {.kind = TRM_LAYER_IF, .branch = {i == 1}};
        trm_tensor *begun = add(n, i == 0 ? "if" : "else", begin, n->condition, NULL);
        trm_tensor *here = add(n, i == 0 ? "here" : "there", KIND(TRM_LAYER_ENTER), entered, NULL);
        trm_tensor *inner = add(n, i == 0 ? "y0" : "y1", relu, here, NULL);
        made[i] = add(n, i == 0 ? "left0" : "left1", KIND(TRM_LAYER_ENTER), inner, NULL);
        ends[i] = add(n, i == 0 ? "end" : "end2", KIND(TRM_LAYER_END_IF), begun, NULL);
        first[i] = here;
    }
    trm_tensor *inputs[] = {n->condition, made[0], made[1], ends[0], ends[1]}, *y;
    const trm_layer_desc merge = KIND(TRM_LAYER_MERGE);
    assert_ok(trm_network_add_layer(n->network, "y", &merge, inputs, 5, &y));
    net_output(n->network, y);
    return y;
}

static void assert_in_branches(const trm_network *network)
{
    trm_regions regions;
    assert_ok(trm_regions_init(network, &regions));
    for (int i = 0; i < 2; i++) {
        static const char *const names[2][3] = {{"if", "y0", "left0"}, {"else", "y1", "left1"}};
        int32_t begin = trm_network_find_tensor(network, names[i][0])->producer->index;
        for (int k = 1; k < 3; k++) {
            assert_int_equal(regions.inside[trm_network_find_tensor(network, names[i][k])->producer->index], begin);
        }
    }
    trm_regions_fini(&regions);
}

/* Both branches compute the same, but only one of them runs. */
static void branches_are_not_merged(void **state)
{
    (void)state;
    net n = start();
    trm_tensor *first[2];
    two_branches(&n, first, n.x);
    int32_t layers = n.network->n_layers;
    assert_ok(trm_run_passes(n.network, TRM_PASSES_BEFORE_PARTITION));
    assert_ok(trm_run_passes(n.network, TRM_PASSES_AFTER_PARTITION));
    assert_ok(trm_network_sort(n.network));
    assert_consistent(n.network);
    assert_int_equal(n.network->n_layers, layers);
    assert_in_branches(n.network);
    trm_network_destroy(n.network);
}

/* What a pass makes anew for a tensor that enters a region is sorted in front of the region, not into it. */
static void sorting_keeps_layers_outside(void **state)
{
    (void)state;
    net n = start();
    trm_tensor *first[2], *sum = net_binary(n.network, "sum", TRM_ELEMENTWISE_ADD, n.x, n.x);
    two_branches(&n, first, sum);
    trm_tensor *late = add(&n, "late", relu, sum, NULL);
    first[0]->producer->inputs[0] = first[1]->producer->inputs[0] = late;
    assert_ok(trm_network_sort(n.network));
    assert_consistent(n.network);
    assert_true(late->producer->index < trm_network_find_tensor(n.network, "if")->producer->index);
    assert_in_branches(n.network);
    trm_network_destroy(n.network);
}

/* What a loop reads in every pass, through a view at that, is there until the loop ends; so is what it carries on. */
static void loops_keep_what_they_read(void **state)
{
    (void)state;
    net n = start();
    trm_tensor *read = add(&n, "read", relu, n.x, NULL);
    trm_tensor *view =
        add(&n, "view", (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = DIMS(2, 2)}}, read, NULL);
    trm_tensor *carried = add(&n, "carried", KIND(TRM_LAYER_RECURRENCE), n.x, NULL);
    trm_tensor *begun = add(&n, "loop", KIND(TRM_LAYER_LOOP), n.condition, NULL);
    trm_tensor *here = add(&n, "here", KIND(TRM_LAYER_ENTER), view, NULL);
    trm_tensor *flat =
        add(&n, "flat", (trm_layer_desc){.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = DIMS(4)}}, here, NULL);
    trm_tensor *sum = net_binary(n.network, "sum", TRM_ELEMENTWISE_ADD, carried, flat);
    trm_tensor *next = add(&n, "next", KIND(TRM_LAYER_NEXT), sum, carried);
    trm_tensor *more = add(&n, "more", relu, sum, NULL),
               *again = add(&n, "again", KIND(TRM_LAYER_ENTER), n.condition, NULL);
    trm_tensor *end = add(&n, "end", KIND(TRM_LAYER_END_LOOP), again, begun);
    net_output(n.network, add(&n, "out", KIND(TRM_LAYER_LOOP_OUTPUT), carried, end));
    int32_t ends[32] = {0};
    trm_regions regions;
    assert_ok(trm_regions_init(n.network, &regions));
    trm_regions_extend_lives(n.network, &regions, ends);
    trm_regions_fini(&regions);
    assert_int_equal(ends[read->index], end->producer->index);
    assert_int_equal(ends[carried->index], end->producer->index);
    assert_int_equal(ends[next->index], end->producer->index);
    assert_int_equal(ends[sum->index], 0);
    size_t sizes[32] = {0}, offsets[32], total;
    for (int32_t i = 0; i < n.network->n_tensors; i++) {
        sizes[i] = 16;
    }
    assert_ok(trm_memory_plan_place(n.network, sizes, ends, offsets, &total));
    const trm_tensor *kept[] = {read, carried}, *others[] = {sum, next, more};
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++) {
            assert_true(offsets[kept[i]->index] != offsets[others[k]->index]);
        }
    }
    assert_true(offsets[next->index] != offsets[more->index]);
    assert_true(offsets[here->index] == SIZE_MAX && offsets[view->index] == SIZE_MAX);
    trm_network_destroy(n.network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_that_do_not_nest),     cmocka_unit_test(tensors_stay_in_their_region),
        cmocka_unit_test(what_loops_carry_on),          cmocka_unit_test(branches_are_not_merged),
        cmocka_unit_test(sorting_keeps_layers_outside), cmocka_unit_test(loops_keep_what_they_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
