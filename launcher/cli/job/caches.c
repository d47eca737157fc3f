/* States by their names: layers.N.key_cache and others. */
#include "launcher/cli/job/caches.h"

#include <stdio.h>

#define STATE_VERSIONS 16 /* of a state by sequence: more than a convolution reads */

int32_t caches_bound(const trm_network *network, int64_t layers, int64_t tokens, trm_shape_bound *bounds)
{
    static const char *const states[CACHES_PER_LAYER] = {"key_cache", "value_cache", "latent_cache", "q_inputs",
                                                         "k_inputs",  "v_inputs",    "delta_state",  "x_inputs",
                                                         "b_inputs",  "c_inputs",    "scan_state"};
    int32_t n = 0;
    for (int64_t i = 0; i < layers * CACHES_PER_LAYER; i++) {
        char name[64];
        snprintf(name, sizeof(name), "layers.%lld.%s", (long long)(i / CACHES_PER_LAYER), states[i % CACHES_PER_LAYER]);
        const trm_tensor *tensor = trm_network_find_tensor(network, name);
        if (tensor != NULL) {
            trm_shape_bound *bound = &bounds[n++];
            *bound = (trm_shape_bound){.tensor = trm_tensor_name(tensor), .max = trm_tensor_dims(tensor)};
            const bool by_sequence = bound->max.d[1] < 0;
            bound->max.d[0] = by_sequence ? 1 : (tokens + TRM_KV_BLOCK_SIZE - 1) / TRM_KV_BLOCK_SIZE;
            bound->max.d[1] = by_sequence ? STATE_VERSIONS : bound->max.d[1];
        }
    }
    return n;
}
