/*
 * POOL by rows, for f32: maxima first along rows and then across them, sums tap by tap. Of equal maxima, and of NaN,
 * the first one in the window is kept, and sums are those of the element function, in its order.
 */
#include "kernels/vision/pool.h"

#include <string.h>

#include "kernels/host/element.h"

#define COLUMNS 256
#define ROWS    8  /* of the output at a time */
#define LINES   32 /* of the input that they see at most */
#define LANES   16
#define SEEN    1024 /* elements of a line that a block of columns sees at most */

TRM_HOST_PLACED_ELEMENTS(pool, trm_pool_args)

/* Rows of a plane of the output: [planes, out[0], bands] in turn. */
typedef struct pool_job {
    trm_pool_args args;
    int64_t bands, rows, columns; /* bands of rows; columns at a time */
} pool_job;

/* Elements of a line that n columns see. */
static int64_t seen_by(const trm_windows *w, int64_t n)
{
    return (n - 1) * w->stride[2] + trm_window_extent(w->kernel[2], w->dilation[2]);
}

/* What a block of columns sees of the lines of the input. */
typedef struct sight {
    int64_t left, seen, first, end; /* column of the input; elements; those within the input */
    int64_t lanes;                  /* columns, and some more */
} sight;

static sight sight_of(const trm_windows *w, int64_t c0, int64_t n)
{
    sight s = {.left = c0 * w->stride[2] - w->before[2], .lanes = (n + LANES - 1) / LANES * LANES};
    const int64_t room = w->in[2] - s.left;
    s.seen = seen_by(w, s.lanes);
    s.first = s.left < 0 ? trm_host_min(-s.left, s.seen) : 0;
    s.end = room > s.seen ? s.seen : room < s.first ? s.first : room;
    return s;
}

/* The larger of two, the second where they are equal; NaN is larger than anything. */
static inline float larger(float v, float best)
{
    return ((best == best) & !(best >= v)) ? v : best;
}

/* to[i] = the larger of to[i] and x[i * stride]; n is a multiple of LANES, so that there is vector code alone. */
static inline void keep_larger(const float *restrict x, int64_t stride, int64_t n, float *restrict to)
{
    n = n / LANES * LANES;
    if (stride == 1) {
        for (int64_t i = 0; i < n; i++) {
            to[i] = larger(x[i], to[i]);
        }
    } else if (stride == 2) {
        for (int64_t i = 0; i < n; i++) {
            to[i] = larger(x[2 * i], to[i]);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            to[i] = larger(x[i * stride], to[i]);
        }
    }
}

static inline void fill(float *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = -INFINITY;
    }
}

/* Maxima of rows y0 .. y0 + rows - 1 of (plane, z), columns c0 .. c0 + n - 1. */
TRM_VECTOR_CLONES static void max_band(const trm_pool_args *args, int64_t plane, int64_t z, int64_t y0, int64_t rows,
                                       int64_t c0, int64_t n, float *y)
{
    const trm_windows *w = &args->w;
    const float *x = (const float *)args->x + plane * w->in_size;
    const int64_t top = y0 * w->stride[1] - w->before[1];
    const int64_t lines = (rows - 1) * w->stride[1] + trm_window_extent(w->kernel[1], w->dilation[1]);
    const sight s = sight_of(w, c0, n);
    float line[SEEN], along[LINES][COLUMNS], best[ROWS][COLUMNS];
    for (int64_t r = 0; r < rows; r++) {
        fill(best[r], s.lanes);
    }
    fill(line, s.seen);
    for (int64_t a = 0; a < w->kernel[0]; a++) {
        const int64_t layer = z * w->stride[0] - w->before[0] + a * w->dilation[0];
        if (layer < 0 || layer >= w->in[0]) {
            continue;
        }
        for (int64_t i = 0; i < lines; i++) {
            const int64_t at = top + i;
            fill(along[i], s.lanes);
            if (at >= 0 && at < w->in[1]) {
                memcpy(line + s.first, x + (layer * w->in[1] + at) * w->in[2] + s.left + s.first,
                       (size_t)(s.end - s.first) * sizeof(float));
                for (int64_t k = 0; k < w->kernel[2]; k++) {
                    keep_larger(line + k * w->dilation[2], w->stride[2], s.lanes, along[i]);
                }
            }
        }
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t b = 0; b < w->kernel[1]; b++) {
                keep_larger(along[r * w->stride[1] + b * w->dilation[1]], 1, s.lanes, best[r]);
            }
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        memcpy(y + r * w->out[2], best[r], (size_t)n * sizeof(float));
    }
}

/* sums[i] += x[i * stride], or its square; n as above. */
static inline void add_taps(const float *restrict x, int64_t stride, int64_t n, bool squares, double *restrict sums)
{
    n = n / LANES * LANES;
    if (squares) {
        for (int64_t i = 0; i < n; i++) {
            const double v = (double)x[i * stride];
            sums[i] += v * v;
        }
    } else if (stride == 1) {
        for (int64_t i = 0; i < n; i++) {
            sums[i] += (double)x[i];
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            sums[i] += (double)x[i * stride];
        }
    }
}

/* By how many taps of a row the sums of columns c0 .. c0 + n - 1 are divided. */
static void count_taps(const trm_pool_args *args, int64_t c0, int64_t n, double *counts)
{
    const trm_windows *w = &args->w;
    for (int64_t i = 0; i < n; i++) {
        const int64_t start = (c0 + i) * w->stride[2] - w->before[2];
        const int64_t missed = start < 0 ? (-start + w->dilation[2] - 1) / w->dilation[2] : 0;
        const int64_t within = trm_pool_taps(w, 2, start, w->in[2]) - missed;
        counts[i] = args->op == TRM_POOL_LP ? 1.0
                    : args->count_padding   ? (double)trm_pool_taps(w, 2, start, args->padded[2])
                                            : (double)(within > 0 ? within : 0);
    }
}

/* Averages or norms of row y0 of (plane, z), columns c0 .. c0 + n - 1. */
TRM_VECTOR_CLONES static void sum_row(const trm_pool_args *args, int64_t plane, int64_t z, int64_t y0, int64_t c0,
                                      int64_t n, const double *restrict counts, float *restrict y)
{
    const trm_windows *w = &args->w;
    const float *x = (const float *)args->x + plane * w->in_size;
    const int64_t top = y0 * w->stride[1] - w->before[1], front = z * w->stride[0] - w->before[0];
    const sight s = sight_of(w, c0, n);
    float line[SEEN]; /* zeros around what there is, which change no sum */
    double sums[COLUMNS];
    int64_t taken = 0; /* rows of the window */
    memset(line, 0, (size_t)s.seen * sizeof(line[0]));
    memset(sums, 0, (size_t)s.lanes * sizeof(sums[0]));
    for (int64_t a = 0; a < w->kernel[0]; a++) {
        const int64_t layer = front + a * w->dilation[0];
        for (int64_t b = 0; layer >= 0 && layer < w->in[0] && b < w->kernel[1]; b++) {
            const int64_t at = top + b * w->dilation[1];
            if (at < 0 || at >= w->in[1]) {
                continue;
            }
            memcpy(line + s.first, x + (layer * w->in[1] + at) * w->in[2] + s.left + s.first,
                   (size_t)(s.end - s.first) * sizeof(float));
            taken++;
            for (int64_t k = 0; k < w->kernel[2]; k++) {
                add_taps(line + k * w->dilation[2], w->stride[2], s.lanes, args->op == TRM_POOL_LP, sums);
            }
        }
    }
    if (args->op == TRM_POOL_LP) {
        for (int64_t i = 0; i < n; i++) {
            y[i] = (float)sqrt(sums[i]);
        }
        return;
    }
    const double rows = (double)(args->count_padding ? trm_pool_taps(w, 0, front, args->padded[0]) *
                                                           trm_pool_taps(w, 1, top, args->padded[1])
                                                     : taken);
    bool all = rows > 0.0;
    for (int64_t i = 0; i < n; i++) {
        all = all && counts[i] > 0.0;
    }
    if (all) {
        for (int64_t i = 0; i < n; i++) {
            y[i] = (float)(sums[i] / (rows * counts[i]));
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const double count = rows * counts[i];
        y[i] = count > 0.0 ? (float)(sums[i] / count) : 0.0f;
    }
}

/* Bands begin .. end - 1, a block of columns at a time. */
static void pool_bands(void *user, int64_t begin, int64_t end)
{
    const pool_job *job = user;
    const trm_pool_args *args = &job->args;
    const trm_windows *w = &args->w;
    double counts[COLUMNS];
    for (int64_t c0 = 0; c0 < w->out[2]; c0 += job->columns) {
        const int64_t n = trm_host_min(w->out[2] - c0, job->columns);
        count_taps(args, c0, n, counts);
        for (int64_t i = begin; i < end; i++) {
            const int64_t band = i % job->bands, z = i / job->bands % w->out[0], plane = i / job->bands / w->out[0];
            const int64_t y0 = band * job->rows, rows = trm_host_min(w->out[1] - y0, job->rows);
            float *y = (float *)args->y + ((plane * w->out[0] + z) * w->out[1] + y0) * w->out[2] + c0;
            if (args->op == TRM_POOL_MAX) {
                max_band(args, plane, z, y0, rows, c0, n, y);
            } else {
                sum_row(args, plane, z, y0, c0, n, counts, y);
            }
        }
    }
}

bool trm_host_pool_accepts(const trm_kernel_call *call)
{
    trm_pool_args args;
    return trm_pool_args_of(call, &args);
}

/* Rows of the output at a time; 0: their windows are too large, or the elements are not those that rows are for. */
static int64_t rows_at_once(const trm_pool_args *args)
{
    const trm_windows *w = &args->w;
    const int64_t extent = trm_window_extent(w->kernel[1], w->dilation[1]);
    if (args->dtype != TRM_F32 || args->channels_last || args->indices != NULL || seen_by(w, LANES) > SEEN ||
        (args->op == TRM_POOL_LP && args->p != 2.0f) || (args->op == TRM_POOL_MAX && extent > LINES)) {
        return 0;
    }
    return args->op == TRM_POOL_MAX ? trm_host_min((LINES - extent) / w->stride[1] + 1, ROWS) : 1;
}

trm_status trm_host_pool_run(const trm_kernel_call *call)
{
    pool_job job;
    const int64_t count = trm_dims_count(&call->outputs[0].dims);
    if (!trm_pool_args_of(call, &job.args) || count == 0) {
        return TRM_OK;
    }
    const trm_windows *w = &job.args.w;
    job.rows = rows_at_once(&job.args);
    if (job.rows == 0) {
        trm_host_for_each(call, count, 4 * w->kernel_size, pool_range, &job.args);
        return TRM_OK;
    }
    for (job.columns = COLUMNS; seen_by(w, job.columns) > SEEN && job.columns > LANES; job.columns -= LANES) {
    }
    job.bands = (w->out[1] + job.rows - 1) / job.rows;
    trm_host_for(call, w->batch * w->channels_in * w->out[0] * job.bands,
                 trm_host_row_grain(job.rows * w->out[2] * (w->kernel[1] + w->kernel[2]) / 4), pool_bands, &job);
    return TRM_OK;
}
