/* Matrix products, of plain and quantized weights, and gated linear units. */
#ifndef TRIREME_LAYERS_MATMUL_H
#define TRIREME_LAYERS_MATMUL_H

#include <trireme/layers/common.h>

/* (a [..., M, K], b [..., K, N], bias [N] optional) -> [..., M, N]; leading dims broadcast. The bias may have b's
 * leading dims, too: [..., 1, N]. With transpose_a a is [..., K, M], with transpose_b b is [..., N, K] (a linear
 * layer's weight). Accumulates in f32, adds the bias, applies the activation, stores as `out` (NONE: type of a). f64 is
 * computed in f64, integers wrap around and have no activation; both have no other `out`. */
typedef struct trm_matmul_params {
    bool transpose_a, transpose_b;
    trm_activation activation;
    trm_dtype out;
} trm_matmul_params;

/* (gate [..., n], up [..., n]) -> activation(gate) * up; or one input (gate_up [..., 2n], the gate in
 * the first half) -> [..., n]. */
typedef struct trm_glu_params {
    trm_activation activation;
} trm_glu_params;

/* Positions of a DEQUANT_MATMUL's inputs. */
enum {
    TRM_DEQUANT_MATMUL_X = 0,
    TRM_DEQUANT_MATMUL_WEIGHT,
    TRM_DEQUANT_MATMUL_SCALE,
    TRM_DEQUANT_MATMUL_BIAS,
    TRM_DEQUANT_MATMUL_ZERO_POINT,
    TRM_DEQUANT_MATMUL_INPUT_COUNT
};

/* How a DEQUANT_MATMUL quantizes x before it multiplies. */
/* clang-format off */
#define TRM_X_QUANTIZATIONS(X)                                                                                         \
    X(TRM_X_AS_IS, "none")                                                                                             \
    X(TRM_X_STATIC, "static")   /* one scale for all: x_scale */                                                       \
    X(TRM_X_DYNAMIC, "dynamic") /* a scale for block_k columns of a row, from the largest of them */
/* clang-format on */
typedef enum trm_x_quantization { TRM_X_QUANTIZATIONS(TRM_ENUMERATOR) } trm_x_quantization;

/* (x [..., K] f32|f16|bf16, weight, scale [ceil(N / block_n), ceil(K / block_k)] f32|f16|bf16, bias [N] of x's type,
 * optional, zero_point u8, dims of scale, optional) -> [..., N]: x times the transpose of a quantized weight, whose
 * elements are numbers times the scale of their block. The weight is F8E4M3 [N, K] or I8 [N, K]; or it is U8 or F4E2M1
 * [N, K / 2], K even, with two numbers of 4 bits a byte, the one of the even column in the low bits. With U8, number =
 * bits - zero_point, or bits - 8 without a zero point. No others have zero points. Accumulates in f32, adds the
 * bias, stores as `out`.
 *
 * With a weight of F8E4M3 or I8, x may be quantized to its type too: number * s takes its place, where number is x / s
 * rounded, saturated. Static: s = x_scale. Dynamic: s = max(largest |x|, 2^-100) / 448, of I8 / 127.5, at most x_scale
 * unless that is 0. A kernel may leave x of few rows unquantized, and all those of CUDA leave it beside I8: that is
 * nearer to the exact product. */
typedef struct trm_dequant_matmul_params {
    int32_t block_n; /* rows of the weight that share a scale; the last block may have fewer */
    int32_t block_k; /* columns that do, even where numbers have 4 bits; 0: all */
    trm_dtype out;   /* NONE: type of x */
    trm_x_quantization x_quantization;
    float x_scale;
} trm_dequant_matmul_params;

#endif
