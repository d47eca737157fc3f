/*
 * The parameters of every layer kind as data: one row per field of the catalogue, for dumps and comparison.
 */
#ifndef TRM_GRAPH_PARAMS_H
#define TRM_GRAPH_PARAMS_H

#include <trireme/layers.h>

typedef enum trm_field_type {
    TRM_FIELD_BOOL,
    TRM_FIELD_INT32,
    TRM_FIELD_INT64,
    TRM_FIELD_FLOAT,
    TRM_FIELD_DTYPE,
    TRM_FIELD_ENUM,
    TRM_FIELD_DIMS,
    TRM_FIELD_PERM,    /* int32_t [rank of the first input] */
    TRM_FIELD_GROUPS,  /* int32_t [n_groups * group_size] of collectives */
    TRM_FIELD_PROGRAM, /* trm_fused_elementwise_params */
    TRM_FIELD_PLUGIN   /* int32_t: number of a plugin's layer */
} trm_field_type;

typedef struct trm_field {
    const char *name;
    trm_field_type type;
    size_t offset;             /* in trm_layer_desc */
    bool always;               /* dumped even if it is the default */
    int64_t normal;            /* the default */
    const char *const *values; /* ENUM: names, ended by NULL */
    int32_t count;             /* length of an array of INT32, FLOAT or ENUM; 0: one value */
} trm_field;

/* The fields of a kind; NULL and 0 out of range. */
const trm_field *trm_layer_fields(trm_layer_kind kind, int32_t *n);
/* Checks values of fields that no rule checks: fails on an unknown ENUM, or DIMS of an impossible rank. */
trm_status trm_layer_check_fields(const trm_layer_desc *desc);
/* Same kind and parameters; `rank` is that of the first input. */
bool trm_layer_desc_equal(const trm_layer_desc *a, const trm_layer_desc *b, int32_t rank);

#endif
