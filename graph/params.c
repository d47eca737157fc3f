/*
 * Rows of the parameters of layer kinds.
 */
#include "graph/params.h"

#include <string.h>

static const char *const activation_names[] = {"none",    "relu", "silu",       "gelu", "gelu_tanh",
                                               "sigmoid", "tanh", "quick_gelu", NULL};
static const char *const elementwise_names[] = {"add", "sub", "mul", "div", "min", "max", "pow", NULL};
static const char *const unary_names[] = {"activation", "neg", "abs",    "exp",     "log", "sqrt",
                                          "reciprocal", "erf", "linear", "softcap", NULL};
static const char *const norm_names[] = {"rms", "layer", NULL};
static const char *const reduce_names[] = {"sum", "prod", "max", "min", "avg", "none", NULL};
static const char *const rope_names[] = {"plain", "dynamic", "long", NULL};
static const char *const form_names[] = {"packed_nhd", "padded_bhnd", NULL};
static const char *const causal_names[] = {"none", "upper_left", "lower_right", NULL};
static const char *const collective_names[] = {"all_reduce",     "all_gather", "broadcast", "reduce",
                                               "reduce_scatter", "all_to_all", "gather",    "scatter",
                                               "send",           "recv",       NULL};

#define AT(member) offsetof(trm_layer_desc, member)

static const trm_field cast_fields[] = {{"to", TRM_FIELD_DTYPE, AT(cast.to), true, 0, NULL}};
static const trm_field reshape_fields[] = {{"dims", TRM_FIELD_DIMS, AT(reshape.dims), true, 0, NULL}};
static const trm_field transpose_fields[] = {{"perm", TRM_FIELD_PERM, AT(transpose.perm), true, 0, NULL}};
static const trm_field slice_fields[] = {
    {"axis", TRM_FIELD_INT32, AT(slice.axis), true, 0, NULL},
    {"start", TRM_FIELD_INT64, AT(slice.start), false, 0, NULL},
    {"end", TRM_FIELD_INT64, AT(slice.end), false, INT64_MAX, NULL},
    {"step", TRM_FIELD_INT64, AT(slice.step), false, 1, NULL},
};
static const trm_field concat_fields[] = {{"axis", TRM_FIELD_INT32, AT(concat.axis), true, 0, NULL}};
static const trm_field gather_fields[] = {{"axis", TRM_FIELD_INT32, AT(gather.axis), true, 0, NULL}};
static const trm_field embedding_fields[] = {
    {"first_row", TRM_FIELD_INT64, AT(embedding.first_row), false, 0, NULL},
};
static const trm_field matmul_fields[] = {
    {"transpose_a", TRM_FIELD_BOOL, AT(matmul.transpose_a), false, 0, NULL},
    {"transpose_b", TRM_FIELD_BOOL, AT(matmul.transpose_b), false, 0, NULL},
    {"activation", TRM_FIELD_ENUM, AT(matmul.activation), false, 0, activation_names},
    {"out", TRM_FIELD_DTYPE, AT(matmul.out), false, 0, NULL},
};
static const trm_field elementwise_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(elementwise.op), true, 0, elementwise_names},
};
static const trm_field unary_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(unary.op), true, 0, unary_names},
    {"activation", TRM_FIELD_ENUM, AT(unary.activation), false, 0, activation_names},
    {"alpha", TRM_FIELD_FLOAT, AT(unary.alpha), false, 0, NULL},
    {"beta", TRM_FIELD_FLOAT, AT(unary.beta), false, 0, NULL},
};
static const trm_field glu_fields[] = {
    {"activation", TRM_FIELD_ENUM, AT(glu.activation), true, 0, activation_names},
};
static const trm_field norm_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(norm.op), true, 0, norm_names},
    {"residual", TRM_FIELD_BOOL, AT(norm.residual), false, 0, NULL},
    {"eps", TRM_FIELD_FLOAT, AT(norm.eps), true, 0, NULL},
    {"weight_offset", TRM_FIELD_FLOAT, AT(norm.weight_offset), false, 0, NULL},
};
static const trm_field softmax_fields[] = {{"axis", TRM_FIELD_INT32, AT(softmax.axis), true, 0, NULL}};
static const trm_field reduce_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(reduce.op), true, 0, reduce_names},
    {"axis", TRM_FIELD_INT32, AT(reduce.axis), true, 0, NULL},
    {"keep_dims", TRM_FIELD_BOOL, AT(reduce.keep_dims), false, 0, NULL},
};
static const trm_field rope_fields[] = {
    {"scaling", TRM_FIELD_ENUM, AT(rope.scaling), false, 0, rope_names},
    {"rotary_dim", TRM_FIELD_INT32, AT(rope.rotary_dim), true, 0, NULL},
    {"interleaved", TRM_FIELD_BOOL, AT(rope.interleaved), false, 0, NULL},
    {"magnitude", TRM_FIELD_FLOAT, AT(rope.magnitude), false, 1, NULL},
    {"base", TRM_FIELD_FLOAT, AT(rope.base), false, 0, NULL},
    {"factor", TRM_FIELD_FLOAT, AT(rope.factor), false, 0, NULL},
    {"original_length", TRM_FIELD_INT64, AT(rope.original_length), false, 0, NULL},
};
static const trm_field attention_fields[] = {
    {"form", TRM_FIELD_ENUM, AT(attention.form), true, 0, form_names},
    {"causal", TRM_FIELD_ENUM, AT(attention.causal), false, 0, causal_names},
    {"window", TRM_FIELD_INT32, AT(attention.window), false, 0, NULL},
    {"scale", TRM_FIELD_FLOAT, AT(attention.scale), false, 0, NULL},
    {"softcap", TRM_FIELD_FLOAT, AT(attention.softcap), false, 0, NULL},
    {"n_ranks", TRM_FIELD_INT32, AT(attention.n_ranks), false, 0, NULL},
};
static const trm_field collective_fields[] = {
    {"op", TRM_FIELD_ENUM, AT(collective.op), true, 0, collective_names},
    {"reduce", TRM_FIELD_ENUM, AT(collective.reduce), false, 0, reduce_names},
    {"axis", TRM_FIELD_INT32, AT(collective.axis), false, 0, NULL},
    {"root", TRM_FIELD_INT32, AT(collective.root), false, 0, NULL},
    {"n_ranks", TRM_FIELD_INT32, AT(collective.n_ranks), true, 0, NULL},
    {"n_groups", TRM_FIELD_INT32, AT(collective.n_groups), false, 0, NULL},
    {"group_size", TRM_FIELD_INT32, AT(collective.group_size), false, 0, NULL},
    {"groups", TRM_FIELD_GROUPS, AT(collective.groups), false, 0, NULL},
    {"dtype", TRM_FIELD_DTYPE, AT(collective.dtype), false, 0, NULL},
    {"dims", TRM_FIELD_DIMS, AT(collective.dims), false, 0, NULL},
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
    ROWS(TRM_LAYER_NORM, norm_fields),
    ROWS(TRM_LAYER_SOFTMAX, softmax_fields),
    ROWS(TRM_LAYER_REDUCE, reduce_fields),
    ROWS(TRM_LAYER_ROPE, rope_fields),
    ROWS(TRM_LAYER_ATTENTION, attention_fields),
    ROWS(TRM_LAYER_DIST_COLLECTIVE, collective_fields),
};

const trm_field *trm_layer_fields(trm_layer_kind kind, int32_t *n)
{
    bool known = (unsigned)kind < TRM_LAYER_KIND_COUNT;
    *n = known ? kinds[kind].n : 0;
    return known ? kinds[kind].fields : NULL;
}

static bool dims_equal(const trm_dims *a, const trm_dims *b)
{
    return a->n == b->n && memcmp(a->d, b->d, (size_t)a->n * sizeof(a->d[0])) == 0;
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
    case TRM_FIELD_INT32:
    case TRM_FIELD_FLOAT:
    case TRM_FIELD_DTYPE:
    case TRM_FIELD_ENUM:
        break;
    }
    return 4;
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
                         ? dims_equal((const trm_dims *)(const void *)of_a, (const trm_dims *)(const void *)of_b)
                         : memcmp(of_a, of_b, field_size(&fields[i], a, rank)) == 0;
        if (!equal) {
            return false;
        }
    }
    return true;
}
