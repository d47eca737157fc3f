/*
 * For the shape and type rules: one call of a rule, checks of its inputs, and dims as text.
 */
#ifndef TRM_GRAPH_INFER_H
#define TRM_GRAPH_INFER_H

#include "graph/network.h"

/* One call of a rule: inputs and desc to outputs. */
typedef struct trm_infer_call {
    const trm_layer_desc *desc;
    int32_t n_inputs;
    const trm_dims *const *dims; /* [n_inputs], NULL if an input is not given */
    const trm_dtype *dtypes;     /* [n_inputs] */
    const void *const *values;   /* [n_inputs], NULL if unknown; may be NULL */
    trm_dims *output_dims;
    trm_dtype *output_dtypes;
} trm_infer_call;

typedef trm_status (*trm_infer_rule)(const trm_infer_call *call);

/* ---- checks, in infer.c ------------------------------------------------------------------------ */

/* Checks that there are `least` to `most` inputs and the first `least` are given. */
trm_status trm_infer_require_inputs(const trm_infer_call *call, int32_t least, int32_t most);
bool trm_infer_has(const trm_infer_call *call, int32_t input);
/* `what` names the input in errors, such as "weight". */
trm_status trm_infer_require_rank(const trm_infer_call *call, int32_t input, const char *what, int32_t rank);
trm_status trm_infer_require_dtype(const trm_infer_call *call, int32_t input, const char *what, trm_dtype dtype);
trm_status trm_infer_require_float(const trm_infer_call *call, int32_t input, const char *what);
/* Checks that the input has these dims; -1 on either side matches anything. */
trm_status trm_infer_require_dims(const trm_infer_call *call, int32_t input, const char *what, trm_dims expected);
trm_status trm_infer_require_activation(trm_activation activation);
/* Turns `axis`, which may be negative, into 0 .. rank - 1. */
trm_status trm_infer_axis(int32_t axis, int32_t rank, int32_t *normal);

/* Gives the first output the dims and type of an input; returns TRM_OK. */
trm_status trm_infer_same(const trm_infer_call *call, int32_t input);

bool trm_dim_fits(int64_t a, int64_t b);     /* whether they are equal, or one is unknown */
int64_t trm_dim_known(int64_t a, int64_t b); /* the known one of two that fit */
/* Broadcasts a and b as numpy does, without the last `skip` dims of each. */
trm_status trm_infer_broadcast(const trm_dims *a, const trm_dims *b, int32_t skip, trm_dims *out);

/* Reads the `count` elements of an i32 or i64 value input. If they are unknown, sets *known to false and leaves
 * `values` alone. */
trm_status trm_infer_values(const trm_infer_call *call, int32_t input, const char *what, int64_t count, int64_t *values,
                            bool *known);

/* Reads dims from the elements of an i32 or i64 vector of known length, which becomes sizes->n even if *known is false.
 */
trm_status trm_infer_sizes(const trm_infer_call *call, int32_t input, const char *what, trm_dims *sizes, bool *known);

/* ---- a whole network, in infer.c --------------------------------------------------------------- */

/* Checks the dims of an input or state; sets those of a constant. */
trm_status trm_infer_start(const trm_tensor *tensor, trm_dims *dims);
/* Runs the rule of a layer on dims [n_tensors]. values [n_inputs]: elements of its inputs if known. */
trm_status trm_infer_in_network(const trm_layer *layer, const void *const *values, trm_dims *dims);

/* ---- dims -------------------------------------------------------------------------------------- */

/* Checks that rank, sizes and number of bytes are in range; -1 only if allowed. */
trm_status trm_dims_check(const trm_dims *dims, trm_dtype dtype, bool unknown_allowed);
/* Number of elements; -1 if a dimension is unknown. */
int64_t trm_dims_count_known(const trm_dims *dims);
/* Makes negative axes of a desc positive. */
void trm_layer_normalize(trm_layer_desc *desc, const trm_dims *first_input);

#endif
