/*
 * The tensors of quantized linear layers, as DEQUANT_MATMUL reads them: views of the stored tensors, whose bits are
 * rearranged as they are read. The device's form, and what is streamed, have one layout whatever the method.
 */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/import/hf/quantization/quantization.h"
#include "graph/network.h"

/* Layers that are quantized here have both sizes in multiples of STEP, which products of 8 and 4 bits take everywhere,
 * and at least LEAST_ROWS rows: smaller ones are gates. */
#define STEP       16
#define LEAST_ROWS 64

typedef struct taker {
    trm_hf_checkpoint *checkpoint;
    const trm_hf_quantization *quantization;
    const char *part;
    int64_t out, in;
    char text[320];
} taker;

static const char *name(taker *t, const char *suffix)
{
    snprintf(t->text, sizeof(t->text), "%s.%s", t->part, suffix);
    return t->text;
}

static int64_t blocks_of(int64_t size, int64_t block)
{
    return block == 0 ? 1 : (size + block - 1) / block;
}

void trm_hf_quantized_fini(trm_hf_quantized *quantized)
{
    trm_weight_destroy(quantized->weight);
    trm_weight_destroy(quantized->scale);
    trm_weight_destroy(quantized->zero_point);
    trm_weight_destroy(quantized->order);
    trm_weight_destroy(quantized->middle);
    trm_weight_destroy(quantized->input_scale);
    trm_weight_destroy(quantized->stored_scale);
    trm_weight_destroy(quantized->global_scale);
    *quantized = (trm_hf_quantized){0};
}

/* Whether the layer `part` of floats is to be quantized. */
static bool is_quantized_here(const trm_hf_quantization *q, const char *part, trm_dtype dtype, const trm_dims *dims)
{
    const bool is_float = dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16;
    bool taken = is_float && dims->n == 2 && dims->d[0] >= LEAST_ROWS && dims->d[0] % STEP == 0 && dims->d[1] >= STEP &&
                 dims->d[1] % STEP == 0 && (q->bits == 8 || q->block_k == 0 || dims->d[1] % q->block_k == 0);
    for (int32_t i = 0; taken && i < q->n_keep; i++) {
        taken = fnmatch(q->keep[i], part, 0) != 0;
    }
    return taken;
}

trm_status trm_hf_check_kept(const trm_hf_checkpoint *checkpoint, const trm_hf_quantization *quantization)
{
    char layer[320];
    for (int32_t i = 0; i < quantization->n_keep; i++) {
        bool matches = false;
        for (int32_t k = 0; !matches && k < trm_safetensors_count(checkpoint->stored); k++) {
            const char *weight = trm_safetensors_name(checkpoint->stored, k), *end = strrchr(weight, '.');
            snprintf(layer, sizeof(layer), "%.*s", end != NULL ? (int)(end - weight) : (int)strlen(weight), weight);
            matches = fnmatch(quantization->keep[i], layer, 0) == 0;
        }
        if (!matches) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "no layer is named %s, expected a pattern such as *.down_proj",
                     quantization->keep[i]);
        }
    }
    return TRM_OK;
}

bool trm_hf_is_quantized(const trm_hf_checkpoint *checkpoint, const trm_hf_quantization *quantization, const char *part)
{
    char text[320];
    trm_dtype dtype;
    trm_dims dims;
    if (quantization->format == TRM_HF_QUANT_NONE || quantization->format == TRM_HF_QUANT_MXFP4) {
        return false;
    }
    snprintf(text, sizeof(text), "%s.weight", part);
    if (quantization->online) {
        return trm_hf_checkpoint_describe(checkpoint, text, &dtype, &dims) &&
               is_quantized_here(quantization, part, dtype, &dims);
    }
    return !trm_hf_checkpoint_describe(checkpoint, text, &dtype, &dims) ||
           (dtype != TRM_F32 && dtype != TRM_F16 && dtype != TRM_BF16);
}

/* ---- steps from what is stored ------------------------------------------------------------------------ */

/* Each takes the weight over, and leaves *weight NULL where it fails. */
static trm_status replace(trm_weight **weight, trm_status status, trm_weight *made)
{
    trm_weight_destroy(*weight);
    *weight = status == TRM_OK ? made : NULL;
    return status;
}

static trm_status turn(trm_weight **weight)
{
    trm_weight *made = NULL;
    trm_status status = trm_weight_transpose(*weight, (const int32_t[]){1, 0}, &made);
    return replace(weight, status, made);
}

static trm_status recode(trm_weight **weight, trm_weight_code code)
{
    trm_weight *made = NULL;
    trm_status status = trm_weight_recode(*weight, code, &made);
    return replace(weight, status, made);
}

static trm_status reshape(trm_weight **weight, int64_t rows, int64_t columns)
{
    trm_weight *made = NULL;
    const trm_dims dims = trm_dims2(rows, columns);
    trm_status status = trm_weight_reshape(*weight, &dims, &made);
    return replace(weight, status, made);
}

/* The first `length` of an axis, behind which is padding. */
static trm_status cut(trm_weight **weight, int32_t axis, int64_t length)
{
    trm_weight *made = NULL;
    trm_status status = trm_weight_slice(*weight, axis, 0, length, &made);
    return replace(weight, status, made);
}

static trm_status take(taker *t, const char *suffix, trm_dtype dtype, int64_t rows, int64_t columns,
                       trm_weight **weight)
{
    const trm_dims dims = trm_dims2(rows, columns);
    return trm_hf_checkpoint_take_as(t->checkpoint, name(t, suffix), dtype, &dims, weight);
}

/* Scales [rows, columns] of any float type. */
static trm_status take_scales(taker *t, const char *suffix, const trm_dims *dims, trm_weight **scale)
{
    return trm_hf_checkpoint_take(t->checkpoint, name(t, suffix), TRM_HF_MATRIX, dims, scale);
}

/* ---- weight and weight_scale ---------------------------------------------------------------------------- */

static const char *scale_suffix(taker *t)
{
    return trm_hf_checkpoint_has(t->checkpoint, name(t, "weight_scale_inv")) ? "weight_scale_inv" : "weight_scale";
}

/* A single scale is repeated for every row, so that weights with any scales can be joined and cut. Scales of rows may
 * lack their second dimension. Others follow the blocks of the configuration. */
static trm_status take_any_scales(taker *t, trm_hf_quantized *to)
{
    const trm_hf_quantization *q = t->quantization;
    const char *suffix = scale_suffix(t);
    trm_dtype dtype;
    trm_dims found = {0};
    const bool is_there = trm_hf_checkpoint_describe(t->checkpoint, name(t, suffix), &dtype, &found);
    int64_t count = 1;
    for (int32_t i = 0; i < found.n; i++) {
        count *= found.d[i];
    }
    to->block_n = 1;
    to->block_k = 0;
    const trm_dims expected =
        trm_dims2(blocks_of(t->out, q->block_n > 0 ? q->block_n : 1), blocks_of(t->in, q->block_k));
    const bool by_blocks = q->block_n > 0 && found.n == 2 && found.d[0] == expected.d[0] && found.d[1] == expected.d[1];
    if (is_there && !by_blocks && count == 1 && t->out > 1) {
        TRM_TRY(take_scales(t, suffix, &found, &to->scale));
        trm_weight *made = NULL;
        trm_status status = trm_weight_repeat(to->scale, (int32_t)t->out, &made);
        return replace(&to->scale, status, made);
    }
    if (is_there && !by_blocks && count == t->out && (found.n == 1 || (found.n == 2 && found.d[1] == 1))) {
        TRM_TRY(take_scales(t, suffix, &found, &to->scale));
        return reshape(&to->scale, t->out, 1);
    }
    to->block_n = q->block_n > 0 ? q->block_n : 1;
    to->block_k = q->block_k;
    return take_scales(t, suffix, &expected, &to->scale);
}

static trm_status take_bytes(taker *t, trm_hf_quantized *to)
{
    TRM_TRY(take(t, "weight", t->quantization->type, t->out, t->in, &to->weight));
    return take_any_scales(t, to);
}

/* ---- weight_packed ---------------------------------------------------------------------------------------- */

static trm_status take_packed(taker *t, trm_hf_quantized *to)
{
    const trm_hf_quantization *q = t->quantization;
    const int64_t per_word = 32 / q->bits;
    if (trm_hf_checkpoint_has(t->checkpoint, name(t, "weight_g_idx"))) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "weight %s: its columns are in the order of activations (actorder), expected "
                 "groups of columns that follow each other",
                 name(t, "weight_g_idx"));
    }
    trm_hf_checkpoint_skip(t->checkpoint, name(t, "weight_shape"));
    TRM_TRY(take(t, "weight_packed", TRM_I32, t->out, blocks_of(t->in, per_word), &to->weight));
    TRM_TRY(recode(&to->weight, TRM_WEIGHT_CODE_BYTES));
    TRM_TRY(cut(&to->weight, 1, t->in * q->bits / 8));
    if (q->bits == 8) {
        TRM_TRY(recode(&to->weight, TRM_WEIGHT_CODE_SIGNED));
    }
    TRM_TRY(take_any_scales(t, to));
    if (!q->has_zero_points) {
        return TRM_OK;
    }
    const trm_dims scale = trm_weight_dims(to->scale);
    TRM_TRY(take(t, "weight_zero_point", TRM_I32, blocks_of(t->out, 8), scale.d[1], &to->zero_point));
    TRM_TRY(recode(&to->zero_point, TRM_WEIGHT_CODE_WORDS));
    return cut(&to->zero_point, 0, t->out);
}

/* ---- floats of 4 bits ------------------------------------------------------------------------------------- */

/* scale <- scale op other, in f32. */
static trm_status combine(trm_weight_op op, trm_weight **scale, const trm_weight *other)
{
    trm_weight *made = NULL;
    trm_status status = trm_weight_compute(op, TRM_F32, *scale, other, &made);
    return replace(scale, status, made);
}

/* e4m3 over the scale of compressed-tensors for all of them, or times that of ModelOpt. */
static trm_status take_nvfp4_scales(taker *t, trm_hf_quantized *to)
{
    const bool divides = trm_hf_checkpoint_has(t->checkpoint, name(t, "weight_global_scale"));
    const char *suffix = divides ? "weight_global_scale" : "weight_scale_2";
    trm_weight *global = NULL;
    trm_dtype dtype;
    trm_dims dims = {0};
    TRM_TRY(take(t, "weight_scale", TRM_F8E4M3, t->out, t->in / 16, &to->scale));
    (void)trm_hf_checkpoint_describe(t->checkpoint, name(t, suffix), &dtype, &dims);
    const trm_dims one = dims.n == 0 ? dims : trm_dims1(1);
    TRM_TRY(trm_hf_checkpoint_take(t->checkpoint, name(t, suffix), TRM_HF_MATRIX, &one, &global));
    trm_status status = combine(divides ? TRM_WEIGHT_DIVIDE : TRM_WEIGHT_MULTIPLY, &to->scale, global);
    trm_weight_destroy(global);
    return status;
}

static trm_status take_f4(taker *t, trm_hf_quantized *to)
{
    const trm_hf_quantization *q = t->quantization;
    const bool is_packed = trm_hf_checkpoint_has(t->checkpoint, name(t, "weight_packed"));
    if (t->in % q->block_k != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s of floats of 4 bits has %lld columns, expected a multiple of %d",
                 name(t, "weight"), (long long)t->in, (int)q->block_k);
    }
    to->block_n = 1;
    to->block_k = q->block_k;
    TRM_TRY(take(t, is_packed ? "weight_packed" : "weight", TRM_U8, t->out, t->in / 2, &to->weight));
    TRM_TRY(recode(&to->weight, TRM_WEIGHT_CODE_E2M1));
    if (q->block_k == 16) {
        return take_nvfp4_scales(t, to);
    }
    TRM_TRY(take(t, "weight_scale", TRM_U8, t->out, t->in / 32, &to->scale));
    return recode(&to->scale, TRM_WEIGHT_CODE_POWERS);
}

/* ---- GPTQ and AWQ ----------------------------------------------------------------------------------------- */

/* Columns in an order of their own are refused: column i belongs to group i / group. */
static trm_status check_group_index(taker *t, int64_t group, trm_hf_quantized *to)
{
    const trm_dims dims = {1, {t->in}};
    if (!trm_hf_checkpoint_has(t->checkpoint, name(t, "g_idx"))) {
        return TRM_OK;
    }
    TRM_TRY(trm_hf_checkpoint_take_as(t->checkpoint, name(t, "g_idx"), TRM_I32, &dims, &to->order));
    int32_t *groups = malloc((size_t)t->in * sizeof(*groups));
    trm_status status = groups == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for %lld groups", (long long)t->in)
                            : trm_weight_read(to->order, TRM_I32, 0, (size_t)t->in, groups);
    for (int64_t i = 0; status == TRM_OK && i < t->in; i++) {
        const int64_t expected = group == 0 ? 0 : i / group;
        if (groups[i] != expected) {
            status =
                trm_fail(TRM_ERROR_UNSUPPORTED,
                         "weight %s: column %lld is in group %d, expected %lld: an order of activations (desc_act) "
                         "is not supported",
                         name(t, "g_idx"), (long long)i, groups[i], (long long)expected);
        }
    }
    free(groups);
    return status;
}

/* Whether all zero points of a symmetric quantization are the middle, as they should be. Zero points stored less 1 may
 * also be the middle itself: some files that say "gptq" store them as "gptq_v2" does. */
static trm_status are_middle(const trm_weight *zeros, bool less_one, bool *middle)
{
    const trm_dims dims = trm_weight_dims(zeros);
    const size_t count = (size_t)(dims.d[0] * dims.d[1]);
    unsigned char *values = malloc(count > 0 ? count : 1);
    trm_status status = values == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for %zu zero points", count)
                                       : trm_weight_read(zeros, TRM_U8, 0, count, values);
    *middle = true;
    for (size_t i = 0; status == TRM_OK && *middle && i < count; i++) {
        *middle = values[i] == values[0] && (values[i] == 8 || (less_one && values[i] == 9));
    }
    free(values);
    return status;
}

/* Zero points and scales, stored with groups in rows. */
static trm_status take_groups(taker *t, trm_hf_quantized *to)
{
    const trm_hf_quantization *q = t->quantization;
    const int64_t groups = blocks_of(t->in, q->block_k);
    const trm_dims scales = trm_dims2(groups, t->out);
    to->block_n = 1;
    to->block_k = q->block_k;
    TRM_TRY(take_scales(t, "scales", &scales, &to->scale));
    TRM_TRY(turn(&to->scale));
    TRM_TRY(take(t, "qzeros", TRM_I32, groups, blocks_of(t->out, 32 / q->bits), &to->zero_point));
    if (q->bits == 8) { /* the middle of all of them: the configuration says so */
        trm_weight_destroy(to->zero_point);
        to->zero_point = NULL;
        return TRM_OK;
    }
    if (!q->has_zero_points) {
        TRM_TRY(trm_weight_clone(to->zero_point, &to->middle));
    }
    if (q->zeros_less_one) {
        TRM_TRY(recode(&to->zero_point, TRM_WEIGHT_CODE_NEXT));
    }
    TRM_TRY(turn(&to->zero_point));
    TRM_TRY(recode(&to->zero_point, q->format == TRM_HF_QUANT_AWQ ? TRM_WEIGHT_CODE_AWQ_WORDS : TRM_WEIGHT_CODE_WORDS));
    TRM_TRY(cut(&to->zero_point, 0, t->out));
    bool middle = false;
    if (!q->has_zero_points) {
        TRM_TRY(are_middle(to->zero_point, q->zeros_less_one, &middle));
    }
    if (middle) {
        trm_weight_destroy(to->zero_point);
        to->zero_point = NULL;
    } else {
        trm_weight_destroy(to->middle);
        to->middle = NULL;
    }
    return TRM_OK;
}

static trm_status take_gptq(taker *t, trm_hf_quantized *to)
{
    const trm_hf_quantization *q = t->quantization;
    const int64_t per_word = 32 / q->bits;
    if (t->in % per_word != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s has %lld columns, expected a multiple of %lld", name(t, "qweight"),
                 (long long)t->in, (long long)per_word);
    }
    TRM_TRY(check_group_index(t, q->block_k, to));
    TRM_TRY(take(t, "qweight", TRM_I32, t->in / per_word, t->out, &to->weight));
    TRM_TRY(turn(&to->weight));
    TRM_TRY(recode(&to->weight, TRM_WEIGHT_CODE_BYTES));
    if (q->bits == 8) {
        TRM_TRY(recode(&to->weight, TRM_WEIGHT_CODE_SIGNED));
    }
    return take_groups(t, to);
}

static trm_status take_awq(taker *t, trm_hf_quantized *to)
{
    if (t->out % 8 != 0 || t->in % 2 != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s is of %lld rows and %lld columns, expected multiples of 8 and 2",
                 name(t, "qweight"), (long long)t->out, (long long)t->in);
    }
    TRM_TRY(take(t, "qweight", TRM_I32, t->in, t->out / 8, &to->weight));
    TRM_TRY(turn(&to->weight));
    TRM_TRY(recode(&to->weight, TRM_WEIGHT_CODE_AWQ_WORDS));
    TRM_TRY(recode(&to->weight, TRM_WEIGHT_CODE_PAIRS));
    return take_groups(t, to);
}

/* ---- random ------------------------------------------------------------------------------------------------- */

/* Numbers of all that the type has, and scales by which the product keeps the variance of its input. */
static trm_status make_random(taker *t, trm_hf_quantized *to)
{
    const trm_hf_quantization *q = t->quantization;
    const bool packed = q->bits == 4, is_f4 = q->type == TRM_F4E2M1;
    const float spread = packed ? 127.5f : q->type == TRM_I8 ? 127.0f : 224.0f;
    /* Of -8 to 7 the mean of squares is 21.5, of e2m1 8.6; of uniform numbers up to s it is s * s / 3. */
    const double square = is_f4 ? 8.6 : packed ? 21.5 : (double)spread * (double)spread / 3.0;
    to->block_n = q->block_n;
    to->block_k = q->block_k;
    const trm_dims weight = trm_dims2(t->out, packed ? t->in / 2 : t->in);
    const trm_dims scale = trm_dims2(blocks_of(t->out, q->block_n), blocks_of(t->in, q->block_k));
    const float mean = (float)(1.0 / sqrt((double)t->in * square));
    const uint64_t seed = trm_hf_checkpoint_seed(t->checkpoint, name(t, "weight"));
    TRM_TRY(trm_weight_random(packed ? TRM_U8 : q->type, &weight, seed, packed ? 127.5f : 0.0f, spread, &to->weight));
    TRM_TRY(is_f4 ? recode(&to->weight, TRM_WEIGHT_CODE_E2M1) : TRM_OK);
    return trm_weight_random(is_f4 ? TRM_F32 : t->checkpoint->dtype, &scale, seed + 1, mean, mean / 8.0f, &to->scale);
}

/* ---- by blocks ------------------------------------------------------------------------------------------------ */

/* weight [out, in] seen as blocks [out / n, in / k, n, k], or back. Takes it over. */
static trm_status turn_blocks(trm_weight **weight, trm_dims before, trm_dims after)
{
    trm_weight *seen = NULL, *turned = NULL, *made = NULL;
    trm_status status = trm_weight_reshape(*weight, &before, &seen);
    status = status == TRM_OK ? trm_weight_transpose(seen, (const int32_t[]){0, 2, 1, 3}, &turned) : status;
    status = status == TRM_OK ? trm_weight_reshape(turned, &after, &made) : status;
    trm_weight_destroy(turned);
    trm_weight_destroy(seen);
    return replace(weight, status, made);
}

/* An axis with zeros behind it, to whole blocks. */
static trm_status fill(trm_weight **weight, int32_t axis, int64_t length)
{
    trm_weight *made = NULL;
    trm_status status = trm_weight_pad(*weight, axis, length, &made);
    return replace(weight, status, made);
}

/* weight [out, in] -> [rows, columns, n, k], blocks with zeros behind the last ones; takes it over. */
static trm_status part_blocks(trm_weight **weight, int64_t rows, int64_t n, int64_t columns, int64_t k)
{
    TRM_TRY(fill(weight, 0, rows * n));
    TRM_TRY(fill(weight, 1, columns * k));
    return turn_blocks(weight, (trm_dims){4, {rows, n, columns, k}}, (trm_dims){4, {rows, columns, n, k}});
}

/* The way back to [out, in]. */
static trm_status join_blocks(trm_weight **weight, int64_t out, int64_t in)
{
    const trm_dims d = trm_weight_dims(*weight);
    TRM_TRY(turn_blocks(weight, d, trm_dims2(d.d[0] * d.d[2], d.d[1] * d.d[3])));
    TRM_TRY(cut(weight, 0, out));
    return cut(weight, 1, in);
}

/* ---- floats, quantized as they are read -------------------------------------------------------------------------- */

/* The largest magnitude of each block [rows, columns, n, k] over the largest number of the type, [rows * columns, 1].
 * Integers get half a step more at each end: the largest is rounded by half of one, as others are. */
static trm_status find_scales(taker *t, const trm_weight *blocks, trm_weight **scale)
{
    const trm_hf_quantization *q = t->quantization;
    const trm_dims d = trm_weight_dims(blocks), one = trm_dims1(1);
    const trm_dims lines = trm_dims2(d.d[0] * d.d[1], d.d[2] * d.d[3]);
    const float range = q->bits == 4 ? 7.5f : q->type == TRM_I8 ? 127.5f : 448.0f;
    trm_weight *largest = NULL, *most = NULL;
    TRM_TRY(trm_weight_reshape(blocks, &lines, &largest));
    trm_status status = recode(&largest, TRM_WEIGHT_CODE_LARGEST);
    status = status == TRM_OK ? trm_weight_random(TRM_F32, &one, 0, range, 0.0f, &most) : status;
    status = status == TRM_OK ? trm_weight_compute(TRM_WEIGHT_DIVIDE, trm_weight_dtype(blocks), largest, most, scale)
                              : status;
    trm_weight_destroy(most);
    trm_weight_destroy(largest);
    return status;
}

/* blocks over their scales, rounded; takes them over. */
static trm_status round_blocks(trm_weight **blocks, trm_dtype type, const trm_weight *scale)
{
    const trm_dims d = trm_weight_dims(*blocks), dims = {4, {d.d[0], d.d[1], 1, 1}};
    trm_weight *spread = NULL, *made = NULL;
    TRM_TRY(trm_weight_reshape(scale, &dims, &spread));
    trm_status status = trm_weight_compute(TRM_WEIGHT_QUANTIZE, type, *blocks, spread, &made);
    trm_weight_destroy(spread);
    return replace(blocks, status, made);
}

/* Scales of NVFP4 and MXFP4, [rows * columns, 1] as blocks are: e4m3 that is 448 for the largest number of all, or
 * powers of two; and what is stored of them. */
static trm_status find_f4_scales(const trm_weight *blocks, bool powers, trm_hf_quantized *to)
{
    const trm_dims d = trm_weight_dims(blocks), one = trm_dims1(1),
                   all = trm_dims2(1, d.d[0] * d.d[1] * d.d[2] * d.d[3]);
    const trm_dims lines = trm_dims2(d.d[0] * d.d[1], d.d[2] * d.d[3]);
    trm_weight *number = NULL, *whole = NULL;
    trm_status status = trm_weight_reshape(blocks, &lines, &to->scale);
    status = status == TRM_OK ? recode(&to->scale, TRM_WEIGHT_CODE_LARGEST) : status;
    if (status == TRM_OK && powers) {
        TRM_TRY_GOTO(status, trm_weight_random(TRM_F32, &one, 0, 4.0f, 0.0f, &number), done);
        TRM_TRY_GOTO(status, trm_weight_compute(TRM_WEIGHT_QUANTIZE, TRM_F8E8M0, to->scale, number, &to->stored_scale),
                     done);
        status = trm_weight_clone(to->stored_scale, &whole);
        status = replace(&to->scale, status, whole);
        whole = NULL;
        status = status == TRM_OK ? recode(&to->scale, TRM_WEIGHT_CODE_POWERS) : status;
        goto done;
    }
    /* global = 448 * 6 / largest of all; scale = e4m3(largest / 6 * global) */
    TRM_TRY_GOTO(status, status, done);
    TRM_TRY_GOTO(status, trm_weight_reshape(blocks, &all, &whole), done);
    TRM_TRY_GOTO(status, recode(&whole, TRM_WEIGHT_CODE_LARGEST), done);
    TRM_TRY_GOTO(status, trm_weight_random(TRM_F32, &one, 0, 2688.0f, 0.0f, &number), done);
    TRM_TRY_GOTO(status, trm_weight_compute(TRM_WEIGHT_DIVIDE, TRM_F32, number, whole, &to->global_scale), done);
    trm_weight_destroy(number);
    number = NULL;
    TRM_TRY_GOTO(status, trm_weight_random(TRM_F32, &one, 0, 6.0f, 0.0f, &number), done);
    TRM_TRY_GOTO(status, combine(TRM_WEIGHT_MULTIPLY, &to->scale, to->global_scale), done);
    TRM_TRY_GOTO(status, trm_weight_compute(TRM_WEIGHT_QUANTIZE, TRM_F8E4M3, to->scale, number, &to->stored_scale),
                 done);
    trm_weight_destroy(to->scale);
    to->scale = NULL;
    status = trm_weight_compute(TRM_WEIGHT_DIVIDE, TRM_F32, to->stored_scale, to->global_scale, &to->scale);
done:
    trm_weight_destroy(whole);
    trm_weight_destroy(number);
    return status;
}

/* To the nearest. The numbers are a function of the stored ones alone: whoever reads a part has the same bits. */
static trm_status quantize_here(taker *t, trm_hf_quantized *to)
{
    const trm_hf_quantization *q = t->quantization;
    const trm_dims dims = trm_dims2(t->out, t->in);
    const int64_t n = q->block_n, k = q->block_k == 0 ? t->in : q->block_k;
    const int64_t rows = blocks_of(t->out, n), columns = blocks_of(t->in, k);
    const int32_t index = trm_safetensors_find(t->checkpoint->stored, name(t, "weight"));
    to->block_n = q->block_n;
    to->block_k = q->block_k;
    TRM_TRY(trm_hf_checkpoint_take(t->checkpoint, name(t, "weight"), TRM_HF_MATRIX, &dims, &to->weight));
    TRM_TRY(part_blocks(&to->weight, rows, n, columns, k));
    TRM_TRY(q->type == TRM_F4E2M1 ? find_f4_scales(to->weight, k == 32, to) : find_scales(t, to->weight, &to->scale));
    TRM_TRY(round_blocks(&to->weight, q->type, to->scale));
    TRM_TRY(to->stored_scale != NULL ? reshape(&to->stored_scale, rows, columns) : TRM_OK);
    TRM_TRY(reshape(&to->scale, rows, columns));
    TRM_TRY(join_blocks(&to->weight, t->out, t->in));
    t->checkpoint->quantized[index] = true;
    return q->bits == 4 ? recode(&to->weight, TRM_WEIGHT_CODE_PAIRS) : TRM_OK;
}

/* ---- all -------------------------------------------------------------------------------------------------- */

/* The one number of input_scale. */
static trm_status take_input_scale(taker *t, trm_hf_quantized *to)
{
    trm_dtype dtype;
    trm_dims dims = {0};
    const bool is_there = trm_hf_checkpoint_describe(t->checkpoint, name(t, "input_scale"), &dtype, &dims);
    const trm_dims one = is_there && dims.n == 0 ? dims : trm_dims1(1);
    TRM_TRY(trm_hf_checkpoint_take(t->checkpoint, name(t, "input_scale"), TRM_HF_MATRIX, &one, &to->input_scale));
    TRM_TRY(trm_weight_read(to->input_scale, TRM_F32, 0, 1, &to->x_scale));
    if (!(to->x_scale > 0.0f) || isinf(to->x_scale)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s is %g, expected a number above 0", name(t, "input_scale"),
                 (double)to->x_scale);
    }
    return TRM_OK;
}

/* How x is quantized. What this does not need, nobody reads. */
static trm_status take_activations(taker *t, trm_hf_quantized *to)
{
    static const char *const suffixes[] = {"input_scale", "input_zero_point", "input_global_scale", "activation_scale"};
    to->x = t->quantization->x;
    to->x_scale = t->quantization->most_x_scale;
    for (size_t i = to->x == TRM_X_STATIC ? 1 : 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        trm_hf_checkpoint_skip(t->checkpoint, name(t, suffixes[i]));
    }
    return to->x == TRM_X_STATIC ? take_input_scale(t, to) : TRM_OK;
}

static trm_status take_parts(taker *t, trm_hf_quantized *to)
{
    if (t->checkpoint->stored == NULL || t->quantization->online) {
        to->x = t->quantization->x;
        return t->quantization->online ? quantize_here(t, to) : make_random(t, to);
    }
    TRM_TRY(take_activations(t, to));
    switch (t->quantization->format) {
    case TRM_HF_QUANT_PACKED:
        return take_packed(t, to);
    case TRM_HF_QUANT_GPTQ:
        return take_gptq(t, to);
    case TRM_HF_QUANT_AWQ:
        return take_awq(t, to);
    case TRM_HF_QUANT_F4:
        return take_f4(t, to);
    default:
        return take_bytes(t, to);
    }
}

trm_status trm_hf_quantized_take(trm_hf_checkpoint *checkpoint, const trm_hf_quantization *quantization,
                                 const char *part, int64_t out, int64_t in, trm_hf_quantized *quantized)
{
    taker t = {.checkpoint = checkpoint, .quantization = quantization, .part = part, .out = out, .in = in};
    trm_hf_quantized taken = {0};
    trm_status status = take_parts(&t, &taken);
    if (status != TRM_OK) {
        trm_hf_quantized_fini(&taken);
        return status;
    }
    *quantized = taken;
    return TRM_OK;
}

/* ---- MXFP4 -------------------------------------------------------------------------------------------------- */

/* Numbers of all that the type has, and scales by which the product keeps about the variance of its input: the mean of
 * squares is 8.6 of the numbers, and 1.6 of powers of two that are rounded from -1 to 1. */
static trm_status make_random_mxfp4(const trm_hf_checkpoint *checkpoint, const char *part, int64_t in,
                                    const trm_dims *dims, const trm_dims *scale_dims, trm_weight **numbers,
                                    trm_weight **scales)
{
    const uint64_t seed = trm_hf_checkpoint_seed(checkpoint, part);
    const double exponent = round(-0.5 * log2((double)in * 8.6 * 1.6));
    TRM_TRY(trm_weight_random(TRM_U8, dims, seed, 127.5f, 127.5f, numbers));
    return trm_weight_random(TRM_U8, scale_dims, seed + 1, (float)(127.0 + exponent), 1.0f, scales);
}

trm_status trm_hf_mxfp4_take(trm_hf_checkpoint *checkpoint, const char *part, int64_t experts, int64_t out, int64_t in,
                             trm_weight **numbers, trm_weight **scales)
{
    const trm_dims dims = trm_dims3(experts, out, in / 2), scale_dims = trm_dims3(experts, out, in / 32);
    const trm_dims stored = trm_dims4(experts, out, in / 32, 16);
    char text[320];
    trm_weight *blocks = NULL;
    trm_status status;
    *numbers = *scales = NULL;
    if (in % 32 != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s of MXFP4 has %lld columns, expected a multiple of 32", part,
                 (long long)in);
    }
    if (checkpoint->stored == NULL) {
        TRM_TRY_GOTO(status, make_random_mxfp4(checkpoint, part, in, &dims, &scale_dims, numbers, scales), failed);
        return TRM_OK;
    }
    snprintf(text, sizeof(text), "%s_blocks", part);
    TRM_TRY(trm_hf_checkpoint_take_as(checkpoint, text, TRM_U8, &stored, &blocks));
    status = trm_weight_reshape(blocks, &dims, numbers);
    trm_weight_destroy(blocks);
    TRM_TRY(status);
    snprintf(text, sizeof(text), "%s_scales", part);
    TRM_TRY_GOTO(status, trm_hf_checkpoint_take_as(checkpoint, text, TRM_U8, &scale_dims, scales), failed);
    return TRM_OK;
failed:
    trm_weight_destroy(*numbers);
    *numbers = NULL;
    return status;
}

/* ---- as floats ---------------------------------------------------------------------------------------------- */

/* weight times scale, each for a block of `taken`. */
static trm_status multiply_blocks(trm_hf_quantized *taken, int64_t out, int64_t in, trm_dtype dtype)
{
    const int64_t n = taken->block_n, k = taken->block_k == 0 ? in : taken->block_k;
    const int64_t rows = blocks_of(out, n), columns = blocks_of(in, k);
    const trm_dims scale = {4, {rows, columns, 1, 1}};
    trm_weight *product = NULL, *spread = NULL;
    TRM_TRY(part_blocks(&taken->weight, rows, n, columns, k));
    TRM_TRY(trm_weight_reshape(taken->scale, &scale, &spread));
    trm_status status = trm_weight_compute(TRM_WEIGHT_MULTIPLY, dtype, taken->weight, spread, &product);
    trm_weight_destroy(spread);
    TRM_TRY(replace(&taken->weight, status, product));
    return join_blocks(&taken->weight, out, in);
}

trm_status trm_hf_take_dequantized(trm_hf_checkpoint *checkpoint, const trm_hf_quantization *quantization,
                                   const char *part, int64_t out, int64_t in, trm_dtype dtype, trm_weight **weight)
{
    char text[320];
    const trm_dims dims = trm_dims2(out, in);
    trm_hf_quantized taken;
    if (checkpoint->stored == NULL || quantization->online || !trm_hf_is_quantized(checkpoint, quantization, part)) {
        snprintf(text, sizeof(text), "%s.weight", part);
        return trm_hf_checkpoint_take(checkpoint, text, TRM_HF_MATRIX, &dims, weight);
    }
    if (quantization->format != TRM_HF_QUANT_BYTES || quantization->type != TRM_F8E4M3) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "layer %s is quantized by %s, expected floats or f8e4m3: it is used as floats",
                 part, quantization->method);
    }
    TRM_TRY(trm_hf_quantized_take(checkpoint, quantization, part, out, in, &taken));
    trm_status status = multiply_blocks(&taken, out, in, dtype);
    if (status == TRM_OK) {
        *weight = taken.weight;
        taken.weight = NULL;
    }
    trm_hf_quantized_fini(&taken);
    return status;
}
