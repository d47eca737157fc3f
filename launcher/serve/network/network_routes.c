/* The paths of KServe's protocol v2
 * (https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol) with Triton's extensions. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/version.h>

#include "base/error.h"
#include "base/json.h"
#include "launcher/serve/http/server_internal.h"
#include "launcher/serve/network/infer_json.h"
#include "launcher/serve/network/repository.h"
#include "launcher/text/strings/base64.h"

#define HEADER_LENGTH  "Inference-Header-Content-Length"
#define MAX_VERSIONS   64
#define LONGEST_BASE64 256 /* of a handle */

static void write_error(const api_error *error, json_text *json)
{
    json_object(json, NULL);
    json_string(json, "error", error->message);
    json_end_object(json);
}

static enum MHD_Result reply_unknown(call *c)
{
    api_error error;
    api_fail(&error, 404, NULL, NULL, "there is no path %s", c->path);
    return call_reply_error(c, &error);
}

static enum MHD_Result reply_method(call *c, const char *allowed)
{
    api_error error;
    c->allowed = allowed;
    api_fail(&error, 405, NULL, NULL, "method %s is not allowed for %s", c->method, c->path);
    return call_reply_error(c, &error);
}

static enum MHD_Result reply_empty(call *c, int status)
{
    return call_reply(c, status, "text/plain", "", 0);
}

static enum MHD_Result answer_ready(call *c)
{
    return reply_empty(c, repository_is_ready(c->server->options.repository) ? 200 : 503);
}

static enum MHD_Result answer_server(call *c)
{
    const char *extensions[SHARED_EXTENSIONS];
    const size_t n = shared_extensions(c->server->options.regions, extensions);
    json_text json = {0};
    json_object(&json, NULL);
    json_string(&json, "name", "trireme");
    json_string(&json, "version", trm_version());
    json_array(&json, "extensions");
    json_string(&json, NULL, "binary_tensor_data");
    for (size_t i = 0; i < n; i++) {
        json_string(&json, NULL, extensions[i]);
    }
    json_end_array(&json);
    json_end_object(&json);
    return call_reply_json(c, 200, &json);
}

/* Configurations have names of types with TYPE_, call shapes dims, and leave out the first if requests are joined. */
static void write_ports(json_text *json, const char *key, const served_network *n, bool inputs, bool config)
{
    const int32_t count = inputs ? served_input_count(n) : served_output_count(n);
    char type[32];
    json_array(json, key);
    for (int32_t i = 0; i < count; i++) {
        const served_port *port = inputs ? served_input(n, i) : served_output(n, i);
        snprintf(type, sizeof(type), "%s%s", config ? "TYPE_" : "", infer_type_name(port->dtype));
        json_object(json, NULL);
        json_string(json, "name", port->name);
        json_string(json, config ? "data_type" : "datatype", type);
        json_array(json, config ? "dims" : "shape");
        for (int32_t k = config && served_max_batch(n) > 0; k < port->dims.n; k++) {
            json_integer(json, NULL, port->dims.d[k]);
        }
        json_end_array(json);
        json_end_object(json);
    }
    json_end_array(json);
}

static void write_scheduling(json_text *json, const served_options *o)
{
    json_integer(json, "max_batch_size", o->max_batch);
    json_array(json, "instance_group");
    json_object(json, NULL);
    json_string(json, "kind", "KIND_AUTO");
    json_integer(json, "count", o->n_contexts);
    json_end_object(json);
    json_end_array(json);
    if (o->joins) {
        json_object(json, "dynamic_batching");
        json_array(json, "preferred_batch_size");
        for (int32_t i = 0; i < o->n_preferred; i++) {
            json_integer(json, NULL, o->preferred[i]);
        }
        json_end_array(json);
        json_integer(json, "max_queue_delay_microseconds", (int64_t)(o->batch_seconds * 1e6 + 0.5));
        json_end_object(json);
    }
}

static enum MHD_Result answer_network(call *c, const served_network *n, bool config)
{
    const served_options *o = served_get_options(n);
    int64_t versions[MAX_VERSIONS];
    char text[24];
    json_text json = {0};
    json_object(&json, NULL);
    json_string(&json, "name", o->name);
    json_string(&json, "platform", o->platform);
    if (config) {
        write_scheduling(&json, o);
    } else {
        const size_t count = repository_versions(c->server->options.repository, o->name, versions, MAX_VERSIONS);
        json_array(&json, "versions");
        for (size_t i = count; i > 0; i--) {
            snprintf(text, sizeof(text), "%" PRId64, versions[i - 1]);
            json_string(&json, NULL, text);
        }
        json_end_array(&json);
    }
    write_ports(&json, config ? "input" : "inputs", n, true, config);
    write_ports(&json, config ? "output" : "outputs", n, false, config);
    json_end_object(&json);
    return call_reply_json(c, 200, &json);
}

static enum MHD_Result reply_stats(call *c, const char *name, const char *version)
{
    size_t n;
    json_text json = {0};
    named_stats *all = repository_stats(c->server->options.repository, name, version, &n);
    json_object(&json, NULL);
    json_array(&json, "model_stats");
    for (size_t i = 0; i < n; i++) {
        stats_write_json(&all[i].stats, all[i].name, all[i].version, &json);
    }
    json_end_array(&json);
    json_end_object(&json);
    free(all);
    return call_reply_json(c, 200, &json);
}

static enum MHD_Result answer_stats(call *c)
{
    return reply_stats(c, "", "");
}

static enum MHD_Result answer_metrics(call *c)
{
    size_t n;
    named_stats *all = repository_stats(c->server->options.repository, "", "", &n);
    long long replies[6];
    json_text text = {0};
    for (int i = 0; i < 6; i++) {
        replies[i] = atomic_load(&c->server->replies[i]);
    }
    stats_write_metrics(all, n, replies, &text);
    free(all);
    enum MHD_Result result = text.status != TRM_OK ? MHD_NO
                                                   : call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8",
                                                                text.bytes.data, text.bytes.size);
    json_text_fini(&text);
    return result;
}

/* What a path below /v2/models/ names: a network that is loaded, to be released, and what follows. NULL after a reply,
 * *result. */
static served_network *find_network(call *c, char name[REPOSITORY_LONGEST_NAME + 1], char version[24],
                                    const char **rest, enum MHD_Result *result)
{
    api_error error;
    repository *r = c->server->options.repository;
    if (!repository_split(r, c->path + strlen(c->route->path), name, version, rest)) {
        *result = reply_unknown(c);
        return NULL;
    }
    served_network *n = repository_find(r, name, version, &error);
    if (n == NULL) {
        *result = call_reply_error(c, &error);
    }
    return n;
}

static bool is_known(const char *rest)
{
    static const char *const known[] = {"", "/config", "/ready", "/stats"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(rest, known[i]) == 0) {
            return true;
        }
    }
    return false;
}

static enum MHD_Result answer_get(call *c)
{
    char name[REPOSITORY_LONGEST_NAME + 1], version[24];
    const char *rest;
    enum MHD_Result result;
    served_network *n = find_network(c, name, version, &rest, &result);
    if (n == NULL) {
        return result;
    }
    result = *rest == '\0'                  ? answer_network(c, n, false)
             : strcmp(rest, "/config") == 0 ? answer_network(c, n, true)
             : strcmp(rest, "/ready") == 0  ? reply_empty(c, served_is_ready(n) ? 200 : 503)
             : strcmp(rest, "/stats") == 0  ? reply_stats(c, name, version)
             : strcmp(rest, "/infer") == 0  ? reply_method(c, "POST")
                                            : reply_unknown(c);
    served_release(n);
    return result;
}

/* The bytes of JSON at the beginning of the body. */
static bool read_json_size(const call *c, size_t *size, api_error *error)
{
    const char *text = MHD_lookup_connection_value(c->connection, MHD_HEADER_KIND, HEADER_LENGTH);
    *size = c->body.size;
    if (text == NULL) {
        return true;
    }
    const size_t digits = strspn(text, "0123456789");
    const unsigned long long given = strtoull(text, NULL, 10);
    if (digits == 0 || digits > 18 || text[digits] != '\0' || given > c->body.size) {
        return api_fail(error, 400, NULL, NULL, HEADER_LENGTH " is %.32s, expected at most the %zu bytes of the body",
                        text, c->body.size);
    }
    *size = (size_t)given;
    return true;
}

static void wake_call(infer_request *request)
{
    http_exchange_wake(((call *)request->user)->exchange);
}

/* The connection waits meanwhile, so that its socket is open. */
static bool is_gone(infer_request *request)
{
    struct pollfd socket = {.fd = ((call *)request->user)->fd, .events = POLLRDHUP};
    return poll(&socket, 1, 0) > 0 && (socket.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

static const infer_client http_client = {infer_write_json, wake_call, is_gone};

static void wait_for_run(void *user)
{
    (void)call_wait(user);
}

static enum MHD_Result reply_run(call *c)
{
    infer_request *request = c->inference;
    if (request->failed) {
        return call_reply_error(c, &request->error);
    }
    trm_bytes reply = request->reply;
    request->reply = (trm_bytes){0};
    return call_reply_tensors(c, &reply, request->json_size);
}

/* Queues the request; false with an error. */
static bool start_run(call *c, served_network *n, api_error *error)
{
    size_t json_size;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    c->fd = info != NULL ? info->connect_fd : -1;
    if (!read_json_size(c, &json_size, error)) {
        return false;
    }
    infer_destroy(c->inference);
    c->inference = infer_parse(n, c->server->options.regions, c->body.data != NULL ? c->body.data : "", c->body.size,
                               json_size, &http_client, c, error);
    if (c->inference != NULL) {
        c->inference->trace = c->exchange->trace;
    }
    return c->inference != NULL && served_accept(n, c->inference, wait_for_run, c, error);
}

static enum MHD_Result answer_post(call *c)
{
    char name[REPOSITORY_LONGEST_NAME + 1], version[24];
    const char *rest;
    enum MHD_Result result = MHD_NO;
    if (c->inference != NULL) { /* woken */
        return reply_run(c);
    }
    for (int turn = 0; turn < SERVED_TURNS; turn++) {
        api_error error;
        served_network *n = find_network(c, name, version, &rest, &result);
        if (n == NULL) {
            return result;
        }
        const bool runs = strcmp(rest, "/infer") == 0, started = runs && start_run(c, n, &error);
        const bool again = runs && !started && turn + 1 < SERVED_TURNS && !served_is_ready(n);
        if (!again) {
            result = started          ? MHD_YES
                     : runs           ? call_reply_error(c, &error)
                     : is_known(rest) ? reply_method(c, "GET")
                                      : reply_unknown(c);
            turn = SERVED_TURNS;
        }
        served_release(n);
    }
    return result;
}

/* ---- the repository -------------------------------------------------------------------------------------- */

/* The body as JSON; *document NULL: it is empty. */
static bool read_body(const call *c, trm_json_document **document, api_error *error)
{
    *document = NULL;
    return c->body.size == 0 || trm_json_parse("body", c->body.data, c->body.size, document) == TRM_OK ||
           api_fail(error, 400, NULL, NULL, "%s", trm_last_error());
}

static enum MHD_Result answer_index(call *c)
{
    trm_json_document *document;
    api_error error;
    json_text json = {0};
    size_t n;
    if (!read_body(c, &document, &error)) {
        return call_reply_error(c, &error);
    }
    const bool ready = document != NULL && trm_json_truth(trm_json_get(trm_json_root(document), "ready"), false);
    trm_json_close(document);
    repository_entry *entries = repository_index(c->server->options.repository, ready, &n);
    json_array(&json, NULL);
    for (size_t i = 0; i < n; i++) {
        json_object(&json, NULL);
        json_string(&json, "name", entries[i].name);
        if (entries[i].version[0] != '\0') {
            json_string(&json, "version", entries[i].version);
        }
        json_string(&json, "state", entries[i].state);
        if (entries[i].reason[0] != '\0') {
            json_string(&json, "reason", entries[i].reason);
        }
        json_end_object(&json);
    }
    json_end_array(&json);
    free(entries);
    return call_reply_json(c, 200, &json);
}

/* A load may bring a configuration; files of the network in the request are refused. */
static bool read_load(const trm_json *parameters, repository_job *job, api_error *error)
{
    for (const trm_json *p = trm_json_first(parameters); p != NULL; p = trm_json_next(p)) {
        const char *text = trm_json_string(p);
        if (strncmp(trm_json_key(p), "file:", 5) == 0) {
            return api_fail(error, 400, NULL, NULL, "parameter %.64s is not supported: put files into the repository",
                            trm_json_key(p));
        }
        if (strcmp(trm_json_key(p), "config") != 0) {
            continue;
        }
        job->config = malloc(sizeof(*job->config));
        if (text == NULL || job->config == NULL) {
            return api_fail(error, 400, NULL, NULL, "parameter config is not a string of JSON");
        }
        if (model_config_parse_json("config", text, strlen(text), job->config) != TRM_OK) {
            return api_fail(error, 400, NULL, NULL, "%s", trm_last_error());
        }
    }
    return true;
}

static void wake_loader(repository_job *job)
{
    http_exchange_wake(((call *)job->user)->exchange);
}

static enum MHD_Result submit_job(call *c, const char *name, bool unload)
{
    api_error error;
    trm_json_document *document = NULL;
    c->job = repository_job_create(name, unload, &error);
    bool taken =
        c->job != NULL && read_body(c, &document, &error) &&
        (unload || document == NULL || read_load(trm_json_get(trm_json_root(document), "parameters"), c->job, &error));
    trm_json_close(document);
    if (taken) {
        c->job->finish = wake_loader;
        c->job->user = c;
        taken = repository_submit(c->server->options.repository, c->job, wait_for_run, c, &error);
    }
    return taken ? MHD_YES : call_reply_error(c, &error);
}

/* /v2/repository/models/NAME/load or unload */
static enum MHD_Result answer_load(call *c)
{
    char name[REPOSITORY_LONGEST_NAME + 1];
    const char *from = c->path + strlen(c->route->path), *slash = strrchr(from, '/');
    if (c->job != NULL) { /* woken */
        return c->job->failed ? call_reply_error(c, &c->job->error) : reply_empty(c, 200);
    }
    if (slash == NULL || slash == from || slash - from > REPOSITORY_LONGEST_NAME ||
        (strcmp(slash, "/load") != 0 && strcmp(slash, "/unload") != 0)) {
        return reply_unknown(c);
    }
    snprintf(name, sizeof(name), "%.*s", (int)(slash - from), from);
    return submit_job(c, name, strcmp(slash, "/unload") == 0);
}

/* ---- shared memory --------------------------------------------------------------------------------------- */

static shared_kind kind_of(const call *c)
{
    return strncmp(c->path, "/v2/cuda", 8) == 0 ? SHARED_CUDA : SHARED_SYSTEM;
}

/* The region of region/NAME/verb behind the route's path; "" if the path has none. */
static bool read_region(const call *c, const char *verb, char name[SHARED_LONGEST_NAME + 1])
{
    static const char region[] = "region/";
    const char *from = c->path + strlen(c->route->path), *slash;
    name[0] = '\0';
    if (strcmp(from, verb + 1) == 0) {
        return true;
    }
    if (strncmp(from, region, sizeof(region) - 1) != 0) {
        return false;
    }
    from += sizeof(region) - 1;
    slash = strrchr(from, '/');
    if (slash == NULL || slash == from || strcmp(slash, verb) != 0 || slash - from > SHARED_LONGEST_NAME) {
        return false;
    }
    snprintf(name, SHARED_LONGEST_NAME + 1, "%.*s", (int)(slash - from), from);
    return true;
}

static void write_region(json_text *json, const shared_info *info)
{
    json_object(json, NULL);
    json_string(json, "name", info->name);
    if (info->kind == SHARED_CUDA) {
        json_integer(json, "device_id", info->device);
    } else {
        json_string(json, "key", info->key);
        json_integer(json, "offset", (int64_t)info->offset);
    }
    json_integer(json, "byte_size", (int64_t)info->size);
    json_end_object(json);
}

static enum MHD_Result answer_region_status(call *c)
{
    char name[SHARED_LONGEST_NAME + 1];
    api_error error;
    json_text json = {0};
    size_t n;
    if (!read_region(c, "/status", name)) {
        return reply_unknown(c);
    }
    shared_info *infos = shared_status(c->server->options.regions, kind_of(c), name, &n, &error);
    if (infos == NULL) {
        return call_reply_error(c, &error);
    }
    json_array(&json, NULL);
    for (size_t i = 0; i < n; i++) {
        write_region(&json, &infos[i]);
    }
    json_end_array(&json);
    free(infos);
    return call_reply_json(c, 200, &json);
}

/* {key, offset, byte_size} */
static bool register_system(const call *c, const trm_json *root, const char *name, api_error *error)
{
    const trm_json *begin = trm_json_get(root, "offset");
    const char *key = trm_json_string(trm_json_get(root, "key"));
    int64_t offset = 0, size = -1;
    if (key == NULL || !trm_json_integer(trm_json_get(root, "byte_size"), &size) || size < 0 ||
        (begin != NULL && (!trm_json_integer(begin, &offset) || offset < 0))) {
        return api_fail(error, 400, NULL, NULL, "expected key, a string, and byte_size and offset, integers from 0");
    }
    return shared_register(c->server->options.regions, name, key, (uint64_t)offset, (uint64_t)size, error);
}

/* {raw_handle: {b64}, device_id, byte_size} */
static bool register_cuda(const call *c, const trm_json *root, const char *name, api_error *error)
{
    const char *text = trm_json_string(trm_json_get(trm_json_get(root, "raw_handle"), "b64"));
    unsigned char handle[3 * LONGEST_BASE64 / 4];
    size_t handle_size = 0;
    int64_t device = -1, size = -1;
    if (text == NULL || strlen(text) > LONGEST_BASE64 || !trm_base64_decode(text, handle, &handle_size) ||
        !trm_json_integer(trm_json_get(root, "device_id"), &device) || device < 0 ||
        !trm_json_integer(trm_json_get(root, "byte_size"), &size) || size < 0) {
        return api_fail(error, 400, NULL, NULL,
                        "expected raw_handle, an object with b64, the base64 of a handle, and device_id and byte_size, "
                        "integers from 0");
    }
    return shared_register_cuda(c->server->options.regions, name, handle, handle_size, device, (uint64_t)size, error);
}

static bool register_region(call *c, const char *name, api_error *error)
{
    trm_json_document *document;
    if (!read_body(c, &document, error)) {
        return false;
    }
    const trm_json *root = document != NULL ? trm_json_root(document) : NULL;
    const bool done =
        kind_of(c) == SHARED_CUDA ? register_cuda(c, root, name, error) : register_system(c, root, name, error);
    trm_json_close(document);
    return done;
}

static enum MHD_Result answer_region(call *c)
{
    char name[SHARED_LONGEST_NAME + 1];
    api_error error;
    bool done;
    if (read_region(c, "/register", name) && name[0] != '\0') {
        done = register_region(c, name, &error);
    } else if (read_region(c, "/unregister", name)) {
        done = shared_unregister(c->server->options.regions, kind_of(c), name, &error);
    } else {
        return reply_unknown(c);
    }
    return done ? reply_empty(c, 200) : call_reply_error(c, &error);
}

static enum MHD_Result answer_other(call *c)
{
    return reply_unknown(c);
}

static enum MHD_Result answer_live(call *c)
{
    return reply_empty(c, 200);
}

/* Of rows that match a path the last one counts. */
static const route rows[] = {
    {"GET", "/v2", answer_server, false, "describe the server (KServe)"},
    {"GET", "/v2/", answer_other, false, "other paths"},
    {"GET", "/v2/models/", answer_get, false, "describe a network (KServe)"},
    {"POST", "/v2/models/", answer_post, false, "run a network (KServe)"},
    {"GET", "/v2/models/stats", answer_stats, false, "what the networks have done (KServe)"},
    {"POST", "/v2/repository/index", answer_index, false, "list networks (KServe)"},
    {"POST", "/v2/repository/models/", answer_load, false, "load or unload a network (KServe)"},
    {"GET", "/v2/systemsharedmemory/", answer_region_status, false, "list shared memory (KServe)"},
    {"POST", "/v2/systemsharedmemory/", answer_region, false, "register shared memory (KServe)"},
    {"GET", "/v2/cudasharedmemory/", answer_region_status, false, "list shared memory of CUDA (KServe)"},
    {"POST", "/v2/cudasharedmemory/", answer_region, false, "register shared memory of CUDA (KServe)"},
    {"GET", "/metrics", answer_metrics, true, "metrics for Prometheus"},
    {"GET", "/v2/health/live", answer_live, true, "whether the server runs (KServe)"},
    {"GET", "/v2/health/ready", answer_ready, true, "whether the server takes requests (KServe)"},
};
const route_table network_routes = {rows, sizeof(rows) / sizeof(rows[0]), write_error};
