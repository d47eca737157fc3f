/* Loops whose ends are known in a run only, as regions and as unrolled passes: what passes leave, what is refused, and
 * runs that want more passes than there are. */
#include <stdio.h>

#include <trireme/trireme.h>

#include "dist/runtime/context.h"
#include "support/world.h"

#include "support/onnx_message.h"

/*
 * Loop over v [2] and s: v' = v + s, s' = 2 s, or with `grows` v' = [v, v]; again while s' < limit; every v' is kept.
 * Inputs: n i64 (if `counted`), limit, x [2], or [size], s.
 */
static const char *write_loop(const char *folder, bool counted, bool grows, int64_t size)
{
    static char path[512];
    static const int64_t open[] = {-1};
    const int64_t two[] = {size};
    message body = {0}, graph = {0}, loop, join = node("Concat v v w");
    message axis = attribute("axis", 0, NULL);
    put_message(&join, 5, &axis);
    put_graph(&body, 1, grows ? join : node("Add v s w"));
    put_graph(&body, 1, node("Add s s twice"));
    put_graph(&body, 1, node("Less twice limit again"));
    if (!grows) {
        put_graph(&body, 1, node("Identity w kept"));
    }
    put_text(&body, 2, "body");
    put_graph(&body, 11, port("i", 7, 0, NULL));
    put_graph(&body, 11, port("c", 9, 0, NULL));
    put_graph(&body, 11, port("v", 1, 1, grows ? open : two));
    put_graph(&body, 11, port("s", 1, 0, NULL));
    put_graph(&body, 12, port("again", 9, 0, NULL));
    put_graph(&body, 12, port("w", 1, 1, grows ? open : two));
    put_graph(&body, 12, port("twice", 1, 0, NULL));
    if (!grows) {
        put_graph(&body, 12, port("kept", 1, 1, two));
    }
    loop = (message){0};
    const char *inputs[] = {counted ? "n" : "", "", "x", "s"}, *outputs[] = {"y", "last", "all"};
    for (int i = 0; i < 4; i++) {
        put_text(&loop, 1, inputs[i]);
    }
    for (int i = 0; i < (grows ? 2 : 3); i++) {
        put_text(&loop, 2, outputs[i]);
    }
    put_text(&loop, 4, "Loop");
    message part = attribute("body", 0, &body);
    put_message(&loop, 5, &part);
    put_message(&graph, 1, &loop);
    if (counted) {
        put_graph(&graph, 11, port("n", 7, 0, NULL));
    }
    put_graph(&graph, 11, port("limit", 1, 0, NULL));
    put_graph(&graph, 11, port("x", 1, 1, two));
    put_graph(&graph, 11, port("s", 1, 0, NULL));
    put_graph(&graph, 12, port("y", 1, 1, grows ? open : two));
    put_graph(&graph, 12, port("last", 1, 0, NULL));
    if (!grows) {
        const int64_t all[] = {-1, size};
        put_graph(&graph, 12, port("all", 1, 2, all));
    }
    message model = model_of(&graph);
    snprintf(path, sizeof(path), "%s/loop.onnx", folder);
    test_write_file(path, model.bytes, model.size);
    return path;
}

static trm_status import_loop(bool counted, bool grows, int64_t max_trips, const int64_t *n, trm_network **network)
{
    trm_onnx *model;
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    trm_onnx_fixed_value value = {.input = "n", .dtype = TRM_I64, .data = n};
    options.max_trips = max_trips;
    options.values = &value;
    options.n_values = n != NULL;
    assert_ok(trm_onnx_open(write_loop(test_temporary_folder(), counted, grows, 2), &model));
    trm_status status = trm_onnx_build_network(model, &options, network);
    trm_onnx_close(model);
    return status;
}

typedef struct run {
    trm_engine *engine;
    trm_context *context;
} run;

/* Takes the network; bound may be NULL. */
static void open_run_of(run *r, trm_network *network, const trm_shape_bound *bound)
{
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan;
    options.backend = test_backend();
    options.bounds = bound;
    options.n_bounds = bound != NULL;
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    r->context = test_open_context(plan, &r->engine);
}

static void open_run(run *r, trm_network *network)
{
    const trm_shape_bound bound = {.tensor = "x", .max = {1, {2}}};
    open_run_of(r, network, trm_network_find_tensor(network, "x") != NULL ? &bound : NULL);
}

static void close_run(run *r)
{
    trm_context_destroy(r->context);
    trm_engine_destroy(r->engine);
}

static float first[2] = {1, -1};

static trm_status run_loop(run *r, const int64_t *n, float limit)
{
    static const float s = 1;
    if (n != NULL) {
        assert_ok(trm_context_set_input(r->context, "n", (trm_dims){0}, n));
    }
    assert_ok(trm_context_set_input(r->context, "limit", (trm_dims){0}, &limit));
    assert_ok(trm_context_set_input(r->context, "x", (trm_dims){1, {2}}, first));
    assert_ok(trm_context_set_input(r->context, "s", (trm_dims){0}, &s));
    return trm_context_run(r->context);
}

/* What the loop leaves, computed here. */
static void check_loop(run *r, int64_t n, float limit)
{
    float v[2] = {first[0], first[1]}, s = 1, kept[64][2];
    int64_t passes = 0;
    bool again = true;
    trm_dims dims;
    const void *data;
    for (; passes < n && again; passes++) {
        v[0] += s;
        v[1] += s;
        s *= 2;
        memcpy(kept[passes], v, sizeof(v));
        again = s < limit;
    }
    assert_ok(trm_context_output(r->context, "y", &dims, &data));
    assert_memory_equal(data, v, sizeof(v));
    assert_ok(trm_context_output(r->context, "last", &dims, &data));
    assert_memory_equal(data, &s, sizeof(s));
    assert_ok(trm_context_output(r->context, "all", &dims, &data));
    assert_true(dims.n == 2 && dims.d[0] == passes && dims.d[1] == 2);
    assert_memory_equal(data, kept, (size_t)passes * sizeof(v));
}

static void ends_are_known_in_a_run(void **state)
{
    (void)state;
    static const float limits[] = {0, 3, 4, 5, 9, 1000};
    trm_network *network;
    run r;
    assert_ok(import_loop(true, false, 6, NULL, &network));
    open_run(&r, network);
    for (int64_t n = 0; n <= 6; n++) {
        for (size_t k = 0; k < sizeof(limits) / sizeof(limits[0]); k++) {
            assert_ok(run_loop(&r, &n, limits[k]));
            check_loop(&r, n, limits[k]);
        }
    }
    const int64_t seven = 7, many = 40, none = -3;
    assert_ok(run_loop(&r, &seven, 5)); /* ends by itself */
    check_loop(&r, 7, 5);
    assert_fails(run_loop(&r, &seven, 1000), TRM_ERROR_INVALID_ARGUMENT, "more_than_6_trips");
    assert_ok(run_loop(&r, &seven, 9));
    check_loop(&r, 7, 9);
    close_run(&r);
    assert_ok(import_loop(true, false, 0, NULL, &network)); /* as a region it has no bound */
    open_run(&r, network);
    for (int64_t n = 0; n <= 7; n++) {
        for (size_t k = 0; k < sizeof(limits) / sizeof(limits[0]); k++) {
            assert_ok(run_loop(&r, &n, limits[k]));
            check_loop(&r, n, limits[k]);
        }
    }
    assert_ok(run_loop(&r, &many, 1e30f));
    check_loop(&r, many, 1e30f);
    assert_ok(run_loop(&r, &none, 5));
    check_loop(&r, none, 5);
    close_run(&r);
}

/* What is kept has dims that only a run tells; the first pass, which is sure to run, may be the only one. */
static void kept_dims_are_known_in_a_run(void **state)
{
    (void)state;
    static const float limits[] = {0, 3, 1000, 1, 5};
    trm_onnx *model;
    trm_network *network;
    run r;
    assert_ok(trm_onnx_open(write_loop(test_temporary_folder(), false, false, -1), &model));
    assert_ok(trm_onnx_build_network(model, NULL, &network));
    trm_onnx_close(model);
    open_run(&r, network);
    for (size_t k = 0; k < sizeof(limits) / sizeof(limits[0]); k++) {
        assert_ok(run_loop(&r, NULL, limits[k]));
        check_loop(&r, 64, limits[k]);
    }
    close_run(&r);
}

static void trip_counts_of_the_model_suffice(void **state)
{
    (void)state;
    trm_network *network;
    run r;
    const int64_t n = 5, many = 1000, endless = INT64_MAX;
    assert_ok(import_loop(true, false, 0, &n, &network));
    open_run(&r, network);
    assert_ok(run_loop(&r, NULL, 1000));
    check_loop(&r, n, 1000);
    assert_ok(run_loop(&r, NULL, 4));
    check_loop(&r, n, 4);
    close_run(&r);
    for (int counted = 0; counted < 2; counted++) {
        assert_ok(import_loop(counted == 1, false, 0, counted == 1 ? &many : NULL, &network));
        open_run(&r, network);
        assert_ok(run_loop(&r, NULL, 1000));
        check_loop(&r, many, 1000);
        assert_ok(run_loop(&r, NULL, 1));
        check_loop(&r, many, 1);
        close_run(&r);
    }
    assert_fails(import_loop(false, false, -1, NULL, &network), TRM_ERROR_INVALID_ARGUMENT, "negative");
    assert_ok(import_loop(true, false, 4, &endless, &network));
    open_run(&r, network);
    assert_ok(run_loop(&r, NULL, 9));
    check_loop(&r, endless, 9);
    assert_fails(run_loop(&r, NULL, 1000), TRM_ERROR_INVALID_ARGUMENT, "more_than_4_trips");
    close_run(&r);
}

/* Where inputs tell how often a loop runs, runs with the same are captured, and other elements still count. */
static void known_ends_are_captured(void **state)
{
    (void)state;
    static const float limits[] = {1000, 4, 1000};
    const bool cuda = test_backend() == TRM_BACKEND_CUDA;
    trm_network *network;
    run r;
    assert_ok(import_loop(true, false, 0, NULL, &network));
    open_run(&r, network);
    assert_fails(trm_context_warm_up(r.context), TRM_ERROR_UNSUPPORTED, "loops or branches depend on");
    assert_ok(trm_context_set_capture(r.context, true));
    for (int64_t n = 6; n >= 0; n -= 3) {
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < 4; i++) {
                first[0] = (float)(i + k);
                assert_ok(run_loop(&r, &n, limits[k]));
                check_loop(&r, n, limits[k]);
                assert_int_equal(trm_context_is_captured(r.context), cuda && i > 0);
            }
        }
    }
    first[0] = 1;
    close_run(&r);
}

/* What is carried on may grow. */
static void states_may_grow(void **state)
{
    (void)state;
    static const float limits[] = {0, 3, 5, 9};
    for (int64_t max_trips = 0; max_trips <= 4; max_trips += 4) {
        trm_network *network;
        run r;
        assert_ok(import_loop(false, true, max_trips, NULL, &network));
        open_run(&r, network);
        for (int i = 3; i >= 0; i--) {
            trm_dims dims;
            const void *data;
            assert_ok(run_loop(&r, NULL, limits[i]));
            assert_ok(trm_context_output(r.context, "y", &dims, &data));
            assert_true(dims.n == 1 && dims.d[0] == 4 << i);
            for (int k = 0; k < 4 << i; k++) {
                assert_true(((const float *)data)[k] == (k % 2 == 0 ? 1 : -1));
            }
        }
        if (max_trips > 0) {
            assert_fails(run_loop(&r, NULL, 100), TRM_ERROR_INVALID_ARGUMENT, "more_than_4_trips");
        } else {
            assert_ok(run_loop(&r, NULL, 100));
        }
        close_run(&r);
    }
}

/* ---- loops whose passes are known, and many ---------------------------------------------------------------- */

enum { ADDITIONS = 20 };

static void put_i64(message *graph, const char *name, int64_t value)
{
    put_weight(graph, name, 7, 0, NULL, &value, sizeof(value));
}

/*
 * Loop over v [2, 2], `trips` passes: v + 20 is carried on, v is kept; or by_number: the running sums of v along axis 0
 * and 1 in turn, at most 1000, are kept and carried on. `ends`: only the body's condition ends it, which is known.
 */
static trm_status import_passes(int64_t trips, bool by_number, bool ends, int64_t max_trips, trm_network **network)
{
    static const int64_t two[] = {2, 2}, all[] = {-1, 2, 2};
    static const float one = 1, most = 1000;
    message body = {0}, graph = {0}, loop = {0};
    char text[64], path[512];
    put_graph(&body, 1, node(ends ? "Less i last again" : "Identity c again"));
    put_graph(&body, 1, by_number ? node("Mod i two axis") : node("Identity i axis"));
    put_graph(&body, 1, by_number ? node("CumSum v axis sums") : node("Identity v sums"));
    put_graph(&body, 1, by_number ? node("Min sums most v0") : node("Identity sums v0"));
    for (int i = 0; i < ADDITIONS; i++) {
        const char *operands = by_number ? "" : " one";
        snprintf(text, sizeof(text), "%s v%d%s v%d", by_number ? "Neg" : "Add", i, operands, i + 1);
        put_graph(&body, 1, node(text));
    }
    put_graph(&body, 1, node("Identity v0 kept"));
    put_text(&body, 2, "body");
    put_graph(&body, 11, port("i", 7, 0, NULL));
    put_graph(&body, 11, port("c", 9, 0, NULL));
    put_graph(&body, 11, port("v", 1, 2, two));
    put_graph(&body, 12, port("again", 9, 0, NULL));
    snprintf(text, sizeof(text), "v%d", ADDITIONS);
    put_graph(&body, 12, port(text, 1, 2, two));
    put_graph(&body, 12, port("kept", 1, 2, two));
    put_text(&loop, 1, ends ? "" : "trips");
    put_text(&loop, 1, "");
    put_text(&loop, 1, "x");
    put_text(&loop, 2, "y");
    put_text(&loop, 2, "all");
    put_text(&loop, 4, "Loop");
    message part = attribute("body", 0, &body);
    put_message(&loop, 5, &part);
    put_message(&graph, 1, &loop);
    put_i64(&graph, "trips", trips);
    put_i64(&graph, "last", trips - 1);
    put_i64(&graph, "two", 2);
    put_weight(&graph, "one", 1, 0, NULL, &one, sizeof(one));
    put_weight(&graph, "most", 1, 0, NULL, &most, sizeof(most));
    put_graph(&graph, 11, port("x", 1, 2, two));
    put_graph(&graph, 12, port("y", 1, 2, two));
    put_graph(&graph, 12, port("all", 1, 3, all));
    message model = model_of(&graph);
    snprintf(path, sizeof(path), "%s/passes.onnx", test_temporary_folder());
    test_write_file(path, model.bytes, model.size);
    trm_onnx *opened;
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    options.max_trips = max_trips;
    assert_ok(trm_onnx_open(path, &opened));
    trm_status status = trm_onnx_build_network(opened, &options, network);
    trm_onnx_close(opened);
    return status;
}

/* Runs the network, and checks it against the same done here. */
static void check_passes(trm_network *network, int64_t trips, bool by_number)
{
    static const float x[4] = {1, -2, 3, 4};
    float v[4];
    run r;
    trm_dims dims;
    const void *data;
    open_run_of(&r, network, NULL);
    assert_ok(trm_context_set_input(r.context, "x", (trm_dims){2, {2, 2}}, x));
    assert_ok(trm_context_run(r.context));
    assert_ok(trm_context_output(r.context, "all", &dims, &data));
    assert_true(dims.n == 3 && dims.d[0] == trips && dims.d[1] == 2 && dims.d[2] == 2);
    const float *kept = data;
    memcpy(v, x, sizeof(v));
    for (int64_t i = 0; i < trips; i++) {
        if (by_number) {
            const int step = i % 2 == 0 ? 2 : 1; /* to the next of the axis */
            v[step] += v[0];
            v[3] += v[3 - step];
            for (int k = 0; k < 4; k++) {
                v[k] = v[k] < 1000 ? v[k] : 1000;
            }
        }
        assert_memory_equal(kept + 4 * i, v, sizeof(v));
        for (int k = 0; k < 4 && !by_number; k++) {
            v[k] += ADDITIONS;
        }
    }
    assert_ok(trm_context_output(r.context, "y", &dims, &data));
    assert_memory_equal(data, v, sizeof(v));
    close_run(&r);
}

/* Loops of which all passes are known to run are unrolled as far as they take no more than some thousand layers. */
static void many_known_passes_are_a_region(void **state)
{
    (void)state;
    trm_network *network;
    for (int ends = 0; ends < 2; ends++) {
        static const int64_t trips[] = {300, 1000, 20000};
        for (int i = 0; i < 3; i++) {
            assert_ok(import_passes(trips[i], false, ends == 1, 0, &network));
            if (i == 0) {
                assert_true(network->n_layers >= trips[i] * ADDITIONS);
            } else { /* where only the body tells, it is known when thousands are there */
                assert_in_range(network->n_layers, ADDITIONS, ends == 1 ? 9500 : 100);
            }
            check_passes(network, trips[i], false);
        }
    }
    assert_ok(import_passes(1000, false, false, 1000, &network)); /* the caller wants no loop, */
    assert_true(network->n_layers >= 1000 * ADDITIONS);
    check_passes(network, 1000, false);
    assert_ok(import_passes(20000, false, false, 20000, &network)); /* the same number of passes */
    assert_in_range(network->n_layers, ADDITIONS, 100);
    check_passes(network, 20000, false);
}

/* What a body makes of the number of the pass can be what must be known; then all passes are unrolled. */
static void bodies_that_need_their_number_are_unrolled(void **state)
{
    (void)state;
    trm_network *network;
    assert_ok(import_passes(1000, true, false, 0, &network));
    assert_true(network->n_layers >= 1000 * ADDITIONS);
    check_passes(network, 1000, true);
    assert_fails(import_passes(20000, true, false, 0, &network), TRM_ERROR_UNSUPPORTED,
                 "node 2 (CumSum, opset 17): input 1 of the node must be known when the network is built");
}

/* What a network with a loop cannot be. */
static void what_loops_do_not_allow(void **state)
{
    (void)state;
    trm_network *network;
    trm_plan *plan;
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_weight_budget budget = {.kind = TRM_WEIGHT_BUDGET_BYTES, .bytes = 1 << 20};
    trm_streaming_info streaming;
    assert_ok(import_loop(true, false, 0, NULL, &network));
    options.backend = test_backend();
    assert_ok(trm_build(network, &options, &plan));
    budget.host_compute = TRM_HOST_COMPUTE_PERCENT;
    budget.host_percent = 50;
    assert_fails(trm_plan_set_weight_budget(plan, &budget), TRM_ERROR_UNSUPPORTED,
                 "CPU offload does not support networks with loops or branches");
    budget.host_compute = TRM_HOST_COMPUTE_AUTO; /* they compute none */
    assert_ok(trm_plan_set_weight_budget(plan, &budget));
    trm_plan_streaming(plan, &streaming);
    assert_true(streaming.on && streaming.offloaded_layers == 0);
    trm_plan_destroy(plan);
    options.mesh.size[TRM_AXIS_PP] = 2;
    assert_fails(trm_build(network, &options, &plan), TRM_ERROR_INVALID_ARGUMENT,
                 "states never, and loops and branches are not cut"); /* all outputs of the loop go to both */
    trm_network_destroy(network);
}

/* ---- Scan ---------------------------------------------------------------------------------------------- */

static void put_ints(message *to, const char *name, int64_t number)
{
    message made = {0};
    put_text(&made, 1, name);
    put_number(&made, 8, (uint64_t)number);
    put_number(&made, 20, 7);
    put_message(to, 5, &made);
}

/* Running sums of the rows of x [rows, 2] from w on; turned: rows and results from the last on, results beside each
 * other. rows, columns: -1 where only a run tells. *layers of the network. */
static trm_status open_scan(run *r, bool turned, int64_t rows, int64_t columns, int64_t max_trips, int32_t *layers)
{
    const int64_t two[] = {columns}, open[] = {rows, columns};
    static const float start[2] = {10, 20}; /* the first alone where columns are open */
    const int64_t starts = columns < 0 ? 1 : 2;
    char path[512];
    message body = {0}, graph = {0}, scan = {0};
    put_graph(&body, 1, node("Add s e sum"));
    put_graph(&body, 1, node("Identity sum kept"));
    put_text(&body, 2, "body");
    put_graph(&body, 11, port("s", 1, 1, two));
    put_graph(&body, 11, port("e", 1, 1, two));
    put_graph(&body, 12, port("sum", 1, 1, two));
    put_graph(&body, 12, port("kept", 1, 1, two));
    put_text(&scan, 1, "w");
    put_text(&scan, 1, "x");
    put_text(&scan, 2, "last");
    put_text(&scan, 2, "all");
    put_text(&scan, 4, "Scan");
    message part = attribute("body", 0, &body), number = attribute("num_scan_inputs", 1, NULL);
    put_message(&scan, 5, &part);
    put_message(&scan, 5, &number);
    if (turned) {
        put_ints(&scan, "scan_input_directions", 1);
        put_ints(&scan, "scan_output_directions", 1);
        put_ints(&scan, "scan_output_axes", 1);
    }
    put_message(&graph, 1, &scan);
    put_weight(&graph, "w", 1, 1, &starts, start, (size_t)starts * sizeof(*start));
    put_graph(&graph, 11, port("x", 1, 2, open));
    put_graph(&graph, 12, port("last", 1, 1, two));
    put_graph(&graph, 12, port("all", 1, 2, (const int64_t[]){-1, -1}));
    message model = model_of(&graph);
    snprintf(path, sizeof(path), "%s/scan.onnx", test_temporary_folder());
    test_write_file(path, model.bytes, model.size);
    trm_onnx *opened;
    trm_network *network;
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    const trm_shape_bound bound = {.tensor = "x", .max = {2, {rows < 0 ? 6 : rows, 2}}};
    trm_build_options how = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan;
    options.max_trips = max_trips;
    how.backend = test_backend();
    how.bounds = &bound;
    how.n_bounds = rows < 0 || columns < 0;
    assert_ok(trm_onnx_open(path, &opened));
    trm_status status = trm_onnx_build_network(opened, &options, &network);
    trm_onnx_close(opened);
    if (status == TRM_OK) {
        *layers = network->n_layers;
        status = trm_build(network, &how, &plan);
        trm_network_destroy(network);
    }
    if (status != TRM_OK) {
        return status;
    }
    assert_ok(trm_engine_create(plan, test_world, NULL, NULL, &r->engine));
    return trm_context_create(r->engine, &r->context);
}

/* Runs n rows; the sums begin with 10 and `second`. */
static void check_scan(run *r, int turned, int64_t n, float second)
{
    float *x = calloc((size_t)n * 2 + 1, sizeof(*x)), *sums = calloc((size_t)n * 2 + 1, sizeof(*sums)),
          s[2] = {10, second};
    trm_dims dims;
    const void *data;
    assert_true(x != NULL && sums != NULL);
    for (int64_t i = 0; i < 2 * n; i++) {
        x[i] = (float)(i * i % 144);
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = turned == 1 ? n - 1 - i : i;
        for (int64_t k = 0; k < 2; k++) {
            s[k] += x[2 * row + k];
            sums[2 * row + k] = s[k];
        }
    }
    assert_ok(trm_context_set_input(r->context, "x", (trm_dims){2, {n, 2}}, x));
    assert_ok(trm_context_run(r->context));
    assert_ok(trm_context_output(r->context, "last", &dims, &data));
    assert_memory_equal(data, s, sizeof(s));
    assert_ok(trm_context_output(r->context, "all", &dims, &data));
    assert_true(dims.n == 2 && dims.d[turned] == n && dims.d[1 - turned] == 2);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < 2; k++) {
            assert_true(((const float *)data)[turned == 1 ? k * n + i : 2 * i + k] == sums[2 * i + k]);
        }
    }
    free(x);
    free(sums);
}

static void scans_of_any_length(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        const bool is_region = way >= 2;
        int32_t layers;
        run r = {0};
        assert_ok(open_scan(&r, way % 2 == 1, -1, 2, is_region ? 0 : 6, &layers));
        for (int64_t n = is_region ? 0 : 1; n <= 6; n++) {
            check_scan(&r, way % 2, n, 20);
        }
        close_run(&r);
    }
}

static void long_scans_are_a_region(void **state)
{
    (void)state;
    for (int way = 0; way < 6; way++) {
        const int64_t n = way < 2 ? 1000 : 5000;
        int32_t layers;
        run r = {0};
        assert_ok(open_scan(&r, way % 2 == 1, n, way < 4 ? 2 : -1, 0, &layers));
        assert_true(way < 2 ? layers > n : layers < 100);
        check_scan(&r, way % 2, n, way < 4 ? 20 : 10);
        close_run(&r);
    }
}

/* What a plan is to be for must not want more passes than are made. */
static void scans_that_are_too_long(void **state)
{
    (void)state;
    run r = {0};
    int32_t layers;
    float x[12] = {0};
    assert_fails(open_scan(&r, false, -1, 2, 5, &layers), TRM_ERROR_INVALID_ARGUMENT, "more_than_5_trips");
    assert_fails(open_scan(&r, true, -1, 2, 5, &layers), TRM_ERROR_INVALID_ARGUMENT, "more_than_5_trips");
    assert_ok(open_scan(&r, false, -1, 2, 7, &layers)); /* more than the bound has */
    assert_ok(trm_context_set_input(r.context, "x", (trm_dims){2, {6, 2}}, x));
    assert_ok(trm_context_run(r.context));
    close_run(&r);
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_known_in_a_run),
        cmocka_unit_test(kept_dims_are_known_in_a_run),
        cmocka_unit_test(trip_counts_of_the_model_suffice),
        cmocka_unit_test(known_ends_are_captured),
        cmocka_unit_test(states_may_grow),
        cmocka_unit_test(many_known_passes_are_a_region),
        cmocka_unit_test(bodies_that_need_their_number_are_unrolled),
        cmocka_unit_test(scans_of_any_length),
        cmocka_unit_test(long_scans_are_a_region),
        cmocka_unit_test(scans_that_are_too_long),
        cmocka_unit_test(what_loops_do_not_allow),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
