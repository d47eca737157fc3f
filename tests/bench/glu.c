/*
 * Products with their GLU of some hundred rows on CUDA device 0, bf16, weights cold: the library's product and the GLU
 * one after the other, and both as one kernel of ours.
 *
 *   bench_glu [--json]
 *
 * Each figure is the median of several launches of a captured chain of calls that rotate through copies of the weight,
 * more than the caches hold. Bytes are those of the weight; the roof is what a plain kernel reads on an H200. The last
 * column is the largest difference between the two results, of the largest element.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "bench/common.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kernel.h"
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/matmul_fused/matmul_glu.h"

#define ROOF_GBS   4550.0
#define COLD_BYTES ((size_t)512 << 20)

enum { TWO, ONE, WAYS };

TRM_KERNEL_OF_PARTS(static, two_kernels, TRM_BACKEND_CUDA, trm_matmul_glu_parts)

static const trm_kernel two_kernels = {
    .accepts = two_kernels_accepts, .workspace = two_kernels_workspace, .prepare = two_kernels_prepare};

typedef struct product {
    trm_layer_desc layer;
    trm_kernel_call call;
    trm_gemm gemm;
    int32_t copies;
    int way;
} product;

static trm_status enqueue(void *user, int32_t i)
{
    const product *p = user;
    trm_kernel_call call = p->call;
    trm_gemm gemm = p->gemm;
    call.inputs[1].data = (char *)call.inputs[1].data + bench_bytes_of(&call.inputs[1]) * (size_t)(i % p->copies);
    gemm.b = call.inputs[1].data;
    return p->way == TWO ? trm_kernel_run(&two_kernels, &call)
                         : trm_cuda_glu_product_run(&gemm, trm_cuda_stream(call.stream));
}

static trm_status make_product(const bench *b, int64_t m, int64_t n, int64_t k, product *p)
{
    trm_kernel_call *call = &p->call;
    p->layer = (trm_layer_desc){.kind = TRM_LAYER_MATMUL_GLU, .glu = {TRM_ACTIVATION_SILU}};
    *call = (trm_kernel_call){.layer = &p->layer, .n_inputs = 2, .n_outputs = 1, .constants = 2, .stream = b->stream};
    p->copies = (int32_t)(COLD_BYTES / (size_t)(n * k * 4)) + 1;
    TRM_TRY(bench_add_floats(b, &call->inputs[0], TRM_BF16, (trm_dims){2, {m, k}}, 1, 1));
    TRM_TRY(bench_add_floats(b, &call->inputs[1], TRM_BF16, (trm_dims){2, {2 * n, k}}, p->copies, 2));
    TRM_TRY(bench_add_floats(b, &call->outputs[0], TRM_BF16, (trm_dims){2, {m, n}}, 1, 3));
    call->workspace_size = two_kernels.workspace(call);
    TRM_TRY(trm_device_alloc(b->device, call->workspace_size, &call->workspace));
    p->gemm = (trm_gemm){.m = m,
                         .n = n,
                         .k = k,
                         .batch = 1,
                         .row_a = k,
                         .transpose_b = true,
                         .constant_b = true,
                         .in = TRM_BF16,
                         .out = TRM_BF16,
                         .activation = TRM_ACTIVATION_SILU,
                         .a = call->inputs[0].data,
                         .b = call->inputs[1].data,
                         .c = call->outputs[0].data};
    if (!trm_cuda_glu_product_accepts(&p->gemm)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "the kernel does not take the product");
    }
    return trm_kernel_parts_tune(call, TRM_BACKEND_CUDA, trm_matmul_glu_parts, NULL);
}

/* What a way makes of the first copy of the weight, as bf16; the caller frees it. */
static trm_status result_of(const bench *b, product *p, int way, uint16_t **values)
{
    const trm_view *out = &p->call.outputs[0];
    *values = malloc(bench_bytes_of(out));
    if (*values == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a result");
    }
    p->way = way;
    TRM_TRY(enqueue(p, 0));
    TRM_TRY(trm_stream_download(b->stream, *values, out->data, bench_bytes_of(out)));
    return trm_stream_synchronize(b->stream);
}

static trm_status compare(const bench *b, product *p, double *difference)
{
    uint16_t *values[WAYS] = {NULL};
    double largest = 0.0, apart = 0.0;
    trm_status status = result_of(b, p, TWO, &values[TWO]);
    status = status == TRM_OK ? result_of(b, p, ONE, &values[ONE]) : status;
    for (int64_t i = 0; status == TRM_OK && i < trm_dims_count(&p->call.outputs[0].dims); i++) {
        const double x = (double)trm_bf16_to_f32(values[TWO][i]), y = (double)trm_bf16_to_f32(values[ONE][i]);
        largest = fmax(largest, fabs(x));
        apart = fmax(apart, isnan(y) ? INFINITY : fabs(x - y));
    }
    *difference = apart / largest;
    free(values[TWO]);
    free(values[ONE]);
    return status;
}

static trm_status report(bench *b, const char *name, int64_t m, int64_t n, int64_t k)
{
    float ms[WAYS];
    double difference;
    product p = {0};
    trm_status status = make_product(b, m, n, k, &p);
    TRM_TRY_GOTO(status, status, done);
    TRM_TRY_GOTO(status, compare(b, &p, &difference), done);
    for (p.way = 0; p.way < WAYS; p.way++) {
        TRM_TRY_GOTO(status, bench_time(b, 32, enqueue, &p, &ms[p.way]), done);
    }
    const double us[WAYS] = {(double)ms[TWO] * 1e3, (double)ms[ONE] * 1e3};
    const double share = 4.0 * (double)n * (double)k / us[ONE] * 1e-3 / ROOF_GBS;
    if (b->json) {
        printf(
            "%s  {\"name\": \"%s\", \"rows\": %lld, \"two_kernels_us\": %.2f, \"own_us\": %.2f, \"own_of_roof\": %.3f}",
            b->first ? "" : ",\n", name, (long long)m, us[TWO], us[ONE], share);
    } else {
        printf(
            "%-12s %4lld rows: two kernels %8.2f us, own %8.2f us, %.2f of it, %5.1f %% of the roof, differ by %.1e\n",
            name, (long long)m, us[TWO], us[ONE], us[ONE] / us[TWO], share * 100.0, difference);
    }
    b->first = false;
    fflush(stdout);
done:
    bench_free_call(b, &p.call);
    return status;
}

static trm_status run(bench *b)
{
    static const struct {
        const char *name;
        int64_t n, k;
    } shapes[] = {{"8B", 14336, 4096}, {"8B of 2", 7168, 4096}, {"1B", 8192, 2048}, {"70B of 4", 7168, 8192}};
    static const int64_t rows[] = {16, 32, 48, 64, 96, 128, 192, 256};
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            TRM_TRY(report(b, shapes[s].name, rows[r], shapes[s].n, shapes[s].k));
        }
    }
    return TRM_OK;
}

int main(int argc, char **argv)
{
    bench b = {.name = "bench_glu", .backend = TRM_BACKEND_CUDA};
    b.json = argc > 1 && strcmp(argv[1], "--json") == 0;
    return bench_main(&b, "products with their GLU in bf16", run);
}
