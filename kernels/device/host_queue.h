/*
 * Copies of a host stream that runs beside others: a thread and the queue it works off, and points in streams that may
 * be reached late. Points mean what CUDA events mean: a wait is for the last record before it.
 */
#ifndef TRM_KERNELS_DEVICE_HOST_QUEUE_H
#define TRM_KERNELS_DEVICE_HOST_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <trireme/status.h>

typedef struct trm_host_point {
    pthread_mutex_t mutex;
    pthread_cond_t passes;
    uint64_t begun, passed; /* records asked for, records reached */
    struct timespec time;   /* of the last one reached */
} trm_host_point;

void trm_host_point_init(trm_host_point *point);
void trm_host_point_fini(trm_host_point *point);
/* Number of a new record, to be passed. */
uint64_t trm_host_point_begin(trm_host_point *point);
void trm_host_point_pass(trm_host_point *point, uint64_t record);
/* Until the last record begun has passed. */
void trm_host_point_wait(trm_host_point *point);
bool trm_host_point_passed(trm_host_point *point);
/* When the last one passed; false if none has. */
bool trm_host_point_time(trm_host_point *point, struct timespec *time);

typedef struct trm_host_queue trm_host_queue;

trm_status trm_host_queue_create(trm_host_queue **queue);
/* Waits for what is queued; NULL is ignored. */
void trm_host_queue_destroy(trm_host_queue *queue);
void trm_host_queue_wait(trm_host_queue *queue);
/* Copies, or fills with zeros where `from` is NULL. These allocate only while the queue is longer than ever before. */
trm_status trm_host_queue_move(trm_host_queue *queue, void *to, const void *from, size_t size);
/* `rows` of `width` bytes, packed, to places `pitch` bytes apart. */
void trm_host_move_rows(void *to, size_t pitch, const void *from, size_t width, size_t rows);
trm_status trm_host_queue_move_rows(trm_host_queue *queue, void *to, size_t pitch, const void *from, size_t width,
                                    size_t rows);
/* Calls fn(NULL, to, from, count). */
typedef void (*trm_host_call_fn)(void *pool, void *to, const void *from, size_t count);
trm_status trm_host_queue_call(trm_host_queue *queue, trm_host_call_fn fn, void *to, const void *from, size_t count);
trm_status trm_host_queue_record(trm_host_queue *queue, trm_host_point *point);
/* What is queued later waits until the last record begun by now has passed. */
trm_status trm_host_queue_wait_point(trm_host_queue *queue, trm_host_point *point);

#endif
