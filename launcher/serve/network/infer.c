/* Requests and replies of KServe's protocol v2. */
#include "launcher/serve/network/infer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"
#include "base/json.h"

#define VERSION "1"

/* What is read so far. */
typedef struct reader {
    infer_request *request;
    const char *raw; /* the elements behind the JSON */
    size_t left;     /* bytes of them that no input has taken */
    api_error *error;
} reader;

const char *infer_type_name(trm_dtype dtype)
{
    static const char *const names[TRM_DTYPE_COUNT] = {
        [TRM_BOOL] = "BOOL", [TRM_U8] = "UINT8",  [TRM_U16] = "UINT16", [TRM_U32] = "UINT32", [TRM_U64] = "UINT64",
        [TRM_I8] = "INT8",   [TRM_I16] = "INT16", [TRM_I32] = "INT32",  [TRM_I64] = "INT64",  [TRM_F16] = "FP16",
        [TRM_BF16] = "BF16", [TRM_F32] = "FP32",  [TRM_F64] = "FP64"};
    return (unsigned)dtype < TRM_DTYPE_COUNT ? names[dtype] : NULL;
}

/* JSON has no numbers for the types of 16-bit floats. */
static bool is_only_raw(trm_dtype dtype)
{
    return dtype == TRM_F16 || dtype == TRM_BF16;
}

static bool is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F64;
}

/* Reads a shape and compares it with the port's; *bytes: of the elements. */
static bool read_shape(const served_port *port, const trm_json *shape, trm_dims *dims, size_t *bytes, api_error *error)
{
    const size_t n = trm_json_count(shape);
    if (!trm_json_is_array(shape) || n != (size_t)port->dims.n) {
        return api_fail(error, 400, NULL, NULL, "input %s has a shape of %zu dimensions, expected %d", port->name, n,
                        (int)port->dims.n);
    }
    *dims = (trm_dims){.n = port->dims.n};
    *bytes = trm_dtype_size(port->dtype);
    int32_t i = 0;
    for (const trm_json *item = trm_json_first(shape); item != NULL; item = trm_json_next(item), i++) {
        int64_t size = -1;
        const int64_t expected = port->dims.d[i];
        if (!trm_json_integer(item, &size) || size < 0) {
            return api_fail(error, 400, NULL, NULL, "dimension %d of input %s is not an integer from 0", (int)i,
                            port->name);
        }
        if (expected >= 0 && size != expected) {
            return api_fail(error, 400, NULL, NULL, "dimension %d of input %s is %" PRId64 ", expected %" PRId64,
                            (int)i, port->name, size, expected);
        }
        if (__builtin_mul_overflow(*bytes, (size_t)size, bytes) || *bytes > PTRDIFF_MAX / 2) {
            return api_fail(error, 400, NULL, NULL, "the shape of input %s is too large", port->name);
        }
        dims->d[i] = size;
    }
    return true;
}

static bool set_element(const served_port *port, const trm_json *value, void *data, size_t i)
{
    int64_t whole = 0;
    if (port->dtype == TRM_BOOL) {
        const bool known = trm_json_is_bool(value) || (trm_json_integer(value, &whole) && (whole == 0 || whole == 1));
        ((uint8_t *)data)[i] = trm_json_truth(value, whole == 1);
        return known;
    }
    if (is_float(port->dtype)) {
        return trm_json_is_number(value) &&
               trm_element_set_double(port->dtype, data, (int64_t)i, trm_json_number(value, 0));
    }
    if (!trm_json_integer(value, &whole)) {
        return false;
    }
    if (port->dtype == TRM_I64 || port->dtype == TRM_U64) {
        memcpy((char *)data + 8 * i, &whole, sizeof(whole));
        return port->dtype == TRM_I64 || whole >= 0;
    }
    return trm_element_set_double(port->dtype, data, (int64_t)i, (double)whole) &&
           trm_element_as_double(port->dtype, data, (int64_t)i) == (double)whole;
}

/* Reads nested or flat arrays in order; the parser bounds their depth. */
static bool read_elements(const served_port *port, const trm_json *array, void *data, size_t count, size_t *at,
                          api_error *error)
{
    for (const trm_json *item = trm_json_first(array); item != NULL; item = trm_json_next(item)) {
        if (trm_json_is_array(item)) {
            if (!read_elements(port, item, data, count, at, error)) {
                return false;
            }
            continue;
        }
        if (*at == count) {
            return api_fail(error, 400, NULL, NULL, "input %s has more than the %zu elements of its shape", port->name,
                            count);
        }
        if (!set_element(port, item, data, *at)) {
            return api_fail(error, 400, NULL, NULL, "element %zu of input %s is not of type %s%s", *at, port->name,
                            infer_type_name(port->dtype),
                            trm_dtype_size(port->dtype) == 8 ? ", or not exact in JSON: send it as binary data" : "");
        }
        (*at)++;
    }
    return true;
}

static bool read_data(const served_port *port, const trm_json *array, infer_input *input, size_t bytes,
                      api_error *error)
{
    const size_t count = bytes / trm_dtype_size(port->dtype);
    size_t at = 0;
    if (is_only_raw(port->dtype)) {
        return api_fail(error, 400, NULL, NULL, "input %s of type %s must be sent as binary data", port->name,
                        infer_type_name(port->dtype));
    }
    /* Every element of the JSON has its object already: a shape beyond the array is refused before it is allocated. */
    if (!trm_json_is_array(array) || (trm_json_count(array) < count && !trm_json_is_array(trm_json_first(array)))) {
        return api_fail(error, 400, NULL, NULL, "input %s has %zu elements in data, expected %zu", port->name,
                        trm_json_count(array), count);
    }
    input->owned = calloc(count + 1, trm_dtype_size(port->dtype));
    if (input->owned == NULL) {
        return api_fail(error, 503, NULL, NULL, "cannot allocate %zu bytes for input %s", bytes, port->name);
    }
    if (!read_elements(port, array, input->owned, count, &at, error)) {
        return false;
    }
    if (at != count) {
        return api_fail(error, 400, NULL, NULL, "input %s has %zu elements in data, expected %zu", port->name, at,
                        count);
    }
    input->data = input->owned;
    return true;
}

static bool read_raw(reader *r, const served_port *port, const trm_json *size, infer_input *input, size_t bytes)
{
    int64_t given = -1;
    if (!trm_json_integer(size, &given) || given < 0 || (size_t)given != bytes) {
        return api_fail(r->error, 400, NULL, NULL,
                        "binary_data_size of input %s is %" PRId64 ", expected %zu, as its shape and type have",
                        port->name, given, bytes);
    }
    if (bytes > r->left) {
        return api_fail(r->error, 400, NULL, NULL, "input %s has %zu bytes behind the JSON, expected %zu", port->name,
                        r->left, bytes);
    }
    for (size_t i = 0; port->dtype == TRM_BOOL && i < bytes; i++) {
        if ((unsigned char)r->raw[i] > 1) {
            return api_fail(r->error, 400, NULL, NULL, "element %zu of input %s is %d, expected 0 or 1", i, port->name,
                            (unsigned char)r->raw[i]);
        }
    }
    input->data = r->raw;
    if ((uintptr_t)r->raw % trm_dtype_size(port->dtype) != 0) { /* the JSON may end anywhere */
        input->owned = malloc(bytes + 1);
        if (input->owned == NULL) {
            return api_fail(r->error, 503, NULL, NULL, "cannot allocate %zu bytes for input %s", bytes, port->name);
        }
        input->data = memcpy(input->owned, r->raw, bytes);
    }
    r->raw += bytes;
    r->left -= bytes;
    return true;
}

/* Refuses what tensors may ask for in the protocol and this server does not have. */
static bool check_parameters(const trm_json *parameters, const char *name, api_error *error)
{
    static const char *const unknown[] = {"shared_memory_region", "classification"};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        if (trm_json_get(parameters, unknown[i]) != NULL) {
            return api_fail(error, 400, NULL, NULL, "parameter %s of tensor %s is not supported", unknown[i], name);
        }
    }
    return true;
}

static bool read_input(reader *r, const trm_json *item)
{
    const served_network *network = r->request->network;
    const char *name = trm_json_string(trm_json_get(item, "name"));
    const char *type = trm_json_string(trm_json_get(item, "datatype"));
    const trm_json *parameters = trm_json_get(item, "parameters"), *data = trm_json_get(item, "data");
    const trm_json *size = trm_json_get(parameters, "binary_data_size");
    int32_t index = 0;
    while (name != NULL && index < served_input_count(network) &&
           strcmp(served_input(network, index)->name, name) != 0) {
        index++;
    }
    if (name == NULL || index == served_input_count(network)) {
        return api_fail(r->error, 400, NULL, NULL, "the network has no input %.128s",
                        name != NULL ? name : "without a name");
    }
    const served_port *port = served_input(network, index);
    infer_input *input = &r->request->inputs[index];
    size_t bytes = 0;
    if (input->given) {
        return api_fail(r->error, 400, NULL, NULL, "input %s is given twice", name);
    }
    if (type == NULL || strcmp(type, infer_type_name(port->dtype)) != 0) {
        return api_fail(r->error, 400, NULL, NULL, "input %s has datatype %.32s, expected %s", name,
                        type != NULL ? type : "none", infer_type_name(port->dtype));
    }
    if (!check_parameters(parameters, name, r->error) ||
        !read_shape(port, trm_json_get(item, "shape"), &input->dims, &bytes, r->error)) {
        return false;
    }
    if ((size != NULL) == (data != NULL)) {
        return api_fail(r->error, 400, NULL, NULL, "input %s has %s data and binary_data_size, expected one of them",
                        name, data != NULL ? "both" : "neither");
    }
    input->given = true;
    return size != NULL ? read_raw(r, port, size, input, bytes) : read_data(port, data, input, bytes, r->error);
}

static bool add_output(reader *r, const char *name, bool raw)
{
    infer_request *request = r->request;
    int32_t index = 0;
    const int32_t count = served_output_count(request->network);
    while (name != NULL && index < count && strcmp(served_output(request->network, index)->name, name) != 0) {
        index++;
    }
    if (name == NULL || index == count) {
        return api_fail(r->error, 400, NULL, NULL, "the network has no output %.128s",
                        name != NULL ? name : "without a name");
    }
    for (int32_t i = 0; i < request->n_outputs; i++) {
        if (request->outputs[i].index == index) {
            return api_fail(r->error, 400, NULL, NULL, "output %s is asked for twice", name);
        }
    }
    const served_port *port = served_output(request->network, index);
    if (!raw && is_only_raw(port->dtype)) {
        return api_fail(r->error, 400, NULL, NULL,
                        "output %s of type %s can only be sent as binary data: set binary_data", name,
                        infer_type_name(port->dtype));
    }
    request->outputs[request->n_outputs++] = (infer_output){index, raw};
    return true;
}

static bool read_outputs(reader *r, const trm_json *outputs, bool raw)
{
    for (int32_t i = 0; outputs == NULL && i < served_output_count(r->request->network); i++) {
        if (!add_output(r, served_output(r->request->network, i)->name, raw)) {
            return false;
        }
    }
    for (const trm_json *item = trm_json_first(outputs); item != NULL; item = trm_json_next(item)) {
        const char *name = trm_json_string(trm_json_get(item, "name"));
        const trm_json *parameters = trm_json_get(item, "parameters");
        if (!check_parameters(parameters, name != NULL ? name : "", r->error) ||
            !add_output(r, name, trm_json_truth(trm_json_get(parameters, "binary_data"), raw))) {
            return false;
        }
    }
    return true;
}

static bool read_request(reader *r, const trm_json *root)
{
    infer_request *request = r->request;
    const trm_json *inputs = trm_json_get(root, "inputs"), *outputs = trm_json_get(root, "outputs");
    const trm_json *parameters = trm_json_get(root, "parameters"), *id = trm_json_get(root, "id");
    if (!trm_json_is_array(inputs) || (outputs != NULL && !trm_json_is_array(outputs))) {
        return api_fail(r->error, 400, NULL, NULL, "%s is not an array",
                        trm_json_is_array(inputs) ? "outputs" : "inputs");
    }
    if (id != NULL && !trm_json_is_string(id)) {
        return api_fail(r->error, 400, NULL, NULL, "id is not a string");
    }
    if (trm_json_get(parameters, "sequence_id") != NULL) {
        return api_fail(r->error, 400, NULL, NULL, "parameter sequence_id is not supported: requests have no state");
    }
    request->id = id != NULL ? strdup(trm_json_string(id)) : NULL;
    if (id != NULL && request->id == NULL) {
        return api_fail(r->error, 503, NULL, NULL, "cannot allocate the id");
    }
    for (const trm_json *item = trm_json_first(inputs); item != NULL; item = trm_json_next(item)) {
        if (!read_input(r, item)) {
            return false;
        }
    }
    for (int32_t i = 0; i < served_input_count(request->network); i++) {
        if (!request->inputs[i].given) {
            return api_fail(r->error, 400, NULL, NULL, "input %s is missing", served_input(request->network, i)->name);
        }
    }
    if (r->left > 0) {
        return api_fail(r->error, 400, NULL, NULL, "%zu bytes behind the JSON belong to no input", r->left);
    }
    return read_outputs(r, outputs, trm_json_truth(trm_json_get(parameters, "binary_data_output"), false));
}

infer_request *infer_parse(const served_network *network, const char *body, size_t size, size_t json_size,
                           http_exchange *exchange, api_error *error)
{
    infer_request *request = calloc(1, sizeof(*request));
    reader r = {request, body + json_size, size - json_size, error};
    trm_json_document *document = NULL;
    bool read = false;
    if (request != NULL) {
        request->network = network;
        request->exchange = exchange;
        request->inputs = calloc((size_t)served_input_count(network) + 1, sizeof(*request->inputs));
        request->outputs = calloc((size_t)served_output_count(network) + 1, sizeof(*request->outputs));
    }
    if (request == NULL || request->inputs == NULL || request->outputs == NULL) {
        api_fail(error, 503, NULL, NULL, "cannot allocate the request");
    } else if (trm_json_parse("body", body, json_size, &document) != TRM_OK) {
        api_fail(error, 400, NULL, NULL, "%s", trm_last_error());
    } else {
        read = read_request(&r, trm_json_root(document));
    }
    trm_json_close(document);
    if (!read) {
        infer_destroy(request);
        return NULL;
    }
    return request;
}

static void write_element(json_text *json, trm_dtype dtype, const void *data, size_t i)
{
    char text[24];
    int64_t whole;
    if (dtype == TRM_BOOL) {
        json_bool(json, NULL, ((const uint8_t *)data)[i] != 0);
    } else if (dtype == TRM_I64 || dtype == TRM_U64) {
        memcpy(&whole, (const char *)data + 8 * i, sizeof(whole));
        const int used = dtype == TRM_I64 ? snprintf(text, sizeof(text), "%" PRId64, whole)
                                          : snprintf(text, sizeof(text), "%" PRIu64, (uint64_t)whole);
        json_raw(json, NULL, text, (size_t)used);
    } else {
        json_number(json, NULL, trm_element_as_double(dtype, data, (int64_t)i));
    }
}

/* Writes an output into the JSON; raw elements follow it later. */
static trm_status write_output(json_text *json, const infer_request *request, const infer_output *output,
                               trm_context *context)
{
    const served_port *port = served_output(request->network, output->index);
    trm_dims dims;
    const void *data;
    size_t count = 1;
    TRM_TRY(trm_context_output(context, port->name, &dims, &data));
    json_object(json, NULL);
    json_string(json, "name", port->name);
    json_string(json, "datatype", infer_type_name(port->dtype));
    json_array(json, "shape");
    for (int32_t i = 0; i < dims.n; i++) {
        json_integer(json, NULL, dims.d[i]);
        count *= (size_t)dims.d[i];
    }
    json_end_array(json);
    if (output->raw) {
        json_object(json, "parameters");
        json_integer(json, "binary_data_size", (int64_t)(count * trm_dtype_size(port->dtype)));
        json_end_object(json);
    } else {
        json_array(json, "data");
        for (size_t i = 0; i < count; i++) {
            write_element(json, port->dtype, data, i);
        }
        json_end_array(json);
    }
    json_end_object(json);
    return json->status;
}

static trm_status append_raw(trm_bytes *reply, const infer_request *request, const infer_output *output,
                             trm_context *context)
{
    const served_port *port = served_output(request->network, output->index);
    trm_dims dims;
    const void *data;
    size_t bytes = trm_dtype_size(port->dtype);
    TRM_TRY(trm_context_output(context, port->name, &dims, &data));
    for (int32_t i = 0; i < dims.n; i++) {
        bytes *= (size_t)dims.d[i];
    }
    return bytes > 0 ? trm_bytes_append(reply, data, bytes) : TRM_OK;
}

static trm_status write_reply(json_text *json, infer_request *request, trm_context *context)
{
    json_object(json, NULL);
    json_string(json, "model_name", served_get_options(request->network)->name);
    json_string(json, "model_version", VERSION);
    if (request->id != NULL) {
        json_string(json, "id", request->id);
    }
    json_array(json, "outputs");
    for (int32_t i = 0; i < request->n_outputs; i++) {
        TRM_TRY(write_output(json, request, &request->outputs[i], context));
    }
    json_end_array(json);
    json_end_object(json);
    TRM_TRY(json->status);
    request->json_size = json->bytes.size;
    for (int32_t i = 0; i < request->n_outputs; i++) {
        if (request->outputs[i].raw) {
            TRM_TRY(append_raw(&json->bytes, request, &request->outputs[i], context));
        }
    }
    return TRM_OK;
}

static trm_status run(infer_request *request, trm_context *context, json_text *json)
{
    TRM_TRY(trm_context_reset(context));
    for (int32_t i = 0; i < served_input_count(request->network); i++) {
        const infer_input *input = &request->inputs[i];
        TRM_TRY(trm_context_set_input(context, served_input(request->network, i)->name, input->dims, input->data));
    }
    TRM_TRY(trm_context_run(context));
    return write_reply(json, request, context);
}

void infer_run(infer_request *request, trm_context *context)
{
    json_text json = {0};
    trm_status status = run(request, context, &json);
    if (status != TRM_OK) {
        request->failed = true;
        api_fail_status(&request->error, status, NULL);
        json_text_fini(&json);
        return;
    }
    request->reply = json.bytes;
}

void infer_finish(infer_request *request)
{
    http_exchange_wake(request->exchange);
}

void infer_destroy(infer_request *request)
{
    if (request == NULL) {
        return;
    }
    for (int32_t i = 0; request->inputs != NULL && i < served_input_count(request->network); i++) {
        free(request->inputs[i].owned);
    }
    free(request->inputs);
    free(request->outputs);
    free(request->id);
    trm_bytes_fini(&request->reply);
    free(request);
}
