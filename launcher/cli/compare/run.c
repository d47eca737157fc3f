/* One run of a network for `trireme compare`, which saves the output of every layer in a folder. */
#include "launcher/cli/compare/compare.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/temporary.h"
#include "launcher/cli/onnx/job.h"

trm_status compare_temporary_folder(char folder[COMPARE_PATH_SIZE])
{
    const char *parent = getenv("TMPDIR");
    trm_temporary made; /* locked until this process ends */
    folder[0] = '\0';
    TRM_TRY(trm_temporary_create(parent == NULL || parent[0] == '\0' ? "/tmp" : parent, "trireme-compare", &made));
    snprintf(folder, COMPARE_PATH_SIZE, "%s", made.path);
    return TRM_OK;
}

/* Every rank uses the folder of rank 0. */
static trm_status agree_on_folder(const job *j, char folder[COMPARE_PATH_SIZE])
{
    trm_status status = TRM_OK;
    if (j->is_leader && folder[0] == '\0') {
        status = compare_temporary_folder(folder);
    }
    TRM_TRY(trm_world_all_ok(j->world, status));
    return trm_world_broadcast(j->world, folder, COMPARE_PATH_SIZE, 0);
}

/* An output is neither fused away nor left in parts. */
static trm_status mark_every_layer(onnx_job *j)
{
    trm_layer_info layer;
    if (j->network == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "option --every-layer is not for plans: their layers were fused when they were built");
    }
    for (int32_t i = 0; trm_network_get_layer(j->network, i, &layer); i++) {
        for (int32_t k = 0; k < layer.n_outputs; k++) {
            bool is_marked = false;
            for (int32_t n = 0; n < trm_network_output_count(j->network) && !is_marked; n++) {
                is_marked = trm_network_output(j->network, n) == layer.outputs[k];
            }
            TRM_TRY(is_marked ? TRM_OK : trm_network_mark_output(j->network, layer.outputs[k]));
        }
    }
    return TRM_OK;
}

static trm_status prepare(onnx_job *j)
{
    bool is_network = names_network(j->all->operands[0]);
    if (is_network) {
        TRM_TRY(onnx_open(j, j->all->operands[0], trm_world_size(j->job.world)));
        TRM_TRY(onnx_build(j, false));
    } else {
        TRM_TRY(compare_open_model(j));
    }
    if (settings_flag(j->all, SETTING_EVERY_LAYER)) {
        TRM_TRY(mark_every_layer(j));
    }
    return is_network ? onnx_fill_inputs(j, (uint64_t)settings_integer(j->all, SETTING_SEED)) : TRM_OK;
}

/* Saves outputs that no layer computes, such as an input that is one. */
static trm_status add_other_outputs(onnx_job *j, tensor_writer *w)
{
    const trm_network *network = j->shown;
    for (int32_t i = 0; i < trm_network_output_count(network); i++) {
        trm_tensor *tensor = trm_network_output(network, i);
        trm_layer_info layer;
        bool is_made = false;
        for (int32_t k = 0; !is_made && trm_network_get_layer(network, k, &layer); k++) {
            for (int32_t n = 0; n < layer.n_outputs && !is_made; n++) {
                is_made = layer.outputs[n] == tensor;
            }
        }
        if (is_made) {
            continue;
        }
        const char *name = trm_tensor_name(tensor);
        trm_debug_tensor shown = {.name = name, .layer = name, .kernel = "", .dtype = trm_tensor_dtype(tensor)};
        shown.part = (trm_tensor_part){.kind = TRM_PART_WHOLE, .parts = 1, .of = name};
        TRM_TRY(trm_context_output(j->context, name, &shown.dims, &shown.data));
        tensor_writer_add(w, &shown);
    }
    return TRM_OK;
}

/* From the context on, one rank may fail alone. */
static trm_status run_and_keep(onnx_job *j, tensor_writer *w)
{
    TRM_TRY(onnx_tune(j));
    TRM_TRY(trm_context_set_debug(j->context, tensor_writer_add, w));
    TRM_TRY(trm_context_run(j->context));
    return add_other_outputs(j, w);
}

static trm_status run(onnx_job *j, char folder[COMPARE_PATH_SIZE], bool *alike)
{
    *alike = true;
    TRM_TRY(trm_world_all_ok(j->job.world, prepare(j)));
    TRM_TRY(agree_on_folder(&j->job, folder));
    TRM_TRY(onnx_load(j));
    TRM_TRY(trm_world_all_ok(j->job.world, onnx_set_inputs(j, j->context)));
    const tensor_run described = {.model = j->all->operands[0],
                                  .backend = j->backend,
                                  .mesh = j->mesh,
                                  .rank = trm_world_rank(j->job.world),
                                  .n_ranks = j->n_ranks};
    tensor_writer writer;
    trm_status status = trm_world_all_ok(j->job.world, tensor_writer_open(&writer, folder, &described));
    if (status == TRM_OK) {
        *alike = false;
        status = run_and_keep(j, &writer);
    }
    trm_held_error ran;
    trm_error_hold(status, &ran);
    trm_status closed = tensor_writer_close(&writer, status == TRM_OK);
    if (closed != TRM_OK) { /* nobody else cancels a run that a full disk ended */
        return closed;
    }
    return status == TRM_OK ? trm_world_all_ok(j->job.world, TRM_OK) : trm_error_give_back(&ran);
}

int compare_run(const settings *all, char folder[COMPARE_PATH_SIZE], bool *is_leader)
{
    onnx_job j = {.all = all};
    bool alike = true;
    trm_status status = job_open_world(&j.job, all);
    *is_leader = j.job.is_leader;
    if (status == TRM_OK) {
        status = run(&j, folder, &alike);
    }
    if (status == TRM_OK || alike || j.n_ranks <= 1) { /* aborting a job ends the process at once */
        onnx_close(&j);
    }
    return job_close(&j.job, status, alike);
}
