/*
 * A plain interpreter of networks for tests: reads all weights, gives every tensor memory of its own and runs the first
 * kernel that accepts each layer, one layer after the other. No passes, no memory plan: what the engine's
 * results are compared with.
 */
#ifndef TESTS_SUPPORT_INTERPRETER_H
#define TESTS_SUPPORT_INTERPRETER_H

#include <trireme/engine.h>

#include "graph/network.h"
#include "kernels/kernel.h"

typedef struct test_interpreter test_interpreter;

typedef struct test_interpreter_options {
    trm_backend backend;
    int64_t state_dimension;               /* what -1 in the dims of a state stands for */
    struct trm_communicator *communicator; /* for DIST_COLLECTIVE layers; may be NULL; stays the caller's */
    trm_device *device;                    /* to run on; NULL: the interpreter opens its own */
} test_interpreter_options;

/* The network must outlive the interpreter. States are zero at first. */
trm_status test_interpreter_create(const trm_network *network, const test_interpreter_options *options,
                                   test_interpreter **interpreter);
const trm_network *test_interpreter_network(const test_interpreter *interpreter);
void test_interpreter_destroy(test_interpreter *interpreter);
/* Copies an input. `data` is host memory of the input's type. */
trm_status test_interpreter_set_input(test_interpreter *interpreter, const char *name, const trm_dims *dims,
                                      const void *data);
trm_status test_interpreter_run(test_interpreter *interpreter);
/* Host copy of any tensor of the last run, valid until the next run; the test fails if there is none of that name. */
const void *test_interpreter_output(test_interpreter *interpreter, const char *name, trm_dims *dims);
/* The outputs of a context's last run, all f32, have the dims and, up to rounding, the elements of the interpreter's.
 */
void test_assert_outputs(trm_context *context, test_interpreter *whole);

#endif
