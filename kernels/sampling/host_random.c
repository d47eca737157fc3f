/* Random fill on the host. */
#include <math.h>

#include "base/half.h"
#include "base/pool.h"
#include "kernels/sampling/backends.h"

static void store(const trm_view *to, int64_t i, float value)
{
    switch (to->dtype) {
    case TRM_F16:
        ((uint16_t *)to->data)[i] = trm_f32_to_f16(value);
        break;
    case TRM_BF16:
        ((uint16_t *)to->data)[i] = trm_f32_to_bf16(value);
        break;
    default:
        ((float *)to->data)[i] = value;
        break;
    }
}

/* Rows begin .. end - 1, a row being the last dimension. */
static void fill_rows(void *user, int64_t begin, int64_t end)
{
    const trm_random_fill_args *args = user;
    const trm_dims *dims = &args->to.dims;
    const int32_t last = dims->n - 1;
    const int64_t width = dims->n > 0 ? dims->d[last] : 1;
    const int64_t stride = dims->n > 0 ? args->strides[last] : 0;
    for (int64_t row = begin; row < end; row++) {
        uint64_t index = (uint64_t)args->offset;
        int64_t rest = row;
        for (int32_t axis = last - 1; axis >= 0; axis--) {
            index += (uint64_t)(rest % dims->d[axis]) * (uint64_t)args->strides[axis];
            rest /= dims->d[axis];
        }
        for (int64_t i = 0; i < width; i++) {
            float unit = trm_random_unit(args->seed, index + (uint64_t)i * (uint64_t)stride);
            store(&args->to, row * width + i, fmaf(args->spread, unit, args->mean));
        }
    }
}

trm_status trm_host_random_fill(trm_stream *stream, const trm_random_fill_args *args)
{
    const trm_dims *dims = &args->to.dims;
    int64_t width = dims->n > 0 ? dims->d[dims->n - 1] : 1;
    trm_random_fill_args copy = *args;
    trm_pool_for(trm_stream_native(stream), trm_dims_count(dims) / width, 1 + 16384 / width, fill_rows, &copy);
    return TRM_OK;
}
