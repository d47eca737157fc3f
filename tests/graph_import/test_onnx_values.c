/* Sizes of Split and axes of Slice that only a run tells: one network runs all of them. */
#include <stdio.h>

#include <trireme/trireme.h>

#include "dist/runtime/context.h"
#include "support/world.h"

#include "support/onnx_message.h"

enum { ROWS = 4, COLUMNS = 7 };

typedef struct run {
    trm_engine *engine;
    trm_context *context;
} run;

/* One node of x [ROWS, COLUMNS] and inputs i64 [n], named by one letter each, as outputs are. */
static trm_status open_node(run *r, message part, const char *inputs, int64_t n, const char *outputs)
{
    static const int64_t dims[] = {ROWS, COLUMNS}, open[] = {-1, -1};
    char path[512], name[2] = "";
    message graph = {0};
    put_message(&graph, 1, &part);
    put_graph(&graph, 11, port("x", 1, 2, dims));
    for (; *inputs != '\0'; inputs++) {
        name[0] = *inputs;
        put_graph(&graph, 11, port(name, 7, 1, &n));
    }
    for (; *outputs != '\0'; outputs++) {
        name[0] = *outputs;
        put_graph(&graph, 12, port(name, 1, 2, open));
    }
    message model = model_of(&graph);
    snprintf(path, sizeof(path), "%s/values.onnx", test_temporary_folder());
    test_write_file(path, model.bytes, model.size);
    trm_onnx *opened;
    trm_network *network;
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan;
    options.backend = test_backend();
    assert_ok(trm_onnx_open(path, &opened));
    trm_status status = trm_onnx_build_network(opened, NULL, &network);
    trm_onnx_close(opened);
    if (status != TRM_OK) {
        return status;
    }
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    r->context = test_open_context(plan, &r->engine);
    return TRM_OK;
}

static void close_run(run *r)
{
    trm_context_destroy(r->context);
    trm_engine_destroy(r->engine);
}

static void set_x(run *r)
{
    float x[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        x[i] = (float)i;
    }
    assert_ok(trm_context_set_input(r->context, "x", (trm_dims){2, {ROWS, COLUMNS}}, x));
}

/* An output must be rows and columns of x: the given number of each, from the first on, with a step. */
static void check_part(run *r, const char *name, const int64_t first[2], const int64_t count[2], const int64_t step[2])
{
    trm_dims dims;
    const void *data;
    assert_ok(trm_context_output(r->context, name, &dims, &data));
    assert_true(dims.n == 2 && dims.d[0] == count[0] && dims.d[1] == count[1]);
    for (int64_t i = 0; i < count[0]; i++) {
        for (int64_t k = 0; k < count[1]; k++) {
            const int64_t at = (first[0] + i * step[0]) * COLUMNS + first[1] + k * step[1];
            assert_true(((const float *)data)[i * count[1] + k] == (float)at);
        }
    }
}

static void sizes_of_split(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {{1, 2, 4}, {0, 7, 0}, {3, 3, 1}, {0, 0, 7}}, step[2] = {1, 1};
    message split = node("Split x s a"), axis = attribute("axis", -1, NULL);
    run r;
    put_text(&split, 2, "b");
    put_text(&split, 2, "c");
    put_message(&split, 5, &axis);
    assert_ok(open_node(&r, split, "s", 3, "abc"));
    set_x(&r);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t first[2] = {0, 0};
        assert_ok(trm_context_set_input(r.context, "s", (trm_dims){1, {3}}, cases[i]));
        assert_ok(trm_context_run(r.context));
        for (int k = 0; k < 3; k++) {
            const char name[2] = {"abc"[k], '\0'};
            check_part(&r, name, first, (const int64_t[]){ROWS, cases[i][k]}, step);
            first[1] += cases[i][k];
        }
    }
    close_run(&r);
    assert_fails(open_node(&r, split, "s", 2, "abc"), TRM_ERROR_INVALID_MODEL,
                 "sizes of parts have dims [2], expected one for each of 3 outputs");
}

static void axes_of_slice(void **state)
{
    (void)state;
    static const struct {
        int64_t starts[2], ends[2], axes[2], steps[2], first[2], count[2], step[2];
    } cases[] = {
        {{1, 2}, {3, 7}, {0, 1}, {1, 2}, {1, 2}, {2, 3}, {1, 2}},
        {{1, 2}, {3, 4}, {1, 0}, {1, 1}, {2, 1}, {2, 2}, {1, 1}},
        {{-1, 0}, {INT64_MIN, 1}, {-1, -2}, {-3, 1}, {0, 6}, {1, 3}, {1, -3}},
        {{0, 0}, {INT64_MAX, INT64_MAX}, {-2, 1}, {1, 1}, {0, 0}, {ROWS, COLUMNS}, {1, 1}},
    };
    run r;
    assert_ok(open_node(&r, node("Slice x s e a t y"), "seat", 2, "y"));
    set_x(&r);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const trm_dims two = {1, {2}};
        assert_ok(trm_context_set_input(r.context, "s", two, cases[i].starts));
        assert_ok(trm_context_set_input(r.context, "e", two, cases[i].ends));
        assert_ok(trm_context_set_input(r.context, "a", two, cases[i].axes));
        assert_ok(trm_context_set_input(r.context, "t", two, cases[i].steps));
        assert_ok(trm_context_run(r.context));
        check_part(&r, "y", cases[i].first, cases[i].count, cases[i].step);
    }
    close_run(&r);
    assert_ok(open_node(&r, node("Slice x s e a y"), "sea", 1, "y")); /* the other axis is whole */
    set_x(&r);
    for (int64_t axis = -2; axis < 2; axis++) {
        static const int64_t start = 1, end = 3, step[2] = {1, 1};
        const bool rows = axis % 2 == 0;
        assert_ok(trm_context_set_input(r.context, "s", (trm_dims){1, {1}}, &start));
        assert_ok(trm_context_set_input(r.context, "e", (trm_dims){1, {1}}, &end));
        assert_ok(trm_context_set_input(r.context, "a", (trm_dims){1, {1}}, &axis));
        assert_ok(trm_context_run(r.context));
        check_part(&r, "y", (const int64_t[]){rows ? 1 : 0, rows ? 0 : 1},
                   (const int64_t[]){rows ? 2 : ROWS, rows ? COLUMNS : 2}, step);
    }
    close_run(&r);
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_split),
        cmocka_unit_test(axes_of_slice),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
