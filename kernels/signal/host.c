/* Fourier transforms, determinants and random numbers. Elements are in headers of the kind. */
#include <math.h>

#include "kernels/signal/determinant.h"
#include "kernels/signal/fourier.h"
#include "kernels/signal/random.h"
#include "kernels/host/element.h"

TRM_HOST_ELEMENTS(random, trm_random_args)

/* Lines slot, slot + slots, ... */
static void fourier_range(void *user, int64_t begin, int64_t end)
{
    const trm_fourier_args *args = user;
    for (int64_t slot = begin; slot < end; slot++) {
        for (int64_t line = slot; line < args->lines; line += args->slots) {
            double *x = args->buffers + slot * 4 * args->n, *y = x + 2 * args->n;
            for (int64_t j = 0; j < args->n; j++) {
                trm_fourier_load(args, line, j, x + 2 * j);
            }
            int64_t stride = 1;
            for (int64_t length = args->n; length > 1;) {
                const int64_t p = trm_fourier_factor(length);
                trm_fourier_stage(args, length, stride, p, x, y, 0, 1);
                double *const done = y;
                y = x;
                x = done;
                length /= p;
                stride *= p;
            }
            for (int64_t k = 0; k < args->to; k++) {
                trm_fourier_store(args, line, k, x + 2 * k);
            }
        }
    }
}

bool trm_host_fourier_accepts(const trm_kernel_call *call)
{
    trm_fourier_args args;
    return trm_fourier_args_of(call, &args);
}

size_t trm_host_fourier_workspace(const trm_kernel_call *call)
{
    return trm_fourier_workspace(call);
}

trm_status trm_host_fourier_run(const trm_kernel_call *call)
{
    trm_fourier_args args;
    if (trm_fourier_args_of(call, &args) && args.lines > 0) {
        for (int64_t k = 0; k < args.n; k++) {
            trm_element_twiddle(args.table, args.n, k);
        }
        trm_host_for_each(call, args.slots, 16 * args.n * (args.lines / args.slots), fourier_range, &args);
    }
    return TRM_OK;
}

bool trm_host_random_accepts(const trm_kernel_call *call)
{
    trm_random_args args;
    return trm_random_args_of(call, &args);
}

trm_status trm_host_random_run(const trm_kernel_call *call)
{
    trm_random_args args;
    if (trm_random_args_of(call, &args)) {
        trm_host_for_each(call, trm_dims_count(&call->outputs[0].dims), 20 + 20 * args.classes, random_range, &args);
    }
    return TRM_OK;
}

/* ---- determinant ------------------------------------------------------------------------------- */

/* By elimination with the largest pivot of each column. */
static double determinant_of(double *m, int64_t n)
{
    double result = 1.0;
    for (int64_t column = 0; column < n; column++) {
        int64_t pivot = column;
        for (int64_t row = column + 1; row < n; row++) {
            pivot = fabs(m[row * n + column]) > fabs(m[pivot * n + column]) ? row : pivot;
        }
        const double value = m[pivot * n + column];
        result *= pivot == column ? value : -value;
        if (value == 0.0) {
            return 0.0;
        }
        for (int64_t j = column; pivot != column && j < n; j++) {
            const double kept = m[column * n + j];
            m[column * n + j] = m[pivot * n + j];
            m[pivot * n + j] = kept;
        }
        for (int64_t row = column + 1; row < n; row++) {
            const double factor = m[row * n + column] / value;
            for (int64_t j = column + 1; j < n; j++) {
                m[row * n + j] -= factor * m[column * n + j];
            }
        }
    }
    return result;
}

static void determinant_range(void *user, int64_t begin, int64_t end)
{
    const trm_determinant_args *args = user;
    const int64_t size = args->n * args->n;
    for (int64_t i = begin; i < end; i++) {
        double *matrix = args->matrices + i * size;
        for (int64_t j = 0; j < size; j++) {
            matrix[j] = trm_element_load_f64(args->dtype, args->x, i * size + j);
        }
        trm_element_store_f64(args->dtype, args->y, i, determinant_of(matrix, args->n));
    }
}

bool trm_host_determinant_accepts(const trm_kernel_call *call)
{
    trm_determinant_args args;
    return trm_determinant_args_of(call, &args);
}

size_t trm_host_determinant_workspace(const trm_kernel_call *call)
{
    return trm_determinant_workspace(call);
}

trm_status trm_host_determinant_run(const trm_kernel_call *call)
{
    trm_determinant_args args;
    if (trm_determinant_args_of(call, &args)) {
        trm_host_for_each(call, args.batch, args.n * args.n * args.n / 2 + 1, determinant_range, &args);
    }
    return TRM_OK;
}
