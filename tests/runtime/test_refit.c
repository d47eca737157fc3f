/* Plans without weights and engines that get new ones: results are those of a build from the other file, and what does
 * not fit is refused with its name. */
#include "graph/nets.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "base/file.h"
#include "dist/plan/plan.h"
#include "support/onnx_message.h"
#include "support/world.h"
#include "weight_stream/files.h"

enum { IN = 8, MIDDLE = 64, OUT = 4, ROWS = 3, N_WEIGHTS = 7, MOST = IN * MIDDLE };

/* ---- a model ------------------------------------------------------------------------------------------- */

/* y = relu(x a + x b + bias) * (g1 * g2) c^T: joined products, constants that are folded unless they may change. */
typedef struct weight_row {
    const char *name;
    int n;
    int64_t dims[2];
} weight_row;
static const weight_row rows[N_WEIGHTS] = {
    {"a", 2, {IN, MIDDLE}}, {"b", 2, {IN, MIDDLE}},  {"bias", 1, {MIDDLE, 1}}, {"g1", 1, {MIDDLE, 1}},
    {"g2", 1, {MIDDLE, 1}}, {"c", 2, {OUT, MIDDLE}}, {"c_bias", 1, {OUT, 1}},
};

static size_t count_of(const weight_row *row)
{
    return (size_t)(row->dims[0] * (row->n == 2 ? row->dims[1] : 1));
}

static void elements_of(const weight_row *row, uint64_t seed, float *values)
{
    uint64_t state = seed * 1000 + (uint64_t)(row - rows) + 1;
    for (size_t i = 0; i < count_of(row); i++) {
        values[i] = test_random_float(&state);
    }
}

/* The model with the weights of a seed, without one of them, with one that has other dims, or with one of f16. */
static void write_model(const char *path, uint64_t seed, const char *without, const char *wider)
{
    static const char *const nodes[] = {"MatMul x a xa", "MatMul x b xb", "Add xa xb sum", "Add sum bias biased",
                                        "Relu biased r", "Mul g1 g2 g",   "Mul r g scaled"};
    message graph = {0}, last = node("Gemm scaled c c_bias y");
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        put_graph(&graph, 1, node(nodes[i]));
    }
    put_graph(&last, 5, attribute("transB", 1, NULL));
    put_message(&graph, 1, &last);
    put_text(&graph, 2, "sums");
    for (int i = 0; i < N_WEIGHTS; i++) {
        float values[2 * MOST] = {0};
        const int64_t times = wider != NULL && strcmp(wider, rows[i].name) == 0 ? 2 : 1;
        const int64_t dims[] = {rows[i].dims[0] * times, rows[i].dims[1]};
        elements_of(&rows[i], seed, values);
        if (without == NULL || strcmp(without, rows[i].name) != 0) {
            put_weight(&graph, rows[i].name, 1, rows[i].n, dims, values,
                       count_of(&rows[i]) * sizeof(float) * (size_t)times);
        }
    }
    put_graph(&graph, 11, port("x", 1, 2, (int64_t[]){ROWS, IN}));
    put_graph(&graph, 12, port("y", 1, 2, (int64_t[]){ROWS, OUT}));
    const message model = model_of(&graph);
    test_write_file(path, model.bytes, model.size);
}

/* The weights of a seed as a folder of safetensors. */
static void write_folder(const char *folder, uint64_t seed)
{
    static float values[N_WEIGHTS * MOST];
    char header[2048] = "{";
    size_t used = 1, count = 0;
    for (int i = 0; i < N_WEIGHTS; i++) {
        elements_of(&rows[i], seed, values + count);
        used += (size_t)snprintf(header + used, sizeof(header) - used,
                                 "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d%s],\"data_offsets\":[%zu,%zu]}",
                                 i == 0 ? "" : ",", rows[i].name, (int)rows[i].dims[0],
                                 rows[i].n == 1           ? ""
                                 : rows[i].dims[1] == OUT ? ",4"
                                                          : ",64",
                                 count * 4, (count + count_of(&rows[i])) * 4);
        count += count_of(&rows[i]);
    }
    snprintf(header + used, sizeof(header) - used, "}");
    write_safetensors(folder, "model.safetensors", header, values, count * 4);
}

static void save(trm_plan *plan, trm_plan_weights weights, const char *path)
{
    const trm_plan *plans[] = {plan};
    assert_ok(trm_plan_save(plans, 1, weights, path));
}

static trm_context *open_plan(trm_plan *plan, trm_engine **engine)
{
    trm_context *context = test_open_context(plan, engine);
    assert_ok(trm_context_set_capture(context, true)); /* which a refit leaves as it is */
    return context;
}

static void run(trm_context *context, float y[ROWS * OUT])
{
    float x[ROWS * IN];
    uint64_t state = 9;
    trm_dims dims;
    const void *data;
    for (int i = 0; i < ROWS * IN; i++) {
        x[i] = test_random_float(&state);
    }
    for (int i = 0; i < (test_backend() == TRM_BACKEND_CUDA ? 3 : 1); i++) { /* run, captured, launched */
        assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {ROWS, IN}}, x));
        assert_ok(trm_context_run(context));
    }
    assert_ok(trm_context_output(context, "y", &dims, &data));
    assert_true(dims.n == 2 && dims.d[0] == ROWS && dims.d[1] == OUT);
    memcpy(y, data, ROWS * OUT * sizeof(float));
}

/* The plan is used up. */
static void run_plan(trm_plan *plan, float y[ROWS * OUT])
{
    trm_engine *engine;
    trm_context *context = open_plan(plan, &engine);
    run(context, y);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

static void assert_same(const float *found, const float *expected)
{
    for (int i = 0; i < ROWS * OUT; i++) {
        float difference = found[i] - expected[i];
        if (!(difference < 1e-4f && difference > -1e-4f)) {
            fail_msg("element %d is %g, expected %g", i, (double)found[i], (double)expected[i]);
        }
    }
}

typedef struct files {
    char folder[2048], one[4096], two[4096], plan[4096];
    float y_one[ROWS * OUT], y_two[ROWS * OUT];
} files;

static void make_files(files *f)
{
    snprintf(f->folder, sizeof(f->folder), "%s", test_temporary_folder());
    snprintf(f->one, sizeof(f->one), "%s/one.onnx", f->folder);
    snprintf(f->two, sizeof(f->two), "%s/two.onnx", f->folder);
    snprintf(f->plan, sizeof(f->plan), "%s/net.plan", f->folder);
    write_model(f->one, 1, NULL, NULL);
    write_model(f->two, 2, NULL, NULL);
    run_plan(test_build_onnx(f->one, false, 1, 0), f->y_one);
    run_plan(test_build_onnx(f->two, false, 1, 0), f->y_two);
    assert_true(memcmp(f->y_one, f->y_two, sizeof(f->y_one)) != 0);
}

/* ---- plan files ---------------------------------------------------------------------------------------- */

static void refittable_plans_take_any_weights(void **state)
{
    (void)state;
    files f;
    float y[ROWS * OUT];
    trm_plan *plan;
    make_files(&f);
    plan = test_build_onnx(f.one, true, 1, 0);
    save(plan, TRM_PLAN_WEIGHTS_STRIPPED, f.plan);
    run_plan(plan, y);
    assert_same(y, f.y_one);
    assert_fails(trm_plan_load(f.plan, 0, &plan), TRM_ERROR_INVALID_MODEL,
                 "net.plan was saved without its 7 weights: supply them (");
    trm_plan_info info;
    assert_ok(trm_plan_refit(f.plan, 0, f.two, &plan));
    trm_plan_get_info(plan, &info);
    assert_true(info.refittable);
    /* Saved in each way, the new weights are there. */
    const trm_plan_weights ways[] = {TRM_PLAN_WEIGHTS_REFERENCED, TRM_PLAN_WEIGHTS_EMBEDDED};
    for (int i = 0; i < 2; i++) {
        char again[4200];
        trm_plan *loaded;
        snprintf(again, sizeof(again), "%s/again%d.plan", f.folder, i);
        save(plan, ways[i], again);
        assert_ok(trm_plan_load(again, 0, &loaded));
        trm_plan_get_info(loaded, &info);
        assert_true(info.refittable);
        run_plan(loaded, y);
        assert_same(y, f.y_two);
        assert_ok(trm_plan_refit(again, 0, f.one, &loaded)); /* and back */
        run_plan(loaded, y);
        assert_same(y, f.y_one);
    }
    run_plan(plan, y);
    assert_same(y, f.y_two);
    write_folder(f.folder, 2);
    assert_ok(trm_plan_refit(f.plan, 0, f.folder, &plan));
    run_plan(plan, y);
    assert_same(y, f.y_two);
}

static void other_plans_take_the_same_weights(void **state)
{
    (void)state;
    files f;
    float y[ROWS * OUT];
    trm_plan *plan;
    make_files(&f);
    plan = test_build_onnx(f.one, false, 1, 0);
    save(plan, TRM_PLAN_WEIGHTS_EMBEDDED, f.plan);
    assert_fails(trm_plan_refit(f.plan, 0, f.one, &(trm_plan *){NULL}), TRM_ERROR_INVALID_ARGUMENT,
                 "has none of the weights that plan net.plan lacks");
    for (int k = 0; k < 2; k++) {
        save(plan, k == 0 ? TRM_PLAN_WEIGHTS_STRIPPED : TRM_PLAN_WEIGHTS_REFERENCED, f.plan);
        trm_plan *other;
        assert_ok(trm_plan_refit(f.plan, 0, f.one, &other));
        run_plan(other, y);
        assert_same(y, f.y_one);
        assert_fails(trm_plan_refit(f.plan, 0, f.two, &other), TRM_ERROR_INVALID_ARGUMENT,
                     "is not the one that plan net.plan was built with");
    }
    trm_plan_destroy(plan);
}

/* Ranks find their parts of the new weights: what they hold is described as by a build from them. */
static void ranks_are_refitted(void **state)
{
    (void)state;
    files f;
    make_files(&f);
    test_refit_ranks(f.one, f.two, f.plan, "two.onnx:a");
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    files f;
    trm_plan *plan, *other;
    char path[4200];
    make_files(&f);
    plan = test_build_onnx(f.one, true, 1, 0);
    save(plan, TRM_PLAN_WEIGHTS_STRIPPED, f.plan);
    trm_plan_destroy(plan);
    snprintf(path, sizeof(path), "%s/bad.onnx", f.folder);
    write_model(path, 2, "g1", NULL);
    assert_fails(trm_plan_refit(f.plan, 0, path, &other), TRM_ERROR_INVALID_ARGUMENT,
                 "bad.onnx lacks 1 weights of plan net.plan: g1");
    write_model(path, 2, NULL, "c");
    assert_fails(trm_plan_refit(f.plan, 0, path, &other), TRM_ERROR_INVALID_ARGUMENT,
                 "bad.onnx is f32 [8, 64], expected f32 [4, 64]");
    assert_fails(trm_plan_refit(f.plan, 0, f.folder, &other), TRM_ERROR_IO, f.folder);
    assert_fails(trm_plan_refit(f.plan, 0, NULL, &other), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    assert_fails(trm_plan_save((const trm_plan *const[]){NULL}, 1, (trm_plan_weights)3, path),
                 TRM_ERROR_INVALID_ARGUMENT, "invalid kind 3");
}

/* ---- engines ------------------------------------------------------------------------------------------- */

static void count_weight(void *user, const char *name, trm_dtype dtype, const trm_dims *dims)
{
    assert_true(dtype == TRM_F32 && dims->n >= 1 && name[0] != '\0');
    ++*(int *)user;
}

static void engines_get_new_weights(void **state)
{
    (void)state;
    for (int streamed = 0; streamed < 3; streamed++) { /* not, from host memory, from files in every run */
        files f;
        float y[ROWS * OUT], values[MOST];
        trm_engine *engine;
        int n = 0;
        make_files(&f);
        trm_plan *plan = test_build_onnx(f.one, true, 1, 0);
        assert_ok(trm_plan_for_weights(plan, count_weight, &n));
        assert_int_equal(n, N_WEIGHTS);
        if (streamed > 0) {
            trm_weight_budget budget = {.kind = TRM_WEIGHT_BUDGET_PERCENT, .host_bytes = streamed == 2 ? 1 : 0};
            assert_ok(trm_plan_set_weight_budget(plan, &budget));
        }
        trm_context *context = open_plan(plan, &engine);
        run(context, y);
        assert_same(y, f.y_one);
        if (streamed == 2) {
            assert_fails(trm_engine_refit_from(engine, f.two), TRM_ERROR_INVALID_ARGUMENT, "from files in every run");
            trm_context_destroy(context);
            trm_engine_destroy(engine);
            continue;
        }
        assert_ok(trm_engine_refit_from(engine, f.two));
        run(context, y);
        assert_same(y, f.y_two);
        for (int i = 0; i < N_WEIGHTS; i++) { /* one by one, back */
            trm_dims dims = {rows[i].n, {rows[i].dims[0], rows[i].dims[1]}};
            elements_of(&rows[i], 1, values);
            assert_ok(trm_engine_refit(engine, rows[i].name, TRM_F32, dims, values));
            memset(values, 0, sizeof(values));
        }
        run(context, y);
        assert_same(y, f.y_one);
        assert_fails(trm_engine_refit(engine, "nothing", TRM_F32, (trm_dims){1, {4}}, values),
                     TRM_ERROR_INVALID_ARGUMENT, "the engine has no weight nothing");
        assert_fails(trm_engine_refit(engine, "bias", TRM_F32, (trm_dims){1, {4}}, values), TRM_ERROR_INVALID_ARGUMENT,
                     "weight bias of the caller is f32 [4], expected f32 [64]");
        assert_fails(trm_engine_refit(engine, "bias", TRM_F16, (trm_dims){1, {MIDDLE}}, values),
                     TRM_ERROR_INVALID_ARGUMENT, "is f16 [64], expected f32 [64]");
        assert_fails(trm_engine_refit(engine, NULL, TRM_F32, (trm_dims){1, {4}}, values), TRM_ERROR_INVALID_ARGUMENT,
                     "NULL");
        run(context, y);
        assert_same(y, f.y_one);
        trm_context_destroy(context);
        trm_engine_destroy(engine);
    }
}

static void other_engines_keep_theirs(void **state)
{
    (void)state;
    files f;
    trm_engine *engine;
    make_files(&f);
    trm_context *context = open_plan(test_build_onnx(f.one, false, 1, 0), &engine);
    assert_fails(trm_engine_refit_from(engine, f.two), TRM_ERROR_INVALID_ARGUMENT, "was not refittable");
    assert_fails(trm_engine_refit_from(NULL, f.two), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refittable_plans_take_any_weights),
        cmocka_unit_test(other_plans_take_the_same_weights),
        cmocka_unit_test(ranks_are_refitted),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(engines_get_new_weights),
        cmocka_unit_test(other_engines_keep_theirs),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
