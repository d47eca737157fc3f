/*
 * One row per layer kind, for the graph, the partitioner and the planner. Code outside graph/kinds reads rows and has
 * no cases for kinds.
 *
 * The rows are in <family>.c; kinds.c finds them by the list in <trireme/layers.h>. A row sets only the fields that it
 * needs: a kind without a rule for axes is whole on every rank.
 */
#ifndef TRM_GRAPH_KINDS_KIND_H
#define TRM_GRAPH_KINDS_KIND_H

#include "graph/axis_links.h"
#include "graph/infer.h"
#include "graph/params.h"
#include "graph/sharding.h"

enum {
    TRM_KIND_PRODUCT = 1,       /* a product before passes fuse anything: worth moving a choice of rows before it */
    TRM_KIND_TAKES_TIME = 2,    /* worth a stream of its own */
    TRM_KIND_EVALUATED = 4,     /* shapes are computed with it, on the host */
    TRM_KIND_LOOKS_UP = 8,      /* reads only rows of its first input */
    TRM_KIND_LOOSE_SIZES = 16,  /* inputs may differ in size from the output along an axis that follows theirs */
    TRM_KIND_READS_STATES = 32, /* and does not write them */
    TRM_KIND_FOREIGN = 64       /* its rule is not ours: what it says of dims is compared with what it said before */
};

typedef struct trm_kind {
    /* Parameters, in the order in which they are dumped. */
    const trm_field *fields;
    int32_t n_fields;
    size_t axis;         /* offset in trm_layer_desc of an axis that may be negative; 0: none */
    bool axis_of_output; /* counted in the output, which has one axis more */
    uint32_t traits;     /* TRM_KIND_ */

    /* Shapes and types. */
    trm_infer_rule infer;
    int32_t n_outputs;                                   /* 0: one */
    size_t second_output;                                /* offset of a bool that gives a second output; 0: none */
    int32_t (*output_count)(const trm_layer_desc *desc); /* where parameters decide it */
    uint32_t value_inputs;                               /* bit i: input i is one (layers.h) */
    uint32_t (*value_inputs_of)(const trm_layer_desc *desc);
    /* If output dims depend on data: the most entries, and the outputs' dims with `count` entries. */
    int64_t (*largest_count)(const trm_layer_desc *desc, const trm_dims *const *input_dims);
    void (*set_count)(const trm_layer_desc *desc, int64_t count, trm_dims *output_dims);

    /* Axes (graph/axis_links.h): the axis of input i that axis k of the outputs follows (NULL: none), and which unknown
     * sizes of the outputs equal those of inputs (NULL: none). */
    trm_axis_link link;
    void (*sizes)(trm_size_walk *walk, const trm_layer *layer);

    /* Sharding. Sets of inputs, as bit masks up to a 0, in which the layer is linear when the others are held: f(sum of
     * x) is the sum of f(x). Where parameters decide it: if the enum at an offset is among `values`, bit v for value v,
     * or if `is_linear` says so. */
    uint32_t linear[3];
    struct {
        size_t offset;
        uint32_t values;
    } linear_if;
    bool (*is_linear)(const trm_layer *layer, uint32_t set);
    uint32_t added; /* inputs that are added to a sum of summands: if whole, only the first rank adds them */
    /* Whether zeros at the end of the inputs in `split` become zeros at the end of the output (NULL: no). */
    bool (*keeps_zero)(const trm_layer *layer, uint32_t split);
    /* Additional ways to run over `parts` ranks, besides those from links and linear inputs; and if ranks split the
     * batch. */
    trm_status (*shard)(const trm_layer *layer, int32_t parts, trm_way_taker *taker);
    trm_status (*shard_batch)(const trm_layer *layer, int32_t parts, trm_way_taker *taker);
    const int8_t *batch_inputs, *batch_outputs; /* axes of the batch, -1: none; NULL: as the links say */
    /* Adapts parameters to the output's sharding, and to a rank's first row of input `rows_of`. */
    int32_t rows_of;
    void (*localize)(const trm_layer *layer, const trm_sharding *out, int64_t first_row, trm_layer_desc *desc);

    /* Cost. */
    int32_t weight;                                 /* the input that is the weight of a product; 0: none */
    bool (*has_weight)(const trm_layer_desc *desc); /* NULL: always */
    /* Multiplications for an element of the output, with the dims [n_inputs] that a rank has of the inputs; a dimension
     * of -1 counts as `unknown`. */
    double (*multiplications)(const trm_layer *layer, const trm_dims *in, int64_t unknown);
} trm_kind;

#define TRM_KIND_DECLARE(kind, name) extern const trm_kind trm_kind_##name;
TRM_ALL_LAYER_KINDS(TRM_KIND_DECLARE)

/* The row of a kind; NULL for an unknown kind. */
const trm_kind *trm_kind_row(trm_layer_kind kind);
/* The kind of a name; TRM_LAYER_KIND_COUNT if unknown. */
trm_layer_kind trm_kind_named(const char *name);
/* The row of a layer's kind, which exists. */
static inline const trm_kind *trm_kind_of(const trm_layer *layer)
{
    return trm_kind_row(layer->desc.kind);
}

/* The parameter of 4 bytes at an offset in the desc. */
static inline int32_t trm_kind_value(const trm_layer *layer, size_t offset)
{
    return *(const int32_t *)(const void *)((const unsigned char *)&layer->desc + offset);
}

static inline bool trm_kind_is(const trm_layer *layer, uint32_t trait)
{
    return (trm_kind_of(layer)->traits & trait) != 0;
}

/* The input that is the weight of a layer's product; -1 for layers that are not products. */
int32_t trm_layer_weight_input(const trm_layer *layer);

/* ---- for rows ---------------------------------------------------------------------------------- */

#define TRM_AT(member) offsetof(trm_layer_desc, member)
/* A field `member` of the parameters `params`; what follows names what is not zero, such as .always = true. */
#define TRM_FIELD(what, params, member, ...)                                                                           \
    {                                                                                                                  \
        .name = #member, .type = TRM_FIELD_##what, .offset = TRM_AT(params.member), __VA_ARGS__                        \
    }
/* Names of the values of an enum, from its list in <trireme/layers.h>. */
#define TRM_NAMES(list)                                                                                                \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        list(TRM_ENUM_NAME) NULL                                                                                       \
    }
/* All fields of a kind; those of several kinds are an array. */
#define TRM_FIELDS(...)                                                                                                \
    .fields = (const trm_field[]){__VA_ARGS__}, .n_fields = sizeof((const trm_field[]){__VA_ARGS__}) / sizeof(trm_field)
#define TRM_FIELDS_OF(array) .fields = (array), .n_fields = sizeof(array) / sizeof((array)[0])

/* The rule of NORM for a layer that begins with one: x is input 0, `residual` (if the norm has one) and `weight` are
 * the positions of the others. Writes the norm's outputs, of which the second is the sum with the residual. */
trm_status trm_kind_infer_norm(const trm_infer_call *call, const trm_norm_params *params, int32_t residual,
                               int32_t weight, trm_dims *output_dims, trm_dtype *output_dtypes);

bool trm_keeps_zero(const trm_layer *layer, uint32_t split); /* always */
bool trm_activation_keeps_zero(trm_activation activation);
static inline double trm_known_dim(int64_t dim, int64_t unknown)
{
    return (double)(dim < 0 ? unknown : dim);
}

#endif
