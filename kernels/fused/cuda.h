/*
 * FUSED_ELEMENTWISE on CUDA: one kernel for each list of steps and types, generated and compiled at run time.
 */
#ifndef TRM_KERNELS_FUSED_CUDA_H
#define TRM_KERNELS_FUSED_CUDA_H

#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether there is a compiler. `why` (may be NULL) receives the reason if not. */
bool trm_cuda_fused_available(char *why, size_t why_size);
trm_status trm_cuda_fused_prepare(trm_device *device, const trm_fused_elementwise_params *params,
                                  const trm_dtype *inputs, int32_t n_inputs);

/* cuda_source.c: the kernels fused_vector, of runs of *vector elements, and fused_scalar as CUDA C++, to free(); NULL
 * without memory. */
char *trm_cuda_fused_source(const trm_fused_elementwise_params *params, const trm_dtype *inputs, int32_t n_inputs,
                            int32_t *vector);

/* cuda_nvrtc.c: compiles a source for GPUs of compute capability arch / 10.arch % 10, or reads what was compiled of it
 * before from $XDG_CACHE_HOME/trireme/kernels. `toolkit`: it may include headers of the CUDA toolkit, where that is
 * installed. *image [*size] is to be freed. */
trm_status trm_nvrtc_open(void);
trm_status trm_nvrtc_compile(const char *source, int32_t arch, bool toolkit, void **image, size_t *size);

#ifdef __cplusplus
}
#endif
#endif
