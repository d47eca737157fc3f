/* Files: mapping, reading, and what the errors say. */
#include "support/support.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char folder[4200], path[4300];

static const char *in_folder(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "%s", test_temporary_folder());
    return 0;
}

static void a_file_is_mapped(void **state)
{
    (void)state;
    test_write_file(in_folder("some"), "abc", 3);
    trm_mapping mapping = {0};
    assert_ok(trm_file_map(path, &mapping));
    assert_int_equal(mapping.size, 3);
    assert_memory_equal(mapping.bytes, "abc", 3);
    trm_file_unmap(&mapping);
    assert_null(mapping.bytes);
    trm_file_unmap(&mapping);
}

static void an_empty_file_is_mapped_as_nothing(void **state)
{
    (void)state;
    test_write_file(in_folder("empty"), "", 0);
    trm_mapping mapping = {.bytes = (const unsigned char *)"x", .size = 1};
    assert_ok(trm_file_map(path, &mapping));
    assert_null(mapping.bytes);
    assert_int_equal(mapping.size, 0);
    char *text = NULL;
    size_t size = 1;
    assert_ok(trm_file_read(path, 0, &text, &size));
    assert_int_equal(size, 0);
    assert_string_equal(text, "");
    free(text);
}

static void what_cannot_be_mapped_is_refused(void **state)
{
    (void)state;
    trm_mapping mapping;
    assert_fails(trm_file_map(in_folder("none"), &mapping), TRM_ERROR_IO, "none: No such file or directory");
    assert_fails(trm_file_map(folder, &mapping), TRM_ERROR_IO, "Is a directory");
    assert_fails(trm_file_map("/dev/null", &mapping), TRM_ERROR_IO, "cannot map /dev/null: not a regular file");
    assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
    assert_fails(trm_file_map(path, &mapping), TRM_ERROR_IO, "not a regular file"); /* and does not block */
    assert_int_equal(symlink("nowhere", in_folder("dangling")), 0);
    assert_fails(trm_file_map(path, &mapping), TRM_ERROR_IO, "dangling: No such file or directory");
    assert_false(trm_file_exists(path));
}

static void files_alone_are_replaced(void **state)
{
    (void)state;
    assert_fails(trm_file_check_replaceable("/dev/null"), TRM_ERROR_IO, "cannot write /dev/null: not a regular file");
    assert_fails(trm_file_check_replaceable(folder), TRM_ERROR_IO, "not a regular file");
    assert_ok(trm_file_check_replaceable(in_folder("nothing")));
    test_write_file(in_folder("old"), "a", 1);
    assert_ok(trm_file_check_replaceable(path));
}

static void a_file_is_read_up_to_the_limit(void **state)
{
    (void)state;
    test_write_file(in_folder("some"), "a\0c", 3);
    char *text = NULL;
    size_t size = 0;
    assert_ok(trm_file_read(path, 3, &text, &size));
    assert_int_equal(size, 3);
    assert_memory_equal(text, "a\0c", 4);
    free(text);
    assert_fails(trm_file_read(path, 2, &text, &size), TRM_ERROR_IO, "some has 3 bytes, more than the limit of 2");
    assert_fails(trm_file_read(in_folder("none"), 2, &text, &size), TRM_ERROR_IO, "none: No such file or directory");
    assert_fails(trm_file_read(folder, 2, &text, &size), TRM_ERROR_IO, "Is a directory");
    assert_true(trm_file_exists(in_folder("some")));
    assert_false(trm_file_exists(in_folder("none")));
}

static void files_without_a_size_are_read(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    assert_ok(trm_file_read("/proc/self/status", 1 << 20, &text, &size));
    assert_true(size > 100);
    assert_int_equal(text[size], 0);
    free(text);
    assert_fails(trm_file_read_stream("/dev/zero", 1 << 20, &text, &size), TRM_ERROR_IO,
                 "/dev/zero has more than the limit of 1048576 bytes");
    assert_ok(trm_file_read_stream("/dev/null", 0, &text, &size));
    assert_int_equal(size, 0);
    free(text);
}

static void streams_are_refused_where_none_is_meant(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_fails(trm_file_read(path, 10, &text, &size), TRM_ERROR_IO, "pipe: not a regular file"); /* no wait */
    assert_fails(trm_file_read("/dev/zero", 10, &text, &size), TRM_ERROR_IO,
                 "cannot read /dev/zero: not a regular file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_mapped),
        cmocka_unit_test(an_empty_file_is_mapped_as_nothing),
        cmocka_unit_test(what_cannot_be_mapped_is_refused),
        cmocka_unit_test(files_alone_are_replaced),
        cmocka_unit_test(a_file_is_read_up_to_the_limit),
        cmocka_unit_test(files_without_a_size_are_read),
        cmocka_unit_test(streams_are_refused_where_none_is_meant),
    };
    return cmocka_run_group_tests(tests, make_folder, NULL);
}
