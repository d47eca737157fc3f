/*
 * A plugin: the layer com.example.GainSwish, y = gain * x * sigmoid(sharpness * x), with a gain for each column.
 *
 *   x [..., n] f32, gain [n] f32 -> [..., n]; setting sharpness, a float, 1 if it is not given.
 *
 *     cc -shared -fPIC -O2 $(pkg-config --cflags trireme) gain_swish.c -o gain_swish.so -lm
 *     trireme run net.onnx --plugin ./gain_swish.so --input x=x.npy --output y=y.npy
 *
 * With its CUDA kernel, gain_swish.cu:
 *
 *     nvcc -shared -Xcompiler -fPIC -O2 -DWITH_CUDA $(pkg-config --cflags trireme) \
 *         gain_swish.c gain_swish.cu -o gain_swish.so
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <trireme/plugin.h>

#include "gain_swish.h"

enum { X, GAIN, INPUTS };

static bool fail(trm_plugin_call *call, const char *cause)
{
    snprintf(call->error, call->error_size, "%s", cause);
    return false;
}

/* The settings are checked once. What is made of them is there for all calls, on every thread. */
static bool create(trm_plugin_call *call)
{
    gain_swish *self = malloc(sizeof(*self));
    if (self == NULL) {
        return fail(call, "out of memory");
    }
    self->sharpness = call->n_settings > 0 ? call->settings[0].floats[0] : 1.0f;
    if (!(self->sharpness > 0.0f)) {
        free(self);
        return fail(call, "sharpness is not positive");
    }
    call->self = self;
    return true;
}

/* Dims may be unknown, -1, when a network is built. Then it is asked again when they are known. */
static bool infer(trm_plugin_call *call)
{
    const trm_plugin_tensor *x = &call->inputs[X], *gain = &call->inputs[GAIN];
    if (x->dtype != TRM_F32 || gain->dtype != TRM_F32) {
        return fail(call, "x and gain must be f32");
    }
    if (x->dims.n < 1 || gain->dims.n != 1) {
        return fail(call, "expected x with at least one dimension and gain with one");
    }
    const int64_t n = x->dims.d[x->dims.n - 1], gains = gain->dims.d[0];
    if (n != gains && n != -1 && gains != -1) {
        snprintf(call->error, call->error_size, "x has %lld columns and gain %lld", (long long)n, (long long)gains);
        return false;
    }
    call->outputs[0].dtype = TRM_F32;
    call->outputs[0].dims = x->dims;
    call->outputs[0].dims.d[x->dims.n - 1] = n == -1 ? gains : n;
    return true;
}

static bool run(trm_plugin_call *call)
{
    const gain_swish *self = call->self;
    const float *x = call->inputs[X].data, *gain = call->inputs[GAIN].data;
    float *y = call->outputs[0].data;
    const trm_dims *dims = &call->inputs[X].dims;
    const int64_t n = dims->d[dims->n - 1];
    int64_t rows = 1;
    for (int32_t i = 0; i + 1 < dims->n; i++) {
        rows *= dims->d[i];
    }
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t k = 0; k < n; k++) {
            const float v = x[row * n + k];
            y[row * n + k] = gain[k] * v / (1.0f + expf(-self->sharpness * v));
        }
    }
    return true;
}

static const trm_plugin_field fields[] = {{.name = "sharpness", .type = TRM_PLUGIN_FLOAT}};

/* Over ranks: columns with their gains, or rows. */
static const trm_plugin_split splits[] = {
    {.inputs = {[X] = TRM_PLUGIN_AXIS(-1), [GAIN] = TRM_PLUGIN_AXIS(0)}, .outputs = {TRM_PLUGIN_AXIS(-1)}},
    {.inputs = {[X] = TRM_PLUGIN_AXIS(0), [GAIN] = TRM_PLUGIN_WHOLE}, .outputs = {TRM_PLUGIN_AXIS(0)}},
};

static const trm_plugin plugin = {
    .size = sizeof(plugin),
    .domain = "com.example",
    .name = "GainSwish",
    .version = 1,
    .least_inputs = INPUTS,
    .most_inputs = INPUTS,
    .n_outputs = 1,
    .fields = fields,
    .n_fields = sizeof(fields) / sizeof(fields[0]),
    .splits = splits,
    .n_splits = sizeof(splits) / sizeof(splits[0]),
    .create = create,
    .infer = infer,
    .run = run,
#ifdef WITH_CUDA
    .enqueue = gain_swish_enqueue,
#endif
};
static const trm_plugin *const plugins[] = {&plugin};

TRM_PLUGIN_EXPORT const trm_plugin_list trm_plugins = {
    .size = sizeof(trm_plugins), .abi = TRM_PLUGIN_ABI, .n_plugins = 1, .plugins = plugins};
