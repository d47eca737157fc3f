/*
 * What `run` and `bench` share: this rank's world, the model and its generator, made from the settings.
 */
#ifndef TRM_LAUNCHER_CLI_JOB_H
#define TRM_LAUNCHER_CLI_JOB_H

#include <trireme/trireme.h>

#include "launcher/cli/settings.h"

typedef struct job {
    const settings *all;
    trm_world *world;
    trm_model *model;
    trm_generator *generator;
    bool talks; /* rank 0 */
    double load_seconds;
} job;

/* Opens the world. */
trm_status job_open_world(job *j, const settings *all);
/* Opens a model folder, or the named shape of that name. */
trm_status job_open_model(const settings *all, const char *name, trm_model **model);
/* Opens the model and makes the generator for `sequences` sequences at a time. Fails alike on every rank. Collective.
 */
trm_status job_open_generator(job *j, const char *name, int32_t sequences);
/* Ends the job and returns the exit code: with `status` not ok, after one line on stderr that says why. `alike`: every
 * rank has the same status, so rank 0 speaks for all; otherwise the other ranks are told to stop. */
int job_close(job *j, trm_status status, bool alike);

/* Reads "auto", "f32", "f16", "bf16" and "cuda", "host", "auto". */
trm_status job_dtype(const settings *all, trm_dtype *dtype);
trm_status job_backend(const settings *all, trm_backend *backend);

/* Prints "trireme: <cause>" and returns the exit code of the status. */
int print_failure(trm_status status);
/* The same before there is a world, for failures that every rank has alike: only rank 0 of a job prints. */
int print_failure_once(trm_status status);

double wall_seconds(void);

#endif
