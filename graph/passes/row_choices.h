/*
 * Choices of rows: layers that take entries of one axis by indices that are known, and rows as what takes them.
 */
#ifndef TRM_GRAPH_PASSES_ROW_CHOICES_H
#define TRM_GRAPH_PASSES_ROW_CHOICES_H

#include "graph/network.h"

/* A GATHER or SLICE as it was when it was read. */
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
    int64_t *index; /* [n], or NULL where they are evenly spaced */
} trm_rows;

/* False if a layer is no choice of known entries that are there. An index out of range gives zeros, not what layers
 * make of them; of an axis of unknown size one entry may be taken, by a GATHER. */
bool trm_row_choice_read(trm_layer *layer, trm_row_choice *choice);

/* The rows that choices of one axis take: of one in its own order, of several each once and in ascending order. n is 0
 * where they are more than half of the axis, or of an axis of unknown size more than one. */
trm_status trm_rows_find(const trm_row_choice *choices, trm_rows *rows);
void trm_rows_fini(trm_rows *rows);
/* A layer that takes rows of an axis of `size`, -1 if unknown: a SLICE if they are evenly spaced, else a GATHER by what
 * trm_rows_indices makes. A SLICE takes none where there is no such row. */
trm_layer_desc trm_rows_desc(const trm_rows *rows, int64_t size, int32_t axis);
/* NULL for a SLICE. */
trm_status trm_rows_indices(trm_network *network, const trm_rows *rows, trm_tensor **indices);

/* Makes a choice take what it took of an input that now has only `rows` of those it had. */
trm_status trm_row_choice_narrow(trm_network *network, const trm_row_choice *choice, const trm_rows *rows);

#endif
