/* A product as a plugin. */
#include "support/product_plugin.h"

#include <stdio.h>

#include <trireme/plugin.h>

#include "support/support.h"

static bool infer(trm_plugin_call *call)
{
    const trm_dims *x = &call->inputs[0].dims, *w = &call->inputs[1].dims;
    const int64_t k = x->n > 0 ? x->d[x->n - 1] : 0;
    if (x->n < 1 || w->n != 2 || (k != w->d[0] && k != -1 && w->d[0] != -1)) {
        snprintf(call->error, call->error_size, "x and w do not multiply");
        return false;
    }
    call->outputs[0].dtype = TRM_F32;
    call->outputs[0].dims = *x;
    call->outputs[0].dims.d[x->n - 1] = w->d[1];
    return true;
}

/* A row of sums in f64. */
static bool workspace(trm_plugin_call *call)
{
    call->workspace_size = call->backend == TRM_BACKEND_HOST ? (size_t)call->inputs[1].dims.d[1] * sizeof(double) : 0;
    return true;
}

static const char source[] =
    "extern \"C\" __global__ void product(const float *x, const float *w, float *y, long long count, int k, int n)\n"
    "{\n"
    "    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "    double sum = 0;\n"
    "    for (int j = 0; i < count && j < k; j++) {\n"
    "        sum += (double)x[i / n * k + j] * (double)w[j * n + i % n];\n"
    "    }\n"
    "    if (i < count) {\n"
    "        y[i] = (float)sum;\n"
    "    }\n"
    "}\n";

static bool launch(trm_plugin_call *call, trm_plugin_launch *to)
{
    const trm_dims *y = &call->outputs[0].dims;
    int64_t count = 1;
    for (int32_t i = 0; i < y->n; i++) {
        count *= y->d[i];
    }
    to->grid[0] = (uint32_t)((count + 127) / 128);
    to->block[0] = 128;
    to->grid[1] = to->grid[2] = to->block[1] = to->block[2] = 1;
    to->arguments[0] = (uint64_t)(uintptr_t)call->inputs[0].data;
    to->arguments[1] = (uint64_t)(uintptr_t)call->inputs[1].data;
    to->arguments[2] = (uint64_t)(uintptr_t)call->outputs[0].data;
    to->arguments[3] = (uint64_t)count;
    to->arguments[4] = (uint64_t)call->inputs[1].dims.d[0];
    to->arguments[5] = (uint64_t)call->inputs[1].dims.d[1];
    to->n_arguments = 6;
    return true;
}

static bool run(trm_plugin_call *call)
{
    const trm_dims *w_dims = &call->inputs[1].dims, *y_dims = &call->outputs[0].dims;
    const int64_t k = w_dims->d[0], n = w_dims->d[1];
    const float *x = call->inputs[0].data, *w = call->inputs[1].data;
    float *y = call->outputs[0].data;
    double *sums = call->workspace;
    int64_t rows = 1;
    for (int32_t i = 0; i + 1 < y_dims->n; i++) {
        rows *= y_dims->d[i];
    }
    for (int64_t r = 0; r < rows; r++) {
        memset(sums, 0, (size_t)n * sizeof(*sums));
        for (int64_t i = 0; i < k; i++) {
            for (int64_t j = 0; j < n; j++) {
                sums[j] += (double)x[r * k + i] * (double)w[i * n + j];
            }
        }
        for (int64_t j = 0; j < n; j++) {
            y[r * n + j] = (float)sums[j];
        }
    }
    return true;
}

/* Settings without an effect, which plan files keep. */
static const trm_plugin_field fields[] = {
    {"int", TRM_PLUGIN_INT, false},       {"ints", TRM_PLUGIN_INTS, false},       {"floats", TRM_PLUGIN_FLOATS, false},
    {"string", TRM_PLUGIN_STRING, false}, {"strings", TRM_PLUGIN_STRINGS, false}, {"tensor", TRM_PLUGIN_TENSOR, false},
};

static bool save(trm_plugin_call *call)
{
    call->saved = "saved";
    call->saved_size = 5;
    return true;
}

int32_t test_product_plugin(void)
{
    static const int64_t ints[] = {3, -4};
    static const float floats[] = {0.5f, 2.0f};
    static const char *const strings[] = {"one", "two"};
    static const trm_plugin_setting settings[] = {
        {.name = "int", .type = TRM_PLUGIN_INT, .count = 1, .ints = ints},
        {.name = "ints", .type = TRM_PLUGIN_INTS, .count = 2, .ints = ints},
        {.name = "floats", .type = TRM_PLUGIN_FLOATS, .count = 2, .floats = floats},
        {.name = "string", .type = TRM_PLUGIN_STRING, .count = 1, .strings = strings},
        {.name = "strings", .type = TRM_PLUGIN_STRINGS, .count = 2, .strings = strings},
        {.name = "tensor", .type = TRM_PLUGIN_TENSOR, .dtype = TRM_F32, .dims = {1, {2}}, .data = floats}};
    static const trm_plugin_split splits[] = {
        {{TRM_PLUGIN_WHOLE, TRM_PLUGIN_AXIS(1)}, {TRM_PLUGIN_AXIS(-1)}},
        {{TRM_PLUGIN_AXIS(0), TRM_PLUGIN_WHOLE}, {TRM_PLUGIN_AXIS(0)}},
        {{TRM_PLUGIN_AXIS(1), TRM_PLUGIN_WHOLE}, {TRM_PLUGIN_AXIS(1)}}, /* wrong where x has two dims */
        {{TRM_PLUGIN_AXIS(-1), TRM_PLUGIN_AXIS(0)}, {TRM_PLUGIN_SUM}},
        {{TRM_PLUGIN_SUM, TRM_PLUGIN_WHOLE}, {TRM_PLUGIN_SUM}},
    };
    static const trm_plugin plugin = {.size = sizeof(plugin),
                                      .domain = "test",
                                      .name = "Product",
                                      .version = 1,
                                      .least_inputs = 2,
                                      .most_inputs = 2,
                                      .n_outputs = 1,
                                      .fields = fields,
                                      .n_fields = sizeof(fields) / sizeof(fields[0]),
                                      .save = save,
                                      .splits = splits,
                                      .n_splits = sizeof(splits) / sizeof(splits[0]),
                                      .infer = infer,
                                      .workspace = workspace,
                                      .run = run,
                                      .cuda_source = source,
                                      .cuda_kernel = "product",
                                      .launch = launch};
    static const trm_plugin *const plugins[] = {&plugin};
    static const trm_plugin_list list = {sizeof(list), TRM_PLUGIN_ABI, 1, plugins};
    static int32_t layer;
    if (layer == 0) {
        assert_ok(trm_plugin_register(&list));
        assert_ok(trm_plugin_make_layer("test", "Product", 1, settings, 6, &layer));
    }
    return layer;
}
