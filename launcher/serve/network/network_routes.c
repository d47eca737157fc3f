/* The paths of KServe's protocol v2
 * (https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol) for one network. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/version.h>

#include "launcher/serve/http/server_internal.h"
#include "launcher/serve/network/infer.h"

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
    json_end_array(&json);
    json_end_object(&json);
    return call_reply_json(c, 200, &json);
}

/* Configurations have names of types with TYPE_ and call shapes dims. */
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
        for (int32_t k = 0; k < port->dims.n; k++) {
            json_integer(json, NULL, port->dims.d[k]);
        }
        json_end_array(json);
        json_end_object(json);
    }
    json_end_array(json);
}

static enum MHD_Result answer_network(call *c, bool config)
{
    const served_network *n = c->server->options.network;
    json_text json = {0};
    json_object(&json, NULL);
    json_string(&json, "name", c->server->options.model_name);
    json_string(&json, "platform", served_get_options(n)->platform);
    if (config) {
        json_integer(&json, "max_batch_size", 0);
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

static enum MHD_Result answer_get(call *c)
{
    const char *rest = below_network(c);
    if (rest == NULL) {
        return reply_unknown(c);
    }
    return *rest == '\0'                  ? answer_network(c, false)
           : strcmp(rest, "/config") == 0 ? answer_network(c, true)
           : strcmp(rest, "/ready") == 0  ? answer_ready(c)
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
        const bool known =
            rest != NULL && (*rest == '\0' || strcmp(rest, "/config") == 0 || strcmp(rest, "/ready") == 0);
        return known ? reply_method(c, "GET") : reply_unknown(c);
    }
    served_network *n = c->server->options.network;
    if (!read_json_size(c, &json_size, &error)) {
        return call_reply_error(c, &error);
    }
    c->inference =
        infer_parse(n, c->body.data != NULL ? c->body.data : "", c->body.size, json_size, c->exchange, &error);
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
    {"GET", "/v2/health/live", answer_live, true, "whether the server runs (KServe)"},
    {"GET", "/v2/health/ready", answer_ready, true, "whether the server takes requests (KServe)"},
};
const route_table network_routes = {rows, sizeof(rows) / sizeof(rows[0]), write_error};
