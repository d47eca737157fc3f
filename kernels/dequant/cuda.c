/*
 * DEQUANT_MATMUL on CUDA. Few rows, and on Hopper any: our own kernels, which read the weight as it is. Many: x is
 * quantized, too, and the product is the library's of e4m3; or, where x is to stay as it is or that is not possible, a
 * piece of the weight at a time becomes floats of x's type in the workspace, and the product is a MATMUL's.
 */
#include <stdio.h>

#include "kernels/tuner/cuda_tactic_cache.h"
#include "kernels/cuda/cuda.h"
#include "kernels/dequant/cuda.h"
#include "kernels/dequant/cuda_tiles.h"
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/kernel_list.h"
#include "kernels/program.h"
#include "kernels/tuner/tuner.h"

#define PIECE_BYTES ((size_t)128 << 20) /* of the weight as floats, at most */
#define ALIGNMENT   ((size_t)256)

/* Rows of x: where nothing was timed, up to MOST_ROWS and MOST_WIDE are done by the kernels of these names. The library
 * is tried above FEW rows, cuda_tiles.cu from FEW on, the others up to MOST_TRIED. */
#define MOST_ROWS  16
#define MOST_WIDE  64
#define FEW        8
#define MOST_TRIED 512

static bool has_input(const trm_kernel_call *call, int32_t input)
{
    return input < call->n_inputs && call->inputs[input].dtype != TRM_DTYPE_NONE;
}

static bool is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16;
}

trm_dequant_gemm trm_dequant_gemm_of(const trm_kernel_call *call)
{
    const trm_dequant_matmul_params *p = &call->layer->dequant_matmul;
    const trm_view *x = &call->inputs[TRM_DEQUANT_MATMUL_X], *weight = &call->inputs[TRM_DEQUANT_MATMUL_WEIGHT];
    const trm_view *scale = &call->inputs[TRM_DEQUANT_MATMUL_SCALE];
    const bool bias = has_input(call, TRM_DEQUANT_MATMUL_BIAS), zero = has_input(call, TRM_DEQUANT_MATMUL_ZERO_POINT);
    const uint32_t read = 1u << TRM_DEQUANT_MATMUL_WEIGHT | 1u << TRM_DEQUANT_MATMUL_SCALE |
                          (zero ? 1u << TRM_DEQUANT_MATMUL_ZERO_POINT : 0);
    trm_dequant_gemm gemm = {
        .n = weight->dims.d[0],
        .k = x->dims.d[x->dims.n - 1],
        .block_n = p->block_n,
        .scale_row = scale->dims.d[1],
        .weight_type = weight->dtype,
        .scale_type = scale->dtype,
        .in = x->dtype,
        .out = call->outputs[0].dtype,
        .constant = (call->constants & read) == read,
        .x_quantization = p->x_quantization,
        .x_scale = p->x_scale,
        .x = x->data,
        .weight = weight->data,
        .scale = scale->data,
        .bias = bias ? call->inputs[TRM_DEQUANT_MATMUL_BIAS].data : NULL,
        .zero = zero ? call->inputs[TRM_DEQUANT_MATMUL_ZERO_POINT].data : NULL,
        .y = call->outputs[0].data,
    };
    gemm.m = 1;
    for (int32_t i = 0; i + 1 < x->dims.n; i++) {
        gemm.m *= x->dims.d[i];
    }
    gemm.block_k = p->block_k > 0 ? p->block_k : gemm.k > 0 ? gemm.k : 1;
    return gemm;
}

/* The product of a piece of the weight, which lies at the beginning of the workspace. */
typedef struct piece {
    int64_t rows; /* of the weight; those of the last piece may be fewer */
    int32_t count;
    size_t weight_bytes, out_bytes; /* of the piece, and of what is copied from where it is made; 0: made in place */
    trm_layer_desc layer;
    trm_kernel_call call;
    const trm_kernel *kernel;
} piece;

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Fills in the piece of `rows` rows from `first` on. */
static void piece_at(const trm_kernel_call *call, const trm_dequant_gemm *gemm, int64_t first, int64_t rows, piece *p)
{
    char *workspace = call->workspace;
    const size_t before = p->weight_bytes + p->out_bytes;
    p->layer = (trm_layer_desc){.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true, .out = gemm->out}};
    p->call = (trm_kernel_call){.layer = &p->layer,
                                .n_inputs = has_input(call, TRM_DEQUANT_MATMUL_BIAS) ? 3 : 2,
                                .n_outputs = 1,
                                .stream = call->stream,
                                .allow_tf32 = call->allow_tf32,
                                .batch_invariant = call->batch_invariant};
    p->call.inputs[0] = (trm_view){(void *)(uintptr_t)gemm->x, gemm->in, {2, {gemm->m, gemm->k}}};
    p->call.inputs[1] = (trm_view){workspace, gemm->in, {2, {rows, gemm->k}}};
    if (p->call.n_inputs == 3) {
        const char *bias = gemm->bias;
        p->call.inputs[2] = (trm_view){
            bias != NULL ? (char *)(uintptr_t)bias + first * (int64_t)trm_dtype_size(gemm->in) : NULL,
            gemm->in,
            {1, {rows}},
        };
    }
    p->call.outputs[0] = (trm_view){gemm->y, gemm->out, {2, {gemm->m, rows}}};
    if (workspace != NULL) {
        p->call.outputs[0].data = p->out_bytes > 0 ? workspace + p->weight_bytes : gemm->y;
        p->call.workspace = workspace + before;
        p->call.workspace_size = call->workspace_size > before ? call->workspace_size - before : 0;
    }
}

/* The first piece, whose size is that of all but the last. False where the product has no kernel. */
static bool make_piece(const trm_kernel_call *call, const trm_dequant_gemm *gemm, piece *p)
{
    static const trm_kernel_table *const tables[] = {&trm_cuda_kernels};
    *p = (piece){0};
    const size_t row = (size_t)gemm->k * trm_dtype_size(gemm->in);
    const int64_t fit = row > 0 ? (int64_t)(PIECE_BYTES / row) / 128 * 128 : gemm->n;
    p->rows = fit < 128 ? 128 : fit;
    p->rows = p->rows < gemm->n ? p->rows : gemm->n;
    p->count = p->rows > 0 ? (int32_t)((gemm->n + p->rows - 1) / p->rows) : 0;
    p->weight_bytes = aligned((size_t)p->rows * row);
    p->out_bytes = p->count > 1 ? aligned((size_t)(gemm->m * p->rows) * trm_dtype_size(gemm->out)) : 0;
    piece_at(call, gemm, 0, p->rows, p);
    p->kernel = trm_kernel_find(tables, 1, TRM_BACKEND_CUDA, &p->call);
    return p->kernel != NULL;
}

bool trm_cuda_dequant_matmul_accepts(const trm_kernel_call *call)
{
    if (call->n_inputs < 3 || call->n_outputs != 1 || call->inputs[0].dims.n < 1 || call->inputs[1].dims.n != 2 ||
        call->inputs[2].dims.n != 2) {
        return false;
    }
    const trm_dequant_gemm gemm = trm_dequant_gemm_of(call);
    const bool types = is_float(gemm.in) && is_float(gemm.out) && is_float(gemm.scale_type) &&
                       (gemm.weight_type == TRM_F8E4M3 || gemm.weight_type == TRM_I8 || gemm.weight_type == TRM_U8 ||
                        gemm.weight_type == TRM_F4E2M1);
    const bool bias =
        !has_input(call, TRM_DEQUANT_MATMUL_BIAS) || call->inputs[TRM_DEQUANT_MATMUL_BIAS].dtype == gemm.in;
    const bool zero = !has_input(call, TRM_DEQUANT_MATMUL_ZERO_POINT) ||
                      (gemm.weight_type == TRM_U8 && call->inputs[TRM_DEQUANT_MATMUL_ZERO_POINT].dtype == TRM_U8);
    piece p;
    return types && bias && zero && gemm.block_n > 0 && trm_dims_count(&call->inputs[2].dims) <= INT32_MAX &&
           gemm.n <= INT32_MAX && make_piece(call, &gemm, &p);
}

/* As if all calls were done in pieces, or by e4m3: which are not is seen when there are addresses. */
size_t trm_cuda_dequant_matmul_workspace(const trm_kernel_call *call)
{
    const trm_dequant_gemm gemm = trm_dequant_gemm_of(call);
    piece p;
    if (gemm.m == 0 || gemm.n == 0 || !make_piece(call, &gemm, &p)) {
        return 0;
    }
    const size_t pieces =
        p.weight_bytes + p.out_bytes + (p.kernel->workspace != NULL ? p.kernel->workspace(&p.call) : 0);
    const size_t fp8 = gemm.x_quantization != TRM_X_AS_IS ? trm_cuda_fp8_workspace(&gemm) : 0;
    return pieces > fp8 ? pieces : fp8;
}

typedef struct piece_args {
    trm_dequant_gemm gemm;
    int64_t first, rows;
    void *weight;      /* of the piece, as floats */
    const void *piece; /* of the output, if it is made elsewhere */
} piece_args;

static trm_status dequantize(void *user, trm_stream *stream)
{
    const piece_args *args = user;
    return trm_cuda_dequantize(&args->gemm, args->first, args->rows, args->weight, trm_cuda_stream(stream));
}

static trm_status copy_piece(void *user, trm_stream *stream)
{
    const piece_args *args = user;
    const trm_dequant_gemm *gemm = &args->gemm;
    const size_t size = trm_dtype_size(gemm->out), row = (size_t)args->rows * size;
    TRM_CUDA_TRY(cudaMemcpy2DAsync((char *)gemm->y + (size_t)args->first * size, (size_t)gemm->n * size, args->piece,
                                   row, row, (size_t)gemm->m, cudaMemcpyDeviceToDevice, trm_cuda_stream(stream)));
    return TRM_OK;
}

/* A piece of the weight as floats, its product, and the way of that to its place. */
static trm_status prepare_piece(const trm_kernel_call *call, const trm_dequant_gemm *gemm, piece *p, int64_t first,
                                trm_program *program)
{
    const int64_t rows = gemm->n - first < p->rows ? gemm->n - first : p->rows;
    piece_args *args = trm_program_alloc(program, sizeof(*args));
    trm_layer_desc *layer = trm_program_alloc(program, sizeof(*layer));
    if (args == NULL || layer == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    piece_at(call, gemm, first, rows, p);
    *layer = p->layer;
    p->call.layer = layer;
    *args = (piece_args){*gemm, first, rows, call->workspace, p->call.outputs[0].data};
    if (gemm->k > 0) {
        TRM_TRY(trm_program_append(program, "cuda.dequantize", dequantize, args));
    }
    TRM_TRY(trm_kernel_prepare(p->kernel, &p->call, program));
    return p->out_bytes > 0 ? trm_program_append(program, "cuda.copy", copy_piece, args) : TRM_OK;
}

static trm_status prepare_pieces(const trm_kernel_call *call, const trm_dequant_gemm *gemm, trm_program *program)
{
    piece p;
    if (!make_piece(call, gemm, &p)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a dequant_matmul call does not fit the layer it was accepted for");
    }
    for (int64_t first = 0; first < gemm->n; first += p.rows) {
        TRM_TRY(prepare_piece(call, gemm, &p, first, program));
    }
    return TRM_OK;
}

/* ---- who does it ---- */

typedef enum way {
    WAY_DOT,    /* cuda_dot.cu */
    WAY_ROWS,   /* cuda_rows.cu */
    WAY_WIDE,   /* cuda_wide.cu */
    WAY_TILES,  /* cuda_tiles.cu */
    WAY_PIECES, /* as floats */
    WAY_FP8,    /* cuda_fp8.c */
    WAY_COUNT
} way;

static const char *const way_names[WAY_COUNT] = {"own.dot",   "own.rows",   "own.wide",
                                                 "own.tiles", "own.floats", "library.fp8"};

/* A call that must not depend on its rows leaves x as it is, as few rows do. */
static bool takes_fp8(const trm_kernel_call *call, const trm_dequant_gemm *gemm, trm_fp8_product *product)
{
    return !call->batch_invariant && trm_cuda_fp8_product(gemm, call->workspace, product);
}

static bool way_accepts(way w, const trm_kernel_call *call, const trm_dequant_gemm *gemm)
{
    trm_fp8_product product;
    return w == WAY_FP8     ? takes_fp8(call, gemm, &product)
           : w == WAY_ROWS  ? trm_cuda_dequant_rows_accepts(gemm)
           : w == WAY_DOT   ? !call->batch_invariant && trm_cuda_dequant_dot_accepts(gemm)
           : w == WAY_WIDE  ? !call->batch_invariant && trm_cuda_dequant_wide_accepts(gemm)
           : w == WAY_TILES ? !call->batch_invariant && trm_cuda_dequant_tiles_accepts(gemm)
                            : true;
}

/* Where nothing was timed. A call that must not depend on its rows is done one way whatever their number. */
static way usual_way(const trm_kernel_call *call, const trm_dequant_gemm *gemm)
{
    const int64_t rows = call->batch_invariant ? 1 : gemm->m;
    return way_accepts(WAY_DOT, call, gemm)                         ? WAY_DOT
           : rows <= MOST_ROWS && way_accepts(WAY_ROWS, call, gemm) ? WAY_ROWS
           : way_accepts(WAY_FP8, call, gemm)                       ? WAY_FP8
           : way_accepts(WAY_TILES, call, gemm)                     ? WAY_TILES
           : rows <= MOST_WIDE && way_accepts(WAY_WIDE, call, gemm) ? WAY_WIDE
                                                                    : WAY_PIECES;
}

static trm_choice_key key_of(const trm_dequant_gemm *g)
{
    return (trm_choice_key){{TRM_LAYER_DEQUANT_MATMUL, g->m, g->n, g->k, g->block_n, g->block_k,
                             (int64_t)g->weight_type, (int64_t)g->scale_type, (int64_t)g->in, (int64_t)g->out,
                             g->zero != NULL, (int64_t)g->x_quantization}};
}

typedef struct own_args {
    trm_status (*run)(const trm_dequant_gemm *gemm, cudaStream_t stream);
    trm_dequant_gemm gemm;
} own_args;

static trm_status run_own(void *user, trm_stream *stream)
{
    const own_args *args = user;
    return args->run(&args->gemm, trm_cuda_stream(stream));
}

typedef struct quantize_args {
    const void *x;
    trm_dtype type;
    trm_quantized_rows to;
} quantize_args;

static trm_status quantize(void *user, trm_stream *stream)
{
    const quantize_args *args = user;
    return trm_cuda_quantize_rows(args->x, args->type, &args->to, trm_cuda_stream(stream));
}

static trm_status prepare_fp8(const trm_kernel_call *call, const trm_dequant_gemm *gemm, trm_program *program)
{
    trm_fp8_product product;
    quantize_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (!takes_fp8(call, gemm, &product)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "a dequant_matmul call does not fit the product of e4m3 it was accepted for");
    }
    *args = (quantize_args){gemm->x, gemm->in, product.x};
    TRM_TRY(trm_program_append(program, "cuda.quantize", quantize, args));
    return trm_cuda_fp8_append(&product, program);
}

static trm_status prepare_way(way w, const trm_kernel_call *call, const trm_dequant_gemm *gemm, trm_program *program)
{
    static trm_status (*const runs[])(const trm_dequant_gemm *, cudaStream_t) = {
        [WAY_DOT] = trm_cuda_dequant_dot_run,
        [WAY_ROWS] = trm_cuda_dequant_rows_run,
        [WAY_WIDE] = trm_cuda_dequant_wide_run,
        [WAY_TILES] = trm_cuda_dequant_tiles_run,
    };
    static const char *const names[] = {[WAY_DOT] = "cuda.dequant_dot",
                                        [WAY_ROWS] = "cuda.dequant_rows",
                                        [WAY_WIDE] = "cuda.dequant_wide",
                                        [WAY_TILES] = "cuda.dequant_tiles"};
    if (w == WAY_PIECES) {
        return prepare_pieces(call, gemm, program);
    }
    if (w == WAY_FP8) {
        return prepare_fp8(call, gemm, program);
    }
    own_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = (own_args){runs[w], *gemm};
    return trm_program_append(program, names[w], run_own, args);
}

/* As it was tuned. */
static way chosen_way(const trm_kernel_call *call, const trm_dequant_gemm *gemm)
{
    const trm_choice_key key = key_of(gemm);
    int32_t known;
    return !call->batch_invariant && trm_choice_recall(&key, &known) && way_accepts((way)known, call, gemm)
               ? (way)known
               : usual_way(call, gemm);
}

bool trm_cuda_dequant_takes_fp8(const trm_kernel_call *call, trm_fp8_product *product)
{
    const trm_dequant_gemm gemm = trm_dequant_gemm_of(call);
    return gemm.m > 0 && gemm.n > 0 && chosen_way(call, &gemm) == WAY_FP8 && takes_fp8(call, &gemm, product);
}

/* ---- tactics ---- */

/* A program for each way. */
static trm_status enqueue(void *user, int32_t w)
{
    const trm_program *programs = user;
    int32_t at;
    return trm_program_run(&programs[w], 0, programs[w].n, &at);
}

static void describe_problem(const trm_dequant_gemm *g, char text[TRM_PROBLEM_TEXT_SIZE])
{
    snprintf(text, TRM_PROBLEM_TEXT_SIZE,
             "dequant_matmul m=%lld n=%lld k=%lld %s->%s weight %s scale %s blocks %lldx%lld%s%s", (long long)g->m,
             (long long)g->n, (long long)g->k, trm_dtype_name(g->in), trm_dtype_name(g->out),
             g->weight_type == TRM_U8 ? "i4" : trm_dtype_name(g->weight_type), trm_dtype_name(g->scale_type),
             (long long)g->block_n, (long long)g->block_k, g->zero != NULL ? " zeros" : "",
             g->x_quantization != TRM_X_AS_IS ? " x quantized" : "");
}

static trm_status choose_way(const trm_kernel_call *call, const trm_dequant_gemm *gemm, struct trm_tuner *tuner)
{
    char problem[TRM_PROBLEM_TEXT_SIZE];
    trm_program programs[WAY_COUNT] = {{.n = 0}};
    trm_choice_ways ways = {.names = way_names, .n = WAY_COUNT, .run = enqueue, .user = programs};
    const trm_choice_key key = key_of(gemm);
    const bool fp8 = way_accepts(WAY_FP8, call, gemm);
    trm_status status = TRM_OK;
    for (int i = 0; i < WAY_COUNT && status == TRM_OK; i++) {
        /* The others read the weight anew for every 16 or 64 rows of x: not worth a try where they are many. */
        const bool tried = i == WAY_FP8      ? gemm->m > FEW
                           : i == WAY_PIECES ? gemm->m > FEW && !fp8
                           : i == WAY_TILES  ? gemm->m >= FEW
                                             : gemm->m <= MOST_TRIED;
        const bool accepted = way_accepts((way)i, call, gemm);
        ways.accepted |= (uint32_t)accepted << i;
        ways.tried |= (uint32_t)tried << i;
        programs[i].stream = call->stream;
        status = accepted && tried ? prepare_way((way)i, call, gemm, &programs[i]) : TRM_OK;
    }
    describe_problem(gemm, problem);
    status = status == TRM_OK ? trm_choice_tune(&key, problem, &ways, trm_cuda_stream(call->stream), tuner) : status;
    for (int i = 0; i < WAY_COUNT; i++) {
        trm_program_fini(&programs[i]);
    }
    return status;
}

static trm_status tune(const trm_kernel_call *call, const trm_dequant_gemm *gemm, struct trm_tuner *tuner)
{
    const bool rows = way_accepts(WAY_ROWS, call, gemm); /* and perhaps others of our own */
    trm_fp8_product product;
    piece p;
    if (rows && call->batch_invariant) {
        return TRM_OK;
    }
    if (!(rows && gemm->m <= FEW)) {
        if (takes_fp8(call, gemm, &product)) {
            TRM_TRY(trm_cuda_fp8_tune(&product, call->stream, tuner));
        } else if (make_piece(call, gemm, &p)) {
            TRM_TRY(trm_kernel_tune(p.kernel, &p.call, tuner));
        }
    }
    return rows && !call->batch_invariant ? choose_way(call, gemm, tuner) : TRM_OK;
}

/* ---- the choice ---- */

trm_status trm_cuda_dequant_matmul_prepare(const trm_kernel_call *call, trm_program *program)
{
    const trm_dequant_gemm gemm = trm_dequant_gemm_of(call);
    struct trm_tuner *tuner;
    if (gemm.m == 0 || gemm.n == 0) {
        return TRM_OK;
    }
    if (trm_program_take_tuner(program, &tuner)) {
        TRM_TRY(tune(call, &gemm, tuner));
    }
    return prepare_way(chosen_way(call, &gemm), call, &gemm, program);
}
