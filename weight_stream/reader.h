/*
 * Reads weights from files into staging memory, if host memory has no room for them: threads read pieces in order of
 * use into a few buffers, ahead of the copies to the device and across steps.
 */
#ifndef TRM_WEIGHT_STREAM_READER_H
#define TRM_WEIGHT_STREAM_READER_H

#include "kernels/device/device.h"

typedef struct trm_reader trm_reader;

/* A part of an item's device form: bytes begin .. begin + size - 1 of each of `rows` rows. */
typedef struct trm_reader_piece {
    int32_t item;
    size_t row, rows; /* flat items have one row: 0 and 1 */
    size_t begin, size;
} trm_reader_piece;

/* Reads a piece, with contiguous rows; several threads call it at once. */
typedef trm_status (*trm_reader_fn)(void *user, const trm_reader_piece *piece, void *to);

typedef struct trm_reader_options {
    const int32_t *items; /* [n_items] items of a step, in order; an item may occur more than once */
    int32_t n_items;
    const size_t *bytes; /* of every item */
    /* Bytes of a row for each item whose source is stored by columns, so that pieces of a few columns of all rows read
     * faster than pieces of a few rows; else 0. NULL: all are 0. */
    const size_t *row_bytes;
    trm_reader_fn read;
    void *user;
    int32_t threads, buffers;
    size_t buffer_bytes; /* a multiple of all elements' sizes */
} trm_reader_options;

/* Lists the pieces of at most `most` bytes in which an item is read, in order, and returns their number. NULL: only the
 * number. `most` is a multiple of 64. */
size_t trm_reader_list(int32_t item, size_t bytes, size_t row_bytes, size_t most, trm_reader_piece *pieces);

/* Starts reading. Copies items and bytes. */
trm_status trm_reader_create(trm_device *device, const trm_reader_options *options, trm_reader **reader);
/* Copies to the device must have finished. Ignores NULL. */
void trm_reader_destroy(trm_reader *reader);

/* Begins a step; if the last one ended early, restarts reading. */
void trm_reader_begin(trm_reader *reader);
/* Makes an item of the list the next one; if it is not, restarts reading there. */
void trm_reader_go_to(trm_reader *reader, int32_t place);
/* Waits until the next item is read, and enqueues its copies to `to`. */
trm_status trm_reader_upload(trm_reader *reader, trm_stream *stream, void *to);

#endif
