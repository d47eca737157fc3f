/*
 * Shape and type rules of the kinds that take or place elements by position.
 */
#include "graph/infer.h"

#include <inttypes.h>

#include "base/error.h"

/* One output with the dims and type of an input. */
static void same_as_input(const trm_infer_call *call, int32_t input)
{
    call->output_dims[0] = *call->dims[input];
    call->output_dtypes[0] = call->dtypes[input];
}

/* ---- pad --------------------------------------------------------------------------------------- */

trm_status trm_infer_pad(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 3));
    const trm_pad_params *pad = &call->desc->pad;
    const trm_dims *x = call->dims[0];
    int64_t pads[2 * TRM_MAX_DIMS];
    bool known = true;
    if ((unsigned)pad->mode > TRM_PAD_WRAP) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found pad mode %d, expected 0 to %d", (int)pad->mode, (int)TRM_PAD_WRAP);
    }
    for (int32_t i = 0; i < x->n; i++) {
        pads[i] = pad->before[i];
        pads[x->n + i] = pad->after[i];
    }
    if (trm_infer_has(call, 1)) {
        TRM_TRY(trm_infer_require_dtype(call, 1, "pads", TRM_I64));
        TRM_TRY(trm_infer_values(call, 1, "pads", 2 * x->n, pads, &known));
    }
    if (trm_infer_has(call, 2)) {
        TRM_TRY(trm_infer_require_dtype(call, 2, "value", call->dtypes[0]));
    }
    same_as_input(call, 0);
    trm_dims *out = &call->output_dims[0];
    for (int32_t i = 0; i < x->n; i++) {
        if (!known || x->d[i] == -1) {
            out->d[i] = -1;
        } else if (__builtin_add_overflow(x->d[i], pads[i], &out->d[i]) ||
                   __builtin_add_overflow(out->d[i], pads[x->n + i], &out->d[i]) || out->d[i] < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "axis %" PRId32 " of size %" PRId64 " is padded by %" PRId64 " and %" PRId64
                     ", expected a size of at least 0",
                     i, x->d[i], pads[i], pads[x->n + i]);
        } else if (pad->mode != TRM_PAD_CONSTANT && out->d[i] > 0 && x->d[i] == 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "axis %" PRId32 " has size 0, expected elements to pad it with", i);
        }
    }
    return TRM_OK;
}
