/* Networks with loops under a weight budget: the same results whatever it is, and which of their runs are captured. On
 * the host, which captures nothing, a stand-in for captures enqueues the layers again. */
#include "offload/streaming_fixture.h"

#include "dist/runtime/context.h"
#include "graph/regions.h"
#include "support/onnx_message.h"

enum { WIDTH = 32, ROWS = 2, WEIGHT_BYTES = WIDTH * WIDTH * 4 };

/* Small integers, so that sums are exact in any order: two entries in each column. */
static void fill_weight(float *w, int32_t apart)
{
    memset(w, 0, WEIGHT_BYTES);
    for (int32_t k = 0; k < WIDTH; k++) {
        w[(k + apart) % WIDTH * WIDTH + k] = 1;
        w[(k * 3 + apart) % WIDTH * WIDTH + k] -= 1;
    }
}

/* n passes of x = x w, then y = x v; the passes are known when a run begins. The path of its file. */
static const char *write_net(void)
{
    static char path[512];
    static const int64_t dims[] = {ROWS, WIDTH}, weight_dims[] = {WIDTH, WIDTH};
    static const char *const inputs[] = {"n", "", "x"};
    message body = {0}, graph = {0}, loop = {0};
    float w[WIDTH * WIDTH], v[WIDTH * WIDTH];
    fill_weight(w, 1);
    fill_weight(v, 5);
    put_graph(&body, 1, node("MatMul a w b"));
    put_graph(&body, 1, node("Identity c again"));
    put_text(&body, 2, "body");
    put_graph(&body, 11, port("i", 7, 0, NULL));
    put_graph(&body, 11, port("c", 9, 0, NULL));
    put_graph(&body, 11, port("a", 1, 2, dims));
    put_graph(&body, 12, port("again", 9, 0, NULL));
    put_graph(&body, 12, port("b", 1, 2, dims));
    for (int32_t i = 0; i < 3; i++) {
        put_text(&loop, 1, inputs[i]);
    }
    put_text(&loop, 2, "last");
    put_text(&loop, 4, "Loop");
    message part = attribute("body", 0, &body);
    put_message(&loop, 5, &part);
    put_message(&graph, 1, &loop);
    put_graph(&graph, 1, node("MatMul last v y"));
    put_weight(&graph, "w", 1, 2, weight_dims, w, sizeof(w));
    put_weight(&graph, "v", 1, 2, weight_dims, v, sizeof(v));
    put_graph(&graph, 11, port("n", 7, 0, NULL));
    put_graph(&graph, 11, port("x", 1, 2, dims));
    put_graph(&graph, 12, port("y", 1, 2, dims));
    message model = model_of(&graph);
    snprintf(path, sizeof(path), "%s/counted.onnx", test_temporary_folder());
    test_write_file(path, model.bytes, model.size);
    return path;
}

static void multiply(float *x, int32_t apart)
{
    float w[WIDTH * WIDTH], product[ROWS * WIDTH] = {0};
    fill_weight(w, apart);
    for (int32_t i = 0; i < ROWS; i++) {
        for (int32_t k = 0; k < WIDTH; k++) {
            for (int32_t j = 0; j < WIDTH; j++) {
                product[i * WIDTH + j] += x[i * WIDTH + k] * w[k * WIDTH + j];
            }
        }
    }
    memcpy(x, product, sizeof(product));
}

/* One run, with what comes of it. */
static void run_passes(trm_context *context, int64_t n, int32_t seed)
{
    float x[ROWS * WIDTH];
    trm_dims dims;
    const void *y;
    for (int32_t i = 0; i < ROWS * WIDTH; i++) {
        x[i] = (float)((i * 7 + seed) % 5 - 2);
    }
    assert_ok(trm_context_set_input(context, "n", (trm_dims){0}, &n));
    assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {ROWS, WIDTH}}, x));
    assert_ok(trm_context_run(context));
    for (int64_t i = 0; i < n; i++) {
        multiply(x, 1);
    }
    multiply(x, 5);
    assert_ok(trm_context_output(context, "y", &dims, &y));
    assert_true(dims.n == 2 && dims.d[0] == ROWS && dims.d[1] == WIDTH);
    for (int32_t i = 0; i < ROWS * WIDTH; i++) {
        assert_true(((const float *)y)[i] == x[i]);
    }
}

/* ---- captures of the host ---------------------------------------------------------------------- */

static trm_context *captured_context; /* whose runs are captured */
static bool is_capturing;
static int32_t n_launches;

static trm_status begin_capture(trm_stream *stream)
{
    (void)stream;
    is_capturing = true;
    return TRM_OK;
}

static trm_status end_capture(trm_stream *stream, trm_graph_exec **exec)
{
    is_capturing = false;
    *exec = calloc(1, sizeof(**exec));
    assert_non_null(*exec);
    (*exec)->ops = stream->ops;
    return TRM_OK;
}

static bool is_stream_capturing(const trm_stream *stream)
{
    (void)stream;
    return is_capturing;
}

/* A launch leaves the context as it is. */
static trm_status launch(trm_graph_exec *exec, trm_stream *stream)
{
    (void)exec;
    (void)stream;
    const int64_t shapings = captured_context->shaping.count;
    n_launches++;
    TRM_TRY(trm_context_enqueue_again(captured_context));
    captured_context->shaping.count = shapings;
    return TRM_OK;
}

static void destroy_exec(trm_graph_exec *exec)
{
    free(exec);
}

static void capture_on_host(void)
{
    if (test_backend() == TRM_BACKEND_HOST) {
        trm_device_ops *ops = change_ops();
        ops->stream_begin_capture = begin_capture;
        ops->stream_end_capture = end_capture;
        ops->stream_is_capturing = is_stream_capturing;
        ops->graph_exec_launch = launch;
        ops->graph_exec_destroy = destroy_exec;
    }
}

static void restore_host(void)
{
    if (test_backend() == TRM_BACKEND_HOST) {
        restore_ops();
    }
}

static trm_context *open_context(const trm_weight_budget *budget, trm_engine **engine)
{
    trm_plan *plan = test_build_onnx(write_net(), false, 1, 0);
    if (budget != NULL) {
        assert_ok(trm_plan_set_weight_budget(plan, budget));
    }
    captured_context = test_open_context(plan, engine);
    assert_ok(trm_context_set_capture(captured_context, true));
    captured_context->captures.wanted = true; /* on the host, too */
    return captured_context;
}

/* Runs of several numbers of passes, three of each: the first of one goes layer by layer, the next are captured where
 * they are to be. A caller may capture the same. */
static void check_runs(trm_context *context, bool captures)
{
    static const int64_t passes[] = {3, 0, 6, 1, 3}; /* the last as the next call's first, before which weights move */
    for (size_t k = 0; k < sizeof(passes) / sizeof(passes[0]); k++) {
        const int32_t before = n_launches;
        for (int32_t i = 0; i < 3; i++) {
            run_passes(context, passes[k], i);
            assert_int_equal(trm_context_is_captured(context), captures && i > 0);
        }
        assert_true(test_backend() == TRM_BACKEND_CUDA || n_launches - before == (captures ? 2 : 0));
        if (captures) {
            assert_ok(trm_context_check_capture(context));
        } else {
            assert_fails(trm_context_check_capture(context), TRM_ERROR_UNSUPPORTED, "weights stream: keep them all");
        }
    }
}

static void runs_are_captured_where_all_weights_stay(void **state)
{
    (void)state;
    static const struct {
        trm_weight_budget budget;
        bool captures;
    } cases[] = {{{.kind = TRM_WEIGHT_BUDGET_PERCENT, .percent = 100}, true},
                 {{.kind = TRM_WEIGHT_BUDGET_AUTO}, true},
                 {{.kind = TRM_WEIGHT_BUDGET_BYTES, .bytes = WEIGHT_BYTES}, false}, /* the loop's alone */
                 {{.kind = TRM_WEIGHT_BUDGET_PERCENT, .percent = 0}, false}};
    trm_engine *engine;
    capture_on_host();
    trm_context *context = open_context(NULL, &engine);
    check_runs(context, true);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        trm_streaming_info info;
        context = open_context(&cases[i].budget, &engine);
        trm_engine_streaming(engine, &info);
        assert_true(info.on && info.streamable >= 2 * WEIGHT_BYTES && info.streamable < 3 * WEIGHT_BYTES);
        assert_int_equal(info.copies == 0, cases[i].captures);
        check_runs(context, cases[i].captures);
        trm_context_destroy(context);
        trm_engine_destroy(engine);
    }
    restore_host();
}

/* A context that lives on. */
static void budgets_change_between_captured_runs(void **state)
{
    (void)state;
    static const size_t budgets[] = {SIZE_MAX, 0, 3 * WEIGHT_BYTES, WEIGHT_BYTES, SIZE_MAX};
    const trm_weight_budget first = {.kind = TRM_WEIGHT_BUDGET_PERCENT, .percent = 50};
    trm_engine *engine;
    capture_on_host();
    trm_context *context = open_context(&first, &engine);
    check_runs(context, false);
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        assert_ok(trm_engine_set_weight_budget(engine, budgets[i]));
        check_runs(context, budgets[i] >= 3 * WEIGHT_BYTES);
    }
    assert_ok(trm_engine_set_weight_budget(engine, 0)); /* no run has seen that weights were elsewhere */
    assert_ok(trm_engine_set_weight_budget(engine, SIZE_MAX));
    check_runs(context, true);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    restore_host();
}

static size_t copied; /* bytes, on other streams than that of the layers */

static trm_status upload_and_count(trm_stream *stream, void *to, const void *from, size_t size)
{
    copied += captured_context != NULL && stream != captured_context->stream ? size : 0;
    return own_ops->stream_upload(stream, to, from, size);
}

/* What a plan says of a run counts a loop as its number of passes, in bytes, copies and times alike; what a run copied
 * is what it did. */
static void bytes_and_times_are_of_the_same_passes(void **state)
{
    (void)state;
    static const int64_t passes[] = {8, 1, 3, 0};
    static const size_t budgets[] = {0, WEIGHT_BYTES + WEIGHT_BYTES / 2};
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        const trm_weight_budget budget = {.kind = TRM_WEIGHT_BUDGET_BYTES, .bytes = budgets[i]};
        const size_t loop = i == 0 ? WEIGHT_BYTES : 0; /* that streams of a pass: the loop's stay first */
        trm_streaming_info info;
        trm_engine *engine;
        captured_context = NULL;
        if (test_backend() == TRM_BACKEND_HOST) {
            change_ops()->stream_upload = upload_and_count;
        }
        trm_context *context = open_context(&budget, &engine);
        assert_int_equal(trm_context_streamed(context), 0);
        trm_engine_streaming(engine, &info);
        const trm_residency_problem *problem = &engine->plan->streaming->problem;
        const double seconds = (double)info.streamed / info.link_rate + info.copies * problem->copy_seconds;
        assert_int_equal(info.loop_passes, 8);
        assert_true(info.streamed >= 8 * loop + WEIGHT_BYTES && info.streamed < 8 * loop + 2 * WEIGHT_BYTES);
        assert_true(info.unpacked == info.streamed && info.copies >= (i == 0 ? 9 : 1));
        assert_true(info.link_seconds > 0.999 * seconds && info.link_seconds < 1.001 * seconds);
        for (size_t k = 0; k < sizeof(passes) / sizeof(passes[0]); k++) {
            run_passes(context, passes[k], 1); /* the first one brings what runs begin with */
            copied = 0;
            run_passes(context, passes[k], 2);
            const size_t streamed = trm_context_streamed(context);
            assert_true(test_backend() == TRM_BACKEND_CUDA || streamed == copied);
            assert_true(streamed >= (size_t)passes[k] * loop + WEIGHT_BYTES);
        }
        trm_context_destroy(context);
        trm_engine_destroy(engine);
        restore_host();
    }
}

/* Where bounds say what usually decides the passes, that number is counted. */
static void passes_that_are_known_are_counted(void **state)
{
    (void)state;
    static const int64_t trips[] = {3, 20};
    trm_onnx *model;
    trm_network *network;
    const trm_weight_budget budget = {.kind = TRM_WEIGHT_BUDGET_PERCENT};
    assert_ok(trm_onnx_open(write_net(), &model));
    assert_ok(trm_onnx_build_network(model, NULL, &network));
    trm_onnx_close(model);
    for (int32_t i = 0; i < 2; i++) {
        const trm_shape_bound bound = {.tensor = "n", .max_values = &trips[1], .opt_values = i == 0 ? &trips[0] : NULL};
        trm_build_options options = TRM_BUILD_OPTIONS_INIT;
        trm_streaming_info info;
        trm_plan *plan;
        options.backend = test_backend();
        options.bounds = &bound;
        options.n_bounds = 1;
        assert_ok(trm_build(network, &options, &plan));
        assert_ok(trm_plan_set_weight_budget(plan, &budget));
        trm_plan_streaming(plan, &info);
        const size_t least = (size_t)(trips[i] + 1) * WEIGHT_BYTES;
        assert_int_equal(info.loop_passes, 0);
        assert_true(info.streamed >= least && info.streamed < least + WEIGHT_BYTES);
        trm_plan_destroy(plan);
    }
    trm_network_destroy(network);
}

/* A share of the layers for processors is refused on all ranks, also on those whose stage has no loop: they would wait
 * for those that have one. */
static void all_stages_refuse_alike(void **state)
{
    (void)state;
    trm_onnx *model;
    trm_network *network;
    trm_plan *plans[2];
    char path[512];
    const trm_weight_budget share = {
        .kind = TRM_WEIGHT_BUDGET_PERCENT, .host_compute = TRM_HOST_COMPUTE_PERCENT, .host_percent = 50};
    const trm_weight_budget automatic = {.kind = TRM_WEIGHT_BUDGET_PERCENT, .host_compute = TRM_HOST_COMPUTE_AUTO};
    assert_ok(trm_onnx_open(write_net(), &model));
    assert_ok(trm_onnx_build_network(model, NULL, &network));
    trm_onnx_close(model);
    for (int32_t rank = 0; rank < 2; rank++) {
        trm_build_options options = TRM_BUILD_OPTIONS_INIT;
        options.backend = test_backend();
        options.mesh.size[TRM_AXIS_PP] = 2;
        options.rank = rank;
        assert_ok(trm_build(network, &options, &plans[rank]));
    }
    assert_true(trm_network_has_regions(plans[0]->network) != trm_network_has_regions(plans[1]->network));
    trm_network_destroy(network);
    snprintf(path, sizeof(path), "%s/stages.plan", test_temporary_folder());
    assert_ok(trm_plan_save((const trm_plan *const *)plans, 2, TRM_PLAN_WEIGHTS_EMBEDDED, path));
    for (int32_t rank = 0; rank < 2; rank++) {
        trm_plan *loaded;
        assert_ok(trm_plan_load(path, rank, &loaded));
        for (int32_t i = 0; i < 2; i++) {
            trm_plan *plan = i == 0 ? plans[rank] : loaded;
            assert_fails(trm_plan_set_weight_budget(plan, &share), TRM_ERROR_UNSUPPORTED,
                         "CPU offload does not support networks with loops or branches");
            assert_ok(trm_plan_set_weight_budget(plan, &automatic));
            trm_plan_destroy(plan);
        }
    }
}

int main(void)
{
    if (test_lacks_backend()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_captured_where_all_weights_stay),
        cmocka_unit_test(budgets_change_between_captured_runs),
        cmocka_unit_test(bytes_and_times_are_of_the_same_passes),
        cmocka_unit_test(passes_that_are_known_are_counted),
        cmocka_unit_test(all_stages_refuse_alike),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
