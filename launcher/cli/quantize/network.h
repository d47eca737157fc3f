/*
 * `trireme quantize NET.onnx`: a network whose products have inputs and weights of int8.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_NETWORK_H
#define TRM_LAUNCHER_CLI_QUANTIZE_NETWORK_H

#include "launcher/cli/settings/settings.h"

/* `stopped` is asked between runs. Prints the result. */
trm_status quantize_network(const settings *all, bool (*stopped)(void));

#endif
