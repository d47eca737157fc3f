/* Loads LoRA adapters into a generator's slots. */
#include "dist/llm/adapters.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/recorder.h"
#include "dist/llm/generator.h"
#include "graph/import/hf/model.h"

#define DEFAULT_RANK 16
#define MOST_RANK    512

trm_status trm_adapter_slots_choose(const trm_generator_options *options, trm_adapter_slots *slots)
{
    const int32_t rank = options->max_adapter_rank == 0 ? DEFAULT_RANK : options->max_adapter_rank;
    if (options->max_adapters < 0 || options->max_adapters > TRM_MAX_ADAPTERS || rank < 1 || rank > MOST_RANK) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%d adapters of rank %d were asked for, expected 0 to %d of rank 1 to %d",
                 options->max_adapters, rank, TRM_MAX_ADAPTERS, MOST_RANK);
    }
    *slots = (trm_adapter_slots){.n = options->max_adapters, .rank = rank};
    return TRM_OK;
}

bool trm_generator_has_adapter(const trm_generator *g, int32_t adapter)
{
    return adapter == 0 || (adapter > 0 && adapter <= g->adapters.n && g->adapters.loaded[adapter - 1]);
}

/* This rank's part of a whole weight, which it takes over, along the state's axis `axis` of three. */
static trm_status cut(const trm_generator *g, const trm_tensor *state, trm_weight **weight)
{
    const trm_tensor_part *part = &state->part;
    const trm_mesh *mesh = &g->engine->plan->mesh;
    if (part->kind != TRM_PART_SPLIT) {
        return TRM_OK;
    }
    const trm_axis along = mesh->size[TRM_AXIS_TP] > 1 ? TRM_AXIS_TP : TRM_AXIS_CP;
    const int64_t each = state->dims.d[part->axis], rank = trm_mesh_coordinate(mesh, along, g->world->rank);
    const int64_t start = rank * part->parts / mesh->size[along] * each;
    const int64_t left = part->whole > start ? part->whole - start : 0;
    trm_weight *whole = *weight;
    *weight = NULL;
    const trm_status status = trm_weight_slice(whole, part->axis - 1, start, left < each ? left : each, weight);
    trm_weight_destroy(whole);
    return status;
}

static void store(trm_dtype dtype, const float *from, int64_t n, void *to)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == TRM_F32) {
            ((float *)to)[i] = from[i];
        } else {
            ((uint16_t *)to)[i] = dtype == TRM_F16 ? trm_f32_to_f16(from[i]) : trm_f32_to_bf16(from[i]);
        }
    }
}

/* Makes the elements of a slot of a state: the weight [rows, columns], times `scale`, and zeros behind its rows and
 * columns. The weight is NULL for zeros alone. */
static trm_status fill(const trm_tensor *state, const trm_weight *weight, float scale, unsigned char *slot)
{
    const size_t size = trm_dtype_size(state->dtype);
    const trm_dims dims = weight == NULL ? trm_dims2(0, 0) : trm_weight_dims(weight);
    const int64_t columns = state->dims.d[2];
    memset(slot, 0, (size_t)(state->dims.d[1] * columns) * size);
    float *row = malloc((size_t)(dims.d[1] + 1) * sizeof(*row));
    if (row == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a row of an adapter");
    }
    trm_status status = TRM_OK;
    for (int64_t i = 0; status == TRM_OK && i < dims.d[0]; i++) {
        status = trm_weight_read(weight, TRM_F32, (size_t)(i * dims.d[1]), (size_t)dims.d[1], row);
        for (int64_t k = 0; k < dims.d[1]; k++) {
            row[k] *= scale;
        }
        store(state->dtype, row, status == TRM_OK ? dims.d[1] : 0, slot + (size_t)(i * columns) * size);
    }
    free(row);
    return status;
}

static bool is_of_adapters(const trm_tensor *tensor)
{
    const size_t length = strlen(tensor->name);
    return tensor->role == TRM_TENSOR_STATE && length > 7 &&
           (strcmp(tensor->name + length - 7, ".lora_a") == 0 || strcmp(tensor->name + length - 7, ".lora_b") == 0);
}

/* Writes a slot of one state. */
static trm_status load_state(const trm_generator *g, const trm_hf_adapter *adapter, const trm_tensor *state,
                             int32_t slot, unsigned char *memory)
{
    const size_t bytes = (size_t)(state->dims.d[1] * state->dims.d[2]) * trm_dtype_size(state->dtype);
    trm_weight *weight = NULL;
    float scale = 1.0f;
    trm_status status = trm_hf_adapter_take(adapter, state->name, &weight, &scale);
    if (status == TRM_OK && weight != NULL) {
        status = cut(g, state, &weight);
    }
    if (status == TRM_OK) {
        status = fill(state, weight, scale, memory);
    }
    trm_weight_destroy(weight);
    TRM_TRY(status);
    unsigned char *to = trm_context_address(g->context, state);
    TRM_TRY(trm_stream_upload(g->context->stream, to + (size_t)slot * bytes, memory, bytes));
    return trm_stream_synchronize(g->context->stream); /* the memory is used again */
}

/* This rank's part of the work. */
static trm_status load(const trm_generator *g, const char *folder, int32_t slot)
{
    const trm_network *network = g->engine->plan->network;
    size_t most = 1;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *state = network->tensors[i];
        const size_t bytes =
            is_of_adapters(state) ? (size_t)(state->dims.d[1] * state->dims.d[2]) * trm_dtype_size(state->dtype) : 0;
        most = bytes > most ? bytes : most;
    }
    trm_hf_adapter *adapter;
    TRM_TRY(trm_hf_model_open_adapter(g->model, folder, g->adapters.rank, &adapter));
    unsigned char *memory = malloc(most);
    trm_status status =
        memory == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of an adapter", most) : TRM_OK;
    for (int32_t i = 0; status == TRM_OK && i < network->n_tensors; i++) {
        if (is_of_adapters(network->tensors[i])) {
            status = load_state(g, adapter, network->tensors[i], slot, memory);
        }
    }
    free(memory);
    trm_hf_adapter_close(adapter);
    return status;
}

trm_status trm_generator_free_adapter(const trm_generator *g, const char *folder, int32_t *adapter)
{
    int32_t slot = 0;
    if (g->adapters.n == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot load adapter %s: there is no room for any (max_adapters)", folder);
    }
    while (slot < g->adapters.n && g->adapters.loaded[slot]) {
        slot++;
    }
    if (slot == g->adapters.n) {
        TRM_FAIL(TRM_ERROR_BUSY, "cannot load adapter %s: there is room for %d, and all are in use (max_adapters)",
                 folder, slot);
    }
    *adapter = slot + 1;
    return TRM_OK;
}

trm_status trm_generator_load_adapter_as(trm_generator *g, const char *folder, int32_t adapter)
{
    trm_status status = trm_async_step_settle(g); /* it reads the slots */
    status = status == TRM_OK ? load(g, folder, adapter - 1) : status;
    TRM_TRY(trm_world_all_ok(g->world, status));
    g->adapters.loaded[adapter - 1] = true;
    return TRM_OK;
}

TRM_CALL(trm_generator_recorder(g), trm_generator_load_adapter,
         (trm_generator *g, const char *folder, int32_t *adapter), (g, folder, adapter))
{
    int32_t found;
    if (g == NULL || folder == NULL || adapter == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot load an adapter: generator, folder or adapter is NULL");
    }
    TRM_TRY(trm_generator_free_adapter(g, folder, &found));
    TRM_TRY(trm_generator_load_adapter_as(g, folder, found));
    *adapter = found;
    return TRM_OK;
}

TRM_CALL(trm_generator_recorder(g), trm_generator_unload_adapter, (trm_generator *g, int32_t adapter), (g, adapter))
{
    if (g == NULL || adapter < 1 || !trm_generator_has_adapter(g, adapter)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot unload adapter %d: it is not loaded", adapter);
    }
    g->adapters.loaded[adapter - 1] = false;
    return TRM_OK;
}
