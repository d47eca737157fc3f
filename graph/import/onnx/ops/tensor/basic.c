/* Operators that hand values on: constants, types, identities. */
#include "graph/import/onnx/import.h"

#include <string.h>

static void import_identity(trm_onnx_node *node)
{
    if (node->n_inputs == 0 || node->input_values[0] == NULL) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it has no input");
        return;
    }
    trm_onnx_set_value(node, 0, node->input_values[0]);
}

static void import_cast_to(trm_onnx_node *node, trm_dtype to)
{
    static const char *const rounds[] = {"up", "down", "nearest", NULL};
    trm_layer_desc desc = {.kind = TRM_LAYER_CAST, .cast = {.to = to}};
    desc.cast.unsaturated = !trm_onnx_flag(node, "saturate", true);
    desc.cast.round = (trm_cast_round)trm_onnx_choice(node, "round_mode", "up", rounds);
    bool plain = to == node->inputs[0]->dtype || !desc.cast.unsaturated;
    trm_onnx_set(node, 0,
                 plain && desc.cast.round == TRM_CAST_ROUND_UP
                     ? trm_onnx_cast(node, node->inputs[0], to)
                     : trm_onnx_add(node, &desc, node->inputs[0], NULL, NULL, NULL));
}

static void import_cast(trm_onnx_node *node)
{
    trm_dtype to = trm_onnx_type(node, "to", TRM_DTYPE_NONE);
    if (to == TRM_DTYPE_NONE) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "it has no attribute to");
        return;
    }
    import_cast_to(node, to);
}

static void import_cast_like(trm_onnx_node *node)
{
    import_cast_to(node, node->inputs[1]->dtype);
}

/* At inference nothing is dropped, and the mask is true everywhere. */
static void import_dropout(trm_onnx_node *node)
{
    trm_tensor *x = node->inputs[0];
    double ratio = node->opset >= 12 ? 0.5 : (double)trm_onnx_float(node, "ratio", 0.5f);
    if (node->inputs[2] != NULL && trm_onnx_input_int(node, 2, 0) != 0) {
        ratio = trm_onnx_input_float(node, 1, 0.5);
        if (ratio != 0) {
            trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "training_mode is true, expected inference");
            return;
        }
    }
    trm_onnx_set(node, 0, x);
    if (trm_onnx_wants(node, 1)) {
        trm_onnx_dim dims[TRM_MAX_DIMS];
        int32_t rank = trm_onnx_dims_of(node, x, dims);
        trm_tensor *kept = trm_onnx_scalar(node, node->opset < 10 ? x->dtype : TRM_BOOL, 1);
        trm_onnx_set(node, 1, trm_onnx_expand(node, kept, dims, rank));
    }
}

/* ---- Constant ------------------------------------------------------------------------------------------ */

static void import_constant(trm_onnx_node *node)
{
    const Onnx__AttributeProto *value = trm_onnx_attribute(node, "value");
    const Onnx__AttributeProto *sparse = trm_onnx_attribute(node, "sparse_value");
    const Onnx__AttributeProto *ints = trm_onnx_attribute(node, "value_ints");
    const Onnx__AttributeProto *floats = trm_onnx_attribute(node, "value_floats");
    if (value != NULL) {
        trm_tensor *tensor = trm_onnx_tensor(node, "value");
        if (tensor == NULL) {
            trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute value has no tensor");
            return;
        }
        trm_onnx_set(node, 0, tensor);
    } else if (sparse != NULL && sparse->sparse_tensor != NULL) {
        trm_tensor *tensor = node->import->nothing;
        node->status =
            trm_onnx_sparse_tensor_add(node->import->model, sparse->sparse_tensor, node->label, node->network, &tensor);
        trm_onnx_set(node, 0, tensor);
    } else if (trm_onnx_has(node, "value_float")) {
        float number = trm_onnx_float(node, "value_float", 0);
        trm_onnx_set(node, 0, trm_onnx_constant(node, TRM_F32, (trm_dims){0}, &number));
    } else if (trm_onnx_has(node, "value_int")) {
        trm_onnx_set(node, 0, trm_onnx_i64(node, trm_onnx_int(node, "value_int", 0)));
    } else if (ints != NULL) {
        trm_onnx_set(node, 0, trm_onnx_i64s(node, ints->ints, (int32_t)ints->n_ints));
    } else if (floats != NULL) {
        trm_dims dims = {.n = 1, .d = {(int64_t)floats->n_floats}};
        static const float none[1] = {0};
        trm_onnx_set(node, 0, trm_onnx_constant(node, TRM_F32, dims, floats->n_floats == 0 ? none : floats->floats));
    } else {
        trm_onnx_fail(node, TRM_ERROR_UNSUPPORTED, "the kind of its value is not supported");
    }
}

const trm_onnx_operator trm_onnx_ops_basic[] = {
    {"", "Identity", 1, 0, import_identity, 0},   {"", "Cast", 6, 1, import_cast, 0},
    {"", "CastLike", 15, 2, import_cast_like, 0}, {"", "Constant", 1, 0, import_constant, 0},
    {"", "Dropout", 7, 1, import_dropout, 0},     {0},
};
