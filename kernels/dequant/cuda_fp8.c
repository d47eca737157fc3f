/*
 * Products of x and a weight that are both numbers of e4m3, by cuBLASLt on Hopper: sums in f32 that are scaled for
 * whole rows of x and of the weight, or for every 128 columns by blocks.
 */
#include <stdint.h>

#include "base/checked.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/hopper.h"
#include "kernels/dequant/cuda.h"
#include "kernels/matmul/cuda_cublaslt.h"

#define ALIGNMENT      ((size_t)256)
#define BLOCK          128
#define ROWS_AT_A_TIME 4      /* of products with scales of blocks */
#define LEAST_VERSION  120900 /* of the library: it has these scales */

static bool library_is_new(void)
{
    static size_t version; /* the same whoever stores it first */
    char path[256];
    size_t known = __atomic_load_n(&version, __ATOMIC_RELAXED);
    if (known == 0) {
        known = trm_cublaslt_version(path, sizeof(path));
        __atomic_store_n(&version, known, __ATOMIC_RELAXED);
    }
    return known >= LEAST_VERSION;
}

static bool has_blocks(const trm_dequant_gemm *g)
{
    return g->block_n == BLOCK && g->block_k == BLOCK;
}

bool trm_cuda_fp8_accepts(const trm_dequant_gemm *g)
{
    const bool types = g->weight_type == TRM_F8E4M3 && g->scale_type == TRM_F32 &&
                       (g->in == TRM_BF16 || g->in == TRM_F16) && (g->out == g->in || g->out == TRM_F32);
    const bool bias = g->bias == NULL || g->in == TRM_BF16 || g->out == TRM_F16;
    const bool scales = has_blocks(g) ? g->m >= ROWS_AT_A_TIME : g->block_n == 1 && g->block_k >= g->k;
    return g->x_quantization != TRM_X_AS_IS && types && bias && scales && g->m > 0 && g->m <= INT32_MAX &&
           g->n % 16 == 0 && g->k % 16 == 0 && g->k > 0 && g->k <= TRM_MOST_QUANTIZED &&
           trm_cuda_hopper_processors() > 0 && library_is_new();
}

static size_t place(size_t *used, size_t bytes)
{
    const size_t at = *used;
    *used += trm_align_up(bytes, ALIGNMENT);
    return at;
}

/* Bytes from the beginning of the workspace. */
typedef struct places {
    size_t numbers, scales, last, padded, library, all;
} places;

static places places_of(const trm_dequant_gemm *g)
{
    const int64_t groups = has_blocks(g) ? (g->k + BLOCK - 1) / BLOCK : 1, blocks = (g->n + BLOCK - 1) / BLOCK;
    places p = {0};
    p.numbers = place(&p.all, (size_t)(g->m * g->k));
    p.scales = place(&p.all, (size_t)(groups * g->m) * sizeof(float));
    p.last = place(&p.all, (size_t)groups * ROWS_AT_A_TIME * sizeof(float));
    p.padded = place(&p.all, has_blocks(g) ? (size_t)(blocks * (groups + 3)) * sizeof(float) : 0);
    p.library = place(&p.all, TRM_GEMM_WORKSPACE);
    return p;
}

size_t trm_cuda_fp8_workspace(const trm_dequant_gemm *gemm)
{
    return places_of(gemm).all;
}

static bool is_aligned(const void *address)
{
    return (uintptr_t)address % 16 == 0;
}

bool trm_cuda_fp8_product(const trm_dequant_gemm *g, void *workspace, trm_fp8_product *product)
{
    const places p = places_of(g);
    const bool blocks = has_blocks(g);
    const int64_t groups = blocks ? (g->k + BLOCK - 1) / BLOCK : 1;
    const int64_t rows = blocks ? g->m / ROWS_AT_A_TIME * ROWS_AT_A_TIME : g->m, rest = g->m - ROWS_AT_A_TIME;
    char *at = workspace;
    if (!trm_cuda_fp8_accepts(g) || !is_aligned(g->x) || !is_aligned(g->weight) || !is_aligned(g->scale) ||
        !is_aligned(g->y) || !is_aligned(g->bias)) {
        return false;
    }
    product->x = (trm_quantized_rows){
        .m = g->m,
        .k = g->k,
        .group = blocks ? BLOCK : (int32_t)g->k,
        .quantization = g->x_quantization,
        .x_scale = g->x_scale,
        .numbers = (uint8_t *)at + p.numbers,
        .rows = rows,
        .scales = (float *)(void *)(at + p.scales),
        .last = rows < g->m ? (float *)(void *)(at + p.last) : NULL,
    };
    product->scale = g->scale;
    product->scale_rows = (g->n + BLOCK - 1) / BLOCK;
    product->scale_row = groups;
    product->padded_row = blocks && groups % 4 != 0 ? (groups + 3) / 4 * 4 : 0;
    product->workspace = at + p.library;
    product->gemm = (trm_gemm){
        .m = rows,
        .n = g->n,
        .k = g->k,
        .batch = 1,
        .row_a = g->k,
        .transpose_b = true,
        .in = TRM_F8E4M3,
        .out = g->out,
        .a = product->x.numbers,
        .b = g->weight,
        .bias = g->bias,
        .c = g->y,
        .scales = blocks ? TRM_GEMM_BLOCKS_SCALED : TRM_GEMM_ROWS_SCALED,
        .scale_a = product->x.scales,
        .scale_b = product->padded_row > 0 ? (const float *)(const void *)(at + p.padded) : g->scale,
    };
    product->last = (trm_gemm){.m = 0};
    if (rows < g->m) {
        product->last = product->gemm;
        product->last.m = ROWS_AT_A_TIME;
        product->last.a = product->x.numbers + rest * g->k;
        product->last.scale_a = product->x.last;
        product->last.c = (char *)g->y + (size_t)(rest * g->n) * trm_dtype_size(g->out);
    }
    return trm_cublaslt_prepare(&product->gemm, TRM_GEMM_WORKSPACE) == TRM_OK &&
           (product->last.m == 0 || trm_cublaslt_prepare(&product->last, TRM_GEMM_WORKSPACE) == TRM_OK);
}

static trm_status pad_scales(void *user, trm_stream *stream)
{
    const trm_fp8_product *p = user;
    const size_t row = (size_t)p->scale_row * sizeof(float);
    TRM_CUDA_TRY(cudaMemcpy2DAsync((void *)(uintptr_t)p->gemm.scale_b, (size_t)p->padded_row * sizeof(float), p->scale,
                                   row, row, (size_t)p->scale_rows, cudaMemcpyDeviceToDevice, trm_cuda_stream(stream)));
    return TRM_OK;
}

static trm_status multiply(void *user, trm_stream *stream)
{
    const trm_fp8_product *p = user;
    return trm_cublaslt_run(&p->gemm, p->workspace, TRM_GEMM_WORKSPACE, trm_cuda_stream(stream));
}

static trm_status multiply_last(void *user, trm_stream *stream)
{
    const trm_fp8_product *p = user;
    return trm_cublaslt_run(&p->last, p->workspace, TRM_GEMM_WORKSPACE, trm_cuda_stream(stream));
}

trm_status trm_cuda_fp8_append(const trm_fp8_product *product, trm_program *program)
{
    trm_fp8_product *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = *product;
    if (product->padded_row > 0) {
        TRM_TRY(trm_program_append(program, "cuda.pad_scales", pad_scales, args));
    }
    TRM_TRY(trm_program_append(program, "cuda.fp8_matmul", multiply, args));
    return product->last.m > 0 ? trm_program_append(program, "cuda.fp8_matmul last", multiply_last, args) : TRM_OK;
}

trm_status trm_cuda_fp8_tune(const trm_fp8_product *product, trm_stream *stream, struct trm_tuner *tuner)
{
    return trm_cuda_gemm_tune(&product->gemm, product->workspace, stream, tuner);
}
