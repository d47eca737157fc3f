/*
 * INT8_PRODUCT on tensor cores: which tiles, by timing or by size, and the first convolution of a network for images,
 * whose few channels become 16 of blocks of 2 x 2 positions in the workspace.
 */
#include <stdio.h>

#include "base/error.h"
#include "kernels/cuda/cuda.h"
#include "kernels/int8/cuda_tiles.h"
#include "kernels/kernel_list.h"
#include "kernels/program.h"
#include "kernels/tuner/cuda_tactic_cache.h"

#define BLOCK_BYTES 16
#define WIDEST_ROW  16384 /* bytes of the image, two of which are in shared memory at once */
#define MOST_JOINED 128   /* bytes of a row's taps that are channels together */
#define ALIGNED(x)  (((x) + 255) & ~(size_t)255)

typedef struct tiles_run {
    trm_int8_tiles tiles;
    trm_int8_blocks blocks[2];
    bool makes_blocks;
    int32_t size;
} tiles_run;

/* The same convolution over blocks of positions, with strides of 1 and the taps of a row as channels. */
static bool use_blocks(tiles_run *run, void *workspace)
{
    trm_windows *w = &run->tiles.product.w;
    trm_int8_blocks *x = &run->blocks[0], *weight = &run->blocks[1];
    if (w->channels_in < 1 || w->channels_in > 4 || w->in[0] != 1 || w->kernel[0] != 1 || w->out[0] != 1) {
        return false;
    }
    for (int32_t i = 1; i < TRM_MAX_SPATIAL; i++) {
        if (w->stride[i] != 2 || w->dilation[i] != 1 || w->in[i] > INT32_MAX / 64 || w->kernel[i] > 255) {
            return false;
        }
    }
    if (w->in[2] * w->channels_in > WIDEST_ROW || w->batch * w->in[1] > INT32_MAX / 2) {
        return false;
    }
    run->makes_blocks = true;
    *x = (trm_int8_blocks){.from = run->tiles.product.x, .images = w->batch, .channels = (int32_t)w->channels_in};
    *weight = *x;
    weight->from = run->tiles.product.weight;
    weight->images = run->tiles.product.outputs;
    for (int32_t i = 0; i < 2; i++) {
        weight->before[i] = (int32_t)(w->before[1 + i] & 1);
        x->before[i] = (int32_t)w->before[1 + i] + weight->before[i];
        weight->in[i] = (int32_t)w->kernel[1 + i];
        weight->grid[i] = (weight->in[i] + weight->before[i] + 1) / 2;
        x->in[i] = (int32_t)w->in[1 + i];
        x->grid[i] = (int32_t)w->out[1 + i] + weight->grid[i] - 1;
        w->in[1 + i] = x->grid[i];
        w->kernel[1 + i] = weight->grid[i];
        w->stride[1 + i] = 1;
        w->before[1 + i] = 0;
    }
    x->to = workspace;
    weight->to = (int8_t *)workspace + ALIGNED((size_t)trm_int8_block_count(x) * BLOCK_BYTES);
    w->channels_in = BLOCK_BYTES;
    run->tiles.strides[0] = BLOCK_BYTES;
    run->tiles.strides[1] = (int64_t)x->grid[1] * BLOCK_BYTES;
    run->tiles.strides[2] = run->tiles.strides[1] * x->grid[0];
    if (w->kernel[2] * BLOCK_BYTES <= MOST_JOINED) {
        w->channels_in = w->kernel[2] * BLOCK_BYTES;
        w->kernel[2] = 1;
        w->in[2] = w->out[2];
    }
    w->in_size = w->in[1] * w->in[2];
    w->kernel_size = w->kernel[1] * w->kernel[2];
    run->tiles.product.x = x->to;
    run->tiles.product.weight = weight->to;
    run->tiles.constant = false;
    return true;
}

static bool tiles_of(const trm_kernel_call *call, tiles_run *run)
{
    trm_windows *w = &run->tiles.product.w;
    run->makes_blocks = false;
    if (!trm_int8_product_args_of(call, &run->tiles.product)) {
        return false;
    }
    run->tiles.constant = (call->constants >> TRM_INT8_PRODUCT_WEIGHT & 1) != 0;
    run->tiles.strides[0] = w->channels_in;
    run->tiles.strides[1] = w->channels_in * w->in[2];
    run->tiles.strides[2] = w->channels_in * w->in_size;
    return (w->channels_in % 16 == 0 || use_blocks(run, call->workspace)) && trm_cuda_int8_tiles_fit(&run->tiles);
}

bool trm_cuda_int8_tiles_accepts(const trm_kernel_call *call)
{
    tiles_run run;
    return tiles_of(call, &run);
}

size_t trm_cuda_int8_tiles_workspace(const trm_kernel_call *call)
{
    tiles_run run;
    if (!tiles_of(call, &run) || !run.makes_blocks) {
        return 0;
    }
    return ALIGNED((size_t)trm_int8_block_count(&run.blocks[0]) * BLOCK_BYTES) +
           ALIGNED((size_t)trm_int8_block_count(&run.blocks[1]) * BLOCK_BYTES);
}

/* ---- tactics ---- */

static trm_choice_key key_of(const trm_int8_tiles *t)
{
    const trm_int8_product_args *p = &t->product;
    const trm_windows *w = &p->w;
    return (trm_choice_key){{TRM_LAYER_INT8_PRODUCT, w->batch, w->in[1] << 32 | w->in[2], w->out[1] << 32 | w->out[2],
                             w->channels_in, p->outputs, w->kernel[1] << 32 | w->kernel[2],
                             w->stride[1] << 32 | w->stride[2], w->dilation[1] << 32 | w->dilation[2],
                             (int64_t)p->out << 32 | (int64_t)p->residual_type, (int64_t)p->activation}};
}

static void describe_problem(const trm_int8_tiles *t, char text[TRM_PROBLEM_TEXT_SIZE])
{
    const trm_int8_product_args *p = &t->product;
    const trm_windows *w = &p->w;
    snprintf(text, TRM_PROBLEM_TEXT_SIZE,
             "int8_product n=%lld in=%lldx%lld out=%lldx%lld c=%lld m=%lld kernel=%lldx%lld stride=%lldx%lld "
             "dilation=%lldx%lld to %s residual %s activation=%d",
             (long long)w->batch, (long long)w->in[1], (long long)w->in[2], (long long)w->out[1], (long long)w->out[2],
             (long long)w->channels_in, (long long)p->outputs, (long long)w->kernel[1], (long long)w->kernel[2],
             (long long)w->stride[1], (long long)w->stride[2], (long long)w->dilation[1], (long long)w->dilation[2],
             trm_dtype_name(p->out), p->residual != NULL ? trm_dtype_name(p->residual_type) : "none",
             (int)p->activation);
}

typedef struct timed {
    const trm_int8_tiles *tiles;
    cudaStream_t stream;
} timed;

static trm_status enqueue(void *user, int32_t size)
{
    const timed *t = user;
    return trm_cuda_int8_tiles_launch(t->tiles, size, t->stream);
}

static trm_status tune(const trm_kernel_call *call, const trm_int8_tiles *tiles, struct trm_tuner *tuner)
{
    static const char *const names[] = {
#define NAME(rows, columns, splits, share) "own." #rows "x" #columns "x" #splits "x" #share,
        TRM_INT8_TILES(NAME)
#undef NAME
    };
    char problem[TRM_PROBLEM_TEXT_SIZE];
    uint32_t all = 0;
    timed t = {tiles, trm_cuda_stream(call->stream)};
    for (int32_t i = 0; i < TRM_INT8_TILE_COUNT; i++) {
        all |= (uint32_t)trm_cuda_int8_tiles_can_split(tiles, i) << i;
    }
    const trm_choice_ways ways = {
        .names = names, .n = TRM_INT8_TILE_COUNT, .accepted = all, .tried = all, .run = enqueue, .user = &t};
    const trm_choice_key key = key_of(tiles);
    describe_problem(tiles, problem);
    return trm_choice_tune(&key, problem, &ways, t.stream, tuner);
}

/* ---- the launch ---- */

static trm_status run_tiles(void *user, trm_stream *stream)
{
    const tiles_run *run = user;
    cudaStream_t native = trm_cuda_stream(stream);
    if (run->makes_blocks) {
        TRM_TRY(trm_cuda_int8_blocks(run->blocks, native));
    }
    return trm_cuda_int8_tiles_launch(&run->tiles, run->size, native);
}

trm_status trm_cuda_int8_tiles_run(const trm_kernel_call *call, int32_t size)
{
    tiles_run run = {.size = size};
    (void)trm_cuda_stream(call->stream);
    if (!tiles_of(call, &run)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "an int8_product call does not fit the tiles it was accepted for");
    }
    return run_tiles(&run, call->stream);
}

trm_status trm_cuda_int8_tiles_prepare(const trm_kernel_call *call, trm_program *program)
{
    struct trm_tuner *tuner;
    const bool tunes = trm_program_take_tuner(program, &tuner);
    tiles_run *run = trm_program_alloc(program, sizeof(*run));
    if (run == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    (void)trm_cuda_stream(call->stream); /* whose device becomes the thread's */
    if (!tiles_of(call, run)) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "an int8_product call does not fit the tiles it was accepted for");
    }
    if (tunes) {
        TRM_TRY(tune(call, &run->tiles, tuner));
    }
    const trm_choice_key key = key_of(&run->tiles);
    if (!trm_choice_recall(&key, &run->size)) {
        run->size = trm_cuda_int8_tiles_choose(&run->tiles);
    }
    return trm_program_append(program, "cuda.int8_tiles", run_tiles, run);
}
