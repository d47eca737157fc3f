/* What the host's part of the plugin and its CUDA kernel share. */
#ifndef GAIN_SWISH_H
#define GAIN_SWISH_H

#include <trireme/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gain_swish {
    float sharpness;
} gain_swish;

bool gain_swish_enqueue(trm_plugin_call *call);

#ifdef __cplusplus
}
#endif
#endif
