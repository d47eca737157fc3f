/*
 * The world of a group of tests, and models: opened by its set-up, closed by its tear-down. On the host, or on CUDA
 * where TRM_TEST_BACKEND says so.
 *
 *     return cmocka_run_group_tests(tests, test_open_shipped_model, test_close_world);
 */
#ifndef TESTS_SUPPORT_WORLD_H
#define TESTS_SUPPORT_WORLD_H

#include <trireme/trireme.h>

#include "support/hf_golden.h"
#include "support/support.h"

extern trm_world *test_world;
extern trm_model *test_model;  /* of open_shipped_model, else NULL */
extern test_golden test_llama; /* of open_llama */

/* TRM_TEST_BACKEND: "cuda", or the host. */
trm_backend test_backend(void);
/* Whether that is CUDA and there is no GPU, with a line that says why: the program then exits 77. */
bool test_lacks_backend(void);
/* How the ranks of test_world are arranged: as TRM_TEST_MESH says, or all along tp. */
trm_mesh test_mesh(void);

int test_open_world(void **state);         /* one thread of the host, bound by none */
int test_open_shipped_model(void **state); /* the ranks that the launcher has started, and configs/models/kjv-7m */
int test_open_two_threads(void **state);   /* of the host, whatever the backend, and that model */
int test_open_llama(void **state);         /* one thread on the host, and the small Llama of the goldens */
int test_close_world(void **state);

/* Runs tests in a world of all ranks on the host, on one thread each. If one fails, the job ends: peers may wait. */
int test_run_host_ranks(const struct CMUnitTest *tests, size_t n);

/* A rank's plan of an ONNX file, for test_backend(). */
trm_plan *test_build_onnx(const char *path, bool refittable, int32_t ranks, int32_t rank);
/* Ranks 0 and 1 of a plan file, written from ONNX file `one` without weights, get the weights of `two`: their plans are
 * those of a build from it, and have a weight named `wanted`. */
void test_refit_ranks(const char *one, const char *two, const char *plan_file, const char *wanted);
/* A context of a new engine of the plan, which is used up. */
trm_context *test_open_context(trm_plan *plan, trm_engine **engine);

#endif
