/* Weight streaming of a rank: the problem that its network poses to the planner, and budgets. */
#include "dist/streaming.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/recorder.h"
#include "graph/layer_runs.h"
#include "graph/memory_plan.h"
#include "graph/regions.h"
#include "weight_stream/ring.h"

/* A copy that is worth its start moves so many bytes. Small models have weights that are large for them. */
#define LEAST_COPY  ((size_t)1 << 20)
#define LEAST_SHARE 1024
/* What the planner assumes of a device until a link has been measured: bytes per second that layers read weights at and
 * that copies reach, and seconds of a layer and a copy beyond. CUDA's are of an H200 (docs/performance.md). */
#define CUDA_READ_RATE    3.9e12
#define CUDA_LINK_RATE    55e9
#define CUDA_SECONDS      7e-7
#define CUDA_COPY_SECONDS 4e-6
#define CUDA_UNPACK_RATE  3e11
#define CUDA_GATHER_RATE  1.5e11
/* Multiplications and additions per second of products in large runs, with what runs between them. */
#define CUDA_PRODUCT_RATE     4.9e14
#define CUDA_F32_PRODUCT_RATE 4e13
#define HOST_PRODUCT_RATE     1e11
/* Of files, until they are read. */
#define FILE_RATE        3e9
#define HOST_READ_RATE   2e10
#define HOST_LINK_RATE   5e9
#define HOST_SECONDS     2e-6
#define HOST_UNPACK_RATE 3e8
#define HOST_GATHER_RATE 1e9
/* A gain that is worth a hint, and one that is worth other last bits. */
#define CLEARLY_LESS 0.8
#define LESS         0.97
/* Bytes of packed weights to a hundred of their own: of trained ones, whose exponents are nearly those of normal
 * numbers. */
#define PACKED_PERCENT 69

/* ---- budgets ----------------------------------------------------------------------------------- */

static trm_status fail_budget(const char *text)
{
    return trm_fail(TRM_ERROR_INVALID_ARGUMENT,
                    "weight budget is \"%s\", expected off, auto, 0%% to 100%%, or bytes such as 8G (B, K, M, G)",
                    text);
}

TRM_CALL(NULL, trm_weight_budget_parse, (const char *text, trm_weight_budget *budget), (text, budget))
{
    if (text == NULL || budget == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read a weight budget: text or budget is NULL");
    }
    trm_weight_budget read = {0};
    if (strcmp(text, "auto") == 0) {
        read.kind = TRM_WEIGHT_BUDGET_AUTO;
    } else if (strcmp(text, "off") != 0) {
        char *end;
        errno = 0;
        double number = isdigit((unsigned char)text[0]) ? trm_c_strtod(text, &end) : -1;
        if (number < 0 || errno != 0 || strpbrk(text, "xXpP") != NULL) {
            return fail_budget(text);
        }
        static const char units[] = "BKMG";
        const char *unit = *end == '\0' ? units : strchr(units, toupper((unsigned char)*end));
        if (strcmp(end, "%") == 0 && number <= 100) {
            read.kind = TRM_WEIGHT_BUDGET_PERCENT;
            read.percent = number;
        } else if (unit != NULL && (*end == '\0' || end[1] == '\0')) {
            double bytes = ldexp(number, 10 * (int)(unit - units));
            if (bytes > 0x1p62) {
                return fail_budget(text);
            }
            read.kind = TRM_WEIGHT_BUDGET_BYTES;
            read.bytes = (size_t)bytes;
        } else {
            return fail_budget(text);
        }
    }
    *budget = read;
    return TRM_OK;
}

TRM_CALL(NULL, trm_weight_compression_parse, (const char *text, trm_weight_compression *compression),
         (text, compression))
{
    static const char *const names[] = {"auto", "off", "lossless"};
    if (text == NULL || compression == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read a weight compression: text or compression is NULL");
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *compression = (trm_weight_compression)i;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight compression is \"%s\", expected auto, off or lossless", text);
}

TRM_CALL(NULL, trm_weight_sharing_parse, (const char *text, trm_weight_sharing *sharing), (text, sharing))
{
    static const char *const names[] = {"auto", "off", "on"};
    if (text == NULL || sharing == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read whether weights are shared: text or result is NULL");
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *sharing = (trm_weight_sharing)i;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight sharing is \"%s\", expected auto, off or on", text);
}

TRM_CALL(NULL, trm_host_compute_parse, (const char *text, trm_weight_budget *budget), (text, budget))
{
    if (text == NULL || budget == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read what processors compute: text or budget is NULL");
    }
    char *end = NULL;
    const double percent =
        isdigit((unsigned char)text[0]) && strpbrk(text, "xXpP") == NULL ? trm_c_strtod(text, &end) : -1;
    if (strcmp(text, "off") == 0 || strcmp(text, "auto") == 0) {
        budget->host_compute = text[0] == 'o' ? TRM_HOST_COMPUTE_OFF : TRM_HOST_COMPUTE_AUTO;
        budget->host_percent = 0;
        return TRM_OK;
    }
    if (percent < 0 || percent > 100 || (strcmp(end, "") != 0 && strcmp(end, "%") != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "host compute is \"%s\", expected off, auto, or 0%% to 100%%", text);
    }
    budget->host_compute = TRM_HOST_COMPUTE_PERCENT;
    budget->host_percent = percent;
    return TRM_OK;
}

static trm_status check_budget(const trm_weight_budget *budget)
{
    if (budget->kind < TRM_WEIGHT_BUDGET_OFF || budget->kind > TRM_WEIGHT_BUDGET_BYTES) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight budget is of kind %d", (int)budget->kind);
    }
    if ((unsigned)budget->compression > TRM_WEIGHT_COMPRESSION_LOSSLESS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight compression is of kind %d", (int)budget->compression);
    }
    if ((unsigned)budget->sharing > TRM_WEIGHT_SHARING_ON) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight sharing is of kind %d", (int)budget->sharing);
    }
    if ((unsigned)budget->host_compute > TRM_HOST_COMPUTE_PERCENT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "host compute is of kind %d", (int)budget->host_compute);
    }
    if (budget->host_compute == TRM_HOST_COMPUTE_PERCENT &&
        !(budget->host_percent >= 0 && budget->host_percent <= 100)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "host compute is %g per cent, expected 0 to 100", budget->host_percent);
    }
    if (budget->kind == TRM_WEIGHT_BUDGET_PERCENT && !(budget->percent >= 0 && budget->percent <= 100)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight budget is %g per cent, expected 0 to 100", budget->percent);
    }
    return TRM_OK;
}

/* ---- the problem ------------------------------------------------------------------------------- */

/* Whether the layer reads rows of a table and no more of it. */
static bool reads_rows(const trm_layer *layer, int32_t input)
{
    return input == 0 && (layer->desc.kind == TRM_LAYER_EMBEDDING || layer->desc.kind == TRM_LAYER_GATHER);
}

/* Whether something but a kernel's own read goes through the tensor: views of it, values for dims, outputs. */
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
        bool is_product = layer->desc.kind == TRM_LAYER_MATMUL || layer->desc.kind == TRM_LAYER_MATMUL_GLU ||
                          layer->desc.kind == TRM_LAYER_NORM_MATMUL || layer->desc.kind == TRM_LAYER_DEQUANT_MATMUL;
        const trm_dims *out = &plan->max_dims[layer->outputs[0]->index];
        for (int32_t k = 0; is_product && out->n > 0 && k < layer->n_inputs; k++) {
            const trm_tensor *weight = layer->inputs[k];
            const bool is_quantized = layer->desc.kind == TRM_LAYER_DEQUANT_MATMUL;
            if (weight == NULL || weight->role != TRM_TENSOR_CONSTANT || weight->dims.n < 2 ||
                (is_quantized && k != TRM_DEQUANT_MATMUL_WEIGHT)) {
                continue;
            }
            int64_t columns = out->d[out->n - 1], rows = columns > 0 ? trm_dims_count(out) / columns : 0;
            const trm_dtype type = is_quantized ? layer->inputs[0]->dtype : weight->dtype;
            double rate = plan->backend != TRM_BACKEND_CUDA ? HOST_PRODUCT_RATE
                          : trm_dtype_size(type) == 2       ? CUDA_PRODUCT_RATE
                                                            : CUDA_F32_PRODUCT_RATE;
            const int64_t packed = is_quantized && weight->dtype == TRM_U8 ? 2 : 1;
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

/* bf16 that layers do not read in host memory. */
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

/* Weights that files have the other way round, whose parts are whole rows. */
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

/* Layers of a region are fetched for apart from others, as they may run several times in a step, or not at all. */
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

static trm_status make_problem(const trm_plan *plan, trm_streaming_plan *s)
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
    s->hosted = trm_arena_array(&s->arena, layers, sizeof(*s->hosted));
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
        s->hosted == NULL || s->host_seconds == NULL || s->stays == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    bool cuda = plan->backend == TRM_BACKEND_CUDA;
    list_weights(network, s);
    list_uses(network, cuda, s, seconds);
    TRM_TRY(list_sections(plan, s));
    trm_streaming_share(plan, s);
    list_turned(s);
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
    s->rates = trm_hosting_guess(plan);
    trm_hosting_estimate(plan, s, s->host_seconds);
    s->problem.host_seconds = s->host_seconds;
    s->advises =
        cuda && s->problem.sections == NULL && s->asked.host_compute == TRM_HOST_COMPUTE_OFF && s->n_sharers == 1;
    s->first = s->problem;
    s->first.link_bytes = s->guessed_bytes;
    s->first.in_files = NULL;
    return TRM_OK;
}

int32_t trm_streaming_weight(const trm_plan *plan, const trm_tensor *tensor)
{
    return plan->streaming == NULL ? -1 : plan->streaming->weight_of[tensor->index];
}

void trm_streaming_plan_destroy(trm_streaming_plan *streaming)
{
    if (streaming != NULL) {
        trm_residency_fini(&streaming->residency);
        trm_residency_fini(&streaming->small);
        trm_arena_fini(&streaming->arena);
        free(streaming);
    }
}

/* ---- plans for budgets ------------------------------------------------------------------------- */

const trm_residency *trm_streaming_program(const trm_streaming_plan *s, int32_t program)
{
    return program == TRM_PROGRAM_SMALL && s->hosts ? &s->small : &s->residency;
}

bool trm_streaming_fetches(const trm_plan *plan)
{
    return plan->streaming != NULL && plan->streaming->residency.n_fetches > 0; /* small steps fetch some of them */
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t trm_streaming_staging(const trm_streaming_plan *s)
{
    return larger(s->residency.ring_bytes, s->small.ring_bytes) +
           larger(s->residency.stage_bytes, s->small.stage_bytes);
}

/* Plans both programs for where weights stay. The small one's ring is the other's. */
static trm_status plan_programs(trm_streaming_plan *s, const trm_residency_problem *problem, const bool *resident)
{
    trm_residency large, small = {0};
    trm_residency_problem of_small = *problem;
    TRM_TRY(trm_residency_of(problem, resident, &large));
    of_small.hosted = s->hosted;
    of_small.largest_seconds = NULL;
    of_small.ring_limit = large.ring_bytes;
    trm_status status = s->hosts ? trm_residency_of(&of_small, resident, &small) : TRM_OK;
    if (status != TRM_OK) {
        trm_residency_fini(&large);
        return status;
    }
    trm_residency_fini(&s->residency);
    trm_residency_fini(&s->small);
    s->residency = large;
    s->small = small;
    return TRM_OK;
}

static void host_nothing(trm_streaming_plan *s)
{
    s->hosts = false;
    memset(s->hosted, 0, (size_t)s->problem.n_layers * sizeof(*s->hosted));
    memcpy(s->packs, s->packable, (size_t)s->problem.n_weights * sizeof(*s->packs));
    for (int32_t i = 0; i < s->problem.n_weights; i++) {
        s->link_bytes[i] = s->packable[i] ? s->packed_bytes[i] : s->link_bytes[i];
    }
}

/* Which layers processors run, what stays then, which may be other weights, and so which are not packed. */
static trm_status choose_hosted(trm_streaming_plan *s, const trm_residency_problem *problem, const bool *resident)
{
    host_nothing(s);
    memcpy(s->stays, resident, (size_t)problem->n_weights * sizeof(*s->stays));
    if (s->asked.host_compute == TRM_HOST_COMPUTE_AUTO) {
        TRM_TRY(trm_residency_host_jointly(problem, s->stays, s->hosted));
    } else if (s->asked.host_compute == TRM_HOST_COMPUTE_PERCENT) {
        TRM_TRY(trm_residency_host(problem, resident, s->asked.host_percent / 100, s->hosted));
    }
    for (int32_t i = 0; i < s->problem.n_uses; i++) {
        const trm_residency_use *use = &s->uses[i];
        if (s->hosted[use->layer]) {
            s->hosts = true;
            s->packs[use->weight] = s->packs[use->weight] && s->stays[use->weight];
        }
    }
    return TRM_OK;
}

/* What processors would gain, by even shares alone: a line in a report is not worth more time. */
static trm_status look_for_hosting(trm_streaming_plan *s, const trm_residency_problem *problem, const bool *resident,
                                   double seconds)
{
    trm_residency found;
    trm_residency_problem quick = *problem;
    quick.quick = true;
    quick.largest_seconds = NULL;
    TRM_TRY(trm_residency_host(&quick, resident, -1, s->hosted));
    quick.hosted = s->hosted;
    TRM_TRY(trm_residency_of(&quick, resident, &found));
    s->advised_seconds = found.seconds < seconds * CLEARLY_LESS ? found.seconds : 0;
    trm_residency_fini(&found);
    memset(s->hosted, 0, (size_t)s->problem.n_layers * sizeof(*s->hosted));
    return TRM_OK;
}

static trm_status plan_residency(trm_streaming_plan *s, size_t budget, size_t ring_limit)
{
    trm_residency made;
    s->problem.budget = budget < s->streamable ? budget : s->streamable;
    s->problem.ring_limit = ring_limit;
    trm_residency_problem problem = s->problem;
    /* who shares chooses alike, by what all know, and who asked for a share the same every time, by nothing measured */
    if (s->n_sharers > 1 || s->asked.host_compute == TRM_HOST_COMPUTE_PERCENT) {
        problem = s->first;
        problem.budget = s->problem.budget;
        problem.ring_limit = ring_limit;
        problem.quick = s->problem.quick;
    }
    host_nothing(s);
    TRM_TRY(trm_residency_plan(&problem, &made));
    trm_status status = choose_hosted(s, &problem, made.resident);
    for (int32_t i = 0; status == TRM_OK && i < s->problem.n_weights; i++) {
        s->link_bytes[i] = s->packable[i] && !s->packs[i] ? s->part_bytes[i] : s->link_bytes[i];
    }
    problem.link_bytes = s->hosts ? s->link_bytes : problem.link_bytes;
    status = status == TRM_OK && s->hosts ? plan_programs(s, &problem, s->stays) : status;
    s->advised_seconds = 0;
    if (status == TRM_OK && s->advises && !problem.quick) {
        status = look_for_hosting(s, &problem, made.resident, made.seconds);
    }
    if (status == TRM_OK && s->hosts && s->asked.host_compute == TRM_HOST_COMPUTE_AUTO &&
        s->small.seconds > made.seconds * LESS) {
        host_nothing(s);
    }
    if (status != TRM_OK || s->hosts) {
        trm_residency_fini(&made);
        return status;
    }
    trm_residency_fini(&s->residency);
    trm_residency_fini(&s->small);
    s->residency = made;
    return TRM_OK;
}

/* Offsets of what stays in any case follow from which weights can be streamed. */
static trm_status set_streaming(trm_plan *plan, trm_streaming_plan *streaming)
{
    trm_streaming_plan *before = plan->streaming;
    plan->streaming = streaming;
    trm_status status = trm_plan_lay_out_weights(plan);
    if (status != TRM_OK) {
        plan->streaming = before;
        return status;
    }
    trm_streaming_plan_destroy(before);
    return TRM_OK;
}

static trm_status fail_regions(void)
{
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "processors cannot compute layers of a network with loops or branches");
}

trm_status trm_streaming_check(const trm_plan *plan)
{
    return plan->streaming != NULL && plan->streaming->is_refused ? fail_regions() : TRM_OK;
}

TRM_CALL(NULL, trm_plan_set_weight_budget, (trm_plan *plan, const trm_weight_budget *budget), (plan, budget))
{
    if (plan == NULL || budget == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set a weight budget: plan or budget is NULL");
    }
    TRM_TRY(check_budget(budget));
    if (budget->kind == TRM_WEIGHT_BUDGET_OFF) {
        return set_streaming(plan, NULL);
    }
    /* by what all ranks know: one that refuses alone would keep the others waiting */
    if (plan->partition.has_regions && budget->host_compute == TRM_HOST_COMPUTE_PERCENT) {
        return fail_regions();
    }
    const bool has_regions = trm_network_has_regions(plan->network);
    trm_streaming_plan *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a plan of streamed weights");
    }
    made->asked = *budget;
    made->is_refused = has_regions && budget->host_compute == TRM_HOST_COMPUTE_PERCENT;
    made->asked.host_compute = has_regions ? TRM_HOST_COMPUTE_OFF : budget->host_compute;
    trm_status status = make_problem(plan, made);
    size_t bytes = budget->kind == TRM_WEIGHT_BUDGET_BYTES ? budget->bytes
                   : budget->kind == TRM_WEIGHT_BUDGET_PERCENT
                       ? (size_t)(budget->percent / 100 * (double)made->streamable)
                       : made->streamable;
    status = status == TRM_OK ? plan_residency(made, bytes, SIZE_MAX) : status;
    status = status == TRM_OK ? set_streaming(plan, made) : status;
    if (status != TRM_OK) {
        trm_streaming_plan_destroy(made);
    }
    return status;
}

static size_t device_bytes(const trm_plan *plan)
{
    const trm_residency *residency = &plan->streaming->residency;
    return plan->weight_bytes + residency->resident_bytes + trm_streaming_staging(plan->streaming);
}

/* The largest budget that fits with a ring of at most `ring_limit`; false if not even 0 does. */
static trm_status fit_with_ring(trm_plan *plan, size_t room, size_t ring_limit, bool *fits)
{
    trm_streaming_plan *s = plan->streaming;
    size_t budget = s->streamable;
    TRM_TRY(plan_residency(s, budget, ring_limit));
    while (device_bytes(plan) > room && budget > 0) {
        size_t excess = device_bytes(plan) - room, resident = s->residency.resident_bytes;
        budget = excess < resident ? resident - excess : 0;
        TRM_TRY(plan_residency(s, budget, ring_limit));
    }
    *fits = device_bytes(plan) <= room;
    return TRM_OK;
}

trm_status trm_streaming_fit(trm_plan *plan, size_t room)
{
    /* Memory for staging is memory that weights cannot stay in. */
    static const size_t limits[] = {0, (size_t)128 << 20, (size_t)512 << 20, SIZE_MAX};
    trm_streaming_plan *s = plan->streaming;
    double best = INFINITY;
    size_t budget = 0, limit = 0;
    bool fits;
    if (s == NULL || s->asked.kind != TRM_WEIGHT_BUDGET_AUTO) {
        return TRM_OK;
    }
    s->problem.quick = true;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        TRM_TRY(fit_with_ring(plan, room, limits[i], &fits));
        double seconds = trm_streaming_program(s, TRM_PROGRAM_SMALL)->seconds;
        if (fits && seconds < best) {
            best = seconds;
            budget = s->problem.budget;
            limit = limits[i];
        }
    }
    s->problem.quick = false;
    TRM_TRY(plan_residency(s, budget, limit));
    if (device_bytes(plan) > room) { /* a better choice may need more staging */
        s->problem.quick = true;
        TRM_TRY(plan_residency(s, budget, limit));
        s->problem.quick = false;
    }
    if (device_bytes(plan) > room) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY,
                 "weights need at least %.2f GiB of memory with everything streamed (%.2f GiB that cannot be, %.2f GiB "
                 "of staging), there is room for %.2f GiB",
                 (double)device_bytes(plan) / 0x1p30, (double)plan->weight_bytes / 0x1p30,
                 (double)trm_streaming_staging(s) / 0x1p30, (double)room / 0x1p30);
    }
    return TRM_OK;
}

/* Layers that processors cannot run after all, their weights being elsewhere. */
static void drop_unreadable(trm_streaming_plan *s, const trm_streaming_facts *facts)
{
    for (int32_t i = 0; i < s->problem.n_uses; i++) {
        const trm_residency_use *use = &s->uses[i];
        bool readable = facts->resident[use->weight] || facts->readable[use->weight];
        s->hosted[use->layer] = s->hosted[use->layer] && readable;
    }
    s->hosts = false;
    for (int32_t i = 0; i < s->problem.n_layers; i++) {
        bool reads = false; /* some weight in host memory */
        for (int32_t k = s->first_use[i]; k < s->first_use[i + 1]; k++) {
            reads = reads || !facts->resident[s->uses[k].weight];
        }
        s->hosted[i] = s->hosted[i] && reads;
        s->hosts = s->hosts || s->hosted[i];
    }
    for (int32_t i = 0; i < s->problem.n_weights; i++) { /* files are read in the order of one program */
        s->hosts = s->hosts && !s->in_files[i];
    }
}

static void use_rates(trm_residency_problem *problem, const trm_streaming_rates *rates)
{
    problem->link_rate = rates->link > 0 ? rates->link : problem->link_rate;
    problem->unpack_rate = rates->unpack > 0 ? rates->unpack : problem->unpack_rate;
    problem->file_rate = rates->file > 0 ? rates->file : problem->file_rate;
    problem->gather_rate = rates->gather > 0 ? rates->gather : problem->gather_rate;
}

trm_status trm_streaming_adjust(trm_plan *plan, const trm_streaming_facts *facts)
{
    trm_streaming_plan *s = plan->streaming;
    use_rates(&s->problem, &facts->rates);
    /* who shares has agreed on them, and has nothing computed by processors, whatever it asked */
    if (s->n_sharers > 1) {
        use_rates(&s->first, &facts->rates);
    }
    s->problem.uses = facts->rows_in_place ? s->uses : s->fetched_uses;
    drop_unreadable(s, facts);
    return plan_programs(s, &s->problem, facts->resident);
}

trm_status trm_streaming_use_rates(trm_plan *plan, const trm_hosting_rates *rates)
{
    trm_streaming_plan *s = plan->streaming;
    s->rates = *rates;
    s->measured = rates->link > 0;
    s->problem.link_rate = rates->link > 0 ? rates->link : s->problem.link_rate;
    trm_hosting_estimate(plan, s, s->host_seconds);
    return s->asked.host_compute == TRM_HOST_COMPUTE_AUTO ? trm_streaming_replan(plan, s->problem.budget) : TRM_OK;
}

size_t trm_streaming_file_memory(void)
{
    return TRM_READER_HOST_BYTES;
}

trm_status trm_streaming_read(const trm_plan *plan, int32_t weight, size_t begin, size_t size, void *to)
{
    const trm_tensor *tensor = plan->streaming->tensors[weight];
    size_t element = trm_dtype_size(tensor->dtype);
    if (tensor->value != NULL) {
        memcpy(to, (const unsigned char *)tensor->value + begin, size);
        return TRM_OK;
    }
    trm_status status = trm_weight_read_direct(tensor->weight, tensor->dtype, begin / element, size / element, to);
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "weight %s", tensor->name);
}

trm_status trm_streaming_read_piece(void *plan, const trm_reader_piece *piece, void *to)
{
    const trm_plan *of = plan;
    const trm_streaming_plan *s = of->streaming;
    const size_t part = s->part_begin[piece->item], row_bytes = s->row_bytes[piece->item];
    if (piece->rows == 1) {
        return trm_streaming_read(of, piece->item, part + piece->row * row_bytes + piece->begin, piece->size, to);
    }
    const trm_tensor *tensor = s->tensors[piece->item];
    const size_t element = trm_dtype_size(tensor->dtype);
    trm_status status = trm_weight_read_box_direct(
        tensor->weight, tensor->dtype, (int64_t)(part / row_bytes + piece->row), (int64_t)piece->rows,
        (int64_t)(piece->begin / element), (int64_t)(piece->size / element), to);
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "weight %s", tensor->name);
}

bool trm_streaming_reads_in_place(const trm_plan *plan, int32_t weight)
{
    return trm_streaming_has_rows(plan->streaming, weight);
}

trm_status trm_streaming_replan(trm_plan *plan, size_t budget)
{
    return plan_residency(plan->streaming, budget, plan->streaming->problem.ring_limit);
}

/* Of those that do not stay. */
static size_t host_bytes(const trm_streaming_plan *s)
{
    size_t sum = 0;
    for (int32_t i = 0; i < s->problem.n_weights; i++) {
        sum += s->residency.resident[i] ? 0 : s->link_bytes[i];
    }
    return sum;
}

/* What other ranks fetch of a step's weights. */
static size_t gathered_bytes(const trm_streaming_plan *s)
{
    size_t sum = 0;
    for (int32_t k = 0; k < s->residency.n_fetches; k++) { /* who shares hosts nothing */
        int32_t weight = s->residency.fetches[k].weight;
        sum += s->bytes[weight] - s->part_bytes[weight];
    }
    return sum;
}

void trm_plan_stalls(const trm_plan *plan, trm_stall_fn fn, void *user)
{
    const trm_network *network = plan->network;
    const double *waits =
        plan->streaming == NULL ? NULL : trm_streaming_program(plan->streaming, TRM_PROGRAM_SMALL)->waits;
    for (int32_t i = 0; waits != NULL && i <= network->n_layers; i++) {
        if (waits[i] > 0) {
            fn(user, i == network->n_layers ? TRM_NEXT_STEP : network->layers[i]->name, waits[i]);
        }
    }
}

/* At which processors read in a step. */
static double host_rate(const trm_streaming_plan *s, const trm_residency *step)
{
    double reading = step->host_seconds - step->n_hosted * s->rates.handover;
    return step->n_hosted > 0 && reading > 0 ? (double)step->hosted_bytes / reading : 0;
}

void trm_plan_streaming(const trm_plan *plan, trm_streaming_info *info)
{
    *info = (trm_streaming_info){0};
    const trm_streaming_plan *s = plan->streaming;
    if (s == NULL) {
        return;
    }
    const trm_residency *step = trm_streaming_program(s, TRM_PROGRAM_SMALL);
    *info = (trm_streaming_info){
        .on = true,
        .streamable = s->streamable,
        .budget = s->problem.budget,
        .resident = s->residency.resident_bytes,
        .streamed = step->link_bytes,
        .unpacked = step->streamed_bytes,
        .hosted = step->hosted_bytes,
        .hosted_layers = step->n_hosted,
        .host_rate = host_rate(s, step),
        .host_seconds = step->host_seconds,
        .large_streamed = s->residency.link_bytes,
        .large_run_seconds = s->residency.seconds,
        .host_run_seconds = s->advised_seconds,
        .staging = trm_streaming_staging(s),
        .host = host_bytes(s),
        .copies = step->n_copies,
        .loop_passes = s->guesses_passes ? TRM_LOOP_PASSES : 0,
        .sharers = s->problem.sections == NULL ? s->n_sharers : 1,
        .gathered = gathered_bytes(s),
        .link_rate = s->problem.link_rate,
        .unpack_rate = step->stage_bytes > 0 ? s->problem.unpack_rate : 0,
        .run_seconds = step->seconds,
        .link_seconds = step->link_seconds,
        .largest_run_seconds = s->largest_products > s->residency.seconds ? s->largest_products : s->residency.seconds,
    };
}
