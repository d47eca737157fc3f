/* Import of ONNX models: what is refused and with which error, options, issues, external data, files over 2 GiB. */
#include "support/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "graph/network.h"
#include "support/onnx_message.h"

/* ---- writing models ------------------------------------------------------------------------------------ */

/* y = x + w, x [n, 2]; w, if there is one, is an initializer. */
static message sum_model(const message *weight)
{
    static const int64_t dims[] = {-1, 2};
    message graph = {0};
    put_graph(&graph, 1, node("Add x w y"));
    if (weight != NULL) {
        put_message(&graph, 5, weight);
    }
    put_graph(&graph, 11, port("x", 1, 2, dims));
    if (weight == NULL) {
        put_graph(&graph, 11, port("w", 1, 2, dims));
    }
    put_graph(&graph, 12, port("y", 1, 2, dims));
    return model_of(&graph);
}

/* A tensor of two floats that lie in a file. */
static message external_tensor(const char *name, const char *location, const char *offset)
{
    message weight = {0};
    put_number(&weight, 1, 2);
    put_number(&weight, 2, 1);
    put_text(&weight, 8, name);
    const char *pairs[][2] = {{"location", location}, {"offset", offset}, {"length", "8"}};
    for (int i = 0; i < 3; i++) {
        message entry = {0};
        put_text(&entry, 1, pairs[i][0]);
        put_text(&entry, 2, pairs[i][1]);
        put_message(&weight, 13, &entry);
    }
    put_number(&weight, 14, 1);
    return weight;
}

static message external_weight(const char *location)
{
    return external_tensor("w", location, "4");
}

static const char *write_model(const char *folder, const message *model)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/model.onnx", folder);
    test_write_file(path, model->bytes, model->size);
    return path;
}

static trm_onnx *open_model(const message *model)
{
    trm_onnx *opened;
    assert_ok(trm_onnx_open(write_model(test_temporary_folder(), model), &opened));
    return opened;
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

static const struct {
    const char *file;
    trm_status status;
    const char *cause;
} refusals[] = {
    {"too_deep", TRM_ERROR_INVALID_MODEL, "nested too deep"},
    {"cycle", TRM_ERROR_INVALID_MODEL, "node 0 (Add, opset 17): its input \"b\" is not defined (missing, or part"},
    {"missing", TRM_ERROR_INVALID_MODEL, "its input \"nope\" is not defined"},
    {"defined_twice", TRM_ERROR_INVALID_MODEL, "node 1 (Add, opset 17): the name \"y\" is defined twice"},
    {"input_twice", TRM_ERROR_INVALID_MODEL, "the name \"x\" is defined twice"},
    {"output_twice", TRM_ERROR_INVALID_MODEL, "output \"y\" is listed twice"},
    {"output_missing", TRM_ERROR_INVALID_MODEL, "output \"y\" is not defined"},
    {"negative_dim", TRM_ERROR_INVALID_MODEL, "input x has dimension -5"},
    {"many_dims", TRM_ERROR_UNSUPPORTED, "input x has 9 dimensions"},
    {"unknown_type", TRM_ERROR_UNSUPPORTED, "input x has type invalid"},
    {"huge_tensor", TRM_ERROR_INVALID_MODEL, "tensor w has more elements than memory can hold"},
    {"large_tensor", TRM_ERROR_INVALID_MODEL, "tensor w has 0 elements, expected 8589934592"},
    {"negative_tensor", TRM_ERROR_INVALID_MODEL, "tensor w has dimension -2"},
    {"short_tensor", TRM_ERROR_INVALID_MODEL, "tensor w has 4 bytes, expected 8"},
    {"wrong_field", TRM_ERROR_INVALID_MODEL, "tensor w has 0 elements, expected 2"},
    {"external_parent", TRM_ERROR_INVALID_MODEL, "expected one in the model's folder"},
    {"external_absolute", TRM_ERROR_INVALID_MODEL, "expected one in the model's folder"},
    {"external_huge", TRM_ERROR_INVALID_MODEL, "tensor w has 9223372036854775808 bytes of external data"},
    {"attribute_type", TRM_ERROR_INVALID_MODEL, "attribute perm has type int, expected ints"},
    {"attribute_range", TRM_ERROR_INVALID_MODEL, "axis 1099511627776"},
    {"endless_loop", TRM_ERROR_INVALID_MODEL, "does not end within 4611686018427387904 passes"},
    {"long_loop", TRM_ERROR_INVALID_MODEL, "does not end within 1099511627776 passes"},
    {"scan", TRM_ERROR_INVALID_MODEL, "body has 2 inputs and 1 outputs, expected 2 and 2"},
    {"scan_no_passes", TRM_ERROR_INVALID_MODEL, "body has 2 inputs and 1 outputs, expected 2 and 2"},
    {"scan_8", TRM_ERROR_INVALID_MODEL, "body has 2 inputs and 1 outputs, expected 2 and 2"},
    {"scan_8_no_passes", TRM_ERROR_INVALID_MODEL, "body has 2 inputs and 1 outputs, expected 2 and 2"},
    {"scan_8_no_batch", TRM_ERROR_INVALID_MODEL, "body has 2 inputs and 1 outputs, expected 2 and 2"},
    {"recursive_function", TRM_ERROR_UNSUPPORTED, "functions and bodies are nested more than"},
    {"doubling_functions", TRM_ERROR_UNSUPPORTED, "the import takes more than"},
    {"large_range", TRM_ERROR_INVALID_MODEL, "do not fit into memory"},
    {"no_opset", TRM_ERROR_INVALID_MODEL, "does not say which opset"},
};

static void test_hostile_models_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        char path[512];
        trm_onnx *model = NULL;
        trm_network *network;
        snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/onnx/hostile_%s", TRM_SOURCE_DIR, refusals[i].file);
        print_message("%s\n", refusals[i].file);
        trm_status status = trm_onnx_open(path, &model);
        if (status == TRM_OK) {
            status = trm_onnx_build_network(model, NULL, &network);
        }
        assert_fails(status, refusals[i].status, refusals[i].cause);
        trm_onnx_close(model);
    }
}

/* Tensors in files of their own. */
static void test_hostile_values_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *file, *type;
        trm_status status;
        const char *cause;
    } values[] = {
        {"dims", "f32", TRM_ERROR_INVALID_MODEL, "more elements than memory can hold"},
        {"empty_extent", "f32", TRM_ERROR_INVALID_MODEL, "more elements than memory can hold"},
        {"negative_dim", "f32", TRM_ERROR_INVALID_MODEL, "has dimension -1, expected none below 0"},
        {"short", "f32", TRM_ERROR_INVALID_MODEL, "has 8 bytes, expected 16"},
        {"external", "f32", TRM_ERROR_UNSUPPORTED, "its elements are external data, which only models have"},
        {"external_unnamed", "f32", TRM_ERROR_UNSUPPORTED, "its elements are external data, which only models have"},
        {"deep_optional", "optional(f32)", TRM_ERROR_INVALID_MODEL, "nested too deep"},
    };
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        trm_onnx_fixed_value *read = NULL;
        int32_t n = 0;
        char path[4096];
        snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/value/hostile_%s", TRM_SOURCE_DIR, values[i].file);
        print_message("%s\n", values[i].file);
        assert_fails(trm_onnx_read_value(path, values[i].type, &read, &n), values[i].status, values[i].cause);
        assert_null(read);
    }
}

static void test_broken_files_are_refused(void **state)
{
    (void)state;
    message model = sum_model(NULL), nothing = {0};
    trm_onnx *opened;
    assert_fails(trm_onnx_open("/nonexistent.onnx", &opened), TRM_ERROR_IO, "cannot open");
    assert_fails(trm_onnx_open(write_model(test_temporary_folder(), &nothing), &opened), TRM_ERROR_INVALID_MODEL,
                 "the file is empty");
    for (size_t size = 1; size < model.size; size++) { /* cut off anywhere: never more than an incomplete model */
        message cut = model;
        cut.size = size;
        if (trm_onnx_open(write_model(test_temporary_folder(), &cut), &opened) == TRM_OK) {
            trm_onnx_close(opened);
        }
    }
    model.size = 9;
    assert_fails(trm_onnx_open(write_model(test_temporary_folder(), &model), &opened), TRM_ERROR_INVALID_MODEL,
                 "model");
    message control = {0};
    put_text(&control, 2, "a\nb");
    assert_fails(trm_onnx_open(write_model(test_temporary_folder(), &control), &opened), TRM_ERROR_INVALID_MODEL,
                 "control characters");
}

/* ---- issues -------------------------------------------------------------------------------------------- */

static void test_issues_are_collected(void **state)
{
    (void)state;
    static const int64_t dims[] = {2};
    message graph = {0};
    const char *nodes[] = {"Foo x a", "Relu a b", "Add x nope c", "MatMul x d", "Relu x y"};
    for (int i = 0; i < 5; i++) {
        put_graph(&graph, 1, node(nodes[i]));
    }
    put_graph(&graph, 11, port("x", 1, 1, dims));
    put_graph(&graph, 12, port("y", 1, 1, dims));
    message model = model_of(&graph);
    trm_onnx *opened = open_model(&model);
    trm_network *network;
    assert_fails(trm_onnx_build_network(opened, NULL, &network), TRM_ERROR_UNSUPPORTED,
                 "node 0 (Foo, opset 17): operator Foo is not supported (and 2 more)");
    assert_int_equal(trm_onnx_issue_count(opened), 3); /* not Relu, which only lacks what Foo makes */
    trm_onnx_issue issue;
    assert_true(trm_onnx_get_issue(opened, 1, &issue));
    assert_int_equal(issue.node, 2);
    assert_string_equal(issue.op, "Add");
    assert_int_equal(issue.opset, 17);
    assert_int_equal(issue.status, TRM_ERROR_INVALID_MODEL);
    assert_non_null(strstr(issue.text, "model.onnx: node 2 (Add, opset 17): its input \"nope\""));
    assert_true(trm_onnx_get_issue(opened, 2, &issue));
    assert_string_equal(issue.op, "MatMul");
    assert_false(trm_onnx_get_issue(opened, 3, &issue));
    trm_onnx_use use;
    assert_true(trm_onnx_get_use(opened, 0, &use));
    assert_string_equal(use.op, "Foo");
    assert_false(use.known);
    assert_true(trm_onnx_get_use(opened, 1, &use));
    assert_true(use.known && use.nodes == 2);
    trm_onnx_close(opened);
}

/* ---- options ------------------------------------------------------------------------------------------- */

static void test_options(void **state)
{
    (void)state;
    message model = sum_model(NULL);
    trm_onnx *opened = open_model(&model);
    trm_network *network;
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    trm_onnx_port declared;
    assert_int_equal(trm_onnx_input_count(opened), 2);
    assert_int_equal(trm_onnx_output_count(opened), 1);
    assert_true(trm_onnx_get_input(opened, 0, &declared));
    assert_true(declared.has_dims && declared.dims.d[0] == -1 && declared.dims.d[1] == 2);
    assert_string_equal(declared.dim_names[0], "n");
    assert_string_equal(declared.type, "f32");

    assert_ok(trm_onnx_build_network(opened, NULL, &network));
    assert_int_equal(trm_tensor_dims(trm_network_find_tensor(network, "y")).d[0], -1);
    trm_network_destroy(network);

    const trm_onnx_named_dim named = {"n", 5};
    options.dims = &named;
    options.n_dims = 1;
    assert_ok(trm_onnx_build_network(opened, &options, &network));
    assert_int_equal(trm_tensor_dims(trm_network_find_tensor(network, "y")).d[0], 5);
    trm_network_destroy(network);

    const trm_onnx_input_dims wrong = {"x", {2, {5, 3}}};
    options.inputs = &wrong;
    options.n_inputs = 1;
    assert_fails(trm_onnx_build_network(opened, &options, &network), TRM_ERROR_INVALID_ARGUMENT,
                 "input x is given dims [5, 3], expected [5, 2] as in the model");
    const trm_onnx_input_dims open = {"x", {2, {-1, -1}}};
    options.inputs = &open;
    assert_fails(trm_onnx_build_network(opened, &options, &network), TRM_ERROR_INVALID_ARGUMENT,
                 "dimension 1 of input x is 2 in the model");

    static const float ones[] = {1, 1};
    const trm_onnx_fixed_value values[] = {{"w", TRM_F32, {2, {1, 2}}, ones}, {"x", TRM_F32, {2, {1, 2}}, ones}};
    options = TRM_ONNX_OPTIONS_INIT;
    options.values = values;
    options.n_values = 2;
    assert_ok(trm_onnx_build_network(opened, &options, &network));
    const trm_tensor *y = trm_network_find_tensor(network, "y");
    assert_true(y->role == TRM_TENSOR_CONSTANT && ((const float *)y->value)[1] == 2); /* all of it was known */
    trm_network_destroy(network);

    const trm_onnx_port_type types[] = {{"x", TRM_F16}, {"y", TRM_BF16}};
    options = TRM_ONNX_OPTIONS_INIT;
    options.types = types;
    options.n_types = 2;
    assert_ok(trm_onnx_build_network(opened, &options, &network));
    assert_int_equal(trm_tensor_dtype(trm_network_find_tensor(network, "x")), TRM_F16);
    assert_int_equal(trm_tensor_dtype(trm_network_find_tensor(network, "y")), TRM_BF16);
    assert_int_equal(trm_network_output_count(network), 1);
    trm_network_destroy(network);
    options.types = &(trm_onnx_port_type){"z", TRM_F16};
    options.n_types = 1;
    assert_fails(trm_onnx_build_network(opened, &options, &network), TRM_ERROR_INVALID_ARGUMENT,
                 "z cannot have type f16: the model has no such input or output");
    options.values = values;
    options.n_values = 2;
    options.types = types; /* of what is fixed there is none */
    assert_fails(trm_onnx_build_network(opened, &options, &network), TRM_ERROR_INVALID_ARGUMENT, "x cannot have type");
    options.size = 3;
    assert_fails(trm_onnx_build_network(opened, &options, &network), TRM_ERROR_INVALID_ARGUMENT, "_INIT");
    trm_onnx_close(opened);
}

/* y = relu(x), x [n, 2] with n written as the number -1, as some exporters do. */
/* y = x + w of a model whose input w [n, 2] has an initializer [1, 2]. */
static void test_inputs_with_a_default(void **state)
{
    (void)state;
    static const int64_t dims[] = {-1, 2}, row[] = {1, 2};
    static const float default_value[] = {3, 4}, other[] = {5, 6};
    const trm_onnx_input_dims set = {"w", {2, {-1, 2}}};
    const trm_onnx_fixed_value value = {"w", TRM_F32, {2, {1, 2}}, other};
    for (uint64_t ir = 3; ir <= 8; ir += 5) {
        message graph = {0}, opset = {0}, model = {0};
        put_graph(&graph, 1, node("Add x w y"));
        put_weight(&graph, "w", 1, 2, row, default_value, sizeof(default_value));
        put_graph(&graph, 11, port("x", 1, 2, dims));
        put_graph(&graph, 11, port("w", 1, 2, dims));
        put_graph(&graph, 12, port("y", 1, 2, dims));
        put_number(&opset, 2, 17);
        put_number(&model, 1, ir);
        put_message(&model, 7, &graph);
        put_message(&model, 8, &opset);
        trm_onnx *opened = open_model(&model);
        trm_network *network;
        trm_onnx_port declared;
        trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
        assert_int_equal(trm_onnx_input_count(opened), 1);
        assert_int_equal(trm_onnx_get_default(opened, 0, &declared), ir >= 4);
        assert_true(ir < 4 || strcmp(declared.name, "w") == 0);
        assert_false(trm_onnx_get_default(opened, 1, &declared));
        for (int32_t given = 0; given < 3; given++) { /* nothing, its dims, its value */
            options.inputs = &set;
            options.n_inputs = given == 1;
            options.values = &value;
            options.n_values = given == 2;
            assert_ok(trm_onnx_build_network(opened, &options, &network));
            const trm_tensor *w = trm_network_find_tensor(network, "w");
            const bool replaced = ir >= 4 && given > 0;
            assert_int_equal(w->role, replaced && given == 1 ? TRM_TENSOR_INPUT : TRM_TENSOR_CONSTANT);
            assert_true(!replaced || given == 1 || memcmp(w->value, other, sizeof(other)) == 0);
            trm_network_destroy(network);
        }
        const trm_onnx_port_type type = {"w", TRM_F16};
        options = TRM_ONNX_OPTIONS_INIT;
        options.types = &type;
        options.n_types = 1;
        assert_fails(trm_onnx_build_network(opened, &options, &network), TRM_ERROR_INVALID_ARGUMENT,
                     "w cannot have type f16");
        options.inputs = &set;
        options.n_inputs = 1;
        if (ir >= 4) {
            assert_ok(trm_onnx_build_network(opened, &options, &network));
            assert_int_equal(trm_network_find_tensor(network, "w")->dtype, TRM_F16);
            trm_network_destroy(network);
        }
        trm_onnx_close(opened);
    }
}

static message unnamed_model(void)
{
    message dims[2] = {{.size = 0}, {.size = 0}}, shape = {0}, tensor = {0}, type = {0}, x = {0}, graph = {0};
    put_number(&dims[0], 1, (uint64_t)-1);
    put_number(&dims[1], 1, 2);
    put_message(&shape, 1, &dims[0]);
    put_message(&shape, 1, &dims[1]);
    put_number(&tensor, 1, 1);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&x, 1, "x");
    put_message(&x, 2, &type);
    put_graph(&graph, 1, node("Relu x y"));
    put_message(&graph, 11, &x);
    put_graph(&graph, 12, port("y", 1, 2, (int64_t[]){-1, 2}));
    return model_of(&graph);
}

static void test_dims_of_minus_one_are_open(void **state)
{
    (void)state;
    message model = unnamed_model();
    trm_onnx *opened = open_model(&model);
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    const trm_onnx_input_dims open = {"x", {2, {-1, 2}}}, fixed = {"x", {2, {3, 2}}};
    const trm_onnx_input_dims *given[] = {NULL, &open, &fixed};
    for (int i = 0; i < 3; i++) {
        trm_network *network;
        options.inputs = given[i];
        options.n_inputs = given[i] == NULL ? 0 : 1;
        assert_ok(trm_onnx_build_network(opened, &options, &network));
        assert_int_equal(trm_tensor_dims(trm_network_find_tensor(network, "y")).d[0], i < 2 ? -1 : 3);
        trm_network_destroy(network);
    }
    trm_onnx_close(opened);
}

/* ---- convolutions of integers -------------------------------------------------------------------------- */

static void keep_log(void *user, trm_log_level level, const char *text)
{
    (void)level;
    snprintf(user, 256, "%s", text);
}

/* x [n, 2] + w [n, 2]: the name stays in the network; two sizes of n are warned of and kept. */
static void test_named_dims(void **state)
{
    (void)state;
    message model = sum_model(NULL);
    trm_onnx *opened = open_model(&model);
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    trm_onnx_input_dims given[] = {{"x", {2, {4, 2}}}, {"w", {2, {5, 2}}}};
    trm_network *network;
    options.inputs = given;
    options.n_inputs = 2;
    char warning[256] = "";
    trm_log_set(keep_log, warning, TRM_LOG_WARNING);
    assert_fails(trm_onnx_build_network(opened, &options, &network), TRM_ERROR_INVALID_MODEL,
                 "dims [4, 2] and [5, 2] do not broadcast");
    assert_string_equal(warning, "dimension n is 4 at position 0 of input x and 5 at position 0 of input w: both are "
                                 "kept");
    given[0].dims.d[0] = 1; /* one row for five */
    assert_ok(trm_onnx_build_network(opened, &options, &network));
    assert_int_equal(trm_tensor_dims(trm_network_find_tensor(network, "y")).d[0], 5);
    trm_network_destroy(network);
    trm_log_set(NULL, NULL, TRM_LOG_WARNING);
    given[0].dims.d[0] = given[1].dims.d[0] = 4;
    assert_ok(trm_onnx_build_network(opened, &options, &network));
    trm_network_destroy(network);
    given[1].dims.d[0] = -1;
    assert_ok(trm_onnx_build_network(opened, &options, &network));
    assert_string_equal(trm_tensor_dim_name(trm_network_find_tensor(network, "x"), 0), "n");
    assert_string_equal(trm_tensor_dim_name(trm_network_find_tensor(network, "w"), 0), "n");
    assert_null(trm_tensor_dim_name(trm_network_find_tensor(network, "w"), 1));
    trm_network_destroy(network);
    trm_onnx_close(opened);
}

/* The model's own opset, and that of a function of it, may be later than all that are known. */
static void test_opsets_of_the_future(void **state)
{
    (void)state;
    static const struct {
        uint64_t own, of_function;
        int64_t newer;
    } cases[] = {
        {17, 17, 0}, {TRM_ONNX_NEWEST_OPSET, TRM_ONNX_NEWEST_OPSET, 0}, {29, 17, 29}, {17, 30, 30}, {31, 30, 31}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int64_t dims[] = {2};
        message graph = {0}, function = {0}, opset = {0};
        put_graph(&graph, 1, node("Add x x y"));
        put_graph(&graph, 11, port("x", 1, 1, dims));
        put_graph(&graph, 12, port("y", 1, 1, dims));
        message model = model_of_opset(&graph, cases[i].own);
        put_number(&opset, 2, cases[i].of_function);
        put_text(&function, 1, "unused");
        put_message(&function, 9, &opset);
        put_text(&function, 10, "own");
        put_message(&model, 25, &function);
        trm_onnx *opened = open_model(&model);
        trm_onnx_info info;
        trm_network *network;
        trm_onnx_get_info(opened, &info);
        assert_int_equal(info.opset, cases[i].own);
        assert_int_equal(info.newer_opset, cases[i].newer);
        assert_ok(trm_onnx_build_network(opened, NULL, &network));
        trm_network_destroy(network);
        trm_onnx_close(opened);
    }
}

/* In f32, but of whole numbers, which no kernel may make of other ones that are nearly theirs. */
static void test_convolutions_of_integers_say_so(void **state)
{
    (void)state;
    static const int64_t x_dims[] = {1, 2, 5, 5}, w_dims[] = {3, 2, 3, 3}, y_dims[] = {1, 3, 3, 3}, one[] = {1};
    static const unsigned char w[54] = {7, 255, 16}, zero[1] = {128};
    static const float scale[1] = {0.5f};
    static const char *const nodes[] = {"ConvInteger x w y", "QLinearConv x s z w s z s z y"};
    for (int i = 0; i < 2; i++) {
        message graph = {0};
        put_graph(&graph, 1, node(nodes[i]));
        put_weight(&graph, "w", 2, 4, w_dims, w, sizeof(w));
        put_weight(&graph, "s", 1, 1, one, scale, sizeof(scale));
        put_weight(&graph, "z", 2, 1, one, zero, sizeof(zero));
        put_graph(&graph, 11, port("x", 2, 4, x_dims));
        put_graph(&graph, 12, port("y", i == 0 ? 6 : 2, 4, y_dims));
        message model = model_of(&graph);
        trm_onnx *opened = open_model(&model);
        trm_network *network;
        assert_ok(trm_onnx_build_network(opened, NULL, &network));
        int32_t convolutions = 0;
        for (int32_t k = 0; k < network->n_layers; k++) {
            const trm_layer *layer = network->layers[k];
            if (layer->desc.kind == TRM_LAYER_CONVOLUTION) {
                assert_true(layer->desc.convolution.whole_numbers);
                convolutions++;
            }
        }
        assert_int_equal(convolutions, i == 0 ? 2 : 1);
        trm_network_destroy(network);
        trm_onnx_close(opened);
    }
}

/* ---- attention over ranks ------------------------------------------------------------------------------ */

/* Of the given number of ranks, with keys of past steps or without. */
static message attention_model(int64_t ranks, bool past)
{
    static const int64_t dims[] = {1, 2, 6, 8}, mask[] = {6, 12};
    message graph = {0}, made = node(past ? "Attention q k v m pk pv y" : "Attention q k v m y");
    put_graph(&made, 5, attribute("is_causal", 1, NULL));
    put_graph(&made, 5, attribute("nb_rank", ranks, NULL));
    put_graph(&graph, 1, made);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"q", "k", "v"};
        put_graph(&graph, 11, port(names[i], 1, 4, dims));
    }
    put_graph(&graph, 11, port("m", 9, 2, mask));
    for (int i = 0; past && i < 2; i++) {
        put_graph(&graph, 11, port(i == 0 ? "pk" : "pv", 1, 4, dims));
    }
    put_graph(&graph, 12, port("y", 1, 4, dims));
    return model_of_opset(&graph, 23);
}

/* Attention whose rows several ranks have is one layer that says so. */
static void test_attention_over_ranks(void **state)
{
    (void)state;
    const struct {
        int64_t ranks;
        bool past;
        const char *cause;
    } cases[] = {{2, false, NULL}, {2, true, "nb_rank is 2 with keys of past steps"}, {0, false, "nb_rank is 0"}};
    for (int i = 0; i < 3; i++) {
        message model = attention_model(cases[i].ranks, cases[i].past);
        trm_onnx *opened = open_model(&model);
        trm_network *network;
        if (cases[i].cause != NULL) {
            assert_fails(trm_onnx_build_network(opened, NULL, &network),
                         i == 1 ? TRM_ERROR_UNSUPPORTED : TRM_ERROR_INVALID_MODEL, cases[i].cause);
        } else {
            assert_ok(trm_onnx_build_network(opened, NULL, &network));
            const trm_layer_desc *desc = &network->layers[network->n_layers - 1]->desc;
            assert_int_equal(desc->kind, TRM_LAYER_ATTENTION);
            assert_int_equal(desc->attention.n_ranks, cases[i].ranks);
            assert_int_equal(desc->attention.causal, TRM_CAUSAL_UPPER_LEFT);
            trm_network_destroy(network);
        }
        trm_onnx_close(opened);
    }
}

/* ---- outputs ------------------------------------------------------------------------------------------- */

/* Outputs that are inputs, the same tensor under two names, and constants. */
static void test_outputs_have_their_names(void **state)
{
    (void)state;
    static const int64_t dims[] = {2};
    static const float ones[] = {1, 1};
    message graph = {0}, weight = {0};
    put_graph(&graph, 1, node("Relu x r"));
    put_graph(&graph, 1, node("Identity r a"));
    put_graph(&graph, 1, node("Identity x b"));
    put_graph(&graph, 1, node("Identity w c"));
    put_number(&weight, 1, 2);
    put_number(&weight, 2, 1);
    put_bytes(&weight, 9, ones, sizeof(ones));
    put_text(&weight, 8, "w");
    put_message(&graph, 5, &weight);
    put_graph(&graph, 11, port("x", 1, 1, dims));
    static const char *const names[] = {"x", "r", "a", "b", "c", "w"};
    for (int i = 0; i < 6; i++) {
        put_graph(&graph, 12, port(names[i], 1, 1, dims));
    }
    message model = model_of(&graph);
    trm_onnx *opened = open_model(&model);
    trm_network *network;
    assert_ok(trm_onnx_build_network(opened, NULL, &network));
    for (int i = 0; i < 6; i++) {
        assert_string_equal(trm_tensor_name(trm_network_output(network, i)), names[i]);
    }
    trm_network_destroy(network);
    const trm_onnx_port_type types[] = {{"r", TRM_F16}, {"c", TRM_F64}, {"x", TRM_F16}};
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    options.types = types;
    options.n_types = 2;
    assert_ok(trm_onnx_build_network(opened, &options, &network));
    for (int i = 0; i < 6; i++) {
        const trm_tensor *output = trm_network_output(network, i);
        assert_string_equal(trm_tensor_name(output), names[i]);
        assert_int_equal(trm_tensor_dtype(output), i == 1 ? TRM_F16 : i == 4 ? TRM_F64 : TRM_F32);
    }
    trm_network_destroy(network);
    options.n_types = 3;
    assert_fails(trm_onnx_build_network(opened, &options, &network), TRM_ERROR_INVALID_ARGUMENT,
                 "x cannot have type f16: it is an input and an output");
    trm_onnx_close(opened);
}

/* ---- external data ------------------------------------------------------------------------------------- */

static void test_external_data(void **state)
{
    (void)state;
    static const float stored[] = {9, 3, 4};
    const char *folder = test_temporary_folder();
    char path[512], link[512];
    snprintf(path, sizeof(path), "%s/data", folder);
    snprintf(link, sizeof(link), "%s/outside", folder);
    test_write_file(path, stored, sizeof(stored));
    assert_int_equal(symlink("/etc/hostname", link), 0);
    trm_onnx *opened;
    trm_network *network;

    message weight = external_weight("data"), model = sum_model(&weight);
    assert_ok(trm_onnx_open(write_model(folder, &model), &opened));
    assert_ok(trm_onnx_build_network(opened, NULL, &network));
    const trm_tensor *w = trm_network_find_tensor(network, "w");
    assert_true(w->value != NULL && ((const float *)w->value)[0] == 3 && ((const float *)w->value)[1] == 4);
    trm_network_destroy(network);
    trm_onnx_close(opened);

    weight = external_weight("outside");
    model = sum_model(&weight);
    assert_ok(trm_onnx_open(write_model(folder, &model), &opened));
    assert_fails(trm_onnx_build_network(opened, NULL, &network), TRM_ERROR_INVALID_MODEL, "leads out of");
    trm_onnx_close(opened);

    weight = external_weight("absent");
    model = sum_model(&weight);
    assert_ok(trm_onnx_open(write_model(folder, &model), &opened));
    assert_fails(trm_onnx_build_network(opened, NULL, &network), TRM_ERROR_INVALID_MODEL, "tensor w: cannot open");
    trm_onnx_close(opened);

    test_write_file(path, stored, 8); /* the file ends too early */
    weight = external_weight("data");
    model = sum_model(&weight);
    assert_ok(trm_onnx_open(write_model(folder, &model), &opened));
    assert_fails(trm_onnx_build_network(opened, NULL, &network), TRM_ERROR_INVALID_MODEL, "bytes 4 to 12 of data");
    trm_onnx_close(opened);
}

/* Two tensors of a file of three floats: apart, the same one, and with one float in common. */
static void test_external_data_in_common(void **state)
{
    (void)state;
    static const float stored[] = {9, 3, 4, 5};
    static const struct {
        const char *location, *offset, *cause;
    } others[] = {
        {"data", "8", NULL},
        {"data", "0", NULL},
        {"data", "4",
         "tensors w and v have bytes 0 to 8 and 4 to 12 of data, expected the same ones or none in common"},
        {"./data", "7", "tensors w and v have bytes 0 to 8 and 7 to 15 of data"},
        {"link", "1", "tensors w and v have bytes 0 to 8 and 1 to 9 of data"},
        {"copy", "4", NULL},
    };
    const char *folder = test_temporary_folder(), *names[] = {"data", "copy", "link"};
    char paths[3][512];
    for (int i = 0; i < 3; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%s/%s", folder, names[i]);
    }
    test_write_file(paths[0], stored, sizeof(stored));
    test_write_file(paths[1], stored, sizeof(stored));
    assert_int_equal(symlink("data", paths[2]), 0);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        message graph = {0}, w = external_tensor("w", "data", "0");
        message v = external_tensor("v", others[i].location, others[i].offset);
        const int64_t dims[] = {-1, 2};
        trm_onnx *opened;
        trm_network *network;
        put_graph(&graph, 1, node("Add x w s"));
        put_graph(&graph, 1, node("Add s v y"));
        put_message(&graph, 5, &w);
        put_message(&graph, 5, &v);
        put_graph(&graph, 11, port("x", 1, 2, dims));
        put_graph(&graph, 12, port("y", 1, 2, dims));
        message model = model_of(&graph);
        assert_ok(trm_onnx_open(write_model(folder, &model), &opened));
        for (int again = 0; again < 2; again++) {
            trm_status status = trm_onnx_build_network(opened, NULL, &network);
            if (others[i].cause != NULL) {
                assert_fails(status, TRM_ERROR_INVALID_MODEL, others[i].cause);
            } else {
                assert_ok(status);
                trm_network_destroy(network);
            }
        }
        trm_onnx_close(opened);
    }
}

/* Nodes of which each comes before those it reads from; names tell that all are there. */
static void test_nodes_out_of_order(void **state)
{
    (void)state;
    static const int64_t dims[] = {-1, 2};
    message graph = {0};
    put_graph(&graph, 1, node("Add a b y"));
    put_graph(&graph, 1, node("Add a x b"));
    put_graph(&graph, 1, node("Add x x a"));
    put_graph(&graph, 11, port("x", 1, 2, dims));
    put_graph(&graph, 12, port("y", 1, 2, dims));
    message model = model_of(&graph);
    trm_onnx *opened = open_model(&model);
    trm_network *network;
    assert_ok(trm_onnx_build_network(opened, NULL, &network));
    static const char *const order[] = {"a", "b", "y"};
    assert_int_equal(network->n_layers, 3);
    for (int32_t i = 0; i < 3; i++) {
        assert_string_equal(network->layers[i]->name, order[i]);
    }
    trm_network_destroy(network);
    trm_onnx_close(opened);
}

/* A model of more than 2 GiB in one file, most of it a hole: weights are views of it, and nothing is copied. */
static void test_large_model(void **state)
{
    (void)state;
    const uint64_t rows = (uint64_t)300 << 20, bytes = rows * 8; /* 2.3 GiB */
    message tensor = {0}, head = {0}, rest = {0}, file = {0}, opset = {0};
    static const int64_t dims[] = {-1, 2};
    put_number(&tensor, 1, rows);
    put_number(&tensor, 1, 2);
    put_number(&tensor, 2, 1);
    put_text(&tensor, 8, "w");
    put_varint(&tensor, 9 << 3 | 2); /* raw_data, the last field; its bytes follow in the file */
    put_varint(&tensor, bytes);
    put_graph(&rest, 1, node("Add x w y"));
    put_graph(&rest, 11, port("x", 1, 2, dims));
    put_graph(&rest, 12, port("y", 1, 2, dims));
    put_varint(&head, 5 << 3 | 2);
    put_varint(&head, tensor.size + bytes);
    put_number(&opset, 2, 17);
    put_number(&file, 1, 8);
    put_message(&file, 8, &opset);
    put_varint(&file, 7 << 3 | 2);
    put_varint(&file, rest.size + head.size + tensor.size + bytes);
    memcpy(file.bytes + file.size, rest.bytes, rest.size);
    memcpy(file.bytes + file.size + rest.size, head.bytes, head.size);
    memcpy(file.bytes + file.size + rest.size + head.size, tensor.bytes, tensor.size);
    file.size += rest.size + head.size + tensor.size;
    const char *path = write_model(test_temporary_folder(), &file);
    int descriptor = open(path, O_WRONLY);
    const float last = 42;
    assert_true(descriptor >= 0);
    assert_true(pwrite(descriptor, &last, 4, (off_t)(file.size + bytes - 4)) == 4);
    close(descriptor);
    trm_onnx *opened;
    trm_network *network;
    float found = 0;
    assert_ok(trm_onnx_open(path, &opened));
    assert_ok(trm_onnx_build_network(opened, NULL, &network));
    const trm_tensor *w = trm_network_find_tensor(network, "w");
    assert_non_null(w->weight);
    trm_onnx_close(opened); /* the weight keeps the file */
    assert_ok(trm_weight_read(w->weight, TRM_F32, rows * 2 - 1, 1, &found));
    assert_true(found == 42);
    trm_network_destroy(network);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_models_are_refused),
        cmocka_unit_test(test_hostile_values_are_refused),
        cmocka_unit_test(test_broken_files_are_refused),
        cmocka_unit_test(test_issues_are_collected),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_inputs_with_a_default),
        cmocka_unit_test(test_dims_of_minus_one_are_open),
        cmocka_unit_test(test_named_dims),
        cmocka_unit_test(test_opsets_of_the_future),
        cmocka_unit_test(test_convolutions_of_integers_say_so),
        cmocka_unit_test(test_attention_over_ranks),
        cmocka_unit_test(test_outputs_have_their_names),
        cmocka_unit_test(test_external_data),
        cmocka_unit_test(test_external_data_in_common),
        cmocka_unit_test(test_nodes_out_of_order),
        cmocka_unit_test(test_large_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
