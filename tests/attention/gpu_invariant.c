/*
 * Attention over a cache in the batch-invariant mode on CUDA device 0: a query's output has the same bits whether its
 * sequence came in one step, in chunks or one token at a time, alone or beside another one. That it is right is what
 * the attention cases test. Exits 77 without a GPU.
 */
#include <stdio.h>

#include "kernels/kernel.h"
#include "support/device.h"
#include "support/support.h"

#include "base/half.h"
#include "kernels/program.h"

enum { KEYS = 700, BLOCK = 16, USED = (KEYS + BLOCK - 1) / BLOCK, BLOCKS = 2 * USED };

typedef struct form {
    const char *name;
    trm_dtype dtype;
    int64_t query_heads, kv_heads, dim, columns;
    int32_t window;
    float softcap;
    bool f8; /* an e4m3 cache */
    bool sinks;
} form;

static const form forms[] = {
    {"heads of 128", TRM_BF16, 8, 2, 128, USED, 0, 0.0f, false, false},
    {"heads of 64 in f16, soft cap", TRM_F16, 4, 4, 64, USED, 0, 20.0f, false, false},
    {"heads of 96, window", TRM_BF16, 6, 2, 96, 60, 200, 0.0f, false, false},
    {"heads of 80, groups of 7", TRM_F16, 14, 2, 80, USED, 0, 0.0f, false, false},
    {"heads of 256", TRM_BF16, 4, 1, 256, USED, 0, 0.0f, false, false},
    {"a table for 128 thousand keys", TRM_BF16, 32, 8, 128, 8192, 0, 0.0f, false, false},
    {"groups of 20, window", TRM_BF16, 20, 1, 64, USED, 77, 0.0f, false, false},
    {"f32", TRM_F32, 4, 2, 32, USED, 100, 0.0f, false, false},
    {"heads of 128, e4m3", TRM_BF16, 8, 2, 128, USED, 0, 0.0f, true, false},
    {"heads of 80, groups of 7, e4m3", TRM_F16, 14, 2, 80, USED, 90, 20.0f, true, false},
    {"heads of 256, e4m3", TRM_BF16, 4, 1, 256, USED, 0, 0.0f, true, false},
    {"a table for 128 thousand keys, e4m3", TRM_BF16, 32, 8, 64, 8192, 0, 0.0f, true, false},
    {"f32, e4m3", TRM_F32, 4, 2, 32, USED, 100, 0.0f, true, false},
    {"groups of 8, window, sinks", TRM_BF16, 16, 2, 64, USED, 128, 0.0f, false, true},
    {"groups of 8, a table for 128 thousand keys, sinks", TRM_F16, 16, 2, 64, 8192, 0, 0.0f, false, true},
    {"heads of 128, e4m3, sinks", TRM_BF16, 8, 2, 128, USED, 0, 0.0f, true, true},
    {"f32, sinks", TRM_F32, 4, 2, 32, USED, 100, 0.0f, false, true},
};

/* Two sequences of KEYS tokens, and one layer that they pass through. */
typedef struct pair {
    const form *f;
    size_t element;
    unsigned char *data[2][3]; /* q, k, v of each sequence */
    unsigned char *expected[2];
    trm_layer_desc layer;
    trm_kernel_call call;
} pair;

/* Queries first .. first + count - 1 of each sequence: one step. */
typedef struct step {
    int32_t first[2], count[2];
} step;

static size_t row_bytes(const pair *p, int32_t input)
{
    return (size_t)((input == 0 ? p->f->query_heads : p->f->kv_heads) * p->f->dim) * p->element;
}

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    assert_non_null(memory);
    return memory;
}

static size_t bytes_of(const trm_view *view)
{
    return (size_t)trm_dims_count(&view->dims) * trm_dtype_size(view->dtype);
}

static void add_view(trm_view *view, trm_dtype dtype, trm_dims dims, const void *values)
{
    *view = (trm_view){NULL, dtype, dims};
    assert_ok(trm_device_alloc(test_device, bytes_of(view), &view->data));
    if (values != NULL) {
        assert_ok(trm_stream_upload(test_stream, view->data, values, bytes_of(view)));
    } else {
        assert_ok(trm_stream_fill_zero(test_stream, view->data, bytes_of(view)));
    }
    assert_ok(trm_stream_synchronize(test_stream));
}

static void random_values(const pair *p, unsigned char *to, size_t bytes, uint64_t *random)
{
    for (size_t i = 0; i < bytes / p->element; i++) {
        const float x = 2.0f * test_random_float(random);
        const uint16_t half = p->f->dtype == TRM_F16 ? trm_f32_to_f16(x) : trm_f32_to_bf16(x);
        memcpy(to + i * p->element, p->element == 4 ? (const void *)&x : (const void *)&half, p->element);
    }
}

static void pair_init(pair *p, const form *f)
{
    uint64_t random = test_seed();
    *p = (pair){.f = f, .element = trm_dtype_size(f->dtype)};
    for (int s = 0; s < 2; s++) {
        for (int32_t i = 0; i < 3; i++) {
            p->data[s][i] = allocate(KEYS * row_bytes(p, i));
            random_values(p, p->data[s][i], KEYS * row_bytes(p, i), &random);
        }
        p->expected[s] = allocate(KEYS * row_bytes(p, 0));
    }
    p->layer = (trm_layer_desc){.kind = TRM_LAYER_ATTENTION,
                                .attention = {.causal = TRM_CAUSAL_LOWER_RIGHT,
                                              .window = f->window,
                                              .softcap = f->softcap,
                                              .k_scale = 0.3f,
                                              .v_scale = 0.02f}};
    int32_t *table = allocate((size_t)(2 * f->columns) * sizeof(int32_t));
    for (int64_t i = 0; i < 2 * f->columns; i++) {
        const int64_t column = i % f->columns;
        table[i] = column < USED ? (int32_t)((column * 2 + i / f->columns) * 7 % BLOCKS) : -12345;
    }
    p->call = (trm_kernel_call){.layer = &p->layer,
                                .n_inputs = TRM_ATTENTION_VALUE_CACHE + 1,
                                .n_outputs = 1,
                                .stream = test_stream,
                                .batch_invariant = true};
    const trm_dims cache = {4, {BLOCKS, BLOCK, f->kv_heads, f->dim}};
    add_view(&p->call.inputs[TRM_ATTENTION_BLOCK_TABLE], TRM_I32, (trm_dims){2, {2, f->columns}}, table);
    const trm_dtype type = f->f8 ? TRM_F8E4M3 : f->dtype;
    add_view(&p->call.inputs[TRM_ATTENTION_KEY_CACHE], type, cache, NULL);
    add_view(&p->call.inputs[TRM_ATTENTION_VALUE_CACHE], type, cache, NULL);
    if (f->sinks) {
        static const float sinks[16] = {0.7f, -1.2f, 60.0f, 2.5f, -9.0f, 5.0f, 1000.0f, 0.0f,
                                        1.0f, 2.0f,  3.0f,  4.0f, 5.0f,  6.0f, -1.0f,   -1000.0f};
        add_view(&p->call.inputs[TRM_ATTENTION_SINKS], TRM_F32, (trm_dims){1, {f->query_heads}}, sinks);
        p->call.n_inputs = TRM_ATTENTION_INPUT_COUNT;
    }
    free(table);
}

static void pair_fini(pair *p)
{
    for (int s = 0; s < 2; s++) {
        for (int32_t i = 0; i < 3; i++) {
            free(p->data[s][i]);
        }
        free(p->expected[s]);
    }
    for (int32_t i = TRM_ATTENTION_BLOCK_TABLE; i <= TRM_ATTENTION_VALUE_CACHE; i++) {
        trm_device_free(test_device, p->call.inputs[i].data);
    }
    trm_device_free(test_device, p->call.inputs[TRM_ATTENTION_SINKS].data);
}

/* Runs a step; out[s] receives the rows of sequence s. */
static void run_step(const pair *p, const step *s, unsigned char *const *out)
{
    static const trm_kernel_table *const tables[] = {&trm_attention_kernels};
    trm_kernel_call call = p->call;
    const int32_t tokens = s->count[0] + s->count[1];
    const int32_t starts[3] = {0, s->count[0], tokens};
    const int32_t lengths[2] = {s->first[0] + s->count[0], s->first[1] + s->count[1]};
    for (int32_t i = 0; i < 3; i++) {
        const size_t row = row_bytes(p, i);
        unsigned char *joined = allocate((size_t)tokens * row);
        memcpy(joined, p->data[0][i] + (size_t)s->first[0] * row, (size_t)s->count[0] * row);
        memcpy(joined + (size_t)s->count[0] * row, p->data[1][i] + (size_t)s->first[1] * row,
               (size_t)s->count[1] * row);
        add_view(&call.inputs[i], p->f->dtype,
                 (trm_dims){3, {tokens, i == 0 ? p->f->query_heads : p->f->kv_heads, p->f->dim}}, joined);
        free(joined);
    }
    add_view(&call.inputs[TRM_ATTENTION_SEQUENCE_STARTS], TRM_I32, (trm_dims){1, {3}}, starts);
    add_view(&call.inputs[TRM_ATTENTION_SEQUENCE_LENGTHS], TRM_I32, (trm_dims){1, {2}}, lengths);
    add_view(&call.outputs[0], p->f->dtype, call.inputs[0].dims, NULL);
    const trm_kernel *kernel = trm_kernel_find(tables, 1, TRM_BACKEND_CUDA, &call);
    assert_non_null(kernel);
    call.workspace_size = kernel->workspace != NULL ? kernel->workspace(&call) : 0;
    assert_ok(trm_device_alloc(test_device, call.workspace_size, &call.workspace));
    assert_ok(trm_kernel_run(kernel, &call));
    const char *from = call.outputs[0].data;
    for (int i = 0; i < 2; i++) {
        const size_t bytes = (size_t)s->count[i] * row_bytes(p, 0);
        assert_ok(trm_stream_download(test_stream, out[i], from, bytes));
        from += bytes;
    }
    assert_ok(trm_stream_synchronize(test_stream));
    for (int32_t i = 0; i < 5; i++) {
        if (i != TRM_ATTENTION_BLOCK_TABLE) {
            trm_device_free(test_device, call.inputs[i].data);
        }
    }
    trm_device_free(test_device, call.outputs[0].data);
    trm_device_free(test_device, call.workspace);
}

static int check_form(const form *f)
{
    static const int32_t counts[] = {0, 1, 1, 1, 1, 2, 3, 8, 15, 16, 17, 40, 64, 65, 200};
    pair p;
    int failures = 0;
    uint64_t random = test_seed();
    pair_init(&p, f);
    for (int s = 0; s < 2; s++) { /* each alone, in one step */
        step whole = {{0, 0}, {0, 0}};
        whole.count[s] = KEYS;
        run_step(&p, &whole, p.expected);
    }
    unsigned char *out[2] = {allocate(KEYS * row_bytes(&p, 0)), allocate(KEYS * row_bytes(&p, 0))};
    for (int i = 0; i < (test_is_brief() ? 8 : 150) && failures < 5; i++) {
        step made;
        for (int s = 0; s < 2; s++) {
            made.count[s] = counts[test_random_below(&random, (int64_t)(sizeof(counts) / sizeof(counts[0])))];
            made.first[s] = (int32_t)test_random_below(&random, KEYS - made.count[s] + 1);
        }
        if (made.count[0] + made.count[1] == 0) {
            continue;
        }
        run_step(&p, &made, out);
        for (int s = 0; s < 2; s++) {
            const size_t row = row_bytes(&p, 0);
            if (memcmp(out[s], p.expected[s] + (size_t)made.first[s] * row, (size_t)made.count[s] * row) != 0) {
                print_error("%s: %d queries from %d on beside %d: other bits than in one step\n", f->name,
                            (int)made.count[s], (int)made.first[s], (int)made.count[1 - s]);
                failures++;
            }
        }
    }
    free(out[0]);
    free(out[1]);
    pair_fini(&p);
    return failures;
}

static void same_bits(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        failures += check_form(&forms[i]);
    }
    assert_int_equal(failures, 0);
}

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, test_open_cuda, test_close_device);
}
