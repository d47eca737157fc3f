/*
 * Tiles of 16-bit elements in shared memory, as operands of tensor cores: what the chunked kernels of this family and
 * of kernels/scan share. A row has ROW elements, 32 or more; its pieces of 16 bytes lie where eight rows' pieces of one
 * column are in different banks.
 */
#ifndef TRM_KERNELS_DELTA_CUDA_TILE_CUH
#define TRM_KERNELS_DELTA_CUDA_TILE_CUH

#include "kernels/cuda/mma.cuh"
#include "kernels/delta/cuda_run.cuh"

#define PARTS (CHUNK / 16) /* of the rows of a chunk, and of its columns */

template <int ROW> static __device__ __forceinline__ uint32_t tile_at(uint32_t tile, int row, int piece)
{
    const int turned = ROW == 32 ? piece ^ (row >> 1 & 3) : piece ^ (row & 7);
    return tile + (uint32_t)(row * ROW * 2 + turned * 16);
}

/* Rows of ROW elements, `stride` elements from row to row, on their way into a tile of `rows`; zeros behind the first
 * `n`, which are at least one. All threads of the block take part. */
template <int ROW, typename T>
static __device__ __forceinline__ void copy_tile(uint32_t tile, const T *from, int64_t stride, int rows, int n)
{
    const int pieces = ROW / 8;
    for (int i = threadIdx.x; i < rows * pieces; i += blockDim.x) {
        const int row = i / pieces, piece = i % pieces;
        copy16_async(tile_at<ROW>(tile, row, piece), from + (row < n ? row : 0) * stride + piece * 8, row < n);
    }
}

/* The same for one element of f32. */
static __device__ __forceinline__ void copy_float(float *to, const float *from, bool valid)
{
    const int size = valid ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(size)
                 : "memory");
}

/* 16 rows from `row` on and 16 columns from `column` on: as the left operand. */
template <int ROW>
static __device__ __forceinline__ void load_left(uint32_t (&r)[4], uint32_t tile, int row, int column)
{
    const int lane = threadIdx.x & 31;
    load_matrices(r, tile_at<ROW>(tile, row + (lane & 15), column / 8 + (lane >> 4)));
}

/* The same elements as the right operand, rows being columns of the result: r[0], r[1] of the first eight rows, r[2],
 * r[3] of the others. */
template <int ROW>
static __device__ __forceinline__ void load_right(uint32_t (&r)[4], uint32_t tile, int row, int column)
{
    const int lane = threadIdx.x & 31;
    load_matrices(r, tile_at<ROW>(tile, row + (lane >> 4) * 8 + (lane & 7), column / 8 + (lane >> 3 & 1)));
}

/* As the right operand, columns being columns of the result: r[0], r[1] of the first eight columns. */
template <int ROW>
static __device__ __forceinline__ void load_right_transposed(uint32_t (&r)[4], uint32_t tile, int row, int column)
{
    const int lane = threadIdx.x & 31;
    load_matrices_transposed(r, tile_at<ROW>(tile, row + (lane & 15), column / 8 + (lane >> 4)));
}

/* 16 rows from `row` on and 16 columns transposed, as the left operand. Also as a result of the tensor cores has them:
 * r[0], r[1] of the first eight rows, which are columns there. */
template <int ROW>
static __device__ __forceinline__ void load_left_transposed(uint32_t (&r)[4], uint32_t tile, int row, int column)
{
    const int lane = threadIdx.x & 31;
    load_matrices_transposed(r, tile_at<ROW>(tile, row + (lane >> 4) * 8 + (lane & 7), column / 8 + (lane >> 3 & 1)));
}

/* Results of two tiles of 8 columns, one behind the other, as the left operand of a product over these columns. */
template <typename T>
static __device__ __forceinline__ void pack_left(uint32_t (&r)[4], const float (&first)[4], const float (&second)[4])
{
    r[0] = pack2(first[0], first[1], T());
    r[1] = pack2(first[2], first[3], T());
    r[2] = pack2(second[0], second[1], T());
    r[3] = pack2(second[2], second[3], T());
}

/* An 8 x 8 matrix, two elements a lane, transposed. */
static __device__ __forceinline__ uint32_t transpose_matrix(uint32_t from)
{
    uint32_t to;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(from));
    return to;
}

/* Two elements a lane of a row of 16, first columns 2t, then 8 + 2t: 8 bytes a lane, 32 of a row. */
template <typename T>
static __device__ __forceinline__ void store_row(T *row, uint32_t first, uint32_t second, bool is_there)
{
    const int t = threadIdx.x & 3;
    const uint32_t other = __shfl_xor_sync(0xffffffffu, t & 1 ? first : second, 1);
    if (is_there) {
        *(uint2 *)(row + (t & 1 ? 6 + 2 * t : 2 * t)) = t & 1 ? make_uint2(other, second) : make_uint2(first, other);
    }
}

/* Rows 16 part .. of left * right^T, of chunks with rows of K elements; columns behind 16 part + 15 are left out. */
template <typename T, int K>
static __device__ __forceinline__ void multiply_rows(float (&sum)[8][4], uint32_t left, uint32_t right, int part)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        uint32_t a[4];
        load_left<K>(a, left, 16 * part, k);
#pragma unroll
        for (int j = 0; j < PARTS; j++) {
            if (j <= part) {
                uint32_t b[4];
                load_right<K>(b, right, 16 * j, k);
                mma_16816(sum[2 * j], a[0], a[1], a[2], a[3], b[0], b[1], T());
                mma_16816(sum[2 * j + 1], a[0], a[1], a[2], a[3], b[2], b[3], T());
            }
        }
    }
}

#endif
