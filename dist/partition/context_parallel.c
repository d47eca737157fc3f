/*
 * Lowers context parallel attention.
 */
#include "dist/partition/context_parallel.h"

#include <inttypes.h>

#include "base/error.h"
#include "dist/parallel/world.h"
#include "graph/passes/analysis.h"

/* The layer being lowered. */
typedef struct lowering {
    trm_network *network;
    trm_layer *layer;
    trm_collective_params gather; /* of its group */
    int32_t place;                /* of the rank in the group */
    int32_t rows;                 /* axis of rows in q, k and v */
    bool cuts;                    /* whether the rank's queries do not see all keys */
    bool in_blocks;               /* cut after the block of rank `place`, since the number of keys is unknown */
    int64_t begin, end;           /* else to these */
} lowering;

/* The group that splits a layer's rows, in rank order, and this rank's position in it. */
static trm_status find_group(const trm_mesh *mesh, int32_t rank, int32_t n, trm_collective_params *group,
                             int32_t *place)
{
    const int32_t world = trm_mesh_ranks(mesh);
    *group = (trm_collective_params){.op = TRM_ALL_GATHER, .reduce = TRM_REDUCE_NONE, .n_ranks = n};
    *place = rank;
    if (n == world) {
        return TRM_OK;
    }
    if (mesh->size[TRM_AXIS_CP] != n) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "n_ranks is %" PRId32 ", expected the %" PRId32 " ranks of the mesh or the %" PRId32
                 " along its axis cp",
                 n, world, mesh->size[TRM_AXIS_CP]);
    }
    group->n_groups = world / n;
    group->group_size = n;
    int32_t at = 0;
    for (int32_t i = 0; i < world; i++) {
        if (trm_mesh_coordinate(mesh, TRM_AXIS_CP, i) == 0) {
            trm_mesh_group(mesh, TRM_AXIS_CP, i, group->groups + at);
            at += n;
        }
    }
    *place = trm_mesh_coordinate(mesh, TRM_AXIS_CP, rank);
    return TRM_OK;
}

/* Adds a layer of one tensor just before the attention. */
static trm_status put_before(lowering *l, const char *name, const trm_layer_desc *desc, trm_tensor **tensor)
{
    TRM_TRY(trm_network_add_layer(l->network, name, desc, tensor, 1, tensor));
    trm_network_move_layer(l->network, (*tensor)->producer, l->layer->index);
    return TRM_OK;
}

static trm_status put_slice(lowering *l, const char *name, int32_t axis, int64_t begin, int64_t end,
                            trm_tensor **tensor)
{
    const trm_layer_desc desc = {.kind = TRM_LAYER_SLICE,
                                 .slice = {.axis = axis, .start = begin, .end = end, .step = 1}};
    return put_before(l, name, &desc, tensor);
}

/* Slices the blocks up to this rank's from a tensor that has all of them along an axis of unknown size; all later sizes
 * are known. */
static trm_status keep_blocks(lowering *l, const char *name, int32_t axis, trm_tensor **tensor)
{
    trm_dims dims = (*tensor)->dims, apart = {.n = dims.n + 1};
    if (apart.n > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s has %d dimensions", (*tensor)->name, (int)dims.n);
    }
    apart.d[axis] = l->gather.n_ranks;
    apart.d[axis + 1] = -1;
    for (int32_t i = 0; i < dims.n; i++) {
        if (i > axis && dims.d[i] < 0) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "the size of axis %d of %s is unknown", (int)i, (*tensor)->name);
        }
        dims.d[i] = i < axis ? 0 : i == axis ? -1 : dims.d[i];
        apart.d[i > axis ? i + 1 : i] = i == axis ? apart.d[i] : dims.d[i];
    }
    const trm_layer_desc split = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = apart}};
    const trm_layer_desc join = {.kind = TRM_LAYER_RESHAPE, .reshape = {.dims = dims}};
    TRM_TRY(put_before(l, name, &split, tensor));
    TRM_TRY(put_slice(l, name, axis, 0, l->place + 1, tensor));
    return put_before(l, name, &join, tensor);
}

/* Slices the keys that this rank's queries see from an axis of all keys. */
static trm_status cut(lowering *l, const char *name, int32_t axis, trm_tensor **tensor)
{
    if (!l->cuts) {
        return TRM_OK;
    }
    return l->in_blocks ? keep_blocks(l, name, axis, tensor) : put_slice(l, name, axis, l->begin, l->end, tensor);
}

void trm_context_parallel_keys(const trm_attention_params *attention, int64_t queries, int64_t keys, int64_t first,
                               int64_t rows, int64_t *begin, int64_t *end)
{
    const int64_t last = first + (attention->causal == TRM_CAUSAL_LOWER_RIGHT ? keys - queries : 0); /* of `first` */
    *end = last + rows < 0 ? 0 : last + rows;
    *begin = attention->window > 0 && last >= attention->window ? last - attention->window + 1 : 0;
    *begin = attention->chunked && last >= 0 ? last / attention->window * attention->window : *begin;
    *begin = *begin > *end ? *end : *begin;
}

/* Finds which keys of all ranks this rank's queries see, by the causal kind. */
static trm_status find_keys(const trm_analysis *analysis, lowering *l)
{
    const trm_attention_params *p = &l->layer->desc.attention;
    const trm_tensor *q = l->layer->inputs[TRM_ATTENTION_Q], *k = l->layer->inputs[TRM_ATTENTION_K];
    const int64_t queries = q->dims.d[l->rows], keys = k->dims.d[l->rows], n = p->n_ranks;
    if (p->causal == TRM_CAUSAL_NONE) {
        return TRM_OK;
    }
    if (queries == -1 || keys == -1) {
        if (queries != keys || analysis->dim_class[q->index][l->rows] != analysis->dim_class[k->index][l->rows]) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                     "n_ranks is %" PRId32 " with a causal kind, but it is unknown whether q and k "
                     "have as many rows: give their sizes",
                     p->n_ranks);
        }
        l->in_blocks = true;
        l->cuts = l->place + 1 < p->n_ranks;
        return TRM_OK;
    }
    if (p->causal == TRM_CAUSAL_UPPER_LEFT && queries > keys) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "n_ranks is %" PRId32 " with causal upper_left, and each rank has %" PRId64 " queries and %" PRId64
                 " keys, expected no more queries than keys",
                 p->n_ranks, queries, keys);
    }
    int64_t all; /* the gather of the keys checked their size */
    if (__builtin_mul_overflow(queries, n, &all)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%" PRId32 " ranks of %" PRId64 " queries overflow", p->n_ranks, queries);
    }
    trm_context_parallel_keys(p, all, n * keys, l->place * queries, queries, &l->begin, &l->end);
    l->cuts = l->begin > 0 || l->end < n * keys;
    return TRM_OK;
}

static const char *name_of(const lowering *l, const char *what)
{
    return trm_arena_printf(&l->network->arena, "%s.%s", l->layer->name, what);
}

/* Turns this rank's keys or values into those that its queries see. */
typedef struct sharded {
    trm_tensor *tensor;
    int32_t axis;                /* of the rows */
    const trm_layer_desc *order; /* a transpose to apply last, or NULL */
} sharded;

/* Gathers before a transpose, since heads that it moves to the front would lie between a rank's rows. */
static sharded find_sharded(const lowering *l, int32_t input)
{
    sharded found = {l->layer->inputs[input], l->rows, NULL};
    const trm_layer *from = found.tensor->producer;
    if (from != NULL && from->desc.kind == TRM_LAYER_TRANSPOSE && found.tensor->pin == NULL) {
        found.order = &from->desc;
        found.axis = from->desc.transpose.perm[l->rows];
        found.tensor = from->inputs[0];
    }
    return found;
}

static trm_status gather(lowering *l, const char *name, sharded *s)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_DIST_COLLECTIVE, .collective = l->gather};
    desc.collective.axis = s->axis;
    return name == NULL ? TRM_ERROR_OUT_OF_MEMORY : put_before(l, name, &desc, &s->tensor);
}

static trm_status arrange(lowering *l, const char *name, sharded *s)
{
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(cut(l, name, s->axis, &s->tensor));
    return s->order == NULL ? TRM_OK : put_before(l, name, s->order, &s->tensor);
}

/* A mask of unknown width may have one column for all keys, which cannot be cut: expands it to one per key. */
static trm_status expand_mask(lowering *l, const char *name, const sharded *all_keys, trm_tensor **mask)
{
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    const int64_t n = all_keys->tensor->dims.d[all_keys->axis];
    const trm_layer_desc expand = {.kind = TRM_LAYER_EXPAND, .expand = {.dims = {1, {n}}}};
    if (n != -1) {
        return put_before(l, name, &expand, mask);
    }
    const trm_layer_desc count = {.kind = TRM_LAYER_SHAPE,
                                  .shape = {.start = all_keys->axis, .end = all_keys->axis + 1}};
    trm_tensor *inputs[] = {*mask, all_keys->tensor};
    TRM_TRY(put_before(l, name, &count, &inputs[1]));
    TRM_TRY(trm_network_add_layer(l->network, name, &expand, inputs, 2, mask));
    trm_network_move_layer(l->network, (*mask)->producer, l->layer->index);
    return TRM_OK;
}

/* Slices the mask's columns of the keys that this rank's queries see; one column for all keys stays. */
static trm_status arrange_mask(lowering *l, const sharded *all_keys)
{
    trm_tensor **mask = &l->layer->inputs[TRM_ATTENTION_MASK];
    const int32_t last = (*mask)->dims.n - 1;
    if (!l->cuts || last < 0 || (*mask)->dims.d[last] == 1) {
        return TRM_OK;
    }
    if ((*mask)->dims.d[last] == -1) {
        TRM_TRY(expand_mask(l, name_of(l, "mask.expand"), all_keys, mask));
    }
    sharded columns = {*mask, last, NULL};
    TRM_TRY(arrange(l, name_of(l, "mask"), &columns));
    *mask = columns.tensor;
    return TRM_OK;
}

static trm_status lower(const trm_analysis *analysis, lowering *l)
{
    trm_layer *layer = l->layer;
    sharded keys = find_sharded(l, TRM_ATTENTION_K), values = find_sharded(l, TRM_ATTENTION_V);
    TRM_TRY(gather(l, name_of(l, "keys.all_gather"), &keys));
    TRM_TRY(gather(l, name_of(l, "values.all_gather"), &values));
    TRM_TRY(find_keys(analysis, l));
    if (layer->n_inputs > TRM_ATTENTION_MASK && layer->inputs[TRM_ATTENTION_MASK] != NULL) {
        TRM_TRY(arrange_mask(l, &keys));
    }
    TRM_TRY(arrange(l, name_of(l, "keys"), &keys));
    TRM_TRY(arrange(l, name_of(l, "values"), &values));
    layer->inputs[TRM_ATTENTION_K] = keys.tensor;
    layer->inputs[TRM_ATTENTION_V] = values.tensor;
    layer->desc.attention.n_ranks = 1;
    if (layer->desc.attention.causal != TRM_CAUSAL_NONE) {
        layer->desc.attention.causal = TRM_CAUSAL_LOWER_RIGHT;
    }
    return TRM_OK;
}

static bool is_sharded(const trm_layer *layer)
{
    return layer->desc.kind == TRM_LAYER_ATTENTION && layer->desc.attention.n_ranks > 1;
}

trm_status trm_context_parallel_lower(trm_network *network, const trm_mesh *mesh, int32_t rank)
{
    trm_analysis analysis; /* number of tensors before, whose indices stay */
    TRM_TRY(trm_analysis_init(network, &analysis));
    trm_status status = TRM_OK;
    for (int32_t i = 0; i < network->n_layers && status == TRM_OK; i++) {
        trm_layer *layer = network->layers[i];
        if (!is_sharded(layer)) {
            continue;
        }
        const trm_attention_params *p = &layer->desc.attention;
        lowering l = {.network = network, .layer = layer, .rows = p->form == TRM_ATTENTION_PADDED_BNHD ? 1 : 2};
        status = find_group(mesh, rank, p->n_ranks, &l.gather, &l.place);
        status = status == TRM_OK ? lower(&analysis, &l) : status;
        if (status != TRM_OK) {
            status = trm_fail_in(status, "layer %s", layer->name);
        }
        i = layer->index;
    }
    trm_analysis_fini(&analysis);
    return status;
}
