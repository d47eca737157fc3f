/*
 * Opens a tokenizer on its own thread while device and weights are prepared: a large one takes a quarter of a second.
 */
#ifndef TRM_LAUNCHER_CLI_JOB_TOKENIZER_THREAD_H
#define TRM_LAUNCHER_CLI_JOB_TOKENIZER_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include <trireme/tokenizer.h>

#include "base/error.h"

typedef struct tokenizer_thread {
    pthread_t thread;
    bool is_started;
    _Atomic bool is_done;
    char path[4096];
    trm_tokenizer *tokenizer;
    trm_held_error failure;
    double seconds; /* to open it */
} tokenizer_thread;

/* Starts to open the tokenizer of a model folder, unless it was started before. Without a thread it is opened at once.
 */
void tokenizer_thread_start(tokenizer_thread *t, const char *path);
/* Waits and returns the result; t->tokenizer stays owned by t. TRM_ERROR_INVALID_MODEL if it cannot be read. */
trm_status tokenizer_thread_wait(tokenizer_thread *t);
/* Waits, and closes the tokenizer. */
void tokenizer_thread_fini(tokenizer_thread *t);

#endif
