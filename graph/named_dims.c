/* Named dimensions of inputs: those of one name are expected to have the same size. */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/recorder.h"
#include "graph/network.h"

TRM_CALL(NULL, trm_network_name_dim, (trm_network *network, trm_tensor *input, int32_t axis, const char *name),
         (network, input, axis, name))
{
    if (network == NULL || input == NULL || name == NULL || name[0] == '\0' || input->network != network ||
        input->role != TRM_TENSOR_INPUT || axis < 0 || axis >= input->dims.n) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "cannot name a dimension: expected an input of the network, one of its axes, a name");
    }
    if (trm_tensor_dim_name(input, axis) != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "dimension %d of input %s is named %s already", (int)axis, input->name,
                 trm_tensor_dim_name(input, axis));
    }
    if (input->dim_names == NULL) {
        input->dim_names = trm_arena_array(&network->arena, (size_t)input->dims.n, sizeof(*input->dim_names));
    }
    if (network->n_named_dims == network->named_dim_capacity) {
        const int32_t wanted = network->named_dim_capacity * 2 + 16;
        trm_named_dim *grown = trm_arena_array(&network->arena, (size_t)wanted, sizeof(*grown));
        if (grown != NULL && network->n_named_dims > 0) {
            memcpy(grown, network->named_dims, (size_t)network->n_named_dims * sizeof(*grown));
        }
        network->named_dim_capacity = grown == NULL ? network->named_dim_capacity : wanted;
        network->named_dims = grown == NULL ? network->named_dims : grown;
    }
    uint32_t last;
    const bool known = trm_map_find(&network->dim_names, name, strlen(name), &last);
    const char *kept = known ? network->named_dims[last].name : trm_arena_strdup(&network->arena, name);
    if (kept == NULL || input->dim_names == NULL || network->n_named_dims == network->named_dim_capacity) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(trm_map_set(&network->dim_names, kept, strlen(kept), (uint32_t)network->n_named_dims));
    if (known) {
        network->named_dims[last].is_last = false;
    }
    network->named_dims[network->n_named_dims++] = (trm_named_dim){kept, input, axis, known ? (int32_t)last : -1, true};
    input->dim_names[axis] = kept;
    return TRM_OK;
}

const char *trm_tensor_dim_name(const trm_tensor *tensor, int32_t axis)
{
    return tensor->dim_names == NULL || axis < 0 || axis >= tensor->dims.n ? NULL : tensor->dim_names[axis];
}

/* Warns of two sizes among the dimensions that share the name of the one at `last`; returns whether there are. */
static bool check_name(const trm_network *network, const trm_dims *dims, int32_t last, const char *where)
{
    const trm_named_dim *known = NULL;
    int64_t size = -1;
    for (int32_t i = last; i >= 0; i = network->named_dims[i].previous) {
        const trm_named_dim *dim = &network->named_dims[i];
        const int64_t found = dims == NULL ? dim->input->dims.d[dim->axis] : dims[dim->input->index].d[dim->axis];
        if (found >= 0 && size >= 0 && found != size) {
            TRM_WARN("%sdimension %s is %lld at position %d of input %s and %lld at position %d of input %s: both are "
                     "kept",
                     where, dim->name, (long long)found, (int)dim->axis, dim->input->name, (long long)size,
                     (int)known->axis, known->input->name);
            return true;
        }
        known = found >= 0 ? dim : known;
        size = found >= 0 ? found : size;
    }
    return false;
}

/* Whether a dimension of this name may differ from run to run. */
static bool is_open(const trm_network *network, int32_t last)
{
    bool open = false;
    for (int32_t i = last; i >= 0; i = network->named_dims[i].previous) {
        open = open || network->named_dims[i].input->dims.d[network->named_dims[i].axis] < 0;
    }
    return open;
}

bool trm_network_check_named_dims(const trm_network *network, const trm_dims *dims, bool open, const char *where)
{
    bool found = false;
    for (int32_t i = 0; i < network->n_named_dims; i++) {
        if (network->named_dims[i].is_last && (!open || is_open(network, i))) {
            found = check_name(network, dims, i, where) || found;
        }
    }
    return found;
}
