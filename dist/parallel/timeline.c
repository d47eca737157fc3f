/* Timelines of all ranks in one file (include/trireme/timeline.h). base/trace.h has the spans of this process. */
#include <trireme/timeline.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/recorder.h"
#include "base/trace.h"
#include "dist/parallel/world.h"

#define CLOCK_ROUNDS 8
#define PART_BYTES   ((size_t)16 << 20) /* of one message between ranks */
#define PART_SECONDS 0.5                /* for files of other ranks to come: launchers kill after a second */

/* What begins and ends a file; lines of events are between them. */
static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by it: */
static struct {
    char *path; /* NULL: none is recorded */
    int32_t rank, ranks;
    double origin, ahead; /* as for trm_trace_write */
} timeline;

/* ---- the file ---------------------------------------------------------------------------------- */

static trm_status fail_file(const char *path)
{
    TRM_FAIL(TRM_ERROR_IO, "cannot write timeline %s: %s", path, strerror(errno));
}

static trm_status open_file(const char *path, FILE **file)
{
    *file = fopen(path, "we");
    if (*file == NULL) {
        return fail_file(path);
    }
    fputs(head, *file);
    return TRM_OK;
}

static trm_status close_file(const char *path, FILE *file)
{
    /* an event without a comma behind it: the place of rank 0, once more */
    fputs("{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":0}}\n]}\n", file);
    const bool bad = ferror(file) != 0;
    return fclose(file) != 0 || bad ? fail_file(path) : TRM_OK;
}

/* Copies the lines of another rank's file, if it is complete. */
static bool take_in(const char *path, FILE *file)
{
    char *line = NULL;
    size_t size = 0;
    FILE *part = fopen(path, "re");
    if (part == NULL) {
        return false;
    }
    for (ssize_t n = getline(&line, &size, part); n > 0; n = getline(&line, &size, part)) {
        if (n > 2 && line[0] == '{' && line[n - 2] == ',') { /* neither head nor end */
            fputs(line, file);
        }
    }
    free(line);
    fclose(part);
    unlink(path);
    return true;
}

/* ---- ranks ------------------------------------------------------------------------------------- */

/* How many seconds rank 0's clock is ahead of this one's: by the exchange among several that took the least time. 0 if
 * that is less than half its time, so on one machine. */
static trm_status measure_clocks(trm_world *world, double *ahead)
{
    *ahead = 0;
    for (int32_t rank = 1; rank < world->size; rank++) {
        double least = 0, best = 0;
        for (int32_t i = 0; i < CLOCK_ROUNDS; i++) {
            char ping = 0;
            const double began = trm_clock_seconds();
            TRM_TRY(trm_world_broadcast(world, &ping, sizeof(ping), 0));
            double theirs = trm_clock_seconds();
            TRM_TRY(trm_world_broadcast(world, &theirs, sizeof(theirs), rank));
            const double ended = trm_clock_seconds(), seconds = ended - began;
            if (i == 0 || seconds < least) {
                least = seconds;
                best = (began + ended) / 2 - theirs;
            }
        }
        best = best < least / 2 && best > -least / 2 ? 0 : best;
        TRM_TRY(trm_world_broadcast(world, &best, sizeof(best), 0));
        *ahead = rank == world->rank ? best : *ahead;
    }
    return TRM_OK;
}

static trm_status begin(trm_world *world, const char *path)
{
    FILE *file;
    if (timeline.path != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot begin timeline %s: this process records %s", path, timeline.path);
    }
    if (world->rank == 0) { /* an early failure, rather than one at the end */
        TRM_TRY(open_file(path, &file));
        TRM_TRY(close_file(path, file));
    }
    timeline.path = strdup(path);
    timeline.rank = world->rank;
    timeline.ranks = world->size;
    return timeline.path != NULL ? TRM_OK : trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a path");
}

static void forget(void)
{
    trm_trace_clear();
    free(timeline.path);
    timeline.path = NULL;
}

TRM_CALL(trm_world_recorder(world), trm_timeline_begin, (trm_world *world, const char *path), (world, path))
{
    if (world == NULL || path == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot begin a timeline: world or path is NULL");
    }
    trm_communicator *communicator;
    TRM_TRY(trm_world_host_communicator(world, &communicator));
    pthread_mutex_lock(&mutex);
    const bool is_other = timeline.path != NULL;
    trm_status status = trm_world_all_ok(world, begin(world, path));
    status = status == TRM_OK ? measure_clocks(world, &timeline.ahead) : status;
    timeline.origin = trm_clock_seconds();
    status = status == TRM_OK ? trm_world_broadcast(world, &timeline.origin, sizeof(timeline.origin), 0) : status;
    if (status == TRM_OK) {
        trm_trace_begin(TRM_TIMELINE_SPANS);
    } else if (!is_other) {
        forget();
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

/* Sends a text to rank 0, or writes what comes from `rank`. */
static trm_status pass_on(trm_world *world, int32_t rank, char *text, uint64_t size, FILE *file)
{
    const bool sends = world->rank != 0;
    const trm_collective_params params = {.op = sends ? TRM_SEND : TRM_RECV, .root = sends ? 0 : rank};
    char *buffer = sends ? NULL : malloc(PART_BYTES);
    trm_status status = sends || buffer != NULL
                            ? trm_world_collective(world, &params, TRM_U8, &size, &size, sizeof(size), false)
                            : trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a part of a timeline");
    for (uint64_t at = 0; status == TRM_OK && at < size; at += PART_BYTES) {
        const size_t bytes = size - at < PART_BYTES ? (size_t)(size - at) : PART_BYTES;
        char *part = sends ? text + at : buffer;
        status = trm_world_collective(world, &params, TRM_U8, part, part, bytes, false);
        if (status == TRM_OK && file != NULL) {
            fwrite(part, 1, bytes, file);
        }
    }
    free(buffer);
    return status;
}

static trm_status write_text(char **text, size_t *size)
{
    FILE *out = open_memstream(text, size);
    if (out != NULL) {
        trm_trace_write(out, timeline.rank, timeline.origin, timeline.ahead);
    }
    if (out == NULL || fclose(out) != 0) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the text of a timeline");
    }
    return TRM_OK;
}

/* Every rank has agreed to end. */
static trm_status end(trm_world *world)
{
    FILE *file = NULL;
    char *text = NULL;
    size_t size = 0;
    trm_status status = world->rank == 0 ? open_file(timeline.path, &file) : write_text(&text, &size);
    status = trm_world_all_ok(world, status);
    if (status == TRM_OK && world->rank == 0) {
        trm_trace_write(file, timeline.rank, timeline.origin, timeline.ahead);
    }
    for (int32_t rank = 1; status == TRM_OK && rank < world->size; rank++) {
        if (world->rank == 0 || world->rank == rank) {
            status = pass_on(world, rank, text, size, file);
        }
    }
    if (file != NULL) {
        const trm_status closed = close_file(timeline.path, file);
        status = status == TRM_OK ? closed : status;
    }
    free(text);
    return status;
}

TRM_CALL(trm_world_recorder(world), trm_timeline_end, (trm_world *world), (world))
{
    if (world == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot end a timeline: world is NULL");
    }
    pthread_mutex_lock(&mutex);
    const bool is_on = timeline.path != NULL;
    trm_status status = TRM_OK;
    if (is_on) {
        trm_trace_end();
        status = end(world);
        forget();
    }
    pthread_mutex_unlock(&mutex);
    return is_on ? trm_world_all_ok(world, status) : TRM_OK;
}

/* ---- without the other ranks ------------------------------------------------------------------- */

static trm_status save(void)
{
    FILE *file;
    char path[4096];
    const bool leads = timeline.rank == 0;
    snprintf(path, sizeof(path), "%s.rank%d.part", timeline.path, (int)timeline.rank);
    TRM_TRY(open_file(leads ? timeline.path : path, &file));
    trm_trace_write(file, timeline.rank, timeline.origin, timeline.ahead);
    const double until = trm_clock_seconds() + PART_SECONDS;
    for (int32_t rank = 1; leads && rank < timeline.ranks; rank++) {
        snprintf(path, sizeof(path), "%s.rank%d", timeline.path, (int)rank);
        const struct timespec pause = {.tv_nsec = 10 * 1000000};
        while (!take_in(path, file) && trm_clock_seconds() < until) {
            nanosleep(&pause, NULL);
        }
    }
    if (leads) {
        return close_file(timeline.path, file);
    }
    char whole[4096]; /* under its name only once it is complete */
    TRM_TRY(close_file(path, file));
    snprintf(whole, sizeof(whole), "%s.rank%d", timeline.path, (int)timeline.rank);
    return rename(path, whole) == 0 ? TRM_OK : fail_file(whole);
}

TRM_CALL(NULL, trm_timeline_save, (void), ())
{
    pthread_mutex_lock(&mutex);
    trm_status status = TRM_OK;
    if (timeline.path != NULL) {
        trm_trace_end();
        status = save();
        forget();
    }
    pthread_mutex_unlock(&mutex);
    return status;
}
