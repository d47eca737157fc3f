/* Every golden of tests/goldens/hf, and a preset, through the importer and the host reference kernels. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>

#include "support/hf_golden.h"

static void check(const test_golden *golden, trm_dtype dtype, const char *way, test_golden_difference difference)
{
    double tolerance = test_golden_tolerance(golden, dtype);
    if (!test_golden_agrees(golden, &difference, tolerance)) {
        fail_msg("%s computed in %s, %s: logits differ by %.3g of the largest, the median row by %.3g, tolerance %.3g",
                 golden->name, trm_dtype_name(dtype), way, difference.worst, difference.median, tolerance);
    }
    if (getenv("TRM_TEST_VERBOSE") != NULL) {
        print_message("%-18s %-5s %-8s %.2e median %.2e\n", golden->name, trm_dtype_name(dtype), way, difference.worst,
                      difference.median);
    }
}

/* `passes`: after the passes of both stages. */
static void run_golden(const char *name, trm_dtype dtype, bool passes)
{
    test_golden golden;
    trm_network *network;
    test_interpreter *interpreter;
    test_golden_open(name, &golden);
    assert_ok(trm_model_build_network(golden.model, dtype, &network));
    if (passes) {
        assert_ok(trm_run_passes(network, TRM_PASSES_BEFORE_PARTITION));
        assert_ok(trm_run_passes(network, TRM_PASSES_AFTER_PARTITION));
    }
    test_interpreter_options options = {.backend = TRM_BACKEND_HOST, .state_dimension = TEST_GOLDEN_CACHE};
    assert_ok(test_interpreter_create(network, &options, &interpreter));
    test_runner runner = test_runner_of_interpreter(interpreter);
    check(&golden, dtype, "whole", test_golden_run_whole(&golden, &runner));
    check(&golden, dtype, "chunks", test_golden_run_chunks(&golden, &runner, 7));
    check(&golden, dtype, "decode", test_golden_run_decode(&golden, &runner));
    check(&golden, dtype, "batch", test_golden_run_batch(&golden, &runner));
    test_interpreter_destroy(interpreter);
    trm_network_destroy(network);
    test_golden_close(&golden);
}

static void logits_equal_transformers(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        run_golden(test_golden_name(i), TRM_DTYPE_NONE, false);
    }
}

static void passes_keep_the_logits(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        run_golden(test_golden_name(i), TRM_DTYPE_NONE, true);
    }
}

static void other_compute_types_agree(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        run_golden(test_golden_name(i), TRM_BF16, true);
        run_golden(test_golden_name(i), TRM_F16, true);
    }
    run_golden("llama-bf16", TRM_F32, false);
    run_golden("quant-float", TRM_F32, false);
}

/* Keys and values are rounded to e4m3, in whatever steps they come: each is off by up to 1/16 of itself. The bound is a
 * fifth of the largest logit; the four ways differ among each other by what the host's sums do. */
static void rounded_caches_stay_near(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "llama-bf16", "qwen3", "gemma3", "gpt2", "gpt-neox", "phi3"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        test_golden golden;
        trm_network *network;
        test_interpreter *interpreter;
        test_golden_open(names[i], &golden);
        assert_ok(trm_model_build_network_with_cache(golden.model, TRM_F32, TRM_F8E4M3, &network));
        assert_ok(trm_run_passes(network, TRM_PASSES_BEFORE_PARTITION));
        assert_ok(trm_run_passes(network, TRM_PASSES_AFTER_PARTITION));
        test_interpreter_options options = {.backend = TRM_BACKEND_HOST, .state_dimension = TEST_GOLDEN_CACHE};
        assert_ok(test_interpreter_create(network, &options, &interpreter));
        test_runner runner = test_runner_of_interpreter(interpreter);
        const double worst[] = {
            test_golden_run_whole(&golden, &runner).worst, test_golden_run_chunks(&golden, &runner, 7).worst,
            test_golden_run_decode(&golden, &runner).worst, test_golden_run_batch(&golden, &runner).worst};
        if (getenv("TRM_TEST_VERBOSE") != NULL) {
            print_message("%-12s whole %.5f chunks %.5f decode %.5f batch %.5f\n", names[i], worst[0], worst[1],
                          worst[2], worst[3]);
        }
        for (int way = 0; way < 4; way++) {
            assert_true(worst[way] > 1e-4 && worst[way] < 0.2);
        }
        assert_true(fabs(worst[0] - worst[1]) < 2e-3 && fabs(worst[2] - worst[3]) < 2e-3);
        test_interpreter_destroy(interpreter);
        trm_network_destroy(network);
        test_golden_close(&golden);
    }
}

/* Random weights of two seeds differ, and logits are finite, of order one and not all alike. */
static void presets_compute_sane_logits(void **state)
{
    (void)state;
    trm_model *model;
    trm_network *network;
    test_interpreter *interpreter;
    float first = 0.0f;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        assert_ok(trm_model_open_preset("gpt2", 1, seed, &model));
        assert_ok(trm_model_build_network(model, TRM_F32, &network));
        test_interpreter_options options = {.backend = TRM_BACKEND_HOST, .state_dimension = 2};
        assert_ok(test_interpreter_create(network, &options, &interpreter));
        const int32_t tokens[3] = {5, 6, 7}, positions[3] = {0, 1, 2}, starts[2] = {0, 3}, lengths[1] = {3};
        const int32_t table[1] = {1}, rows[1] = {2};
        const trm_dims one = {1, {1}}, two = {1, {2}}, three = {1, {3}}, square = {2, {1, 1}};
        assert_ok(test_interpreter_set_input(interpreter, "token_ids", &three, tokens));
        assert_ok(test_interpreter_set_input(interpreter, "positions", &three, positions));
        assert_ok(test_interpreter_set_input(interpreter, "sequence_starts", &two, starts));
        assert_ok(test_interpreter_set_input(interpreter, "sequence_lengths", &one, lengths));
        assert_ok(test_interpreter_set_input(interpreter, "block_table", &square, table));
        assert_ok(test_interpreter_set_input(interpreter, "logit_rows", &one, rows));
        assert_ok(test_interpreter_run(interpreter));
        const float *logits = test_interpreter_output(interpreter, "logits", NULL);
        double sum = 0.0;
        for (int32_t i = 0; i < 50257; i++) {
            sum += (double)logits[i] * (double)logits[i];
        }
        assert_true(sum / 50257 > 0.1 && sum / 50257 < 10.0);
        assert_true(logits[0] != first);
        first = logits[0];
        test_interpreter_destroy(interpreter);
        trm_network_destroy(network);
        trm_model_close(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_transformers),   cmocka_unit_test(passes_keep_the_logits),
        cmocka_unit_test(other_compute_types_agree),   cmocka_unit_test(rounded_caches_stay_near),
        cmocka_unit_test(presets_compute_sane_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
