/*
 * The inspector: a plan, or a context after a run, as JSON: layers with parameters and kernels, tensors with types,
 * dims, places in memory and parts of whole tensors, weights with their sources, profiles and memory.
 */
#include "dist/runtime/context.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_writer.h"
#include "graph/memory_plan.h"
#include "graph/params.h"
#include "kernels/fused/fused.h"
#include "kernels/plugin/plugin.h"

#include <trireme/trireme.h>

typedef struct inspector {
    trm_json_writer w;
    const trm_plan *plan;
    const trm_context *context; /* NULL: a plan alone */
    const trm_dims *dims;       /* [n_tensors] of the last run, or the usual ones */
} inspector;

static void write_dims(trm_json_writer *w, const char *key, const trm_dims *dims)
{
    trm_json_writer_open(w, key, '[');
    for (int32_t i = 0; i < dims->n; i++) {
        trm_json_writer_integer(w, NULL, dims->d[i]);
    }
    trm_json_writer_close(w);
}

/* ---- parameters ------------------------------------------------------------------------------------ */

/* The steps of a fused layer: what each does to inputs ("i0") and to results of steps before it ("s0"). */
static void write_program(trm_json_writer *w, const char *key, const trm_fused_elementwise_params *program)
{
    trm_json_writer_open(w, key, '[');
    for (int32_t i = 0; i < program->n_steps; i++) {
        const trm_fused_step *step = &program->steps[i];
        const int32_t operands[3] = {step->a, step->b, step->c};
        trm_json_writer_open(w, NULL, '{');
        trm_json_writer_text(w, "op", trm_fused_op_name(step->op));
        trm_json_writer_text(w, "dtype", trm_dtype_name(step->type));
        trm_json_writer_open(w, "of", '[');
        for (int32_t k = 0; k < trm_fused_operands(step->op); k++) {
            char name[16];
            bool is_input = operands[k] < TRM_MAX_LAYER_INPUTS;
            snprintf(name, sizeof(name), "%c%d", is_input ? 'i' : 's',
                     is_input ? operands[k] : operands[k] - TRM_MAX_LAYER_INPUTS);
            trm_json_writer_text(w, NULL, name);
        }
        trm_json_writer_close(w);
        trm_json_writer_number(w, "alpha", (double)step->alpha);
        trm_json_writer_number(w, "beta", (double)step->beta);
        trm_json_writer_close(w);
    }
    trm_json_writer_close(w);
}

/* "plugin": {"domain": "com.example", "name": "Scale", "version": 1, "library": "...", "settings": {"axis": 1}} */
static void write_plugin(trm_json_writer *w, const trm_plugin_layer *layer)
{
    const trm_plugin *table = &layer->plugin->table;
    trm_json_writer_open(w, "plugin", '{');
    trm_json_writer_text(w, "domain", table->domain);
    trm_json_writer_text(w, "name", table->name);
    trm_json_writer_integer(w, "version", table->version);
    trm_json_writer_text(w, "library", layer->plugin->library);
    trm_json_writer_open(w, "settings", '{');
    for (int32_t i = 0; i < layer->n_settings; i++) {
        const trm_plugin_setting *setting = &layer->settings[i];
        const bool is_list = setting->type >= TRM_PLUGIN_INTS && setting->type <= TRM_PLUGIN_STRINGS;
        const char *key = is_list ? NULL : setting->name;
        if (setting->type == TRM_PLUGIN_TENSOR) {
            write_dims(w, key, &setting->dims);
            continue;
        }
        if (is_list) {
            trm_json_writer_open(w, setting->name, '[');
        }
        for (int32_t k = 0; k < setting->count; k++) {
            if (setting->type == TRM_PLUGIN_STRING || setting->type == TRM_PLUGIN_STRINGS) {
                trm_json_writer_text(w, key, setting->strings[k]);
            } else if (setting->type == TRM_PLUGIN_FLOAT || setting->type == TRM_PLUGIN_FLOATS) {
                trm_json_writer_number(w, key, (double)setting->floats[k]);
            } else {
                trm_json_writer_integer(w, key, setting->ints[k]);
            }
        }
        if (is_list) {
            trm_json_writer_close(w);
        }
    }
    trm_json_writer_close(w);
    trm_json_writer_close(w);
}

/* One value of a field; arrays have several, of 4 bytes each. */
static void write_value(trm_json_writer *w, const char *key, const trm_field *field, const void *at)
{
    switch (field->type) {
    case TRM_FIELD_BOOL:
        trm_json_writer_bool(w, key, *(const bool *)at);
        break;
    case TRM_FIELD_INT64:
        trm_json_writer_integer(w, key, *(const int64_t *)at);
        break;
    case TRM_FIELD_FLOAT:
        trm_json_writer_number(w, key, (double)*(const float *)at);
        break;
    case TRM_FIELD_DTYPE:
        trm_json_writer_text(w, key, trm_dtype_name((trm_dtype) * (const int32_t *)at));
        break;
    case TRM_FIELD_ENUM:
        trm_json_writer_text(w, key, field->values[*(const int32_t *)at]);
        break;
    case TRM_FIELD_DIMS:
        write_dims(w, key, at);
        break;
    case TRM_FIELD_INT32:
    case TRM_FIELD_PERM:
    case TRM_FIELD_GROUPS:
        trm_json_writer_integer(w, key, *(const int32_t *)at);
        break;
    case TRM_FIELD_PROGRAM:
        write_program(w, key, at);
        break;
    case TRM_FIELD_PLUGIN:
        write_plugin(w, trm_plugin_layer_of((const trm_layer_desc *)(const void *)((const char *)at - field->offset)));
        break;
    }
}

static void write_field(trm_json_writer *w, const trm_field *field, const trm_layer *layer)
{
    const unsigned char *at = (const unsigned char *)&layer->desc + field->offset;
    bool is_list = field->type == TRM_FIELD_PERM || field->type == TRM_FIELD_GROUPS || field->count > 0;
    int32_t n = field->count;
    if (field->type == TRM_FIELD_PERM) {
        n = layer->n_inputs > 0 && layer->inputs[0] != NULL ? layer->inputs[0]->dims.n : 0;
    } else if (field->type == TRM_FIELD_GROUPS) {
        n = layer->desc.collective.n_groups * layer->desc.collective.group_size;
    }
    if (!is_list) {
        write_value(w, field->name, field, at);
        return;
    }
    trm_json_writer_open(w, field->name, '[');
    for (int32_t i = 0; i < n; i++) {
        write_value(w, NULL, field, at + 4 * i);
    }
    trm_json_writer_close(w);
}

/* ---- layers ---------------------------------------------------------------------------------------- */

static void write_names(trm_json_writer *w, const char *key, trm_tensor *const *tensors, int32_t n)
{
    trm_json_writer_open(w, key, '[');
    for (int32_t i = 0; i < n; i++) {
        trm_json_writer_text(w, NULL, tensors[i] == NULL ? NULL : tensors[i]->name);
    }
    trm_json_writer_close(w);
}

/* The kernel of a layer for the current dims; NULL if unknown, or if nothing runs. */
static const trm_kernel *find_kernel(const inspector *self, const trm_layer *layer, size_t *workspace)
{
    trm_kernel_call call;
    int64_t offset;
    *workspace = 0;
    trm_plan_describe_call(layer, self->dims, &call);
    call.allow_tf32 = self->plan->allow_tf32;
    call.batch_invariant = self->plan->batch_invariant;
    if (trm_plan_layer_is_on_host(self->plan, layer) || trm_layer_hands_on(layer) || !trm_plan_call_is_known(&call) ||
        trm_layer_is_view(layer, self->dims, &offset)) {
        return NULL;
    }
    const trm_kernel *kernel = trm_kernel_find(trm_all_kernels, trm_all_kernels_count, self->plan->backend, &call);
    *workspace = kernel == NULL ? 0 : trm_plan_kernel_workspace(self->plan, kernel, &call);
    return kernel;
}

static void write_timing(trm_json_writer *w, const trm_timing *timing)
{
    trm_json_writer_text(w, "problem", timing->problem);
    trm_json_writer_open(w, "tactics", '[');
    for (int32_t i = 0; i < timing->n_tactics; i++) {
        trm_json_writer_open(w, NULL, '{');
        trm_json_writer_text(w, "tactic", timing->tactics[i].name);
        trm_json_writer_number(w, "microseconds", timing->tactics[i].microseconds);
        trm_json_writer_bool(w, "used", i == 0);
        trm_json_writer_close(w);
    }
    trm_json_writer_close(w);
}

static void write_layer(inspector *self, const trm_layer *layer)
{
    trm_json_writer *w = &self->w;
    size_t workspace;
    int32_t n;
    const trm_kernel *kernel = find_kernel(self, layer, &workspace);
    const trm_field *fields = trm_layer_fields(layer->desc.kind, &n);
    trm_json_writer_open(w, NULL, '{');
    trm_json_writer_text(w, "name", layer->name);
    trm_json_writer_text(w, "kind", trm_layer_kind_name(layer->desc.kind));
    write_names(w, "inputs", layer->inputs, layer->n_inputs);
    write_names(w, "outputs", layer->outputs, layer->n_outputs);
    trm_json_writer_open(w, "parameters", '{');
    for (int32_t i = 0; i < n; i++) {
        write_field(w, &fields[i], layer);
    }
    trm_json_writer_close(w);
    trm_json_writer_text(w, "kernel", kernel == NULL ? NULL : kernel->name);
    trm_json_writer_integer(w, "workspace", (int64_t)workspace);
    trm_json_writer_bool(w, "collective", trm_layer_collective(&layer->desc) != NULL);
    trm_json_writer_bool(w, "on_host", trm_plan_layer_is_on_host(self->plan, layer));
    if (self->context != NULL && trm_context_timing(self->context, layer->index) != NULL) {
        write_timing(w, trm_context_timing(self->context, layer->index));
    }
    trm_json_writer_close(w);
}

/* ---- tensors --------------------------------------------------------------------------------------- */

/* The region of a tensor's memory and its offset; streamed weights and tensors that a run allocates have none. */
static void write_place(inspector *self, const trm_tensor *tensor)
{
    const trm_plan *plan = self->plan;
    const trm_tensor *storage = trm_tensor_storage(tensor);
    const char *region = "activations";
    size_t offset = plan->activation_offsets[storage->index];
    if (storage->role == TRM_TENSOR_INPUT || plan->on_host[storage->index]) {
        region = "inputs";
        offset = plan->input_offsets[storage->index];
    } else if (storage->role == TRM_TENSOR_CONSTANT) {
        region = trm_streaming_weight(plan, storage) >= 0 ? "streamed" : "weights";
        offset = plan->weight_offsets[storage->index];
    } else if (storage->role == TRM_TENSOR_STATE) {
        region = "state";
        offset = plan->state_offsets[storage->index];
    } else if (plan->tensor_bytes[storage->index] == SIZE_MAX) {
        region = "run"; /* allocated by a run when its dims are known */
        offset = SIZE_MAX;
    }
    trm_json_writer_text(&self->w, "region", region);
    if (offset != SIZE_MAX) {
        trm_json_writer_integer(&self->w, "offset", (int64_t)offset);
    }
    if (storage != tensor) {
        trm_json_writer_text(&self->w, "view_of", storage->name);
    }
}

static void write_part(trm_json_writer *w, const trm_tensor_part *part)
{
    trm_json_writer_open(w, "part", '{');
    trm_json_writer_text(w, "kind", trm_part_kind_name(part->kind));
    trm_json_writer_text(w, "of", part->of);
    if (part->kind == TRM_PART_SPLIT) {
        trm_json_writer_integer(w, "axis", part->axis);
        trm_json_writer_integer(w, "whole", part->whole);
    }
    trm_json_writer_integer(w, "parts", part->parts);
    trm_json_writer_close(w);
}

static void write_tensor(inspector *self, const trm_tensor *tensor)
{
    static const char *const roles[] = {"input", "constant", "state", "activation"};
    trm_json_writer *w = &self->w;
    trm_json_writer_open(w, NULL, '{');
    trm_json_writer_text(w, "name", tensor->name);
    trm_json_writer_text(w, "role", roles[tensor->role]);
    trm_json_writer_bool(w, "output", tensor->is_output);
    trm_json_writer_text(w, "dtype", trm_dtype_name(tensor->dtype));
    write_dims(w, "dims", &tensor->dims);
    write_dims(w, self->context != NULL ? "run_dims" : "usual_dims", &self->dims[tensor->index]);
    if (tensor->role == TRM_TENSOR_INPUT || tensor->role == TRM_TENSOR_STATE) {
        write_dims(w, "largest_dims", &self->plan->max_dims[tensor->index]);
    } else if (tensor->role == TRM_TENSOR_ACTIVATION && self->plan->tensor_bytes[tensor->index] != SIZE_MAX) {
        trm_json_writer_integer(w, "largest_bytes", (int64_t)self->plan->tensor_bytes[tensor->index]);
    }
    write_place(self, tensor);
    write_part(w, &tensor->part);
    if (tensor->weight != NULL) {
        char source[512];
        trm_weight_describe(tensor->weight, source, sizeof(source));
        trm_json_writer_text(w, "source", source);
        trm_json_writer_text(w, "stored_dtype", trm_dtype_name(trm_weight_dtype(tensor->weight)));
    }
    trm_json_writer_close(w);
}

/* ---- the plan -------------------------------------------------------------------------------------- */

static void write_profiles(inspector *self)
{
    trm_json_writer *w = &self->w;
    trm_json_writer_open(w, "profiles", '[');
    for (int32_t p = 0; p < self->plan->n_profiles; p++) {
        trm_json_writer_open(w, NULL, '{');
        for (int32_t i = 0; i < self->plan->n_bounds; i++) {
            const trm_shape_bound *bound = &self->plan->bounds[i];
            if (bound->profile != p) {
                continue;
            }
            trm_json_writer_open(w, bound->tensor, '{');
            write_dims(w, "min", bound->min.n > 0 ? &bound->min : &bound->max);
            write_dims(w, "opt", bound->opt.n > 0 ? &bound->opt : &bound->max);
            write_dims(w, "max", &bound->max);
            trm_json_writer_close(w);
        }
        trm_json_writer_close(w);
    }
    trm_json_writer_close(w);
}

static void write_memory(inspector *self)
{
    trm_memory_plan memory;
    trm_json_writer *w = &self->w;
    trm_plan_memory(self->plan, &memory);
    trm_json_writer_open(w, "memory", '{');
    trm_json_writer_integer(w, "weights", (int64_t)memory.weights);
    trm_json_writer_integer(w, "staging", (int64_t)memory.staging);
    trm_json_writer_integer(w, "state", (int64_t)memory.state);
    trm_json_writer_integer(w, "activations", (int64_t)memory.activations);
    trm_json_writer_integer(w, "workspace", (int64_t)memory.workspace);
    trm_json_writer_integer(w, "total", (int64_t)memory.total);
    trm_json_writer_close(w);
}

static void write_timed(trm_json_writer *w, const trm_plan_timed *timed)
{
    trm_json_writer_text(w, "tactic", timed->name);
    trm_json_writer_number(w, "microseconds", (double)timed->nanoseconds / 1e3);
}

/* The tactics of a plan and their candidates for other sizes; layers of a context have their own. */
static void write_tactics(inspector *self)
{
    trm_json_writer *w = &self->w;
    if (self->plan->n_tactics == 0) {
        return;
    }
    trm_json_writer_text(w, "tuned_on", self->plan->device.name);
    trm_json_writer_open(w, "tactics", '[');
    for (int32_t i = 0; i < self->plan->n_tactics; i++) {
        trm_json_writer_open(w, NULL, '{');
        const trm_plan_tactic *tactic = &self->plan->tactics[i];
        trm_json_writer_text(w, "problem", tactic->problem);
        write_timed(w, &tactic->timed[0]);
        if (tactic->n > 1) {
            trm_json_writer_open(w, "others", '[');
            for (int32_t k = 1; k < tactic->n; k++) {
                trm_json_writer_open(w, NULL, '{');
                write_timed(w, &tactic->timed[k]);
                trm_json_writer_close(w);
            }
            trm_json_writer_close(w);
        }
        trm_json_writer_close(w);
    }
    trm_json_writer_close(w);
}

/* The launches of the last run, in order; with data-dependent dims, of its last part. */
static void write_launches(trm_json_writer *w, const trm_context *context)
{
    const trm_network *network = context->engine->plan->network;
    trm_json_writer_open(w, "program", '[');
    const trm_program *program = trm_context_launches(context);
    for (int32_t i = 0; i < program->n; i++) {
        const trm_launch *launch = &program->launches[i];
        const bool is_of_layer = launch->layer >= 0 && launch->layer < network->n_layers;
        trm_json_writer_open(w, NULL, '{');
        trm_json_writer_text(w, "layer", is_of_layer ? network->layers[launch->layer]->name : NULL);
        trm_json_writer_text(w, "launch", launch->name);
        trm_json_writer_integer(w, "stream", trm_context_stream_number(context, launch->stream));
        trm_json_writer_close(w);
    }
    trm_json_writer_close(w);
}

static void write_all(inspector *self)
{
    trm_json_writer *w = &self->w;
    const trm_plan *plan = self->plan;
    const trm_network *network = plan->network;
    char mesh[64];
    trm_mesh_format(&plan->mesh, mesh, sizeof(mesh));
    trm_json_writer_text(w, "version", trm_version());
    trm_json_writer_text(w, "backend", trm_backend_name(plan->backend));
    trm_json_writer_text(w, "mesh", mesh);
    trm_json_writer_integer(w, "ranks", trm_mesh_ranks(&plan->mesh));
    trm_json_writer_integer(w, "rank", plan->rank);
    trm_json_writer_bool(w, "tf32", plan->allow_tf32);
    trm_json_writer_bool(w, "batch_invariant", plan->batch_invariant);
    trm_json_writer_integer(w, "collectives", plan->partition.n_collectives);
    trm_json_writer_number(w, "bytes_exchanged", plan->partition.bytes_exchanged);
    trm_json_writer_text(w, "partition_note", plan->partition.note[0] == '\0' ? NULL : plan->partition.note);
    write_memory(self);
    write_profiles(self);
    write_tactics(self);
    trm_json_writer_open(w, "inputs", '[');
    for (int32_t i = 0; i < trm_network_input_count(network); i++) {
        trm_json_writer_text(w, NULL, trm_network_input(network, i)->name);
    }
    trm_json_writer_close(w);
    write_names(w, "outputs", network->outputs, network->n_outputs);
    trm_json_writer_open(w, "tensors", '[');
    for (int32_t i = 0; i < network->n_tensors; i++) {
        write_tensor(self, network->tensors[i]);
    }
    trm_json_writer_close(w);
    trm_json_writer_open(w, "layers", '[');
    for (int32_t i = 0; i < network->n_layers; i++) {
        write_layer(self, network->layers[i]);
    }
    trm_json_writer_close(w);
    if (self->context != NULL) {
        write_launches(w, self->context);
    }
}

static char *to_json(inspector *self)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return NULL;
    }
    trm_json_writer_begin(&self->w, out);
    write_all(self);
    trm_json_writer_end(&self->w);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

char *trm_plan_to_json(trm_plan *plan)
{
    trm_dims *dims = plan == NULL ? NULL : calloc((size_t)plan->network->n_tensors + 1, sizeof(*dims));
    if (dims == NULL || trm_plan_usual_dims(plan, 0, dims) != TRM_OK) {
        free(dims);
        return NULL;
    }
    inspector self = {.plan = plan, .dims = dims};
    char *text = to_json(&self);
    free(dims);
    return text;
}

char *trm_context_to_json(const trm_context *context)
{
    if (context == NULL) {
        return NULL;
    }
    inspector self = {.plan = context->engine->plan, .context = context, .dims = context->dims};
    return to_json(&self);
}
