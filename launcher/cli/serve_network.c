/* `trireme serve NET.onnx`, or a repository of networks: loads them for the HTTP front end. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "launcher/cli/onnx/job.h"
#include "launcher/cli/serve.h"
#include "launcher/serve/grpc/grpc_server.h"
#include "launcher/serve/network/infer.h"
#include "launcher/serve/network/repository.h"

/* A network and its contexts, until nobody uses it. */
typedef struct loaded_network {
    settings all; /* those of the command with what the configuration adds */
    onnx_job onnx;
    trm_context *contexts[SERVED_MAX_INSTANCES]; /* [n_contexts]; the first one is the job's */
    int32_t n_contexts;
    char name[SERVER_LONGEST_NAME + 1], version[24], path[4096];
    model_config config;
} loaded_network;

typedef struct network_server {
    const settings *all;
    log_writer *log;
    job job;
    repository *repository;
    shared_regions *regions;
    server *server;
    grpc_server *grpc; /* NULL without gRPC */
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

/* Gives the shapes of the configuration as if the options had. */
static void take_shapes(loaded_network *n)
{
    static const setting_id ids[] = {SETTING_SHAPES, SETTING_MIN_SHAPES, SETTING_MAX_SHAPES};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        if (n->config.shapes[i][0] != '\0') {
            n->all.lists[ids[i]][0] = n->config.shapes[i];
            n->all.list_counts[ids[i]] = 1;
        }
    }
}

/* With max_batch_size the first dim of inputs without given shapes is 1 to that size. */
static trm_status open_batches(loaded_network *n)
{
    onnx_job *j = &n->onnx;
    for (int32_t i = 0; i < j->n_inputs && n->config.max_batch > 0 && j->plan == NULL; i++) {
        onnx_input *input = &j->inputs[i];
        const trm_dims *dims = &input->port.dims;
        if (input->fixed || input->has_default || input->dims.n >= 0 || !input->port.has_dims) {
            continue;
        }
        for (int32_t k = 1; k < dims->n; k++) {
            if (dims->d[k] < 0) {
                TRM_FAIL(
                    TRM_ERROR_INVALID_ARGUMENT,
                    "dim %d of input %s is open: give its sizes by the parameters min_shapes, shapes and max_shapes "
                    "of config.pbtxt",
                    (int)k, input->port.name);
            }
        }
        if (dims->n < 1 || dims->d[0] >= 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s has no open first dim, so max_batch_size must be 0",
                     input->port.name);
        }
        input->min = input->max = input->dims = *dims;
        input->min.d[0] = 1;
        input->max.d[0] = input->dims.d[0] = n->config.max_batch;
    }
    return TRM_OK;
}

/* Compares the ports of the configuration with those of the network. */
static trm_status check_ports(const loaded_network *n, bool inputs)
{
    const trm_network *network = n->onnx.shown;
    const config_port *ports = inputs ? n->config.inputs : n->config.outputs;
    const char *kind = inputs ? "input" : "output";
    const int32_t count = inputs ? trm_network_input_count(network) : trm_network_output_count(network);
    for (int32_t i = 0; i < (inputs ? n->config.n_inputs : n->config.n_outputs); i++) {
        const trm_tensor *tensor = NULL;
        for (int32_t k = 0; k < count && tensor == NULL; k++) {
            tensor = inputs ? trm_network_input(network, k) : trm_network_output(network, k);
            tensor = strcmp(trm_tensor_name(tensor), ports[i].name) == 0 ? tensor : NULL;
        }
        if (tensor == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "the configuration has %s %s, which the network does not have", kind,
                     ports[i].name);
        }
        const char *type = infer_type_name(trm_tensor_dtype(tensor));
        if (ports[i].type[0] != '\0' && (type == NULL || strcmp(type, ports[i].type) != 0)) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "the configuration gives %s %s type %s, but it has %s", kind,
                     ports[i].name, ports[i].type, type != NULL ? type : trm_dtype_name(trm_tensor_dtype(tensor)));
        }
        const trm_dims dims = trm_tensor_dims(tensor);
        const int32_t skipped = n->config.max_batch > 0;
        bool same = ports[i].dims.n < 0 || ports[i].dims.n + skipped == dims.n;
        for (int32_t k = 0; same && k < ports[i].dims.n; k++) {
            const int64_t x = ports[i].dims.d[k], y = dims.d[k + skipped];
            same = x == y || x < 0 || y < 0;
        }
        if (!same) {
            char found[256], given[256];
            onnx_dims_text(&dims, found, sizeof(found));
            onnx_dims_text(&ports[i].dims, given, sizeof(given));
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "the configuration gives %s %s dims %s, but it has %s%s", kind,
                     ports[i].name, given, found, skipped ? ", the first of them the batch" : "");
        }
    }
    return TRM_OK;
}

/* Loads the network, tunes it with random inputs, and makes the other contexts. */
static trm_status load_contexts(network_server *s, loaded_network *n, const char *path, int32_t instances)
{
    onnx_job *j = &n->onnx;
    TRM_TRY(onnx_open(j, path, 1));
    TRM_TRY(open_batches(n));
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
        TRM_TRY(trm_context_set_capture(*context, !settings_flag(j->all, SETTING_NO_CAPTURE)));
    }
    return TRM_OK;
}

/* Parses "4,8" of --preferred-batch. */
static trm_status read_preferred(const char *text, model_config *config)
{
    while (text != NULL) {
        char *end;
        errno = 0;
        const long size = strtol(text, &end, 10);
        if (end == text || errno != 0 || size < 1 || size > config->max_batch || (*end != '\0' && *end != ',') ||
            config->n_preferred == SERVED_MAX_PREFERRED) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "preferred-batch has \"%.32s\", expected up to %d numbers of 1 to %d (--max-batch)", text,
                     SERVED_MAX_PREFERRED, (int)config->max_batch);
        }
        config->preferred[config->n_preferred++] = (int32_t)size;
        text = *end == ',' ? end + 1 : NULL;
    }
    return TRM_OK;
}

/* What the options say for networks without a configuration. */
static trm_status take_options(const settings *all, model_config *config)
{
    config->instances = config->instances > 0 ? config->instances : (int32_t)settings_integer(all, SETTING_INSTANCES);
    config->max_queue =
        config->max_queue > 0 ? config->max_queue : (int32_t)settings_integer(all, SETTING_MAX_REQUESTS);
    if (config->given) {
        return TRM_OK;
    }
    config->max_batch = (int32_t)settings_integer(all, SETTING_MAX_BATCH);
    config->joins = config->max_batch > 0;
    config->delay_us = (uint64_t)settings_integer(all, SETTING_BATCH_DELAY);
    return read_preferred(settings_text(all, SETTING_PREFERRED_BATCH), config);
}

static trm_status start_network(network_server *s, loaded_network *n, const char *path, served_network **result)
{
    model_config *config = &n->config;
    TRM_TRY(take_options(s->all, config));
    take_shapes(n);
    TRM_TRY(load_contexts(s, n, path, config->instances));
    TRM_TRY(check_ports(n, true));
    TRM_TRY(check_ports(n, false));
    served_options served = {.world = s->job.world,
                             .name = n->name,
                             .version = n->version,
                             .platform = names_plan(path) ? "trireme_plan" : "trireme_onnx",
                             .network = n->onnx.shown,
                             .contexts = n->contexts,
                             .n_contexts = n->n_contexts,
                             .max_waiting = config->max_queue,
                             .queue_seconds = (double)config->queue_us * 1e-6,
                             .max_batch = config->max_batch,
                             .joins = config->joins,
                             .batch_seconds = (double)config->delay_us * 1e-6,
                             .n_preferred = config->n_preferred,
                             .release = close_network,
                             .user = n};
    memcpy(served.preferred, config->preferred, sizeof(served.preferred));
    return served_create(&served, result);
}

/* The repository's load function. */
static trm_status load_network(void *user, const char *name, const char *version, const char *path,
                               const model_config *config, served_network **result)
{
    network_server *s = user;
    loaded_network *n = calloc(1, sizeof(*n));
    if (n == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a network");
    }
    n->all = *s->all;
    snprintf(n->path, sizeof(n->path), "%s", path);
    n->all.operands[0] = n->path;
    n->onnx.all = &n->all;
    n->onnx.job = s->job;
    n->config = *config;
    snprintf(n->name, sizeof(n->name), "%s", name);
    snprintf(n->version, sizeof(n->version), "%s", version);
    trm_status status = start_network(s, n, path, result);
    if (status != TRM_OK) {
        close_network(n);
    }
    return status;
}

static void log_line(void *user, const char *message)
{
    log_print(((network_server *)user)->log, "%s", message);
}

static bool is_version(const char *name)
{
    return name[0] > '0' && name[0] <= '9' && strspn(name, "0123456789") == strlen(name);
}

/* Whether a folder of the operand has a configuration or a version. */
static bool is_model(const char *folder, const char *name)
{
    char path[4096];
    struct stat status;
    snprintf(path, sizeof(path), "%s/%s/config.pbtxt", folder, name);
    if (name[0] == '.') {
        return false;
    }
    if (stat(path, &status) == 0) {
        return true;
    }
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    DIR *versions = opendir(path);
    bool found = false;
    for (const struct dirent *e = versions != NULL ? readdir(versions) : NULL; e != NULL; e = readdir(versions)) {
        found = found || is_version(e->d_name);
    }
    if (versions != NULL) {
        closedir(versions);
    }
    return found;
}

bool serve_is_repository(const settings *all)
{
    const char *folder = all->operands[0];
    char path[4096];
    struct stat status;
    snprintf(path, sizeof(path), "%s/config.json", folder);
    if (stat(folder, &status) != 0 || !S_ISDIR(status.st_mode) || stat(path, &status) == 0) {
        return false;
    }
    bool found = settings_is_option(all, SETTING_MODEL_CONTROL_MODE);
    DIR *models = opendir(folder);
    for (const struct dirent *e = models != NULL ? readdir(models) : NULL; e != NULL && !found; e = readdir(models)) {
        found = is_model(folder, e->d_name);
    }
    if (models != NULL) {
        closedir(models);
    }
    return found;
}

/* Shapes are those of one network; a repository has them in its configurations. */
static trm_status check_repository_options(const settings *all)
{
    static const setting_id refused[] = {SETTING_SHAPES, SETTING_MIN_SHAPES, SETTING_MAX_SHAPES, SETTING_VALUE,
                                         SETTING_DIM,    SETTING_IO_TYPE,    SETTING_SERVED_NAME};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (settings_is_option(all, refused[i])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "option %s is for one network; a repository has shapes in the parameters of config.pbtxt",
                     all->origins[refused[i]]);
        }
    }
    return settings_check_operand(all, true);
}

static trm_status read_mode(const settings *all, repository_mode *mode)
{
    static const char *const names[] = {"none", "explicit", "poll"};
    const char *given = settings_text(all, SETTING_MODEL_CONTROL_MODE);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(given, names[i]) == 0) {
            *mode = (repository_mode)i;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "model-control-mode is %s, expected none, explicit or poll", given);
}

/* The one network of the command line, as version 1. */
static trm_status add_network(network_server *s)
{
    char name[SERVER_LONGEST_NAME + 1];
    model_config config;
    served_network *network;
    model_config_init(&config);
    TRM_TRY(serve_choose_name(s->all, s->all->operands[0], name));
    TRM_TRY(load_network(s, name, "1", s->all->operands[0], &config, &network));
    return repository_add(s->repository, network);
}

static trm_status start_grpc(network_server *s, const server_options *options)
{
    const grpc_options grpc = {.host = options->host,
                               .port = (int32_t)settings_integer(s->all, SETTING_GRPC_PORT),
                               .max_connections = options->max_connections,
                               .max_message = options->max_body,
                               .client_seconds = options->body_seconds,
                               .repository = s->repository,
                               .regions = s->regions,
                               .keys = s->server,
                               .tls_certificate = options->tls_certificate,
                               .tls_key = options->tls_key,
                               .tls_client_authorities = options->tls_client_authorities};
    TRM_TRY(grpc_server_create(&grpc, &s->grpc));
    const bool bracket = strchr(grpc.host, ':') != NULL; /* an IPv6 address */
    log_print(s->log, "listening on grpc%s://%s%s%s:%d", grpc.tls_key != NULL ? "s" : "", bracket ? "[" : "", grpc.host,
              bracket ? "]" : "", grpc_server_port(s->grpc));
    return TRM_OK;
}

static trm_status start(network_server *s)
{
    const settings *all = s->all;
    char what[4096];
    const bool one = names_network(all->operands[0]);
    repository_options networks = {.folder = one ? NULL : all->operands[0],
                                   .poll_seconds = settings_number(all, SETTING_POLL_SECONDS),
                                   .first = (const char *const *)all->lists[SETTING_LOAD_MODEL],
                                   .n_first = all->list_counts[SETTING_LOAD_MODEL],
                                   .load = load_network,
                                   .log = log_line,
                                   .user = s};
    TRM_TRY(one ? check_operand(all) : check_repository_options(all));
    TRM_TRY(read_mode(all, &networks.mode));
    TRM_TRY(job_open_world(&s->job, all));
    if (trm_world_size(s->job.world) > 1 || settings_integer(all, SETTING_RANKS) > 1) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "networks are served by one rank");
    }
    if (settings_flag(all, SETTING_SHARED_MEMORY)) {
        TRM_TRY(shared_regions_create(s->job.world, &s->regions));
    }
    TRM_TRY(repository_create(&networks, &s->repository));
    TRM_TRY(one ? add_network(s) : TRM_OK);
    server_options options = serve_common_options(all, s->log);
    options.routes = &network_routes;
    options.repository = s->repository;
    options.regions = s->regions;
    TRM_TRY(server_create(&options, &s->server));
    snprintf(what, sizeof(what), "serving %s", all->operands[0]);
    serve_log_address(s->log, s->server, &options, what);
    TRM_TRY(settings_text(all, SETTING_GRPC_PORT) != NULL ? start_grpc(s, &options) : TRM_OK);
    return repository_start(s->repository);
}

/* The first signal drains, the second one ends. */
static void wait_for_end(network_server *s, const sigset_t *signals)
{
    int number = 0;
    while (number != SIGTERM && number != SIGINT) {
        number = sigwaitinfo(signals, NULL);
    }
    repository_drain(s->repository);
    double left = settings_number(s->all, SETTING_DRAIN_TIMEOUT);
    for (; left > 0 && !repository_is_idle(s->repository); left -= 0.1) {
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
    repository_stop(s.repository);
    grpc_server_destroy(s.grpc);
    server_destroy(s.server);
    repository_destroy(s.repository);
    shared_regions_destroy(s.regions);
    trm_held_error why; /* of `status` */
    trm_error_hold(status, &why);
    if (s.job.world != NULL && trm_timeline_end(s.job.world) != TRM_OK) {
        log_print(log, "%s", trm_last_error());
    }
    trm_world_close(s.job.world);
    return trm_error_give_back(&why);
}
