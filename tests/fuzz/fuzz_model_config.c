/* Any bytes as config.pbtxt, and as the JSON of a configuration. */
#include <string.h>

#include "fuzz.h"
#include "launcher/serve/network/model_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static model_config config;
    char *text = malloc(size + (size == 0)); /* of its own size, so that reading past it is seen */
    FUZZ_REQUIRE(text != NULL);
    memcpy(text, data, size);
    for (int json = 0; json < 2; json++) {
        trm_status status = json ? model_config_parse_json("fuzz", text, size, &config)
                                 : model_config_parse("fuzz", text, size, &config);
        if (status == TRM_OK) {
            FUZZ_REQUIRE(config.given && config.max_batch >= 0 && config.n_latest >= 1);
            FUZZ_REQUIRE(!config.joins || config.max_batch > 0);
            FUZZ_REQUIRE(config.instances >= 0 && config.instances <= SERVED_MAX_INSTANCES);
            FUZZ_REQUIRE(memchr(config.name, 0, sizeof(config.name)) && strchr(config.file, '/') == NULL);
        }
    }
    free(text);
    return 0;
}
