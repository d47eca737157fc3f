/* A library of plugins of a time to come. */
#include <trireme/plugin.h>

TRM_PLUGIN_EXPORT const trm_plugin_list trm_plugins = {
    .size = sizeof(trm_plugins), .abi = TRM_PLUGIN_ABI + 1, .n_plugins = 1};
