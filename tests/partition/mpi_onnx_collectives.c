/*
 * DistCollective nodes of ONNX files, run on every rank from the network as it is imported and from a plan file: all
 * ten operations, every reduction, axes, roots, groups, and networks that differ from rank to rank; what is refused. On
 * the host, or on CUDA with one GPU per rank.
 */
#include "support/support.h"

#include <math.h>
#include <stdio.h>

#include <trireme/trireme.h>

#include "collectives/communicator.h"
#include "support/onnx_message.h"
#include "support/world.h"

enum { OTHER = 3, MOST = 2 * TRM_MAX_RANKS * TRM_MAX_RANKS * OTHER };

static int32_t rank, n_ranks;

/* n = 0: all ranks, not listed. */
typedef struct group {
    int32_t n, size;
    int32_t members[TRM_MAX_RANKS];
} group;

/* One exchange of x [2 size, OTHER], or its transpose. */
typedef struct exchange {
    trm_collective_op op;
    trm_reduce_op reduce;
    int32_t axis, root; /* root: as a file has it */
    group group;
} exchange;

/* All; all in reverse order; all but the last; pairs. */
static int32_t list_groups(group *groups)
{
    int32_t n = 0;
    groups[n++] = (group){.n = 0, .size = n_ranks};
    groups[n] = (group){.n = 1, .size = n_ranks};
    for (int32_t i = 0; i < n_ranks; i++) {
        groups[n].members[i] = n_ranks - 1 - i;
    }
    n++;
    if (n_ranks > 1) {
        groups[n] = (group){.n = 1, .size = n_ranks - 1};
        for (int32_t i = 0; i < n_ranks - 1; i++) {
            groups[n].members[i] = i;
        }
        n++;
    }
    if (n_ranks == 4) {
        groups[n++] = (group){.n = 2, .size = 2, .members = {3, 0, 1, 2}};
    }
    return n;
}

/* The members of the group that a rank is in, and its place there; -1: none names it. */
static int32_t find_group(const group *g, int32_t of, int32_t *members)
{
    for (int32_t i = 0; i < (g->n == 0 ? 1 : g->n); i++) {
        for (int32_t place = 0; place < g->size; place++) {
            const int32_t member = g->n == 0 ? place : g->members[i * g->size + place];
            for (int32_t k = 0; k < g->size && member == of; k++) {
                members[k] = g->n == 0 ? k : g->members[i * g->size + k];
            }
            if (member == of) {
                return place;
            }
        }
    }
    return -1;
}

/* ---- files ---------------------------------------------------------------------------------------------- */

static void put_attribute(message *node, const char *name, const char *text, const int32_t *numbers, int32_t n)
{
    message attribute = {0};
    put_text(&attribute, 1, name);
    if (text != NULL) {
        put_text(&attribute, 4, text);
        put_number(&attribute, 20, 3);
    } else {
        for (int32_t i = 0; i < n; i++) {
            put_number(&attribute, 8, (uint64_t)(int64_t)numbers[i]);
        }
        put_number(&attribute, 20, 7);
    }
    put_message(node, 5, &attribute);
}

static void put_integer(message *node, const char *name, int64_t number)
{
    const message made = attribute(name, number, NULL);
    put_message(node, 5, &made);
}

static message collective_node(const char *operation, const char *domain)
{
    message made = node("DistCollective x y");
    put_text(&made, 7, domain);
    put_attribute(&made, "collective_operation", operation, NULL, 0);
    return made;
}

/* A network of one node; `type`: ONNX's number. */
static trm_status import_node(const message *made, int type, int n_dims, const int64_t *dims, const char *domain,
                              trm_network **network)
{
    static const int64_t open[] = {-1, -1};
    char path[512];
    trm_onnx *model;
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    message graph = {0}, opset = {0};
    put_message(&graph, 1, made);
    put_graph(&graph, 11, port("x", type, n_dims, dims));
    put_graph(&graph, 12, port("y", type, n_dims, open));
    message file = model_of(&graph);
    put_text(&opset, 1, domain);
    put_number(&opset, 2, 1);
    if (domain[0] != '\0') {
        put_message(&file, 8, &opset);
    }
    snprintf(path, sizeof(path), "%s/net%d.onnx", test_temporary_folder(), (int)rank);
    test_write_file(path, file.bytes, file.size);
    assert_ok(trm_onnx_open(path, &model));
    options.n_ranks = n_ranks;
    trm_status status = trm_onnx_build_network(model, &options, network);
    trm_onnx_close(model);
    return status;
}

/* What a rank has: the exchange, or one with itself alone where no group names it. `variant` decides how groups, root
 * and domain are written. */
static trm_network *import_exchange(const exchange *e, int32_t of, int32_t variant)
{
    static const char *const operations[] = {"all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter",
                                             "all_to_all", "gather",     "scatter",   "send",   "recv"};
    static const char *const reductions[] = {"sum", "prod", "max", "min", "avg", "none"};
    static const char *const domains[] = {"", "trt", "trt.plugins"};
    int32_t members[TRM_MAX_RANKS];
    const bool peer = e->op == TRM_SEND || e->op == TRM_RECV;
    const int64_t wide = 2 * e->group.size, dims[] = {e->axis == 0 ? wide : OTHER, e->axis == 0 ? OTHER : wide};
    const char *domain = domains[variant % 3];
    trm_network *network;
    message made = collective_node(operations[e->op], domain);
    if (find_group(&e->group, of, members) < 0) {
        made = collective_node("all_gather", domain);
        put_attribute(&made, "groups", NULL, &of, 1);
    } else {
        if (trm_collective_reduces(e->op) || variant % 2 == 0) {
            put_attribute(&made, "reduce_op", reductions[e->reduce], NULL, 0);
        }
        if (trm_collective_has_root(e->op) || peer || variant % 2 == 0) {
            put_integer(&made, "root", e->root);
        }
        if (e->group.n > 0) {
            put_attribute(&made, "groups", NULL, e->group.members, e->group.n * e->group.size);
        }
        if (e->group.n > 1 || variant % 4 < 2) {
            put_integer(&made, "group_size", e->group.n > 0 ? e->group.size : 0);
        }
        if (variant % 4 == 1 && !peer) {
            put_integer(&made, "nb_rank", e->group.size);
        }
        if (e->axis != 0) {
            put_integer(&made, "axis", variant % 2 == 0 ? -1 : 1);
        }
    }
    assert_ok(import_node(&made, 1, 2, dims, domain, &network));
    return network;
}

/* ---- runs ----------------------------------------------------------------------------------------------- */

/* Element `i` of the input of a rank: small numbers, exact in any order. */
static float value(int32_t of, int64_t i)
{
    return (float)(1 + (of * 7 + i * 3) % 5);
}

static float reduced(trm_reduce_op reduce, const int32_t *members, int32_t n, int64_t i)
{
    float result = value(members[0], i);
    for (int32_t k = 1; k < n; k++) {
        const float other = value(members[k], i);
        result = reduce == TRM_REDUCE_PROD  ? result * other
                 : reduce == TRM_REDUCE_MAX ? fmaxf(result, other)
                 : reduce == TRM_REDUCE_MIN ? fminf(result, other)
                                            : result + other;
    }
    return reduce == TRM_REDUCE_AVG ? result / (float)n : result;
}

/* The element of y at position `a` along the axis and `k` along the other one; this rank is member `place`. */
static float expected(const exchange *e, const int32_t *members, int32_t place, int64_t a, int64_t k)
{
    const int32_t n = e->group.size;
    const int64_t wide = 2 * n;
    const int32_t root = e->group.n > 1 && e->root >= 0 ? members[e->root] : e->root;
    int32_t from = rank;
    int64_t at = a;
    switch (e->op) {
    case TRM_ALL_GATHER:
    case TRM_GATHER:
        from = members[a / wide];
        at = a % wide;
        break;
    case TRM_ALL_TO_ALL:
        from = members[a / 2];
        at = 2 * place + a % 2;
        break;
    case TRM_SCATTER:
    case TRM_REDUCE_SCATTER:
        from = root;
        at = 2 * place + a;
        break;
    case TRM_BROADCAST:
    case TRM_RECV:
        from = root;
        break;
    default: /* reductions; what is sent stays */
        break;
    }
    const int64_t i = e->axis == 0 ? at * OTHER + k : k * wide + at;
    return trm_collective_reduces(e->op) ? reduced(e->reduce, members, n, i) : value(from, i);
}

static trm_plan *build(const trm_network *network, int32_t of)
{
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan;
    options.backend = test_backend();
    options.rank = of;
    assert_ok(trm_mesh_parse(NULL, n_ranks, &options.mesh));
    assert_ok(trm_build(network, &options, &plan));
    return plan;
}

/* Runs a plan, which is used up, and compares what is defined on this rank. */
static void check(trm_plan *plan, const exchange *e, const char *way)
{
    float x[MOST];
    int32_t members[TRM_MAX_RANKS];
    trm_engine *engine;
    trm_context *context = test_open_context(plan, &engine);
    const int64_t wide = 2 * e->group.size;
    const trm_dims dims = {2, {e->axis == 0 ? wide : OTHER, e->axis == 0 ? OTHER : wide}};
    const int32_t place = find_group(&e->group, rank, members);
    trm_dims out;
    const void *data;
    for (int64_t i = 0; i < wide * OTHER; i++) {
        x[i] = value(rank, i);
    }
    assert_ok(trm_context_set_input(context, "x", dims, x));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &out, &data));
    const int32_t root = e->group.n > 1 && place >= 0 && e->root >= 0 ? members[e->root] : e->root;
    if (place >= 0 && ((e->op != TRM_REDUCE && e->op != TRM_GATHER) || rank == root)) {
        const int64_t length = e->op == TRM_ALL_GATHER || e->op == TRM_GATHER        ? wide * e->group.size
                               : e->op == TRM_SCATTER || e->op == TRM_REDUCE_SCATTER ? 2
                                                                                     : wide;
        assert_true(out.n == 2 && out.d[e->axis] == length && out.d[1 - e->axis] == OTHER);
        for (int64_t a = 0; a < length; a++) {
            for (int64_t k = 0; k < OTHER; k++) {
                const float wanted = expected(e, members, place, a, k);
                const float found = ((const float *)data)[e->axis == 0 ? a * OTHER + k : k * length + a];
                if (fabsf(found - wanted) > 1e-6f * fabsf(wanted)) {
                    fail_msg("%s %d, axis %d, root %d, %d groups of %d, from %s: element %d, %d is %g, expected %g",
                             trm_collective_op_name(e->op), (int)e->reduce, (int)e->axis, (int)e->root, (int)e->group.n,
                             (int)e->group.size, way, (int)a, (int)k, (double)found, (double)wanted);
                }
            }
        }
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

/* The exchange on every rank, and again from a file that rank 0 has written for all. `peers`: what each rank does,
 * where it is not the same. */
static void run(const exchange *e, const exchange *peers, const char *path)
{
    static int32_t variant;
    trm_plan *plan;
    const exchange *mine = peers == NULL ? e : &peers[rank];
    trm_network *network = import_exchange(mine, rank, ++variant);
    check(build(network, rank), mine, "its network");
    trm_network_destroy(network);
    if (rank == 0) {
        trm_plan *plans[TRM_MAX_RANKS];
        for (int32_t i = 0; i < n_ranks; i++) {
            network = import_exchange(peers == NULL ? e : &peers[i], i, variant);
            plans[i] = build(network, i);
            trm_network_destroy(network);
        }
        assert_ok(trm_plan_save((const trm_plan *const *)plans, n_ranks, TRM_PLAN_WEIGHTS_REFERENCED, path));
        for (int32_t i = 0; i < n_ranks; i++) {
            trm_plan_destroy(plans[i]);
        }
    }
    assert_ok(trm_world_all_ok(test_world, TRM_OK));
    assert_ok(trm_plan_load(path, rank, &plan));
    check(plan, mine, "a plan file");
    assert_ok(trm_world_all_ok(test_world, TRM_OK)); /* before the file is written anew */
}

static void share_path(char *path, size_t size)
{
    memset(path, 0, size);
    if (rank == 0) {
        snprintf(path, size, "%s/net.plan", test_temporary_folder());
    }
    assert_ok(trm_world_broadcast(test_world, path, size, 0));
}

static void all_operations(void **state)
{
    (void)state;
    char path[512];
    group groups[4];
    const int32_t n_groups = list_groups(groups);
    share_path(path, sizeof(path));
    for (int op = TRM_ALL_REDUCE; op <= TRM_SCATTER; op++) {
        const bool reduces = trm_collective_reduces((trm_collective_op)op);
        for (int reduce = reduces ? TRM_REDUCE_SUM : TRM_REDUCE_NONE;
             reduce <= (reduces ? TRM_REDUCE_AVG : TRM_REDUCE_NONE); reduce++) {
            for (int32_t g = 0; g < n_groups; g++) {
                const int32_t axis = (op + reduce + g) % 2;
                exchange e = {(trm_collective_op)op, (trm_reduce_op)reduce, axis, -1, groups[g]};
                if (trm_collective_has_root((trm_collective_op)op)) { /* a rank that is not the first, if there is */
                    e.root = groups[g].n > 1 ? 1 : groups[g].n == 1 ? groups[g].members[0] : n_ranks - 1;
                }
                run(&e, NULL, path);
                if (groups[g].n == 0) { /* the other axis */
                    e.axis = 1 - axis;
                    run(&e, NULL, path);
                }
            }
        }
    }
}

/* Without groups, where the peer is any rank; in one of the two ranks; in several, where the peer is an index. */
enum { PEERS_OF_ALL = 0, PEERS_OF_ONE_GROUP, PEERS_OF_GROUPS, PEERS_COUNT };

/* What each rank does: from sends to `to`; with several groups, so do the others among themselves. */
static void list_peers(int32_t kind, int32_t from, int32_t to, exchange *peers)
{
    const int32_t axis = from == 0 ? 0 : 1;
    group pair = {.n = 0, .size = n_ranks};
    if (kind != PEERS_OF_ALL) {
        pair = (group){.n = 1, .size = 2, .members = {to, from, 1, 2}};
        pair.n = kind == PEERS_OF_GROUPS ? 2 : 1;
    }
    for (int32_t i = 0; i < n_ranks; i++) {
        const bool sends = i == from || (kind == PEERS_OF_GROUPS && i == 2);
        const int32_t index = sends ? 0 : 1, peer = sends ? to : from;
        peers[i] = (exchange){sends ? TRM_SEND : TRM_RECV, TRM_REDUCE_NONE, axis,
                              kind == PEERS_OF_GROUPS ? index : peer, pair};
        if (kind != PEERS_OF_GROUPS && i != from && i != to) { /* groups without it: a layer of its own */
            peers[i].group = (group){.n = 1, .size = pair.size, .members = {-1, -1, -1, -1}};
        }
    }
}

/* From the first rank to the last and back, whose networks differ. */
static void send_and_receive(void **state)
{
    (void)state;
    char path[512];
    exchange peers[TRM_MAX_RANKS];
    if (n_ranks == 1) {
        return;
    }
    share_path(path, sizeof(path));
    for (int32_t kind = 0; kind < (n_ranks == 4 ? PEERS_COUNT : PEERS_OF_GROUPS); kind++) {
        for (int32_t back = 0; back < 2; back++) {
            const int32_t from = back == 0 ? 0 : n_ranks - 1;
            list_peers(kind, from, n_ranks - 1 - from, peers);
            run(NULL, peers, path);
        }
    }
}

/* Numbers, whole numbers, and constants, which are not what a rank alone would make of them. */
static void other_tensors(void **state)
{
    (void)state;
    trm_network *network;
    trm_engine *engine;
    trm_dims dims;
    const void *data;
    message made = collective_node("all_reduce", "");
    assert_ok(import_node(&made, 1, 0, NULL, "", &network));
    trm_context *context = test_open_context(build(network, rank), &engine);
    trm_network_destroy(network);
    const float number = (float)(rank + 1);
    assert_ok(trm_context_set_input(context, "x", (trm_dims){0}, &number));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &dims, &data));
    assert_true(dims.n == 0 && *(const float *)data == (float)(n_ranks * (n_ranks + 1) / 2));
    trm_context_destroy(context);
    trm_engine_destroy(engine);

    static const int64_t two[] = {2};
    made = collective_node("all_reduce", "trt");
    put_attribute(&made, "reduce_op", "avg", NULL, 0);
    assert_ok(import_node(&made, 7, 1, two, "trt", &network));
    context = test_open_context(build(network, rank), &engine);
    trm_network_destroy(network);
    const int64_t whole[2] = {10 * rank, -rank};
    int64_t sums[2] = {0};
    for (int32_t i = 0; i < n_ranks; i++) {
        sums[0] += 10 * i;
        sums[1] -= i;
    }
    assert_ok(trm_context_set_input(context, "x", (trm_dims){1, {2}}, whole));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &dims, &data));
    assert_true(((const int64_t *)data)[0] == sums[0] / n_ranks && ((const int64_t *)data)[1] == sums[1] / n_ranks);
    trm_context_destroy(context);
    trm_engine_destroy(engine);

    const float ones[2] = {1, 1};
    message graph = {0}, joined = node("DistCollective c s"), sum = node("Add s x y");
    put_attribute(&joined, "collective_operation", "all_reduce", NULL, 0);
    put_message(&graph, 1, &joined);
    put_message(&graph, 1, &sum);
    put_weight(&graph, "c", 1, 1, two, ones, sizeof(ones));
    put_graph(&graph, 11, port("x", 1, 1, two));
    put_graph(&graph, 12, port("y", 1, 1, two));
    const message file = model_of(&graph);
    char path[512];
    trm_onnx *model;
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    snprintf(path, sizeof(path), "%s/net%d.onnx", test_temporary_folder(), (int)rank);
    test_write_file(path, file.bytes, file.size);
    options.n_ranks = n_ranks;
    assert_ok(trm_onnx_open(path, &model));
    assert_ok(trm_onnx_build_network(model, &options, &network));
    trm_onnx_close(model);
    context = test_open_context(build(network, rank), &engine);
    trm_network_destroy(network);
    assert_ok(trm_context_set_input(context, "x", (trm_dims){1, {2}}, ones));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &dims, &data));
    assert_true(((const float *)data)[0] == (float)(n_ranks + 1));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

/* Whether any rank, and whether all of them, say yes. */
static void bools_are_reduced(void **state)
{
    (void)state;
    static const int64_t size[] = {16};
    for (int32_t all = 0; all < 2; all++) {
        bool x[16];
        trm_network *network;
        trm_engine *engine;
        trm_dims dims;
        const void *data;
        message made = collective_node("all_reduce", "");
        put_attribute(&made, "reduce_op", all == 1 ? "min" : "max", NULL, 0);
        assert_ok(import_node(&made, 9, 1, size, "", &network));
        trm_context *context = test_open_context(build(network, rank), &engine);
        trm_network_destroy(network);
        for (int32_t i = 0; i < 16; i++) { /* rank r has bit r of i */
            x[i] = (i >> rank & 1) != 0;
        }
        assert_ok(trm_context_set_input(context, "x", (trm_dims){1, {16}}, x));
        assert_ok(trm_context_run(context));
        assert_ok(trm_context_output(context, "y", &dims, &data));
        for (int32_t i = 0; i < 16; i++) {
            const int32_t bits = i & ((1 << n_ranks) - 1);
            assert_int_equal(((const bool *)data)[i], all == 1 ? bits == (1 << n_ranks) - 1 : bits != 0);
        }
        trm_context_destroy(context);
        trm_engine_destroy(engine);
    }
}

/* By the import, or when it is built for a rank of four. */
static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *operation, *reduce;
        int64_t root, nb_rank, group_size, axis; /* 0: not there; root: 100 */
        int32_t groups[4], listed, of;
        const char *cause;
    } cases[] = {
        {.operation = "sum", .root = 100, .cause = "attribute collective_operation is \"sum\""},
        {.operation = "all_reduce", .reduce = "none", .root = 100, .cause = "found reduce op 5"},
        {.operation = "all_reduce", .reduce = "mean", .root = 100, .cause = "attribute reduce_op is \"mean\""},
        {.operation = "broadcast", .root = -1, .cause = "found root -1"},
        {.operation = "scatter", .root = (int64_t)1 << 32, .cause = "found root -1"},
        {.operation = "send", .root = 100, .cause = "attribute root is missing"},
        {.operation = "recv", .root = -2, .cause = "found peer -1"},
        {.operation = "all_gather", .root = 100, .nb_rank = 3, .groups = {0, 1}, .listed = 2, .cause = "nb_rank is 3"},
        {.operation = "all_gather", .root = 100, .nb_rank = -1, .cause = "nb_rank is -1"},
        {.operation = "all_gather", .root = 100, .nb_rank = 2, .group_size = 4, .cause = "expected the 4 ranks"},
        {.operation = "all_gather",
         .root = 100,
         .group_size = 2,
         .groups = {0, 1, 2},
         .listed = 3,
         .cause = "3 ranks in groups of 2"},
        {.operation = "all_gather", .root = 100, .group_size = -2, .cause = "0 ranks in groups of -2"},
        {.operation = "all_reduce", .root = 100, .groups = {0, 0}, .listed = 2, .cause = "rank 0 is twice"},
        {.operation = "all_reduce", .root = 100, .groups = {0, -5}, .listed = 2, .cause = "found rank -1 in a group"},
        {.operation = "broadcast", .root = 2, .groups = {0, 1}, .listed = 2, .cause = "expected a rank of the group"},
        {.operation = "all_to_all", .root = 100, .axis = 7, .cause = "axis 7"},
        {.operation = "scatter", .root = 0, .nb_rank = 5, .cause = "expected a multiple of 5"},
        {.operation = "send", .root = 0, .cause = "send of rank 0 has peer 0, expected another rank of the mesh"},
        {.operation = "recv", .root = 4, .of = 1, .cause = "recv of rank 1 has peer 4, expected another rank of"},
        {.operation = "send", .root = 3, .groups = {0, 1}, .listed = 2, .cause = "send of rank 0 has peer 3"},
        {.operation = "recv", .root = 2, .groups = {3, 0}, .listed = 2, .of = 3, .cause = "another rank of its group"},
        {.operation = "recv", .root = 1, .groups = {0, 1}, .listed = 2, .of = 1, .cause = "recv of rank 1 has peer 1"},
        {.operation = "send",
         .root = 0,
         .group_size = 2,
         .groups = {0, 1, 2, 3},
         .listed = 4,
         .cause = "send of rank 0 has peer 0, expected the index of another rank in its group"},
        {.operation = "recv",
         .root = 1,
         .group_size = 2,
         .groups = {0, 1, 2, 3},
         .listed = 4,
         .of = 3,
         .cause = "recv of rank 3 has peer 1, expected the index"},
        {.operation = "send",
         .root = 2,
         .group_size = 2,
         .groups = {0, 1, 2, 3},
         .listed = 4,
         .of = 1,
         .cause = "send of rank 1 has peer 2, expected the index"},
    };
    static const int64_t dims[] = {4, 2};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        trm_network *network;
        message made = collective_node(cases[i].operation, "");
        if (cases[i].reduce != NULL) {
            put_attribute(&made, "reduce_op", cases[i].reduce, NULL, 0);
        }
        if (cases[i].root != 100) {
            put_integer(&made, "root", cases[i].root);
        }
        if (cases[i].listed > 0) {
            put_attribute(&made, "groups", NULL, cases[i].groups, cases[i].listed);
        }
        const struct {
            const char *name;
            int64_t number;
        } numbers[] = {{"nb_rank", cases[i].nb_rank}, {"group_size", cases[i].group_size}, {"axis", cases[i].axis}};
        for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
            if (numbers[k].number != 0) {
                put_integer(&made, numbers[k].name, numbers[k].number);
            }
        }
        trm_status status = import_node(&made, 1, 2, dims, "", &network);
        if (status == TRM_OK) {
            trm_build_options options = TRM_BUILD_OPTIONS_INIT;
            trm_plan *plan = NULL;
            options.backend = test_backend();
            options.rank = cases[i].of;
            assert_ok(trm_mesh_parse(NULL, 4, &options.mesh));
            status = trm_build(network, &options, &plan);
            trm_network_destroy(network);
            trm_plan_destroy(plan);
        }
        if (status == TRM_OK || strstr(trm_last_error(), cases[i].cause) == NULL) {
            fail_msg("case %d: status %d, \"%s\", expected \"%s\"", (int)i, (int)status, trm_last_error(),
                     cases[i].cause);
        }
    }
}

static int open_ranks(void **state)
{
    test_open_world(state);
    rank = trm_world_rank(test_world);
    n_ranks = trm_world_size(test_world);
    return 0;
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_operations),           cmocka_unit_test(send_and_receive),
        cmocka_unit_test(bools_are_reduced),        cmocka_unit_test(other_tensors),
        cmocka_unit_test(what_is_wrong_is_refused),
    };
    return cmocka_run_group_tests(tests, open_ranks, test_close_world);
}
