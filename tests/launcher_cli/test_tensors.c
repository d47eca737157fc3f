/* Error statistics of two tensors, against figures worked out by hand, and tensors of several ranks put together. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "launcher/cli/tensors/tensor_folder.h"

static settings defaults;

static tensor_value vector(trm_dtype dtype, int64_t n, const void *data)
{
    return (tensor_value){dtype, {1, {n}}, (void *)(uintptr_t)data};
}

static tensor_error measure(trm_dtype dtype, int64_t n, const void *found, const void *expected,
                            tensor_tolerance tolerance)
{
    tensor_value a = vector(dtype, n, found), b = vector(dtype, n, expected);
    tensor_error error;
    tensor_error_measure(&a, &b, &tolerance, &error);
    return error;
}

static void expect_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12 * fabs(expected))) {
        fail_msg("%.17g, expected %.17g", found, expected);
    }
}

static void figures_are_those_of_their_definitions(void **state)
{
    (void)state;
    static const double found[] = {1, 2.5, -4, 0.25}, expected[] = {1, 2, -5, 0};
    tensor_error e = measure(TRM_F64, 4, found, expected, (tensor_tolerance){.absolute = 0.3});
    assert_int_equal(e.count, 4);
    assert_int_equal(e.outside, 2);
    expect_near(e.max_absolute, 1);
    expect_near(e.max_relative, 0.25);
    expect_near(e.mean_absolute, 1.75 / 4);
    expect_near(e.rms_error, sqrt((0.25 + 1 + 0.0625) / 4));
    expect_near(e.rms_expected, sqrt(30.0 / 4));
    expect_near(e.cosine, 26 / (sqrt(1 + 6.25 + 16 + 0.0625) * sqrt(30)));
    assert_int_equal(e.worst, 2);
    expect_near(e.worst_found, -4);
    expect_near(e.worst_expected, -5);
    /* a tolerance by the reference: 0.25 is further off than 1 of 5 */
    e = measure(TRM_F64, 4, found, expected, (tensor_tolerance){.relative = 0.2, .of_rms = 0.01});
    assert_int_equal(e.worst, 3);
    assert_int_equal(e.outside, 2);
    e = measure(TRM_F64, 4, expected, expected, (tensor_tolerance){0});
    assert_int_equal(e.outside, 0);
    assert_int_equal(e.worst, -1);
    expect_near(e.cosine, 1);
}

static void numbers_that_are_none_are_counted(void **state)
{
    (void)state;
    const float found[] = {NAN, NAN, INFINITY, -INFINITY, INFINITY, 1}, expected[] = {NAN, 1, INFINITY, INFINITY, 2, 1};
    tensor_error e =
        measure(TRM_F32, 6, found, expected, (tensor_tolerance){.relative = 1, .absolute = 1, .of_rms = 1});
    assert_int_equal(e.nan_found, 2);
    assert_int_equal(e.nan_expected, 1);
    assert_int_equal(e.infinite_found, 3);
    assert_int_equal(e.infinite_expected, 2);
    assert_int_equal(e.outside, 3);
    assert_int_equal(e.worst, 1);
    expect_near(e.max_absolute + 1, 1);
}

static void integers_and_bytes_are_equal_or_not(void **state)
{
    (void)state;
    const int64_t large[] = {INT64_MAX, 5}, larger[] = {INT64_MAX - 1, 5}; /* the same double */
    tensor_tolerance none = tensor_tolerance_for(&defaults, TRM_I64);
    assert_int_equal(measure(TRM_I64, 2, large, larger, none).outside, 1);
    assert_int_equal(measure(TRM_I64, 2, large, large, none).outside, 0);
    const uint8_t small[] = {1, 0x7f}, other[] = {1, 0x7e}; /* 0x7f is NaN in this type */
    none = tensor_tolerance_for(&defaults, TRM_F8E4M3);
    assert_int_equal(measure(TRM_F8E4M3, 2, small, small, none).outside, 0);
    assert_int_equal(measure(TRM_F8E4M3, 2, small, other, none).outside, 1);
    assert_int_equal(measure(TRM_BOOL, 2, small, other, none).outside, 1);
}

static void wider_types_are_held_to_more(void **state)
{
    (void)state;
    static const trm_dtype types[] = {TRM_I32, TRM_F64, TRM_F32, TRM_F16, TRM_BF16};
    for (int32_t i = 0; i + 1 < 5; i++) {
        assert_true(tensor_tolerance_for(&defaults, types[i]).relative <
                    tensor_tolerance_for(&defaults, types[i + 1]).relative);
    }
    settings given;
    char *arguments[] = {"--rtol", "0.5", "--atol", "0.25"};
    assert_ok(settings_load(&given, COMMAND_COMPARE, 4, arguments));
    tensor_tolerance t = tensor_tolerance_for(&given, TRM_I32);
    expect_near(t.relative, 0.5);
    expect_near(t.absolute, 0.25);
    assert_true(tensor_tolerance_for(&given, TRM_F16).of_rms == 0);
    settings_fini(&given);
}

/* Limits decide alone: what elements may be off by only says which are outside. */
static void limits_hold_a_whole_tensor(void **state)
{
    (void)state;
    static const struct {
        const char *limit;
        bool holds;
    } cases[] = {{"outside=0.5", true}, {"outside=0.4", false}, {"mean=0.4375", true}, {"mean=0.43", false},
                 {"rms=0.573", true},   {"rms=0.572", false},   {"max=1", true},       {"max=0.99", false},
                 {"cosine=0.02", true}, {"cosine=0.001", false}};
    static const double found[] = {1, 2.5, -4, 0.25}, expected[] = {1, 2, -5, 0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        settings given;
        char *arguments[] = {"--limit", (char *)(uintptr_t)cases[i].limit, "--atol", "0.3", "--rtol", "0"};
        assert_ok(settings_load(&given, COMMAND_BENCH, 6, arguments));
        assert_ok(tensor_check_limits(&given));
        tensor_tolerance t = tensor_tolerance_for(&given, TRM_F64);
        tensor_error e = measure(TRM_F64, 4, found, expected, t);
        if (tensor_error_holds(&e, &t) != cases[i].holds) {
            fail_msg("%s %s", cases[i].limit, cases[i].holds ? "does not hold" : "holds");
        }
        settings_fini(&given);
    }
    /* Several hold together or not; what is no number on one side never does. */
    settings given;
    char *both[] = {"--limit", "max=1", "--limit", "mean=0.1"};
    assert_ok(settings_load(&given, COMMAND_RUN, 4, both));
    tensor_tolerance t = tensor_tolerance_for(&given, TRM_F64);
    tensor_error e = measure(TRM_F64, 4, found, expected, t);
    char text[200];
    assert_false(tensor_error_holds(&e, &t));
    tensor_error_describe(&e, &t, "[2]", text, sizeof(text));
    assert_string_equal(text, "mean is 0.4375, the limit 0.1; at [2] it is -4, expected -5");
    settings_fini(&given);
    static const double none[] = {1, 2, NAN, 0};
    tensor_tolerance wide = {.limited = {true, true, true, true, true}, .limits = {1, 1e9, 1e9, 1e9, 2}};
    e = measure(TRM_F64, 4, none, expected, wide);
    assert_int_equal(e.unequal, 1);
    assert_false(tensor_error_holds(&e, &wide));
    e = measure(TRM_F64, 4, none, none, wide);
    assert_true(tensor_error_holds(&e, &wide));
    static const char *const wrong[] = {"max", "max=", "max=x", "most=1", "max=-1", "max=inf", "max=nan", "max=1 "};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char *arguments[] = {"--limit", (char *)(uintptr_t)wrong[i]};
        assert_ok(settings_load(&given, COMMAND_COMPARE, 2, arguments));
        assert_fails(tensor_check_limits(&given), TRM_ERROR_INVALID_ARGUMENT,
                     "expected outside, mean, rms, max or cosine");
        settings_fini(&given);
    }
}

/* Of types of 16 bits a few elements may be a little further off; one that is far off, or no number, is too much. */
static void a_few_may_be_further_off(void **state)
{
    (void)state;
    static double found[3000], expected[3000];
    const tensor_tolerance few = {.absolute = 1, .share = 1e-3}, none = {.absolute = 1};
    for (int32_t i = 0; i < 3; i++) {
        found[i] = 3.5;
        tensor_error e = measure(TRM_F64, 3000, found, expected, few);
        assert_int_equal(e.outside, i + 1);
        assert_int_equal(e.far, 0);
        assert_true(tensor_error_holds(&e, &few) && !tensor_error_holds(&e, &none));
    }
    found[3] = 3.5;
    tensor_error e = measure(TRM_F64, 3000, found, expected, few);
    assert_false(tensor_error_holds(&e, &few));
    found[1] = found[2] = found[3] = 0;
    found[0] = 4.5;
    e = measure(TRM_F64, 3000, found, expected, few);
    assert_int_equal(e.far, 1);
    assert_false(tensor_error_holds(&e, &few));
    found[0] = NAN;
    e = measure(TRM_F64, 3000, found, expected, few);
    assert_false(tensor_error_holds(&e, &few));
    assert_true(tensor_tolerance_for(&defaults, TRM_BF16).share > 0 &&
                tensor_tolerance_for(&defaults, TRM_F32).share == 0);
}

static void places_are_those_of_row_major_order(void **state)
{
    (void)state;
    const tensor_value value = {TRM_F32, {3, {2, 3, 4}}, NULL}, scalar = {TRM_F32, {0, {0}}, NULL};
    char text[64];
    tensor_error_place(&value, 23, text, sizeof(text));
    assert_string_equal(text, "[1, 2, 3]");
    tensor_error_place(&value, 5, text, sizeof(text));
    assert_string_equal(text, "[0, 1, 1]");
    tensor_error_place(&scalar, 0, text, sizeof(text));
    assert_string_equal(text, "[]");
}

/* What rank r of 4 has: a whole tensor, halves of 5 columns (zeros behind), summands, one that only some have. */
static void write_rank(const char *folder, int32_t rank)
{
    const tensor_run run = {
        .model = "m", .backend = TRM_BACKEND_HOST, .mesh = {{4, 1, 1, 1, 1}}, .rank = rank, .n_ranks = 4};
    tensor_writer w;
    assert_ok(tensor_writer_open(&w, folder, &run));
    float columns[6], sum[2] = {(float)(1 << rank), -1};
    for (int32_t i = 0; i < 6; i++) {
        int32_t column = rank / 2 * 3 + i % 3;
        columns[i] = column < 5 ? (float)(10 * (i / 3) + column) : 0;
    }
    trm_debug_tensor t = {.name = "halves", .layer = "l", .kernel = "k", .kind = TRM_LAYER_MATMUL, .dtype = TRM_F32};
    t.dims = (trm_dims){2, {2, 3}};
    t.data = columns;
    t.part = (trm_tensor_part){TRM_PART_SPLIT, 1, 2, "whole", 5};
    assert_true(tensor_writer_add(&w, &t));
    t.name = "sum.partial";
    t.dims = (trm_dims){1, {2}};
    t.data = sum;
    t.part = (trm_tensor_part){TRM_PART_SUMMAND, 0, 4, "sum", 0};
    assert_true(tensor_writer_add(&w, &t));
    if (rank != 1) {
        t.name = "missing";
        assert_true(tensor_writer_add(&w, &t));
    }
    t.name = "own";
    t.dtype = TRM_F8E4M3;
    t.part = (trm_tensor_part){TRM_PART_UNKNOWN, 0, 0, NULL, 0};
    assert_true(tensor_writer_add(&w, &t));
    t.part.of = "whole";
    assert_true(tensor_writer_add(&w, &t)); /* in the next pass of a loop */
    assert_ok(tensor_writer_close(&w, true));
}

static void parts_are_joined_and_summands_added(void **state)
{
    (void)state;
    const char *folder = test_temporary_folder();
    assert_false(tensor_folder_exists(folder));
    for (int32_t rank = 0; rank < 4; rank++) {
        write_rank(folder, rank);
    }
    assert_true(tensor_folder_exists(folder));
    tensor_folder read;
    tensor_value value;
    bool complete;
    assert_ok(tensor_folder_open(&read, folder));
    assert_int_equal(read.n_ranks, 4);
    assert_true(read.knows_parts);
    assert_ok(tensor_folder_join(&read, 0, tensor_folder_find(&read, 0, "halves"), &value, &complete));
    assert_true(complete);
    assert_int_equal(value.dims.d[1], 5);
    for (int32_t i = 0; i < 10; i++) {
        assert_true(((float *)value.data)[i] == (float)(10 * (i / 5) + i % 5));
    }
    tensor_value_fini(&value);
    assert_ok(tensor_folder_join(&read, 0, tensor_folder_find(&read, 0, "sum.partial"), &value, &complete));
    assert_int_equal(value.dtype, TRM_F64);
    assert_true(((double *)value.data)[0] == 15 && ((double *)value.data)[1] == -4);
    tensor_value_fini(&value);
    assert_ok(tensor_folder_join(&read, 0, tensor_folder_find(&read, 0, "missing"), &value, &complete));
    assert_false(complete);
    assert_ok(tensor_folder_read(&read, 2, tensor_folder_find(&read, 2, "own"), &value));
    assert_int_equal(value.dtype, TRM_F8E4M3);
    tensor_value_fini(&value);
    assert_null(tensor_folder_find(&read, 0, "none"));
    const saved_tensor *again = tensor_folder_find(&read, 0, "own (pass 2)");
    assert_true(again != NULL && strcmp(again->part.of, "whole (pass 2)") == 0 && strcmp(again->layer, "l") == 0);
    assert_null(tensor_folder_find(&read, 0, "own (pass 1)"));
    tensor_folder_close(&read);
}

static void a_run_that_failed_leaves_no_list(void **state)
{
    (void)state;
    const char *folder = test_temporary_folder();
    const tensor_run run = {.model = "m", .mesh = {{1, 1, 1, 1, 1}}, .n_ranks = 1};
    tensor_writer w;
    tensor_folder read;
    assert_ok(tensor_writer_open(&w, folder, &run));
    assert_ok(tensor_writer_close(&w, true));
    assert_true(tensor_folder_exists(folder));
    assert_ok(tensor_writer_open(&w, folder, &run)); /* the old list goes */
    assert_false(tensor_folder_exists(folder));
    assert_ok(tensor_writer_close(&w, false));
    assert_false(tensor_folder_exists(folder));
    assert_fails(tensor_folder_open(&read, folder), TRM_ERROR_IO, "tensors.json");
    tensor_folder_close(&read);
    assert_fails(tensor_writer_open(&w, "/nonexistent/folder", &run), TRM_ERROR_IO, "cannot make folder");
    assert_ok(tensor_writer_close(&w, false));
    tensor_folder_remove(folder);
    assert_int_equal(access(folder, F_OK), -1);
}

/* Lists that nobody wrote like this. */
static void lists_that_lie_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *cause;
    } lists[] = {
        {"{}", "backend"},
        {"{\"backend\": \"host\", \"mesh\": \"tp=1\", \"ranks\": 0}", "ranks is 0"},
        {"{\"backend\": \"host\", \"mesh\": \"tp=3\", \"ranks\": 2}", "mesh"},
        {"{\"tensors\": [{\"name\": \"a\"}]}", "layer"},
        {"{\"tensors\": [{\"name\": \"a\", \"layer\": \"\", \"kind\": \"\", \"kernel\": \"\", \"file\": \"../x\", "
         "\"dtype\": "
         "\"f32\"}]}",
         "file ../x"},
        {"{\"tensors\": [{\"name\": \"a\", \"layer\": \"\", \"kind\": \"\", \"kernel\": \"\", \"file\": \"x\", "
         "\"dtype\": "
         "\"f32\", \"dims\": [-1]}]}",
         "has no dims"},
        {"{\"tensors\": [{\"name\": \"a\", \"layer\": \"\", \"kind\": \"\", \"kernel\": \"\", \"file\": \"x\", "
         "\"dtype\": "
         "\"f32\", \"dims\": [], \"part\": \"split\", \"of\": \"a\", \"axis\": 0, \"parts\": 2, \"whole\": 3}]}",
         "does not fit"},
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        char path[1024];
        tensor_folder read;
        const char *folder = test_temporary_folder();
        const tensor_run run = {.model = "m", .mesh = {{1, 1, 1, 1, 1}}, .n_ranks = 1};
        tensor_writer w;
        assert_ok(tensor_writer_open(&w, folder, &run));
        assert_ok(tensor_writer_close(&w, true));
        snprintf(path, sizeof(path), "%s/rank-0/tensors.json", folder);
        test_write_file(path, lists[i].text, strlen(lists[i].text));
        trm_status status = tensor_folder_open(&read, folder);
        assert_true(status == TRM_ERROR_INVALID_MODEL || status == TRM_ERROR_INVALID_ARGUMENT);
        if (strstr(trm_last_error(), lists[i].cause) == NULL) {
            fail_msg("list %zu: %s", i, trm_last_error());
        }
        tensor_folder_close(&read);
    }
}

int main(void)
{
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    if (settings_load(&defaults, COMMAND_COMPARE, 0, NULL) != TRM_OK) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_those_of_their_definitions),
        cmocka_unit_test(numbers_that_are_none_are_counted),
        cmocka_unit_test(integers_and_bytes_are_equal_or_not),
        cmocka_unit_test(wider_types_are_held_to_more),
        cmocka_unit_test(limits_hold_a_whole_tensor),
        cmocka_unit_test(a_few_may_be_further_off),
        cmocka_unit_test(places_are_those_of_row_major_order),
        cmocka_unit_test(parts_are_joined_and_summands_added),
        cmocka_unit_test(a_run_that_failed_leaves_no_list),
        cmocka_unit_test(lists_that_lie_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    settings_fini(&defaults);
    return failed;
}
