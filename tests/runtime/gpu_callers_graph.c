/*
 * Runs of contexts inside CUDA graphs of the caller, as include/trireme/engine.h says they are captured: replays with
 * new inputs give the bits of plain runs, on every rank; what cannot be captured is refused and leaves the caller's
 * capture as it was. One GPU per rank, under mpirun or alone.
 */
#include "support/support.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

#include <trireme/trireme.h>

#include "dist/parallel/world.h"
#include "support/device.h"
#include "support/onnx_message.h"
#include "support/random_network.h"

enum { WIDTH = 512, LAYERS = 4, MOST = 40, REPLAYS = 5, ELEMENTS = MOST * WIDTH };

#define assert_cuda(call) assert_int_equal(call, cudaSuccess)

static trm_world *world;
static float x[ELEMENTS];

/* Products and activations; [n, WIDTH] to the same. */
static trm_network *make_products(void)
{
    const trm_dims square = {2, {WIDTH, WIDTH}};
    trm_network *network;
    trm_tensor *at;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {-1, WIDTH}}, &at));
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        trm_weight *random;
        trm_tensor *weight, *product;
        assert_ok(trm_weight_random(TRM_F32, &square, (uint64_t)i + 1, 0, 0.06f, &random));
        snprintf(name, sizeof(name), "w%d", i);
        assert_ok(trm_network_add_weight(network, name, random, TRM_F32, &weight));
        snprintf(name, sizeof(name), "product%d", i);
        assert_ok(trm_network_add_matmul(network, name, at, weight, NULL, true, &product));
        snprintf(name, sizeof(name), i == LAYERS - 1 ? "y" : "tanh%d", i);
        assert_ok(trm_network_add_activation(network, name, TRM_ACTIVATION_TANH, product, &at));
    }
    assert_ok(trm_network_mark_output(network, at));
    return network;
}

/* One operator or loop as an ONNX file gives it. */
static trm_network *import_graph(const message *graph)
{
    char path[512];
    trm_onnx *model;
    trm_network *network;
    const message file = model_of(graph);
    snprintf(path, sizeof(path), "%s/graph.onnx", test_temporary_folder());
    test_write_file(path, file.bytes, file.size);
    assert_ok(trm_onnx_open(path, &model));
    assert_ok(trm_onnx_build_network(model, NULL, &network));
    trm_onnx_close(model);
    return network;
}

enum { LOOPED = 33 }; /* numbers of a loop */

/* n times v = v + x, from x on; with a weight v = v + weight + x. */
static trm_network *make_loop(const float *weight)
{
    static const int64_t count[] = {LOOPED};
    static const int64_t open[] = {-1};
    message body = {0}, graph = {0}, loop = {0}, part;
    put_graph(&body, 1, node(weight == NULL ? "Identity v t" : "Add v weight t"));
    put_graph(&body, 1, node("Add t x w"));
    put_graph(&body, 1, node("Identity c again"));
    put_text(&body, 2, "body");
    put_graph(&body, 11, port("i", 7, 0, NULL));
    put_graph(&body, 11, port("c", 9, 0, NULL));
    put_graph(&body, 11, port("v", 1, 1, open));
    put_graph(&body, 12, port("again", 9, 0, NULL));
    put_graph(&body, 12, port("w", 1, 1, open));
    put_text(&loop, 1, "n");
    put_text(&loop, 1, "");
    put_text(&loop, 1, "x");
    put_text(&loop, 2, "y");
    put_text(&loop, 4, "Loop");
    part = attribute("body", 0, &body);
    put_message(&loop, 5, &part);
    put_message(&graph, 1, &loop);
    put_graph(&graph, 11, port("n", 7, 0, NULL));
    put_graph(&graph, 11, port("x", 1, 1, open));
    put_graph(&graph, 12, port("y", 1, 1, open));
    if (weight != NULL) {
        put_weight(&graph, "weight", 1, 1, count, weight, LOOPED * sizeof(*weight));
    }
    return import_graph(&graph);
}

static trm_network *make_non_zero(void)
{
    static const int64_t open[] = {-1}, pairs[] = {1, -1};
    message graph = {0};
    put_graph(&graph, 1, node("NonZero x y"));
    put_graph(&graph, 11, port("x", 1, 1, open));
    put_graph(&graph, 12, port("y", 7, 2, pairs));
    return import_graph(&graph);
}

/* An engine of a network, which is used up, over all ranks. budget: may be NULL. */
static trm_engine *open_engine(trm_network *network, trm_dims most, int32_t aux, const trm_weight_budget *budget)
{
    const trm_shape_bound bound = {.tensor = "x", .max = most};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan;
    trm_engine *engine;
    options.backend = TRM_BACKEND_CUDA;
    options.rank = trm_world_rank(world);
    options.bounds = &bound;
    options.n_bounds = 1;
    options.max_aux_streams = aux;
    assert_ok(trm_mesh_parse("", trm_world_size(world), &options.mesh));
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    assert_ok(budget == NULL ? TRM_OK : trm_plan_set_weight_budget(plan, budget));
    assert_ok(trm_engine_create(plan, world, NULL, NULL, &engine));
    return engine;
}

static trm_engine *open_products(const trm_weight_budget *budget)
{
    return open_engine(make_products(), (trm_dims){2, {MOST, WIDTH}}, 0, budget);
}

static trm_context *open_context(trm_engine *engine)
{
    trm_context *context;
    assert_ok(trm_context_create(engine, &context));
    return context;
}

static void fill(uint64_t seed)
{
    for (int i = 0; i < ELEMENTS; i++) {
        x[i] = (float)(test_random(&seed) % 2001) / 1000.0f - 1;
    }
}

static void set_rows(trm_context *context, int64_t rows, uint64_t seed)
{
    fill(seed);
    assert_ok(trm_context_set_input(context, "x", (trm_dims){2, {rows, WIDTH}}, x));
}

/* The output of the last run. */
static const float *output_of(trm_context *context, int64_t rows)
{
    trm_dims dims;
    const void *data;
    assert_ok(trm_context_output(context, "y", &dims, &data));
    assert_true(dims.n == 2 && dims.d[0] == rows && dims.d[1] == WIDTH);
    return data;
}

static const float *run_rows(trm_context *context, int64_t rows, uint64_t seed)
{
    set_rows(context, rows, seed);
    assert_ok(trm_context_run(context));
    return output_of(context, rows);
}

static cudaStream_t begin(trm_context *context, enum cudaStreamCaptureMode mode)
{
    cudaStream_t stream = trm_context_stream(context);
    assert_non_null(stream);
    assert_cuda(cudaStreamBeginCapture(stream, mode));
    return stream;
}

/* Ends a capture; gives what can be launched, and how many nodes it has. */
static cudaGraphExec_t end(cudaStream_t stream, size_t *n_nodes)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_cuda(cudaGraphGetNodes(graph, NULL, n_nodes));
    assert_cuda(cudaGraphInstantiate(&exec, graph, 0));
    assert_cuda(cudaGraphDestroy(graph));
    return exec;
}

static cudaGraphExec_t capture(trm_context *context, enum cudaStreamCaptureMode mode)
{
    size_t n_nodes;
    cudaStream_t stream = begin(context, mode);
    assert_ok(trm_context_start(context));
    cudaGraphExec_t exec = end(stream, &n_nodes);
    assert_true(n_nodes > 0);
    return exec;
}

static void launch(cudaGraphExec_t exec, cudaStream_t stream)
{
    assert_cuda(cudaGraphLaunch(exec, stream));
    assert_cuda(cudaStreamSynchronize(stream));
}

/* A run of the context is refused inside a capture, which goes on: it ends without an error, and nothing is in it. */
static void assert_refused(trm_context *context, trm_status (*call)(trm_context *), trm_status expected,
                           const char *cause)
{
    size_t n_nodes;
    cudaStream_t stream = begin(context, cudaStreamCaptureModeThreadLocal);
    enum cudaStreamCaptureStatus status;
    assert_fails(call(context), expected, cause);
    assert_cuda(cudaStreamIsCapturing(stream, &status));
    assert_int_equal(status, cudaStreamCaptureStatusActive);
    cudaGraphExec_t exec = end(stream, &n_nodes);
    assert_int_equal(n_nodes, 0);
    assert_cuda(cudaGraphExecDestroy(exec));
}

/* ---- tests ---------------------------------------------------------------------------------------------- */

static void replay_and_compare(trm_engine *engine, int64_t rows, enum cudaStreamCaptureMode mode, uint64_t seed)
{
    trm_context *plain = open_context(engine), *captured = open_context(engine);
    cudaStream_t other;
    const size_t size = (size_t)rows * WIDTH * sizeof(float);
    assert_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    (void)run_rows(captured, rows, seed);
    cudaGraphExec_t execs[2];
    for (int i = 0; i < 2; i++) {
        execs[i] = capture(captured, mode);
    }
    const float *found = output_of(captured, rows); /* of the run before, and where launches write */
    assert_memory_equal(found, run_rows(plain, rows, seed), size);
    for (uint64_t i = 0; i < REPLAYS; i++) {
        set_rows(captured, rows, seed + i + 1);
        launch(execs[i % 2], i < 3 ? trm_context_stream(captured) : other);
        assert_memory_equal(found, run_rows(plain, rows, seed + i + 1), size);
        if (i == 1) { /* a plain run between launches */
            assert_memory_equal(run_rows(captured, rows, seed), run_rows(plain, rows, seed), size);
        }
    }
    assert_ptr_equal(output_of(captured, rows), found);
    assert_cuda(cudaGraphExecDestroy(execs[0]));
    assert_cuda(cudaGraphExecDestroy(execs[1]));
    assert_cuda(cudaStreamDestroy(other));
    trm_context_destroy(plain);
    trm_context_destroy(captured);
}

static void replays_see_new_inputs(void **state)
{
    (void)state;
    static const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                                       cudaStreamCaptureModeRelaxed};
    static const int64_t rows[] = {1, 7, MOST};
    trm_engine *engine = open_products(NULL);
    for (size_t i = 0; i < 3; i++) {
        replay_and_compare(engine, rows[i], modes[i], 10 * i);
    }
    trm_engine_destroy(engine);
}

/* Weights that flow from pinned host memory in every run, some of them across the ends of runs. */
static void streamed_weights_flow_in_replays(void **state)
{
    (void)state;
    static const char *const budgets[] = {"0", "50%"};
    for (size_t i = 0; i < 2; i++) {
        trm_weight_budget budget;
        trm_streaming_info info;
        assert_ok(trm_weight_budget_parse(budgets[i], &budget));
        trm_engine *engine = open_products(&budget);
        trm_engine_streaming(engine, &info);
        assert_true(info.pinned && info.streamed > 0);
        replay_and_compare(engine, 7, cudaStreamCaptureModeThreadLocal, 100 * i);
        trm_engine_destroy(engine);
    }
}

/* A graph of the caller's copies and two runs, on memory of the caller, on a stream that forks from another. */
static void runs_are_part_of_a_larger_graph(void **state)
{
    (void)state;
    enum { ROWS = 5 };
    const size_t size = (size_t)ROWS * WIDTH * sizeof(float);
    trm_engine *engine = open_products(NULL);
    trm_context *plain = open_context(engine), *captured = open_context(engine);
    cudaStream_t origin, stream = trm_context_stream(captured);
    cudaEvent_t forked, joined;
    void *in, *out;
    float *from, *to;
    size_t n_nodes;
    assert_ok(trm_device_alloc(world->device, size, &in));
    assert_ok(trm_device_alloc(world->device, size, &out));
    assert_cuda(cudaMallocHost((void **)&from, size));
    assert_cuda(cudaMallocHost((void **)&to, size));
    assert_cuda(cudaStreamCreateWithFlags(&origin, cudaStreamNonBlocking));
    assert_cuda(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    assert_cuda(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    assert_ok(trm_context_bind_input(captured, "x", (trm_dims){2, {ROWS, WIDTH}}, in));
    assert_ok(trm_context_bind_output(captured, "y", out, size));
    assert_cuda(cudaMemset(in, 0, size));
    assert_ok(trm_context_run(captured));

    assert_cuda(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal));
    assert_cuda(cudaMemcpyAsync(in, from, size, cudaMemcpyHostToDevice, origin));
    assert_cuda(cudaEventRecord(forked, origin));
    assert_cuda(cudaStreamWaitEvent(stream, forked, 0));
    assert_ok(trm_context_start(captured));
    assert_cuda(cudaMemcpyAsync(in, out, size, cudaMemcpyDeviceToDevice, stream));
    assert_ok(trm_context_start(captured));
    assert_cuda(cudaEventRecord(joined, stream));
    assert_cuda(cudaStreamWaitEvent(origin, joined, 0));
    assert_cuda(cudaMemcpyAsync(to, out, size, cudaMemcpyDeviceToHost, origin));
    cudaGraphExec_t exec = end(origin, &n_nodes);
    for (uint64_t i = 0; i < REPLAYS; i++) {
        fill(i);
        memcpy(from, x, size);
        launch(exec, origin);
        memcpy(x, run_rows(plain, ROWS, i), size);
        assert_ok(trm_context_set_input(plain, "x", (trm_dims){2, {ROWS, WIDTH}}, x));
        assert_ok(trm_context_run(plain));
        assert_memory_equal(to, output_of(plain, ROWS), size);
    }
    assert_cuda(cudaGraphExecDestroy(exec));
    assert_cuda(cudaEventDestroy(forked));
    assert_cuda(cudaEventDestroy(joined));
    assert_cuda(cudaStreamDestroy(origin));
    assert_cuda(cudaFreeHost(from));
    assert_cuda(cudaFreeHost(to));
    trm_context_destroy(plain);
    trm_context_destroy(captured);
    trm_engine_destroy(engine);
    trm_device_free(world->device, in);
    trm_device_free(world->device, out);
}

/* Branches beside each other, and all kinds of layers. */
static void random_networks_replay(void **state)
{
    (void)state;
    enum { LARGEST = 16384, TOKENS = 5 };
    static float data[LARGEST];
    const uint64_t seed = test_seed();
    int captured_ones = 0;
    for (uint64_t i = 0; i < (test_is_brief() ? 3 : 20); i++) {
        trm_network *network = test_random_network(seed + i, 10 + (int32_t)i);
        const int32_t n_outputs = network->n_outputs;
        trm_shape_bound bounds[16];
        trm_build_options options = TRM_BUILD_OPTIONS_INIT;
        trm_plan *plan;
        trm_engine *engine;
        options.backend = TRM_BACKEND_CUDA;
        options.max_aux_streams = (int32_t)(i % 4);
        options.bounds = bounds;
        for (int32_t k = 0; k < trm_network_input_count(network); k++) {
            trm_shape_bound *bound = &bounds[options.n_bounds++];
            *bound = (trm_shape_bound){.tensor = trm_network_input(network, k)->name};
            test_random_input(trm_network_input(network, k), TOKENS, 0, &bound->max, data);
        }
        assert_ok(trm_build(network, &options, &plan));
        assert_ok(trm_engine_create(plan, world, NULL, NULL, &engine));
        trm_context *contexts[2] = {open_context(engine), open_context(engine)};
        cudaGraphExec_t exec = NULL;
        for (uint64_t turn = 0; turn < 3; turn++) {
            for (int c = 0; c < 2; c++) {
                for (int32_t k = 0; k < trm_network_input_count(network); k++) {
                    trm_dims dims;
                    const trm_tensor *input = trm_network_input(network, k);
                    test_random_input(input, TOKENS, seed + turn + (uint64_t)k, &dims, data);
                    assert_ok(trm_context_set_input(contexts[c], input->name, dims, data));
                }
            }
            assert_ok(trm_context_run(contexts[0]));
            if (turn == 0) {
                assert_ok(trm_context_run(contexts[1]));
                exec = capture(contexts[1], cudaStreamCaptureModeThreadLocal);
                captured_ones++;
            } else {
                launch(exec, trm_context_stream(contexts[1]));
            }
            for (int32_t k = 0; k < n_outputs; k++) {
                trm_dims dims, expected_dims;
                const void *found, *expected;
                const trm_tensor *output = network->outputs[k];
                assert_ok(trm_context_output(contexts[0], output->name, &expected_dims, &expected));
                assert_ok(trm_context_output(contexts[1], output->name, &dims, &found));
                assert_true(trm_dims_equal(&dims, &expected_dims));
                if (memcmp(found, expected, trm_dims_bytes(&dims, output->dtype)) != 0) {
                    fail_msg("network of seed %llu: other results", (unsigned long long)(seed + i));
                }
            }
        }
        assert_cuda(cudaGraphExecDestroy(exec));
        trm_context_destroy(contexts[0]);
        trm_context_destroy(contexts[1]);
        trm_engine_destroy(engine);
        trm_network_destroy(network);
    }
    assert_true(captured_ones > 0);
}

/* A loop whose number of passes an input decides is captured with that number. */
static void loops_are_captured_as_they_ran(void **state)
{
    (void)state;
    trm_engine *engine = open_engine(make_loop(NULL), (trm_dims){1, {LOOPED}}, 0, NULL);
    trm_context *context = open_context(engine);
    trm_dims dims;
    const void *data;
    int64_t n = 4;
    fill(1);
    assert_ok(trm_context_set_input(context, "n", (trm_dims){0}, &n));
    assert_ok(trm_context_set_input(context, "x", (trm_dims){1, {LOOPED}}, x));
    assert_ok(trm_context_run(context));
    cudaGraphExec_t exec = capture(context, cudaStreamCaptureModeGlobal);
    assert_ok(trm_context_output(context, "y", &dims, &data));
    for (uint64_t i = 2; i < 5; i++) {
        fill(i);
        assert_ok(trm_context_set_input(context, "x", (trm_dims){1, {LOOPED}}, x));
        launch(exec, trm_context_stream(context));
        for (int k = 0; k < LOOPED; k++) {
            assert_true(((const float *)data)[k] == x[k] + x[k] + x[k] + x[k] + x[k]);
        }
    }
    n = 5;
    assert_ok(trm_context_set_input(context, "n", (trm_dims){0}, &n));
    assert_refused(context, trm_context_start, TRM_ERROR_INVALID_ARGUMENT, "no run had the same dims");
    assert_ok(trm_context_run(context));
    assert_cuda(cudaGraphExecDestroy(exec));
    exec = capture(context, cudaStreamCaptureModeGlobal);
    assert_cuda(cudaGraphExecDestroy(exec));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

static bool look(void *user, const trm_debug_tensor *tensor)
{
    (void)user, (void)tensor;
    return true;
}

static trm_status tune(trm_context *context)
{
    return trm_context_tune(context, NULL);
}

static void what_was_not_run_is_refused(void **state)
{
    (void)state;
    trm_engine *engine = open_products(NULL);
    trm_context *context = open_context(engine);
    const char *first = "no run had the same dims";
    void *memory;
    set_rows(context, 3, 0);
    assert_refused(context, trm_context_start, TRM_ERROR_INVALID_ARGUMENT, first);
    assert_ok(trm_context_run(context));
    set_rows(context, 4, 0);
    assert_refused(context, trm_context_start, TRM_ERROR_INVALID_ARGUMENT, first);
    assert_ok(trm_context_run(context));
    assert_ok(trm_device_alloc(world->device, sizeof(x), &memory));
    assert_ok(trm_context_bind_input(context, "x", (trm_dims){2, {4, WIDTH}}, memory));
    assert_refused(context, trm_context_start, TRM_ERROR_INVALID_ARGUMENT, first);
    set_rows(context, 4, 0);
    assert_ok(trm_context_start(context));
    assert_refused(context, trm_context_start, TRM_ERROR_INVALID_ARGUMENT, "is finished");
    assert_refused(context, trm_context_finish, TRM_ERROR_INVALID_ARGUMENT, "cannot finish a run while");
    assert_ok(trm_context_finish(context));
    assert_refused(context, trm_context_run, TRM_ERROR_INVALID_ARGUMENT, "cannot run while");
    assert_refused(context, trm_context_reset, TRM_ERROR_INVALID_ARGUMENT, "cannot reset state while");
    assert_refused(context, tune, TRM_ERROR_INVALID_ARGUMENT, "cannot tune while");
    assert_ok(trm_context_set_debug(context, look, NULL));
    assert_refused(context, trm_context_start, TRM_ERROR_UNSUPPORTED, "debug tensors");
    assert_ok(trm_context_set_debug(context, NULL, NULL));
    trm_context *fresh = open_context(engine); /* its first run had a place for its output, which it then lost */
    set_rows(fresh, 4, 0);
    assert_ok(trm_context_bind_output(fresh, "y", memory, sizeof(x)));
    assert_ok(trm_context_run(fresh));
    assert_ok(trm_context_bind_output(fresh, "y", NULL, 0));
    assert_refused(fresh, trm_context_start, TRM_ERROR_INVALID_ARGUMENT, first);
    assert_ok(trm_context_bind_output(fresh, "y", memory, 4 * WIDTH * sizeof(float) - 1));
    assert_refused(fresh, trm_context_start, TRM_ERROR_INVALID_ARGUMENT, "it is bound to 8191");
    assert_ok(trm_context_bind_output(fresh, "y", memory, 4 * WIDTH * sizeof(float))); /* enough, if not the first's */
    cudaGraphExec_t other = capture(fresh, cudaStreamCaptureModeThreadLocal);
    assert_cuda(cudaGraphExecDestroy(other));
    trm_context_destroy(fresh);
    const float *expected = run_rows(context, 4, 9); /* none of which left a trace */
    fill(0);
    cudaGraphExec_t exec = capture(context, cudaStreamCaptureModeThreadLocal);
    float *kept = malloc(sizeof(x));
    memcpy(kept, expected, 4 * WIDTH * sizeof(float));
    set_rows(context, 4, 9);
    launch(exec, trm_context_stream(context));
    assert_memory_equal(output_of(context, 4), kept, 4 * WIDTH * sizeof(float));
    free(kept);
    assert_cuda(cudaGraphExecDestroy(exec));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_device_free(world->device, memory);
}

static void what_data_decides_is_refused(void **state)
{
    (void)state;
    enum { COUNT = 9 };
    trm_engine *engine = open_engine(make_non_zero(), (trm_dims){1, {COUNT}}, 0, NULL);
    trm_context *context = open_context(engine);
    trm_dims dims;
    const void *data;
    fill(1);
    x[3] = 0;
    assert_ok(trm_context_set_input(context, "x", (trm_dims){1, {COUNT}}, x));
    for (int i = 0; i < 2; i++) {
        assert_ok(trm_context_run(context));
        assert_refused(context, trm_context_start, TRM_ERROR_UNSUPPORTED, "depends on what a run computes");
        assert_ok(trm_context_output(context, "y", &dims, &data));
        assert_true(dims.d[1] <= COUNT - 1);
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

/* What a budget has no room for in host memory is read in every run, by threads that no graph has. */
static void weights_read_in_every_run_are_refused(void **state)
{
    (void)state;
    trm_weight_budget budget = {.kind = TRM_WEIGHT_BUDGET_PERCENT, .host_bytes = 1};
    trm_engine *engine = open_products(&budget);
    trm_context *context = open_context(engine);
    (void)run_rows(context, 2, 0);
    assert_refused(context, trm_context_start, TRM_ERROR_UNSUPPORTED, "reads weights from files");
    (void)run_rows(context, 2, 0);
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

/* A loop's weights are fetched in every pass: such runs are captured neither by the caller nor by the context. */
static void loops_with_streamed_weights_are_refused(void **state)
{
    (void)state;
    float weight[LOOPED];
    for (int k = 0; k < LOOPED; k++) {
        weight[k] = (float)(k * k);
    }
    trm_weight_budget budget = {.kind = TRM_WEIGHT_BUDGET_PERCENT};
    trm_engine *engine = open_engine(make_loop(weight), (trm_dims){1, {LOOPED}}, 0, &budget);
    trm_context *context = open_context(engine);
    trm_streaming_info info;
    trm_engine_streaming(engine, &info);
    assert_true(info.streamed >= sizeof(weight) && info.pinned); /* numbers of the loop may stream, too */
    assert_ok(trm_context_set_capture(context, true));
    for (int64_t n = 5; n >= 0; n--) {
        for (int i = 0; i < 3; i++) {
            trm_dims dims;
            const void *data;
            fill((uint64_t)(10 * n + i));
            assert_ok(trm_context_set_input(context, "n", (trm_dims){0}, &n));
            assert_ok(trm_context_set_input(context, "x", (trm_dims){1, {LOOPED}}, x));
            assert_ok(trm_context_run(context));
            assert_ok(trm_context_output(context, "y", &dims, &data));
            for (int k = 0; k < LOOPED; k++) {
                float expected = x[k];
                for (int64_t pass = 0; pass < n; pass++) {
                    expected = expected + weight[k] + x[k];
                }
                assert_true(((const float *)data)[k] == expected);
            }
        }
        assert_refused(context, trm_context_start, TRM_ERROR_UNSUPPORTED, "while weights stream");
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
}

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest of_one_rank[] = {
        cmocka_unit_test(replays_see_new_inputs),
        cmocka_unit_test(runs_are_part_of_a_larger_graph),
        cmocka_unit_test(streamed_weights_flow_in_replays),
        cmocka_unit_test(random_networks_replay),
        cmocka_unit_test(loops_are_captured_as_they_ran),
        cmocka_unit_test(what_was_not_run_is_refused),
        cmocka_unit_test(what_data_decides_is_refused),
        cmocka_unit_test(weights_read_in_every_run_are_refused),
        cmocka_unit_test(loops_with_streamed_weights_are_refused),
    };
    const struct CMUnitTest of_ranks[] = {
        cmocka_unit_test(replays_see_new_inputs),
        cmocka_unit_test(runs_are_part_of_a_larger_graph),
        cmocka_unit_test(streamed_weights_flow_in_replays),
        cmocka_unit_test(what_was_not_run_is_refused),
    };
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_CUDA;
    if (trm_world_open(&options, &world) != TRM_OK) {
        print_error("%s\n", trm_last_error());
        return 1;
    }
    int failed = trm_world_size(world) > 1 ? cmocka_run_group_tests(of_ranks, NULL, NULL)
                                           : cmocka_run_group_tests(of_one_rank, NULL, NULL);
    if (failed != 0) {
        trm_world_abort(world, TRM_ERROR_INTERNAL); /* peers may wait in a collective */
    }
    trm_world_close(world);
    return failed;
}
