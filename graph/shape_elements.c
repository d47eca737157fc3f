/* Elements of shape computations that are known before a run. */
#include "graph/shape_elements.h"

#include <string.h>

#include "kernels/movement/slice.h"

/* Most layers to follow: more than shape computations need. */
#define MOST_LAYERS 256

static const trm_shape_element unknown = {false, -1, NULL, 0};

static int32_t elements_of(const trm_tensor *tensor, int32_t *budget, trm_shape_element *elements);

static trm_shape_element number(int64_t value)
{
    return (trm_shape_element){true, value, NULL, 0};
}

static int32_t of_constant(const trm_tensor *tensor, int32_t n, trm_shape_element *elements)
{
    for (int32_t i = 0; i < n; i++) {
        elements[i] = unknown;
        if (tensor->value != NULL) {
            elements[i] = number(tensor->dtype == TRM_I64 ? ((const int64_t *)tensor->value)[i]
                                                          : ((const int32_t *)tensor->value)[i]);
        }
    }
    return n;
}

static int32_t of_shape(const trm_layer *layer, int32_t n, trm_shape_element *elements)
{
    const trm_tensor *x = layer->inputs[0];
    int32_t start = layer->desc.shape.start;
    start = start < 0 ? start + x->dims.n : start;
    start = start < 0 ? 0 : start;
    for (int32_t i = 0; i < n; i++) {
        int64_t size = x->dims.d[start + i];
        elements[i] = size >= 0 ? number(size) : (trm_shape_element){false, -1, x, start + i};
    }
    return n;
}

static int32_t of_concat(const trm_layer *layer, int32_t *budget, trm_shape_element *elements)
{
    int32_t at = 0;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        trm_shape_element part[TRM_MAX_SHAPE_ELEMENTS];
        int32_t n = elements_of(layer->inputs[i], budget, part);
        if (n < 0 || at + n > TRM_MAX_SHAPE_ELEMENTS) {
            return -1;
        }
        memcpy(elements + at, part, (size_t)n * sizeof(part[0]));
        at += n;
    }
    return at;
}

static int32_t of_slice(const trm_layer *layer, int32_t *budget, trm_shape_element *elements)
{
    trm_shape_element in[TRM_MAX_SHAPE_ELEMENTS], given[TRM_MAX_SHAPE_ELEMENTS];
    trm_slice_params slice = layer->desc.slice;
    int64_t *fields[] = {&slice.start, &slice.end, &slice.step}, first;
    int32_t n_in = elements_of(layer->inputs[0], budget, in);
    for (int32_t i = 1; i < layer->n_inputs; i++) {
        if (layer->inputs[i] != NULL) {
            if (elements_of(layer->inputs[i], budget, given) != 1 || !given[0].known) {
                return -1;
            }
            *fields[i - 1] = given[0].value;
        }
    }
    if (n_in < 0 || slice.step == 0) {
        return -1;
    }
    int64_t n = trm_slice_range(&slice, n_in, &first);
    for (int64_t i = 0; i < n; i++) {
        elements[i] = in[first + i * slice.step];
    }
    return (int32_t)n;
}

static int32_t of_gather(const trm_layer *layer, int32_t *budget, trm_shape_element *elements)
{
    trm_shape_element in[TRM_MAX_SHAPE_ELEMENTS], at[TRM_MAX_SHAPE_ELEMENTS];
    int32_t n_in = elements_of(layer->inputs[0], budget, in), n = elements_of(layer->inputs[1], budget, at);
    for (int32_t i = 0; n_in >= 0 && i < n; i++) {
        int64_t index = at[i].known && at[i].value < 0 ? at[i].value + n_in : at[i].value;
        elements[i] = at[i].known && index >= 0 && index < n_in ? in[index] : unknown;
    }
    return n_in < 0 ? -1 : n;
}

/* a op b; an element that is not a number stays itself if op does not change it. */
static trm_shape_element combine(trm_elementwise_op op, trm_dtype dtype, trm_shape_element a, trm_shape_element b)
{
    int64_t result = 0;
    bool fails = false;
    if (!a.known || !b.known) {
        bool mul = op == TRM_ELEMENTWISE_MUL, add = op == TRM_ELEMENTWISE_ADD;
        bool keeps_a = b.known && (b.value == 1 ? mul || op == TRM_ELEMENTWISE_DIV
                                                : b.value == 0 && (add || op == TRM_ELEMENTWISE_SUB));
        bool keeps_b = a.known && (a.value == 1 ? mul : a.value == 0 && add);
        return keeps_a ? a : keeps_b ? b : unknown;
    }
    switch (op) {
    case TRM_ELEMENTWISE_ADD:
        fails = __builtin_add_overflow(a.value, b.value, &result);
        break;
    case TRM_ELEMENTWISE_SUB:
        fails = __builtin_sub_overflow(a.value, b.value, &result);
        break;
    case TRM_ELEMENTWISE_MUL:
        fails = __builtin_mul_overflow(a.value, b.value, &result);
        break;
    case TRM_ELEMENTWISE_DIV:
        fails = b.value == 0 || (a.value == INT64_MIN && b.value == -1);
        result = fails ? 0 : a.value / b.value;
        break;
    case TRM_ELEMENTWISE_MIN:
        result = a.value < b.value ? a.value : b.value;
        break;
    case TRM_ELEMENTWISE_MAX:
        result = a.value > b.value ? a.value : b.value;
        break;
    default:
        fails = true;
        break;
    }
    return fails || (dtype == TRM_I32 && result != (int32_t)result) ? unknown : number(result);
}

static int32_t of_elementwise(const trm_layer *layer, int32_t n, int32_t *budget, trm_shape_element *elements)
{
    trm_shape_element a[TRM_MAX_SHAPE_ELEMENTS], b[TRM_MAX_SHAPE_ELEMENTS];
    int32_t n_a = elements_of(layer->inputs[0], budget, a), n_b = elements_of(layer->inputs[1], budget, b);
    if (n_a < 1 || n_b < 1) {
        return -1;
    }
    for (int32_t i = 0; i < n; i++) {
        elements[i] =
            combine(layer->desc.elementwise.op, layer->outputs[0]->dtype, a[n_a == 1 ? 0 : i], b[n_b == 1 ? 0 : i]);
    }
    return n;
}

static int32_t of_product(const trm_layer *layer, int32_t *budget, trm_shape_element *elements)
{
    trm_shape_element in[TRM_MAX_SHAPE_ELEMENTS];
    int32_t n = elements_of(layer->inputs[0], budget, in);
    if (n < 0 || layer->desc.reduce.op != TRM_REDUCE_PROD) {
        return -1;
    }
    elements[0] = number(1);
    for (int32_t i = 0; i < n; i++) {
        elements[0] = combine(TRM_ELEMENTWISE_MUL, layer->outputs[0]->dtype, elements[0], in[i]);
    }
    return 1;
}

/* Numbers that do not fit i32 become unknown. */
static int32_t of_cast(const trm_layer *layer, int32_t *budget, trm_shape_element *elements)
{
    int32_t n = elements_of(layer->inputs[0], budget, elements);
    for (int32_t i = 0; i < n; i++) {
        if (layer->desc.cast.to == TRM_I32 && elements[i].known && elements[i].value != (int32_t)elements[i].value) {
            elements[i] = unknown;
        }
    }
    return n;
}

static int32_t of_activation(const trm_layer *layer, int32_t n, int32_t *budget, trm_shape_element *elements)
{
    switch (layer->desc.kind) {
    case TRM_LAYER_SHAPE:
        return of_shape(layer, n, elements);
    case TRM_LAYER_CONCAT:
        return of_concat(layer, budget, elements);
    case TRM_LAYER_SLICE:
        return of_slice(layer, budget, elements);
    case TRM_LAYER_GATHER:
        return of_gather(layer, budget, elements);
    case TRM_LAYER_ELEMENTWISE:
        return of_elementwise(layer, n, budget, elements);
    case TRM_LAYER_REDUCE:
        return of_product(layer, budget, elements);
    case TRM_LAYER_RESHAPE:
        return elements_of(layer->inputs[0], budget, elements);
    case TRM_LAYER_CAST:
        return of_cast(layer, budget, elements);
    default:
        return -1;
    }
}

static int32_t elements_of(const trm_tensor *tensor, int32_t *budget, trm_shape_element *elements)
{
    bool is_vector = (tensor->dtype == TRM_I64 || tensor->dtype == TRM_I32) && tensor->dims.n <= 1;
    int64_t n = tensor->dims.n == 0 ? 1 : tensor->dims.d[0];
    if (!is_vector || n < 0 || n > TRM_MAX_SHAPE_ELEMENTS) {
        return -1;
    }
    int32_t found = -1;
    if (tensor->role == TRM_TENSOR_CONSTANT) {
        found = of_constant(tensor, (int32_t)n, elements);
    } else if (tensor->role == TRM_TENSOR_ACTIVATION && --*budget > 0) {
        found = of_activation(tensor->producer, (int32_t)n, budget, elements);
    }
    for (int32_t i = 0; found != n && i < n; i++) {
        elements[i] = unknown;
    }
    return (int32_t)n;
}

int32_t trm_shape_elements(const trm_tensor *tensor, trm_shape_element *elements)
{
    int32_t budget = MOST_LAYERS;
    return elements_of(tensor, &budget, elements);
}
