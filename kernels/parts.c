#include "kernels/parts.h"

#include "base/checked.h"
#include "base/error.h"

#define ALIGNMENT ((size_t)256)

size_t trm_kernel_parts_room(const trm_view *view)
{
    return trm_align_up((size_t)trm_dims_count(&view->dims) * trm_dtype_size(view->dtype), ALIGNMENT);
}

trm_kernel_call *trm_kernel_parts_add(trm_kernel_parts *parts, const trm_kernel_call *call, trm_layer_kind kind)
{
    trm_kernel_call *part = &parts->calls[parts->n];
    parts->layers[parts->n] = (trm_layer_desc){.kind = kind};
    *part = (trm_kernel_call){.layer = &parts->layers[parts->n++],
                              .n_outputs = 1,
                              .stream = call->stream,
                              .communicator = call->communicator,
                              .allow_tf32 = call->allow_tf32,
                              .batch_invariant = call->batch_invariant};
    return part;
}

void trm_kernel_parts_pass(trm_kernel_call *part, const trm_kernel_call *call, int32_t input)
{
    part->constants |= (call->constants >> input & 1) << part->n_inputs;
    part->inputs[part->n_inputs++] = call->inputs[input];
}

/* The kernels of all parts, and the bytes of workspace that these take in all; false where one has no kernel. */
static bool find(const trm_kernel_call *call, trm_backend backend, trm_kernel_parts_fn describe,
                 trm_kernel_parts *parts, const trm_kernel *kernels[TRM_MOST_PARTS], size_t *bytes)
{
    size_t own = 0;
    *parts = (trm_kernel_parts){0};
    if (!describe(call, parts)) {
        return false;
    }
    for (int32_t i = 0; i < parts->n; i++) {
        trm_kernel_call *part = &parts->calls[i];
        kernels[i] = trm_kernel_find(parts->tables, parts->n_tables, backend, part);
        if (kernels[i] == NULL) {
            return false;
        }
        size_t needed = kernels[i]->workspace != NULL ? kernels[i]->workspace(part) : 0;
        own = needed > own ? needed : own;
        if (call->workspace != NULL) {
            part->workspace = (char *)call->workspace + parts->between;
            part->workspace_size = call->workspace_size > parts->between ? call->workspace_size - parts->between : 0;
        }
    }
    *bytes = parts->between + own;
    return true;
}

static trm_status find_to_run(const trm_kernel_call *call, trm_backend backend, trm_kernel_parts_fn describe,
                              trm_kernel_parts *parts, const trm_kernel *kernels[TRM_MOST_PARTS])
{
    size_t bytes;
    if (!find(call, backend, describe, parts, kernels, &bytes) || bytes > call->workspace_size) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a %s call does not fit the layer it was accepted for",
                 trm_layer_kind_name(call->layer->kind));
    }
    return TRM_OK;
}

bool trm_kernel_parts_accepts(const trm_kernel_call *call, trm_backend backend, trm_kernel_parts_fn describe)
{
    trm_kernel_parts parts;
    const trm_kernel *kernels[TRM_MOST_PARTS];
    size_t bytes;
    return find(call, backend, describe, &parts, kernels, &bytes);
}

size_t trm_kernel_parts_workspace(const trm_kernel_call *call, trm_backend backend, trm_kernel_parts_fn describe)
{
    trm_kernel_parts parts;
    const trm_kernel *kernels[TRM_MOST_PARTS];
    size_t bytes;
    return find(call, backend, describe, &parts, kernels, &bytes) ? bytes : 0;
}

trm_status trm_kernel_parts_prepare(const trm_kernel_call *call, trm_backend backend, trm_kernel_parts_fn describe,
                                    trm_program *program)
{
    trm_kernel_parts parts;
    const trm_kernel *kernels[TRM_MOST_PARTS];
    TRM_TRY(find_to_run(call, backend, describe, &parts, kernels));
    trm_layer_desc *layers = trm_program_alloc(program, (size_t)parts.n * sizeof(*layers));
    if (layers == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    const bool tunes = program->tunes;
    for (int32_t i = 0; i < parts.n; i++) {
        layers[i] = parts.layers[i];
        parts.calls[i].layer = &layers[i];
        program->tunes = tunes;
        TRM_TRY(trm_kernel_prepare(kernels[i], &parts.calls[i], program));
    }
    return TRM_OK;
}

trm_status trm_kernel_parts_tune(const trm_kernel_call *call, trm_backend backend, trm_kernel_parts_fn describe,
                                 struct trm_tuner *tuner)
{
    trm_kernel_parts parts;
    const trm_kernel *kernels[TRM_MOST_PARTS];
    TRM_TRY(find_to_run(call, backend, describe, &parts, kernels));
    for (int32_t i = 0; i < parts.n; i++) {
        TRM_TRY(trm_kernel_tune(kernels[i], &parts.calls[i], tuner));
    }
    return TRM_OK;
}
