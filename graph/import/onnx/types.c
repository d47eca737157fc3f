/* Element types of ONNX by number, and type declarations as text. */
#include "graph/import/onnx/model.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    trm_dtype dtype;
} types[] = {
    {"undefined", TRM_DTYPE_NONE},
    {"float", TRM_F32},
    {"uint8", TRM_U8},
    {"int8", TRM_I8},
    {"uint16", TRM_U16},
    {"int16", TRM_I16},
    {"int32", TRM_I32},
    {"int64", TRM_I64},
    {"string", TRM_DTYPE_NONE},
    {"bool", TRM_BOOL},
    {"float16", TRM_F16},
    {"double", TRM_F64},
    {"uint32", TRM_U32},
    {"uint64", TRM_U64},
    {"complex64", TRM_DTYPE_NONE},
    {"complex128", TRM_DTYPE_NONE},
    {"bfloat16", TRM_BF16},
    {"float8e4m3fn", TRM_F8E4M3},
    {"float8e4m3fnuz", TRM_F8E4M3FNUZ},
    {"float8e5m2", TRM_F8E5M2},
    {"float8e5m2fnuz", TRM_F8E5M2FNUZ},
    {"uint4", TRM_U4},
    {"int4", TRM_I4},
    {"float4e2m1", TRM_F4E2M1},
    {"float8e8m0", TRM_F8E8M0},
    {"uint2", TRM_U2},
    {"int2", TRM_I2},
    {"float6e2m3", TRM_F6E2M3},
    {"float6e3m2", TRM_F6E3M2},
};

static bool is_type(int64_t number)
{
    return number >= 0 && number < (int64_t)(sizeof(types) / sizeof(types[0]));
}

trm_dtype trm_onnx_dtype(int64_t number)
{
    return is_type(number) ? types[number].dtype : TRM_DTYPE_NONE;
}

const char *trm_onnx_dtype_name(int64_t number)
{
    return is_type(number) ? types[number].name : "invalid";
}

static const char *element_name(int64_t number)
{
    trm_dtype dtype = trm_onnx_dtype(number);
    return dtype != TRM_DTYPE_NONE ? trm_dtype_name(dtype) : trm_onnx_dtype_name(number);
}

void trm_onnx_type_format(const Onnx__TypeProto *type, char *text, size_t size)
{
    static const char *const around[] = {"sequence(", "optional(", "map("};
    size_t used = 0, open = 0;
    text[0] = '\0';
    /* Nesting is bounded by the pass over the file; what does not fit is cut off. */
    while (type != NULL) {
        const char *next = NULL;
        if (type->tensor_type != NULL || type->sparse_tensor_type != NULL) {
            const Onnx__TypeProto__Tensor *tensor =
                type->tensor_type != NULL ? type->tensor_type : type->sparse_tensor_type;
            used += (size_t)snprintf(text + used, size - used, "%s%s", type->tensor_type != NULL ? "" : "sparse ",
                                     element_name(tensor->elem_type));
            type = NULL;
        } else if (type->sequence_type != NULL) {
            next = around[0];
            type = type->sequence_type->elem_type;
        } else if (type->optional_type != NULL) {
            next = around[1];
            type = type->optional_type->elem_type;
        } else if (type->map_type != NULL) {
            next = around[2];
            type = type->map_type->value_type;
        } else {
            type = NULL;
        }
        if (next != NULL) {
            used += (size_t)snprintf(text + used, size - used, "%s", next);
            open++;
        }
        if (used + open + 2 >= size) {
            return;
        }
    }
    memset(text + used, ')', open);
    text[used + open] = '\0';
}
