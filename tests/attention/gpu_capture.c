/*
 * A decode step captured once and launched as lengths grow and sequences come and go: what is captured depends on dims
 * alone. Each launch against the host backend on the same data. Exits 77 if there is no GPU.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/kernel.h"
#include "support/device.h"
#include "support/support.h"

#include "base/half.h"
#include "kernels/program.h"

/* A narrow table and a wide one, which is another kernel's. */
enum { SEQUENCES = 3, TOKENS = 3, HQ = 8, HKV = 2, D = 64, BLOCK = 16, NARROW = 40, WIDE = 300 };

enum { WIDTH = (HQ + 2 * HKV) * D, OUT_SIZE = TOKENS * HQ * D * 2 };

/* One backend's copy of everything. */
typedef struct side {
    trm_device *device;
    trm_stream *stream;
    trm_kernel_call call;
    trm_layer_desc layer;
    const trm_kernel *kernel;
} side;

/* A form of the layer: its inputs, and which of them a step sets. */
typedef struct form {
    trm_layer_desc layer;
    int32_t n_inputs, n_vectors; /* inputs before n_vectors are the step's tokens */
    trm_dims dims[TRM_QKV_ATTENTION_INPUT_COUNT];
    int32_t starts, lengths, table, positions; /* positions: 0 if there are none */
    int32_t columns;
    uint32_t constants;
} form;

static const form apart = {.layer = {.kind = TRM_LAYER_ATTENTION, .attention = {.causal = TRM_CAUSAL_LOWER_RIGHT}},
                           .n_inputs = TRM_ATTENTION_VALUE_CACHE + 1,
                           .n_vectors = 3,
                           .dims = {{3, {TOKENS, HQ, D}},
                                    {3, {TOKENS, HKV, D}},
                                    {3, {TOKENS, HKV, D}},
                                    {1, {SEQUENCES + 1}},
                                    {1, {SEQUENCES}},
                                    {2, {SEQUENCES, NARROW}},
                                    {4, {SEQUENCES * NARROW, BLOCK, HKV, D}},
                                    {4, {SEQUENCES * NARROW, BLOCK, HKV, D}}},
                           .starts = TRM_ATTENTION_SEQUENCE_STARTS,
                           .lengths = TRM_ATTENTION_SEQUENCE_LENGTHS,
                           .table = TRM_ATTENTION_BLOCK_TABLE,
                           .columns = NARROW};

#define JOINED(width)                                                                                                  \
    {                                                                                                                  \
        .layer = {.kind = TRM_LAYER_QKV_ATTENTION,                                                                     \
                  .qkv_attention = {.attention = {.causal = TRM_CAUSAL_LOWER_RIGHT},                                   \
                                    .rope = {.rotary_dim = D, .magnitude = 1.0f},                                      \
                                    .query_heads = HQ,                                                                 \
                                    .kv_heads = HKV}},                                                                 \
        .n_inputs = TRM_QKV_ATTENTION_INV_FREQ + 1, .n_vectors = 1,                                                    \
        .dims = {{2, {TOKENS, WIDTH}},                                                                                 \
                 {1, {SEQUENCES + 1}},                                                                                 \
                 {1, {SEQUENCES}},                                                                                     \
                 {2, {SEQUENCES, (width)}},                                                                            \
                 {4, {SEQUENCES * (width), BLOCK, HKV, D}},                                                            \
                 {4, {SEQUENCES * (width), BLOCK, HKV, D}},                                                            \
                 {1, {TOKENS}},                                                                                        \
                 {1, {D / 2}}},                                                                                        \
        .starts = TRM_QKV_ATTENTION_SEQUENCE_STARTS, .lengths = TRM_QKV_ATTENTION_SEQUENCE_LENGTHS,                    \
        .table = TRM_QKV_ATTENTION_BLOCK_TABLE, .positions = TRM_QKV_ATTENTION_POSITIONS, .columns = (width),          \
        .constants = 1u << TRM_QKV_ATTENTION_SEQUENCE_STARTS | 1u << TRM_QKV_ATTENTION_SEQUENCE_LENGTHS |              \
                     1u << TRM_QKV_ATTENTION_BLOCK_TABLE | 1u << TRM_QKV_ATTENTION_POSITIONS |                         \
                     1u << TRM_QKV_ATTENTION_INV_FREQ                                                                  \
    }

static const form joined = JOINED(NARROW), joined_wide = JOINED(WIDE);

static size_t size_of(const trm_view *view)
{
    return (size_t)trm_dims_count(&view->dims) * trm_dtype_size(view->dtype);
}

static void give(side *s, int32_t input, const void *values)
{
    assert_ok(trm_stream_upload(s->stream, s->call.inputs[input].data, values, size_of(&s->call.inputs[input])));
    assert_ok(trm_stream_synchronize(s->stream));
}

static void side_init(side *s, trm_backend backend, const form *f)
{
    static const trm_kernel_table *const tables[] = {&trm_attention_kernels};
    memset(s, 0, sizeof(*s));
    assert_ok(trm_device_open(backend, 0, 1, &s->device));
    assert_ok(trm_stream_create(s->device, &s->stream));
    s->layer = f->layer;
    s->call.layer = &s->layer;
    s->call.stream = s->stream;
    s->call.n_inputs = f->n_inputs;
    s->call.n_outputs = 1;
    s->call.constants = f->constants;
    for (int32_t i = 0; i < f->n_inputs; i++) {
        const bool integers = i == f->starts || i == f->lengths || i == f->table || (i > 0 && i == f->positions);
        const bool floats = i == TRM_QKV_ATTENTION_INV_FREQ && f->positions > 0;
        s->call.inputs[i] = (trm_view){NULL, integers ? TRM_I32 : floats ? TRM_F32 : TRM_BF16, f->dims[i]};
        assert_ok(trm_device_alloc(s->device, size_of(&s->call.inputs[i]), &s->call.inputs[i].data));
        assert_ok(trm_stream_fill_zero(s->stream, s->call.inputs[i].data, size_of(&s->call.inputs[i])));
    }
    if (f->positions > 0) {
        float inv_freq[D / 2];
        for (int32_t i = 0; i < D / 2; i++) {
            inv_freq[i] = powf(10000.0f, -2.0f * (float)i / D);
        }
        give(s, TRM_QKV_ATTENTION_INV_FREQ, inv_freq);
    }
    s->call.outputs[0] = (trm_view){NULL, TRM_BF16, {3, {TOKENS, HQ, D}}};
    assert_ok(trm_device_alloc(s->device, OUT_SIZE, &s->call.outputs[0].data));
    s->kernel = trm_kernel_find(tables, 1, backend, &s->call);
    assert_non_null(s->kernel);
    s->call.workspace_size = s->kernel->workspace != NULL ? s->kernel->workspace(&s->call) : 0;
    assert_ok(trm_device_alloc(s->device, s->call.workspace_size, &s->call.workspace));
}

static void side_fini(side *s)
{
    for (int32_t i = 0; i < s->call.n_inputs; i++) {
        trm_device_free(s->device, s->call.inputs[i].data);
    }
    trm_device_free(s->device, s->call.outputs[0].data);
    trm_device_free(s->device, s->call.workspace);
    trm_stream_destroy(s->stream);
    trm_device_close(s->device);
}

/* The step's queries, keys and values, and which sequences take part. */
static void next_step(side *const sides[2], const form *f, uint64_t *random, const int32_t *starts,
                      const int32_t *lengths)
{
    uint16_t values[TOKENS * WIDTH];
    int32_t positions[TOKENS] = {0};
    for (int32_t s = 0; s < SEQUENCES; s++) {
        for (int32_t t = starts[s]; t < starts[s + 1]; t++) {
            positions[t] = lengths[s] - (starts[s + 1] - t);
        }
    }
    for (int32_t i = 0; i < f->n_vectors; i++) {
        for (size_t j = 0; j < size_of(&sides[0]->call.inputs[i]) / 2; j++) {
            values[j] = trm_f32_to_bf16(2.0f * test_random_float(random));
        }
        give(sides[0], i, values);
        give(sides[1], i, values);
    }
    for (int s = 0; s < 2; s++) {
        give(sides[s], f->starts, starts);
        give(sides[s], f->lengths, lengths);
        if (f->positions > 0) {
            give(sides[s], f->positions, positions);
        }
    }
}

/* The step's outputs, the same again when it is launched again. */
static void compare_rows(side *const sides[2], trm_graph_exec *exec, int32_t tokens, int32_t step)
{
    uint16_t out[2][TOKENS * HQ * D], again[TOKENS * HQ * D];
    for (int s = 0; s < 2; s++) {
        assert_ok(trm_stream_download(sides[s]->stream, out[s], sides[s]->call.outputs[0].data, OUT_SIZE));
        assert_ok(trm_stream_synchronize(sides[s]->stream));
    }
    assert_ok(trm_graph_exec_launch(exec, sides[1]->stream));
    assert_ok(trm_stream_download(sides[1]->stream, again, sides[1]->call.outputs[0].data, OUT_SIZE));
    assert_ok(trm_stream_synchronize(sides[1]->stream));
    assert_memory_equal(again, out[1], (size_t)tokens * HQ * D * sizeof(again[0]));
    for (int32_t i = 0; i < tokens * HQ * D; i++) {
        const float expected = trm_bf16_to_f32(out[0][i]), found = trm_bf16_to_f32(out[1][i]);
        if (!(fabsf(found - expected) <= 0.02f + 0.02f * fabsf(expected))) {
            fail_msg("step %d, element %d is %g, expected %g", (int)step, (int)i, (double)found, (double)expected);
        }
    }
}

static void follow_the_lengths(const form *f)
{
    side host, gpu;
    side *const sides[2] = {&host, &gpu};
    side_init(&host, TRM_BACKEND_HOST, f);
    side_init(&gpu, TRM_BACKEND_CUDA, f);
    uint64_t random = test_seed();
    int32_t table[SEQUENCES * WIDE], lengths[SEQUENCES] = {0, 0, 0};
    const int32_t blocks = SEQUENCES * f->columns;
    for (int32_t i = 0; i < blocks; i++) {
        table[i] = (i * 7 + 3) % blocks; /* 7 has no common factor with 120 or 900: each block once */
    }
    give(&host, f->table, table);
    give(&gpu, f->table, table);
    assert_ok(trm_kernel_run(gpu.kernel,
                             &gpu.call)); /* loads code, which capturing may not do; no sequence has a query yet */
    assert_ok(trm_stream_synchronize(gpu.stream));
    assert_ok(trm_stream_begin_capture(gpu.stream));
    assert_true(trm_stream_is_capturing(gpu.stream));
    assert_ok(trm_kernel_run(gpu.kernel, &gpu.call));
    trm_graph_exec *exec = NULL;
    assert_ok(trm_stream_end_capture(gpu.stream, &exec));
    assert_false(trm_stream_is_capturing(gpu.stream));
    for (int32_t step = 0; step < (test_is_brief() ? 36 : 500); step++) {
        /* Sequence 1 rests in every fifth step, and every seventh sequence 0 takes two tokens and sequence 2 none. */
        int32_t queries[SEQUENCES] = {1, step % 5 == 0 ? 0 : 1, 1}, starts[SEQUENCES + 1] = {0};
        if (step % 7 == 0) {
            queries[0] = 2;
            queries[2] = 0;
        }
        for (int32_t s = 0; s < SEQUENCES; s++) {
            starts[s + 1] = starts[s] + queries[s];
            lengths[s] += queries[s];
        }
        next_step(sides, f, &random, starts, lengths);
        assert_ok(trm_kernel_run(host.kernel, &host.call));
        assert_ok(trm_graph_exec_launch(exec, gpu.stream));
        compare_rows(sides, exec, starts[SEQUENCES], step);
    }
    trm_graph_exec_destroy(exec);
    side_fini(&gpu);
    side_fini(&host);
}

static void captured_step_follows_the_lengths(void **state)
{
    (void)state;
    follow_the_lengths(&apart);
}

static void captured_joined_step_follows_the_lengths(void **state)
{
    (void)state;
    follow_the_lengths(&joined);
}

static void captured_wide_step_follows_the_lengths(void **state)
{
    (void)state;
    follow_the_lengths(&joined_wide);
}

int main(void)
{
    if (test_lacks_cuda()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(captured_step_follows_the_lengths),
                                       cmocka_unit_test(captured_joined_step_follows_the_lengths),
                                       cmocka_unit_test(captured_wide_step_follows_the_lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
