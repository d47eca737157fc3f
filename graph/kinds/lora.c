/*
 * Low-rank adapters beside products: lora.
 *
 * Over ranks they are split as the product is. Where its columns are, so are those of B; where ranks have summands of
 * it, they have summands of A x, too, and B of that.
 */
#include "graph/kinds/kind.h"

#include <inttypes.h>

#include "base/error.h"

/* One pair of A and B from input `at` on; adds the columns of B to *columns, -1: unknown. */
static trm_status infer_pair(const trm_infer_call *call, int32_t at, int64_t k, int64_t *columns)
{
    TRM_TRY(trm_infer_require_rank(call, at, "a", 3));
    TRM_TRY(trm_infer_require_rank(call, at + 1, "b", 3));
    TRM_TRY(trm_infer_require_dtype(call, at, "a", call->dtypes[TRM_LORA_X]));
    TRM_TRY(trm_infer_require_dtype(call, at + 1, "b", call->dtypes[TRM_LORA_X]));
    const int64_t adapters = call->dims[TRM_LORA_A]->d[0], n = call->dims[at + 1]->d[1];
    TRM_TRY(trm_infer_require_dims(call, at, "a", trm_dims3(adapters, -1, k)));
    TRM_TRY(trm_infer_require_dims(call, at + 1, "b", trm_dims3(adapters, -1, call->dims[at]->d[1])));
    *columns = *columns == -1 || n == -1 ? -1 : *columns + n;
    return TRM_OK;
}

static trm_status infer_lora(const trm_infer_call *call)
{
    const int32_t most = TRM_LORA_A + 2 * TRM_LORA_MAX_PAIRS;
    TRM_TRY(trm_infer_require_inputs(call, TRM_LORA_INPUT_COUNT, most));
    if ((call->n_inputs - TRM_LORA_A) % 2 != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "found %d inputs, expected an a and a b for each pair", call->n_inputs);
    }
    TRM_TRY(trm_infer_require_rank(call, TRM_LORA_X, "x", 2));
    TRM_TRY(trm_infer_require_rank(call, TRM_LORA_SLOTS, "slots", 1));
    TRM_TRY(trm_infer_require_rank(call, TRM_LORA_Y, "y", 2));
    TRM_TRY(trm_infer_require_float(call, TRM_LORA_X, "x"));
    TRM_TRY(trm_infer_require_dtype(call, TRM_LORA_SLOTS, "slots", TRM_I32));
    TRM_TRY(trm_infer_require_dtype(call, TRM_LORA_Y, "y", call->dtypes[TRM_LORA_X]));
    const trm_dims *x = call->dims[TRM_LORA_X], *y = call->dims[TRM_LORA_Y];
    TRM_TRY(trm_infer_require_dims(call, TRM_LORA_SLOTS, "slots", trm_dims1(x->d[0])));
    int64_t columns = 0;
    for (int32_t i = TRM_LORA_A; i < call->n_inputs; i += 2) {
        TRM_TRY(infer_pair(call, i, x->d[1], &columns));
    }
    TRM_TRY(trm_infer_require_dims(call, TRM_LORA_Y, "y", trm_dims2(x->d[0], columns)));
    call->output_dims[0] = trm_dims2(trm_dim_known(x->d[0], y->d[0]), trm_dim_known(y->d[1], columns));
    call->output_dtypes[0] = call->dtypes[TRM_LORA_X];
    return TRM_OK;
}

static int32_t link_lora(const trm_layer *layer, int32_t k, int32_t i)
{
    if (k == 0) {
        return i < TRM_LORA_A ? 0 : TRM_LINK_WHOLE;
    }
    return layer->n_inputs > TRM_LORA_INPUT_COUNT ? TRM_LINK_NEVER
           : i == TRM_LORA_Y || i == TRM_LORA_B   ? 1
                                                  : TRM_LINK_WHOLE;
}

static void sizes_of_y(trm_size_walk *walk, const trm_layer *layer)
{
    trm_sizes_follow(walk, layer->outputs[0], layer->inputs[TRM_LORA_Y], 2);
}

/* Columns of y behind the end are zeros, and so are those of B. */
static bool lora_keeps_zero(const trm_layer *layer, uint32_t split)
{
    const uint32_t both = 1u << TRM_LORA_Y | 1u << TRM_LORA_B;
    (void)layer;
    return (split & both) == both;
}

/* Beside a product of which every rank has a summand. */
static trm_status shard_lora(const trm_layer *layer, int32_t parts, trm_way_taker *taker)
{
    trm_way way = trm_way_whole();
    way.in[TRM_LORA_X] = trm_split(1, parts);
    way.in[TRM_LORA_Y] = way.out[0] = trm_partial(parts);
    for (int32_t i = TRM_LORA_A; i < layer->n_inputs; i += 2) {
        way.in[i] = trm_split(2, parts);
    }
    return taker->take(taker, layer, &way);
}

/* A x is shared by the columns of an output row. */
static double lora_multiplications(const trm_layer *layer, const trm_dims *in, int64_t unknown)
{
    const double columns = trm_known_dim(in[TRM_LORA_Y].d[1], unknown), k = trm_known_dim(in[TRM_LORA_X].d[1], unknown);
    (void)layer;
    return trm_known_dim(in[TRM_LORA_A].d[1], unknown) * (1.0 + (columns > 0.0 ? k / columns : 0.0));
}

const trm_kind trm_kind_lora = {
    .traits = TRM_KIND_READS_STATES,
    .infer = infer_lora,
    .link = link_lora,
    .sizes = sizes_of_y,
    .keeps_zero = lora_keeps_zero,
    .shard = shard_lora,
    .multiplications = lora_multiplications,
};
