/* A thread that works off copies, calls, records and waits in order. */
#include "kernels/device/host_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define FIRST_CAPACITY 64

typedef enum entry_kind { ENTRY_MOVE, ENTRY_ROWS, ENTRY_CALL, ENTRY_RECORD, ENTRY_WAIT } entry_kind;

typedef struct entry {
    entry_kind kind;
    void *to;
    const void *from;
    size_t size, pitch, rows; /* the latter two of ROWS, whose width is the size */
    trm_host_call_fn fn;
    trm_host_point *point;
    uint64_t record;
} entry;

struct trm_host_queue {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t arrives, empties;
    entry *entries; /* [capacity], a ring */
    size_t capacity, first, count;
    bool stops;
};

/* ---- points ------------------------------------------------------------------------------------ */

void trm_host_point_init(trm_host_point *point)
{
    *point = (trm_host_point){.mutex = PTHREAD_MUTEX_INITIALIZER, .passes = PTHREAD_COND_INITIALIZER};
}

void trm_host_point_fini(trm_host_point *point)
{
    pthread_mutex_destroy(&point->mutex);
    pthread_cond_destroy(&point->passes);
}

uint64_t trm_host_point_begin(trm_host_point *point)
{
    pthread_mutex_lock(&point->mutex);
    uint64_t record = ++point->begun;
    pthread_mutex_unlock(&point->mutex);
    return record;
}

void trm_host_point_pass(trm_host_point *point, uint64_t record)
{
    pthread_mutex_lock(&point->mutex);
    if (record > point->passed) { /* records on several streams may pass in another order */
        point->passed = record;
        clock_gettime(CLOCK_MONOTONIC, &point->time);
    }
    pthread_cond_broadcast(&point->passes);
    pthread_mutex_unlock(&point->mutex);
}

static void wait_for_record(trm_host_point *point, uint64_t record)
{
    pthread_mutex_lock(&point->mutex);
    while (point->passed < record) {
        pthread_cond_wait(&point->passes, &point->mutex);
    }
    pthread_mutex_unlock(&point->mutex);
}

static uint64_t last_record(trm_host_point *point)
{
    pthread_mutex_lock(&point->mutex);
    uint64_t record = point->begun;
    pthread_mutex_unlock(&point->mutex);
    return record;
}

void trm_host_point_wait(trm_host_point *point)
{
    wait_for_record(point, last_record(point));
}

bool trm_host_point_passed(trm_host_point *point)
{
    pthread_mutex_lock(&point->mutex);
    bool passed = point->passed == point->begun;
    pthread_mutex_unlock(&point->mutex);
    return passed;
}

bool trm_host_point_time(trm_host_point *point, struct timespec *time)
{
    pthread_mutex_lock(&point->mutex);
    bool passed = point->passed > 0;
    *time = point->time;
    pthread_mutex_unlock(&point->mutex);
    return passed;
}

/* ---- the queue --------------------------------------------------------------------------------- */

void trm_host_move_rows(void *to, size_t pitch, const void *from, size_t width, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        memcpy((unsigned char *)to + i * pitch, (const unsigned char *)from + i * width, width);
    }
}

static void work_off(const entry *e)
{
    switch (e->kind) {
    case ENTRY_MOVE:
        if (e->from == NULL) {
            memset(e->to, 0, e->size);
        } else {
            memmove(e->to, e->from, e->size);
        }
        break;
    case ENTRY_ROWS:
        trm_host_move_rows(e->to, e->pitch, e->from, e->size, e->rows);
        break;
    case ENTRY_CALL:
        e->fn(NULL, e->to, e->from, e->size);
        break;
    case ENTRY_RECORD:
        trm_host_point_pass(e->point, e->record);
        break;
    case ENTRY_WAIT:
        wait_for_record(e->point, e->record);
        break;
    }
}

static void *work(void *user)
{
    trm_host_queue *queue = user;
    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        while (queue->count == 0 && !queue->stops) {
            pthread_cond_wait(&queue->arrives, &queue->mutex);
        }
        if (queue->count == 0) {
            break;
        }
        entry next = queue->entries[queue->first];
        pthread_mutex_unlock(&queue->mutex);
        work_off(&next);
        pthread_mutex_lock(&queue->mutex);
        queue->first = (queue->first + 1) % queue->capacity;
        queue->count--; /* only now, so that whoever waits for an empty queue waits for this one too */
        if (queue->count == 0) {
            pthread_cond_broadcast(&queue->empties);
        }
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

trm_status trm_host_queue_create(trm_host_queue **queue)
{
    trm_host_queue *made = calloc(1, sizeof(*made));
    entry *entries = calloc(FIRST_CAPACITY, sizeof(*entries));
    if (made == NULL || entries == NULL) {
        free(made);
        free(entries);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot create a queue of copies: out of host memory");
    }
    *made = (trm_host_queue){.mutex = PTHREAD_MUTEX_INITIALIZER,
                             .arrives = PTHREAD_COND_INITIALIZER,
                             .empties = PTHREAD_COND_INITIALIZER,
                             .entries = entries,
                             .capacity = FIRST_CAPACITY};
    int error = pthread_create(&made->thread, NULL, work, made);
    if (error != 0) {
        free(entries);
        free(made);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot start a thread for copies: %s", strerror(error));
    }
    *queue = made;
    return TRM_OK;
}

void trm_host_queue_destroy(trm_host_queue *queue)
{
    if (queue == NULL) {
        return;
    }
    pthread_mutex_lock(&queue->mutex);
    queue->stops = true;
    pthread_cond_signal(&queue->arrives);
    pthread_mutex_unlock(&queue->mutex);
    pthread_join(queue->thread, NULL);
    pthread_mutex_destroy(&queue->mutex);
    pthread_cond_destroy(&queue->arrives);
    pthread_cond_destroy(&queue->empties);
    free(queue->entries);
    free(queue);
}

void trm_host_queue_wait(trm_host_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    while (queue->count > 0) {
        pthread_cond_wait(&queue->empties, &queue->mutex);
    }
    pthread_mutex_unlock(&queue->mutex);
}

/* With the mutex held. The entry at work is copied by its thread, so the ring may move. */
static bool make_room(trm_host_queue *queue)
{
    if (queue->count < queue->capacity) {
        return true;
    }
    entry *larger = calloc(queue->capacity * 2, sizeof(*larger));
    if (larger == NULL) {
        return false;
    }
    for (size_t i = 0; i < queue->count; i++) {
        larger[i] = queue->entries[(queue->first + i) % queue->capacity];
    }
    free(queue->entries);
    queue->entries = larger;
    queue->capacity *= 2;
    queue->first = 0;
    return true;
}

static trm_status enqueue(trm_host_queue *queue, const entry *e)
{
    pthread_mutex_lock(&queue->mutex);
    bool fits = make_room(queue);
    if (fits) {
        queue->entries[(queue->first + queue->count) % queue->capacity] = *e;
        queue->count++;
        pthread_cond_signal(&queue->arrives);
    }
    pthread_mutex_unlock(&queue->mutex);
    return fits ? TRM_OK : trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot queue a copy: out of host memory");
}

trm_status trm_host_queue_move(trm_host_queue *queue, void *to, const void *from, size_t size)
{
    return enqueue(queue, &(entry){.kind = ENTRY_MOVE, .to = to, .from = from, .size = size});
}

trm_status trm_host_queue_move_rows(trm_host_queue *queue, void *to, size_t pitch, const void *from, size_t width,
                                    size_t rows)
{
    return enqueue(queue,
                   &(entry){.kind = ENTRY_ROWS, .to = to, .from = from, .size = width, .pitch = pitch, .rows = rows});
}

trm_status trm_host_queue_call(trm_host_queue *queue, trm_host_call_fn fn, void *to, const void *from, size_t count)
{
    return enqueue(queue, &(entry){.kind = ENTRY_CALL, .to = to, .from = from, .size = count, .fn = fn});
}

trm_status trm_host_queue_record(trm_host_queue *queue, trm_host_point *point)
{
    uint64_t record = trm_host_point_begin(point);
    trm_status status = enqueue(queue, &(entry){.kind = ENTRY_RECORD, .point = point, .record = record});
    if (status != TRM_OK) {
        trm_host_point_pass(point, record); /* nobody else would */
    }
    return status;
}

trm_status trm_host_queue_wait_point(trm_host_queue *queue, trm_host_point *point)
{
    return enqueue(queue, &(entry){.kind = ENTRY_WAIT, .point = point, .record = last_record(point)});
}
