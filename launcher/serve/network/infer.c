/* Inference requests, whatever they were read from. */
#include "launcher/serve/network/infer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

const char *infer_type_name(trm_dtype dtype)
{
    static const char *const names[TRM_DTYPE_COUNT] = {
        [TRM_BOOL] = "BOOL", [TRM_U8] = "UINT8",  [TRM_U16] = "UINT16", [TRM_U32] = "UINT32", [TRM_U64] = "UINT64",
        [TRM_I8] = "INT8",   [TRM_I16] = "INT16", [TRM_I32] = "INT32",  [TRM_I64] = "INT64",  [TRM_F16] = "FP16",
        [TRM_BF16] = "BF16", [TRM_F32] = "FP32",  [TRM_F64] = "FP64"};
    return (unsigned)dtype < TRM_DTYPE_COUNT ? names[dtype] : NULL;
}

bool infer_is_only_raw(trm_dtype dtype)
{
    return dtype == TRM_F16 || dtype == TRM_BF16;
}

infer_request *infer_create(served_network *network, const infer_client *client, void *user, api_error *error)
{
    infer_request *request = calloc(1, sizeof(*request));
    if (request != NULL) {
        request->network = served_retain(network);
        request->client = client;
        request->user = user;
        request->elements = 1;
        request->inputs = calloc((size_t)served_input_count(network) + 1, sizeof(*request->inputs));
        request->outputs = calloc((size_t)served_output_count(network) + 1, sizeof(*request->outputs));
    }
    if (request == NULL || request->inputs == NULL || request->outputs == NULL) {
        api_fail(error, 503, NULL, NULL, "cannot allocate the request");
        infer_destroy(request);
        return NULL;
    }
    return request;
}

void infer_destroy(infer_request *request)
{
    if (request == NULL) {
        return;
    }
    for (int32_t i = 0; request->inputs != NULL && i < served_input_count(request->network); i++) {
        free(request->inputs[i].owned);
        shared_release(request->inputs[i].region);
    }
    for (int32_t i = 0; i < request->n_outputs; i++) {
        shared_release(request->outputs[i].region);
    }
    served_release(request->network);
    free(request->inputs);
    free(request->outputs);
    free(request->id);
    trm_bytes_fini(&request->reply);
    free(request);
}

/* Compares a shape with the port's. */
static bool take_shape(const served_port *port, const int64_t *shape, size_t n, infer_input *input, api_error *error)
{
    if (n != (size_t)port->dims.n) {
        return api_fail(error, 400, NULL, NULL, "input %s has a shape of %zu dimensions, expected %d", port->name, n,
                        (int)port->dims.n);
    }
    input->dims = (trm_dims){.n = port->dims.n};
    input->bytes = trm_dtype_size(port->dtype);
    for (size_t i = 0; i < n; i++) {
        const int64_t expected = port->dims.d[i];
        if (shape[i] < 0) {
            return api_fail(error, 400, NULL, NULL, "dimension %zu of input %s is not an integer from 0", i,
                            port->name);
        }
        if (expected >= 0 && shape[i] != expected) {
            return api_fail(error, 400, NULL, NULL, "dimension %zu of input %s is %" PRId64 ", expected %" PRId64, i,
                            port->name, shape[i], expected);
        }
        if (__builtin_mul_overflow(input->bytes, (size_t)shape[i], &input->bytes) || input->bytes > PTRDIFF_MAX / 2) {
            return api_fail(error, 400, NULL, NULL, "the shape of input %s is too large", port->name);
        }
        input->dims.d[i] = shape[i];
    }
    return true;
}

bool infer_begin_input(infer_request *request, const char *name, const char *type, const int64_t *shape, size_t n,
                       const served_port **port, infer_input **input, api_error *error)
{
    const served_network *network = request->network;
    int32_t index = 0;
    while (name != NULL && index < served_input_count(network) &&
           strcmp(served_input(network, index)->name, name) != 0) {
        index++;
    }
    if (name == NULL || index == served_input_count(network)) {
        return api_fail(error, 400, NULL, NULL, "the network has no input %.128s",
                        name != NULL ? name : "without a name");
    }
    *port = served_input(network, index);
    *input = &request->inputs[index];
    if ((*input)->given) {
        return api_fail(error, 400, NULL, NULL, "input %s is given twice", name);
    }
    if (type == NULL || strcmp(type, infer_type_name((*port)->dtype)) != 0) {
        return api_fail(error, 400, NULL, NULL, "input %s has datatype %.32s, expected %s", name,
                        type != NULL ? type : "none", infer_type_name((*port)->dtype));
    }
    (*input)->given = true;
    return take_shape(*port, shape, n, *input, error);
}

bool infer_allocate(const served_port *port, infer_input *input, api_error *error)
{
    input->data = input->owned = malloc(input->bytes + 1);
    return input->owned != NULL ||
           api_fail(error, 503, NULL, NULL, "cannot allocate %zu bytes for input %s", input->bytes, port->name);
}

trm_status infer_check_bool(const served_port *port, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    for (size_t i = 0; port->dtype == TRM_BOOL && i < bytes; i++) {
        if (from[i] > 1) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "element %zu of input %s is %d, expected 0 or 1", i, port->name,
                     from[i]);
        }
    }
    return TRM_OK;
}

bool infer_take_raw(const served_port *port, infer_input *input, const void *data, size_t bytes, api_error *error)
{
    if (bytes != input->bytes) {
        return api_fail(error, 400, NULL, NULL, "input %s has %zu bytes, expected %zu, as its shape and type have",
                        port->name, bytes, input->bytes);
    }
    input->data = data;
    return infer_check_bool(port, data, bytes) == TRM_OK || api_fail(error, 400, NULL, NULL, "%s", trm_last_error());
}

bool infer_take_shared(const served_port *port, infer_input *input, shared_regions *regions, const char *name,
                       uint64_t offset, uint64_t size, api_error *error)
{
    if (size != input->bytes) {
        return api_fail(error, 400, NULL, NULL,
                        "shared_memory_byte_size of input %s is %" PRIu64 ", expected %zu, as its shape and type have",
                        port->name, size, input->bytes);
    }
    input->region = shared_find(regions, name, offset, size, error);
    input->region_offset = offset;
    return input->region != NULL;
}

bool infer_share_output(infer_output *output, shared_regions *regions, const char *region, uint64_t offset,
                        uint64_t size, api_error *error)
{
    output->region = shared_find(regions, region, offset, size, error);
    output->region_offset = offset;
    output->region_size = size;
    return output->region != NULL;
}

trm_status infer_write_shared(const infer_request *request)
{
    for (int32_t i = 0; i < request->n_outputs; i++) {
        const infer_output *output = &request->outputs[i];
        if (output->region == NULL || output->is_written) {
            continue;
        }
        if (output->bytes > output->region_size) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "output %s has %zu bytes, but its shared memory only %" PRIu64,
                     served_output(request->network, output->index)->name, output->bytes, output->region_size);
        }
        TRM_TRY(shared_write(output->region, output->region_offset, output->data, output->bytes));
    }
    return TRM_OK;
}

bool infer_add_output(infer_request *request, const char *name, bool raw, infer_output **output, api_error *error)
{
    int32_t index = 0;
    const int32_t count = served_output_count(request->network);
    while (name != NULL && index < count && strcmp(served_output(request->network, index)->name, name) != 0) {
        index++;
    }
    if (name == NULL || index == count) {
        return api_fail(error, 400, NULL, NULL, "the network has no output %.128s",
                        name != NULL ? name : "without a name");
    }
    for (int32_t i = 0; i < request->n_outputs; i++) {
        if (request->outputs[i].index == index) {
            return api_fail(error, 400, NULL, NULL, "output %s is asked for twice", name);
        }
    }
    const served_port *port = served_output(request->network, index);
    if (!raw && infer_is_only_raw(port->dtype)) {
        return api_fail(error, 400, NULL, NULL, "output %s of type %s can only be sent as binary data: set binary_data",
                        name, infer_type_name(port->dtype));
    }
    infer_output *added = &request->outputs[request->n_outputs++];
    *added = (infer_output){.index = index, .raw = raw};
    if (output != NULL) {
        *output = added;
    }
    return true;
}

bool infer_add_all_outputs(infer_request *request, bool raw, api_error *error)
{
    for (int32_t i = 0; i < served_output_count(request->network); i++) {
        if (!infer_add_output(request, served_output(request->network, i)->name, raw, NULL, error)) {
            return false;
        }
    }
    return true;
}

bool infer_check(infer_request *request, api_error *error)
{
    const int32_t n = served_input_count(request->network), most = served_max_batch(request->network);
    for (int32_t i = 0; i < n; i++) {
        const char *name = served_input(request->network, i)->name;
        const trm_dims *dims = &request->inputs[i].dims;
        if (!request->inputs[i].given) {
            return api_fail(error, 400, NULL, NULL, "input %s is missing", name);
        }
        if (most > 0 && i > 0 && dims->d[0] != request->elements) {
            return api_fail(error, 400, NULL, NULL, "input %s has a batch of %" PRId64 ", but input %s one of %" PRId64,
                            name, dims->d[0], served_input(request->network, 0)->name, request->elements);
        }
        request->elements = most > 0 ? dims->d[0] : 1;
    }
    if (most > 0 && (request->elements < 1 || request->elements > most)) {
        return api_fail(error, 400, NULL, NULL, "the request has a batch of %" PRId64 ", expected 1 to %d",
                        request->elements, (int)most);
    }
    return true;
}
