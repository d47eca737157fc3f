/* Any bytes as an ONNX model: it is refused with a cause, or its network holds together. */
#include <string.h>

#include "base/error.h"
#include "fuzz.h"
#include "graph/import/onnx/model.h"
#include "network.h"
#include "weight_stream/weight_internal.h"

static void check_network(const trm_network *network)
{
    fuzz_require_links(network);
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (tensor->weight != NULL) { /* the file holds all of it */
            unsigned char last[16];
            int64_t count = 1;
            for (int32_t k = 0; k < tensor->dims.n; k++) {
                count *= tensor->dims.d[k];
            }
            FUZZ_REQUIRE(count == 0 ||
                         trm_weight_read(tensor->weight, tensor->dtype, (size_t)count - 1, 1, last) == TRM_OK);
        }
    }
}

static bool is_refusal(trm_status status)
{
    return status == TRM_ERROR_INVALID_MODEL || status == TRM_ERROR_UNSUPPORTED ||
           status == TRM_ERROR_INVALID_ARGUMENT || status == TRM_ERROR_OUT_OF_MEMORY;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Never released to zero: the bytes are not a mapping of ours. */
    trm_weight_file file = {
        .mapping = {.bytes = data, .size = size}, .descriptor = -1, .name = (char *)(uintptr_t) "input"};
    atomic_init(&file.references, 1);
    trm_onnx *model;
    trm_network *network;
    trm_status status = trm_onnx_open_file(&file, "input", NULL, &model);
    if (status != TRM_OK) {
        FUZZ_REQUIRE(is_refusal(status) && trm_last_error()[0] != '\0');
        FUZZ_REQUIRE(atomic_load(&file.references) == 1);
        return 0;
    }
    trm_onnx_port port;
    trm_onnx_use use;
    for (int32_t i = 0; trm_onnx_get_input(model, i, &port); i++) {
        FUZZ_REQUIRE(port.name != NULL && port.type != NULL);
    }
    for (int32_t i = 0; trm_onnx_get_use(model, i, &use); i++) {
        FUZZ_REQUIRE(use.nodes > 0);
    }
    status = trm_onnx_build_network(model, NULL, &network);
    if (status == TRM_OK) {
        check_network(network);
        trm_network_destroy(network);
    } else {
        FUZZ_REQUIRE(is_refusal(status) && trm_last_error()[0] != '\0');
    }
    trm_onnx_close(model);
    FUZZ_REQUIRE(atomic_load(&file.references) == 1);
    return 0;
}
