/* Networks by name and version, and the thread that loads them. */
#include "launcher/serve/network/repository.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"

#define MAX_MODELS 4096
#define MAX_JOBS   1024

/* A version that is loaded, loads, or failed to. */
typedef struct version {
    struct version *next;
    int64_t number;
    uint64_t stamp;          /* of its files and its configuration */
    served_network *network; /* NULL: not loaded */
    const char *state;
    char reason[256];
} version;

typedef struct model {
    struct model *next;
    char name[REPOSITORY_LONGEST_NAME + 1];
    version *versions; /* newest first */
    char reason[256];  /* of a model without versions */
    bool seen;         /* by the current poll */
} model;

struct repository {
    repository_options options;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Guarded by the lock; only the thread changes the list of models and of versions: */
    model *models;
    repository_job *first, *last;
    int32_t n_jobs;
    bool ready, draining;
    atomic_bool stopping; /* set under the lock */
};

/* ---- lookup ---------------------------------------------------------------------------------------------- */

static model *find_model(const repository *r, const char *name)
{
    model *m = r->models;
    while (m != NULL && strcmp(m->name, name) != 0) {
        m = m->next;
    }
    return m;
}

static version *find_version(const model *m, int64_t number)
{
    version *v = m->versions;
    while (v != NULL && v->number != number) {
        v = v->next;
    }
    return v;
}

/* A version's number: digits without a zero before them; 0: none. */
static int64_t version_number(const char *text)
{
    const size_t n = strspn(text, "0123456789");
    return n > 0 && n <= 18 && text[n] == '\0' && text[0] != '0' ? strtoll(text, NULL, 10) : 0;
}

bool repository_split(repository *r, const char *path, char name[REPOSITORY_LONGEST_NAME + 1], char version_text[24],
                      const char **rest)
{
    static const char versions[] = "/versions/";
    size_t size = 0;
    pthread_mutex_lock(&r->lock);
    for (const model *m = r->models; m != NULL; m = m->next) {
        const size_t n = strlen(m->name);
        if (n > size && strncmp(path, m->name, n) == 0 && (path[n] == '\0' || path[n] == '/')) {
            size = n;
        }
    }
    pthread_mutex_unlock(&r->lock);
    size = size > 0 ? size : strcspn(path, "/");
    if (size == 0 || size > REPOSITORY_LONGEST_NAME) {
        return false;
    }
    snprintf(name, REPOSITORY_LONGEST_NAME + 1, "%.*s", (int)size, path);
    path += size;
    version_text[0] = '\0';
    if (strncmp(path, versions, sizeof(versions) - 1) == 0) {
        path += sizeof(versions) - 1;
        size = strcspn(path, "/");
        if (size == 0 || size >= 24) {
            return false;
        }
        snprintf(version_text, 24, "%.*s", (int)size, path);
        path += size;
    }
    *rest = path;
    return true;
}

served_network *repository_find(repository *r, const char *name, const char *version_text, api_error *error)
{
    served_network *found = NULL;
    pthread_mutex_lock(&r->lock);
    const model *m = find_model(r, name);
    for (const version *v = m != NULL ? m->versions : NULL; v != NULL && found == NULL; v = v->next) {
        if (v->network != NULL && (version_text[0] == '\0' || v->number == version_number(version_text))) {
            found = served_retain(v->network);
        }
    }
    pthread_mutex_unlock(&r->lock);
    if (found == NULL) {
        api_fail(error, 404, NULL, NULL, "network %.200s%s%.24s is not loaded", name,
                 version_text[0] != '\0' ? ", version " : "", version_text);
    }
    return found;
}

size_t repository_versions(repository *r, const char *name, int64_t *versions, size_t most)
{
    size_t n = 0;
    pthread_mutex_lock(&r->lock);
    const model *m = find_model(r, name);
    for (const version *v = m != NULL ? m->versions : NULL; v != NULL && n < most; v = v->next) {
        if (v->network != NULL) {
            versions[n++] = v->number;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}

static void set_entry(repository_entry *entry, const model *m, const version *v)
{
    snprintf(entry->name, sizeof(entry->name), "%s", m->name);
    if (v != NULL) {
        snprintf(entry->version, sizeof(entry->version), "%" PRId64, v->number);
    }
    snprintf(entry->reason, sizeof(entry->reason), "%s", v != NULL ? v->reason : m->reason);
    entry->state = v != NULL ? v->state : "UNAVAILABLE";
}

/* Networks of the folder that were never loaded, without versions. */
static void add_unknown(const repository *r, repository_entry *entries, size_t *n, size_t most)
{
    DIR *folder = r->options.folder != NULL ? opendir(r->options.folder) : NULL;
    for (const struct dirent *e = folder != NULL ? readdir(folder) : NULL; e != NULL && *n < most;
         e = readdir(folder)) {
        const size_t length = strlen(e->d_name);
        if (e->d_name[0] != '.' && length <= REPOSITORY_LONGEST_NAME &&
            (e->d_type == DT_DIR || e->d_type == DT_LNK || e->d_type == DT_UNKNOWN) &&
            find_model(r, e->d_name) == NULL) {
            memcpy(entries[*n].name, e->d_name, length + 1);
            entries[(*n)++].state = "UNAVAILABLE";
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
}

repository_entry *repository_index(repository *r, bool only_ready, size_t *n)
{
    const size_t most = 2 * MAX_MODELS;
    repository_entry *entries = calloc(most, sizeof(*entries));
    *n = 0;
    if (entries == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&r->lock);
    for (const model *m = r->models; m != NULL; m = m->next) {
        for (const version *v = m->versions; v != NULL && *n < most; v = v->next) {
            if (!only_ready || v->network != NULL) {
                set_entry(&entries[(*n)++], m, v);
            }
        }
        if (m->versions == NULL && !only_ready && *n < most) {
            set_entry(&entries[(*n)++], m, NULL);
        }
    }
    if (!only_ready) {
        add_unknown(r, entries, n, most);
    }
    pthread_mutex_unlock(&r->lock);
    return entries;
}

named_stats *repository_stats(repository *r, const char *name, const char *version_text, size_t *n)
{
    size_t count = 0;
    *n = 0;
    pthread_mutex_lock(&r->lock);
    for (const model *m = r->models; m != NULL; m = m->next) {
        for (const version *v = m->versions; v != NULL; v = v->next) {
            count++;
        }
    }
    named_stats *all = calloc(count + 1, sizeof(*all));
    for (const model *m = all != NULL ? r->models : NULL; m != NULL; m = m->next) {
        for (const version *v = m->versions; v != NULL; v = v->next) {
            if (v->network != NULL && (name[0] == '\0' || strcmp(name, m->name) == 0) &&
                (version_text[0] == '\0' || v->number == version_number(version_text))) {
                named_stats *stats = &all[(*n)++];
                snprintf(stats->name, sizeof(stats->name), "%s", m->name);
                snprintf(stats->version, sizeof(stats->version), "%" PRId64, v->number);
                served_get_stats(v->network, &stats->stats);
            }
        }
    }
    pthread_mutex_unlock(&r->lock);
    return all;
}

/* ---- loading, on the repository's thread ----------------------------------------------------------------- */

static void log_line(const repository *r, const char *format, ...) TRM_PRINTF(2, 3);
static void log_line(const repository *r, const char *format, ...)
{
    char text[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (r->options.log != NULL) {
        r->options.log(r->options.user, text);
    }
}

static uint64_t stamp_of(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0) {
        return 0;
    }
    return (uint64_t)status.st_mtim.tv_sec * 1000003 + (uint64_t)status.st_mtim.tv_nsec * 31 +
           (uint64_t)status.st_size * 7 + (uint64_t)status.st_ino + 1;
}

static model *add_model(repository *r, const char *name)
{
    model *m = find_model(r, name);
    if (m == NULL) {
        m = calloc(1, sizeof(*m));
        if (m != NULL) {
            snprintf(m->name, sizeof(m->name), "%s", name);
            pthread_mutex_lock(&r->lock);
            m->next = r->models;
            r->models = m;
            pthread_mutex_unlock(&r->lock);
        }
    }
    return m;
}

static version *add_version(repository *r, model *m, int64_t number)
{
    version *v = find_version(m, number);
    if (v == NULL) {
        v = calloc(1, sizeof(*v));
        if (v != NULL) {
            v->number = number;
            v->state = "LOADING";
            pthread_mutex_lock(&r->lock);
            version **at = &m->versions;
            while (*at != NULL && (*at)->number > number) {
                at = &(*at)->next;
            }
            v->next = *at;
            *at = v;
            pthread_mutex_unlock(&r->lock);
        }
    }
    return v;
}

static void set_state(repository *r, version *v, const char *state, const char *reason)
{
    pthread_mutex_lock(&r->lock);
    v->state = state;
    snprintf(v->reason, sizeof(v->reason), "%s", reason);
    pthread_mutex_unlock(&r->lock);
}

/* Puts a network in the place of the one that was loaded, whose requests are answered first. */
static void replace(repository *r, version *v, served_network *network)
{
    pthread_mutex_lock(&r->lock);
    served_network *old = v->network;
    v->network = network;
    if (network != NULL && r->draining) {
        served_drain(network);
    }
    pthread_mutex_unlock(&r->lock);
    if (old != NULL) {
        served_drain(old);
        while (!served_is_idle(old) && !r->stopping) {
            struct timespec pause = {.tv_nsec = 5000000};
            nanosleep(&pause, NULL);
        }
        served_stop(old);
        served_release(old);
    }
}

static void unload_version(repository *r, const model *m, version *v, const char *reason)
{
    if (v->network != NULL) {
        set_state(r, v, "UNLOADING", "");
        replace(r, v, NULL);
        log_line(r, "unloaded network %s, version %" PRId64, m->name, v->number);
    }
    v->stamp = 0;
    set_state(r, v, "UNAVAILABLE", reason);
}

static int newest_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The versions of the folder that the policy chooses, newest first. */
static size_t choose_versions(const char *path, const model_config *config, int64_t *chosen, size_t most)
{
    DIR *folder = opendir(path);
    size_t n = 0;
    for (const struct dirent *e = folder != NULL ? readdir(folder) : NULL; e != NULL && n < most; e = readdir(folder)) {
        const int64_t number = version_number(e->d_name);
        bool wanted = number > 0;
        for (int32_t i = 0; wanted && config->policy == VERSIONS_SPECIFIC && i <= config->n_versions; i++) {
            if (i == config->n_versions) {
                wanted = false;
            } else if (config->versions[i] == number) {
                break;
            }
        }
        if (wanted) {
            chosen[n++] = number;
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    qsort(chosen, n, sizeof(*chosen), newest_first);
    return config->policy == VERSIONS_LATEST && n > (size_t)config->n_latest ? (size_t)config->n_latest : n;
}

static trm_status find_file(const char *folder, int64_t number, const model_config *config, char *path, size_t size)
{
    const char *const names[] = {config->file[0] != '\0' ? config->file : "model.onnx", "model.plan"};
    for (size_t i = 0; i < (config->file[0] != '\0' ? 1 : 2); i++) {
        const int used = snprintf(path, size, "%s/%" PRId64 "/%s", folder, number, names[i]);
        if (used > 0 && (size_t)used < size && trm_file_exists(path)) {
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s/%" PRId64 " has no %s", folder, number,
             config->file[0] != '\0' ? config->file : "model.onnx or model.plan");
}

static trm_status load_version(repository *r, const model *m, version *v, const char *folder,
                               const model_config *config, uint64_t config_stamp, bool retry)
{
    char path[4096], text[24];
    served_network *network;
    TRM_TRY(find_file(folder, v->number, config, path, sizeof(path)));
    const uint64_t stamp = stamp_of(path) * 31 + config_stamp;
    if (stamp == v->stamp && (v->network != NULL || !retry)) { /* loaded like this, or failed */
        return v->network != NULL ? TRM_OK : trm_fail(TRM_ERROR_INVALID_MODEL, "%s", v->reason);
    }
    v->stamp = stamp;
    set_state(r, v, "LOADING", "");
    snprintf(text, sizeof(text), "%" PRId64, v->number);
    const double began = trm_clock_seconds();
    TRM_TRY(r->options.load(r->options.user, m->name, text, path, config, &network));
    replace(r, v, network);
    set_state(r, v, "READY", "");
    log_line(r, "loaded network %s, version %s, after %.2f s", m->name, text, trm_clock_seconds() - began);
    return TRM_OK;
}

static trm_status read_config(const char *folder, const char *name, model_config *config, uint64_t *stamp)
{
    char path[4096], *text;
    size_t size;
    snprintf(path, sizeof(path), "%s/config.pbtxt", folder);
    *stamp = stamp_of(path);
    model_config_init(config);
    if (*stamp == 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_file_read(path, (size_t)1 << 20, &text, &size));
    trm_status status = model_config_parse(path, text, size, config);
    free(text);
    if (status == TRM_OK && config->name[0] != '\0' && strcmp(config->name, name) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s names model %s, expected %s, the folder's name", path, config->name,
                 name);
    }
    return status;
}

/* Loads what the policy chooses and unloads the rest. `given`: the configuration, or NULL. `retry`: also what failed
 * before. */
static trm_status load_model(repository *r, const char *name, const model_config *given, bool retry)
{
    static uint64_t serial;
    char folder[3072];
    int64_t chosen[CONFIG_MAX_VERSIONS];
    uint64_t stamp = ++serial; /* a given configuration is always new */
    struct stat status_of;
    snprintf(folder, sizeof(folder), "%s/%s", r->options.folder, name);
    if (name[0] == '.' || strchr(name, '/') != NULL || stat(folder, &status_of) != 0 || !S_ISDIR(status_of.st_mode)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the repository has no folder %s", name);
    }
    model *m = add_model(r, name);
    model_config *config = malloc(sizeof(*config));
    if (m == NULL || config == NULL) {
        free(config);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate model %s", name);
    }
    trm_status status = TRM_OK;
    if (given != NULL) {
        *config = *given;
    } else {
        status = read_config(folder, name, config, &stamp);
    }
    size_t n = status == TRM_OK ? choose_versions(folder, config, chosen, CONFIG_MAX_VERSIONS) : 0;
    if (status == TRM_OK && n == 0) {
        status =
            trm_fail(TRM_ERROR_INVALID_MODEL, "%s has no version that its policy takes (folders 1, 2, ...)", folder);
    }
    pthread_mutex_lock(&r->lock);
    snprintf(m->reason, sizeof(m->reason), "%s", status != TRM_OK ? trm_last_error() : "");
    pthread_mutex_unlock(&r->lock);
    char failure[512] = "";
    for (size_t i = 0; i < n; i++) {
        version *v = add_version(r, m, chosen[i]);
        const uint64_t before = v != NULL ? v->stamp : 0;
        trm_status one = v != NULL ? load_version(r, m, v, folder, config, stamp, retry)
                                   : trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a version of %s", name);
        if (one != TRM_OK) {
            status = one;
            snprintf(failure, sizeof(failure), "%s", trm_last_error());
            if (v != NULL && v->stamp != before) {
                log_line(r, "cannot load network %s, version %" PRId64 ": %s", name, v->number, failure);
            }
            if (v != NULL) {
                set_state(r, v, v->network != NULL ? "READY" : "UNAVAILABLE", failure);
            }
        }
    }
    for (version *v = m->versions; v != NULL && n > 0; v = v->next) {
        bool kept = false;
        for (size_t i = 0; i < n; i++) {
            kept = kept || chosen[i] == v->number;
        }
        if (!kept) {
            unload_version(r, m, v, "unloaded: the version policy does not take it");
        }
    }
    free(config);
    return failure[0] != '\0' ? trm_fail(status, "%s", failure) : status;
}

static trm_status unload_model(repository *r, const char *name)
{
    model *m = find_model(r, name);
    if (m == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "network %s is not loaded", name);
    }
    for (version *v = m->versions; v != NULL; v = v->next) {
        unload_version(r, m, v, "unloaded");
    }
    return TRM_OK;
}

/* Loads all folders; those that have gone are unloaded. */
static void load_all(repository *r)
{
    DIR *folder = opendir(r->options.folder);
    for (model *m = r->models; m != NULL; m = m->next) {
        m->seen = false;
    }
    for (const struct dirent *e = folder != NULL ? readdir(folder) : NULL; e != NULL && !r->stopping;
         e = readdir(folder)) {
        struct stat status;
        if (e->d_name[0] == '.' || strlen(e->d_name) > REPOSITORY_LONGEST_NAME ||
            fstatat(dirfd(folder), e->d_name, &status, 0) != 0 || !S_ISDIR(status.st_mode)) {
            continue;
        }
        char before[256] = "";
        const model *known = find_model(r, e->d_name);
        snprintf(before, sizeof(before), "%s", known != NULL ? known->reason : "");
        (void)load_model(r, e->d_name, NULL, false); /* versions log their failures */
        model *m = find_model(r, e->d_name);
        if (m != NULL) {
            m->seen = true;
            if (m->reason[0] != '\0' && strcmp(before, m->reason) != 0) {
                log_line(r, "cannot load network %s: %s", m->name, m->reason);
            }
        }
    }
    if (folder == NULL) {
        return;
    }
    closedir(folder);
    for (model *m = r->models; m != NULL; m = m->next) {
        if (!m->seen && m->versions != NULL) {
            (void)unload_model(r, m->name);
        }
    }
}

static void load_first(repository *r)
{
    const repository_options *o = &r->options;
    bool all = o->mode != REPOSITORY_EXPLICIT;
    for (int32_t i = 0; i < o->n_first; i++) {
        all = all || strcmp(o->first[i], "*") == 0;
    }
    if (all) {
        load_all(r);
    }
    for (int32_t i = 0; !all && i < o->n_first; i++) {
        if (load_model(r, o->first[i], NULL, true) != TRM_OK) {
            log_line(r, "cannot load network %s: %s", o->first[i], trm_last_error());
        }
    }
    pthread_mutex_lock(&r->lock);
    r->ready = true;
    pthread_mutex_unlock(&r->lock);
}

static void do_job(repository *r, repository_job *job)
{
    trm_status status = job->unload ? unload_model(r, job->name) : load_model(r, job->name, job->config, true);
    if (status != TRM_OK) {
        job->failed = true;
        api_fail_status(&job->error, status, NULL);
        job->error.status = job->error.status >= 500 ? job->error.status : 400;
    }
}

static repository_job *next_job(repository *r)
{
    repository_job *job = r->first;
    if (job != NULL) {
        r->first = job->next;
        r->last = r->first == NULL ? NULL : r->last;
        r->n_jobs--;
    }
    return job;
}

static void *run_jobs(void *user)
{
    repository *r = user;
    if (r->options.folder != NULL) {
        load_first(r);
    }
    pthread_mutex_lock(&r->lock);
    while (!r->stopping || r->first != NULL) {
        repository_job *job = next_job(r);
        if (job != NULL) {
            const bool refused = r->stopping;
            pthread_mutex_unlock(&r->lock);
            if (refused) {
                job->failed = true;
                api_fail(&job->error, 503, NULL, NULL, "the server is shutting down");
            } else {
                do_job(r, job);
            }
            job->finish(job);
            pthread_mutex_lock(&r->lock);
            continue;
        }
        if (r->options.mode != REPOSITORY_POLL || r->options.folder == NULL) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        const double until = trm_clock_seconds() + r->options.poll_seconds;
        struct timespec at = {.tv_sec = (time_t)until};
        at.tv_nsec = (long)((until - (double)at.tv_sec) * 1e9);
        if (pthread_cond_timedwait(&r->changed, &r->lock, &at) == ETIMEDOUT) {
            pthread_mutex_unlock(&r->lock);
            load_all(r);
            pthread_mutex_lock(&r->lock);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- start and end --------------------------------------------------------------------------------------- */

trm_status repository_create(const repository_options *options, repository **result)
{
    repository *r = calloc(1, sizeof(*r));
    pthread_condattr_t attributes;
    if (r == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the repository");
    }
    r->options = *options;
    r->ready = options->folder == NULL;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    *result = r;
    return TRM_OK;
}

trm_status repository_add(repository *r, served_network *network)
{
    const served_options *o = served_get_options(network);
    model *m = add_model(r, o->name);
    version *v = m != NULL ? add_version(r, m, version_number(o->version)) : NULL;
    if (v == NULL) {
        served_stop(network);
        served_release(network);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate network %s", o->name);
    }
    v->network = network;
    v->state = "READY";
    return TRM_OK;
}

trm_status repository_start(repository *r)
{
    r->started = pthread_create(&r->thread, NULL, run_jobs, r) == 0;
    if (!r->started) {
        TRM_FAIL(TRM_ERROR_INTERNAL, "cannot start the thread of the repository");
    }
    return TRM_OK;
}

void repository_drain(repository *r)
{
    pthread_mutex_lock(&r->lock);
    r->draining = true;
    for (const model *m = r->models; m != NULL; m = m->next) {
        for (const version *v = m->versions; v != NULL; v = v->next) {
            if (v->network != NULL) {
                served_drain(v->network);
            }
        }
    }
    pthread_mutex_unlock(&r->lock);
}

bool repository_is_ready(repository *r)
{
    pthread_mutex_lock(&r->lock);
    const bool ready = r->ready && !r->draining;
    pthread_mutex_unlock(&r->lock);
    return ready;
}

bool repository_is_idle(repository *r)
{
    bool idle = true;
    pthread_mutex_lock(&r->lock);
    for (const model *m = r->models; m != NULL; m = m->next) {
        for (const version *v = m->versions; v != NULL; v = v->next) {
            idle = idle && (v->network == NULL || served_is_idle(v->network));
        }
    }
    pthread_mutex_unlock(&r->lock);
    return idle;
}

void repository_stop(repository *r)
{
    if (r == NULL) {
        return;
    }
    pthread_mutex_lock(&r->lock);
    r->draining = true;
    atomic_store(&r->stopping, true);
    pthread_cond_signal(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (r->started) {
        pthread_join(r->thread, NULL);
        r->started = false;
    }
    for (const model *m = r->models; m != NULL; m = m->next) {
        for (const version *v = m->versions; v != NULL; v = v->next) {
            served_stop(v->network);
        }
    }
}

void repository_destroy(repository *r)
{
    if (r == NULL) {
        return;
    }
    repository_stop(r);
    for (model *m = r->models, *next; m != NULL; m = next) {
        next = m->next;
        for (version *v = m->versions, *after; v != NULL; v = after) {
            after = v->next;
            served_release(v->network);
            free(v);
        }
        free(m);
    }
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---- jobs ------------------------------------------------------------------------------------------------ */

repository_job *repository_job_create(const char *name, bool unload, api_error *error)
{
    repository_job *job = strlen(name) <= REPOSITORY_LONGEST_NAME ? calloc(1, sizeof(*job)) : NULL;
    if (job == NULL) {
        api_fail(error, 400, NULL, NULL, "cannot make a job for network %.64s", name);
        return NULL;
    }
    snprintf(job->name, sizeof(job->name), "%s", name);
    job->unload = unload;
    return job;
}

void repository_job_free(repository_job *job)
{
    if (job != NULL) {
        free(job->config);
        free(job);
    }
}

bool repository_submit(repository *r, repository_job *job, void (*wait)(void *user), void *user, api_error *error)
{
    if (r->options.folder == NULL || r->options.mode != REPOSITORY_EXPLICIT) {
        return api_fail(error, 400, NULL, NULL,
                        "networks are loaded and unloaded by request only with a repository and --model-control-mode "
                        "explicit");
    }
    pthread_mutex_lock(&r->lock);
    const bool taken = !r->draining && r->n_jobs < MAX_JOBS;
    if (taken) {
        job->next = NULL;
        *(r->first == NULL ? &r->first : &r->last->next) = job;
        r->last = job;
        r->n_jobs++;
        if (wait != NULL) {
            wait(user); /* under the lock: the job cannot be finished before the connection waits */
        }
        pthread_cond_signal(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return taken || api_fail(error, 503, NULL, NULL, "the server is shutting down, or loads too many networks");
}
