/*
 * The error record: the function that fails writes the cause once; functions that pass a failure on add nothing.
 */
#ifndef TRM_BASE_ERROR_H
#define TRM_BASE_ERROR_H

#include <trireme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the cause into the calling thread's record and returns `status`. The arguments may point into the record. */
trm_status trm_fail(trm_status status, const char *format, ...) TRM_PRINTF(2, 3);

/* Puts a prefix and ": " before the recorded cause, for callers that know the object; returns `status`. */
trm_status trm_fail_in(trm_status status, const char *format, ...) TRM_PRINTF(2, 3);

/*
 * A failure kept while cleanup may overwrite the thread's record, or until another thread passes it on.
 *
 *     trm_held_error held;
 *     trm_error_hold(status, &held);
 *     ... what may fail as well ...
 *     return trm_error_give_back(&held);
 */
typedef struct trm_held_error {
    trm_status status;
    char cause[TRM_CAUSE_SIZE]; /* set only if status is not TRM_OK */
} trm_held_error;
/* Copies the calling thread's record, unless `status` is TRM_OK. */
void trm_error_hold(trm_status status, trm_held_error *held);
/* Makes the held cause the calling thread's record again and returns the held status. TRM_OK leaves the record alone.
 */
trm_status trm_error_give_back(const trm_held_error *held);

/* Passes a failure on. */
#define TRM_TRY(call)                                                                                                  \
    do {                                                                                                               \
        trm_status trm_try_status_ = (call);                                                                           \
        if (trm_try_status_ != TRM_OK) {                                                                               \
            return trm_try_status_;                                                                                    \
        }                                                                                                              \
    } while (0)

/* Passes a failure on through the function's cleanup label; `status` is its result variable. */
#define TRM_TRY_GOTO(status, call, label)                                                                              \
    do {                                                                                                               \
        (status) = (call);                                                                                             \
        if ((status) != TRM_OK) {                                                                                      \
            goto label;                                                                                                \
        }                                                                                                              \
    } while (0)

#define TRM_FAIL(status, ...) return trm_fail((status), __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
