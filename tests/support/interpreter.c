/* The test interpreter: memory per tensor, first kernel that accepts, in layer order. */
#include "support/interpreter.h"

#include <math.h>

#include "graph/infer.h"
#include "support/support.h"
#include "kernels/program.h"

#define INTERPRETER_VALUES 64 /* elements of a value input */

struct test_interpreter {
    const trm_network *network;
    test_interpreter_options options;
    trm_device *device;
    trm_stream *stream;
    trm_dims *dims;   /* [n_tensors] of this run */
    void **memory;    /* [n_tensors] device memory */
    size_t *capacity; /* [n_tensors] bytes of it */
    void **host;      /* [n_tensors] copies handed out */
    bool *is_set;     /* [n_tensors] inputs that were given */
    void *workspace;
    size_t workspace_size;
};

static size_t bytes_of(const trm_tensor *tensor, const trm_dims *dims)
{
    return (size_t)trm_dims_count(dims) * trm_dtype_size(tensor->dtype);
}

static trm_status reserve(test_interpreter *self, int32_t index, size_t size)
{
    if (self->memory[index] != NULL && self->capacity[index] >= size) {
        return TRM_OK;
    }
    trm_device_free(self->device, self->memory[index]);
    self->memory[index] = NULL;
    self->capacity[index] = size > 0 ? size : 1;
    return trm_device_alloc(self->device, self->capacity[index], &self->memory[index]);
}

static trm_status load_constant(test_interpreter *self, const trm_tensor *tensor)
{
    size_t size = bytes_of(tensor, &tensor->dims);
    TRM_TRY(reserve(self, tensor->index, size));
    if (tensor->weight == NULL) {
        return trm_stream_upload(self->stream, self->memory[tensor->index], tensor->value, size);
    }
    void *host = malloc(size > 0 ? size : 1);
    if (host == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no %zu bytes for weight %s", size, tensor->name);
    }
    trm_status status = trm_weight_read(tensor->weight, tensor->dtype, 0, (size_t)trm_dims_count(&tensor->dims), host);
    if (status == TRM_OK) {
        status = trm_stream_upload(self->stream, self->memory[tensor->index], host, size);
    }
    if (status == TRM_OK) {
        status = trm_stream_synchronize(self->stream);
    }
    free(host);
    return status;
}

static trm_status prepare_tensor(test_interpreter *self, const trm_tensor *tensor)
{
    self->dims[tensor->index] = tensor->dims;
    if (tensor->role == TRM_TENSOR_CONSTANT) {
        return load_constant(self, tensor);
    }
    if (tensor->role == TRM_TENSOR_STATE) {
        trm_dims *dims = &self->dims[tensor->index];
        for (int32_t i = 0; i < dims->n; i++) {
            dims->d[i] = dims->d[i] < 0 ? self->options.state_dimension : dims->d[i];
        }
        size_t size = bytes_of(tensor, dims);
        TRM_TRY(reserve(self, tensor->index, size));
        return trm_stream_fill_zero(self->stream, self->memory[tensor->index], size);
    }
    return TRM_OK;
}

trm_status test_interpreter_create(const trm_network *network, const test_interpreter_options *options,
                                   test_interpreter **interpreter)
{
    size_t n = (size_t)network->n_tensors + 1;
    test_interpreter *self = calloc(1, sizeof(*self));
    assert_non_null(self);
    self->network = network;
    self->options = *options;
    self->dims = calloc(n, sizeof(*self->dims));
    self->memory = calloc(n, sizeof(*self->memory));
    self->capacity = calloc(n, sizeof(*self->capacity));
    self->host = calloc(n, sizeof(*self->host));
    self->is_set = calloc(n, sizeof(*self->is_set));
    assert_true(self->dims && self->memory && self->capacity && self->host && self->is_set);

    trm_status status = TRM_OK;
    self->device = options->device;
    if (self->device == NULL) {
        TRM_TRY_GOTO(status, trm_device_open(options->backend, 0, 1, &self->device), fail);
    }
    TRM_TRY_GOTO(status, trm_stream_create(self->device, &self->stream), fail);
    for (int32_t i = 0; i < network->n_tensors; i++) {
        TRM_TRY_GOTO(status, prepare_tensor(self, network->tensors[i]), fail);
    }
    TRM_TRY_GOTO(status, trm_stream_synchronize(self->stream), fail);
    *interpreter = self;
    return TRM_OK;
fail:
    test_interpreter_destroy(self);
    return status;
}

const trm_network *test_interpreter_network(const test_interpreter *self)
{
    return self->network;
}

void test_interpreter_destroy(test_interpreter *self)
{
    if (self == NULL) {
        return;
    }
    if (self->device != NULL) {
        for (int32_t i = 0; i < self->network->n_tensors; i++) {
            trm_device_free(self->device, self->memory[i]);
            free(self->host[i]);
        }
        trm_device_free(self->device, self->workspace);
    }
    if (self->stream != NULL) {
        trm_stream_destroy(self->stream);
    }
    if (self->device != NULL && self->options.device == NULL) {
        trm_device_close(self->device);
    }
    free(self->dims);
    free(self->memory);
    free(self->capacity);
    free(self->host);
    free(self->is_set);
    free(self);
}

trm_status test_interpreter_set_input(test_interpreter *self, const char *name, const trm_dims *dims, const void *data)
{
    trm_tensor *tensor = trm_network_find_tensor(self->network, name);
    if (tensor == NULL || tensor->role != TRM_TENSOR_INPUT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the network has no input %s", name);
    }
    size_t size = bytes_of(tensor, dims);
    TRM_TRY(reserve(self, tensor->index, size));
    self->dims[tensor->index] = *dims;
    self->is_set[tensor->index] = true;
    TRM_TRY(trm_stream_upload(self->stream, self->memory[tensor->index], data, size));
    return trm_stream_synchronize(self->stream);
}

static trm_view view_of(test_interpreter *self, const trm_tensor *tensor)
{
    trm_view view = {self->memory[tensor->index], tensor->dtype, self->dims[tensor->index]};
    return view;
}

/* Elements of a tensor now, on the host. */
static trm_status read_back(test_interpreter *self, const trm_tensor *tensor, void *host)
{
    TRM_TRY(trm_stream_download(self->stream, host, self->memory[tensor->index],
                                bytes_of(tensor, &self->dims[tensor->index])));
    return trm_stream_synchronize(self->stream);
}

/* Dims of the outputs, with the values that decide them. */
static trm_status infer_layer(test_interpreter *self, const trm_layer *layer, int64_t (*values)[INTERPRETER_VALUES],
                              const void **known)
{
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        bool decides = (trm_layer_value_inputs(&layer->desc) >> i & 1) != 0 && layer->inputs[i] != NULL;
        known[i] = decides ? values[i] : NULL;
        if (decides) {
            const trm_tensor *input = layer->inputs[i];
            assert_true(bytes_of(input, &self->dims[input->index]) <= sizeof(values[i]));
            TRM_TRY(read_back(self, input, values[i]));
        }
    }
    TRM_TRY(trm_infer_in_network(layer, known, self->dims));
    if (trm_layer_is_data_dependent(&layer->desc)) {
        const trm_dims *inputs[TRM_MAX_LAYER_INPUTS] = {NULL};
        trm_dims outputs[TRM_MAX_LAYER_OUTPUTS];
        for (int32_t i = 0; i < layer->n_inputs; i++) {
            inputs[i] = layer->inputs[i] == NULL ? NULL : &self->dims[layer->inputs[i]->index];
        }
        for (int32_t i = 0; i < layer->n_outputs; i++) {
            outputs[i] = self->dims[layer->outputs[i]->index];
        }
        trm_layer_set_count(&layer->desc, trm_layer_largest_count(&layer->desc, inputs), outputs);
        for (int32_t i = 0; i < layer->n_outputs; i++) {
            self->dims[layer->outputs[i]->index] = outputs[i];
        }
    }
    return TRM_OK;
}

/* Takes over how many entries a data-dependent layer found. */
static trm_status take_count(test_interpreter *self, const trm_layer *layer)
{
    trm_dims outputs[TRM_MAX_LAYER_OUTPUTS];
    int64_t count;
    TRM_TRY(read_back(self, layer->outputs[layer->n_outputs - 1], &count));
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        outputs[i] = self->dims[layer->outputs[i]->index];
    }
    trm_layer_set_count(&layer->desc, count, outputs);
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        self->dims[layer->outputs[i]->index] = outputs[i];
    }
    return TRM_OK;
}

static trm_status run_layer(test_interpreter *self, const trm_layer *layer)
{
    int64_t values[TRM_MAX_LAYER_INPUTS][INTERPRETER_VALUES];
    const void *known[TRM_MAX_LAYER_INPUTS];
    trm_status inferred = infer_layer(self, layer, values, known);
    if (inferred != TRM_OK) {
        return inferred;
    }
    static const trm_kernel_table *const tables[] = {&trm_collective_kernels, &trm_attention_kernels, &trm_cuda_kernels,
                                                     &trm_host_kernels};
    trm_kernel_call call = {0};
    call.layer = &layer->desc;
    call.n_inputs = layer->n_inputs;
    call.n_outputs = layer->n_outputs;
    call.stream = self->stream;
    call.communicator = self->options.communicator;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] != NULL) {
            call.inputs[i] = view_of(self, layer->inputs[i]);
            call.values[i] = known[i];
        }
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        const trm_tensor *output = layer->outputs[i];
        TRM_TRY(reserve(self, output->index, bytes_of(output, &self->dims[output->index])));
        call.outputs[i] = view_of(self, output);
    }
    const trm_kernel *kernel = trm_kernel_find(tables, 4, self->options.backend, &call);
    if (kernel == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "no kernel runs layer %s", layer->name);
    }
    size_t needed = kernel->workspace != NULL ? kernel->workspace(&call) : 0;
    if (needed > self->workspace_size) {
        trm_device_free(self->device, self->workspace);
        self->workspace = NULL;
        TRM_TRY(trm_device_alloc(self->device, needed, &self->workspace));
        self->workspace_size = needed;
    }
    call.workspace = self->workspace;
    call.workspace_size = self->workspace_size;
    trm_status status = trm_kernel_run(kernel, &call);
    if (status == TRM_OK && trm_layer_is_data_dependent(&layer->desc)) {
        status = take_count(self, layer);
    }
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "layer %s", layer->name);
}

trm_status test_interpreter_run(test_interpreter *self)
{
    for (int32_t i = 0; i < self->network->n_tensors; i++) {
        const trm_tensor *tensor = self->network->tensors[i];
        if (tensor->role == TRM_TENSOR_INPUT && !self->is_set[i]) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s was not given", tensor->name);
        }
    }
    for (int32_t i = 0; i < self->network->n_tensors; i++) {
        TRM_TRY(trm_infer_start(self->network->tensors[i], &self->dims[i]));
    }
    for (int32_t i = 0; i < self->network->n_layers; i++) {
        TRM_TRY(run_layer(self, self->network->layers[i]));
    }
    return trm_stream_synchronize(self->stream);
}

const void *test_interpreter_output(test_interpreter *self, const char *name, trm_dims *dims)
{
    trm_tensor *tensor = trm_network_find_tensor(self->network, name);
    if (tensor == NULL) {
        fail_msg("the network has no tensor %s", name);
        return NULL;
    }
    size_t size = bytes_of(tensor, &self->dims[tensor->index]);
    free(self->host[tensor->index]);
    self->host[tensor->index] = malloc(size > 0 ? size : 1);
    assert_non_null(self->host[tensor->index]);
    assert_ok(trm_stream_download(self->stream, self->host[tensor->index], self->memory[tensor->index], size));
    assert_ok(trm_stream_synchronize(self->stream));
    if (dims != NULL) {
        *dims = self->dims[tensor->index];
    }
    return self->host[tensor->index];
}

void test_assert_outputs(trm_context *context, test_interpreter *whole)
{
    for (int32_t i = 0; i < whole->network->n_outputs; i++) {
        const char *name = whole->network->outputs[i]->name;
        trm_dims dims, expected_dims;
        const void *data;
        const float *expected = test_interpreter_output(whole, name, &expected_dims);
        assert_ok(trm_context_output(context, name, &dims, &data));
        assert_true(trm_dims_equal(&dims, &expected_dims));
        for (int64_t k = 0; k < trm_dims_count(&dims); k++) {
            const double found = (double)((const float *)data)[k], wanted = (double)expected[k];
            if (!(fabs(found - wanted) <= 1e-4 * (1 + fabs(wanted)))) {
                fail_msg("%s[%lld] is %g, expected %g", name, (long long)k, found, wanted);
            }
        }
    }
}
