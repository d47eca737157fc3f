/*
 * Standard error for a server that must not stall when nobody reads it: lines wait in a bounded queue for a thread that
 * writes them. What does not fit is dropped and counted; the count is written once there is room.
 */
#ifndef TRM_LAUNCHER_SERVE_LOG_LOG_WRITER_H
#define TRM_LAUNCHER_SERVE_LOG_LOG_WRITER_H

#include <stdbool.h>
#include <stddef.h>

#include <trireme/status.h>

typedef struct log_writer log_writer;

/* Writes to descriptor `to`, which stays the caller's. */
trm_status log_writer_create(int to, log_writer **result);
/* Waits up to `seconds` until everything is written. Returns false if something was left: `to` then blocks, and a
 * thread may still write to it. Accepts NULL. */
bool log_writer_destroy(log_writer *w, double seconds);

/* Queues whole lines, from any thread; never waits for `to`. */
void log_write(log_writer *w, const char *lines, size_t size);
/* Queues "trireme: " and one formatted line. */
void log_print(log_writer *w, const char *format, ...) TRM_PRINTF(2, 3);

/* The end of a pipe for the output of child processes, which is queued as well; close-on-exec. */
int log_writer_pipe(const log_writer *w);

#endif
