/* `trireme serve NET.onnx`: loads networks for the HTTP front end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/cli/onnx/job.h"
#include "launcher/cli/serve.h"
#include "launcher/serve/network/served_network.h"

/* A network and its contexts, until nobody uses it. */
typedef struct loaded_network {
    onnx_job onnx;
    trm_context *contexts[SERVED_MAX_INSTANCES]; /* [n_contexts]; the first one is the job's */
    int32_t n_contexts;
    char name[SERVER_LONGEST_NAME + 1];
} loaded_network;

typedef struct network_server {
    const settings *all;
    log_writer *log;
    job job;
    served_network *network;
    server *server;
} network_server;

static void close_network(void *user)
{
    loaded_network *n = user;
    for (int32_t i = 1; i < n->n_contexts; i++) {
        trm_context_destroy(n->contexts[i]);
    }
    onnx_close(&n->onnx);
    free(n);
}

/* Loads the network, tunes it with random inputs, and makes the other contexts. */
static trm_status load_contexts(network_server *s, loaded_network *n, const char *path, int32_t instances)
{
    onnx_job *j = &n->onnx;
    TRM_TRY(onnx_open(j, path, 1));
    TRM_TRY(onnx_build(j, false));
    TRM_TRY(onnx_load(j));
    TRM_TRY(onnx_fill_inputs(j, 0));
    trm_status status = onnx_set_inputs(j, j->context);
    if (status == TRM_OK) {
        status = onnx_tune(j);
    }
    if (status != TRM_OK) { /* random elements may be no valid inputs */
        log_print(s->log, "warning: network %s is not tuned: %s", n->name, trm_last_error());
    }
    n->contexts[n->n_contexts++] = j->context;
    while (n->n_contexts < instances) {
        trm_context **context = &n->contexts[n->n_contexts];
        TRM_TRY(trm_context_create(j->engine, context));
        n->n_contexts++;
        if (settings_text(j->all, SETTING_OPT_PROFILE) != NULL) {
            TRM_TRY(
                trm_context_set_optimization_profile(*context, (int32_t)settings_integer(j->all, SETTING_OPT_PROFILE)));
        }
        TRM_TRY(trm_context_set_capture(*context, !settings_flag(j->all, SETTING_NO_CAPTURE)));
    }
    return TRM_OK;
}

/* Parses "4,8" of --preferred-batch. */
static trm_status read_preferred(const char *text, served_options *options)
{
    while (text != NULL) {
        char *end;
        errno = 0;
        const long size = strtol(text, &end, 10);
        if (end == text || errno != 0 || size < 1 || size > options->max_batch || (*end != '\0' && *end != ',') ||
            options->n_preferred == SERVED_MAX_PREFERRED) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "preferred-batch has \"%.32s\", expected up to %d numbers of 1 to %d (--max-batch)", text,
                     SERVED_MAX_PREFERRED, (int)options->max_batch);
        }
        options->preferred[options->n_preferred++] = (int32_t)size;
        text = *end == ',' ? end + 1 : NULL;
    }
    return TRM_OK;
}

static trm_status load_network(network_server *s, const char *path, served_network **result)
{
    const settings *all = s->all;
    loaded_network *n = calloc(1, sizeof(*n));
    if (n == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a network");
    }
    n->onnx.all = all;
    n->onnx.job = s->job;
    served_options served = {.name = n->name,
                             .version = "1",
                             .platform = names_plan(path) ? "trireme_plan" : "trireme_onnx",
                             .contexts = n->contexts,
                             .max_waiting = (int32_t)settings_integer(all, SETTING_MAX_REQUESTS),
                             .max_batch = (int32_t)settings_integer(all, SETTING_MAX_BATCH),
                             .batch_seconds = (double)settings_integer(all, SETTING_BATCH_DELAY) * 1e-6,
                             .release = close_network,
                             .user = n};
    trm_status status = read_preferred(settings_text(all, SETTING_PREFERRED_BATCH), &served);
    if (status == TRM_OK) {
        status = serve_choose_name(all, n->name);
    }
    if (status == TRM_OK) {
        status = load_contexts(s, n, path, (int32_t)settings_integer(all, SETTING_INSTANCES));
    }
    if (status == TRM_OK) {
        served.network = n->onnx.shown;
        served.n_contexts = n->n_contexts;
        status = served_create(&served, result);
    }
    if (status != TRM_OK) {
        close_network(n);
    }
    return status;
}

static trm_status start(network_server *s)
{
    const settings *all = s->all;
    char what[SERVER_LONGEST_NAME + 16];
    TRM_TRY(check_operand(all));
    TRM_TRY(job_open_world(&s->job, all));
    if (trm_world_size(s->job.world) > 1 || settings_integer(all, SETTING_RANKS) > 1) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "networks are served by one rank");
    }
    TRM_TRY(load_network(s, all->operands[0], &s->network));
    server_options options = serve_common_options(all, s->log);
    options.routes = &network_routes;
    options.model_name = served_get_options(s->network)->name;
    options.network = s->network;
    TRM_TRY(server_create(&options, NULL, &s->server));
    snprintf(what, sizeof(what), "serving %s", options.model_name);
    serve_log_address(s->log, s->server, &options, what);
    return TRM_OK;
}

/* The first signal drains, the second one ends. */
static void wait_for_end(network_server *s, const sigset_t *signals)
{
    int number = 0;
    while (number != SIGTERM && number != SIGINT) {
        number = sigwaitinfo(signals, NULL);
    }
    served_drain(s->network);
    double left = settings_number(s->all, SETTING_DRAIN_TIMEOUT);
    for (; left > 0 && !served_is_idle(s->network); left -= 0.1) {
        struct timespec pause = {.tv_nsec = 100000000};
        if (sigtimedwait(signals, NULL, &pause) > 0) {
            break;
        }
    }
}

trm_status serve_networks(const settings *all, log_writer *log, const sigset_t *signals)
{
    network_server s = {.all = all, .log = log};
    trm_status status = start(&s);
    if (status == TRM_OK) {
        wait_for_end(&s, signals);
    } else {
        log_print(log, "%s: %s", trm_status_name(status), trm_last_error());
    }
    served_stop(s.network);
    server_destroy(s.server);
    served_release(s.network);
    trm_world_close(s.job.world);
    return status;
}
