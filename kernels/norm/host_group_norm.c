/* Group and instance normalization: statistics of each group of channels in f64. */
#include <math.h>

#include "kernels/pointwise/element.h"
#include "kernels/host/host.h"

typedef struct group_norm_job {
    const trm_view *x, *scale, *bias, *y; /* scale, bias: NULL where not given */
    const trm_group_norm_params *params;
    int64_t groups, channels, inner; /* channels of a group, elements of a channel */
    int64_t batches;
} group_norm_job;

static bool job_init(group_norm_job *job, const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0];
    const int64_t channels = x->dims.n < 2 ? 0 : x->dims.d[1];
    const int64_t groups = call->layer->group_norm.groups == 0 ? channels : call->layer->group_norm.groups;
    if (call->n_inputs > 3 || call->n_outputs != 1 || x->dims.n < 2 || groups < 0 ||
        (groups > 0 && channels % groups != 0) || !trm_element_is_float(x->dtype) ||
        call->outputs[0].dtype != x->dtype || !trm_element_same_dims(&x->dims, &call->outputs[0].dims)) {
        return false;
    }
    *job = (group_norm_job){.x = x,
                            .y = &call->outputs[0],
                            .params = &call->layer->group_norm,
                            .groups = groups,
                            .channels = groups > 0 ? channels / groups : 0,
                            .inner = trm_host_span(&x->dims, 2, x->dims.n),
                            .batches = x->dims.d[0]};
    for (int32_t i = 1; i < call->n_inputs; i++) {
        const trm_view *view = &call->inputs[i];
        if (view->dtype != TRM_DTYPE_NONE &&
            (view->dtype != x->dtype || view->dims.n != 1 || view->dims.d[0] != channels)) {
            return false;
        }
    }
    job->scale = trm_kernel_call_has(call, 1) ? &call->inputs[1] : NULL;
    job->bias = trm_kernel_call_has(call, 2) ? &call->inputs[2] : NULL;
    return true;
}

/* sum of (x - mean)^power over n elements from `start` on. */
static double sum_of(const trm_view *x, int64_t start, int64_t n, double mean, bool squared)
{
    double sum = 0.0;
    float buffer[TRM_HOST_BLOCK];
    for (int64_t i = 0; i < n; i += TRM_HOST_BLOCK) {
        const int64_t block = trm_host_min(n - i, TRM_HOST_BLOCK);
        const double *wide = (const double *)x->data + start + i;
        const float *values = x->dtype == TRM_F64 ? NULL : trm_host_load(x->dtype, x->data, start + i, block, buffer);
        for (int64_t j = 0; j < block; j++) {
            const double v = (values != NULL ? (double)values[j] : wide[j]) - mean;
            sum += squared ? v * v : v;
        }
    }
    return sum;
}

static void store_channel(const group_norm_job *job, int64_t start, double factor, double offset)
{
    const trm_view *x = job->x, *y = job->y;
    float buffer[TRM_HOST_BLOCK], result[TRM_HOST_BLOCK];
    for (int64_t i = 0; i < job->inner; i += TRM_HOST_BLOCK) {
        const int64_t block = trm_host_min(job->inner - i, TRM_HOST_BLOCK);
        if (x->dtype == TRM_F64) {
            for (int64_t j = start + i; j < start + i + block; j++) {
                ((double *)y->data)[j] =
                    trm_activate_f64(job->params->activation, ((const double *)x->data)[j] * factor + offset);
            }
            continue;
        }
        const float *values = trm_host_load(x->dtype, x->data, start + i, block, buffer);
        for (int64_t j = 0; j < block; j++) {
            result[j] = (float)((double)values[j] * factor + offset);
        }
        trm_host_activate(job->params->activation, result, block);
        trm_host_store(y->dtype, y->data, start + i, block, result);
    }
}

static void run_groups(void *user, int64_t begin, int64_t end)
{
    const group_norm_job *job = user;
    const int64_t n = job->channels * job->inner;
    for (int64_t group = begin; group < end; group++) {
        const double mean = sum_of(job->x, group * n, n, 0.0, false) / (double)n;
        const double variance = sum_of(job->x, group * n, n, mean, true) / (double)n;
        const double deviation = sqrt(variance + (double)job->params->eps);
        for (int64_t c = 0; c < job->channels; c++) {
            const int64_t channel = group % job->groups * job->channels + c;
            double factor = 1.0 / deviation, offset;
            if (job->scale != NULL) {
                factor *= trm_element_load_f64(job->scale->dtype, job->scale->data, channel);
            }
            offset = -mean * factor;
            if (job->bias != NULL) {
                offset += trm_element_load_f64(job->bias->dtype, job->bias->data, channel);
            }
            store_channel(job, group * n + c * job->inner, factor, offset);
        }
    }
}

bool trm_host_group_norm_accepts(const trm_kernel_call *call)
{
    group_norm_job job;
    return job_init(&job, call);
}

trm_status trm_host_group_norm_run(const trm_kernel_call *call)
{
    group_norm_job job;
    if (job_init(&job, call) && trm_dims_count(&call->inputs[0].dims) > 0) {
        trm_host_for(call, job.batches * job.groups, trm_host_row_grain(4 * job.channels * job.inner), run_groups,
                     &job);
    }
    return TRM_OK;
}
