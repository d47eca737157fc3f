/*
 * Short forms of trm_network_add_layer: each fills in a desc.
 */
#include <trireme/network.h>

#include "base/error.h"
#include "base/recorder.h"

TRM_CALL(NULL, trm_network_add_matmul,
         (trm_network *network, const char *name, trm_tensor *a, trm_tensor *b, trm_tensor *bias, bool transpose_b,
          trm_tensor **output),
         (network, name, a, b, bias, transpose_b, output))
{
    trm_layer_desc desc = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = transpose_b}};
    trm_tensor *inputs[] = {a, b, bias};
    return trm_network_add_layer(network, name, &desc, inputs, 3, output);
}

TRM_CALL(NULL, trm_network_add_elementwise,
         (trm_network *network, const char *name, trm_elementwise_op op, trm_tensor *a, trm_tensor *b,
          trm_tensor **output),
         (network, name, op, a, b, output))
{
    trm_layer_desc desc = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {.op = op}};
    trm_tensor *inputs[] = {a, b};
    return trm_network_add_layer(network, name, &desc, inputs, 2, output);
}

TRM_CALL(NULL, trm_network_add_activation,
         (trm_network *network, const char *name, trm_activation activation, trm_tensor *input, trm_tensor **output),
         (network, name, activation, input, output))
{
    trm_layer_desc desc = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_ACTIVATION, .activation = activation}};
    return trm_network_add_layer(network, name, &desc, &input, 1, output);
}

TRM_CALL(NULL, trm_network_add_reshape,
         (trm_network *network, const char *name, trm_tensor *input, trm_dims dims, trm_tensor **output),
         (network, name, input, dims, output))
{
    trm_layer_desc desc = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = dims}};
    return trm_network_add_layer(network, name, &desc, &input, 1, output);
}

TRM_CALL(NULL, trm_network_add_collective,
         (trm_network *network, const char *name, const trm_collective_params *params, trm_tensor *input,
          trm_tensor **output),
         (network, name, params, input, output))
{
    if (params == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot add collective %s: params is NULL", name == NULL ? "" : name);
    }
    trm_layer_desc desc = {.kind = TRM_LAYER_DIST_COLLECTIVE, .collective = *params};
    return trm_network_add_layer(network, name, &desc, &input, 1, output);
}
