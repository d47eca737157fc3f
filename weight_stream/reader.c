/* Threads that read pieces ahead into buffers; pieces are numbered continuously from step to step. */
#include "weight_stream/reader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

typedef enum buffer_state {
    EMPTY,
    READING,
    READY,
    FAILED,
    COPYING /* copying to the device; its event marks the end */
} buffer_state;

typedef struct buffer {
    unsigned char *memory;
    bool is_ordinary; /* the system refused to pin it */
    trm_event *copied;
    buffer_state state;
    trm_held_error failure; /* FAILED */
} buffer;

typedef struct piece {
    trm_reader_piece part;
    size_t pitch; /* of its rows in the device form */
    bool last;    /* of its item */
} piece;

struct trm_reader {
    trm_device *device;
    trm_reader_fn read;
    void *user;
    piece *pieces; /* [n_pieces] of a step */
    size_t n_pieces;
    size_t *begins;  /* [n_items] the first piece of each */
    buffer *buffers; /* [n_buffers]; piece n, counted over all steps, uses buffer n modulo n_buffers */
    size_t n_buffers, buffer_bytes;
    pthread_t *threads;
    int32_t n_threads;
    pthread_mutex_t mutex; /* protects all below, and the buffers' states */
    pthread_cond_t changes;
    size_t next_read, next_use;
    int32_t reading;
    bool stops, pauses, broken; /* the last: reading a piece failed, start again */
};

/* ---- the threads ------------------------------------------------------------------------------- */

static void read_piece(trm_reader *reader, const piece *p, buffer *b, bool was_copying)
{
    trm_status status = was_copying ? trm_event_synchronize(b->copied) : TRM_OK;
    if (status == TRM_OK) {
        status = reader->read(reader->user, &p->part, b->memory);
    }
    trm_error_hold(status, &b->failure);
}

static bool can_read(const trm_reader *reader)
{
    buffer_state state = reader->buffers[reader->next_read % reader->n_buffers].state;
    return !reader->pauses && (state == EMPTY || state == COPYING);
}

static void *read_ahead(void *user)
{
    trm_reader *reader = user;
    pthread_mutex_lock(&reader->mutex);
    while (!reader->stops) {
        if (!can_read(reader)) {
            pthread_cond_wait(&reader->changes, &reader->mutex);
            continue;
        }
        size_t n = reader->next_read++;
        buffer *b = &reader->buffers[n % reader->n_buffers];
        bool was_copying = b->state == COPYING;
        b->state = READING;
        reader->reading++;
        pthread_mutex_unlock(&reader->mutex);
        read_piece(reader, &reader->pieces[n % reader->n_pieces], b, was_copying);
        pthread_mutex_lock(&reader->mutex);
        reader->reading--;
        b->state = b->failure.status == TRM_OK ? READY : FAILED;
        pthread_cond_broadcast(&reader->changes);
    }
    pthread_mutex_unlock(&reader->mutex);
    return NULL;
}

/* ---- making one -------------------------------------------------------------------------------- */

/* Rows of column pieces have at least this many bytes, and multiples of the other: whole cache lines, and sizes that
 * devices copy well. */
#define LEAST_WIDTH    512
#define WIDTH_MULTIPLE 64

size_t trm_reader_list(int32_t item, size_t bytes, size_t row_bytes, size_t most, trm_reader_piece *pieces)
{
    size_t rows = 1, width = most, n = 0;
    if (row_bytes == 0 || bytes <= most) {
        row_bytes = bytes;
    } else {
        width = most / (bytes / row_bytes) / WIDTH_MULTIPLE * WIDTH_MULTIPLE;
        width = width > LEAST_WIDTH ? width : LEAST_WIDTH;
        width = width < row_bytes ? width : row_bytes;
        width = width < most ? width : most;
        rows = bytes / row_bytes < most / width ? bytes / row_bytes : most / width;
    }
    for (size_t begin = 0; begin < row_bytes; begin += width) {
        for (size_t row = 0; row < bytes / row_bytes; row += rows) {
            const size_t height = bytes / row_bytes - row;
            if (pieces != NULL) {
                pieces[n] = (trm_reader_piece){item, row, height < rows ? height : rows, begin,
                                               row_bytes - begin < width ? row_bytes - begin : width};
            }
            n++;
        }
    }
    return n;
}

static size_t row_bytes_of(const trm_reader_options *options, int32_t item)
{
    return options->row_bytes == NULL ? 0 : options->row_bytes[item];
}

static trm_status list_pieces(trm_reader *reader, const trm_reader_options *options)
{
    size_t n = 0, longest = 0;
    for (int32_t i = 0; i < options->n_items; i++) {
        const int32_t item = options->items[i];
        const size_t of_item =
            trm_reader_list(item, options->bytes[item], row_bytes_of(options, item), options->buffer_bytes, NULL);
        longest = of_item > longest ? of_item : longest;
        n += of_item;
    }
    trm_reader_piece *parts = calloc(longest + 1, sizeof(*parts));
    reader->pieces = calloc(n + 1, sizeof(*reader->pieces));
    reader->begins = calloc((size_t)options->n_items + 1, sizeof(*reader->begins));
    if (parts == NULL || reader->pieces == NULL || reader->begins == NULL) {
        free(parts);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %zu pieces of weights", n);
    }
    for (int32_t i = 0; i < options->n_items; i++) {
        const int32_t item = options->items[i];
        const size_t pitch = row_bytes_of(options, item);
        const size_t of_item = trm_reader_list(item, options->bytes[item], pitch, options->buffer_bytes, parts);
        reader->begins[i] = reader->n_pieces;
        for (size_t k = 0; k < of_item; k++) {
            reader->pieces[reader->n_pieces++] = (piece){parts[k], pitch, k + 1 == of_item};
        }
    }
    free(parts);
    return TRM_OK;
}

static trm_status create_buffers(trm_reader *reader, const trm_reader_options *options)
{
    reader->buffers = calloc((size_t)options->buffers, sizeof(*reader->buffers));
    if (reader->buffers == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d buffers", options->buffers);
    }
    reader->n_buffers = (size_t)options->buffers;
    reader->buffer_bytes = options->buffer_bytes;
    bool refused = false;
    for (size_t i = 0; i < reader->n_buffers; i++) {
        buffer *b = &reader->buffers[i];
        void *memory;
        const trm_status status =
            refused ? TRM_OK : trm_device_alloc_host(reader->device, options->buffer_bytes, &memory);
        if (status != TRM_OK) {
            if (trm_memory_available() / options->buffer_bytes < reader->n_buffers - i) {
                return status; /* pageable memory is exhausted too */
            }
            refused = true;
            TRM_WARN("%s: weights from files are copied from pageable memory, which is several times "
                     "slower",
                     trm_last_error());
        }
        if (refused) {
            TRM_TRY(trm_pages_alloc(options->buffer_bytes, &memory));
        }
        b->memory = memory;
        b->is_ordinary = refused;
        TRM_TRY(trm_event_create(reader->device, &b->copied));
    }
    return TRM_OK;
}

trm_status trm_reader_create(trm_device *device, const trm_reader_options *options, trm_reader **reader)
{
    trm_reader *made = calloc(1, sizeof(*made));
    trm_status status;
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a reader of weights");
    }
    made->device = device;
    made->read = options->read;
    made->user = options->user;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->changes, NULL);
    TRM_TRY_GOTO(status, list_pieces(made, options), destroy);
    TRM_TRY_GOTO(status, create_buffers(made, options), destroy);
    made->threads = calloc((size_t)options->threads, sizeof(*made->threads));
    if (made->threads == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d threads", options->threads);
        goto destroy;
    }
    for (; made->n_threads < options->threads; made->n_threads++) {
        int error = pthread_create(&made->threads[made->n_threads], NULL, read_ahead, made);
        if (error != 0) {
            status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot start a reader thread: %s", strerror(error));
            goto destroy;
        }
    }
    *reader = made;
    return TRM_OK;
destroy:
    trm_reader_destroy(made);
    return status;
}

void trm_reader_destroy(trm_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    pthread_mutex_lock(&reader->mutex);
    reader->stops = true;
    pthread_cond_broadcast(&reader->changes);
    pthread_mutex_unlock(&reader->mutex);
    for (int32_t i = 0; i < reader->n_threads; i++) {
        pthread_join(reader->threads[i], NULL);
    }
    for (size_t i = 0; i < reader->n_buffers; i++) {
        const buffer *b = &reader->buffers[i];
        trm_event_destroy(b->copied);
        if (b->is_ordinary) {
            trm_pages_free(b->memory, reader->buffer_bytes);
        } else {
            trm_device_free_host(reader->device, b->memory);
        }
    }
    pthread_mutex_destroy(&reader->mutex);
    pthread_cond_destroy(&reader->changes);
    free(reader->threads);
    free(reader->buffers);
    free(reader->pieces);
    free(reader->begins);
    free(reader);
}

/* ---- steps ------------------------------------------------------------------------------------- */

/* Restarts reading, unless it is already the next piece and has not failed. */
static void go_to(trm_reader *reader, size_t number)
{
    pthread_mutex_lock(&reader->mutex);
    if (reader->broken || reader->next_use % reader->n_pieces != number) {
        reader->pauses = true;
        while (reader->reading > 0) {
            pthread_cond_wait(&reader->changes, &reader->mutex);
        }
        for (size_t i = 0; i < reader->n_buffers; i++) {
            buffer *b = &reader->buffers[i];
            b->state = b->state == COPYING ? COPYING : EMPTY;
        }
        reader->next_read = reader->next_use = number;
        reader->pauses = reader->broken = false;
        pthread_cond_broadcast(&reader->changes);
    }
    pthread_mutex_unlock(&reader->mutex);
}

void trm_reader_begin(trm_reader *reader)
{
    go_to(reader, 0);
}

void trm_reader_go_to(trm_reader *reader, int32_t place)
{
    go_to(reader, reader->begins[place]);
}

/* Waits for the next piece and returns its buffer. */
static trm_status take_piece(trm_reader *reader, const piece **p, buffer **b)
{
    pthread_mutex_lock(&reader->mutex);
    *p = &reader->pieces[reader->next_use % reader->n_pieces];
    *b = &reader->buffers[reader->next_use % reader->n_buffers];
    while (reader->next_use >= reader->next_read || ((*b)->state != READY && (*b)->state != FAILED)) {
        pthread_cond_wait(&reader->changes, &reader->mutex);
    }
    bool failed = (*b)->state == FAILED;
    reader->next_use += failed ? 0 : 1;
    reader->broken = failed;
    pthread_mutex_unlock(&reader->mutex);
    return failed ? trm_error_give_back(&(*b)->failure) : TRM_OK;
}

static void give_back(trm_reader *reader, buffer *b)
{
    pthread_mutex_lock(&reader->mutex);
    b->state = COPYING;
    pthread_cond_broadcast(&reader->changes);
    pthread_mutex_unlock(&reader->mutex);
}

trm_status trm_reader_upload(trm_reader *reader, trm_stream *stream, void *to)
{
    const piece *p;
    buffer *b;
    bool more = true;
    while (more) {
        TRM_TRY(take_piece(reader, &p, &b));
        const trm_reader_piece *part = &p->part;
        unsigned char *place = (unsigned char *)to + part->row * p->pitch + part->begin;
        trm_status status = trm_stream_upload_rows(stream, place, part->rows == 1 ? part->size : p->pitch, b->memory,
                                                   part->size, part->rows);
        status = status == TRM_OK ? trm_event_record(b->copied, stream) : status;
        give_back(reader, b);
        TRM_TRY(status);
        more = !p->last;
    }
    return TRM_OK;
}
