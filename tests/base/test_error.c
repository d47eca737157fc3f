/* The error record: what is written, prefixed and held. */
#include "support/support.h"

#include <string.h>

#include "base/error.h"

static void the_record_is_an_argument(void **state)
{
    (void)state;
    (void)trm_fail(TRM_ERROR_IO, "cannot read %s", "a");
    assert_int_equal(trm_fail(TRM_ERROR_INVALID_MODEL, "%s (%s)", trm_last_error(), "--model"),
                     TRM_ERROR_INVALID_MODEL);
    assert_string_equal(trm_last_error(), "cannot read a (--model)");
    assert_int_equal(trm_fail_in(TRM_ERROR_IO, "weight %d", 3), TRM_ERROR_IO);
    assert_string_equal(trm_last_error(), "weight 3: cannot read a (--model)");
}

static void a_held_error_outlives_cleanup(void **state)
{
    (void)state;
    char longest[TRM_CAUSE_SIZE];
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    trm_held_error held;
    trm_error_hold(trm_fail(TRM_ERROR_IO, "%s", longest), &held);
    (void)trm_fail(TRM_ERROR_INTERNAL, "cleanup failed too");
    assert_int_equal(trm_error_give_back(&held), TRM_ERROR_IO);
    assert_string_equal(trm_last_error(), longest);
}

static void success_leaves_the_record_alone(void **state)
{
    (void)state;
    trm_held_error held;
    trm_error_hold(TRM_OK, &held);
    (void)trm_fail(TRM_ERROR_IO, "later");
    assert_int_equal(trm_error_give_back(&held), TRM_OK);
    assert_string_equal(trm_last_error(), "later");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_record_is_an_argument),
                                       cmocka_unit_test(a_held_error_outlives_cleanup),
                                       cmocka_unit_test(success_leaves_the_record_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
