/*
 * What fusion gains on CUDA device 0: small networks as exporters write them, layer by layer and after the passes, on
 * random data. Each figure is the median of several launches of a captured chain of runs.
 *
 *   bench_fusion
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dist/plan/plan.h"
#include "graph/network.h"
#include "kernels/program.h"
#include "kernels/sampling/random.h"

#define ROOF_BYTES 4.55e12 /* per second, an H200's memory */
#define RUNS       8       /* per launch */
#define LAUNCHES   9

typedef struct bench {
    trm_device *device;
    trm_stream *stream;
    trm_event *start, *end;
} bench;

/* A network ready to run: a call for each layer, memory for each tensor. */
typedef struct runner {
    const trm_network *network;
    trm_view *views; /* [n_tensors] */
    trm_kernel_call *calls;
    const trm_kernel **kernels;
    void *workspace;
    size_t workspace_size, moved; /* bytes read and written by all layers */
} runner;

static size_t bytes_of(const trm_view *view)
{
    return (size_t)trm_dims_count(&view->dims) * trm_dtype_size(view->dtype);
}

static trm_status fill(const bench *b, const trm_tensor *tensor, trm_view *view)
{
    if (tensor->role == TRM_TENSOR_CONSTANT) {
        TRM_TRY(trm_stream_upload(b->stream, view->data, tensor->value, bytes_of(view)));
        return trm_stream_synchronize(b->stream);
    }
    if (tensor->role != TRM_TENSOR_INPUT) {
        return TRM_OK;
    }
    trm_random_fill_args args = {.to = *view, .seed = (uint64_t)tensor->index, .spread = 1.0f};
    int64_t stride = 1;
    for (int32_t i = view->dims.n - 1; i >= 0; i--) {
        args.strides[i] = stride;
        stride *= view->dims.d[i];
    }
    return trm_random_fill(b->stream, &args);
}

static trm_status runner_add_layer(const bench *b, runner *r, int32_t i)
{
    const trm_layer *layer = r->network->layers[i];
    trm_kernel_call *call = &r->calls[i];
    *call = (trm_kernel_call){
        .layer = &layer->desc, .n_inputs = layer->n_inputs, .n_outputs = layer->n_outputs, .stream = b->stream};
    for (int32_t k = 0; k < layer->n_inputs; k++) {
        if (layer->inputs[k] != NULL) {
            call->inputs[k] = r->views[layer->inputs[k]->index];
            r->moved += bytes_of(&call->inputs[k]);
        }
    }
    for (int32_t k = 0; k < layer->n_outputs; k++) {
        call->outputs[k] = r->views[layer->outputs[k]->index];
        r->moved += bytes_of(&call->outputs[k]);
    }
    r->kernels[i] = trm_kernel_find(trm_all_kernels, trm_all_kernels_count, TRM_BACKEND_CUDA, call);
    if (r->kernels[i] == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "no kernel for %s", layer->name);
    }
    size_t size = r->kernels[i]->workspace == NULL ? 0 : r->kernels[i]->workspace(call);
    r->workspace_size = size > r->workspace_size ? size : r->workspace_size;
    return TRM_OK;
}

static trm_status runner_init(const bench *b, const trm_network *network, runner *r)
{
    *r = (runner){.network = network};
    r->views = calloc((size_t)network->n_tensors, sizeof(*r->views));
    r->calls = calloc((size_t)network->n_layers, sizeof(*r->calls));
    r->kernels = calloc((size_t)network->n_layers, sizeof(const trm_kernel *));
    if (r->views == NULL || r->calls == NULL || r->kernels == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a bench");
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        r->views[i] = (trm_view){NULL, tensor->dtype, tensor->dims};
        TRM_TRY(trm_device_alloc(b->device, bytes_of(&r->views[i]), &r->views[i].data));
        TRM_TRY(fill(b, tensor, &r->views[i]));
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        TRM_TRY(runner_add_layer(b, r, i));
    }
    TRM_TRY(trm_device_alloc(b->device, r->workspace_size, &r->workspace));
    for (int32_t i = 0; i < network->n_layers; i++) {
        r->calls[i].workspace = r->workspace;
        r->calls[i].workspace_size = r->workspace_size;
        TRM_TRY(trm_kernel_tune(r->kernels[i], &r->calls[i], NULL));
    }
    return TRM_OK;
}

static void runner_fini(const bench *b, runner *r)
{
    for (int32_t i = 0; r->views != NULL && i < r->network->n_tensors; i++) {
        trm_device_free(b->device, r->views[i].data);
    }
    trm_device_free(b->device, r->workspace);
    free(r->views);
    free(r->calls);
    free(r->kernels);
}

static trm_status runner_run(const runner *r)
{
    for (int32_t i = 0; i < r->network->n_layers; i++) {
        TRM_TRY(trm_kernel_run(r->kernels[i], &r->calls[i]));
    }
    return TRM_OK;
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Microseconds of one run. */
static trm_status time_network(const bench *b, const trm_network *network, float *microseconds, size_t *moved)
{
    runner r;
    trm_graph_exec *exec = NULL;
    float times[LAUNCHES];
    trm_status status;
    TRM_TRY_GOTO(status, runner_init(b, network, &r), done);
    TRM_TRY_GOTO(status, runner_run(&r), done);
    TRM_TRY_GOTO(status, trm_stream_synchronize(b->stream), done);
    TRM_TRY_GOTO(status, trm_stream_begin_capture(b->stream), done);
    for (int32_t i = 0; status == TRM_OK && i < RUNS; i++) {
        status = runner_run(&r);
    }
    trm_status ended = trm_stream_end_capture(b->stream, &exec);
    status = status == TRM_OK ? ended : status;
    for (int32_t i = 0; status == TRM_OK && i < LAUNCHES; i++) {
        TRM_TRY_GOTO(status, trm_event_record(b->start, b->stream), done);
        TRM_TRY_GOTO(status, trm_graph_exec_launch(exec, b->stream), done);
        TRM_TRY_GOTO(status, trm_event_record(b->end, b->stream), done);
        TRM_TRY_GOTO(status, trm_event_synchronize(b->end), done);
        TRM_TRY_GOTO(status, trm_event_elapsed_ms(b->start, b->end, &times[i]), done);
    }
    if (status == TRM_OK) {
        qsort(times, LAUNCHES, sizeof(times[0]), compare);
        *microseconds = times[LAUNCHES / 2] * 1e3f / RUNS;
        *moved = r.moved;
    }
done:
    trm_graph_exec_destroy(exec);
    runner_fini(b, &r);
    return status;
}

/* ---- networks ---------------------------------------------------------------------------------- */

static trm_tensor *add(trm_network *network, trm_layer_desc desc, trm_tensor *a, trm_tensor *b, trm_tensor *c)
{
    trm_tensor *inputs[] = {a, b, c}, *outputs[TRM_MAX_LAYER_OUTPUTS] = {NULL};
    if (trm_network_add_layer(network, NULL, &desc, inputs, c != NULL ? 3 : b != NULL ? 2 : 1, outputs) != TRM_OK) {
        fprintf(stderr, "%s\n", trm_last_error());
        exit(1);
    }
    return outputs[0];
}

static trm_tensor *input(trm_network *network, trm_dtype dtype, trm_dims dims)
{
    static int32_t number;
    trm_tensor *tensor = NULL;
    char name[16];
    snprintf(name, sizeof(name), "x%d", (int)number++);
    if (trm_network_add_input(network, name, dtype, dims, &tensor) != TRM_OK) {
        exit(1);
    }
    return tensor;
}

static trm_tensor *binary(trm_network *network, trm_elementwise_op op, trm_tensor *a, trm_tensor *b)
{
    return add(network, (trm_layer_desc){.kind = TRM_LAYER_ELEMENTWISE, .elementwise = {op}}, a, b, NULL);
}

/* A number of x's type. */
static trm_tensor *number(trm_network *network, const trm_tensor *x, float value)
{
    trm_tensor *tensor = NULL, *one = NULL;
    uint16_t half = 0x3555; /* 0.333 in f16, the only one used there */
    const void *bytes = x->dtype == TRM_F16 ? (const void *)&half : (const void *)&value;
    if (trm_network_add_constant(network, "c", x->dtype, (trm_dims){0}, bytes, &one) == TRM_OK) {
        tensor = one;
    }
    return tensor;
}

/* tanh(x * w + b) * z + x, clipped: w and b by column. */
static trm_network *chain(trm_dtype dtype, int64_t rows, int64_t columns)
{
    trm_network *network = NULL;
    if (trm_network_create(&network) != TRM_OK) {
        exit(1);
    }
    trm_tensor *x = input(network, dtype, (trm_dims){2, {rows, columns}});
    trm_tensor *z = input(network, dtype, (trm_dims){2, {rows, columns}});
    trm_tensor *w = input(network, dtype, (trm_dims){1, {columns}}),
               *b = input(network, dtype, (trm_dims){1, {columns}});
    trm_layer_desc tanh = {.kind = TRM_LAYER_UNARY, .unary = {.activation = TRM_ACTIVATION_TANH}};
    trm_layer_desc clip = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_CLIP, .alpha = -1, .beta = 1}};
    trm_tensor *y = binary(network, TRM_ELEMENTWISE_ADD, binary(network, TRM_ELEMENTWISE_MUL, x, w), b);
    y = binary(network, TRM_ELEMENTWISE_MUL, add(network, tanh, y, NULL, NULL), z);
    y = add(network, clip, binary(network, TRM_ELEMENTWISE_ADD, y, x), NULL, NULL);
    (void)trm_network_mark_output(network, y);
    return network;
}

/* softmax(q k^T / 3 + mask) v */
static trm_network *attention(trm_dtype dtype, int64_t batch, int64_t heads, int64_t queries, int64_t dim, bool masked)
{
    trm_network *network = NULL;
    const trm_dims dims = {4, {batch, heads, queries, dim}};
    if (trm_network_create(&network) != TRM_OK) {
        exit(1);
    }
    trm_tensor *q = input(network, dtype, dims), *k = input(network, dtype, dims), *v = input(network, dtype, dims);
    trm_layer_desc product = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    trm_layer_desc softmax = {.kind = TRM_LAYER_SOFTMAX, .softmax = {3}};
    trm_tensor *scores =
        binary(network, TRM_ELEMENTWISE_MUL, add(network, product, q, k, NULL), number(network, q, 1.0f / 3));
    if (masked) {
        scores =
            binary(network, TRM_ELEMENTWISE_ADD, scores, input(network, dtype, (trm_dims){4, {batch, 1, 1, queries}}));
    }
    product.matmul.transpose_b = false;
    (void)trm_network_mark_output(network, add(network, product, add(network, softmax, scores, NULL, NULL), v, NULL));
    return network;
}

static void measure(const bench *b, const char *name, trm_network *network)
{
    float plain = 0, fused = 0;
    size_t moved_plain = 0, moved = 0;
    trm_status status = time_network(b, network, &plain, &moved_plain);
    int32_t layers = network->n_layers;
    status = status == TRM_OK ? trm_pass_fuse(network, TRM_PASSES_BEFORE_PARTITION, NULL) : status;
    status = status == TRM_OK ? trm_pass_fuse_elementwise(network, NULL) : status;
    status = status == TRM_OK ? time_network(b, network, &fused, &moved) : status;
    if (status != TRM_OK) {
        printf("%-34s %s\n", name, trm_last_error());
    } else {
        printf("%-34s %2d layers %9.1f us %7.1f MB | %2d layers %9.1f us %7.1f MB, %3.0f %% of the memory's speed | "
               "%.2f x\n",
               name, (int)layers, (double)plain, (double)moved_plain / 1e6, (int)network->n_layers, (double)fused,
               (double)moved / 1e6, 100 * (double)moved / ((double)fused * 1e-6) / ROOF_BYTES, (double)(plain / fused));
    }
    trm_network_destroy(network);
}

int main(void)
{
    bench b = {NULL, NULL, NULL, NULL};
    if (trm_device_open(TRM_BACKEND_CUDA, 0, 0, &b.device) != TRM_OK ||
        trm_stream_create(b.device, &b.stream) != TRM_OK || trm_event_create(b.device, &b.start) != TRM_OK ||
        trm_event_create(b.device, &b.end) != TRM_OK) {
        fprintf(stderr, "%s\n", trm_last_error());
        return 1;
    }
    measure(&b, "chain f32 [8192, 4096]", chain(TRM_F32, 8192, 4096));
    measure(&b, "chain f16 [16384, 4096]", chain(TRM_F16, 16384, 4096));
    measure(&b, "chain f32 [512, 768]", chain(TRM_F32, 512, 768));
    measure(&b, "chain f32 [8191, 4095]", chain(TRM_F32, 8191, 4095));
    measure(&b, "ViT-B f16, batch 1", attention(TRM_F16, 1, 12, 197, 64, false));
    measure(&b, "ViT-B f16, batch 64", attention(TRM_F16, 64, 12, 197, 64, false));
    measure(&b, "ViT-B f32, batch 8", attention(TRM_F32, 8, 12, 197, 64, false));
    measure(&b, "ViT-B f32, batch 64", attention(TRM_F32, 64, 12, 197, 64, false));
    measure(&b, "BERT f16, batch 64, mask", attention(TRM_F16, 64, 12, 128, 64, true));
    measure(&b, "BERT f16, batch 8, 512, mask", attention(TRM_F16, 8, 12, 512, 64, true));
    measure(&b, "BERT f32, batch 64, mask", attention(TRM_F32, 64, 12, 128, 64, true));
    measure(&b, "BERT f32, batch 1, mask", attention(TRM_F32, 1, 12, 128, 64, true));
    measure(&b, "long f16, 4096", attention(TRM_F16, 2, 16, 4096, 64, false));
    measure(&b, "long f32, 4096", attention(TRM_F32, 2, 16, 4096, 64, false));
    trm_event_destroy(b.start);
    trm_event_destroy(b.end);
    trm_stream_destroy(b.stream);
    trm_device_close(b.device);
    return 0;
}
