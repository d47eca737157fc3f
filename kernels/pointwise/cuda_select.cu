/* SELECT: a thread per element, bound by device memory. */
#include "kernels/cuda/element.cuh"
#include "kernels/kernel_list.h"
#include "kernels/pointwise/select.h"

TRM_CUDA_PLACED_ELEMENT_KERNEL(select)
