/*
 * A weight as data, for plan files: its base, and which elements of it it shows.
 *
 * The form of a weight makes an equal weight. Forms may come from files: a weight made from any form shows only
 * elements of its base.
 */
#ifndef TRM_WEIGHT_STREAM_WEIGHT_FORM_H
#define TRM_WEIGHT_STREAM_WEIGHT_FORM_H

#include "weight_stream/weight.h"
#include "weight_stream/weight_view.h"

typedef enum trm_weight_base_kind {
    TRM_WEIGHT_STORED,
    TRM_WEIGHT_RANDOM,
    TRM_WEIGHT_ZEROS,
    TRM_WEIGHT_JOINED,  /* one part or more */
    TRM_WEIGHT_RECODED, /* one part */
    TRM_WEIGHT_COMPUTED /* one part or two */
} trm_weight_base_kind;

typedef struct trm_weight_form {
    trm_weight_base_kind kind;
    trm_dtype dtype;
    trm_dims dims; /* of the base; ignored for ZEROS, JOINED, RECODED and COMPUTED when a weight is made */
    trm_weight_view view;
    /* STORED */
    trm_weight_file *file;
    size_t begin; /* byte of the file */
    const char *name;
    /* RANDOM */
    uint64_t seed;
    float mean, spread;
    /* JOINED; RECODED has a part and a code, COMPUTED parts, a type and an operation */
    int32_t axis, n_parts;
    const trm_weight *const *parts; /* [n_parts] */
    trm_weight_code code;
    int32_t times; /* of REPEAT */
    trm_weight_op op;
} trm_weight_form;

/* All of the form lives as long as the weight. */
void trm_weight_get_form(const trm_weight *weight, trm_weight_form *form);
/* INVALID_MODEL for an invalid form. */
trm_status trm_weight_from_form(const trm_weight_form *form, trm_weight **weight);

/*
 * The weight over other bases: calls `find` for every STORED base, which leaves *found NULL to keep it, or returns a
 * weight of a whole stored tensor of the same type and dims, which is taken over. *rebased is NULL if all bases stay.
 */
typedef trm_status (*trm_weight_find_fn)(void *user, const trm_weight_form *stored, trm_weight **found);
trm_status trm_weight_rebase(const trm_weight *weight, trm_weight_find_fn find, void *user, trm_weight **rebased);

/* Memory that weights can view like a file; the bytes are copied. */
trm_status trm_weight_file_from_bytes(const void *bytes, size_t size, const char *name, trm_weight_file **file);

/* The path of a file, without links, and its name in dumps. */
const char *trm_weight_file_path(const trm_weight_file *file);
const char *trm_weight_file_name(const trm_weight_file *file);

#endif
