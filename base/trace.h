/*
 * The timeline of this process: spans of time that parts of the engine add while it is recorded, and the text that
 * Perfetto and chrome://tracing read (Trace Event Format).
 *
 * One timeline per process, off until trm_trace_begin; whoever adds asks trm_trace_is_on first, which is one load.
 * Spans lie in rows. The spans of a row are apart or nested; those with an id are rows of their own below theirs. Times
 * are trm_clock_seconds. Any thread.
 */
#ifndef TRM_BASE_TRACE_H
#define TRM_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <trireme/status.h>

extern atomic_bool trm_trace_on_;

static inline bool trm_trace_is_on(void)
{
    return atomic_load_explicit(&trm_trace_on_, memory_order_relaxed);
}

/* Clears the timeline and records from now on. `most` > 0: spans that are kept; of more the oldest are dropped. */
void trm_trace_begin(int32_t most);
/* Records no more; what there is stays until it begins anew or is cleared. */
void trm_trace_end(void);
void trm_trace_clear(void);

/* The row of this name, made when first asked for; the order of rows is that of their making. */
int32_t trm_trace_row(const char *name);
/* The row of the calling thread. */
int32_t trm_trace_thread_row(void);
/* `begin`, or the end of the row's last span if that is later: for rows whose spans have measured times, which may
 * overlap by their error. */
double trm_trace_after(int32_t row, double begin);

/* What is shown of a span beside its name. */
typedef struct trm_trace_value {
    const char *key;
    const char *text; /* NULL: a number */
    int64_t number;
} trm_trace_value;

typedef struct trm_trace_span {
    const char *category, *name; /* copied, as are the values */
    double begin, seconds;
    int32_t row;
    uint64_t id; /* spans of an id nest among themselves alone; 0: none */
    const trm_trace_value *values;
    int32_t n_values;
} trm_trace_span;

/* Does nothing while the timeline is off. A span that memory is missing for counts as dropped. */
void trm_trace_add(const trm_trace_span *span);

/* Writes the events of this process, one a line and each with a comma before its newline: its name with the number
 * of dropped spans, those of its rows, then its spans, in microseconds after `origin` by the clock of rank 0, which is
 * `ahead` seconds ahead of ours. */
void trm_trace_write(FILE *out, int32_t rank, double origin, double ahead);

#endif
