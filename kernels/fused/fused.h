/*
 * FUSED_ELEMENTWISE: its steps as the layers they stand for, and whether a backend can run it.
 */
#ifndef TRM_KERNELS_FUSED_FUSED_H
#define TRM_KERNELS_FUSED_FUSED_H

#include <trireme/layers.h>

#include "kernels/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The layer that a step stands for; one of kind KIND_COUNT for VALUE, or an operation that does not exist. */
trm_layer_desc trm_fused_step_layer(const trm_fused_step *step);
/* How many of a, b and c an operation reads. */
int32_t trm_fused_operands(trm_fused_op op);
/* "add", "gelu", "cast", ...; NULL past the last. */
const char *trm_fused_op_name(trm_fused_op op);
/* Whether a value, or the values of layers that may be steps, have this type. */
bool trm_fused_can_hold(trm_dtype dtype);
/* Whether CAST between these types may be a step. */
bool trm_fused_can_cast(trm_dtype from, trm_dtype to);

/* Whether layers of this kind run on a backend here: on CUDA they need the run-time compiler. `why` [why_size] (may be
 * NULL) receives the reason if not. */
bool trm_fused_available(trm_backend backend, char *why, size_t why_size);
/* Makes ready what a layer with inputs of these types needs on a device, so that nothing is compiled in its first run.
 */
trm_status trm_fused_prepare(trm_device *device, const trm_layer_desc *layer, const trm_dtype *inputs,
                             int32_t n_inputs);

#ifdef __cplusplus
}
#endif
#endif
