/*
 * Error recorders: the failures of calls, kept until they are read.
 *
 * trm_last_error() has the last cause of one thread. A recorder has several, of as many threads and objects as it is
 * given to: every call that returns another status than TRM_OK adds one entry to one recorder. That is the recorder of
 * the object that the call is about, else of what this was made from, else of the calling thread; with none of them,
 * the failure is in the thread's error record alone.
 *
 *   call about a context             the context's recorder, else its engine's, its world's, the calling thread's
 *   about an engine                  the engine's, else its world's, the thread's
 *   about a generator, a scheduler   the generator's (which is its engine's), else its world's, the thread's
 *   about a world; with a world      the world's, else the thread's
 *   any other, or with NULL          the thread's
 *
 * What goes wrong on threads of the library (loading, streaming, kernels that are planned) or in work that was only
 * enqueued is the failure of the call that waits for it, such as trm_context_finish, and so reaches the recorder of the
 * context or engine it belongs to, whichever thread calls. Calls that the library or a caller's callback makes within a
 * call are part of that one, which adds one entry if it fails itself. trm_world_all_ok adds none for a failure that it
 * was told. A request of a scheduler that ends with TRM_FINISH_ERROR is no failed call: its event has the cause.
 *
 * A recorder takes entries, and is read and cleared, on any threads at a time. It belongs to the caller and must
 * outlive the objects that it is given to, or be taken from them first; the same for threads, until they end. Adding an
 * entry allocates nothing, so that OUT_OF_MEMORY is kept as well.
 */
#ifndef TRIREME_RECORDER_H
#define TRIREME_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_recorder trm_recorder;

typedef struct trm_recorded_error {
    trm_status status;
    int64_t index;    /* of the failures that the recorder was given, 0, 1, ..., also of those it had no room for; goes
                         on when it is cleared */
    const char *call; /* the function that failed, "trm_context_run"; valid as long as the library is */
    char message[TRM_CAUSE_SIZE]; /* as trm_last_error() had it then */
} trm_recorded_error;

/* Told of a failure when it has been added, or had no room, on the thread whose call failed, before that call returns;
 * of several threads at a time, and not always in the order of `index`. `error` lives until it returns. Of this library
 * it may call only those that read and clear recorders. */
typedef void (*trm_recorder_fn)(void *user, const trm_recorded_error *error);

#define TRM_MAX_RECORDED_ERRORS 65536

/* A recorder that keeps up to `capacity` failures, 0 .. TRM_MAX_RECORDED_ERRORS, of about 2 KiB each; further ones are
 * only counted, as the first are nearest to the cause. `fn` may be NULL. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY. */
TRM_API trm_status trm_recorder_create(int32_t capacity, trm_recorder_fn fn, void *user, trm_recorder **recorder);
TRM_API void trm_recorder_destroy(trm_recorder *recorder);

/* Failures that are kept, and how many had no room since it was created or cleared. */
TRM_API int32_t trm_recorder_count(const trm_recorder *recorder);
TRM_API int64_t trm_recorder_lost(const trm_recorder *recorder);
/* Copies the index-th of those kept, oldest first; false past the last, which others may have taken meanwhile. */
TRM_API bool trm_recorder_get(const trm_recorder *recorder, int32_t index, trm_recorded_error *error);
/* Copies the oldest and removes it, so that its place is free; false if there is none. Of several threads that take,
 * each gets others. */
TRM_API bool trm_recorder_take(trm_recorder *recorder, trm_recorded_error *error);
/* Forgets all that are kept, and how many had no room. */
TRM_API void trm_recorder_clear(trm_recorder *recorder);

/* The recorder of the calling thread; NULL: none. Those of objects are set by trm_world_set_recorder (mesh.h),
 * trm_engine_set_recorder, trm_context_set_recorder (engine.h) and trm_generator_set_recorder (generate.h). */
TRM_API void trm_thread_set_recorder(trm_recorder *recorder);

#ifdef __cplusplus
}
#endif
#endif
