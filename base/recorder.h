/*
 * What a failed public call leaves behind: every one that returns a status is defined by TRM_CALL, which hands its
 * failure to a recorder (include/trireme/recorder.h).
 */
#ifndef TRM_BASE_RECORDER_H
#define TRM_BASE_RECORDER_H

#include <trireme/recorder.h>

/* Between them a public call runs; calls within it are part of it. Leaving with a failure adds the thread's error
 * record to `recorder`, or if that is NULL to the thread's. Returns `status`. */
void trm_call_enter(void);
trm_status trm_call_leave(trm_status status, trm_recorder *recorder, const char *call);

/*
 * The head of a public function's definition; what follows in braces is its body. `recorder` is that of the object the
 * call is about, or NULL, and is looked up before the body runs.
 *
 *     TRM_CALL(context_recorder(context), trm_context_run, (trm_context *context), (context))
 *     {
 *         ...
 *     }
 */
#define TRM_CALL(recorder, name, parameters, arguments)                                                                \
    static trm_status name##_body parameters;                                                                          \
    trm_status name parameters                                                                                         \
    {                                                                                                                  \
        trm_recorder *trm_call_recorder_ = (recorder);                                                                 \
        trm_call_enter();                                                                                              \
        return trm_call_leave(name##_body arguments, trm_call_recorder_, #name);                                       \
    }                                                                                                                  \
    static trm_status name##_body parameters

#endif
