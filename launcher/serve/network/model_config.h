/*
 * The configuration of a network in a model repository: Triton's ModelConfig, from config.pbtxt (protobuf's text
 * format) or from JSON. Fields that would change results or scheduling and are not supported are refused by name;
 * it ignores fields that only concern other servers' files or speed.
 */
#ifndef TRM_LAUNCHER_SERVE_NETWORK_MODEL_CONFIG_H
#define TRM_LAUNCHER_SERVE_NETWORK_MODEL_CONFIG_H

#include <trireme/types.h>

#include "launcher/serve/network/served_network.h"

#define CONFIG_LONGEST_TEXT 256
#define CONFIG_MAX_PORTS    64
#define CONFIG_MAX_VERSIONS 64

typedef struct config_port {
    char name[CONFIG_LONGEST_TEXT];
    char type[16]; /* as infer_type_name; empty: not given */
    trm_dims dims; /* without the batch if max_batch > 0; n = -1: not given */
} config_port;

typedef enum version_policy { VERSIONS_LATEST, VERSIONS_ALL, VERSIONS_SPECIFIC } version_policy;

/* Zero: the field is not given, except where it says otherwise. */
typedef struct model_config {
    char name[CONFIG_LONGEST_TEXT], file[CONFIG_LONGEST_TEXT];
    bool given;        /* there is a configuration */
    int32_t max_batch; /* 0: the network has no batch dimension */
    bool joins;        /* dynamic_batching */
    int32_t instances;
    uint64_t delay_us, queue_us;
    int32_t preferred[SERVED_MAX_PREFERRED]; /* [n_preferred] */
    int32_t n_preferred, max_queue;
    version_policy policy;
    int32_t n_latest;                      /* of LATEST; at least 1 */
    int64_t versions[CONFIG_MAX_VERSIONS]; /* [n_versions] of SPECIFIC */
    int32_t n_versions;
    char shapes[3][CONFIG_LONGEST_TEXT]; /* parameters shapes, min_shapes, max_shapes, as the options of these names */
    config_port inputs[CONFIG_MAX_PORTS], outputs[CONFIG_MAX_PORTS]; /* [n_inputs], [n_outputs] */
    int32_t n_inputs, n_outputs;
} model_config;

void model_config_init(model_config *config);
/* `source` names the text in errors, which are INVALID_MODEL with the line. */
trm_status model_config_parse(const char *source, const char *text, size_t size, model_config *config);
trm_status model_config_parse_json(const char *source, const char *text, size_t size, model_config *config);

#endif
