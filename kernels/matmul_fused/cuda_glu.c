/*
 * MATMUL_GLU on CUDA: one kernel for one row or two, another for some hundred where tuning found it faster than the
 * product and the GLU one after the other, which is how the rest is done.
 */
#include "kernels/matmul_fused/matmul_glu.h"

#include <stdio.h>

#include "kernels/tuner/cuda_tactic_cache.h"
#include "kernels/cuda/cuda.h"
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/kernel_list.h"

/* Rows of x for which the kernel of cuda_glu.cu is tried, and up to which it is taken where nothing was timed. */
#define LEAST_TRIED 9
#define MOST_TRIED  256
#define MOST_USUAL  128

/* The call as a product whose n is the GLU's: half of the weight's rows. */
static trm_gemm gemm_of(const trm_kernel_call *call)
{
    const trm_view *x = &call->inputs[0];
    const int64_t k = x->dims.d[x->dims.n - 1];
    trm_gemm gemm = {.m = k > 0 ? trm_dims_count(&x->dims) / k : 0,
                     .n = call->inputs[1].dims.d[0] / 2,
                     .k = k,
                     .batch = 1,
                     .row_a = k,
                     .transpose_b = true,
                     .constant_b = (call->constants >> 1 & 1) != 0,
                     .in = x->dtype,
                     .out = call->outputs[0].dtype,
                     .activation = call->layer->glu.activation,
                     .a = x->data,
                     .b = call->inputs[1].data,
                     .c = call->outputs[0].data};
    return gemm;
}

static bool takes_one_kernel(const trm_kernel_call *call, const trm_gemm *gemm)
{
    return !call->batch_invariant && gemm->k > 0 && trm_cuda_gemv_glu_accepts(gemm);
}

/* ---- some hundred rows: one kernel, or two ---- */

typedef enum way { WAY_ONE, WAY_TWO, WAY_COUNT } way;

static const char *const way_names[WAY_COUNT] = {"own.glu", "two.kernels"};

static bool may_be_one(const trm_kernel_call *call, const trm_gemm *gemm)
{
    return !call->batch_invariant && gemm->m >= LEAST_TRIED && gemm->m <= MOST_TRIED &&
           trm_cuda_glu_product_accepts(gemm);
}

static trm_choice_key key_of(const trm_gemm *gemm)
{
    return (trm_choice_key){
        {TRM_LAYER_MATMUL_GLU, gemm->m, gemm->n, gemm->k, (int64_t)gemm->in, (int64_t)gemm->activation}};
}

bool trm_cuda_matmul_glu_accepts(const trm_kernel_call *call)
{
    return trm_kernel_parts_accepts(call, TRM_BACKEND_CUDA, trm_matmul_glu_parts);
}

size_t trm_cuda_matmul_glu_workspace(const trm_kernel_call *call)
{
    return trm_kernel_parts_workspace(call, TRM_BACKEND_CUDA, trm_matmul_glu_parts);
}

static trm_status prepare_way(way w, const trm_kernel_call *call, const trm_gemm *gemm, trm_program *program)
{
    return w == WAY_ONE ? trm_cuda_gemm_append(program, "cuda.glu_product", trm_cuda_glu_product_run, gemm)
                        : trm_kernel_parts_prepare(call, TRM_BACKEND_CUDA, trm_matmul_glu_parts, program);
}

/* ---- tactics ---- */

/* A program for each way. */
static trm_status enqueue(void *user, int32_t w)
{
    const trm_program *programs = user;
    int32_t at;
    return trm_program_run(&programs[w], 0, programs[w].n, &at);
}

static trm_status choose_way(const trm_kernel_call *call, const trm_gemm *gemm, struct trm_tuner *tuner)
{
    char problem[TRM_PROBLEM_TEXT_SIZE];
    trm_program programs[WAY_COUNT] = {{.stream = call->stream}, {.stream = call->stream}};
    const uint32_t all = (1u << WAY_COUNT) - 1;
    const trm_choice_ways ways = {way_names, WAY_COUNT, all, all, enqueue, programs};
    const trm_choice_key key = key_of(gemm);
    snprintf(problem, sizeof(problem), "matmul_glu m=%lld n=%lld k=%lld %s activation=%d", (long long)gemm->m,
             (long long)gemm->n, (long long)gemm->k, trm_dtype_name(gemm->in), (int)gemm->activation);
    trm_status status = prepare_way(WAY_ONE, call, gemm, &programs[WAY_ONE]);
    status = status == TRM_OK ? prepare_way(WAY_TWO, call, gemm, &programs[WAY_TWO]) : status;
    status = status == TRM_OK ? trm_choice_tune(&key, problem, &ways, trm_cuda_stream(call->stream), tuner) : status;
    for (int32_t i = 0; i < WAY_COUNT; i++) {
        trm_program_fini(&programs[i]);
    }
    return status;
}

static trm_status tune(const trm_kernel_call *call, const trm_gemm *gemm, struct trm_tuner *tuner)
{
    TRM_TRY(trm_kernel_parts_tune(call, TRM_BACKEND_CUDA, trm_matmul_glu_parts, tuner));
    return may_be_one(call, gemm) ? choose_way(call, gemm, tuner) : TRM_OK;
}

/* ---- the choice ---- */

trm_status trm_cuda_matmul_glu_prepare(const trm_kernel_call *call, trm_program *program)
{
    const trm_gemm gemm = gemm_of(call);
    if (gemm.m == 0 || gemm.n == 0) {
        return TRM_OK;
    }
    if (takes_one_kernel(call, &gemm)) {
        return trm_cuda_gemm_append(program, "cuda.gemv_glu", trm_cuda_gemv_glu_run, &gemm);
    }
    struct trm_tuner *tuner;
    if (trm_program_take_tuner(program, &tuner)) {
        TRM_TRY(tune(call, &gemm, tuner));
    }
    int32_t w = gemm.m <= MOST_USUAL ? WAY_ONE : WAY_TWO;
    const trm_choice_key key = key_of(&gemm);
    (void)trm_choice_recall(&key, &w);
    return prepare_way(may_be_one(call, &gemm) ? (way)w : WAY_TWO, call, &gemm, program);
}
