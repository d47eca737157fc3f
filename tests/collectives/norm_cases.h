/* ALL_REDUCE_NORM layers on any communicator, against sums and norms computed here from all ranks' inputs. */
#ifndef TESTS_COLLECTIVES_NORM_CASES_H
#define TESTS_COLLECTIVES_NORM_CASES_H

#include "kernels/kernel.h"
#include "layer_cases.h"

typedef struct norm_case {
    trm_dtype dtype;
    int64_t rows, width;
    trm_norm_params norm;
    bool weight, bias; /* a bias comes with a weight */
    layer_groups groups;
    size_t shift; /* bytes by which device addresses miss their alignment */
} norm_case;

enum { NORM_X = 0, NORM_RESIDUAL, NORM_WEIGHT, NORM_BIAS, NORM_Y, NORM_SUM, NORM_BUFFERS };

/* What a buffer's elements are made from, as if of a rank. */
enum { NORM_SEED = 1000 };

static inline double norm_given(const norm_case *n, int32_t buffer, size_t i)
{
    unsigned char element[8];
    case_input(n->dtype, NORM_SEED + buffer, i, element);
    return case_load_float(n->dtype, element);
}

static inline double norm_rounded(trm_dtype dtype, double value)
{
    unsigned char element[8];
    case_store_float(dtype, value, element);
    return case_load_float(dtype, element);
}

/* What is normalized, in `sums` [rows * width], from what was reduced. */
static inline void norm_add(const norm_case *n, const unsigned char *reduced, double *sums)
{
    size_t s = trm_dtype_size(n->dtype);
    for (size_t i = 0; i < (size_t)(n->rows * n->width); i++) {
        sums[i] = case_load_float(n->dtype, reduced + i * s);
        if (n->norm.residual) { /* in f32, as kernels do */
            sums[i] = norm_rounded(n->dtype, (double)((float)sums[i] + (float)norm_given(n, NORM_RESIDUAL, i)));
        }
    }
}

/* Mean (0 for RMS) and what to multiply with. */
static inline void norm_statistics(const norm_case *n, const double *row, double *mean, double *scale)
{
    double square = 0;
    *mean = 0;
    for (int64_t i = 0; i < n->width; i++) {
        *mean += n->norm.op == TRM_NORM_LAYER ? row[i] / (double)n->width : 0;
    }
    for (int64_t i = 0; i < n->width; i++) {
        square += (row[i] - *mean) * (row[i] - *mean) / (double)n->width;
    }
    *scale = 1 / sqrt(square + (double)n->norm.eps);
}

static inline bool norm_check(const norm_case *n, const unsigned char *reduced, const unsigned char *y,
                              const unsigned char *sum, char *why, size_t why_size)
{
    size_t count = (size_t)(n->rows * n->width), s = trm_dtype_size(n->dtype);
    double *sums = malloc((count + 1) * sizeof(*sums)), unit = case_tolerance(n->dtype, 1) / 2;
    double mean = 0, scale = 0;
    bool right = true;
    norm_add(n, reduced, sums);
    for (size_t i = 0; right && i < count; i++) {
        size_t column = i % (size_t)n->width;
        if (column == 0) {
            norm_statistics(n, sums + i, &mean, &scale);
        }
        double expected = (sums[i] - mean) * scale *
                          (n->weight ? norm_given(n, NORM_WEIGHT, column) + (double)n->norm.weight_offset : 1);
        expected += n->bias ? norm_given(n, NORM_BIAS, column) : 0;
        double found = case_load_float(n->dtype, y + i * s), tolerance = 1e-5 * (1 + fabs(expected));
        tolerance += unit * fabs(expected);
        right = fabs(found - expected) <= tolerance &&
                (!n->norm.residual || case_load_float(n->dtype, sum + i * s) == sums[i]);
        if (!right) {
            snprintf(why, why_size, "element %zu is %g, expected %g, of the sum %g, expected %g", i, found, expected,
                     n->norm.residual ? case_load_float(n->dtype, sum + i * s) : 0, sums[i]);
        }
    }
    free(sums);
    return right;
}

/* Device buffers, filled; sizes in bytes. */
static inline trm_status norm_fill(const norm_case *n, trm_stream *stream, int32_t rank, void **memory, void **data)
{
    size_t s = trm_dtype_size(n->dtype), whole = (size_t)(n->rows * n->width), row = (size_t)n->width;
    trm_device *device = trm_stream_device(stream);
    for (int32_t b = 0; b < NORM_BUFFERS; b++) {
        size_t count = b == NORM_WEIGHT || b == NORM_BIAS ? row : whole;
        unsigned char *host = malloc(count * s + 1);
        for (size_t i = 0; i < count; i++) {
            case_input(n->dtype, b == NORM_X ? rank : NORM_SEED + b, i, host + i * s);
        }
        trm_status status = trm_device_alloc(device, count * s + 64, &memory[b]);
        if (status == TRM_OK) {
            data[b] = (unsigned char *)memory[b] + n->shift;
            status = trm_stream_upload(stream, data[b], host, count * s);
        }
        if (status == TRM_OK) {
            status = trm_stream_synchronize(stream);
        }
        free(host);
        TRM_TRY(status);
    }
    return TRM_OK;
}

static inline const trm_kernel *norm_describe(const norm_case *n, trm_communicator *c, trm_stream *stream, void **data,
                                              trm_layer_desc *desc, trm_kernel_call *call)
{
    trm_dims whole = {2, {n->rows, n->width}}, row = {1, {n->width}};
    *desc = (trm_layer_desc){.kind = TRM_LAYER_ALL_REDUCE_NORM, .all_reduce_norm = {.norm = n->norm}};
    layer_set_groups(&desc->all_reduce_norm.collective, n->groups, c->size);
    *call = (trm_kernel_call){.layer = desc, .stream = stream, .communicator = c};
    call->inputs[call->n_inputs++] = (trm_view){data[NORM_X], n->dtype, whole};
    if (n->norm.residual) {
        call->inputs[call->n_inputs++] = (trm_view){data[NORM_RESIDUAL], n->dtype, whole};
    }
    if (n->weight) {
        call->inputs[call->n_inputs++] = (trm_view){data[NORM_WEIGHT], n->dtype, row};
    }
    if (n->bias) {
        call->inputs[call->n_inputs++] = (trm_view){data[NORM_BIAS], n->dtype, row};
    }
    call->outputs[call->n_outputs++] = (trm_view){data[NORM_Y], n->dtype, whole};
    if (n->norm.residual) {
        call->outputs[call->n_outputs++] = (trm_view){data[NORM_SUM], n->dtype, whole};
    }
    const trm_kernel_table *table = &trm_collective_kernels;
    return trm_kernel_find(&table, 1, trm_device_backend(trm_stream_device(stream)), call);
}

/* The layer, and the all-reduce of the same group by itself. */
static inline trm_status norm_call(const norm_case *n, trm_communicator *c, trm_stream *stream, unsigned char *y,
                                   unsigned char *sum, unsigned char *reduced, trm_communicator **part)
{
    trm_device *device = trm_stream_device(stream);
    size_t bytes = (size_t)(n->rows * n->width) * trm_dtype_size(n->dtype);
    void *memory[NORM_BUFFERS + 1] = {NULL}, *data[NORM_BUFFERS] = {NULL};
    trm_layer_desc desc;
    trm_kernel_call call;
    trm_status status;
    TRM_TRY_GOTO(status, norm_fill(n, stream, c->rank, memory, data), done);
    const trm_kernel *kernel = norm_describe(n, c, stream, data, &desc, &call);
    if (kernel == NULL) {
        status = trm_fail(TRM_ERROR_UNSUPPORTED, "no kernel accepts the call");
        goto done;
    }
    call.workspace_size = kernel->workspace(&call);
    TRM_TRY_GOTO(status, trm_device_alloc(device, call.workspace_size + 1, &memory[NORM_BUFFERS]), done);
    call.workspace = memory[NORM_BUFFERS];
    TRM_TRY_GOTO(status, trm_kernel_run(kernel, &call), done);
    TRM_TRY_GOTO(status, trm_stream_download(stream, y, data[NORM_Y], bytes), done);
    TRM_TRY_GOTO(status, trm_stream_download(stream, sum, data[NORM_SUM], bytes), done);
    const trm_collective_params *p = &desc.all_reduce_norm.collective;
    TRM_TRY_GOTO(status, trm_communicator_part(c, p->groups, p->n_groups, p->group_size, part), done);
    trm_exchange x = {
        TRM_ALL_REDUCE, TRM_REDUCE_SUM, n->dtype, data[NORM_X], memory[NORM_BUFFERS], (size_t)(n->rows * n->width), 0};
    TRM_TRY_GOTO(status, trm_communicator_exchange(*part, &x, stream), done);
    TRM_TRY_GOTO(status, trm_stream_download(stream, reduced, memory[NORM_BUFFERS], bytes), done);
    status = trm_stream_synchronize(stream);
done:
    for (int32_t b = 0; b <= NORM_BUFFERS; b++) {
        trm_device_free(device, memory[b]);
    }
    return status;
}

static inline void norm_run(trm_communicator *c, const case_setup *setup, const norm_case *n)
{
    trm_collective_params p = {0};
    int32_t members[TRM_MAX_RANKS], me = 0;
    trm_communicator *part = NULL;
    layer_set_groups(&p, n->groups, c->size);
    if (p.n_ranks == 0) {
        return;
    }
    if (!layer_members(&p, c->size, c->rank, members, &me)) {
        (void)trm_communicator_part(c, p.groups, p.n_groups, p.group_size, &part); /* making the group is collective */
        return;
    }
    size_t bytes = (size_t)(n->rows * n->width) * trm_dtype_size(n->dtype);
    unsigned char *y = malloc(bytes + 1), *sum = malloc(bytes + 1), *reduced = malloc(bytes + 1);
    char why[256] = "";
    setup->result->run++;
    trm_status status = norm_call(n, c, setup->stream, y, sum, reduced, &part);
    bool right = status == TRM_OK && norm_check(n, reduced, y, sum, why, sizeof(why));
    if (right && bytes > 0 && !case_identical(part, setup->stream, y, bytes)) {
        snprintf(why, sizeof(why), "the result differs between ranks");
        right = false;
    }
    if (!right && setup->result->failed++ == 0) {
        snprintf(setup->result->why, sizeof(setup->result->why),
                 "%s rank %d of %d: all_reduce_norm of [%lld, %lld] %s, op %d, residual %d, groups %d, shift %zu: %s",
                 c->ops->name, (int)c->rank, (int)c->size, (long long)n->rows, (long long)n->width,
                 trm_dtype_name(n->dtype), (int)n->norm.op, (int)n->norm.residual, (int)n->groups, n->shift,
                 status != TRM_OK ? trm_last_error() : why);
    }
    free(y);
    free(sum);
    free(reduced);
}

/* Widths that fill threads, blocks and clusters or do not; rows up to more than there are channels. */
static inline void norm_run_all(trm_communicator *c, const case_setup *setup)
{
    static const trm_dtype dtypes[] = {TRM_F32, TRM_F16, TRM_BF16};
    static const int64_t widths[] = {1, 4, 12, 60, 128, 1000, 1028, 4096, 5120, 8192};
    static const int64_t rows[] = {1, 2, 5, 16, 70, 0};
    for (int32_t d = 0; d < 3; d++) {
        for (int32_t k = 0; k < 10 * 6; k++) {
            norm_case n = {.dtype = dtypes[d], .rows = rows[k % 6], .width = widths[k / 6]};
            bool layer = (k + d) % 3 == 0;
            n.norm = (trm_norm_params){.op = layer ? TRM_NORM_LAYER : TRM_NORM_RMS,
                                       .residual = (k + d) % 5 != 0,
                                       .eps = 1e-5f,
                                       .weight_offset = k % 2 ? 1.0f : 0.0f};
            n.bias = layer && k % 4 != 0;
            n.weight = n.bias || k % 11 != 0;
            n.groups = (layer_groups)(k % LAYER_GROUPS_COUNT);
            n.shift = setup->stream != NULL && k % 7 == 3 ? trm_dtype_size(n.dtype) : 0;
            if (n.rows * n.width <= 70 * 1028) {
                norm_run(c, setup, &n);
            }
        }
    }
}

#endif
