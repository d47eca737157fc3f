/* ROTATE: a thread per element, bound by device memory. */
#include "kernels/cuda/element.cuh"
#include "kernels/kernel_list.h"
#include "kernels/rope/rotate.h"

TRM_CUDA_PLACED_ELEMENT_KERNEL(rotate)
