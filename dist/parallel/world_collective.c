/*
 * Collective operations on an embedder's buffers, in host or device memory.
 *
 * Host memory uses the bootstrap's control communicator, on every backend; device memory uses the communicator of
 * layers.
 */
#include "dist/parallel/world.h"

#include <sched.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/recorder.h"

trm_status trm_world_await(trm_world *world, trm_event *event, const char *what)
{
    double deadline = trm_clock_seconds() + world->deadline_seconds;
    for (int64_t turn = 0;; turn++) {
        bool passed;
        TRM_TRY(trm_event_query(event, &passed));
        if (passed) { /* kernels that waited for a lost peer have ended too */
            return world->size > 1 ? trm_communicator_check(world->communicator) : TRM_OK;
        }
        if (turn % 256 == 255) {
            TRM_TRY(trm_communicator_check(world->communicator));
            if (world->size > 1 && trm_clock_seconds() > deadline) {
                trm_communicator_abort(world->communicator);
                TRM_FAIL(TRM_ERROR_LOST_RANK, "rank %d waited %.0f s for its peers in %s", (int)world->rank,
                         world->deadline_seconds, what);
            }
            sched_yield();
        }
    }
}

/* The root as a rank of the group: callers give a global rank, or with several groups an index into each. */
static trm_status find_root(const trm_collective_params *params, const trm_communicator *part, int32_t *root)
{
    *root = 0;
    if (!trm_collective_has_root(params->op)) {
        return TRM_OK;
    }
    *root = params->root;
    if (params->n_groups > 1) {
        return TRM_OK; /* the exchange checks it */
    }
    for (int32_t r = 0; r < part->size; r++) {
        if (part->world_ranks[r] == params->root) {
            *root = r;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has root %d, expected a rank of the group of %d",
             trm_collective_op_name(params->op), (int)params->root, (int)part->size);
}

/* Runs on a stream of its own, and waits for it. */
static trm_status exchange_on_device(trm_world *world, trm_communicator *part, const trm_exchange *x)
{
    trm_stream *stream = NULL;
    trm_event *done = NULL;
    trm_status status;
    TRM_TRY_GOTO(status, trm_stream_create(world->device, &stream), destroy);
    TRM_TRY_GOTO(status, trm_event_create(world->device, &done), destroy);
    TRM_TRY_GOTO(status, trm_communicator_exchange(part, x, stream), destroy);
    TRM_TRY_GOTO(status, trm_event_record(done, stream), destroy);
    status = trm_world_await(world, done, "an exchange");
destroy:
    trm_event_destroy(done);
    trm_stream_destroy(stream);
    return status;
}

TRM_CALL(trm_world_recorder(world), trm_world_collective,
         (trm_world *world, const trm_collective_params *params, trm_dtype dtype, const void *from, void *to,
          size_t count, bool on_device),
         (world, params, dtype, from, to, count, on_device))
{
    if (world == NULL || params == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot run a collective: world or params is NULL");
    }
    if ((params->op == TRM_SEND || params->op == TRM_RECV) && params->n_groups != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has %d groups, expected none: its root is the peer",
                 trm_collective_op_name(params->op), (int)params->n_groups);
    }
    on_device = on_device && trm_device_backend(world->device) != TRM_BACKEND_HOST;
    trm_communicator *whole = world->communicator, *part;
    if (!on_device) {
        TRM_TRY(trm_world_host_communicator(world, &whole));
    }
    TRM_TRY(trm_communicator_part(whole, params->groups, params->n_groups, params->group_size, &part));
    if (part == NULL) {
        return TRM_OK; /* it was needed to make the groups */
    }
    trm_exchange x = {.op = params->op,
                      .reduce = trm_collective_reduces(params->op) ? params->reduce : TRM_REDUCE_NONE,
                      .dtype = dtype,
                      .from = from,
                      .to = to,
                      .count = count};
    TRM_TRY(find_root(params, part, &x.root));
    return on_device ? exchange_on_device(world, part, &x) : trm_communicator_exchange(part, &x, NULL);
}
