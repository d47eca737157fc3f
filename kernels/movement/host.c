/*
 * Kernels that move elements without looking at them: reshape, transpose, slice, concat, gather, embedding.
 * They work on any type by its size.
 */
#include <string.h>

#include "kernels/movement/slice.h"
#include "kernels/host/host.h"

static bool moves_one(const trm_kernel_call *call, int32_t n_inputs)
{
    return call->n_inputs == n_inputs && call->n_outputs == 1 && trm_dtype_size(call->inputs[0].dtype) > 0 &&
           call->outputs[0].dtype == call->inputs[0].dtype;
}

/* Copies of `bytes` bytes from -> to for each of a range of rows. */
typedef struct row_copy {
    char *to;
    const char *from;
    size_t bytes;                   /* of one row */
    int64_t rows_inner;             /* rows per step of the outer index */
    int64_t from_outer, from_inner; /* byte strides of the source */
    int64_t to_outer, to_inner;     /* and of the target */
} row_copy;

static inline void copy_row(char *to, const char *from, size_t bytes)
{
    switch (bytes) { /* single elements, without a call */
    case 1:
        *to = *from;
        break;
    case 2:
        memcpy(to, from, 2);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    default:
        memcpy(to, from, bytes);
        break;
    }
}

static void copy_rows(void *user, int64_t begin, int64_t end)
{
    const row_copy *copy = user;
    for (int64_t row = begin; row < end; row++) {
        int64_t outer = row / copy->rows_inner, inner = row % copy->rows_inner;
        copy_row(copy->to + outer * copy->to_outer + inner * copy->to_inner,
                 copy->from + outer * copy->from_outer + inner * copy->from_inner, copy->bytes);
    }
}

static void run_row_copy(const trm_kernel_call *call, row_copy *copy, int64_t rows)
{
    if (rows > 0 && copy->bytes > 0) {
        trm_host_for(call, rows, trm_host_row_grain((int64_t)copy->bytes / 4), copy_rows, copy);
    }
}

bool trm_host_reshape_accepts(const trm_kernel_call *call)
{
    return (call->n_inputs == 1 || call->n_inputs == 2) && moves_one(call, call->n_inputs) &&
           trm_dims_count(&call->inputs[0].dims) == trm_dims_count(&call->outputs[0].dims);
}

trm_status trm_host_reshape_run(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    if (x->data == y->data) {
        return TRM_OK;
    }
    /* One "row" per page, the rest behind it. */
    enum { PAGE = 4096 };
    size_t size = (size_t)trm_dims_count(&x->dims) * trm_dtype_size(x->dtype);
    int64_t pages = (int64_t)(size / PAGE);
    row_copy copy = {
        .to = y->data, .from = x->data, .bytes = PAGE, .rows_inner = 1, .from_outer = PAGE, .to_outer = PAGE};
    run_row_copy(call, &copy, pages);
    size_t done = (size_t)pages * PAGE;
    if (size > done) {
        memcpy((char *)y->data + done, (const char *)x->data + done, size - done);
    }
    return TRM_OK;
}

/* Layers of control flow hand on what they read. */
bool trm_host_hand_on_accepts(const trm_kernel_call *call)
{
    return moves_one(call, call->n_inputs) &&
           trm_dims_count(&call->inputs[0].dims) == trm_dims_count(&call->outputs[0].dims);
}

trm_status trm_host_hand_on_run(const trm_kernel_call *call)
{
    return trm_host_reshape_run(call);
}

/* The input that is not taken may have any dims: nothing is read of it. */
bool trm_host_merge_accepts(const trm_kernel_call *call)
{
    return call->n_inputs >= 3 && call->inputs[1].dtype == call->outputs[0].dtype &&
           call->inputs[2].dtype == call->outputs[0].dtype;
}

trm_status trm_host_merge_run(const trm_kernel_call *call)
{
    trm_kernel_call taken = *call;
    taken.inputs[0] = call->inputs[*(const unsigned char *)call->values[0] != 0 ? 1 : 2];
    return trm_host_reshape_run(&taken);
}

/* Transposition with neighbouring axes that stay neighbours joined into one. */
typedef struct transposition {
    int32_t n;
    int64_t dims[TRM_MAX_DIMS];    /* of the output */
    int64_t strides[TRM_MAX_DIMS]; /* of the input along the output's axes, in elements */
    size_t size;                   /* of an element */
    char *to;
    const char *from;
} transposition;

bool trm_host_transpose_accepts(const trm_kernel_call *call)
{
    const trm_dims *x = &call->inputs[0].dims, *y = &call->outputs[0].dims;
    if (!moves_one(call, 1) || x->n != y->n) {
        return false;
    }
    uint32_t used = 0;
    for (int32_t i = 0; i < x->n; i++) {
        int32_t axis = call->layer->transpose.perm[i];
        if (axis < 0 || axis >= x->n || (used & (1u << axis)) != 0 || y->d[i] != x->d[axis]) {
            return false;
        }
        used |= 1u << axis;
    }
    return true;
}

/* Copies `n` elements from stride `stride` to neighbours. */
static void gather_strided(char *to, const char *from, int64_t n, int64_t stride, size_t size)
{
#define GATHER(type)                                                                                                   \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        ((type *)to)[i] = ((const type *)from)[i * stride];                                                            \
    }                                                                                                                  \
    break
    switch (size) {
    case 1:
        GATHER(uint8_t);
    case 2:
        GATHER(uint16_t);
    case 4:
        GATHER(uint32_t);
    default:
        GATHER(uint64_t);
    }
#undef GATHER
}

static void transpose_rows(void *user, int64_t begin, int64_t end)
{
    const transposition *t = user;
    const int32_t last = t->n - 1;
    for (int64_t row = begin; row < end; row++) {
        int64_t from = 0, rest = row;
        for (int32_t axis = last - 1; axis >= 0; axis--) {
            from += rest % t->dims[axis] * t->strides[axis];
            rest /= t->dims[axis];
        }
        char *to = t->to + (size_t)(row * t->dims[last]) * t->size;
        if (t->strides[last] == 1) {
            copy_row(to, t->from + (size_t)from * t->size, (size_t)t->dims[last] * t->size);
        } else {
            gather_strided(to, t->from + (size_t)from * t->size, t->dims[last], t->strides[last], t->size);
        }
    }
}

trm_status trm_host_transpose_run(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const int64_t count = trm_dims_count(&x->dims);
    if (count == 0) {
        return TRM_OK;
    }
    int64_t strides[TRM_MAX_DIMS];
    for (int32_t i = x->dims.n - 1; i >= 0; i--) {
        strides[i] = trm_host_span(&x->dims, i + 1, x->dims.n);
    }
    transposition t = {.size = trm_dtype_size(x->dtype), .to = y->data, .from = x->data};
    for (int32_t i = 0; i < y->dims.n; i++) {
        int64_t d = y->dims.d[i], stride = strides[call->layer->transpose.perm[i]];
        if (d == 1) {
            continue;
        }
        if (t.n > 0 && t.strides[t.n - 1] == stride * d) {
            t.dims[t.n - 1] *= d;
            t.strides[t.n - 1] = stride;
        } else {
            t.dims[t.n] = d;
            t.strides[t.n++] = stride;
        }
    }
    if (t.n == 0) {
        t.dims[0] = t.strides[0] = 1;
        t.n = 1;
    }
    int64_t width = t.dims[t.n - 1];
    trm_host_for(call, count / width, trm_host_row_grain(width), transpose_rows, &t);
    return TRM_OK;
}

bool trm_host_slice_accepts(const trm_kernel_call *call)
{
    const trm_dims *x = &call->inputs[0].dims, *y = &call->outputs[0].dims;
    const int32_t axis = trm_host_axis(call->layer->slice.axis, x->n);
    trm_slice_params p;
    if (call->n_inputs < 1 || call->n_inputs > 4 || !moves_one(call, call->n_inputs) || axis < 0 || axis >= x->n) {
        return false;
    }
    int64_t first;
    trm_dims expected = *x;
    expected.d[axis] = y->d[axis];
    if (trm_slice_of_call(call, &p)) {
        if (p.step == 0) {
            return false;
        }
        expected.d[axis] = trm_slice_range(&p, x->d[axis], &first);
    }
    return trm_element_same_dims(&expected, y);
}

trm_status trm_host_slice_run(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0], *y = &call->outputs[0];
    const int32_t axis = trm_host_axis(call->layer->slice.axis, x->dims.n);
    const int64_t outer = trm_host_span(&x->dims, 0, axis);
    const size_t inner = (size_t)trm_host_span(&x->dims, axis + 1, x->dims.n) * trm_dtype_size(x->dtype);
    trm_slice_params p;
    int64_t first;
    if (!trm_slice_of_call(call, &p)) {
        return TRM_OK;
    }
    const int64_t n = trm_slice_range(&p, x->dims.d[axis], &first);
    if (n == 0) {
        return TRM_OK;
    }
    row_copy copy = {.to = y->data,
                     .from = (const char *)x->data + (size_t)first * inner,
                     .bytes = p.step == 1 ? (size_t)n * inner : inner,
                     .rows_inner = p.step == 1 ? 1 : n,
                     .from_outer = x->dims.d[axis] * (int64_t)inner,
                     .from_inner = n == 1 ? 0 : p.step * (int64_t)inner, /* of one element, the step may be anything */
                     .to_outer = n * (int64_t)inner,
                     .to_inner = (int64_t)inner};
    run_row_copy(call, &copy, outer * copy.rows_inner);
    return TRM_OK;
}

bool trm_host_concat_accepts(const trm_kernel_call *call)
{
    const trm_dims *y = &call->outputs[0].dims;
    const int32_t axis = trm_host_axis(call->layer->concat.axis, y->n);
    if (call->n_inputs < 1 || !moves_one(call, call->n_inputs) || axis < 0 || axis >= y->n) {
        return false;
    }
    trm_dims sum = call->inputs[0].dims;
    if (sum.n != y->n) {
        return false;
    }
    sum.d[axis] = 0;
    for (int32_t i = 0; i < call->n_inputs; i++) {
        trm_dims one = call->inputs[i].dims;
        if (one.n != sum.n || call->inputs[i].dtype != call->inputs[0].dtype) {
            return false;
        }
        int64_t part = one.d[axis];
        one.d[axis] = sum.d[axis];
        if (!trm_element_same_dims(&one, &sum)) {
            return false;
        }
        sum.d[axis] += part;
    }
    return trm_element_same_dims(&sum, y);
}

trm_status trm_host_concat_run(const trm_kernel_call *call)
{
    const trm_view *y = &call->outputs[0];
    const int32_t axis = trm_host_axis(call->layer->concat.axis, y->dims.n);
    const int64_t outer = trm_host_span(&y->dims, 0, axis);
    const size_t inner = (size_t)trm_host_span(&y->dims, axis + 1, y->dims.n) * trm_dtype_size(y->dtype);
    size_t at = 0;
    for (int32_t i = 0; i < call->n_inputs; i++) {
        const size_t bytes = (size_t)call->inputs[i].dims.d[axis] * inner;
        row_copy copy = {.to = (char *)y->data + at,
                         .from = call->inputs[i].data,
                         .bytes = bytes,
                         .rows_inner = 1,
                         .from_outer = (int64_t)bytes,
                         .to_outer = y->dims.d[axis] * (int64_t)inner};
        run_row_copy(call, &copy, outer);
        at += bytes;
    }
    return TRM_OK;
}

/* Rows picked by index: gather along an axis, and embedding. */
typedef struct row_pick {
    char *to;
    const char *from;
    const void *indices; /* [n_indices] */
    bool indices_are_i64;
    bool negative_from_end;
    int64_t n_indices;
    int64_t rows;  /* of the axis */
    int64_t first; /* subtracted from every index */
    size_t bytes;  /* of one row */
} row_pick;

static void pick_rows(void *user, int64_t begin, int64_t end)
{
    const row_pick *pick = user;
    for (int64_t i = begin; i < end; i++) {
        const int64_t outer = i / pick->n_indices, at = i % pick->n_indices;
        int64_t index =
            pick->indices_are_i64 ? ((const int64_t *)pick->indices)[at] : ((const int32_t *)pick->indices)[at];
        if (pick->negative_from_end && index < 0) {
            index += pick->rows;
        }
        char *to = pick->to + (size_t)i * pick->bytes;
        /* The subtraction may wrap for wild i64 indices: as unsigned it still lands out of range. */
        const uint64_t row = (uint64_t)index - (uint64_t)pick->first;
        if (row < (uint64_t)pick->rows) {
            copy_row(to, pick->from + ((size_t)outer * (size_t)pick->rows + (size_t)row) * pick->bytes, pick->bytes);
        } else {
            memset(to, 0, pick->bytes);
        }
    }
}

static void run_row_pick(const trm_kernel_call *call, row_pick *pick, int64_t outer)
{
    if (outer * pick->n_indices > 0 && pick->bytes > 0) {
        trm_host_for(call, outer * pick->n_indices, trm_host_row_grain((int64_t)pick->bytes / 4), pick_rows, pick);
    }
}

bool trm_host_gather_accepts(const trm_kernel_call *call)
{
    const trm_dims *x = &call->inputs[0].dims, *indices = &call->inputs[1].dims, *y = &call->outputs[0].dims;
    const trm_dtype type = call->inputs[1].dtype;
    const int32_t axis = trm_host_axis(call->layer->gather.axis, x->n);
    if (!moves_one(call, 2) || (type != TRM_I32 && type != TRM_I64) || axis < 0 || axis >= x->n ||
        x->n - 1 + indices->n > TRM_MAX_DIMS) {
        return false;
    }
    trm_dims expected = {.n = 0};
    for (int32_t i = 0; i < x->n; i++) {
        if (i != axis) {
            expected.d[expected.n++] = x->d[i];
            continue;
        }
        for (int32_t j = 0; j < indices->n; j++) {
            expected.d[expected.n++] = indices->d[j];
        }
    }
    return trm_element_same_dims(&expected, y);
}

trm_status trm_host_gather_run(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0], *indices = &call->inputs[1];
    const int32_t axis = trm_host_axis(call->layer->gather.axis, x->dims.n);
    row_pick pick = {.to = call->outputs[0].data,
                     .from = x->data,
                     .indices = indices->data,
                     .indices_are_i64 = indices->dtype == TRM_I64,
                     .negative_from_end = true,
                     .n_indices = trm_dims_count(&indices->dims),
                     .rows = x->dims.d[axis],
                     .bytes = (size_t)trm_host_span(&x->dims, axis + 1, x->dims.n) * trm_dtype_size(x->dtype)};
    run_row_pick(call, &pick, trm_host_span(&x->dims, 0, axis));
    return TRM_OK;
}

bool trm_host_embedding_accepts(const trm_kernel_call *call)
{
    const trm_dims *table = &call->inputs[0].dims, *ids = &call->inputs[1].dims, *y = &call->outputs[0].dims;
    return moves_one(call, 2) && call->inputs[1].dtype == TRM_I32 && table->n == 2 && ids->n == 1 && y->n == 2 &&
           y->d[0] == ids->d[0] && y->d[1] == table->d[1];
}

trm_status trm_host_embedding_run(const trm_kernel_call *call)
{
    const trm_view *table = &call->inputs[0], *ids = &call->inputs[1];
    row_pick pick = {.to = call->outputs[0].data,
                     .from = table->data,
                     .indices = ids->data,
                     .n_indices = ids->dims.d[0],
                     .rows = table->dims.d[0],
                     .first = call->layer->embedding.first_row,
                     .bytes = (size_t)table->dims.d[1] * trm_dtype_size(table->dtype)};
    run_row_pick(call, &pick, 1);
    return TRM_OK;
}
