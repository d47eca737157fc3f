/* Any bytes as a plan file, without checksums: it is refused with a cause, or its plan holds together. */
#include <string.h>

#include <trireme/trireme.h>

#include "base/error.h"
#include "dist/plan/file.h"
#include "fuzz.h"
#include "network.h"
#include "weight_stream/weight_internal.h"

static void check_plan(const trm_plan *plan)
{
    const trm_network *network = plan->network;
    fuzz_require_links(network);
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        FUZZ_REQUIRE(tensor->role != TRM_TENSOR_ACTIVATION || tensor->producer != NULL);
        size_t count = (size_t)trm_dims_count(&tensor->dims);
        if (tensor->weight != NULL && count > 0) { /* its source holds all of it */
            unsigned char element[16];
            for (size_t k = 0; k < 4; k++) {
                FUZZ_REQUIRE(trm_weight_read(tensor->weight, tensor->dtype, (count - 1) / 3 * k % count, 1, element) ==
                             TRM_OK);
            }
            FUZZ_REQUIRE(trm_weight_read(tensor->weight, tensor->dtype, count - 1, 1, element) == TRM_OK);
        }
    }
    char *text = trm_plan_to_text(plan);
    FUZZ_REQUIRE(text != NULL);
    trm_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* Never released to zero: the bytes are not a mapping of ours. */
    char *name = (char *)(uintptr_t) "input";
    trm_weight_file file = {.mapping = {.bytes = data, .size = size}, .descriptor = -1, .name = name, .path = name};
    atomic_init(&file.references, 1);
    for (int32_t rank = 0; rank < 2; rank++) {
        trm_plan *plan;
        trm_status status = trm_plan_read(&file, "/nowhere/", rank, true, NULL, &plan);
        if (status == TRM_OK) {
            check_plan(plan);
            trm_plan_destroy(plan);
        } else {
            FUZZ_REQUIRE(trm_last_error()[0] != '\0' && status != TRM_ERROR_INTERNAL);
        }
        FUZZ_REQUIRE(atomic_load(&file.references) == 1);
    }
    return 0;
}
