/* Calls of a plugin's functions, and what is checked of their answers. */
#include "kernels/plugin/plugin.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "kernels/program.h"

/* ---- failures ---------------------------------------------------------------------------------- */

/* A plugin writes the text: what would spoil a line becomes '?'. */
trm_status trm_plugin_fail(trm_plugin_run *run, const char *what)
{
    run->error[sizeof(run->error) - 1] = '\0';
    for (char *at = run->error; *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' || *at == 0x7f ? '?' : *at;
    }
    return trm_fail(run->failure, "plugin %s cannot %s: %s", run->layer->plugin->label, what,
                    run->error[0] == '\0' ? "it did not say why" : run->error);
}

trm_status trm_plugin_do(trm_plugin_run *run, trm_plugin_function function, const char *what)
{
    run->error[0] = '\0';
    return function(&run->call) ? TRM_OK : trm_plugin_fail(run, what);
}

static void begin(trm_plugin_run *run, const trm_plugin_layer *layer, int32_t n_inputs)
{
    *run = (trm_plugin_run){.layer = layer, .failure = TRM_ERROR_INVALID_ARGUMENT};
    run->call = (trm_plugin_call){.size = sizeof(run->call),
                                  .self = layer->self,
                                  .settings = layer->settings,
                                  .n_settings = layer->n_settings,
                                  .inputs = run->inputs,
                                  .n_inputs = n_inputs,
                                  .outputs = run->outputs,
                                  .n_outputs = layer->plugin->table.n_outputs,
                                  .error = run->error,
                                  .error_size = sizeof(run->error)};
}

/* ---- the rule ---------------------------------------------------------------------------------- */

static bool is_known(const trm_dims *dims)
{
    bool known = true;
    for (int32_t i = 0; i < dims->n; i++) {
        known = known && dims->d[i] >= 0;
    }
    return known;
}

/* Asks the rule, with outputs that are filled with `filler` before. */
static trm_status ask_rule(trm_plugin_run *run, int filler, trm_plugin_tensor *outputs)
{
    memset(run->outputs, filler, sizeof(run->outputs));
    TRM_TRY(trm_plugin_do(run, run->layer->plugin->table.infer, "infer its dims"));
    memcpy(outputs, run->outputs, sizeof(run->outputs));
    return TRM_OK;
}

static trm_status check_output(const trm_plugin_run *run, int32_t i, const trm_plugin_tensor *output, bool all_known)
{
    const char *label = run->layer->plugin->label;
    if ((int)output->dtype <= TRM_DTYPE_NONE || (int)output->dtype >= TRM_DTYPE_COUNT || output->dims.n < 0 ||
        output->dims.n > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "plugin %s gives output %d type %d and %d dims, which cannot be", label,
                 (int)i, (int)output->dtype, (int)output->dims.n);
    }
    for (int32_t k = 0; k < output->dims.n; k++) {
        if (output->dims.d[k] < -1) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "plugin %s gives dimension %d of output %d size %lld", label, (int)k,
                     (int)i, (long long)output->dims.d[k]);
        }
    }
    if (all_known && !is_known(&output->dims)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "plugin %s leaves a dimension of output %d unknown although it knows all inputs", label, (int)i);
    }
    return TRM_OK;
}

static bool is_same(const trm_plugin_tensor *a, const trm_plugin_tensor *b)
{
    return a->dtype == b->dtype && a->dims.n == b->dims.n && a->dims.n >= 0 && a->dims.n <= TRM_MAX_DIMS &&
           memcmp(a->dims.d, b->dims.d, (size_t)a->dims.n * sizeof(a->dims.d[0])) == 0;
}

/* Whether nothing about the inputs is missing. */
static bool inputs_are_known(const trm_plugin_run *run)
{
    bool known = true;
    for (int32_t i = 0; i < run->call.n_inputs; i++) {
        const trm_plugin_tensor *input = &run->inputs[i];
        const bool needs_values = (run->layer->plugin->table.value_inputs >> i & 1) != 0;
        known = known && (input->dtype == TRM_DTYPE_NONE ||
                          (is_known(&input->dims) && (!needs_values || input->values != NULL)));
    }
    return known;
}

trm_status trm_plugin_infer(const trm_plugin_layer *layer, const trm_plugin_tensor *inputs, int32_t n_inputs,
                            trm_dims *output_dims, trm_dtype *output_types)
{
    static const trm_backend backends[] = {TRM_BACKEND_HOST, TRM_BACKEND_CUDA};
    trm_plugin_tensor first[TRM_MAX_LAYER_OUTPUTS], second[TRM_MAX_LAYER_OUTPUTS];
    trm_plugin_run run;
    begin(&run, layer, n_inputs);
    memcpy(run.inputs, inputs, (size_t)n_inputs * sizeof(*inputs));
    const bool known = inputs_are_known(&run);
    TRM_TRY(ask_rule(&run, 0x5a, first));
    TRM_TRY(ask_rule(&run, 0xa5, second));
    for (int32_t i = 0; i < run.call.n_outputs; i++) {
        TRM_TRY(check_output(&run, i, &first[i], known));
        if (!is_same(&first[i], &second[i])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "plugin %s gives output %d other dims when asked again",
                     layer->plugin->label, (int)i);
        }
        output_types[i] = first[i].dtype;
        output_dims[i] = (trm_dims){.n = first[i].dims.n};
        memcpy(output_dims[i].d, first[i].dims.d, (size_t)first[i].dims.n * sizeof(first[i].dims.d[0]));
        run.outputs[i].data = NULL;
        run.outputs[i].values = NULL;
    }
    for (size_t i = 0; known && i < sizeof(backends) / sizeof(backends[0]); i++) {
        size_t size;
        run.call.backend = backends[i];
        TRM_TRY(trm_plugin_has_kernel(layer->plugin, backends[i]) ? trm_plugin_workspace(&run, &size) : TRM_OK);
    }
    return TRM_OK;
}

/* ---- kernels ----------------------------------------------------------------------------------- */

static trm_plugin_tensor tensor_of(const trm_view *view, const void *values)
{
    return (trm_plugin_tensor){.dtype = view->dtype, .dims = view->dims, .data = view->data, .values = values};
}

void trm_plugin_describe(const trm_kernel_call *call, const trm_plugin_layer *layer, trm_backend backend,
                         trm_plugin_run *run)
{
    begin(run, layer, call->n_inputs);
    run->call.backend = backend;
    for (int32_t i = 0; i < call->n_inputs; i++) {
        run->inputs[i] = tensor_of(&call->inputs[i], call->values[i]);
    }
    for (int32_t i = 0; i < run->call.n_outputs; i++) {
        run->outputs[i] = tensor_of(&call->outputs[i], NULL);
    }
}

trm_status trm_plugin_workspace(trm_plugin_run *run, size_t *size)
{
    *size = 0;
    if (run->layer->plugin->table.workspace == NULL) {
        return TRM_OK;
    }
    run->call.workspace_size = 0;
    TRM_TRY(trm_plugin_do(run, run->layer->plugin->table.workspace, "say how much workspace it needs"));
    if (run->call.workspace_size > TRM_PLUGIN_MOST_WORKSPACE) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "plugin %s wants %zu bytes of workspace, at most %zu are supported",
                 run->layer->plugin->label, run->call.workspace_size, TRM_PLUGIN_MOST_WORKSPACE);
    }
    *size = run->call.workspace_size;
    return TRM_OK;
}

size_t trm_plugin_asked(const trm_kernel_call *call, trm_backend backend)
{
    trm_plugin_run run;
    size_t size;
    trm_plugin_describe(call, trm_plugin_layer_of(call->layer), backend, &run);
    return trm_plugin_workspace(&run, &size) == TRM_OK ? size : 0;
}

static bool is_empty(const trm_kernel_call *call)
{
    bool empty = true;
    for (int32_t i = 0; i < call->n_outputs; i++) {
        empty = empty && trm_dims_count(&call->outputs[i].dims) == 0;
    }
    return empty;
}

trm_status trm_plugin_prepare(const trm_kernel_call *call, trm_backend backend, trm_program *program,
                              trm_plugin_run **run)
{
    const trm_plugin_layer *layer = trm_plugin_layer_of(call->layer);
    size_t needed;
    *run = NULL;
    if (is_empty(call)) {
        return TRM_OK;
    }
    *run = trm_program_alloc(program, sizeof(**run));
    if (*run == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_plugin_describe(call, layer, backend, *run);
    (*run)->failure = TRM_ERROR_INTERNAL;
    TRM_TRY(trm_plugin_workspace(*run, &needed));
    if (needed > call->workspace_size) {
        TRM_FAIL(TRM_ERROR_INTERNAL,
                 "plugin %s wants %zu bytes of workspace for these dims, and wanted %zu for larger ones",
                 layer->plugin->label, needed, call->workspace_size);
    }
    (*run)->call.workspace = call->workspace;
    (*run)->call.workspace_size = needed;
    return TRM_OK;
}
