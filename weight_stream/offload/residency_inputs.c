/*
 * Input of the residency planner for a rank's network: streamable weights, the layers that use them, and assumed rates
 * of device, link and CPU before they are measured.
 */
#include "weight_stream/offload/streaming.h"

#include "base/error.h"
#include "graph/kinds/kind.h"
#include "graph/layer_runs.h"
#include "graph/memory_plan.h"
#include "graph/regions.h"
#include "weight_stream/offload/expert_cache.h"
#include "weight_stream/offload/expert_profile.h"
#include "weight_stream/ring.h"

/* Smallest copy that is worth its overhead. Small models have weights that are large for them. */
#define LEAST_COPY  ((size_t)1 << 20)
#define LEAST_SHARE 1024
/* Assumed rates until the link is measured: bytes per second of reading weights and of copies, and overhead per layer
 * and copy in seconds. CUDA's are of an H200 (docs/performance.md). */
#define CUDA_READ_RATE    3.9e12
#define CUDA_LINK_RATE    55e9
#define CUDA_SECONDS      7e-7
#define CUDA_COPY_SECONDS 4e-6
#define CUDA_UNPACK_RATE  3e11
#define CUDA_GATHER_RATE  1.5e11
/* Multiply-adds per second of products in large runs, including the layers between them. */
#define CUDA_PRODUCT_RATE     4.9e14
#define CUDA_F32_PRODUCT_RATE 4e13
#define HOST_PRODUCT_RATE     1e11
/* Rate of files, until measured. */
#define FILE_RATE        3e9
#define HOST_READ_RATE   2e10
#define HOST_LINK_RATE   5e9
#define HOST_SECONDS     2e-6
#define HOST_UNPACK_RATE 3e8
#define HOST_GATHER_RATE 1e9
/* Packed size in percent: of trained weights, whose exponents are nearly those of a normal distribution. */
#define PACKED_PERCENT 69

/* Whether the layer reads only rows of a table. */
static bool reads_rows(const trm_layer *layer, int32_t input)
{
    return input == 0 && trm_kind_is(layer, TRM_KIND_LOOKS_UP);
}

/* Whether the tensor is used other than by kernels that read it: views, values for dims, outputs. */
static bool is_read_as_it_is(const trm_network *network, const trm_tensor *tensor)
{
    bool plain = !tensor->is_output;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            bool views = trm_layer_hands_on(layer) || layer->desc.kind == TRM_LAYER_SLICE;
            bool decides = (trm_layer_value_inputs(&layer->desc) >> k & 1) != 0;
            plain = plain && !(layer->inputs[k] == tensor && (views || decides));
        }
    }
    return plain;
}

static size_t constant_bytes(const trm_tensor *tensor)
{
    return tensor->role == TRM_TENSOR_CONSTANT ? trm_dims_bytes(&tensor->dims, tensor->dtype) : 0;
}

static void list_weights(const trm_network *network, trm_streaming_plan *s)
{
    size_t all = 0;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        all += constant_bytes(network->tensors[i]);
    }
    size_t least = all / LEAST_SHARE < LEAST_COPY ? all / LEAST_SHARE : LEAST_COPY;
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        size_t bytes = constant_bytes(tensor);
        s->weight_of[i] = -1;
        if (bytes > 0 && bytes >= least && is_read_as_it_is(network, tensor)) {
            s->weight_of[i] = s->problem.n_weights;
            s->tensors[s->problem.n_weights] = tensor;
            s->bytes[s->problem.n_weights++] = bytes;
            s->streamable += bytes;
        }
    }
}

static void list_uses(const trm_network *network, bool cuda, trm_streaming_plan *s, double *seconds)
{
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        s->first_use[i] = s->problem.n_uses;
        seconds[i] = cuda ? CUDA_SECONDS : HOST_SECONDS;
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            int32_t weight = layer->inputs[k] == NULL ? -1 : s->weight_of[layer->inputs[k]->index];
            if (weight < 0) {
                continue;
            }
            bool rows = reads_rows(layer, k);
            s->uses[s->problem.n_uses] = s->fetched_uses[s->problem.n_uses] = (trm_residency_use){i, weight, rows};
            s->fetched_uses[s->problem.n_uses++].in_place = false;
            seconds[i] += rows ? 0 : (double)s->bytes[weight] / (cuda ? CUDA_READ_RATE : HOST_READ_RATE);
        }
    }
    s->first_use[network->n_layers] = s->problem.n_uses;
}

/* Seconds that products with weights take in a run with the largest inputs: of each layer once, `least` at least, and
 * in all. */
static double largest_products(const trm_plan *plan, const double *least, const int32_t *runs, double *seconds)
{
    const trm_network *network = plan->network;
    double sum = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        bool is_product = trm_kind_of(layer)->weight != 0;
        const trm_dims *out = &plan->max_dims[layer->outputs[0]->index];
        for (int32_t k = 0; is_product && out->n > 0 && k < layer->n_inputs; k++) {
            const trm_tensor *weight = layer->inputs[k];
            const bool is_quantized = layer->desc.kind == TRM_LAYER_DEQUANT_MATMUL ||
                                      layer->desc.kind == TRM_LAYER_NORM_DEQUANT_MATMUL ||
                                      layer->desc.kind == TRM_LAYER_GLU_DEQUANT_MATMUL;
            if (weight == NULL || weight->role != TRM_TENSOR_CONSTANT || weight->dims.n < 2 ||
                (is_quantized && k != TRM_DEQUANT_MATMUL_WEIGHT)) {
                continue;
            }
            int64_t columns = out->d[out->n - 1], rows = columns > 0 ? trm_dims_count(out) / columns : 0;
            const trm_dtype type = is_quantized ? layer->inputs[0]->dtype : weight->dtype;
            double rate = plan->backend != TRM_BACKEND_CUDA ? HOST_PRODUCT_RATE
                          : trm_dtype_size(type) == 2       ? CUDA_PRODUCT_RATE
                                                            : CUDA_F32_PRODUCT_RATE;
            const int64_t packed = is_quantized && (weight->dtype == TRM_U8 || weight->dtype == TRM_F4E2M1) ? 2 : 1;
            seconds[i] += 2 * (double)rows * (double)(packed * trm_dims_count(&weight->dims)) / rate;
        }
        sum += seconds[i] * (runs == NULL ? 1 : runs[i]);
        seconds[i] = seconds[i] > least[i] ? seconds[i] : least[i];
    }
    return sum;
}

bool trm_streaming_has_rows(const trm_streaming_plan *s, int32_t weight)
{
    bool found = false;
    for (int32_t i = 0; i < s->problem.n_uses; i++) {
        found = found || (s->uses[i].weight == weight && s->uses[i].in_place);
    }
    return found;
}

size_t trm_streaming_packed_guess(size_t bytes)
{
    return bytes / 100 * PACKED_PERCENT;
}

/* bf16 weights that layers do not read in host memory can be packed. */
static void choose_packed(const trm_plan *plan, trm_streaming_plan *s)
{
    bool wanted = s->asked.compression == TRM_WEIGHT_COMPRESSION_LOSSLESS ||
                  (s->asked.compression == TRM_WEIGHT_COMPRESSION_AUTO && plan->backend == TRM_BACKEND_CUDA);
    size_t largest = 0;
    for (int32_t i = 0; i < s->problem.n_weights; i++) {
        s->packable[i] = wanted && s->tensors[i]->dtype == TRM_BF16 && !trm_streaming_has_rows(s, i);
        s->packs[i] = s->packable[i];
        s->guessed_bytes[i] = s->packs[i] ? trm_streaming_packed_guess(s->part_bytes[i]) : s->part_bytes[i];
        s->link_bytes[i] = s->packed_bytes[i] = s->guessed_bytes[i];
        largest = s->packs[i] && s->part_bytes[i] > largest ? s->part_bytes[i] : largest;
    }
    s->problem.link_bytes = s->link_bytes;
    s->problem.unpack_rate = plan->backend == TRM_BACKEND_CUDA ? CUDA_UNPACK_RATE : HOST_UNPACK_RATE;
    s->problem.piece_bytes = TRM_PIECE_BYTES;
    s->problem.stage_bytes = trm_ring_stage_bytes(largest < TRM_PIECE_BYTES ? largest : TRM_PIECE_BYTES);
}

/* Weights stored transposed in files, whose parts are whole rows. */
static void list_turned(trm_streaming_plan *s)
{
    for (int32_t i = 0; i < s->problem.n_weights; i++) {
        const trm_tensor *tensor = s->tensors[i];
        if (tensor->value == NULL && trm_weight_is_turned(tensor->weight)) {
            const size_t row = (size_t)trm_weight_dims(tensor->weight).d[1] * trm_dtype_size(tensor->dtype);
            s->row_bytes[i] = s->part_bytes[i] % row == 0 ? row : 0;
        }
    }
}

/* Layers of a region get copies of their own, since they may run several times in a step, or not at all. */
static trm_status list_sections(const trm_plan *plan, trm_streaming_plan *s)
{
    const trm_network *network = plan->network;
    trm_regions regions;
    TRM_TRY(trm_regions_find(network, &regions));
    int32_t *sections = trm_arena_array(&s->arena, (size_t)network->n_layers + 1, sizeof(*sections));
    int32_t *runs = trm_arena_array(&s->arena, (size_t)network->n_layers + 1, sizeof(*runs));
    if (sections == NULL || runs == NULL) {
        trm_regions_fini(&regions);
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; regions.n > 0 && i < network->n_layers; i++) {
        sections[i] = regions.inside[i];
    }
    s->problem.sections = regions.n > 0 ? sections : NULL;
    s->problem.runs = regions.n > 0 ? runs : NULL;
    trm_regions_fini(&regions);
    return trm_plan_layer_runs(plan, runs, &s->guesses_passes);
}

trm_status trm_streaming_make_problem(const trm_plan *plan, trm_streaming_plan *s)
{
    const trm_network *network = plan->network;
    size_t n = (size_t)network->n_tensors + 1, layers = (size_t)network->n_layers + 1, uses = 1;
    for (int32_t i = 0; i < network->n_layers; i++) {
        uses += (size_t)network->layers[i]->n_inputs;
    }
    double *seconds = trm_arena_array(&s->arena, layers, sizeof(*seconds));
    double *largest = trm_arena_array(&s->arena, layers, sizeof(*largest));
    s->weight_of = trm_arena_array(&s->arena, n, sizeof(*s->weight_of));
    s->tensors = trm_arena_array(&s->arena, n, sizeof(trm_tensor *));
    s->bytes = trm_arena_array(&s->arena, n, sizeof(*s->bytes));
    s->link_bytes = trm_arena_array(&s->arena, n, sizeof(*s->link_bytes));
    s->packed_bytes = trm_arena_array(&s->arena, n, sizeof(*s->packed_bytes));
    s->guessed_bytes = trm_arena_array(&s->arena, n, sizeof(*s->guessed_bytes));
    s->part_begin = trm_arena_array(&s->arena, n, sizeof(*s->part_begin));
    s->part_bytes = trm_arena_array(&s->arena, n, sizeof(*s->part_bytes));
    s->shared = trm_arena_array(&s->arena, n, sizeof(*s->shared));
    s->packs = trm_arena_array(&s->arena, n, sizeof(*s->packs));
    s->packable = trm_arena_array(&s->arena, n, sizeof(*s->packable));
    s->stays = trm_arena_array(&s->arena, n, sizeof(*s->stays));
    s->offloaded = trm_arena_array(&s->arena, layers, sizeof(*s->offloaded));
    s->host_seconds = trm_arena_array(&s->arena, layers, sizeof(*s->host_seconds));
    s->in_files = trm_arena_array(&s->arena, n, sizeof(*s->in_files));
    s->row_bytes = trm_arena_array(&s->arena, n, sizeof(*s->row_bytes));
    s->uses = trm_arena_array(&s->arena, uses, sizeof(*s->uses));
    s->fetched_uses = trm_arena_array(&s->arena, uses, sizeof(*s->fetched_uses));
    s->first_use = trm_arena_array(&s->arena, layers, sizeof(*s->first_use));
    if (seconds == NULL || largest == NULL || s->weight_of == NULL || s->tensors == NULL || s->bytes == NULL ||
        s->link_bytes == NULL || s->guessed_bytes == NULL || s->part_begin == NULL || s->part_bytes == NULL ||
        s->shared == NULL || s->packs == NULL || s->in_files == NULL || s->row_bytes == NULL || s->uses == NULL ||
        s->fetched_uses == NULL || s->first_use == NULL || s->packable == NULL || s->packed_bytes == NULL ||
        s->offloaded == NULL || s->host_seconds == NULL || s->stays == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    bool cuda = plan->backend == TRM_BACKEND_CUDA;
    list_weights(network, s);
    list_uses(network, cuda, s, seconds);
    TRM_TRY(list_sections(plan, s));
    trm_streaming_share(plan, s);
    list_turned(s);
    TRM_TRY(trm_expert_cache_find(plan, s));
    TRM_TRY(trm_expert_profile_load(plan, s));
    s->problem.n_layers = network->n_layers;
    s->problem.bytes = s->bytes;
    s->problem.part_bytes = s->part_bytes;
    s->problem.gather_rate = cuda ? CUDA_GATHER_RATE : HOST_GATHER_RATE;
    s->problem.uses = s->uses;
    s->problem.layer_seconds = seconds;
    s->problem.link_rate = cuda ? CUDA_LINK_RATE : HOST_LINK_RATE;
    s->problem.copy_seconds = cuda ? CUDA_COPY_SECONDS : HOST_SECONDS;
    s->problem.in_files = s->in_files;
    s->problem.file_rate = FILE_RATE;
    s->problem.ring_limit = SIZE_MAX;
    s->largest_products = largest_products(plan, seconds, s->problem.runs, largest);
    s->problem.largest_seconds = largest;
    choose_packed(plan, s);
    s->rates = trm_cpu_offload_guess(plan);
    trm_cpu_offload_estimate(plan, s, s->host_seconds);
    s->problem.host_seconds = s->host_seconds;
    s->advises =
        cuda && s->problem.sections == NULL && s->asked.host_compute == TRM_HOST_COMPUTE_OFF && s->n_sharers == 1;
    s->first = s->problem;
    s->first.link_bytes = s->guessed_bytes;
    s->first.in_files = NULL;
    return TRM_OK;
}
