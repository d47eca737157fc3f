/* The choice of a kernel from tables. */
#include "support/support.h"

#include "kernels/kernel.h"

static void finds_the_first_kernel_that_accepts(void **state)
{
    (void)state;
    static const trm_kernel_table *const tables[] = {&trm_cuda_kernels, &trm_host_kernels};
    trm_layer_desc layer = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    trm_kernel_call call = {.layer = &layer, .n_inputs = 2, .n_outputs = 1};
    call.inputs[0] = (trm_view){NULL, TRM_BF16, {2, {3, 16}}};
    call.inputs[1] = (trm_view){NULL, TRM_BF16, {2, {8, 16}}};
    call.outputs[0] = (trm_view){NULL, TRM_BF16, {2, {3, 8}}};
    assert_string_equal(trm_kernel_find(tables, 2, TRM_BACKEND_HOST, &call)->name, "host.matmul.gemv");
    call.inputs[0].dims.d[0] = call.outputs[0].dims.d[0] = 9;
    assert_string_equal(trm_kernel_find(tables, 2, TRM_BACKEND_HOST, &call)->name, "host.matmul.tiled");
    call.outputs[0].dims.d[0] = 8; /* fits no product */
    assert_null(trm_kernel_find(tables, 2, TRM_BACKEND_HOST, &call));
    layer.kind = TRM_LAYER_DIST_COLLECTIVE;
    assert_null(trm_kernel_find(tables, 2, TRM_BACKEND_HOST, &call));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_the_first_kernel_that_accepts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
