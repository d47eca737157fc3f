/* Random networks for property tests: most layer kinds but collectives, in shapes that follow from a seed. */
#ifndef TESTS_SUPPORT_RANDOM_NETWORK_H
#define TESTS_SUPPORT_RANDOM_NETWORK_H

#include "graph/network.h"

/*
 * A network of about `n_layers` layers. All float tensors are f32. Inputs: floats, and i32 "ids" [T] and "positions"
 * [T], all with the same unknown T. What no layer reads is an output. Values stay of order 1, so that results can be
 * compared within 1e-3.
 */
trm_network *test_random_network(uint64_t seed, int32_t n_layers);
/* Dims and data [at least their elements] of an input of such a network, T being `tokens`. */
void test_random_input(const trm_tensor *input, int64_t tokens, uint64_t seed, trm_dims *dims, void *data);

#endif
