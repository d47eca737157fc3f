/* Plugins that break the rules: refused with their name, and what was there before stays as it was. */
#include "plugin/fixture.h"

#include "base/file.h"
#include "kernels/plugin/plugin.h"

/* ---- a plugin that does what a test asks ------------------------------------------------------- */

typedef enum fault {
    NOTHING,
    INFER_FAILS,
    INFER_IS_SILENT,
    INFER_SHOUTS,
    NO_TYPE,
    NO_DIMS,
    TOO_MANY_DIMS,
    NEGATIVE_DIM,
    HUGE_DIMS,
    UNKNOWN_DIM,
    CHANGES_ITS_MIND,
    OTHER_DIMS_LATER,
    OTHER_TYPE_LATER,
    MUCH_WORKSPACE,
    WORKSPACE_FAILS,
    WORKSPACE_FALLS,
    RUN_FAILS,
    OTHER_DIMS_OF_PARTS
} fault;

static fault does;
static int calls;

static bool says(trm_plugin_call *call, const char *text)
{
    snprintf(call->error, call->error_size, "%s", text);
    return false;
}

/* x [..., n] -> like x. */
static bool infer(trm_plugin_call *call)
{
    trm_plugin_tensor *y = &call->outputs[0];
    const bool open = call->inputs[0].dims.d[0] == -1;
    y->dtype = TRM_F32;
    y->dims = call->inputs[0].dims;
    switch (does) {
    case INFER_FAILS:
        return says(call, "it does not like x");
    case INFER_IS_SILENT:
        return false;
    case INFER_SHOUTS:
        memset(call->error, '\n', call->error_size);
        return false;
    case NO_TYPE:
        y->dtype = TRM_DTYPE_NONE;
        break;
    case NO_DIMS:
        y->dims.n = -1;
        break;
    case TOO_MANY_DIMS:
        y->dims.n = TRM_MAX_DIMS + 1;
        break;
    case NEGATIVE_DIM:
        y->dims.d[0] = -7;
        break;
    case HUGE_DIMS:
        y->dims.d[0] = y->dims.d[1] = INT64_MAX / 2;
        break;
    case UNKNOWN_DIM:
        y->dims.d[1] = -1;
        break;
    case CHANGES_ITS_MIND:
        y->dims.d[1] = ++calls;
        break;
    case OTHER_DIMS_LATER:
        y->dims.d[1] = open ? 4 : 5;
        break;
    case OTHER_TYPE_LATER:
        y->dtype = open ? TRM_F32 : TRM_F16;
        break;
    case OTHER_DIMS_OF_PARTS:
        y->dims.d[0] -= y->dims.d[0] == 4 ? 1 : 0;
        break;
    default:
        break;
    }
    return true;
}

static bool workspace(trm_plugin_call *call)
{
    const int64_t rows = call->inputs[0].dims.d[0];
    call->workspace_size = does == MUCH_WORKSPACE    ? SIZE_MAX - 8
                           : does == WORKSPACE_FALLS ? (size_t)(1000 - rows) * 256
                                                     : 16;
    return does != WORKSPACE_FAILS;
}

static bool run(trm_plugin_call *call)
{
    memset(call->workspace, 1, call->workspace_size);
    memcpy(call->outputs[0].data, call->inputs[0].data, (size_t)call->inputs[0].dims.d[0] * 4 * sizeof(float));
    return does == RUN_FAILS ? says(call, "the disk is full") : true;
}

static trm_plugin good_table(const char *name)
{
    return (trm_plugin){.size = sizeof(trm_plugin),
                        .domain = "test",
                        .name = name,
                        .version = 1,
                        .least_inputs = 1,
                        .most_inputs = 2,
                        .n_outputs = 1,
                        .infer = infer,
                        .workspace = workspace,
                        .run = run};
}

/* Registers a copy that stays. */
static trm_status register_table(const trm_plugin *table)
{
    static trm_plugin kept[256];
    static const trm_plugin *pointers[256];
    static trm_plugin_list lists[256];
    static int n;
    assert_in_range(n, 0, 255);
    kept[n] = *table;
    pointers[n] = &kept[n];
    lists[n] = (trm_plugin_list){sizeof(lists[n]), TRM_PLUGIN_ABI, 1, &pointers[n]};
    n++;
    return trm_plugin_register(&lists[n - 1]);
}

/* ---- tables ------------------------------------------------------------------------------------ */

static void lists_are_checked(void **state)
{
    (void)state;
    const trm_plugin good = good_table("Listed"), bad = {0};
    const trm_plugin *both[] = {&good, &bad}, *none[] = {NULL};
    trm_plugin_list list = {sizeof(list), TRM_PLUGIN_ABI, 2, both};
    assert_fails(trm_plugin_register(NULL), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    assert_fails(trm_plugin_register(&list), TRM_ERROR_INVALID_ARGUMENT, "a plugin's table has 0 bytes");
    assert_int_equal(plugin_count(), 0); /* all or none */
    list.plugins = none;
    list.n_plugins = 1;
    assert_fails(trm_plugin_register(&list), TRM_ERROR_INVALID_ARGUMENT, "a plugin of the list is NULL");
    list.plugins = NULL;
    assert_fails(trm_plugin_register(&list), TRM_ERROR_INVALID_ARGUMENT, "it lists 1 plugins");
    list.plugins = both;
    list.n_plugins = -1;
    assert_fails(trm_plugin_register(&list), TRM_ERROR_INVALID_ARGUMENT, "it lists -1 plugins");
    list.abi = 0;
    assert_fails(trm_plugin_register(&list), TRM_ERROR_UNSUPPORTED, "have ABI 0");
    list.abi = TRM_PLUGIN_ABI;
    list.size = 8;
    assert_fails(trm_plugin_register(&list), TRM_ERROR_UNSUPPORTED, "a list of 8 bytes");
}

static bool launch(trm_plugin_call *call, trm_plugin_launch *to)
{
    (void)call;
    (void)to;
    return true;
}

static void tables_are_checked(void **state)
{
    (void)state;
    static const trm_plugin_field twice[] = {{"a", TRM_PLUGIN_INT, false}, {"a", TRM_PLUGIN_INT, false}},
                                  untyped[] = {{"a", (trm_plugin_type)9, false}},
                                  unnamed[] = {{NULL, TRM_PLUGIN_INT, false}};
    static const trm_plugin_split whole[] = {{.outputs = {1}}}, far[] = {{.inputs = {50}, .outputs = {1}}};
    char name[300];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
#define REFUSED(text, ...)                                                                                             \
    do {                                                                                                               \
        trm_plugin t = good_table("Bad");                                                                              \
        __VA_ARGS__;                                                                                                   \
        assert_fails(register_table(&t), TRM_ERROR_INVALID_ARGUMENT, text);                                            \
    } while (0)
    REFUSED("a plugin's table has 16 bytes", t.size = 16);
    REFUSED("no valid name", t.name = NULL);
    REFUSED("no valid name", t.name = "");
    REFUSED("no valid name", t.name = "two words");
    REFUSED("no valid name", t.name = name);
    REFUSED("no valid name", t.domain = NULL);
    REFUSED("plugin test.Bad: its version is below 1", t.version = 0);
    REFUSED("impossible number of inputs", t.least_inputs = 0);
    REFUSED("impossible number of inputs", t.least_inputs = 3);
    REFUSED("impossible number of inputs", t.most_inputs = 17);
    REFUSED("impossible number of outputs", t.n_outputs = 0);
    REFUSED("impossible number of outputs", t.n_outputs = 6);
    REFUSED("a value input is none of its inputs", t.value_inputs = 4);
    REFUSED("impossible number of fields", t.n_fields = -1);
    REFUSED("impossible number of fields", t.n_fields = 1);
    REFUSED("two fields have one name", t.n_fields = 2, t.fields = twice);
    REFUSED("a field has an unknown type", t.n_fields = 1, t.fields = untyped);
    REFUSED("a field has no valid name", t.n_fields = 1, t.fields = unnamed);
    REFUSED("impossible number of splits", t.n_splits = 1);
    REFUSED("a split leaves all inputs whole", t.n_splits = 1, t.splits = whole);
    REFUSED("a split has an input with an impossible axis", t.n_splits = 1, t.splits = far);
    REFUSED("it has no function infer", t.infer = NULL);
    REFUSED("it has none of the functions run, enqueue and launch", t.run = NULL);
    REFUSED("it has both functions enqueue and launch", t.enqueue = run, t.launch = launch);
    REFUSED("it needs all of a CUDA source or image", t.launch = launch);
    REFUSED("it needs all of a CUDA source or image", t.cuda_source = "x");
    REFUSED("it needs all of a CUDA source or image", t.cuda_source = "x", t.cuda_image = "y", t.cuda_kernel = "z",
            t.launch = launch);
#undef REFUSED
    assert_int_equal(plugin_count(), 0);
    const trm_plugin good = good_table("Good");
    assert_ok(register_table(&good));
    assert_fails(register_table(&good), TRM_ERROR_INVALID_ARGUMENT, "plugin test.Good 1 is loaded already");
    trm_plugin newer = good;
    newer.version = 2;
    assert_ok(register_table(&newer));
    assert_int_equal(plugin_count(), 2);
}

/* Numbers of a good table replaced at random: refused, or harmless. */
static void random_tables_are_refused_or_harmless(void **state)
{
    (void)state;
    static const int32_t odd[] = {0, 1, -1, 2, 3, 16, 17, 63, 64, 65, 1000000, INT32_MAX, INT32_MIN};
    uint64_t random = test_seed();
    int taken = 0;
    for (int i = 0; i < 100; i++) {
        trm_plugin table = good_table("Random");
        int32_t *const numbers[] = {&table.version,   &table.least_inputs, &table.most_inputs,
                                    &table.n_outputs, &table.n_fields,     &table.n_splits};
        for (int k = 0; k < 2; k++) {
            *numbers[test_random_below(&random, 6)] = odd[test_random_below(&random, sizeof(odd) / sizeof(odd[0]))];
        }
        int32_t layer;
        if (register_table(&table) == TRM_OK) {
            taken++;
            assert_ok(trm_plugin_make_layer("test", "Random", table.version, NULL, 0, &layer));
        }
    }
    assert_true(taken < 50);
}

/* ---- rules and kernels ------------------------------------------------------------------------- */

static int32_t good_layer(void)
{
    int32_t layer = 0;
    assert_ok(trm_plugin_make_layer("test", "Good", 2, NULL, 0, &layer));
    return layer;
}

/* x [?, 4] or [rows, 4] through the plugin. */
static trm_status make_network(int64_t rows, trm_network **network)
{
    trm_network *made = net_create();
    trm_tensor *x = net_input(made, "x", TRM_F32, DIMS(rows, 4)), *y = NULL;
    const trm_layer_desc desc = {.kind = TRM_LAYER_PLUGIN, .plugin = {good_layer()}};
    const trm_status status = trm_network_add_layer(made, "y", &desc, &x, 1, &y);
    if (status != TRM_OK) {
        trm_network_destroy(made);
        return status;
    }
    net_output(made, y);
    *network = made;
    return TRM_OK;
}

static trm_status build(const trm_network *network, trm_plan **plan)
{
    const trm_shape_bound bound = {.tensor = "x", .max = DIMS(8, 4)};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.bounds = &bound;
    options.n_bounds = network->tensors[0]->dims.d[0] == -1 ? 1 : 0;
    assert_ok(trm_mesh_parse("", 1, &options.mesh));
    return trm_build(network, &options, plan);
}

static void wrong_answers_are_refused(void **state)
{
    (void)state;
    const struct {
        fault fault;
        const char *part;
    } cases[] = {
        {INFER_FAILS, "plugin test.Good 2 cannot infer its dims: it does not like x"},
        {INFER_IS_SILENT, "plugin test.Good 2 cannot infer its dims: it did not say why"},
        {INFER_SHOUTS, "plugin test.Good 2 cannot infer its dims: ????"},
        {NO_TYPE, "plugin test.Good 2 gives output 0 type 0 and 2 dims, which cannot be"},
        {NO_DIMS, "plugin test.Good 2 gives output 0 type 1 and -1 dims"},
        {TOO_MANY_DIMS, "plugin test.Good 2 gives output 0 type 1 and 9 dims"},
        {NEGATIVE_DIM, "plugin test.Good 2 gives dimension 0 of output 0 size -7"},
        {HUGE_DIMS, "y"},
        {UNKNOWN_DIM, "plugin test.Good 2 leaves a dimension of output 0 unknown although it knows all inputs"},
        {CHANGES_ITS_MIND, "plugin test.Good 2 gives output 0 other dims when asked again"},
        {MUCH_WORKSPACE, "plugin test.Good 2 wants 18446744073709551607 bytes of workspace"},
        {WORKSPACE_FAILS, "plugin test.Good 2 cannot say how much workspace it needs: it did not say why"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        trm_network *network = NULL;
        does = cases[i].fault;
        assert_fails(make_network(3, &network), TRM_ERROR_INVALID_ARGUMENT, cases[i].part);
    }
    does = NOTHING;
    trm_network *network = net_create();
    trm_tensor *x = net_input(network, "x", TRM_F32, DIMS(3, 4)), *y = NULL;
    for (int32_t number = -1; number < 2; number++) {
        const trm_layer_desc desc = {.kind = TRM_LAYER_PLUGIN, .plugin = {number == 1 ? INT32_MAX : number}};
        assert_fails(trm_network_add_layer(network, "y", &desc, &x, 1, &y), TRM_ERROR_INVALID_ARGUMENT,
                     "of a plugin, which does not exist");
    }
    trm_network_destroy(network);
}

/* What only shows with known dims fails the build, and the plan file that was there stays. */
static void plans_are_not_spoiled(void **state)
{
    (void)state;
    static const fault faults[] = {OTHER_DIMS_LATER, OTHER_TYPE_LATER, INFER_FAILS, MUCH_WORKSPACE};
    static const char *const parts[] = {
        "plugin y gives output y as f32 [8, 5], and gave f32 [?, 4] when the network was made",
        "plugin y gives output y as f16 [8, 4], and gave f32 [?, 4]", "it does not like x", "bytes of workspace"};
    char path[4096], *before = NULL, *after = NULL;
    size_t size, size_after;
    trm_network *network = NULL;
    trm_plan *plan = NULL, *loaded = NULL;
    snprintf(path, sizeof(path), "%s/net.plan", test_temporary_folder());
    does = NOTHING;
    assert_ok(make_network(-1, &network));
    assert_ok(build(network, &plan));
    assert_ok(trm_plan_save((const trm_plan *const[]){plan}, 1, TRM_PLAN_WEIGHTS_REFERENCED, path));
    assert_ok(trm_file_read(path, 1 << 20, &before, &size));
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        does = NOTHING;
        trm_network_destroy(network);
        assert_ok(make_network(-1, &network));
        does = faults[i] == OTHER_DIMS_LATER || faults[i] == OTHER_TYPE_LATER ? faults[i] : NOTHING;
        if (does != NOTHING) { /* asked with unknown dims, it still gives the first answer */
            trm_network_destroy(network);
            assert_ok(make_network(-1, &network));
        }
        does = faults[i];
        assert_fails(build(network, &plan), TRM_ERROR_INVALID_ARGUMENT, parts[i]);
        assert_fails(trm_plan_load(path, 0, &loaded), TRM_ERROR_INVALID_MODEL, "net.plan");
    }
    assert_ok(trm_file_read(path, 1 << 20, &after, &size_after));
    assert_true(size == size_after && memcmp(before, after, size) == 0);
    does = NOTHING;
    assert_ok(trm_plan_load(path, 0, &loaded));
    trm_plan_destroy(loaded);
    trm_plan_destroy(plan);
    trm_network_destroy(network);
    free(before);
    free(after);
}

/* Rows can be split, says the plugin; not in halves, says its rule. */
static void parts_must_be_parts(void **state)
{
    (void)state;
    static const trm_plugin_split rows[] = {{{TRM_PLUGIN_AXIS(0), TRM_PLUGIN_AXIS(0)}, {TRM_PLUGIN_AXIS(0)}}};
    trm_plugin table = good_table("Split");
    trm_layer_desc desc = {.kind = TRM_LAYER_PLUGIN};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_network *network = net_create();
    trm_tensor *inputs[] = {net_input(network, "x", TRM_F32, DIMS(8, 4)), net_values(network, "w", DIMS(8, 2))}, *y;
    trm_plan *plan = NULL;
    does = NOTHING;
    table.splits = rows;
    table.n_splits = 1;
    assert_ok(register_table(&table));
    assert_ok(trm_plugin_make_layer("test", "Split", 1, NULL, 0, &desc.plugin.layer));
    assert_ok(trm_network_add_layer(network, "y", &desc, inputs, 2, &y));
    net_output(network, y);
    assert_ok(trm_network_pin(network, inputs[1], "split 0"));
    options.backend = TRM_BACKEND_HOST;
    assert_ok(trm_mesh_parse("tp=2", 2, &options.mesh));
    assert_ok(trm_build(network, &options, &plan));
    char *text = trm_plan_to_text(plan);
    assert_non_null(strstr(text, "[4, 4] = plugin("));
    trm_free(text);
    trm_plan_destroy(plan);
    does = OTHER_DIMS_OF_PARTS;
    assert_fails(trm_build(network, &options, &plan), TRM_ERROR_INVALID_ARGUMENT,
                 "layer y gives output 0 as [3, 4] for a part of its inputs, expected the part [4, 4]");
    does = NOTHING;
    trm_network_destroy(network);
}

static void failures_of_a_run_name_the_plugin(void **state)
{
    (void)state;
    const float x[8 * 4] = {1, 2, 3, 4};
    trm_network *network = NULL;
    trm_plan *plan = NULL;
    trm_engine *engine = NULL;
    does = NOTHING;
    assert_ok(make_network(-1, &network));
    assert_ok(build(network, &plan));
    trm_context *context = test_open_context(plan, &engine);
    assert_ok(trm_context_set_input(context, "x", DIMS(2, 4), x));
    does = RUN_FAILS;
    assert_fails(trm_context_run(context), TRM_ERROR_INTERNAL, "plugin test.Good 2 cannot run: the disk is full");
    does = WORKSPACE_FALLS;
    assert_ok(trm_context_set_input(context, "x", DIMS(3, 4), x));
    assert_fails(trm_context_run(context), TRM_ERROR_INTERNAL, "workspace");
    does = NOTHING;
    assert_ok(trm_context_set_input(context, "x", DIMS(2, 4), x));
    assert_ok(trm_context_run(context));
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
}

/* ---- saved bytes, value inputs, all kinds of settings ------------------------------------------ */

static const trm_plugin_field all_fields[] = {
    {"int", TRM_PLUGIN_INT, true},        {"float", TRM_PLUGIN_FLOAT, false},   {"string", TRM_PLUGIN_STRING, false},
    {"ints", TRM_PLUGIN_INTS, false},     {"floats", TRM_PLUGIN_FLOATS, false}, {"strings", TRM_PLUGIN_STRINGS, false},
    {"tensor", TRM_PLUGIN_TENSOR, false},
};
static int created, restored;

static bool create_with_state(trm_plugin_call *call)
{
    static char state[8];
    if (call->saved != NULL) {
        restored++;
        if (call->saved_size != 4 || memcmp(call->saved, "abcd", 4) != 0) {
            return says(call, "the saved bytes are not those that it saved");
        }
    }
    created++;
    call->self = state;
    return true;
}

static bool save_state(trm_plugin_call *call)
{
    call->saved = "abcd";
    call->saved_size = 4;
    return true;
}

/* x [n], times [1] -> [n * times]. */
static bool infer_repeat(trm_plugin_call *call)
{
    const int64_t *times = call->inputs[1].values;
    call->outputs[0].dtype = TRM_F32;
    call->outputs[0].dims = (trm_dims){1, {-1}};
    if (times != NULL && call->inputs[0].dims.d[0] >= 0) {
        call->outputs[0].dims.d[0] = call->inputs[0].dims.d[0] * *times;
    }
    return call->n_settings == 7 && call->self != NULL ? true : says(call, "settings are missing");
}

static bool run_repeat(trm_plugin_call *call)
{
    const int64_t n = call->inputs[0].dims.d[0], times = *(const int64_t *)call->inputs[1].values;
    for (int64_t i = 0; i < n * times; i++) {
        ((float *)call->outputs[0].data)[i] = ((const float *)call->inputs[0].data)[i % n];
    }
    return true;
}

static void plans_keep_settings_and_bytes(void **state)
{
    (void)state;
    static const int64_t ints[] = {INT64_MIN, -1, INT64_MAX}, one = 5;
    static const float floats[] = {0.1f, -2.5f};
    static const char *const strings[] = {"", "say \"so\"", "\xc3\xa9"};
    trm_plugin table = good_table("Repeat");
    table.least_inputs = 2;
    table.value_inputs = 2;
    table.fields = all_fields;
    table.n_fields = 7;
    table.create = create_with_state;
    table.save = save_state;
    table.infer = infer_repeat;
    table.workspace = NULL;
    table.run = run_repeat;
    assert_ok(register_table(&table));
    const trm_plugin_setting settings[] = {
        {.name = "tensor", .type = TRM_PLUGIN_TENSOR, .dtype = TRM_F32, .dims = DIMS(2), .data = floats},
        {.name = "strings", .type = TRM_PLUGIN_STRINGS, .count = 3, .strings = strings},
        {.name = "string", .type = TRM_PLUGIN_STRING, .count = 1, .strings = strings + 1},
        {.name = "ints", .type = TRM_PLUGIN_INTS, .count = 3, .ints = ints},
        {.name = "floats", .type = TRM_PLUGIN_FLOATS, .count = 0},
        {.name = "float", .type = TRM_PLUGIN_FLOAT, .count = 1, .floats = floats},
        {.name = "int", .type = TRM_PLUGIN_INT, .count = 1, .ints = &one}};
    trm_layer_desc desc = {.kind = TRM_LAYER_PLUGIN};
    assert_fails(trm_plugin_make_layer("test", "Repeat", 1, settings, 6, &desc.plugin.layer),
                 TRM_ERROR_INVALID_ARGUMENT, "plugin test.Repeat 1 needs setting int");
    assert_ok(trm_plugin_make_layer("test", "Repeat", 1, settings, 7, &desc.plugin.layer));
    assert_true(created == 1 && restored == 0);

    trm_network *network = net_create();
    trm_tensor *inputs[] = {net_input(network, "x", TRM_F32, DIMS(-1)), net_input(network, "times", TRM_I64, DIMS(1))},
               *y;
    assert_ok(trm_network_add_layer(network, "y", &desc, inputs, 2, &y));
    net_output(network, y);
    char *text = trm_network_to_text(network);
    assert_non_null(
        strstr(text, "y: f32 [?] = plugin(x, times) of=\"test.Repeat 1\" int=5 float=0.1 string=\"say \\\"so\\\"\" "
                     "ints=[-9223372036854775808, -1, 9223372036854775807] floats=[] "
                     "strings=[\"\", \"say \\\"so\\\"\", \"\xc3\xa9\"] tensor=f32 [2] hash="));
    trm_free(text);
    static const int64_t most = 3;
    const trm_shape_bound bounds[] = {{.tensor = "x", .max = DIMS(4)},
                                      {.tensor = "times", .max = DIMS(1), .max_values = &most}};
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    trm_plan *plan = NULL, *loaded = NULL;
    options.backend = TRM_BACKEND_HOST;
    options.bounds = bounds;
    options.n_bounds = 2;
    assert_ok(trm_mesh_parse("", 1, &options.mesh));
    assert_ok(trm_build(network, &options, &plan));
    char path[4096], *before;
    snprintf(path, sizeof(path), "%s/net.plan", test_temporary_folder());
    assert_ok(trm_plan_save((const trm_plan *const[]){plan}, 1, TRM_PLAN_WEIGHTS_REFERENCED, path));
    assert_ok(trm_plan_load(path, 0, &loaded));
    assert_true(created == 2 && restored == 1);
    before = trm_plan_to_text(plan);
    text = trm_plan_to_text(loaded);
    assert_string_equal(before, text);
    trm_plan_destroy(plan);

    trm_engine *engine = NULL;
    trm_context *context = test_open_context(loaded, &engine);
    for (int64_t times = 1; times < 4; times++) {
        const float x[] = {1, 2, 3, 4};
        trm_dims dims;
        const void *data;
        assert_ok(trm_context_set_input(context, "x", DIMS(4), x));
        assert_ok(trm_context_set_input(context, "times", DIMS(1), &times));
        assert_ok(trm_context_run(context));
        assert_ok(trm_context_output(context, "y", &dims, &data));
        assert_true(dims.n == 1 && dims.d[0] == 4 * times);
        for (int64_t i = 0; i < 4 * times; i++) {
            assert_true(((const float *)data)[i] == x[i % 4]);
        }
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    trm_network_destroy(network);
    trm_free(text);
    trm_free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_checked),
        cmocka_unit_test(tables_are_checked),
        cmocka_unit_test(random_tables_are_refused_or_harmless),
        cmocka_unit_test(wrong_answers_are_refused),
        cmocka_unit_test(plans_are_not_spoiled),
        cmocka_unit_test(parts_must_be_parts),
        cmocka_unit_test(failures_of_a_run_name_the_plugin),
        cmocka_unit_test(plans_keep_settings_and_bytes),
    };
    return cmocka_run_group_tests(tests, test_open_world, test_close_world);
}
