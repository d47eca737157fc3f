/* Collective layers between threads, and what they refuse. */
#include "kernels/kernel.h"
#include "support/support.h"

#include "norm_cases.h"
#include "threads.h"

static void run_layers(trm_communicator *c, void *user)
{
    trm_device *device = NULL;
    trm_stream *stream = NULL;
    case_result *result = user;
    if (trm_device_open(TRM_BACKEND_HOST, 0, 1, &device) != TRM_OK || trm_stream_create(device, &stream) != TRM_OK) {
        result->failed++;
        return;
    }
    case_setup setup = {stream, NULL, NULL, 0, result};
    layer_run_all(c, &setup);
    layer_run_peers(c, &setup);
    norm_run_all(c, &setup);
    trm_stream_destroy(stream);
    trm_device_close(device);
}

static void test_layers(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 5; n++) {
        case_result results[TRM_MAX_RANKS] = {{0}};
        run_ranks(n, 30.0, run_layers, results, sizeof(results[0]));
        for (int32_t r = 0; r < n; r++) {
            if (results[r].failed > 0) {
                fail_msg("%d of %d layers failed, first: %s", results[r].failed, results[r].run, results[r].why);
            }
            assert_true(results[r].run > 50);
        }
    }
}

static trm_kernel_call call_of(const trm_layer_desc *desc, trm_dims in, trm_dims out)
{
    trm_kernel_call call = {.layer = desc, .n_inputs = 1, .n_outputs = 1};
    call.inputs[0] = (trm_view){NULL, TRM_F32, in};
    call.outputs[0] = (trm_view){NULL, TRM_F32, out};
    return call;
}

static const trm_kernel *find(const trm_kernel_call *call)
{
    const trm_kernel_table *table = &trm_collective_kernels;
    return trm_kernel_find(&table, 1, TRM_BACKEND_HOST, call);
}

static void test_what_is_accepted(void **state)
{
    (void)state;
    trm_layer_desc desc = {.kind = TRM_LAYER_DIST_COLLECTIVE,
                           .collective = {.op = TRM_ALL_GATHER, .axis = -1, .n_ranks = 4}};
    trm_kernel_call call = call_of(&desc, (trm_dims){2, {1, 8}}, (trm_dims){2, {1, 32}});
    assert_non_null(find(&call));
    assert_int_equal(find(&call)->workspace(&call), 0); /* one row of logits is gathered with no copy */
    call = call_of(&desc, (trm_dims){2, {3, 8}}, (trm_dims){2, {3, 32}});
    assert_int_equal(find(&call)->workspace(&call), 3 * 32 * 4);
    call = call_of(&desc, (trm_dims){2, {3, 8}}, (trm_dims){2, {3, 31}});
    assert_null(find(&call));
    call = call_of(&desc, (trm_dims){2, {3, 8}}, (trm_dims){1, {32}});
    assert_null(find(&call));
    desc.collective.axis = 2;
    call = call_of(&desc, (trm_dims){2, {3, 8}}, (trm_dims){2, {3, 32}});
    assert_null(find(&call));
    desc.collective = (trm_collective_params){.op = TRM_ALL_TO_ALL, .axis = 0, .n_ranks = 4};
    call = call_of(&desc, (trm_dims){2, {6, 8}}, (trm_dims){2, {6, 8}});
    assert_null(find(&call));
    desc.collective.op = (trm_collective_op)10;
    assert_null(find(&call));
}

static void test_what_fails(void **state)
{
    (void)state;
    trm_communicator *self;
    trm_device *device;
    trm_stream *stream;
    float data[8] = {0}, result[8];
    assert_ok(trm_communicator_self_create(&self));
    assert_ok(trm_device_open(TRM_BACKEND_HOST, 0, 1, &device));
    assert_ok(trm_stream_create(device, &stream));
    trm_layer_desc desc = {.kind = TRM_LAYER_DIST_COLLECTIVE,
                           .collective = {.op = TRM_ALL_GATHER, .axis = 0, .n_ranks = 2}};
    trm_kernel_call call = call_of(&desc, (trm_dims){1, {4}}, (trm_dims){1, {8}});
    call.inputs[0].data = data;
    call.outputs[0].data = result;
    call.stream = stream;
    const trm_kernel *kernel = find(&call);
    assert_fails(trm_kernel_run(kernel, &call), TRM_ERROR_INVALID_ARGUMENT, "all_gather has no communicator");
    call.communicator = self;
    assert_fails(trm_kernel_run(kernel, &call), TRM_ERROR_INVALID_ARGUMENT, "is for 2 ranks, but its group has 1");
    desc.collective = (trm_collective_params){.op = TRM_BROADCAST, .root = 3, .n_ranks = 1};
    call = call_of(&desc, (trm_dims){1, {4}}, (trm_dims){1, {4}});
    call.communicator = self;
    assert_fails(trm_kernel_run(kernel, &call), TRM_ERROR_INVALID_ARGUMENT,
                 "broadcast has root 3, which is not in the group");
    trm_stream_destroy(stream);
    trm_device_close(device);
    trm_communicator_destroy(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_what_is_accepted),
        cmocka_unit_test(test_what_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
