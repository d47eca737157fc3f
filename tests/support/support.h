/*
 * What every test includes: cmocka, and checks that print the error record when a call fails.
 */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

/* Fails the test with the cause unless `call` succeeds. */
#define assert_ok(call) test_assert_ok((call), #call, __FILE__, __LINE__)
void test_assert_ok(trm_status status, const char *call, const char *file, int line);

/* Fails the test unless `call` fails with `expected` and a cause that contains `part`. */
#define assert_fails(call, expected, part) test_assert_fails((call), (expected), (part), #call, __FILE__, __LINE__)
void test_assert_fails(trm_status status, trm_status expected, const char *part, const char *call, const char *file,
                       int line);

/* What a program ends with that cannot test here. */
#define TEST_SKIPPED 77

/* Seed of this run for property tests: TRM_TEST_SEED, else a fixed one. Printed by the caller on failure. */
uint64_t test_seed(void);
/* The next pseudo-random number of a generator. */
uint64_t test_random(uint64_t *state);
/* Uniform in 0 .. n - 1. */
int64_t test_random_below(uint64_t *state, int64_t n);
/* Uniform in [-1, 1). */
float test_random_float(uint64_t *state);

/* Whether case `i` belongs to this run: all do, unless TRM_TEST_PART is "k/n", which takes every n-th from the k-th of
 * 0 .. n - 1. */
bool test_in_part(int32_t i);
/* Whether the compiler built this program with a sanitizer: what only shows in results is then left to other builds. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED true
#else
#define TEST_SANITIZED false
#endif
/* Whether there are fewer repetitions of the same things: where TRM_TEST_BRIEF asks for it, under a sanitizer that runs
 * kernels a hundred times slower, and in programs built with one. */
bool test_is_brief(void);
/* Of functions of the tests themselves that compute expected values: no sanitizer looks at them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_UNCHECKED __attribute__((no_sanitize("address", "undefined", "thread")))
#else
#define TEST_UNCHECKED
#endif

/* A new empty folder under the build folder, which is removed when the program ends well or skips; its name is valid
 * until the next call. */
const char *test_temporary_folder(void);
void test_write_file(const char *path, const void *bytes, size_t size);

#endif
