/* Operators that take or place elements by index, and that order them. */
#include "graph/import/onnx/ops/ops.h"
#include "graph/import/onnx/ops/common.h"

trm_tensor *trm_onnx_positions(trm_onnx_node *node, trm_onnx_dim size)
{
    enum { MOST = 1024 };
    int64_t values[MOST];
    if (size.tensor == NULL && size.value <= MOST) {
        for (int64_t i = 0; i < size.value; i++) {
            values[i] = i;
        }
        return trm_onnx_i64s(node, values, (int32_t)size.value);
    }
    const trm_layer_desc desc = {.kind = TRM_LAYER_RANGE};
    trm_tensor *limit = size.tensor != NULL ? size.tensor : trm_onnx_i64(node, size.value);
    return trm_onnx_add(node, &desc, trm_onnx_i64(node, 0), limit, trm_onnx_i64(node, 1), NULL);
}

static int32_t rank_of(const trm_onnx_node *node, int32_t input)
{
    return node->inputs[input]->dims.n;
}

/* i32 and i64 as they are. */
static trm_tensor *indices_of(trm_onnx_node *node, int32_t input)
{
    trm_tensor *indices = node->inputs[input];
    return indices->dtype == TRM_I32 ? indices : trm_onnx_cast(node, indices, TRM_I64);
}

static void import_gather(trm_onnx_node *node)
{
    const int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), rank_of(node, 0));
    trm_onnx_set(node, 0, trm_onnx_gather(node, node->inputs[0], indices_of(node, 1), axis));
}

static void import_gather_elements(trm_onnx_node *node)
{
    const int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), rank_of(node, 0));
    const trm_layer_desc desc = {.kind = TRM_LAYER_GATHER_ELEMENTS, .gather_elements = {axis}};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], indices_of(node, 1), NULL, NULL));
}

static void import_gather_nd(trm_onnx_node *node)
{
    const int64_t batch_dims = trm_onnx_int(node, "batch_dims", 0);
    if (batch_dims < 0 || batch_dims > TRM_MAX_DIMS) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "batch_dims is %lld, expected 0 to %d", (long long)batch_dims,
                      TRM_MAX_DIMS);
        return;
    }
    const trm_layer_desc desc = {.kind = TRM_LAYER_GATHER_ND, .gather_nd = {(int32_t)batch_dims}};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], indices_of(node, 1), NULL, NULL));
}

static const char *const reductions[] = {"none", "add", "mul", "min", "max", NULL};

static void import_scatter(trm_onnx_node *node)
{
    const trm_scatter_form form = (trm_scatter_form)node->row->data;
    trm_layer_desc desc = {.kind = TRM_LAYER_SCATTER, .scatter = {.form = form}};
    desc.scatter.reduction = (trm_scatter_reduction)trm_onnx_choice(node, "reduction", "none", reductions);
    if (form == TRM_SCATTER_ELEMENTS) {
        desc.scatter.axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), rank_of(node, 0));
    }
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], indices_of(node, 1), node->inputs[2], NULL));
}

static void import_one_hot(trm_onnx_node *node)
{
    const int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", -1), rank_of(node, 0) + 1);
    const trm_layer_desc desc = {.kind = TRM_LAYER_ONE_HOT, .one_hot = {axis}};
    trm_tensor *depth = trm_onnx_cast(node, node->inputs[1], TRM_I64);
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], depth, node->inputs[2], NULL));
}

static void import_reverse_sequence(trm_onnx_node *node)
{
    const int64_t batch = trm_onnx_int(node, "batch_axis", 1), time = trm_onnx_int(node, "time_axis", 0);
    const trm_layer_desc desc = {.kind = TRM_LAYER_REVERSE_SEQUENCE,
                                 .reverse_sequence = {batch == 0 ? 0 : 1, time == 0 ? 0 : 1}};
    if (batch < 0 || batch > 1 || time < 0 || time > 1 || batch == time) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL,
                      "batch_axis is %lld and time_axis %lld, expected 0 and 1, or 1 and 0", (long long)batch,
                      (long long)time);
        return;
    }
    trm_tensor *lengths = trm_onnx_cast(node, node->inputs[1], TRM_I64);
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], lengths, NULL, NULL));
}

static void import_topk(trm_onnx_node *node)
{
    const int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", -1), rank_of(node, 0));
    const trm_layer_desc desc = {.kind = TRM_LAYER_TOPK,
                                 .topk = {.axis = axis,
                                          .smallest = !trm_onnx_flag(node, "largest", true),
                                          .sorted = trm_onnx_flag(node, "sorted", true)}};
    trm_tensor *k = node->row->since < 10 ? trm_onnx_i64(node, trm_onnx_int(node, "k", -1)) : node->inputs[1];
    trm_tensor *inputs[] = {node->inputs[0], trm_onnx_cast(node, k, TRM_I64)}, *outputs[TRM_MAX_LAYER_OUTPUTS];
    trm_onnx_layer(node, &desc, inputs, 2, outputs);
    trm_onnx_set(node, 0, outputs[0]);
    trm_onnx_set(node, 1, outputs[1]);
}

/* data: 1 for the smallest. */
static void import_arg_reduce(trm_onnx_node *node)
{
    const int32_t axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), rank_of(node, 0));
    const trm_layer_desc desc = {.kind = TRM_LAYER_ARG_REDUCE,
                                 .arg_reduce = {.axis = axis,
                                                .smallest = node->row->data != 0,
                                                .last = trm_onnx_flag(node, "select_last_index", false),
                                                .keep_dims = trm_onnx_flag(node, "keepdims", true)}};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], NULL, NULL, NULL));
}

const trm_onnx_operator trm_onnx_ops_index[] = {
    {"", "Gather", 1, 2, import_gather, 0},
    {"", "GatherElements", 11, 2, import_gather_elements, 0},
    {"", "GatherND", 11, 2, import_gather_nd, 0},
    {"", "Scatter", 9, 3, import_scatter, TRM_SCATTER_ELEMENTS},
    {"", "ScatterElements", 11, 3, import_scatter, TRM_SCATTER_ELEMENTS},
    {"", "ScatterND", 11, 3, import_scatter, TRM_SCATTER_ND},
    {"", "OneHot", 9, 3, import_one_hot, 0},
    {"", "ReverseSequence", 10, 2, import_reverse_sequence, 0},
    {"", "TopK", 1, 1, import_topk, 0},
    {"", "TopK", 10, 2, import_topk, 0},
    {"", "ArgMax", 1, 1, import_arg_reduce, 0},
    {"", "ArgMin", 1, 1, import_arg_reduce, 1},
    {0},
};
