/*
 * Attention written out: softmax(scale * q k^T, masked) v of [batch, heads, length, width] tensors becomes one layer of
 * the padded form. The scale may stand on the product, on q, on k or on both; the mask is added, or chooses between the
 * scores and a large negative number, or both; softmax may be computed in f32 between casts, and rows that see no key
 * made 0 behind it.
 *
 * A query that sees no key gets zeros from the layer, where the products gave a mean of all values or NaN.
 */
#include "graph/passes/pattern.h"

#include <assert.h>

#define MOST_WIDTH 512  /* of heads, that every backend's kernels take */
#define UNSEEN     -1e4 /* and less: a score that makes a weight 0 */

typedef struct attention {
    trm_tensor *q, *k, *v, *mask;
    double scale;
    trm_layer *turned; /* makes k^T and shall make k; NULL: k is what the product reads */
    trm_layer *select; /* chooses the scores, or makes the mask */
    int32_t seen;      /* which of the inputs of select are the scores */
} attention;

static bool is_plain_product(const trm_layer *layer)
{
    const trm_matmul_params *p = &layer->desc.matmul;
    return layer->n_inputs == 2 && !p->transpose_a && p->activation == TRM_ACTIVATION_NONE &&
           layer->outputs[0]->dtype == layer->inputs[0]->dtype;
}

static bool is_short_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16;
}

/* The input of a cast between float types inside of a pattern, or the tensor itself. */
static trm_tensor *behind_cast(const trm_analysis *analysis, trm_tensor *tensor)
{
    const trm_layer *cast = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_CAST);
    bool fits = cast != NULL && is_short_float(tensor->dtype) && is_short_float(cast->inputs[0]->dtype);
    return fits ? cast->inputs[0] : tensor;
}

/* The softmax over keys whose result, inside of a pattern, is `weights`, with NaN made 0 or not. */
static const trm_layer *softmax_of(const trm_analysis *analysis, trm_tensor *weights)
{
    trm_tensor *tensor = behind_cast(analysis, weights);
    const trm_layer *select = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_SELECT), *softmax;
    double zero;
    if (select != NULL) {
        trm_tensor *kept = select->inputs[2];
        const trm_layer *test = trm_pattern_unary(analysis, select->inputs[0], TRM_UNARY_IS_NAN);
        softmax = kept->producer;
        bool fits = test != NULL && test->inputs[0] == kept && trm_pattern_scalar(select->inputs[1], &zero) &&
                    zero == 0 && kept->pin == NULL && !kept->is_output && analysis->use_count[kept->index] == 2 &&
                    softmax != NULL && softmax->desc.kind == TRM_LAYER_SOFTMAX && !analysis->touched[softmax->index];
        if (!fits) {
            return NULL;
        }
    } else {
        softmax = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_SOFTMAX);
    }
    bool last = softmax != NULL && softmax->desc.softmax.axis == softmax->inputs[0]->dims.n - 1;
    return last ? softmax : NULL;
}

/* What is left of a tensor when factors of one element are taken into the scale; NULL if it is a product of more. */
static trm_tensor *without_scale(const trm_analysis *analysis, trm_tensor *tensor, attention *found)
{
    trm_pattern_product product;
    trm_pattern_product_of(analysis, tensor, &product);
    if (product.n != 1) {
        return NULL;
    }
    found->scale *= product.factor;
    return product.terms[0];
}

/* scale * q k^T */
static bool match_scores(const trm_analysis *analysis, trm_tensor *tensor, attention *found)
{
    found->scale = 1;
    found->turned = NULL;
    trm_tensor *scores = without_scale(analysis, tensor, found);
    const trm_layer *product = trm_analysis_private_producer(analysis, scores, TRM_LAYER_MATMUL);
    if (product == NULL || !is_plain_product(product)) {
        return false;
    }
    found->q = without_scale(analysis, product->inputs[0], found);
    found->k = without_scale(analysis, product->inputs[1], found);
    if (found->q == NULL || found->k == NULL) {
        return false;
    }
    if (!product->desc.matmul.transpose_b) {
        found->turned = trm_analysis_private_producer(analysis, found->k, TRM_LAYER_TRANSPOSE);
        if (found->turned == NULL) {
            return false;
        }
    }
    return found->q->dims.n == 4 && found->k->dims.n == 4 && found->scale != 0;
}

/* The scores, or a choice between them and a large negative number. */
static bool match_chosen(const trm_analysis *analysis, trm_tensor *tensor, attention *found)
{
    double value;
    found->select = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_SELECT);
    if (found->select == NULL) {
        return match_scores(analysis, tensor, found);
    }
    for (found->seen = 1; found->seen <= 2; found->seen++) {
        if (trm_pattern_scalar(found->select->inputs[3 - found->seen], &value) && value <= UNSEEN) {
            trm_tensor *scores = found->select->inputs[found->seen];
            return trm_analysis_same_dims(analysis, scores, tensor) && match_scores(analysis, scores, found);
        }
    }
    return false;
}

/* The input of softmax: scores with their masks. */
static bool match_masked(const trm_analysis *analysis, trm_tensor *tensor, attention *found)
{
    tensor = behind_cast(analysis, tensor);
    const trm_layer *add = trm_pattern_elementwise(analysis, tensor, TRM_ELEMENTWISE_ADD);
    found->mask = NULL;
    if (add == NULL) {
        return match_chosen(analysis, tensor, found);
    }
    for (int32_t i = 0; i < 2; i++) {
        trm_tensor *scores = behind_cast(analysis, add->inputs[i]);
        if (trm_analysis_same_dims(analysis, scores, tensor) && match_chosen(analysis, scores, found)) {
            found->mask = add->inputs[1 - i];
            return is_short_float(found->mask->dtype);
        }
    }
    return false;
}

static bool same_axis(const trm_analysis *analysis, const trm_tensor *a, int32_t i, const trm_tensor *b, int32_t k)
{
    return a->dims.d[i] == b->dims.d[k] &&
           (a->dims.d[i] != -1 || analysis->dim_class[a->index][i] == analysis->dim_class[b->index][k]);
}

/* Batch and heads are the same for all three; k^T still has its axes turned. */
static bool dims_fit(const trm_analysis *analysis, const attention *found)
{
    const trm_tensor *q = found->q, *k = found->k, *v = found->v;
    bool fit = v->dims.n == 4 && q->dims.d[3] > 0 && q->dims.d[3] <= MOST_WIDTH && v->dims.d[3] > 0 &&
               v->dims.d[3] <= MOST_WIDTH;
    for (int32_t i = 0; fit && i < 2; i++) {
        fit = same_axis(analysis, q, i, k, i) && same_axis(analysis, q, i, v, i);
    }
    return fit && is_short_float(q->dtype) && k->dtype == q->dtype && v->dtype == q->dtype;
}

/* The mask that a choice of scores is: itself, its opposite, or in the added mask. */
static void take_choice(trm_analysis *analysis, attention *found)
{
    trm_layer *select = found->select;
    trm_tensor *condition = select->inputs[0], *made = select->outputs[0];
    if (found->mask != NULL && found->mask->dtype == made->dtype) { /* chooses between added and unseen */
        select->inputs[found->seen] = found->mask;
    } else if (found->seen == 1) {
        found->mask = condition;
        return;
    } else {
        trm_layer_desc desc = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_NOT}};
        trm_pattern_rewrite(analysis, select, &desc, 1, &condition);
        made->dtype = TRM_BOOL;
    }
    const trm_dims *dims[3] = {NULL};
    trm_dtype types[3] = {TRM_DTYPE_NONE};
    for (int32_t i = 0; i < select->n_inputs; i++) {
        dims[i] = &select->inputs[i]->dims;
        types[i] = select->inputs[i]->dtype;
    }
    trm_status status =
        trm_infer_layer(&select->desc, select->n_inputs, dims, types, NULL, 1, &made->dims, &made->dtype);
    assert(status == TRM_OK); /* what is masked broadcasts with the scores, so with one another */
    (void)status;
    analysis->touched[select->index] = true;
    found->mask = made;
}

/* k^T turned back: the layer that made it puts its last two axes in the other order. */
static void turn_back(trm_analysis *analysis, attention *found)
{
    int32_t *perm = found->turned->desc.transpose.perm, last = perm[3];
    int64_t size = found->k->dims.d[3];
    perm[3] = perm[2];
    perm[2] = last;
    found->k->dims.d[3] = found->k->dims.d[2];
    found->k->dims.d[2] = size;
    analysis->touched[found->turned->index] = true;
}

bool trm_fuse_decomposed_attention(trm_analysis *analysis, trm_layer *layer)
{
    attention found = {.mask = NULL};
    if (layer->desc.kind != TRM_LAYER_MATMUL || !is_plain_product(layer) || layer->desc.matmul.transpose_b) {
        return false;
    }
    const trm_layer *softmax = softmax_of(analysis, layer->inputs[0]);
    found.v = layer->inputs[1];
    if (softmax == NULL || !match_masked(analysis, softmax->inputs[0], &found) || !dims_fit(analysis, &found) ||
        (found.select != NULL && found.mask != NULL && found.mask->dtype != found.select->outputs[0]->dtype)) {
        return false;
    }
    if (found.select != NULL) {
        take_choice(analysis, &found);
    }
    if (found.turned != NULL) {
        turn_back(analysis, &found);
    }
    trm_layer_desc desc = {
        .kind = TRM_LAYER_ATTENTION,
        .attention = {.form = TRM_ATTENTION_PADDED_BHND, .scale = (float)found.scale, .n_ranks = 1},
    };
    trm_tensor *inputs[TRM_ATTENTION_INPUT_COUNT] = {found.q, found.k, found.v};
    inputs[TRM_ATTENTION_MASK] = found.mask;
    trm_pattern_rewrite(analysis, layer, &desc, found.mask == NULL ? 3 : TRM_ATTENTION_INPUT_COUNT, inputs);
    return true;
}
