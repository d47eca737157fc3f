/*
 * Whether two networks of the same inputs and outputs give the same numbers.
 */
#ifndef TESTS_GRAPH_COMPARE_H
#define TESTS_GRAPH_COMPARE_H

#include <math.h>

#include "collectives/communicator.h"
#include "graph/nets.h"
#include "support/interpreter.h"

/* Runs a network, alone in its world, on inputs made from `seed`; unknown dims of its first input are sizes[0], those
 * of others sizes[1]. */
static inline test_interpreter *run_network(const trm_network *network, const int64_t *sizes, uint64_t seed)
{
    test_interpreter_options options = {.backend = TRM_BACKEND_HOST, .state_dimension = sizes[0]};
    assert_ok(trm_communicator_self_create(&options.communicator));
    test_interpreter *interpreter = NULL;
    assert_ok(test_interpreter_create(network, &options, &interpreter));
    for (int32_t i = 0; i < trm_network_input_count(network); i++) {
        const trm_tensor *input = trm_network_input(network, i);
        trm_dims dims = input->dims;
        size_t count = 1;
        for (int32_t j = 0; j < dims.n; j++) {
            dims.d[j] = dims.d[j] == -1 ? sizes[i > 0] : dims.d[j];
            count *= (size_t)dims.d[j];
        }
        float *values = malloc((count + 1) * sizeof(float));
        assert_non_null(values);
        uint64_t generator = seed + (uint64_t)i;
        for (size_t j = 0; j < count; j++) {
            if (input->dtype == TRM_F32) {
                values[j] = test_random_float(&generator);
            } else {
                int32_t small = (int32_t)test_random_below(&generator, 4);
                memcpy(&values[j], &small, sizeof(small));
            }
        }
        assert_ok(test_interpreter_set_input(interpreter, input->name, &dims, values));
        free(values);
    }
    assert_ok(test_interpreter_run(interpreter));
    trm_communicator_destroy(options.communicator);
    return interpreter;
}

static inline void assert_same_output(test_interpreter *before, test_interpreter *after, const trm_tensor *output,
                                      float tolerance)
{
    trm_dims dims, other;
    const float *expected = test_interpreter_output(before, output->name, &dims);
    const float *found = test_interpreter_output(after, output->name, &other);
    assert_true(trm_dims_equal(&dims, &other));
    assert_int_equal(output->dtype, TRM_F32);
    for (int64_t i = 0; i < trm_dims_count(&dims); i++) {
        bool close = fabsf(found[i] - expected[i]) <= tolerance * (1 + fabsf(expected[i]));
        if (!close && !(isnan(found[i]) && isnan(expected[i])) && found[i] != expected[i]) {
            fail_msg("%s[%lld] is %g, expected %g", output->name, (long long)i, (double)found[i], (double)expected[i]);
        }
    }
}

/* All outputs of `before`, by name, are f32 and the same in `after`. */
static inline void assert_same_numbers(const trm_network *before, const trm_network *after, int64_t size, uint64_t seed)
{
    assert_int_equal(before->n_outputs, after->n_outputs);
    const int64_t sizes[] = {size, size};
    test_interpreter *first = run_network(before, sizes, seed), *second = run_network(after, sizes, seed);
    for (int32_t i = 0; i < before->n_outputs; i++) {
        assert_string_equal(before->outputs[i]->name, after->outputs[i]->name);
        assert_same_output(first, second, before->outputs[i], 1e-5f);
    }
    test_interpreter_destroy(first);
    test_interpreter_destroy(second);
}

#endif
