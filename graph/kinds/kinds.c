/* The rows of all kinds, and what is read from them. */
#include "graph/kinds/kind.h"

#include <string.h>

#define ROW(kind, name) [TRM_LAYER_##kind] = &trm_kind_##name,
static const trm_kind *const rows[] = {TRM_ALL_LAYER_KINDS(ROW)};

_Static_assert(sizeof(trm_fused_elementwise_params) <= sizeof(((trm_layer_desc *)0)->reserved),
               "parameters of kinds that passes make fit into the public desc");

const trm_kind *trm_kind_row(trm_layer_kind kind)
{
    return (unsigned)kind < sizeof(rows) / sizeof(rows[0]) ? rows[kind] : NULL;
}

trm_layer_kind trm_kind_named(const char *name)
{
    int32_t kind = 0, n = sizeof(rows) / sizeof(rows[0]);
    while (kind < n && (rows[kind] == NULL || strcmp(trm_layer_kind_name((trm_layer_kind)kind), name) != 0)) {
        kind++;
    }
    return kind < n ? (trm_layer_kind)kind : TRM_LAYER_KIND_COUNT;
}

/* ---- parameters -------------------------------------------------------------------------------- */

const trm_field *trm_layer_fields(trm_layer_kind kind, int32_t *n)
{
    const trm_kind *row = trm_kind_row(kind);
    *n = row == NULL ? 0 : row->n_fields;
    return row == NULL ? NULL : row->fields;
}

void trm_layer_normalize(trm_layer_desc *desc, const trm_dims *first_input)
{
    const trm_kind *row = trm_kind_row(desc->kind);
    int32_t *axis = (int32_t *)(void *)((unsigned char *)desc + row->axis);
    if (row->axis != 0 && *axis < 0) {
        *axis += first_input->n + (row->axis_of_output ? 1 : 0);
    }
}

/* ---- shapes ------------------------------------------------------------------------------------ */

uint32_t trm_layer_value_inputs(const trm_layer_desc *desc)
{
    const trm_kind *row = trm_kind_row(desc->kind);
    return row->value_inputs_of == NULL ? row->value_inputs : row->value_inputs_of(desc);
}

int32_t trm_layer_output_count(const trm_layer_desc *desc)
{
    const trm_kind *row = trm_kind_row(desc->kind);
    if (row == NULL || row->output_count != NULL) {
        return row == NULL ? 1 : row->output_count(desc);
    }
    const bool second = row->second_output != 0 && *((const bool *)desc + row->second_output);
    return row->n_outputs > 0 ? row->n_outputs : second ? 2 : 1;
}

bool trm_layer_is_data_dependent(const trm_layer_desc *desc)
{
    return trm_kind_row(desc->kind)->set_count != NULL;
}

int64_t trm_layer_largest_count(const trm_layer_desc *desc, const trm_dims *const *input_dims)
{
    return trm_kind_row(desc->kind)->largest_count(desc, input_dims);
}

void trm_layer_set_count(const trm_layer_desc *desc, int64_t count, trm_dims *output_dims)
{
    trm_kind_row(desc->kind)->set_count(desc, count, output_dims);
}

/* ---- sharding ---------------------------------------------------------------------------------- */

trm_way trm_way_whole(void)
{
    trm_way way;
    for (int32_t i = 0; i < TRM_MAX_LAYER_INPUTS; i++) {
        way.in[i] = trm_replicated();
    }
    for (int32_t i = 0; i < TRM_MAX_LAYER_OUTPUTS; i++) {
        way.out[i] = trm_replicated();
    }
    return way;
}

trm_dims trm_sharding_local_dims(const trm_dims *dims, const trm_sharding *sharding)
{
    trm_dims local = *dims;
    if (sharding->kind == TRM_SPLIT && dims->d[sharding->axis] >= 0) {
        local.d[sharding->axis] = trm_ceil_div(dims->d[sharding->axis], sharding->parts);
    }
    return local;
}

bool trm_keeps_zero(const trm_layer *layer, uint32_t split)
{
    (void)layer;
    (void)split;
    return true;
}

bool trm_activation_keeps_zero(trm_activation activation)
{
    return activation != TRM_ACTIVATION_SIGMOID && activation != TRM_ACTIVATION_SOFTPLUS;
}

int32_t trm_layer_weight_input(const trm_layer *layer)
{
    const trm_kind *row = trm_kind_of(layer);
    return row->weight != 0 && (row->has_weight == NULL || row->has_weight(&layer->desc)) ? row->weight : -1;
}
