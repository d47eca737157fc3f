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
            size_t bytes = trm_dtype_size(value->dtype);
            for (int32_t axis = 0; axis < value->dims.n; axis++) {
                FUZZ_REQUIRE(value->dims.d[axis] >= 0);
                FUZZ_REQUIRE(!__builtin_mul_overflow(bytes, (size_t)value->dims.d[axis], &bytes));
            }
            fuzz_touch(value->data, bytes);
        }
        trm_free(values);
    }
    fuzz_file_close(&file);
    return 0;
}
