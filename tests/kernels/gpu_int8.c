/* Runs the cases of INT8_PRODUCT with each tile size of the CUDA kernel, on CUDA device 0. Exits 77 without a GPU. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/hopper.h"
#include "kernels/int8/cuda_tiles.h"
#include "kernels/kernel_list.h"
#include "support/device.h"
#include "support/support.h"

#include "kernels/cases/cases.h"

static int32_t runs[TRM_INT8_TILE_COUNT];

#define SIZE(rows, columns, splits, share)                                                                             \
    static trm_status run_##rows##x##columns##x##splits##x##share(const trm_kernel_call *call)                         \
    {                                                                                                                  \
        runs[TRM_INT8_TILE_##rows##x##columns##x##splits##x##share]++;                                                 \
        return trm_cuda_int8_tiles_run(call, TRM_INT8_TILE_##rows##x##columns##x##splits##x##share);                   \
    }
TRM_INT8_TILES(SIZE)
#undef SIZE

static void each_size_by_itself(void **state)
{
    (void)state;
    static const trm_kernel kernels[] = {
#define KERNEL(rows, columns, splits, share)                                                                           \
    {.name = "own." #rows "x" #columns "x" #splits "x" #share,                                                         \
     .kind = TRM_LAYER_INT8_PRODUCT,                                                                                   \
     .backend = TRM_BACKEND_CUDA,                                                                                      \
     .accepts = trm_cuda_int8_tiles_accepts,                                                                           \
     .workspace = trm_cuda_int8_tiles_workspace,                                                                       \
     .run = run_##rows##x##columns##x##splits##x##share},
        TRM_INT8_TILES(KERNEL)
#undef KERNEL
            {.name = "elements", /* what tiles do not take */
             .kind = TRM_LAYER_INT8_PRODUCT,
             .backend = TRM_BACKEND_CUDA,
             .accepts = trm_cuda_int8_product_accepts,
             .run = trm_cuda_int8_product_run},
    };
    kernel_cases_check(&(trm_kernel_table){kernels, TRM_INT8_TILE_COUNT + 1}, kernel_cases_int8_product);
    const char *part = getenv("TRM_TEST_PART");
    for (int32_t i = 0; (part == NULL || strcmp(part, "0/1") == 0) && i < TRM_INT8_TILE_COUNT; i++) {
        assert_true(runs[i] > 0 || trm_cuda_hopper_processors() == 0);
    }
}

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_size_by_itself)};
    return cmocka_run_group_tests(tests, test_open_cuda, test_close_device);
}
