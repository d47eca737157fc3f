/*
 * Products of a few rows on the host, of weights that lie in memory and not in a cache: shapes of Llama-3-8B.
 *
 *   bench_host_products [--json] [--only TEXT] [--types LIST] [--threads LIST] [--rows LIST] [--link LIST]
 *                       [--spin US] [--gib N]
 *
 * Every figure is the median of calls that rotate through N GiB of weights (3). "read" is the rate at which the same
 * threads only read as many bytes as gate+up has. Types are names as f32, bf16, f16, fp8, int8, int4; TEXT is part of
 * a product's name. Each of --link is a size in MiB: with a GPU, pieces of it are copied there from the same memory
 * meanwhile, 0 for none. At last the time of a loop of the pool with nothing in it, and until all threads are in it, at
 * once after the one before and after pauses; threads poll for US microseconds (20) before they sleep.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/program.h"

#include "base/memory.h"
#include "base/pool.h"
#include "kernels/host/host.h"
#include "kernels/program.h"

#define MAX_CALLS    512
#define MAX_LIST     16
#define SECONDS      0.06 /* of calls for a figure */
#define LINK_BYTES   ((size_t)1 << 30)
#define LINK_TIMES   8
#define MOST_ROWS    64
#define MOST_PIECE   256 /* MiB */
#define READ_BYTES   ((size_t)28672 * 4096 * 2)
#define READ_PIECE   ((size_t)64 << 10)
#define POOL_CALLS   300
#define COUNT(array) ((int32_t)(sizeof(array) / sizeof((array)[0])))

typedef struct list {
    int32_t n, values[MAX_LIST];
} list;

typedef struct weight_type {
    const char *name;
    trm_dtype dtype; /* U8: two of 4 bits in a byte, scales by 128; other types of a byte: scales by row */
    int32_t bits;
} weight_type;

typedef struct product {
    const char *name;
    trm_layer_kind kind;
    int64_t n, k;
} product;

typedef struct bench {
    bool json, first;
    const char *only, *types;
    list threads, rows, link;
    int32_t spin;  /* us */
    char *weights; /* pages */
    size_t bytes;
    void *x, *out, *scales, *workspace;
    size_t workspace_bytes;
    trm_device *host, *gpu; /* gpu may be NULL */
    trm_stream *stream, *copies;
    trm_event *begun, *ended;
    void *there; /* on the GPU */
    double read; /* bytes per second with these threads, the GPU's link idle */
    trm_layer_desc layer;
    trm_kernel_call call;
    const trm_kernel *kernel;
} bench;

typedef void (*job_fn)(bench *b, size_t offset);

static const weight_type all_types[] = {{"bf16", TRM_BF16, 16}, {"f16", TRM_F16, 16}, {"f32", TRM_F32, 32},
                                        {"fp8", TRM_F8E4M3, 8}, {"int8", TRM_I8, 8},  {"int4", TRM_U8, 4}};
static const product products[] = {{"q/k/v", TRM_LAYER_MATMUL, 6144, 4096},
                                   {"norm, q/k/v", TRM_LAYER_NORM_MATMUL, 6144, 4096},
                                   {"o", TRM_LAYER_MATMUL, 4096, 4096},
                                   {"gate+up", TRM_LAYER_MATMUL, 28672, 4096},
                                   {"gate+up, glu", TRM_LAYER_MATMUL_GLU, 28672, 4096},
                                   {"down", TRM_LAYER_MATMUL, 4096, 14336},
                                   {"head", TRM_LAYER_MATMUL, 128256, 4096}};

/* Small numbers in every type, none of them NaN. */
static void fill(void *user, int64_t begin, int64_t end)
{
    uint64_t *to = user;
    for (int64_t i = begin; i < end; i++) {
        uint64_t bits = (uint64_t)i * 0x9e3779b97f4a7c15u;
        bits ^= bits >> 29;
        to[i] = 0x3c003c003c003c00u | (bits & 0x816f816f816f816fu);
    }
}

typedef uint64_t vector __attribute__((vector_size(64), may_alias));

static _Atomic uint64_t read_sum;

/* Asked for 4 KiB ahead: with that, many threads were seen to read the most. */
TRM_VECTOR_CLONES static void read_pieces(void *user, int64_t begin, int64_t end)
{
    const char *from = (const char *)user;
    vector sums[4] = {{0}};
    for (int64_t i = begin * (int64_t)READ_PIECE; i < end * (int64_t)READ_PIECE; i += 4 * (int64_t)sizeof(vector)) {
        for (int64_t j = 0; j < 4; j++) {
            __builtin_prefetch(from + i + j * (int64_t)sizeof(vector) + 4096, 0, 2);
            sums[j] ^= *(const vector *)(from + i + j * (int64_t)sizeof(vector));
        }
    }
    sums[0] ^= sums[1] ^ sums[2] ^ sums[3];
    read_sum += sums[0][0] ^ sums[0][7];
}

static void read_job(bench *b, size_t offset)
{
    trm_pool_for(trm_stream_native(b->stream), (int64_t)(READ_BYTES / READ_PIECE), 1, read_pieces, b->weights + offset);
}

static int32_t weight_input(const trm_kernel_call *call)
{
    return call->layer->kind == TRM_LAYER_NORM_MATMUL ? (int32_t)TRM_NORM_MATMUL_WEIGHT : 1;
}

static void product_job(bench *b, size_t offset)
{
    b->call.inputs[weight_input(&b->call)].data = b->weights + offset;
    bench_check(trm_kernel_run(b->kernel, &b->call), "product");
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Median seconds of a job that reads `bytes`, over SECONDS of jobs or, with `until`, until that has passed. */
static double time_jobs(bench *b, job_fn job, size_t bytes, trm_event *until)
{
    static double times[MAX_CALLS];
    static size_t place;
    const size_t places = b->bytes / bytes;
    const double began = bench_now();
    int32_t n = 0;
    bool passed = false;
    if (until == NULL) {
        job(b, place++ % places * bytes); /* not counted */
    }
    for (double now = began; n < MAX_CALLS && (until != NULL ? !passed : n < 3 || now - began < SECONDS);) {
        job(b, place++ % places * bytes);
        const double ended = bench_now();
        times[n++] = ended - now;
        if (until != NULL) {
            bench_check(trm_event_query(until, &passed), "event");
        }
        now = bench_now();
    }
    qsort(times, (size_t)n, sizeof(times[0]), compare);
    return times[n / 2];
}

/* The same while pieces of `piece` bytes go to the GPU; *link is their bytes per second. */
static double time_jobs_beside(bench *b, job_fn job, size_t bytes, size_t piece, double *link)
{
    trm_graph_exec *exec;
    float milliseconds;
    *link = 0.0;
    if (piece == 0 || b->gpu == NULL) {
        return time_jobs(b, job, bytes, NULL);
    }
    bench_check(trm_stream_begin_capture(b->copies), "capture");
    for (size_t at = 0; at < LINK_BYTES; at += piece) {
        bench_check(trm_stream_upload(b->copies, b->there, b->weights + at, piece), "upload");
    }
    bench_check(trm_stream_end_capture(b->copies, &exec), "capture");
    bench_check(trm_event_record(b->begun, b->copies), "event");
    for (int32_t i = 0; i < LINK_TIMES; i++) {
        bench_check(trm_graph_exec_launch(exec, b->copies), "launch");
    }
    bench_check(trm_event_record(b->ended, b->copies), "event");
    const double seconds = time_jobs(b, job, bytes, b->ended);
    bench_check(trm_stream_synchronize(b->copies), "synchronize");
    bench_check(trm_event_elapsed_ms(b->begun, b->ended, &milliseconds), "event");
    *link = (double)LINK_BYTES * LINK_TIMES / (milliseconds * 1e-3);
    trm_graph_exec_destroy(exec);
    return seconds;
}

static void report(bench *b, const char *name, const char *type, int32_t threads, int32_t rows, int32_t piece,
                   size_t bytes, double seconds, double link)
{
    const double rate = (double)bytes / seconds;
    if (b->json) {
        printf("%s  {\"name\": \"%s\", \"type\": \"%s\", \"threads\": %d, \"rows\": %d, \"bytes\": %zu, "
               "\"microseconds\": %.1f, \"gb_per_s\": %.1f, \"of_read\": %.3f, \"piece_mib\": %d, "
               "\"link_gb_per_s\": %.1f}",
               b->first ? "" : ",\n", name, type, threads, rows, bytes, seconds * 1e6, rate / 1e9, rate / b->read,
               piece, link / 1e9);
    } else {
        printf("%-13s %-5s %7d %4d %8.1f %8.1f %7.1f %7.1f %%", name, type, threads, rows, (double)bytes / 1e6,
               seconds * 1e6, rate / 1e9, rate / b->read * 100.0);
        printf(piece > 0 && link > 0 ? " %8d %7.1f\n" : "\n", piece, link / 1e9);
    }
    fflush(stdout);
    b->first = false;
}

static void run_read(bench *b, int32_t threads)
{
    for (int32_t i = 0; i < b->link.n; i++) {
        double link;
        const size_t piece = (size_t)b->link.values[i] << 20;
        const double seconds = time_jobs_beside(b, read_job, READ_BYTES, piece, &link);
        if (i == 0) {
            b->read = (double)READ_BYTES / seconds;
        }
        report(b, "read", "", threads, 0, b->link.values[i], READ_BYTES, seconds, link);
    }
}

static void add_input(trm_kernel_call *call, void *data, trm_dtype dtype, trm_dims dims)
{
    call->inputs[call->n_inputs++] = (trm_view){data, dtype, dims};
}

/* The call of a product, and the bytes of its weight; the weight's data comes later. */
static size_t make_call(bench *b, const product *p, const weight_type *type, int64_t rows)
{
    trm_kernel_call *call = &b->call;
    const trm_dims x = {2, {rows, p->k}}, weight = {2, {p->n, p->k}};
    const bool is_gated = p->kind == TRM_LAYER_MATMUL_GLU;
    *call = (trm_kernel_call){.layer = &b->layer, .stream = b->stream, .n_outputs = 1};
    b->layer = (trm_layer_desc){.kind = p->kind};
    const trm_dtype dtype = type->bits >= 16 ? type->dtype : TRM_BF16;
    add_input(call, b->x, dtype, x);
    if (type->bits < 16) {
        const bool is_packed = type->bits == 4;
        b->layer =
            (trm_layer_desc){.kind = TRM_LAYER_DEQUANT_MATMUL, .dequant_matmul = {1, is_packed ? 128 : 0, TRM_BF16}};
        add_input(call, b->weights, type->dtype, (trm_dims){2, {p->n, is_packed ? p->k / 2 : p->k}});
        add_input(call, b->scales, TRM_F32, (trm_dims){2, {p->n, is_packed ? p->k / 128 : 1}});
    } else if (p->kind == TRM_LAYER_NORM_MATMUL) {
        b->layer.norm_matmul.eps = 1e-5f;
        call->n_inputs = TRM_NORM_MATMUL_INPUT_COUNT;
        call->inputs[TRM_NORM_MATMUL_X] = call->inputs[0];
        call->inputs[TRM_NORM_MATMUL_NORM_WEIGHT] = (trm_view){b->scales, dtype, {1, {p->k}}};
        call->inputs[TRM_NORM_MATMUL_WEIGHT] = (trm_view){b->weights, dtype, weight};
    } else {
        b->layer.matmul.transpose_b = p->kind == TRM_LAYER_MATMUL;
        if (is_gated) {
            b->layer = (trm_layer_desc){.kind = p->kind, .glu = {TRM_ACTIVATION_SILU}};
        }
        add_input(call, b->weights, dtype, weight);
    }
    call->outputs[0] = (trm_view){b->out, dtype, {2, {rows, is_gated ? p->n / 2 : p->n}}};
    return (size_t)p->n * (size_t)p->k * (size_t)type->bits / 8;
}

static void run_product(bench *b, const product *p, const weight_type *type, int32_t threads)
{
    static const trm_kernel_table *const tables[] = {&trm_host_kernels};
    for (int32_t i = 0; i < b->rows.n * b->link.n; i++) {
        const int32_t rows = b->rows.values[i / b->link.n], piece = b->link.values[i % b->link.n];
        const size_t bytes = make_call(b, p, type, rows);
        double link;
        if (bytes > b->bytes || (type->bits < 16 && p->kind != TRM_LAYER_MATMUL) || (piece > 0 && b->gpu == NULL)) {
            continue;
        }
        b->kernel = trm_kernel_find(tables, 1, TRM_BACKEND_HOST, &b->call);
        b->call.workspace = b->workspace;
        b->call.workspace_size = b->kernel != NULL && b->kernel->workspace != NULL ? b->kernel->workspace(&b->call) : 0;
        if (b->kernel == NULL || b->call.workspace_size > b->workspace_bytes) {
            fprintf(stderr, "bench_host_products: %s has no kernel\n", p->name);
            exit(1);
        }
        const double seconds = time_jobs_beside(b, product_job, bytes, (size_t)piece << 20, &link);
        report(b, p->name, type->name, threads, rows, piece, bytes, seconds, link);
    }
}

static void nothing(void *user, int64_t begin, int64_t end)
{
    (void)user;
    (void)begin;
    (void)end;
}

/* A range that ends when as many as there are threads have begun. */
static void wait_for_all(void *user, int64_t begin, int64_t end)
{
    _Atomic int64_t *missing = user;
    *missing -= end - begin;
    while (*missing > 0) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
}

static void report_pool(bench *b, const char *what, int32_t threads, int32_t pause, double *times)
{
    qsort(times, POOL_CALLS, sizeof(times[0]), compare);
    const double median = times[POOL_CALLS / 2] * 1e6, most = times[POOL_CALLS * 9 / 10] * 1e6;
    if (b->json) {
        printf("%s  {\"name\": \"pool, %s\", \"threads\": %d, \"pause_us\": %d, \"microseconds\": %.2f, "
               "\"nine_of_ten_us\": %.2f}",
               b->first ? "" : ",\n", what, threads, pause, median, most);
    } else {
        printf("pool, %-10s %5d threads, %4d us after the last: %.2f us, nine of ten within %.2f\n", what, threads,
               pause, median, most);
    }
    b->first = false;
}

/* Loops with nothing in them, and until every thread is in the loop. */
static void run_pool(bench *b, int32_t threads)
{
    static const int32_t pauses[] = {0, 20, 50, 200, 1000}; /* microseconds */
    static double times[2][POOL_CALLS];
    for (int32_t p = 0; p < COUNT(pauses); p++) {
        for (int32_t i = 0; i < POOL_CALLS * 2; i++) {
            const double from = bench_now();
            while (bench_now() - from < pauses[p] * 1e-6) {
            }
            const double began = bench_now();
            _Atomic int64_t missing = threads;
            if (i % 2 == 0) {
                trm_pool_for(trm_stream_native(b->stream), threads * 4, 1, nothing, NULL);
            } else {
                trm_pool_for(trm_stream_native(b->stream), threads, 1, wait_for_all, &missing);
            }
            times[i % 2][i / 2] = bench_now() - began;
        }
        report_pool(b, "empty", threads, pauses[p], times[0]);
        report_pool(b, "all at work", threads, pauses[p], times[1]);
    }
}

static bool has_type(const bench *b, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = b->types; at != NULL; at = strchr(at, ','), at += at != NULL) {
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return true;
        }
    }
    return false;
}

static void run_threads(bench *b, int32_t threads)
{
    bench_check(trm_device_open(TRM_BACKEND_HOST, 0, threads, &b->host), "device");
    bench_check(trm_stream_create(b->host, &b->stream), "stream");
    trm_pool_set_spin(trm_stream_native(b->stream), b->spin);
    run_read(b, threads);
    for (int32_t t = 0; t < COUNT(all_types); t++) {
        for (int32_t i = 0; i < COUNT(products) && has_type(b, all_types[t].name); i++) {
            if (b->only == NULL || strstr(products[i].name, b->only) != NULL) {
                run_product(b, &products[i], &all_types[t], threads);
            }
        }
    }
    if (b->only == NULL || strcmp(b->only, "pool") == 0) {
        run_pool(b, threads);
    }
    trm_stream_destroy(b->stream);
    trm_device_close(b->host);
}

/* Memory of all calls. The weights are pages that the GPU copies from, as a streamed weight's. */
static void prepare(bench *b)
{
    const size_t small = (size_t)MOST_ROWS * 131072 * sizeof(float);
    trm_device *device;
    trm_stream *stream;
    b->workspace_bytes = 4 * small;
    bench_check(trm_pages_alloc(b->bytes, (void **)&b->weights), "weights");
    bench_check(trm_pages_alloc(small, &b->x), "memory");
    bench_check(trm_pages_alloc(small, &b->out), "memory");
    bench_check(trm_pages_alloc(small, &b->scales), "memory");
    bench_check(trm_pages_alloc(b->workspace_bytes, &b->workspace), "memory");
    bench_check(trm_device_open(TRM_BACKEND_HOST, 0, 0, &device), "device");
    bench_check(trm_stream_create(device, &stream), "stream");
    trm_pool *pool = trm_stream_native(stream);
    trm_pool_for(pool, (int64_t)(b->bytes / 8), 1 << 16, fill, b->weights);
    trm_pool_for(pool, (int64_t)(small / 8), 1 << 16, fill, b->x);
    trm_pool_for(pool, (int64_t)(small / 8), 1 << 16, fill, b->scales);
    trm_stream_destroy(stream);
    trm_device_close(device);
    if (trm_device_cuda_count(NULL, 0) > 0) {
        bench_check(trm_device_open(TRM_BACKEND_CUDA, 0, 0, &b->gpu), "GPU");
        bench_check(trm_stream_create(b->gpu, &b->copies), "stream");
        bench_check(trm_event_create(b->gpu, &b->begun), "event");
        bench_check(trm_event_create(b->gpu, &b->ended), "event");
        bench_check(trm_device_alloc(b->gpu, (size_t)MOST_PIECE << 20, &b->there), "memory");
        bench_check(trm_device_pin(b->gpu, b->weights, b->bytes), "weights");
    }
}

static void read_list(list *to, const char *text)
{
    char *rest = (char *)text;
    to->n = 0;
    do {
        to->values[to->n++] = (int32_t)strtol(rest, &rest, 10);
    } while (*rest++ == ',' && to->n < MAX_LIST);
}

static bool is_within(const list *l, int32_t least, int32_t most)
{
    for (int32_t i = 0; i < l->n; i++) {
        if (l->values[i] < least || l->values[i] > most) {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static bench b = {.first = true, .types = "bf16", .spin = 20, .bytes = (size_t)3 << 30};
    read_list(&b.threads, "15");
    read_list(&b.rows, "1,2,4,8");
    read_list(&b.link, "0");
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            b.json = true;
            continue;
        } else if (strcmp(argv[i], "--only") == 0) {
            b.only = value;
        } else if (strcmp(argv[i], "--types") == 0) {
            b.types = value;
        } else if (strcmp(argv[i], "--threads") == 0) {
            read_list(&b.threads, value);
        } else if (strcmp(argv[i], "--rows") == 0) {
            read_list(&b.rows, value);
        } else if (strcmp(argv[i], "--link") == 0) {
            read_list(&b.link, value);
        } else if (strcmp(argv[i], "--spin") == 0) {
            b.spin = (int32_t)strtol(value, NULL, 10);
        } else if (strcmp(argv[i], "--gib") == 0) {
            b.bytes = (size_t)(strtod(value, NULL) * 64) << 24;
        } else {
            fprintf(stderr, "usage: bench_host_products [--json] [--only TEXT] [--types LIST] [--threads LIST] "
                            "[--rows LIST] [--link LIST]\n                       [--spin US] [--gib N]\n");
            return 2;
        }
        i++;
    }
    if (!is_within(&b.threads, 1, 1024) || !is_within(&b.rows, 1, MOST_ROWS) || !is_within(&b.link, 0, MOST_PIECE) ||
        b.bytes < LINK_BYTES + ((size_t)MOST_PIECE << 20)) {
        fprintf(stderr,
                "bench_host_products: expected at least 1 thread, 1 to %d rows, pieces of up to %d MiB and at "
                "least 1.25 GiB\n",
                MOST_ROWS, MOST_PIECE);
        return 2;
    }
    prepare(&b);
    printf(b.json ? "[\n"
                  : "product       type  threads rows       MB       us    GB/s   of read piece MiB link GB/s\n");
    for (int32_t i = 0; i < b.threads.n; i++) {
        run_threads(&b, b.threads.values[i]);
    }
    printf(b.json ? "\n]\n" : "");
    return 0;
}
