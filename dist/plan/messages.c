/* Converts texts, types, dims and layers to messages of plan files, and back. */
#include "dist/plan/messages.h"

#include <string.h>

#include "base/error.h"
#include "graph/kinds/kind.h"
#include "kernels/fused/fused.h"

/* ---- put ----------------------------------------------------------------------------------------------- */

trm_status trm_plan_copy_text(trm_arena *arena, const char *text, char **copy)
{
    if (!trm_plan_is_text(text, strlen(text))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a plan file cannot hold the name \"%s\": it has control characters",
                 text);
    }
    *copy = trm_arena_strdup(arena, text);
    return *copy == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
}

/* Number of values of a field. */
static int32_t field_count(const trm_field *field, const trm_layer *layer)
{
    switch (field->type) {
    case TRM_FIELD_PERM:
        return layer->inputs[0]->dims.n;
    case TRM_FIELD_GROUPS:
        return layer->desc.collective.n_groups * layer->desc.collective.group_size;
    case TRM_FIELD_DIMS:
        return ((const trm_dims *)(const void *)((const unsigned char *)&layer->desc + field->offset))->n;
    default:
        return field->count == 0 ? 1 : field->count;
    }
}

/* Words: operation and type of each step; integers: outputs, a list of a, b and c; floats, by their bits: alpha and
 * beta. */
static trm_status put_program(trm_arena *arena, const trm_fused_elementwise_params *program,
                              Trireme__Plan__Parameter *to)
{
    const size_t steps = (size_t)program->n_steps;
    to->integers = trm_arena_array(arena, 1 + TRM_MAX_LAYER_OUTPUTS + 3 * steps, sizeof(*to->integers));
    to->floats = trm_arena_array(arena, 2 * steps, sizeof(*to->floats));
    to->words = trm_arena_array(arena, 2 * steps, sizeof(*to->words));
    if (to->integers == NULL || to->floats == NULL || to->words == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    to->integers[to->n_integers++] = program->n_outputs;
    for (int32_t i = 0; i < program->n_outputs; i++) {
        to->integers[to->n_integers++] = program->outputs[i];
    }
    for (int32_t i = 0; i < program->n_steps; i++) {
        const trm_fused_step *step = &program->steps[i];
        TRM_TRY(trm_plan_copy_text(arena, trm_fused_op_name(step->op), &to->words[to->n_words++]));
        TRM_TRY(trm_plan_copy_text(arena, trm_dtype_name(step->type), &to->words[to->n_words++]));
        to->integers[to->n_integers++] = step->a;
        to->integers[to->n_integers++] = step->b;
        to->integers[to->n_integers++] = step->c;
        memcpy(&to->floats[to->n_floats++], &step->alpha, sizeof(step->alpha));
        memcpy(&to->floats[to->n_floats++], &step->beta, sizeof(step->beta));
    }
    return TRM_OK;
}

static trm_status put_parameter(trm_arena *arena, const trm_layer *layer, const trm_field *field,
                                Trireme__Plan__Parameter *to)
{
    const unsigned char *at = (const unsigned char *)&layer->desc + field->offset;
    int32_t n = field_count(field, layer);
    if (field->type == TRM_FIELD_PROGRAM) {
        return put_program(arena, &layer->desc.fused_elementwise, to);
    }
    if (field->type == TRM_FIELD_PLUGIN) {
        return trm_plan_put_plugin(arena, &layer->desc, &to->plugin);
    }
    to->integers = trm_arena_array(arena, (size_t)n + 1, sizeof(*to->integers));
    to->floats = trm_arena_array(arena, (size_t)n + 1, sizeof(*to->floats));
    to->words = trm_arena_array(arena, (size_t)n + 1, sizeof(*to->words));
    if (to->integers == NULL || to->floats == NULL || to->words == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t number = 0;
        if (field->type != TRM_FIELD_BOOL) {
            memcpy(&number, at + 4 * i, sizeof(number));
        }
        switch (field->type) {
        case TRM_FIELD_BOOL:
            to->integers[to->n_integers++] = *(const bool *)at;
            break;
        case TRM_FIELD_INT32:
        case TRM_FIELD_PERM:
        case TRM_FIELD_GROUPS:
            to->integers[to->n_integers++] = number;
            break;
        case TRM_FIELD_INT64:
            memcpy(&to->integers[to->n_integers++], at, sizeof(int64_t));
            break;
        case TRM_FIELD_DIMS:
            to->integers[to->n_integers++] = ((const trm_dims *)(const void *)at)->d[i];
            break;
        case TRM_FIELD_FLOAT:
            memcpy(&to->floats[to->n_floats++], &number, sizeof(number));
            break;
        case TRM_FIELD_DTYPE:
            TRM_TRY(trm_plan_copy_text(arena, trm_dtype_name((trm_dtype)number), &to->words[to->n_words++]));
            break;
        case TRM_FIELD_ENUM:
            TRM_TRY(trm_plan_copy_text(arena, field->values[number], &to->words[to->n_words++]));
            break;
        case TRM_FIELD_PROGRAM:
        case TRM_FIELD_PLUGIN:
            break;
        }
    }
    return TRM_OK;
}

trm_status trm_plan_put_layer(trm_arena *arena, const trm_layer *layer, Trireme__Plan__Layer **to)
{
    int32_t n_fields;
    const trm_field *fields = trm_layer_fields(layer->desc.kind, &n_fields);
    Trireme__Plan__Layer *made = trm_arena_alloc(arena, sizeof(*made));
    Trireme__Plan__Parameter *parameters = trm_arena_array(arena, (size_t)n_fields + 1, sizeof(*parameters));
    if (made == NULL || parameters == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trireme__plan__layer__init(made);
    *to = made;
    TRM_TRY(trm_plan_copy_text(arena, layer->name, &made->name));
    TRM_TRY(trm_plan_copy_text(arena, trm_layer_kind_name(layer->desc.kind), &made->kind));
    made->n_inputs = (size_t)layer->n_inputs;
    made->n_outputs = (size_t)layer->n_outputs;
    made->n_parameters = (size_t)n_fields;
    made->inputs = trm_arena_array(arena, made->n_inputs + 1, sizeof(*made->inputs));
    made->outputs = trm_arena_array(arena, made->n_outputs + 1, sizeof(*made->outputs));
    made->parameters = trm_arena_array(arena, made->n_parameters + 1, sizeof(*made->parameters));
    if (made->inputs == NULL || made->outputs == NULL || made->parameters == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        made->inputs[i] = layer->inputs[i] == NULL ? 0 : (uint32_t)layer->inputs[i]->index + 1;
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        made->outputs[i] = (uint32_t)layer->outputs[i]->index;
    }
    for (int32_t i = 0; i < n_fields; i++) {
        trireme__plan__parameter__init(&parameters[i]);
        made->parameters[i] = &parameters[i];
        TRM_TRY(trm_plan_copy_text(arena, fields[i].name, &parameters[i].name));
        TRM_TRY(put_parameter(arena, layer, &fields[i], &parameters[i]));
    }
    return TRM_OK;
}

/* ---- get ----------------------------------------------------------------------------------------------- */

trm_status trm_plan_get_dims(const char *file, const int64_t *values, size_t n, trm_dims *dims)
{
    if (n > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: a tensor or weight has too many dimensions", file);
    }
    *dims = (trm_dims){.n = (int32_t)n};
    for (size_t i = 0; i < n; i++) {
        dims->d[i] = values[i];
    }
    return TRM_OK;
}

trm_status trm_plan_get_dtype(const char *file, const char *name, bool none, int32_t *dtype)
{
    for (int32_t i = none ? 0 : 1; i < TRM_DTYPE_COUNT; i++) {
        if (strcmp(trm_dtype_name((trm_dtype)i), name) == 0) {
            *dtype = i;
            return TRM_OK;
        }
    }
    return trm_fail(TRM_ERROR_INVALID_MODEL, "%s: \"%.40s\" is not a type", file, name);
}

static trm_status check_count(const char *file, const Trireme__Plan__Parameter *from, size_t found, size_t expected)
{
    if (found != expected || from->n_integers + from->n_floats + from->n_words != found) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: parameter %s has %zu values, expected %zu", file, from->name,
                 from->n_integers + from->n_floats + from->n_words, expected);
    }
    return TRM_OK;
}

static trm_status get_int32s(const char *file, const Trireme__Plan__Parameter *from, unsigned char *to)
{
    for (size_t i = 0; i < from->n_integers; i++) {
        int32_t value = (int32_t)from->integers[i];
        if (value != from->integers[i]) {
            return trm_fail(TRM_ERROR_INVALID_MODEL, "%s: parameter %s is out of range", file, from->name);
        }
        memcpy(to + 4 * i, &value, sizeof(value));
    }
    return TRM_OK;
}

static trm_status get_words(const char *file, const trm_field *field, const Trireme__Plan__Parameter *from,
                            unsigned char *to)
{
    for (size_t i = 0; i < from->n_words; i++) {
        int32_t value = 0;
        if (field->type == TRM_FIELD_DTYPE) {
            TRM_TRY(trm_plan_get_dtype(file, from->words[i], true, &value));
        } else {
            while (field->values[value] != NULL && strcmp(field->values[value], from->words[i]) != 0) {
                value++;
            }
            if (field->values[value] == NULL) {
                TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: parameter %s has the invalid value \"%.40s\"", file, from->name,
                         from->words[i]);
            }
        }
        memcpy(to + 4 * i, &value, sizeof(value));
    }
    return TRM_OK;
}

/* The rule of the kind checks the meaning. */
static trm_status get_program(const char *file, const Trireme__Plan__Parameter *from, trm_fused_elementwise_params *to)
{
    const size_t steps = from->n_words / 2;
    const int64_t outputs = from->n_integers > 0 ? from->integers[0] : 0;
    bool fits = from->n_words % 2 == 0 && steps <= TRM_MAX_FUSED_STEPS && outputs >= 1 &&
                outputs <= TRM_MAX_LAYER_OUTPUTS && from->n_floats == 2 * steps &&
                from->n_integers == 1 + (size_t)outputs + 3 * steps;
    for (size_t i = 1; fits && i < from->n_integers; i++) {
        fits = from->integers[i] >= 0 && from->integers[i] < TRM_MAX_LAYER_INPUTS + TRM_MAX_FUSED_STEPS;
    }
    if (!fits) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: parameter %s is not a list of steps", file, from->name);
    }
    *to = (trm_fused_elementwise_params){.n_steps = (int32_t)steps, .n_outputs = (int32_t)outputs};
    for (int32_t i = 0; i < to->n_outputs; i++) {
        to->outputs[i] = (int32_t)from->integers[1 + i];
    }
    for (size_t i = 0; i < steps; i++) {
        const int64_t *operands = from->integers + 1 + outputs + 3 * i;
        int32_t op = 0, type = 0;
        while (op < TRM_FUSED_OP_COUNT && strcmp(trm_fused_op_name((trm_fused_op)op), from->words[2 * i]) != 0) {
            op++;
        }
        if (op == TRM_FUSED_OP_COUNT) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: parameter %s has operation \"%.40s\", which does not exist", file,
                     from->name, from->words[2 * i]);
        }
        TRM_TRY(trm_plan_get_dtype(file, from->words[2 * i + 1], false, &type));
        to->steps[i] = (trm_fused_step){.op = (trm_fused_op)op,
                                        .type = (trm_dtype)type,
                                        .a = (int32_t)operands[0],
                                        .b = (int32_t)operands[1],
                                        .c = (int32_t)operands[2]};
        memcpy(&to->steps[i].alpha, &from->floats[2 * i], sizeof(float));
        memcpy(&to->steps[i].beta, &from->floats[2 * i + 1], sizeof(float));
    }
    return TRM_OK;
}

static trm_status get_parameter(const char *file, const char *layer, const trm_field *field,
                                const Trireme__Plan__Parameter *from, const trm_tensor *first_input,
                                trm_layer_desc *desc)
{
    unsigned char *to = (unsigned char *)desc + field->offset;
    size_t n = field->count == 0 ? 1 : (size_t)field->count;
    trm_dims dims;
    switch (field->type) {
    case TRM_FIELD_BOOL:
        TRM_TRY(check_count(file, from, from->n_integers, 1));
        *(bool *)to = from->integers[0] != 0;
        return TRM_OK;
    case TRM_FIELD_INT64:
        TRM_TRY(check_count(file, from, from->n_integers, 1));
        memcpy(to, from->integers, sizeof(int64_t));
        return TRM_OK;
    case TRM_FIELD_DIMS:
        TRM_TRY(check_count(file, from, from->n_integers, from->n_integers));
        TRM_TRY(trm_plan_get_dims(file, from->integers, from->n_integers, &dims));
        memcpy(to, &dims, sizeof(dims));
        return TRM_OK;
    case TRM_FIELD_INT32:
        TRM_TRY(check_count(file, from, from->n_integers, n));
        return get_int32s(file, from, to);
    case TRM_FIELD_PERM:
        TRM_TRY(check_count(file, from, from->n_integers, first_input == NULL ? 0 : (size_t)first_input->dims.n));
        return get_int32s(file, from, to);
    case TRM_FIELD_GROUPS:
        TRM_TRY(check_count(file, from, from->n_integers,
                            from->n_integers <= TRM_MAX_RANKS ? from->n_integers : TRM_MAX_RANKS));
        return get_int32s(file, from, to);
    case TRM_FIELD_FLOAT:
        TRM_TRY(check_count(file, from, from->n_floats, n));
        memcpy(to, from->floats, n * sizeof(float));
        return TRM_OK;
    case TRM_FIELD_DTYPE:
    case TRM_FIELD_ENUM:
        TRM_TRY(check_count(file, from, from->n_words, n));
        return get_words(file, field, from, to);
    case TRM_FIELD_PROGRAM:
        return get_program(file, from, &desc->fused_elementwise);
    case TRM_FIELD_PLUGIN:
        return trm_plan_get_plugin(file, layer, from->plugin, &desc->plugin.layer);
    }
    return TRM_OK;
}

trm_status trm_plan_get_desc(const char *file, const Trireme__Plan__Layer *from, const trm_tensor *first_input,
                             trm_layer_desc *desc)
{
    int32_t n_fields;
    const trm_layer_kind kind = trm_kind_named(from->kind);
    if (kind == TRM_LAYER_KIND_COUNT) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: layer %s is of kind \"%.40s\", which does not exist", file, from->name,
                 from->kind);
    }
    *desc = (trm_layer_desc){.kind = kind};
    const trm_field *fields = trm_layer_fields(desc->kind, &n_fields);
    uint64_t seen = 0;
    for (size_t i = 0; i < from->n_parameters; i++) {
        int32_t k = 0;
        while (k < n_fields && strcmp(fields[k].name, from->parameters[i]->name) != 0) {
            k++;
        }
        if (k == n_fields || (seen >> k & 1) != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: layer %s has parameter \"%.40s\" %s", file, from->name,
                     from->parameters[i]->name, k == n_fields ? "that its kind lacks" : "twice");
        }
        seen |= (uint64_t)1 << k;
        TRM_TRY(get_parameter(file, from->name, &fields[k], from->parameters[i], first_input, desc));
    }
    for (int32_t k = 0; k < n_fields; k++) {
        if ((seen >> k & 1) == 0) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: layer %s has no parameter \"%s\"", file, from->name, fields[k].name);
        }
    }
    return TRM_OK;
}
