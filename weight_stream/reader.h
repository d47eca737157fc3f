/*
 * Weights from files into staging memory, for those that host memory has no room for: threads read pieces of them in
 * the order of their use into a few buffers, ahead of the copies to the device, and on into the next step.
 */
#ifndef TRM_WEIGHT_STREAM_READER_H
#define TRM_WEIGHT_STREAM_READER_H

#include "kernels/device/device.h"

typedef struct trm_reader trm_reader;

/* A part of an item's device form: bytes begin .. begin + size - 1 of each of `rows` rows. */
typedef struct trm_reader_piece {
    int32_t item;
    size_t row, rows; /* of what lies flat 0 and 1: all is one row */
    size_t begin, size;
} trm_reader_piece;

/* Reads a piece, its rows one behind the other; called by several threads at a time. */
typedef trm_status (*trm_reader_fn)(void *user, const trm_reader_piece *piece, void *to);

typedef struct trm_reader_options {
    const int32_t *items; /* [n_items] what one step needs, in its order; an item may be there more than once */
    int32_t n_items;
    const size_t *bytes; /* of every item that there is */
    /* Of every item the bytes of a row, if its source has its columns one behind the other, so that pieces of a few
     * columns of all rows are read sooner than those of a few rows; else 0. NULL: all are 0. */
    const size_t *row_bytes;
    trm_reader_fn read;
    void *user;
    int32_t threads, buffers;
    size_t buffer_bytes; /* a multiple of all elements' sizes */
} trm_reader_options;

/* The pieces of at most `most` bytes that an item is read in, in order; returns how many. NULL: only that. `most` is a
 * multiple of 64. */
size_t trm_reader_list(int32_t item, size_t bytes, size_t row_bytes, size_t most, trm_reader_piece *pieces);

/* Starts to read. Items and bytes are copied. */
trm_status trm_reader_create(trm_device *device, const trm_reader_options *options, trm_reader **reader);
/* Copies to the device must be over; NULL is ignored. */
void trm_reader_destroy(trm_reader *reader);

/* At the begin of a step: where the last one ended early, reading begins anew. */
void trm_reader_begin(trm_reader *reader);
/* Makes an item the next, by its place in the list; where it is not, reading begins anew there. */
void trm_reader_go_to(trm_reader *reader, int32_t place);
/* Enqueues the copies of the next item to `to`, waiting for it to be read. */
trm_status trm_reader_upload(trm_reader *reader, trm_stream *stream, void *to);

#endif
