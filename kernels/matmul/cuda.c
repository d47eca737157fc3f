/*
 * The matrix product layer on CUDA: leading dimensions become a batch or a loop, bias and activation go into the
 * library's epilogue, our own small-row kernel, or a pass of their own. Products are cuBLASLt's or cuda_gemv.cu's,
 * whichever tuning found faster.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/tuner/cuda_tactic_cache.h"
#include "kernels/convolution/cuda.h"
#include "kernels/matmul/cuda_cublaslt.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kernel_list.h"
#include "kernels/cuda/strides.h"
#include "kernels/program.h"

#define LIBRARY_WORKSPACE TRM_GEMM_WORKSPACE
#define TEMPORARY_LIMIT   ((size_t)64 << 20) /* of the f32 rows that wait for a pass of their own */
#define LEAST_ONE_KERNEL  ((int64_t)1 << 24) /* multiply-adds, below which planning kernels is not worth its time */

/* A layer call as products: `gemm` for each step of `loop` over leading dimensions (operands a, b, c, bias). */
typedef struct matmul_plan {
    trm_gemm gemm;
    trm_strided loop;
    bool empty;
    bool plain;       /* neither bias nor activation */
    bool fused;       /* the product writes the output itself, bias and activation in it */
    bool apart;       /* the product writes the output with its bias, and the activation is a pass over that */
    int64_t rows;     /* rows per product otherwise */
    size_t temporary; /* bytes of f32 rows after the library's workspace; 0 if the output is f32 and holds them */
} matmul_plan;

/* Leading dimensions of the three tensors as one loop. */
static void plan_loop(const trm_kernel_call *call, matmul_plan *plan)
{
    trm_dims a = call->inputs[0].dims, b = call->inputs[1].dims, c = call->outputs[0].dims;
    trm_gemm *gemm = &plan->gemm;
    trm_strided *loop = &plan->loop;
    a.n -= 2;
    b.n -= 2;
    c.n -= 2;
    loop->n = c.n;
    loop->operands = 4;
    for (int32_t i = 0; i < c.n; i++) {
        loop->d[i] = c.d[i];
    }
    trm_broadcast_strides(&a, &c, loop->stride[0]);
    trm_broadcast_strides(&b, &c, loop->stride[1]);
    trm_contiguous_strides(&c, loop->stride[2]);
    const trm_dims none = {0};
    trm_bias_strides(call->n_inputs > 2 ? &call->inputs[2].dims : &none, &c, loop->stride[3]);
    for (int32_t i = 0; i < c.n; i++) {
        loop->stride[0][i] *= gemm->m * gemm->k;
        loop->stride[1][i] *= gemm->k * gemm->n;
        loop->stride[2][i] *= gemm->m * gemm->n;
    }
    trm_strided_collapse(loop);
    if (loop->n == 1 && loop->d[0] == 1) {
        loop->stride[0][0] = loop->stride[1][0] = loop->stride[2][0] = loop->stride[3][0] = 0;
    }
}

/* The innermost leading dimension joins the rows, where b stands still and a's rows go on, or becomes the batch. */
static void plan_batch(matmul_plan *plan)
{
    trm_gemm *gemm = &plan->gemm;
    trm_strided *loop = &plan->loop;
    int32_t last = loop->n - 1;
    int64_t count = loop->d[last];
    if (count > 1 && loop->stride[1][last] == 0 && loop->stride[3][last] == 0 && !gemm->transpose_a &&
        loop->stride[0][last] == gemm->m * gemm->k) {
        gemm->m *= count;
    } else {
        gemm->batch = count;
        gemm->stride_a = loop->stride[0][last];
        gemm->stride_b = loop->stride[1][last];
        gemm->stride_c = loop->stride[2][last];
        gemm->stride_bias = loop->stride[3][last];
    }
    loop->d[last] = 1;
}

static void plan_make(const trm_kernel_call *call, matmul_plan *plan)
{
    const trm_view *a = &call->inputs[0], *b = &call->inputs[1], *c = &call->outputs[0];
    const trm_matmul_params *matmul = &call->layer->matmul;
    trm_gemm *gemm = &plan->gemm;
    memset(plan, 0, sizeof(*plan));
    gemm->m = c->dims.d[c->dims.n - 2];
    gemm->n = c->dims.d[c->dims.n - 1];
    gemm->k = a->dims.d[a->dims.n - (matmul->transpose_a ? 2 : 1)];
    gemm->row_a = a->dims.d[a->dims.n - 1];
    gemm->batch = 1;
    gemm->transpose_a = matmul->transpose_a;
    gemm->transpose_b = matmul->transpose_b;
    gemm->tf32 = call->allow_tf32;
    gemm->constant_b = (call->constants >> 1 & 1) != 0 &&
                       (call->n_inputs < 3 || call->inputs[2].data == NULL || (call->constants >> 2 & 1) != 0);
    gemm->in = a->dtype;
    gemm->out = c->dtype;
    gemm->activation = matmul->activation;
    gemm->a = a->data;
    gemm->b = b->data;
    gemm->bias = call->n_inputs > 2 ? call->inputs[2].data : NULL;
    gemm->c = c->data;
    plan->empty = trm_dims_count(&c->dims) == 0;
    if (plan->empty || gemm->k == 0) {
        return;
    }
    /* accepts() and workspace() see calls without addresses: whether there is a bias is then said by its dims. */
    bool has_bias = call->n_inputs > 2 && call->inputs[2].dtype != TRM_DTYPE_NONE;
    plan_loop(call, plan);
    plan_batch(plan);
    trm_gemm probe = *gemm;
    probe.bias = has_bias ? (const void *)gemm : NULL;
    plan->fused = trm_cublaslt_accepts(&probe);
    probe.activation = TRM_ACTIVATION_NONE;
    plan->apart = !plan->fused && gemm->out == gemm->in && trm_cublaslt_accepts(&probe);
    plan->rows = gemm->m;
    /* Kept ready for a fused product too: the library may have no algorithm with an epilogue for these alignments. */
    plan->plain = !has_bias && gemm->activation == TRM_ACTIVATION_NONE;
    if (gemm->out != TRM_F32 && !(plan->fused && plan->plain)) {
        size_t row = (size_t)gemm->n * sizeof(float);
        int64_t fit = (int64_t)(TEMPORARY_LIMIT / row);
        plan->rows = fit < 1 ? 1 : fit < gemm->m ? fit : gemm->m;
        plan->temporary = (size_t)plan->rows * row;
    }
}

/* ---- which products our own kernel does ---- */

static trm_choice_key gemv_key(const trm_gemm *gemm)
{
    return (trm_choice_key){{TRM_LAYER_MATMUL, gemm->m, gemm->n, gemm->k, (int64_t)gemm->in, (int64_t)gemm->out,
                             (int64_t)gemm->activation}};
}

#define NO_GEMV (-1)

/* Whether a choice was made for products of these dims; *form is then that of ours (trm_gemm), or NO_GEMV. */
static bool gemv_recall(const trm_gemm *gemm, int32_t *form)
{
    const trm_choice_key key = gemv_key(gemm);
    return trm_cuda_gemv_accepts(gemm) && trm_choice_recall(&key, form);
}

/* ---- products that cuDNN does in one kernel ---- */

/* A product whose activation is no epilogue of the library's, as a convolution of windows of one position with channels
 * last: cuDNN has engines for that with any activation in them. */
static bool as_convolution(const matmul_plan *plan, const trm_gemm *gemm, trm_convolution_args *args)
{
    const bool large = gemm->m * gemm->n >= LEAST_ONE_KERNEL / gemm->k;
    const bool form = large && plan->apart && gemm->transpose_b && !gemm->transpose_a && gemm->batch == 1 &&
                      gemm->row_a == gemm->k && (gemm->in != TRM_F32 || gemm->tf32);
    trm_layer_desc layer = {.kind = TRM_LAYER_CONVOLUTION,
                            .convolution = {.activation = gemm->activation, .groups = 1, .channels_last = true}};
    trm_kernel_call call = {.layer = &layer, .n_inputs = 3, .n_outputs = 1, .allow_tf32 = gemm->tf32};
    for (int32_t i = 0; i < TRM_MAX_SPATIAL; i++) {
        layer.convolution.stride[i] = layer.convolution.dilation[i] = 1;
    }
    call.inputs[0] = (trm_view){(void *)(uintptr_t)gemm->a, gemm->in, {4, {1, 1, gemm->m, gemm->k}}};
    call.inputs[1] = (trm_view){(void *)(uintptr_t)gemm->b, gemm->in, {4, {gemm->n, 1, 1, gemm->k}}};
    call.inputs[2] =
        (trm_view){(void *)(uintptr_t)gemm->bias, gemm->bias != NULL ? gemm->in : TRM_DTYPE_NONE, {1, {gemm->n}}};
    call.outputs[0] = (trm_view){gemm->c, gemm->out, {4, {1, 1, gemm->m, gemm->n}}};
    return form && trm_convolution_args_of(&call, args);
}

/* ---- running ---- */

static const void *at_element(const void *from, int64_t index, trm_dtype dtype)
{
    return from == NULL ? NULL : (const char *)from + index * (int64_t)trm_dtype_size(dtype);
}

/* One product whose bias and activation are a pass of their own, in pieces of plan->rows rows. */
static trm_status run_in_passes(const matmul_plan *plan, const trm_gemm *gemm, void *workspace, cudaStream_t stream)
{
    size_t in = trm_dtype_size(gemm->in), out = trm_dtype_size(gemm->out);
    for (int64_t i = 0; i < gemm->batch; i++) {
        for (int64_t row = 0; row < gemm->m; row += plan->rows) {
            trm_gemm piece = *gemm;
            piece.batch = 1;
            piece.m = gemm->m - row < plan->rows ? gemm->m - row : plan->rows;
            piece.a = (const char *)gemm->a +
                      (size_t)(i * gemm->stride_a + (gemm->transpose_a ? row : row * gemm->row_a)) * in;
            piece.b = (const char *)gemm->b + (size_t)(i * gemm->stride_b) * in;
            void *to = (char *)gemm->c + (size_t)(i * gemm->stride_c + row * gemm->n) * out;
            piece.c = plan->temporary > 0 ? (char *)workspace + LIBRARY_WORKSPACE : to;
            piece.out = TRM_F32;
            piece.bias = NULL;
            piece.activation = TRM_ACTIVATION_NONE;
            TRM_TRY(trm_cublaslt_run(&piece, workspace, LIBRARY_WORKSPACE, stream));
            const void *bias = at_element(gemm->bias, i * gemm->stride_bias, gemm->in);
            trm_epilogue epilogue = {piece.m, gemm->n, piece.c, bias, gemm->in, gemm->out, gemm->activation, to};
            TRM_TRY(trm_cuda_epilogue(&epilogue, stream));
        }
    }
    return TRM_OK;
}

/* Of this step of the loop: the pass over what the product wrote moves 16 bytes at a time. */
static bool can_run_apart(const matmul_plan *plan, const trm_gemm *gemm)
{
    return plan->apart && ((uintptr_t)gemm->c & 15) == 0;
}

/* The library's product, then the activation. Rounded once more than by run_in_passes, as two layers would, with half
 * the bytes. */
static trm_status run_apart(const trm_gemm *gemm, void *workspace, cudaStream_t stream)
{
    trm_gemm plain = *gemm;
    plain.activation = TRM_ACTIVATION_NONE;
    TRM_TRY(trm_cublaslt_run(&plain, workspace, LIBRARY_WORKSPACE, stream));
    return trm_cuda_activate_in_place(gemm->c, gemm->batch * gemm->m * gemm->n, gemm->out, gemm->activation, stream);
}

/* The product at step `i` of the loop. */
static trm_gemm product_at(const matmul_plan *plan, int64_t i)
{
    trm_gemm gemm = plan->gemm;
    int64_t at[4] = {0, 0, 0, 0};
    for (int32_t axis = plan->loop.n - 1; axis >= 0; axis--) {
        int64_t index = i % plan->loop.d[axis];
        i /= plan->loop.d[axis];
        for (int o = 0; o < 4; o++) {
            at[o] += index * plan->loop.stride[o][axis];
        }
    }
    gemm.a = (const char *)gemm.a + (size_t)at[0] * trm_dtype_size(gemm.in);
    gemm.b = (const char *)gemm.b + (size_t)at[1] * trm_dtype_size(gemm.in);
    gemm.c = (char *)gemm.c + (size_t)at[2] * trm_dtype_size(gemm.out);
    gemm.bias = at_element(gemm.bias, at[3], gemm.in);
    return gemm;
}

/* Products with K of 0: what is made of the bias. */
static trm_status run_empty_sums(const matmul_plan *plan, cudaStream_t stream)
{
    int64_t steps = trm_strided_count(&plan->loop);
    for (int64_t i = 0; i < steps; i++) {
        trm_gemm gemm = product_at(plan, i);
        trm_epilogue epilogue = {gemm.m, gemm.n, NULL, gemm.bias, gemm.in, gemm.out, gemm.activation, gemm.c};
        TRM_TRY(trm_cuda_epilogue(&epilogue, stream));
    }
    return TRM_OK;
}

static bool is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16;
}

bool trm_cuda_matmul_accepts(const trm_kernel_call *call)
{
    const trm_view *a = &call->inputs[0], *b = &call->inputs[1], *c = &call->outputs[0];
    bool bias_fits = call->n_inputs < 3 || call->inputs[2].dtype == a->dtype || call->inputs[2].dtype == TRM_DTYPE_NONE;
    return !call->batch_invariant && is_float(a->dtype) && b->dtype == a->dtype && is_float(c->dtype) && bias_fits &&
           a->dims.n >= 2 && b->dims.n >= 2;
}

size_t trm_cuda_matmul_workspace(const trm_kernel_call *call)
{
    matmul_plan plan;
    plan_make(call, &plan);
    return LIBRARY_WORKSPACE + plan.temporary;
}

/* ---- the choice, and the launch ---- */

/* How products are done. What one way turns out not to do, the next one does. */
typedef enum matmul_way { BY_GEMV, BY_LIBRARY, BY_CONVOLUTION, APART, IN_PASSES } matmul_way;

typedef struct matmul_args {
    matmul_plan plan;
    void *workspace;
    matmul_way way;
} matmul_args;

static trm_status run_way(const matmul_args *args, matmul_way way, const trm_gemm *gemm, cudaStream_t stream)
{
    const matmul_plan *plan = &args->plan;
    trm_convolution_args convolution;
    switch (way) {
    case BY_GEMV:
        return trm_cuda_gemv_accepts(gemm) ? trm_cuda_gemv_run(gemm, stream) : TRM_ERROR_UNSUPPORTED;
    case BY_LIBRARY:
        return plan->fused ? trm_cublaslt_run(gemm, args->workspace, LIBRARY_WORKSPACE, stream) : TRM_ERROR_UNSUPPORTED;
    case BY_CONVOLUTION:
        return can_run_apart(plan, gemm) && as_convolution(plan, gemm, &convolution)
                   ? trm_cudnn_convolution_run(&convolution, args->workspace, LIBRARY_WORKSPACE, stream)
                   : TRM_ERROR_UNSUPPORTED;
    case APART:
        return can_run_apart(plan, gemm) ? run_apart(gemm, args->workspace, stream) : TRM_ERROR_UNSUPPORTED;
    default:
        return run_in_passes(plan, gemm, args->workspace, stream);
    }
}

static trm_status run_product(const matmul_args *args, const trm_gemm *gemm, cudaStream_t stream)
{
    const matmul_way last = args->plan.plain && args->plan.fused ? BY_LIBRARY : IN_PASSES;
    trm_status status = run_way(args, args->way, gemm, stream);
    for (int way = (int)args->way + 1; status == TRM_ERROR_UNSUPPORTED && way <= (int)last; way++) {
        status = way == BY_CONVOLUTION ? status : run_way(args, (matmul_way)way, gemm, stream); /* only if chosen */
    }
    return status;
}

static trm_status enqueue_products(void *user, trm_stream *stream)
{
    const matmul_args *args = user;
    cudaStream_t native = trm_cuda_stream(stream);
    int64_t steps = trm_strided_count(&args->plan.loop);
    for (int64_t i = 0; i < steps; i++) {
        trm_gemm gemm = product_at(&args->plan, i);
        TRM_TRY(run_product(args, &gemm, native));
    }
    return TRM_OK;
}

static trm_status enqueue_empty_sums(void *user, trm_stream *stream)
{
    const matmul_args *args = user;
    return run_empty_sums(&args->plan, trm_cuda_stream(stream));
}

/* Ours unless the library was seen to be faster; the stream's device is the thread's. */
static matmul_way choose_way(matmul_plan *plan, const trm_gemm *gemm)
{
    trm_convolution_args args;
    int32_t form = trm_cuda_gemv_accepts(gemm) ? 0 : NO_GEMV;
    (void)gemv_recall(gemm, &form);
    if (form != NO_GEMV) {
        plan->gemm.form = form;
        return BY_GEMV;
    }
    if (plan->fused) {
        return BY_LIBRARY;
    }
    const bool one_kernel = can_run_apart(plan, gemm) && as_convolution(plan, gemm, &args) &&
                            trm_cudnn_convolution_is_chosen(&args, LIBRARY_WORKSPACE);
    return one_kernel ? BY_CONVOLUTION : can_run_apart(plan, gemm) ? APART : IN_PASSES;
}

/* The product that the library is asked for, the first of a loop's, which are alike; false if none. */
static bool find_product(const matmul_args *args, trm_gemm *gemm)
{
    *gemm = product_at(&args->plan, 0);
    if (args->way == APART) {
        gemm->activation = TRM_ACTIVATION_NONE;
    }
    return args->way == BY_LIBRARY || args->way == APART;
}

static trm_status plan_product(void *user, trm_stream *stream)
{
    trm_gemm gemm;
    (void)trm_cuda_stream(stream); /* whose device becomes the thread's */
    const trm_status status = find_product(user, &gemm) ? trm_cublaslt_prepare(&gemm, LIBRARY_WORKSPACE) : TRM_OK;
    return status == TRM_ERROR_UNSUPPORTED ? TRM_OK : status; /* it is run in passes */
}

trm_status trm_cuda_matmul_prepare(const trm_kernel_call *call, trm_program *program)
{
    trm_tuner *tuner;
    if (trm_program_take_tuner(program, &tuner)) {
        TRM_TRY(trm_cuda_matmul_tune(call, tuner));
    }
    matmul_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    (void)trm_cuda_stream(call->stream); /* whose device becomes the thread's */
    plan_make(call, &args->plan);
    args->workspace = call->workspace;
    if (args->plan.empty) {
        return TRM_OK;
    }
    if (args->plan.gemm.k == 0) {
        plan_loop(call, &args->plan);
        return trm_program_append(program, "cuda.matmul", enqueue_empty_sums, args);
    }
    trm_gemm gemm = product_at(&args->plan, 0);
    args->way = choose_way(&args->plan, &gemm);
    TRM_TRY(trm_program_append(program, "cuda.matmul", enqueue_products, args));
    if (find_product(args, &gemm) && !trm_cublaslt_is_prepared(&gemm, LIBRARY_WORKSPACE)) {
        trm_program_set_plan(program, plan_product);
    }
    return TRM_OK;
}

/* ---- tactics ---- */

typedef struct gemv_run {
    const trm_gemm *gemm;
    cudaStream_t stream;
} gemv_run;

static trm_status gemv_enqueue(void *user)
{
    const gemv_run *run = user;
    return trm_cuda_gemv_run(run->gemm, run->stream);
}

static unsigned alignment_of(const void *address)
{
    uintptr_t bits = (uintptr_t)address | 256u;
    return (unsigned)(bits & (~bits + 1));
}

static void describe_problem(const trm_gemm *g, char text[TRM_PROBLEM_TEXT_SIZE])
{
    static size_t version; /* of a library that does not change */
    char path[256];
    version = version == 0 ? trm_cublaslt_version(path, sizeof(path)) : version;
    snprintf(text, TRM_PROBLEM_TEXT_SIZE,
             "cublasLt %zu; matmul m=%lld n=%lld k=%lld batch=%lld strides=%lld,%lld,%lld row=%lld %s%s->%s "
             "transpose=%d%d bias=%d%s activation=%d align=%u,%u,%u,%u%s",
             version, (long long)g->m, (long long)g->n, (long long)g->k, (long long)g->batch, (long long)g->stride_a,
             (long long)g->stride_b, (long long)g->stride_c, (long long)g->row_a, trm_dtype_name(g->in),
             g->tf32 && g->in == TRM_F32 ? "(tf32)" : "", trm_dtype_name(g->out), g->transpose_a, g->transpose_b,
             g->bias != NULL, g->stride_bias != 0 ? " each" : "", (int)g->activation, alignment_of(g->a),
             alignment_of(g->b), alignment_of(g->c), g->bias == NULL ? 0 : alignment_of(g->bias),
             g->scales == TRM_GEMM_BLOCKS_SCALED ? " scales of blocks"
             : g->scales == TRM_GEMM_ROWS_SCALED ? " scales of rows"
                                                 : "");
}

/* Whether ours is worth timing. With a bias for several rows the library's are faster in a step, though not alone: 2117
 * and 2013 tok/s in a step of 8 of gpt-oss-20b. */
static bool tries_gemv(const matmul_plan *plan, const trm_gemm *gemm)
{
    return trm_cuda_gemv_accepts(gemm) && (gemm->m <= 2 || gemm->bias == NULL || !plan->fused);
}

/* Times what can do the product. */
static trm_status time_tactics(const matmul_plan *plan, const trm_gemm *gemm, const trm_kernel_call *call,
                               int32_t proposals, trm_tactic *tactics, int32_t *n)
{
    cudaStream_t stream = trm_cuda_stream(call->stream);
    if (tries_gemv(plan, gemm)) {
        const char *const *names;
        const int32_t forms = trm_cuda_gemv_forms(gemm, &names);
        for (int32_t i = 0; i < forms; i++) {
            trm_gemm own = *gemm;
            own.form = 1 + i;
            gemv_run run = {&own, stream};
            float milliseconds;
            TRM_TRY(trm_cuda_time(stream, gemv_enqueue, &run, &milliseconds));
            snprintf(tactics[*n].name, sizeof(tactics[*n].name), "%s", names[i]);
            tactics[(*n)++].microseconds = (double)milliseconds * 1e3;
        }
    }
    trm_status status = TRM_ERROR_UNSUPPORTED;
    if (plan->fused) {
        status = trm_cublaslt_time(gemm, call->workspace, LIBRARY_WORKSPACE, stream, proposals, tactics, n);
    }
    /* Without a fused product of the library, one launch of ours stands against two with f32 rows between them. */
    return status == TRM_ERROR_UNSUPPORTED ? TRM_OK : status;
}

static bool use_tactic(const trm_gemm *gemm, const char *tactic)
{
    const trm_choice_key key = gemv_key(gemm);
    const char *const *names;
    const int32_t forms = trm_cuda_gemv_accepts(gemm) ? trm_cuda_gemv_forms(gemm, &names) : 0;
    for (int32_t i = 0; i < forms; i++) {
        if (strcmp(tactic, names[i]) == 0) {
            trm_choice_remember(&key, 1 + i);
            return true;
        }
    }
    if (trm_cublaslt_use(gemm, LIBRARY_WORKSPACE, tactic) != TRM_OK) {
        return false;
    }
    if (forms > 0) {
        trm_choice_remember(&key, NO_GEMV);
    }
    return true;
}

static trm_status tune_product(const matmul_plan *plan, const trm_gemm *gemm, const trm_kernel_call *call,
                               trm_tuner *tuner)
{
    char problem[TRM_PROBLEM_TEXT_SIZE];
    int32_t form;
    describe_problem(gemm, problem);
    const trm_timing *timing = trm_tuner_find(tuner, problem);
    for (int32_t i = 0; timing != NULL && i < timing->n_tactics; i++) {
        if (use_tactic(gemm, timing->tactics[i].name)) {
            trm_tuner_take(tuner, problem, &timing->tactics[i], 1);
            return TRM_OK;
        }
    }
    int32_t proposals = trm_tuner_proposals(tuner), n = 0;
    bool known = gemv_recall(gemm, &form) || trm_cublaslt_is_tuned(gemm, LIBRARY_WORKSPACE);
    if (proposals == 0 || (tuner == NULL && known)) {
        return TRM_OK;
    }
    trm_tactic *tactics = calloc(TRM_MOST_TACTICS, sizeof(*tactics));
    if (tactics == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d tactics", TRM_MOST_TACTICS);
    }
    trm_status status = time_tactics(plan, gemm, call, proposals, tactics, &n);
    if (status == TRM_OK && n > 0) {
        trm_tactics_sort(tactics, n);
        (void)use_tactic(gemm, tactics[0].name); /* it has just run */
        trm_tuner_take(tuner, problem, &tactics[0], 1);
        status = trm_tuner_record(tuner, problem, tactics, n);
    }
    free(tactics);
    return status;
}

trm_status trm_cuda_gemm_tune(const trm_gemm *gemm, void *workspace, trm_stream *stream, struct trm_tuner *tuner)
{
    const matmul_plan plan = {.fused = true};
    const trm_kernel_call call = {.workspace = workspace, .workspace_size = LIBRARY_WORKSPACE, .stream = stream};
    return tune_product(&plan, gemm, &call, tuner);
}

#define APART_TACTIC "own.apart"

typedef struct apart_run {
    const trm_gemm *gemm;
    const trm_kernel_call *call;
} apart_run;

static trm_status apart_enqueue(void *user)
{
    const apart_run *run = user;
    return run_apart(run->gemm, run->call->workspace, trm_cuda_stream(run->call->stream));
}

/* Times the library's product with a pass behind it, and what cuDNN does in one kernel. */
static trm_status time_one_kernel(const trm_gemm *gemm, const trm_convolution_args *args, const trm_kernel_call *call,
                                  int32_t proposals, trm_tactic *tactics, int32_t *n)
{
    apart_run run = {gemm, call};
    cudaStream_t stream = trm_cuda_stream(call->stream);
    float milliseconds;
    TRM_TRY(trm_cuda_time(stream, apart_enqueue, &run, &milliseconds));
    strcpy(tactics[*n].name, APART_TACTIC);
    tactics[(*n)++].microseconds = (double)milliseconds * 1e3;
    trm_status status =
        trm_cudnn_convolution_time(args, call->workspace, LIBRARY_WORKSPACE, stream, proposals, tactics, n);
    return status == TRM_ERROR_UNSUPPORTED ? TRM_OK : status;
}

static bool use_one_kernel(const trm_convolution_args *args, const trm_tactic *tactic)
{
    trm_shortlist engine;
    trm_shortlist_make(tactic, 1, 0, &engine);
    const bool apart = strcmp(tactic->name, APART_TACTIC) == 0;
    return trm_cudnn_convolution_use(args, LIBRARY_WORKSPACE, apart ? NULL : &engine) == TRM_OK;
}

/* Chooses between a product with a pass behind it, its product tuned before, and one kernel. */
static trm_status tune_one_kernel(const trm_gemm *gemm, const trm_convolution_args *args, const trm_kernel_call *call,
                                  trm_tuner *tuner)
{
    char problem[TRM_PROBLEM_TEXT_SIZE], product[TRM_PROBLEM_TEXT_SIZE];
    describe_problem(gemm, product);
    if ((size_t)snprintf(problem, sizeof(problem), "cuDNN %zu, %s", trm_cudnn_version(), product) >= sizeof(problem)) {
        return TRM_OK;
    }
    const trm_timing *timing = trm_tuner_find(tuner, problem);
    for (int32_t i = 0; timing != NULL && i < timing->n_tactics; i++) {
        if (use_one_kernel(args, &timing->tactics[i])) {
            trm_tuner_take(tuner, problem, &timing->tactics[i], 1);
            return TRM_OK;
        }
    }
    int32_t proposals = trm_tuner_proposals(tuner), n = 0;
    if (proposals == 0 || (tuner == NULL && trm_cudnn_convolution_is_tuned(args, LIBRARY_WORKSPACE))) {
        return TRM_OK;
    }
    trm_tactic *tactics = calloc(TRM_MOST_TACTICS, sizeof(*tactics));
    if (tactics == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d tactics", TRM_MOST_TACTICS);
    }
    trm_status status = time_one_kernel(gemm, args, call, proposals, tactics, &n);
    if (status == TRM_OK && n > 0) {
        trm_tactics_sort(tactics, n);
        (void)use_one_kernel(args, &tactics[0]); /* it has just run */
        trm_tuner_take(tuner, problem, &tactics[0], 1);
        status = trm_tuner_record(tuner, problem, tactics, n);
    }
    free(tactics);
    return status == TRM_ERROR_UNSUPPORTED ? TRM_OK : status;
}

trm_status trm_cuda_matmul_tune(const trm_kernel_call *call, struct trm_tuner *tuner)
{
    matmul_plan plan;
    plan_make(call, &plan);
    if (plan.empty || plan.gemm.k == 0) {
        return TRM_OK;
    }
    trm_gemm gemm = product_at(&plan, 0);
    if (can_run_apart(&plan, &gemm) && !trm_cuda_gemv_accepts(&gemm)) {
        trm_convolution_args args;
        trm_gemm plain = gemm;
        matmul_plan product = plan;
        plain.activation = TRM_ACTIVATION_NONE;
        product.fused = true;
        TRM_TRY(tune_product(&product, &plain, call, tuner));
        return as_convolution(&plan, &gemm, &args) ? tune_one_kernel(&gemm, &args, call, tuner) : TRM_OK;
    }
    if (!plan.fused && !trm_cuda_gemv_accepts(&gemm)) { /* run_in_passes: tuned as the first of the products it makes */
        char *whole = call->workspace;
        gemm.batch = 1;
        gemm.m = gemm.m < plan.rows ? gemm.m : plan.rows;
        gemm.c = plan.temporary > 0 ? whole + LIBRARY_WORKSPACE : gemm.c;
        gemm.out = TRM_F32;
        gemm.bias = NULL;
        gemm.activation = TRM_ACTIVATION_NONE;
        plan.fused = true;
    }
    return tune_product(&plan, &gemm, call, tuner);
}
