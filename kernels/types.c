/* Names and sizes of element types, backends and layer kinds. */
#include <trireme/layers.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[TRM_DTYPE_COUNT] = {
    [TRM_DTYPE_NONE] = {"none", 0}, [TRM_F32] = {"f32", 4},
    [TRM_F16] = {"f16", 2},         [TRM_BF16] = {"bf16", 2},
    [TRM_F64] = {"f64", 8},         [TRM_I8] = {"i8", 1},
    [TRM_U8] = {"u8", 1},           [TRM_I16] = {"i16", 2},
    [TRM_U16] = {"u16", 2},         [TRM_I32] = {"i32", 4},
    [TRM_U32] = {"u32", 4},         [TRM_I64] = {"i64", 8},
    [TRM_U64] = {"u64", 8},         [TRM_BOOL] = {"bool", 1},
    [TRM_F8E4M3] = {"f8e4m3", 1},   [TRM_F8E4M3FNUZ] = {"f8e4m3fnuz", 1},
    [TRM_F8E5M2] = {"f8e5m2", 1},   [TRM_F8E5M2FNUZ] = {"f8e5m2fnuz", 1},
    [TRM_F8E8M0] = {"f8e8m0", 1},   [TRM_F4E2M1] = {"f4e2m1", 1},
    [TRM_I4] = {"i4", 1},           [TRM_U4] = {"u4", 1},
    [TRM_I2] = {"i2", 1},           [TRM_U2] = {"u2", 1},
    [TRM_F6E2M3] = {"f6e2m3", 1},   [TRM_F6E3M2] = {"f6e3m2", 1},
};

size_t trm_dtype_size(trm_dtype dtype)
{
    return (unsigned)dtype < TRM_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *trm_dtype_name(trm_dtype dtype)
{
    return (unsigned)dtype < TRM_DTYPE_COUNT ? dtypes[dtype].name : "invalid";
}

const char *trm_backend_name(trm_backend backend)
{
    return backend == TRM_BACKEND_CUDA ? "cuda" : backend == TRM_BACKEND_AUTO ? "auto" : "host";
}

#define KIND_NAME(kind, name) [TRM_LAYER_##kind] = #name,

const char *trm_layer_kind_name(trm_layer_kind kind)
{
    static const char *const names[] = {TRM_ALL_LAYER_KINDS(KIND_NAME)};
    const bool known = (unsigned)kind < sizeof(names) / sizeof(names[0]) && names[kind] != NULL;
    return known ? names[kind] : "invalid";
}
