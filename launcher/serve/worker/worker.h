/*
 * A rank of a serving job: its connections to the front end, its heartbeat, and on rank 0 the loop that feeds the
 * scheduler.
 */
#ifndef TRM_LAUNCHER_SERVE_WORKER_WORKER_H
#define TRM_LAUNCHER_SERVE_WORKER_WORKER_H

#include <trireme/model.h>
#include <trireme/serving.h>
#include <trireme/tokenizer.h>

#define WORKER_SOCKET_VARIABLE   "TRIREME_SERVE_SOCKET"
#define WORKER_STARTING_VARIABLE "TRIREME_SERVE_STARTING" /* number of replicas that start at this time */

typedef struct worker worker;

/* Connects to the socket of the front end and starts the heartbeat. */
trm_status worker_create(const char *name, int32_t rank, int32_t ranks, worker **result);
/* Reports a failure, with trm_last_error as its cause, to the front end. Returns whether it was reported: only rank 0
 * does. */
bool worker_tell_failure(worker *w, trm_status failure);
void worker_destroy(worker *w);

/* Counts a step of this rank: a trm_step_fn with the worker as `user`. */
void worker_note_step(void *user, const trm_step_times *times);
/* Says how many bytes of weights this rank has loaded. */
void worker_note_loaded(worker *w, size_t bytes);
/* Counts that this follower polls for a step, gets one, or has finished it: a trm_heard_fn. */
void worker_note_heard(void *user, bool has_step);

typedef struct worker_engine {
    trm_scheduler *scheduler;
    const trm_tokenizer *tokenizer;
    const trm_model_info *info;
    int64_t max_context, cache_tokens;
    int32_t max_sequences;
    double load_seconds;
} worker_engine;

/* Serves until the front end ends it or is gone. Rank 0 leads, the others follow. */
trm_status worker_run(worker *w, const worker_engine *engine);

#endif
