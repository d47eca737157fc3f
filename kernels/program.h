/*
 * A program: what runs for given dims, decided once and written down as a flat list of launches with their arguments.
 * Running it is one loop, which decides nothing.
 */
#ifndef TRM_KERNELS_PROGRAM_H
#define TRM_KERNELS_PROGRAM_H

#include "base/arena.h"
#include "kernels/call.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trm_kernel; /* kernel.h */

/* One enqueue. */
typedef struct trm_launch {
    const char *name; /* of the kernel, or of what it does */
    trm_status (*enqueue)(void *args, trm_stream *stream);
    /* Asks a library what `enqueue` would else ask it the first time; NULL: nothing is left to ask. Enqueues nothing;
     * any thread, several launches at a time. */
    trm_status (*plan)(void *args, trm_stream *stream);
    void *args; /* the program's; nothing refers to them when `enqueue` has returned */
    int32_t layer;
    trm_stream *stream;
} trm_launch;

/* Zero-initialized is empty and ready. */
typedef struct trm_program {
    trm_arena arena;
    trm_launch *launches; /* [n] */
    int32_t n, capacity;
    int32_t layer;      /* of the launches that are appended next */
    trm_stream *stream; /* likewise */
    /* The next kernel that is prepared chooses among its variants: as the tuner (may be NULL) knows from before, else
     * by timing them, which may overwrite outputs and workspace. Else kernels are prepared as was chosen before. */
    bool tunes;
    struct trm_tuner *tuner;
} trm_program;

void trm_program_fini(trm_program *program);
/* Empties a program; its memory stays for the next one. */
void trm_program_clear(trm_program *program);

/* Zeroed memory for the arguments of launches, or NULL with the error record set. */
void *trm_program_alloc(trm_program *program, size_t size);
trm_status trm_program_append(trm_program *program, const char *name, trm_status (*enqueue)(void *, trm_stream *),
                              void *args);
/* What the launch that was appended last plans. */
void trm_program_set_plan(trm_program *program, trm_status (*plan)(void *, trm_stream *));
/* Appends what runs a call. Its layer, and the elements of value inputs, must be there as long as the program. */
trm_status trm_kernel_prepare(const struct trm_kernel *kernel, const trm_kernel_call *call, trm_program *program);

/* For a kernel's `prepare`: whether the program tunes, and with what. What it prepares itself then does not. */
bool trm_program_take_tuner(trm_program *program, struct trm_tuner **tuner);
/* Prepares a call for its choice alone. */
trm_status trm_kernel_tune(const struct trm_kernel *kernel, const trm_kernel_call *call, struct trm_tuner *tuner);

/* Enqueues launches begin .. end - 1, each on its stream. *at is the one that failed, or `end`. */
trm_status trm_program_run(const trm_program *program, int32_t begin, int32_t end, int32_t *at);
/* The same, all on one stream. */
trm_status trm_program_run_on(const trm_program *program, int32_t begin, int32_t end, trm_stream *stream, int32_t *at);
/* Prepares a call and runs it once, on its stream. */
trm_status trm_kernel_run(const struct trm_kernel *kernel, const trm_kernel_call *call);

#ifdef __cplusplus
}
#endif
#endif
