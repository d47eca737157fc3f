/*
 * What run, bench and serve-worker share: this rank's world, the model and its generator, made from the settings.
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
    bool is_leader;            /* rank 0 */
    trm_progress_fn on_loaded; /* called while weights load; NULL: nobody wants to know */
    void *on_loaded_user;
    bool embeddings;      /* the generator computes embeddings, if the model can */
    int64_t cache_tokens; /* for the generator's options */
    double began;         /* wall_seconds when the model was opened */
    double load_seconds;  /* from then until the generator was ready */
    /* phases of startup */
    double process_seconds;                  /* from the start of the process until its world was opened */
    double driver_seconds;                   /* to look for GPUs */
    double model_seconds, tokenizer_seconds; /* the tokenizer is opened in parallel */
    double first_token_seconds;              /* from the start of the process; 0: none yet */
} job;

/* Opens the world and checks that every rank has the same settings. After a failure, job_close ends the job. */
trm_status job_open_world(job *j, const settings *all);
/* Begins the timeline of --timeline, if there is one, and lets SIGINT and SIGTERM write it before they end the process.
 * job_close writes it. Collective. timeline.c */
trm_status job_begin_timeline(job *j);
/* Opens a model folder or, if there is none, the named shape. TRM_ERROR_INVALID_MODEL if the model cannot be read. */
trm_status open_model(const settings *all, const char *name, trm_model **model);
/* Whether a name is that of a shape with random weights. */
bool names_shape(const char *name);
/* Opens the model of --draft, if there is one. Collective. */
trm_status job_open_draft_model(job *j);
/* Creates the generator for `sequences` concurrent sequences of `context` tokens. Collective: fails on every rank with
 * the same error. */
trm_status job_open_generator(job *j, int64_t context, int32_t sequences);
/* Notes that a token has arrived. */
void job_take_token(job *j);
/* Reports the phases of startup until the first token: as an object "startup", and as a line on stderr. */
void report_startup(report *r, const job *j);
void print_startup(const job *j);
/* Ends the job and returns the exit code; a failed `status` is printed as one line on stderr. `alike`: every rank has
 * the same status, so rank 0 prints it; otherwise the job is aborted. */
int job_close(job *j, trm_status status, bool alike);

/* The path of the timing cache, to be freed with trm_free; NULL: none. */
char *job_timing_cache(const settings *all, trm_world *world);

/* Parse --dtype, --kv-cache-dtype and --backend. */
trm_status job_dtype(const settings *all, trm_dtype *dtype);
/* --kv-cache-dtype. */
trm_status job_cache_dtype(const settings *all, trm_dtype *dtype);
trm_status job_backend(const settings *all, trm_backend *backend);
/* Parses --weight-budget and the options of streamed weights. */
trm_status job_budget(const settings *all, trm_weight_budget *budget);
/* Folder of expert profiles, NULL for none. */
const char *job_expert_profile(const settings *all);
/* Whether a setting of streamed weights has no effect because --weight-budget streams none. */
bool job_passes_over(const settings *all, setting_id id);
/* Refuses such options, and a draft model without speculative decoding. */
trm_status job_check_options(const settings *all);
/* Refuses --weight-sharing on if the mesh has no replicas. */
trm_status job_check_sharing(const settings *all, const trm_mesh *mesh);
/* Reports the effect of a weight budget: as an object "streaming", and in one line without a newline; "" without a
 * budget. */
void report_streaming(report *r, const trm_streaming_info *info);
/* Reports drafted and accepted tokens as an object "speculation". */
void report_speculation(report *r, const trm_generate_stats *stats);
void describe_streaming(const trm_streaming_info *info, char *text, size_t size);
/* Describes the same as tokens per second of a language model. `step_tokens`: of the largest step; 0: unknown. */
void describe_rates(const trm_streaming_info *info, int32_t step_tokens, char *text, size_t size);
/* Says that CPU offload would help, if it would; otherwise "". */
void describe_cpu_offload(const trm_streaming_info *info, char *text, size_t size);

/* A layer name with digits between dots replaced by "*", so that repeated blocks have the same name. */
void layer_pattern(const char *layer, char *pattern, size_t size);

/* Prints a network after a stage of the build as JSON: for the final stage that of the plan, otherwise the network's
 * text in an object. */
trm_status report_stage(const char *stage, int64_t rank, int64_t ranks, const char *text, trm_plan *plan);

/* Prints "trireme: <error>" and returns the exit code of the status. */
int print_failure(trm_status status);
/* The same before there is a world. Usually every rank fails with the same error: rank 0 prints it. Another rank prints
 * it only if it is still alive a while later, because rank 0 did not fail. */
int print_failure_once(trm_status status);
/* This process's rank as its launcher set it; NULL if it did not. */
const char *launched_rank(void);
/* Whether this process is rank 0 according to its launcher. */
bool is_first_rank(void);

/* Sends the library's log to stderr: warnings and errors, or everything if `verbose`. */
void send_log_to_stderr(bool verbose);
const char *log_level_name(trm_log_level level);

double wall_seconds(void);

#endif
