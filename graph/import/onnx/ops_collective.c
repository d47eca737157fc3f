/* DistCollective: exchanges between ranks, as files made by sharding tools have them. */
#include "graph/import/onnx/import.h"

static trm_collective_params read_groups(trm_onnx_node *node, trm_collective_params params)
{
    int64_t groups[TRM_MAX_RANKS];
    int32_t listed = trm_onnx_ints(node, "groups", groups, TRM_MAX_RANKS);
    int64_t group_size = trm_onnx_int(node, "group_size", 0);
    int32_t world = node->import->options->n_ranks > 0 ? node->import->options->n_ranks : 1;
    if (listed <= 0) {
        int64_t n = trm_onnx_int(node, "nb_rank", world);
        params.n_ranks = n < 1 || n > TRM_MAX_RANKS ? 0 : (int32_t)n;
        return params;
    }
    group_size = group_size == 0 ? listed : group_size;
    if (group_size < 1 || listed % group_size != 0) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute groups has %d ranks in groups of %lld", (int)listed,
                      (long long)group_size);
        return params;
    }
    params.group_size = (int32_t)group_size;
    params.n_groups = listed / params.group_size;
    params.n_ranks = params.group_size;
    for (int32_t i = 0; i < listed; i++) {
        params.groups[i] = groups[i] < 0 || groups[i] >= TRM_MAX_RANKS ? -1 : (int32_t)groups[i];
    }
    return params;
}

static void import_dist_collective(trm_onnx_node *node)
{
    static const char *const operations[] = {"all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter",
                                             "all_to_all", "gather",     "scatter",   NULL};
    static const char *const reductions[] = {"sum", "prod", "max", "min", "avg", "none", NULL};
    trm_collective_params params = {
        .op = (trm_collective_op)trm_onnx_choice(node, "collective_operation", "all_reduce", operations)};
    bool reduces = params.op == TRM_ALL_REDUCE || params.op == TRM_REDUCE || params.op == TRM_REDUCE_SCATTER;
    params.reduce = (trm_reduce_op)trm_onnx_choice(node, "reduce_op", reduces ? "sum" : "none", reductions);
    params.root = (int32_t)trm_onnx_int(node, "root", 0);
    params.root = params.root < 0 ? 0 : params.root; /* -1 where there is none */
    params.axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), node->inputs[0]->dims.n);
    params = read_groups(node, params);
    trm_layer_desc desc = {.kind = TRM_LAYER_DIST_COLLECTIVE, .collective = params};
    trm_onnx_set(node, 0, trm_onnx_add(node, &desc, node->inputs[0], NULL, NULL, NULL));
}

/* Tools put the operator into one domain or another. */
const trm_onnx_operator trm_onnx_ops_collective[] = {
    {"", "DistCollective", 1, 1, import_dist_collective, 0},
    {"trt", "DistCollective", 1, 1, import_dist_collective, 0},
    {"trt.plugins", "DistCollective", 1, 1, import_dist_collective, 0},
    {0},
};
