/* Whether products of i8 are worth making (INT8_PRODUCT). */
#ifndef TRM_KERNELS_INT8_INT8_H
#define TRM_KERNELS_INT8_INT8_H

#include "kernels/kernel.h"

/* Whether the backend, CUDA on its current device, multiplies i8 faster than floats. */
bool trm_int8_is_fast(trm_backend backend);

#endif
