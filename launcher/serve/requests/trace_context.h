/*
 * The trace context of a request (https://www.w3.org/TR/trace-context/): headers by which tools follow it through
 * services. We take part in no trace: what comes is checked, logged and passed through.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_TRACE_CONTEXT_H
#define TRM_LAUNCHER_SERVE_REQUESTS_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_PARENT_SIZE 56  /* of version 00, with its NUL */
#define TRACE_STATE_SIZE  513 /* 512 characters must be passed on, more may be dropped */

/* Zero-initialized is none. */
typedef struct trace_context {
    char parent[TRACE_PARENT_SIZE]; /* "" if the request has none */
    char state[TRACE_STATE_SIZE];   /* "" likewise; members of several headers are joined */
    int32_t n_parents;
    bool bad_state;
} trace_context;

/* Takes a header of the request into account, if it is one of these; any case. */
void trace_context_take(trace_context *trace, const char *name, size_t name_size, const char *value, size_t size);
/* After the last header: drops what the standard says to ignore, which is both if `traceparent` is wrong, and the state
 * alone if `tracestate` is. */
void trace_context_check(trace_context *trace);

#endif
