/*
 * A plugin of this process: (x [..., K], w [K, N]) f32 -> [..., N], their product, on the host and as CUDA source. It
 * can be split along rows, columns and K, and takes summands of x.
 */
#ifndef TESTS_SUPPORT_PRODUCT_PLUGIN_H
#define TESTS_SUPPORT_PRODUCT_PLUGIN_H

#include <stdint.h>

/* The parameter of its layers. */
int32_t test_product_plugin(void);

#endif
