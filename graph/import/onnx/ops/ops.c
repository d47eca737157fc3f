/* The list of operators. */
#include "graph/import/onnx/ops/ops.h"

#include <string.h>

static const trm_onnx_operator *const tables[] = {
#define TABLE(family) trm_onnx_ops_##family,
    TRM_ONNX_FAMILIES(TABLE)
#undef TABLE
};

const trm_onnx_operator *trm_onnx_find_operator(const char *domain, const char *name, int64_t opset, bool *known)
{
    const trm_onnx_operator *best = NULL;
    if (known != NULL) {
        *known = false;
    }
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        for (const trm_onnx_operator *row = tables[i]; row->name != NULL; row++) {
            if (strcmp(row->name, name) != 0 || strcmp(row->domain, domain) != 0) {
                continue;
            }
            if (known != NULL) {
                *known = true;
            }
            if (row->since <= opset && (best == NULL || row->since > best->since)) {
                best = row;
            }
        }
    }
    return best;
}
