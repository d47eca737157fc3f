/*
 * Kinds that begin, end and join regions: if, end_if, loop, end_loop, enter, recurrence, next, loop_output, merge. The
 * walk (graph/inference.c) handles what a condition decides beyond dims.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"

static trm_status require_condition(const trm_infer_call *call, int32_t input, const char *what)
{
    TRM_TRY(trm_infer_require_dtype(call, input, what, TRM_BOOL));
    return trm_infer_require_rank(call, input, what, 0);
}

static trm_status infer_condition(const trm_infer_call *call)
{
    bool ends_loop = call->desc->kind == TRM_LAYER_END_LOOP;
    TRM_TRY(trm_infer_require_inputs(call, ends_loop ? 2 : 1, ends_loop ? 2 : 1));
    TRM_TRY(require_condition(call, 0, "the condition"));
    if (ends_loop) {
        TRM_TRY(require_condition(call, 1, "the output of the loop"));
    }
    return trm_infer_same(call, 0);
}

const trm_kind trm_kind_if = {TRM_FIELDS(TRM_FIELD(BOOL, branch, negated)), .infer = infer_condition,
                              .value_inputs = 1u << 0};
const trm_kind trm_kind_end_if = {.infer = infer_condition};
const trm_kind trm_kind_loop = {.infer = infer_condition, .value_inputs = 1u << 0};
const trm_kind trm_kind_end_loop = {.infer = infer_condition, .value_inputs = 1u << 0};

static trm_status infer_enter(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    return trm_infer_same(call, 0);
}

const trm_kind trm_kind_enter = {.traits = TRM_KIND_EVALUATED, .infer = infer_enter, .sizes = trm_sizes_same};

/* Whether axis `axis` may change; one that there cannot be is none. */
static bool is_open(const trm_infer_call *call, int32_t axis)
{
    return ((uint32_t)call->desc->recurrence.open >> axis & 1) != 0;
}

static trm_status infer_recurrence(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 1, 1));
    TRM_TRY(trm_infer_same(call, 0));
    for (int32_t i = 0; i < call->dims[0]->n; i++) {
        if (is_open(call, i)) {
            call->output_dims[0].d[i] = -1;
        }
    }
    return TRM_OK;
}

static trm_status infer_next(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    const trm_dims *next = call->dims[0];
    trm_dims before = *call->dims[1];
    TRM_TRY(trm_infer_require_dtype(call, 0, "a loop-carried value", call->dtypes[1]));
    for (int32_t i = 0; i < before.n; i++) {
        before.d[i] = is_open(call, i) ? -1 : before.d[i];
    }
    TRM_TRY(trm_infer_require_dims(call, 0, "a loop-carried value", before));
    call->output_dims[0] = *next;
    call->output_dtypes[0] = call->dtypes[0];
    return TRM_OK;
}

static const trm_field recurrence_fields[] = {
    TRM_FIELD(INT32, recurrence, open),
};
const trm_kind trm_kind_recurrence = {TRM_FIELDS_OF(recurrence_fields), .traits = TRM_KIND_EVALUATED,
                                      .infer = infer_recurrence};
const trm_kind trm_kind_next = {TRM_FIELDS_OF(recurrence_fields), .traits = TRM_KIND_EVALUATED, .infer = infer_next};

static trm_status infer_loop_output(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 2, 2));
    TRM_TRY(require_condition(call, 1, "the end of the loop"));
    return trm_infer_same(call, 0);
}

const trm_kind trm_kind_loop_output = {
    .traits = TRM_KIND_EVALUATED, .infer = infer_loop_output, .sizes = trm_sizes_same};

static trm_status infer_merge(const trm_infer_call *call)
{
    TRM_TRY(trm_infer_require_inputs(call, 3, 5));
    TRM_TRY(require_condition(call, 0, "the condition"));
    TRM_TRY(trm_infer_require_dtype(call, 2, "b", call->dtypes[1]));
    const trm_dims *a = call->dims[1], *b = call->dims[2];
    call->output_dtypes[0] = call->dtypes[1];
    if (call->values != NULL && call->values[0] != NULL) {
        call->output_dims[0] = *(*(const unsigned char *)call->values[0] != 0 ? a : b);
        return TRM_OK;
    }
    if (a->n != b->n) {
        char of_a[TRM_DIMS_TEXT_SIZE], of_b[TRM_DIMS_TEXT_SIZE];
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a has dims %s, b %s, expected as many dimensions",
                 trm_dims_format(a, of_a), trm_dims_format(b, of_b));
    }
    call->output_dims[0].n = a->n;
    for (int32_t i = 0; i < a->n; i++) {
        call->output_dims[0].d[i] = a->d[i] == b->d[i] ? a->d[i] : -1;
    }
    return TRM_OK;
}

const trm_kind trm_kind_merge = {.traits = TRM_KIND_EVALUATED, .infer = infer_merge, .value_inputs = 1u << 0};
