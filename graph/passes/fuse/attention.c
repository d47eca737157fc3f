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

#include "graph/shape_elements.h"

#define MOST_WIDTH 512  /* of heads, that every backend's kernels take */
#define UNSEEN     -1e4 /* and less: a score that makes a weight 0 */

typedef struct attention {
    trm_tensor *q, *k, *v, *mask;
    double scale;
    trm_layer *turned; /* makes k^T and shall make k; NULL: k is what the product reads */
    trm_layer *split;  /* turned was made with batch and heads as one axis, which this layer splits; or NULL */
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

/* The input of a cast between float types inside a pattern, or the tensor itself. */
static trm_tensor *behind_cast(const trm_analysis *analysis, trm_tensor *tensor)
{
    const trm_layer *cast = trm_analysis_private_producer(analysis, tensor, TRM_LAYER_CAST);
    bool fits = cast != NULL && is_short_float(tensor->dtype) && is_short_float(cast->inputs[0]->dtype);
    return fits ? cast->inputs[0] : tensor;
}

/* The softmax over keys whose result, inside a pattern, is `weights`, with NaN made 0 or not. */
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

static bool same_axis(const trm_analysis *analysis, const trm_tensor *a, int32_t i, const trm_tensor *b, int32_t k)
{
    return a->dims.d[i] == b->dims.d[k] &&
           (a->dims.d[i] != -1 || analysis->dim_class[a->index][i] == analysis->dim_class[b->index][k]);
}

/* Whether axis `axis` of what a reshape makes has the size of axis k of x in every run. */
static bool reshaped_axis_is(const trm_analysis *analysis, const trm_layer *reshape, int32_t axis, const trm_tensor *x,
                             int32_t k)
{
    trm_shape_element elements[TRM_MAX_SHAPE_ELEMENTS];
    if (same_axis(analysis, reshape->outputs[0], axis, x, k)) {
        return true;
    }
    bool asked = reshape->n_inputs > 1 && trm_shape_elements(reshape->inputs[1], elements) > axis;
    return asked && !elements[axis].known && elements[axis].of != NULL &&
           same_axis(analysis, elements[axis].of, elements[axis].axis, x, k);
}

/* Where batch and heads were one axis while k was turned: either k before they became one, [B, H, M, D], or the turning
 * and splitting layers, which can make k as well. */
static bool match_split(const trm_analysis *analysis, attention *found)
{
    trm_layer *split = trm_analysis_private_producer(analysis, found->k, TRM_LAYER_RESHAPE);
    trm_layer *turned =
        split == NULL ? NULL : trm_analysis_private_producer(analysis, split->inputs[0], TRM_LAYER_TRANSPOSE);
    const trm_dims *k = &found->k->dims;
    if (turned == NULL || k->n != 4 || split->inputs[0]->dims.n != 3 || k->d[2] < 1 ||
        !same_axis(analysis, split->inputs[0], 1, found->k, 2)) {
        return false;
    }
    const int32_t *perm = turned->desc.transpose.perm;
    const trm_layer *merge = trm_analysis_private_producer(analysis, turned->inputs[0], TRM_LAYER_RESHAPE);
    if (merge != NULL && merge->inputs[0]->dims.n == 4 && perm[0] == 0 && perm[1] == 2 &&
        same_axis(analysis, merge->inputs[0], 3, found->k, 2) &&
        reshaped_axis_is(analysis, merge, 2, merge->inputs[0], 3) &&
        reshaped_axis_is(analysis, merge, 1, merge->inputs[0], 2)) {
        found->k = merge->inputs[0];
        return true;
    }
    if (split->n_inputs > 1 || !reshaped_axis_is(analysis, split, 3, split->inputs[0], 2)) {
        return false;
    }
    found->turned = turned;
    found->split = split;
    return true;
}

/* scale * q k^T */
static bool match_scores(const trm_analysis *analysis, trm_tensor *tensor, attention *found)
{
    found->scale = 1;
    found->turned = found->split = NULL;
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
        if (found->turned == NULL && !match_split(analysis, found)) {
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

static void swap_last(trm_dims *dims)
{
    int64_t last = dims->d[dims->n - 1];
    dims->d[dims->n - 1] = dims->d[dims->n - 2];
    dims->d[dims->n - 2] = last;
}

/* k^T turned back: the layer that made it puts its last two axes in the other order. */
static void turn_back(trm_analysis *analysis, attention *found)
{
    int32_t *perm = found->turned->desc.transpose.perm, n = found->turned->outputs[0]->dims.n, last = perm[n - 1];
    perm[n - 1] = perm[n - 2];
    perm[n - 2] = last;
    swap_last(&found->turned->outputs[0]->dims);
    analysis->touched[found->turned->index] = true;
    if (found->split != NULL) {
        swap_last(&found->split->outputs[0]->dims);
        swap_last(&found->split->desc.reshape.dims);
        found->split->desc.reshape.dims.d[3] = found->split->outputs[0]->dims.d[3]; /* a copy of a place otherwise */
        analysis->touched[found->split->index] = true;
    }
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
    trm_pattern_rewrite(analysis, layer, &desc, found.mask == NULL ? 3 : TRM_ATTENTION_MASK + 1, inputs);
    return true;
}
