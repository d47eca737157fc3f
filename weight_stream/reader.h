/*
 * Weights from files into staging memory, for those that host memory has no room for: threads read pieces of them in
 * the order of their use into a few buffers, ahead of the copies to the device, and on into the next step.
 */
#ifndef TRM_WEIGHT_STREAM_READER_H
#define TRM_WEIGHT_STREAM_READER_H

#include "kernels/device.h"

typedef struct trm_reader trm_reader;

/* Reads bytes begin .. begin + size - 1 of an item's device form; called by several threads at a time. */
typedef trm_status (*trm_reader_fn)(void *user, int32_t item, size_t begin, size_t size, void *to);

typedef struct trm_reader_options {
    const int32_t *items; /* [n_items] what one step needs, in its order; an item may be there more than once */
    int32_t n_items;
    const size_t *bytes; /* of every item that there is */
    trm_reader_fn read;
    void *user;
    int32_t threads, buffers;
    size_t buffer_bytes; /* a multiple of all elements' sizes */
} trm_reader_options;

/* Starts to read. Items and bytes are copied. */
trm_status trm_reader_create(trm_device *device, const trm_reader_options *options, trm_reader **reader);
/* Copies to the device must be over; NULL is ignored. */
void trm_reader_destroy(trm_reader *reader);

/* At the begin of a step: where the last one ended early, reading begins anew. */
void trm_reader_begin(trm_reader *reader);
/* Enqueues the copies of the next item to `to`, waiting for it to be read. */
trm_status trm_reader_upload(trm_reader *reader, trm_stream *stream, void *to);

#endif
