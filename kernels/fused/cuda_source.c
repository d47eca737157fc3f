/*
 * The source of a generated kernel: steps as straight-line code on floats, doubles and 64-bit integers, written with
 * what kernels/pointwise/element.h defines for all backends. Sums and products of floats are those that are never
 * joined into one rounding, so that numbers are those of the layers one by one.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fused/cuda.h"
#include "kernels/fused/fused.h"

#define LONGEST_SOURCE ((size_t)64 << 10)

typedef struct text {
    char *bytes;
    size_t used;
} text;

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(t->bytes + t->used, LONGEST_SOURCE - t->used, format, arguments);
    va_end(arguments);
    t->used += n > 0 ? (size_t)n : 0;
    t->used = t->used < LONGEST_SOURCE ? t->used : LONGEST_SOURCE - 1;
}

/* What a type is computed in. */
typedef enum arithmetic { FLOAT, DOUBLE, SIGNED, UNSIGNED } arithmetic;

static arithmetic arithmetic_of(trm_dtype type)
{
    return type == TRM_F64 ? DOUBLE : type < TRM_F64 ? FLOAT : type == TRM_U64 ? UNSIGNED : SIGNED;
}

static const char *const computed_as[] = {"float", "double", "long long", "unsigned long long"};
static const char *const suffixes[] = {"f32", "f64", "i64", "u64"};

static const char *stored_as(trm_dtype type)
{
    static const char *const names[] = {
        [TRM_F32] = "float",         [TRM_F16] = "f16_bits",       [TRM_BF16] = "bf16_bits",
        [TRM_F64] = "double",        [TRM_I8] = "signed char",     [TRM_U8] = "unsigned char",
        [TRM_I16] = "short",         [TRM_U16] = "unsigned short", [TRM_I32] = "int",
        [TRM_U32] = "unsigned int",  [TRM_I64] = "long long",      [TRM_U64] = "unsigned long long",
        [TRM_BOOL] = "unsigned char"};
    return names[type];
}

/* The type's rounding of a value: of an integer, its low bits. */
static void put_rounded(text *t, trm_dtype type, const char *value)
{
    switch (type) {
    case TRM_F16:
        put(t, "from_f16(to_f16(%s))", value);
        break;
    case TRM_BF16:
        put(t, "from_bf16(to_bf16(%s))", value);
        break;
    case TRM_F32:
    case TRM_F64:
    case TRM_I64:
    case TRM_U64:
    case TRM_BOOL:
        put(t, "%s", value);
        break;
    default:
        put(t, "(long long)(%s)(%s)", stored_as(type), value);
        break;
    }
}

static void name_of(int32_t operand, char name[16])
{
    bool input = operand < TRM_MAX_LAYER_INPUTS;
    snprintf(name, 16, "%c%d", input ? 'i' : 's', (int)(input ? operand : operand - TRM_MAX_LAYER_INPUTS));
}

static trm_dtype type_of(const trm_fused_elementwise_params *p, const trm_dtype *inputs, int32_t operand)
{
    return operand < TRM_MAX_LAYER_INPUTS ? inputs[operand] : p->steps[operand - TRM_MAX_LAYER_INPUTS].type;
}

static bool is_comparison(trm_elementwise_op op)
{
    return op >= TRM_ELEMENTWISE_EQUAL && op <= TRM_ELEMENTWISE_GREATER_EQUAL;
}

static void write_elementwise(trm_elementwise_op op, arithmetic in, const char *a, const char *b, char value[256])
{
    static const char *const exact[] = {"add", "sub", "mul"};
    if (is_comparison(op)) {
        snprintf(value, 256, "trm_compare_%s((trm_elementwise_op)%d, %s, %s)", suffixes[in], (int)op, a, b);
    } else if (op <= TRM_ELEMENTWISE_MUL && (in == FLOAT || in == DOUBLE)) {
        snprintf(value, 256, "__%c%s_rn(%s, %s)", in == FLOAT ? 'f' : 'd', exact[op], a, b);
    } else {
        snprintf(value, 256, "trm_binary_%s((trm_elementwise_op)%d, %s, %s)", suffixes[in], (int)op, a, b);
    }
}

/* A float as its bits, in the arithmetic of an operation. */
static void number(float value, arithmetic in, char out[64])
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    snprintf(out, 64, "(%s)__uint_as_float(0x%08xu)", computed_as[in], (unsigned)bits);
}

static void write_unary(const trm_unary_params *p, trm_dtype type, const char *a, char value[256])
{
    const arithmetic in = arithmetic_of(type);
    const char *suffix = suffixes[in];
    char alpha[64], beta[64];
    number(p->alpha, in, alpha);
    number(p->beta, in, beta);
    if (p->op == TRM_UNARY_ACTIVATION) {
        snprintf(value, 256, "trm_activate_%s((trm_activation)%d, %s)", suffix, (int)p->activation, a);
    } else if (in == SIGNED || in == UNSIGNED) {
        snprintf(value, 256, "trm_unary_i64((trm_unary_op)%d, %s, %s, %s)", (int)p->op,
                 in == UNSIGNED ? "true" : "false", type == TRM_BOOL ? "true" : "false", a);
    } else if (p->op == TRM_UNARY_IS_NAN || p->op == TRM_UNARY_IS_INF) {
        snprintf(value, 256, "trm_unary_test_%s((trm_unary_op)%d, %s, %s, %s)", suffix, (int)p->op, alpha, beta, a);
    } else if (p->op >= TRM_UNARY_SIN && p->op <= TRM_UNARY_ATANH) {
        snprintf(value, 256, "trm_unary_trigonometric_%s((trm_unary_op)%d, %s)", suffix, (int)p->op, a);
    } else {
        snprintf(value, 256, "trm_unary_plain_%s((trm_unary_op)%d, %s, %s, %s)", suffix, (int)p->op, alpha, beta, a);
    }
}

static void write_cast(trm_dtype to, const char *a, char value[256])
{
    if (to == TRM_BOOL) {
        snprintf(value, 256, "%s != 0", a);
    } else {
        snprintf(value, 256, "(%s)%s", computed_as[arithmetic_of(to)], a);
    }
}

static void put_step(text *t, const trm_fused_elementwise_params *p, const trm_dtype *inputs, int32_t i)
{
    const trm_fused_step *step = &p->steps[i];
    const trm_layer_desc layer = trm_fused_step_layer(step);
    const trm_dtype in = step->op == TRM_FUSED_VALUE ? step->type : type_of(p, inputs, step->a);
    char a[16], b[16], c[16], value[256];
    name_of(step->a, a);
    name_of(step->b, b);
    name_of(step->c, c);
    switch (layer.kind) {
    case TRM_LAYER_ELEMENTWISE:
        write_elementwise(layer.elementwise.op, arithmetic_of(in), a, b, value);
        break;
    case TRM_LAYER_UNARY:
        write_unary(&layer.unary, in, a, value);
        break;
    case TRM_LAYER_CAST:
        write_cast(step->type, a, value);
        break;
    case TRM_LAYER_SELECT:
        snprintf(value, sizeof(value), "%s != 0 ? %s : %s", a, b, c);
        break;
    default:
        number(step->alpha, arithmetic_of(step->type), value);
        break;
    }
    put(t, "        const %s s%d = ", computed_as[arithmetic_of(step->type)], (int)i);
    put_rounded(t, step->type, value);
    put(t, ";\n");
}

/* What was loaded as a value. */
static void put_input(text *t, trm_dtype type, int32_t i)
{
    const char *from = type == TRM_F16 ? "from_f16" : type == TRM_BF16 ? "from_bf16" : "";
    put(t, "        const %s i%d = %s(x%d[j]);\n", computed_as[arithmetic_of(type)], (int)i, from, (int)i);
}

static void put_output(text *t, trm_dtype type, int32_t output, int32_t step)
{
    const char *to = type == TRM_F16 ? "to_f16" : type == TRM_BF16 ? "to_bf16" : "";
    put(t, "        y%d[j] = %s(s%d);\n", (int)output, to, (int)step);
}

/* One run of V elements. */
static void put_body(text *t, const trm_fused_elementwise_params *p, const trm_dtype *inputs, int32_t n_inputs)
{
    put(t, "template <int V> static __device__ __forceinline__ void run(const trm_fused_args &a, long long i)\n{\n");
    put(t, "    long long at[%d];\n    offsets_of<%d>(a, i, at);\n", (int)n_inputs, (int)n_inputs);
    for (int32_t k = 0; k < n_inputs; k++) {
        put(t, "    %s x%d[V];\n", stored_as(inputs[k]), (int)k);
        put(t, "    load_run<%s, V>(a.in[%d], at[%d], (a.advances >> %d & 1) != 0, x%d);\n", stored_as(inputs[k]),
            (int)k, (int)k, (int)k, (int)k);
    }
    for (int32_t k = 0; k < p->n_outputs; k++) {
        put(t, "    %s y%d[V];\n", stored_as(p->steps[p->outputs[k]].type), (int)k);
    }
    put(t, "#pragma unroll\n    for (int j = 0; j < V; j++) {\n");
    for (int32_t k = 0; k < n_inputs; k++) {
        put_input(t, inputs[k], k);
    }
    for (int32_t k = 0; k < p->n_steps; k++) {
        put_step(t, p, inputs, k);
    }
    for (int32_t k = 0; k < p->n_outputs; k++) {
        put_output(t, p->steps[p->outputs[k]].type, k, p->outputs[k]);
    }
    put(t, "    }\n");
    for (int32_t k = 0; k < p->n_outputs; k++) {
        put(t, "    store_run<%s, V>(a.out[%d], i * V, y%d);\n", stored_as(p->steps[p->outputs[k]].type), (int)k,
            (int)k);
    }
    put(t, "}\n");
}

/* 16 bytes of the narrowest type, at most 8 elements. */
static int32_t vector_of(const trm_fused_elementwise_params *p, const trm_dtype *inputs, int32_t n_inputs)
{
    size_t least = 8;
    for (int32_t i = 0; i < n_inputs; i++) {
        least = trm_dtype_size(inputs[i]) < least ? trm_dtype_size(inputs[i]) : least;
    }
    for (int32_t i = 0; i < p->n_outputs; i++) {
        size_t size = trm_dtype_size(p->steps[p->outputs[i]].type);
        least = size < least ? size : least;
    }
    return least == 1 ? 8 : (int32_t)(16 / least);
}

char *trm_cuda_fused_source(const trm_fused_elementwise_params *params, const trm_dtype *inputs, int32_t n_inputs,
                            int32_t *vector)
{
    text t = {.bytes = malloc(LONGEST_SOURCE)};
    if (t.bytes == NULL) {
        return NULL;
    }
    *vector = vector_of(params, inputs, n_inputs);
    put(&t, "#include \"kernels/fused/cuda_device.cuh\"\n");
    put_body(&t, params, inputs, n_inputs);
    const char *const names[] = {"vector", "scalar"};
    for (int32_t i = 0; i < 2; i++) {
        put(&t,
            "extern \"C\" __global__ void __launch_bounds__(256) fused_%s(const trm_fused_args a)\n{\n"
            "    begin_overlapped();\n"
            "    const long long step = (long long)gridDim.x * blockDim.x;\n"
            "    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += step) {\n"
            "        run<%d>(a, i);\n    }\n}\n",
            names[i], i == 0 ? (int)*vector : 1);
    }
    return t.bytes;
}
