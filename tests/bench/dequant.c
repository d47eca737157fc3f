/*
 * Products with quantized weights on CUDA device 0: shapes of Llama-3-8B, types and blocks of weights as checkpoints
 * have them, several numbers of rows.
 *
 *   bench_dequant [--json] [--only TEXT]
 *
 * Each figure is the median of several launches of a captured chain of calls that rotate through copies of the weight,
 * more than the caches hold. Bytes are those of weight, scales and zero points; the roof is what a plain kernel reads
 * on an H200. TEXT is part of a line's name.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "bench/common.h"
#include "kernels/program.h"

#define ROOF_GBS   4550.0
#define COLD_BYTES ((size_t)320 << 20)

typedef struct weight_form {
    const char *name;
    trm_dtype weight, scale;
    int32_t block_n, block_k;
    bool zero;
    trm_x_quantization x;
} weight_form;

typedef struct problem {
    trm_layer_desc layer;
    trm_kernel_call call;
    const trm_kernel *kernel;
    int32_t copies;
} problem;

static trm_status enqueue(void *user, int32_t i)
{
    const problem *p = user;
    trm_kernel_call call = p->call;
    trm_view *weight = &call.inputs[TRM_DEQUANT_MATMUL_WEIGHT];
    weight->data = (char *)weight->data + bench_bytes_of(weight) * (size_t)(i % p->copies);
    return trm_kernel_run(p->kernel, &call);
}

/* `copies` times `dims` of a type of one byte, of any bits. */
static trm_status add_bytes(const bench *b, trm_view *view, trm_dtype dtype, trm_dims dims, int32_t copies)
{
    const int64_t count = trm_dims_count(&dims) * copies;
    TRM_TRY(bench_add_floats(b, view, TRM_BF16, (trm_dims){1, {(count + 1) / 2}}, 1, 5));
    view->dtype = dtype;
    view->dims = dims;
    return TRM_OK;
}

static trm_status make_problem(const bench *b, const weight_form *f, int64_t n, int64_t k, int64_t rows, problem *p)
{
    const int64_t columns = f->weight == TRM_U8 || f->weight == TRM_F4E2M1 ? k / 2 : k;
    const trm_dims scale = {2, {(n + f->block_n - 1) / f->block_n, f->block_k > 0 ? k / f->block_k : 1}};
    trm_view *inputs = p->call.inputs;
    p->layer = (trm_layer_desc){.kind = TRM_LAYER_DEQUANT_MATMUL,
                                .dequant_matmul = {f->block_n, f->block_k, TRM_BF16, f->x, 0.0f}};
    p->call.layer = &p->layer;
    p->call.stream = b->stream;
    p->call.n_inputs = f->zero ? TRM_DEQUANT_MATMUL_INPUT_COUNT : TRM_DEQUANT_MATMUL_SCALE + 1;
    p->call.n_outputs = 1;
    p->call.constants = ~1u;
    p->copies = (int32_t)(COLD_BYTES / (size_t)(n * columns)) + 1;
    TRM_TRY(bench_add_floats(b, &inputs[TRM_DEQUANT_MATMUL_X], TRM_BF16, (trm_dims){2, {rows, k}}, 1, 1));
    TRM_TRY(add_bytes(b, &inputs[TRM_DEQUANT_MATMUL_WEIGHT], f->weight, (trm_dims){2, {n, columns}}, p->copies));
    TRM_TRY(bench_add_floats(b, &inputs[TRM_DEQUANT_MATMUL_SCALE], f->scale, scale, 1, 3));
    if (f->zero) {
        TRM_TRY(add_bytes(b, &inputs[TRM_DEQUANT_MATMUL_ZERO_POINT], TRM_U8, scale, 1));
    }
    return bench_add_floats(b, &p->call.outputs[0], TRM_BF16, (trm_dims){2, {rows, n}}, 1, 4);
}

static void report(bench *b, const char *name, int64_t rows, size_t bytes, double us)
{
    const double rate = (double)bytes / us * 1e-3;
    if (b->json) {
        printf("%s  {\"name\": \"%s\", \"rows\": %lld, \"bytes\": %zu, \"microseconds\": %.2f, \"gb_per_s\": %.0f, "
               "\"of_roof\": %.3f}",
               b->first ? "" : ",\n", name, (long long)rows, bytes, us, rate, rate / ROOF_GBS);
    } else {
        printf("%-34s %5lld %12zu %9.2f %8.0f %6.1f %%\n", name, (long long)rows, bytes, us, rate,
               rate / ROOF_GBS * 100.0);
    }
    fflush(stdout);
    b->first = false;
}

static trm_status run_rows(bench *b, const char *name, problem *p, int64_t rows)
{
    static const trm_kernel_table *const tables[] = {&trm_cuda_kernels};
    trm_kernel_call *call = &p->call;
    float milliseconds = 0.0f;
    call->inputs[TRM_DEQUANT_MATMUL_X].dims.d[0] = call->outputs[0].dims.d[0] = rows;
    p->kernel = trm_kernel_find(tables, 1, TRM_BACKEND_CUDA, call);
    if (p->kernel == NULL) {
        return trm_fail(TRM_ERROR_UNSUPPORTED, "%s has no kernel", name);
    }
    call->workspace_size = p->kernel->workspace(call);
    TRM_TRY(trm_device_alloc(b->device, call->workspace_size, &call->workspace));
    trm_status status = trm_kernel_tune(p->kernel, call, NULL);
    TRM_TRY_GOTO(status, status, done);
    TRM_TRY_GOTO(status, enqueue(p, 0), done); /* outside of the capture first: code is loaded then */
    TRM_TRY_GOTO(status, trm_stream_synchronize(b->stream), done);
    TRM_TRY_GOTO(status, bench_time(b, rows > 256 ? 8 : 32, enqueue, p, &milliseconds), done);
    size_t bytes = 0;
    for (int32_t i = TRM_DEQUANT_MATMUL_WEIGHT; i < call->n_inputs; i++) {
        bytes += call->inputs[i].data != NULL ? bench_bytes_of(&call->inputs[i]) : 0;
    }
    report(b, name, rows, bytes, (double)milliseconds * 1e3);
done:
    trm_device_free(b->device, call->workspace);
    call->workspace = NULL;
    return status;
}

static trm_status run(bench *b)
{
    static const struct {
        const char *name;
        int64_t n, k;
    } shapes[] = {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate+up", 28672, 4096}, {"down", 4096, 14336}};
    static const weight_form forms[] = {
        {"fp8 by row", TRM_F8E4M3, TRM_F32, 1, 0, false, TRM_X_AS_IS},
        {"fp8 by row, x quantized", TRM_F8E4M3, TRM_F32, 1, 0, false, TRM_X_DYNAMIC},
        {"fp8 128x128", TRM_F8E4M3, TRM_F32, 128, 128, false, TRM_X_AS_IS},
        {"fp8 128x128, x quantized", TRM_F8E4M3, TRM_F32, 128, 128, false, TRM_X_DYNAMIC},
        {"int8 by row", TRM_I8, TRM_F32, 1, 0, false, TRM_X_AS_IS},
        {"int4 by row", TRM_U8, TRM_F16, 1, 0, false, TRM_X_AS_IS},
        {"int4 by 128", TRM_U8, TRM_F16, 1, 128, false, TRM_X_AS_IS},
        {"int4 by 64", TRM_U8, TRM_F16, 1, 64, false, TRM_X_AS_IS},
        {"int4 by 32", TRM_U8, TRM_F16, 1, 32, false, TRM_X_AS_IS},
        {"nvfp4", TRM_F4E2M1, TRM_F32, 1, 16, false, TRM_X_AS_IS},
        {"mxfp4", TRM_F4E2M1, TRM_F32, 1, 32, false, TRM_X_AS_IS},
        {"int4 by 128, zeros", TRM_U8, TRM_F16, 1, 128, true, TRM_X_AS_IS},
    };
    static const int64_t rows[] = {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]) * sizeof(shapes) / sizeof(shapes[0]); i++) {
        const weight_form *f = &forms[i / (sizeof(shapes) / sizeof(shapes[0]))];
        const size_t s = i % (sizeof(shapes) / sizeof(shapes[0]));
        char name[64];
        snprintf(name, sizeof(name), "%s, %s", shapes[s].name, f->name);
        if (b->only != NULL && strstr(name, b->only) == NULL) {
            continue;
        }
        problem p = {.copies = 0};
        trm_status status = make_problem(b, f, shapes[s].n, shapes[s].k, 2048, &p);
        for (size_t r = 0; status == TRM_OK && r < sizeof(rows) / sizeof(rows[0]); r++) {
            status = run_rows(b, name, &p, rows[r]);
        }
        bench_free_call(b, &p.call);
        TRM_TRY(status);
    }
    return TRM_OK;
}

int main(int argc, char **argv)
{
    bench b = {.name = "bench_dequant", .backend = TRM_BACKEND_CUDA};
    char heading[128];
    if (!bench_read_options(&b, argc, argv, "--only")) {
        return 2;
    }
    snprintf(heading, sizeof(heading), "%-34s %5s %12s %9s %8s %8s", "product", "rows", "bytes", "us", "GB/s",
             "of roof");
    return bench_main(&b, heading, run);
}
