/*
 * The network as text: one line per input, state or constant, per layer, and per output. The same network gives the
 * same text, so that two stages can be compared with diff.
 *
 *   x: f32 [?, 6] = input
 *   w: bf16 [4, 6] = weight model.safetensors:layers.0.w
 *   two: i64 [2] = constant {3, 4}
 *   y: f32 [?, 4] = matmul(x, w) transpose_b
 *   output y
 */
#include "base/c_locale.h"
#include "graph/network.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/hash.h"
#include "graph/params.h"
#include "kernels/fused/fused.h"
#include "kernels/plugin/plugin.h"

#define SHOWN_ELEMENTS 8 /* elements of a constant; a hash stands for the rest */

/* ---- constants --------------------------------------------------------------------------------- */

/* The shortest text that reads back as the same number. */
static void print_float(FILE *out, float value)
{
    char text[32];
    for (int precision = 6; precision <= 9; precision++) {
        trm_c_snprintf(text, sizeof(text), "%.*g", precision, (double)value);
        if ((float)trm_c_strtod(text, NULL) == value) {
            break;
        }
    }
    fputs(text, out);
}

static void print_element(FILE *out, const void *value, trm_dtype dtype, size_t index)
{
    char text[32];
    const unsigned char *at = (const unsigned char *)value + index * trm_dtype_size(dtype);
    union {
        float f32;
        double f64;
        int8_t i8;
        int16_t i16;
        uint16_t u16;
        int32_t i32;
        uint32_t u32;
        int64_t i64;
        uint64_t u64;
    } element;
    memcpy(&element, at, trm_dtype_size(dtype));
    switch (dtype) {
    case TRM_F32:
        print_float(out, element.f32);
        break;
    case TRM_F16:
        print_float(out, trm_f16_to_f32(element.u16));
        break;
    case TRM_BF16:
        print_float(out, trm_bf16_to_f32(element.u16));
        break;
    case TRM_F64:
        trm_c_snprintf(text, sizeof(text), "%.17g", element.f64);
        fputs(text, out);
        break;
    case TRM_I8:
        fprintf(out, "%d", element.i8);
        break;
    case TRM_I16:
        fprintf(out, "%d", element.i16);
        break;
    case TRM_U16:
        fprintf(out, "%d", element.u16);
        break;
    case TRM_I32:
        fprintf(out, "%" PRId32, element.i32);
        break;
    case TRM_U32:
        fprintf(out, "%" PRIu32, element.u32);
        break;
    case TRM_I64:
        fprintf(out, "%" PRId64, element.i64);
        break;
    case TRM_U64:
        fprintf(out, "%" PRIu64, element.u64);
        break;
    default:
        fprintf(out, "%d", at[0]);
        break;
    }
}

static void print_constant(FILE *out, const trm_tensor *tensor)
{
    if (tensor->weight != NULL) {
        char source[512];
        trm_weight_describe(tensor->weight, source, sizeof(source));
        fprintf(out, "weight %s", source);
        trm_dtype stored = trm_weight_dtype(tensor->weight);
        if (stored != tensor->dtype) {
            fprintf(out, " stored=%s", trm_dtype_name(stored));
        }
        return;
    }
    size_t bytes = trm_dims_bytes(&tensor->dims, tensor->dtype), count = bytes / trm_dtype_size(tensor->dtype);
    fputs("constant {", out);
    for (size_t i = 0; i < count && i < SHOWN_ELEMENTS; i++) {
        fputs(i == 0 ? "" : ", ", out);
        print_element(out, tensor->value, tensor->dtype, i);
    }
    if (count > SHOWN_ELEMENTS) {
        fprintf(out, ", ...} hash=%016" PRIx64, trm_hash_bytes(TRM_HASH_START, tensor->value, bytes));
    } else {
        fputs("}", out);
    }
}

/* ---- layers ------------------------------------------------------------------------------------ */

static void print_int32s(FILE *out, const int32_t *values, int32_t n)
{
    fputc('[', out);
    for (int32_t i = 0; i < n; i++) {
        fprintf(out, "%s%" PRId32, i == 0 ? "" : ", ", values[i]);
    }
    fputc(']', out);
}

/* Whether one value of a field is its default. */
static bool value_is_normal(const trm_field *field, const void *at)
{
    switch (field->type) {
    case TRM_FIELD_BOOL:
        return *(const bool *)at == (field->normal != 0);
    case TRM_FIELD_INT32:
    case TRM_FIELD_DTYPE:
    case TRM_FIELD_ENUM:
        return *(const int32_t *)at == field->normal;
    case TRM_FIELD_INT64:
        return *(const int64_t *)at == field->normal;
    case TRM_FIELD_FLOAT:
        return *(const float *)at == (float)field->normal;
    case TRM_FIELD_DIMS:
        return ((const trm_dims *)at)->n == 0;
    case TRM_FIELD_PERM:
    case TRM_FIELD_GROUPS:
    case TRM_FIELD_PROGRAM:
    case TRM_FIELD_PLUGIN:
        break;
    }
    return false;
}

/* Whether a field has its default; of an array, all values, of 4 bytes each. */
static bool is_normal(const trm_field *field, const unsigned char *at)
{
    bool normal = value_is_normal(field, at);
    for (int32_t i = 1; normal && i < field->count; i++) {
        normal = value_is_normal(field, at + 4 * i);
    }
    return normal;
}

static void print_dims_param(FILE *out, const trm_dims *dims)
{
    fputc('[', out);
    for (int32_t i = 0; i < dims->n; i++) {
        fprintf(out, "%s%" PRId64, i == 0 ? "" : ", ", dims->d[i]);
    }
    fputc(']', out);
}

/* "[f32 mul(i0, i1), f32 clip(s0; 0, 6)]", and which steps are outputs unless it is the last alone. */
static void print_program(FILE *out, const trm_fused_elementwise_params *program)
{
    for (int32_t i = 0; i < program->n_steps; i++) {
        const trm_fused_step *step = &program->steps[i];
        const int32_t operands[3] = {step->a, step->b, step->c}, n = trm_fused_operands(step->op);
        fprintf(out, "%s%s %s(", i == 0 ? "[" : ", ", trm_dtype_name(step->type), trm_fused_op_name(step->op));
        for (int32_t k = 0; k < n; k++) {
            bool input = operands[k] < TRM_MAX_LAYER_INPUTS;
            fprintf(out, "%s%c%" PRId32, k == 0 ? "" : ", ", input ? 'i' : 's',
                    input ? operands[k] : operands[k] - TRM_MAX_LAYER_INPUTS);
        }
        if (step->alpha != 0 || step->beta != 0 || n == 0) {
            fputs(n == 0 ? "" : "; ", out);
            print_float(out, step->alpha);
            if (step->beta != 0) {
                fputs(", ", out);
                print_float(out, step->beta);
            }
        }
        fputc(')', out);
    }
    fputc(']', out);
    if (program->n_outputs != 1 || program->outputs[0] != program->n_steps - 1) {
        fputs(" outputs=", out);
        print_int32s(out, program->outputs, program->n_outputs);
    }
}

static void print_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        fprintf(out, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
    }
    fputc('"', out);
}

static void print_setting(FILE *out, const trm_plugin_setting *setting)
{
    const bool is_list = setting->type >= TRM_PLUGIN_INTS && setting->type <= TRM_PLUGIN_STRINGS;
    fprintf(out, " %s=%s", setting->name, is_list ? "[" : "");
    if (setting->type == TRM_PLUGIN_TENSOR) {
        char dims[TRM_DIMS_TEXT_SIZE];
        fprintf(out, "%s %s hash=%016" PRIx64, trm_dtype_name(setting->dtype), trm_dims_format(&setting->dims, dims),
                trm_hash_bytes(TRM_HASH_START, setting->data, trm_dims_bytes(&setting->dims, setting->dtype)));
        return;
    }
    for (int32_t i = 0; i < setting->count; i++) {
        fputs(i == 0 ? "" : ", ", out);
        if (setting->type == TRM_PLUGIN_STRING || setting->type == TRM_PLUGIN_STRINGS) {
            print_text(out, setting->strings[i]);
        } else if (setting->type == TRM_PLUGIN_FLOAT || setting->type == TRM_PLUGIN_FLOATS) {
            print_float(out, setting->floats[i]);
        } else {
            fprintf(out, "%" PRId64, setting->ints[i]);
        }
    }
    fputs(is_list ? "]" : "", out);
}

/* ' of="com.example.Scale 1" axis=1 ...' */
static void print_plugin(FILE *out, const trm_plugin_layer *layer)
{
    fputs(" of=", out);
    print_text(out, layer->plugin->label);
    for (int32_t i = 0; i < layer->n_settings; i++) {
        print_setting(out, &layer->settings[i]);
    }
}

static void print_value(FILE *out, const trm_field *field, const void *at)
{
    switch (field->type) {
    case TRM_FIELD_INT64:
        fprintf(out, "%" PRId64, *(const int64_t *)at);
        break;
    case TRM_FIELD_FLOAT:
        print_float(out, *(const float *)at);
        break;
    case TRM_FIELD_DTYPE:
        fputs(trm_dtype_name((trm_dtype) * (const int32_t *)at), out);
        break;
    case TRM_FIELD_ENUM:
        fputs(field->values[*(const int32_t *)at], out);
        break;
    case TRM_FIELD_DIMS:
        print_dims_param(out, at);
        break;
    case TRM_FIELD_BOOL:
        fputs(*(const bool *)at ? "true" : "false", out);
        break;
    case TRM_FIELD_INT32:
    case TRM_FIELD_PERM:
    case TRM_FIELD_GROUPS:
        fprintf(out, "%" PRId32, *(const int32_t *)at);
        break;
    case TRM_FIELD_PROGRAM:
        print_program(out, at);
        break;
    case TRM_FIELD_PLUGIN:
        break;
    }
}

static void print_field(FILE *out, const trm_field *field, const trm_layer_desc *desc, int32_t rank)
{
    const unsigned char *at = (const unsigned char *)desc + field->offset;
    int32_t n_grouped = field->type == TRM_FIELD_GROUPS ? desc->collective.n_groups * desc->collective.group_size : 0;
    if ((!field->always && is_normal(field, at)) || (field->type == TRM_FIELD_GROUPS && n_grouped == 0)) {
        return;
    }
    if (field->type == TRM_FIELD_PLUGIN) {
        print_plugin(out, trm_plugin_layer_of(desc));
        return;
    }
    fprintf(out, " %s", field->name);
    if (field->type == TRM_FIELD_BOOL && *(const bool *)(const void *)at) {
        return;
    }
    fputc('=', out);
    if (field->type == TRM_FIELD_PERM || field->type == TRM_FIELD_GROUPS) {
        print_int32s(out, (const int32_t *)(const void *)at, field->type == TRM_FIELD_PERM ? rank : n_grouped);
    } else if (field->count == 0) {
        print_value(out, field, at);
    } else {
        for (int32_t i = 0; i < field->count; i++) {
            fputs(i == 0 ? "[" : ", ", out);
            print_value(out, field, at + 4 * i);
        }
        fputc(']', out);
    }
}

static void print_tensor(FILE *out, const trm_tensor *tensor)
{
    char dims[TRM_DIMS_TEXT_SIZE];
    fprintf(out, "%s: %s %s", tensor->name, trm_dtype_name(tensor->dtype), trm_dims_format(&tensor->dims, dims));
    if (tensor->pin != NULL) {
        fprintf(out, " pin=\"%s\"", tensor->pin);
    }
}

static void print_layer(FILE *out, const trm_layer *layer)
{
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        fputs(i == 0 ? "" : ", ", out);
        print_tensor(out, layer->outputs[i]);
    }
    fprintf(out, " = %s(", trm_layer_kind_name(layer->desc.kind));
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        fprintf(out, "%s%s", i == 0 ? "" : ", ", layer->inputs[i] == NULL ? "-" : layer->inputs[i]->name);
    }
    fputc(')', out);
    int32_t n;
    const trm_field *fields = trm_layer_fields(layer->desc.kind, &n);
    int32_t rank = layer->n_inputs > 0 ? layer->inputs[0]->dims.n : 0;
    for (int32_t i = 0; i < n; i++) {
        print_field(out, &fields[i], &layer->desc, rank);
    }
    if (layer->n_outputs == 0 || strcmp(layer->name, layer->outputs[0]->name) != 0) {
        fprintf(out, " # %s", layer->name);
    }
    fputc('\n', out);
}

static void print_given(FILE *out, const trm_network *network, trm_tensor_role role)
{
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (tensor->role != role) {
            continue;
        }
        print_tensor(out, tensor);
        fputs(" = ", out);
        if (role == TRM_TENSOR_CONSTANT) {
            print_constant(out, tensor);
        } else {
            fputs(role == TRM_TENSOR_INPUT ? "input" : "state", out);
        }
        fputc('\n', out);
    }
}

char *trm_network_to_text(const trm_network *network)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return NULL;
    }
    print_given(out, network, TRM_TENSOR_INPUT);
    print_given(out, network, TRM_TENSOR_STATE);
    print_given(out, network, TRM_TENSOR_CONSTANT);
    for (int32_t i = 0; i < network->n_layers; i++) {
        print_layer(out, network->layers[i]);
    }
    for (int32_t i = 0; i < network->n_outputs; i++) {
        fprintf(out, "output %s\n", network->outputs[i]->name);
    }
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
