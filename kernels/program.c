#include "kernels/kernel.h"
#include "kernels/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void trm_program_fini(trm_program *program)
{
    trm_arena_fini(&program->arena);
    free(program->launches);
    *program = (trm_program){0};
}

void trm_program_clear(trm_program *program)
{
    trm_arena_clear(&program->arena);
    program->n = 0;
    program->tunes = false;
}

void *trm_program_alloc(trm_program *program, size_t size)
{
    return trm_arena_alloc(&program->arena, size);
}

trm_status trm_program_append(trm_program *program, const char *name, trm_status (*enqueue)(void *, trm_stream *),
                              void *args)
{
    if (program->n == program->capacity) {
        const int32_t capacity = program->capacity > 0 ? 2 * program->capacity : 64;
        trm_launch *launches = realloc(program->launches, (size_t)capacity * sizeof(*launches));
        if (launches == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d launches", capacity);
        }
        program->launches = launches;
        program->capacity = capacity;
    }
    program->launches[program->n++] = (trm_launch){name, enqueue, NULL, args, program->layer, program->stream};
    return TRM_OK;
}

void trm_program_set_plan(trm_program *program, trm_status (*plan)(void *, trm_stream *))
{
    program->launches[program->n - 1].plan = plan;
}

trm_status trm_program_run(const trm_program *program, int32_t begin, int32_t end, int32_t *at)
{
    for (*at = begin; *at < end; ++*at) {
        const trm_launch *launch = &program->launches[*at];
        TRM_TRY(launch->enqueue(launch->args, launch->stream));
    }
    return TRM_OK;
}

trm_status trm_program_run_on(const trm_program *program, int32_t begin, int32_t end, trm_stream *stream, int32_t *at)
{
    for (*at = begin; *at < end; ++*at) {
        const trm_launch *launch = &program->launches[*at];
        TRM_TRY(launch->enqueue(launch->args, stream));
    }
    return TRM_OK;
}

/* ---- kernels that are one launch --------------------------------------------------------------- */

typedef struct kernel_args {
    const trm_kernel *kernel;
    trm_kernel_call call;
} kernel_args;

static trm_status run_kernel(void *args, trm_stream *stream)
{
    kernel_args *a = args;
    a->call.stream = stream;
    return a->kernel->run(&a->call);
}

trm_status trm_kernel_prepare(const trm_kernel *kernel, const trm_kernel_call *call, trm_program *program)
{
    if (kernel->prepare != NULL) {
        return kernel->prepare(call, program);
    }
    kernel_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *args = (kernel_args){kernel, *call};
    return trm_program_append(program, kernel->name, run_kernel, args);
}

bool trm_program_take_tuner(trm_program *program, struct trm_tuner **tuner)
{
    const bool tunes = program->tunes;
    *tuner = program->tuner;
    program->tunes = false;
    return tunes;
}

trm_status trm_kernel_tune(const trm_kernel *kernel, const trm_kernel_call *call, struct trm_tuner *tuner)
{
    trm_program program = {.stream = call->stream, .tunes = kernel->is_tuned, .tuner = tuner};
    const trm_status status = kernel->is_tuned ? trm_kernel_prepare(kernel, call, &program) : TRM_OK;
    trm_program_fini(&program);
    return status;
}

trm_status trm_kernel_run(const trm_kernel *kernel, const trm_kernel_call *call)
{
    if (kernel->prepare == NULL) {
        return kernel->run(call);
    }
    trm_program program = {.stream = call->stream};
    int32_t at;
    trm_status status = trm_kernel_prepare(kernel, call, &program);
    status = status == TRM_OK ? trm_program_run(&program, 0, program.n, &at) : status;
    trm_program_fini(&program);
    return status;
}
