/* Any bytes as config.json: what is accepted has sizes that fit together and makes a network or is refused with a
 * cause. */
#include <math.h>

#include "base/error.h"
#include "fuzz.h"
#include "graph/import/hf/decoder.h"

static void check_config(const trm_hf_config *config)
{
    FUZZ_REQUIRE(config->layers > 0 && config->hidden > 0 && config->vocab > 0 && config->intermediate > 0);
    FUZZ_REQUIRE(config->heads > 0 && config->kv_heads > 0 && config->heads % config->kv_heads == 0);
    FUZZ_REQUIRE(config->head_dim > 0 && config->context_length > 0 && config->n_eos <= TRM_HF_MAX_EOS);
    for (int64_t i = 0; i < config->layers; i++) {
        FUZZ_REQUIRE(!config->sliding[i] || config->window > 0);
    }
    for (int i = 0; config->rotary && i < (config->sliding_rope ? 2 : 1); i++) {
        FUZZ_REQUIRE(config->rope[i].dim > 0 && config->rope[i].dim <= config->head_dim);
    }
}

static void build(const trm_hf_config *config)
{
    trm_hf_checkpoint checkpoint;
    trm_network *network = NULL;
    trm_hf_checkpoint_random(TRM_BF16, 1, &checkpoint);
    trm_status status = trm_hf_decoder_build(config, &checkpoint, TRM_BF16, TRM_BF16, NULL, NULL, NULL, &network);
    FUZZ_REQUIRE(status != TRM_ERROR_INTERNAL && (status == TRM_OK) == (network != NULL));
    trm_network_destroy(network);
    trm_hf_checkpoint_fini(&checkpoint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trm_json_document *document = NULL;
    trm_arena arena = {0};
    trm_hf_config config = {0};
    if (trm_json_parse("config.json", (const char *)data, size, &document) != TRM_OK) {
        return 0;
    }
    (void)trm_hf_config_read_generation(document, &config);
    if (trm_hf_config_read(document, &arena, 0, &config) == TRM_OK) {
        check_config(&config);
        if (config.layers <= 4) {
            build(&config);
        }
    } else {
        FUZZ_REQUIRE(trm_last_error()[0] != '\0');
    }
    trm_arena_fini(&arena);
    trm_json_close(document);
    return 0;
}
