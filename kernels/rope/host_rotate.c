/* ROTATE, by the function of kernels/rope/rotate.h. */
#include "kernels/rope/rotate.h"

#include "kernels/host/element.h"

TRM_HOST_PLACED_ELEMENT_KERNEL(rotate, 8)
