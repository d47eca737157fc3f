/*
 * The backends' parts of what sample.h, logits.h and random.h declare, without checks: rows >= 1, 1 <= vocab <=
 * INT32_MAX; random fill is of f32, f16 or bf16 and of at least one element. They are reached by the table of
 * device_impl.h.
 */
#ifndef TRM_KERNELS_SAMPLING_BACKENDS_H
#define TRM_KERNELS_SAMPLING_BACKENDS_H

#include "kernels/sampling/logits.h"
#include "kernels/sampling/random.h"
#include "kernels/sampling/sample.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRM_DECLARE_SAMPLING(backend)                                                                                  \
    size_t trm_##backend##_sample_workspace(const trm_stream *stream, int64_t rows, int64_t vocab);                    \
    trm_status trm_##backend##_sample(trm_stream *stream, const trm_sample_args *args);                                \
    trm_status trm_##backend##_sample_advance(trm_stream *stream, const trm_sample_advance_args *args);                \
    trm_status trm_##backend##_logits_adjust(trm_stream *stream, const trm_logits_adjust_args *args);                  \
    trm_status trm_##backend##_logits_report(trm_stream *stream, const trm_logits_report_args *args);                  \
    trm_status trm_##backend##_random_fill(trm_stream *stream, const trm_random_fill_args *args);
TRM_DECLARE_SAMPLING(host)
TRM_DECLARE_SAMPLING(cuda)
#undef TRM_DECLARE_SAMPLING

#ifdef __cplusplus
}
#endif
#endif
