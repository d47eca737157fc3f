/* Two threads: one writes the queue, where it may block; one reads the pipe of child processes, which never does. A
 * thread that is blocked when the log ends keeps what it needs. */
#include "launcher/serve/log/log_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

#define CAPACITY ((size_t)256 << 10) /* bytes of the queue, and of what is being written */
#define LONGEST  ((size_t)16 << 10)  /* bytes of a child's line; a longer one is queued in parts */

struct log_writer {
    int to, pipe[2], stop;
    pthread_mutex_t lock;
    pthread_cond_t more, idle;
    char *queue, *writing; /* [CAPACITY] */
    size_t size;           /* of the queue */
    size_t dropped;        /* lines, since the last report */
    bool busy, stops;      /* stops: nothing more will be queued */
    atomic_bool abandoned; /* the writing thread is left alone with all this, blocked */
    int n_threads;
    pthread_t threads[2];
};

static void release(log_writer *w)
{
    const int open[] = {w->stop, w->pipe[0], w->pipe[1]};
    for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++) {
        if (open[i] >= 0) {
            close(open[i]);
        }
    }
    pthread_cond_destroy(&w->more);
    pthread_cond_destroy(&w->idle);
    pthread_mutex_destroy(&w->lock);
    free(w->queue);
    free(w->writing);
    free(w);
}

static void write_out(log_writer *w, const char *bytes, size_t size)
{
    for (size_t at = 0; at < size && !atomic_load(&w->abandoned);) {
        ssize_t n = write(w->to, bytes + at, size - at);
        if (n > 0) {
            at += (size_t)n;
        } else if (errno == EAGAIN) { /* of whoever else has this file */
            (void)poll(&(struct pollfd){.fd = w->to, .events = POLLOUT}, 1, 1000);
        } else if (errno != EINTR) {
            return;
        }
    }
}

static void *write_queue(void *user)
{
    log_writer *w = user;
    for (;;) {
        char report[96] = "";
        pthread_mutex_lock(&w->lock);
        w->busy = false;
        pthread_cond_signal(&w->idle);
        while (w->size == 0 && w->dropped == 0 && !w->stops) {
            pthread_cond_wait(&w->more, &w->lock);
        }
        if (atomic_load(&w->abandoned) || (w->size == 0 && w->dropped == 0)) {
            break;
        }
        char *bytes = w->queue;
        size_t size = w->size;
        w->queue = w->writing;
        w->writing = bytes;
        w->size = 0;
        w->busy = true;
        if (w->dropped > 0) {
            snprintf(report, sizeof(report), "trireme: dropped %zu lines of the log, which nobody read\n", w->dropped);
            w->dropped = 0;
        }
        pthread_mutex_unlock(&w->lock);
        write_out(w, bytes, size);
        write_out(w, report, strlen(report));
    }
    pthread_mutex_unlock(&w->lock);
    if (atomic_load(&w->abandoned)) {
        release(w);
    }
    return NULL;
}

/* Queues what ends in a line end, or is too long for a line; returns how much is left, at the start. */
static size_t queue_lines(log_writer *w, char *bytes, size_t size)
{
    size_t end = size;
    while (end > 0 && bytes[end - 1] != '\n') {
        end--;
    }
    end = end == 0 && size == LONGEST ? size : end;
    log_write(w, bytes, end);
    memmove(bytes, bytes + end, size - end);
    return size - end;
}

static void *read_pipe(void *user)
{
    log_writer *w = user;
    char bytes[LONGEST];
    size_t size = 0;
    struct pollfd both[] = {{.fd = w->pipe[0], .events = POLLIN}, {.fd = w->stop, .events = POLLIN}};
    for (;;) {
        ssize_t n = read(w->pipe[0], bytes + size, sizeof(bytes) - size);
        if (n > 0) {
            size = queue_lines(w, bytes, size + (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || both[1].revents != 0) {
            break;
        } else {
            (void)poll(both, 2, -1);
        }
    }
    log_write(w, bytes, size);
    return NULL;
}

static trm_status start_threads(log_writer *w)
{
    static void *(*const runs[])(void *) = {write_queue, read_pipe};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a reader that is gone must not end the server */
    while (w->n_threads < 2 && pthread_create(&w->threads[w->n_threads], NULL, runs[w->n_threads], w) == 0) {
        w->n_threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return w->n_threads == 2 ? TRM_OK : trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot start the threads of the log");
}

static trm_status open_writer(log_writer *w)
{
    w->queue = malloc(CAPACITY);
    w->writing = malloc(CAPACITY);
    if (w->queue == NULL || w->writing == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the queue of the log");
    }
    w->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->stop < 0 || pipe2(w->pipe, O_CLOEXEC) != 0 || fcntl(w->pipe[0], F_SETFL, O_NONBLOCK) != 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot open a pipe for the log: %s", strerror(errno));
    }
    return start_threads(w);
}

trm_status log_writer_create(int to, log_writer **result)
{
    log_writer *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the log");
    }
    w->to = to;
    w->stop = w->pipe[0] = w->pipe[1] = -1;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->idle, &clock);
    pthread_condattr_destroy(&clock);
    pthread_cond_init(&w->more, NULL);
    pthread_mutex_init(&w->lock, NULL);
    trm_status status = open_writer(w);
    if (status != TRM_OK) {
        log_writer_destroy(w, 0);
        return status;
    }
    *result = w;
    return TRM_OK;
}

/* Whether everything is written before the time is over; if not, the writing thread gets *w. */
static bool await_idle(log_writer *w, double seconds)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)seconds;
    int failure = 0;
    pthread_mutex_lock(&w->lock);
    w->stops = true;
    pthread_cond_signal(&w->more);
    while (failure == 0 && (w->busy || w->size > 0 || w->dropped > 0)) {
        failure = pthread_cond_timedwait(&w->idle, &w->lock, &end);
    }
    if (failure != 0) {
        pthread_detach(w->threads[0]);
        atomic_store(&w->abandoned, true);
    }
    pthread_mutex_unlock(&w->lock);
    return failure == 0;
}

bool log_writer_destroy(log_writer *w, double seconds)
{
    if (w == NULL) {
        return true;
    }
    if (w->n_threads > 1) {
        (void)!write(w->stop, &(uint64_t){1}, sizeof(uint64_t));
        pthread_join(w->threads[1], NULL);
    }
    if (w->n_threads > 0) {
        if (!await_idle(w, seconds)) {
            return false;
        }
        pthread_join(w->threads[0], NULL);
    }
    release(w);
    return true;
}

void log_write(log_writer *w, const char *lines, size_t size)
{
    pthread_mutex_lock(&w->lock);
    if (size <= CAPACITY - w->size) {
        memcpy(w->queue + w->size, lines, size);
        w->size += size;
    } else {
        for (const char *at = lines; at < lines + size; at++) {
            w->dropped += *at == '\n' || at + 1 == lines + size;
        }
    }
    pthread_cond_signal(&w->more);
    pthread_mutex_unlock(&w->lock);
}

void log_print(log_writer *w, const char *format, ...)
{
    static const char name[] = "trireme: ";
    char line[2560];
    memcpy(line, name, sizeof(name));
    va_list args;
    va_start(args, format);
    int size = vsnprintf(line + sizeof(name) - 1, sizeof(line) - sizeof(name), format, args);
    va_end(args);
    size_t end = strlen(line);
    if (size >= 0) {
        line[end] = '\n';
        log_write(w, line, end + 1);
    }
}

int log_writer_pipe(const log_writer *w)
{
    return w->pipe[1];
}
