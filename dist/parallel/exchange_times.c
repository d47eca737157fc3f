/*
 * Times of exchanges between the GPUs of one host, measured once per machine and kept in the timing cache. They decide
 * which way each size uses (collectives/choice.h).
 *
 * Rank 0 reads and writes the cache and broadcasts its times; the ranks measure missing ones together, each way and
 * size in a captured chain. The slowest rank's time counts, so that every rank has the same times and chooses the same.
 * A way that one rank cannot capture is skipped on all.
 */
#include "dist/parallel/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#if TRM_HAVE_CUDA

#include "collectives/choice.h"

#define CHAIN           8 /* exchanges of a captured chain */
#define REPEATS         5
#define LARGEST         ((size_t)8 << 20)
#define LARGEST_SECONDS 1.0 /* the next start measures the rest; all together take less than a tenth of this */

/* What rank 0 broadcasts. */
typedef struct known_times {
    int32_t level; /* 0: no cache; 1: do not measure what it lacks */
    trm_choice_times times[TRM_CHOICE_OPS][TRM_CHOICE_SIZES];
} known_times;

typedef struct measuring {
    trm_world *world;
    trm_communicator *part;
    trm_stream *stream;
    trm_event *start, *end;
    void *buffers[2]; /* [LARGEST] */
    double deadline;  /* rank 0's clock */
} measuring;

/* ---- one way of one size ------------------------------------------------------------------------------- */

static trm_status enqueue(const measuring *m, trm_choice_op op, trm_peer_way way, size_t bytes, int32_t turn)
{
    const trm_peer_link *link = trm_communicator_peer_link(m->part);
    const bool sums = op == TRM_CHOICE_ALL_REDUCE;
    const trm_exchange x = {.op = sums ? TRM_ALL_REDUCE : TRM_ALL_GATHER,
                            .reduce = sums ? TRM_REDUCE_SUM : TRM_REDUCE_NONE,
                            .dtype = TRM_BF16,
                            .from = m->buffers[turn % 2],
                            .to = m->buffers[1 - turn % 2],
                            .count = bytes / 2};
    if (way == TRM_PEER_NO_WAY) {
        return trm_communicator_exchange(trm_communicator_peer_inner(m->part), &x, m->stream);
    }
    if (!sums) {
        return trm_cuda_peer_gather(link, -1, x.from, x.to, bytes, trm_stream_native(m->stream));
    }
    return trm_cuda_peer_all_reduce(link, way, x.dtype, x.from, x.to, x.count, 0, trm_stream_native(m->stream));
}

/* Whether it succeeded on every rank; for the others a failure shows only as an error of the exchange. */
static trm_status agree(const measuring *m, trm_status mine, bool *all)
{
    int64_t ok = mine == TRM_OK;
    if (mine != TRM_OK) {
        TRM_INFO("rank %d: cannot measure one way of exchanging: %s", (int)m->world->rank, trm_last_error());
    }
    TRM_TRY(trm_world_minimum(m->world, &ok, 1));
    *all = ok != 0;
    return TRM_OK;
}

static trm_status finish(const measuring *m)
{
    TRM_TRY(trm_event_record(m->end, m->stream));
    return trm_world_await(m->world, m->end, "measuring exchanges");
}

/* Enqueues exchanges one after the other. */
typedef struct chain {
    const measuring *m;
    trm_choice_op op;
    trm_peer_way way;
    size_t bytes;
} chain;

static trm_status enqueue_chain(void *user)
{
    const chain *c = user;
    for (int32_t i = 0; i < CHAIN; i++) {
        TRM_TRY(enqueue(c->m, c->op, c->way, c->bytes, i));
    }
    return TRM_OK;
}

/* One launch synchronizes the ranks, the next is timed. */
static trm_status time_chain(const measuring *m, trm_graph_exec *graph, double *microseconds)
{
    float milliseconds;
    int64_t meet = 0;
    TRM_TRY(trm_world_minimum(m->world, &meet, 1));
    TRM_TRY(trm_graph_exec_launch(graph, m->stream));
    TRM_TRY(trm_event_record(m->start, m->stream));
    TRM_TRY(trm_graph_exec_launch(graph, m->stream));
    TRM_TRY(finish(m));
    TRM_TRY(trm_event_elapsed_ms(m->start, m->end, &milliseconds));
    *microseconds = (double)milliseconds * 1e3 / CHAIN;
    return TRM_OK;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The slowest rank's median, on all ranks; *microseconds is 0 if the way does not work. */
static trm_status measure_way(const measuring *m, trm_choice_op op, trm_peer_way way, size_t bytes,
                              double *microseconds)
{
    trm_graph_exec *graph = NULL;
    double times[REPEATS];
    bool all;
    *microseconds = 0;
    if (way == TRM_PEER_NO_WAY) { /* NCCL initializes itself outside the capture */
        TRM_TRY(agree(m, enqueue(m, op, way, bytes, 0), &all));
        if (!all) {
            return TRM_OK;
        }
        TRM_TRY(finish(m));
    } /* no rank launches another way, which would wait for peers, before all have captured it */
    chain c = {m, op, way, bytes};
    trm_status status = agree(m, trm_stream_capture(m->stream, enqueue_chain, &c, &graph), &all);
    for (int32_t r = 0; r < REPEATS && status == TRM_OK && all; r++) {
        status = time_chain(m, graph, &times[r]);
    }
    trm_graph_exec_destroy(graph);
    if (status != TRM_OK || !all) {
        return status;
    }
    qsort(times, REPEATS, sizeof(*times), compare_doubles);
    int64_t nanoseconds = -(int64_t)(times[REPEATS / 2] * 1e3);
    TRM_TRY(trm_world_minimum(m->world, &nanoseconds, 1));
    *microseconds = (double)-nanoseconds / 1e3;
    return TRM_OK;
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static bool can(const measuring *m, trm_choice_op op, trm_peer_way way, size_t bytes)
{
    if (op == TRM_CHOICE_GATHER) {
        return way == TRM_PEER_NO_WAY || (way == TRM_PEER_ONE_SHOT && trm_peer_gathers(m->part->size, bytes));
    }
    return way == TRM_PEER_NO_WAY || trm_peer_fits(m->part->size, bytes, way);
}

static trm_status measure_size(const measuring *m, trm_choice_op op, size_t bytes, trm_choice_times *times)
{
    trm_tactic tactics[TRM_PEER_WAYS];
    for (int32_t w = 0; w < TRM_PEER_WAYS; w++) {
        double microseconds = 0;
        if (can(m, op, (trm_peer_way)w, bytes)) {
            TRM_TRY(measure_way(m, op, (trm_peer_way)w, bytes, &microseconds));
        }
        if (microseconds > 0) {
            times->ways[times->n] = (trm_peer_way)w;
            times->microseconds[times->n++] = microseconds;
        }
    }
    trm_choice_write(times, tactics);
    return TRM_OK;
}

static trm_status measure_missing(measuring *m, known_times *known)
{
    m->deadline = trm_clock_seconds() + LARGEST_SECONDS;
    for (int32_t op = 0; op < TRM_CHOICE_OPS; op++) {
        for (int32_t i = 0; i < trm_choice_n_sizes((trm_choice_op)op); i++) {
            trm_choice_times *times = &known->times[op][i];
            int64_t in_time = m->world->rank > 0 || trm_clock_seconds() < m->deadline;
            if (times->n > 0) {
                continue;
            }
            TRM_TRY(trm_world_minimum(m->world, &in_time, 1));
            if (!in_time) {
                return TRM_OK;
            }
            TRM_TRY(measure_size(m, (trm_choice_op)op, trm_choice_size((trm_choice_op)op, i), times));
            m->world->timed_exchanges += times->n;
        }
    }
    return TRM_OK;
}

static trm_status open_measuring(measuring *m)
{
    trm_device *device = m->world->device;
    TRM_TRY(trm_stream_create(device, &m->stream));
    TRM_TRY(trm_event_create(device, &m->start));
    TRM_TRY(trm_event_create(device, &m->end));
    for (int32_t i = 0; i < 2; i++) {
        TRM_TRY(trm_device_alloc(device, LARGEST, &m->buffers[i]));
        TRM_TRY(trm_stream_fill_zero(m->stream, m->buffers[i], LARGEST));
    }
    return trm_stream_synchronize(m->stream);
}

static void close_measuring(measuring *m)
{
    trm_device_free(m->world->device, m->buffers[0]);
    trm_device_free(m->world->device, m->buffers[1]);
    trm_event_destroy(m->start);
    trm_event_destroy(m->end);
    trm_stream_destroy(m->stream);
}

/* NCCL connects its ranks at their first exchange. */
static trm_status set_up(const measuring *m)
{
    bool all = true;
    for (int32_t op = 0; op < TRM_CHOICE_OPS && all; op++) {
        TRM_TRY(
            agree(m, enqueue(m, (trm_choice_op)op, TRM_PEER_NO_WAY, trm_choice_size((trm_choice_op)op, 0), 0), &all));
    }
    return all ? finish(m) : TRM_OK;
}

static trm_status measure(trm_world *world, trm_communicator *part, known_times *known)
{
    measuring m = {.world = world, .part = part};
    bool all;
    const double began = trm_clock_seconds();
    const int32_t timed = world->timed_exchanges;
    trm_status status = agree(&m, open_measuring(&m), &all);
    if (status == TRM_OK && all) {
        status = set_up(&m);
    }
    const double ready = trm_clock_seconds();
    if (status == TRM_OK && all) {
        status = measure_missing(&m, known);
    }
    close_measuring(&m);
    if (world->rank == 0) {
        TRM_INFO("measured %d exchange times in %.0f ms, after setting up NCCL in %.0f ms",
                 world->timed_exchanges - timed, (trm_clock_seconds() - ready) * 1e3, (ready - began) * 1e3);
    }
    return status;
}

static bool is_known(const known_times *known)
{
    for (int32_t op = 0; op < TRM_CHOICE_OPS; op++) {
        for (int32_t i = 0; i < trm_choice_n_sizes((trm_choice_op)op); i++) {
            if (known->times[op][i].n == 0) {
                return false;
            }
        }
    }
    return true;
}

/* ---- the cache ----------------------------------------------------------------------------------------- */

static void warn(trm_status status)
{
    if (status != TRM_OK) {
        TRM_WARN("%s", trm_last_error());
    }
}

/* Rank 0. */
static void look_up(trm_tuner *tuner, const trm_choice_machine *machine, known_times *known)
{
    char problem[TRM_PROBLEM_TEXT_SIZE];
    for (int32_t op = 0; op < TRM_CHOICE_OPS; op++) {
        for (int32_t i = 0; i < trm_choice_n_sizes((trm_choice_op)op); i++) {
            trm_choice_problem(machine, (trm_choice_op)op, trm_choice_size((trm_choice_op)op, i), problem);
            const trm_timing *timing = trm_tuner_find(tuner, problem);
            if (timing != NULL) {
                trm_choice_read(timing, &known->times[op][i]);
            }
        }
    }
}

/* Rank 0: adds the times that the cache lacked. */
static void record(trm_tuner *tuner, const trm_choice_machine *machine, const known_times *before,
                   const known_times *known)
{
    char problem[TRM_PROBLEM_TEXT_SIZE];
    trm_tactic tactics[TRM_PEER_WAYS];
    for (int32_t op = 0; op < TRM_CHOICE_OPS; op++) {
        for (int32_t i = 0; i < trm_choice_n_sizes((trm_choice_op)op); i++) {
            trm_choice_times times = known->times[op][i];
            if (before->times[op][i].n == 0 && times.n > 0) {
                trm_choice_problem(machine, (trm_choice_op)op, trm_choice_size((trm_choice_op)op, i), problem);
                trm_choice_write(&times, tactics);
                warn(trm_tuner_record(tuner, problem, tactics, times.n));
            }
        }
    }
}

static void log_times(trm_choice_op op, const trm_choice_times *times)
{
    for (int32_t i = 0; i < trm_choice_n_sizes(op); i++) {
        char text[256] = "";
        size_t used = 0;
        for (int32_t k = 0; k < times[i].n && used < sizeof(text); k++) {
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %.1f us", k == 0 ? "" : ", ",
                                     trm_peer_way_name(times[i].ways[k]), times[i].microseconds[k]);
        }
        TRM_INFO("%s of %zu KiB: %s", op == TRM_CHOICE_GATHER ? "all_gather" : "all_reduce",
                 trm_choice_size(op, i) / 1024, times[i].n > 0 ? text : "not measured");
    }
}

static void take(const trm_world *world, trm_communicator *part, const known_times *known)
{
    for (int32_t op = 0; op < TRM_CHOICE_OPS; op++) {
        char text[256];
        trm_choice choice;
        trm_choice_make((trm_choice_op)op, known->times[op], &choice);
        trm_communicator_set_peer_choice(part, (trm_choice_op)op, &choice);
        if (world->rank == 0) {
            log_times((trm_choice_op)op, known->times[op]);
            trm_choice_describe(&choice, text, sizeof(text));
            TRM_INFO("%s between %d GPUs: %s", op == TRM_CHOICE_GATHER ? "all_gather" : "all_reduce", part->size,
                     choice.n > 0 ? text : "by the default table");
        }
    }
}

static trm_status choose(trm_world *world, trm_communicator *part, int32_t level, const char *cache)
{
    trm_choice_machine machine;
    trm_tuner *tuner = NULL;
    known_times known = {.level = 0};
    trm_communicator_peer_machine(part, &machine);
    if (world->rank == 0 && cache != NULL) {
        warn(trm_tuner_create(world->device, &tuner));
    }
    if (tuner != NULL) {
        known.level = level;
        warn(trm_tuner_load(tuner, cache));
        look_up(tuner, &machine, &known);
    }
    trm_status status = trm_world_broadcast(world, &known, sizeof(known), 0);
    const known_times before = known;
    if (status == TRM_OK && known.level > 1 && !is_known(&known)) {
        status = measure(world, part, &known);
    }
    if (status == TRM_OK && tuner != NULL) {
        record(tuner, &machine, &before, &known);
        warn(trm_tuner_save(tuner, cache));
    }
    trm_tuner_destroy(tuner);
    if (status == TRM_OK && known.level > 0) {
        take(world, part, &known);
        if (known.level > 1 || is_known(&known)) { /* the same on every rank */
            world->chosen_exchanges |= 1u << part->size;
        }
    }
    return status;
}

/* The group along the axes tp and cp, as layers name it; NULL unless it uses peer memory on every rank. */
static trm_status find_part(trm_world *world, const trm_mesh *mesh, trm_communicator **part)
{
    const int32_t n = trm_mesh_tensor_ranks(mesh);
    int32_t groups[TRM_MAX_RANKS];
    for (int32_t r = 0; r < world->size; r++) {
        groups[r] = r;
    }
    TRM_TRY(trm_communicator_part(world->communicator, groups, world->size / n, n, part));
    int64_t over_peers = *part != NULL && trm_communicator_peer_link(*part) != NULL;
    TRM_TRY(trm_world_minimum(world, &over_peers, 1));
    *part = over_peers ? *part : NULL;
    return TRM_OK;
}

trm_status trm_world_choose_exchanges(trm_world *world, const trm_mesh *mesh, int32_t level, const char *cache)
{
    const int32_t n = trm_mesh_tensor_ranks(mesh);
    trm_communicator *part;
    if (level < 1 || trm_mesh_ranks(mesh) != world->size || n < 2 || n > TRM_PEER_RANKS ||
        (world->chosen_exchanges >> n & 1) != 0 || trm_device_backend(world->device) != TRM_BACKEND_CUDA ||
        trm_communicator_peer_link(world->communicator) == NULL || !trm_world_has_host_communicator(world)) {
        return TRM_OK;
    }
    TRM_TRY(find_part(world, mesh, &part));
    return part == NULL ? TRM_OK : choose(world, part, level, cache);
}

#else

trm_status trm_world_choose_exchanges(trm_world *world, const trm_mesh *mesh, int32_t level, const char *cache)
{
    (void)world;
    (void)mesh;
    (void)level;
    (void)cache;
    return TRM_OK;
}

#endif
