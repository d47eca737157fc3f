/*
 * A thread that answers what the device asks in pinned host memory: it looks at a number there, often after a request,
 * then less often. So no host call is part of a step.
 */
#ifndef TRM_WEIGHT_STREAM_OFFLOAD_MAIL_THREAD_H
#define TRM_WEIGHT_STREAM_OFFLOAD_MAIL_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/device/device.h"

typedef struct trm_mail_thread {
    const int64_t *posted; /* number of the last request, which the device writes last */
    trm_host_task_fn answer;
    void *user;
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
} trm_mail_thread;

/* Calls `answer` whenever *posted has changed, which is 0 at first. */
trm_status trm_mail_thread_start(trm_mail_thread *mail, const int64_t *posted, trm_host_task_fn answer, void *user);
/* Waits until a running answer has ended. Does nothing if it was not started and is zero. */
void trm_mail_thread_stop(trm_mail_thread *mail);

#endif
