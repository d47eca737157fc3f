/* Attention operators: which become one layer, and which are refused and why. What they compute is in the goldens. */
#include "support/support.h"

#include <stdio.h>

#include <trireme/trireme.h>

#include "graph/network.h"
#include "support/onnx_message.h"

static trm_onnx *open_model(const message *model)
{
    char path[512];
    trm_onnx *opened;
    snprintf(path, sizeof(path), "%s/attention.onnx", test_temporary_folder());
    test_write_file(path, model->bytes, model->size);
    assert_ok(trm_onnx_open(path, &opened));
    return opened;
}

typedef struct grouped_query {
    const char *attribute; /* that is 1, or `value`; or NULL */
    int64_t value;
    int64_t n_sinks; /* 0: none */
    bool is_quantized;
    bool wants_scores; /* as output 3 */
    bool is_broken;    /* refused as no model, not as one that is not supported */
    const char *cause; /* NULL: it is imported */
} grouped_query;

static message grouped_query_model(const grouped_query *g)
{
    static const int64_t q[] = {1, 3, 8}, k[] = {1, 3, 4}, p[] = {1, 4, 3, 3}, one[] = {1};
    static const int32_t last = 2, total = 3;
    const char *const inputs[] = {
        "q", "k", "v", "", "", "l", "t", "", "", "", "", g->n_sinks > 0 ? "s" : "", g->is_quantized ? "scale" : ""};
    message graph = {0}, made = {0}, opset = {0};
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        put_text(&made, 1, inputs[i]);
    }
    put_text(&made, 2, "y");
    for (int i = 1; g->wants_scores && i <= 3; i++) {
        put_text(&made, 2, i < 3 ? "" : "p");
    }
    put_text(&made, 4, "GroupQueryAttention");
    put_text(&made, 7, "com.microsoft");
    put_graph(&made, 5, attribute("num_heads", 4, NULL));
    put_graph(&made, 5, attribute("kv_num_heads", 2, NULL));
    if (g->attribute != NULL) {
        put_graph(&made, 5, attribute(g->attribute, g->value != 0 ? g->value : 1, NULL));
    }
    put_graph(&graph, 1, made);
    put_weight(&graph, "l", 6, 1, one, &last, sizeof(last));
    put_weight(&graph, "t", 6, 0, NULL, &total, sizeof(total));
    put_graph(&graph, 11, port("q", 1, 3, q));
    put_graph(&graph, 11, port("k", 1, 3, k));
    put_graph(&graph, 11, port("v", 1, 3, k));
    if (g->n_sinks > 0) {
        put_graph(&graph, 11, port("s", 1, 1, &g->n_sinks));
    }
    if (g->is_quantized) {
        put_graph(&graph, 11, port("scale", 1, 1, one));
    }
    put_graph(&graph, 12, port("y", 1, 3, q));
    if (g->wants_scores) {
        put_graph(&graph, 12, port("p", 1, 4, p));
    }
    message model = model_of(&graph);
    put_text(&opset, 1, "com.microsoft");
    put_number(&opset, 2, 1);
    put_message(&model, 8, &opset);
    return model;
}

/* One layer, also with sinks, or several for scores; what would give other results than asked for is refused. */
static void grouped_queries(void **state)
{
    (void)state;
    static const grouped_query cases[] = {
        {.n_sinks = 0},
        {.n_sinks = 4},
        {.attribute = "smooth_softmax"},
        {.n_sinks = 3, .is_broken = true, .cause = "head_sink has shape [3], expected [4]"},
        {.is_quantized = true, .cause = "a cache that is quantized"},
        {.attribute = "sliding_window_cache", .cause = "a cache that is no longer than the window"},
        {.attribute = "qk_output", .value = 1, .wants_scores = true},
        {.attribute = "qk_output", .value = 2, .wants_scores = true},
        {.attribute = "qk_output", .value = 3, .is_broken = true, .cause = "qk_output is 3, expected 1 or 2, or 0 for"},
        {.wants_scores = true, .is_broken = true, .cause = "qk_output is 0, expected 1 or 2 with an output of scores"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        message model = grouped_query_model(&cases[i]);
        trm_onnx *opened = open_model(&model);
        trm_network *network;
        if (cases[i].cause != NULL) {
            assert_fails(trm_onnx_build_network(opened, NULL, &network),
                         cases[i].is_broken ? TRM_ERROR_INVALID_MODEL : TRM_ERROR_UNSUPPORTED, cases[i].cause);
        } else {
            int32_t attentions = 0;
            assert_ok(trm_onnx_build_network(opened, NULL, &network));
            for (int32_t k = 0; k < network->n_layers; k++) {
                attentions += network->layers[k]->desc.kind == TRM_LAYER_ATTENTION;
            }
            assert_int_equal(attentions, cases[i].wants_scores ? 0 : 1);
            trm_network_destroy(network);
        }
        trm_onnx_close(opened);
    }
}

/* Of what ONNX's Attention may be asked to give for its scores. */
static void scores_of_attention(void **state)
{
    (void)state;
    static const int64_t q[] = {1, 2, 3, 4}, p[] = {1, 2, 3, 3};
    for (int64_t mode = -1; mode <= 4; mode++) {
        message graph = {0}, made = node("Attention q k v y");
        put_text(&made, 2, "");
        put_text(&made, 2, "");
        put_text(&made, 2, "p");
        put_graph(&made, 5, attribute("qk_matmul_output_mode", mode, NULL));
        put_graph(&graph, 1, made);
        put_graph(&graph, 11, port("q", 1, 4, q));
        put_graph(&graph, 11, port("k", 1, 4, q));
        put_graph(&graph, 11, port("v", 1, 4, q));
        put_graph(&graph, 12, port("y", 1, 4, q));
        put_graph(&graph, 12, port("p", 1, 4, p));
        message model = model_of_opset(&graph, 23);
        trm_onnx *opened = open_model(&model);
        trm_network *network = NULL;
        trm_status status = trm_onnx_build_network(opened, NULL, &network);
        if (mode < 0 || mode > 3) {
            char cause[64];
            snprintf(cause, sizeof(cause), "qk_matmul_output_mode is %d, expected 0 to 3", (int)mode);
            assert_fails(status, TRM_ERROR_INVALID_MODEL, cause);
        } else {
            assert_ok(status);
        }
        trm_network_destroy(network);
        trm_onnx_close(opened);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grouped_queries),
        cmocka_unit_test(scores_of_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
