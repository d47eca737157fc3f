/*
 * Passes on real decoders: every family still gives the logits of its golden after each stage, and the patterns that
 * passes are for are found in them.
 */
#include "graph/nets.h"
#include "support/hf_golden.h"

static void check_goldens(const test_golden *golden, const trm_network *network)
{
    test_interpreter_options options = {.backend = TRM_BACKEND_HOST, .state_dimension = TEST_GOLDEN_CACHE};
    test_interpreter *interpreter = NULL;
    assert_ok(test_interpreter_create(network, &options, &interpreter));
    test_runner runner = test_runner_of_interpreter(interpreter);
    test_golden_difference found[] = {test_golden_run_whole(golden, &runner), test_golden_run_decode(golden, &runner),
                                      test_golden_run_batch(golden, &runner)};
    test_interpreter_destroy(interpreter);
    double tolerance = test_golden_tolerance(golden, TRM_DTYPE_NONE);
    for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++) {
        if (!test_golden_agrees(golden, &found[i], tolerance)) {
            char *text = trm_network_to_text(network);
            print_error("%s", text);
            trm_free(text);
            fail_msg("%s: run %zu differs by %g, the median row by %g, tolerance %g", golden->name, i, found[i].worst,
                     found[i].median, tolerance);
        }
    }
}

static void every_family_keeps_its_logits(void **state)
{
    (void)state;
    for (int32_t i = 0; test_golden_name(i) != NULL; i++) {
        test_golden golden;
        trm_network *network = NULL;
        test_golden_open(test_golden_name(i), &golden);
        assert_ok(trm_model_build_network(golden.model, TRM_DTYPE_NONE, &network));
        int32_t before = network->n_layers;
        assert_ok(trm_run_passes(network, TRM_PASSES_BEFORE_PARTITION));
        assert_consistent(network);
        assert_true(network->n_layers < before);
        check_goldens(&golden, network);
        assert_ok(trm_run_passes(network, TRM_PASSES_AFTER_PARTITION));
        assert_consistent(network);
        check_goldens(&golden, network);
        trm_network_destroy(network);
        test_golden_close(&golden);
    }
}

static int32_t count_kind(const trm_network *network, trm_layer_kind kind)
{
    int32_t count = 0;
    for (int32_t i = 0; i < network->n_layers; i++) {
        count += network->layers[i]->desc.kind == kind;
    }
    return count;
}

static void a_llama_layer_becomes_what_it_should(void **state)
{
    (void)state;
    test_golden golden;
    trm_network *network = NULL;
    test_golden_open("llama", &golden);
    assert_ok(trm_model_build_network(golden.model, TRM_DTYPE_NONE, &network));
    assert_ok(trm_run_passes(network, TRM_PASSES_BEFORE_PARTITION));
    int32_t layers = (int32_t)golden.info.layers;
    assert_int_equal(count_kind(network, TRM_LAYER_ELEMENTWISE), 0); /* every sum is part of the norm behind it */
    assert_int_equal(count_kind(network, TRM_LAYER_NORM), 2 * layers + 1);
    assert_int_equal(count_kind(network, TRM_LAYER_GLU), layers);
    assert_int_equal(count_kind(network, TRM_LAYER_MATMUL), 7 * layers + 1);
    assert_ok(trm_run_passes(network, TRM_PASSES_AFTER_PARTITION));
    assert_int_equal(count_kind(network, TRM_LAYER_MATMUL), 3 * layers + 1);
    assert_int_equal(count_kind(network, TRM_LAYER_MATMUL_GLU), layers);
    assert_int_equal(count_kind(network, TRM_LAYER_QKV_ATTENTION), layers);
    assert_int_equal(count_kind(network, TRM_LAYER_ATTENTION) + count_kind(network, TRM_LAYER_ROPE), 0);
    assert_int_equal(count_kind(network, TRM_LAYER_SLICE), 0);
    trm_network_destroy(network);
    test_golden_close(&golden);
}

static void a_delta_layer_becomes_what_it_should(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3-next", "qwen3-5", "qwen3-5-moe"};
    for (int32_t i = 0; i < 3; i++) {
        test_golden golden;
        trm_network *network = NULL;
        test_golden_open(names[i], &golden);
        assert_ok(trm_model_build_network(golden.model, TRM_DTYPE_NONE, &network));
        assert_ok(trm_run_passes(network, TRM_PASSES_BEFORE_PARTITION));
        const int32_t layers = count_kind(network, TRM_LAYER_GATED_DELTA);
        assert_int_equal(count_kind(network, TRM_LAYER_SHORT_CONVOLUTION), 3 * layers);
        assert_ok(trm_run_passes(network, TRM_PASSES_AFTER_PARTITION));
        assert_int_equal(count_kind(network, TRM_LAYER_DELTA_NET), layers);
        assert_int_equal(count_kind(network, TRM_LAYER_GATED_DELTA), 0);
        assert_int_equal(count_kind(network, TRM_LAYER_SHORT_CONVOLUTION), 0);
        assert_int_equal(count_kind(network, TRM_LAYER_QKV_ATTENTION), (int32_t)golden.info.layers - layers);
        assert_int_equal(count_kind(network, TRM_LAYER_SLICE), (int32_t)golden.info.layers - layers); /* gates */
        trm_network_destroy(network);
        test_golden_close(&golden);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_keeps_its_logits),
        cmocka_unit_test(a_llama_layer_becomes_what_it_should),
        cmocka_unit_test(a_delta_layer_becomes_what_it_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
