/* Arithmetic of layers on constants as arithmetic on weights. */
#include "graph/passes/weight_math.h"

#include <string.h>

#include "base/error.h"
#include "base/half.h"

static bool is_number(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16;
}

/* Whether all elements in the network are one number. */
static bool is_uniform(const trm_tensor *constant, float *number)
{
    const size_t size = trm_dtype_size(constant->dtype), bytes = trm_dims_bytes(&constant->dims, constant->dtype);
    const unsigned char *elements = constant->value;
    uint16_t half;
    if (bytes == 0 || memcmp(elements, elements + size, bytes - size) != 0) {
        return false;
    }
    memcpy(&half, elements, sizeof(half));
    if (constant->dtype == TRM_F32) {
        memcpy(number, elements, sizeof(*number));
    } else {
        *number = constant->dtype == TRM_F16 ? trm_f16_to_f32(half) : trm_bf16_to_f32(half);
    }
    return *number - *number == 0; /* finite */
}

trm_status trm_weight_math_operand(const trm_tensor *constant, const trm_dims *dims, trm_weight **weight)
{
    trm_weight *whole = NULL, *rounded = NULL;
    float number;
    *weight = NULL;
    if (!is_number(constant->dtype) || (constant->weight != NULL && !is_number(trm_weight_dtype(constant->weight)))) {
        return TRM_OK;
    }
    if (constant->weight == NULL && !is_uniform(constant, &number)) {
        return TRM_OK;
    }
    TRM_TRY(constant->weight != NULL ? trm_weight_clone(constant->weight, &whole)
                                     : trm_weight_random(constant->dtype, &constant->dims, 0, number, 0, &whole));
    trm_status status = TRM_OK;
    if (trm_weight_dtype(whole) != constant->dtype && constant->dtype != TRM_F32) {
        status = trm_weight_math_compute(TRM_WEIGHT_CAST, constant->dtype, whole, NULL, &rounded);
        trm_weight_destroy(whole);
        whole = rounded;
    }
    if (status == TRM_OK && whole != NULL && dims != NULL) {
        status = trm_weight_reshape(whole, dims, weight);
        trm_weight_destroy(whole);
    } else {
        *weight = whole;
    }
    return status;
}

trm_status trm_weight_math_compute(trm_weight_op op, trm_dtype dtype, const trm_weight *a, const trm_weight *b,
                                   trm_weight **computed)
{
    trm_weight *made = NULL;
    const trm_status status = trm_weight_compute(op, dtype, a, b, &made);
    *computed = status == TRM_OK ? made : NULL;
    return status == TRM_ERROR_INVALID_ARGUMENT || status == TRM_ERROR_UNSUPPORTED ? TRM_OK : status;
}

static bool find_op(const trm_layer_desc *desc, trm_weight_op *op)
{
    static const struct {
        trm_elementwise_op from;
        trm_weight_op to;
    } pairs[] = {{TRM_ELEMENTWISE_ADD, TRM_WEIGHT_ADD},
                 {TRM_ELEMENTWISE_SUB, TRM_WEIGHT_SUBTRACT},
                 {TRM_ELEMENTWISE_MUL, TRM_WEIGHT_MULTIPLY},
                 {TRM_ELEMENTWISE_DIV, TRM_WEIGHT_DIVIDE}};
    if (desc->kind == TRM_LAYER_CAST || (desc->kind == TRM_LAYER_UNARY && desc->unary.op == TRM_UNARY_SQRT)) {
        *op = desc->kind == TRM_LAYER_CAST ? TRM_WEIGHT_CAST : TRM_WEIGHT_ROOT;
        return true;
    }
    for (size_t i = 0; desc->kind == TRM_LAYER_ELEMENTWISE && i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (pairs[i].from == desc->elementwise.op) {
            *op = pairs[i].to;
            return true;
        }
    }
    return false;
}

trm_status trm_weight_math_of_layer(const trm_layer *layer, trm_weight **computed)
{
    trm_weight *operands[2] = {NULL, NULL};
    trm_weight_op op;
    bool of_weights = false;
    *computed = NULL;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        of_weights = of_weights || (layer->inputs[i] != NULL && layer->inputs[i]->weight != NULL);
    }
    if (!of_weights || layer->n_inputs > 2 || layer->n_outputs != 1 || !is_number(layer->outputs[0]->dtype) ||
        !find_op(&layer->desc, &op)) {
        return TRM_OK;
    }
    trm_status status = TRM_OK;
    int32_t n = 0;
    while (status == TRM_OK && n < layer->n_inputs) {
        status = trm_weight_math_operand(layer->inputs[n], NULL, &operands[n]);
        if (operands[n] == NULL) {
            break;
        }
        n++;
    }
    if (status == TRM_OK && n == layer->n_inputs) {
        status = trm_weight_math_compute(op, layer->outputs[0]->dtype, operands[0], operands[1], computed);
    }
    trm_weight_destroy(operands[0]);
    trm_weight_destroy(operands[1]);
    return status;
}
