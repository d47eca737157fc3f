/* What the benches of kernels share. */
#include "bench/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/sampling/random.h"

#define LAUNCHES 7

static trm_status open_and_run(bench *b, const char *heading, trm_status (*run)(bench *b))
{
    TRM_TRY(trm_device_open(b->backend, 0, b->backend == TRM_BACKEND_CUDA ? 0 : 1, &b->device));
    TRM_TRY(trm_stream_create(b->device, &b->stream));
    TRM_TRY(trm_event_create(b->device, &b->start));
    TRM_TRY(trm_event_create(b->device, &b->end));
    printf("%s\n", b->json ? "[" : heading);
    TRM_TRY(run(b));
    if (b->json) {
        printf("\n]\n");
    }
    return TRM_OK;
}

int bench_main(bench *b, const char *heading, trm_status (*run)(bench *b))
{
    b->first = true;
    trm_status status = open_and_run(b, heading, run);
    if (status != TRM_OK) {
        fprintf(stderr, "%s: %s\n", b->name, trm_last_error());
    }
    trm_event_destroy(b->start);
    trm_event_destroy(b->end);
    trm_stream_destroy(b->stream);
    trm_device_close(b->device);
    return status == TRM_OK ? 0 : 1;
}

bool bench_read_options(bench *b, int argc, char **argv, const char *only)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            b->json = true;
        } else if (strcmp(argv[i], only) == 0 && i + 1 < argc) {
            b->only = argv[++i];
        } else {
            fprintf(stderr, "usage: %s [--json] [%s TEXT]\n", b->name, only);
            return false;
        }
    }
    return true;
}

size_t bench_bytes_of(const trm_view *view)
{
    return (size_t)trm_dims_count(&view->dims) * trm_dtype_size(view->dtype);
}

trm_status bench_add_floats(const bench *b, trm_view *view, trm_dtype dtype, trm_dims dims, int32_t copies,
                            uint64_t seed)
{
    *view = (trm_view){NULL, dtype, dims};
    TRM_TRY(trm_device_alloc(b->device, bench_bytes_of(view) * (size_t)copies, &view->data));
    trm_random_fill_args fill = {
        .to = {view->data, dtype, {1, {trm_dims_count(&dims) * copies}}}, .seed = seed, .spread = 1.7f, .strides = {1}};
    return trm_random_fill(b->stream, &fill);
}

trm_status bench_add_integers(const bench *b, trm_view *view, trm_dims dims, const int32_t *values)
{
    *view = (trm_view){NULL, TRM_I32, dims};
    TRM_TRY(trm_device_alloc(b->device, bench_bytes_of(view), &view->data));
    TRM_TRY(trm_stream_upload(b->stream, view->data, values, bench_bytes_of(view)));
    return trm_stream_synchronize(b->stream);
}

void bench_free_call(const bench *b, trm_kernel_call *call)
{
    for (int32_t i = 0; i < call->n_inputs; i++) {
        trm_device_free(b->device, call->inputs[i].data);
    }
    for (int32_t i = 0; i < call->n_outputs; i++) {
        trm_device_free(b->device, call->outputs[i].data);
    }
    trm_device_free(b->device, call->workspace);
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static trm_status enqueue_all(int32_t calls, trm_status (*enqueue)(void *user, int32_t i), void *user)
{
    for (int32_t i = 0; i < calls; i++) {
        TRM_TRY(enqueue(user, i));
    }
    return TRM_OK;
}

static trm_status capture(const bench *b, int32_t calls, trm_status (*enqueue)(void *user, int32_t i), void *user,
                          trm_graph_exec **exec)
{
    TRM_TRY(trm_stream_begin_capture(b->stream));
    trm_status run = enqueue_all(calls, enqueue, user), end = trm_stream_end_capture(b->stream, exec);
    return run != TRM_OK ? run : end;
}

trm_status bench_time(const bench *b, int32_t calls, trm_status (*enqueue)(void *user, int32_t i), void *user,
                      float *milliseconds)
{
    float times[LAUNCHES];
    trm_graph_exec *exec = NULL;
    trm_status status = b->backend == TRM_BACKEND_CUDA ? capture(b, calls, enqueue, user, &exec) : TRM_OK;
    for (int32_t i = -1; status == TRM_OK && i < LAUNCHES; i++) { /* the first is not counted */
        float time = 0.0f;
        TRM_TRY_GOTO(status, trm_event_record(b->start, b->stream), done);
        status = exec != NULL ? trm_graph_exec_launch(exec, b->stream) : enqueue_all(calls, enqueue, user);
        TRM_TRY_GOTO(status, status, done);
        TRM_TRY_GOTO(status, trm_event_record(b->end, b->stream), done);
        TRM_TRY_GOTO(status, trm_event_synchronize(b->end), done);
        TRM_TRY_GOTO(status, trm_event_elapsed_ms(b->start, b->end, &time), done);
        if (i >= 0) {
            times[i] = time / (float)calls;
        }
    }
    if (status == TRM_OK) {
        qsort(times, LAUNCHES, sizeof(times[0]), compare_floats);
        *milliseconds = times[LAUNCHES / 2];
    }
done:
    trm_graph_exec_destroy(exec);
    return status;
}

/* Launches begin .. end - 1 of a program. */
typedef struct part {
    const trm_program *program;
    trm_stream *stream;
    int32_t begin, end;
} part;

static trm_status enqueue_part(void *user, int32_t i)
{
    const part *run = user;
    int32_t at;
    (void)i;
    return trm_program_run_on(run->program, run->begin, run->end, run->stream, &at);
}

static trm_status time_part(bench *b, const bench_call *what, const char *launch, part *run)
{
    float milliseconds;
    if (b->only != NULL && strstr(launch, b->only) == NULL) {
        return TRM_OK;
    }
    TRM_TRY(bench_time(b, what->calls, enqueue_part, run, &milliseconds));
    const double us = (double)milliseconds * 1e3, rate = what->bytes / us * 1e-3, tera = what->operations / us * 1e-6;
    if (b->json) {
        printf("%s  {\"shape\": \"%s\", \"launch\": \"%s\", %s, \"microseconds\": %.2f, \"gbytes\": %.0f, "
               "\"tflops\": %.2f}",
               b->first ? "" : ",\n", what->name, launch, what->fields, us, rate, tera);
    } else {
        printf("%-24s %-32s %10.2f %10.0f %10.2f\n", what->name, launch, us, rate, tera);
    }
    fflush(stdout);
    b->first = false;
    return TRM_OK;
}

trm_status bench_time_launches(bench *b, const trm_kernel_table *table, const bench_call *what, trm_kernel_call *call)
{
    const trm_kernel *kernel = trm_kernel_find(&table, 1, b->backend, call);
    if (kernel == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "no kernel takes %s", what->name);
    }
    call->workspace_size = kernel->workspace(call);
    TRM_TRY(trm_device_alloc(b->device, call->workspace_size, &call->workspace));
    trm_program program = {0};
    trm_status status = trm_kernel_prepare(kernel, call, &program);
    part run = {&program, b->stream, 0, program.n};
    status = status == TRM_OK ? enqueue_part(&run, 0) : status; /* outside of the capture first: code is loaded then */
    status = status == TRM_OK ? time_part(b, what, "all", &run) : status;
    for (int32_t i = 0; i < program.n && status == TRM_OK; i++) {
        run.begin = i;
        run.end = i + 1;
        status = time_part(b, what, program.launches[i].name, &run);
    }
    trm_program_fini(&program);
    return status;
}
