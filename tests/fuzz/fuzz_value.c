/* Any bytes as a tensor, a sequence and an optional in a file of its own: what is accepted has all its elements. */
#include <trireme/onnx.h>

#include "base/error.h"
#include "input_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const types[] = {"f32", "sequence(f32)", "optional(f32)"};
    const fuzz_file file = fuzz_file_open(data, size);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        trm_onnx_fixed_value *values = NULL;
        int32_t n = 0;
        trm_status status = trm_onnx_read_value(file.path, types[i], &values, &n);
        FUZZ_REQUIRE(status != TRM_ERROR_INTERNAL && (status == TRM_OK || trm_last_error()[0] != '\0'));
        FUZZ_REQUIRE((status == TRM_OK) == (values != NULL) && (values == NULL || n > 0));
        for (int32_t k = 0; k < n; k++) {
            const trm_onnx_fixed_value *value = &values[k];
            if (value->dtype == TRM_DTYPE_NONE) {
                continue;
            }
            int64_t bytes = (int64_t)trm_dtype_size(value->dtype), any = 1;
            for (int32_t axis = 0; axis < value->dims.n; axis++) {
                const int64_t extent = value->dims.d[axis];
                FUZZ_REQUIRE(extent >= 0);
                FUZZ_REQUIRE(!__builtin_mul_overflow(bytes, extent > 0 ? extent : 1, &bytes));
                any = extent == 0 ? 0 : any;
            }
            fuzz_touch(value->data, (size_t)(bytes * any));
        }
        trm_free(values);
    }
    fuzz_file_close(&file);
    return 0;
}
