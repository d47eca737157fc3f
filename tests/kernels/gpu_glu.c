/*
 * The kernel of products with their GLU of some hundred rows, by itself, also for numbers of rows for which two kernels
 * would be chosen: the kernel cases on CUDA device 0. Exits 77 if that is no Hopper GPU.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/hopper.h"
#include "kernels/matmul/cuda_gemm.h"
#include "support/device.h"
#include "support/support.h"

#include "kernels/cases/cases.h"

static int32_t runs;

static trm_gemm gemm_of(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0], *out = &call->outputs[0];
    const int64_t k = x->dims.d[x->dims.n - 1];
    return (trm_gemm){.m = k > 0 ? trm_dims_count(&x->dims) / k : 0,
                      .n = out->dims.d[out->dims.n - 1],
                      .k = k,
                      .batch = 1,
                      .row_a = k,
                      .transpose_b = true,
                      .in = x->dtype,
                      .out = out->dtype,
                      .activation = call->layer->glu.activation,
                      .a = x->data,
                      .b = call->inputs[1].data,
                      .c = out->data};
}

static bool accepts(const trm_kernel_call *call)
{
    const trm_gemm gemm = gemm_of(call);
    return gemm.m > 0 && gemm.n > 0 && trm_cuda_glu_product_accepts(&gemm);
}

static trm_status run(const trm_kernel_call *call)
{
    const trm_gemm gemm = gemm_of(call);
    runs++;
    return trm_cuda_glu_product_run(&gemm, trm_cuda_stream(call->stream));
}

static void any_number_of_rows(void **state)
{
    (void)state;
    static const trm_kernel way = {
        .name = "own.glu", .kind = TRM_LAYER_MATMUL_GLU, .backend = TRM_BACKEND_CUDA, .accepts = accepts, .run = run};
    kernel_cases_check(&(trm_kernel_table){&way, 1}, kernel_cases_matmul_glu_rows);
    const char *part = getenv("TRM_TEST_PART");
    if (part == NULL || strcmp(part, "0/1") == 0) {
        assert_true(runs > 0);
    }
}

int main(void)
{
    if (test_lacks_cuda() || trm_cuda_hopper_processors() == 0) {
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_number_of_rows)};
    return cmocka_run_group_tests(tests, test_open_cuda, test_close_device);
}
