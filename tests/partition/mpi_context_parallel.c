/*
 * Context parallel attention (n_ranks): each rank has its rows of the sequences, and all of them together what the host
 * reference gives for one layer over the whole sequences. From plans and from plan files.
 */
#include "graph/nets.h"

#include <math.h>
#include <stdio.h>

#include <trireme/trireme.h>

#include "base/half.h"
#include "dist/partition/partition.h"
#include "kernels/kernel.h"
#include "support/interpreter.h"
#include "support/world.h"

enum { NO_MASK = 0, MASK_ROWS, MASK_COLUMNS, MASK_ADDED };
/* Rows and batch are unknown when the network is built; a second layer is done on what comes of the first; rows and
 * heads are given in the other order, and transposes stand before the layer; how many columns the mask has is unknown
 * when the network is built; the mask has one column for all keys. */
enum { DYNAMIC = 1, STACKED = 2, TURNED = 4, ANY_COLUMNS = 8, ONE_COLUMN = 16 };

typedef struct attention_case {
    trm_attention_form form;
    trm_causal causal;
    int32_t window;
    float softcap;
    int64_t batch, hq, hkv, d, dv;
    int64_t queries, keys; /* of one rank */
    int32_t mask;
    int32_t how;
    trm_dtype dtype;
} attention_case;

#define BHND   TRM_ATTENTION_PADDED_BHND
#define BNHD   TRM_ATTENTION_PADDED_BNHD
#define OPEN   TRM_CAUSAL_NONE
#define UPPER  TRM_CAUSAL_UPPER_LEFT
#define LOWER  TRM_CAUSAL_LOWER_RIGHT
#define PLAIN  2, 4, 4, 16, 16
#define GROUPS 1, 6, 2, 8, 8

static const attention_case cases[] = {
    {BHND, OPEN, 0, 0, PLAIN, 5, 5, NO_MASK, TURNED, TRM_F32},
    {BHND, UPPER, 0, 0, PLAIN, 5, 5, NO_MASK, 0, TRM_F32},
    {BHND, LOWER, 0, 0, PLAIN, 5, 5, NO_MASK, 0, TRM_F32},
    {BNHD, OPEN, 0, 0, GROUPS, 7, 3, NO_MASK, 0, TRM_F32},
    {BNHD, UPPER, 0, 0, GROUPS, 3, 7, NO_MASK, 0, TRM_F32},
    {BNHD, LOWER, 0, 0, GROUPS, 3, 7, NO_MASK, TURNED, TRM_F32},
    {BHND, LOWER, 0, 0, GROUPS, 7, 3, NO_MASK, 0, TRM_F32}, /* the first queries see no key */
    {BHND, LOWER, 0, 0, PLAIN, 9, 1, NO_MASK, 0, TRM_F32},  /* the first rank sees none */
    {BHND, UPPER, 4, 0, PLAIN, 6, 6, NO_MASK, 0, TRM_F32},  /* reaches over the rank before */
    {BHND, UPPER, 1, 0, PLAIN, 6, 9, NO_MASK, 0, TRM_F32},
    {BNHD, LOWER, 9, 3.0f, GROUPS, 4, 6, NO_MASK, 0, TRM_F32},
    {BHND, LOWER, 3, 0, GROUPS, 5, 2, NO_MASK, 0, TRM_F32},
    {BHND, OPEN, 0, 2.0f, 1, 5, 5, 40, 24, 4, 3, MASK_ROWS, 0, TRM_F32},
    {BHND, UPPER, 0, 0, PLAIN, 5, 5, MASK_ROWS, 0, TRM_F32},
    {BHND, LOWER, 6, 0, GROUPS, 4, 5, MASK_COLUMNS, 0, TRM_F32},
    {BNHD, LOWER, 0, 0, PLAIN, 4, 8, MASK_ADDED, 0, TRM_F32},
    {BHND, OPEN, 0, 0, PLAIN, 6, 4, NO_MASK, DYNAMIC, TRM_F32},
    {BHND, UPPER, 0, 0, PLAIN, 6, 6, NO_MASK, DYNAMIC, TRM_F32},
    {BNHD, LOWER, 4, 0, GROUPS, 5, 5, NO_MASK, DYNAMIC, TRM_F32},
    {BHND, UPPER, 0, 0, PLAIN, 6, 6, MASK_COLUMNS, DYNAMIC, TRM_F32},
    {BHND, LOWER, 0, 0, PLAIN, 8, 8, NO_MASK, STACKED, TRM_F32},
    {BNHD, UPPER, 5, 0, PLAIN, 8, 8, NO_MASK, DYNAMIC | STACKED, TRM_F32},
    {BHND, UPPER, 0, 0, 2, 8, 2, 64, 64, 70, 70, NO_MASK, 0, TRM_F16},
    {BNHD, LOWER, 100, 0, 1, 4, 4, 128, 128, 65, 65, NO_MASK, 0, TRM_BF16},
    {BNHD, OPEN, 0, 0, 2, 4, 4, 64, 64, 64, 64, NO_MASK, 0, TRM_F16},
    {BHND, LOWER, 0, 5.0f, 1, 4, 1, 64, 64, 33, 90, MASK_COLUMNS, 0, TRM_BF16},
    {BHND, UPPER, 0, 0, 1, 4, 4, 64, 64, 150, 150, NO_MASK, DYNAMIC, TRM_F32},
    {BHND, LOWER, 0, 0, 2, 8, 4, 128, 128, 300, 300, NO_MASK, TURNED, TRM_BF16},
    {BHND, UPPER, 50, 0, 1, 4, 4, 64, 64, 200, 200, NO_MASK, DYNAMIC | TURNED, TRM_F16},
    {BHND, OPEN, 0, 0, 1, 4, 2, 96, 96, 190, 240, NO_MASK, TURNED, TRM_F16},
    {BHND, UPPER, 6, 0, PLAIN, 5, 5, MASK_ADDED, TURNED, TRM_F32},
    {BHND, LOWER, 2, 0, PLAIN, 5, 5, MASK_ROWS, ANY_COLUMNS | ONE_COLUMN, TRM_F32},
    {BNHD, UPPER, 0, 0, GROUPS, 4, 6, MASK_ADDED, ANY_COLUMNS, TRM_F32},
    {BHND, UPPER, 0, 0, PLAIN, 6, 6, MASK_COLUMNS, DYNAMIC | ONE_COLUMN, TRM_F32},
    {BNHD, LOWER, 4, 0, GROUPS, 5, 5, MASK_ADDED, ONE_COLUMN, TRM_F32},
    {BNHD, LOWER, 3, 0, GROUPS, 7, 7, MASK_COLUMNS, DYNAMIC | ONE_COLUMN | TURNED, TRM_F32},
    {BNHD, OPEN, 0, 0, GROUPS, 3, 8, MASK_ROWS, ANY_COLUMNS | ONE_COLUMN, TRM_F32},
    {BHND, UPPER, 3, 0, GROUPS, 6, 6, MASK_COLUMNS, ANY_COLUMNS | ONE_COLUMN, TRM_BF16},
};

/* Who shares a layer's rows: all ranks, or those along an axis; or the partitioner has a layer of one rank shared. */
typedef struct sharing {
    const char *mesh;
    int32_t n, place;
    bool partitioned;
} sharing;

/* ---- networks -------------------------------------------------------------------------------------------------- */

static bool is(const attention_case *c, int32_t how)
{
    return (c->how & how) != 0;
}

/* The axis of rows in q, k and v as they are given. */
static int32_t given_rows(const attention_case *c)
{
    return (c->form == BNHD) != is(c, TURNED) ? 1 : 2;
}

static trm_dims rows_of(const attention_case *c, int64_t heads, int64_t rows, int64_t width)
{
    return given_rows(c) == 1 ? DIMS(c->batch, rows, heads, width) : DIMS(c->batch, heads, rows, width);
}

static trm_dims mask_dims(const attention_case *c, int64_t queries, int64_t keys)
{
    keys = is(c, ONE_COLUMN) ? 1 : keys;
    return c->mask == MASK_COLUMNS ? DIMS(c->batch, 1, 1, keys)
           : c->mask == MASK_ADDED ? DIMS(c->hq, queries, keys)
                                   : DIMS(queries, keys);
}

/* Whether q, k and v are parts of one input: so it is known that they have as many rows, however many those are. */
static bool is_joined(const attention_case *c)
{
    return is(c, DYNAMIC) && c->causal != OPEN;
}

static bool has_input(const attention_case *c, int32_t i)
{
    return i == 0 || (i < 3 ? !is_joined(c) : c->mask != NO_MASK);
}

/* Dims of input `i` where a rank has `queries` and `keys`, and a mask has `all` keys. */
static trm_dims input_dims(const attention_case *c, int32_t i, int64_t queries, int64_t keys, int64_t all)
{
    return i == 0   ? rows_of(c, c->hq, queries, is_joined(c) ? 2 * c->d + c->dv : c->d)
           : i == 1 ? rows_of(c, c->hkv, keys, c->d)
           : i == 2 ? rows_of(c, c->hkv, keys, c->dv)
                    : mask_dims(c, queries, all);
}

static const char *const names[] = {"q", "k", "v", "mask"};

static trm_dtype input_type(const attention_case *c, int32_t i, trm_dtype dtype)
{
    return i < 3 ? dtype : c->mask == MASK_ADDED ? TRM_F32 : TRM_BOOL;
}

static trm_tensor *slice_of(trm_network *network, trm_tensor *x, int32_t axis, int64_t start, int64_t end)
{
    const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE,
                                  .slice = {.axis = axis, .start = start, .end = end, .step = 1}};
    return net_layer(network, "slice", slice, x, NULL, NULL, NULL);
}

/* A layer of n_ranks, or a second one of what it gives as well. */
static trm_network *make_network(const attention_case *c, trm_dtype dtype, int32_t n, int64_t queries, int64_t keys)
{
    trm_network *network = net_create();
    trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {NULL}, *y;
    const int32_t rows = given_rows(c);
    for (int32_t i = 0; i < 4; i++) {
        if (!has_input(c, i)) {
            continue;
        }
        trm_dims dims = input_dims(c, i, queries, keys, n * keys);
        if (is(c, DYNAMIC) && i < 3) {
            dims.d[0] = dims.d[rows] = -1;
        } else if (is(c, DYNAMIC)) {
            dims.d[0] = dims.d[dims.n - 1] = -1;
        } else if (is(c, ANY_COLUMNS) && i == 3) {
            dims.d[dims.n - 1] = -1;
        }
        inputs[i < 3 ? i : TRM_ATTENTION_MASK] = net_input(network, names[i], input_type(c, i, dtype), dims);
    }
    if (is_joined(c)) {
        trm_tensor *joined = inputs[0];
        for (int32_t i = 0; i < 3; i++) {
            inputs[i] =
                slice_of(network, slice_of(network, joined, 3, i * c->d, i == 2 ? 2 * c->d + c->dv : (i + 1) * c->d),
                         3 - rows, 0, i == 0 ? c->hq : c->hkv);
        }
    }
    for (int32_t i = 0; is(c, TURNED) && i < 3; i++) {
        const trm_layer_desc turn = {.kind = TRM_LAYER_TRANSPOSE, .transpose = {{0, 2, 1, 3}}};
        inputs[i] = net_layer(network, "turn", turn, inputs[i], NULL, NULL, NULL);
    }
    trm_layer_desc desc = {
        .kind = TRM_LAYER_ATTENTION,
        .attention = {.form = c->form, .causal = c->causal, .window = c->window, .softcap = c->softcap, .n_ranks = n}};
    assert_ok(trm_network_add_layer(network, "attention", &desc, inputs, TRM_ATTENTION_INPUT_COUNT, &y));
    if (is(c, STACKED)) {
        inputs[0] = inputs[2] = y;
        assert_ok(trm_network_add_layer(network, "attention2", &desc, inputs, TRM_ATTENTION_INPUT_COUNT, &y));
    }
    assert_ok(trm_network_rename_tensor(network, y, "y"));
    net_output(network, y);
    return network;
}

/* ---- elements -------------------------------------------------------------------------------------------------- */

static float rounded(trm_dtype dtype, float value)
{
    return dtype == TRM_F16    ? trm_f16_to_f32(trm_f32_to_f16(value))
           : dtype == TRM_BF16 ? trm_bf16_to_f32(trm_f32_to_bf16(value))
                               : value;
}

static void store(trm_dtype dtype, void *to, int64_t i, float value)
{
    if (dtype == TRM_F32) {
        ((float *)to)[i] = value;
    } else if (dtype == TRM_BOOL) {
        ((uint8_t *)to)[i] = value > -0.5f; /* three quarters */
    } else {
        ((uint16_t *)to)[i] = dtype == TRM_F16 ? trm_f32_to_f16(value) : trm_f32_to_bf16(value);
    }
}

static float load(trm_dtype dtype, const void *from, int64_t i)
{
    return dtype == TRM_F32   ? ((const float *)from)[i]
           : dtype == TRM_F16 ? trm_f16_to_f32(((const uint16_t *)from)[i])
                              : trm_bf16_to_f32(((const uint16_t *)from)[i]);
}

/* The element of input `i` at a place of the whole, whoever asks; of the type of the case. */
static float element(const attention_case *c, int32_t i, const int64_t *place)
{
    uint64_t seed = (uint64_t)i + 1;
    for (int32_t k = 0; k < TRM_MAX_DIMS; k++) {
        seed = seed * 1009 + (uint64_t)place[k];
        (void)test_random(&seed);
    }
    return rounded(c->dtype, test_random_float(&seed));
}

/* Elements of an input of which this is rows first .. on of the whole along an axis (-1: all). */
static void *elements(const attention_case *c, int32_t i, trm_dtype dtype, const trm_dims *dims, int32_t axis,
                      int64_t first)
{
    const int64_t count = trm_dims_count(dims);
    void *made = calloc((size_t)count + 1, trm_dtype_size(dtype));
    assert_non_null(made);
    for (int64_t at = 0; at < count; at++) {
        int64_t place[TRM_MAX_DIMS] = {0}, rest = at;
        for (int32_t k = dims->n - 1; k >= 0; k--) {
            place[k] = rest % dims->d[k] + (k == axis ? first : 0);
            rest /= dims->d[k];
        }
        store(dtype, made, at, element(c, i, place));
    }
    return made;
}

/* The axis of input `i` along which ranks have parts, and where that of `place` begins. */
static int32_t cut_axis(const attention_case *c, int32_t i, int32_t place, int64_t *first)
{
    *first = place * (i == 0 || i == 3 ? c->queries : c->keys);
    return i < 3 ? given_rows(c) : c->mask == MASK_ROWS ? 0 : c->mask == MASK_ADDED ? 1 : -1;
}

/* ---- runs ------------------------------------------------------------------------------------------------------ */

/* The whole on the host, in f32. */
static test_interpreter *run_whole(const attention_case *c, int32_t n, trm_network **network)
{
    const test_interpreter_options host = {.backend = TRM_BACKEND_HOST};
    test_interpreter *whole;
    *network = make_network(c, TRM_F32, 1, n * c->queries, n * c->keys);
    assert_ok(test_interpreter_create(*network, &host, &whole));
    for (int32_t i = 0; i < 4; i++) {
        if (!has_input(c, i)) {
            continue;
        }
        const trm_dims dims = input_dims(c, i, n * c->queries, n * c->keys, n * c->keys);
        void *data = elements(c, i, input_type(c, i, TRM_F32), &dims, -1, 0);
        assert_ok(test_interpreter_set_input(whole, names[i], &dims, data));
        free(data);
    }
    assert_ok(test_interpreter_run(whole));
    return whole;
}

static double tolerance(trm_dtype dtype)
{
    return dtype == TRM_F32 ? 1e-4 : dtype == TRM_F16 ? 4e-3 : 3e-2;
}

static void assert_rows(const attention_case *c, int32_t index, const sharing *s, trm_context *context,
                        test_interpreter *whole)
{
    trm_dims dims, whole_dims;
    const void *data;
    const float *expected = test_interpreter_output(whole, "y", &whole_dims);
    const int32_t rows = c->form == BNHD ? 1 : 2;
    assert_ok(trm_context_output(context, "y", &dims, &data));
    whole_dims.d[rows] /= s->n;
    assert_true(trm_dims_equal(&dims, &whole_dims));
    for (int64_t at = 0; at < trm_dims_count(&dims); at++) {
        const int64_t inner = rows == 1 ? dims.d[2] * dims.d[3] : dims.d[3];
        const int64_t row = at / inner % dims.d[rows] + s->place * dims.d[rows], outer = at / inner / dims.d[rows];
        const float e = expected[(outer * dims.d[rows] * s->n + row) * inner + at % inner];
        const float found = load(c->dtype, data, at);
        if (!(fabs((double)found - (double)e) <= tolerance(c->dtype) * (1 + fabs((double)e)))) {
            fail_msg("case %d, mesh %s, rank %d of %d: element %lld is %g, expected %g", (int)index, s->mesh,
                     (int)s->place, (int)s->n, (long long)at, (double)found, (double)e);
        }
    }
}

/* Bounds, as they are in the case, of the inputs that have unknown dims. */
static int32_t make_bounds(const attention_case *c, int32_t n, trm_shape_bound *bounds)
{
    int32_t count = 0;
    for (int32_t i = 0; i < 4; i++) {
        if (has_input(c, i) && (is(c, DYNAMIC) || (is(c, ANY_COLUMNS) && i == 3))) {
            bounds[count++] =
                (trm_shape_bound){.tensor = names[i], .max = input_dims(c, i, c->queries, c->keys, n * c->keys)};
        }
    }
    return count;
}

/* A plan of this rank, or of all of them by way of a file. */
static trm_plan *make_plan(const trm_network *network, trm_build_options options, const char *path)
{
    trm_plan *plan = NULL;
    const int32_t ranks = trm_world_size(test_world);
    if (path == NULL) {
        options.rank = trm_world_rank(test_world);
        assert_ok(trm_build(network, &options, &plan));
        return plan;
    }
    if (trm_world_rank(test_world) == 0) {
        trm_plan *plans[TRM_MAX_RANKS];
        for (options.rank = 0; options.rank < ranks; options.rank++) {
            assert_ok(trm_build(network, &options, &plans[options.rank]));
        }
        assert_ok(trm_plan_save((const trm_plan *const *)plans, ranks, true, path));
        for (int32_t i = 0; i < ranks; i++) {
            trm_plan_destroy(plans[i]);
        }
    }
    assert_ok(trm_world_all_ok(test_world, TRM_OK));
    assert_ok(trm_plan_load(path, trm_world_rank(test_world), &plan));
    assert_ok(trm_world_all_ok(test_world, TRM_OK)); /* before the file is written anew */
    return plan;
}

/* The rank's network, in which each attention has its rows of queries wherever these divide: the default costs leave
 * small layers whole. */
static trm_network *share_rows(const attention_case *c, int32_t index, const trm_network *network, const trm_mesh *mesh)
{
    const int32_t ranks = trm_world_size(test_world), rows = c->form == BNHD ? 1 : 2;
    const trm_cost_model dear_work = {.memory_bandwidth = 1e15,
                                      .compute_rate = 1e3,
                                      .link_bandwidth = 1e15,
                                      .memory_price = 1,
                                      .unknown_dimension = 16};
    trm_network *whole, *local;
    trm_partition_report report;
    assert_ok(trm_network_clone(network, &whole));
    assert_ok(trm_run_passes(whole, TRM_PASSES_BEFORE_PARTITION));
    assert_ok(trm_partition(whole, mesh, trm_world_rank(test_world), &dear_work, &local, &report));
    const bool divide = !is(c, DYNAMIC) && (c->causal != UPPER || c->queries <= c->keys);
    const int64_t expected = is(c, DYNAMIC) ? -1 : divide ? c->queries / ranks : c->queries;
    for (int32_t i = 0; i < local->n_layers; i++) {
        const trm_layer *layer = local->layers[i];
        if (layer->desc.kind == TRM_LAYER_ATTENTION && layer->inputs[TRM_ATTENTION_Q]->dims.d[rows] != expected) {
            fail_msg("case %d: %s has %lld queries on rank %d of %d, expected %lld", (int)index, layer->name,
                     (long long)layer->inputs[TRM_ATTENTION_Q]->dims.d[rows], (int)trm_world_rank(test_world),
                     (int)ranks, (long long)expected);
        }
    }
    assert_true(!divide || ranks == 1 || report.n_collectives > 0);
    trm_network_destroy(whole);
    return local;
}

static void run_rows(const attention_case *c, int32_t index, const sharing *s, const char *path)
{
    trm_network *whole_network;
    test_interpreter *whole = run_whole(c, s->n, &whole_network);
    trm_network *network = make_network(c, c->dtype, s->n, c->queries, c->keys);
    trm_shape_bound bounds[4];
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = test_backend();
    options.bounds = bounds;
    options.n_bounds = make_bounds(c, s->n, bounds);
    assert_ok(trm_mesh_parse(s->mesh, trm_world_size(test_world), &options.mesh));
    if (s->partitioned) {
        trm_network *local = share_rows(c, index, network, &options.mesh);
        trm_network_destroy(network);
        network = local;
    }
    trm_plan *plan = make_plan(network, options, path);
    trm_engine *engine;
    trm_context *context = test_open_context(plan, &engine);
    for (int32_t i = 0; i < 4; i++) {
        if (!has_input(c, i)) {
            continue;
        }
        int64_t first;
        const int32_t axis = cut_axis(c, i, s->place, &first);
        const trm_dims dims = input_dims(c, i, c->queries, c->keys, s->n * c->keys);
        void *data = elements(c, i, input_type(c, i, c->dtype), &dims, axis, first);
        assert_ok(trm_context_set_input(context, names[i], dims, data));
        free(data);
    }
    for (int32_t again = 0; again < 2; again++) {
        assert_ok(trm_context_run(context));
        assert_rows(c, index, s, context, whole);
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
    test_interpreter_destroy(whole);
    trm_network_destroy(whole_network);
}

/* Whether a case is one for the kernels of GPUs: hundreds of rows, which take long where every access is checked. */
static bool is_left_out(const attention_case *c)
{
    return TEST_SANITIZED && c->queries > 100;
}

static void run_case(int32_t index, const sharing *s, const char *path)
{
    if (is_left_out(&cases[index])) {
        return;
    }
    run_rows(&cases[index], index, s, path);
}

static const int32_t n_cases = (int32_t)(sizeof(cases) / sizeof(cases[0]));

static void all_ranks_give_the_whole(void **state)
{
    (void)state;
    const sharing all = {NULL, trm_world_size(test_world), trm_world_rank(test_world), false};
    for (int32_t i = 0; i < n_cases; i++) {
        run_case(i, &all, NULL);
    }
}

static void plan_files_give_the_whole(void **state)
{
    (void)state;
    const sharing all = {NULL, trm_world_size(test_world), trm_world_rank(test_world), false};
    char path[4096] = "";
    if (trm_world_rank(test_world) == 0) {
        snprintf(path, sizeof(path), "%s/attention.plan", test_temporary_folder());
    }
    assert_ok(trm_world_broadcast(test_world, path, sizeof(path), 0));
    for (int32_t i = 0; i < n_cases; i += 3) {
        run_case(i, &all, path);
    }
}

/* Ranks along cp have the rows of one sequence; the others repeat that, or have sequences of their own. */
static void ranks_of_an_axis_share_rows(void **state)
{
    (void)state;
    const int32_t ranks = trm_world_size(test_world), rank = trm_world_rank(test_world);
    const sharing outer = {"dp=2,cp=2", 2, rank % 2, false}, inner = {"tp=2,cp=2", 2, rank / 2, false};
    const sharing alone = {ranks == 2 ? "cp=2" : "cp=3", ranks, rank, false};
    for (int32_t i = 0; i < n_cases; i += 4) {
        if (ranks == 4) {
            run_case(i, &outer, NULL);
            run_case(i, &inner, NULL);
        } else if (ranks > 1) {
            run_case(i, &alone, NULL);
        }
    }
}

/* The partitioner shares the rows of layers of one rank: inputs and outputs are whole on every rank. */
static void partitioned_networks_share_rows(void **state)
{
    (void)state;
    char mesh[16];
    const int32_t ranks = trm_world_size(test_world);
    snprintf(mesh, sizeof(mesh), "cp=%d", (int)ranks);
    const sharing shared = {mesh, 1, 0, true}, as_it_pays = {mesh, 1, 0, false};
    for (int32_t i = 0; i < n_cases; i++) {
        attention_case whole = cases[i];
        if (is_left_out(&whole)) {
            continue;
        }
        const bool pays = whole.queries > 100; /* by the default costs */
        whole.queries *= ranks;
        whole.keys *= ranks;
        if (pays) {
            run_rows(&whole, i, &as_it_pays, NULL);
        }
        whole.batch = whole.batch == 1 || pays ? 1 : 5; /* which ranks cannot share instead */
        run_rows(&whole, i, &shared, NULL);
    }
}

/* What does not suit the ranks, or has no meaning, is refused when the network is built. */
static void build_refuses(void **state)
{
    (void)state;
    static const attention_case many = {BHND, UPPER, 0, 0, PLAIN, 6, 5, NO_MASK, 0, TRM_F32};
    static const attention_case fine = {BHND, UPPER, 0, 0, PLAIN, 5, 5, NO_MASK, 0, TRM_F32};
    const int32_t ranks = trm_world_size(test_world);
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = test_backend();
    options.rank = trm_world_rank(test_world);
    assert_ok(trm_mesh_parse(NULL, ranks, &options.mesh));
    trm_plan *plan = NULL;
    trm_network *network = make_network(&fine, TRM_F32, ranks + 1, 5, 5);
    assert_fails(trm_build(network, &options, &plan), TRM_ERROR_INVALID_ARGUMENT, "layer attention: n_ranks is");
    trm_network_destroy(network);
    if (ranks > 1) {
        network = make_network(&many, TRM_F32, ranks, 6, 5);
        assert_fails(trm_build(network, &options, &plan), TRM_ERROR_UNSUPPORTED, "no more queries than keys");
        trm_network_destroy(network);
        network = net_create(); /* rows of three inputs, which may differ */
        trm_tensor *inputs[3], *y;
        for (int32_t i = 0; i < 3; i++) {
            inputs[i] = net_input(network, names[i], TRM_F32, DIMS(1, 2, -1, 8));
        }
        const trm_layer_desc desc = {.kind = TRM_LAYER_ATTENTION,
                                     .attention = {.form = BHND, .causal = LOWER, .n_ranks = ranks}};
        assert_ok(trm_network_add_layer(network, "attention", &desc, inputs, 3, &y));
        net_output(network, y);
        assert_fails(trm_build(network, &options, &plan), TRM_ERROR_UNSUPPORTED, "as many rows");
        trm_network_destroy(network);
    }
    assert_null(plan);
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_give_the_whole),
        cmocka_unit_test(plan_files_give_the_whole),
        cmocka_unit_test(ranks_of_an_axis_share_rows),
        cmocka_unit_test(partitioned_networks_share_rows),
        cmocka_unit_test(build_refuses),
    };
    cmocka_set_test_filter(getenv("TRM_TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
