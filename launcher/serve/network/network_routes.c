/* The paths of KServe's protocol v2
 * (https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol) for one network. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/version.h>

#include "launcher/serve/http/server_internal.h"
#include "launcher/serve/network/infer_json.h"

#define HEADER_LENGTH "Inference-Header-Content-Length"

static void write_error(const api_error *error, json_text *json)
{
    json_object(json, NULL);
    json_string(json, "error", error->message);
    json_end_object(json);
}

/* What follows the network's name, and a version, in the path: "", "/ready", ...; NULL: another network. */
static const char *below_network(const call *c)
{
    static const char prefix[] = "/v2/models/", version[] = "/versions/1";
    const char *name = c->server->options.model_name, *rest = c->path + sizeof(prefix) - 1;
    if (strncmp(c->path, prefix, sizeof(prefix) - 1) != 0 || strncmp(rest, name, strlen(name)) != 0) {
        return NULL;
    }
    rest += strlen(name);
    rest += strncmp(rest, version, sizeof(version) - 1) == 0 ? sizeof(version) - 1 : 0;
    return *rest == '\0' || *rest == '/' ? rest : NULL;
}

static enum MHD_Result reply_unknown(call *c)
{
    api_error error;
    api_fail(&error, 404, NULL, NULL, "there is no path %s; the network is %s, version 1", c->path,
             c->server->options.model_name);
    return call_reply_error(c, &error);
}

static enum MHD_Result reply_method(call *c, const char *allowed)
{
    api_error error;
    c->allowed = allowed;
    api_fail(&error, 405, NULL, NULL, "method %s is not allowed for %s", c->method, c->path);
    return call_reply_error(c, &error);
}

static enum MHD_Result answer_live(call *c)
{
    return call_reply(c, 200, "text/plain", "", 0);
}

static enum MHD_Result answer_ready(call *c)
{
    return call_reply(c, served_is_ready(c->server->options.network) ? 200 : 503, "text/plain", "", 0);
}

static enum MHD_Result answer_server(call *c)
{
    json_text json = {0};
    json_object(&json, NULL);
    json_string(&json, "name", "trireme");
    json_string(&json, "version", trm_version());
    json_array(&json, "extensions");
    json_string(&json, NULL, "binary_tensor_data");
    json_string(&json, NULL, "model_configuration");
    json_string(&json, NULL, "statistics");
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
    if (o->max_batch > 0) {
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

static enum MHD_Result answer_network(call *c, bool config)
{
    const served_network *n = c->server->options.network;
    json_text json = {0};
    json_object(&json, NULL);
    json_string(&json, "name", c->server->options.model_name);
    json_string(&json, "platform", served_get_options(n)->platform);
    if (config) {
        write_scheduling(&json, served_get_options(n));
    } else {
        json_array(&json, "versions");
        json_string(&json, NULL, "1");
        json_end_array(&json);
    }
    write_ports(&json, config ? "input" : "inputs", n, true, config);
    write_ports(&json, config ? "output" : "outputs", n, false, config);
    json_end_object(&json);
    return call_reply_json(c, 200, &json);
}

static enum MHD_Result answer_stats(call *c)
{
    served_network *n = c->server->options.network;
    network_stats stats;
    json_text json = {0};
    served_get_stats(n, &stats);
    json_object(&json, NULL);
    json_array(&json, "model_stats");
    stats_write_json(&stats, served_get_options(n)->name, served_get_options(n)->version, &json);
    json_end_array(&json);
    json_end_object(&json);
    return call_reply_json(c, 200, &json);
}

static enum MHD_Result answer_metrics(call *c)
{
    served_network *n = c->server->options.network;
    named_stats all = {.name = served_get_options(n)->name, .version = served_get_options(n)->version};
    long long replies[6];
    json_text text = {0};
    served_get_stats(n, &all.stats);
    for (int i = 0; i < 6; i++) {
        replies[i] = atomic_load(&c->server->replies[i]);
    }
    stats_write_metrics(&all, 1, replies, &text);
    enum MHD_Result result = text.status != TRM_OK ? MHD_NO
                                                   : call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8",
                                                                text.bytes.data, text.bytes.size);
    json_text_fini(&text);
    return result;
}

static enum MHD_Result answer_get(call *c)
{
    const char *rest = below_network(c);
    if (rest == NULL) {
        return reply_unknown(c);
    }
    return *rest == '\0'                  ? answer_network(c, false)
           : strcmp(rest, "/config") == 0 ? answer_network(c, true)
           : strcmp(rest, "/ready") == 0  ? answer_ready(c)
           : strcmp(rest, "/stats") == 0  ? answer_stats(c)
           : strcmp(rest, "/infer") == 0  ? reply_method(c, "POST")
                                          : reply_unknown(c);
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

static enum MHD_Result answer_post(call *c)
{
    const char *rest = below_network(c);
    api_error error;
    size_t json_size;
    if (c->inference != NULL) { /* woken */
        return reply_run(c);
    }
    if (rest == NULL || strcmp(rest, "/infer") != 0) {
        const bool known = rest != NULL && (*rest == '\0' || strcmp(rest, "/config") == 0 ||
                                            strcmp(rest, "/ready") == 0 || strcmp(rest, "/stats") == 0);
        return known ? reply_method(c, "GET") : reply_unknown(c);
    }
    served_network *n = c->server->options.network;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    c->fd = info != NULL ? info->connect_fd : -1;
    if (!read_json_size(c, &json_size, &error)) {
        return call_reply_error(c, &error);
    }
    c->inference =
        infer_parse(n, c->body.data != NULL ? c->body.data : "", c->body.size, json_size, &http_client, c, &error);
    if (c->inference == NULL) {
        return call_reply_error(c, &error);
    }
    if (!served_submit(n, c->inference, wait_for_run, c)) {
        api_fail(&error, 503, NULL, NULL, "the server is %s, try again later",
                 served_is_ready(n) ? "at its limit of requests" : "shutting down");
        return call_reply_error(c, &error);
    }
    return MHD_YES;
}

static const route rows[] = {
    {"GET", "/v2", answer_server, false, "describe the server (KServe)"},
    {"GET", "/v2/", answer_get, false, "describe the network (KServe)"},
    {"POST", "/v2/", answer_post, false, "run the network (KServe)"},
    {"GET", "/v2/models/stats", answer_stats, false, "what the networks have done (KServe)"},
    {"GET", "/metrics", answer_metrics, true, "metrics for Prometheus"},
    {"GET", "/v2/health/live", answer_live, true, "whether the server runs (KServe)"},
    {"GET", "/v2/health/ready", answer_ready, true, "whether the server takes requests (KServe)"},
};
const route_table network_routes = {rows, sizeof(rows) / sizeof(rows[0]), write_error};
