/* The example plugin from ONNX on one rank: numbers, plans, streamed and new weights, settings. */
#include "plugin/fixture.h"

#include "kernels/plugin/plugin.h"

static char folder[2048], one[4096], two[4096], path[4096];

static void make_files(void)
{
    snprintf(folder, sizeof(folder), "%s", test_temporary_folder());
    snprintf(one, sizeof(one), "%s/one.onnx", folder);
    snprintf(two, sizeof(two), "%s/two.onnx", folder);
    snprintf(path, sizeof(path), "%s/net.plan", folder);
    write_model(one, 1);
    write_model(two, 2);
}

static void import_fails(const char *file, trm_status expected, const char *part)
{
    trm_onnx *model = NULL;
    trm_network *network = NULL;
    assert_ok(trm_onnx_open(file, &model));
    assert_fails(trm_onnx_build_network(model, NULL, &network), expected, part);
    trm_onnx_close(model);
}

static bool operator_is_known(const char *file)
{
    trm_onnx *model = NULL;
    trm_onnx_use use;
    bool known = false;
    assert_ok(trm_onnx_open(file, &model));
    for (int32_t i = 0; trm_onnx_get_use(model, i, &use); i++) {
        known = known || (strcmp(use.op, "GainSwish") == 0 && use.known);
    }
    trm_onnx_close(model);
    return known;
}

/* Before anything is loaded. */
static void a_node_without_its_plugin_is_refused(void **state)
{
    (void)state;
    make_files();
    import_fails(one, TRM_ERROR_UNSUPPORTED,
                 "operator com.example.GainSwish is not supported, and no plugin of this name and version is loaded");
    assert_false(operator_is_known(one));
    int32_t layer = 0;
    assert_fails(trm_plugin_make_layer("com.example", "GainSwish", 1, NULL, 0, &layer), TRM_ERROR_UNSUPPORTED,
                 "no plugin com.example.GainSwish is loaded");
    assert_int_equal(plugin_count(), 0);
}

static void libraries_are_loaded_once(void **state)
{
    (void)state;
    trm_plugin_info info;
    assert_fails(trm_plugin_load("/no/such/file.so"), TRM_ERROR_IO, "cannot load plugins from /no/such/file.so");
    assert_fails(trm_plugin_load(NULL), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    assert_fails(trm_plugin_load(one), TRM_ERROR_IO, "one.onnx");
    assert_fails(trm_plugin_load(library("no_list")), TRM_ERROR_INVALID_ARGUMENT, "exports no trm_plugins");
    assert_fails(trm_plugin_load(library("other_abi")), TRM_ERROR_UNSUPPORTED, "its plugins have ABI 2");
    assert_int_equal(plugin_count(), 0);
    assert_ok(trm_plugin_load(library("gain_swish")));
    assert_ok(trm_plugin_load(library("gain_swish")));
    assert_int_equal(plugin_count(), 1);
    assert_true(trm_plugin_get_info(0, &info));
    assert_false(trm_plugin_get_info(1, &info));
    assert_false(trm_plugin_get_info(-1, &info));
    assert_string_equal(info.domain, "com.example");
    assert_string_equal(info.name, "GainSwish");
    assert_non_null(strstr(info.library, "gain_swish.so"));
    assert_true(info.version == 1 && info.host && info.cuda == (TRM_HAVE_CUDA != 0));
    assert_true(operator_is_known(one));
}

static void the_example_runs_from_onnx(void **state)
{
    (void)state;
    trm_network *network = import_model(one, false);
    char *text = trm_network_to_text(network);
    assert_non_null(strstr(text, "s: f32 [?, 64] = plugin(h, gain) of=\"com.example.GainSwish 1\" sharpness=1.5"));
    trm_free(text);
    trm_network_destroy(network);
    check_plan(plan_model(one, false, "", 1, 0, false), 1, 1, NULL);
}

static void weights_stream_and_change(void **state)
{
    (void)state;
    for (int streamed = 0; streamed < 2; streamed++) {
        trm_plan *plan = plan_model(one, true, "", 1, 0, false);
        const trm_weight_budget budget = {.kind = streamed ? TRM_WEIGHT_BUDGET_PERCENT : TRM_WEIGHT_BUDGET_OFF};
        assert_ok(trm_plan_set_weight_budget(plan, &budget));
        check_plan(plan, 1, 1, two);
    }
}

static void plans_keep_the_plugin(void **state)
{
    (void)state;
    trm_plan *plan = plan_model(one, true, "", 1, 0, false), *loaded = NULL;
    char *text = trm_plan_to_text(plan), *json = trm_plan_to_json(plan);
    assert_non_null(strstr(json, "\"plugin\""));
    assert_non_null(strstr(json, "\"sharpness\""));
    assert_ok(trm_plan_save((const trm_plan *const[]){plan}, 1, TRM_PLAN_WEIGHTS_STRIPPED, path));
    assert_ok(trm_plan_refit(path, 0, two, &loaded));
    check_plan(loaded, 2, 1, NULL);
    assert_ok(trm_plan_save((const trm_plan *const[]){plan}, 1, TRM_PLAN_WEIGHTS_REFERENCED, path));
    assert_ok(trm_plan_load(path, 0, &loaded));
    char *again = trm_plan_to_text(loaded);
    assert_string_equal(text, again);
    check_plan(loaded, 1, 1, two);
    trm_plan_destroy(plan);
    trm_free(text);
    trm_free(json);
    trm_free(again);
}

static void versions_are_those_of_the_domain(void **state)
{
    (void)state;
    message attribute = {0};
    const message plain = plugin_node("GainSwish h gain s", NULL);
    write_model_with(path, 1, &plain, 7); /* the newest up to it */
    trm_network_destroy(import_model(path, false));
    put_text(&attribute, 1, "plugin_version");
    put_text(&attribute, 4, "1");
    put_number(&attribute, 20, 3);
    message asks = plugin_node("GainSwish h gain s", &attribute);
    write_model_with(path, 1, &asks, 7);
    trm_network_destroy(import_model(path, false));
    attribute = (message){0};
    put_text(&attribute, 1, "plugin_version");
    put_text(&attribute, 4, "3");
    put_number(&attribute, 20, 3);
    asks = plugin_node("GainSwish h gain s", &attribute);
    write_model_with(path, 1, &asks, 7);
    import_fails(path, TRM_ERROR_UNSUPPORTED,
                 "ask for version 3 of the plugin in com.example, found com.example.GainSwish 1");
}

static void nodes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const message number = attribute("sharpness", 2, NULL), unknown = float_attribute("width", 2),
                  negative = float_attribute("sharpness", -1);
    message swish = plugin_node("GainSwish h gain s", &number);
    write_model_with(path, 1, &swish, 1);
    import_fails(path, TRM_ERROR_INVALID_MODEL, "attribute sharpness has type int, expected float");
    swish = plugin_node("GainSwish h gain s", &unknown);
    write_model_with(path, 1, &swish, 1);
    import_fails(path, TRM_ERROR_INVALID_MODEL, "plugin com.example.GainSwish 1 has no setting width");
    swish = plugin_node("GainSwish h gain s", &negative);
    write_model_with(path, 1, &swish, 1);
    import_fails(path, TRM_ERROR_INVALID_MODEL,
                 "plugin com.example.GainSwish 1 cannot take its settings: sharpness is not positive");
    swish = plugin_node("GainSwish h s", NULL);
    write_model_with(path, 1, &swish, 1);
    import_fails(path, TRM_ERROR_INVALID_MODEL, "found 1 inputs, expected 2");
    swish = plugin_node("GainSwish h h s", NULL);
    write_model_with(path, 1, &swish, 1);
    import_fails(path, TRM_ERROR_INVALID_MODEL,
                 "plugin com.example.GainSwish 1 cannot infer its dims: expected x with at least one dimension");
}

static void settings_are_checked(void **state)
{
    (void)state;
    static const float sharpness = 2.5f;
    const trm_plugin_setting good = {.name = "sharpness", .type = TRM_PLUGIN_FLOAT, .count = 1, .floats = &sharpness};
    trm_plugin_setting bad[2] = {good, good};
    int32_t layer = 0, same = 0, other = 0;
    assert_ok(trm_plugin_make_layer("com.example", "GainSwish", 1, &good, 1, &layer));
    assert_ok(trm_plugin_make_layer("com.example", "GainSwish", 9, &good, 1, &same));
    assert_ok(trm_plugin_make_layer("com.example", "GainSwish", 1, NULL, 0, &other));
    assert_true(layer == same && layer != other);
    assert_fails(trm_plugin_make_layer("com.example", "GainSwish", 0, &good, 1, &layer), TRM_ERROR_UNSUPPORTED,
                 "no plugin com.example.GainSwish of this version");
    assert_fails(trm_plugin_make_layer("com.example", "GainSwish", 1, bad, 2, &layer), TRM_ERROR_INVALID_ARGUMENT,
                 "setting sharpness of plugin com.example.GainSwish 1 is given twice");
    bad[0].count = 2;
    assert_fails(trm_plugin_make_layer("com.example", "GainSwish", 1, bad, 1, &layer), TRM_ERROR_INVALID_ARGUMENT,
                 "is malformed");
    bad[0] = (trm_plugin_setting){.name = NULL, .type = TRM_PLUGIN_FLOAT, .count = 1, .floats = &sharpness};
    assert_fails(trm_plugin_make_layer("com.example", "GainSwish", 1, bad, 1, &layer), TRM_ERROR_INVALID_ARGUMENT,
                 "has no setting NULL");
    assert_fails(trm_plugin_make_layer("com.example", "GainSwish", 1, NULL, 1, &layer), TRM_ERROR_INVALID_ARGUMENT,
                 "got 1 settings");
    assert_fails(trm_plugin_make_layer(NULL, "GainSwish", 1, NULL, 0, &layer), TRM_ERROR_INVALID_ARGUMENT, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_without_its_plugin_is_refused),
        cmocka_unit_test(libraries_are_loaded_once),
        cmocka_unit_test(the_example_runs_from_onnx),
        cmocka_unit_test(weights_stream_and_change),
        cmocka_unit_test(plans_keep_the_plugin),
        cmocka_unit_test(versions_are_those_of_the_domain),
        cmocka_unit_test(nodes_that_do_not_fit_are_refused),
        cmocka_unit_test(settings_are_checked),
    };
    return test_lacks_backend() ? TEST_SKIPPED : cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
