/* EAGLE-3 heads of Llama's kind. They draft for another model and have no text of their own, so they are not in the
 * list of families. */
#include "graph/import/hf/families.h"

#include <string.h>

#include "base/error.h"

bool trm_hf_is_eagle(const char *architecture)
{
    static const char *const names[] = {"LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator",
                                        "Eagle3DraftModel"};
    bool is = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        is = is || strcmp(architecture, names[i]) == 0;
    }
    return is;
}

/* The layers whose hidden states go in, a list of three. `behind`: it names those whose output it is. */
static trm_status read_taps(const trm_json *list, const char *key, bool behind, trm_hf_eagle *eagle)
{
    if (list == NULL) {
        return TRM_OK;
    }
    for (size_t k = 0; k < TRM_HF_EAGLE_TAPS; k++) {
        if (!trm_json_is_array(list) || trm_json_count(list) != TRM_HF_EAGLE_TAPS ||
            !trm_json_integer(trm_json_at(list, k), &eagle->taps[k]) || eagle->taps[k] < 0) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: %s is not a list of %d numbers of layers", key,
                     TRM_HF_EAGLE_TAPS);
        }
        eagle->taps[k] += behind;
    }
    eagle->has_taps = true;
    return TRM_OK;
}

static trm_status read_eagle(const trm_hf_reader *reader, trm_hf_config *config)
{
    const trm_json *layer = trm_json_get(reader->root, "transformer_layer_config"); /* as speculators spells it */
    const trm_json *more = trm_json_get(reader->root, "eagle_config");
    trm_hf_reader own = *reader, root = *reader;
    trm_hf_eagle *eagle = &config->eagle;
    own.object = trm_json_is_object(layer) ? layer : reader->root;
    root.object = reader->root;
    eagle->is_head = true;
    TRM_TRY(trm_hf_read_common(&own, config));
    TRM_TRY(trm_hf_read_attention_bias(&own, config));
    TRM_TRY(trm_hf_read_bool(&own, "mlp_bias", &config->mlp_bias));
    if (config->layers != 1) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "config.json: the draft head has %lld layers, expected 1",
                 (long long)config->layers);
    }
    config->tied = false;
    eagle->target_vocab = config->vocab;
    eagle->target_hidden = config->hidden;
    if (trm_json_is_number(trm_json_get(reader->root, "target_hidden_size"))) {
        TRM_TRY(trm_hf_read_size(&root, "target_hidden_size", &eagle->target_hidden));
    }
    TRM_TRY(trm_hf_read_size(&root, "draft_vocab_size", &config->vocab));
    TRM_TRY(trm_hf_read_bool(&root, "norm_before_residual", &eagle->norm_before_residual));
    TRM_TRY(read_taps(trm_json_get(reader->root, "eagle_aux_hidden_state_layer_ids"),
                      "eagle_aux_hidden_state_layer_ids", false, eagle));
    return !trm_json_is_object(more) ? TRM_OK
                                     : read_taps(trm_json_get(more, "eagle_aux_hidden_state_layer_ids"),
                                                 "eagle_config.eagle_aux_hidden_state_layer_ids", true, eagle);
}

const trm_hf_family trm_hf_eagle3 = {
    .architecture = "LlamaForCausalLMEagle3",
    .model_type = "llama",
    .read = read_eagle,
    .names = {.roots = {""},
              .embedding = "embed_tokens",
              .final_norm = "norm",
              .heads = {"lm_head"},
              TRM_HF_ATTENTION_NAMES,
              TRM_HF_MLP_NAMES,
              TRM_HF_NORM_NAMES},
};
