/* DistCollective: exchanges between ranks, as files made by sharding tools have them. */
#include "collectives/communicator.h"
#include "graph/import/onnx/import.h"

/* A rank as a file has it; what is none becomes -1, which the layer's rule refuses. */
static int32_t rank_of(int64_t rank)
{
    return rank < 0 || rank >= TRM_MAX_RANKS ? -1 : (int32_t)rank;
}

/* `groups` lists ranks; `group_size` of them are a group, 0 all that are listed. None listed: all ranks of the world.
 * `nb_rank` is what dims follow from: the size of a group. */
static void read_groups(trm_onnx_node *node, trm_collective_params *params)
{
    const int32_t world = node->import->options->n_ranks > 0 ? node->import->options->n_ranks : 1;
    int64_t groups[TRM_MAX_RANKS];
    const int32_t listed = trm_onnx_ints(node, "groups", groups, TRM_MAX_RANKS);
    int64_t size = trm_onnx_int(node, "group_size", 0);
    if (size < 0 || size > TRM_MAX_RANKS || (listed > 0 && size > 0 && listed % size != 0)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute groups has %d ranks in groups of %lld",
                      listed < 0 ? 0 : (int)listed, (long long)size);
        return;
    }
    size = size > 0 ? size : listed;
    const int64_t stated = trm_onnx_int(node, "nb_rank", size > 0 ? size : world);
    if (stated < 1 || stated > TRM_MAX_RANKS || (size > 0 && stated != size)) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute nb_rank is %lld, expected the %lld ranks of a group",
                      (long long)stated, (long long)(size > 0 ? size : world));
        return;
    }
    params->n_ranks = (int32_t)stated;
    if (listed > 0) {
        params->group_size = (int32_t)size;
        params->n_groups = listed / params->group_size;
        for (int32_t i = 0; i < listed; i++) {
            params->groups[i] = rank_of(groups[i]);
        }
    }
}

static void import_dist_collective(trm_onnx_node *node)
{
    static const char *const operations[] = {"all_reduce",     "all_gather", "broadcast", "reduce",
                                             "reduce_scatter", "all_to_all", "gather",    "scatter",
                                             "send",           "recv",       NULL};
    static const char *const reductions[] = {"sum", "prod", "max", "min", "avg", "none", NULL};
    trm_collective_params params = {
        .op = (trm_collective_op)trm_onnx_choice(node, "collective_operation", "all_reduce", operations)};
    const bool reduces = trm_collective_reduces(params.op);
    params.reduce = (trm_reduce_op)trm_onnx_choice(node, "reduce_op", reduces ? "sum" : "none", reductions);
    params.reduce = reduces ? params.reduce : TRM_REDUCE_NONE;
    const bool has_peer = params.op == TRM_SEND || params.op == TRM_RECV;
    if (has_peer && !trm_onnx_has(node, "root")) {
        trm_onnx_fail(node, TRM_ERROR_INVALID_MODEL, "attribute root is missing: the rank to send to or receive from");
        return;
    }
    const int64_t root = trm_onnx_int(node, "root", 0);
    params.root =
        trm_collective_has_root(params.op) || has_peer ? rank_of(root) : 0; /* nodes without a root often have -1 */
    if (node->inputs[0]->dims.n > 0 || trm_onnx_has(node, "axis")) {        /* numbers are reduced, too */
        params.axis = trm_onnx_axis(node, trm_onnx_int(node, "axis", 0), node->inputs[0]->dims.n);
    }
    read_groups(node, &params);
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
