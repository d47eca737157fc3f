/* References of outputs: what every context of a run made is compared, and the worst is reported. */
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "launcher/cli/onnx/expect.h"
#include "launcher/cli/tensors/npy.h"

enum { CONTEXTS = 3 };

static char model[4096], reference[4096], option[4200];
static settings all;
static onnx_job j;
static trm_context *contexts[CONTEXTS];

/* The product of a [3, 4] and b [4, 3], all ones, in several contexts; expected are fours. */
static void open_job(const char *more)
{
    char *bytes;
    size_t size;
    float c[9];
    snprintf(model, sizeof(model), "%s", test_temporary_folder());
    snprintf(reference, sizeof(reference), "%.4000s/c.npy", model);
    snprintf(option, sizeof(option), "c=%s", reference);
    strncat(model, "/net.onnx", sizeof(model) - strlen(model) - 1);
    assert_ok(trm_file_read(TRM_SOURCE_DIR "/tests/fuzz/corpus/onnx/matmul_2d", 1 << 20, &bytes, &size));
    test_write_file(model, bytes, size);
    free(bytes);
    for (int i = 0; i < 9; i++) {
        c[i] = 4;
    }
    assert_ok(npy_write(reference, TRM_F32, &(trm_dims){2, {3, 3}}, c));
    char *arguments[] = {model, "--backend", "host", "--expect", option, "--limit", (char *)(uintptr_t)more};
    assert_ok(settings_load(&all, COMMAND_BENCH, 7, arguments));
    j = (onnx_job){.all = &all};
    assert_ok(job_open_world(&j.job, &all));
    assert_ok(onnx_open(&j, model, 1));
    assert_ok(onnx_build(&j, false));
    assert_ok(onnx_load(&j));
    contexts[0] = j.context;
    for (int i = 1; i < CONTEXTS; i++) {
        assert_ok(trm_context_create(j.engine, &contexts[i]));
    }
}

static void close_job(void)
{
    for (int i = 1; i < CONTEXTS; i++) {
        trm_context_destroy(contexts[i]);
    }
    onnx_close(&j);
    assert_int_equal(job_close(&j.job, TRM_OK, true), 0);
    settings_fini(&all);
}

/* Runs a context with a's first row `first` in place of ones. */
static void run_with(int context, float first)
{
    float ones[12], a[12];
    for (int i = 0; i < 12; i++) {
        ones[i] = 1;
        a[i] = i < 4 ? first : 1;
    }
    assert_ok(trm_context_set_input(contexts[context], "a", (trm_dims){2, {3, 4}}, a));
    assert_ok(trm_context_set_input(contexts[context], "b", (trm_dims){2, {4, 3}}, ones));
    assert_ok(trm_context_run(contexts[context]));
}

/* What is reported of a run in which context i had firsts[i]. */
static void expect_told(const float firsts[CONTEXTS], bool holds, int64_t stream, const char *difference)
{
    onnx_expect e;
    bool fits;
    char *text;
    size_t size;
    report r;
    trm_json_document *document;
    for (int i = 0; i < CONTEXTS; i++) {
        run_with(i, firsts[i]);
    }
    assert_ok(onnx_expect_open(&e, &j));
    assert_ok(onnx_expect_fits(&e, &j, contexts, CONTEXTS, &fits));
    assert_true(fits);
    assert_ok(onnx_expect_compare(&e, &j, contexts, CONTEXTS));
    assert_true(onnx_expect_conclude(&e, false) == holds);
    report_begin(&r, open_memstream(&text, &size));
    onnx_expect_report(&e, &r);
    report_end(&r);
    fclose(r.out);
    assert_ok(trm_json_parse("report", text, size, &document));
    const trm_json *root = trm_json_root(document), *compared = trm_json_get(root, "compared");
    int64_t found;
    assert_int_equal(trm_json_count(compared), 1);
    assert_true(trm_json_integer(trm_json_get(trm_json_at(compared, 0), "stream"), &found));
    assert_int_equal(found, stream);
    assert_true(trm_json_truth(trm_json_get(root, "holds"), !holds) == holds);
    if (difference != NULL) {
        assert_string_equal(trm_json_string(trm_json_get(root, "first_difference")), difference);
    }
    trm_json_close(document);
    free(text);
    onnx_expect_close(&e);
}

static void every_context_is_compared(void **state)
{
    (void)state;
    open_job("max=2");
    expect_told((float[]){1, 1, 1}, true, 0, NULL);
    expect_told((float[]){1, 1.25, 1}, true, 1, NULL);
    expect_told((float[]){1, 1, 2}, false, 2,
                "output c in stream 2: max is 4, the limit 2; at [0, 0] it is 8, expected 4");
    expect_told((float[]){2, 3, 1}, false, 1,
                "output c in stream 1: max is 8, the limit 2; at [0, 0] it is 12, expected 4");
    close_job();
}

int main(void)
{
    setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_context_is_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
