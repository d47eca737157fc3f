/* Placement of activations: nothing alive at the same time shares memory, and views are where they should be. */
#include "support/support.h"

#include "graph/memory_plan.h"

#include "graph/inference.h"
#include "support/random_network.h"

/* First and last layer during which the memory of a tensor is read or written, slices counted as views of their input.
 */
static void lifetimes(const trm_network *network, int32_t *first, int32_t *last)
{
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        first[i] = tensor->role == TRM_TENSOR_ACTIVATION ? tensor->producer->index : 0;
        last[i] = first[i];
        for (int32_t k = 0; k < network->n_outputs; k++) {
            last[i] = network->outputs[k] == tensor ? network->n_layers : last[i];
        }
    }
    for (int32_t i = network->n_layers - 1; i >= 0; i--) {
        const trm_layer *layer = network->layers[i];
        bool view = layer->desc.kind == TRM_LAYER_RESHAPE || layer->desc.kind == TRM_LAYER_SLICE;
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            if (layer->inputs[k] == NULL) {
                continue;
            }
            int32_t in = layer->inputs[k]->index, until = i;
            if (view && k == 0 && last[layer->outputs[0]->index] > until) {
                until = last[layer->outputs[0]->index];
            }
            last[in] = until > last[in] ? until : last[in];
        }
    }
}

/* Places all activations at these dims [n_tensors]. */
static void plan_activations(const trm_network *network, const trm_dims *dims, size_t *offsets, size_t *total)
{
    size_t *sizes = calloc((size_t)network->n_tensors + 1, sizeof(*sizes));
    assert_non_null(sizes);
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (tensor->role == TRM_TENSOR_ACTIVATION && trm_tensor_storage(tensor) == tensor) {
            assert_ok(trm_tensor_bytes(tensor, &dims[i], &sizes[i]));
        }
    }
    assert_ok(trm_memory_plan_place(network, sizes, NULL, offsets, total));
    free(sizes);
}

static void check_plan(const trm_network *network, const trm_dims *dims)
{
    size_t n = (size_t)network->n_tensors, total, sum = 0;
    size_t *offsets = calloc(n, sizeof(*offsets));
    int32_t *first = calloc(n, sizeof(*first)), *last = calloc(n, sizeof(*last));
    plan_activations(network, dims, offsets, &total);
    lifetimes(network, first, last);
    for (size_t a = 0; a < n; a++) {
        const trm_tensor *tensor = network->tensors[a];
        bool owns = tensor->role == TRM_TENSOR_ACTIVATION && tensor->producer->desc.kind != TRM_LAYER_RESHAPE;
        assert_int_equal(offsets[a] != SIZE_MAX, owns);
        if (!owns) {
            continue;
        }
        size_t size_a, size_b;
        assert_ok(trm_tensor_bytes(tensor, &dims[a], &size_a));
        assert_int_equal(offsets[a] % TRM_TENSOR_ALIGNMENT, 0);
        assert_true(offsets[a] + size_a <= total);
        sum += size_a + TRM_TENSOR_ALIGNMENT;
        for (size_t b = 0; b < a; b++) {
            if (offsets[b] == SIZE_MAX || last[a] < first[b] || last[b] < first[a]) {
                continue;
            }
            assert_ok(trm_tensor_bytes(network->tensors[b], &dims[b], &size_b));
            assert_true(offsets[a] + size_a <= offsets[b] || offsets[b] + size_b <= offsets[a]);
        }
    }
    assert_true(total <= sum);
    free(offsets);
    free(first);
    free(last);
}

/* A chain of n activations of one size needs two places, whatever n. */
static void a_chain_needs_two_places(void **state)
{
    (void)state;
    trm_network *network;
    trm_tensor *x;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, trm_dims2(16, 64), &x));
    for (int32_t i = 0; i < 9; i++) {
        assert_ok(trm_network_add_activation(network, "y", TRM_ACTIVATION_RELU, x, &x));
    }
    assert_ok(trm_network_mark_output(network, x));
    trm_dims dims[16];
    for (int32_t i = 0; i < network->n_tensors; i++) {
        dims[i] = network->tensors[i]->dims;
    }
    size_t offsets[16], total;
    plan_activations(network, dims, offsets, &total);
    assert_int_equal(total, 2 * 16 * 64 * sizeof(float));
    check_plan(network, dims);
    trm_network_destroy(network);
}

/* What a slice reads must not be overwritten while the slice is in use, for it may be a view. */
static void what_a_slice_reads_stays(void **state)
{
    (void)state;
    trm_network *network;
    trm_tensor *x, *y, *part, *other, *z;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, trm_dims2(-1, 128), &x));
    assert_ok(trm_network_add_activation(network, "y", TRM_ACTIVATION_RELU, x, &y));
    const trm_layer_desc slice = {.kind = TRM_LAYER_SLICE, .slice = {.axis = 1, .start = 64, .end = 128, .step = 1}};
    assert_ok(trm_network_add_layer(network, "part", &slice, &y, 1, &part));
    assert_ok(trm_network_add_activation(network, "other", TRM_ACTIVATION_RELU, x, &other));
    assert_ok(trm_network_add_activation(network, "z", TRM_ACTIVATION_RELU, part, &z));
    assert_ok(trm_network_mark_output(network, other));
    assert_ok(trm_network_mark_output(network, z));
    trm_dims dims[16];
    size_t offsets[16], total;
    for (int64_t rows = 1; rows <= 3; rows++) {
        dims[x->index] = trm_dims2(rows, 128);
        assert_ok(trm_infer_network(network, dims));
        plan_activations(network, dims, offsets, &total);
        size_t y_end = offsets[y->index] + (size_t)rows * 128 * sizeof(float);
        assert_true(offsets[other->index] >= y_end ||
                    offsets[other->index] + (size_t)rows * 128 * sizeof(float) <= offsets[y->index]);
        int64_t offset = -1;
        assert_int_equal(trm_layer_is_view(part->producer, dims, &offset), rows == 1);
        if (rows == 1) {
            assert_int_equal(offset, 64);
        }
        check_plan(network, dims);
    }
    trm_network_destroy(network);
}

static void random_networks_do_not_overlap(void **state)
{
    (void)state;
    static float data[1 << 16];
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t seed = test_seed() + i;
        trm_network *network = test_random_network(seed, 30);
        trm_dims *dims = calloc((size_t)network->n_tensors, sizeof(*dims));
        for (int32_t k = 0; k < network->n_tensors; k++) {
            if (network->tensors[k]->role == TRM_TENSOR_INPUT) {
                test_random_input(network->tensors[k], 1 + (int64_t)(i % 5), seed, &dims[k], data);
            } else {
                dims[k] = network->tensors[k]->dims;
            }
        }
        trm_inference *inference = NULL;
        trm_inference_stop stop;
        assert_ok(trm_inference_create(network, &inference));
        assert_ok(trm_inference_begin(inference, dims));
        assert_ok(trm_inference_run(inference, &stop));
        assert_int_equal(stop.state, TRM_INFERENCE_DONE);
        trm_inference_destroy(inference);
        check_plan(network, dims);
        free(dims);
        trm_network_destroy(network);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_needs_two_places),
        cmocka_unit_test(what_a_slice_reads_stays),
        cmocka_unit_test(random_networks_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
