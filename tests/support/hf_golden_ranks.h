/*
 * The goldens of transformers over all ranks of a world, on either backend: through builder, engine and context, where
 * the cost model may find that tiny models are not worth splitting; and with links that cost nothing, so that
 * everything is split, on the test interpreter.
 */
#ifndef TESTS_SUPPORT_HF_GOLDEN_RANKS_H
#define TESTS_SUPPORT_HF_GOLDEN_RANKS_H

#include "dist/parallel/world.h"
#include "support/hf_golden.h"

/* Runs one golden every way, computing in `dtype` (NONE: the type of its weights); the test fails on too large a
 * difference. */
void test_golden_on_engine(trm_world *world, const char *name, trm_dtype dtype);
void test_golden_split(trm_world *world, const char *name, trm_dtype dtype);

#endif
