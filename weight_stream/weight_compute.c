/*
 * Weights computed from others, such as a convolution's weight times the scale of a norm: checks and reading. They are
 * computed when read, so that a refit changes them.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "weight_stream/convert.h"
#include "weight_stream/weight_internal.h"

#define BLOCK 1024 /* numbers on the stack */

static const struct {
    const char *name;
    int32_t n_parts;
} ops[TRM_WEIGHT_OP_COUNT] = {
    [TRM_WEIGHT_CAST] = {"cast", 1},         [TRM_WEIGHT_ADD] = {"add", 2},
    [TRM_WEIGHT_SUBTRACT] = {"subtract", 2}, [TRM_WEIGHT_MULTIPLY] = {"multiply", 2},
    [TRM_WEIGHT_DIVIDE] = {"divide", 2},     [TRM_WEIGHT_ROOT] = {"root", 1},
    [TRM_WEIGHT_QUANTIZE] = {"quantize", 2},
};

const char *trm_weight_op_name(trm_weight_op op)
{
    return (unsigned)op < TRM_WEIGHT_OP_COUNT ? ops[op].name : "unknown";
}

static bool is_number(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16;
}

/* Whether an operation gives this type. */
static bool gives(trm_weight_op op, trm_dtype dtype)
{
    return op == TRM_WEIGHT_QUANTIZE
               ? dtype == TRM_F8E4M3 || dtype == TRM_F4E2M1 || dtype == TRM_F8E8M0 || dtype == TRM_I8 || dtype == TRM_U8
               : is_number(dtype);
}

/* Size of an axis of `dims` seen as one of `n` axes. */
static int64_t size_at(const trm_dims *dims, int32_t n, int32_t axis)
{
    axis -= n - dims->n;
    return axis < 0 ? 1 : dims->d[axis];
}

/* How a part is repeated to fill `dims`; 0 if its elements would not repeat contiguously. */
static size_t find_inner(const trm_dims *part, const trm_dims *dims)
{
    int32_t first = 0, last = dims->n - 1;
    while (first < dims->n && size_at(part, dims->n, first) == 1) {
        first++;
    }
    while (last > first && size_at(part, dims->n, last) == 1) {
        last--;
    }
    size_t inner = 1;
    if (first == dims->n) { /* one element, repeated over all */
        first = 0;
        last = -1;
    }
    for (int32_t i = first; i < dims->n; i++) {
        if (i > last) {
            inner *= dims->d[i] > 0 ? (size_t)dims->d[i] : 1;
        } else if (size_at(part, dims->n, i) != dims->d[i]) {
            return 0;
        }
    }
    return inner;
}

static trm_status refuse(trm_weight_op op, const trm_weight *part, const char *what)
{
    char source[256];
    trm_weight_describe(part, source, sizeof(source));
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight %s: cannot %s it, %s", source, trm_weight_op_name(op), what);
}

trm_status trm_weight_check_compute(trm_weight_op op, trm_dtype dtype, const trm_weight *const *parts, int32_t n,
                                    trm_dims *dims, size_t inner[2])
{
    if ((unsigned)op >= TRM_WEIGHT_OP_COUNT || !gives(op, dtype) || n != ops[op].n_parts) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot %s %d weights to %s", trm_weight_op_name(op), n,
                 trm_dtype_name(dtype));
    }
    *dims = (trm_dims){0};
    for (int32_t i = 0; i < n; i++) {
        dims->n = parts[i]->view.dims.n > dims->n ? parts[i]->view.dims.n : dims->n;
        if (!is_number(parts[i]->base->dtype) && parts[i]->base->dtype != TRM_F8E4M3) {
            return refuse(op, parts[i], "its type is not f32, f16, bf16 or f8e4m3");
        }
    }
    for (int32_t axis = 0; axis < dims->n; axis++) {
        dims->d[axis] = 1;
        for (int32_t i = 0; i < n; i++) {
            const int64_t size = size_at(&parts[i]->view.dims, dims->n, axis);
            if (size != 1 && dims->d[axis] != 1 && dims->d[axis] != size) {
                return refuse(op, parts[i], "its dims are not those of the other");
            }
            dims->d[axis] = size == 1 ? dims->d[axis] : size;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        inner[i] = find_inner(&parts[i]->view.dims, dims);
        if (inner[i] == 0 && parts[i]->count > 0) {
            return refuse(op, parts[i], "it is not repeated in rows");
        }
    }
    return TRM_OK;
}

static void compute(trm_weight_op op, const float *a, const float *b, size_t count, float *to)
{
    for (size_t i = 0; i < count; i++) {
        switch (op) {
        case TRM_WEIGHT_ADD:
            to[i] = a[i] + b[i];
            break;
        case TRM_WEIGHT_SUBTRACT:
            to[i] = a[i] - b[i];
            break;
        case TRM_WEIGHT_MULTIPLY:
            to[i] = a[i] * b[i];
            break;
        case TRM_WEIGHT_DIVIDE:
        case TRM_WEIGHT_QUANTIZE:
            to[i] = a[i] / b[i];
            break;
        case TRM_WEIGHT_ROOT:
            to[i] = sqrtf(a[i]);
            break;
        case TRM_WEIGHT_CAST:
        case TRM_WEIGHT_OP_COUNT:
            to[i] = a[i];
            break;
        }
    }
}

/* A number as an integer from low to high; 0 for NaN. */
static int32_t round_to(float value, float low, float high)
{
    const float limited = value < low ? low : value > high ? high : value;
    return value == value ? (int32_t)lrintf(limited) : 0;
}

/* A float of 4 bits, two's neighbour with an even mantissa in the middle between them; 0 for NaN. */
static unsigned char round_to_f4(float value)
{
    static const float middles[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    const float size = fabsf(value);
    unsigned char code = 0;
    while (code < 7 && (size > middles[code] || (size == middles[code] && code % 2 == 1))) {
        code++;
    }
    return (unsigned char)(code | (signbit(value) && code > 0 ? 8 : 0));
}

static unsigned char exponent_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (unsigned char)((bits + (1u << 21)) >> 23);
}

/* Rounds results to their type. */
static void store(trm_dtype dtype, const float *numbers, size_t count, unsigned char *to)
{
    for (size_t i = 0; i < count && dtype == TRM_F8E4M3; i++) {
        to[i] = trm_f32_to_f8e4m3(numbers[i]);
    }
    for (size_t i = 0; i < count && dtype == TRM_F4E2M1; i++) {
        to[i] = round_to_f4(numbers[i]);
    }
    for (size_t i = 0; i < count && dtype == TRM_F8E8M0; i++) {
        to[i] = exponent_of(numbers[i]);
    }
    for (size_t i = 0; i < count && dtype == TRM_I8; i++) {
        to[i] = (unsigned char)round_to(numbers[i], -128.0f, 127.0f);
    }
    for (size_t i = 0; i < count && dtype == TRM_U8; i++) {
        to[i] = (unsigned char)(round_to(numbers[i], -8.0f, 7.0f) + 8);
    }
    if (trm_dtype_size(dtype) > 1) {
        trm_convert(TRM_F32, numbers, dtype, to, count);
    }
}

/* How many of `count` elements from `start` on come of elements of a part that lie in a row. */
static size_t in_a_row(const trm_weight_base *base, int32_t part, size_t start, size_t count)
{
    const size_t inner = base->inner[part], whole = inner * base->parts[part]->count;
    const size_t left = whole - start % whole;
    return left < count ? left : count;
}

void trm_weight_read_computed(const trm_weight_base *base, size_t start, size_t count, unsigned char *to,
                              void (*read)(void *call, const trm_weight *part, size_t first, size_t count, float *to),
                              void *call)
{
    float numbers[2][BLOCK];
    const size_t size = trm_dtype_size(base->dtype);
    while (count > 0) {
        size_t n = count < BLOCK ? count : BLOCK;
        for (int32_t i = 0; i < base->n_parts; i++) {
            n = in_a_row(base, i, start, n);
        }
        for (int32_t i = 0; i < base->n_parts; i++) {
            const size_t inner = base->inner[i], first = start / inner, last = (start + n - 1) / inner;
            float *at = numbers[i];
            read(call, base->parts[i], first % base->parts[i]->count, last - first + 1, at);
            for (size_t k = n; inner > 1 && k-- > 0;) { /* from the end: each moves to where it is or behind */
                at[k] = at[(start + k) / inner - first];
            }
        }
        compute(base->op, numbers[0], numbers[1], n, numbers[0]);
        store(base->dtype, numbers[0], n, to);
        start += n;
        to += n * size;
        count -= n;
    }
}

void trm_weight_compute_apart(const trm_weight_base *base, const size_t *places, size_t count, unsigned char *to,
                              void (*read)(void *call, const trm_weight *part, const size_t *elements, size_t count,
                                           float *to),
                              void *call)
{
    float numbers[2][TRM_WEIGHT_MOST_APART];
    size_t elements[TRM_WEIGHT_MOST_APART];
    for (int32_t i = 0; i < base->n_parts; i++) {
        for (size_t k = 0; k < count; k++) {
            elements[k] = places[k] / base->inner[i] % base->parts[i]->count;
        }
        read(call, base->parts[i], elements, count, numbers[i]);
    }
    compute(base->op, numbers[0], numbers[1], count, numbers[0]);
    store(base->dtype, numbers[0], count, to);
}
