/*
 * What the front end and the ranks say to each other over a Unix socket: frames of a kind and a payload, and what is
 * written in them. Both ends are the same program on the same machine, so numbers lie in its byte order; still nothing
 * that is read is trusted: sizes are bounded and checked.
 */
#ifndef TRM_LAUNCHER_SERVE_IPC_WIRE_H
#define TRM_LAUNCHER_SERVE_IPC_WIRE_H

#include <trireme/serving.h>

#include "launcher/text/strings/buffer.h"

#define WIRE_VERSION       7
#define WIRE_LONGEST_FRAME ((size_t)64 << 20)

typedef enum wire_kind {
    WIRE_HELLO = 1, /* rank -> front, first: wire_hello */
    WIRE_READY,     /* rank 0 -> front: wire_ready */
    WIRE_FAILED,    /* rank -> front: wire_failure; the last thing it says */
    WIRE_EVENT,     /* rank 0 -> front: wire_event */
    WIRE_REFUSED,   /* rank 0 -> front: wire_refusal */
    WIRE_STATS,     /* rank 0 -> front: trm_scheduler_stats */
    WIRE_STALLS,    /* rank 0 -> front: wire_stalls */
    WIRE_SUBMIT,    /* front -> rank 0: wire_submission */
    WIRE_CANCEL,    /* front -> rank 0: an id */
    WIRE_END,       /* front -> rank 0: no more requests, leave in order */
    WIRE_KIND_COUNT
} wire_kind;

typedef struct wire_hello {
    uint32_t version;
    int32_t rank, ranks;
    int64_t pid;
    int32_t leads; /* the connection for requests and events; by the other one the rank gets the memory for its beats */
} wire_hello;

typedef struct wire_ready {
    int64_t max_context, cache_tokens;
    int32_t max_sequences, block_tokens;
    double load_seconds;
} wire_ready;

/* Text lives as long as the frame. */
typedef struct wire_failure {
    trm_status status;
    const char *cause;
} wire_failure;

typedef struct wire_refusal {
    uint64_t id;
    trm_status status;
    const char *cause;
} wire_refusal;

/* What the layers of a step that was looked at waited for weights. Text lives as long as the frame. */
typedef struct wire_stalls {
    int64_t steps;      /* looked at so far */
    const char *layers; /* lines of seconds, a space and a layer's name */
} wire_stalls;

/* A request and its grammar. Arrays live as long as the frame it was read from, or are the sender's. */
typedef struct wire_submission {
    trm_serving_request request;
    int32_t grammar_kind; /* api_format; 0: none */
    const char *grammar;
} wire_submission;

/* The embedding lives as long as the frame. */
typedef struct wire_event {
    trm_serving_event event;
    trm_token_logprob top[TRM_MAX_TOP_LOGPROBS]; /* event.top points here once read */
} wire_event;

/* A frame lies in `out` from wire_begin to wire_end, after whatever is there already. Allocation failures stick in
 * *status. */
typedef struct wire_writer {
    trm_bytes *out;
    size_t start;
    trm_status status;
} wire_writer;

wire_writer wire_begin(trm_bytes *out, wire_kind kind);
void wire_put(wire_writer *writer, const void *bytes, size_t size);
/* Completes the frame, or takes it back. */
trm_status wire_end(wire_writer *writer);

/* Whole frames into `out`. */
trm_status wire_write(trm_bytes *out, wire_kind kind, const void *payload, size_t size);
trm_status wire_write_failure(trm_bytes *out, trm_status failure, const char *cause);
trm_status wire_write_refusal(trm_bytes *out, uint64_t id, trm_status failure, const char *cause);
trm_status wire_write_stalls(trm_bytes *out, const wire_stalls *stalls);
trm_status wire_write_submission(trm_bytes *out, const wire_submission *submission);
trm_status wire_write_event(trm_bytes *out, const trm_serving_event *event);

/* A frame within received bytes. */
typedef struct wire_frame {
    wire_kind kind;
    const char *payload;
    size_t size;  /* of the payload */
    size_t whole; /* bytes of the frame with its header */
} wire_frame;

/* The frame at the beginning of data [size]; *complete is false where more bytes are needed. IO: no frame of ours. */
trm_status wire_next(const char *data, size_t size, bool *complete, wire_frame *frame);

/* A payload that is just `size` bytes. */
trm_status wire_read(const wire_frame *frame, void *payload, size_t size);
trm_status wire_read_failure(const wire_frame *frame, wire_failure *failure);
trm_status wire_read_refusal(const wire_frame *frame, wire_refusal *refusal);
trm_status wire_read_stalls(const wire_frame *frame, wire_stalls *stalls);
trm_status wire_read_submission(const wire_frame *frame, wire_submission *submission);
trm_status wire_read_event(const wire_frame *frame, wire_event *event);

#endif
