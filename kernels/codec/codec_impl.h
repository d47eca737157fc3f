/* The backends' decoders, behind trm_bf16_decode(). */
#ifndef TRM_KERNELS_CODEC_CODEC_IMPL_H
#define TRM_KERNELS_CODEC_CODEC_IMPL_H

#include "kernels/codec/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

trm_status trm_host_bf16_decode(trm_stream *stream, const void *from, void *to, size_t count, int32_t multiprocessors);
trm_status trm_cuda_bf16_decode(trm_stream *stream, const void *from, void *to, size_t count, int32_t multiprocessors);

#ifdef __cplusplus
}
#endif
#endif
