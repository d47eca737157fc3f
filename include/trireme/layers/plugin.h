/* Layers of plugins. */
#ifndef TRIREME_LAYERS_PLUGIN_H
#define TRIREME_LAYERS_PLUGIN_H

#include <trireme/layers/common.h>

/* A layer of a plugin (plugin.h): (inputs, as the plugin says) -> its outputs. */
typedef struct trm_plugin_params {
    int32_t layer; /* what trm_plugin_make_layer gave; only this process knows it */
} trm_plugin_params;

#endif
