/*
 * The weights of the experts of a block. Checkpoints store them one by one or stacked, plain or quantized; views make
 * all of them the stacked weights of an EXPERTS layer.
 */
#include "graph/import/hf/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define BLOCK 128 /* rows and columns of f8e4m3 that share a scale */

/* One of the two weights of a layer: [experts, n_names, rows, columns], or [experts, rows, columns]. */
typedef struct stack {
    const char *part;       /* "gate_up" or "down": of its tensors' names */
    const char *whole;      /* the name of the weight where all experts are stored as one, or NULL */
    const char *const *one; /* [n_names] of the matrices of one expert */
    int32_t n_names;
    int64_t rows, columns; /* of a matrix */
    trm_dims dims;
    int32_t rows_axis; /* of dims */
    int32_t input;     /* of the layer; its scale and zero point lie as those of gate_up */
} stack;

/* The tensors of matrices one below the other; `n` of each. scale and zero_point: of quantized ones. */
typedef struct pile {
    trm_weight **weight, **scale, **zero_point;
    int32_t n, n_scales, n_zero_points;
    int32_t block_n, block_k;
} pile;

static void destroy_all(trm_weight **weights, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        trm_weight_destroy(weights[i]);
    }
    free(weights);
}

static void fini_pile(pile *p)
{
    destroy_all(p->weight, p->n);
    destroy_all(p->scale, p->n_scales);
    destroy_all(p->zero_point, p->n_zero_points);
}

static trm_status init_pile(pile *p, int64_t most)
{
    *p = (pile){.weight = calloc((size_t)most, sizeof(*p->weight)),
                .scale = calloc((size_t)most, sizeof(*p->scale)),
                .zero_point = calloc((size_t)most, sizeof(*p->zero_point))};
    if (p->weight == NULL || p->scale == NULL || p->zero_point == NULL) {
        fini_pile(p);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the %lld weights of experts", (long long)most);
    }
    return TRM_OK;
}

/* ---- one matrix, or all as one ---------------------------------------------------------------------- */

/* Takes what is stored into the pile, and the checks that a plan must repeat into the network. */
static trm_status pile_quantized(trm_hf_decoder *d, pile *p, trm_hf_quantized *taken)
{
    if (p->n > 0 && (p->block_n != taken->block_n || p->block_k != taken->block_k || p->n_scales != p->n)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weight %s is quantized in another way than those of the experts before it",
                 d->text);
    }
    p->block_n = taken->block_n;
    p->block_k = taken->block_k;
    p->weight[p->n++] = taken->weight;
    p->scale[p->n_scales++] = taken->scale;
    taken->weight = taken->scale = NULL;
    if (taken->zero_point != NULL) {
        p->zero_point[p->n_zero_points++] = taken->zero_point;
        taken->zero_point = NULL;
    }
    if (taken->order != NULL) {
        TRM_TRY(trm_network_note_deciding(d->network, taken->order));
    }
    return taken->middle != NULL ? trm_network_note_deciding(d->network, taken->middle) : TRM_OK;
}

/* Floats of 4 bits as integers, twice as large, with half the scales: EXPERTS has products of those. */
static trm_status make_integers(trm_hf_quantized *taken)
{
    const trm_dims one = trm_dims1(1);
    trm_weight *half = NULL, *scale = NULL, *weight = NULL;
    TRM_TRY(trm_weight_random(TRM_F32, &one, 0, 0.5f, 0.0f, &half));
    trm_status status = trm_weight_compute(TRM_WEIGHT_MULTIPLY, TRM_F32, taken->scale, half, &scale);
    trm_weight_destroy(half);
    TRM_TRY(status);
    trm_weight_destroy(taken->scale);
    taken->scale = scale;
    TRM_TRY(trm_weight_recode(taken->weight, TRM_WEIGHT_CODE_TWICE, &weight));
    trm_weight_destroy(taken->weight);
    taken->weight = weight;
    return TRM_OK;
}

static trm_status take_quantized(trm_hf_decoder *d, const char *part, int64_t rows, int64_t columns, pile *p)
{
    trm_hf_quantized taken;
    TRM_TRY(trm_hf_quantized_take(d->checkpoint, &d->config->quantization, trm_hf_name(d, part, ""), rows, columns,
                                  &taken));
    trm_status status = trm_weight_dtype(taken.weight) == TRM_F4E2M1 ? make_integers(&taken) : TRM_OK;
    status = status == TRM_OK ? pile_quantized(d, p, &taken) : status;
    trm_hf_quantized_fini(&taken);
    return status;
}

static trm_status take_plain(trm_hf_decoder *d, const char *part, const char *suffix, const trm_dims *dims, pile *p)
{
    const char *full = trm_hf_name(d, part, suffix);
    if (p->n_scales > 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weight %s is not quantized, those of the experts before it are", full);
    }
    TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, full, TRM_HF_MATRIX, dims, &p->weight[p->n]));
    p->n++;
    return TRM_OK;
}

static trm_status take_each(trm_hf_decoder *d, const stack *s, pile *p)
{
    const trm_dims matrix = trm_dims2(s->rows, s->columns);
    for (int64_t e = 0; e < d->config->moe.experts; e++) {
        for (int32_t i = 0; i < s->n_names; i++) {
            char part[128];
            snprintf(part, sizeof(part), "%s.%lld.%s", d->names->experts, (long long)e, s->one[i]);
            TRM_TRY(trm_hf_part_is_quantized(d, part) ? take_quantized(d, part, s->rows, s->columns, p)
                                                      : take_plain(d, part, ".weight", &matrix, p));
        }
    }
    return TRM_OK;
}

/* The stored weight `full`, [experts, rows, columns], or [experts, columns, rows] if `turned`; dtype NONE: floats. */
static trm_status take_oriented(trm_hf_decoder *d, const char *full, trm_dtype dtype, trm_dims dims, bool turned,
                                trm_weight **weight)
{
    const trm_dims stored = turned ? trm_dims3(dims.d[0], dims.d[2], dims.d[1]) : dims;
    trm_weight *taken;
    TRM_TRY(dtype == TRM_DTYPE_NONE ? trm_hf_checkpoint_take(d->checkpoint, full, TRM_HF_MATRIX, &stored, &taken)
                                    : trm_hf_checkpoint_take_as(d->checkpoint, full, dtype, &stored, &taken));
    if (!turned) {
        *weight = taken;
        return TRM_OK;
    }
    trm_status status = trm_weight_transpose(taken, (const int32_t[]){0, 2, 1}, weight);
    trm_weight_destroy(taken);
    return status;
}

/* The scales beside a weight of all experts, as it lies: by blocks, or one a row, which may lie as the weight does. */
static trm_status take_stacked_scales(trm_hf_decoder *d, const stack *s, bool turned, pile *p)
{
    static const char *const suffixes[] = {"_scale_inv", "_scale"};
    const trm_hf_quantization *q = &d->config->quantization;
    const int64_t experts = d->config->moe.experts, rows = s->n_names * s->rows;
    trm_dtype dtype;
    trm_dims found = {0};
    const char *full = NULL;
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]) && found.n == 0; i++) {
        full = trm_hf_name(d, s->whole, suffixes[i]);
        (void)trm_hf_checkpoint_describe(d->checkpoint, full, &dtype, &found);
    }
    const bool is_column = found.n == 3 && found.d[1] == rows && found.d[2] == 1;
    const bool is_row = turned && found.n == 3 && found.d[1] == 1 && found.d[2] == rows;
    p->block_n = is_column || is_row ? 1 : q->block_n;
    p->block_k = is_column || is_row ? 0 : q->block_k;
    if (p->block_n < 1) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "weight %s: expected scales [%lld, %lld, 1] or a weight_block_size, as its type is %s", full,
                 (long long)experts, (long long)rows, trm_dtype_name(TRM_F8E4M3));
    }
    const trm_dims dims = trm_dims3(experts, (rows + p->block_n - 1) / p->block_n,
                                    p->block_k == 0 ? 1 : (s->columns + p->block_k - 1) / p->block_k);
    TRM_TRY(take_oriented(d, full, TRM_DTYPE_NONE, dims, turned && !is_column, &p->scale[0]));
    p->n_scales = 1;
    return TRM_OK;
}

static trm_status take_mxfp4(trm_hf_decoder *d, const stack *s, pile *p)
{
    TRM_TRY(trm_hf_mxfp4_take(d->checkpoint, trm_hf_name(d, s->whole, ""), d->config->moe.experts, s->n_names * s->rows,
                              s->columns, &p->weight[0], &p->scale[0]));
    p->n = p->n_scales = p->block_n = 1;
    p->block_k = 32;
    return TRM_OK;
}

/* All experts as one weight, [experts, n_names * rows, columns], or turned. */
static trm_status take_whole(trm_hf_decoder *d, const stack *s, pile *p)
{
    const trm_hf_quantization *q = &d->config->quantization;
    const trm_dims dims = trm_dims3(d->config->moe.experts, s->n_names * s->rows, s->columns);
    trm_dtype dtype;
    trm_dims found;
    if (q->format == TRM_HF_QUANT_MXFP4) {
        return take_mxfp4(d, s, p);
    }
    if (d->checkpoint->stored == NULL) {
        return q->format != TRM_HF_QUANT_NONE ? take_quantized(d, s->whole, dims.d[0] * dims.d[1], s->columns, p)
                                              : take_plain(d, s->whole, "", &dims, p);
    }
    const char *full = trm_hf_name(d, s->whole, "");
    const bool is_there = trm_hf_checkpoint_describe(d->checkpoint, full, &dtype, &found);
    const bool is_f8 = is_there && dtype == TRM_F8E4M3 && q->format == TRM_HF_QUANT_BYTES;
    /* Files of transformers' own may have them the usual way. */
    const bool turned = d->config->moe.turned && !(is_there && dims.d[1] != dims.d[2] && trm_dims_equal(&found, &dims));
    TRM_TRY(take_oriented(d, full, is_f8 ? TRM_F8E4M3 : TRM_DTYPE_NONE, dims, turned, &p->weight[0]));
    p->n = 1;
    return is_f8 ? take_stacked_scales(d, s, turned, p) : TRM_OK;
}

/* ---- the layer's tensors ---------------------------------------------------------------------------- */

/* Refuses what an EXPERTS layer does not take. */
static trm_status check_pile(trm_hf_decoder *d, const stack *s, const pile *p)
{
    if (p->n_scales == 0) {
        return TRM_OK;
    }
    const trm_dtype type = trm_weight_dtype(p->weight[0]);
    const bool is_block = p->block_n == BLOCK && p->block_k == BLOCK;
    const char *experts = trm_hf_name(d, d->names->experts, "");
    if (type == TRM_F8E4M3 ? !is_block && (p->block_n != 1 || p->block_k != 0) : p->block_n != 1) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "weights %s.*: a scale for %d rows and %d columns (0: all) of %s, expected one for %d x %d or a row",
                 experts, (int)p->block_n, (int)p->block_k, trm_dtype_name(type), BLOCK, BLOCK);
    }
    if (is_block && s->rows % BLOCK != 0 && (s->n_names > 1 || d->checkpoint->stored == NULL)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "weights %s.*: matrices have %lld rows, expected a multiple of %d, as blocks of weights have a scale "
                 "each",
                 experts, (long long)s->rows, BLOCK);
    }
    if (type != TRM_F8E4M3 && p->block_k > 0 && s->columns % p->block_k != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weights %s.*: groups of %d columns have a scale, expected them to divide %lld",
                 experts, (int)p->block_k, (long long)s->columns);
    }
    if (p->n_zero_points > 0 && p->n_zero_points != p->n) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weights %s.*: %d of %d have zero points, expected all or none", experts,
                 (int)p->n_zero_points, (int)p->n);
    }
    return TRM_OK;
}

/* Joins `n` matrices one below the other and sees them as `dims`, with rows and columns as these matrices have. */
static trm_status add_joined(trm_hf_decoder *d, const stack *s, trm_weight **parts, int32_t n, int32_t block_n,
                             const char *suffix, trm_dtype dtype, trm_tensor **tensor)
{
    char text[32];
    trm_weight *joined = NULL, *seen = NULL;
    const trm_dims part = trm_weight_dims(parts[0]);
    trm_dims dims = s->dims;
    dims.d[s->rows_axis] = (s->rows + block_n - 1) / block_n;
    dims.d[dims.n - 1] = part.d[part.n - 1];
    TRM_TRY(trm_weight_concat((const trm_weight *const *)parts, n, 0, &joined));
    trm_status status = trm_weight_reshape(joined, &dims, &seen);
    trm_weight_destroy(joined);
    TRM_TRY(status);
    snprintf(text, sizeof(text), ".%s%s", s->part, suffix);
    return trm_network_add_weight(d->network, trm_hf_name(d, d->names->experts, text), seen,
                                  dtype != TRM_DTYPE_NONE ? dtype : trm_weight_dtype(seen), tensor);
}

static trm_status add_pile(trm_hf_decoder *d, const stack *s, const pile *p, trm_tensor **inputs)
{
    enum {
        SCALE = TRM_EXPERTS_GATE_UP_SCALE - TRM_EXPERTS_GATE_UP,
        ZERO_POINT = TRM_EXPERTS_GATE_UP_ZERO_POINT - TRM_EXPERTS_GATE_UP
    };
    const bool quantized = p->n_scales > 0;
    TRM_TRY(check_pile(d, s, p));
    TRM_TRY(add_joined(d, s, p->weight, p->n, 1, "", quantized ? TRM_DTYPE_NONE : d->dtype, &inputs[s->input]));
    if (quantized) {
        const trm_dtype scales = trm_weight_dtype(p->weight[0]) == TRM_F8E4M3 ? TRM_F32 : TRM_DTYPE_NONE;
        TRM_TRY(add_joined(d, s, p->scale, p->n_scales, p->block_n, ".scale", scales, &inputs[s->input + SCALE]));
    }
    return p->n_zero_points == 0 ? TRM_OK
                                 : add_joined(d, s, p->zero_point, p->n_zero_points, 1, ".zero_point", TRM_DTYPE_NONE,
                                              &inputs[s->input + ZERO_POINT]);
}

/* Whether the checkpoint has all experts in one weight; a random one does, and a family that has no other names. */
static bool is_stacked(trm_hf_decoder *d, const stack *s)
{
    return s->whole != NULL &&
           (s->one[0] == NULL || trm_hf_checkpoint_has(d->checkpoint, trm_hf_name(d, s->whole, "")));
}

static trm_status add_stack(trm_hf_decoder *d, const stack *s, trm_tensor **inputs)
{
    pile p;
    TRM_TRY(init_pile(&p, d->config->moe.experts * s->n_names));
    trm_status status = is_stacked(d, s) ? take_whole(d, s, &p) : take_each(d, s, &p);
    if (status == TRM_OK) {
        status = add_pile(d, s, &p, inputs);
    }
    fini_pile(&p);
    return status;
}

/* Biases of all experts as one, beside the weights. */
static trm_status add_bias(trm_hf_decoder *d, const stack *s, trm_tensor **inputs)
{
    enum { BIAS = TRM_EXPERTS_GATE_UP_BIAS - TRM_EXPERTS_GATE_UP };
    const trm_dims stored = trm_dims2(d->config->moe.experts, s->n_names * s->rows);
    const char *full = trm_hf_name(d, s->whole, "_bias");
    trm_dims dims = s->dims;
    trm_weight *whole, *seen;
    dims.n--;
    TRM_TRY(trm_hf_checkpoint_take(d->checkpoint, full, TRM_HF_BIAS, &stored, &whole));
    trm_status status = trm_weight_reshape(whole, &dims, &seen);
    trm_weight_destroy(whole);
    TRM_TRY(status);
    return trm_network_add_weight(d->network, full, seen, d->dtype, &inputs[s->input + BIAS]);
}

trm_status trm_hf_add_expert_weights(trm_hf_decoder *d, trm_tensor **inputs)
{
    const trm_hf_names *names = d->names;
    const trm_hf_moe *moe = &d->config->moe;
    const int64_t experts = moe->experts, width = moe->width,
                  hidden = moe->latent > 0 ? moe->latent : d->config->hidden;
    const int32_t halves = moe->activation == TRM_EXPERT_RELU2 ? 1 : 2;
    const char *const up[] = {names->expert_gate, names->expert_up};
    const stack gate_up = {.part = "gate_up",
                           .whole = names->experts_gate_up,
                           .one = halves == 2 ? up : up + 1,
                           .n_names = halves,
                           .rows = width,
                           .columns = hidden,
                           .dims = moe->interleaved ? (trm_dims){4, {experts, width, halves, hidden}}
                                                    : (trm_dims){4, {experts, halves, width, hidden}},
                           .rows_axis = moe->interleaved ? 1 : 2,
                           .input = TRM_EXPERTS_GATE_UP};
    const stack down = {.part = "down",
                        .whole = names->experts_down,
                        .one = &names->expert_down,
                        .n_names = 1,
                        .rows = hidden,
                        .columns = width,
                        .dims = trm_dims3(experts, hidden, width),
                        .rows_axis = 1,
                        .input = TRM_EXPERTS_DOWN};
    TRM_TRY(add_stack(d, &gate_up, inputs));
    TRM_TRY(add_stack(d, &down, inputs));
    if (!moe->expert_bias) {
        return TRM_OK;
    }
    TRM_TRY(add_bias(d, &gate_up, inputs));
    return add_bias(d, &down, inputs);
}
