/*
 * Kernels that move elements without arithmetic: cast, reshape, transpose, slice, concat, gather, embedding. All are
 * bound by device memory: each element is read once and written once. Index arithmetic is prepared in strides.h.
 */
#include "kernels/cuda/common.cuh"
#include "kernels/kernel_list.h"
#include "kernels/cuda/strides.h"
#include "kernels/movement/slice.h"
#include "kernels/small_types.h"

/* ---- cast ---- */

/* One thread per 8 elements, 16-byte accesses; the last count % 8 elements by the last threads of the grid one by one.
 */
template <typename From, typename To>
static __global__ void cast_floats(const From *__restrict__ from, To *__restrict__ to, int64_t count)
{
    for (int64_t i = global_thread(); i < count / 8; i += global_threads()) {
        float v[8];
        load8(from + i * 8, v);
        store8(to + i * 8, v);
    }
    for (int64_t i = count / 8 * 8 + global_thread(); i < count; i += global_threads()) {
        to[i] = from_float<To>(to_float(from[i]));
    }
}

/* Any type to any other, one element per thread: for shapes and masks, which are small. */
static __global__ void cast_any(trm_cast_params p, int32_t size, trm_dtype from_type, const void *from, void *to,
                                int64_t count)
{
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        trm_element_cast(&p, size, from_type, from, to, i);
    }
}

template <typename From>
static void launch_cast_floats(const From *from, trm_dtype to_type, void *to, int64_t count, cudaStream_t stream)
{
    DISPATCH_FLOAT(to_type,
                   cast_floats<From, T><<<grid_for((count + 7) / 8, 256), 256, 0, stream>>>(from, (T *)to, count));
}

bool trm_cuda_cast_accepts(const trm_kernel_call *call)
{
    return trm_dtype_size(call->inputs[0].dtype) > 0 && call->outputs[0].dtype == call->layer->cast.to &&
           trm_dtype_size(call->layer->cast.to) > 0;
}

trm_status trm_cuda_cast_run(const trm_kernel_call *call)
{
    const trm_view *in = &call->inputs[0], *out = &call->outputs[0];
    int64_t count = trm_dims_count(&out->dims);
    if (count == 0) {
        return TRM_OK;
    }
    if (in->dtype == out->dtype) {
        return trm_stream_copy(call->stream, out->data, in->data, (size_t)count * trm_dtype_size(in->dtype));
    }
    cudaStream_t stream = trm_cuda_stream(call->stream);
    if (!call->layer->cast.bits && is_half_or_float(in->dtype) && is_half_or_float(out->dtype) &&
        trm_aligned16(in->data) && trm_aligned16(out->data)) {
        DISPATCH_FLOAT(in->dtype, launch_cast_floats((const T *)in->data, out->dtype, out->data, count, stream));
    } else {
        cast_any<<<grid_for(count, 256), 256, 0, stream>>>(call->layer->cast, (int32_t)trm_dtype_size(out->dtype),
                                                           in->dtype, in->data, out->data, count);
    }
    return trm_cuda_launched("cuda.cast");
}

/* ---- strided copies ---- */

/* Element i of the loop goes from operand 0 to operand 1. One element of 1 to 16 bytes per thread and pass. */
template <typename Unit, typename Index>
static __global__ void copy_strided(const Unit *from, Unit *to, trm_strided s, Index count)
{
    begin_overlapped();
    for (Index i = (Index)global_thread(); i < count; i += (Index)global_threads()) {
        Index rest = i;
        int64_t from_at = 0, to_at = 0;
        for (int axis = s.n - 1; axis >= 0; axis--) {
            Index size = (Index)s.d[axis];
            Index at = rest % size;
            rest /= size;
            from_at += (int64_t)at * s.stride[0][axis];
            to_at += (int64_t)at * s.stride[1][axis];
        }
        to[to_at] = from[from_at];
    }
}

/* [batch, rows, columns] -> [batch, columns, rows] through a 32 x 33 tile of shared memory, so that both sides are
 * coalesced. 32 x 8 threads, four elements each. */
template <typename Unit>
static __global__ void transpose_tiles(const Unit *__restrict__ from, Unit *__restrict__ to, int64_t batch,
                                       int64_t rows, int64_t columns)
{
    __shared__ Unit tile[32][33];
    int64_t column0 = (int64_t)blockIdx.x * 32, row0 = (int64_t)blockIdx.y * 32;
    for (int64_t b = blockIdx.z; b < batch; b += gridDim.z) {
        const Unit *source = from + b * rows * columns;
        Unit *target = to + b * rows * columns;
        for (int y = threadIdx.y; y < 32; y += 8) {
            int64_t row = row0 + y, column = column0 + threadIdx.x;
            if (row < rows && column < columns) {
                tile[y][threadIdx.x] = source[row * columns + column];
            }
        }
        __syncthreads();
        for (int y = threadIdx.y; y < 32; y += 8) {
            int64_t column = column0 + y, row = row0 + threadIdx.x;
            if (row < rows && column < columns) {
                target[column * rows + row] = tile[threadIdx.x][y];
            }
        }
        __syncthreads();
    }
}

template <typename Unit> static void launch_copy(const void *from, void *to, const trm_strided *s, cudaStream_t stream)
{
    int64_t count = trm_strided_count(s);
    int last = s->n - 1;
    /* A swap of the last two axes: the output is contiguous, the input walks the last axis in steps of a row. */
    bool swap = sizeof(Unit) <= 8 && (s->n == 2 || s->n == 3) && s->stride[1][last] == 1 &&
                s->stride[1][last - 1] == s->d[last] && s->stride[0][last - 1] == 1 &&
                s->stride[0][last] == s->d[last - 1] &&
                (s->n == 2 || (s->stride[0][0] == s->d[1] * s->d[2] && s->stride[1][0] == s->d[1] * s->d[2]));
    if (swap) {
        int64_t rows = s->d[last], columns = s->d[last - 1], batch = s->n == 3 ? s->d[0] : 1;
        int64_t tiles_x = (columns + 31) / 32, tiles_y = (rows + 31) / 32;
        if (tiles_x <= INT32_MAX && tiles_y <= 65535) {
            dim3 grid((unsigned)tiles_x, (unsigned)tiles_y, (unsigned)(batch < 65535 ? batch : 65535));
            transpose_tiles<Unit>
                <<<grid, dim3(32, 8), 0, stream>>>((const Unit *)from, (Unit *)to, batch, rows, columns);
            return;
        }
    }
    if (count <= INT32_MAX / 2) {
        launch_overlapped(copy_strided<Unit, uint32_t>, grid_for(count, 256), 256, 0, stream, (const Unit *)from,
                          (Unit *)to, *s, (uint32_t)count);
    } else {
        launch_overlapped(copy_strided<Unit, int64_t>, grid_for(count, 256), 256, 0, stream, (const Unit *)from,
                          (Unit *)to, *s, count);
    }
}

/* Copies by the loop `s`, operand 0 the source and 1 the target, of elements of `element` bytes. */
static void copy_by(trm_strided s, size_t element, const void *from, void *to, cudaStream_t stream)
{
    if (trm_strided_count(&s) == 0) {
        return;
    }
    trm_strided_collapse(&s);
    switch (trm_strided_widen(&s, element, (uintptr_t)from | (uintptr_t)to)) {
    case 1:
        launch_copy<uint8_t>(from, to, &s, stream);
        break;
    case 2:
        launch_copy<uint16_t>(from, to, &s, stream);
        break;
    case 4:
        launch_copy<uint32_t>(from, to, &s, stream);
        break;
    case 8:
        launch_copy<uint2>(from, to, &s, stream);
        break;
    default:
        launch_copy<uint4>(from, to, &s, stream);
        break;
    }
}

bool trm_cuda_reshape_accepts(const trm_kernel_call *call)
{
    return call->inputs[0].dtype == call->outputs[0].dtype && trm_dtype_size(call->inputs[0].dtype) > 0;
}

trm_status trm_cuda_reshape_run(const trm_kernel_call *call)
{
    const trm_view *in = &call->inputs[0], *out = &call->outputs[0];
    size_t size = (size_t)trm_dims_count(&out->dims) * trm_dtype_size(out->dtype);
    if (size == 0 || in->data == out->data) {
        return TRM_OK;
    }
    return trm_stream_copy(call->stream, out->data, in->data, size);
}

/* Layers of control flow hand on what they read. */
bool trm_cuda_hand_on_accepts(const trm_kernel_call *call)
{
    return trm_cuda_reshape_accepts(call);
}

trm_status trm_cuda_hand_on_run(const trm_kernel_call *call)
{
    return trm_cuda_reshape_run(call);
}

/* The input that is not taken may have any dims: nothing is read of it. */
bool trm_cuda_merge_accepts(const trm_kernel_call *call)
{
    return call->n_inputs >= 3 && call->inputs[1].dtype == call->outputs[0].dtype &&
           call->inputs[2].dtype == call->outputs[0].dtype && trm_dtype_size(call->outputs[0].dtype) > 0;
}

trm_status trm_cuda_merge_run(const trm_kernel_call *call)
{
    trm_kernel_call taken = *call;
    taken.inputs[0] = call->inputs[*(const unsigned char *)call->values[0] != 0 ? 1 : 2];
    return trm_cuda_reshape_run(&taken);
}

bool trm_cuda_transpose_accepts(const trm_kernel_call *call)
{
    return trm_cuda_reshape_accepts(call);
}

/* [batch, FEW, n] to [batch, n, FEW], FEW channels of a pixel or so: a thread per n; reads are neighbours, and so are
 * the writes of a warp. */
template <typename Unit, int FEW>
static __global__ void __launch_bounds__(256) gather_few(const Unit *from, Unit *to, int64_t batch, int64_t n)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < batch * n; i += global_threads()) {
        const int64_t b = i / n, at = b * FEW * n + (i - b * n);
        Unit v[FEW];
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            v[k] = from[at + k * n];
        }
#pragma unroll
        for (int k = 0; k < FEW; k++) {
            to[i * FEW + k] = v[k];
        }
    }
}

/* The same of three bytes, four n at a time: words of `from` and `to`, n counts those of a channel. */
static __global__ void __launch_bounds__(256) gather_bytes(const uint32_t *from, uint32_t *to, int64_t batch, int64_t n)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < batch * n; i += global_threads()) {
        const int64_t b = i / n, at = b * 3 * n + (i - b * n);
        const uint32_t a0 = from[at], a1 = from[at + n], a2 = from[at + 2 * n];
        to[i * 3] = __byte_perm(__byte_perm(a0, a1, 0x1040), a2, 0x3410);
        to[i * 3 + 1] = __byte_perm(__byte_perm(a0, a1, 0x6205), a2, 0x3250);
        to[i * 3 + 2] = __byte_perm(__byte_perm(a0, a1, 0x0730), a2, 0x7216);
    }
}

/* Whether it was such a transpose of 1, 2 or 4 bytes, and is done. */
static bool transpose_few(const trm_view *in, const trm_transpose_params *p, void *to, cudaStream_t stream)
{
    const int32_t n = in->dims.n;
    const size_t size = trm_dtype_size(in->dtype);
    int64_t rest = 1;
    bool fits =
        n >= 3 && p->perm[0] == 0 && p->perm[n - 1] == 1 && in->dims.d[1] == 3 && (size == 1 || size == 2 || size == 4);
    for (int32_t i = 2; fits && i < n; i++) {
        fits = p->perm[i - 1] == i;
        rest *= in->dims.d[i];
    }
    const int64_t count = in->dims.d[0] * rest;
    if (!fits || count == 0) {
        return false;
    }
    if (size == 1 && rest % 4 == 0 && ((uintptr_t)in->data | (uintptr_t)to) % 4 == 0) {
        launch_overlapped(gather_bytes, grid_for(count / 4, 256), 256, 0, stream, (const uint32_t *)in->data,
                          (uint32_t *)to, in->dims.d[0], rest / 4);
    } else if (size == 1) {
        launch_overlapped(gather_few<uint8_t, 3>, grid_for(count, 256), 256, 0, stream, (const uint8_t *)in->data,
                          (uint8_t *)to, in->dims.d[0], rest);
    } else if (size == 2) {
        launch_overlapped(gather_few<uint16_t, 3>, grid_for(count, 256), 256, 0, stream, (const uint16_t *)in->data,
                          (uint16_t *)to, in->dims.d[0], rest);
    } else {
        launch_overlapped(gather_few<uint32_t, 3>, grid_for(count, 256), 256, 0, stream, (const uint32_t *)in->data,
                          (uint32_t *)to, in->dims.d[0], rest);
    }
    return true;
}

trm_status trm_cuda_transpose_run(const trm_kernel_call *call)
{
    const trm_view *in = &call->inputs[0], *out = &call->outputs[0];
    if (transpose_few(in, &call->layer->transpose, out->data, trm_cuda_stream(call->stream))) {
        return trm_cuda_launched("cuda.transpose");
    }
    trm_strided s = {};
    int64_t in_strides[TRM_MAX_DIMS];
    s.n = out->dims.n;
    s.operands = 2;
    trm_contiguous_strides(&in->dims, in_strides);
    trm_contiguous_strides(&out->dims, s.stride[1]);
    for (int i = 0; i < s.n; i++) {
        s.d[i] = out->dims.d[i];
        s.stride[0][i] = in_strides[call->layer->transpose.perm[i]];
    }
    copy_by(s, trm_dtype_size(in->dtype), in->data, out->data, trm_cuda_stream(call->stream));
    return trm_cuda_launched("cuda.transpose");
}

bool trm_cuda_slice_accepts(const trm_kernel_call *call)
{
    return trm_cuda_reshape_accepts(call) && call->n_inputs <= 4;
}

trm_status trm_cuda_slice_run(const trm_kernel_call *call)
{
    const trm_view *in = &call->inputs[0], *out = &call->outputs[0];
    trm_slice_params slice;
    size_t element = trm_dtype_size(in->dtype);
    if (trm_dims_count(&out->dims) == 0 || !trm_slice_of_call(call, &slice)) {
        return TRM_OK;
    }
    trm_axis_view view = trm_view_around(&in->dims, slice.axis);
    int64_t start, taken = trm_slice_range(&slice, view.n, &start);
    int64_t step = taken == 1 ? 1 : slice.step; /* of one element, the step may be anything */
    trm_strided s = {3,
                     2,
                     {view.outer, taken, view.inner},
                     {{view.n * view.inner, step * view.inner, 1}, {taken * view.inner, view.inner, 1}}};
    const char *from = (const char *)in->data + (size_t)(start * view.inner) * element;
    copy_by(s, element, from, out->data, trm_cuda_stream(call->stream));
    return trm_cuda_launched("cuda.slice");
}

bool trm_cuda_concat_accepts(const trm_kernel_call *call)
{
    for (int32_t i = 0; i < call->n_inputs; i++) {
        if (call->inputs[i].dtype != call->outputs[0].dtype) {
            return false;
        }
    }
    return call->n_inputs > 0 && trm_dtype_size(call->outputs[0].dtype) > 0;
}

trm_status trm_cuda_concat_run(const trm_kernel_call *call)
{
    const trm_view *out = &call->outputs[0];
    size_t element = trm_dtype_size(out->dtype);
    trm_axis_view whole = trm_view_around(&out->dims, call->layer->concat.axis);
    cudaStream_t stream = trm_cuda_stream(call->stream);
    int64_t at = 0;
    for (int32_t i = 0; i < call->n_inputs; i++) {
        trm_axis_view part = trm_view_around(&call->inputs[i].dims, call->layer->concat.axis);
        trm_strided s = {
            2, 2, {part.outer, part.n * part.inner}, {{part.n * part.inner, 1}, {whole.n * whole.inner, 1}}};
        copy_by(s, element, call->inputs[i].data, (char *)out->data + (size_t)(at * whole.inner) * element, stream);
        at += part.n;
    }
    return trm_cuda_launched("cuda.concat");
}

/* ---- gather and embedding ---- */

/* from [outer, n, inner] and indices [picks] -> to [outer, picks, inner], in units of up to 16 bytes, one per thread.
 * Index
 * - first outside 0 .. n - 1 gives zeros, after adding n to negative ones with `wrap`. */
template <typename Unit, typename Id>
static __global__ void gather_rows(const Unit *from, const Id *indices, Unit *to, int64_t outer, int64_t n,
                                   int64_t inner, int64_t picks, int64_t first, bool wrap)
{
    int64_t count = outer * picks * inner;
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        int64_t column = i % inner, row = i / inner;
        int64_t o = row / picks;
        int64_t index = (int64_t)indices[row % picks] - first;
        if (wrap && index < 0) {
            index += n;
        }
        Unit value = {};
        if (index >= 0 && index < n) {
            value = from[(o * n + index) * inner + column];
        }
        to[i] = value;
    }
}

typedef struct gather_args {
    const void *from, *indices;
    void *to;
    trm_dtype index_type;
    trm_axis_view view;
    int64_t picks, first;
    bool wrap;
} gather_args;

template <typename Unit> static void launch_gather(const gather_args *a, int64_t inner, cudaStream_t stream)
{
    unsigned grid = grid_for(a->view.outer * a->picks * inner, 256);
    if (a->index_type == TRM_I32) {
        launch_overlapped(gather_rows<Unit, int32_t>, grid, 256, 0, stream, (const Unit *)a->from,
                          (const int32_t *)a->indices, (Unit *)a->to, a->view.outer, a->view.n, inner, a->picks,
                          a->first, a->wrap);
    } else {
        launch_overlapped(gather_rows<Unit, int64_t>, grid, 256, 0, stream, (const Unit *)a->from,
                          (const int64_t *)a->indices, (Unit *)a->to, a->view.outer, a->view.n, inner, a->picks,
                          a->first, a->wrap);
    }
}

static void gather_by(const gather_args *a, size_t element, cudaStream_t stream)
{
    size_t run = (size_t)a->view.inner * element, unit = 16;
    while (unit > element && (run % unit != 0 || (((uintptr_t)a->from | (uintptr_t)a->to) & (unit - 1)) != 0)) {
        unit /= 2;
    }
    int64_t inner = (int64_t)(run / unit);
    switch (unit) {
    case 1:
        launch_gather<uint8_t>(a, inner, stream);
        break;
    case 2:
        launch_gather<uint16_t>(a, inner, stream);
        break;
    case 4:
        launch_gather<uint32_t>(a, inner, stream);
        break;
    case 8:
        launch_gather<uint2>(a, inner, stream);
        break;
    default:
        launch_gather<uint4>(a, inner, stream);
        break;
    }
}

bool trm_cuda_gather_accepts(const trm_kernel_call *call)
{
    return trm_cuda_reshape_accepts(call) && (call->inputs[1].dtype == TRM_I32 || call->inputs[1].dtype == TRM_I64);
}

trm_status trm_cuda_gather_run(const trm_kernel_call *call)
{
    const trm_view *in = &call->inputs[0], *out = &call->outputs[0];
    if (trm_dims_count(&out->dims) == 0) {
        return TRM_OK;
    }
    gather_args a = {in->data,
                     call->inputs[1].data,
                     out->data,
                     call->inputs[1].dtype,
                     trm_view_around(&in->dims, call->layer->gather.axis),
                     trm_dims_count(&call->inputs[1].dims),
                     0,
                     true};
    gather_by(&a, trm_dtype_size(in->dtype), trm_cuda_stream(call->stream));
    return trm_cuda_launched("cuda.gather");
}

bool trm_cuda_embedding_accepts(const trm_kernel_call *call)
{
    return trm_cuda_reshape_accepts(call) && call->inputs[0].dims.n == 2 && call->inputs[1].dtype == TRM_I32;
}

trm_status trm_cuda_embedding_run(const trm_kernel_call *call)
{
    const trm_view *table = &call->inputs[0], *out = &call->outputs[0];
    if (trm_dims_count(&out->dims) == 0) {
        return TRM_OK;
    }
    gather_args a = {table->data,
                     call->inputs[1].data,
                     out->data,
                     TRM_I32,
                     {1, table->dims.d[0], table->dims.d[1]},
                     trm_dims_count(&call->inputs[1].dims),
                     call->layer->embedding.first_row,
                     false};
    gather_by(&a, trm_dtype_size(table->dtype), trm_cuda_stream(call->stream));
    return trm_cuda_launched("cuda.embedding");
}
