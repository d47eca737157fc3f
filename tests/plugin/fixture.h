/*
 * An ONNX model with a node of the example plugin, its weights, and what it computes in plain C.
 *
 *     y = gain_swish(x a, gain, sharpness 1.5) c
 */
#ifndef TESTS_PLUGIN_FIXTURE_H
#define TESTS_PLUGIN_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "graph/nets.h"
#include "support/onnx_message.h"
#include "support/world.h"

enum { IN = 8, MIDDLE = 64, OUT = 4, ROWS = 5 };
#define SHARPNESS 1.5f

/* The path of a library in the folder plugin beside this program; valid until the next call. */
static inline const char *library(const char *name)
{
    static char path[4300];
    char program[4096];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    assert_true(n > 0);
    program[n] = '\0';
    *strrchr(program, '/') = '\0';
    snprintf(path, sizeof(path), "%s/plugin/%s.so", program, name);
    return path;
}

typedef struct weights {
    float a[IN * MIDDLE], gain[MIDDLE], c[MIDDLE * OUT];
} weights;

static inline weights weights_of(uint64_t seed)
{
    weights made;
    uint64_t state = seed;
    float *all = (float *)&made;
    for (size_t i = 0; i < sizeof(made) / sizeof(float); i++) {
        all[i] = test_random_float(&state);
    }
    return made;
}

static inline message float_attribute(const char *name, float value)
{
    message made = {0};
    put_text(&made, 1, name);
    put_varint(&made, 2u << 3 | 5);
    memcpy(made.bytes + made.size, &value, sizeof(value));
    made.size += sizeof(value);
    put_number(&made, 20, 1);
    return made;
}

/* A node "GainSwish h gain s" of the plugin's domain, with an attribute. */
static inline message plugin_node(const char *text, const message *attribute)
{
    message made = node(text);
    if (attribute != NULL) {
        put_message(&made, 5, attribute);
    }
    put_text(&made, 7, "com.example");
    return made;
}

static inline message with_domain(const message *graph, const char *domain, uint64_t version)
{
    message opset = {0}, made = model_of(graph);
    put_text(&opset, 1, domain);
    put_number(&opset, 2, version);
    put_message(&made, 8, &opset);
    return made;
}

/* `swish`: the node of the plugin. */
static inline void write_model_with(const char *path, uint64_t seed, const message *swish, uint64_t version)
{
    const weights w = weights_of(seed);
    message graph = {0};
    put_graph(&graph, 1, node("MatMul x a h"));
    put_message(&graph, 1, swish);
    put_graph(&graph, 1, node("MatMul s c y"));
    put_text(&graph, 2, "swish");
    put_weight(&graph, "a", 1, 2, (int64_t[]){IN, MIDDLE}, w.a, sizeof(w.a));
    put_weight(&graph, "gain", 1, 1, (int64_t[]){MIDDLE}, w.gain, sizeof(w.gain));
    put_weight(&graph, "c", 1, 2, (int64_t[]){MIDDLE, OUT}, w.c, sizeof(w.c));
    put_graph(&graph, 11, port("x", 1, 2, (int64_t[]){-1, IN}));
    put_graph(&graph, 12, port("y", 1, 2, (int64_t[]){-1, OUT}));
    const message model = with_domain(&graph, "com.example", version);
    test_write_file(path, model.bytes, model.size);
}

static inline void write_model(const char *path, uint64_t seed)
{
    const message sharpness = float_attribute("sharpness", SHARPNESS),
                  swish = plugin_node("GainSwish h gain s", &sharpness);
    write_model_with(path, seed, &swish, 1);
}

static inline void expected_of(uint64_t seed, const float *x, int64_t rows, double *y)
{
    const weights w = weights_of(seed);
    for (int64_t r = 0; r < rows; r++) {
        memset(y + r * OUT, 0, OUT * sizeof(*y));
        for (int k = 0; k < MIDDLE; k++) {
            double h = 0;
            for (int i = 0; i < IN; i++) {
                h += (double)x[r * IN + i] * (double)w.a[i * MIDDLE + k];
            }
            h = (double)w.gain[k] * h / (1.0 + exp(-(double)SHARPNESS * h));
            for (int o = 0; o < OUT; o++) {
                y[r * OUT + o] += h * (double)w.c[k * OUT + o];
            }
        }
    }
}

/* Imports a model; fails the test unless it can be. */
static inline trm_network *import_model(const char *path, bool refittable)
{
    trm_onnx *model = NULL;
    trm_network *network = NULL;
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    options.refittable = refittable;
    assert_ok(trm_onnx_open(path, &model));
    assert_ok(trm_onnx_build_network(model, &options, &network));
    trm_onnx_close(model);
    return network;
}

/* A rank's plan for up to ROWS rows; columns of `a` are split over the ranks of tp where `splits` says so. */
static inline trm_plan *plan_model(const char *path, bool refittable, const char *mesh, int32_t ranks, int32_t rank,
                                   bool splits)
{
    trm_network *network = import_model(path, refittable);
    const trm_shape_bound bound = {.tensor = "x", .min = DIMS(1, IN), .max = DIMS(ROWS, IN)};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan = NULL;
    options.backend = test_backend();
    options.bounds = &bound;
    options.n_bounds = 1;
    options.rank = rank;
    assert_ok(trm_mesh_parse(mesh, ranks, &options.mesh));
    if (splits) {
        assert_ok(trm_network_pin(network, trm_network_find_tensor(network, "a"), "split 1"));
    }
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    return plan;
}

/* Runs several numbers of rows, each three times: plainly, captured, launched. */
static inline void check_context(trm_context *context, uint64_t seed, int64_t step)
{
    for (int64_t rows = ROWS / step * step; rows >= 1; rows -= step) {
        float x[ROWS * IN];
        double expected[ROWS * OUT];
        uint64_t state = 77 + (uint64_t)rows;
        for (int i = 0; i < ROWS * IN; i++) {
            x[i] = test_random_float(&state);
        }
        expected_of(seed, x, rows, expected);
        for (int times = 0; times < 3; times++) {
            trm_dims dims;
            const void *data;
            assert_ok(trm_context_set_input(context, "x", DIMS(rows, IN), x));
            assert_ok(trm_context_run(context));
            assert_ok(trm_context_output(context, "y", &dims, &data));
            assert_true(dims.n == 2 && dims.d[0] == rows && dims.d[1] == OUT);
            for (int64_t i = 0; i < rows * OUT; i++) {
                const double difference = (double)((const float *)data)[i] - expected[i];
                if (!(fabs(difference) < 1e-4)) {
                    fail_msg("element %d is %g, expected %g", (int)i, (double)((const float *)data)[i], expected[i]);
                }
            }
        }
    }
}

static inline int32_t plugin_count(void)
{
    trm_plugin_info info;
    int32_t n = 0;
    while (trm_plugin_get_info(n, &info)) {
        n++;
    }
    return n;
}

/* The plan is used up. `other` (may be NULL): a model whose weights, of seed 2, an engine then gets. */
static inline void check_plan(trm_plan *plan, uint64_t seed, int64_t step, const char *other)
{
    trm_engine *engine;
    trm_context *context = test_open_context(plan, &engine);
    assert_ok(trm_context_set_capture(context, true));
    check_context(context, seed, step);
    if (other != NULL) {
        assert_ok(trm_engine_refit_from(engine, other));
        check_context(context, 2, step);
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

#endif
