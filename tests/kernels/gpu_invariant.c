/*
 * Kernels in the batch-invariant mode on CUDA device 0: a row's results have the same bits among 1, 2, 3, ... and 1000
 * rows, wherever it stands among them. That they are right is what the kernel cases test. Exits 77 without a GPU.
 */
#include <stdio.h>

#include "kernels/kernel.h"
#include "support/device.h"
#include "support/support.h"

#include "kernels/cuda/cuda.h"
#include "kernels/matmul/cuda_gemm.h"
#include "kernels/program.h"
#include "kernels/sampling/random.h"

/* Under a sanitizer fewer rows and smaller products, which the same forms of the kernels compute. */
#define ROWS (test_is_brief() ? 140 : 1000)

static const trm_kernel_table *const tables[] = {&trm_cuda_kernels};

/* A layer whose first inputs and all outputs have rows. */
typedef struct problem {
    const char *name;
    trm_layer_desc layer;
    int32_t n_inputs, n_outputs;
    int32_t by_row; /* of the inputs */
    trm_view inputs[5], outputs[2];
} problem;

static size_t bytes_of(const trm_view *view)
{
    return (size_t)trm_dims_count(&view->dims) * trm_dtype_size(view->dtype);
}

static trm_view new_view(trm_dtype dtype, trm_dims dims, uint64_t seed)
{
    trm_view view = {NULL, dtype, dims};
    assert_ok(trm_device_alloc(test_device, bytes_of(&view), &view.data));
    trm_random_fill_args fill = {
        .to = {view.data, dtype, {1, {trm_dims_count(&dims)}}}, .seed = seed, .spread = 1.7f, .strides = {1}};
    assert_ok(trm_random_fill(test_stream, &fill));
    return view;
}

/* `count` rows of a view from `first` on. */
static trm_view rows_of(const trm_view *view, int64_t first, int64_t count)
{
    trm_view part = *view;
    const size_t row = bytes_of(view) / (size_t)view->dims.d[0];
    part.data = (char *)part.data + row * (size_t)first;
    part.dims.d[0] = count;
    return part;
}

/* Runs rows first .. first + count - 1 into the beginning of the outputs, which `host` receives one after the other. */
static void run_rows(const problem *p, int64_t first, int64_t count, void *const *host)
{
    trm_kernel_call call = {.layer = &p->layer,
                            .n_inputs = p->n_inputs,
                            .n_outputs = p->n_outputs,
                            .stream = test_stream,
                            .constants = p->layer.kind == TRM_LAYER_NORM      ? 0
                                         : p->layer.kind == TRM_LAYER_EXPERTS ? 1u << 3 | 1u << 4
                                                                              : 2,
                            .batch_invariant = true};
    for (int32_t i = 0; i < p->n_inputs; i++) {
        call.inputs[i] = i < p->by_row ? rows_of(&p->inputs[i], first, count) : p->inputs[i];
    }
    for (int32_t i = 0; i < p->n_outputs; i++) {
        call.outputs[i] = rows_of(&p->outputs[i], 0, count);
    }
    const trm_kernel *kernel = trm_kernel_find(tables, 1, TRM_BACKEND_CUDA, &call);
    assert_non_null(kernel);
    call.workspace_size = kernel->workspace != NULL ? kernel->workspace(&call) : 0;
    assert_ok(trm_device_alloc(test_device, call.workspace_size, &call.workspace));
    assert_ok(trm_kernel_run(kernel, &call));
    for (int32_t i = 0; i < p->n_outputs; i++) {
        assert_ok(trm_stream_download(test_stream, host[i], call.outputs[i].data, bytes_of(&call.outputs[i])));
    }
    assert_ok(trm_stream_synchronize(test_stream));
    trm_device_free(test_device, call.workspace);
}

static void check_problem(const problem *p)
{
    static const int64_t counts[] = {1, 2, 3, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 200, 999};
    static const int64_t brief_counts[] = {1, 8, 16, 33, 65, 139};
    static const int64_t firsts[] = {0, 1, 313};
    const int64_t rows = ROWS, *list = test_is_brief() ? brief_counts : counts;
    const size_t n = test_is_brief() ? sizeof(brief_counts) / sizeof(*list) : sizeof(counts) / sizeof(*list);
    void *whole[2] = {NULL}, *part[2] = {NULL};
    int failures = 0;
    for (int32_t i = 0; i < p->n_outputs; i++) {
        whole[i] = malloc(bytes_of(&p->outputs[i]));
        part[i] = malloc(bytes_of(&p->outputs[i]));
        assert_true(whole[i] != NULL && part[i] != NULL);
    }
    run_rows(p, 0, rows, whole);
    for (size_t c = 0; c < n; c++) {
        for (size_t f = 0; f < sizeof(firsts) / sizeof(firsts[0]) && firsts[f] + list[c] <= rows; f++) {
            run_rows(p, firsts[f], list[c], part);
            for (int32_t i = 0; i < p->n_outputs; i++) {
                const size_t row = bytes_of(&p->outputs[i]) / (size_t)rows;
                if (memcmp((char *)whole[i] + row * (size_t)firsts[f], part[i], row * (size_t)list[c]) != 0) {
                    print_error("%s: output %d of rows %d .. %d differs from theirs among %d\n", p->name, (int)i,
                                (int)firsts[f], (int)(firsts[f] + list[c] - 1), (int)rows);
                    failures++;
                }
            }
        }
    }
    for (int32_t i = 0; i < p->n_outputs; i++) {
        free(whole[i]);
        free(part[i]);
        trm_device_free(test_device, p->outputs[i].data);
    }
    for (int32_t i = 0; i < p->n_inputs; i++) {
        trm_device_free(test_device, p->inputs[i].data);
    }
    assert_int_equal(failures, 0);
}

static trm_dims dims_of(int64_t first, int64_t second)
{
    return (trm_dims){2, {first, second}};
}

static void check_product(trm_dtype in, trm_dtype out, int64_t n, int64_t k, bool transpose_b, bool bias,
                          trm_activation activation)
{
    char name[160];
    snprintf(name, sizeof(name), "product [%d, %d] %s -> %s%s%s", (int)n, (int)k, trm_dtype_name(in),
             trm_dtype_name(out), transpose_b ? "" : ", not transposed", bias ? ", bias" : "");
    problem p = {.name = name, .n_inputs = bias ? 3 : 2, .n_outputs = 1, .by_row = 1};
    p.layer.kind = TRM_LAYER_MATMUL;
    p.layer.matmul = (trm_matmul_params){.transpose_b = transpose_b, .out = out, .activation = activation};
    p.inputs[0] = new_view(in, dims_of(ROWS, k), 1);
    p.inputs[1] = new_view(in, transpose_b ? dims_of(n, k) : dims_of(k, n), 2);
    if (bias) {
        p.inputs[2] = new_view(in, (trm_dims){1, {n}}, 3);
    }
    p.outputs[0] = new_view(out, dims_of(ROWS, n), 4);
    check_problem(&p);
}

static void products(void **state)
{
    (void)state;
    if (test_is_brief()) { /* with several splits, with one, and with enough tiles that blocks walk */
        check_product(TRM_BF16, TRM_BF16, 384, 1096, true, false, TRM_ACTIVATION_NONE);
        check_product(TRM_BF16, TRM_F32, 330, 256, true, false, TRM_ACTIVATION_NONE);
        check_product(TRM_F16, TRM_F16, 8601, 72, true, true, TRM_ACTIVATION_GELU);
    } else {
        check_product(TRM_BF16, TRM_BF16, 6144, 4096, true, false, TRM_ACTIVATION_NONE);
        check_product(TRM_BF16, TRM_BF16, 4096, 14336, true, false, TRM_ACTIVATION_NONE);
        check_product(TRM_BF16, TRM_F32, 12825, 2048, true, false, TRM_ACTIVATION_NONE);
        check_product(TRM_F16, TRM_F16, 28672, 1024, true, true, TRM_ACTIVATION_GELU);
    }
    check_product(TRM_F16, TRM_F32, 72, 1336, true, true, TRM_ACTIVATION_NONE);
    check_product(TRM_BF16, TRM_BF16, 131, 200, true, false, TRM_ACTIVATION_NONE);
}

static void other_products(void **state)
{
    (void)state;
    check_product(TRM_BF16, TRM_BF16, 384, 256, false, true, TRM_ACTIVATION_NONE);
    check_product(TRM_BF16, TRM_BF16, 384, 257, true, false, TRM_ACTIVATION_NONE);
    check_product(TRM_F32, TRM_F32, test_is_brief() ? 96 : 768, test_is_brief() ? 72 : 512, true, true,
                  TRM_ACTIVATION_SILU);
}

/* Bytes of any bits: no NaN in integers. */
static void check_quantized(trm_dtype weight, int64_t n, int64_t k, int32_t block_k, trm_dtype out)
{
    char name[160];
    snprintf(name, sizeof(name), "%s weight [%d, %d], blocks of %d", trm_dtype_name(weight), (int)n, (int)k,
             (int)block_k);
    const int64_t columns = weight == TRM_U8 ? k / 2 : k;
    problem p = {.name = name, .n_inputs = 3, .n_outputs = 1, .by_row = 1};
    p.layer.kind = TRM_LAYER_DEQUANT_MATMUL;
    p.layer.dequant_matmul = (trm_dequant_matmul_params){.block_n = 1, .block_k = block_k, .out = out};
    p.inputs[0] = new_view(TRM_BF16, dims_of(ROWS, k), 1);
    p.inputs[1] = new_view(TRM_BF16, dims_of(n, columns / 2), 2);
    p.inputs[1].dtype = weight;
    p.inputs[1].dims.d[1] = columns;
    p.inputs[2] = new_view(TRM_F32, dims_of(n, block_k > 0 ? k / block_k : 1), 3);
    p.outputs[0] = new_view(out, dims_of(ROWS, n), 4);
    check_problem(&p);
}

static void quantized_products(void **state)
{
    (void)state;
    check_quantized(TRM_I8, 4096, 1024, 0, TRM_BF16);
    check_quantized(TRM_I8, 300, 4096, 128, TRM_F32);
    check_quantized(TRM_U8, 4096, 2048, 128, TRM_BF16);
    check_quantized(TRM_U8, 300, 4096, 32, TRM_F32);
    check_quantized(TRM_U8, 6144, 1024, 128, TRM_BF16);
    check_quantized(TRM_U8, 12800, 512, 0, TRM_BF16);
    check_quantized(TRM_U8, 12800, 512, 32, TRM_BF16);
    check_quantized(TRM_U8, 12800, 512, 128, TRM_F32);
    check_quantized(TRM_U8, 300, 1056, 32, TRM_F32); /* not by our own kernel */
}

static void glus_and_norms(void **state)
{
    (void)state;
    problem p = {.name = "product with GLU", .n_inputs = 2, .n_outputs = 1, .by_row = 1};
    p.layer.kind = TRM_LAYER_MATMUL_GLU;
    p.layer.glu.activation = TRM_ACTIVATION_SILU;
    const int64_t k = test_is_brief() ? 520 : 2048, width = test_is_brief() ? 192 : 5632;
    p.inputs[0] = new_view(TRM_BF16, dims_of(ROWS, k), 5);
    p.inputs[1] = new_view(TRM_BF16, dims_of(2 * width, k), 6);
    p.outputs[0] = new_view(TRM_BF16, dims_of(ROWS, width), 7);
    check_problem(&p);
    for (int64_t n = 512; n <= 8192; n *= 4) {
        problem q = {.name = "norm", .n_inputs = 3, .n_outputs = 2, .by_row = 2};
        q.layer.kind = TRM_LAYER_NORM;
        q.layer.norm = (trm_norm_params){.op = TRM_NORM_RMS, .residual = true, .eps = 1e-5f};
        q.inputs[0] = new_view(TRM_BF16, dims_of(ROWS, n), 8);
        q.inputs[1] = new_view(TRM_BF16, dims_of(ROWS, n), 9);
        q.inputs[2] = new_view(TRM_BF16, (trm_dims){1, {n}}, 10);
        q.outputs[0] = new_view(TRM_BF16, dims_of(ROWS, n), 11);
        q.outputs[1] = new_view(TRM_BF16, dims_of(ROWS, n), 12);
        check_problem(&q);
    }
}

static void router(void **state)
{
    (void)state;
    problem p = {.name = "router", .n_inputs = 2, .n_outputs = 2, .by_row = 1};
    p.layer.kind = TRM_LAYER_ROUTER;
    p.layer.router.k = 8;
    const int64_t hidden = test_is_brief() ? 256 : 2048, n_experts = 64;
    p.inputs[0] = new_view(TRM_BF16, dims_of(ROWS, hidden), 1);
    p.inputs[1] = new_view(TRM_BF16, dims_of(n_experts, hidden), 2);
    p.outputs[0] = new_view(TRM_F32, dims_of(ROWS, 8), 3);
    p.outputs[0].dtype = TRM_I32;
    p.outputs[1] = new_view(TRM_F32, dims_of(ROWS, 8), 4);
    check_problem(&p);
}

static void experts(void **state)
{
    (void)state;
    enum { EXPERTS = 16, K = 4 };
    const int64_t hidden = test_is_brief() ? 128 : 512, width = test_is_brief() ? 64 : 192;
    problem p = {.name = "experts", .n_inputs = 5, .n_outputs = 1, .by_row = 3};
    p.layer.kind = TRM_LAYER_EXPERTS;
    p.inputs[TRM_EXPERTS_X] = new_view(TRM_BF16, dims_of(ROWS, hidden), 1);
    p.inputs[TRM_EXPERTS_IDS] = new_view(TRM_F32, dims_of(ROWS, K), 2);
    p.inputs[TRM_EXPERTS_IDS].dtype = TRM_I32;
    p.inputs[TRM_EXPERTS_WEIGHTS] = new_view(TRM_F32, dims_of(ROWS, K), 3);
    p.inputs[TRM_EXPERTS_GATE_UP] = new_view(TRM_BF16, (trm_dims){4, {EXPERTS, 2, width, hidden}}, 4);
    p.inputs[TRM_EXPERTS_DOWN] = new_view(TRM_BF16, (trm_dims){3, {EXPERTS, hidden, width}}, 5);
    p.outputs[0] = new_view(TRM_BF16, dims_of(ROWS, hidden), 6);
    int32_t *ids = malloc(bytes_of(&p.inputs[TRM_EXPERTS_IDS]));
    assert_non_null(ids);
    for (int32_t i = 0; i < ROWS * K; i++) {
        ids[i] = (i / K * 5 + i % K * 3) % EXPERTS;
    }
    assert_ok(trm_stream_upload(test_stream, p.inputs[TRM_EXPERTS_IDS].data, ids, bytes_of(&p.inputs[1])));
    assert_ok(trm_stream_synchronize(test_stream));
    free(ids);
    check_problem(&p);
}

/* Every form gives what the one that is chosen does. */
static void check_forms(int64_t n, int64_t k, int32_t n_checked)
{
    enum { M = 300 };
    const trm_invariant_form *all;
    const int32_t n_forms = trm_cuda_invariant_forms(&all), splits = trm_cuda_invariant_splits(n, k);
    int32_t checked = 0;
    trm_view x = new_view(TRM_BF16, dims_of(M, k), 1), weight = new_view(TRM_BF16, dims_of(n, k), 2);
    trm_view y = new_view(TRM_F32, dims_of(M, n), 3);
    trm_gemm gemm = {.m = M,
                     .n = n,
                     .k = k,
                     .batch = 1,
                     .row_a = k,
                     .transpose_b = true,
                     .in = TRM_BF16,
                     .out = TRM_F32,
                     .a = x.data,
                     .b = weight.data,
                     .c = y.data};
    const size_t bytes = bytes_of(&y);
    float *chosen = malloc(bytes), *made = malloc(bytes);
    assert_true(chosen != NULL && made != NULL);
    assert_ok(trm_cuda_invariant_run(&gemm, trm_cuda_stream(test_stream)));
    assert_ok(trm_stream_download(test_stream, chosen, y.data, bytes));
    for (int32_t i = 0; i < n_forms; i++) {
        if (splits > all[i].most_splits) {
            continue;
        }
        assert_ok(trm_stream_fill_zero(test_stream, y.data, bytes));
        assert_ok(trm_cuda_invariant_run_as(&gemm, i, splits, trm_cuda_stream(test_stream)));
        assert_ok(trm_stream_download(test_stream, made, y.data, bytes));
        assert_ok(trm_stream_synchronize(test_stream));
        if (memcmp(chosen, made, bytes) != 0) {
            fail_msg("tiles of %d rows%s give other bits", (int)all[i].rows, all[i].walk ? ", walking," : "");
        }
        checked++;
    }
    assert_int_equal(checked, n_checked);
    free(chosen);
    free(made);
    trm_device_free(test_device, x.data);
    trm_device_free(test_device, weight.data);
    trm_device_free(test_device, y.data);
}

static void forms(void **state)
{
    (void)state;
    check_forms(test_is_brief() ? 200 : 1000, test_is_brief() ? 1032 : 4096, 6); /* several splits */
    check_forms(test_is_brief() ? 200 : 30000, test_is_brief() ? 256 : 512, 7);  /* one */
}

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),       cmocka_unit_test(other_products), cmocka_unit_test(quantized_products),
        cmocka_unit_test(glus_and_norms), cmocka_unit_test(router),         cmocka_unit_test(experts),
        cmocka_unit_test(forms),
    };
    return cmocka_run_group_tests(tests, test_open_cuda, test_close_device);
}
