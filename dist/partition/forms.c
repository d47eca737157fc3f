/*
 * Makes the forms of tensors in a rank's network: its parts of constants and states, and the conversions between forms
 * as slices and DIST_COLLECTIVE layers over groups of ranks.
 */
#include "dist/partition/emitter.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "dist/parallel/world.h"

void trm_emitter_part_range(const trm_emitter *e, const trm_tensor *tensor, const trm_sharding *form, int64_t *start,
                            int64_t *length)
{
    int64_t size = tensor->dims.d[form->axis];
    int64_t each = trm_ceil_div(size, form->parts);
    *start = trm_emitter_part(e, form) * each;
    *length = size - *start < each ? size - *start : each;
}

static trm_status cut_weight(const trm_emitter *e, const trm_tensor *tensor, const trm_sharding *form, trm_weight **cut)
{
    if (form->kind == TRM_REPLICATED) {
        return trm_weight_clone(tensor->weight, cut);
    }
    int64_t start, length, each = trm_ceil_div(tensor->dims.d[form->axis], form->parts);
    trm_emitter_part_range(e, tensor, form, &start, &length);
    trm_weight *slice;
    TRM_TRY(trm_weight_slice(tensor->weight, form->axis, start, length, &slice));
    if (length == each) {
        *cut = slice;
        return TRM_OK;
    }
    trm_status status = trm_weight_pad(slice, form->axis, each, cut);
    trm_weight_destroy(slice);
    return status;
}

/* Elements of this rank's part of an inline constant, in this call's arena. */
static const void *cut_value(trm_emitter *e, const trm_tensor *tensor, const trm_sharding *form)
{
    if (form->kind == TRM_REPLICATED) {
        return tensor->value;
    }
    int64_t start, length, each = trm_ceil_div(tensor->dims.d[form->axis], form->parts);
    trm_emitter_part_range(e, tensor, form, &start, &length);
    size_t outer = 1, inner = trm_dtype_size(tensor->dtype);
    for (int32_t i = 0; i < tensor->dims.n; i++) {
        if (i < form->axis) {
            outer *= (size_t)tensor->dims.d[i];
        } else if (i > form->axis) {
            inner *= (size_t)tensor->dims.d[i];
        }
    }
    char *to = trm_arena_alloc(&e->arena, outer * (size_t)each * inner); /* zeroed */
    const char *from = tensor->value;
    for (size_t i = 0; to != NULL && i < outer; i++) {
        memcpy(to + i * (size_t)each * inner, from + (i * (size_t)tensor->dims.d[form->axis] + (size_t)start) * inner,
               (size_t)length * inner);
    }
    return to;
}

trm_status trm_emitter_keep(trm_emitter *e, const trm_tensor *tensor, int32_t f)
{
    const trm_sharding *form = trm_emitter_form(e, tensor, f);
    trm_tensor **made = trm_emitter_slot(e, tensor, f);
    trm_dims dims = trm_sharding_local_dims(&tensor->dims, form);
    if (*made != NULL) {
        return TRM_OK;
    }
    if (tensor->role == TRM_TENSOR_STATE) {
        return trm_network_add_state(e->network, tensor->name, tensor->dtype, dims, made);
    }
    if (tensor->weight != NULL) {
        trm_weight *weight;
        TRM_TRY(cut_weight(e, tensor, form, &weight));
        return trm_network_add_weight(e->network, tensor->name, weight, tensor->dtype, made);
    }
    const void *value = cut_value(e, tensor, form);
    if (value == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    return trm_network_add_constant(e->network, tensor->name, tensor->dtype, dims, value, made);
}

/* ---- conversions ------------------------------------------------------------------------------- */

static int32_t world_size(const trm_mesh *mesh)
{
    int32_t size = 1;
    for (int32_t i = 0; i < TRM_AXIS_COUNT; i++) {
        size *= mesh->size[i];
    }
    return size;
}

void trm_emitter_list_axis_groups(const trm_mesh *mesh, trm_axis axis, trm_collective_params *params)
{
    const int32_t n = mesh->size[axis], world = world_size(mesh);
    int32_t at = 0;
    params->n_ranks = n;
    params->n_groups = n == world ? 0 : world / n;
    params->group_size = n == world ? 0 : n;
    for (int32_t i = 0; i < world && n < world; i++) {
        if (trm_mesh_coordinate(mesh, axis, i) == 0) {
            trm_mesh_group(mesh, axis, i, params->groups + at);
            at += n;
        }
    }
}

/*
 * The groups of ranks that hold the different parts. tp and cp are the innermost axes of the mesh: their groups are n
 * consecutive ranks. With fewer parts than ranks, these form n / parts groups of ranks that are n / parts apart.
 */
static void list_groups(const trm_mesh *mesh, int32_t n, int32_t parts, trm_collective_params *params)
{
    int32_t world = world_size(mesh), apart = n / parts, at = 0;
    params->n_ranks = parts;
    if (parts == world) {
        return;
    }
    params->n_groups = world / parts;
    params->group_size = parts;
    for (int32_t run = 0; run < world; run += n) {
        for (int32_t first = 0; first < apart; first++) {
            for (int32_t j = 0; j < parts; j++) {
                params->groups[at++] = run + first + j * apart;
            }
        }
    }
}

trm_status trm_partition_open_groups(const trm_mesh *mesh, const trm_partition_report *report,
                                     trm_communicator *communicator)
{
    const int32_t n = report->shares_tokens ? mesh->size[TRM_AXIS_TP] : trm_mesh_tensor_ranks(mesh);
    for (int32_t i = 0; i < report->n_parts + report->shares_batch + report->shares_tokens; i++) {
        trm_collective_params params = {.op = TRM_ALL_REDUCE};
        trm_communicator *part;
        if (i < report->n_parts) {
            list_groups(mesh, n, report->parts[i], &params);
        } else {
            const bool of_batch = i == report->n_parts && report->shares_batch;
            trm_emitter_list_axis_groups(mesh, of_batch ? TRM_AXIS_DP : TRM_AXIS_CP, &params);
        }
        TRM_TRY(trm_communicator_part(communicator, params.groups, params.n_groups, params.group_size, &part));
    }
    return TRM_OK;
}

trm_status trm_emitter_add(trm_emitter *e, const trm_tensor *tensor, const char *what, const trm_layer_desc *desc,
                           trm_tensor *input, trm_tensor **output)
{
    const char *name = trm_arena_printf(&e->arena, "%s.%s", tensor->name, what);
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    return trm_network_add_layer(e->network, name, desc, &input, 1, output);
}

static trm_status add_collective(trm_emitter *e, const trm_tensor *tensor, const char *what, trm_collective_op op,
                                 int32_t axis, int32_t parts, trm_tensor *input, trm_tensor **output)
{
    bool reduces = op == TRM_ALL_REDUCE || op == TRM_REDUCE_SCATTER;
    trm_layer_desc desc = {
        .kind = TRM_LAYER_DIST_COLLECTIVE,
        .collective = {.op = op, .reduce = reduces ? TRM_REDUCE_SUM : TRM_REDUCE_NONE, .axis = axis}};
    if (e->partitioner->shares_batch) {
        trm_emitter_list_axis_groups(e->mesh, trm_partition_batch_mesh_axis(e->partitioner), &desc.collective);
    } else {
        list_groups(e->mesh, e->partitioner->n, parts, &desc.collective);
    }
    e->report->n_collectives++;
    return trm_emitter_add(e, tensor, what, &desc, input, output);
}

trm_status trm_emitter_slice(trm_emitter *e, const trm_tensor *tensor, const char *what, int32_t axis, int64_t start,
                             int64_t end, trm_tensor *input, trm_tensor **output)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_SLICE, .slice = {.axis = axis, .start = start, .end = end, .step = 1}};
    return trm_emitter_add(e, tensor, what, &desc, input, output);
}

trm_status trm_emitter_scale_sizes(trm_emitter *e, const trm_tensor *tensor, const char *what, trm_elementwise_op op,
                                   int32_t at, int64_t factor, trm_tensor *x, trm_tensor **output)
{
    int64_t factors[TRM_MAX_DIMS];
    const trm_layer_desc desc = {.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {op}};
    const char *name = trm_arena_printf(&e->arena, "%s.%s", tensor->name, what);
    const char *name_of_factors = trm_arena_printf(&e->arena, "%s.%s.by", tensor->name, what);
    trm_tensor *inputs[2] = {x};
    if (name == NULL || name_of_factors == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    assert(x->dims.n == 1 && x->dims.d[0] <= TRM_MAX_DIMS);
    for (int32_t i = 0; i < x->dims.d[0]; i++) {
        factors[i] = i == at ? factor : 1;
    }
    TRM_TRY(trm_network_add_constant(e->network, name_of_factors, TRM_I64, x->dims, factors, &inputs[1]));
    return trm_network_add_layer(e->network, name, &desc, inputs, 2, output);
}

/* Slices this rank's part of a batch of unknown size, by its size at run time. */
static trm_status cut_batch(trm_emitter *e, const trm_tensor *tensor, const trm_sharding *form, trm_tensor *input,
                            trm_tensor **output)
{
    const trm_layer_desc count = {.kind = TRM_LAYER_SHAPE, .shape = {form->axis, form->axis + 1}};
    const trm_layer_desc cut = {.kind = TRM_LAYER_SLICE, .slice = {.axis = form->axis, .end = INT64_MAX, .step = 1}};
    const char *name = trm_arena_printf(&e->arena, "%s.part", tensor->name);
    trm_tensor *size, *inputs[3] = {input};
    if (name == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(trm_emitter_add(e, tensor, "batch", &count, input, &size));
    TRM_TRY(trm_emitter_scale_sizes(e, tensor, "share", TRM_ELEMENTWISE_DIV, 0, form->parts, size, &size));
    TRM_TRY(trm_emitter_scale_sizes(e, tensor, "begin", TRM_ELEMENTWISE_MUL, 0, trm_emitter_part(e, form), size,
                                    &inputs[1]));
    TRM_TRY(trm_emitter_scale_sizes(e, tensor, "end", TRM_ELEMENTWISE_MUL, 0, trm_emitter_part(e, form) + 1, size,
                                    &inputs[2]));
    return trm_network_add_layer(e->network, name, &cut, inputs, 3, output);
}

static trm_status convert(trm_emitter *e, const trm_tensor *tensor, trm_conversion step)
{
    const trm_sharding *from = trm_emitter_form(e, tensor, step.from), *to = trm_emitter_form(e, tensor, step.to);
    trm_tensor *input = *trm_emitter_slot(e, tensor, step.from), **output = trm_emitter_slot(e, tensor, step.to);
    e->report->seconds += e->runs * trm_partition_conversion_seconds(e->partitioner, tensor, from, to);
    e->report->bytes_exchanged += e->runs * trm_partition_conversion_bytes(e->partitioner, tensor, from, to);
    if (from->kind == TRM_REPLICATED && tensor->dims.d[to->axis] < 0) {
        return cut_batch(e, tensor, to, input, output);
    }
    if (from->kind == TRM_REPLICATED) {
        int64_t start, length;
        trm_emitter_part_range(e, tensor, to, &start, &length);
        return trm_emitter_slice(e, tensor, "part", to->axis, start, start + length, input, output);
    }
    if (from->kind == TRM_PARTIAL && to->kind == TRM_REPLICATED) {
        return add_collective(e, tensor, "all_reduce", TRM_ALL_REDUCE, 0, from->parts, input, output);
    }
    if (from->kind == TRM_PARTIAL) {
        return add_collective(e, tensor, "reduce_scatter", TRM_REDUCE_SCATTER, to->axis, to->parts, input, output);
    }
    assert(from->kind == TRM_SPLIT && to->kind == TRM_REPLICATED);
    TRM_TRY(add_collective(e, tensor, "all_gather", TRM_ALL_GATHER, from->axis, from->parts, input, output));
    if (trm_sharding_is_even(&tensor->dims, from)) {
        return TRM_OK;
    }
    return trm_emitter_slice(e, tensor, "trim", from->axis, 0, tensor->dims.d[from->axis], *output, output);
}

trm_status trm_emitter_acquire(trm_emitter *e, const trm_tensor *tensor, int32_t form)
{
    if (tensor->role == TRM_TENSOR_CONSTANT || tensor->role == TRM_TENSOR_STATE) {
        return trm_emitter_keep(e, tensor, form);
    }
    trm_conversion steps[2];
    int32_t n_steps;
    trm_partition_acquire(e->partitioner, &e->partitioner->tensors[tensor->index], form, &e->forms[tensor->index],
                          steps, &n_steps);
    for (int32_t i = 0; i < n_steps; i++) {
        if (*trm_emitter_slot(e, tensor, steps[i].to) == NULL) {
            TRM_TRY(convert(e, tensor, steps[i]));
        }
    }
    assert(*trm_emitter_slot(e, tensor, form) != NULL);
    return TRM_OK;
}

trm_status trm_emitter_arrive(trm_emitter *e, const trm_tensor *tensor, int32_t form)
{
    int32_t pin = e->partitioner->tensors[tensor->index].pin;
    e->forms[tensor->index] = 1u << form;
    if (pin >= 0) {
        TRM_TRY(trm_emitter_acquire(e, tensor, pin));
        e->forms[tensor->index] = 1u << pin;
    }
    return TRM_OK;
}
