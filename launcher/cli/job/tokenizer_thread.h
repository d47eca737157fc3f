/*
 * Opening a tokenizer on a thread of its own, while the device and the weights are made ready: a large one takes a
 * quarter of a second.
 */
#ifndef TRM_LAUNCHER_CLI_JOB_TOKENIZER_THREAD_H
#define TRM_LAUNCHER_CLI_JOB_TOKENIZER_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include <trireme/tokenizer.h>

typedef struct tokenizer_thread {
    pthread_t thread;
    bool is_started;
    _Atomic bool is_done;
    char path[4096];
    trm_tokenizer *tokenizer;
    trm_status status;
    char cause[512];
    double seconds; /* that opening took */
} tokenizer_thread;

/* Starts opening the tokenizer of a model folder; does nothing if that has been started. Where there can be no thread
 * it is opened at once. */
void tokenizer_thread_start(tokenizer_thread *t, const char *path);
/* Waits for it and says how it went; t->tokenizer stays the thread's. A tokenizer that cannot be read is
 * TRM_ERROR_INVALID_MODEL. */
trm_status tokenizer_thread_wait(tokenizer_thread *t);
/* Waits, and closes the tokenizer. */
void tokenizer_thread_fini(tokenizer_thread *t);

#endif
