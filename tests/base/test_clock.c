/* Clocks: they go on, and the process is younger than the machine. */
#include "support/support.h"

#include <time.h>

#include "base/clock.h"

static void pause_milliseconds(long milliseconds)
{
    const struct timespec time = {0, milliseconds * 1000000};
    nanosleep(&time, NULL);
}

static void time_goes_on(void **state)
{
    (void)state;
    double before = trm_clock_seconds();
    pause_milliseconds(20);
    double after = trm_clock_seconds();
    assert_true(after - before >= 0.02);
    assert_true(after - before < 60);
}

static void a_process_has_an_age(void **state)
{
    (void)state;
    pause_milliseconds(30);
    double before = trm_process_seconds();
    assert_true(before >= 0.02 && before < 300);
    pause_milliseconds(30);
    assert_true(trm_process_seconds() - before >= 0.029);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_goes_on),
        cmocka_unit_test(a_process_has_an_age),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
