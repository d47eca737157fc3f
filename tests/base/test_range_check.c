/* Ranges that inner loops are going to use: what lies beside memory ends a program that AddressSanitizer looks at, and
 * no other. */
#include "support/support.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/range_check.h"

#if defined(__SANITIZE_ADDRESS__)
#define LOOKED_AT true
#else
#define LOOKED_AT false
#endif

/* Whether a child process gets past the check. */
static bool passes(const void *from, int64_t count, int64_t size)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int quiet = open("/dev/null", O_WRONLY); /* for the report */
        dup2(quiet, STDERR_FILENO);
        trm_check_range(from, count, size);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void ranges(void **state)
{
    (void)state;
    float *block = malloc(1000 * sizeof(float));
    assert_non_null(block);
    assert_true(passes(block, 1000, sizeof(float)));
    assert_true(passes(block + 1000, 0, sizeof(float)));
    assert_true(passes(block + 999, 1, sizeof(float)));
    assert_true(passes(block + 999, 2, sizeof(uint16_t)));
    assert_int_equal(passes(block, 1001, sizeof(float)), !LOOKED_AT);
    assert_int_equal(passes(block + 999, 3, sizeof(uint16_t)), !LOOKED_AT);
    assert_int_equal(passes(block - 1, 1000, sizeof(float)), !LOOKED_AT);
    assert_int_equal(passes((const char *)block + 2, 10, sizeof(float)), !LOOKED_AT); /* not aligned */
    assert_int_equal(passes(block, -1, sizeof(float)), !LOOKED_AT);
    assert_int_equal(passes(block, INT64_MAX / 2, sizeof(float)), !LOOKED_AT); /* more bytes than can be counted */
    const volatile uintptr_t where = (uintptr_t)block;                         /* which the compiler does not follow */
    free(block);
    assert_int_equal(passes((const void *)where, 1, sizeof(float)), !LOOKED_AT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
