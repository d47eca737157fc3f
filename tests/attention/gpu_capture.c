/*
 * A decode step captured once and launched as lengths grow and sequences come and go: what is captured depends on dims
 * alone. Each launch against the host backend on the same data. Exits 77 if there is no GPU.
 */
#include <math.h>
#include <stdio.h>

#include "support/support.h"

#include "base/half.h"
#include "kernels/kernel.h"

enum { SEQUENCES = 3, TOKENS = 3, HQ = 8, HKV = 2, D = 64, BLOCK = 16, COLUMNS = 40, BLOCKS = SEQUENCES * COLUMNS };

/* One backend's copy of everything. */
typedef struct side {
    trm_device *device;
    trm_stream *stream;
    trm_kernel_call call;
    trm_layer_desc layer;
    const trm_kernel *kernel;
} side;

static const size_t sizes[] = {
    [TRM_ATTENTION_Q] = TOKENS * HQ * D * 2,
    [TRM_ATTENTION_K] = TOKENS * HKV * D * 2,
    [TRM_ATTENTION_V] = TOKENS * HKV * D * 2,
    [TRM_ATTENTION_SEQUENCE_STARTS] = (SEQUENCES + 1) * 4,
    [TRM_ATTENTION_SEQUENCE_LENGTHS] = SEQUENCES * 4,
    [TRM_ATTENTION_BLOCK_TABLE] = SEQUENCES * COLUMNS * 4,
    [TRM_ATTENTION_KEY_CACHE] = (size_t)BLOCKS * BLOCK * HKV * D * 2,
    [TRM_ATTENTION_VALUE_CACHE] = (size_t)BLOCKS * BLOCK * HKV * D * 2,
};
enum { INPUTS = sizeof(sizes) / sizeof(sizes[0]), OUT_SIZE = TOKENS * HQ * D * 2 };

static void side_init(side *s, trm_backend backend)
{
    static const trm_kernel_table *const tables[] = {&trm_attention_kernels};
    static const trm_dims dims[INPUTS] = {
        {3, {TOKENS, HQ, D}}, {3, {TOKENS, HKV, D}},     {3, {TOKENS, HKV, D}},        {1, {SEQUENCES + 1}},
        {1, {SEQUENCES}},     {2, {SEQUENCES, COLUMNS}}, {4, {BLOCKS, BLOCK, HKV, D}}, {4, {BLOCKS, BLOCK, HKV, D}},
    };
    memset(s, 0, sizeof(*s));
    assert_ok(trm_device_open(backend, 0, 1, &s->device));
    assert_ok(trm_stream_create(s->device, &s->stream));
    s->layer.kind = TRM_LAYER_ATTENTION;
    s->layer.attention.causal = TRM_CAUSAL_LOWER_RIGHT;
    s->call.layer = &s->layer;
    s->call.stream = s->stream;
    s->call.n_inputs = INPUTS;
    s->call.n_outputs = 1;
    for (int32_t i = 0; i < INPUTS; i++) {
        const bool integers = i >= TRM_ATTENTION_SEQUENCE_STARTS && i <= TRM_ATTENTION_BLOCK_TABLE;
        s->call.inputs[i] = (trm_view){NULL, integers ? TRM_I32 : TRM_BF16, dims[i]};
        assert_ok(trm_device_alloc(s->device, sizes[i], &s->call.inputs[i].data));
        assert_ok(trm_stream_fill_zero(s->stream, s->call.inputs[i].data, sizes[i]));
    }
    s->call.outputs[0] = (trm_view){NULL, TRM_BF16, dims[TRM_ATTENTION_Q]};
    assert_ok(trm_device_alloc(s->device, OUT_SIZE, &s->call.outputs[0].data));
    s->kernel = trm_kernel_find(tables, 1, backend, &s->call);
    assert_non_null(s->kernel);
    s->call.workspace_size = s->kernel->workspace != NULL ? s->kernel->workspace(&s->call) : 0;
    assert_ok(trm_device_alloc(s->device, s->call.workspace_size, &s->call.workspace));
}

static void side_fini(side *s)
{
    for (int32_t i = 0; i < INPUTS; i++) {
        trm_device_free(s->device, s->call.inputs[i].data);
    }
    trm_device_free(s->device, s->call.outputs[0].data);
    trm_device_free(s->device, s->call.workspace);
    trm_stream_destroy(s->stream);
    trm_device_close(s->device);
}

static void give(side *s, int32_t input, const void *values)
{
    assert_ok(trm_stream_upload(s->stream, s->call.inputs[input].data, values, sizes[input]));
}

/* The step's queries, keys and values, and which sequences take part. */
static void next_step(side *const sides[2], uint64_t *random, const int32_t *starts, const int32_t *lengths)
{
    uint16_t values[TOKENS * HQ * D];
    for (int32_t i = TRM_ATTENTION_Q; i <= TRM_ATTENTION_V; i++) {
        for (size_t j = 0; j < sizes[i] / 2; j++) {
            values[j] = trm_f32_to_bf16(2.0f * test_random_float(random));
        }
        for (int s = 0; s < 2; s++) {
            give(sides[s], i, values);
            assert_ok(trm_stream_synchronize(sides[s]->stream));
        }
    }
    for (int s = 0; s < 2; s++) {
        give(sides[s], TRM_ATTENTION_SEQUENCE_STARTS, starts);
        give(sides[s], TRM_ATTENTION_SEQUENCE_LENGTHS, lengths);
        assert_ok(trm_stream_synchronize(sides[s]->stream));
    }
}

static void compare_rows(side *const sides[2], int32_t tokens, int32_t step)
{
    uint16_t out[2][TOKENS * HQ * D];
    for (int s = 0; s < 2; s++) {
        assert_ok(trm_stream_download(sides[s]->stream, out[s], sides[s]->call.outputs[0].data, OUT_SIZE));
        assert_ok(trm_stream_synchronize(sides[s]->stream));
    }
    for (int32_t i = 0; i < tokens * HQ * D; i++) {
        const float expected = trm_bf16_to_f32(out[0][i]), found = trm_bf16_to_f32(out[1][i]);
        if (!(fabsf(found - expected) <= 0.02f + 0.02f * fabsf(expected))) {
            fail_msg("step %d, element %d is %g, expected %g", (int)step, (int)i, (double)found, (double)expected);
        }
    }
}

static void captured_step_follows_the_lengths(void **state)
{
    (void)state;
    side host, gpu;
    side *const sides[2] = {&host, &gpu};
    side_init(&host, TRM_BACKEND_HOST);
    side_init(&gpu, TRM_BACKEND_CUDA);
    uint64_t random = test_seed();
    int32_t table[SEQUENCES * COLUMNS], lengths[SEQUENCES] = {0, 0, 0};
    for (int32_t i = 0; i < SEQUENCES * COLUMNS; i++) {
        table[i] = (i * 7 + 3) % BLOCKS; /* 7 and 120 have no common factor: each block once */
    }
    give(&host, TRM_ATTENTION_BLOCK_TABLE, table);
    give(&gpu, TRM_ATTENTION_BLOCK_TABLE, table);
    assert_ok(gpu.kernel->run(&gpu.call)); /* loads code, which capturing may not do; no sequence has a query yet */
    assert_ok(trm_stream_synchronize(gpu.stream));
    assert_ok(trm_stream_begin_capture(gpu.stream));
    assert_true(trm_stream_is_capturing(gpu.stream));
    assert_ok(gpu.kernel->run(&gpu.call));
    trm_graph_exec *exec = NULL;
    assert_ok(trm_stream_end_capture(gpu.stream, &exec));
    assert_false(trm_stream_is_capturing(gpu.stream));
    for (int32_t step = 0; step < 500; step++) {
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
        next_step(sides, &random, starts, lengths);
        assert_ok(host.kernel->run(&host.call));
        assert_ok(trm_graph_exec_launch(exec, gpu.stream));
        compare_rows(sides, starts[SEQUENCES], step);
    }
    trm_graph_exec_destroy(exec);
    side_fini(&gpu);
    side_fini(&host);
}

int main(void)
{
    char why[256] = "";
    if (trm_device_cuda_count(why, sizeof(why)) == 0) {
        fprintf(stderr, "skipped: %s\n", why);
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(captured_step_follows_the_lengths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
