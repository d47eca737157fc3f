/*
 * Messages between the front end and the ranks over a Unix socket: frames of a kind and a payload. Both ends are the
 * same program on the same machine, so numbers are in native byte order. Readers trust nothing: sizes are bounded and
 * checked.
 */
#ifndef TRM_LAUNCHER_SERVE_IPC_IPC_FRAMES_H
#define TRM_LAUNCHER_SERVE_IPC_IPC_FRAMES_H

#include <trireme/serving.h>

#include "launcher/text/strings/buffer.h"

#define IPC_VERSION       9
#define IPC_LONGEST_FRAME ((size_t)64 << 20)

typedef enum ipc_kind {
    IPC_HELLO = 1, /* rank -> front, first: ipc_hello */
    IPC_READY,     /* rank 0 -> front: ipc_ready */
    IPC_FAILED,    /* rank -> front: ipc_failure; its last message */
    IPC_EVENT,     /* rank 0 -> front: ipc_event */
    IPC_REFUSED,   /* rank 0 -> front: ipc_refusal */
    IPC_STATS,     /* rank 0 -> front: trm_scheduler_stats */
    IPC_STALLS,    /* rank 0 -> front: ipc_stalls */
    IPC_ADAPTER,   /* rank 0 -> front: ipc_adapter; what became of IPC_LOAD */
    IPC_SUBMIT,    /* front -> rank 0: ipc_submission */
    IPC_CANCEL,    /* front -> rank 0: an id */
    IPC_LOAD,      /* front -> rank 0: ipc_adapter; load an adapter */
    IPC_UNLOAD,    /* front -> rank 0: ipc_adapter */
    IPC_END,       /* front -> rank 0: no more requests, finish and exit */
    IPC_KIND_COUNT
} ipc_kind;

typedef struct ipc_hello {
    uint32_t version;
    int32_t rank, ranks;
    int64_t pid;
    int32_t leads; /* the connection for requests and events; over the other one the rank gets the heartbeat memory */
} ipc_hello;

typedef struct ipc_ready {
    int64_t max_context, cache_tokens;
    int32_t max_sequences, block_tokens;
    double load_seconds;
} ipc_ready;

/* Text lives as long as the frame. */
typedef struct ipc_failure {
    trm_status status;
    const char *cause;
} ipc_failure;

typedef struct ipc_refusal {
    uint64_t id;
    trm_status status;
    const char *cause;
} ipc_refusal;

/* Waits of layers for streamed weights in a profiled step. Text lives as long as the frame. */
typedef struct ipc_stalls {
    int64_t steps;      /* profiled so far */
    const char *layers; /* lines of seconds, a space and a layer name */
} ipc_stalls;

/* An adapter, which the front end names by its key. Text lives as long as the frame. */
typedef struct ipc_adapter {
    int32_t key;
    trm_status status; /* of IPC_ADAPTER */
    const char *text;  /* the folder, or why it cannot be loaded */
} ipc_adapter;

/* A request and its grammar. Arrays belong to the frame it was read from, or to the sender. */
typedef struct ipc_submission {
    trm_serving_request request;
    int32_t grammar_kind; /* api_format; 0: none */
    const char *grammar;
} ipc_submission;

/* The embedding lives as long as the frame. */
typedef struct ipc_event {
    trm_serving_event event;
    trm_token_logprob top[TRM_MAX_TOP_LOGPROBS]; /* after reading, event.top points here */
} ipc_event;

/* A frame under construction: appended to `out` between ipc_begin and ipc_end. Allocation failures are kept in status.
 */
typedef struct ipc_writer {
    trm_bytes *out;
    size_t start;
    trm_status status;
} ipc_writer;

ipc_writer ipc_begin(trm_bytes *out, ipc_kind kind);
void ipc_put(ipc_writer *writer, const void *bytes, size_t size);
/* Completes the frame, or removes it after a failure. */
trm_status ipc_end(ipc_writer *writer);

/* Append complete frames to `out`. */
trm_status ipc_write(trm_bytes *out, ipc_kind kind, const void *payload, size_t size);
trm_status ipc_write_failure(trm_bytes *out, trm_status failure, const char *cause);
trm_status ipc_write_refusal(trm_bytes *out, uint64_t id, trm_status failure, const char *cause);
trm_status ipc_write_adapter(trm_bytes *out, ipc_kind kind, const ipc_adapter *adapter);
trm_status ipc_write_stalls(trm_bytes *out, const ipc_stalls *stalls);
trm_status ipc_write_submission(trm_bytes *out, const ipc_submission *submission);
trm_status ipc_write_event(trm_bytes *out, const trm_serving_event *event);

/* A frame within received bytes. */
typedef struct ipc_frame {
    ipc_kind kind;
    const char *payload;
    size_t size;  /* of the payload */
    size_t whole; /* bytes of the frame, header included */
} ipc_frame;

/* Reads the frame at the beginning of data [size]; *complete is false if more bytes are needed. IO: not a frame of
 * ours. */
trm_status ipc_next(const char *data, size_t size, bool *complete, ipc_frame *frame);

/* Reads a payload of exactly `size` bytes. */
trm_status ipc_read(const ipc_frame *frame, void *payload, size_t size);
trm_status ipc_read_failure(const ipc_frame *frame, ipc_failure *failure);
trm_status ipc_read_refusal(const ipc_frame *frame, ipc_refusal *refusal);
trm_status ipc_read_adapter(const ipc_frame *frame, ipc_adapter *adapter);
trm_status ipc_read_stalls(const ipc_frame *frame, ipc_stalls *stalls);
trm_status ipc_read_submission(const ipc_frame *frame, ipc_submission *submission);
trm_status ipc_read_event(const ipc_frame *frame, ipc_event *event);

#endif
