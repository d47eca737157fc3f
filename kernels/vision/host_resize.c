/*
 * RESIZE by rows: where the columns of a block are read, and with which weights, is found once for all rows of a
 * thread. Products and sums are those of the element function, in its order.
 */
#include "kernels/vision/resize.h"

#include <string.h>

#include "kernels/host/element.h"

#define COLUMNS   256
#define MOST_TAPS 4 /* of the last axis; with antialias there may be more */

TRM_HOST_PLACED_ELEMENTS(resize, trm_resize_args)

/* A block of columns of the output. */
typedef struct columns {
    int64_t first, n;
    int32_t taps;
    bool same, doubled;                 /* every column is its own source; two columns share one */
    bool outside[COLUMNS], any_outside; /* of the part that is cut out: the extrapolation value */
    int32_t at[MOST_TAPS][COLUMNS];
    double weights[MOST_TAPS][COLUMNS], least[MOST_TAPS]; /* least: of the magnitudes */
} columns;

typedef struct resize_job {
    trm_resize_args args;
    int64_t width;   /* of the last axis of the output */
    int32_t n_outer; /* resampled axes before the last */
    bool last, sums; /* the last axis is resampled; there are weights */
    int64_t unit;    /* bytes of an element */
} resize_job;

static bool lies_outside(const trm_resize_args *args, int32_t k, double x)
{
    return args->p.coordinates == TRM_RESIZE_CROP && (x < 0.0 || x > (double)(args->from.d[args->axes[k]] - 1));
}

static void fill_columns(const resize_job *job, int64_t first, int64_t n, columns *c)
{
    const trm_resize_args *args = &job->args;
    const int32_t k = args->n - 1;
    c->first = first;
    c->n = n;
    c->taps = 1;
    c->same = !job->last;
    c->any_outside = false;
    for (int64_t i = 0; i < n; i++) {
        c->at[0][i] = (int32_t)(first + i);
        c->weights[0][i] = 1.0;
        c->outside[i] = false;
        if (!job->last) {
            continue;
        }
        const double x = trm_resize_coordinate(args, k, first + i);
        const int64_t size = args->from.d[args->axes[k]];
        c->outside[i] = lies_outside(args, k, x);
        c->any_outside = c->any_outside || c->outside[i];
        if (!job->sums) {
            c->at[0][i] = (int32_t)trm_resize_clamp(trm_resize_nearest_to(args->p.nearest, x), size);
            continue;
        }
        trm_resize_taps taps;
        trm_resize_taps_init(args, k, x, &taps);
        c->taps = (int32_t)taps.count;
        for (int32_t t = 0; t < c->taps; t++) {
            c->at[t][i] = (int32_t)trm_resize_clamp(taps.base + taps.first + t, size);
            c->weights[t][i] = trm_resize_weight(args, &taps, t) / taps.sum;
        }
    }
    for (int32_t t = 0; t < c->taps; t++) {
        c->least[t] = fabs(c->weights[t][0]);
        for (int64_t i = 1; i < n; i++) {
            c->least[t] = fmin(c->least[t], fabs(c->weights[t][i]));
        }
    }
    c->doubled = job->last && !job->sums && n % 2 == 0;
    for (int64_t i = 0; i < n && c->doubled; i++) {
        c->doubled = c->at[0][i] == c->at[0][0] + i / 2;
    }
}

/* ---- nearest ---- */

TRM_VECTOR_CLONES static void take_4(const uint32_t *from, const int32_t *at, int64_t n, uint32_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = from[at[i]];
    }
}

TRM_VECTOR_CLONES static void double_4(const uint32_t *from, int64_t n, uint32_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        to[2 * i] = to[2 * i + 1] = from[i];
    }
}

/* Elements of a row of x, of `unit` bytes each, at the columns' places. */
static void take(const columns *c, int64_t unit, const unsigned char *row, unsigned char *to)
{
    if (c->same) {
        memcpy(to, row + c->first * unit, (size_t)(c->n * unit));
    } else if (unit == 4 && c->doubled) {
        double_4((const uint32_t *)(const void *)row + c->at[0][0], c->n / 2, (uint32_t *)(void *)to);
    } else if (unit == 4) {
        take_4((const uint32_t *)(const void *)row, c->at[0], c->n, (uint32_t *)(void *)to);
    } else {
        for (int64_t i = 0; i < c->n; i++) {
            trm_element_move((int32_t)unit, to, i, row, c->at[0][i]);
        }
    }
}

/* ---- sums of taps ---- */

TRM_VECTOR_CLONES static void add_floats(const float *restrict row, const int32_t *restrict at,
                                         const double *restrict weights, double outer, int64_t n, double *restrict sums)
{
    for (int64_t i = 0; i < n; i++) {
        sums[i] += outer * weights[i] * (double)row[at[i]];
    }
}

/* The same where some of the weights are 0, beyond which there may be NaN. */
static void add_some_floats(const float *row, const int32_t *at, const double *weights, double outer, int64_t n,
                            double *sums)
{
    for (int64_t i = 0; i < n; i++) {
        const double weight = outer * weights[i];
        if (weight != 0.0) {
            sums[i] += weight * (double)row[at[i]];
        }
    }
}

TRM_VECTOR_CLONES static void store_floats(const double *restrict sums, int64_t n, float *restrict to)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = (float)sums[i];
    }
}

/* Adds a tap of the outer axes, the row of x that begins at `from`, to the sums. */
static void add_row(const resize_job *job, const columns *c, int64_t from, double outer, double *sums)
{
    const trm_resize_args *args = &job->args;
    double own[MOST_TAPS][COLUMNS];
    if (args->dtype == TRM_F32) {
        for (int32_t t = 0; t < c->taps; t++) {
            (fabs(outer) * c->least[t] > 0.0 ? add_floats : add_some_floats)((const float *)args->x + from, c->at[t],
                                                                             c->weights[t], outer, c->n, sums);
        }
        return;
    }
    for (int32_t t = 0; t < c->taps; t++) {
        for (int64_t i = 0; i < c->n; i++) {
            own[t][i] = outer * c->weights[t][i];
            if (own[t][i] != 0.0) {
                sums[i] += own[t][i] * trm_resize_load(args, from + c->at[t][i]);
            }
        }
    }
}

/* ---- rows ---- */

/* The row of the output at `at`, which lies at element `to`; *source is the row of x it was taken from, where it is one
 * alone, else -1. */
static void resize_row(const resize_job *job, const columns *c, const int64_t *at, int64_t to, int64_t *source)
{
    const trm_resize_args *args = &job->args;
    unsigned char *y = (unsigned char *)args->y + to * job->unit;
    trm_resize_taps taps[TRM_MAX_DIMS];
    int64_t tap[TRM_MAX_DIMS], fixed = 0;
    const int64_t before = *source;
    bool outside = false;
    *source = -1;
    for (int32_t axis = 0; axis < args->dims.n - 1; axis++) {
        fixed += at[axis] * args->strides[axis];
    }
    for (int32_t k = 0; k < job->n_outer; k++) {
        const int32_t axis = args->axes[k];
        const double x = trm_resize_coordinate(args, k, at[axis]);
        fixed -= at[axis] * args->strides[axis];
        outside = outside || lies_outside(args, k, x);
        tap[k] = 0;
        if (job->sums) {
            trm_resize_taps_init(args, k, x, &taps[k]);
        } else {
            fixed +=
                trm_resize_clamp(trm_resize_nearest_to(args->p.nearest, x), args->from.d[axis]) * args->strides[axis];
        }
    }
    if (!job->sums && !outside) {
        if (fixed == before && !c->any_outside) { /* the row before is the same */
            memcpy(y, y - job->width * job->unit, (size_t)(c->n * job->unit));
        } else {
            take(c, job->unit, (const unsigned char *)args->x + fixed * job->unit, y);
        }
        *source = fixed;
    }
    double sums[COLUMNS];
    memset(sums, 0, job->sums ? (size_t)c->n * sizeof(sums[0]) : 0);
    for (int32_t k = 0; k >= 0 && job->sums && !outside;) {
        int64_t from = fixed;
        double weight = 1.0;
        for (int32_t j = 0; j < job->n_outer; j++) {
            weight *= trm_resize_weight(args, &taps[j], tap[j]) / taps[j].sum;
            from +=
                trm_resize_clamp(taps[j].base + taps[j].first + tap[j], taps[j].size) * args->strides[args->axes[j]];
        }
        add_row(job, c, from, weight, sums);
        for (k = job->n_outer - 1; k >= 0; k--) { /* the next combination of taps */
            if (++tap[k] < taps[k].count) {
                break;
            }
            tap[k] = 0;
        }
    }
    if (job->sums && args->dtype == TRM_F32) {
        store_floats(sums, c->n, (float *)args->y + to);
    }
    for (int64_t i = 0; i < c->n && job->sums && args->dtype != TRM_F32; i++) {
        trm_resize_store(args, to + i, sums[i]);
    }
    for (int64_t i = 0; i < c->n && (outside || c->any_outside); i++) {
        if (outside || c->outside[i]) {
            trm_resize_store(args, to + i, (double)args->p.extrapolation);
        }
    }
}

static void resize_rows(void *user, int64_t begin, int64_t end)
{
    const resize_job *job = user;
    trm_dims outer = job->args.dims;
    columns c;
    outer.n--;
    for (int64_t first = 0; first < job->width; first += COLUMNS) {
        int64_t at[TRM_MAX_DIMS] = {0}, source = -1;
        fill_columns(job, first, trm_host_min(job->width - first, COLUMNS), &c);
        trm_element_place(&outer, begin, at);
        for (int64_t row = begin; row < end; row++) {
            resize_row(job, &c, at, row * job->width + first, &source);
            trm_element_next(&outer, at);
        }
    }
}

bool trm_host_resize_accepts(const trm_kernel_call *call)
{
    trm_resize_args args;
    return trm_resize_args_of(call, &args);
}

/* Whether few taps of the last axis matter. */
static bool goes_by_rows(const resize_job *job)
{
    const trm_resize_args *args = &job->args;
    trm_resize_taps taps = {.count = 1};
    if (job->last && job->sums) {
        trm_resize_taps_init(args, args->n - 1, 0.0, &taps);
    }
    return args->dims.n > 0 && args->from.d[args->dims.n - 1] <= INT32_MAX && job->width <= INT32_MAX &&
           taps.count <= MOST_TAPS;
}

trm_status trm_host_resize_run(const trm_kernel_call *call)
{
    resize_job job;
    const int64_t count = trm_dims_count(&call->outputs[0].dims);
    if (!trm_resize_args_of(call, &job.args) || count == 0) {
        return TRM_OK;
    }
    const trm_resize_args *args = &job.args;
    const int32_t rank = args->dims.n;
    job.width = rank > 0 ? args->dims.d[rank - 1] : 1;
    job.last = args->n > 0 && args->axes[args->n - 1] == rank - 1;
    job.n_outer = args->n - job.last;
    job.sums = args->p.mode != TRM_RESIZE_NEAREST;
    job.unit = args->size;
    if (goes_by_rows(&job)) {
        trm_host_for(call, count / job.width, 8 * trm_host_row_grain(job.width * (job.sums ? 16 : 1)), resize_rows,
                     &job);
    } else {
        trm_host_for_each(call, count, 64, resize_range, &job.args);
    }
    return TRM_OK;
}
