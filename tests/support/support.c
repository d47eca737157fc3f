/* Checks and helpers shared by the tests. */
#include "support/support.h"

#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

void test_assert_ok(trm_status status, const char *call, const char *file, int line)
{
    if (status != TRM_OK) {
        print_error("%s failed: %s: %s\n", call, trm_status_name(status), trm_last_error());
        _fail(file, line);
    }
}

void test_assert_fails(trm_status status, trm_status expected, const char *part, const char *call, const char *file,
                       int line)
{
    if (status != expected) {
        print_error("%s gave \"%s\" (%s), expected \"%s\"\n", call, trm_status_name(status), trm_last_error(),
                    trm_status_name(expected));
        _fail(file, line);
    }
    if (strstr(trm_last_error(), part) == NULL) {
        print_error("%s recorded \"%s\", expected a cause with \"%s\"\n", call, trm_last_error(), part);
        _fail(file, line);
    }
}

uint64_t test_seed(void)
{
    const char *text = getenv("TRM_TEST_SEED");
    return text != NULL ? strtoull(text, NULL, 0) : 20261121u;
}

bool test_in_part(int32_t i)
{
    const char *text = getenv("TRM_TEST_PART");
    int part, parts;
    return text == NULL || (sscanf(text, "%d/%d", &part, &parts) == 2 && parts > 0 && i % parts == part);
}

bool test_is_brief(void)
{
    return TEST_SANITIZED || getenv("TRM_TEST_BRIEF") != NULL;
}

uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

int64_t test_random_below(uint64_t *state, int64_t n)
{
    return (int64_t)(test_random(state) % (uint64_t)n);
}

float test_random_float(uint64_t *state)
{
    return (float)(test_random(state) >> 40) * 0x1p-23f - 1.0f;
}

static char temporary_root[4096]; /* of all temporary folders of this process; "": none yet */
static pid_t temporary_owner;     /* a fork of it removes nothing */

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    (void)remove(path);
    return 0;
}

/* At a failure they are left to be looked at; a program that skips has failed at nothing. */
static void remove_temporary_folders(int status, void *user)
{
    (void)user;
    if ((status == EXIT_SUCCESS || status == TEST_SKIPPED) && getpid() == temporary_owner) {
        (void)nftw(temporary_root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
}

const char *test_temporary_folder(void)
{
    static char path[sizeof(temporary_root) + 16];
    if (temporary_root[0] == '\0') {
        snprintf(temporary_root, sizeof(temporary_root), "%s/test-XXXXXX", TRM_BINARY_DIR);
        if (mkdtemp(temporary_root) == NULL) {
            fail_msg("cannot make %s", temporary_root);
        }
        temporary_owner = getpid();
        assert_int_equal(on_exit(remove_temporary_folders, NULL), 0);
    }
    snprintf(path, sizeof(path), "%s/XXXXXX", temporary_root);
    if (mkdtemp(path) == NULL) {
        fail_msg("cannot make %s", path);
    }
    return path;
}

void test_write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
        fail_msg("cannot write %s", path);
    }
}
