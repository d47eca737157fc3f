/* Starts and ends a job of several ranks. */
#include "dist/parallel/bootstrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "collectives/mpi_library.h"
#include "collectives/wait.h"

/* How long a failing rank waits until its peers know. */
#define NOTICE_SECONDS 1.0

static trm_status start_mpi(bool *finalize)
{
    int initialized = 0, finalized = 0, provided = 0;
    TRM_TRY(trm_mpi_load());
    trm_mpi.MPI_Initialized(&initialized);
    trm_mpi.MPI_Finalized(&finalized);
    if (finalized) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "MPI was already finalized: a process can join a world only once");
    }
    *finalize = !initialized;
    if (!initialized && trm_mpi.MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "MPI_Init_thread failed");
    }
    trm_mpi.MPI_Comm_set_errhandler(trm_mpi.comm_world, trm_mpi.errors_return);
    return TRM_OK;
}

static trm_status open_mpi(trm_bootstrap *b, trm_launcher *launch, double deadline_seconds)
{
    TRM_TRY(start_mpi(&b->finalize));
    b->mpi = true;
    TRM_TRY(trm_transport_mpi_create(deadline_seconds, &b->transport));
    if ((launch->size > 0 && b->transport->size != launch->size) || b->transport->rank != launch->rank) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "MPI says rank %d of %d, but %s variables say rank %d of %d: was trireme built with this MPI",
                 (int)b->transport->rank, (int)b->transport->size, launch->launcher, (int)launch->rank,
                 (int)launch->size);
    }
    launch->size = b->transport->size;
    return TRM_OK;
}

static trm_status open_tcp(trm_bootstrap *b, const trm_launcher *launch, double deadline_seconds)
{
    trm_meeting_point point;
    TRM_TRY(trm_launcher_meeting_point(trm_environment, launch, &point));
    const char *secret = getenv("TRIREME_SECRET");
    const trm_tcp_options options = {.host = point.host,
                                     .port = point.port,
                                     .secret = secret != NULL && *secret != '\0' ? secret : NULL,
                                     .several_hosts = launch->local_size > 0 && launch->local_size < launch->size,
                                     .deadline_seconds = deadline_seconds};
    return trm_transport_tcp_create(launch->rank, launch->size, &options, &b->transport);
}

trm_status trm_bootstrap_open(trm_launcher *launch, double deadline_seconds, trm_bootstrap **bootstrap)
{
    trm_bootstrap *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the bootstrap");
    }
    trm_status status =
        trm_launcher_has_no_mpi(launch) ? open_tcp(b, launch, deadline_seconds) : open_mpi(b, launch, deadline_seconds);
    if (status == TRM_OK) {
        status = trm_communicator_pairwise_create(b->transport, deadline_seconds, &b->control);
    }
    if (status != TRM_OK) {
        if (b->transport != NULL) {
            b->transport->notice.status = status; /* after a failure MPI must not wait for the peers */
        }
        trm_bootstrap_close(b);
        return status;
    }
    *bootstrap = b;
    return TRM_OK;
}

void trm_bootstrap_close(trm_bootstrap *bootstrap)
{
    if (bootstrap == NULL) {
        return;
    }
    bool in_order = bootstrap->transport != NULL && trm_transport_check(bootstrap->transport) == TRM_OK;
    trm_communicator_destroy(bootstrap->control);
    trm_transport_release(bootstrap->transport);
    if (bootstrap->mpi && bootstrap->finalize && in_order) {
        trm_mpi.MPI_Finalize();
    }
    free(bootstrap);
}

trm_status trm_bootstrap_gather(trm_bootstrap *bootstrap, const void *mine, size_t size, void *all)
{
    trm_exchange x = {TRM_ALL_GATHER, TRM_REDUCE_NONE, TRM_U8, mine, all, size, 0};
    return trm_communicator_exchange(bootstrap->control, &x, NULL);
}

trm_status trm_bootstrap_all_ok(trm_bootstrap *bootstrap, trm_status mine)
{
    trm_notice notice = {.rank = bootstrap->transport->rank, .status = (int32_t)mine}, all[TRM_MAX_RANKS];
    if (mine != TRM_OK) {
        snprintf(notice.cause, sizeof(notice.cause), "%s", trm_last_error());
    }
    TRM_TRY(trm_bootstrap_gather(bootstrap, &notice, sizeof(notice), all));
    if (mine != TRM_OK) {
        return trm_fail(mine, "%s", notice.cause); /* as recorded before the collective */
    }
    for (int32_t r = 0; r < bootstrap->transport->size; r++) {
        if (all[r].status != TRM_OK) {
            return trm_fail((trm_status)all[r].status, "rank %d: %.*s", (int)r, (int)sizeof(all[r].cause),
                            all[r].cause);
        }
    }
    return TRM_OK;
}

trm_status trm_bootstrap_status(const trm_bootstrap *bootstrap, trm_status mine)
{
    const trm_notice *notice = &bootstrap->transport->notice;
    bool told = notice->status != TRM_OK && notice->rank != bootstrap->transport->rank;
    return told ? (trm_status)notice->status : mine;
}

/* Over MPI the rank that failed first ends the job once all know; the others only make sure that it ends. Over TCP
 * every rank exits by itself once all know, so that its exit is not mistaken for the cause. */
static void await_end(trm_transport *transport, double seconds)
{
    double start = trm_wait_now(), waited = 0;
    while (waited < seconds) {
        transport->ops->poll(transport);
        trm_wait_pause(waited, TRM_WAIT_YIELDS);
        waited = trm_wait_now() - start;
    }
}

void trm_bootstrap_abort(trm_bootstrap *bootstrap, trm_status status)
{
    trm_transport *transport = bootstrap->transport;
    (void)trm_transport_check(transport);
    trm_notice notice = transport->notice;
    if (notice.status != TRM_OK && notice.rank != transport->rank) {
        await_end(transport, bootstrap->mpi ? 2 * NOTICE_SECONDS : NOTICE_SECONDS / 4);
    } else {
        notice = (trm_notice){.rank = transport->rank, .status = (int32_t)status};
        snprintf(notice.cause, sizeof(notice.cause), "%s", trm_last_error());
        trm_log(TRM_LOG_ERROR, "rank %d failed: %s: %s", (int)notice.rank, trm_status_name(status), notice.cause);
        (void)trm_transport_break(transport, &notice); /* peers that failed too report it themselves */
        transport->ops->notify(transport, &notice, NOTICE_SECONDS);
    }
    int code = trm_status_exit_code((trm_status)notice.status);
    fflush(NULL);
    if (bootstrap->mpi) {
        trm_mpi.MPI_Abort(trm_mpi.comm_world, code);
    }
    _exit(code);
}
