/*
 * The table of axes that follow each other, kind by kind.
 */
#include "graph/axis_links.h"

int32_t trm_broadcast_axis_link(const trm_dims *in, const trm_dims *out, int32_t k)
{
    int32_t axis = k - (out->n - in->n);
    return axis < 0 || (in->d[axis] == 1 && out->d[k] != 1) ? TRM_LINK_WHOLE : axis;
}

/*
 * A reshape is a row of groups: the fewest input axes and output axes with the same number of elements. The first axes
 * of a group longer than 1 follow each other, as blocks of them are blocks of the group. An unknown axis is a group
 * with an unknown axis; that such a pairing is right shows in that all groups after it close.
 */
static int32_t link_reshape(const trm_dims *in, const trm_dims *out, int32_t k)
{
    int32_t i = 0, j = 0, found = TRM_LINK_NEVER;
    while (i < in->n && j < out->n) {
        int32_t lead_in = i, lead_out = j;
        int64_t size_in = in->d[i++], size_out = out->d[j++];
        while (size_in != size_out) {
            bool grow_in = size_out == -1 || (size_in != -1 && size_in < size_out);
            int64_t *size = grow_in ? &size_in : &size_out;
            if (grow_in ? i == in->n : j == out->n) {
                return TRM_LINK_NEVER;
            }
            int64_t next = grow_in ? in->d[i++] : out->d[j++];
            if (*size != 1 && (next <= 0 || size_in == -1 || size_out == -1)) {
                return TRM_LINK_NEVER;
            }
            *size *= next;
        }
        while (lead_in < i - 1 && in->d[lead_in] == 1) {
            lead_in++;
        }
        while (lead_out < j - 1 && out->d[lead_out] == 1) {
            lead_out++;
        }
        found = lead_out == k ? lead_in : found;
    }
    for (; i < in->n; i++) {
        found = in->d[i] == 1 ? found : TRM_LINK_NEVER;
    }
    for (; j < out->n; j++) {
        found = out->d[j] == 1 ? found : TRM_LINK_NEVER;
    }
    return found;
}

static int32_t link_matmul(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_matmul_params *matmul = &layer->desc.matmul;
    const trm_dims *in = &layer->inputs[i]->dims, *out = &layer->outputs[0]->dims;
    if (k == out->n - 1) {
        return i == 0 ? TRM_LINK_WHOLE : i == 1 ? in->n - (matmul->transpose_b ? 2 : 1) : in->n - 1;
    }
    if (k == out->n - 2) {
        return i == 0 ? in->n - (matmul->transpose_a ? 1 : 2) : TRM_LINK_WHOLE;
    }
    return i == 2 && in->n == 1 ? TRM_LINK_WHOLE : trm_broadcast_axis_link(in, out, k);
}

static int32_t link_gather(const trm_layer *layer, int32_t k, int32_t i)
{
    int32_t axis = layer->desc.gather.axis, n = layer->inputs[1]->dims.n;
    if (k >= axis && k < axis + n) {
        return i == 0 ? TRM_LINK_WHOLE : k - axis;
    }
    return i == 1 ? TRM_LINK_WHOLE : k < axis ? k : k - n + 1;
}

static int32_t link_rope(int32_t k, int32_t i)
{
    enum { ROPE_X = 0, ROPE_FREQUENCIES = 2 };
    switch (k) {
    case 0:
        return i == ROPE_FREQUENCIES ? TRM_LINK_WHOLE : 0;
    case 1:
        return i == ROPE_X ? 1 : TRM_LINK_WHOLE;
    default:
        return TRM_LINK_NEVER;
    }
}

/* Sequences of a padded batch are independent. Heads are dealt with apart: query and kv heads may be cut differently.
 */
static int32_t link_attention(const trm_layer *layer, int32_t k, int32_t i)
{
    if (layer->desc.attention.form == TRM_ATTENTION_PACKED_NHD || k != 0) {
        return TRM_LINK_NEVER;
    }
    return i == TRM_ATTENTION_MASK ? trm_broadcast_axis_link(&layer->inputs[i]->dims, &layer->outputs[0]->dims, 0) : 0;
}

/* Rows of x; those of the weight are dealt with apart, as its scales may have fewer. */
static int32_t link_dequant_matmul(const trm_layer *layer, int32_t k, int32_t i)
{
    return k == layer->outputs[0]->dims.n - 1 ? TRM_LINK_NEVER : i == TRM_DEQUANT_MATMUL_X ? k : TRM_LINK_WHOLE;
}

/* Axes that a pad leaves alone. What pads that are an input hold is known if it is constant. */
static bool is_padded(const trm_layer *layer, int32_t axis)
{
    const trm_pad_params *pad = &layer->desc.pad;
    if (layer->n_inputs > 1 && layer->inputs[1] != NULL) {
        const int64_t *pads = layer->inputs[1]->value;
        return pads == NULL || pads[axis] != 0 || pads[layer->inputs[0]->dims.n + axis] != 0;
    }
    return pad->before[axis] != 0 || pad->after[axis] != 0;
}

/* Input 0 in its axis k where it is not `axis`, other inputs whole. */
static int32_t all_but(int32_t k, int32_t i, int32_t axis)
{
    return k == axis ? TRM_LINK_NEVER : i == 0 ? k : TRM_LINK_WHOLE;
}

static int32_t gather_nd(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_dims *indices = &layer->inputs[1]->dims;
    int32_t batch = layer->desc.gather_nd.batch_dims, rows = indices->n - 1;
    if (k < batch) {
        return k;
    }
    if (k < rows) {
        return i == 1 ? k : TRM_LINK_WHOLE;
    }
    int64_t depth = indices->d[rows];
    return depth < 0 ? TRM_LINK_NEVER : i == 0 ? batch + (int32_t)depth + k - rows : TRM_LINK_WHOLE;
}

static int32_t scatter(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_dims *indices = &layer->inputs[1]->dims;
    if (layer->desc.scatter.form == TRM_SCATTER_ELEMENTS) {
        return k == layer->desc.scatter.axis ? TRM_LINK_NEVER : k;
    }
    int64_t depth = indices->d[indices->n - 1];
    if (depth < 0 || k < depth) {
        return TRM_LINK_NEVER;
    }
    return i == 0 ? k : i == 1 ? TRM_LINK_WHOLE : indices->n - 1 + k - (int32_t)depth;
}

static int32_t one_hot(const trm_layer *layer, int32_t k, int32_t i)
{
    int32_t n = layer->outputs[0]->dims.n, axis = layer->desc.one_hot.axis;
    axis = axis < 0 ? axis + n : axis;
    return k == axis ? TRM_LINK_NEVER : i == 0 ? (k < axis ? k : k - 1) : TRM_LINK_WHOLE;
}

static int32_t reverse_sequence(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_reverse_sequence_params *p = &layer->desc.reverse_sequence;
    return k == p->time_axis ? TRM_LINK_NEVER : i == 0 ? k : k == p->batch_axis ? 0 : TRM_LINK_WHOLE;
}

/* (x [N, C, ..], w, bias [M], residual): batch, and the output's channels. Those of several groups are dealt with
 * apart. */
static int32_t convolution(const trm_layer *layer, int32_t k, int32_t i)
{
    enum { X, W, BIAS, RESIDUAL };
    bool transposed = layer->desc.kind == TRM_LAYER_DECONVOLUTION; /* its fourth input is a value input */
    const int32_t channels = layer->desc.convolution.channels_last ? layer->outputs[0]->dims.n - 1 : 1;
    if (k == 0) {
        return i == X || (i == RESIDUAL && !transposed) ? 0 : TRM_LINK_WHOLE;
    }
    if (k != channels || layer->desc.convolution.groups > 1) {
        return TRM_LINK_NEVER;
    }
    return i == W ? (transposed ? 1 : 0) : i == BIAS ? 0 : i == RESIDUAL && !transposed ? channels : TRM_LINK_WHOLE;
}

/* (x, w, offset, bias, mask) */
static int32_t deformable(const trm_layer *layer, int32_t k, int32_t i)
{
    bool is_weight = i == 1 || i == 3;
    if (k == 0) {
        return is_weight ? TRM_LINK_WHOLE : 0;
    }
    return k > 1 || layer->desc.deformable_convolution.groups > 1 ? TRM_LINK_NEVER : is_weight ? 0 : TRM_LINK_WHOLE;
}

static int32_t quantize(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_quantize_params *p = &layer->desc.quantize;
    const trm_dims *in = &layer->inputs[i]->dims;
    int32_t axis = p->axis < 0 ? p->axis + layer->inputs[0]->dims.n : p->axis;
    if (i == 0) {
        return k;
    }
    if (p->block_size > 0) {
        return k == axis ? TRM_LINK_NEVER : k;
    }
    return in->n == 1 && in->d[0] != 1 && k == axis ? 0 : TRM_LINK_WHOLE;
}

/* Whether an axis stays as long as it is: of an unknown size that shows in the repeats alone. */
static bool is_tiled(const trm_layer *layer, int32_t axis)
{
    const trm_dims *in = &layer->inputs[0]->dims, *out = &layer->outputs[0]->dims;
    const trm_tensor *repeats = layer->n_inputs > 1 ? layer->inputs[1] : NULL;
    const int64_t *values = repeats != NULL && repeats->dtype == TRM_I64 ? repeats->value : NULL;
    return in->d[axis] >= 0 ? in->d[axis] != out->d[axis] : values == NULL || values[axis] != 1;
}

int32_t trm_layer_axis_link(const trm_layer *layer, int32_t k, int32_t i)
{
    const trm_layer_desc *desc = &layer->desc;
    const trm_dims *in = &layer->inputs[i]->dims, *out = &layer->outputs[0]->dims;
    bool is_last = k == out->n - 1;
    switch (desc->kind) {
    case TRM_LAYER_CAST:
    case TRM_LAYER_UNARY:
        return k;
    case TRM_LAYER_GLU:
        return is_last && layer->n_inputs == 1 ? TRM_LINK_NEVER : k;
    case TRM_LAYER_ELEMENTWISE:
    case TRM_LAYER_SELECT:
        return trm_broadcast_axis_link(in, out, k);
    case TRM_LAYER_NORM:
        return is_last ? TRM_LINK_NEVER : i < (desc->norm.residual ? 2 : 1) ? k : TRM_LINK_WHOLE;
    case TRM_LAYER_SOFTMAX:
        return k == desc->softmax.axis ? TRM_LINK_NEVER : k;
    case TRM_LAYER_SLICE:
        return k == desc->slice.axis ? TRM_LINK_NEVER : i == 0 ? k : TRM_LINK_WHOLE;
    case TRM_LAYER_CONCAT:
        return k == desc->concat.axis ? TRM_LINK_NEVER : k;
    case TRM_LAYER_REDUCE:
        if (desc->reduce.keep_dims) {
            return k == desc->reduce.axis ? TRM_LINK_NEVER : k;
        }
        return k < desc->reduce.axis ? k : k + 1;
    case TRM_LAYER_TRANSPOSE:
        return desc->transpose.perm[k];
    case TRM_LAYER_RESHAPE: /* a shape that is an input is that of the whole */
        return layer->n_inputs > 1 ? TRM_LINK_NEVER : link_reshape(in, out, k);
    case TRM_LAYER_GATHER:
        return link_gather(layer, k, i);
    case TRM_LAYER_EMBEDDING:
        return (k == 0) == (i == 1) ? k : TRM_LINK_WHOLE;
    case TRM_LAYER_MATMUL:
        return link_matmul(layer, k, i);
    case TRM_LAYER_DEQUANT_MATMUL:
        return link_dequant_matmul(layer, k, i);
    case TRM_LAYER_ROPE:
        return link_rope(k, i);
    case TRM_LAYER_ATTENTION:
        return link_attention(layer, k, i);
    case TRM_LAYER_ROTATE:
        return k == out->n - 1 ? TRM_LINK_NEVER : trm_broadcast_axis_link(in, out, k);
    case TRM_LAYER_EXPAND: /* a shape that is an input is that of the whole */
        return layer->n_inputs > 1 || i > 0 ? TRM_LINK_NEVER : trm_broadcast_axis_link(in, out, k);
    case TRM_LAYER_TILE:
        return i == 1 ? TRM_LINK_WHOLE : is_tiled(layer, k) ? TRM_LINK_NEVER : k;
    case TRM_LAYER_PAD:
        return i > 0 ? TRM_LINK_WHOLE : is_padded(layer, k) ? TRM_LINK_NEVER : k;
    case TRM_LAYER_GATHER_ELEMENTS:
        return k == desc->gather_elements.axis ? TRM_LINK_NEVER : k;
    case TRM_LAYER_GATHER_ND:
        return gather_nd(layer, k, i);
    case TRM_LAYER_SCATTER:
        return scatter(layer, k, i);
    case TRM_LAYER_ONE_HOT:
        return one_hot(layer, k, i);
    case TRM_LAYER_REVERSE_SEQUENCE:
        return reverse_sequence(layer, k, i);
    case TRM_LAYER_TOPK:
        return all_but(k, i, desc->topk.axis < 0 ? desc->topk.axis + out->n : desc->topk.axis);
    case TRM_LAYER_CUMULATIVE:
        return all_but(k, i, desc->cumulative.axis < 0 ? desc->cumulative.axis + out->n : desc->cumulative.axis);
    case TRM_LAYER_ARG_REDUCE: {
        int32_t axis = desc->arg_reduce.axis < 0 ? desc->arg_reduce.axis + in->n : desc->arg_reduce.axis;
        return !desc->arg_reduce.keep_dims ? (k < axis ? k : k + 1) : k == axis ? TRM_LINK_NEVER : k;
    }
    case TRM_LAYER_CONVOLUTION:
    case TRM_LAYER_DECONVOLUTION:
        return convolution(layer, k, i);
    case TRM_LAYER_DEFORMABLE_CONVOLUTION:
        return deformable(layer, k, i);
    case TRM_LAYER_POOL: /* positions are those in the whole tensor */
        if (desc->pool.channels_last) {
            return k > 0 && k < in->n - 1 ? TRM_LINK_NEVER : k;
        }
        return k > 1 || desc->pool.indices ? TRM_LINK_NEVER : k;
    case TRM_LAYER_RESIZE:
        return (desc->resize.axes >> k & 1) != 0 ? TRM_LINK_NEVER : i == 0 ? k : TRM_LINK_WHOLE;
    case TRM_LAYER_GRID_SAMPLE:
        return k == 0 ? 0 : k == 1 ? (i == 0 ? 1 : TRM_LINK_WHOLE) : i == 0 ? TRM_LINK_WHOLE : k - 1;
    case TRM_LAYER_ROI_POOL:
        return k == 0 ? (i == 0 ? TRM_LINK_WHOLE : 0) : k == 1 ? (i == 0 ? 1 : TRM_LINK_WHOLE) : TRM_LINK_NEVER;
    case TRM_LAYER_COL2IM:
        return k == 0 ? 0 : TRM_LINK_NEVER;
    case TRM_LAYER_GROUP_NORM: /* a channel by itself; groups of them are dealt with apart */
        return k == 0                                   ? (i == 0 ? 0 : TRM_LINK_WHOLE)
               : k == 1 && desc->group_norm.groups == 0 ? (i == 0 ? 1 : 0)
                                                        : TRM_LINK_NEVER;
    case TRM_LAYER_LRN:
        return k == 1 ? TRM_LINK_NEVER : k;
    case TRM_LAYER_QUANTIZE:
    case TRM_LAYER_DEQUANTIZE:
        return quantize(layer, k, i);
    case TRM_LAYER_DETERMINANT:
        return k;
    case TRM_LAYER_FOURIER: {
        int32_t axis = desc->fourier.axis < 0 ? desc->fourier.axis + in->n : desc->fourier.axis;
        return k == axis || k == out->n - 1 ? TRM_LINK_NEVER : i == 0 ? k : TRM_LINK_WHOLE;
    }
    default:
        return TRM_LINK_NEVER;
    }
}
