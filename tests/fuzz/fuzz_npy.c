/* Any bytes as a .npy file: what is accepted has all its elements, and comes back as it was written. */
#include <string.h>

#include "base/error.h"
#include "input_file.h"
#include "launcher/cli/tensors/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const fuzz_file file = fuzz_file_open(data, size);
    npy_array array, again;
    trm_status status = npy_read(file.path, &array);
    FUZZ_REQUIRE(status != TRM_ERROR_INTERNAL && (status == TRM_OK || trm_last_error()[0] != '\0'));
    if (status == TRM_OK) {
        int64_t bytes = (int64_t)trm_dtype_size(array.dtype), any = 1;
        for (int32_t axis = 0; axis < array.dims.n; axis++) {
            const int64_t extent = array.dims.d[axis];
            FUZZ_REQUIRE(extent >= 0);
            FUZZ_REQUIRE(!__builtin_mul_overflow(bytes, extent > 0 ? extent : 1, &bytes));
            any = extent == 0 ? 0 : any;
        }
        fuzz_touch(array.data, (size_t)(bytes * any));
        const fuzz_file written = fuzz_file_open(NULL, 0);
        FUZZ_REQUIRE(npy_write(written.path, array.dtype, &array.dims, array.data) == TRM_OK);
        FUZZ_REQUIRE(npy_read(written.path, &again) == TRM_OK);
        FUZZ_REQUIRE(again.dtype == array.dtype && memcmp(&again.dims, &array.dims, sizeof(array.dims)) == 0);
        FUZZ_REQUIRE(memcmp(again.data, array.data, (size_t)(bytes * any)) == 0);
        free(again.data);
        fuzz_file_close(&written);
        free(array.data);
    }
    fuzz_file_close(&file);
    return 0;
}
