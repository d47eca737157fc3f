/*
 * CUDA's own products with a quantized weight, each by itself, also for numbers of rows for which another would be
 * chosen: the kernel cases on CUDA device 0. Exits 77 if there is none.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/hopper.h"
#include "kernels/dequant/cuda.h"
#include "kernels/dequant/cuda_tiles.h"
#include "support/device.h"
#include "support/support.h"

#include "kernels/cases/cases.h"

static int32_t runs[4]; /* of dot, rows, wide, tiles */
enum { WAY_dot, WAY_rows, WAY_wide, WAY_tiles };

#define WAY(name)                                                                                                      \
    static bool accepts_##name(const trm_kernel_call *call)                                                            \
    {                                                                                                                  \
        const trm_dequant_gemm gemm = trm_dequant_gemm_of(call);                                                       \
        return trm_cuda_dequant_##name##_accepts(&gemm);                                                               \
    }                                                                                                                  \
    static trm_status run_##name(const trm_kernel_call *call)                                                          \
    {                                                                                                                  \
        const trm_dequant_gemm gemm = trm_dequant_gemm_of(call);                                                       \
        runs[WAY_##name]++;                                                                                            \
        return trm_cuda_dequant_##name##_run(&gemm, trm_cuda_stream(call->stream));                                    \
    }
#define KERNEL(way)                                                                                                    \
    {                                                                                                                  \
        .name = "own." #way, .kind = TRM_LAYER_DEQUANT_MATMUL, .backend = TRM_BACKEND_CUDA, .accepts = accepts_##way,  \
        .run = run_##way                                                                                               \
    }

WAY(dot)
WAY(rows)
WAY(wide)
WAY(tiles)

/* The library's product of e4m3, which quantizes x whatever the rows. */
static bool accepts_fp8(const trm_kernel_call *call)
{
    const trm_dequant_gemm gemm = trm_dequant_gemm_of(call);
    return trm_cuda_fp8_accepts(&gemm);
}

static size_t workspace_fp8(const trm_kernel_call *call)
{
    const trm_dequant_gemm gemm = trm_dequant_gemm_of(call);
    return trm_cuda_fp8_workspace(&gemm);
}

static trm_status run_fp8(const trm_kernel_call *call)
{
    const trm_dequant_gemm gemm = trm_dequant_gemm_of(call);
    trm_fp8_product product;
    trm_program program = {.stream = call->stream};
    int32_t at;
    if (!trm_cuda_fp8_product(&gemm, call->workspace, &product)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "the library does not do it");
    }
    trm_status status = trm_cuda_quantize_rows(gemm.x, gemm.in, &product.x, trm_cuda_stream(call->stream));
    status = status == TRM_OK ? trm_cuda_fp8_append(&product, &program) : status;
    status = status == TRM_OK ? trm_program_run(&program, 0, program.n, &at) : status;
    trm_program_fini(&program);
    return status;
}

static void quantized_rows_by_themselves(void **state)
{
    (void)state;
    static const trm_kernel fp8 = {.name = "library.fp8",
                                   .kind = TRM_LAYER_DEQUANT_MATMUL,
                                   .backend = TRM_BACKEND_CUDA,
                                   .accepts = accepts_fp8,
                                   .workspace = workspace_fp8,
                                   .run = run_fp8};
    if (trm_cuda_hopper_processors() > 0) {
        kernel_cases_check(&(trm_kernel_table){&fp8, 1}, kernel_cases_dequant_quantized);
    }
}

static void each_way_by_itself(void **state)
{
    (void)state;
    static const trm_kernel ways[] = {KERNEL(dot), KERNEL(rows), KERNEL(wide), KERNEL(tiles)};
    kernel_cases_check(&(trm_kernel_table){ways, 4}, kernel_cases_dequant_rows);
    const char *part = getenv("TRM_TEST_PART");
    if (part == NULL || strcmp(part, "0/1") == 0) {
        assert_true(runs[WAY_dot] > 0 && runs[WAY_rows] > 0 &&
                    ((runs[WAY_wide] > 0 && runs[WAY_tiles] > 0) || trm_cuda_hopper_processors() == 0));
    }
}

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_way_by_itself),
                                       cmocka_unit_test(quantized_rows_by_themselves)};
    return cmocka_run_group_tests(tests, test_open_cuda, test_close_device);
}
