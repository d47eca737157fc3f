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
 * `n`, which are at least one. By threads 0 .. THREADS - 1. */
template <int ROW, int THREADS, typename T>
static __device__ __forceinline__ void copy_tile(uint32_t tile, const T *from, int64_t stride, int rows, int n,
                                                 int thread)
{
    const int pieces = ROW / 8, step = THREADS / pieces, piece = thread % pieces;
    const T *first = from + piece * 8;
    from = first + thread / pieces * stride;
#pragma unroll 8
    for (int row = thread / pieces; row < rows; row += step, from += step * stride) {
        copy16_async(tile_at<ROW>(tile, row, piece), row < n ? from : first, row < n);
    }
}

/* The same of a chunk's scores; pieces above the diagonal, which nobody wrote, are left out. */
template <int THREADS, typename T>
static __device__ __forceinline__ void copy_scores(uint32_t tile, const T *from, int64_t stride, int n, int thread)
{
    const int pieces = CHUNK / 8, step = THREADS / pieces, piece = thread % pieces;
    const T *first = from + piece * 8;
    from = first + thread / pieces * stride;
#pragma unroll
    for (int row = thread / pieces; row < CHUNK; row += step, from += step * stride) {
        if (piece / 2 <= row / 16 && row < n) {
            copy16_async(tile_at<CHUNK>(tile, row, piece), from, true);
        }
    }
}

/* Pairs of f32, `stride` pairs from one to the next, a thread each; zeros behind the first `n`. */
static __device__ __forceinline__ void copy_rates(float *to, const float *from, int64_t stride, int n, int thread)
{
    const int size = thread < n ? 8 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 :
                 : "r"(shared_address(to + 2 * thread)), "l"(from + (thread < n ? thread : 0) * stride * 2), "r"(size)
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

/* Results of two tiles of 8 columns, side by side, as the left operand of a product over these columns. */
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

/* sum, of COLUMNS, += left * tile, whose rows are the chunk's. Tiles are read ahead of their use. */
template <typename T, int COLUMNS>
static __device__ __forceinline__ void add_product(float (&sum)[COLUMNS / 8][4], const uint32_t (&left)[PARTS][4],
                                                   uint32_t tile)
{
    const int groups = COLUMNS / 64; /* of 64 columns */
    uint32_t b[2][4][4];
#pragma unroll
    for (int step = 0; step <= PARTS * groups; step++) {
        if (step < PARTS * groups) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                load_right_transposed<COLUMNS>(b[step & 1][i], tile, 16 * (step / groups),
                                               64 * (step % groups) + 16 * i);
            }
        }
        if (step > 0) {
            const int k = (step - 1) / groups, column = 8 * ((step - 1) % groups);
            const uint32_t(&a)[4] = left[k];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t(&x)[4] = b[(step - 1) & 1][i];
                mma_16816(sum[column + 2 * i], a[0], a[1], a[2], a[3], x[0], x[1], T());
                mma_16816(sum[column + 2 * i + 1], a[0], a[1], a[2], a[3], x[2], x[3], T());
            }
        }
    }
}

/* sum, of the chunk's tokens, += left * scores^T, which is nothing above the diagonal. */
template <typename T>
static __device__ __forceinline__ void add_scores(float (&sum)[8][4], const uint32_t (&left)[PARTS][4], uint32_t scores)
{
#pragma unroll
    for (int k = 0; k < PARTS; k++) {
        uint32_t b[PARTS][4];
#pragma unroll
        for (int j = k; j < PARTS; j++) {
            load_right<CHUNK>(b[j], scores, 16 * j, 16 * k);
        }
#pragma unroll
        for (int j = k; j < PARTS; j++) {
            mma_16816(sum[2 * j], left[k][0], left[k][1], left[k][2], left[k][3], b[j][0], b[j][1], T());
            mma_16816(sum[2 * j + 1], left[k][0], left[k][1], left[k][2], left[k][3], b[j][2], b[j][3], T());
        }
    }
}

/* Results of 16 columns' products with the chunk's tokens, which are rows `stride` elements apart in `to`; `n` are. */
template <typename T>
static __device__ __forceinline__ void store_tokens(const float (&y)[8][4], T *to, int64_t stride, int n)
{
    const int g = (threadIdx.x & 31) >> 2;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const int row = 8 * j + g;
        store_row(to + row * stride, transpose_matrix(pack2(y[j][0], y[j][1], T())),
                  transpose_matrix(pack2(y[j][2], y[j][3], T())), row < n);
    }
}

#endif
