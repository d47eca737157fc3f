/*
 * What the benches of kernels share: a device, tensors of random data, the time of a captured chain of calls, the
 * beginning and end of a report.
 */
#ifndef TRM_TESTS_BENCH_COMMON_H
#define TRM_TESTS_BENCH_COMMON_H

#include "kernels/kernel.h"
#include "kernels/program.h"

typedef struct bench {
    const char *name; /* of the program */
    trm_backend backend;
    trm_device *device;
    trm_stream *stream;
    trm_event *start, *end;
    const char *only; /* what to run, or NULL for everything */
    bool json, first; /* first: nothing was reported yet */
} bench;

/* Opens the device, begins the report, runs, ends the report and closes the device: the program's exit status. What
 * went wrong is said on stderr. `heading` is printed where the report is no JSON. */
int bench_main(bench *b, const char *heading, trm_status (*run)(bench *b));

/* Reads --json and `only` ("--only"), whose value names what to run. Returns false, with the usage on stderr, if there
 * is anything else. */
bool bench_read_options(bench *b, int argc, char **argv, const char *only);

/* Memory for a tensor and what it holds; the bench_free_call() of its call frees it. */
size_t bench_bytes_of(const trm_view *view);
trm_status bench_add_floats(const bench *b, trm_view *view, trm_dtype dtype, trm_dims dims, int32_t copies,
                            uint64_t seed);
trm_status bench_add_integers(const bench *b, trm_view *view, trm_dims dims, const int32_t *values);
void bench_free_call(const bench *b, trm_kernel_call *call);

/* Median milliseconds of one of `calls` calls that are enqueued one after the other, as a captured graph on CUDA:
 * enqueue(user, i) is call number i. Warm up before: code is loaded by the first call. */
trm_status bench_time(const bench *b, int32_t calls, trm_status (*enqueue)(void *user, int32_t i), void *user,
                      float *milliseconds);

/* A call whose launches are timed. */
typedef struct bench_call {
    const char *name;         /* of its shape */
    char fields[128];         /* of JSON, which describe it */
    double operations, bytes; /* that it takes */
    int32_t calls;            /* in a chain */
} bench_call;

/* Finds the call's kernel, and times all its launches together and each by itself. Reports those whose name has b->only
 * in it, under this heading. */
#define BENCH_LAUNCHES_HEADING                                                                                         \
    "shape                    launch                                   us       GB/s    TFLOP/s"
trm_status bench_time_launches(bench *b, const trm_kernel_table *table, const bench_call *what, trm_kernel_call *call);

#endif
