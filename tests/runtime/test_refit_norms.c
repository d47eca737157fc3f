/* Norms of refittable networks are folded into convolutions, and are folded again when weights change: the bits of a
 * build from the new weights that is not refittable. */
#include "graph/nets.h"

#include <stdio.h>

#include <trireme/trireme.h>

#include "base/half.h"
#include "dist/plan/plan.h"
#include "support/onnx_message.h"
#include "support/world.h"

enum { BATCH = 2, IN = 4, CHANNELS = 8, SIZE = 6, LEFT = 4, ELEMENTS = BATCH * CHANNELS * LEFT * LEFT, MOST = 512 };

/* y = relu(norm(conv(relu(norm(conv(x, w1))), w2) + b2) + ...): with a bias and without, with a residual and without.
 */
typedef struct weight_row {
    const char *name;
    int n;
    int64_t dims[4];
    float least, most;
} weight_row;
static const weight_row rows[] = {
    {"w1", 4, {CHANNELS, IN, 3, 3}, -0.5f, 0.5f}, {"s1", 1, {CHANNELS, 1, 1, 1}, 0.5f, 1.5f},
    {"o1", 1, {CHANNELS, 1, 1, 1}, -1, 1},        {"m1", 1, {CHANNELS, 1, 1, 1}, -1, 1},
    {"v1", 1, {CHANNELS, 1, 1, 1}, 0.25f, 2},     {"w2", 4, {CHANNELS, CHANNELS, 1, 1}, -0.5f, 0.5f},
    {"b2", 1, {CHANNELS, 1, 1, 1}, -1, 1},        {"s2", 1, {CHANNELS, 1, 1, 1}, 0.5f, 1.5f},
    {"o2", 1, {CHANNELS, 1, 1, 1}, -1, 1},        {"m2", 1, {CHANNELS, 1, 1, 1}, -1, 1},
    {"v2", 1, {CHANNELS, 1, 1, 1}, 0.25f, 2},
};
enum { N_WEIGHTS = sizeof(rows) / sizeof(rows[0]) };

static size_t count_of(const weight_row *row)
{
    size_t count = 1;
    for (int i = 0; i < row->n; i++) {
        count *= (size_t)row->dims[i];
    }
    return count;
}

static float between(uint64_t *state, float least, float most)
{
    return least + (most - least) * 0.5f * (test_random_float(state) + 1);
}

static void put_number_as(trm_dtype dtype, float number, void *to, size_t i)
{
    if (dtype == TRM_F16) {
        ((uint16_t *)to)[i] = trm_f32_to_f16(number);
    } else {
        ((float *)to)[i] = number;
    }
}

static void elements_of(const weight_row *row, trm_dtype dtype, uint64_t seed, void *to)
{
    uint64_t state = seed * 1000 + (uint64_t)(row - rows) + 1;
    for (size_t i = 0; i < count_of(row); i++) {
        put_number_as(dtype, between(&state, row->least, row->most), to, i);
    }
}

static void write_model(const char *path, trm_dtype dtype, uint64_t seed)
{
    static const char *const nodes[] = {"Conv x w1 c1",     "BatchNormalization c1 s1 o1 m1 v1 n1", "Relu n1 r1",
                                        "Conv r1 w2 b2 c2", "BatchNormalization c2 s2 o2 m2 v2 n2", "Add n2 r1 sum",
                                        "Relu sum y"};
    const int type = dtype == TRM_F16 ? 10 : 1;
    message graph = {0};
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        put_graph(&graph, 1, node(nodes[i]));
    }
    put_text(&graph, 2, "norms");
    for (int i = 0; i < N_WEIGHTS; i++) {
        unsigned char elements[MOST * 4];
        elements_of(&rows[i], dtype, seed, elements);
        put_weight(&graph, rows[i].name, type, rows[i].n, rows[i].dims, elements,
                   count_of(&rows[i]) * trm_dtype_size(dtype));
    }
    put_graph(&graph, 11, port("x", type, 4, (int64_t[]){BATCH, IN, SIZE, SIZE}));
    put_graph(&graph, 12, port("y", type, 4, (int64_t[]){BATCH, CHANNELS, LEFT, LEFT}));
    const message model = model_of(&graph);
    test_write_file(path, model.bytes, model.size);
}

static int32_t count_kind(const trm_plan *plan, trm_layer_kind kind)
{
    int32_t count = 0;
    for (int32_t i = 0; i < plan->network->n_layers; i++) {
        count += plan->network->layers[i]->desc.kind == kind;
    }
    return count;
}

/* Only layers that move elements may be there besides the two. */
static void assert_folded(const trm_plan *plan)
{
    assert_int_equal(count_kind(plan, TRM_LAYER_CONVOLUTION) + count_kind(plan, TRM_LAYER_MATMUL), 2);
    assert_int_equal(count_kind(plan, TRM_LAYER_ELEMENTWISE), 0);
    assert_int_equal(count_kind(plan, TRM_LAYER_FUSED_ELEMENTWISE), 0);
    assert_int_equal(count_kind(plan, TRM_LAYER_UNARY), 0);
}

/* Elements of y, as bytes. */
static void run(trm_context *context, trm_dtype dtype, unsigned char *y)
{
    unsigned char x[BATCH * IN * SIZE * SIZE * 4];
    uint64_t state = 5;
    trm_dims dims;
    const void *data;
    for (size_t i = 0; i < BATCH * IN * SIZE * SIZE; i++) {
        put_number_as(dtype, between(&state, -1, 1), x, i);
    }
    assert_ok(trm_context_set_input(context, "x", (trm_dims){4, {BATCH, IN, SIZE, SIZE}}, x));
    assert_ok(trm_context_run(context));
    assert_ok(trm_context_output(context, "y", &dims, &data));
    assert_int_equal(trm_dims_bytes(&dims, dtype), ELEMENTS * trm_dtype_size(dtype));
    memcpy(y, data, ELEMENTS * trm_dtype_size(dtype));
}

/* The plan is used up. */
static void run_plan(trm_plan *plan, trm_dtype dtype, unsigned char *y)
{
    trm_engine *engine;
    trm_context *context = test_open_context(plan, &engine);
    run(context, dtype, y);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

typedef struct files {
    char one[4096], two[4096], plan[4096];
    size_t bytes;
    unsigned char y_one[ELEMENTS * 4], y_two[ELEMENTS * 4]; /* of builds that are not refittable */
} files;

static void make_files(files *f, trm_dtype dtype)
{
    const char *folder = test_temporary_folder();
    snprintf(f->one, sizeof(f->one), "%s/one.onnx", folder);
    snprintf(f->two, sizeof(f->two), "%s/two.onnx", folder);
    snprintf(f->plan, sizeof(f->plan), "%s/net.plan", folder);
    write_model(f->one, dtype, 1);
    write_model(f->two, dtype, 2);
    f->bytes = ELEMENTS * trm_dtype_size(dtype);
    run_plan(test_build_onnx(f->one, false, 1, 0), dtype, f->y_one);
    run_plan(test_build_onnx(f->two, false, 1, 0), dtype, f->y_two);
    assert_true(memcmp(f->y_one, f->y_two, f->bytes) != 0);
}

static void count_weight(void *user, const char *name, trm_dtype dtype, const trm_dims *dims)
{
    (void)dtype, (void)dims;
    assert_true(name[0] != '\0');
    ++*(int *)user;
}

static void engines_fold_again(void **state)
{
    (void)state;
    static const trm_dtype types[] = {TRM_F32, TRM_F16};
    for (int t = 0; t < 2; t++) {
        files f;
        unsigned char y[ELEMENTS * 4];
        trm_engine *engine;
        int n = 0;
        make_files(&f, types[t]);
        trm_plan *plan = test_build_onnx(f.one, true, 1, 0);
        assert_folded(plan);
        assert_ok(trm_plan_for_weights(plan, count_weight, &n));
        assert_int_equal(n, N_WEIGHTS);
        trm_context *context = test_open_context(plan, &engine);
        run(context, types[t], y);
        assert_memory_equal(y, f.y_one, f.bytes);
        assert_ok(trm_engine_refit_from(engine, f.two));
        run(context, types[t], y);
        assert_memory_equal(y, f.y_two, f.bytes);
        for (int i = 0; i < N_WEIGHTS; i++) { /* one by one, back */
            unsigned char elements[MOST * 4];
            trm_dims dims = {.n = rows[i].n};
            memcpy(dims.d, rows[i].dims, sizeof(rows[i].dims));
            elements_of(&rows[i], types[t], 1, elements);
            assert_ok(trm_engine_refit(engine, rows[i].name, types[t], dims, elements));
        }
        run(context, types[t], y);
        assert_memory_equal(y, f.y_one, f.bytes);
        trm_context_destroy(context);
        trm_engine_destroy(engine);
    }
}

static void plan_files_fold_again(void **state)
{
    (void)state;
    static const trm_plan_weights ways[] = {TRM_PLAN_WEIGHTS_STRIPPED, TRM_PLAN_WEIGHTS_REFERENCED,
                                            TRM_PLAN_WEIGHTS_EMBEDDED};
    files f;
    unsigned char y[ELEMENTS * 4];
    make_files(&f, TRM_F16);
    for (int i = 0; i < 3; i++) {
        trm_plan *plan = test_build_onnx(f.one, true, 1, 0), *loaded;
        assert_ok(trm_plan_save((const trm_plan *const[]){plan}, 1, ways[i], f.plan));
        trm_plan_destroy(plan);
        if (ways[i] != TRM_PLAN_WEIGHTS_STRIPPED) {
            assert_ok(trm_plan_load(f.plan, 0, &loaded));
            run_plan(loaded, TRM_F16, y);
            assert_memory_equal(y, f.y_one, f.bytes);
        }
        assert_ok(trm_plan_refit(f.plan, 0, f.two, &loaded));
        assert_folded(loaded);
        run_plan(loaded, TRM_F16, y);
        assert_memory_equal(y, f.y_two, f.bytes);
    }
}

/* Ranks find their parts of what is computed: they are described as by a build from the new weights. */
static void ranks_fold_again(void **state)
{
    (void)state;
    files f;
    make_files(&f, TRM_F32);
    for (int32_t rank = 0; rank < 2; rank++) {
        trm_plan *plan = test_build_onnx(f.one, true, 2, rank);
        assert_folded(plan);
        trm_plan_destroy(plan);
    }
    test_refit_ranks(f.one, f.two, f.plan, "multiply(two.onnx:w1, divide(");
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_fold_again),
        cmocka_unit_test(plan_files_fold_again),
        cmocka_unit_test(ranks_fold_again),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
