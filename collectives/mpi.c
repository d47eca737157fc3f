/*
 * The transport over MPI: nonblocking messages, polled until the deadline, and a separate communicator for notices.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "collectives/mpi_library.h"
#include "collectives/transport.h"
#include "collectives/wait.h"

size_t trm_mpi_message_size = (size_t)1 << 30;

enum { TAG_NOTICE = 1, TAG_SEEN = 2 };

typedef struct mpi_transport {
    trm_transport base;
    MPI_Comm data, control;
    MPI_Request *requests; /* [capacity] of the current transfer */
    MPI_Status *states;    /* [capacity] */
    int32_t *peers;        /* [capacity] */
    int32_t n, n_sends, capacity;
    double yields;              /* of waits, in seconds */
    MPI_Request notice_request; /* always posted */
    trm_notice incoming, outgoing;
} mpi_transport;

static trm_status mpi_failed(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    trm_mpi.MPI_Error_string(code, text, &length);
    return trm_fail(TRM_ERROR_INTERNAL, "%s failed: %s", call, text);
}

#define MPI_TRY(call, name)                                                                                            \
    do {                                                                                                               \
        int mpi_try_code_ = (call);                                                                                    \
        if (mpi_try_code_ != MPI_SUCCESS) {                                                                            \
            return mpi_failed(mpi_try_code_, name);                                                                    \
        }                                                                                                              \
    } while (0)

static trm_status reserve(mpi_transport *t, size_t n)
{
    if (n <= (size_t)t->capacity) {
        return TRM_OK;
    }
    size_t capacity = n * 2;
    MPI_Request *requests = realloc(t->requests, capacity * sizeof(*requests));
    t->requests = requests != NULL ? requests : t->requests;
    MPI_Status *states = realloc(t->states, capacity * sizeof(*states));
    t->states = states != NULL ? states : t->states;
    int32_t *peers = realloc(t->peers, capacity * sizeof(*peers));
    t->peers = peers != NULL ? peers : t->peers;
    if (requests == NULL || states == NULL || peers == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu requests", capacity);
    }
    t->capacity = (int32_t)capacity;
    return TRM_OK;
}

/* Posts one message in pieces that MPI's int counts can hold. */
static trm_status post(mpi_transport *t, const trm_message *message, bool send, int tag)
{
    unsigned char *bytes = message->bytes;
    for (size_t at = 0; at < message->size; at += trm_mpi_message_size) {
        size_t rest = message->size - at;
        int size = (int)(rest < trm_mpi_message_size ? rest : trm_mpi_message_size);
        MPI_Request *request = &t->requests[t->n];
        if (send) {
            MPI_TRY(trm_mpi.MPI_Isend(bytes + at, size, trm_mpi.byte, message->peer, tag, t->data, request),
                    "MPI_Isend");
        } else {
            MPI_TRY(trm_mpi.MPI_Irecv(bytes + at, size, trm_mpi.byte, message->peer, tag, t->data, request),
                    "MPI_Irecv");
        }
        t->peers[t->n++] = message->peer;
    }
    return TRM_OK;
}

static size_t count_pieces(const trm_message *messages, int32_t n)
{
    size_t pieces = 0;
    for (int32_t i = 0; i < n; i++) {
        pieces += (messages[i].size + trm_mpi_message_size - 1) / trm_mpi_message_size;
    }
    return pieces;
}

/* After a failure: cancels pending receives. Sends cannot be cancelled, so the transport stays broken. */
static void abandon(mpi_transport *t)
{
    for (int32_t i = 0; i < t->n; i++) {
        if (t->requests[i] == trm_mpi.request_null) {
            continue;
        }
        if (i >= t->n_sends) {
            trm_mpi.MPI_Cancel(&t->requests[i]);
            trm_mpi.MPI_Wait(&t->requests[i], MPI_STATUS_IGNORE);
        } else {
            trm_mpi.MPI_Request_free(&t->requests[i]);
        }
    }
    t->n = 0;
}

static trm_status fail_missing(mpi_transport *t, double deadline_seconds)
{
    int32_t missing = -1;
    /* Receives come after sends, and say more: a small send finishes before its receiver arrives. */
    for (int32_t i = t->n - 1; i >= 0 && missing < 0; i--) {
        int done = 1;
        if (trm_mpi.MPI_Request_get_status(t->requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done) {
            missing = t->peers[i];
        }
    }
    return trm_transport_lost(&t->base, missing < 0 ? t->peers[0] : missing, "did not arrive within %g s",
                              deadline_seconds);
}

static trm_status wait_all(mpi_transport *t, double deadline_seconds)
{
    double start = trm_wait_now();
    for (;;) {
        int done = 0;
        int code = trm_mpi.MPI_Testall((int)t->n, t->requests, &done, t->states);
        if (code == MPI_ERR_IN_STATUS) {
            int32_t i = 0;
            while (i + 1 < t->n &&
                   (t->states[i].MPI_ERROR == MPI_SUCCESS || t->states[i].MPI_ERROR == MPI_ERR_PENDING)) {
                i++;
            }
            char text[MPI_MAX_ERROR_STRING] = "";
            int length = 0;
            trm_mpi.MPI_Error_string(t->states[i].MPI_ERROR, text, &length);
            return trm_transport_lost(&t->base, t->peers[i], "sent an unexpected message, or is gone: %s", text);
        }
        MPI_TRY(code, "MPI_Testall");
        if (done) {
            return TRM_OK;
        }
        TRM_TRY(trm_transport_check(&t->base));
        double waited = trm_wait_now() - start;
        if (waited > deadline_seconds) {
            return fail_missing(t, deadline_seconds);
        }
        trm_wait_pause(waited, t->yields);
    }
}

/* A message shorter than expected completes without an error. */
static trm_status check_sizes(mpi_transport *t, const trm_message *receives, int32_t n_receives)
{
    int32_t at = t->n_sends;
    for (int32_t i = 0; i < n_receives; i++) {
        size_t came = 0;
        for (size_t left = receives[i].size; left > 0;) {
            int size = 0;
            trm_mpi.MPI_Get_count(&t->states[at++], trm_mpi.byte, &size);
            came += (size_t)size;
            left -= left < trm_mpi_message_size ? left : trm_mpi_message_size;
        }
        if (came != receives[i].size) {
            return trm_transport_lost(&t->base, receives[i].peer, "sent %zu bytes, expected %zu", came,
                                      receives[i].size);
        }
    }
    return TRM_OK;
}

static trm_status mpi_transfer(trm_transport *transport, uint32_t channel, double deadline_seconds,
                               const trm_message *sends, int32_t n_sends, const trm_message *receives,
                               int32_t n_receives)
{
    mpi_transport *t = (mpi_transport *)transport;
    TRM_TRY(reserve(t, count_pieces(sends, n_sends) + count_pieces(receives, n_receives)));
    trm_status status = TRM_OK;
    t->n = 0;
    for (int32_t i = 0; i < n_sends && status == TRM_OK; i++) {
        status = post(t, &sends[i], true, (int)channel);
    }
    t->n_sends = t->n;
    for (int32_t i = 0; i < n_receives && status == TRM_OK; i++) {
        status = post(t, &receives[i], false, (int)channel);
    }
    if (status == TRM_OK) {
        status = wait_all(t, deadline_seconds);
    }
    if (status != TRM_OK) {
        abandon(t);
        if (transport->notice.status == TRM_OK) { /* MPI itself failed: some messages may be in flight */
            trm_notice notice = {.rank = transport->rank, .status = (int32_t)status};
            snprintf(notice.cause, sizeof(notice.cause), "%s", trm_last_error());
            trm_transport_break(transport, &notice);
        }
        return status;
    }
    return check_sizes(t, receives, n_receives);
}

static void post_notice_receive(mpi_transport *t)
{
    if (trm_mpi.MPI_Irecv(&t->incoming, (int)sizeof(t->incoming), trm_mpi.byte, MPI_ANY_SOURCE, TAG_NOTICE, t->control,
                          &t->notice_request) != MPI_SUCCESS) {
        t->notice_request = trm_mpi.request_null;
    }
}

static void mpi_poll(trm_transport *transport)
{
    mpi_transport *t = (mpi_transport *)transport;
    int came = 0;
    MPI_Status state;
    if (t->notice_request == trm_mpi.request_null ||
        trm_mpi.MPI_Test(&t->notice_request, &came, &state) != MPI_SUCCESS || !came) {
        return;
    }
    trm_transport_break(transport, &t->incoming);
    /* The sender waits for this, so that all ranks know the cause before the job ends. */
    MPI_Request request;
    if (trm_mpi.MPI_Isend(NULL, 0, trm_mpi.byte, state.MPI_SOURCE, TAG_SEEN, t->control, &request) == MPI_SUCCESS) {
        trm_mpi.MPI_Request_free(&request);
    }
    post_notice_receive(t);
}

static void mpi_notify(trm_transport *transport, const trm_notice *notice, double seconds)
{
    mpi_transport *t = (mpi_transport *)transport;
    MPI_Request requests[2 * TRM_MAX_RANKS];
    int n = 0;
    t->outgoing = *notice;
    for (int32_t r = 0; r < transport->size; r++) {
        if (r == transport->rank) {
            continue;
        }
        n += trm_mpi.MPI_Isend(&t->outgoing, (int)sizeof(t->outgoing), trm_mpi.byte, r, TAG_NOTICE, t->control,
                               &requests[n]) == MPI_SUCCESS;
        n += trm_mpi.MPI_Irecv(NULL, 0, trm_mpi.byte, r, TAG_SEEN, t->control, &requests[n]) == MPI_SUCCESS;
    }
    double start = trm_wait_now(), waited = 0;
    int done = 0;
    while (trm_mpi.MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE) == MPI_SUCCESS && !done && waited < seconds) {
        mpi_poll(transport); /* a peer that failed at the same time waits for us as well */
        trm_wait_pause(waited, t->yields);
        waited = trm_wait_now() - start;
    }
    for (int i = 0; i < n && !done; i++) {
        if (requests[i] != trm_mpi.request_null) {
            trm_mpi.MPI_Request_free(&requests[i]);
        }
    }
}

static void mpi_destroy(trm_transport *transport)
{
    mpi_transport *t = (mpi_transport *)transport;
    int finalized = 0;
    trm_mpi.MPI_Finalized(&finalized);
    if (!finalized && transport->notice.status == TRM_OK) { /* else peers may be gone, and MPI would wait for them */
        if (t->notice_request != trm_mpi.request_null) {
            trm_mpi.MPI_Cancel(&t->notice_request);
            trm_mpi.MPI_Wait(&t->notice_request, MPI_STATUS_IGNORE);
        }
        if (t->data != trm_mpi.comm_null) {
            trm_mpi.MPI_Comm_free(&t->data);
        }
        if (t->control != trm_mpi.comm_null) {
            trm_mpi.MPI_Comm_free(&t->control);
        }
    }
    free(t->requests);
    free(t->states);
    free(t->peers);
    free(t);
}

static const trm_transport_ops mpi_ops = {"mpi", mpi_transfer, mpi_notify, mpi_poll, mpi_destroy};

static trm_status duplicate_world(MPI_Comm *made, double deadline_seconds)
{
    MPI_Request request;
    MPI_TRY(trm_mpi.MPI_Comm_idup(trm_mpi.comm_world, made, &request), "MPI_Comm_idup");
    double start = trm_wait_now();
    for (;;) {
        int done = 0;
        MPI_TRY(trm_mpi.MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done) {
            break;
        }
        double waited = trm_wait_now() - start;
        if (waited > deadline_seconds) {
            TRM_FAIL(TRM_ERROR_LOST_RANK, "not all ranks joined within %g s", deadline_seconds);
        }
        trm_wait_pause(waited, TRM_WAIT_YIELDS);
    }
    MPI_TRY(trm_mpi.MPI_Comm_set_errhandler(*made, trm_mpi.errors_return), "MPI_Comm_set_errhandler");
    return TRM_OK;
}

/* Whether this host has more ranks than CPUs, as far as the launcher says how many ranks it has. */
static bool is_crowded(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    bool crowded = false;
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *text = getenv(variables[i]);
        crowded = crowded || (text != NULL && strtol(text, NULL, 10) > cpus);
    }
    return crowded && cpus > 0;
}

trm_status trm_transport_mpi_create(double deadline_seconds, trm_transport **transport)
{
    int initialized = 0, rank = 0, size = 0;
    TRM_TRY(trm_mpi_load());
    trm_mpi.MPI_Initialized(&initialized);
    if (!initialized) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "MPI is not initialized");
    }
    MPI_TRY(trm_mpi.MPI_Comm_rank(trm_mpi.comm_world, &rank), "MPI_Comm_rank");
    MPI_TRY(trm_mpi.MPI_Comm_size(trm_mpi.comm_world, &size), "MPI_Comm_size");
    if (size > TRM_MAX_RANKS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the job has %d ranks, expected at most %d", size, TRM_MAX_RANKS);
    }
    mpi_transport *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the MPI transport");
    }
    t->base = (trm_transport){.ops = &mpi_ops, .rank = rank, .size = size, .users = 1};
    t->data = t->control = trm_mpi.comm_null;
    t->yields = is_crowded() ? TRM_WAIT_CROWDED_YIELDS : TRM_WAIT_YIELDS;
    t->notice_request = trm_mpi.request_null;
    trm_status status = duplicate_world(&t->data, deadline_seconds);
    if (status == TRM_OK) {
        status = duplicate_world(&t->control, deadline_seconds);
    }
    if (status != TRM_OK) {
        t->base.notice.status = status; /* half-made communicators are left to MPI */
        mpi_destroy(&t->base);
        return status;
    }
    post_notice_receive(t);
    *transport = &t->base;
    return TRM_OK;
}
