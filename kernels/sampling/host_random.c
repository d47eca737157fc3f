/* Random fill on the host. */
#include <math.h>

#include "base/pool.h"
#include "kernels/host/host.h"
#include "kernels/sampling/backends.h"

TRM_VECTOR_CLONES void trm_random_numbers(uint64_t seed, float mean, float spread, uint64_t start, uint64_t stride,
                                          size_t count, float *to)
{
    if (mean == 0) {
        for (size_t i = 0; i < count; i++) {
            to[i] = spread * trm_random_unit(seed, start + i * stride);
        }
        return;
    }
    for (size_t i = 0; i < count; i++) {
        to[i] = fmaf(spread, trm_random_unit(seed, start + i * stride), mean);
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
    float numbers[TRM_HOST_BLOCK];
    for (int64_t row = begin; row < end; row++) {
        uint64_t index = (uint64_t)args->offset;
        int64_t rest = row;
        for (int32_t axis = last - 1; axis >= 0; axis--) {
            index += (uint64_t)(rest % dims->d[axis]) * (uint64_t)args->strides[axis];
            rest /= dims->d[axis];
        }
        for (int64_t i = 0; i < width; i += TRM_HOST_BLOCK) {
            const int64_t n = width - i < TRM_HOST_BLOCK ? width - i : TRM_HOST_BLOCK;
            trm_random_numbers(args->seed, args->mean, args->spread, index + (uint64_t)i * (uint64_t)stride,
                               (uint64_t)stride, (size_t)n, numbers);
            trm_host_store(args->to.dtype, args->to.data, row * width + i, n, numbers);
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
