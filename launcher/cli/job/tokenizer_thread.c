/* Opens a tokenizer in parallel with everything else. */
#include "launcher/cli/job/tokenizer_thread.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"

static void *open_tokenizer(void *user)
{
    tokenizer_thread *t = user;
    double began = trm_clock_seconds();
    const trm_status status = trm_tokenizer_open(t->path, &t->tokenizer);
    trm_error_hold(status == TRM_ERROR_IO ? TRM_ERROR_INVALID_MODEL : status, &t->failure);
    t->seconds = trm_clock_seconds() - began;
    atomic_store(&t->is_done, true);
    return NULL;
}

void tokenizer_thread_start(tokenizer_thread *t, const char *path)
{
    if (t->is_started || atomic_load(&t->is_done)) {
        return;
    }
    int length = snprintf(t->path, sizeof(t->path), "%s", path);
    if (length < 0 || (size_t)length >= sizeof(t->path)) {
        trm_error_hold(trm_fail(TRM_ERROR_INVALID_ARGUMENT, "the path of the model has %d bytes, expected at most %zu",
                                length, sizeof(t->path) - 1),
                       &t->failure);
        atomic_store(&t->is_done, true);
        return;
    }
    t->is_started = pthread_create(&t->thread, NULL, open_tokenizer, t) == 0;
    if (!t->is_started) {
        open_tokenizer(t);
    }
}

trm_status tokenizer_thread_wait(tokenizer_thread *t)
{
    if (t->is_started) {
        pthread_join(t->thread, NULL);
        t->is_started = false;
    }
    return trm_error_give_back(&t->failure);
}

void tokenizer_thread_fini(tokenizer_thread *t)
{
    if (t->is_started) {
        pthread_join(t->thread, NULL);
        t->is_started = false;
    }
    trm_tokenizer_close(t->tokenizer);
    t->tokenizer = NULL;
}
