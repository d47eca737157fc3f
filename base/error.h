/*
 * The error record: who fails writes the cause once, who passes a failure on adds nothing.
 */
#ifndef TRM_BASE_ERROR_H
#define TRM_BASE_ERROR_H

#include <trireme/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the cause into the calling thread's record and returns `status`. */
trm_status trm_fail(trm_status status, const char *format, ...) TRM_PRINTF(2, 3);

/* Puts a prefix and ": " before the recorded cause, for callers that know which object it befell;
 * returns `status`. */
trm_status trm_fail_in(trm_status status, const char *format, ...) TRM_PRINTF(2, 3);

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
