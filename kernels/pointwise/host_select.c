/* SELECT, by the function of kernels/pointwise/select.h. */
#include "kernels/pointwise/select.h"

#include "kernels/host/element.h"

TRM_HOST_PLACED_ELEMENT_KERNEL(select, 4)
