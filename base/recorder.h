/*
 * Records failures of public calls: TRM_CALL defines every public function that returns a status, and passes its
 * failure to a recorder (include/trireme/recorder.h).
 */
#ifndef TRM_BASE_RECORDER_H
#define TRM_BASE_RECORDER_H

#include <trireme/recorder.h>

/* A public call runs between them; calls within it are part of it. Leaving with a failure adds the thread's error
 * record to `recorder`, or to the thread's recorder if that is NULL. Returns `status`. */
void trm_call_enter(void);
trm_status trm_call_leave(trm_status status, trm_recorder *recorder, const char *call);

/*
 * The head of a public function's definition; the body follows in braces. `recorder` is that of the call's object, or
 * NULL, and is evaluated before the body runs.
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
