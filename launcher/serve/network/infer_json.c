/* Requests and replies of KServe's protocol v2 over HTTP. */
#include "launcher/serve/network/infer_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"
#include "base/json.h"
#include "launcher/serve/json/json_text.h"

/* What is read so far. */
typedef struct reader {
    infer_request *request;
    shared_regions *regions;
    const char *raw; /* the elements behind the JSON */
    size_t left;     /* bytes of them that no input has taken */
    api_error *error;
} reader;

static bool is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F64;
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

static bool read_data(const served_port *port, const trm_json *array, infer_input *input, api_error *error)
{
    const size_t count = input->bytes / trm_dtype_size(port->dtype);
    size_t at = 0;
    if (infer_is_only_raw(port->dtype)) {
        return api_fail(error, 400, NULL, NULL, "input %s of type %s must be sent as binary data", port->name,
                        infer_type_name(port->dtype));
    }
    /* Every element of the JSON has its object already: a shape beyond the array is refused before it is allocated. */
    if (!trm_json_is_array(array) || (trm_json_count(array) < count && !trm_json_is_array(trm_json_first(array)))) {
        return api_fail(error, 400, NULL, NULL, "input %s has %zu elements in data, expected %zu", port->name,
                        trm_json_count(array), count);
    }
    if (!infer_allocate(port, input, error) || !read_elements(port, array, input->owned, count, &at, error)) {
        return false;
    }
    return at == count ||
           api_fail(error, 400, NULL, NULL, "input %s has %zu elements in data, expected %zu", port->name, at, count);
}

static bool read_raw(reader *r, const served_port *port, const trm_json *size, infer_input *input)
{
    int64_t given = -1;
    if (!trm_json_integer(size, &given) || given < 0 || (size_t)given != input->bytes) {
        return api_fail(r->error, 400, NULL, NULL,
                        "binary_data_size of input %s is %" PRId64 ", expected %zu, as its shape and type have",
                        port->name, given, input->bytes);
    }
    if (input->bytes > r->left) {
        return api_fail(r->error, 400, NULL, NULL, "input %s has %zu bytes behind the JSON, expected %zu", port->name,
                        r->left, input->bytes);
    }
    const char *data = r->raw;
    r->raw += input->bytes;
    r->left -= input->bytes;
    return infer_take_raw(port, input, data, input->bytes, r->error);
}

/* Where a tensor lies or goes in shared memory; region NULL: it does not. */
typedef struct place {
    const char *region;
    uint64_t offset, size;
} place;

static bool read_place(const trm_json *parameters, const char *name, place *p, api_error *error)
{
    const trm_json *region = trm_json_get(parameters, "shared_memory_region");
    const trm_json *size = trm_json_get(parameters, "shared_memory_byte_size");
    const trm_json *offset = trm_json_get(parameters, "shared_memory_offset");
    int64_t bytes = -1, begin = 0;
    if (trm_json_get(parameters, "classification") != NULL) {
        return api_fail(error, 400, NULL, NULL, "parameter classification of output %s is not supported", name);
    }
    *p = (place){.region = trm_json_string(region)};
    if (region == NULL) {
        return true;
    }
    if (p->region == NULL || !trm_json_integer(size, &bytes) || bytes < 0 ||
        (offset != NULL && !trm_json_integer(offset, &begin)) || begin < 0) {
        return api_fail(
            error, 400, NULL, NULL,
            "tensor %s needs the parameters shared_memory_region, a string, and shared_memory_byte_size and "
            "shared_memory_offset, integers from 0",
            name);
    }
    p->size = (uint64_t)bytes;
    p->offset = (uint64_t)begin;
    return true;
}

static bool read_shape(const trm_json *shape, const char *name, int64_t sizes[TRM_MAX_DIMS], size_t *n,
                       api_error *error)
{
    *n = trm_json_count(shape);
    if (!trm_json_is_array(shape) || *n > TRM_MAX_DIMS) {
        return api_fail(error, 400, NULL, NULL, "input %s has no shape of at most %d dimensions", name, TRM_MAX_DIMS);
    }
    for (const trm_json *item = trm_json_first(shape); item != NULL; item = trm_json_next(item)) {
        *sizes = -1;
        (void)trm_json_integer(item, sizes++); /* -1 is refused later */
    }
    return true;
}

static bool read_input(reader *r, const trm_json *item)
{
    const char *name = trm_json_string(trm_json_get(item, "name"));
    const char *type = trm_json_string(trm_json_get(item, "datatype"));
    const trm_json *parameters = trm_json_get(item, "parameters"), *data = trm_json_get(item, "data");
    const trm_json *size = trm_json_get(parameters, "binary_data_size");
    const served_port *port;
    infer_input *input;
    int64_t shape[TRM_MAX_DIMS];
    size_t n;
    place p;
    if (!read_place(parameters, name != NULL ? name : "", &p, r->error) ||
        !read_shape(trm_json_get(item, "shape"), name != NULL ? name : "", shape, &n, r->error) ||
        !infer_begin_input(r->request, name, type, shape, n, &port, &input, r->error)) {
        return false;
    }
    if ((size != NULL) + (data != NULL) + (p.region != NULL) != 1) {
        return api_fail(r->error, 400, NULL, NULL,
                        "input %s has %s of data, binary_data_size and shared_memory_region, expected one", name,
                        size == NULL && data == NULL && p.region == NULL ? "none" : "several");
    }
    if (p.region != NULL) {
        return infer_take_shared(port, input, r->regions, p.region, p.offset, p.size, r->error);
    }
    return size != NULL ? read_raw(r, port, size, input) : read_data(port, data, input, r->error);
}

static bool read_outputs(reader *r, const trm_json *outputs, bool raw)
{
    if (outputs == NULL) {
        return infer_add_all_outputs(r->request, raw, r->error);
    }
    for (const trm_json *item = trm_json_first(outputs); item != NULL; item = trm_json_next(item)) {
        const char *name = trm_json_string(trm_json_get(item, "name"));
        const trm_json *parameters = trm_json_get(item, "parameters");
        infer_output *output;
        place p;
        if (!read_place(parameters, name != NULL ? name : "", &p, r->error) ||
            !infer_add_output(r->request, name,
                              p.region != NULL || trm_json_truth(trm_json_get(parameters, "binary_data"), raw), &output,
                              r->error) ||
            (p.region != NULL && !infer_share_output(output, r->regions, p.region, p.offset, p.size, r->error))) {
            return false;
        }
    }
    return true;
}

/* The timeout of the queue, in microseconds; sequences are refused. */
static bool read_parameters(const reader *r, const trm_json *parameters)
{
    const trm_json *timeout = trm_json_get(parameters, "timeout"), *sequence = trm_json_get(parameters, "sequence_id");
    int64_t microseconds = 0;
    if (sequence != NULL) {
        return api_fail(r->error, 400, NULL, NULL, "parameter sequence_id is not supported: requests have no state");
    }
    if (timeout != NULL && (!trm_json_integer(timeout, &microseconds) || microseconds < 0)) {
        return api_fail(r->error, 400, NULL, NULL, "parameter timeout is not a number of microseconds");
    }
    r->request->queue_seconds = (double)microseconds * 1e-6;
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
    if (!read_parameters(r, parameters)) {
        return false;
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
    if (r->left > 0) {
        return api_fail(r->error, 400, NULL, NULL, "%zu bytes behind the JSON belong to no input", r->left);
    }
    return infer_check(request, r->error) &&
           read_outputs(r, outputs, trm_json_truth(trm_json_get(parameters, "binary_data_output"), false));
}

infer_request *infer_parse(served_network *network, shared_regions *regions, const char *body, size_t size,
                           size_t json_size, const infer_client *client, void *user, api_error *error)
{
    infer_request *request = infer_create(network, client, user, error);
    reader r = {request, regions, body + json_size, size - json_size, error};
    trm_json_document *document = NULL;
    bool read = false;
    if (request == NULL) {
        return NULL;
    }
    if (trm_json_parse("body", body, json_size, &document) != TRM_OK) {
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
static void write_output(json_text *json, const served_port *port, const infer_output *output)
{
    const size_t count = output->bytes / trm_dtype_size(port->dtype);
    json_object(json, NULL);
    json_string(json, "name", port->name);
    json_string(json, "datatype", infer_type_name(port->dtype));
    json_array(json, "shape");
    for (int32_t i = 0; i < output->dims.n; i++) {
        json_integer(json, NULL, output->dims.d[i]);
    }
    json_end_array(json);
    if (output->region != NULL) {
        json_object(json, "parameters");
        json_string(json, "shared_memory_region", shared_name(output->region));
        json_integer(json, "shared_memory_byte_size", (int64_t)output->bytes);
        json_integer(json, "shared_memory_offset", (int64_t)output->region_offset);
        json_end_object(json);
    } else if (output->raw) {
        json_object(json, "parameters");
        json_integer(json, "binary_data_size", (int64_t)output->bytes);
        json_end_object(json);
    } else {
        json_array(json, "data");
        for (size_t i = 0; i < count; i++) {
            write_element(json, port->dtype, output->data, i);
        }
        json_end_array(json);
    }
    json_end_object(json);
}

static trm_status write_reply(json_text *json, infer_request *request)
{
    const served_options *options = served_get_options(request->network);
    json_object(json, NULL);
    json_string(json, "model_name", options->name);
    json_string(json, "model_version", options->version);
    if (request->id != NULL) {
        json_string(json, "id", request->id);
    }
    json_array(json, "outputs");
    for (int32_t i = 0; i < request->n_outputs; i++) {
        const infer_output *output = &request->outputs[i];
        write_output(json, served_output(request->network, output->index), output);
    }
    json_end_array(json);
    json_end_object(json);
    TRM_TRY(json->status);
    request->json_size = json->bytes.size;
    for (int32_t i = 0; i < request->n_outputs; i++) {
        const infer_output *output = &request->outputs[i];
        if (output->raw && output->region == NULL && output->bytes > 0) {
            TRM_TRY(trm_bytes_append(&json->bytes, output->data, output->bytes));
        }
    }
    return TRM_OK;
}

trm_status infer_write_json(infer_request *request)
{
    json_text json = {0};
    TRM_TRY(infer_write_shared(request));
    trm_status status = write_reply(&json, request);
    if (status != TRM_OK) {
        json_text_fini(&json);
        return status;
    }
    request->reply = json.bytes;
    return TRM_OK;
}
