/*
 * cuBLASLt behind a table of functions found at run time: descriptors for row-major products, algorithms chosen by
 * heuristic or by timing and remembered per problem.
 */
#include "kernels/matmul/cuda_cublaslt.h"

#include <ctype.h>
#include <cublasLt.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/library.h"
#include "kernels/cuda/cuda.h"
#include "kernels/tuner/tactic_cache.h"

#define CUBLASLT_FUNCTIONS(X)                                                                                          \
    X(cublasLtCreate)                                                                                                  \
    X(cublasLtGetVersion)                                                                                              \
    X(cublasLtGetStatusString)                                                                                         \
    X(cublasLtMatmul)                                                                                                  \
    X(cublasLtMatmulAlgoCheck)                                                                                         \
    X(cublasLtMatmulAlgoGetHeuristic)                                                                                  \
    X(cublasLtMatmulDescInit_internal)                                                                                 \
    X(cublasLtMatmulDescSetAttribute)                                                                                  \
    X(cublasLtMatmulPreferenceInit_internal)                                                                           \
    X(cublasLtMatmulPreferenceSetAttribute)                                                                            \
    X(cublasLtMatrixLayoutInit_internal)                                                                               \
    X(cublasLtMatrixLayoutSetAttribute)

#define MAX_DEVICES 64
#define CACHE_SLOTS 1024 /* a power of two */
/* How much larger or smaller a tuned product may be for its algorithm to be used: at 1.6 to 2.7 times, steps of
 * BERT-base took 5 to 10 % longer than by what the library proposes, up to 1.4 times as long. */
#define MOST_RATIO 1.5

static struct {
#define FIELD(name) __typeof__(&name) name;
    CUBLASLT_FUNCTIONS(FIELD)
#undef FIELD
} lt;

/* What an algorithm is chosen for. Compared as bytes: always zeroed before it is filled. */
typedef struct problem_key {
    int64_t m, n, k, batch, stride_a, stride_b, stride_c, stride_bias, row_a;
    uint64_t workspace;
    int32_t device, in, out, activation;
    uint16_t align_a, align_b, align_c, align_bias; /* bytes, at most 256; 0 without bias */
    uint8_t transpose_a, transpose_b, tf32, scales;
    uint8_t zero[4];
} problem_key;

typedef struct cache_slot {
    trm_tactic_state state;
    problem_key key;
    cublasLtMatmulAlgo_t algorithm;
} cache_slot;

static struct {
    pthread_mutex_t mutex;
    bool loaded;
    void *library;
    cublasLtHandle_t handles[MAX_DEVICES];
    cache_slot cache[CACHE_SLOTS + 1];
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Used under the mutex. */
static trm_tactic_cache tactic_cache = {
    .slots = state.cache,
    .n = CACHE_SLOTS,
    .size = sizeof(cache_slot),
    .key = offsetof(cache_slot, key),
    .key_size = sizeof(problem_key),
};

static trm_status lt_fail(cublasStatus_t error, const char *what)
{
    trm_status status = error == CUBLAS_STATUS_ALLOC_FAILED      ? TRM_ERROR_OUT_OF_MEMORY
                        : error == CUBLAS_STATUS_NOT_SUPPORTED   ? TRM_ERROR_UNSUPPORTED
                        : error == CUBLAS_STATUS_NOT_INITIALIZED ? TRM_ERROR_NO_DEVICE
                                                                 : TRM_ERROR_INTERNAL;
    return trm_fail(status, "%s failed: %s", what, lt.cublasLtGetStatusString(error));
}

#define LT_TRY(function, ...)                                                                                          \
    do {                                                                                                               \
        cublasStatus_t lt_error_ = lt.function(__VA_ARGS__);                                                           \
        if (lt_error_ != CUBLAS_STATUS_SUCCESS) {                                                                      \
            return lt_fail(lt_error_, #function);                                                                      \
        }                                                                                                              \
    } while (0)

/* Under the mutex. */
static trm_status library_load(void)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    static const trm_library_symbol symbols[] = {
#define SYMBOL(name) {#name, &lt.name, false},
        CUBLASLT_FUNCTIONS(SYMBOL)
#undef SYMBOL
    };
    if (!state.loaded) {
        TRM_TRY(trm_library_open(names, 3, symbols, (int32_t)(sizeof(symbols) / sizeof(symbols[0])), &state.library));
        state.loaded = true;
    }
    return TRM_OK;
}

/* The current device's handle. */
static trm_status handle_get(int *device, cublasLtHandle_t *handle)
{
    TRM_CUDA_TRY(cudaGetDevice(device));
    if (*device >= MAX_DEVICES) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cuda device %d for a matrix product, expected at most %d", *device,
                 MAX_DEVICES - 1);
    }
    pthread_mutex_lock(&state.mutex);
    trm_status status = library_load();
    if (status == TRM_OK && state.handles[*device] == NULL) {
        cublasStatus_t error = lt.cublasLtCreate(&state.handles[*device]);
        if (error != CUBLAS_STATUS_SUCCESS) {
            state.handles[*device] = NULL;
            status = lt_fail(error, "cublasLtCreate");
        }
    }
    *handle = state.handles[*device];
    pthread_mutex_unlock(&state.mutex);
    return status;
}

size_t trm_cublaslt_version(char *path, size_t size)
{
    pthread_mutex_lock(&state.mutex);
    trm_status status = library_load();
    pthread_mutex_unlock(&state.mutex);
    if (status != TRM_OK) {
        snprintf(path, size, "%s", trm_last_error());
        return 0;
    }
    trm_library_path(state.library, path, size);
    return lt.cublasLtGetVersion();
}

/* ---- descriptors ---- */

/* A product in the library's column-major terms: c transposed = op(b) transposed * op(a) transposed, so the library's
 * first operand is our b and its m is our n. */
typedef struct description {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t first, second, result;
} description;

static cudaDataType_t data_type(trm_dtype dtype)
{
    return dtype == TRM_F16      ? CUDA_R_16F
           : dtype == TRM_BF16   ? CUDA_R_16BF
           : dtype == TRM_F8E4M3 ? CUDA_R_8F_E4M3
                                 : CUDA_R_32F;
}

static uint32_t epilogue_of(const trm_gemm *gemm)
{
    bool bias = gemm->bias != NULL;
    switch (gemm->activation) {
    case TRM_ACTIVATION_RELU:
        return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case TRM_ACTIVATION_GELU_TANH:
        return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default:
        return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    }
}

bool trm_cublaslt_accepts(const trm_gemm *gemm)
{
    bool plain = gemm->bias == NULL && gemm->activation == TRM_ACTIVATION_NONE;
    bool known = gemm->activation == TRM_ACTIVATION_NONE || gemm->activation == TRM_ACTIVATION_RELU ||
                 gemm->activation == TRM_ACTIVATION_GELU_TANH;
    return known && (gemm->out == gemm->in || (gemm->out == TRM_F32 && plain));
}

static trm_status layout_init(cublasLtMatrixLayoutOpaque_t *layout, trm_dtype dtype, int64_t rows, int64_t columns,
                              int64_t leading, int64_t batch, int64_t stride)
{
    int32_t count = (int32_t)batch;
    LT_TRY(cublasLtMatrixLayoutInit_internal, layout, sizeof(*layout), data_type(dtype), (uint64_t)rows,
           (uint64_t)columns, leading);
    if (batch > 1) {
        LT_TRY(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
        LT_TRY(cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
               sizeof(stride));
    }
    return TRM_OK;
}

/* The library's first operand is our b. */
static trm_status describe_scales(const trm_gemm *g, description *d)
{
    const bool blocks = g->scales == TRM_GEMM_BLOCKS_SCALED;
    const int32_t first =
        blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const int32_t second =
        blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    if (g->scales == TRM_GEMM_UNSCALED) {
        return TRM_OK;
    }
    LT_TRY(cublasLtMatmulDescSetAttribute, &d->operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &first, sizeof(first));
    LT_TRY(cublasLtMatmulDescSetAttribute, &d->operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &second, sizeof(second));
    LT_TRY(cublasLtMatmulDescSetAttribute, &d->operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &g->scale_b,
           sizeof(g->scale_b));
    LT_TRY(cublasLtMatmulDescSetAttribute, &d->operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &g->scale_a,
           sizeof(g->scale_a));
    return TRM_OK;
}

static trm_status describe(const trm_gemm *g, description *d)
{
    int32_t first = g->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, second = g->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint32_t epilogue = epilogue_of(g);
    cublasComputeType_t compute = g->tf32 && g->in == TRM_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    LT_TRY(cublasLtMatmulDescInit_internal, &d->operation, sizeof(d->operation), compute, CUDA_R_32F);
    LT_TRY(cublasLtMatmulDescSetAttribute, &d->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first));
    LT_TRY(cublasLtMatmulDescSetAttribute, &d->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second));
    LT_TRY(cublasLtMatmulDescSetAttribute, &d->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    if (g->bias != NULL) {
        int32_t type = data_type(g->in != TRM_F8E4M3 ? g->in : g->out == TRM_F16 ? TRM_F16 : TRM_BF16);
        LT_TRY(cublasLtMatmulDescSetAttribute, &d->operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type));
        LT_TRY(cublasLtMatmulDescSetAttribute, &d->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias,
               sizeof(g->bias));
        if (g->stride_bias != 0) {
            LT_TRY(cublasLtMatmulDescSetAttribute, &d->operation, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE,
                   &g->stride_bias, sizeof(g->stride_bias));
        }
    }
    TRM_TRY(describe_scales(g, d));
    int64_t b_columns = g->transpose_b ? g->k : g->n; /* of b as it is stored, row-major: its row length */
    TRM_TRY(layout_init(&d->first, g->in, b_columns, g->transpose_b ? g->n : g->k, b_columns, g->batch, g->stride_b));
    TRM_TRY(layout_init(&d->second, g->in, g->transpose_a ? g->m : g->k, g->transpose_a ? g->k : g->m, g->row_a,
                        g->batch, g->stride_a));
    return layout_init(&d->result, g->out, g->n, g->m, g->n, g->batch, g->stride_c);
}

/* ---- choice of algorithm ---- */

/* The largest power of two, at most 256, that divides the address. */
static uint16_t alignment_of(const void *address)
{
    uintptr_t bits = (uintptr_t)address | 256u;
    return (uint16_t)(bits & (~bits + 1));
}

static void key_fill(const trm_gemm *g, int device, size_t workspace_size, problem_key *key)
{
    memset(key, 0, sizeof(*key));
    key->m = g->m;
    key->n = g->n;
    key->k = g->k;
    key->batch = g->batch;
    key->stride_a = g->stride_a;
    key->stride_b = g->stride_b;
    key->stride_c = g->stride_c;
    key->stride_bias = g->stride_bias;
    key->row_a = g->row_a;
    key->workspace = workspace_size;
    key->device = device;
    key->in = g->in;
    key->out = g->out;
    key->activation = g->activation;
    key->align_a = alignment_of(g->a);
    key->align_b = alignment_of(g->b);
    key->align_c = alignment_of(g->c);
    key->align_bias = g->bias != NULL ? alignment_of(g->bias) : 0;
    key->transpose_a = g->transpose_a;
    key->transpose_b = g->transpose_b;
    key->tf32 = g->tf32 && g->in == TRM_F32;
    key->scales = (uint8_t)g->scales;
}

/* What is known of a problem: PROPOSED and TUNED with its algorithm. */
static trm_tactic_state cache_get(const problem_key *key, cublasLtMatmulAlgo_t *algorithm)
{
    pthread_mutex_lock(&state.mutex);
    const cache_slot *slot = trm_tactic_cache_find(&tactic_cache, key);
    const trm_tactic_state known = slot != NULL ? slot->state : TRM_TACTIC_FREE;
    if (known == TRM_TACTIC_PROPOSED || known == TRM_TACTIC_TUNED) {
        *algorithm = slot->algorithm;
    }
    pthread_mutex_unlock(&state.mutex);
    return known;
}

/* PROPOSED and TUNED with an algorithm. What was tuned is only tuned again. */
static void cache_put(const problem_key *key, trm_tactic_state known, const cublasLtMatmulAlgo_t *algorithm)
{
    const bool tuned = known == TRM_TACTIC_TUNED;
    pthread_mutex_lock(&state.mutex);
    cache_slot *slot = trm_tactic_cache_get(&tactic_cache, key, tuned);
    if (tuned || slot->state != TRM_TACTIC_TUNED) {
        slot->state = known;
        if (algorithm != NULL) {
            slot->algorithm = *algorithm;
        }
    }
    pthread_mutex_unlock(&state.mutex);
}

/* Whether the caller is the first to ask for a problem, and so does; others need not wait for that. *known: what was
 * known before. */
static bool cache_claim(const problem_key *key, trm_tactic_state *known)
{
    pthread_mutex_lock(&state.mutex);
    cache_slot *slot = trm_tactic_cache_get(&tactic_cache, key, false);
    *known = slot->state;
    if (*known == TRM_TACTIC_FREE) {
        slot->state = TRM_TACTIC_ASKED;
    }
    pthread_mutex_unlock(&state.mutex);
    return *known == TRM_TACTIC_FREE;
}

/* Nothing came of asking. */
static void cache_give_up(const problem_key *key)
{
    pthread_mutex_lock(&state.mutex);
    cache_slot *slot = trm_tactic_cache_find(&tactic_cache, key);
    if (slot != NULL && slot->state == TRM_TACTIC_ASKED) {
        slot->state = TRM_TACTIC_FREE;
    }
    pthread_mutex_unlock(&state.mutex);
}

static trm_status fail_without_algorithm(const trm_gemm *g)
{
    return trm_fail(TRM_ERROR_UNSUPPORTED,
                    "cublasLt has no algorithm for a product of m %lld, n %lld, k %lld, batch %lld, %s to %s",
                    (long long)g->m, (long long)g->n, (long long)g->k, (long long)g->batch, trm_dtype_name(g->in),
                    trm_dtype_name(g->out));
}

/* The library's proposals, best first. TRM_ERROR_UNSUPPORTED if there is none. */
static trm_status proposals_get(cublasLtHandle_t handle, const trm_gemm *g, description *d, const problem_key *key,
                                cublasLtMatmulHeuristicResult_t *proposals, int wanted, int *count)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    /* Partial sums of a split k stay in f32: the output type is rounded to once. */
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t align_first = key->align_b, align_second = key->align_a, align_result = key->align_c;
    *count = 0;
    LT_TRY(cublasLtMatmulPreferenceInit_internal, &preference, sizeof(preference));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute, &preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &key->workspace,
           sizeof(key->workspace));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute, &preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
           sizeof(reductions));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute, &preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align_first,
           sizeof(align_first));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute, &preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align_second,
           sizeof(align_second));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute, &preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align_result,
           sizeof(align_result));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute, &preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align_result,
           sizeof(align_result));
    cublasStatus_t error = lt.cublasLtMatmulAlgoGetHeuristic(handle, &d->operation, &d->first, &d->second, &d->result,
                                                             &d->result, &preference, wanted, proposals, count);
    if (error != CUBLAS_STATUS_SUCCESS && error != CUBLAS_STATUS_NOT_SUPPORTED) {
        return lt_fail(error, "cublasLtMatmulAlgoGetHeuristic");
    }
    if (error != CUBLAS_STATUS_SUCCESS || *count == 0) {
        *count = 0;
        return fail_without_algorithm(g);
    }
    return TRM_OK;
}

/* ---- running ---- */

typedef struct matmul_run {
    cublasLtHandle_t handle;
    const trm_gemm *gemm;
    description *description;
    const cublasLtMatmulAlgo_t *algorithm;
    void *workspace;
    size_t workspace_size;
    cudaStream_t stream;
} matmul_run;

static trm_status matmul_enqueue(void *user)
{
    const matmul_run *run = user;
    const trm_gemm *g = run->gemm;
    const float one = 1.0f, zero = 0.0f;
    LT_TRY(cublasLtMatmul, run->handle, &run->description->operation, &one, g->b, &run->description->first, g->a,
           &run->description->second, &zero, g->c, &run->description->result, g->c, &run->description->result,
           run->algorithm, run->workspace, run->workspace_size, run->stream);
    return TRM_OK;
}

/* The key of a product without what an algorithm need not be chosen for: rows and batch, with the strides that follow
 * from them, and how operands are aligned. */
static problem_key key_of_kin(const problem_key *key)
{
    problem_key kin;
    memcpy(&kin, key, sizeof(kin)); /* compared as bytes */
    kin.stride_a = key->stride_a == key->m * key->row_a ? -1 : key->stride_a;
    kin.stride_c = key->stride_c == key->m * key->n ? -1 : key->stride_c;
    kin.m = kin.batch = 0;
    kin.align_a = kin.align_b = kin.align_c = kin.align_bias = 0;
    return kin;
}

static bool is_aligned_as(const problem_key *key, const problem_key *least)
{
    return key->align_a >= least->align_a && key->align_b >= least->align_b && key->align_c >= least->align_c &&
           key->align_bias >= least->align_bias;
}

/* How many times as many rows one product has as the other, where they are otherwise the same and `ours` is aligned as
 * well as `theirs`. */
static double rows_ratio(const void *theirs, const void *ours)
{
    const problem_key *key = ours, *tuned = theirs, kin = key_of_kin(key), their_kin = key_of_kin(tuned);
    if (!is_aligned_as(key, tuned) || memcmp(&kin, &their_kin, sizeof(kin)) != 0) {
        return INFINITY;
    }
    const double a = (double)tuned->m * (double)tuned->batch, b = (double)key->m * (double)key->batch;
    return a > b ? a / b : b / a;
}

/* The algorithm tuned for the product with the nearest number of rows. */
static bool find_relative(const problem_key *key, cublasLtMatmulAlgo_t *algorithm)
{
    pthread_mutex_lock(&state.mutex);
    const cache_slot *relative = trm_tactic_cache_nearest(&tactic_cache, key, MOST_RATIO, rows_ratio);
    if (relative != NULL) {
        *algorithm = relative->algorithm;
    }
    pthread_mutex_unlock(&state.mutex);
    return relative != NULL;
}

static bool takes(cublasLtHandle_t handle, description *d, const cublasLtMatmulAlgo_t *algorithm, size_t workspace_size)
{
    cublasLtMatmulHeuristicResult_t result;
    return lt.cublasLtMatmulAlgoCheck(handle, &d->operation, &d->first, &d->second, &d->result, &d->result, algorithm,
                                      &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= workspace_size;
}

/* For a product that was not tuned: the algorithm of its nearest relative, whose kernel is loaded, else the library's
 * first proposal, whose kernel seldom is (1.6 ms). It is remembered, and so is that there is none. */
static trm_status choose_algorithm(cublasLtHandle_t handle, const trm_gemm *gemm, description *d,
                                   const problem_key *key, cublasLtMatmulAlgo_t *algorithm)
{
    int count;
    cublasLtMatmulHeuristicResult_t proposal;
    if (find_relative(key, algorithm) && takes(handle, d, algorithm, key->workspace)) {
        cache_put(key, TRM_TACTIC_PROPOSED, algorithm);
        return TRM_OK;
    }
    const trm_status status = proposals_get(handle, gemm, d, key, &proposal, 1, &count);
    if (status == TRM_OK) {
        *algorithm = proposal.algo;
        cache_put(key, TRM_TACTIC_PROPOSED, algorithm);
    } else if (status == TRM_ERROR_UNSUPPORTED) {
        cache_put(key, TRM_TACTIC_NONE, NULL);
    }
    return status;
}

trm_status trm_cublaslt_run(const trm_gemm *gemm, void *workspace, size_t workspace_size, cudaStream_t stream)
{
    int device;
    cublasLtHandle_t handle = NULL;
    description d;
    problem_key key;
    cublasLtMatmulAlgo_t algorithm;
    TRM_TRY(handle_get(&device, &handle));
    TRM_TRY(describe(gemm, &d));
    key_fill(gemm, device, workspace_size, &key);
    const trm_tactic_state known = cache_get(&key, &algorithm);
    if (known == TRM_TACTIC_NONE) {
        return fail_without_algorithm(gemm);
    }
    if (known != TRM_TACTIC_PROPOSED && known != TRM_TACTIC_TUNED) {
        TRM_TRY(choose_algorithm(handle, gemm, &d, &key, &algorithm));
    }
    matmul_run run = {handle, gemm, &d, &algorithm, workspace, workspace_size, stream};
    return matmul_enqueue(&run);
}

trm_status trm_cublaslt_prepare(const trm_gemm *gemm, size_t workspace_size)
{
    int device;
    cublasLtHandle_t handle = NULL;
    description d;
    problem_key key;
    cublasLtMatmulAlgo_t algorithm;
    trm_tactic_state known;
    TRM_TRY(handle_get(&device, &handle));
    TRM_TRY(describe(gemm, &d));
    key_fill(gemm, device, workspace_size, &key);
    if (!cache_claim(&key, &known)) {
        return known == TRM_TACTIC_NONE ? fail_without_algorithm(gemm) : TRM_OK;
    }
    trm_status status = choose_algorithm(handle, gemm, &d, &key, &algorithm);
    if (status != TRM_OK) {
        cache_give_up(&key);
    }
    return status;
}

/* ---- tactics ---- */

/* "cublasLt:<words in hexadecimal>": the library says that the bytes of an algorithm may be kept and used again with
 * the same version of it. */
static void name_algorithm(const cublasLtMatmulAlgo_t *algorithm, char name[TRM_TACTIC_NAME_SIZE])
{
    int used = snprintf(name, TRM_TACTIC_NAME_SIZE, "cublasLt");
    for (size_t i = 0; i < sizeof(algorithm->data) / sizeof(algorithm->data[0]); i++) {
        used += snprintf(name + used, TRM_TACTIC_NAME_SIZE - (size_t)used, "%c%llx", i == 0 ? ':' : '.',
                         (unsigned long long)algorithm->data[i]);
    }
}

static bool read_algorithm(const char *name, cublasLtMatmulAlgo_t *algorithm)
{
    const char *at = name + 8;
    memset(algorithm, 0, sizeof(*algorithm));
    if (strncmp(name, "cublasLt:", 9) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof(algorithm->data) / sizeof(algorithm->data[0]); i++) {
        char *end;
        if (*at != (i == 0 ? ':' : '.') || !isxdigit((unsigned char)at[1])) {
            return false;
        }
        algorithm->data[i] = strtoull(at + 1, &end, 16);
        at = end;
    }
    return *at == '\0';
}

trm_status trm_cublaslt_time(const trm_gemm *gemm, void *workspace, size_t workspace_size, cudaStream_t stream,
                             int32_t proposals, trm_tactic *tactics, int32_t *n_tactics)
{
    int device, count;
    cublasLtHandle_t handle = NULL;
    description d;
    problem_key key;
    cublasLtMatmulHeuristicResult_t found[TRM_MOST_TACTICS];
    const int32_t before = *n_tactics, room = TRM_MOST_TACTICS - before;
    TRM_TRY(handle_get(&device, &handle));
    TRM_TRY(describe(gemm, &d));
    key_fill(gemm, device, workspace_size, &key);
    TRM_TRY(proposals_get(handle, gemm, &d, &key, found, proposals < room ? proposals : room, &count));
    for (int i = 0; i < count; i++) {
        matmul_run run = {handle, gemm, &d, &found[i].algo, workspace, workspace_size, stream};
        float milliseconds;
        if (found[i].state != CUBLAS_STATUS_SUCCESS ||
            trm_cuda_time(stream, matmul_enqueue, &run, &milliseconds) != TRM_OK) {
            continue; /* a proposal the library itself refuses to run */
        }
        trm_tactic *tactic = &tactics[(*n_tactics)++];
        name_algorithm(&found[i].algo, tactic->name);
        tactic->microseconds = (double)milliseconds * 1e3;
    }
    if (*n_tactics == before) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "none of %d algorithms of cublasLt runs a product of m %lld, n %lld, k %lld",
                 count, (long long)gemm->m, (long long)gemm->n, (long long)gemm->k);
    }
    return TRM_OK;
}

trm_status trm_cublaslt_use(const trm_gemm *gemm, size_t workspace_size, const char *tactic)
{
    int device;
    cublasLtHandle_t handle = NULL;
    description d;
    problem_key key;
    cublasLtMatmulAlgo_t algorithm;
    if (!read_algorithm(tactic, &algorithm)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s is no algorithm of cublasLt", tactic);
    }
    TRM_TRY(handle_get(&device, &handle));
    TRM_TRY(describe(gemm, &d));
    key_fill(gemm, device, workspace_size, &key);
    if (!takes(handle, &d, &algorithm, workspace_size)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "cublasLt does not take algorithm %s for a product of m %lld, n %lld, k %lld",
                 tactic, (long long)gemm->m, (long long)gemm->n, (long long)gemm->k);
    }
    cache_put(&key, TRM_TACTIC_TUNED, &algorithm);
    return TRM_OK;
}

static trm_tactic_state state_of(const trm_gemm *gemm, size_t workspace_size)
{
    int device;
    problem_key key;
    cublasLtMatmulAlgo_t algorithm;
    if (cudaGetDevice(&device) != cudaSuccess) {
        return TRM_TACTIC_FREE;
    }
    key_fill(gemm, device, workspace_size, &key);
    return cache_get(&key, &algorithm);
}

bool trm_cublaslt_is_tuned(const trm_gemm *gemm, size_t workspace_size)
{
    return state_of(gemm, workspace_size) == TRM_TACTIC_TUNED;
}

bool trm_cublaslt_is_prepared(const trm_gemm *gemm, size_t workspace_size)
{
    const trm_tactic_state known = state_of(gemm, workspace_size);
    return known != TRM_TACTIC_FREE && known != TRM_TACTIC_ASKED;
}
