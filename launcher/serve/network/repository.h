/*
 * The networks that the server has, by name and version: those of a folder NAME/config.pbtxt, NAME/VERSION/model.onnx
 * or model.plan, or one that is given. One thread loads and unloads; threads of connections look networks up and queue
 * such jobs.
 */
#ifndef TRM_LAUNCHER_SERVE_NETWORK_REPOSITORY_H
#define TRM_LAUNCHER_SERVE_NETWORK_REPOSITORY_H

#include "launcher/serve/network/model_config.h"
#include "launcher/serve/network/served_network.h"
#include "launcher/serve/requests/api_request.h"

#define REPOSITORY_LONGEST_NAME 200

typedef enum repository_mode {
    REPOSITORY_NONE,     /* loads all networks at the start */
    REPOSITORY_EXPLICIT, /* loads and unloads by request */
    REPOSITORY_POLL      /* looks for changes of the folder now and then */
} repository_mode;

/* Loads a version from `path`. `config` has no shapes and counts of 0 where no configuration gives them. */
typedef trm_status repository_load_fn(void *user, const char *name, const char *version, const char *path,
                                      const model_config *config, served_network **result);

typedef struct repository_options {
    const char *folder; /* NULL: only the network of repository_add */
    repository_mode mode;
    double poll_seconds;
    const char *const *first; /* [n_first] loaded at the start in mode EXPLICIT; "*": all */
    int32_t n_first;
    repository_load_fn *load; /* on the repository's thread */
    void (*log)(void *user, const char *message);
    void *user; /* of both */
} repository_options;

typedef struct repository repository;

trm_status repository_create(const repository_options *options, repository **result);
/* Takes a network over; before repository_start. */
trm_status repository_add(repository *r, served_network *network);
/* Starts the thread, which loads the networks of the start. */
trm_status repository_start(repository *r);
void repository_drain(repository *r);
bool repository_is_ready(repository *r); /* the networks of the start are loaded, or have failed */
bool repository_is_idle(repository *r);  /* no request waits or runs */
/* Ends the thread and all networks: waiting requests and jobs are answered with an error. Accepts NULL, as the next. */
void repository_stop(repository *r);
void repository_destroy(repository *r);

/* Takes "NAME[/versions/V][/rest]" apart: what of a path follows "/v2/models/". *rest is "" or begins with a slash.
 * Names may have slashes if such a network is loaded. */
bool repository_split(repository *r, const char *path, char name[REPOSITORY_LONGEST_NAME + 1], char version[24],
                      const char **rest);
/* A network that is loaded, to be released; version "" is the newest. NULL with an error of status 404. */
served_network *repository_find(repository *r, const char *name, const char *version, api_error *error);
/* The versions that are loaded, newest first, at most `most`. */
size_t repository_versions(repository *r, const char *name, int64_t *versions, size_t most);

typedef struct repository_entry {
    char name[REPOSITORY_LONGEST_NAME + 1], version[24], reason[256];
    const char *state; /* READY, UNAVAILABLE, LOADING, UNLOADING */
} repository_entry;
/* All networks that are known, to be freed; NULL without memory. */
repository_entry *repository_index(repository *r, bool only_ready, size_t *n);
/* Statistics of the loaded networks of this name and version ("": all), to be freed; NULL without memory. */
named_stats *repository_stats(repository *r, const char *name, const char *version, size_t *n);

/* A load or unload that a client asked for. The repository has it until `finish`, on its thread. */
typedef struct repository_job {
    struct repository_job *next;
    char name[REPOSITORY_LONGEST_NAME + 1];
    bool unload;
    model_config *config; /* instead of config.pbtxt; NULL: none. Freed with the job by repository_job_free */
    void (*finish)(struct repository_job *job);
    void *user;
    bool failed;
    api_error error;
} repository_job;

repository_job *repository_job_create(const char *name, bool unload, api_error *error);
void repository_job_free(repository_job *job); /* accepts NULL */
/* False with an error: it was not queued, and `wait` was not called. `wait`, unless NULL, is called before the job can
 * be finished. */
bool repository_submit(repository *r, repository_job *job, void (*wait)(void *user), void *user, api_error *error);

#endif
