/*
 * Error recorders: the failures of calls, kept until they are read.
 *
 * trm_last_error() has the last cause of one thread. A recorder keeps several, of all threads and objects that use it:
 * every call that returns another status than TRM_OK adds one entry to one recorder. That is the recorder of the object
 * that the call is about, else of the object that this was made from, else of the calling thread. Without any of them
 * the failure is only in the thread's error record.
 *
 *   call about a context             the context's recorder, else its engine's, its world's, the calling thread's
 *   about an engine                  the engine's, else its world's, the thread's
 *   about a generator, a scheduler   the generator's (which is its engine's), else its world's, the thread's
 *   about a world; with a world      the world's, else the thread's
 *   any other, or with NULL          the thread's
 *
 * Failures on threads of the library (loading, streaming) and in enqueued work are failures of the call that waits for
 * them, such as trm_context_finish, and reach the recorder of its context or engine, whichever thread calls. Calls that
 * the library or a callback makes within a call belong to that call, which adds one entry if it fails itself.
 * trm_world_all_ok adds no entry for a failure of another rank. A request of a scheduler that ends with
 * TRM_FINISH_ERROR is not a failed call: its event has the cause.
 *
 * Any number of threads may add to, read and clear a recorder at once. The caller owns it; it must outlive the objects
 * and threads that use it, unless they are given another one first. Adding an entry allocates nothing, so that
 * OUT_OF_MEMORY is kept as well.
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
    int64_t index;    /* running number of the failure, from 0; counts failures without room too, and clearing does not
                         reset it */
    const char *call; /* the function that failed, "trm_context_run"; static */
    char message[TRM_CAUSE_SIZE]; /* as trm_last_error() had it then */
} trm_recorded_error;

/* Called for each failure after it was added or found no room, on the thread whose call failed, before that call
 * returns. Several threads may call it at once, and not always in the order of `index`. `error` is valid until it
 * returns. Of this library it may call only functions that read and clear recorders. */
typedef void (*trm_recorder_fn)(void *user, const trm_recorded_error *error);

#define TRM_MAX_RECORDED_ERRORS 65536

/* Makes a recorder that keeps up to `capacity` failures, 0 .. TRM_MAX_RECORDED_ERRORS, of about 2 KiB each. It only
 * counts later ones, since the first are nearest to the cause. `fn` may be NULL. Errors: INVALID_ARGUMENT,
 * OUT_OF_MEMORY. */
TRM_API trm_status trm_recorder_create(int32_t capacity, trm_recorder_fn fn, void *user, trm_recorder **recorder);
TRM_API void trm_recorder_destroy(trm_recorder *recorder);

/* Number of failures that are kept; number that found no room since the recorder was created or cleared. */
TRM_API int32_t trm_recorder_count(const trm_recorder *recorder);
TRM_API int64_t trm_recorder_lost(const trm_recorder *recorder);
/* Copies the index-th kept failure, oldest first; false past the last. */
TRM_API bool trm_recorder_get(const trm_recorder *recorder, int32_t index, trm_recorded_error *error);
/* Copies the oldest kept failure and removes it; false if none is kept. Several threads that take get different ones.
 */
TRM_API bool trm_recorder_take(trm_recorder *recorder, trm_recorded_error *error);
/* Removes all kept failures and sets trm_recorder_lost to 0. */
TRM_API void trm_recorder_clear(trm_recorder *recorder);

/* Sets the recorder of the calling thread; NULL: none. Objects get theirs by trm_world_set_recorder (mesh.h),
 * trm_engine_set_recorder, trm_context_set_recorder (engine.h) and trm_generator_set_recorder (generate.h). */
TRM_API void trm_thread_set_recorder(trm_recorder *recorder);

#ifdef __cplusplus
}
#endif
#endif
