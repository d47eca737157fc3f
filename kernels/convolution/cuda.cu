/*
 * Our own convolutions, for what the library does not do or without a library: tiles of an implicit matrix product
 * in f32, one thread per output for few channels in a group (depthwise), and f64 element by element.
 */
#include "kernels/convolution/cuda.h"
#include "kernels/cuda/element.cuh"

#define TILE    64 /* outputs by positions of a block */
#define TILE_K  16
#define THREADS 256
#define EACH    4 /* outputs by positions of a thread */

template <typename T> static __device__ __forceinline__ float load_as_float(const void *data, int64_t i)
{
    return to_float(((const T *)data)[i]);
}

/* Adds what follows the sum and stores element i of y, which is of channel m. */
template <typename T>
static __device__ __forceinline__ void store_output(const trm_convolution_args &args, int64_t m, int64_t i, float sum)
{
    if (args.bias != NULL) {
        sum += load_as_float<T>(args.bias, m);
    }
    if (args.residual != NULL) {
        sum += load_as_float<T>(args.residual, i);
    }
    ((T *)args.y)[i] = from_float<T>(activate(args.activation, sum));
}

/* Where the window of one output position begins. */
typedef struct corner {
    int64_t plane; /* first element of the image's group of channels */
    int z, y, x;
} corner;

static __device__ __forceinline__ corner corner_of(const trm_convolution_args &args, int64_t image, int64_t position,
                                                   int64_t group)
{
    const trm_windows &w = args.w;
    const int64_t row = position / w.out[2], layer = row / w.out[1];
    corner c;
    c.plane = (image * w.channels_in + group * args.channels) * w.in_size;
    c.x = (int)((position - row * w.out[2]) * w.stride[2] - w.before[2]);
    c.y = (int)((row - layer * w.out[1]) * w.stride[1] - w.before[1]);
    c.z = (int)(layer * w.stride[0] - w.before[0]);
    return c;
}

/* Element k (channel and tap) of the window. */
template <typename T>
static __device__ __forceinline__ float load_tap(const trm_convolution_args &args, const corner &c, int k)
{
    const trm_windows &w = args.w;
    const int taps = (int)w.kernel_size, channel = k / taps, tap = k - channel * taps;
    const int row = tap / (int)w.kernel[2], layer = row / (int)w.kernel[1];
    const int x = c.x + (tap - row * (int)w.kernel[2]) * (int)w.dilation[2];
    const int y = c.y + (row - layer * (int)w.kernel[1]) * (int)w.dilation[1];
    const int z = c.z + layer * (int)w.dilation[0];
    if ((unsigned)x >= (unsigned)w.in[2] || (unsigned)y >= (unsigned)w.in[1] || (unsigned)z >= (unsigned)w.in[0]) {
        return 0.0f;
    }
    return load_as_float<T>(args.x, c.plane + channel * w.in_size + (z * w.in[1] + y) * w.in[2] + x);
}

/* Grid: tiles of positions (of all images), tiles of outputs of a group, groups. Shared memory: 8.5 KiB. Bound by f32
 * arithmetic. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) convolve_tiles(const trm_convolution_args args, int64_t positions)
{
    __shared__ float weights[TILE_K][TILE + 4], columns[TILE_K][TILE + 4];
    begin_overlapped();
    const trm_windows &w = args.w;
    const int k_count = (int)(args.channels * w.kernel_size);
    const int64_t group = blockIdx.z, q0 = (int64_t)blockIdx.x * TILE, m0 = (int64_t)blockIdx.y * TILE;
    const int column = threadIdx.x % TILE, column_row = threadIdx.x / TILE;
    const int weight_k = threadIdx.x % TILE_K, weight_row = threadIdx.x / TILE_K;
    const int64_t q = q0 + column < positions ? q0 + column : positions - 1, image = q / w.out_size;
    const corner c = corner_of(args, image, q - image * w.out_size, group);
    const int mine_m = threadIdx.x / (TILE / EACH) * EACH, mine_q = threadIdx.x % (TILE / EACH) * EACH;
    float sums[EACH][EACH] = {};
    for (int k0 = 0; k0 < k_count; k0 += TILE_K) {
        for (int row = column_row; row < TILE_K; row += THREADS / TILE) {
            columns[row][column] = k0 + row < k_count ? load_tap<T>(args, c, k0 + row) : 0.0f;
        }
        for (int row = weight_row; row < TILE; row += THREADS / TILE_K) {
            const bool there = m0 + row < args.outputs && k0 + weight_k < k_count;
            weights[weight_k][row] =
                there ? load_as_float<T>(args.weight, (group * args.outputs + m0 + row) * k_count + k0 + weight_k)
                      : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE_K; k++) {
            float a[EACH], b[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                a[i] = weights[k][mine_m + i];
                b[i] = columns[k][mine_q + i];
            }
#pragma unroll
            for (int i = 0; i < EACH; i++) {
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    sums[i][j] += a[i] * b[j];
                }
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < EACH; j++) {
        const int64_t at = q0 + mine_q + j, n = at / w.out_size;
        for (int i = 0; i < EACH; i++) {
            const int64_t m = group * args.outputs + m0 + mine_m + i;
            if (at < positions && m0 + mine_m + i < args.outputs) {
                store_output<T>(args, m, (n * args.dims.d[1] + m) * w.out_size + at - n * w.out_size, sums[i][j]);
            }
        }
    }
}

/* One thread per output. Bound by reading windows from cache. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) convolve_each(const trm_convolution_args args, int64_t count)
{
    begin_overlapped();
    const trm_windows &w = args.w;
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        const int64_t plane = i / w.out_size, image = plane / args.dims.d[1], m = plane - image * args.dims.d[1];
        const corner c = corner_of(args, image, i - plane * w.out_size, m / args.outputs);
        int64_t tap = m * args.channels * w.kernel_size, from = c.plane;
        float sum = 0.0f;
        for (int channel = 0; channel < (int)args.channels; channel++, from += w.in_size) {
            for (int a = 0; a < (int)w.kernel[0]; a++) {
                const int z = c.z + a * (int)w.dilation[0];
                for (int b = 0; b < (int)w.kernel[1]; b++) {
                    const int y = c.y + b * (int)w.dilation[1];
                    const bool row = (unsigned)z < (unsigned)w.in[0] && (unsigned)y < (unsigned)w.in[1];
                    for (int k = 0; k < (int)w.kernel[2]; k++, tap++) {
                        const int x = c.x + k * (int)w.dilation[2];
                        if (row && (unsigned)x < (unsigned)w.in[2]) {
                            sum += load_as_float<T>(args.x, from + (z * w.in[1] + y) * w.in[2] + x) *
                                   load_as_float<T>(args.weight, tap);
                        }
                    }
                }
            }
        }
        store_output<T>(args, m, i, sum);
    }
}

/* Channels last: one thread per output, neighbours on neighbouring channels. In a depthwise convolution they read
 * neighbouring elements; otherwise this is only for where there is no library. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) convolve_last(const trm_convolution_args args, int64_t count)
{
    begin_overlapped();
    const trm_windows &w = args.w;
    const int outputs = (int)(args.outputs * args.groups), channels = (int)args.channels;
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        const int64_t q = i / outputs, image = q / w.out_size, position = q - image * w.out_size;
        const int m = (int)(i - q * outputs), first = m / (int)args.outputs * channels;
        const int64_t row = position / w.out[2], layer = row / w.out[1];
        const int x0 = (int)((position - row * w.out[2]) * w.stride[2] - w.before[2]);
        const int y0 = (int)((row - layer * w.out[1]) * w.stride[1] - w.before[1]);
        const int z0 = (int)(layer * w.stride[0] - w.before[0]);
        int64_t tap = (int64_t)m * w.kernel_size * channels;
        float sum = 0.0f;
        for (int a = 0; a < (int)w.kernel[0]; a++) {
            const int z = z0 + a * (int)w.dilation[0];
            for (int b = 0; b < (int)w.kernel[1]; b++) {
                const int y = y0 + b * (int)w.dilation[1];
                for (int k = 0; k < (int)w.kernel[2]; k++, tap += channels) {
                    const int x = x0 + k * (int)w.dilation[2];
                    if ((unsigned)z >= (unsigned)w.in[0] || (unsigned)y >= (unsigned)w.in[1] ||
                        (unsigned)x >= (unsigned)w.in[2]) {
                        continue;
                    }
                    const int64_t from = (((image * w.in[0] + z) * w.in[1] + y) * w.in[2] + x) * w.channels_in + first;
                    for (int c = 0; c < channels; c++) {
                        sum += load_as_float<T>(args.x, from + c) * load_as_float<T>(args.weight, tap + c);
                    }
                }
            }
        }
        store_output<T>(args, m, i, sum);
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) finish_outputs(const trm_convolution_args args, int64_t count)
{
    begin_overlapped();
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        const int64_t channels = args.outputs * args.groups;
        store_output<T>(args, (args.channels_last ? i : i / args.w.out_size) % channels, i,
                        load_as_float<T>(args.y, i));
    }
}

trm_status trm_cuda_convolution_own(const trm_convolution_args *args, cudaStream_t stream)
{
    const int64_t count = trm_dims_count(&args->dims), positions = args->w.batch * args->w.out_size;
    const int64_t tiles_p = (positions + TILE - 1) / TILE, tiles_m = (args->outputs + TILE - 1) / TILE;
    const trm_windows *w = &args->w;
    if (count == 0) {
        return TRM_OK;
    }
    /* Tiles count taps, rows and tiles in 32 bits. */
    const bool fits = args->channels * w->kernel_size <= INT32_MAX / 2 && tiles_p <= INT32_MAX && tiles_m <= 65535 &&
                      args->groups <= 65535;
    if (args->dtype == TRM_F64 || args->channels > INT32_MAX) {
        launch_overlapped(run_placed_elements<trm_convolution_args, trm_element_convolution, int64_t>,
                          grid_for(count, 256), 256, 0, stream, *args, count);
    } else if (args->channels_last) {
        DISPATCH_FLOAT(args->dtype,
                       launch_overlapped(convolve_last<T>, grid_for(count, THREADS), THREADS, 0, stream, *args, count));
    } else if (args->outputs < 8 || !fits) {
        DISPATCH_FLOAT(args->dtype,
                       launch_overlapped(convolve_each<T>, grid_for(count, THREADS), THREADS, 0, stream, *args, count));
    } else {
        const dim3 grid((unsigned)tiles_p, (unsigned)tiles_m, (unsigned)args->groups);
        DISPATCH_FLOAT(args->dtype, launch_overlapped(convolve_tiles<T>, grid, THREADS, 0, stream, *args, positions));
    }
    return trm_cuda_launched("cuda.convolution");
}

/* Element (b1, b2, channel) of what is folded: rows and columns of `n1` x `n2` positions with `channels` each, a block
 * of fold x fold positions becoming the channels of one, which begins `shift1`, `shift2` blocks before the first; zeros
 * outside. `row` is the first position. */
template <typename T>
static __device__ __forceinline__ float folded(const T *from, int64_t row, int n1, int n2, int channels, int fold,
                                               int y0, int x0, int channel)
{
    const int place = channel / channels, y = y0 + place / fold, x = x0 + place % fold;
    const bool inside = place < fold * fold && y >= 0 && y < n1 && x >= 0 && x < n2;
    return inside ? to_float(from[(row + (int64_t)y * n2 + x) * channels + (channel - place * channels)]) : 0.0f;
}

/* A thread per 16 bytes written, of x and then of the weight; bound by device memory. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) fold_channels(const trm_folding f, int64_t n_x, int64_t n_w)
{
    const int n = vec16<T>::n, fold = f.fold;
    begin_overlapped();
    for (int64_t i = global_thread(); i < n_x + n_w; i += global_threads()) {
        const bool is_x = i < n_x;
        const int64_t at = is_x ? i : i - n_x, position = at / f.vectors;
        const int first = (int)(at - position * f.vectors) * n;
        const int *grid = is_x ? f.grid : f.taps, *from = is_x ? f.in : f.kernel;
        const int column = (int)(position % grid[1]), row = (int)(position / grid[1] % grid[0]);
        const int64_t image = position / ((int64_t)grid[0] * grid[1]);
        const int y0 = row * fold - (is_x ? f.before[0] * fold : f.extra[0]);
        const int x0 = column * fold - (is_x ? f.before[1] * fold : f.extra[1]);
        float v[n];
#pragma unroll
        for (int j = 0; j < n; j++) {
            v[j] = folded((const T *)(is_x ? f.x : f.weight), image * from[0] * from[1], from[0], from[1], f.channels,
                          fold, y0, x0, first + j);
        }
        store16((T *)(is_x ? f.to_x : f.to_weight) + at * n, v);
    }
}

trm_status trm_cuda_convolution_fold(const trm_folding *f, trm_dtype dtype, cudaStream_t stream)
{
    const int64_t n_x = f->images * f->grid[0] * f->grid[1] * f->vectors;
    const int64_t n_w = f->outputs * f->taps[0] * f->taps[1] * f->vectors;
    DISPATCH_FLOAT(dtype,
                   launch_overlapped(fold_channels<T>, grid_for(n_x + n_w, THREADS), THREADS, 0, stream, *f, n_x, n_w));
    return trm_cuda_launched("cuda.convolution.fold");
}

trm_status trm_cuda_convolution_finish(const trm_convolution_args *args, cudaStream_t stream)
{
    const int64_t count = trm_dims_count(&args->dims);
    if (args->bias == NULL && args->residual == NULL && args->activation == TRM_ACTIVATION_NONE) {
        return TRM_OK;
    }
    DISPATCH_FLOAT(args->dtype,
                   launch_overlapped(finish_outputs<T>, grid_for(count, THREADS), THREADS, 0, stream, *args, count));
    return trm_cuda_launched("cuda.convolution.finish");
}
