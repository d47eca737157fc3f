/*
 * What exchanges between the GPUs of one host take inside a captured graph, as a decode step has them:
 *
 *   mpirun -np N build/tests/bench/bench_exchange [--json FILE] [--sweep]
 *
 * A graph is a chain of exchanges of one kind and size, from one buffer to another; the figure is the time of a launch
 * over the length of the chain, the median of several, the slowest rank's. Beside it stands a floor that no exchange
 * can be under: a kernel of the same chain that reads and writes as many bytes and exchanges nothing, and the bytes
 * that must come in from the peers at the link's bandwidth, one after the other: all of every peer's up to 1 MiB, and
 * of larger ones the parts to add and the sums. --sweep also times block sizes, and numbers of blocks for `bulk`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "collectives/communicator.h"
#include "collectives/peer.h"
#include "dist/parallel/world.h"
#include "kernels/kernel.h"
#include "kernels/program.h"

#define CHAIN     64
#define LAUNCHES  20
#define REPEATS   7
#define LARGEST   ((size_t)64 << 20) /* of a buffer; gathers fill it */
#define LINK_GB_S 397.0              /* a copy from a peer's memory, measured on H200 with NVLink */
#define MAX_ROWS  512
#define MAX_WIDTH 8192 /* of rows that are normalized */

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) != TRM_OK) {                                                                                        \
            fprintf(stderr, "%s failed: %s\n", #call, trm_last_error());                                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct bench {
    trm_world *world;
    trm_stream *stream;
    trm_communicator *nccl, *peer;
    const trm_peer_link *link;
    void *from, *to, *reduced, *residual, *sum, *weight;
} bench;

/* One thing to time: what is enqueued CHAIN times. */
typedef struct subject {
    const char *name;
    trm_status (*enqueue)(bench *b, const struct subject *subject, void *from, void *to);
    trm_peer_way way;
    int32_t threads;
    size_t bytes;
} subject;

typedef struct row {
    subject subject;
    double microseconds, floor;
} row;

static trm_status enqueue_communicator(bench *b, const subject *s, void *from, void *to)
{
    trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_BF16, from, to, s->bytes / 2, 0};
    return trm_communicator_exchange(strcmp(s->name, "nccl") == 0 ? b->nccl : b->peer, &x, b->stream);
}

/* Of as many bytes per rank. */
static trm_status enqueue_gather(bench *b, const subject *s, void *from, void *to)
{
    trm_exchange x = {TRM_ALL_GATHER, TRM_REDUCE_NONE, TRM_BF16, from, to, s->bytes / 2, 0};
    return trm_communicator_exchange(strncmp(s->name, "nccl", 4) == 0 ? b->nccl : b->peer, &x, b->stream);
}

static trm_status enqueue_peer(bench *b, const subject *s, void *from, void *to)
{
    return trm_cuda_peer_all_reduce(b->link, s->way, TRM_BF16, from, to, s->bytes / 2, s->threads,
                                    trm_stream_native(b->stream));
}

static trm_status enqueue_bulk(bench *b, const subject *s, void *from, void *to)
{
    return trm_cuda_peer_all_reduce_bulk(b->link, TRM_BF16, from, to, s->bytes / 2, s->threads,
                                         trm_stream_native(b->stream));
}

static trm_status run_kernel(bench *b, trm_kernel_call *call)
{
    const trm_kernel_table *tables[] = {&trm_cuda_kernels, &trm_collective_kernels};
    call->stream = b->stream;
    const trm_kernel *kernel = trm_kernel_find(tables, 2, TRM_BACKEND_CUDA, call);
    return kernel == NULL ? trm_fail(TRM_ERROR_UNSUPPORTED, "no kernel") : trm_kernel_run(kernel, call);
}

/* A kernel that reads and writes as much. */
static trm_status enqueue_local(bench *b, const subject *s, void *from, void *to)
{
    trm_layer_desc desc = {.kind = TRM_LAYER_UNARY, .unary = {.op = TRM_UNARY_NEG}};
    trm_dims dims = {1, {(int64_t)s->bytes / 2}};
    trm_kernel_call call = {.layer = &desc, .n_inputs = 1, .n_outputs = 1};
    call.inputs[0] = (trm_view){from, TRM_BF16, dims};
    call.outputs[0] = (trm_view){to, TRM_BF16, dims};
    return run_kernel(b, &call);
}

static trm_peer_norm describe_norm(const bench *b, const subject *s, const void *from, void *to)
{
    trm_peer_norm n = {.dtype = TRM_BF16, .from = from, .residual = b->residual, .weight = b->weight};
    n.width = s->bytes / 2 < MAX_WIDTH ? (int64_t)s->bytes / 2 : MAX_WIDTH;
    n.rows = (int64_t)s->bytes / 2 / n.width;
    n.to = to;
    n.sum = b->sum;
    return n;
}

static const trm_norm_params rms = {.op = TRM_NORM_RMS, .residual = true, .eps = 1e-5f};

/* With residual and RMS norm, in two kernels. */
static trm_status enqueue_apart(bench *b, const subject *s, void *from, void *to)
{
    trm_peer_norm n = describe_norm(b, s, from, to);
    trm_layer_desc desc = {.kind = TRM_LAYER_NORM, .norm = rms};
    trm_dims dims = {2, {n.rows, n.width}}, per_column = {1, {n.width}};
    trm_kernel_call call = {.layer = &desc, .n_inputs = 3, .n_outputs = 2};
    call.inputs[0] = (trm_view){b->reduced, TRM_BF16, dims};
    call.inputs[1] = (trm_view){b->residual, TRM_BF16, dims};
    call.inputs[2] = (trm_view){b->weight, TRM_BF16, per_column};
    call.outputs[0] = (trm_view){to, TRM_BF16, dims};
    call.outputs[1] = (trm_view){b->sum, TRM_BF16, dims};
    trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_BF16, from, b->reduced, s->bytes / 2, 0};
    TRM_TRY(trm_communicator_exchange(strncmp(s->name, "nccl", 4) == 0 ? b->nccl : b->peer, &x, b->stream));
    return run_kernel(b, &call);
}

/* The same in one, where that is faster. */
static trm_status enqueue_fused(bench *b, const subject *s, void *from, void *to)
{
    trm_peer_norm n = describe_norm(b, s, from, to);
    int32_t threads = s->threads > 0 ? s->threads : trm_peer_norm_choose(b->link->size, &n);
    return threads == 0 ? enqueue_apart(b, s, from, to)
                        : trm_cuda_peer_norm(b->link, &n, &rms, threads, trm_stream_native(b->stream));
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The slowest rank's, on all. */
static double slowest(bench *b, double mine)
{
    int64_t value = -(int64_t)(mine * 1e6);
    TRY(trm_world_minimum(b->world, &value, 1));
    return (double)-value / 1e6;
}

static double time_subject(bench *b, const subject *s)
{
    trm_graph_exec *graph;
    trm_event *start, *end;
    double times[REPEATS];
    TRY(s->enqueue(b, s, b->from, b->to)); /* libraries set themselves up */
    TRY(trm_stream_synchronize(b->stream));
    TRY(trm_stream_begin_capture(b->stream));
    for (int i = 0; i < CHAIN; i++) {
        TRY(s->enqueue(b, s, i % 2 ? b->to : b->from, i % 2 ? b->from : b->to));
    }
    TRY(trm_stream_end_capture(b->stream, &graph));
    TRY(trm_event_create(b->world->device, &start));
    TRY(trm_event_create(b->world->device, &end));
    for (int r = -1; r < REPEATS; r++) {
        float milliseconds;
        int64_t meet = 0;
        TRY(trm_world_minimum(b->world, &meet, 1));
        TRY(trm_graph_exec_launch(graph, b->stream));
        TRY(trm_event_record(start, b->stream));
        for (int i = 0; i < LAUNCHES; i++) {
            TRY(trm_graph_exec_launch(graph, b->stream));
        }
        TRY(trm_event_record(end, b->stream));
        TRY(trm_stream_synchronize(b->stream));
        TRY(trm_event_elapsed_ms(start, end, &milliseconds));
        times[r < 0 ? 0 : r] = (double)milliseconds * 1e3 / (CHAIN * LAUNCHES);
    }
    TRY(trm_communicator_check(b->peer));
    trm_event_destroy(start);
    trm_event_destroy(end);
    trm_graph_exec_destroy(graph);
    qsort(times, REPEATS, sizeof(*times), compare_doubles);
    return slowest(b, times[REPEATS / 2]);
}

static void open_bench(bench *b)
{
    unsigned char id[TRM_NCCL_ID_SIZE] = {0};
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_CUDA;
    setenv("TRIREME_EXCHANGE", "peer", 1);
    TRY(trm_world_open(&options, &b->world));
    if (trm_world_size(b->world) < 2) {
        fprintf(stderr, "exchanges need at least 2 ranks: mpirun -np 2\n");
        exit(2);
    }
    b->peer = b->world->communicator;
    b->link = trm_communicator_peer_link(b->peer);
    TRY(trm_world_rank(b->world) == 0 ? trm_nccl_make_id(id) : TRM_OK);
    TRY(trm_world_broadcast(b->world, id, sizeof(id), 0));
    TRY(trm_communicator_nccl_create(b->world->device, id, trm_world_rank(b->world), trm_world_size(b->world), 60,
                                     &b->nccl));
    TRY(trm_stream_create(b->world->device, &b->stream));
    void **const buffers[] = {&b->from, &b->to, &b->reduced, &b->residual, &b->sum, &b->weight};
    for (int i = 0; i < 6; i++) {
        TRY(trm_device_alloc(b->world->device, LARGEST, buffers[i]));
        TRY(trm_stream_fill_zero(b->stream, *buffers[i], LARGEST));
    }
}

static void close_bench(bench *b)
{
    void *const buffers[] = {b->from, b->to, b->reduced, b->residual, b->sum, b->weight};
    for (int i = 0; i < 6; i++) {
        trm_device_free(b->world->device, buffers[i]);
    }
    trm_stream_destroy(b->stream);
    trm_communicator_destroy(b->nccl);
    trm_world_close(b->world);
}

static void time_row(bench *b, row *rows, int *n, subject s, double floor)
{
    int32_t ranks = trm_world_size(b->world);
    trm_peer_norm norm = describe_norm(b, &s, b->from, b->to);
    if ((s.way != TRM_PEER_NO_WAY && !trm_peer_fits(ranks, s.bytes, s.way)) ||
        (s.enqueue == enqueue_fused && s.threads > 0 && !trm_peer_norm_fits(ranks, &norm, s.threads)) ||
        *n == MAX_ROWS) {
        return;
    }
    double us = time_subject(b, &s);
    rows[(*n)++] = (row){s, us, floor};
    if (trm_world_rank(b->world) == 0) {
        char block[16] = "";
        if (s.threads > 0) {
            snprintf(block, sizeof(block), "%d", (int)s.threads);
        }
        printf("%9zu  %-11s %4s %8.2f us  floor %6.2f us  %3.0f %%\n", s.bytes, s.name, block, us, floor,
               100 * floor / us);
        fflush(stdout);
    }
}

static void write_json(const bench *b, const char *path, const row *rows, int n)
{
    trm_device_info info;
    TRY(trm_device_get_info(b->world->device, &info));
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fprintf(stderr, "cannot write %s\n", path);
        exit(1);
    }
    fprintf(file, "{\"device\": \"%s\", \"ranks\": %d, \"rows\": [", info.name, (int)trm_world_size(b->world));
    for (int i = 0; i < n; i++) {
        const subject *s = &rows[i].subject;
        fprintf(
            file,
            "%s\n  {\"exchange\": \"%s\", \"bytes\": %zu, \"threads\": %d, \"microseconds\": %.3f, \"floor\": %.3f, "
            "\"of_floor\": %.3f}",
            i == 0 ? "" : ",", s->name, s->bytes, (int)s->threads, rows[i].microseconds, rows[i].floor,
            rows[i].floor / rows[i].microseconds);
    }
    fprintf(file, "\n]}\n");
    fclose(file);
}

int main(int argc, char **argv)
{
    bench b = {0};
    row rows[MAX_ROWS];
    int n = 0;
    const char *json = NULL;
    bool sweep = false;
    for (int i = 1; i < argc; i++) {
        sweep = sweep || strcmp(argv[i], "--sweep") == 0;
        json = strcmp(argv[i], "--json") == 0 && i + 1 < argc ? argv[++i] : json;
    }
    alarm(300);
    open_bench(&b);
    for (size_t bytes = 2 << 10; bytes <= LARGEST / (size_t)trm_world_size(b.world); bytes *= 2) {
        subject local = {.name = "local", .enqueue = enqueue_local, .bytes = bytes};
        double node = time_subject(&b, &local);
        size_t ranks = (size_t)trm_world_size(b.world);
        double floor = node + (double)(bytes / ranks * (ranks - 1) * (bytes <= 1 << 20 ? ranks : 2)) / LINK_GB_S / 1e3;
        time_row(&b, rows, &n, (subject){"nccl", enqueue_communicator, TRM_PEER_NO_WAY, 0, bytes}, floor);
        time_row(&b, rows, &n, (subject){"chosen", enqueue_communicator, TRM_PEER_NO_WAY, 0, bytes}, floor);
        time_row(&b, rows, &n, (subject){"one_shot", enqueue_peer, TRM_PEER_ONE_SHOT, 0, bytes}, floor);
        time_row(&b, rows, &n, (subject){"two_shot", enqueue_peer, TRM_PEER_TWO_SHOT, 0, bytes}, floor);
        time_row(&b, rows, &n, (subject){"nccl_gather", enqueue_gather, TRM_PEER_NO_WAY, 0, bytes}, floor);
        time_row(&b, rows, &n, (subject){"gather", enqueue_gather, TRM_PEER_NO_WAY, 0, bytes}, floor);
        time_row(&b, rows, &n, (subject){"nccl_norm", enqueue_apart, TRM_PEER_NO_WAY, 0, bytes}, floor);
        time_row(&b, rows, &n, (subject){"apart_norm", enqueue_apart, TRM_PEER_NO_WAY, 0, bytes}, floor);
        time_row(&b, rows, &n, (subject){"fused_norm", enqueue_fused, TRM_PEER_NO_WAY, 0, bytes}, floor);
        for (int32_t blocks = 16; bytes >= 1 << 20 && blocks <= 64; blocks += sweep ? 8 : 16) {
            time_row(&b, rows, &n, (subject){"bulk", enqueue_bulk, TRM_PEER_BULK, blocks, bytes}, floor);
        }
        for (int32_t threads = 128; sweep && threads <= 1024; threads *= 2) {
            time_row(&b, rows, &n, (subject){"fused_norm", enqueue_fused, TRM_PEER_NO_WAY, threads, bytes}, floor);
        }
        for (int32_t threads = 64; sweep && threads <= 512; threads *= 2) {
            time_row(&b, rows, &n, (subject){"one_shot", enqueue_peer, TRM_PEER_ONE_SHOT, threads, bytes}, floor);
            time_row(&b, rows, &n, (subject){"two_shot", enqueue_peer, TRM_PEER_TWO_SHOT, threads, bytes}, floor);
        }
    }
    if (json != NULL && trm_world_rank(b.world) == 0) {
        write_json(&b, json, rows, n);
    }
    close_bench(&b);
    return 0;
}
