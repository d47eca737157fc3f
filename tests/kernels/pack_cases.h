/*
 * Packed bf16 on any backend: what is unpacked is what was packed, bit by bit.
 */
#ifndef TESTS_KERNELS_PACK_CASES_H
#define TESTS_KERNELS_PACK_CASES_H

#include "kernels/device.h"

void pack_all_patterns(trm_stream *stream);
void pack_any_count(trm_stream *stream);
void pack_any_numbers(trm_stream *stream);
void pack_on_a_stream_beside(trm_stream *stream);

#endif
