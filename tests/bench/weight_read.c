/*
 * Bytes per second of weights that are read from their file in every step: the threads and buffers of a step, no
 * layers.
 *
 *   bench_weight_read FOLDER [--rows 2048] [--columns 8192] [--matrices 16] [--to bf16|f32] [--runs 3]
 *                            [--backend host|cuda] [--threads 6] [--load 1] [--only "transposed"]
 *
 * Writes FOLDER/model.safetensors, COUNT bf16 matrices [rows, columns], and reads them as they lie, transposed, and
 * parts of both, with the file dropped from the system's cache before and with the file in it. The best of the runs.
 * With --load as weights are read when they are loaded, through the mapping.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench/program.h"
#include "kernels/device/device.h"
#include "weight_stream/reader.h"
#include "weight_stream/weight.h"

#define MOST_MATRICES 64

typedef struct bench {
    const char *folder, *only;
    char path[4400];
    int64_t rows, columns;
    int32_t n, n_runs, n_threads;
    bool loads; /* as weights are read when they are loaded */
    trm_dtype dtype;
    trm_backend backend;
    trm_weight *weights[MOST_MATRICES];
    trm_device *device;
    trm_stream *stream;
} bench;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void write_file(const bench *b)
{
    const size_t bytes = (size_t)(b->rows * b->columns) * 2;
    char *header = malloc((size_t)b->n * 128 + 16), *end = header + 8;
    uint16_t *data = malloc(bytes);
    FILE *file = fopen(b->path, "wb");
    if (header == NULL || data == NULL || file == NULL) {
        fail(b->path);
    }
    for (int32_t i = 0; i < b->n; i++) {
        end += sprintf(end, "%s\"%d\":{\"dtype\":\"BF16\",\"shape\":[%lld,%lld],\"data_offsets\":[%zu,%zu]}",
                       i == 0 ? "{" : ",", i, (long long)b->rows, (long long)b->columns, (size_t)i * bytes,
                       (size_t)(i + 1) * bytes);
    }
    *end++ = '}';
    while ((end - header) % 8 != 0) {
        *end++ = ' ';
    }
    const uint64_t length = (uint64_t)(end - header) - 8;
    memcpy(header, &length, sizeof(length));
    bool good = fwrite(header, (size_t)length + 8, 1, file) == 1;
    uint32_t random = 1;
    for (size_t i = 0; i < bytes / 2; i++) {
        random = random * 1664525u + 1013904223u;
        data[i] = (uint16_t)(0x3c00 | (random >> 16 & 0x83ff));
    }
    for (int32_t i = 0; i < b->n; i++) {
        good = fwrite(data, bytes, 1, file) == 1 && good;
    }
    if (!good || fflush(file) != 0 || fsync(fileno(file)) != 0 || fclose(file) != 0) {
        fail(b->path);
    }
    free(header);
    free(data);
}

/* Out of the system's cache, or into it. */
static void set_cache(const bench *b, bool cached)
{
    static char bytes[1 << 20];
    int file = open(b->path, O_RDONLY);
    if (file < 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) {
        fail(b->path);
    }
    while (cached && read(file, bytes, sizeof(bytes)) > 0) {
    }
    close(file);
}

static trm_status read_piece(void *user, const trm_reader_piece *piece, void *to)
{
    const bench *b = user;
    const trm_weight *weight = b->weights[piece->item];
    const size_t element = trm_dtype_size(b->dtype), row = (size_t)trm_weight_dims(weight).d[1];
    if (b->loads) {
        return trm_weight_read(weight, b->dtype, piece->begin / element, piece->size / element, to);
    }
    return piece->rows > 1
               ? trm_weight_read_box_direct(weight, b->dtype, (int64_t)piece->row, (int64_t)piece->rows,
                                            (int64_t)(piece->begin / element), (int64_t)(piece->size / element), to)
               : trm_weight_read_direct(weight, b->dtype, piece->row * row + piece->begin / element,
                                        piece->size / element, to);
}

/* Of all processors. */
static double processor_seconds(void)
{
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) != 0) {
        fail("getrusage");
    }
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

typedef struct cost {
    double seconds, processor; /* of a byte */
} cost;

static cost read_all(bench *b, bool cached)
{
    int32_t items[MOST_MATRICES];
    size_t bytes[MOST_MATRICES], row_bytes[MOST_MATRICES], sum = 0;
    for (int32_t i = 0; i < b->n; i++) {
        trm_dims dims = trm_weight_dims(b->weights[i]);
        items[i] = i;
        bytes[i] = (size_t)(dims.d[0] * dims.d[1]) * trm_dtype_size(b->dtype);
        row_bytes[i] = trm_weight_is_turned(b->weights[i]) ? bytes[i] / (size_t)dims.d[0] : 0;
        sum += bytes[i];
    }
    const trm_reader_options options = {.items = items,
                                        .n_items = b->n,
                                        .bytes = bytes,
                                        .row_bytes = b->loads ? NULL : row_bytes,
                                        .read = read_piece,
                                        .user = b,
                                        .threads = b->n_threads,
                                        .buffers = 12,
                                        .buffer_bytes = (size_t)8 << 20};
    void *to;
    trm_reader *reader;
    bench_check(trm_device_alloc(b->device, bytes[0], &to), "memory");
    bench_check(trm_stream_fill_zero(b->stream, to, bytes[0]), "memory");
    bench_check(trm_stream_synchronize(b->stream), "memory");
    set_cache(b, cached);
    double began = bench_now(), used = processor_seconds();
    bench_check(trm_reader_create(b->device, &options, &reader), "reader");
    trm_reader_begin(reader);
    for (int32_t i = 0; i < b->n; i++) {
        bench_check(trm_reader_upload(reader, b->stream, to), "read");
    }
    bench_check(trm_stream_synchronize(b->stream), "copies");
    cost c = {(bench_now() - began) / (double)sum, (processor_seconds() - used) / (double)sum};
    trm_reader_destroy(reader);
    trm_device_free(b->device, to);
    return c;
}

typedef struct view {
    const char *name;
    bool turned;
    int32_t axis, parts; /* of the file's matrix, of which one is read */
} view;

static void measure(bench *b, const view *v)
{
    cost best[2] = {{1, 1}, {1, 1}};
    trm_safetensors *set;
    bench_check(trm_safetensors_open(b->folder, &set), "file");
    for (int32_t i = 0; i < b->n; i++) {
        char name[16];
        trm_weight *whole, *part;
        int64_t length = (v->axis == 0 ? b->rows : b->columns) / v->parts;
        snprintf(name, sizeof(name), "%d", i);
        bench_check(trm_safetensors_weight(set, name, &whole), "weight");
        bench_check(trm_weight_slice(whole, v->axis, v->parts > 1 ? length : 0, length, &part), "part");
        bench_check(v->turned ? trm_weight_transpose(part, (const int32_t[]){1, 0}, &b->weights[i])
                              : trm_weight_clone(part, &b->weights[i]),
                    "view");
        trm_weight_destroy(whole);
        trm_weight_destroy(part);
    }
    trm_safetensors_close(set);
    for (int32_t run = 0; run < b->n_runs * 2; run++) {
        const cost c = read_all(b, run % 2 == 1);
        cost *least = &best[run % 2];
        least->seconds = c.seconds < least->seconds ? c.seconds : least->seconds;
        least->processor = c.processor < least->processor ? c.processor : least->processor;
    }
    printf("%-34s %8.2f %8.2f %14.2f %8.2f\n", v->name, 1e-9 / best[0].seconds, 1e-9 / best[1].seconds,
           best[0].processor * 1e9, best[1].processor * 1e9);
    fflush(stdout);
    for (int32_t i = 0; i < b->n; i++) {
        trm_weight_destroy(b->weights[i]);
    }
}

static void read_arguments(bench *b, int argc, char **argv)
{
    if (argc < 2 || argc % 2 != 0) {
        fprintf(stderr, "bench_weight_read FOLDER [--rows N] [--columns N] [--matrices N] [--to bf16|f32] [--runs N] "
                        "[--backend host|cuda] [--threads N] [--load 1] [--only NAME]\n");
        exit(2);
    }
    b->folder = argv[1];
    snprintf(b->path, sizeof(b->path), "%s/model.safetensors", b->folder);
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--rows") == 0) {
            b->rows = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--columns") == 0) {
            b->columns = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--matrices") == 0) {
            b->n = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--runs") == 0) {
            b->n_runs = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--threads") == 0) {
            b->n_threads = atoi(argv[i + 1]);
        } else if (strcmp(argv[i], "--only") == 0) {
            b->only = argv[i + 1];
        } else if (strcmp(argv[i], "--load") == 0) {
            b->loads = strcmp(argv[i + 1], "0") != 0;
        } else if (strcmp(argv[i], "--backend") == 0) {
            b->backend = strcmp(argv[i + 1], "cuda") == 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
        } else if (strcmp(argv[i], "--to") == 0) {
            b->dtype = strcmp(argv[i + 1], "f32") == 0 ? TRM_F32 : TRM_BF16;
        } else {
            fprintf(stderr, "what is %s?\n", argv[i]);
            exit(2);
        }
    }
    b->n = b->n < 1 ? 1 : b->n > MOST_MATRICES ? MOST_MATRICES : b->n;
    b->n_threads = b->n_threads < 1 ? 1 : b->n_threads > 12 ? 12 : b->n_threads;
    b->rows = b->rows < 4 ? 4 : b->rows;
    b->columns = b->columns < 4 ? 4 : b->columns;
}

int main(int argc, char **argv)
{
    static bench b = {.rows = 2048,
                      .columns = 8192,
                      .n = 16,
                      .n_runs = 3,
                      .n_threads = 6,
                      .dtype = TRM_BF16,
                      .backend = TRM_BACKEND_HOST};
    static const view views[] = {
        {"as they lie", false, 0, 1},
        {"transposed", true, 0, 1},
        {"half of the rows", false, 0, 2},
        {"half of the rows, transposed", true, 0, 2},
        {"half of the columns", false, 1, 2},
        {"half of the columns, transposed", true, 1, 2},
        {"a quarter of the columns", false, 1, 4},
    };
    read_arguments(&b, argc, argv);
    write_file(&b);
    bench_check(trm_device_open(b.backend, 0, 1, &b.device), "device");
    bench_check(trm_stream_create_beside(b.device, &b.stream), "stream");
    printf(
        "%d matrices [%lld, %lld] of bf16, as %s; GB/s, and seconds of processors for a GB\n%-34s %8s %8s %14s %8s\n",
        b.n, (long long)b.rows, (long long)b.columns, trm_dtype_name(b.dtype), "", "dropped", "cached", "dropped",
        "cached");
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++) {
        if (b.only == NULL || strcmp(b.only, views[i].name) == 0) {
            measure(&b, &views[i]);
        }
    }
    trm_stream_destroy(b.stream);
    trm_device_close(b.device);
    return 0;
}
