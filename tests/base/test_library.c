/* Run-time loading of libraries: found, not found, and found without a function. */
#include <math.h>

#include "support/support.h"

#include "base/library.h"

typedef double (*math_fn)(double);

static void loads_the_first_that_is_there(void **state)
{
    (void)state;
    static const char *const names[] = {"libtrireme-is-not-here.so.7", "libm.so.6"};
    math_fn cosine = NULL, nothing = (math_fn)sin;
    const trm_library_symbol symbols[] = {{"cos", &cosine, false}, {"trireme_has_no_such_function", &nothing, true}};
    void *handle = NULL;
    assert_ok(trm_library_open(names, 2, symbols, 2, &handle));
    assert_non_null(handle);
    assert_true(cosine(0.0) == 1.0);
    assert_null(nothing);
    char path[256];
    assert_non_null(strstr(trm_library_path(handle, path, sizeof(path)), "libm.so.6"));
}

static void names_what_was_tried(void **state)
{
    (void)state;
    static const char *const names[] = {"libtrireme-is-not-here.so.7"};
    math_fn cosine = (math_fn)sin;
    const trm_library_symbol symbols[] = {{"cos", &cosine, false}};
    void *handle = NULL;
    assert_fails(trm_library_open(names, 1, symbols, 1, &handle), TRM_ERROR_NO_DEVICE,
                 "/usr/local/cuda/lib64/libtrireme");
    assert_null(handle);
    assert_null(cosine);
}

static void names_the_missing_function(void **state)
{
    (void)state;
    static const char *const names[] = {"libm.so.6"};
    math_fn cosine = NULL, missing = NULL;
    const trm_library_symbol symbols[] = {{"cos", &cosine, false}, {"trireme_has_no_such_function", &missing, false}};
    void *handle = NULL;
    assert_fails(trm_library_open(names, 1, symbols, 2, &handle), TRM_ERROR_NO_DEVICE,
                 "libm.so.6 has no function trireme_has_no_such_function");
    assert_null(cosine);
    char path[8];
    assert_string_equal(trm_library_path(NULL, path, sizeof(path)), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_the_first_that_is_there),
        cmocka_unit_test(names_what_was_tried),
        cmocka_unit_test(names_the_missing_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
