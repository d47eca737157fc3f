/* Decides which layers the CPU can run, and estimates their times for the planner. */
#include "weight_stream/offload/cpu_offload.h"

#include <stdio.h>

#include "base/log.h"
#include "base/unit.h"
#include "graph/kinds/kind.h"
#include "weight_stream/offload/streaming.h"

/* Assumed until measured: bytes per second at which the CPU reads weights, and seconds of overhead from the end of the
 * layer before to the start of the layer after. */
#define CUDA_RATE     8e10
#define CUDA_HANDOVER 4e-5
#define HOST_HANDOVER 2e-6
/* From a request to its answer, without the CPU's reading. */
#define CUDA_ROUND_TRIP 1.5e-5
#define HOST_READ_RATE  2e10

static int64_t last_dim(const trm_dims *dims)
{
    return dims->n > 0 ? dims->d[dims->n - 1] : 0;
}

int64_t trm_cpu_offload_rows(const trm_layer *layer, const trm_dims *dims)
{
    const trm_dims *out = &dims[layer->outputs[0]->index];
    return last_dim(out) > 0 ? trm_dims_count(out) / last_dim(out) : 0;
}

void trm_cpu_offload_describe(const trm_layer *layer, const trm_dims *dims, int64_t rows, trm_kernel_call *call)
{
    trm_plan_describe_call(layer, dims, call);
    call->constants = 0;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        if (layer->inputs[i] != NULL && layer->inputs[i]->role != TRM_TENSOR_CONSTANT) {
            call->inputs[i].dims = (trm_dims){2, {rows, last_dim(&call->inputs[i].dims)}};
        }
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        call->outputs[i].dims = (trm_dims){2, {rows, last_dim(&call->outputs[i].dims)}};
    }
}

/* Whether joining the leading dims of non-constant tensors does not change the layer. */
static bool joins_rows(const trm_plan *plan, const trm_layer *layer, int32_t weight)
{
    const trm_dims *x = &plan->max_dims[layer->inputs[0]->index];
    bool joins = weight != 0 && x->n >= 2 && layer->inputs[0]->role != TRM_TENSOR_CONSTANT;
    for (int32_t i = 0; i < layer->n_inputs; i++) {
        const trm_tensor *input = layer->inputs[i];
        if (input == NULL || i == weight) {
            continue;
        }
        const trm_dims *dims = &plan->max_dims[input->index];
        bool is_parameter = input->role == TRM_TENSOR_CONSTANT && dims->n <= 2;
        joins = joins && (is_parameter || (dims->n == x->n && input->role != TRM_TENSOR_CONSTANT));
    }
    for (int32_t i = 0; i < layer->n_outputs; i++) {
        joins = joins && plan->max_dims[layer->outputs[i]->index].n == x->n;
    }
    return joins;
}

static bool may_host(const trm_plan *plan, const trm_streaming_plan *s, const trm_layer *layer, int32_t weight)
{
    const trm_tensor *tensor = weight < 0 ? NULL : layer->inputs[weight];
    if (tensor == NULL || s->weight_of[tensor->index] < 0 || tensor->dims.n < 2 || plan->batch_invariant ||
        s->n_sharers > 1 || layer->n_inputs + 1 > TRM_MAX_SMALL_COPIES || !joins_rows(plan, layer, weight)) {
        return false;
    }
    if (layer->desc.kind == TRM_LAYER_MATMUL && (tensor->dims.n != 2 || layer->n_inputs > 3)) {
        return false;
    }
    trm_kernel_call call;
    trm_cpu_offload_describe(layer, plan->max_dims, TRM_HOST_COMPUTE_ROWS, &call);
    return trm_plan_call_is_known(&call) &&
           trm_kernel_find(trm_all_kernels, trm_all_kernels_count, TRM_BACKEND_HOST, &call) != NULL;
}

trm_cpu_offload_rates trm_cpu_offload_guess(const trm_plan *plan)
{
    return plan->backend == TRM_BACKEND_CUDA
               ? (trm_cpu_offload_rates){.host = CUDA_RATE, .handover = CUDA_HANDOVER, .round_trip = CUDA_ROUND_TRIP}
               : (trm_cpu_offload_rates){
                     .host = HOST_READ_RATE, .handover = HOST_HANDOVER, .round_trip = HOST_HANDOVER};
}

bool trm_cpu_offload_alike(const trm_layer *a, const trm_layer *b)
{
    int32_t of_a = trm_layer_weight_input(a), of_b = trm_layer_weight_input(b);
    return a->desc.kind == b->desc.kind && of_a >= 0 && of_b >= 0 && a->inputs[of_a]->dtype == b->inputs[of_b]->dtype;
}

static double rate_of(const trm_cpu_offload_rates *rates, const trm_layer *layer)
{
    for (int32_t i = 0; i < rates->n_kinds; i++) {
        if (trm_cpu_offload_alike(rates->kinds[i].layer, layer)) {
            return rates->kinds[i].host;
        }
    }
    return rates->host;
}

void trm_cpu_offload_estimate(const trm_plan *plan, const trm_streaming_plan *s, double *seconds)
{
    const trm_network *network = plan->network;
    for (int32_t i = 0; i < network->n_layers; i++) {
        const trm_layer *layer = network->layers[i];
        size_t bytes = 0;
        for (int32_t k = 0; k < layer->n_inputs; k++) {
            int32_t weight = layer->inputs[k] == NULL ? -1 : s->weight_of[layer->inputs[k]->index];
            bytes += weight < 0 ? 0 : s->bytes[weight];
        }
        bool may = may_host(plan, s, layer, trm_layer_weight_input(layer));
        seconds[i] = may ? (double)bytes / rate_of(&s->rates, layer) + s->rates.handover : -1;
    }
}

/* Bytes that do not stay, and of these, bytes that the CPU can run and bytes in files. */
typedef struct hostable {
    size_t all, runs, files;
} hostable;

static hostable count_hostable(const trm_streaming_plan *s)
{
    hostable sum = {0};
    for (int32_t i = 0; i < s->problem.n_uses; i++) {
        const trm_residency_use *use = &s->problem.uses[i];
        const bool streams = !s->residency.resident[use->weight] && !use->in_place;
        sum.all += streams ? s->bytes[use->weight] : 0;
        sum.runs += streams && s->host_seconds[use->layer] >= 0 ? s->bytes[use->weight] : 0;
    }
    for (int32_t i = 0; i < s->problem.n_weights; i++) {
        sum.files += s->in_files[i] ? s->part_bytes[i] : 0;
    }
    return sum;
}

void trm_cpu_offload_report(const trm_plan *plan)
{
    const trm_streaming_plan *s = plan->streaming;
    const hostable sum = count_hostable(s);
    const double share = trm_wants_share(&s->asked) ? s->asked.host_percent / 100 : 0;
    const size_t read = s->hosts ? s->small.hosted_bytes : 0;
    char cause[128] = "steps would not become clearly faster";
    if (sum.files > 0) {
        snprintf(cause, sizeof(cause), "every step reads %s from files", trm_size_text((double)sum.files).text);
    } else if (sum.runs == 0) {
        snprintf(cause, sizeof(cause), "the CPU can run none of the layers");
    } else if (share > 0 && read == 0) {
        snprintf(cause, sizeof(cause), "every layer reads more");
    }
    if (sum.all == 0 || s->hosts_experts) {
        return;
    }
    if (share > 0 && read == 0) {
        TRM_WARN("rank %d: no CPU offload, although %g %% of the streamed weights was asked for: %s", plan->rank,
                 s->asked.host_percent, cause);
    } else if (share * (double)sum.all > (double)sum.runs * (1 + 1e-9)) {
        TRM_WARN(
            "rank %d: CPU offload reads %s, %.0f %% of the streamed weights, although %g %% was asked for: it cannot "
            "run the other layers",
            plan->rank, trm_size_text((double)read).text, (double)read / (double)sum.all * 100, s->asked.host_percent);
    } else if (s->asked.host_compute == TRM_HOST_COMPUTE_AUTO && s->n_sharers == 1 && read == 0) {
        TRM_INFO("rank %d: no CPU offload (host compute auto): %s", plan->rank, cause);
    }
}
