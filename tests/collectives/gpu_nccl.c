/*
 * Exchanges and layers over NCCL, one GPU per rank: run under mpirun with as many ranks as there are GPUs, or alone.
 * The same cases as on the host, and exchanges inside a captured graph.
 */
#include "support/support.h"

#include "dist/parallel/world.h"
#include "norm_cases.h"

static trm_world *world;
static trm_stream *stream;

static const size_t counts[] = {0, 1, 37, 1000, 300001};

static bool nccl_reduces(trm_dtype dtype)
{
    return trm_world_size(world) == 1 || (dtype != TRM_I16 && dtype != TRM_U16);
}

static void check(const case_result *result)
{
    if (result->failed > 0) {
        fail_msg("%d of %d cases failed, first: %s", result->failed, result->run, result->why);
    }
}

static void test_cases(void **state)
{
    (void)state;
    case_result result = {0};
    case_setup setup = {stream, nccl_reduces, counts, 4, &result};
    case_run_groups(world->communicator, &setup);
    check(&result);
}

static void test_large(void **state)
{
    (void)state;
    case_result result = {0};
    case_setup setup = {stream, nccl_reduces, counts, 5, &result};
    for (int op = TRM_ALL_REDUCE; op <= TRM_SCATTER; op++) {
        case_run_op(world->communicator, &setup, (trm_collective_op)op, TRM_BF16, counts[4]);
    }
    check(&result);
}

static void test_layers(void **state)
{
    (void)state;
    case_result result = {0};
    case_setup setup = {stream, nccl_reduces, NULL, 0, &result};
    layer_run_all(world->communicator, &setup);
    layer_run_peers(world->communicator, &setup);
    norm_run_all(world->communicator, &setup);
    check(&result);
}

static void test_refused(void **state)
{
    (void)state;
    if (trm_world_size(world) == 1) {
        return; /* a rank alone has no NCCL */
    }
    assert_string_equal(world->communicator->ops->name, "nccl");
    int16_t value = 1;
    trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_I16, &value, &value, 1, 0};
    assert_fails(trm_communicator_exchange(world->communicator, &x, stream), TRM_ERROR_UNSUPPORTED,
                 "NCCL does not reduce i16");
    x.dtype = TRM_I32;
    assert_fails(trm_communicator_exchange(world->communicator, &x, NULL), TRM_ERROR_INVALID_ARGUMENT,
                 "on a cuda stream");
    assert_ok(trm_communicator_check(world->communicator));
}

/* Every kind of exchange in one graph, launched twice: sums grow by the number of ranks. */
static void test_capture(void **state)
{
    (void)state;
    enum { COUNT = 4096 };
    int32_t n = trm_world_size(world);
    float host[COUNT], *data;
    void *memory, *gathered;
    assert_ok(trm_device_alloc(world->device, sizeof(host), &memory));
    assert_ok(trm_device_alloc(world->device, sizeof(host) * (size_t)n, &gathered));
    data = memory;
    for (int i = 0; i < COUNT; i++) {
        host[i] = 1.0f;
    }
    trm_exchange sum = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_F32, data, data, COUNT, 0};
    trm_exchange gather = {TRM_GATHER, TRM_REDUCE_NONE, TRM_F32, data, gathered, COUNT, 0};
    assert_ok(trm_communicator_exchange(world->communicator, &gather, stream));
    assert_ok(trm_communicator_exchange(world->communicator, &sum, stream));
    assert_ok(trm_stream_upload(stream, memory, host, sizeof(host)));
    assert_ok(trm_stream_synchronize(stream));
    trm_graph_exec *graph;
    assert_ok(trm_stream_begin_capture(stream));
    assert_ok(trm_communicator_exchange(world->communicator, &sum, stream));
    assert_ok(trm_communicator_exchange(world->communicator, &gather, stream));
    assert_ok(trm_stream_end_capture(stream, &graph));
    assert_ok(trm_graph_exec_launch(graph, stream));
    assert_ok(trm_graph_exec_launch(graph, stream));
    assert_ok(trm_stream_download(stream, host, memory, sizeof(host)));
    assert_ok(trm_stream_synchronize(stream));
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal((int)host[i], n * n);
    }
    trm_graph_exec_destroy(graph);
    trm_device_free(world->device, memory);
    trm_device_free(world->device, gathered);
}

int main(void)
{
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_CUDA;
    setenv("TRIREME_EXCHANGE", "nccl", 1); /* collectives_gpu_peer has the other way */
    char path[512];
    if (trm_world_open(&options, &world) != TRM_OK || trm_stream_create(world->device, &stream) != TRM_OK) {
        fprintf(stderr, "cannot open the world: %s\n", trm_last_error());
        return trm_device_cuda_count(NULL, 0) == 0 ? 77 : 1;
    }
    print_message("rank %d of %d, NCCL %d at %s\n", (int)trm_world_rank(world), (int)trm_world_size(world),
                  (int)trm_nccl_version(path, sizeof(path)), path);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),   cmocka_unit_test(test_large),   cmocka_unit_test(test_layers),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_capture),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trm_stream_destroy(stream);
    trm_world_close(world);
    return failed;
}
