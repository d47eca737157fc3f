/*
 * Products in the batch-invariant mode on CUDA device 0 beside those without it: shapes of Llama-3-8B, several numbers
 * of rows, weights cold.
 *
 *   bench_invariant [--splits]
 *
 * With --splits: every form and number of splits of k. Each figure is the median of several launches of
 * a captured chain of calls. The roofs: 4.55 TB/s for the weights, 800 TFLOP/s.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "bench/common.h"
#include "kernels/cuda/cuda.h"
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/program.h"

#define COLD_BYTES ((size_t)512 << 20)

typedef struct product {
    trm_layer_desc layer;
    trm_kernel_call call;
    const trm_kernel *kernel;
    int32_t copies, form, splits; /* splits > 0: of kernels/matmul/cuda_invariant.cu, as given */
} product;

static trm_status enqueue(void *user, int32_t i)
{
    const product *p = user;
    trm_kernel_call call = p->call;
    call.inputs[1].data = (char *)call.inputs[1].data + bench_bytes_of(&call.inputs[1]) * (size_t)(i % p->copies);
    if (p->splits == 0) {
        return trm_kernel_run(p->kernel, &call);
    }
    const trm_view *x = &call.inputs[0], *weight = &call.inputs[1];
    trm_gemm gemm = {.m = x->dims.d[0],
                     .n = weight->dims.d[0],
                     .k = x->dims.d[1],
                     .batch = 1,
                     .row_a = x->dims.d[1],
                     .transpose_b = true,
                     .constant_b = true,
                     .in = TRM_BF16,
                     .out = TRM_BF16,
                     .a = x->data,
                     .b = weight->data,
                     .c = call.outputs[0].data};
    return trm_cuda_invariant_run_as(&gemm, p->form, p->splits, trm_cuda_stream(call.stream));
}

static trm_status time_product(const bench *b, product *p, float *us)
{
    TRM_TRY(enqueue(p, 0));
    TRM_TRY(trm_stream_synchronize(b->stream));
    TRM_TRY(bench_time(b, p->call.inputs[0].dims.d[0] > 256 ? 8 : 32, enqueue, p, us));
    *us *= 1e3f;
    return TRM_OK;
}

static trm_status report(const bench *b, product *p, const char *name, bool sweep)
{
    static const trm_kernel_table *const tables[] = {&trm_cuda_kernels};
    const int64_t m = p->call.inputs[0].dims.d[0], n = p->call.inputs[1].dims.d[0], k = p->call.inputs[0].dims.d[1];
    float us[2] = {0.0f, 0.0f};
    for (int mode = 0; mode < 2; mode++) {
        p->call.batch_invariant = mode == 1;
        p->kernel = trm_kernel_find(tables, 1, TRM_BACKEND_CUDA, &p->call);
        p->call.workspace_size = p->kernel->workspace != NULL ? p->kernel->workspace(&p->call) : 0;
        TRM_TRY(trm_device_alloc(b->device, p->call.workspace_size, &p->call.workspace));
        TRM_TRY(trm_kernel_tune(p->kernel, &p->call, NULL));
        TRM_TRY(time_product(b, p, &us[mode]));
        trm_device_free(b->device, p->call.workspace);
        p->call.workspace = NULL;
    }
    printf("%-8s %5d rows: %8.2f us, invariant %8.2f us, %5.1f %% of memory, %4.0f TFLOP/s\n", name, (int)m,
           (double)us[0], (double)us[1], (double)(n * k * 2) / (double)us[1] / 4.55e4,
           (double)(2 * n * k * m) / (double)us[1] * 1e-6);
    if (sweep) {
        const trm_invariant_form *forms;
        const int32_t n_forms = trm_cuda_invariant_forms(&forms);
        for (p->form = 0; p->form < n_forms; p->form++) {
            const trm_invariant_form *f = &forms[p->form];
            if (m > 128 ? f->rows < 128 : f->walk || f->rows < m || (f->rows >= 2 * m && f->rows > 8)) {
                continue;
            }
            printf("  %d rows%s:", (int)f->rows, f->walk ? ", walk" : "");
            for (p->splits = 1; p->splits <= (f->walk ? 1 : f->most_splits); p->splits++) {
                TRM_TRY(time_product(b, p, &us[0]));
                printf(" %.2f", (double)us[0]);
            }
            printf("\n");
            p->splits = 0;
        }
    }
    fflush(stdout);
    return TRM_OK;
}

static trm_status run(bench *b)
{
    static const struct {
        const char *name;
        int64_t n, k;
    } shapes[] = {{"qkv", 6144, 4096},
                  {"o", 4096, 4096},
                  {"gate+up", 28672, 4096},
                  {"down", 4096, 14336},
                  {"head", 128256, 4096}};
    static const int64_t rows[] = {1, 8, 16, 32, 64, 128, 256, 2048};
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        const int64_t n = shapes[s].n, k = shapes[s].k;
        product p = {.layer = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true, .out = TRM_BF16}},
                     .call = {.n_inputs = 2, .n_outputs = 1, .constants = 2, .stream = b->stream}};
        p.call.layer = &p.layer;
        p.copies = (int32_t)(COLD_BYTES / (size_t)(n * k * 2)) + 1;
        TRM_TRY(bench_add_floats(b, &p.call.inputs[0], TRM_BF16, (trm_dims){2, {2048, k}}, 1, 1));
        TRM_TRY(bench_add_floats(b, &p.call.inputs[1], TRM_BF16, (trm_dims){2, {n, k}}, p.copies, 2));
        TRM_TRY(bench_add_floats(b, &p.call.outputs[0], TRM_BF16, (trm_dims){2, {2048, n}}, 1, 3));
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            if (n > 100000 && rows[r] > 64) {
                continue;
            }
            p.call.inputs[0].dims.d[0] = p.call.outputs[0].dims.d[0] = rows[r];
            const bool sweep = b->only != NULL && (rows[r] == 1 || rows[r] == 16 || rows[r] == 64 || rows[r] == 2048);
            TRM_TRY(report(b, &p, shapes[s].name, sweep));
        }
        bench_free_call(b, &p.call);
    }
    return TRM_OK;
}

int main(int argc, char **argv)
{
    bench b = {.name = "bench_invariant", .backend = TRM_BACKEND_CUDA};
    if (argc > 1 && strcmp(argv[1], "--splits") == 0) {
        b.only = argv[1];
    }
    return bench_main(&b, "products of Llama-3-8B in bf16", run);
}
