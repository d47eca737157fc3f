/* The copy around collectives along an inner axis, on the device. */
#include "collectives/pack.h"

#include "kernels/cuda/cuda.h"

/*
 * One thread per unit of T, 256 to a block, in order of the output, so that stores are coalesced; loads run over
 * `width` units in a row. Moves 2 * a * b * block bytes: bound by memory.
 */
template <typename T>
static __global__ void __launch_bounds__(256)
    swap_blocks(const T *__restrict__ from, T *__restrict__ to, int64_t a, int64_t b, int64_t width, int64_t count)
{
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < count; i += (int64_t)gridDim.x * 256) {
        int64_t row = i / width, column = i - row * width;
        int64_t y = row / a, x = row - y * a; /* output row [y, x] comes from [x, y] */
        to[i] = from[(x * b + y) * width + column];
    }
}

template <typename T>
static void launch(const void *from, void *to, int64_t a, int64_t b, size_t block, cudaStream_t stream)
{
    int64_t width = (int64_t)(block / sizeof(T)), count = a * b * width;
    int64_t blocks = (count + 255) / 256;
    unsigned grid = (unsigned)(blocks < 65536 ? blocks : 65536);
    swap_blocks<T><<<grid, 256, 0, stream>>>((const T *)from, (T *)to, a, b, width, count);
}

trm_status trm_cuda_swap_blocks(const void *from, void *to, int64_t a, int64_t b, size_t block, void *cuda_stream)
{
    cudaStream_t stream = (cudaStream_t)cuda_stream;
    uintptr_t alignment = (uintptr_t)from | (uintptr_t)to | (uintptr_t)block;
    if (a * b == 0 || block == 0) {
        return TRM_OK;
    }
    if (alignment % 16 == 0) {
        launch<uint4>(from, to, a, b, block, stream);
    } else if (alignment % 8 == 0) {
        launch<uint2>(from, to, a, b, block, stream);
    } else if (alignment % 4 == 0) {
        launch<uint32_t>(from, to, a, b, block, stream);
    } else if (alignment % 2 == 0) {
        launch<uint16_t>(from, to, a, b, block, stream);
    } else {
        launch<unsigned char>(from, to, a, b, block, stream);
    }
    return trm_cuda_launched("swap_blocks");
}
