/*
 * Ranks through the public API: the world's communicator with every op, group and root, and networks whose author wrote
 * the collectives: any op, axis, root and group, also where ranks have different layers.
 */
#include "support/support.h"

#include <stdio.h>

#include <trireme/trireme.h>

static trm_world *world;
static int32_t rank, n_ranks;

typedef struct group {
    int32_t n_groups, size; /* 0 groups: all */
    int32_t members[TRM_MAX_RANKS];
} group;

/* All; all in reverse order; all but the last; pairs. Returns how many there are for this number of ranks. */
static int32_t list_groups(group *groups)
{
    int32_t n = 0;
    groups[n++] = (group){0, n_ranks, {0}};
    groups[n] = (group){1, n_ranks, {0}};
    for (int32_t i = 0; i < n_ranks; i++) {
        groups[n].members[i] = n_ranks - 1 - i;
    }
    n++;
    if (n_ranks > 1) {
        groups[n] = (group){1, n_ranks - 1, {0}};
        for (int32_t i = 0; i < n_ranks - 1; i++) {
            groups[n].members[i] = i;
        }
        n++;
    }
    if (n_ranks > 3) {
        groups[n++] = (group){2, 2, {3, 0, 1, 2}};
    }
    return n;
}

/* The members of this rank's group and its place in it, -1 if no group names it. */
static int32_t find_self(const group *g, int32_t *members)
{
    int32_t place = -1;
    for (int32_t i = 0; i < (g->n_groups == 0 ? 1 : g->n_groups); i++) {
        for (int32_t j = 0; j < g->size; j++) {
            int32_t r = g->n_groups == 0 ? j : g->members[i * g->size + j];
            if (r == rank) {
                place = j;
                for (int32_t k = 0; k < g->size; k++) {
                    members[k] = g->n_groups == 0 ? k : g->members[i * g->size + k];
                }
            }
        }
    }
    return place;
}

static float value(int32_t r, int64_t i)
{
    return (float)(1 + 50 * r + i);
}

static bool reduces(trm_collective_op op)
{
    return op == TRM_ALL_REDUCE || op == TRM_REDUCE || op == TRM_REDUCE_SCATTER;
}

static bool has_root(trm_collective_op op)
{
    return op == TRM_BROADCAST || op == TRM_REDUCE || op == TRM_GATHER || op == TRM_SCATTER;
}

/* What member `place` has at block b, element i of block, when each rank's input is blocks of `block` elements. */
static float expected(trm_collective_op op, trm_reduce_op reduce, const int32_t *members, int32_t size, int32_t place,
                      int32_t root, int64_t b, int64_t i, int64_t block)
{
    if (reduces(op)) {
        int64_t at = (op == TRM_REDUCE_SCATTER ? place : b) * block + i;
        float result = value(members[0], at);
        for (int32_t r = 1; r < size; r++) {
            float other = value(members[r], at);
            result = reduce == TRM_REDUCE_MAX ? (other > result ? other : result) : result + other;
        }
        return reduce == TRM_REDUCE_AVG ? result / (float)size : result;
    }
    switch (op) {
    case TRM_ALL_GATHER:
    case TRM_GATHER:
        return value(members[b], i);
    case TRM_BROADCAST:
        return value(members[root], b * block + i);
    case TRM_ALL_TO_ALL:
        return value(members[b], place * block + i);
    default: /* SCATTER */
        return value(members[root], place * block + i);
    }
}

static bool cuts_input(trm_collective_op op)
{
    return op == TRM_REDUCE_SCATTER || op == TRM_SCATTER || op == TRM_ALL_TO_ALL;
}

static bool joins_output(trm_collective_op op)
{
    return op == TRM_ALL_GATHER || op == TRM_GATHER || op == TRM_ALL_TO_ALL;
}

static trm_collective_params params_of(trm_collective_op op, trm_reduce_op reduce, const group *g, int32_t root)
{
    trm_collective_params p = {.op = op, .reduce = reduces(op) ? reduce : TRM_REDUCE_NONE};
    p.n_ranks = g->size;
    p.n_groups = g->n_groups;
    p.group_size = g->n_groups == 0 ? 0 : g->size;
    memcpy(p.groups, g->members, sizeof(p.groups));
    /* A global rank for one group, an index into each for several. */
    p.root = g->n_groups == 1 ? g->members[root] : root;
    return p;
}

static void exchange_once(trm_collective_op op, trm_reduce_op reduce, const group *g, int32_t root)
{
    enum { BLOCK = 3 };
    float from[TRM_MAX_RANKS * BLOCK], to[TRM_MAX_RANKS * BLOCK];
    int32_t members[TRM_MAX_RANKS], place = find_self(g, members);
    for (int32_t i = 0; i < TRM_MAX_RANKS * BLOCK; i++) {
        from[i] = value(rank, i);
        to[i] = -1.0f;
    }
    trm_collective_params p = params_of(op, reduce, g, root);
    assert_ok(trm_world_collective(world, &p, TRM_F32, from, to, BLOCK, false));
    int32_t blocks = joins_output(op) ? g->size : 1;
    bool mine = place >= 0 && (!(op == TRM_REDUCE || op == TRM_GATHER) || place == root);
    for (int32_t i = 0; i < blocks * BLOCK && mine; i++) {
        assert_float_equal(to[i], expected(op, reduce, members, g->size, place, root, i / BLOCK, i % BLOCK, BLOCK),
                           1e-3f);
    }
    for (int32_t i = place < 0 ? 0 : blocks * BLOCK; i < TRM_MAX_RANKS * BLOCK; i++) {
        assert_true(to[i] == -1.0f);
    }
}

static void test_exchange(void **state)
{
    (void)state;
    static const trm_reduce_op reduce_ops[] = {TRM_REDUCE_SUM, TRM_REDUCE_MAX, TRM_REDUCE_AVG};
    group groups[8];
    int32_t n_groups = list_groups(groups);
    for (int32_t g = 0; g < n_groups; g++) {
        for (int32_t op = TRM_ALL_REDUCE; op <= TRM_SCATTER; op++) {
            for (int32_t root = 0; root < (has_root((trm_collective_op)op) ? groups[g].size : 1); root++) {
                for (int32_t k = 0; k < (reduces((trm_collective_op)op) ? 3 : 1); k++) {
                    exchange_once((trm_collective_op)op, reduce_ops[k], &groups[g], root);
                }
            }
        }
    }
}

static void test_send_and_receive(void **state)
{
    (void)state;
    for (int32_t a = 0; a < n_ranks; a++) {
        for (int32_t b = 0; b < n_ranks; b++) {
            int64_t sent = 1000 * a + b, got = -1;
            trm_collective_params p = {.op = rank == a ? TRM_SEND : TRM_RECV, .root = rank == a ? b : a};
            if (a != b && (rank == a || rank == b)) {
                assert_ok(trm_world_collective(world, &p, TRM_I64, rank == a ? &sent : NULL, rank == a ? NULL : &got, 1,
                                               false));
                assert_int_equal(got, rank == a ? -1 : sent);
            }
        }
    }
    trm_collective_params p = {.op = TRM_SEND, .n_groups = 1, .group_size = 1, .groups = {rank}};
    assert_fails(trm_world_collective(world, &p, TRM_I32, &p.op, NULL, 1, false), TRM_ERROR_INVALID_ARGUMENT,
                 "expected none");
}

/* A network with one input and, unless `params` is NULL, one collective on it; run on x. */
static void run_network(const trm_collective_params *params, trm_dims dims, const float *x, trm_dims *out, float *y)
{
    trm_network *network;
    trm_tensor *input, *output;
    trm_plan *plan;
    trm_engine *engine;
    trm_context *context;
    const void *data;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, dims, &input));
    assert_ok(trm_network_add_collective(network, "y", params, input, &output));
    assert_ok(trm_network_mark_output(network, output));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.rank = rank;
    assert_ok(trm_mesh_parse(NULL, n_ranks, &options.mesh));
    assert_ok(trm_build(network, &options, &plan));
    assert_ok(trm_engine_create(plan, world, NULL, NULL, &engine));
    assert_ok(trm_context_create(engine, &context));
    assert_ok(trm_context_set_input(context, "x", dims, x));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", out, &data));
    int64_t count = out->d[0] * out->d[1] * out->d[2];
    memcpy(y, data, (size_t)count * sizeof(*y));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
}

/* A layer along one axis of [2, 2, 2], that axis 2 * size long where the op cuts it. A rank that no group names has
 * another layer in its network, with a group of itself alone. */
static void layer_once(trm_collective_op op, const group *g, int32_t root, int32_t axis)
{
    enum { MOST = 8 * TRM_MAX_RANKS };
    float x[MOST], y[MOST];
    int32_t members[TRM_MAX_RANKS], place = find_self(g, members);
    trm_dims dims = {3, {2, 2, 2}}, out;
    trm_collective_params p = params_of(op, TRM_REDUCE_SUM, g, root);
    p.axis = axis - 3; /* negative axes count from the end */
    if (place < 0) {
        p = (trm_collective_params){.op = TRM_ALL_GATHER,
                                    .reduce = TRM_REDUCE_NONE,
                                    .n_ranks = 1,
                                    .n_groups = 1,
                                    .group_size = 1,
                                    .groups = {rank}};
    } else if (cuts_input(op)) {
        dims.d[axis] *= g->size;
    }
    int64_t inner = 1, width = dims.d[axis];
    for (int32_t i = axis + 1; i < 3; i++) {
        inner *= dims.d[i];
    }
    /* Element (o, a, k) of the input has the number ((a * outer + o) * inner + k): blocks along the axis are contiguous
     * in numbers, whatever the axis is. */
    int64_t outer = 4 / inner;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t a = 0; a < width; a++) {
            for (int64_t k = 0; k < inner; k++) {
                x[(o * width + a) * inner + k] = value(rank, (a * outer + o) * inner + k);
            }
        }
    }
    run_network(&p, dims, x, &out, y);
    if (place < 0 || ((op == TRM_REDUCE || op == TRM_GATHER) && place != root)) {
        return;
    }
    int64_t block = 2 * outer * inner; /* elements of two positions along the axis */
    assert_int_equal(out.d[axis], joins_output(op) ? 2 * g->size : 2);
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t a = 0; a < out.d[axis]; a++) {
            for (int64_t k = 0; k < inner; k++) {
                int64_t i = (a % 2 * outer + o) * inner + k;
                assert_float_equal(y[(o * out.d[axis] + a) * inner + k],
                                   expected(op, TRM_REDUCE_SUM, members, g->size, place, root, a / 2, i, block), 1e-3f);
            }
        }
    }
}

static void test_layers(void **state)
{
    (void)state;
    group groups[8];
    int32_t n_groups = list_groups(groups);
    for (int32_t g = 0; g < n_groups; g++) {
        for (int32_t op = TRM_ALL_REDUCE; op <= TRM_SCATTER; op++) {
            for (int32_t axis = 0; axis < 3; axis++) {
                layer_once((trm_collective_op)op, &groups[g], has_root((trm_collective_op)op) ? groups[g].size - 1 : 0,
                           axis);
            }
        }
    }
}

/* Collectives that do not suit the rank or the mesh are refused when the network is built. */
static void test_build_refuses(void **state)
{
    (void)state;
    const struct {
        trm_collective_params params;
        const char *cause;
    } cases[] = {
        {{.op = TRM_ALL_REDUCE, .n_ranks = 63}, "is for 63 ranks"},
        {{.op = TRM_ALL_REDUCE, .n_ranks = 1, .n_groups = 1, .group_size = 1, .groups = {rank + 1}},
         rank + 1 < n_ranks ? "has no group with rank" : "the mesh has"},
        {{.op = TRM_ALL_GATHER, .n_ranks = 2, .n_groups = 1, .group_size = 2, .groups = {rank, 60}}, "names rank 60"},
        {{.op = TRM_SEND, .root = rank, .n_ranks = 2}, "peer"},
        {{.op = TRM_RECV, .root = 60, .n_ranks = 2}, "peer 60"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        trm_network *network;
        trm_tensor *input, *output;
        trm_plan *plan;
        assert_ok(trm_network_create(&network));
        assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){1, {4}}, &input));
        assert_ok(trm_network_add_collective(network, "y", &cases[i].params, input, &output));
        assert_ok(trm_network_mark_output(network, output));
        trm_build_options options = TRM_BUILD_OPTIONS_INIT;
        options.backend = TRM_BACKEND_HOST;
        options.rank = rank;
        assert_ok(trm_mesh_parse(NULL, n_ranks, &options.mesh));
        assert_fails(trm_build(network, &options, &plan), TRM_ERROR_INVALID_ARGUMENT, cases[i].cause);
        trm_network_destroy(network);
    }
}

/* An engine that one rank cannot make is made on none, and the world goes on. */
static void test_engine_fails_on_all(void **state)
{
    (void)state;
    trm_network *network;
    trm_tensor *input, *output;
    trm_plan *plan;
    trm_engine *engine;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){1, {4}}, &input));
    assert_ok(trm_network_add_activation(network, "y", TRM_ACTIVATION_RELU, input, &output));
    assert_ok(trm_network_mark_output(network, output));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.rank = rank == n_ranks - 1 ? 0 : rank; /* the last rank makes a mistake */
    assert_ok(trm_mesh_parse(NULL, n_ranks, &options.mesh));
    if (n_ranks == 1) {
        options.mesh.size[TRM_AXIS_TP] = 2;
    }
    assert_ok(trm_build(network, &options, &plan));
    assert_fails(trm_engine_create(plan, world, NULL, NULL, &engine), TRM_ERROR_INVALID_ARGUMENT, "the plan is for");
    trm_network_destroy(network);
    assert_ok(trm_world_all_ok(world, TRM_OK));
}

int main(void)
{
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    if (trm_world_open(&options, &world) != TRM_OK) {
        fprintf(stderr, "cannot open the world: %s\n", trm_last_error());
        return 1;
    }
    rank = trm_world_rank(world);
    n_ranks = trm_world_size(world);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange),      cmocka_unit_test(test_send_and_receive),    cmocka_unit_test(test_layers),
        cmocka_unit_test(test_build_refuses), cmocka_unit_test(test_engine_fails_on_all),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trm_world_close(world);
    return failed;
}
