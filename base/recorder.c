/* Error recorders, and which one a failed call goes to. */
#include "base/recorder.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

struct trm_recorder {
    pthread_mutex_t mutex;      /* of what follows it but capacity, fn and user */
    trm_recorded_error *errors; /* [capacity] a ring */
    int32_t capacity, first, n;
    int64_t lost, next_index;
    trm_recorder_fn fn;
    void *user;
};

static _Thread_local trm_recorder *thread_recorder;
static _Thread_local int32_t calls_under_way;

static void add(trm_recorder *r, trm_status status, const char *call)
{
    trm_recorded_error error = {.status = status, .call = call};
    strncpy(error.message, trm_last_error(), sizeof(error.message) - 1);
    pthread_mutex_lock(&r->mutex);
    error.index = r->next_index++;
    if (r->n < r->capacity) {
        r->errors[(r->first + r->n++) % r->capacity] = error;
    } else {
        r->lost++;
    }
    pthread_mutex_unlock(&r->mutex);
    if (r->fn != NULL) {
        r->fn(r->user, &error);
    }
}

void trm_call_enter(void)
{
    calls_under_way++;
}

trm_status trm_call_leave(trm_status status, trm_recorder *recorder, const char *call)
{
    calls_under_way--;
    trm_recorder *to = recorder != NULL ? recorder : thread_recorder;
    if (status != TRM_OK && calls_under_way == 0 && to != NULL) {
        add(to, status, call);
    }
    return status;
}

void trm_thread_set_recorder(trm_recorder *recorder)
{
    thread_recorder = recorder;
}

TRM_CALL(NULL, trm_recorder_create, (int32_t capacity, trm_recorder_fn fn, void *user, trm_recorder **recorder),
         (capacity, fn, user, recorder))
{
    if (recorder == NULL || capacity < 0 || capacity > TRM_MAX_RECORDED_ERRORS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot create a recorder of %d errors: %s", (int)capacity,
                 recorder == NULL ? "recorder is NULL" : "expected 0 to 65536");
    }
    trm_recorder *made = calloc(1, sizeof(*made));
    trm_recorded_error *errors = calloc(capacity > 0 ? (size_t)capacity : 1, sizeof(*errors));
    if (made == NULL || errors == NULL || pthread_mutex_init(&made->mutex, NULL) != 0) {
        free(errors);
        free(made);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a recorder of %d errors", (int)capacity);
    }
    made->errors = errors;
    made->capacity = capacity;
    made->fn = fn;
    made->user = user;
    *recorder = made;
    return TRM_OK;
}

void trm_recorder_destroy(trm_recorder *recorder)
{
    if (recorder == NULL) {
        return;
    }
    if (thread_recorder == recorder) {
        thread_recorder = NULL;
    }
    pthread_mutex_destroy(&recorder->mutex);
    free(recorder->errors);
    free(recorder);
}

/* For calls that only read: the mutex is not part of what `const` promises. */
static trm_recorder *lock(const trm_recorder *recorder)
{
    trm_recorder *r = (trm_recorder *)recorder;
    pthread_mutex_lock(&r->mutex);
    return r;
}

int32_t trm_recorder_count(const trm_recorder *recorder)
{
    trm_recorder *r = lock(recorder);
    int32_t n = r->n;
    pthread_mutex_unlock(&r->mutex);
    return n;
}

int64_t trm_recorder_lost(const trm_recorder *recorder)
{
    trm_recorder *r = lock(recorder);
    int64_t lost = r->lost;
    pthread_mutex_unlock(&r->mutex);
    return lost;
}

bool trm_recorder_get(const trm_recorder *recorder, int32_t index, trm_recorded_error *error)
{
    trm_recorder *r = lock(recorder);
    bool found = index >= 0 && index < r->n;
    if (found) {
        *error = r->errors[(r->first + index) % r->capacity];
    }
    pthread_mutex_unlock(&r->mutex);
    return found;
}

bool trm_recorder_take(trm_recorder *recorder, trm_recorded_error *error)
{
    pthread_mutex_lock(&recorder->mutex);
    bool found = recorder->n > 0;
    if (found) {
        *error = recorder->errors[recorder->first];
        recorder->first = (recorder->first + 1) % recorder->capacity;
        recorder->n--;
    }
    pthread_mutex_unlock(&recorder->mutex);
    return found;
}

void trm_recorder_clear(trm_recorder *recorder)
{
    pthread_mutex_lock(&recorder->mutex);
    recorder->first = 0;
    recorder->n = 0;
    recorder->lost = 0;
    pthread_mutex_unlock(&recorder->mutex);
}
