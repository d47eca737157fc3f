/* Temporary folders: removed with their process, or by the next one. */
#include "base/temporary.h"
#include "support/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char parent[64];

static int make_parent(void **state)
{
    (void)state;
    snprintf(parent, sizeof(parent), "%s/temporary-XXXXXX", getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(parent) == NULL;
}

static int remove_parent(void **state)
{
    (void)state;
    return rmdir(parent); /* it is empty */
}

static bool exists(const char *folder, const char *name)
{
    char path[640];
    struct stat info;
    snprintf(path, sizeof(path), "%s%s%s", folder, name[0] != '\0' ? "/" : "", name);
    return lstat(path, &info) == 0;
}

static void fill(const trm_temporary *folder)
{
    char path[640];
    snprintf(path, sizeof(path), "%s/a", folder->path);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/a/file", folder->path);
    test_write_file(path, "x", 1);
    snprintf(path, sizeof(path), "%s/link", folder->path);
    assert_int_equal(symlink("/", path), 0); /* is not followed */
}

static void folders_are_removed_with_all_in_them(void **state)
{
    (void)state;
    trm_temporary one, other;
    struct stat info;
    assert_ok(trm_temporary_create(parent, "test", &one));
    assert_ok(trm_temporary_create(parent, "test", &other));
    assert_string_not_equal(one.path, other.path);
    assert_int_equal(stat(one.path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    fill(&one);
    trm_temporary_empty(&one);
    assert_true(exists(one.path, ""));
    assert_false(exists(one.path, "a"));
    fill(&one);
    const trm_temporary copy = one;
    trm_temporary_remove(&one);
    assert_false(exists(copy.path, ""));
    assert_true(exists(other.path, ""));
    assert_true(exists("/", "")); /* behind the link */
    trm_temporary_remove(&one);
    trm_temporary_remove(&other);
    assert_fails(trm_temporary_create("/no/such/folder", "test", &one), TRM_ERROR_IO, "/no/such/folder: No such file");
}

static void folders_of_killed_processes_are_removed(void **state)
{
    (void)state;
    trm_temporary mine;
    char left[sizeof(mine.path)], other_kind[128];
    int said[2];
    assert_int_equal(pipe(said), 0);
    pid_t pid = fork();
    if (pid == 0) {
        trm_temporary folder;
        if (trm_temporary_create(parent, "test", &folder) == TRM_OK) {
            fill(&folder);
            (void)!write(said[1], folder.path, sizeof(folder.path));
        }
        pause();
        _exit(1);
    }
    assert_int_equal(read(said[0], left, sizeof(left)), sizeof(left));
    snprintf(other_kind, sizeof(other_kind), "%s/tester-1", parent);
    assert_int_equal(mkdir(other_kind, 0700), 0);
    assert_ok(trm_temporary_create(parent, "test", &mine));
    assert_true(exists(left, "a")); /* it lives */
    trm_temporary_remove(&mine);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(exists(left, "a"));
    assert_ok(trm_temporary_create(parent, "test", &mine));
    assert_false(exists(left, ""));
    trm_temporary_remove(&mine);
    assert_int_equal(rmdir(other_kind), 0);
    close(said[0]);
    close(said[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(folders_are_removed_with_all_in_them, make_parent, remove_parent),
        cmocka_unit_test_setup_teardown(folders_of_killed_processes_are_removed, make_parent, remove_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
