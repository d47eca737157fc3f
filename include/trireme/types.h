/*
 * Element types, dimensions and backends.
 */
#ifndef TRIREME_TYPES_H
#define TRIREME_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_MAX_DIMS 8

typedef enum trm_dtype {
    TRM_DTYPE_NONE = 0, /* not given: the rule of the layer decides */
    TRM_F32 = 1,
    TRM_F16 = 2,
    TRM_BF16 = 3,
    TRM_F64 = 4,
    TRM_I8 = 5,
    TRM_U8 = 6,
    TRM_I16 = 7,
    TRM_U16 = 8,
    TRM_I32 = 9,
    TRM_U32 = 10,
    TRM_I64 = 11,
    TRM_U64 = 12,
    TRM_BOOL = 13, /* one byte, 0 or 1 */
    /* Types that layers only store, move, cast, quantize and dequantize. Every element takes one byte; narrower types
     * use its low bits, and I4 and I2 extend the sign. */
    TRM_F8E4M3 = 14,     /* finite and NaN ("fn") */
    TRM_F8E4M3FNUZ = 15, /* no infinity; the bits of -0 are NaN */
    TRM_F8E5M2 = 16,
    TRM_F8E5M2FNUZ = 17,
    TRM_F8E8M0 = 18, /* powers of 2 from 2^-127 to 2^127, NaN */
    TRM_F4E2M1 = 19,
    TRM_I4 = 20,
    TRM_U4 = 21,
    TRM_I2 = 22,
    TRM_U2 = 23,
    TRM_F6E2M3 = 24,
    TRM_F6E3M2 = 25,
    TRM_DTYPE_COUNT
} trm_dtype;

/* Bytes of one element; 0 for TRM_DTYPE_NONE or a value out of range. */
TRM_API size_t trm_dtype_size(trm_dtype dtype);
/* "f32", "bf16", "i64", ...; "none" for TRM_DTYPE_NONE, "invalid" out of range. */
TRM_API const char *trm_dtype_name(trm_dtype dtype);

/* Row-major dimensions. n == 0 is a scalar; a dimension of -1 is unknown until a context runs. */
typedef struct trm_dims {
    int32_t n;
    int64_t d[TRM_MAX_DIMS];
} trm_dims;

typedef enum trm_backend {
    TRM_BACKEND_AUTO = 0, /* in options: CUDA if this machine has a GPU that this build can use, else HOST */
    TRM_BACKEND_HOST = 1,
    TRM_BACKEND_CUDA = 2
} trm_backend;

/* "auto", "host" or "cuda". */
TRM_API const char *trm_backend_name(trm_backend backend);

#ifdef __cplusplus
}
#endif
#endif
