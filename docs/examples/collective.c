/*
 * Collective layers by hand: every operation between all ranks, in one network that each rank runs as it is.
 *
 *   mpirun -np 4 collective [cuda]
 */
#include <stdio.h>
#include <string.h>

#include <trireme/trireme.h>

/* Every call says whether it succeeded; the first failure leads to the end of the function. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

typedef struct rank_info {
    int32_t rank, n, root, d; /* d: elements of every rank's x, two for each rank */
} rank_info;

static const struct {
    const char *name;
    trm_collective_op op;
    trm_reduce_op reduce;
} ops[] = {
    {"all_reduce", TRM_ALL_REDUCE, TRM_REDUCE_SUM},
    {"all_gather", TRM_ALL_GATHER, TRM_REDUCE_NONE},
    {"broadcast", TRM_BROADCAST, TRM_REDUCE_NONE},
    {"reduce", TRM_REDUCE, TRM_REDUCE_MAX},
    {"reduce_scatter", TRM_REDUCE_SCATTER, TRM_REDUCE_SUM},
    {"all_to_all", TRM_ALL_TO_ALL, TRM_REDUCE_NONE},
    {"gather", TRM_GATHER, TRM_REDUCE_NONE},
    {"scatter", TRM_SCATTER, TRM_REDUCE_NONE},
    {"recv", TRM_RECV, TRM_REDUCE_NONE},
};
enum { N_OPS = sizeof(ops) / sizeof(ops[0]) };

static float value(int32_t rank, int32_t i) /* element i of the input of a rank */
{
    return (float)(100 * rank + i);
}

static float sum(int32_t n, int32_t i)
{
    float s = 0;
    for (int32_t r = 0; r < n; r++) {
        s += value(r, i);
    }
    return s;
}

static float expected(trm_collective_op op, const rank_info *me, int32_t i)
{
    switch (op) {
    case TRM_ALL_REDUCE:
        return sum(me->n, i);
    case TRM_ALL_GATHER:
    case TRM_GATHER:
        return value(i / me->d, i % me->d);
    case TRM_BROADCAST:
        return value(me->root, i);
    case TRM_REDUCE:
        return value(me->n - 1, i); /* the maximum */
    case TRM_REDUCE_SCATTER:
        return sum(me->n, 2 * me->rank + i);
    case TRM_ALL_TO_ALL:
        return value(i / 2, 2 * me->rank + i % 2);
    case TRM_SCATTER:
        return value(me->root, 2 * me->rank + i);
    default:
        return value((me->rank + me->n - 1) % me->n, i); /* from the rank before, in the ring */
    }
}

/* Layers run in the order in which they are added. All ranks must meet: here even ranks send first, odd ones receive.
 */
static trm_status add_ring(trm_network *network, const rank_info *me, trm_tensor *x)
{
    trm_tensor *y;
    trm_status status = TRM_OK;
    for (int turn = 0; turn < 2; turn++) {
        bool send = (turn == 0) == (me->rank % 2 == 0);
        trm_collective_params p = {.op = send ? TRM_SEND : TRM_RECV, .reduce = TRM_REDUCE_NONE, .n_ranks = me->n};
        p.root = (me->rank + (send ? 1 : me->n - 1)) % me->n; /* the peer */
        TRY(trm_network_add_collective(network, send ? "send" : "recv", &p, x, &y));
        if (!send) { /* a layer that sends is run although nothing reads its output */
            TRY(trm_network_mark_output(network, y));
        }
    }
done:
    return status;
}

static trm_status define(trm_network *network, const rank_info *me)
{
    trm_tensor *x, *y;
    trm_status status;
    TRY(trm_network_add_input(network, "x", TRM_F32, (trm_dims){1, {me->d}}, &x));
    for (int k = 0; k < N_OPS && ops[k].op != TRM_RECV; k++) {
        trm_collective_params p = {.op = ops[k].op, .reduce = ops[k].reduce, .root = me->root, .n_ranks = me->n};
        TRY(trm_network_add_collective(network, ops[k].name, &p, x, &y)); /* axis 0, one group of all ranks */
        TRY(trm_network_mark_output(network, y));
    }
    TRY(me->n > 1 ? add_ring(network, me, x) : TRM_OK);
done:
    return status;
}

/* Prints and checks what this rank has of one layer; what a reduce or gather leaves elsewhere than at the root is
 * undefined. */
static trm_status show(trm_context *context, const rank_info *me, int k, bool *right)
{
    char line[512];
    trm_dims dims;
    const void *data;
    trm_status status;
    TRY(trm_context_output(context, ops[k].name, &dims, &data));
    if ((ops[k].op == TRM_REDUCE || ops[k].op == TRM_GATHER) && me->rank != me->root) {
        goto done;
    }
    int used = snprintf(line, sizeof(line), "rank %d: %-14s", (int)me->rank, ops[k].name);
    for (int32_t i = 0; i < dims.d[0]; i++) {
        float found = ((const float *)data)[i];
        *right = *right && found == expected(ops[k].op, me, i);
        used += i < 16 ? snprintf(line + used, sizeof(line) - (size_t)used, " %g", (double)found) : 0;
    }
    puts(line);
done:
    return status;
}

static trm_status run(trm_world *world, trm_backend backend, bool *right)
{
    rank_info me = {trm_world_rank(world), trm_world_size(world), 0, 0};
    me.root = me.n - 1;
    me.d = 2 * me.n;
    trm_build_options how = TRM_BUILD_OPTIONS_INIT;
    trm_network *network = NULL;
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    trm_context *context = NULL;
    float x[2 * TRM_MAX_RANKS];
    for (int32_t i = 0; i < me.d; i++) {
        x[i] = value(me.rank, i);
    }
    trm_status status;
    how.backend = backend;
    how.rank = me.rank;
    TRY(trm_mesh_parse(NULL, me.n, &how.mesh));
    TRY(trm_network_create(&network));
    TRY(define(network, &me));
    TRY(trm_build(network, &how, &plan));
    TRY(trm_engine_create(plan, world, NULL, NULL, &engine)); /* takes the plan over */
    TRY(trm_context_create(engine, &context));
    TRY(trm_context_set_input(context, "x", (trm_dims){1, {me.d}}, x));
    TRY(trm_context_run(context));
    for (int k = 0; k < N_OPS && (me.n > 1 || ops[k].op != TRM_RECV); k++) {
        TRY(show(context, &me, k, right));
    }
done:
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
    return status;
}

int main(int argc, char **argv)
{
    trm_world_options where = TRM_WORLD_OPTIONS_INIT;
    where.backend = argc > 1 && strcmp(argv[1], "cuda") == 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
    trm_world *world = NULL;
    bool right = true;
    trm_status status;
    TRY(trm_world_open(&where, &world));
    TRY(run(world, where.backend, &right));
    printf("rank %d: all results are %s\n", (int)trm_world_rank(world), right ? "right" : "wrong");
done:
    if (status != TRM_OK) {
        fprintf(stderr, "collective: %s: %s\n", trm_status_name(status), trm_last_error());
        trm_world_abort(world, status); /* ends the other ranks too; returns where there are none */
    }
    trm_world_close(world);
    return status != TRM_OK ? trm_status_exit_code(status) : right ? 0 : 1;
}
