/*
 * The shipped model over several GPUs. By the costs of a GPU its layers are too small to be split, and each rank would
 * do all of them; programs that are linked with --wrap=trm_cost_model_default have the host's costs on either backend.
 */
#ifndef TESTS_SUPPORT_SPLIT_H
#define TESTS_SUPPORT_SPLIT_H

#include "dist/plan/plan.h"

/* Fails unless ranks along tp, if there are several, divide the work of each of the model's layers. */
void test_assert_split(const trm_plan *plan);

#endif
