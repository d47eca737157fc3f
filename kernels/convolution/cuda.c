/* The convolution layer on CUDA: by cuDNN, or our own kernels where tuning found them faster or it does nothing. */
#include "kernels/convolution/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/kernel_list.h"
#include "kernels/program.h"

#define LEAST_WORKSPACE ((size_t)16 << 20)
#define MOST_WORKSPACE  ((size_t)512 << 20)

bool trm_cuda_convolution_accepts(const trm_kernel_call *call)
{
    trm_convolution_args args;
    return trm_convolution_args_of(call, &args);
}

/* Room for operands in another layout, twice; grows with dims. */
size_t trm_cuda_convolution_workspace(const trm_kernel_call *call)
{
    const size_t element = trm_dtype_size(call->inputs[0].dtype);
    size_t bytes = LEAST_WORKSPACE;
    if (call->inputs[0].dtype == TRM_F64) {
        return 0;
    }
    bytes += 2 * element * (size_t)trm_dims_count(&call->inputs[0].dims);
    bytes += 2 * element * (size_t)trm_dims_count(&call->inputs[1].dims);
    bytes += 2 * element * (size_t)trm_dims_count(&call->outputs[0].dims);
    return bytes < MOST_WORKSPACE ? bytes : MOST_WORKSPACE;
}

/* A convolution of few channels as one of more, which engines for tensor cores want: the first of a network for images.
 * With strides of 2 in two dimensions, 2 x 2 positions become the channels of one, and strides 1; zeros fill up to 16
 * bytes. Its x and weight are made in the workspace. */
typedef struct wide_convolution {
    trm_convolution_args args;
    trm_folding folding;
    void *workspace; /* what is left */
    size_t workspace_size;
} wide_convolution;

#define ALIGNED(x) (((x) + 255) & ~(size_t)255)

/* The folded problem of 2 x 2 positions; its x has the padding in it. */
static void fold_windows(const trm_windows *from, trm_windows *to, trm_folding *f)
{
    f->fold = 2;
    to->in_size = to->kernel_size = 1;
    for (int32_t i = 0; i < 2; i++) {
        const int32_t axis = TRM_MAX_SPATIAL - 2 + i;
        f->in[i] = (int)from->in[axis];
        f->kernel[i] = (int)from->kernel[axis];
        f->extra[i] = (int)(from->before[axis] & 1);
        f->before[i] = (int)(from->before[axis] + 1) / 2;
        f->taps[i] = (f->kernel[i] + f->extra[i] + 1) / 2;
        f->grid[i] = (int)from->out[axis] + f->taps[i] - 1;
        to->in[axis] = f->grid[i];
        to->kernel[axis] = f->taps[i];
        to->stride[axis] = 1;
        to->before[axis] = 0;
        to->in_size *= to->in[axis];
        to->kernel_size *= to->kernel[axis];
    }
}

/* The same problem, only with more channels. */
static void keep_windows(const trm_windows *from, trm_folding *f)
{
    f->fold = 1;
    f->in[0] = f->grid[0] = f->kernel[0] = f->taps[0] = 1;
    f->in[1] = f->grid[1] = (int)from->in_size;
    f->kernel[1] = f->taps[1] = (int)from->kernel_size;
}

static bool widen(const trm_convolution_args *args, void *workspace, size_t workspace_size, wide_convolution *wide)
{
    const trm_windows *w = &args->w;
    const int32_t y = TRM_MAX_SPATIAL - 2, x = TRM_MAX_SPATIAL - 1;
    const int64_t lanes = 16 / (int64_t)trm_dtype_size(args->dtype);
    const bool tensor_cores =
        args->dtype == TRM_F16 || args->dtype == TRM_BF16 || (args->dtype == TRM_F32 && args->allow_tf32);
    if (!tensor_cores || !args->channels_last || args->groups != 1 || args->channels >= lanes || args->channels < 1 ||
        w->in_size == 1 || w->in_size > INT32_MAX / 4 || w->kernel_size > INT32_MAX / 4) {
        return false;
    }
    trm_folding *f = &wide->folding;
    wide->args = *args;
    *f = (trm_folding){.x = args->x, .weight = args->weight, .images = w->batch, .outputs = args->outputs};
    if (w->n == 2 && w->stride[y] == 2 && w->stride[x] == 2 && w->dilation[y] == 1 && w->dilation[x] == 1) {
        fold_windows(w, &wide->args.w, f);
    } else {
        keep_windows(w, f);
    }
    f->channels = (int)args->channels;
    f->vectors = (int)((args->channels * f->fold * f->fold + lanes - 1) / lanes);
    const size_t x_bytes = ALIGNED((size_t)(w->batch * wide->args.w.in_size * f->vectors) * 16);
    const size_t weight_bytes = ALIGNED((size_t)(args->outputs * wide->args.w.kernel_size * f->vectors) * 16);
    if (workspace_size < LEAST_WORKSPACE || x_bytes + weight_bytes > workspace_size - LEAST_WORKSPACE) {
        return false;
    }
    wide->args.x = f->to_x = workspace;
    wide->args.weight = f->to_weight = (char *)workspace + x_bytes;
    wide->args.channels = wide->args.w.channels_in = f->vectors * lanes;
    wide->workspace = (char *)workspace + x_bytes + weight_bytes;
    wide->workspace_size = workspace_size - x_bytes - weight_bytes;
    return true;
}

/* ---- tuning ---- */

typedef struct own_run {
    const trm_convolution_args *args;
    cudaStream_t stream;
} own_run;

static trm_status own_enqueue(void *user)
{
    const own_run *run = user;
    return trm_cuda_convolution_own(run->args, run->stream);
}

#define OWN_TACTIC  "own.convolution"
#define WIDE_PREFIX "wide." /* before the name of an engine */

typedef struct wide_run {
    const wide_convolution *wide;
    cudaStream_t stream;
} wide_run;

static trm_status wide_enqueue(void *user)
{
    const wide_run *run = user;
    return trm_cuda_convolution_fold(&run->wide->folding, run->wide->args.dtype, run->stream);
}

/* Appends the engines for the widened convolution, with the time it takes to widen it. */
static trm_status time_wide(const wide_convolution *wide, cudaStream_t stream, int32_t proposals, trm_tactic *tactics,
                            int32_t *n)
{
    wide_run run = {wide, stream};
    const int32_t before = *n;
    float milliseconds;
    TRM_TRY(trm_cuda_time(stream, wide_enqueue, &run, &milliseconds));
    TRM_TRY(
        trm_cudnn_convolution_time(&wide->args, wide->workspace, wide->workspace_size, stream, proposals, tactics, n));
    int32_t kept = before;
    for (int32_t i = before; i < *n; i++) {
        char name[TRM_TACTIC_NAME_SIZE];
        if ((size_t)snprintf(name, sizeof(name), WIDE_PREFIX "%s", tactics[i].name) < sizeof(name)) {
            strcpy(tactics[kept].name, name);
            tactics[kept++].microseconds = tactics[i].microseconds + (double)milliseconds * 1e3;
        }
    }
    *n = kept;
    return TRM_OK;
}

static void describe_problem(const trm_convolution_args *args, size_t workspace_size, char text[TRM_PROBLEM_TEXT_SIZE])
{
    const trm_windows *w = &args->w;
    int used = snprintf(text, TRM_PROBLEM_TEXT_SIZE,
                        "cuDNN %zu; convolution n=%lld c=%lld m=%lld groups=%lld %s%s%s%s bias=%d residual=%d "
                        "activation=%d workspace=%zu",
                        trm_cudnn_version(), (long long)w->batch, (long long)w->channels_in,
                        (long long)(args->outputs * args->groups), (long long)args->groups, trm_dtype_name(args->dtype),
                        args->allow_tf32 && args->dtype == TRM_F32 ? "(tf32)" : "",
                        args->channels_last ? " channels last" : "", args->whole_numbers ? " whole numbers" : "",
                        args->bias != NULL, args->residual != NULL, (int)args->activation, workspace_size);
    for (int32_t i = TRM_MAX_SPATIAL - w->n; i < TRM_MAX_SPATIAL && used < TRM_PROBLEM_TEXT_SIZE; i++) {
        used += snprintf(text + used, TRM_PROBLEM_TEXT_SIZE - (size_t)used,
                         " in=%lld out=%lld kernel=%lld stride=%lld dilation=%lld before=%lld", (long long)w->in[i],
                         (long long)w->out[i], (long long)w->kernel[i], (long long)w->stride[i],
                         (long long)w->dilation[i], (long long)w->before[i]);
    }
}

/* Times what can do the convolution. */
static trm_status time_tactics(const trm_kernel_call *call, const trm_convolution_args *args, int32_t proposals,
                               trm_tactic *tactics, int32_t *n)
{
    own_run run = {args, trm_cuda_stream(call->stream)};
    if (args->outputs < 8) { /* ours has no chance where the library uses matrix products */
        float own;
        TRM_TRY(trm_cuda_time(run.stream, own_enqueue, &run, &own));
        strcpy(tactics[*n].name, OWN_TACTIC);
        tactics[(*n)++].microseconds = (double)own * 1e3;
    }
    wide_convolution wide;
    trm_status status = TRM_OK;
    if (widen(args, call->workspace, call->workspace_size, &wide)) {
        status = time_wide(&wide, run.stream, proposals, tactics, n);
    }
    if (status == TRM_OK) {
        status =
            trm_cudnn_convolution_time(args, call->workspace, call->workspace_size, run.stream, proposals, tactics, n);
    }
    return status == TRM_ERROR_UNSUPPORTED ? TRM_OK : status;
}

/* Uses tactic number i of those of a problem, and lets other batches be run by its rivals. */
static bool use_tactic(const trm_kernel_call *call, const trm_convolution_args *args, struct trm_tuner *tuner,
                       const char *problem, const trm_tactic *tactics, int32_t n, int32_t i)
{
    wide_convolution wide;
    trm_shortlist taken, engines;
    const bool fits = widen(args, call->workspace, call->workspace_size, &wide);
    trm_status status;
    trm_shortlist_make(tactics, n, i, &taken);
    if (strncmp(tactics[i].name, WIDE_PREFIX, strlen(WIDE_PREFIX)) == 0) {
        engines = taken;
        for (int32_t k = 0; k < engines.n; k++) {
            strcpy(engines.tactics[k].name, taken.tactics[k].name + strlen(WIDE_PREFIX));
        }
        status = fits ? trm_cudnn_convolution_use(&wide.args, wide.workspace_size, &engines) : TRM_ERROR_UNSUPPORTED;
    } else {
        const bool own = strcmp(tactics[i].name, OWN_TACTIC) == 0;
        if (fits) {
            (void)trm_cudnn_convolution_use(&wide.args, wide.workspace_size, NULL);
        }
        status = trm_cudnn_convolution_use(args, call->workspace_size, own ? NULL : &taken);
    }
    if (status == TRM_OK) {
        trm_tuner_take(tuner, problem, taken.tactics, taken.n);
    }
    return status == TRM_OK;
}

static trm_status tune(const trm_kernel_call *call, trm_tuner *tuner)
{
    trm_convolution_args args;
    char problem[TRM_PROBLEM_TEXT_SIZE];
    if (!trm_convolution_args_of(call, &args) || trm_dims_count(&args.dims) == 0 || args.dtype == TRM_F64) {
        return TRM_OK;
    }
    describe_problem(&args, call->workspace_size, problem);
    const trm_timing *timing = trm_tuner_find(tuner, problem);
    for (int32_t i = 0; timing != NULL && i < timing->n_tactics; i++) {
        if (use_tactic(call, &args, tuner, problem, timing->tactics, timing->n_tactics, i)) {
            return TRM_OK;
        }
    }
    int32_t proposals = trm_tuner_proposals(tuner), n = 0;
    wide_convolution wide;
    const bool known = trm_cudnn_convolution_is_tuned(&args, call->workspace_size) ||
                       (widen(&args, call->workspace, call->workspace_size, &wide) &&
                        trm_cudnn_convolution_is_chosen(&wide.args, wide.workspace_size));
    if (proposals == 0 || (tuner == NULL && known)) {
        return TRM_OK;
    }
    trm_tactic *tactics = calloc(TRM_MOST_TACTICS, sizeof(*tactics));
    if (tactics == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d tactics", TRM_MOST_TACTICS);
    }
    trm_status status = time_tactics(call, &args, proposals, tactics, &n);
    if (status == TRM_OK && n > 0) {
        trm_tactics_sort(tactics, n);
        (void)use_tactic(call, &args, tuner, problem, tactics, n, 0); /* it has just run */
        status = trm_tuner_record(tuner, problem, tactics, n);
    }
    free(tactics);
    return status;
}

/* ---- the choice, and the launch ---- */

/* How a convolution is done. What one way turns out not to do, the next one does: what suited another batch need not
 * suit this one. */
typedef enum convolution_way { WIDENED, BY_LIBRARY, OWN } convolution_way;

typedef struct convolution_args {
    trm_convolution_args plain;
    wide_convolution wide; /* if WIDENED */
    void *workspace;
    size_t workspace_size;
    convolution_way way;
} convolution_args;

static trm_status enqueue_convolution(void *user, trm_stream *stream)
{
    const convolution_args *args = user;
    cudaStream_t native = trm_cuda_stream(stream);
    trm_status status = TRM_ERROR_UNSUPPORTED;
    if (args->way == WIDENED) {
        const wide_convolution *wide = &args->wide;
        TRM_TRY(trm_cuda_convolution_fold(&wide->folding, args->plain.dtype, native));
        status = trm_cudnn_convolution_run(&wide->args, wide->workspace, wide->workspace_size, native);
    }
    if (status == TRM_ERROR_UNSUPPORTED && args->way != OWN) {
        status = trm_cudnn_convolution_run(&args->plain, args->workspace, args->workspace_size, native);
    }
    return status == TRM_ERROR_UNSUPPORTED ? trm_cuda_convolution_own(&args->plain, native) : status;
}

/* The problem that the library is asked for. */
static const trm_convolution_args *problem_of(const convolution_args *args, size_t *workspace_size)
{
    *workspace_size = args->way == WIDENED ? args->wide.workspace_size : args->workspace_size;
    return args->way == WIDENED ? &args->wide.args : &args->plain;
}

static trm_status plan_convolution(void *user, trm_stream *stream)
{
    convolution_args *args = user;
    size_t workspace_size;
    (void)trm_cuda_stream(stream); /* whose device becomes the thread's */
    trm_status status = TRM_ERROR_UNSUPPORTED;
    while (status == TRM_ERROR_UNSUPPORTED && args->way != OWN) {
        const trm_convolution_args *problem = problem_of(args, &workspace_size);
        status = trm_cudnn_convolution_prepare(problem, workspace_size);
        args->way = status == TRM_ERROR_UNSUPPORTED ? (convolution_way)(args->way + 1) : args->way;
    }
    return status == TRM_ERROR_UNSUPPORTED ? TRM_OK : status;
}

/* The widened one where that is likely to do. */
static convolution_way choose_way(convolution_args *args)
{
    const size_t size = args->workspace_size;
    if (args->plain.dtype == TRM_F64) {
        return OWN;
    }
    if (widen(&args->plain, args->workspace, size, &args->wide) &&
        trm_cudnn_convolution_is_likely(&args->wide.args, args->wide.workspace_size)) {
        return WIDENED;
    }
    const bool is_refused =
        trm_cudnn_convolution_is_tuned(&args->plain, size) && !trm_cudnn_convolution_is_chosen(&args->plain, size);
    return is_refused ? OWN : BY_LIBRARY;
}

trm_status trm_cuda_convolution_prepare(const trm_kernel_call *call, trm_program *program)
{
    trm_tuner *tuner;
    if (trm_program_take_tuner(program, &tuner)) {
        TRM_TRY(tune(call, tuner));
    }
    convolution_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    (void)trm_cuda_stream(call->stream); /* whose device becomes the thread's */
    args->workspace = call->workspace;
    args->workspace_size = call->workspace_size;
    if (!trm_convolution_args_of(call, &args->plain) || trm_dims_count(&args->plain.dims) == 0) {
        return TRM_OK;
    }
    args->way = choose_way(args);
    TRM_TRY(trm_program_append(program, "cuda.convolution", enqueue_convolution, args));
    size_t workspace_size;
    const trm_convolution_args *problem = problem_of(args, &workspace_size);
    if (args->way != OWN && !trm_cudnn_convolution_is_prepared(problem, workspace_size)) {
        trm_program_set_plan(program, plan_convolution);
    }
    return TRM_OK;
}

bool trm_cuda_convolution_plain_accepts(const trm_kernel_call *call)
{
    return trm_cuda_convolution_accepts(call);
}

trm_status trm_cuda_convolution_plain_run(const trm_kernel_call *call)
{
    trm_convolution_args args;
    return trm_convolution_args_of(call, &args) ? trm_cuda_convolution_own(&args, trm_cuda_stream(call->stream))
                                                : TRM_OK;
}
