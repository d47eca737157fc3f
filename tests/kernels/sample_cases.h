/*
 * The tests of sampling and random fill, for any backend.
 */
#ifndef TESTS_KERNELS_SAMPLE_CASES_H
#define TESTS_KERNELS_SAMPLE_CASES_H

#include "kernels/device.h"

/* Each fails the running test if something is wrong. */
void sample_greedy(trm_stream *stream);
void sample_equals_naive(trm_stream *stream);
void sample_of_flat_rows(trm_stream *stream);
void sample_follows_the_distribution(trm_stream *stream);
void logits_are_adjusted_and_reported(trm_stream *stream);
void sample_refuses_bad_vocabularies(trm_stream *stream);
void random_fill_is_by_index(trm_stream *stream);

#endif
