/*
 * Every shape and type rule on good and bad inputs, with known and unknown dims. Tensors are written as
 * "f32[2,?]"; an expected failure as "!" and a part of its cause.
 */
#include "support/support.h"

#include <stdio.h>

#include "support/rule_case.h"

/* clang-format off */
#define CAST(type) {.kind = TRM_LAYER_CAST, .cast = {type}}
#define RESHAPE(...) {.kind = TRM_LAYER_RESHAPE, .reshape = {{__VA_ARGS__}}}
#define TRANSPOSE(...) {.kind = TRM_LAYER_TRANSPOSE, .transpose = {{__VA_ARGS__}}}
#define SLICE(...) {.kind = TRM_LAYER_SLICE, .slice = {__VA_ARGS__}}
#define CONCAT(axis_) {.kind = TRM_LAYER_CONCAT, .concat = {axis_}}
#define GATHER_AT(axis_) {.kind = TRM_LAYER_GATHER, .gather = {axis_}}
#define ELEMENTWISE(op_) {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {op_}}
#define UNARY(...) {.kind = TRM_LAYER_UNARY, .unary = {__VA_ARGS__}}
#define SOFTMAX(axis_) {.kind = TRM_LAYER_SOFTMAX, .softmax = {axis_}}
#define REDUCE(...) {.kind = TRM_LAYER_REDUCE, .reduce = {__VA_ARGS__}}
#define EMBEDDING {.kind = TRM_LAYER_EMBEDDING}
#define MATMUL(...) {.kind = TRM_LAYER_MATMUL, .matmul = {__VA_ARGS__}}
#define GLU(activation_) {.kind = TRM_LAYER_GLU, .glu = {activation_}}
#define NORM(...) {.kind = TRM_LAYER_NORM, .norm = {__VA_ARGS__}}
#define ROPE(...) {.kind = TRM_LAYER_ROPE, .rope = {__VA_ARGS__}}
#define LORA {.kind = TRM_LAYER_LORA}
#define COLLECTIVE(...) {.kind = TRM_LAYER_DIST_COLLECTIVE, .collective = {__VA_ARGS__}}
#define NORM_QUANTIZE(by, ...)                                                                                         \
    {                                                                                                                  \
        .kind = TRM_LAYER_NORM_QUANTIZE, .norm_quantize = {.norm = {__VA_ARGS__}, .scale = by}                         \
    }
#define REDUCE_NORM(n, ...)                                                                                            \
    {                                                                                                                  \
        .kind = TRM_LAYER_ALL_REDUCE_NORM, .all_reduce_norm = {.collective = {.n_ranks = n}, .norm = {__VA_ARGS__}}    \
    }
/* clang-format on */

/* ---- tensors ----------------------------------------------------------------------------------- */

static void cast_changes_the_type_only(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {CAST(TRM_BF16), {"f32[2,?]"}, "bf16[2,?]"},
        {CAST(TRM_I64), {"bool[]"}, "i64[]"},
        {CAST(TRM_DTYPE_NONE), {"f32[2]"}, "!cast to type none (0), expected an element type"},
        {CAST((trm_dtype)99), {"f32[2]"}, "!cast to type invalid (99)"},
        {CAST(TRM_F32), {NULL}, "!found 0 inputs, expected 1"},
        {CAST(TRM_F32), {"-"}, "!found 0 inputs, expected 1"},
        {CAST(TRM_F32), {"f32[1]", "f32[1]"}, "!found 2 inputs, expected 1"},
    };
    RUN_CASES(cases);
}

static void lora_is_beside_a_product(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {LORA, {"bf16[?,8]", "i32[?]", "bf16[?,12]", "bf16[4,2,8]", "bf16[4,12,2]"}, "bf16[?,12]"},
        {LORA, {"f32[5,8]", "i32[?]", "f32[?,?]", "f32[4,2,8]", "f32[4,12,2]"}, "f32[5,12]"},
        {LORA,
         {"f32[5,8]", "i32[5]", "f32[5,16]", "f32[4,2,8]", "f32[4,12,2]", "f32[4,3,8]", "f32[4,4,3]"},
         "f32[5,16]"},
        {LORA, {"f32[5,8]", "i32[5]", "f32[5,16]"}, "!found 3 inputs, expected 5 to 15"},
        {LORA,
         {"f32[5,8]", "i32[5]", "f32[5,12]", "f32[4,2,8]", "f32[4,12,2]", "f32[4,2,8]"},
         "!found 6 inputs, expected an a and a b for each pair"},
        {LORA, {"f32[5,8]", "i32[4]", "f32[5,12]", "f32[4,2,8]", "f32[4,12,2]"}, "!slots has dims [4], expected [5]"},
        {LORA, {"f32[5,8]", "i64[5]", "f32[5,12]", "f32[4,2,8]", "f32[4,12,2]"}, "!slots has type i64, expected i32"},
        {LORA,
         {"f32[5,8]", "i32[5]", "f32[5,12]", "f32[4,2,9]", "f32[4,12,2]"},
         "!a has dims [4, 2, 9], expected [4, ?, 8]"},
        {LORA,
         {"f32[5,8]", "i32[5]", "f32[5,12]", "f32[4,2,8]", "f32[3,12,2]"},
         "!b has dims [3, 12, 2], expected [4, ?, 2]"},
        {LORA,
         {"f32[5,8]", "i32[5]", "f32[5,13]", "f32[4,2,8]", "f32[4,12,2]"},
         "!y has dims [5, 13], expected [5, 12]"},
        {LORA, {"f32[5,8]", "i32[5]", "f16[5,12]", "f32[4,2,8]", "f32[4,12,2]"}, "!y has type f16, expected f32"},
    };
    RUN_CASES(cases);
}

static void reshape_keeps_the_number_of_elements(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {RESHAPE(2, {6, 4}), {"f32[2,3,4]"}, "f32[6,4]"},
        {RESHAPE(0, {0}), {"f32[1,1]"}, "f32[]"},
        {RESHAPE(1, {-1}), {"f32[]"}, "f32[1]"},
        {RESHAPE(2, {-1, 4}), {"f32[2,3,4]"}, "f32[6,4]"},
        {RESHAPE(3, {0, -1, 2}), {"f32[5,8]"}, "f32[5,4,2]"},
        {RESHAPE(3, {0, 2, -1}), {"f32[?,8]"}, "f32[?,2,4]"},
        {RESHAPE(3, {0, 0, 0}), {"f32[?,?,3]"}, "f32[?,?,3]"},
        {RESHAPE(2, {-1, 8}), {"f32[?,2,4]"}, "f32[?,8]"},
        {RESHAPE(2, {-1, 3}), {"f32[?,2,4]"}, "f32[?,3]"},
        {RESHAPE(2, {0, -1}), {"f32[?,?,4]"}, "f32[?,?]"},
        {RESHAPE(2, {0, -1}), {"f32[0,4,5]"}, "f32[0,20]"},
        {RESHAPE(2, {4, -1}), {"f32[0,4]"}, "f32[4,0]"},
        {RESHAPE(4, {5, 6, 0, 0}), {"f32[0,5,0,3]"}, "f32[5,6,0,3]"},
        {RESHAPE(2, {6, 4}), {"f32[?,4]"}, "f32[6,4]"},
        {RESHAPE(2, {5, 5}), {"f32[?,4]"}, "!dims [?, 4] cannot be reshaped to [5, 5]"},
        {RESHAPE(2, {5, 5}), {"f32[2,3,4]"}, "!dims [2, 3, 4] cannot be reshaped to [5, 5]"},
        {RESHAPE(2, {-1, 5}), {"f32[2,3,4]"}, "!cannot be reshaped to [?, 5]"},
        {RESHAPE(1, {3}), {"f32[0]"}, "!dims [0] cannot be reshaped to [3]"},
        {RESHAPE(2, {-1, -1}), {"f32[4]"}, "!at most one -1"},
        {RESHAPE(2, {-2, 4}), {"f32[4]"}, "!sizes of at least 0 and at most one -1"},
        {RESHAPE(2, {4, 0}), {"f32[4]"}, "!reshape of [4] copies dimension 1, which it does not have"},
        {RESHAPE(9, {1}), {"f32[4]"}, "!reshape to 9 dimensions, expected at most 8"},
        {RESHAPE(2, {INT64_MAX, 4}), {"f32[4]"}, "!the number of elements overflows"},
    };
    RUN_CASES(cases);
}

static void moving_rules(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {TRANSPOSE(2, 0, 1), {"i8[2,?,4]"}, "i8[4,2,?]"},
        {TRANSPOSE(0), {"f32[]"}, "f32[]"},
        {TRANSPOSE(0, 0), {"f32[2,3]"}, "!perm[1] is 0, expected each of the 2 axes once"},
        {TRANSPOSE(0, 2), {"f32[2,3]"}, "!perm[1] is 2"},
        {TRANSPOSE(-1, 0), {"f32[2,3]"}, "!perm[0] is -1"},
        {SLICE(1, 1, 3, 1), {"f32[2,5]"}, "f32[2,2]"},
        {SLICE(-1, 0, INT64_MAX, 2), {"f32[2,5]"}, "f32[2,3]"},
        {SLICE(0, -2, INT64_MAX, 1), {"f32[5]"}, "f32[2]"},
        {SLICE(0, 1, -1, 1), {"f32[5]"}, "f32[3]"},
        {SLICE(0, 4, 2, 1), {"f32[5]"}, "f32[0]"},
        {SLICE(0, INT64_MIN, INT64_MAX, INT64_MAX), {"f32[5]"}, "f32[1]"},
        {SLICE(0, 9, INT64_MAX, 1), {"f32[5]"}, "f32[0]"},
        {SLICE(0, 0, 4, 1), {"f32[?,3]"}, "f32[?,3]"},
        {SLICE(1, 0, 2, 1), {"f32[?,3]"}, "f32[?,2]"},
        {SLICE(0, 0, 4, 0), {"f32[5]"}, "!slice has step 0"},
        {SLICE(1, 0, 4, 1), {"f32[5]"}, "!found axis 1, expected an axis of 1 dimensions"},
        {SLICE(0, 0, 4, 1), {"f32[]"}, "!found axis 0, expected an axis of 0 dimensions"},
        {CONCAT(1), {"f32[2,3]", "f32[2,?]"}, "f32[2,?]"},
        {CONCAT(-1), {"f32[?,3]", "f32[2,4]", "f32[2,1]"}, "f32[2,8]"},
        {CONCAT(0), {"f32[2]"}, "f32[2]"},
        {CONCAT(0), {"f32[2]", "f32[2,1]"}, "!an input of concat has dims [2, 1], expected [?]"},
        {CONCAT(1), {"f32[2,3]", "f32[3,3]"}, "!an input of concat has dims [3, 3], expected [2, ?]"},
        {CONCAT(0), {"f32[2]", "f16[2]"}, "!an input of concat has type f16, expected f32"},
        {CONCAT(0), {"f32[2]", "-", "f32[2]"}, "!input 1 is not given"},
        {CONCAT(0), {NULL}, "!found 0 inputs, expected 1"},
        {GATHER_AT(1), {"f32[2,3,4]", "i32[5,?]"}, "f32[2,5,?,4]"},
        {GATHER_AT(0), {"bf16[?,4]", "i64[]"}, "bf16[4]"},
        {GATHER_AT(-1), {"f32[2,3]", "i64[1]"}, "f32[2,1]"},
        {GATHER_AT(0), {"f32[2]", "f32[1]"}, "!indices has type f32, expected i32 or i64"},
        {GATHER_AT(2), {"f32[2,3]", "i64[1]"}, "!found axis 2"},
        {GATHER_AT(0), {"f32[1,1,1,1,1]", "i64[1,1,1,1,1]"}, "!the output has 9 dimensions, expected at most 8"},
    };
    RUN_CASES(cases);
}

static void element_by_element_rules(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {ELEMENTWISE(TRM_ELEMENTWISE_ADD), {"f32[2,1,4]", "f32[3,1]"}, "f32[2,3,4]"},
        {ELEMENTWISE(TRM_ELEMENTWISE_MUL), {"i64[]", "i64[3]"}, "i64[3]"},
        {ELEMENTWISE(TRM_ELEMENTWISE_MUL), {"f32[?,4]", "f32[1,4]"}, "f32[?,4]"},
        {ELEMENTWISE(TRM_ELEMENTWISE_MUL), {"f32[?,4]", "f32[5,4]"}, "f32[5,4]"},
        {ELEMENTWISE(TRM_ELEMENTWISE_MUL), {"f32[?]", "f32[?]"}, "f32[?]"},
        {ELEMENTWISE(TRM_ELEMENTWISE_MUL), {"f32[0]", "f32[1]"}, "f32[0]"},
        {ELEMENTWISE(TRM_ELEMENTWISE_ADD), {"f32[2]", "f32[3]"}, "!dims [2] and [3] do not broadcast"},
        {ELEMENTWISE(TRM_ELEMENTWISE_ADD), {"f32[2]", "f16[2]"}, "!b has type f16, expected f32"},
        {ELEMENTWISE(TRM_ELEMENTWISE_ADD), {"bool[2]", "bool[2]"}, "!a has type bool, expected numbers"},
        {ELEMENTWISE(TRM_ELEMENTWISE_ADD), {"f32[2]"}, "!found 1 inputs, expected 2"},
        {ELEMENTWISE(TRM_ELEMENTWISE_ADD), {"-", "f32[2]"}, "!input 0 is not given"},
        {ELEMENTWISE(TRM_ELEMENTWISE_LESS), {"i64[?]", "i64[3]"}, "bool[3]"},
        {ELEMENTWISE(TRM_ELEMENTWISE_EQUAL), {"bool[3]", "bool[1]"}, "bool[3]"},
        {ELEMENTWISE(TRM_ELEMENTWISE_GREATER), {"bool[3]", "bool[1]"}, "!a has type bool, expected numbers"},
        {ELEMENTWISE(TRM_ELEMENTWISE_XOR), {"u8[3]", "u8[1]"}, "u8[3]"},
        {ELEMENTWISE(TRM_ELEMENTWISE_AND), {"f32[3]", "f32[1]"}, "!a has type f32, expected bool or integers"},
        {ELEMENTWISE(TRM_ELEMENTWISE_SHIFT_LEFT), {"bool[3]", "bool[1]"}, "!a has type bool, expected integers"},
        {ELEMENTWISE(TRM_ELEMENTWISE_ADD), {"f8e4m3[3]", "f8e4m3[1]"}, "!a has type f8e4m3, expected numbers"},
        {ELEMENTWISE((trm_elementwise_op)20), {"f32[2]", "f32[2]"}, "!found elementwise op 20, expected 0 to 19"},
        {UNARY(TRM_UNARY_ACTIVATION, TRM_ACTIVATION_SILU, 0, 0), {"bf16[?]"}, "bf16[?]"},
        {UNARY(TRM_UNARY_NEG, 0, 0, 0), {"i32[3]"}, "i32[3]"},
        {UNARY(TRM_UNARY_SOFTCAP, 0, 30, 0), {"f32[3]"}, "f32[3]"},
        {UNARY(TRM_UNARY_NEG, 0, 0, 0), {"u8[3]"}, "u8[3]"},
        {UNARY(TRM_UNARY_NEG, 0, 0, 0), {"bool[3]"}, "!x has type bool, expected numbers"},
        {UNARY(TRM_UNARY_NOT, 0, 0, 0), {"f32[3]"}, "!x has type f32, expected bool or integers"},
        {UNARY(TRM_UNARY_IS_INF, 0, 1, 1), {"f16[3,?]"}, "bool[3,?]"},
        {UNARY(TRM_UNARY_SIN, 0, 0, 0), {"f64[3]"}, "f64[3]"},
        {UNARY(TRM_UNARY_EXP, 0, 0, 0), {"i32[3]"}, "!x has type i32, expected a float type"},
        {UNARY(TRM_UNARY_SOFTCAP, 0, 0, 0), {"f32[3]"}, "!softcap has alpha 0, expected more than 0"},
        {UNARY(TRM_UNARY_ACTIVATION, (trm_activation)12, 0, 0), {"f32[3]"}, "!found activation 12, expected 0 to 11"},
        {UNARY((trm_unary_op)37, 0, 0, 0), {"f32[3]"}, "!found unary op 37, expected 0 to 36"},
        {SOFTMAX(-1), {"f16[2,?]"}, "f16[2,?]"},
        {SOFTMAX(2), {"f16[2,?]"}, "!found axis 2, expected an axis of 2 dimensions"},
        {SOFTMAX(0), {"i32[2]"}, "!x has type i32, expected a float type"},
        {REDUCE(TRM_REDUCE_SUM, 1, true), {"f32[2,?,4]"}, "f32[2,1,4]"},
        {REDUCE(TRM_REDUCE_AVG, -3, false), {"i32[2,?,4]"}, "i32[?,4]"},
        {REDUCE(TRM_REDUCE_MAX, 0, false), {"f32[5]"}, "f32[]"},
        {REDUCE(TRM_REDUCE_NONE, 0, false), {"f32[5]"}, "!found reduce op 5, expected 0 to 4"},
        {REDUCE(TRM_REDUCE_SUM, 1, false), {"f32[5]"}, "!found axis 1"},
        {REDUCE(TRM_REDUCE_SUM, 0, false), {"bool[5]"}, "!x has type bool, expected numbers"},
    };
    RUN_CASES(cases);
}

/* ---- neural networks --------------------------------------------------------------------------- */

static void products_and_embeddings(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {EMBEDDING, {"bf16[100,8]", "i32[?]"}, "bf16[?,8]"},
        {EMBEDDING, {"bf16[100,8]", "i64[3]"}, "!ids has type i64, expected i32"},
        {EMBEDDING, {"bf16[100]", "i32[3]"}, "!table has dims [100], expected 2 dimensions"},
        {EMBEDDING, {"bf16[100,8]", "i32[3,1]"}, "!ids has dims [3, 1], expected 1 dimensions"},
        {MATMUL(0), {"f32[5,3]", "f32[3,4]"}, "f32[5,4]"},
        {MATMUL(.transpose_b = true), {"f32[?,3]", "f32[4,3]", "f32[4]"}, "f32[?,4]"},
        {MATMUL(.transpose_a = true), {"f32[3,5]", "f32[3,4]"}, "f32[5,4]"},
        {MATMUL(.transpose_a = true, .transpose_b = true), {"f32[3,5]", "f32[4,3]"}, "f32[5,4]"},
        {MATMUL(0), {"f32[2,1,5,3]", "f32[7,3,4]"}, "f32[2,7,5,4]"},
        {MATMUL(0), {"f32[?,5,3]", "f32[3,4]"}, "f32[?,5,4]"},
        {MATMUL(.out = TRM_F32), {"bf16[5,3]", "bf16[3,4]"}, "f32[5,4]"},
        {MATMUL(0), {"f32[5,?]", "f32[3,?]", "f32[4]"}, "f32[5,4]"},
        {MATMUL(0), {"f32[5,3]", "f32[4,3]"}, "!a [5, 3] has K 3, b [4, 3] has K 4, expected the same"},
        {MATMUL(.transpose_b = true), {"f32[5,3]", "f32[3,4]"}, "!b [3, 4] transposed has K 4"},
        {MATMUL(0), {"f32[3]", "f32[3,4]"}, "!a has dims [3] and b [3, 4], expected at least 2 dimensions"},
        {MATMUL(0), {"f32[2,5,3]", "f32[4,3,4]"}, "!do not broadcast"},
        {MATMUL(0), {"f32[5,3]", "f16[3,4]"}, "!b has type f16, expected f32"},
        {MATMUL(0), {"i32[5,3]", "i32[3,4]"}, "i32[5,4]"},
        {MATMUL(0), {"f64[5,3]", "f64[3,4]"}, "f64[5,4]"},
        {MATMUL(0), {"bool[5,3]", "bool[3,4]"}, "!a has type bool, expected numbers"},
        {MATMUL(.out = TRM_F32), {"i8[5,3]", "i8[3,4]"}, "!out is f32, expected i8"},
        {MATMUL(.activation = TRM_ACTIVATION_RELU),
         {"i32[5,3]", "i32[3,4]"},
         "!a has type i32 and the product an activation"},
        {MATMUL(0), {"f32[5,3]", "f32[3,4]", "f32[5]"}, "!bias has dims [5], expected [4]"},
        {MATMUL(0), {"f32[5,3]", "f32[3,4]", "f16[4]"}, "!bias has type f16, expected f32"},
        {MATMUL(.out = TRM_I32), {"f32[5,3]", "f32[3,4]"}, "!out is i32, expected a float type"},
        {MATMUL(.activation = (trm_activation)-1), {"f32[5,3]", "f32[3,4]"}, "!found activation -1"},
        {MATMUL(0), {"f32[5,3]"}, "!found 1 inputs, expected 2 to 3"},
        {MATMUL(0), {"f32[5,3]", "f32[3,4]", "f32[4]", "f32[4]"}, "!found 4 inputs, expected 2 to 3"},
        {MATMUL(0), {"f32[4611686018427387904,1]", "f32[1,4]"}, "!do not fit into memory"},
    };
    RUN_CASES(cases);
}

static void glu_norm_and_rope(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {GLU(TRM_ACTIVATION_SILU), {"f32[?,4]", "f32[2,4]"}, "f32[2,4]"},
        {GLU(TRM_ACTIVATION_SILU), {"f32[?,8]"}, "f32[?,4]"},
        {GLU(TRM_ACTIVATION_SILU), {"f32[3,?]"}, "f32[3,?]"},
        {GLU(TRM_ACTIVATION_SILU), {"f32[3,7]"}, "!gate_up has dims [3, 7], expected an even last dimension"},
        {GLU(TRM_ACTIVATION_SILU), {"f32[]"}, "!gate_up has dims [], expected an even last dimension"},
        {GLU(TRM_ACTIVATION_SILU), {"f32[3,4]", "f32[3,1]"}, "!up has dims [3, 1], expected [3, 4]"},
        {GLU(TRM_ACTIVATION_SILU), {"f32[3,4]", "bf16[3,4]"}, "!up has type bf16, expected f32"},
        {NORM(TRM_NORM_RMS, false, 1e-5f, 0), {"bf16[?,8]", "bf16[8]"}, "bf16[?,8]"},
        {NORM(TRM_NORM_LAYER, false, 1e-5f, 0), {"f32[2,8]", "f32[8]", "f32[8]"}, "f32[2,8]"},
        {NORM(TRM_NORM_RMS, true, 1e-5f, 0), {"f32[?,8]", "f32[2,8]", "f32[8]"}, "f32[2,8] f32[2,8]"},
        {NORM(TRM_NORM_LAYER, true, 0, 0), {"f32[?,8]", "f32[?,8]", "f32[8]", "f32[8]"}, "f32[?,8] f32[?,8]"},
        {NORM(TRM_NORM_RMS, false, 0, 0), {"f32[2,8]", "f32[8]", "f32[8]"}, "!found 3 inputs, expected 1 to 2"},
        {NORM(TRM_NORM_RMS, false, 0, 0), {"f32[2,8]"}, "f32[2,8]"},
        {NORM(TRM_NORM_RMS, false, 0, 0), {"f32[2,8]", "f32[4]"}, "!weight has dims [4], expected [8]"},
        {NORM_QUANTIZE(0.5f, TRM_NORM_LAYER, false, 1e-5f, 0), {"f16[?,8]", "f16[8]", "f16[8]"}, "f16[?,8] i8[?,8]"},
        {NORM_QUANTIZE(0.5f, TRM_NORM_RMS, true, 1e-5f, 0), {"f32[?,8]", "f32[2,8]"}, "f32[2,8] f32[2,8] i8[2,8]"},
        {NORM_QUANTIZE(0.0f, TRM_NORM_RMS, false, 0, 0), {"f32[2,8]"}, "!by scale 0, expected f32, f16 or bf16"},
        {NORM_QUANTIZE(1.0f, TRM_NORM_RMS, false, 0, 0), {"f64[2,8]"}, "!x of type f64 is quantized"},
        {NORM_QUANTIZE(1.0f, TRM_NORM_RMS, false, 0, 0), {"f32[2,8]", "f32[4]"}, "!weight has dims [4]"},
        {NORM(TRM_NORM_LAYER, false, 0, 0), {"f32[2,8]", "f32[8]", "f32[4]"}, "!bias has dims [4], expected [8]"},
        {NORM(TRM_NORM_RMS, false, 0, 0), {"bf16[2,8]", "f32[8]"}, "!weight has type f32, expected bf16"},
        {NORM(TRM_NORM_RMS, true, 0, 0),
         {"f32[2,8]", "f32[1,8]", "f32[8]"},
         "!residual has dims [1, 8], expected [2, 8]"},
        {NORM(TRM_NORM_RMS, false, -1, 0), {"f32[2,8]", "f32[8]"}, "!eps is -1, expected at least 0"},
        {NORM(TRM_NORM_RMS, false, 0, 0), {"f32[]", "f32[8]"}, "!x has dims [], expected at least 1 dimension"},
        {NORM((trm_norm_op)2, false, 0, 0), {"f32[8]", "f32[8]"}, "!found norm op 2"},
        {ROPE(.rotary_dim = 8), {"bf16[?,4,8]", "i32[?]", "f32[4]"}, "bf16[?,4,8]"},
        {ROPE(.rotary_dim = 4), {"bf16[?,4,8]", "i32[7]", "f32[2]"}, "bf16[7,4,8]"},
        {ROPE(.rotary_dim = 4, .first = 4), {"bf16[?,4,8]", "i32[7]", "f32[2]"}, "bf16[7,4,8]"},
        {ROPE(.rotary_dim = 4, .first = 5),
         {"bf16[?,4,8]", "i32[7]", "f32[2]"},
         "!4 elements are rotated from element 5 on, expected them in a head of 8"},
        {ROPE(.scaling = TRM_ROPE_LONG, .rotary_dim = 8, .original_length = 64),
         {"f32[3,4,8]", "i32[3]", "f32[2,4]", "i32[3]"},
         "f32[3,4,8]"},
        {ROPE(.scaling = TRM_ROPE_DYNAMIC, .rotary_dim = 8, .original_length = 64, .base = 1e4f, .factor = 2),
         {"f32[3,4,8]", "i32[3]", "f32[4]", "i32[3]"},
         "f32[3,4,8]"},
        {ROPE(.scaling = TRM_ROPE_LONG, .rotary_dim = 8, .original_length = 64),
         {"f32[3,4,8]", "i32[3]", "f32[2,4]"},
         "!found 3 inputs, expected 4"},
        {ROPE(.scaling = TRM_ROPE_LONG, .rotary_dim = 8),
         {"f32[3,4,8]", "i32[3]", "f32[2,4]", "i32[3]"},
         "!original_length is 0, expected at least 1"},
        {ROPE(.scaling = TRM_ROPE_DYNAMIC, .rotary_dim = 8, .original_length = 64),
         {"f32[3,4,8]", "i32[3]", "f32[4]", "i32[3]"},
         "!base is 0 and factor 0"},
        {ROPE(.rotary_dim = 8), {"f32[3,8]", "i32[3]", "f32[4]"}, "!x has dims [3, 8], expected 3 dimensions"},
        {ROPE(.rotary_dim = 8), {"f32[3,4,8]", "i32[2]", "f32[4]"}, "!positions has dims [2], expected [3]"},
        {ROPE(.rotary_dim = 8), {"f32[3,4,8]", "i64[3]", "f32[4]"}, "!positions has type i64, expected i32"},
        {ROPE(.rotary_dim = 8), {"f32[3,4,8]", "i32[3]", "f32[8]"}, "!inv_freq has dims [8], expected [4]"},
        {ROPE(.rotary_dim = 8), {"f32[3,4,8]", "i32[3]", "bf16[4]"}, "!inv_freq has type bf16, expected f32"},
        {ROPE(.rotary_dim = 8), {"f32[3,4,8]", "i32[3]", "f32[4]", "i32[2]"}, "!lengths has dims [2], expected [3]"},
        {ROPE(.rotary_dim = 10), {"f32[3,4,8]", "i32[3]", "f32[5]"}, "!rotary_dim is 10, expected an even number"},
        {ROPE(.rotary_dim = 7), {"f32[3,4,8]", "i32[3]", "f32[4]"}, "!rotary_dim is 7"},
        {ROPE(.rotary_dim = 8, .scaling = (trm_rope_scaling)3),
         {"f32[3,4,8]", "i32[3]", "f32[4]", "i32[3]"},
         "!rope scaling 3"},
    };
    RUN_CASES(cases);
}

/* ---- collectives ------------------------------------------------------------------------------- */

static void collectives(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {COLLECTIVE(.op = TRM_ALL_REDUCE, .n_ranks = 4), {"bf16[?,8]"}, "bf16[?,8]"},
        {COLLECTIVE(.op = TRM_ALL_REDUCE, .n_ranks = 4), {"f32[]"}, "f32[]"},
        {COLLECTIVE(.op = TRM_ALL_GATHER, .n_ranks = 4, .axis = -1), {"f32[3,8]"}, "f32[3,32]"},
        {COLLECTIVE(.op = TRM_ALL_GATHER, .n_ranks = 4, .axis = 0), {"f32[?,8]"}, "f32[?,8]"},
        {COLLECTIVE(.op = TRM_BROADCAST, .n_ranks = 4, .root = 3), {"u8[3]"}, "u8[3]"},
        {COLLECTIVE(.op = TRM_REDUCE, .n_ranks = 4, .root = 3), {"i32[3]"}, "i32[3]"},
        {COLLECTIVE(.op = TRM_REDUCE_SCATTER, .n_ranks = 4, .axis = 1), {"f32[3,8]"}, "f32[3,2]"},
        {COLLECTIVE(.op = TRM_ALL_TO_ALL, .n_ranks = 4, .axis = 1), {"f32[3,8]"}, "f32[3,8]"},
        {COLLECTIVE(.op = TRM_GATHER, .n_ranks = 4, .root = 1), {"f32[3,8]"}, "f32[12,8]"},
        {COLLECTIVE(.op = TRM_SCATTER, .n_ranks = 4, .axis = 1), {"f32[3,8]"}, "f32[3,2]"},
        {COLLECTIVE(.op = TRM_SEND, .root = 7), {"f32[3,?]"}, "f32[3,?]"},
        {COLLECTIVE(.op = TRM_RECV, .root = 7), {"f32[3,?]"}, "f32[3,?]"},
        {COLLECTIVE(.op = TRM_ALL_GATHER, .n_ranks = 2, .n_groups = 2, .group_size = 2, .groups = {0, 2, 1, 3}),
         {"f32[3]"},
         "f32[6]"},
        {COLLECTIVE(.op = TRM_BROADCAST, .n_ranks = 2, .root = 5, .n_groups = 1, .group_size = 2, .groups = {3, 5}),
         {"f32[3]"},
         "f32[3]"},
        {COLLECTIVE(.op = TRM_ALL_REDUCE), {"f32[3]"}, "!n_ranks is 0, expected 1 to 64"},
        {COLLECTIVE(.op = TRM_ALL_REDUCE, .n_ranks = 65), {"f32[3]"}, "!n_ranks is 65, expected 1 to 64"},
        {COLLECTIVE(.op = TRM_ALL_REDUCE, .n_ranks = 2, .reduce = TRM_REDUCE_NONE),
         {"f32[3]"},
         "!found reduce op 5, expected 0 to 4"},
        {COLLECTIVE(.op = TRM_ALL_GATHER, .n_ranks = 2, .reduce = TRM_REDUCE_NONE), {"f32[3]"}, "f32[6]"},
        {COLLECTIVE(.op = TRM_ALL_REDUCE, .n_ranks = 2), {"bool[3]"}, "!x has type bool, expected numbers, or"},
        {COLLECTIVE(.op = TRM_REDUCE, .n_ranks = 2, .reduce = TRM_REDUCE_PROD), {"bool[3]"}, "!x has type bool"},
        {COLLECTIVE(.op = TRM_ALL_REDUCE, .n_ranks = 2, .reduce = TRM_REDUCE_MAX), {"bool[3]"}, "bool[3]"},
        {COLLECTIVE(.op = TRM_REDUCE_SCATTER, .n_ranks = 3, .reduce = TRM_REDUCE_MIN), {"bool[3]"}, "bool[1]"},
        {COLLECTIVE(.op = TRM_ALL_REDUCE, .n_ranks = 2, .reduce = TRM_REDUCE_MAX),
         {"f8e4m3[3]"},
         "!x has type f8e4m3, expected numbers to reduce"},
        {COLLECTIVE(.op = TRM_ALL_GATHER, .n_ranks = 2, .axis = 1), {"f32[3]"}, "!found axis 1"},
        {COLLECTIVE(.op = TRM_ALL_GATHER, .n_ranks = 2), {"f32[]"}, "!found axis 0"},
        {COLLECTIVE(.op = TRM_REDUCE_SCATTER, .n_ranks = 2),
         {"f32[3]"},
         "!axis 0 has size 3, expected a multiple of 2"},
        {COLLECTIVE(.op = TRM_ALL_TO_ALL, .n_ranks = 2), {"f32[3]"}, "!axis 0 has size 3, expected a multiple of 2"},
        {COLLECTIVE(.op = TRM_BROADCAST, .n_ranks = 2, .root = 2),
         {"f32[3]"},
         "!found root 2, expected a rank of the group"},
        {COLLECTIVE(.op = TRM_BROADCAST, .n_ranks = 2, .root = -1), {"f32[3]"}, "!found root -1"},
        {COLLECTIVE(.op = TRM_BROADCAST, .n_ranks = 2, .root = 4, .n_groups = 1, .group_size = 2, .groups = {3, 5}),
         {"f32[3]"},
         "!found root 4, expected a rank of the group"},
        {COLLECTIVE(.op = TRM_GATHER, .n_ranks = 2, .root = 2, .n_groups = 2, .group_size = 2, .groups = {0, 1, 2, 3}),
         {"f32[3]"},
         "!found root 2, expected an index into the group"},
        {COLLECTIVE(.op = TRM_SEND, .root = -1), {"f32[3]"}, "!found peer -1"},
        {COLLECTIVE(.op = TRM_ALL_REDUCE, .n_ranks = 2, .n_groups = 1, .group_size = 2, .groups = {1, 1}),
         {"f32[3]"},
         "!rank 1 is twice in the groups"},
        {COLLECTIVE(.op = TRM_ALL_REDUCE, .n_ranks = 2, .n_groups = 1, .group_size = 3, .groups = {0, 1, 2}),
         {"f32[3]"},
         "!n_ranks is 2, expected the group size of 3"},
        {COLLECTIVE(.op = TRM_ALL_REDUCE, .n_ranks = 2, .n_groups = 40, .group_size = 2),
         {"f32[3]"},
         "!found 40 groups of 2 ranks"},
        {COLLECTIVE(.op = (trm_collective_op)10), {"f32[3]"}, "!found collective op 10"},
        {REDUCE_NORM(2, .eps = 1), {"f32[?,8]", "f32[8]"}, "f32[?,8]"},
        {REDUCE_NORM(2, .residual = true), {"bf16[?,8]", "bf16[5,8]", "bf16[8]"}, "bf16[5,8] bf16[5,8]"},
        {REDUCE_NORM(0, .eps = 1), {"f32[?,8]", "f32[8]"}, "!n_ranks is 0, expected 1 to 64"},
        {REDUCE_NORM(2, .eps = 1), {"f32[?,8]", "f32[7]"}, "!weight has dims [7]"},
        {REDUCE_NORM(2, .eps = -1), {"f32[?,8]", "f32[8]"}, "!eps is -1"},
        {{.kind = TRM_LAYER_ALL_REDUCE_NORM, .all_reduce_norm = {{.n_ranks = 2, .reduce = TRM_REDUCE_MAX}, {.eps = 1}}},
         {"f32[?,8]", "f32[8]"},
         "!found collective op 0 and reduce op 2, expected all_reduce and sum"},
    };
    RUN_CASES(cases);
}

static void matmul_glu_halves_the_columns(void **state)
{
    (void)state;
#define MATMUL_GLU                                                                                                     \
    {                                                                                                                  \
        .kind = TRM_LAYER_MATMUL_GLU, .glu = { TRM_ACTIVATION_SILU }                                                   \
    }
    static const rule_case cases[] = {
        {MATMUL_GLU, {"bf16[?,2,8]", "bf16[12,8]"}, "bf16[?,2,6]"},
        {MATMUL_GLU, {"bf16[?,8]", "bf16[?,8]"}, "bf16[?,?]"},
        {MATMUL_GLU, {"bf16[?,8]", "bf16[11,8]"}, "!expected an even last dimension"},
        {MATMUL_GLU, {"bf16[?,8]", "bf16[12,7]"}, "!expected the same"},
        {MATMUL_GLU, {"bf16[?,8]", "f32[12,8]"}, "!"},
        {MATMUL_GLU, {"bf16[?,8]", "bf16[2,12,8]"}, "!weight has"},
        {MATMUL_GLU, {"i32[?,8]", "i32[12,8]"}, "!x has type i32"},
        {MATMUL_GLU, {"bf16[?,8]"}, "!found 1 inputs, expected 2"},
    };
    RUN_CASES(cases);
}

static void quantized_products_have_scales_by_blocks(void **state)
{
    (void)state;
#define DEQUANT_MATMUL(...)                                                                                            \
    {                                                                                                                  \
        .kind = TRM_LAYER_DEQUANT_MATMUL, .dequant_matmul = { __VA_ARGS__ }                                            \
    }
    static const rule_case cases[] = {
        {DEQUANT_MATMUL(1, 0), {"bf16[?,2,8]", "f8e4m3[12,8]", "f32[12,1]"}, "bf16[?,2,12]"},
        {DEQUANT_MATMUL(5, 3, TRM_F32), {"f16[?,8]", "i8[12,8]", "f16[3,3]", "f16[12]"}, "f32[?,12]"},
        {DEQUANT_MATMUL(1, 4), {"f32[8]", "u8[12,4]", "bf16[12,2]", "-", "u8[12,2]"}, "f32[12]"},
        {DEQUANT_MATMUL(128, 128), {"bf16[?,8]", "f8e4m3[12,8]", "f32[1,1]"}, "bf16[?,12]"},
        {DEQUANT_MATMUL(1, 0), {"bf16[?,8]", "f8e4m3[?,8]", "f32[?,1]"}, "bf16[?,?]"},
        {DEQUANT_MATMUL(0, 0), {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]"}, "!block_n is 0"},
        {DEQUANT_MATMUL(1, -1), {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]"}, "!block_k -1"},
        {DEQUANT_MATMUL(1, 3), {"bf16[?,8]", "u8[12,4]", "f32[12,3]"}, "!block_k even"},
        {DEQUANT_MATMUL(1, 0), {"bf16[?,8]", "f8e4m3[12,8]", "f32[11,1]"}, "!scale has dims [11, 1], expected [12, 1]"},
        {DEQUANT_MATMUL(1, 0), {"bf16[?,8]", "f8e4m3[12,8]", "f32[12]"}, "!scale has dims [12], expected [12, 1]"},
        {DEQUANT_MATMUL(1, 0), {"bf16[?,8]", "u8[12,8]", "f32[12,1]"}, "!expected [..., 16]"},
        {DEQUANT_MATMUL(1, 0), {"bf16[?,8]", "f8e5m2[12,8]", "f32[12,1]"}, "!weight f8e5m2"},
        {DEQUANT_MATMUL(1, 0), {"f64[?,8]", "i8[12,8]", "f32[12,1]"}, "!x has type f64"},
        {DEQUANT_MATMUL(1, 0), {"bf16[?,8]", "i8[12,8]", "i8[12,1]"}, "!scale has type i8"},
        {DEQUANT_MATMUL(1, 0), {"bf16[?,8]", "i8[12,8]", "f32[12,1]", "f32[12]"}, "!bias has type f32"},
        {DEQUANT_MATMUL(1, 0),
         {"bf16[?,8]", "i8[12,8]", "f32[12,1]", "-", "u8[12,1]"},
         "!has zero points, expected none"},
        {DEQUANT_MATMUL(1, 0), {"bf16[?,8]", "u8[12,4]", "f32[12,1]", "-", "i8[12,1]"}, "!zero_point has type i8"},
        {DEQUANT_MATMUL(1, 0, TRM_I8), {"bf16[?,8]", "i8[12,8]", "f32[12,1]"}, "!out is i8"},
        {DEQUANT_MATMUL(1, 0, .x_quantization = TRM_X_DYNAMIC),
         {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]"},
         "bf16[?,12]"},
        {DEQUANT_MATMUL(1, 0, .x_quantization = TRM_X_STATIC, .x_scale = 0.5f),
         {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]"},
         "bf16[?,12]"},
        {DEQUANT_MATMUL(1, 0, .x_quantization = TRM_X_STATIC),
         {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]"},
         "!x_scale is 0, expected a number above 0"},
        {DEQUANT_MATMUL(1, 0, .x_quantization = TRM_X_DYNAMIC, .x_scale = -1.0f),
         {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]"},
         "!x_scale is -1, expected a number of at least 0"},
        {DEQUANT_MATMUL(1, 0, .x_quantization = TRM_X_DYNAMIC), {"bf16[?,8]", "i8[12,8]", "f32[12,1]"}, "bf16[?,12]"},
        {DEQUANT_MATMUL(1, 0, .x_quantization = TRM_X_DYNAMIC),
         {"bf16[?,8]", "u8[12,4]", "f32[12,1]"},
         "!x is quantized and the weight of type u8, expected f8e4m3 or i8"},
        {DEQUANT_MATMUL(1, 0, .x_quantization = (trm_x_quantization)3),
         {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]"},
         "!x_quantization is 3"},
        {DEQUANT_MATMUL(1, 0), {"bf16[?,8]", "i8[12,8]"}, "!found 2 inputs"},
    };
    RUN_CASES(cases);
}

static void experts_are_stored_in_many_ways(void **state)
{
    (void)state;
#define EXPERTS                                                                                                        \
    {                                                                                                                  \
        .kind = TRM_LAYER_EXPERTS                                                                                      \
    }
#define CHOSEN "bf16[?,64]", "i32[?,2]", "f32[?,2]"
    static const rule_case cases[] = {
        {EXPERTS, {CHOSEN, "bf16[4,2,96,64]", "bf16[4,64,96]"}, "bf16[?,64]"},
        {EXPERTS, {CHOSEN, "f8e4m3[4,2,96,64]", "f8e4m3[4,64,96]", "f32[4,2,96,1]", "f32[4,64,1]"}, "bf16[?,64]"},
        {EXPERTS, {CHOSEN, "f8e4m3[4,2,256,64]", "f8e4m3[4,64,256]", "f32[4,2,2,1]", "f32[4,1,2]"}, "bf16[?,64]"},
        {EXPERTS, {CHOSEN, "f8e4m3[4,2,128,64]", "f8e4m3[4,64,128]", "f32[4,2,1,1]", "f32[4,1,1]"}, "bf16[?,64]"},
        {EXPERTS, {CHOSEN, "u8[4,2,96,32]", "u8[4,64,48]", "u8[4,2,96,2]", "u8[4,64,3]"}, "bf16[?,64]"},
        {EXPERTS, {CHOSEN, "u8[4,2,96,32]", "u8[4,64,48]", "bf16[4,2,96,1]", "bf16[4,64,3]"}, "bf16[?,64]"},
        {EXPERTS, {CHOSEN, "i8[4,2,96,64]", "i8[4,64,96]", "f16[4,2,96,4]", "f16[4,64,1]"}, "bf16[?,64]"},
        {EXPERTS,
         {CHOSEN, "u8[4,2,96,32]", "u8[4,64,48]", "f32[4,2,96,2]", "f32[4,64,3]", "-", "-", "u8[4,2,96,2]",
          "u8[4,64,3]"},
         "bf16[?,64]"},
        {EXPERTS, {CHOSEN, "f8e4m3[4,2,96,64]", "f8e4m3[4,64,96]"}, "!gate_up_scale is not given"},
        {EXPERTS,
         {CHOSEN, "f8e4m3[4,2,96,64]", "f8e4m3[4,64,96]", "f32[4,2,1,1]", "f32[4,1,1]"},
         "!experts are 96 wide, expected a multiple of 128"},
        {EXPERTS,
         {CHOSEN, "f8e4m3[4,2,128,64]", "f8e4m3[4,64,128]", "f32[4,2,1,1]", "f32[4,64,1]"},
         "!gate_up_scale has dims [4, 2, 1, 1], expected [4, 2, 128, 1]"},
        {EXPERTS,
         {CHOSEN, "u8[4,2,96,32]", "u8[4,64,48]", "u8[4,2,96,2]", "bf16[4,64,3]"},
         "!gate_up_scale has type u8"},
        {EXPERTS,
         {CHOSEN, "u8[4,2,96,32]", "u8[4,64,48]", "f32[4,2,96,5]", "f32[4,64,3]"},
         "!gate_up_scale has 5 groups of 64 columns"},
        {EXPERTS,
         {CHOSEN, "u8[4,2,96,32]", "u8[4,64,48]", "f32[4,2,96,2]", "f32[4,64,32]"},
         "!expected groups of equal size in whole bytes"},
        {EXPERTS,
         {CHOSEN, "i8[4,2,96,64]", "i8[4,64,96]", "f32[4,2,96,2]", "f32[4,64,3]", "-", "-", "u8[4,2,96,2]",
          "u8[4,64,3]"},
         "!gate_up_zero_point is given"},
        {EXPERTS,
         {CHOSEN, "u8[4,2,96,32]", "u8[4,64,48]", "f32[4,2,96,2]", "f32[4,64,3]", "-", "-", "-", "u8[4,64,3]"},
         "!down_zero_point is given"},
    };
    RUN_CASES(cases);
}

static void fused_dequant_matmuls_follow_their_parts(void **state)
{
    (void)state;
#define NORMED(...)                                                                                                    \
    {                                                                                                                  \
        .kind = TRM_LAYER_NORM_DEQUANT_MATMUL, .norm_dequant_matmul = {.product = {.block_n = 1}, __VA_ARGS__ }        \
    }
#define GATED(...)                                                                                                     \
    {                                                                                                                  \
        .kind = TRM_LAYER_GLU_DEQUANT_MATMUL, .glu_dequant_matmul = {.product = {.block_n = 1, __VA_ARGS__} }          \
    }
    static const rule_case cases[] = {
        {NORMED(false), {"bf16[?,2,8]", "f8e4m3[12,8]", "f32[12,1]"}, "bf16[?,2,12]"},
        {NORMED(false), {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]", "bf16[12]", "-", "bf16[8]"}, "bf16[?,12]"},
        {NORMED(.residual = true),
         {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]", "-", "-", "bf16[8]", "bf16[4,8]"},
         "bf16[4,12] bf16[4,8]"},
        {NORMED(.residual = true), {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]"}, "!residual is not given"},
        {NORMED(false),
         {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]", "-", "-", "-", "bf16[4,8]"},
         "!residual is given, expected none"},
        {NORMED(.eps = -1), {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]"}, "!eps is -1"},
        {NORMED(false), {"bf16[?,8]", "f8e4m3[12,7]", "f32[12,1]"}, "!x has dims [?, 8], expected [..., 7]"},
        {GATED(.block_k = 4), {"bf16[?,16]", "f8e4m3[12,8]", "f32[12,2]"}, "bf16[?,12]"},
        {GATED(.out = TRM_F32), {"bf16[?,16]", "f8e4m3[12,8]", "f32[12,1]", "bf16[12]"}, "f32[?,12]"},
        {GATED(.out = TRM_F32), {"bf16[?,15]", "f8e4m3[12,8]", "f32[12,1]"}, "!expected an even last dimension"},
        {GATED(.out = TRM_F32), {"bf16[?,8]", "f8e4m3[12,8]", "f32[12,1]"}, "!x has dims [?, 4], expected [..., 8]"},
    };
    RUN_CASES(cases);
}

static void int8_products_are_products_and_convolutions(void **state)
{
    (void)state;
#define INT8(...)                                                                                                      \
    {                                                                                                                  \
        .kind = TRM_LAYER_INT8_PRODUCT, .int8_product = {                                                              \
            .stride = {2, 1, 1},                                                                                       \
            .dilation = {1, 1, 1},                                                                                     \
            .before = {1, 0},                                                                                          \
            .after = {1, 0},                                                                                           \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
    static const rule_case cases[] = {
        {INT8(.out = TRM_F16), {"i8[?,5,32]", "i8[12,32]", "f32[12]", "f32[12]", "f16[4,5,12]"}, "f16[?,5,12]"},
        {INT8(.out = TRM_I8, .out_scale = 0.5f), {"i8[?,32]", "i8[12,32]", "f32[1]"}, "i8[?,12]"},
        {INT8(.out = TRM_F32), {"i8[2,9,?,16]", "i8[8,3,2,16]", "f32[8]"}, "f32[2,5,?,8]"},
        {INT8(.out = TRM_I8, .out_scale = 1, .residual_scale = 2),
         {"i8[2,9,8,16]", "i8[8,3,2,16]", "f32[8]", "-", "i8[2,5,7,8]"},
         "i8[2,5,7,8]"},
        {INT8(.out = TRM_F32), {"i8[2,32]", "i8[12,33]", "f32[12]"}, "!differ in their last size"},
        {INT8(.out = TRM_F32), {"u8[2,32]", "i8[12,32]", "f32[12]"}, "!x has type u8, expected i8"},
        {INT8(.out = TRM_F32), {"i8[2,32]", "i8[12,32]", "f32[11]"}, "!scale has dims [11], expected [12]"},
        {INT8(.out = TRM_F32), {"i8[2,32]", "i8[12,32]", "f16[12]"}, "!scale has type f16, expected f32"},
        {INT8(.out = TRM_F32), {"i8[2,32]", "i8[12,32]", "f32[12]", "f32[1]"}, "!bias has dims [1], expected [12]"},
        {INT8(.out = TRM_F64), {"i8[2,32]", "i8[12,32]", "f32[12]"}, "!out is f64, expected i8, f32, f16 or bf16"},
        {INT8(.out = TRM_I8), {"i8[2,32]", "i8[12,32]", "f32[12]"}, "!0 of the output, expected positive ones"},
        {INT8(.out = TRM_F32), {"i8[2,9,8,16]", "i8[8,3,16]", "f32[8]"}, "!weight has dims [8, 3, 16]"},
        {INT8(.out = TRM_F32),
         {"i8[2,9,8,16]", "i8[8,3,2,16]", "f32[8]", "-", "f32[2,5,8,8]"},
         "!residual has dims [2, 5, 8, 8], expected [2, 5, 7, 8]"},
        {INT8(.out = TRM_F16, .parts = 3), {"i8[?,5,32]", "i8[12,32]", "f32[12]"}, "f16[3,?,5,4]"},
        {INT8(.out = TRM_F16, .parts = 5), {"i8[?,5,32]", "i8[12,32]", "f32[12]"}, "!12 columns in 5 parts"},
        {INT8(.out = TRM_F16, .parts = 3), {"i8[2,32]", "i8[12,32]", "f32[12]", "-", "f16[2,12]"}, "!in 3 parts"},
        {INT8(.out = TRM_F16, .parts = 2), {"i8[2,9,8,16]", "i8[8,3,2,16]", "f32[8]"}, "!in 2 parts"},
    };
    RUN_CASES(cases);
}

static void norm_matmuls_follow_their_parts(void **state)
{
    (void)state;
#define NORM_MATMUL(...)                                                                                               \
    {                                                                                                                  \
        .kind = TRM_LAYER_NORM_MATMUL, .norm_matmul = { __VA_ARGS__ }                                                  \
    }
    static const rule_case cases[] = {
        {NORM_MATMUL(false), {"bf16[?,2,8]", "bf16[12,8]"}, "bf16[?,2,12]"},
        {NORM_MATMUL(false), {"bf16[?,8]", "bf16[12,8]", "bf16[12]", "bf16[8]"}, "bf16[?,12]"},
        {NORM_MATMUL(.residual = true, .out = TRM_F32),
         {"bf16[?,8]", "bf16[12,8]", "-", "-", "bf16[3,8]"},
         "f32[3,12] bf16[3,8]"},
        {NORM_MATMUL(.gated = true), {"bf16[?,8]", "bf16[12,8]", "-", "bf16[8]"}, "bf16[?,6]"},
        {NORM_MATMUL(.gated = true, .residual = true),
         {"bf16[?,8]", "bf16[12,8]", "-", "bf16[8]", "bf16[?,8]"},
         "bf16[?,6] bf16[?,8]"},
        {NORM_MATMUL(.gated = true), {"bf16[?,8]", "bf16[12,8]", "bf16[12]"}, "!a gated product has a bias"},
        {NORM_MATMUL(.gated = true, .out = TRM_F32), {"bf16[?,8]", "bf16[12,8]"}, "!another type of output"},
        {NORM_MATMUL(.gated = true), {"bf16[?,8]", "bf16[11,8]"}, "!expected an even last dimension"},
        {NORM_MATMUL(.eps = -1), {"bf16[?,8]", "bf16[12,8]"}, "!eps is -1"},
        {NORM_MATMUL(false), {"bf16[?,8]", "bf16[12,8]", "-", "bf16[7]"}, "!weight has dims [7]"},
        {NORM_MATMUL(false), {"bf16[?,8]", "bf16[12,8]", "-", "f32[8]"}, "!weight has type f32"},
        {NORM_MATMUL(false), {"bf16[?,8]", "bf16[12,8]", "-", "-", "bf16[?,8]"}, "!found 5 inputs"},
        {NORM_MATMUL(.residual = true), {"bf16[?,8]", "bf16[12,8]", "-", "bf16[8]"}, "!residual is not given"},
        {NORM_MATMUL(.residual = true),
         {"bf16[4,8]", "bf16[12,8]", "-", "-", "bf16[1,8]"},
         "!residual has dims [1, 8]"},
        {NORM_MATMUL(.residual = true), {"bf16[4,8]", "bf16[12,8]", "-", "-", "f32[4,8]"}, "!residual has type f32"},
        {NORM_MATMUL(false), {"bf16[4,8]", "bf16[12,7]"}, "!expected the same"},
        {NORM_MATMUL(false), {"bf16[4,8]", "bf16[2,12,8]"}, "!weight has"},
        {NORM_MATMUL(false), {"i32[4,8]", "i32[12,8]"}, "!x has type i32"},
    };
    RUN_CASES(cases);
}

static void norm_routers_follow_their_parts(void **state)
{
    (void)state;
#define NORM_ROUTER(...)                                                                                               \
    {                                                                                                                  \
        .kind = TRM_LAYER_NORM_ROUTER, .norm_router = { __VA_ARGS__ }                                                  \
    }
    static const rule_case cases[] = {
        {NORM_ROUTER({.k = 2}), {"bf16[?,8]", "bf16[12,8]"}, "i32[?,2] f32[?,2] bf16[?,8]"},
        {NORM_ROUTER({.k = 2}),
         {"bf16[?,8]", "f32[12,8]", "f32[12]", "f32[12]", "f32[12]", "bf16[8]"},
         "i32[?,2] f32[?,2] bf16[?,8]"},
        {NORM_ROUTER({.k = 2}, .residual = true),
         {"bf16[?,8]", "bf16[12,8]", "-", "-", "-", "-", "bf16[3,8]"},
         "i32[3,2] f32[3,2] bf16[3,8] bf16[3,8]"},
        {NORM_ROUTER({.k = 2}, .residual = true), {"bf16[?,8]", "bf16[12,8]"}, "!residual is not given"},
        {NORM_ROUTER({.k = 13}), {"bf16[?,8]", "bf16[12,8]"}, "!k is 13"},
        {NORM_ROUTER({.k = 2}, .eps = -1), {"bf16[?,8]", "bf16[12,8]"}, "!eps is -1"},
        {NORM_ROUTER({.k = 2}), {"bf16[?,8]", "bf16[12,7]"}, "!weight has dims [12, 7]"},
        {NORM_ROUTER({.k = 2}), {"bf16[?,8]", "bf16[12,8]", "-", "-", "-", "f32[8]"}, "!weight has type f32"},
    };
    RUN_CASES(cases);
}

/* clang-format off */
#define CONTROL(kind_) {.kind = TRM_LAYER_##kind_}
#define CARRIED(kind_, open_) {.kind = TRM_LAYER_##kind_, .recurrence = {open_}}
/* clang-format on */

static void regions(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {CONTROL(IF), {"bool[]"}, "bool[]"},
        {CONTROL(LOOP), {"bool[]"}, "bool[]"},
        {CONTROL(IF), {"i64[]"}, "!the condition has type i64, expected bool"},
        {CONTROL(LOOP), {"bool[1]"}, "!the condition has dims [1], expected 0 dimensions"},
        {CONTROL(END_IF), {"bool[]", "bool[]"}, "!found 2 inputs, expected 1"},
        {CONTROL(END_LOOP), {"bool[]", "bool[]"}, "bool[]"},
        {CONTROL(END_LOOP), {"bool[]", "f32[]"}, "!the output of the loop has type f32"},
        {CONTROL(ENTER), {"f16[?,3]"}, "f16[?,3]"},
        {CARRIED(RECURRENCE, 0), {"f32[2,?]"}, "f32[2,?]"},
        {CARRIED(RECURRENCE, 1), {"f32[2,3]"}, "f32[?,3]"},
        {CARRIED(RECURRENCE, -1), {"f32[2,3]"}, "f32[?,?]"},
        {CARRIED(NEXT, 0), {"f32[2,?]", "f32[2,3]"}, "f32[2,?]"},
        {CARRIED(NEXT, 1), {"f32[4,3]", "f32[2,3]"}, "f32[4,3]"},
        {CARRIED(NEXT, 2), {"f32[4,3]", "f32[2,3]"}, "!a loop-carried value has dims [4, 3], expected [2, ?]"},
        {CARRIED(NEXT, 1), {"f32[4]", "f32[2,3]"}, "!a loop-carried value has dims [4]"},
        {CARRIED(NEXT, 0), {"f16[2]", "f32[2]"}, "!a loop-carried value has type f16, expected f32"},
        {CONTROL(LOOP_OUTPUT), {"f32[2,?]", "bool[]"}, "f32[2,?]"},
        {CONTROL(LOOP_OUTPUT), {"f32[2,?]"}, "!found 1 inputs, expected 2"},
        {CONTROL(MERGE), {"bool[]", "f32[2,?,4]", "f32[3,?,4]"}, "f32[?,?,4]"},
        {CONTROL(MERGE), {"bool[]", "f32[2]", "f32[2,1]"}, "!a has dims [2], b [2, 1], expected as many dimensions"},
        {CONTROL(MERGE), {"bool[]", "f32[2]", "f16[2]"}, "!b has type f16, expected f32"},
    };
    RUN_CASES(cases);
}

static void unknown_kinds_and_output_counts(void **state)
{
    (void)state;
    trm_layer_desc desc = {.kind = TRM_LAYER_KIND_COUNT};
    trm_dims dims = {1, {3}}, out[2];
    const trm_dims *inputs[] = {&dims};
    trm_dtype type = TRM_F32, out_types[2];
    char cause[64];
    snprintf(cause, sizeof(cause), "found layer kind %d, expected 0 to %d", TRM_LAYER_KIND_COUNT,
             TRM_LAYER_KIND_COUNT - 1);
    assert_fails(trm_infer_layer(&desc, 1, inputs, &type, NULL, 1, out, out_types), TRM_ERROR_INVALID_ARGUMENT, cause);
    desc = (trm_layer_desc){.kind = TRM_LAYER_SOFTMAX};
    assert_fails(trm_infer_layer(&desc, 1, inputs, &type, NULL, 2, out, out_types), TRM_ERROR_INVALID_ARGUMENT,
                 "found 2 outputs, expected 1");
}

/* ---- a whole network --------------------------------------------------------------------------- */

static void networks_are_inferred_with_concrete_dims(void **state)
{
    (void)state;
    trm_network *network;
    trm_tensor *x, *cache, *w, *y, *z;
    static const float data[12] = {0};
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_input(network, "x", TRM_F32, (trm_dims){2, {-1, 3}}, &x));
    assert_ok(trm_network_add_state(network, "cache", TRM_F32, (trm_dims){1, {-1}}, &cache));
    assert_ok(trm_network_add_constant(network, "w", TRM_F32, (trm_dims){2, {4, 3}}, data, &w));
    assert_ok(trm_network_add_matmul(network, "y", x, w, NULL, true, &y));
    assert_ok(trm_network_add_reshape(network, "z", y, (trm_dims){2, {-1, 8}}, &z));
    trm_dims dims[5];
    dims[x->index] = (trm_dims){2, {6, 3}};
    dims[cache->index] = (trm_dims){1, {7}};
    assert_ok(trm_infer_network(network, dims));
    assert_true(trm_dims_equal(&dims[w->index], &(trm_dims){2, {4, 3}}));
    assert_true(trm_dims_equal(&dims[y->index], &(trm_dims){2, {6, 4}}));
    assert_true(trm_dims_equal(&dims[z->index], &(trm_dims){2, {3, 8}}));
    dims[x->index] = (trm_dims){2, {5, 3}};
    assert_fails(trm_infer_network(network, dims), TRM_ERROR_INVALID_ARGUMENT, "reshape z: dims [5, 4] cannot be");
    dims[x->index] = (trm_dims){2, {6, 2}};
    assert_fails(trm_infer_network(network, dims), TRM_ERROR_INVALID_ARGUMENT,
                 "input x has dims [6, 2], expected [?, 3]");
    dims[x->index] = (trm_dims){2, {-1, 3}};
    assert_fails(trm_infer_network(network, dims), TRM_ERROR_INVALID_ARGUMENT, "input x has dims [?, 3]");
    dims[x->index] = (trm_dims){2, {6, 3}};
    dims[cache->index] = (trm_dims){2, {7, 1}};
    assert_fails(trm_infer_network(network, dims), TRM_ERROR_INVALID_ARGUMENT, "state cache has dims [7, 1]");
    trm_network_destroy(network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cast_changes_the_type_only),
        cmocka_unit_test(lora_is_beside_a_product),
        cmocka_unit_test(reshape_keeps_the_number_of_elements),
        cmocka_unit_test(moving_rules),
        cmocka_unit_test(element_by_element_rules),
        cmocka_unit_test(products_and_embeddings),
        cmocka_unit_test(glu_norm_and_rope),
        cmocka_unit_test(collectives),
        cmocka_unit_test(matmul_glu_halves_the_columns),
        cmocka_unit_test(quantized_products_have_scales_by_blocks),
        cmocka_unit_test(experts_are_stored_in_many_ways),
        cmocka_unit_test(fused_dequant_matmuls_follow_their_parts),
        cmocka_unit_test(int8_products_are_products_and_convolutions),
        cmocka_unit_test(norm_matmuls_follow_their_parts),
        cmocka_unit_test(norm_routers_follow_their_parts),
        cmocka_unit_test(regions),
        cmocka_unit_test(unknown_kinds_and_output_counts),
        cmocka_unit_test(networks_are_inferred_with_concrete_dims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
