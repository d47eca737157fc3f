/* Linear layers, plain and quantized, and the parts of fused ones. */
#include "graph/import/hf/adapter.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define FEW_ROWS 128

const trm_hf_rows trm_hf_whole = {.suffix = ""};

/* weight [rows, rest...] -> the rows of `range`, [n, rest...]. Takes the weight over. */
static trm_status cut_rows(trm_weight *weight, const trm_hf_rows *range, trm_weight **rows)
{
    if (range->view.n == 0) {
        *rows = weight;
        return TRM_OK;
    }
    trm_dims stored = trm_weight_dims(weight);
    trm_dims split = range->view, joined = stored;
    joined.d[0] = 1;
    for (int32_t i = 0; i < split.n; i++) {
        joined.d[0] *= i == range->axis ? range->count : split.d[i];
    }
    for (int32_t i = 1; i < stored.n; i++) {
        split.d[split.n++] = stored.d[i];
    }
    trm_weight *seen = NULL, *part = NULL;
    trm_status status;
    TRM_TRY_GOTO(status, trm_weight_reshape(weight, &split, &seen), done);
    TRM_TRY_GOTO(status, trm_weight_slice(seen, range->axis, range->first, range->count, &part), done);
    status = trm_weight_reshape(part, &joined, rows);
done:
    trm_weight_destroy(part);
    trm_weight_destroy(seen);
    trm_weight_destroy(weight);
    return status;
}

/* weight [heads * head_dim, rest...]: see trm_hf_rows. Takes the weight over. */
static trm_status part_pairs(trm_weight *weight, const trm_hf_rows *range, trm_weight **rows)
{
    const trm_dims stored = trm_weight_dims(weight);
    const int64_t rotated = 2 * range->pairs, heads = stored.d[0] / range->head_dim, end = range->first_pair + rotated;
    trm_dims by_head = {stored.n + 1, {heads, range->head_dim}}, by_pair = {stored.n + 2, {heads, range->pairs, 2}};
    for (int32_t i = 1; i < stored.n; i++) {
        by_head.d[i + 1] = by_pair.d[i + 2] = stored.d[i];
    }
    trm_dims halves = by_head;
    halves.d[1] = rotated;
    trm_weight *views[4] = {NULL}, *parts[3] = {NULL}, *joined = NULL;
    int32_t n = 0;
    trm_status status;
    TRM_TRY_GOTO(status, trm_weight_reshape(weight, &by_head, &views[0]), done);
    if (range->first_pair > 0) {
        TRM_TRY_GOTO(status, trm_weight_slice(views[0], 1, 0, range->first_pair, &parts[n++]), done);
    }
    TRM_TRY_GOTO(status, trm_weight_slice(views[0], 1, range->first_pair, rotated, &views[1]), done);
    TRM_TRY_GOTO(status, trm_weight_reshape(views[1], &by_pair, &views[2]), done);
    TRM_TRY_GOTO(status, trm_weight_transpose(views[2], (const int32_t[]){0, 2, 1, 3}, &views[3]), done);
    TRM_TRY_GOTO(status, trm_weight_reshape(views[3], &halves, &parts[n++]), done);
    if (end < range->head_dim) {
        TRM_TRY_GOTO(status, trm_weight_slice(views[0], 1, end, range->head_dim - end, &parts[n++]), done);
    }
    if (n > 1) {
        TRM_TRY_GOTO(status, trm_weight_concat((const trm_weight *const *)parts, n, 1, &joined), done);
    }
    status = trm_weight_reshape(joined != NULL ? joined : parts[0], &stored, rows);
done:
    trm_weight_destroy(joined);
    for (int i = 0; i < 4; i++) {
        trm_weight_destroy(views[i]);
    }
    for (int i = 0; i < 3; i++) {
        trm_weight_destroy(parts[i]);
    }
    trm_weight_destroy(weight);
    return status;
}

trm_status trm_hf_take_rows(trm_weight *weight, const trm_hf_rows *range, trm_weight **rows)
{
    TRM_TRY(cut_rows(weight, range, rows));
    return range->pairs > 0 ? part_pairs(*rows, range, rows) : TRM_OK;
}

/* Takes a linear weight, [out, in] however it is stored. */
static trm_status take_matrix(trm_hf_decoder *d, const char *part, int64_t out, int64_t in, trm_weight **weight)
{
    trm_dims dims = d->names->transposed ? trm_dims2(in, out) : trm_dims2(out, in);
    trm_weight *stored;
    TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, trm_hf_name(d, part, ".weight"), TRM_HF_MATRIX, &dims, &stored));
    if (!d->names->transposed) {
        *weight = stored;
        return TRM_OK;
    }
    trm_status status = trm_weight_transpose(stored, (const int32_t[]){1, 0}, weight);
    trm_weight_destroy(stored);
    return status;
}

/* Whether pairs of rows stay in their blocks when they are put in order. */
static bool keeps_blocks(const trm_hf_rows *range, int64_t block)
{
    bool keeps = true;
    for (int64_t head = 0; keeps && range->pairs > 0 && head < block; head++) { /* the places repeat from there on */
        keeps = (head * range->head_dim + range->first_pair) % block + 2 * range->pairs <= block;
    }
    return keeps;
}

/* The rows of `range` among scales or zero points of blocks of `block` rows. */
static trm_status block_rows(trm_hf_decoder *d, const trm_hf_rows *range, int64_t block, trm_hf_rows *blocks)
{
    *blocks = *range;
    if (block == 1) {
        return TRM_OK;
    }
    if (!keeps_blocks(range, block)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "weight %s: blocks of %lld rows with a scale each do not fit heads of %lld rows with interleaved rope",
                 d->text, (long long)block, (long long)range->head_dim);
    }
    blocks->pairs = 0;
    if (range->view.n == 0) {
        return TRM_OK;
    }
    const int32_t last = range->view.n - 1;
    const bool is_cut = range->axis == last;
    if (range->view.d[last] % block != 0 || (is_cut && (range->first % block != 0 || range->count % block != 0))) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "weight %s: blocks of %lld rows with a scale each do not fit its parts, which begin at row %lld and "
                 "have %lld",
                 d->text, (long long)block, (long long)range->first, (long long)range->count);
    }
    blocks->view.d[last] /= block;
    blocks->first /= is_cut ? block : 1;
    blocks->count /= is_cut ? block : 1;
    return TRM_OK;
}

/* Takes rows of a tensor of a quantized layer into the network, as `dtype` (NONE: as it is); the weight over. */
static trm_status add_quantized_part(trm_hf_decoder *d, const char *part, const trm_hf_rows *range, const char *suffix,
                                     trm_dtype dtype, trm_weight **weight, trm_tensor **tensor)
{
    char text[64];
    trm_weight *taken = *weight, *rows = NULL;
    *weight = NULL;
    TRM_TRY(trm_hf_take_rows(taken, range, &rows));
    snprintf(text, sizeof(text), "%s.%s", range->suffix, suffix);
    dtype = dtype == TRM_DTYPE_NONE ? trm_weight_dtype(rows) : dtype;
    return trm_network_add_weight(d->network, trm_hf_name(d, part, text), rows, dtype, tensor);
}

/* The tensors of the quantized layer `part` [out, in], rows of `range`. */
trm_status trm_hf_add_quantized(trm_hf_decoder *d, const char *part, const trm_hf_rows *range, int64_t out, int64_t in,
                                trm_tensor **inputs, trm_layer_desc *desc)
{
    trm_hf_quantized taken;
    trm_hf_rows blocks;
    TRM_TRY(trm_hf_quantized_take(d->checkpoint, &d->config->quantization, trm_hf_name(d, part, ""), out, in, &taken));
    trm_status status = block_rows(d, range, taken.block_n, &blocks);
    if (status == TRM_OK) {
        status = add_quantized_part(d, part, range, "weight", TRM_DTYPE_NONE, &taken.weight,
                                    &inputs[TRM_DEQUANT_MATMUL_WEIGHT]);
    }
    if (status == TRM_OK) {
        /* Products of quantized numbers take scales of f32. */
        status = add_quantized_part(d, part, &blocks, "scale", taken.x != TRM_X_AS_IS ? TRM_F32 : TRM_DTYPE_NONE,
                                    &taken.scale, &inputs[TRM_DEQUANT_MATMUL_SCALE]);
    }
    if (status == TRM_OK && taken.zero_point != NULL) {
        status = add_quantized_part(d, part, &blocks, "zero_point", TRM_DTYPE_NONE, &taken.zero_point,
                                    &inputs[TRM_DEQUANT_MATMUL_ZERO_POINT]);
    }
    if (status == TRM_OK && taken.order != NULL) {
        status = trm_network_note_deciding(d->network, taken.order);
    }
    if (status == TRM_OK && taken.middle != NULL) {
        status = trm_network_note_deciding(d->network, taken.middle);
    }
    if (status == TRM_OK && taken.input_scale != NULL) {
        status = trm_network_note_deciding(d->network, taken.input_scale);
    }
    *desc = (trm_layer_desc){
        .kind = TRM_LAYER_DEQUANT_MATMUL,
        .dequant_matmul = {
            .block_n = taken.block_n, .block_k = taken.block_k, .x_quantization = taken.x, .x_scale = taken.x_scale}};
    trm_hf_quantized_fini(&taken);
    return status;
}

bool trm_hf_part_is_quantized(trm_hf_decoder *d, const char *part)
{
    return trm_hf_is_quantized(d->checkpoint, &d->config->quantization, trm_hf_name(d, part, ""));
}

/* Files leave linear layers of few rows, such as gates, as they are, and so are random ones. */
static bool has_few_rows(const trm_hf_decoder *d, int64_t out)
{
    return d->checkpoint->stored == NULL && out < FEW_ROWS;
}

/* y + B (A x) with the adapter of each token, beside those rows of the linear layer `part` [out, in]. */
static trm_status add_lora(trm_hf_decoder *d, const char *part, const trm_hf_rows *range, int64_t out, int64_t in,
                           trm_tensor *x, trm_tensor *y, trm_tensor **output)
{
    char module[512], a[sizeof(module) + 32], b[sizeof(module) + 32], suffix[64];
    trm_tensor *inputs[TRM_LORA_INPUT_COUNT] = {x, d->adapter_slots, y};
    snprintf(module, sizeof(module), "%s", trm_hf_name(d, part, ""));
    snprintf(a, sizeof(a), "%s%s.lora_a", module, range->suffix);
    snprintf(b, sizeof(b), "%s%s.lora_b", module, range->suffix);
    const trm_hf_target target = {
        .module = module + strlen(d->root), .a = a, .b = b, .out = out, .in = in, .rows = *range};
    TRM_TRY(trm_hf_targets_add(d->targets, &target));
    TRM_TRY(trm_network_add_state(d->network, a, d->dtype, trm_dims3(d->adapters, d->adapter_rank, in),
                                  &inputs[TRM_LORA_A]));
    TRM_TRY(trm_network_add_state(d->network, b, d->dtype, trm_dims3(d->adapters, y->dims.d[1], d->adapter_rank),
                                  &inputs[TRM_LORA_B]));
    const trm_layer_desc desc = {.kind = TRM_LAYER_LORA};
    snprintf(suffix, sizeof(suffix), "%s.lora", range->suffix);
    return trm_hf_add_layer(d, part, suffix, &desc, inputs, TRM_LORA_INPUT_COUNT, output);
}

/* x [T, in] -> [T, rows of range]: those rows of the linear layer `part` [out, in]. */
trm_status trm_hf_add_linear(trm_hf_decoder *d, const char *part, const trm_hf_rows *range, bool bias, int64_t out,
                             int64_t in, trm_tensor *x, trm_tensor **output)
{
    char suffix[32];
    trm_weight *weight;
    trm_tensor *inputs[TRM_DEQUANT_MATMUL_INPUT_COUNT] = {x}, **added = &inputs[2];
    trm_layer_desc desc = {.kind = TRM_LAYER_MATMUL, .matmul = {.transpose_b = true}};
    if (trm_hf_part_is_quantized(d, part) && !has_few_rows(d, out)) {
        TRM_TRY(trm_hf_add_quantized(d, part, range, out, in, inputs, &desc));
        added = &inputs[TRM_DEQUANT_MATMUL_BIAS];
    } else {
        TRM_TRY(take_matrix(d, part, out, in, &weight));
        TRM_TRY(trm_hf_take_rows(weight, range, &weight));
        snprintf(suffix, sizeof(suffix), "%s.weight", range->suffix);
        TRM_TRY(trm_network_add_weight(d->network, trm_hf_name(d, part, suffix), weight, d->dtype, &inputs[1]));
    }
    if (bias) {
        trm_dims dims = trm_dims1(out);
        TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, trm_hf_name(d, part, ".bias"), TRM_HF_BIAS, &dims, &weight));
        TRM_TRY(trm_hf_take_rows(weight, range, &weight));
        snprintf(suffix, sizeof(suffix), "%s.bias", range->suffix);
        TRM_TRY(trm_network_add_weight(d->network, trm_hf_name(d, part, suffix), weight, d->dtype, added));
    }
    TRM_TRY(trm_hf_add_layer(d, part, range->suffix, &desc, inputs, TRM_DEQUANT_MATMUL_INPUT_COUNT, output));
    return d->adapters == 0 ? TRM_OK : add_lora(d, part, range, out, in, x, *output, output);
}
