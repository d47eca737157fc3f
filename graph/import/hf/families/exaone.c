/* EXAONE 4: norms on the outputs of attention and MLP, and on the heads of q and k; the large one has a window on three
 * layers of four, and no rope in the others. */
#include "graph/import/hf/families.h"

#include <string.h>

#include "base/error.h"

static trm_status read_windows(const trm_hf_reader *reader, trm_hf_config *config)
{
    const char *letters = trm_json_string(trm_json_get(reader->object, "sliding_window_pattern")); /* "LLLG" */
    int64_t pattern = letters != NULL && letters[0] != '\0' ? (int64_t)strlen(letters) : 4;
    config->window = 4096;
    TRM_TRY(trm_hf_read_windows(reader, config, 0));
    if (config->window > 0) {
        if (letters == NULL) {
            TRM_TRY(trm_hf_read_size(reader, "sliding_window_pattern", &pattern));
        }
        TRM_TRY(trm_hf_read_windows(reader, config, pattern));
    }
    TRM_TRY(trm_hf_read_layer_types(reader, config));
    for (int64_t i = 0; i < config->layers; i++) {
        config->unrotated[i] = config->window > 0 && !config->sliding[i];
    }
    return TRM_OK;
}

static trm_status read_exaone4(const trm_hf_reader *reader, trm_hf_config *config)
{
    config->norm_eps = 1e-5;
    TRM_TRY(trm_hf_read_common(reader, config));
    return read_windows(reader, config);
}

const trm_hf_family trm_hf_exaone4 = {
    .architecture = "Exaone4ForCausalLM",
    .model_type = "exaone4",
    .models = "EXAONE 4.0",
    .details = "norms after attention and MLP and on q and k, windows by layer, full layers without rope",
    .read = read_exaone4,
    .names = {TRM_HF_MODEL_NAMES, TRM_HF_ATTENTION_NAMES, TRM_HF_QK_NORM_NAMES, TRM_HF_MLP_NAMES,
              TRM_HF_POST_NORM_NAMES},
};
