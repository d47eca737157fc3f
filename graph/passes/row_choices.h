/*
 * Gathered rows: layers that take entries of one axis by known indices, and the rows that they take.
 */
#ifndef TRM_GRAPH_PASSES_ROW_CHOICES_H
#define TRM_GRAPH_PASSES_ROW_CHOICES_H

#include "graph/network.h"

/* A GATHER or SLICE, as read. */
typedef struct trm_row_choice {
    trm_layer *layer;
    int32_t axis;                /* of its first input */
    int64_t size;                /* of that axis; -1: unknown, and one entry is taken */
    int64_t count;               /* of entries taken */
    int64_t first, step;         /* SLICE */
    const trm_tensor *indices;   /* GATHER: a constant of up to one axis; else NULL */
    bool drops_axis;             /* by a scalar index */
    struct trm_row_choice *next; /* of the same tensor, or NULL */
} trm_row_choice;

/* Entries of an axis in the order in which they are taken: index[i], or first + i * step. Those of an axis of unknown
 * size count from its end where they are below 0. */
typedef struct trm_rows {
    int64_t n;
    int64_t first, step;
    int64_t *index; /* [n], or NULL if they are evenly spaced */
} trm_rows;

/* False if the layer does not take known, existing entries. An index out of range gives zeros, not the result of layers
 * for zeros; from an axis of unknown size a GATHER may take one entry. */
bool trm_row_choice_read(trm_layer *layer, trm_row_choice *choice);

/* The rows that layers take from one axis: of one layer in its order, of several each once in ascending order. n is 0
 * if they are more than half of the axis, or more than one of an axis of unknown size. */
trm_status trm_rows_find(const trm_row_choice *choices, trm_rows *rows);
void trm_rows_fini(trm_rows *rows);
/* A layer that takes rows of an axis of `size`, -1 if unknown: a SLICE if they are evenly spaced, else a GATHER by the
 * indices of trm_rows_indices. A SLICE takes nothing if there is no such row. */
trm_layer_desc trm_rows_desc(const trm_rows *rows, int64_t size, int32_t axis);
/* NULL for a SLICE. */
trm_status trm_rows_indices(trm_network *network, const trm_rows *rows, trm_tensor **indices);

/* Adapts a layer to an input that now has only `rows` of its entries. */
trm_status trm_row_choice_narrow(trm_network *network, const trm_row_choice *choice, const trm_rows *rows);

#endif
