/* The arithmetic of reductions in host memory: tiles of wide accumulators. */
#include "collectives/reduce.h"

#include <assert.h>

#include "base/half.h"

#define TILE 256

bool trm_reduce_supported(trm_dtype dtype, trm_reduce_op op)
{
    if (trm_dtype_size(dtype) == 0 || (unsigned)op >= TRM_REDUCE_NONE) {
        return false;
    }
    return dtype < TRM_BOOL || (dtype == TRM_BOOL && (op == TRM_REDUCE_MAX || op == TRM_REDUCE_MIN));
}

/* Sums and products of signed integers go through the unsigned type, where overflow wraps. */
#define DEFINE_REDUCE(NAME, TYPE, ACC, WRAP, LOAD, STORE)                                                              \
    static void reduce_##NAME(trm_reduce_op op, const void *const *blocks, int32_t n, void *to, size_t count)          \
    {                                                                                                                  \
        TYPE *out = to;                                                                                                \
        for (size_t at = 0; at < count; at += TILE) {                                                                  \
            size_t width = count - at < TILE ? count - at : TILE;                                                      \
            ACC sum[TILE];                                                                                             \
            const TYPE *first = (const TYPE *)blocks[0] + at;                                                          \
            for (size_t i = 0; i < width; i++) {                                                                       \
                sum[i] = LOAD(first[i]);                                                                               \
            }                                                                                                          \
            for (int32_t r = 1; r < n; r++) {                                                                          \
                const TYPE *block = (const TYPE *)blocks[r] + at;                                                      \
                switch (op) {                                                                                          \
                case TRM_REDUCE_PROD:                                                                                  \
                    for (size_t i = 0; i < width; i++) {                                                               \
                        sum[i] = (ACC)((WRAP)sum[i] * (WRAP)LOAD(block[i]));                                           \
                    }                                                                                                  \
                    break;                                                                                             \
                case TRM_REDUCE_MAX:                                                                                   \
                    for (size_t i = 0; i < width; i++) {                                                               \
                        ACC value = LOAD(block[i]);                                                                    \
                        sum[i] = value > sum[i] ? value : sum[i];                                                      \
                    }                                                                                                  \
                    break;                                                                                             \
                case TRM_REDUCE_MIN:                                                                                   \
                    for (size_t i = 0; i < width; i++) {                                                               \
                        ACC value = LOAD(block[i]);                                                                    \
                        sum[i] = value < sum[i] ? value : sum[i];                                                      \
                    }                                                                                                  \
                    break;                                                                                             \
                default:                                                                                               \
                    for (size_t i = 0; i < width; i++) {                                                               \
                        sum[i] = (ACC)((WRAP)sum[i] + (WRAP)LOAD(block[i]));                                           \
                    }                                                                                                  \
                    break;                                                                                             \
                }                                                                                                      \
            }                                                                                                          \
            if (op == TRM_REDUCE_AVG) {                                                                                \
                for (size_t i = 0; i < width; i++) {                                                                   \
                    sum[i] = DIVIDE_##ACC(sum[i], TYPE, n);                                                            \
                }                                                                                                      \
            }                                                                                                          \
            for (size_t i = 0; i < width; i++) {                                                                       \
                out[at + i] = STORE(sum[i]);                                                                           \
            }                                                                                                          \
        }                                                                                                              \
    }

/* An integer sum is first brought back to the width of its type, as a device would hold it. */
#define DIVIDE_float(sum, TYPE, n)    ((sum) / (float)(n))
#define DIVIDE_double(sum, TYPE, n)   ((sum) / (double)(n))
#define DIVIDE_int64_t(sum, TYPE, n)  ((int64_t)(TYPE)(sum) / (n))
#define DIVIDE_uint64_t(sum, TYPE, n) ((uint64_t)(TYPE)(sum) / (uint64_t)(n))

#define KEEP(x) (x)
DEFINE_REDUCE(f32, float, float, float, KEEP, KEEP)
DEFINE_REDUCE(f64, double, double, double, KEEP, KEEP)
DEFINE_REDUCE(f16, uint16_t, float, float, trm_f16_to_f32, trm_f32_to_f16)
DEFINE_REDUCE(bf16, uint16_t, float, float, trm_bf16_to_f32, trm_f32_to_bf16)
DEFINE_REDUCE(i8, int8_t, int64_t, uint64_t, KEEP, (int8_t))
DEFINE_REDUCE(i16, int16_t, int64_t, uint64_t, KEEP, (int16_t))
DEFINE_REDUCE(i32, int32_t, int64_t, uint64_t, KEEP, (int32_t))
DEFINE_REDUCE(i64, int64_t, int64_t, uint64_t, KEEP, KEEP)
DEFINE_REDUCE(u8, uint8_t, uint64_t, uint64_t, KEEP, (uint8_t))
DEFINE_REDUCE(u16, uint16_t, uint64_t, uint64_t, KEEP, (uint16_t))
DEFINE_REDUCE(u32, uint32_t, uint64_t, uint64_t, KEEP, (uint32_t))
DEFINE_REDUCE(u64, uint64_t, uint64_t, uint64_t, KEEP, KEEP)

void trm_reduce_blocks(trm_dtype dtype, trm_reduce_op op, const void *const *blocks, int32_t n, void *to, size_t count)
{
    typedef void reduce_fn(trm_reduce_op op, const void *const *blocks, int32_t n, void *to, size_t count);
    static reduce_fn *const functions[TRM_DTYPE_COUNT] = {
        [TRM_F32] = reduce_f32, [TRM_F16] = reduce_f16, [TRM_BF16] = reduce_bf16, [TRM_F64] = reduce_f64,
        [TRM_I8] = reduce_i8,   [TRM_U8] = reduce_u8,   [TRM_I16] = reduce_i16,   [TRM_U16] = reduce_u16,
        [TRM_I32] = reduce_i32, [TRM_U32] = reduce_u32, [TRM_I64] = reduce_i64,   [TRM_U64] = reduce_u64,
        [TRM_BOOL] = reduce_u8,
    };
    assert(trm_reduce_supported(dtype, op) && n >= 1);
    functions[dtype](op, blocks, n, to, count);
}
