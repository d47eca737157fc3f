/*
 * A job of which one rank goes wrong in the way its argument says; tests/dist/failing_ranks.sh looks at how the job
 * ends.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "collectives/wait.h"
#include "dist/parallel/world.h"

static int own_rank = -1;

static void print_log(void *user, trm_log_level level, const char *message)
{
    (void)user;
    (void)level;
    fprintf(stderr, "[%d] log: %s\n", own_rank, message);
}

static int fail(trm_world *world, trm_status status)
{
    fprintf(stderr, "[%d] error: %s\n", own_rank, trm_last_error());
    if (world != NULL) {
        trm_world_abort(world, status);
    }
    return trm_status_exit_code(status);
}

/* How rank `rank` goes wrong; returns for ranks that do not. */
static void go_wrong(const char *how, int32_t rank, trm_world *world)
{
    if ((strcmp(how, "fails") == 0 || strcmp(how, "gpu-fails") == 0) && rank == 1) {
        exit(fail(world, trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot load shard 7")));
    }
    if (strcmp(how, "both-fail") == 0 && rank <= 1) {
        exit(fail(world, trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot load shard %d", (int)rank)));
    }
    if (strcmp(how, "killed") == 0 && rank == 1) {
        raise(SIGKILL);
    }
    if (strcmp(how, "exits") == 0 && rank == 1) {
        exit(3);
    }
    if ((strcmp(how, "absent") == 0 || strcmp(how, "gpu-absent") == 0) && rank == 1) {
        sleep(1000);
    }
    if (strcmp(how, "stopped") == 0 && rank == 1) {
        raise(SIGSTOP);
    }
}

static trm_status all_reduce_on_host(trm_world *world)
{
    float value = 1.0f;
    trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_F32, &value, &value, 1, 0};
    return trm_communicator_exchange(world->communicator, &x, NULL);
}

/* Waits for the device as a step does: looking at the communicator and the clock. */
static trm_status all_reduce_on_gpu(trm_world *world)
{
    trm_stream *stream;
    trm_event *done;
    void *memory;
    bool passed = false;
    TRM_TRY(trm_stream_create(world->device, &stream));
    TRM_TRY(trm_event_create(world->device, &done));
    TRM_TRY(trm_device_alloc(world->device, sizeof(float), &memory));
    trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_F32, memory, memory, 1, 0};
    TRM_TRY(trm_communicator_exchange(world->communicator, &x, stream));
    TRM_TRY(trm_event_record(done, stream));
    double end = trm_wait_now() + world->deadline_seconds;
    for (;;) {
        TRM_TRY(trm_event_query(done, &passed));
        if (passed) {
            break;
        }
        TRM_TRY(trm_communicator_check(world->communicator));
        if (trm_wait_now() > end) {
            trm_communicator_abort(world->communicator);
            TRM_FAIL(TRM_ERROR_LOST_RANK, "waited %g s for the peers", world->deadline_seconds);
        }
    }
    trm_device_free(world->device, memory);
    trm_event_destroy(done);
    trm_stream_destroy(stream);
    return TRM_OK;
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "", *text = getenv("OMPI_COMM_WORLD_RANK");
    text = text != NULL ? text : getenv("RANK");
    own_rank = text != NULL ? atoi(text) : 0;
    trm_log_set(print_log, NULL, TRM_LOG_ERROR);
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.deadline_seconds = strcmp(how, "gpu-absent") == 0 ? 10.0 : 1000.0;
    if (strcmp(how, "options-differ") == 0 && own_rank == 1) {
        options.deadline_seconds = 900.0;
    }
    if (strcmp(how, "fails") == 0 || (strcmp(how, "absent") == 0 && own_rank != 1)) {
        signal(SIGTERM, SIG_IGN); /* mpirun ends a job whose first rank has failed: the others say why before */
    }
    bool gpu = starts_with(how, "gpu-"), cuda = gpu || strcmp(how, "no-device") == 0 || strcmp(how, "one-gpu") == 0;
    options.backend = cuda ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
    options.gpu = strcmp(how, "one-gpu") == 0;
    trm_world *world = NULL;
    trm_status status = trm_world_open(&options, &world);
    if (status != TRM_OK) {
        return fail(NULL, status);
    }
    for (int i = 0; i < 4 && status == TRM_OK; i++) {
        status = gpu ? all_reduce_on_gpu(world) : all_reduce_on_host(world);
        if (i == 0 && status == TRM_OK) { /* no rank is still opening its world */
            if (strcmp(how, "absent") == 0 || strcmp(how, "stopped") == 0) {
                world->communicator->deadline_seconds = 6.0;
            }
            go_wrong(how, own_rank, world);
        }
    }
    if (status != TRM_OK) {
        return fail(world, status);
    }
    trm_world_close(world);
    printf("rank %d done\n", own_rank);
    return 0;
}
