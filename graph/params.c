/*
 * Rows of the parameters of layer kinds.
 */
#include "graph/params.h"

#include <string.h>

#include "base/error.h"
#include "graph/network.h"

static const char *const activation_names[] = {TRM_ACTIVATIONS(TRM_ENUM_NAME) NULL};
static const char *const elementwise_names[] = {TRM_ELEMENTWISE_OPS(TRM_ENUM_NAME) NULL};
static const char *const unary_names[] = {TRM_UNARY_OPS(TRM_ENUM_NAME) NULL};
static const char *const cast_round_names[] = {TRM_CAST_ROUNDS(TRM_ENUM_NAME) NULL};
static const char *const norm_names[] = {TRM_NORM_OPS(TRM_ENUM_NAME) NULL};
static const char *const reduce_names[] = {TRM_REDUCE_OPS(TRM_ENUM_NAME) NULL};
static const char *const rope_names[] = {TRM_ROPE_SCALINGS(TRM_ENUM_NAME) NULL};
static const char *const form_names[] = {TRM_ATTENTION_FORMS(TRM_ENUM_NAME) NULL};
static const char *const causal_names[] = {TRM_CAUSALS(TRM_ENUM_NAME) NULL};
static const char *const collective_names[] = {TRM_COLLECTIVE_OPS(TRM_ENUM_NAME) NULL};

static const char *const pad_names[] = {TRM_PAD_MODES(TRM_ENUM_NAME) NULL};
static const char *const scatter_form_names[] = {TRM_SCATTER_FORMS(TRM_ENUM_NAME) NULL};
static const char *const scatter_reduction_names[] = {TRM_SCATTER_REDUCTIONS(TRM_ENUM_NAME) NULL};
static const char *const cumulative_names[] = {TRM_CUMULATIVE_OPS(TRM_ENUM_NAME) NULL};
static const char *const auto_pad_names[] = {TRM_AUTO_PADS(TRM_ENUM_NAME) NULL};
static const char *const pool_names[] = {TRM_POOL_OPS(TRM_ENUM_NAME) NULL};
static const char *const resize_names[] = {TRM_RESIZE_MODES(TRM_ENUM_NAME) NULL};
static const char *const coordinate_names[] = {TRM_RESIZE_COORDINATES(TRM_ENUM_NAME) NULL};
static const char *const nearest_names[] = {TRM_RESIZE_NEARESTS(TRM_ENUM_NAME) NULL};
static const char *const aspect_names[] = {TRM_RESIZE_ASPECTS(TRM_ENUM_NAME) NULL};
static const char *const grid_padding_names[] = {TRM_GRID_PADDINGS(TRM_ENUM_NAME) NULL};
static const char *const roi_names[] = {TRM_ROI_OPS(TRM_ENUM_NAME) NULL};
static const char *const cell_names[] = {TRM_RECURRENT_CELLS(TRM_ENUM_NAME) NULL};
static const char *const direction_names[] = {TRM_RECURRENT_DIRECTIONS(TRM_ENUM_NAME) NULL};
static const char *const gate_names[] = {TRM_RECURRENT_ACTIVATIONS(TRM_ENUM_NAME) NULL};
static const char *const random_names[] = {TRM_RANDOM_OPS(TRM_ENUM_NAME) NULL};

#define AT(member) offsetof(trm_layer_desc, member)

static const trm_field cast_fields[] = {
    {"to", TRM_FIELD_DTYPE, AT(cast.to), true, 0, NULL, 0},
    {"unsaturated", TRM_FIELD_BOOL, AT(cast.unsaturated), false, 0, NULL, 0},
    {"round", TRM_FIELD_ENUM, AT(cast.round), false, 0, cast_round_names, 0},
    {"bits", TRM_FIELD_BOOL, AT(cast.bits), false, 0, NULL, 0},
};
static const trm_field reshape_fields[] = {
    {"dims", TRM_FIELD_DIMS, AT(reshape.dims), true, 0, NULL, 0},
    {"zero_is_zero", TRM_FIELD_BOOL, AT(reshape.zero_is_zero), false, 0, NULL, 0},
};
static const trm_field transpose_fields[] = {{"perm", TRM_FIELD_PERM, AT(transpose.perm), true, 0, NULL, 0}};
static const trm_field slice_fields[] = {
    {"axis", TRM_FIELD_INT32, AT(slice.axis), true, 0, NULL, 0},
    {"start", TRM_FIELD_INT64, AT(slice.start), false, 0, NULL, 0},
    {"end", TRM_FIELD_INT64, AT(slice.end), false, INT64_MAX, NULL, 0},
    {"step", TRM_FIELD_INT64, AT(slice.step), false, 1, NULL, 0},
};
static const trm_field concat_fields[] = {{"axis", TRM_FIELD_INT32, AT(concat.axis), true, 0, NULL, 0}};
static const trm_field gather_fields[] = {{"axis", TRM_FIELD_INT32, AT(gather.axis), true, 0, NULL, 0}};
static const trm_field embedding_fields[] = {
    {"first_row", TRM_FIELD_INT64, AT(embedding.first_row), false, 0, NULL, 0},
};
static const trm_field matmul_fields[] = {
    {"transpose_a", TRM_FIELD_BOOL, AT(matmul.transpose_a), false, 0, NULL, 0},
    {"transpose_b", TRM_FIELD_BOOL, AT(matmul.transpose_b), false, 0, NULL, 0},
    {"activation", TRM_FIELD_ENUM, AT(matmul.activation), false, 0, activation_names, 0},
    {"out", TRM_FIELD_DTYPE, AT(matmul.out), false, 0, NULL, 0},
};
static const trm_field elementwise_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(elementwise.op), true, 0, elementwise_names, 0},
};
static const trm_field unary_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(unary.op), true, 0, unary_names, 0},
    {"activation", TRM_FIELD_ENUM, AT(unary.activation), false, 0, activation_names, 0},
    {"alpha", TRM_FIELD_FLOAT, AT(unary.alpha), false, 0, NULL, 0},
    {"beta", TRM_FIELD_FLOAT, AT(unary.beta), false, 0, NULL, 0},
};
static const trm_field glu_fields[] = {
    {"activation", TRM_FIELD_ENUM, AT(glu.activation), true, 0, activation_names, 0},
};
static const trm_field norm_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(norm.op), true, 0, norm_names, 0},
    {"residual", TRM_FIELD_BOOL, AT(norm.residual), false, 0, NULL, 0},
    {"eps", TRM_FIELD_FLOAT, AT(norm.eps), true, 0, NULL, 0},
    {"weight_offset", TRM_FIELD_FLOAT, AT(norm.weight_offset), false, 0, NULL, 0},
};
static const trm_field norm_matmul_fields[] = {
    {"residual", TRM_FIELD_BOOL, AT(norm_matmul.residual), false, 0, NULL, 0},
    {"gated", TRM_FIELD_BOOL, AT(norm_matmul.gated), false, 0, NULL, 0},
    {"eps", TRM_FIELD_FLOAT, AT(norm_matmul.eps), true, 0, NULL, 0},
    {"weight_offset", TRM_FIELD_FLOAT, AT(norm_matmul.weight_offset), false, 0, NULL, 0},
    {"activation", TRM_FIELD_ENUM, AT(norm_matmul.activation), false, 0, activation_names, 0},
    {"out", TRM_FIELD_DTYPE, AT(norm_matmul.out), false, 0, NULL, 0},
};
static const trm_field dequant_matmul_fields[] = {
    {"block_n", TRM_FIELD_INT32, AT(dequant_matmul.block_n), true, 0, NULL, 0},
    {"block_k", TRM_FIELD_INT32, AT(dequant_matmul.block_k), false, 0, NULL, 0},
    {"out", TRM_FIELD_DTYPE, AT(dequant_matmul.out), false, 0, NULL, 0},
};
static const trm_field softmax_fields[] = {{"axis", TRM_FIELD_INT32, AT(softmax.axis), true, 0, NULL, 0}};
static const trm_field reduce_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(reduce.op), true, 0, reduce_names, 0},
    {"axis", TRM_FIELD_INT32, AT(reduce.axis), true, 0, NULL, 0},
    {"keep_dims", TRM_FIELD_BOOL, AT(reduce.keep_dims), false, 0, NULL, 0},
};
static const trm_field rope_fields[] = {
    {"scaling", TRM_FIELD_ENUM, AT(rope.scaling), false, 0, rope_names, 0},
    {"rotary_dim", TRM_FIELD_INT32, AT(rope.rotary_dim), true, 0, NULL, 0},
    {"interleaved", TRM_FIELD_BOOL, AT(rope.interleaved), false, 0, NULL, 0},
    {"magnitude", TRM_FIELD_FLOAT, AT(rope.magnitude), false, 1, NULL, 0},
    {"base", TRM_FIELD_FLOAT, AT(rope.base), false, 0, NULL, 0},
    {"factor", TRM_FIELD_FLOAT, AT(rope.factor), false, 0, NULL, 0},
    {"original_length", TRM_FIELD_INT64, AT(rope.original_length), false, 0, NULL, 0},
};
static const trm_field attention_fields[] = {
    {"form", TRM_FIELD_ENUM, AT(attention.form), true, 0, form_names, 0},
    {"causal", TRM_FIELD_ENUM, AT(attention.causal), false, 0, causal_names, 0},
    {"window", TRM_FIELD_INT32, AT(attention.window), false, 0, NULL, 0},
    {"scale", TRM_FIELD_FLOAT, AT(attention.scale), false, 0, NULL, 0},
    {"softcap", TRM_FIELD_FLOAT, AT(attention.softcap), false, 0, NULL, 0},
    {"n_ranks", TRM_FIELD_INT32, AT(attention.n_ranks), false, 0, NULL, 0},
    {"k_scale", TRM_FIELD_FLOAT, AT(attention.k_scale), false, 0, NULL, 0},
    {"v_scale", TRM_FIELD_FLOAT, AT(attention.v_scale), false, 0, NULL, 0},
};
static const trm_field collective_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(collective.op), true, 0, collective_names, 0},
    {"reduce", TRM_FIELD_ENUM, AT(collective.reduce), false, 0, reduce_names, 0},
    {"axis", TRM_FIELD_INT32, AT(collective.axis), false, 0, NULL, 0},
    {"root", TRM_FIELD_INT32, AT(collective.root), false, 0, NULL, 0},
    {"n_ranks", TRM_FIELD_INT32, AT(collective.n_ranks), true, 0, NULL, 0},
    {"n_groups", TRM_FIELD_INT32, AT(collective.n_groups), false, 0, NULL, 0},
    {"group_size", TRM_FIELD_INT32, AT(collective.group_size), false, 0, NULL, 0},
    {"groups", TRM_FIELD_GROUPS, AT(collective.groups), false, 0, NULL, 0},
    {"dtype", TRM_FIELD_DTYPE, AT(collective.dtype), false, 0, NULL, 0},
    {"dims", TRM_FIELD_DIMS, AT(collective.dims), false, 0, NULL, 0},
};

static const trm_field shape_fields[] = {
    {"start", TRM_FIELD_INT32, AT(shape.start), false, 0, NULL, 0},
    {"end", TRM_FIELD_INT32, AT(shape.end), false, INT32_MAX, NULL, 0},
};
static const trm_field expand_fields[] = {
    {"dims", TRM_FIELD_DIMS, AT(expand.dims), false, 0, NULL, 0},
};
static const trm_field pad_fields[] = {
    {"mode", TRM_FIELD_ENUM, AT(pad.mode), false, 0, pad_names, 0},
    {"before", TRM_FIELD_INT32, AT(pad.before), false, 0, NULL, TRM_MAX_DIMS},
    {"after", TRM_FIELD_INT32, AT(pad.after), false, 0, NULL, TRM_MAX_DIMS},
};
static const trm_field gather_elements_fields[] = {
    {"axis", TRM_FIELD_INT32, AT(gather_elements.axis), true, 0, NULL, 0},
};
static const trm_field gather_nd_fields[] = {
    {"batch_dims", TRM_FIELD_INT32, AT(gather_nd.batch_dims), false, 0, NULL, 0},
};
static const trm_field scatter_fields[] = {
    {"form", TRM_FIELD_ENUM, AT(scatter.form), true, 0, scatter_form_names, 0},
    {"reduction", TRM_FIELD_ENUM, AT(scatter.reduction), false, 0, scatter_reduction_names, 0},
    {"axis", TRM_FIELD_INT32, AT(scatter.axis), false, 0, NULL, 0},
};
static const trm_field one_hot_fields[] = {
    {"axis", TRM_FIELD_INT32, AT(one_hot.axis), true, 0, NULL, 0},
};
static const trm_field reverse_sequence_fields[] = {
    {"batch_axis", TRM_FIELD_INT32, AT(reverse_sequence.batch_axis), true, 0, NULL, 0},
    {"time_axis", TRM_FIELD_INT32, AT(reverse_sequence.time_axis), true, 0, NULL, 0},
};
static const trm_field topk_fields[] = {
    {"axis", TRM_FIELD_INT32, AT(topk.axis), true, 0, NULL, 0},
    {"smallest", TRM_FIELD_BOOL, AT(topk.smallest), false, 0, NULL, 0},
    {"sorted", TRM_FIELD_BOOL, AT(topk.sorted), false, 0, NULL, 0},
};
static const trm_field arg_reduce_fields[] = {
    {"axis", TRM_FIELD_INT32, AT(arg_reduce.axis), true, 0, NULL, 0},
    {"smallest", TRM_FIELD_BOOL, AT(arg_reduce.smallest), false, 0, NULL, 0},
    {"last", TRM_FIELD_BOOL, AT(arg_reduce.last), false, 0, NULL, 0},
    {"keep_dims", TRM_FIELD_BOOL, AT(arg_reduce.keep_dims), false, 0, NULL, 0},
};
static const trm_field cumulative_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(cumulative.op), true, 0, cumulative_names, 0},
    {"axis", TRM_FIELD_INT32, AT(cumulative.axis), true, 0, NULL, 0},
    {"exclusive", TRM_FIELD_BOOL, AT(cumulative.exclusive), false, 0, NULL, 0},
    {"reverse", TRM_FIELD_BOOL, AT(cumulative.reverse), false, 0, NULL, 0},
};
static const trm_field unique_fields[] = {
    {"flatten", TRM_FIELD_BOOL, AT(unique.flatten), false, 0, NULL, 0},
    {"sorted", TRM_FIELD_BOOL, AT(unique.sorted), false, 0, NULL, 0},
    {"axis", TRM_FIELD_INT32, AT(unique.axis), false, 0, NULL, 0},
};
static const trm_field non_max_suppression_fields[] = {
    {"center_point", TRM_FIELD_BOOL, AT(non_max_suppression.center_point), false, 0, NULL, 0},
};
static const trm_field convolution_fields[] = {
    {"groups", TRM_FIELD_INT32, AT(convolution.groups), false, 1, NULL, 0},
    {"stride", TRM_FIELD_INT32, AT(convolution.stride), false, 1, NULL, TRM_MAX_SPATIAL},
    {"dilation", TRM_FIELD_INT32, AT(convolution.dilation), false, 1, NULL, TRM_MAX_SPATIAL},
    {"before", TRM_FIELD_INT32, AT(convolution.before), false, 0, NULL, TRM_MAX_SPATIAL},
    {"after", TRM_FIELD_INT32, AT(convolution.after), false, 0, NULL, TRM_MAX_SPATIAL},
    {"output_padding", TRM_FIELD_INT32, AT(convolution.output_padding), false, 0, NULL, TRM_MAX_SPATIAL},
    {"auto_pad", TRM_FIELD_ENUM, AT(convolution.auto_pad), false, 0, auto_pad_names, 0},
    {"activation", TRM_FIELD_ENUM, AT(convolution.activation), false, 0, activation_names, 0},
    {"channels_last", TRM_FIELD_BOOL, AT(convolution.channels_last), false, 0, NULL, 0},
    {"whole_numbers", TRM_FIELD_BOOL, AT(convolution.whole_numbers), false, 0, NULL, 0},
};
static const trm_field deformable_convolution_fields[] = {
    {"groups", TRM_FIELD_INT32, AT(deformable_convolution.groups), false, 1, NULL, 0},
    {"offset_groups", TRM_FIELD_INT32, AT(deformable_convolution.offset_groups), false, 1, NULL, 0},
    {"stride", TRM_FIELD_INT32, AT(deformable_convolution.stride), false, 1, NULL, 2},
    {"dilation", TRM_FIELD_INT32, AT(deformable_convolution.dilation), false, 1, NULL, 2},
    {"before", TRM_FIELD_INT32, AT(deformable_convolution.before), false, 0, NULL, 2},
    {"after", TRM_FIELD_INT32, AT(deformable_convolution.after), false, 0, NULL, 2},
};
static const trm_field pool_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(pool.op), true, 0, pool_names, 0},
    {"kernel", TRM_FIELD_INT32, AT(pool.kernel), true, 1, NULL, TRM_MAX_SPATIAL},
    {"stride", TRM_FIELD_INT32, AT(pool.stride), false, 1, NULL, TRM_MAX_SPATIAL},
    {"dilation", TRM_FIELD_INT32, AT(pool.dilation), false, 1, NULL, TRM_MAX_SPATIAL},
    {"before", TRM_FIELD_INT32, AT(pool.before), false, 0, NULL, TRM_MAX_SPATIAL},
    {"after", TRM_FIELD_INT32, AT(pool.after), false, 0, NULL, TRM_MAX_SPATIAL},
    {"auto_pad", TRM_FIELD_ENUM, AT(pool.auto_pad), false, 0, auto_pad_names, 0},
    {"ceil", TRM_FIELD_BOOL, AT(pool.ceil), false, 0, NULL, 0},
    {"count_padding", TRM_FIELD_BOOL, AT(pool.count_padding), false, 0, NULL, 0},
    {"indices", TRM_FIELD_BOOL, AT(pool.indices), false, 0, NULL, 0},
    {"indices_by_column", TRM_FIELD_BOOL, AT(pool.indices_by_column), false, 0, NULL, 0},
    {"p", TRM_FIELD_FLOAT, AT(pool.p), false, 0, NULL, 0},
    {"channels_last", TRM_FIELD_BOOL, AT(pool.channels_last), false, 0, NULL, 0},
};
static const trm_field resize_fields[] = {
    {"mode", TRM_FIELD_ENUM, AT(resize.mode), true, 0, resize_names, 0},
    {"coordinates", TRM_FIELD_ENUM, AT(resize.coordinates), true, 0, coordinate_names, 0},
    {"nearest", TRM_FIELD_ENUM, AT(resize.nearest), false, 0, nearest_names, 0},
    {"aspect", TRM_FIELD_ENUM, AT(resize.aspect), false, 0, aspect_names, 0},
    {"axes", TRM_FIELD_INT32, AT(resize.axes), true, 0, NULL, 0},
    {"antialias", TRM_FIELD_BOOL, AT(resize.antialias), false, 0, NULL, 0},
    {"exclude_outside", TRM_FIELD_BOOL, AT(resize.exclude_outside), false, 0, NULL, 0},
    {"cubic_a", TRM_FIELD_FLOAT, AT(resize.cubic_a), false, 0, NULL, 0},
    {"extrapolation", TRM_FIELD_FLOAT, AT(resize.extrapolation), false, 0, NULL, 0},
};
static const trm_field grid_sample_fields[] = {
    {"mode", TRM_FIELD_ENUM, AT(grid_sample.mode), true, 0, resize_names, 0},
    {"padding", TRM_FIELD_ENUM, AT(grid_sample.padding), true, 0, grid_padding_names, 0},
    {"align_corners", TRM_FIELD_BOOL, AT(grid_sample.align_corners), false, 0, NULL, 0},
};
static const trm_field roi_pool_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(roi_pool.op), true, 0, roi_names, 0},
    {"height", TRM_FIELD_INT32, AT(roi_pool.height), true, 0, NULL, 0},
    {"width", TRM_FIELD_INT32, AT(roi_pool.width), true, 0, NULL, 0},
    {"sampling_ratio", TRM_FIELD_INT32, AT(roi_pool.sampling_ratio), false, 0, NULL, 0},
    {"spatial_scale", TRM_FIELD_FLOAT, AT(roi_pool.spatial_scale), true, 0, NULL, 0},
    {"half_pixel", TRM_FIELD_BOOL, AT(roi_pool.half_pixel), false, 0, NULL, 0},
};
static const trm_field col2im_fields[] = {
    {"image", TRM_FIELD_DIMS, AT(col2im.image), true, 0, NULL, 0},
    {"kernel", TRM_FIELD_INT32, AT(col2im.kernel), true, 1, NULL, TRM_MAX_SPATIAL},
    {"stride", TRM_FIELD_INT32, AT(col2im.stride), false, 1, NULL, TRM_MAX_SPATIAL},
    {"dilation", TRM_FIELD_INT32, AT(col2im.dilation), false, 1, NULL, TRM_MAX_SPATIAL},
    {"before", TRM_FIELD_INT32, AT(col2im.before), false, 0, NULL, TRM_MAX_SPATIAL},
    {"after", TRM_FIELD_INT32, AT(col2im.after), false, 0, NULL, TRM_MAX_SPATIAL},
};
static const trm_field group_norm_fields[] = {
    {"groups", TRM_FIELD_INT32, AT(group_norm.groups), true, 0, NULL, 0},
    {"eps", TRM_FIELD_FLOAT, AT(group_norm.eps), true, 0, NULL, 0},
    {"activation", TRM_FIELD_ENUM, AT(group_norm.activation), false, 0, activation_names, 0},
};
static const trm_field lrn_fields[] = {
    {"size", TRM_FIELD_INT32, AT(lrn.size), true, 0, NULL, 0},
    {"alpha", TRM_FIELD_FLOAT, AT(lrn.alpha), true, 0, NULL, 0},
    {"beta", TRM_FIELD_FLOAT, AT(lrn.beta), true, 0, NULL, 0},
    {"bias", TRM_FIELD_FLOAT, AT(lrn.bias), true, 0, NULL, 0},
};
static const trm_field recurrent_fields[] = {
    {"cell", TRM_FIELD_ENUM, AT(recurrent.cell), true, 0, cell_names, 0},
    {"direction", TRM_FIELD_ENUM, AT(recurrent.direction), false, 0, direction_names, 0},
    {"hidden", TRM_FIELD_INT32, AT(recurrent.hidden), true, 0, NULL, 0},
    {"linear_before_reset", TRM_FIELD_BOOL, AT(recurrent.linear_before_reset), false, 0, NULL, 0},
    {"input_forget", TRM_FIELD_BOOL, AT(recurrent.input_forget), false, 0, NULL, 0},
    {"clip", TRM_FIELD_FLOAT, AT(recurrent.clip), false, 0, NULL, 0},
    {"activations", TRM_FIELD_ENUM, AT(recurrent.activations), false, 0, gate_names, 6},
    {"alpha", TRM_FIELD_FLOAT, AT(recurrent.alpha), false, 0, NULL, 6},
    {"beta", TRM_FIELD_FLOAT, AT(recurrent.beta), false, 0, NULL, 6},
};
static const trm_field quantize_fields[] = {
    {"axis", TRM_FIELD_INT32, AT(quantize.axis), true, 0, NULL, 0},
    {"block_size", TRM_FIELD_INT32, AT(quantize.block_size), false, 0, NULL, 0},
    {"to", TRM_FIELD_DTYPE, AT(quantize.to), true, 0, NULL, 0},
    {"unsaturated", TRM_FIELD_BOOL, AT(quantize.unsaturated), false, 0, NULL, 0},
};
static const trm_field fourier_fields[] = {
    {"axis", TRM_FIELD_INT32, AT(fourier.axis), true, 0, NULL, 0},
    {"inverse", TRM_FIELD_BOOL, AT(fourier.inverse), false, 0, NULL, 0},
    {"onesided", TRM_FIELD_BOOL, AT(fourier.onesided), false, 0, NULL, 0},
    {"length", TRM_FIELD_INT64, AT(fourier.length), false, 0, NULL, 0},
};
static const trm_field random_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(random.op), true, 0, random_names, 0},
    {"to", TRM_FIELD_DTYPE, AT(random.to), true, 0, NULL, 0},
    {"a", TRM_FIELD_FLOAT, AT(random.a), false, 0, NULL, 0},
    {"b", TRM_FIELD_FLOAT, AT(random.b), false, 0, NULL, 0},
    {"seed", TRM_FIELD_INT64, AT(random.seed), true, 0, NULL, 0},
    {"samples", TRM_FIELD_INT64, AT(random.samples), false, 0, NULL, 0},
};

static const trm_field all_reduce_norm_fields[] = {
    {"n_ranks", TRM_FIELD_INT32, AT(all_reduce_norm.collective.n_ranks), true, 0, NULL, 0},
    {"n_groups", TRM_FIELD_INT32, AT(all_reduce_norm.collective.n_groups), false, 0, NULL, 0},
    {"group_size", TRM_FIELD_INT32, AT(all_reduce_norm.collective.group_size), false, 0, NULL, 0},
    {"groups", TRM_FIELD_GROUPS, AT(all_reduce_norm.collective.groups), false, 0, NULL, 0},
    {"op", TRM_FIELD_ENUM, AT(all_reduce_norm.norm.op), true, 0, norm_names, 0},
    {"residual", TRM_FIELD_BOOL, AT(all_reduce_norm.norm.residual), false, 0, NULL, 0},
    {"eps", TRM_FIELD_FLOAT, AT(all_reduce_norm.norm.eps), true, 0, NULL, 0},
    {"weight_offset", TRM_FIELD_FLOAT, AT(all_reduce_norm.norm.weight_offset), false, 0, NULL, 0},
};
static const trm_field qkv_attention_fields[] = {
    {"query_heads", TRM_FIELD_INT32, AT(qkv_attention.query_heads), true, 0, NULL, 0},
    {"kv_heads", TRM_FIELD_INT32, AT(qkv_attention.kv_heads), true, 0, NULL, 0},
    {"form", TRM_FIELD_ENUM, AT(qkv_attention.attention.form), false, 0, form_names, 0},
    {"causal", TRM_FIELD_ENUM, AT(qkv_attention.attention.causal), false, 0, causal_names, 0},
    {"window", TRM_FIELD_INT32, AT(qkv_attention.attention.window), false, 0, NULL, 0},
    {"scale", TRM_FIELD_FLOAT, AT(qkv_attention.attention.scale), false, 0, NULL, 0},
    {"softcap", TRM_FIELD_FLOAT, AT(qkv_attention.attention.softcap), false, 0, NULL, 0},
    {"n_ranks", TRM_FIELD_INT32, AT(qkv_attention.attention.n_ranks), false, 0, NULL, 0},
    {"k_scale", TRM_FIELD_FLOAT, AT(qkv_attention.attention.k_scale), false, 0, NULL, 0},
    {"v_scale", TRM_FIELD_FLOAT, AT(qkv_attention.attention.v_scale), false, 0, NULL, 0},
    {"scaling", TRM_FIELD_ENUM, AT(qkv_attention.rope.scaling), false, 0, rope_names, 0},
    {"rotary_dim", TRM_FIELD_INT32, AT(qkv_attention.rope.rotary_dim), true, 0, NULL, 0},
    {"interleaved", TRM_FIELD_BOOL, AT(qkv_attention.rope.interleaved), false, 0, NULL, 0},
    {"magnitude", TRM_FIELD_FLOAT, AT(qkv_attention.rope.magnitude), false, 1, NULL, 0},
    {"base", TRM_FIELD_FLOAT, AT(qkv_attention.rope.base), false, 0, NULL, 0},
    {"factor", TRM_FIELD_FLOAT, AT(qkv_attention.rope.factor), false, 0, NULL, 0},
    {"original_length", TRM_FIELD_INT64, AT(qkv_attention.rope.original_length), false, 0, NULL, 0},
    {"eps", TRM_FIELD_FLOAT, AT(qkv_attention.eps), false, 0, NULL, 0},
    {"weight_offset", TRM_FIELD_FLOAT, AT(qkv_attention.weight_offset), false, 0, NULL, 0},
};

static const trm_field fused_elementwise_fields[] = {
    {"steps", TRM_FIELD_PROGRAM, AT(fused_elementwise), true, 0, NULL, 0},
};

static const trm_field rotate_fields[] = {
    {"rotary_dim", TRM_FIELD_INT32, AT(rotate.rotary_dim), true, 0, NULL, 0},
    {"interleaved", TRM_FIELD_BOOL, AT(rotate.interleaved), false, 0, NULL, 0},
};

static const trm_field if_fields[] = {
    {"negated", TRM_FIELD_BOOL, AT(branch.negated), false, 0, NULL, 0},
};
static const trm_field recurrence_fields[] = {
    {"open", TRM_FIELD_INT32, AT(recurrence.open), false, 0, NULL, 0},
};

#define ROWS(kind, rows) [kind] = {rows, sizeof(rows) / sizeof((rows)[0])}

static const struct {
    const trm_field *fields;
    int32_t n;
} kinds[TRM_LAYER_KIND_COUNT] = {
    ROWS(TRM_LAYER_CAST, cast_fields),
    ROWS(TRM_LAYER_RESHAPE, reshape_fields),
    ROWS(TRM_LAYER_TRANSPOSE, transpose_fields),
    ROWS(TRM_LAYER_SLICE, slice_fields),
    ROWS(TRM_LAYER_CONCAT, concat_fields),
    ROWS(TRM_LAYER_GATHER, gather_fields),
    ROWS(TRM_LAYER_EMBEDDING, embedding_fields),
    ROWS(TRM_LAYER_MATMUL, matmul_fields),
    ROWS(TRM_LAYER_ELEMENTWISE, elementwise_fields),
    ROWS(TRM_LAYER_UNARY, unary_fields),
    ROWS(TRM_LAYER_GLU, glu_fields),
    ROWS(TRM_LAYER_MATMUL_GLU, glu_fields),
    ROWS(TRM_LAYER_NORM_MATMUL, norm_matmul_fields),
    ROWS(TRM_LAYER_DEQUANT_MATMUL, dequant_matmul_fields),
    ROWS(TRM_LAYER_NORM, norm_fields),
    ROWS(TRM_LAYER_SOFTMAX, softmax_fields),
    ROWS(TRM_LAYER_REDUCE, reduce_fields),
    ROWS(TRM_LAYER_ROPE, rope_fields),
    ROWS(TRM_LAYER_ATTENTION, attention_fields),
    ROWS(TRM_LAYER_DIST_COLLECTIVE, collective_fields),
    ROWS(TRM_LAYER_ALL_REDUCE_NORM, all_reduce_norm_fields),
    ROWS(TRM_LAYER_QKV_ATTENTION, qkv_attention_fields),
    ROWS(TRM_LAYER_SHAPE, shape_fields),
    ROWS(TRM_LAYER_EXPAND, expand_fields),
    ROWS(TRM_LAYER_PAD, pad_fields),
    ROWS(TRM_LAYER_GATHER_ELEMENTS, gather_elements_fields),
    ROWS(TRM_LAYER_GATHER_ND, gather_nd_fields),
    ROWS(TRM_LAYER_SCATTER, scatter_fields),
    ROWS(TRM_LAYER_ONE_HOT, one_hot_fields),
    ROWS(TRM_LAYER_REVERSE_SEQUENCE, reverse_sequence_fields),
    ROWS(TRM_LAYER_TOPK, topk_fields),
    ROWS(TRM_LAYER_ARG_REDUCE, arg_reduce_fields),
    ROWS(TRM_LAYER_CUMULATIVE, cumulative_fields),
    ROWS(TRM_LAYER_UNIQUE, unique_fields),
    ROWS(TRM_LAYER_NON_MAX_SUPPRESSION, non_max_suppression_fields),
    ROWS(TRM_LAYER_CONVOLUTION, convolution_fields),
    ROWS(TRM_LAYER_DEFORMABLE_CONVOLUTION, deformable_convolution_fields),
    ROWS(TRM_LAYER_POOL, pool_fields),
    ROWS(TRM_LAYER_RESIZE, resize_fields),
    ROWS(TRM_LAYER_GRID_SAMPLE, grid_sample_fields),
    ROWS(TRM_LAYER_ROI_POOL, roi_pool_fields),
    ROWS(TRM_LAYER_COL2IM, col2im_fields),
    ROWS(TRM_LAYER_GROUP_NORM, group_norm_fields),
    ROWS(TRM_LAYER_LRN, lrn_fields),
    ROWS(TRM_LAYER_RECURRENT, recurrent_fields),
    ROWS(TRM_LAYER_QUANTIZE, quantize_fields),
    ROWS(TRM_LAYER_FOURIER, fourier_fields),
    ROWS(TRM_LAYER_RANDOM, random_fields),
    ROWS(TRM_LAYER_DECONVOLUTION, convolution_fields),
    ROWS(TRM_LAYER_DEQUANTIZE, quantize_fields),
    ROWS(TRM_LAYER_FUSED_ELEMENTWISE, fused_elementwise_fields),
    ROWS(TRM_LAYER_ROTATE, rotate_fields),
    ROWS(TRM_LAYER_IF, if_fields),
    ROWS(TRM_LAYER_RECURRENCE, recurrence_fields),
    ROWS(TRM_LAYER_NEXT, recurrence_fields),
};

const trm_field *trm_layer_fields(trm_layer_kind kind, int32_t *n)
{
    bool known = (unsigned)kind < TRM_LAYER_KIND_COUNT;
    *n = known ? kinds[kind].n : 0;
    return known ? kinds[kind].fields : NULL;
}

/* Whether the value of an ENUM field, or each of them, has a name. */
static bool enum_is_known(const trm_field *field, const int32_t *values)
{
    int32_t names = 0;
    while (field->values[names] != NULL) {
        names++;
    }
    for (int32_t i = 0; i == 0 || i < field->count; i++) {
        if (values[i] < 0 || values[i] >= names) {
            return false;
        }
    }
    return true;
}

trm_status trm_layer_check_fields(const trm_layer_desc *desc)
{
    int32_t n;
    const trm_field *fields = trm_layer_fields(desc->kind, &n);
    for (int32_t i = 0; i < n; i++) {
        const void *at = (const unsigned char *)desc + fields[i].offset;
        const trm_dims *dims = at;
        if ((fields[i].type == TRM_FIELD_ENUM && !enum_is_known(&fields[i], at)) ||
            (fields[i].type == TRM_FIELD_DIMS && (dims->n < 0 || dims->n > TRM_MAX_DIMS))) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "parameter %s has a value that does not exist", fields[i].name);
        }
    }
    return TRM_OK;
}

/* Bytes of a field that count for equality; 0 for dims, which are compared apart. */
static size_t field_size(const trm_field *field, const trm_layer_desc *desc, int32_t rank)
{
    switch (field->type) {
    case TRM_FIELD_BOOL:
        return sizeof(bool);
    case TRM_FIELD_INT64:
        return sizeof(int64_t);
    case TRM_FIELD_PERM:
        return (size_t)rank * sizeof(int32_t);
    case TRM_FIELD_GROUPS:
        return (size_t)desc->collective.n_groups * (size_t)desc->collective.group_size * sizeof(int32_t);
    case TRM_FIELD_DIMS:
        return 0;
    case TRM_FIELD_PROGRAM:
        return sizeof(desc->fused_elementwise);
    case TRM_FIELD_INT32:
    case TRM_FIELD_FLOAT:
    case TRM_FIELD_DTYPE:
    case TRM_FIELD_ENUM:
        break;
    }
    return field->count == 0 ? 4 : 4 * (size_t)field->count;
}

bool trm_layer_desc_equal(const trm_layer_desc *a, const trm_layer_desc *b, int32_t rank)
{
    if (a->kind != b->kind) {
        return false;
    }
    int32_t n;
    const trm_field *fields = trm_layer_fields(a->kind, &n);
    for (int32_t i = 0; i < n; i++) {
        const unsigned char *of_a = (const unsigned char *)a + fields[i].offset;
        const unsigned char *of_b = (const unsigned char *)b + fields[i].offset;
        bool equal = fields[i].type == TRM_FIELD_DIMS
                         ? trm_dims_equal((const trm_dims *)(const void *)of_a, (const trm_dims *)(const void *)of_b)
                         : memcmp(of_a, of_b, field_size(&fields[i], a, rank)) == 0;
        if (!equal) {
            return false;
        }
    }
    return true;
}
