/*
 * Shape and type inference: what the rules share, and the run over a whole network.
 */
#include "graph/infer.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/error.h"
#include "graph/kinds/kind.h"

/* ---- dims -------------------------------------------------------------------------------------- */

const char *trm_dims_format(const trm_dims *dims, char *text)
{
    size_t at = 0;
    text[at++] = '[';
    for (int32_t i = 0; i < dims->n && i < TRM_MAX_DIMS; i++) {
        const char *comma = i == 0 ? "" : ", ";
        if (dims->d[i] == -1) {
            at += (size_t)snprintf(text + at, TRM_DIMS_TEXT_SIZE - at, "%s?", comma);
        } else {
            at += (size_t)snprintf(text + at, TRM_DIMS_TEXT_SIZE - at, "%s%" PRId64, comma, dims->d[i]);
        }
    }
    text[at++] = ']';
    text[at] = '\0';
    return text;
}

bool trm_dtype_is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16 || dtype == TRM_F64;
}

bool trm_dtype_is_integer(trm_dtype dtype)
{
    return dtype >= TRM_I8 && dtype <= TRM_U64;
}

size_t trm_dims_bytes(const trm_dims *dims, trm_dtype dtype)
{
    size_t bytes = trm_dtype_size(dtype);
    for (int32_t i = 0; i < dims->n; i++) {
        bytes *= (size_t)dims->d[i];
    }
    return bytes;
}

bool trm_dims_equal(const trm_dims *a, const trm_dims *b)
{
    bool equal = a->n == b->n;
    for (int32_t i = 0; equal && i < a->n; i++) {
        equal = a->d[i] == b->d[i];
    }
    return equal;
}

int64_t trm_dims_count_known(const trm_dims *dims)
{
    int64_t count = 1;
    for (int32_t i = 0; i < dims->n; i++) {
        if (dims->d[i] == -1) {
            return -1;
        }
        count *= dims->d[i];
    }
    return count;
}

bool trm_dims_are_known(const trm_dims *dims)
{
    bool known = true;
    for (int32_t i = 0; i < dims->n; i++) {
        known = known && dims->d[i] >= 0;
    }
    return known;
}

trm_status trm_dims_check(const trm_dims *dims, trm_dtype dtype, bool unknown_allowed)
{
    if (dims->n < 0 || dims->n > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %" PRId32 " dimensions, expected at most %d", dims->n,
                 TRM_MAX_DIMS);
    }
    char text[TRM_DIMS_TEXT_SIZE];
    size_t bytes = trm_dtype_size(dtype);
    for (int32_t i = 0; i < dims->n; i++) {
        if (dims->d[i] < (unknown_allowed ? -1 : 0)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found dims %s, expected %s", trm_dims_format(dims, text),
                     unknown_allowed ? "sizes of at least 0, or -1 for unknown" : "known sizes of at least 0");
        }
        /* A dimension of zero must not hide that the others overflow. */
        if (dims->d[i] > 0 && (!trm_checked_mul(bytes, (size_t)dims->d[i], &bytes) || bytes > PTRDIFF_MAX)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "dims %s of %s do not fit into memory", trm_dims_format(dims, text),
                     trm_dtype_name(dtype));
        }
    }
    return TRM_OK;
}

bool trm_dim_fits(int64_t a, int64_t b)
{
    return a == -1 || b == -1 || a == b;
}

int64_t trm_dim_known(int64_t a, int64_t b)
{
    return a == -1 ? b : a;
}

/* ---- checks of rules --------------------------------------------------------------------------- */

bool trm_infer_has(const trm_infer_call *call, int32_t input)
{
    return input < call->n_inputs && call->dims[input] != NULL;
}

trm_status trm_infer_require_inputs(const trm_infer_call *call, int32_t least, int32_t most)
{
    if (call->n_inputs < least || call->n_inputs > most) {
        if (least == most) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %" PRId32 " inputs, expected %" PRId32, call->n_inputs, least);
        }
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %" PRId32 " inputs, expected %" PRId32 " to %" PRId32,
                 call->n_inputs, least, most);
    }
    for (int32_t i = 0; i < least; i++) {
        if (call->dims[i] == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %" PRId32 " is not given", i);
        }
    }
    return TRM_OK;
}

trm_status trm_infer_require_rank(const trm_infer_call *call, int32_t input, const char *what, int32_t rank)
{
    char text[TRM_DIMS_TEXT_SIZE];
    if (call->dims[input]->n != rank) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has dims %s, expected %" PRId32 " dimensions", what,
                 trm_dims_format(call->dims[input], text), rank);
    }
    return TRM_OK;
}

trm_status trm_infer_require_dtype(const trm_infer_call *call, int32_t input, const char *what, trm_dtype dtype)
{
    if (call->dtypes[input] != dtype) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has type %s, expected %s", what, trm_dtype_name(call->dtypes[input]),
                 trm_dtype_name(dtype));
    }
    return TRM_OK;
}

trm_status trm_infer_require_float(const trm_infer_call *call, int32_t input, const char *what)
{
    if (!trm_dtype_is_float(call->dtypes[input])) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has type %s, expected a float type", what,
                 trm_dtype_name(call->dtypes[input]));
    }
    return TRM_OK;
}

trm_status trm_infer_require_dims(const trm_infer_call *call, int32_t input, const char *what, trm_dims expected)
{
    const trm_dims *found = call->dims[input];
    bool fits = found->n == expected.n;
    for (int32_t i = 0; fits && i < expected.n; i++) {
        fits = trm_dim_fits(found->d[i], expected.d[i]);
    }
    if (!fits) {
        char found_text[TRM_DIMS_TEXT_SIZE], expected_text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has dims %s, expected %s", what, trm_dims_format(found, found_text),
                 trm_dims_format(&expected, expected_text));
    }
    return TRM_OK;
}

trm_status trm_infer_require_activation(trm_activation activation)
{
    if ((unsigned)activation > TRM_ACTIVATION_SOFTSIGN) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found activation %d, expected 0 to %d", (int)activation,
                 (int)TRM_ACTIVATION_SOFTSIGN);
    }
    return TRM_OK;
}

trm_status trm_infer_axis(int32_t axis, int32_t rank, int32_t *normal)
{
    if (axis < -rank || axis >= rank) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found axis %" PRId32 ", expected an axis of %" PRId32 " dimensions", axis,
                 rank);
    }
    *normal = axis < 0 ? axis + rank : axis;
    return TRM_OK;
}

trm_status trm_infer_broadcast(const trm_dims *a, const trm_dims *b, int32_t skip, trm_dims *out)
{
    int32_t rank_a = a->n - skip, rank_b = b->n - skip;
    out->n = rank_a > rank_b ? rank_a : rank_b;
    for (int32_t i = 0; i < out->n; i++) {
        int32_t at_a = i - (out->n - rank_a), at_b = i - (out->n - rank_b);
        int64_t of_a = at_a < 0 ? 1 : a->d[at_a], of_b = at_b < 0 ? 1 : b->d[at_b];
        if (of_a == 1) {
            out->d[i] = of_b;
        } else if (of_b == 1 || trm_dim_fits(of_a, of_b)) {
            out->d[i] = of_b == 1 ? of_a : trm_dim_known(of_a, of_b);
        } else {
            char text_a[TRM_DIMS_TEXT_SIZE], text_b[TRM_DIMS_TEXT_SIZE];
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "dims %s and %s do not broadcast", trm_dims_format(a, text_a),
                     trm_dims_format(b, text_b));
        }
    }
    return TRM_OK;
}

trm_status trm_infer_values(const trm_infer_call *call, int32_t input, const char *what, int64_t count, int64_t *values,
                            bool *known)
{
    if (call->dtypes[input] != TRM_I64) {
        TRM_TRY(trm_infer_require_dtype(call, input, what, TRM_I32));
    }
    *known = call->values != NULL && call->values[input] != NULL;
    if (!*known) {
        return TRM_OK;
    }
    int64_t found = call->dims[input]->n == 0 ? 1 : call->dims[input]->d[0]; /* a scalar or a vector */
    if (found != count) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has %" PRId64 " values, expected %" PRId64, what, found, count);
    }
    for (int64_t i = 0; i < count; i++) {
        values[i] = call->dtypes[input] == TRM_I64 ? ((const int64_t *)call->values[input])[i]
                                                   : ((const int32_t *)call->values[input])[i];
    }
    return TRM_OK;
}

/* The rank given by a value input of sizes: its number of elements. */
static trm_status rank_of_sizes(const trm_infer_call *call, int32_t input, const char *what, int32_t *rank)
{
    TRM_TRY(trm_infer_require_rank(call, input, what, 1));
    int64_t n = call->dims[input]->d[0];
    if (n < 0 || n > TRM_MAX_DIMS) {
        char text[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has dims %s, expected a known number of sizes, at most %d", what,
                 trm_dims_format(call->dims[input], text), TRM_MAX_DIMS);
    }
    *rank = (int32_t)n;
    return TRM_OK;
}

trm_status trm_infer_sizes(const trm_infer_call *call, int32_t input, const char *what, trm_dims *sizes, bool *known)
{
    *sizes = (trm_dims){0};
    TRM_TRY(rank_of_sizes(call, input, what, &sizes->n));
    return trm_infer_values(call, input, what, sizes->n, sizes->d, known);
}

trm_status trm_infer_same(const trm_infer_call *call, int32_t input)
{
    call->output_dims[0] = *call->dims[input];
    call->output_dtypes[0] = call->dtypes[input];
    return TRM_OK;
}

/* ---- a layer ----------------------------------------------------------------------------------- */

trm_status trm_infer_layer(const trm_layer_desc *desc, int32_t n_inputs, const trm_dims *const *input_dims,
                           const trm_dtype *input_types, const void *const *input_values, int32_t n_outputs,
                           trm_dims *output_dims, trm_dtype *output_types)
{
    const trm_kind *kind = trm_kind_row(desc->kind);
    if (kind == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found layer kind %d, expected 0 to %d", (int)desc->kind,
                 TRM_LAYER_KIND_COUNT - 1);
    }
    int32_t expected = trm_layer_output_count(desc);
    if (n_outputs != expected) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %" PRId32 " outputs, expected %" PRId32, n_outputs, expected);
    }
    while (n_inputs > 0 && input_dims[n_inputs - 1] == NULL) {
        n_inputs--;
    }
    trm_infer_call call = {desc, n_inputs, input_dims, input_types, input_values, output_dims, output_types};
    for (int32_t i = 0; i < n_outputs; i++) {
        output_dims[i] = (trm_dims){0};
        output_types[i] = TRM_DTYPE_NONE;
    }
    TRM_TRY(kind->infer(&call));
    for (int32_t i = 0; i < n_outputs; i++) {
        TRM_TRY(trm_dims_check(&output_dims[i], output_types[i], true));
    }
    return TRM_OK;
}

/* ---- a whole network --------------------------------------------------------------------------- */

/* The caller's dims for an input or state must match its declared ones. */
static trm_status check_given(const trm_tensor *tensor, const trm_dims *given)
{
    bool fits = given->n == tensor->dims.n;
    for (int32_t i = 0; fits && i < given->n; i++) {
        fits = given->d[i] >= 0 && trm_dim_fits(given->d[i], tensor->dims.d[i]);
    }
    if (!fits) {
        char found[TRM_DIMS_TEXT_SIZE], expected[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s %s has dims %s, expected %s",
                 tensor->role == TRM_TENSOR_STATE ? "state" : "input", tensor->name, trm_dims_format(given, found),
                 trm_dims_format(&tensor->dims, expected));
    }
    trm_status status = trm_dims_check(given, tensor->dtype, false);
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "%s", tensor->name);
}

/* What a rule gives must fit what the network has from it. */
static trm_status check_declared(const trm_layer *layer, const trm_tensor *output, const trm_dims *dims,
                                 trm_dtype dtype)
{
    bool fits = dims->n == output->dims.n && dtype == output->dtype;
    for (int32_t k = 0; fits && k < dims->n; k++) {
        fits = trm_dim_fits(dims->d[k], output->dims.d[k]);
    }
    if (!fits) {
        char found[TRM_DIMS_TEXT_SIZE], expected[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s %s gives output %s as %s %s, and gave %s %s when the network was made",
                 trm_layer_kind_name(layer->desc.kind), layer->name, output->name, trm_dtype_name(dtype),
                 trm_dims_format(dims, found), trm_dtype_name(output->dtype), trm_dims_format(&output->dims, expected));
    }
    return TRM_OK;
}

trm_status trm_infer_in_network(const trm_layer *layer, const void *const *values, trm_dims *dims)
{
    const trm_dims *input_dims[TRM_MAX_LAYER_INPUTS];
    trm_dtype input_types[TRM_MAX_LAYER_INPUTS], output_types[TRM_MAX_LAYER_OUTPUTS];
    trm_dims output_dims[TRM_MAX_LAYER_OUTPUTS];
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        input_dims[i] = input == NULL ? NULL : &dims[input->index];
        input_types[i] = input == NULL ? TRM_DTYPE_NONE : input->dtype;
    }
    trm_status status = trm_infer_layer(&layer->desc, layer->n_inputs, input_dims, input_types, values,
                                        layer->n_outputs, output_dims, output_types);
    if (status != TRM_OK) {
        return trm_fail_in(status, "%s %s", trm_layer_kind_name(layer->desc.kind), layer->name);
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        if (trm_kind_is(layer, TRM_KIND_FOREIGN)) {
            TRM_TRY(check_declared(layer, layer->outputs[i], &output_dims[i], output_types[i]));
        }
        dims[layer->outputs[i]->index] = output_dims[i];
    }
    return TRM_OK;
}

trm_status trm_infer_start(const trm_tensor *tensor, trm_dims *dims)
{
    if (tensor->role == TRM_TENSOR_CONSTANT) {
        *dims = tensor->dims;
        return TRM_OK;
    }
    return tensor->role == TRM_TENSOR_ACTIVATION ? TRM_OK : check_given(tensor, dims);
}

trm_status trm_infer_network(const trm_network *network, trm_dims *dims)
{
    for (int32_t i = 0; i < network->n_tensors; i++) {
        TRM_TRY(trm_infer_start(network->tensors[i], &dims[i]));
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        const void *values[TRM_MAX_LAYER_INPUTS];
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            values[k] = layer->inputs[k] == NULL ? NULL : layer->inputs[k]->value;
        }
        TRM_TRY(trm_infer_in_network(layer, values, dims));
    }
    return TRM_OK;
}
