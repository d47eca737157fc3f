/* INT8_PRODUCT: a thread per output, for GPUs and sizes that cuda_tiles.cu does not know. */
#include "kernels/cuda/element.cuh"
#include "kernels/int8/element.h"
#include "kernels/kernel_list.h"

TRM_CUDA_PLACED_ELEMENT_KERNEL(int8_product)
