/* The backends' unpacking, behind trm_unpack(). */
#ifndef TRM_KERNELS_CODEC_CODEC_IMPL_H
#define TRM_KERNELS_CODEC_CODEC_IMPL_H

#include "kernels/codec/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

trm_status trm_host_unpack(trm_stream *stream, const void *from, void *to, size_t count, int32_t multiprocessors);
trm_status trm_cuda_unpack(trm_stream *stream, const void *from, void *to, size_t count, int32_t multiprocessors);

#ifdef __cplusplus
}
#endif
#endif
