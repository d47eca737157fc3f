/* The limit of scratch memory: what plans for CUDA keep for convolutions and other layers, also from a plan file. */
#include "support/support.h"

#include <stdio.h>

#include <trireme/trireme.h>

#include "kernels/kernel.h"

#define MIB ((size_t)1 << 20)

/* A convolution of x [8, 64, 64, 64], which asks for 16 MiB and twice its operands, and with `product` a product. */
static size_t workspace_of(size_t limit, bool product, trm_backend backend, trm_plan **kept)
{
    trm_network *network;
    trm_tensor *x, *weight, *flat, *matrix, *inputs[2], *y;
    trm_layer_desc conv = {.kind = TRM_LAYER_CONVOLUTION, .convolution = {.groups = 1}};
    for (int i = 0; i < TRM_MAX_SPATIAL; i++) {
        conv.convolution.stride[i] = conv.convolution.dilation[i] = 1;
    }
    static const float zeros[64 * 64];
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){4, {8, 64, 64, 64}}, &x));
    assert_ok(trm_network_add_constant(network, "weight", TRM_F32, (trm_dims){4, {64, 64, 1, 1}}, zeros, &weight));
    assert_ok(trm_network_add_constant(network, "matrix", TRM_F32, (trm_dims){2, {64, 64}}, zeros, &matrix));
    inputs[0] = x;
    inputs[1] = weight;
    assert_ok(trm_network_add_layer(network, "y", &conv, inputs, 2, &y));
    if (product) {
        assert_ok(trm_network_add_reshape(network, "flat", y, (trm_dims){2, {-1, 64}}, &flat));
        assert_ok(trm_network_add_matmul(network, "z", flat, matrix, NULL, false, &y));
    }
    assert_ok(trm_network_mark_output(network, y));
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = backend;
    options.max_workspace = limit;
    trm_plan *plan;
    trm_memory_plan memory;
    assert_ok(trm_build(network, &options, &plan));
    trm_network_destroy(network);
    trm_plan_memory(plan, &memory);
    if (kept != NULL) {
        *kept = plan;
    } else {
        trm_plan_destroy(plan);
    }
    return memory.workspace;
}

static void scratch_of_convolutions_is_limited(void **state)
{
    (void)state;
    if (trm_cuda_kernels.count == 0) {
        skip();
    }
    size_t free_size = workspace_of(0, false, TRM_BACKEND_CUDA, NULL);
    assert_true(free_size > 40 * MIB);
    assert_true(workspace_of(free_size + MIB, false, TRM_BACKEND_CUDA, NULL) == free_size);
    assert_true(workspace_of(20 * MIB, false, TRM_BACKEND_CUDA, NULL) == 20 * MIB);
    assert_true(workspace_of(MIB, false, TRM_BACKEND_CUDA, NULL) == MIB);
    size_t with_product = workspace_of(MIB, true, TRM_BACKEND_CUDA, NULL);
    assert_true(with_product >= 32 * MIB && with_product < free_size); /* a product keeps what it has */
}

static void plan_files_keep_the_limit(void **state)
{
    (void)state;
    char path[512];
    trm_plan *plan, *loaded;
    trm_memory_plan memory;
    trm_backend backend = trm_cuda_kernels.count == 0 ? TRM_BACKEND_HOST : TRM_BACKEND_CUDA;
    size_t bytes = workspace_of(20 * MIB, false, backend, &plan);
    snprintf(path, sizeof(path), "%s/limited.plan", test_temporary_folder());
    assert_ok(trm_plan_save((const trm_plan *const[]){plan}, 1, TRM_PLAN_WEIGHTS_EMBEDDED, path));
    trm_plan_destroy(plan);
    assert_ok(trm_plan_load(path, 0, &loaded));
    trm_plan_memory(loaded, &memory);
    assert_true(memory.workspace == bytes);
    trm_plan_destroy(loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_of_convolutions_is_limited),
        cmocka_unit_test(plan_files_keep_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
