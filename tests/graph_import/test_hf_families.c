/* The list of families: every one has a golden, and the support matrix is that of the code. */
#include "support/support.h"

#include <stdio.h>

#include "base/file.h"
#include "graph/import/hf/families.h"
#include "support/hf_golden.h"

#define SUPPORT_MATRIX TRM_SOURCE_DIR "/docs/reference/support-matrix.md"

static bool has_golden(const char *architecture)
{
    bool found = false;
    for (int32_t i = 0; !found && test_golden_name(i) != NULL; i++) {
        char path[600], name[128], *text;
        size_t size;
        snprintf(path, sizeof(path), "%s/config.json", test_golden_folder(test_golden_name(i)));
        snprintf(name, sizeof(name), "\"%s\"", architecture);
        assert_ok(trm_file_read(path, 1 << 20, &text, &size));
        found = strstr(text, name) != NULL;
        free(text);
    }
    return found;
}

static void every_family_has_a_golden(void **state)
{
    (void)state;
    for (int32_t i = 0; trm_hf_families[i] != NULL; i++) {
        const trm_hf_family *family = trm_hf_families[i];
        if (!has_golden(family->architecture)) {
            fail_msg("there is no golden of %s in tests/goldens/hf", family->architecture);
        }
    }
    for (const trm_hf_wrapper *wrapper = trm_hf_wrappers; wrapper->architecture != NULL; wrapper++) {
        if (!has_golden(wrapper->architecture)) {
            fail_msg("there is no golden of %s in tests/goldens/hf", wrapper->architecture);
        }
    }
}

/* Lookups take the first row that fits. */
static void rows_are_told_apart(void **state)
{
    (void)state;
    for (int32_t i = 0; trm_hf_families[i] != NULL; i++) {
        for (int32_t k = 0; k < i; k++) {
            assert_string_not_equal(trm_hf_families[i]->architecture, trm_hf_families[k]->architecture);
            assert_string_not_equal(trm_hf_families[i]->model_type, trm_hf_families[k]->model_type);
        }
    }
}

/* The table of families as the support matrix has it. TRM_TEST_VERBOSE=1 prints it, to be copied. */
static void support_matrix_is_that_of_the_code(void **state)
{
    (void)state;
    char table[16384];
    size_t used = (size_t)snprintf(table, sizeof(table), "| architecture | models | details |\n|---|---|---|\n");
    for (int32_t i = 0; trm_hf_families[i] != NULL; i++) {
        const trm_hf_family *family = trm_hf_families[i];
        used += (size_t)snprintf(table + used, sizeof(table) - used, "| %s | %s | %s |\n", family->architecture,
                                 family->models, family->details);
    }
    for (const trm_hf_wrapper *wrapper = trm_hf_wrappers; wrapper->architecture != NULL; wrapper++) {
        used += (size_t)snprintf(table + used, sizeof(table) - used,
                                 "| %s | %s | text part only; image weights are skipped with a warning |\n",
                                 wrapper->architecture, wrapper->models);
    }
    assert_true(used < sizeof(table));
    if (getenv("TRM_TEST_VERBOSE") != NULL) {
        fputs(table, stdout); /* print_message() cuts */
    }
    char *text;
    size_t size;
    assert_ok(trm_file_read(SUPPORT_MATRIX, 1 << 20, &text, &size));
    if (strstr(text, table) == NULL) {
        fail_msg("docs/reference/support-matrix.md does not have the table of families; copy what TRM_TEST_VERBOSE=1 "
                 "prints:\n%s",
                 table);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_has_a_golden),
        cmocka_unit_test(rows_are_told_apart),
        cmocka_unit_test(support_matrix_is_that_of_the_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
