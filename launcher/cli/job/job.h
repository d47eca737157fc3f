/*
 * What `run` and `bench` share: this rank's world, the model and its generator, made from the settings.
 */
#ifndef TRM_LAUNCHER_CLI_JOB_JOB_H
#define TRM_LAUNCHER_CLI_JOB_JOB_H

#include <trireme/trireme.h>

#include "launcher/cli/job/report.h"
#include "launcher/cli/settings/settings.h"

typedef struct job {
    const settings *all;
    trm_world *world;
    trm_model *model;
    trm_generator *generator;
    trm_model *draft_model; /* of --draft, or NULL */
    trm_generator *draft;
    bool talks;           /* rank 0 */
    bool embeddings;      /* the generator is to have them, where the model can */
    int64_t cache_tokens; /* for the generator's options */
    double began;         /* wall_seconds when the model was opened */
    double load_seconds;  /* from then until the generator was ready */
    /* where the time before that, and of it, went */
    double process_seconds;                  /* from the start of the process until its world was opened */
    double driver_seconds;                   /* looking for GPUs */
    double model_seconds, tokenizer_seconds; /* the latter beside the rest */
    double first_token_seconds;              /* from the start of the process; 0: none yet */
} job;

/* Opens the world and makes sure that every rank has the same settings. When it fails, job_close ends the job. */
trm_status job_open_world(job *j, const settings *all);
/* Opens a model folder, or, if there is none, the named shape of that name. A model that cannot be read is
 * TRM_ERROR_INVALID_MODEL. */
trm_status open_model(const settings *all, const char *name, trm_model **model);
/* Whether a name stands for a shape with random weights. */
bool names_shape(const char *name);
/* Makes the generator of the model for `sequences` sequences of `context` tokens at a time. Fails alike on every rank.
 * Collective. */
trm_status job_open_generator(job *j, int64_t context, int32_t sequences);
/* Notes that a token has come. */
void job_take_token(job *j);
/* Where the time until the first token went, as an object "startup" of a report, and as a line on stderr. */
void report_startup(report *r, const job *j);
void print_startup(const job *j);
/* Ends the job and returns the exit code: with `status` not ok, after one line on stderr that says why. `alike`: every
 * rank has the same status, so rank 0 speaks for all; otherwise the other ranks are told to stop. */
int job_close(job *j, trm_status status, bool alike);

/* The timing cache file of the settings, to trm_free(); NULL: none. */
char *job_timing_cache(const settings *all, trm_world *world);

/* Reads "auto", "f32", "f16", "bf16" and "cuda", "host", "auto". */
trm_status job_dtype(const settings *all, trm_dtype *dtype);
/* --kv-cache-dtype. */
trm_status job_cache_dtype(const settings *all, trm_dtype *dtype);
trm_status job_backend(const settings *all, trm_backend *backend);
/* --weight-budget, --host-memory, --weight-compression, --weight-sharing and --host-compute. */
trm_status job_budget(const settings *all, trm_weight_budget *budget);
/* Whether a setting asks something of weights that stream, though by --weight-budget (off, 100%) none do. */
bool job_passes_over(const settings *all, setting_id id);
/* Refuses such options, and a draft model where nothing is drafted. */
trm_status job_check_options(const settings *all);
/* Refuses --weight-sharing on where the mesh has no replicas. */
trm_status job_check_sharing(const settings *all, const trm_mesh *mesh);
/* What a budget comes to, as an object "streaming" of a report, and in one line without an end; "" where there is none.
 */
void report_streaming(report *r, const trm_streaming_info *info);
/* What came of drafts, as an object "speculation". */
void report_speculation(report *r, const trm_generate_stats *stats);
void describe_streaming(const trm_streaming_info *info, char *text, size_t size);
/* What that is in tokens, of a language model; `step_tokens`: of the largest step, 0: not told. */
void describe_rates(const trm_streaming_info *info, int32_t step_tokens, char *text, size_t size);
/* That processors would help, where they would; else "". */
void describe_hosting(const trm_streaming_info *info, char *text, size_t size);

/* A layer's name with digits between dots made "*", so that repeated blocks have the same. */
void layer_pattern(const char *layer, char *pattern, size_t size);

/* Prints a network after a stage of the build as JSON: the plan's own where the stage is the final one, else as text
 * in it. */
trm_status report_stage(const char *stage, int64_t rank, int64_t ranks, const char *text, trm_plan *plan);

/* Prints "trireme: <cause>" and returns the exit code of the status. */
int print_failure(trm_status status);
/* The same before there is a world. Most often every rank has failed alike: rank 0 speaks for all, and the others only
 * if they are still there a while later, because rank 0 has not failed. */
int print_failure_once(trm_status status);
/* This process's rank in its launcher's variables; NULL if it has none. */
const char *launched_rank(void);
/* Whether this process is rank 0, as far as its launcher's variables tell. */
bool is_first_rank(void);

/* Sends the library's log to stderr: warnings and errors, or with `verbose` everything. */
void send_log_to_stderr(bool verbose);

double wall_seconds(void);

#endif
