/*
 * Products of numbers of e4m3 on CUDA device 0, and what makes them: rows that are quantized alone, with their norm and
 * with their GLU, then the library's product, with scales of rows and of 128 x 128 blocks. Shapes of Llama-3-8B and
 * 8192 cubed.
 *
 *   bench_fp8 [--json] [--only TEXT]
 *
 * Each figure is the median of several launches of a captured chain of calls; products rotate through copies of the
 * weight, more than the caches hold. The roof of a product is the
 * longer of its bytes at what a plain kernel reads on an H200 and its arithmetic at the rate of the data sheet, that of
 * rows their bytes. TEXT is part of a line's name.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "bench/common.h"
#include "kernels/cuda/cuda.h"
#include "kernels/dequant/cuda.h"
#include "kernels/norm/cuda.h"

#define ROOF_GBS    4550.0
#define ROOF_TFLOPS 1979.0
#define COLD_BYTES  ((size_t)320 << 20)
#define MOST_COPIES 32

typedef enum step { ROWS, NORM, GLU, PRODUCT, STEPS } step;

static const char *const step_names[STEPS] = {"rows", "norm", "glu", "product"};

typedef struct problem {
    trm_kernel_call call; /* owns the memory: x [rows, 2 * k], residual, norm weight, weight, scale; y, sum */
    trm_layer_desc norm_layer;
    trm_kernel_call norm;
    trm_dequant_gemm gemm;
    trm_fp8_product product;
    trm_program programs[MOST_COPIES]; /* [copies] of the product */
    int32_t copies;
    step step;
} problem;

enum { X, RESIDUAL, NORM_WEIGHT, WEIGHT, SCALE, N_INPUTS };

static trm_status enqueue(void *user, int32_t i)
{
    problem *p = user;
    const trm_view *x = &p->call.inputs[X];
    const cudaStream_t stream = trm_cuda_stream(p->call.stream);
    const trm_program *program = &p->programs[i % p->copies];
    int32_t at;
    switch (p->step) {
    case ROWS:
        return trm_cuda_quantize_rows(x->data, x->dtype, &p->product.x, stream);
    case NORM:
        return trm_cuda_norm_quantized(&p->norm, &p->product.x, stream);
    case GLU:
        return trm_cuda_quantize_glu(x->data, x->dtype, TRM_ACTIVATION_SILU, &p->product.x, stream);
    default:
        return trm_program_run(program, 0, program->n, &at);
    }
}

/* Copies of a weight [n, k] of random numbers, each row's largest 448, and a scale for each. */
static trm_status add_weight(const bench *b, problem *p, int64_t n, int64_t k, int64_t scales)
{
    trm_view floats, *weight = &p->call.inputs[WEIGHT];
    TRM_TRY(bench_add_floats(b, &p->call.inputs[SCALE], TRM_F32, (trm_dims){2, {n, scales}}, 1, 3));
    *weight = (trm_view){NULL, TRM_F8E4M3, {2, {n, k}}};
    TRM_TRY(trm_device_alloc(b->device, bench_bytes_of(weight) * (size_t)p->copies, &weight->data));
    TRM_TRY(bench_add_floats(b, &floats, TRM_BF16, (trm_dims){2, {n, k}}, 1, 5));
    trm_status status = TRM_OK;
    for (int32_t i = 0; i < p->copies && status == TRM_OK; i++) {
        const trm_quantized_rows to = {.m = n,
                                       .k = k,
                                       .group = (int32_t)k,
                                       .quantization = TRM_X_DYNAMIC,
                                       .numbers = (uint8_t *)weight->data + (size_t)i * bench_bytes_of(weight),
                                       .rows = n,
                                       .scales = p->call.inputs[SCALE].data};
        status = trm_cuda_quantize_rows(floats.data, TRM_BF16, &to, trm_cuda_stream(b->stream));
    }
    status = status == TRM_OK ? trm_stream_synchronize(b->stream) : status;
    trm_device_free(b->device, floats.data);
    return status;
}

static trm_status make_programs(const bench *b, problem *p)
{
    for (int32_t i = 0; i < p->copies; i++) {
        trm_dequant_gemm gemm = p->gemm;
        gemm.weight = (const char *)gemm.weight + (size_t)i * bench_bytes_of(&p->call.inputs[WEIGHT]);
        p->programs[i].stream = b->stream;
        if (!trm_cuda_fp8_product(&gemm, p->call.workspace, &p->product)) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "the library does not do the product");
        }
        TRM_TRY(i == 0 ? trm_cuda_fp8_tune(&p->product, b->stream, NULL) : TRM_OK);
        TRM_TRY(trm_cuda_fp8_append(&p->product, &p->programs[i]));
    }
    return TRM_OK;
}

static trm_status make_problem(const bench *b, int64_t m, int64_t n, int64_t k, bool blocks, problem *p)
{
    trm_kernel_call *call = &p->call;
    *call = (trm_kernel_call){.n_inputs = N_INPUTS, .n_outputs = 2, .stream = b->stream};
    p->copies = (int32_t)(COLD_BYTES / (size_t)(n * k)) + 1;
    p->copies = p->copies < MOST_COPIES ? p->copies : MOST_COPIES;
    TRM_TRY(bench_add_floats(b, &call->inputs[X], TRM_BF16, (trm_dims){2, {m, 2 * k}}, 1, 1));
    TRM_TRY(bench_add_floats(b, &call->inputs[RESIDUAL], TRM_BF16, (trm_dims){2, {m, k}}, 1, 2));
    TRM_TRY(bench_add_floats(b, &call->inputs[NORM_WEIGHT], TRM_BF16, (trm_dims){1, {k}}, 1, 4));
    TRM_TRY(add_weight(b, p, n, k, 1));
    TRM_TRY(bench_add_floats(b, &call->outputs[0], TRM_BF16, (trm_dims){2, {m, n}}, 1, 6));
    TRM_TRY(bench_add_floats(b, &call->outputs[1], TRM_BF16, (trm_dims){2, {m, k}}, 1, 7));
    p->norm_layer = (trm_layer_desc){.kind = TRM_LAYER_NORM, .norm = {.residual = true, .eps = 1e-5f}};
    p->norm = (trm_kernel_call){.layer = &p->norm_layer, .n_inputs = 3, .n_outputs = 2, .stream = b->stream};
    p->norm.inputs[0] = call->inputs[RESIDUAL];
    p->norm.inputs[1] = (trm_view){call->inputs[X].data, TRM_BF16, {2, {m, k}}};
    p->norm.inputs[2] = call->inputs[NORM_WEIGHT];
    p->norm.outputs[0] = p->norm.outputs[1] = call->outputs[1];
    p->gemm = (trm_dequant_gemm){.m = m,
                                 .n = n,
                                 .k = k,
                                 .block_n = blocks ? 128 : 1,
                                 .block_k = blocks ? 128 : k,
                                 .scale_row = blocks ? k / 128 : 1,
                                 .weight_type = TRM_F8E4M3,
                                 .scale_type = TRM_F32,
                                 .in = TRM_BF16,
                                 .out = TRM_BF16,
                                 .x_quantization = TRM_X_DYNAMIC,
                                 .x = call->inputs[X].data,
                                 .weight = call->inputs[WEIGHT].data,
                                 .scale = call->inputs[SCALE].data,
                                 .y = call->outputs[0].data};
    call->workspace_size = trm_cuda_fp8_workspace(&p->gemm);
    TRM_TRY(trm_device_alloc(b->device, call->workspace_size, &call->workspace));
    return make_programs(b, p);
}

static void report(bench *b, const char *name, const problem *p, double us)
{
    const double m = (double)p->gemm.m, n = (double)p->gemm.n, k = (double)p->gemm.k;
    const double product = n * k + m * k + 2.0 * m * n;
    const double bytes[STEPS] = {3.0 * m * k, 7.0 * m * k, 5.0 * m * k, product};
    const double flops = p->step >= PRODUCT ? 2.0 * m * n * k : 0.0;
    const double by_bytes = bytes[p->step] / ROOF_GBS * 1e-3, by_flops = flops / ROOF_TFLOPS * 1e-6;
    const double roof = by_bytes > by_flops ? by_bytes : by_flops;
    if (b->json) {
        printf("%s  {\"name\": \"%s\", \"rows\": %lld, \"step\": \"%s\", \"microseconds\": %.2f, \"gb_per_s\": %.0f, "
               "\"tflops\": %.0f, \"of_roof\": %.3f}",
               b->first ? "" : ",\n", name, (long long)p->gemm.m, step_names[p->step], us, bytes[p->step] / us * 1e-3,
               flops / us * 1e-6, roof / us);
    } else {
        printf("%-24s %5lld %-18s %9.2f %8.0f %8.0f %6.1f %%\n", name, (long long)p->gemm.m, step_names[p->step], us,
               bytes[p->step] / us * 1e-3, flops / us * 1e-6, roof / us * 100.0);
    }
    fflush(stdout);
    b->first = false;
}

static trm_status run_problem(bench *b, const char *name, int64_t m, int64_t n, int64_t k, bool blocks)
{
    static problem p;
    float milliseconds;
    memset(&p, 0, sizeof(p));
    trm_status status = make_problem(b, m, n, k, blocks, &p);
    for (int32_t s = 0; s < STEPS && status == TRM_OK; s++) {
        p.step = (step)s;
        TRM_TRY_GOTO(status, enqueue(&p, 0), done); /* outside of the capture first: code is loaded then */
        TRM_TRY_GOTO(status, trm_stream_synchronize(b->stream), done);
        TRM_TRY_GOTO(status, bench_time(b, m > 256 ? 8 : MOST_COPIES, enqueue, &p, &milliseconds), done);
        report(b, name, &p, (double)milliseconds * 1e3);
    }
done:
    for (int32_t i = 0; i < p.copies; i++) {
        trm_program_fini(&p.programs[i]);
    }
    bench_free_call(b, &p.call);
    return status;
}

static trm_status run(bench *b)
{
    static const struct {
        const char *name;
        int64_t n, k;
    } shapes[] = {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate+up", 28672, 4096}, {"down", 4096, 14336}};
    static const int64_t rows[] = {32, 128, 511, 2048};
    for (int32_t blocks = 0; blocks < 2; blocks++) {
        const char *scales = blocks ? "blocks" : "rows";
        char name[64];
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            snprintf(name, sizeof(name), "%s, %s", shapes[i].name, scales);
            for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
                TRM_TRY(b->only == NULL || strstr(name, b->only) != NULL
                            ? run_problem(b, name, rows[r], shapes[i].n, shapes[i].k, blocks)
                            : TRM_OK);
            }
        }
        snprintf(name, sizeof(name), "8192 cubed, %s", scales);
        TRM_TRY(b->only == NULL || strstr(name, b->only) != NULL ? run_problem(b, name, 8192, 8192, 8192, blocks)
                                                                 : TRM_OK);
    }
    return TRM_OK;
}

int main(int argc, char **argv)
{
    bench b = {.name = "bench_fp8", .backend = TRM_BACKEND_CUDA};
    char heading[128];
    if (!bench_read_options(&b, argc, argv, "--only")) {
        return 2;
    }
    snprintf(heading, sizeof(heading), "%-24s %5s %-18s %9s %8s %8s %8s", "product", "rows", "step", "us", "GB/s",
             "TFLOP/s", "of roof");
    return bench_main(&b, heading, run);
}
