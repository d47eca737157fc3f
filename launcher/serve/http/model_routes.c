/* The models of a server, over HTTP. */
#include "launcher/serve/http/model_routes.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

#define SLEEP_SECONDS 10 /* for the ranks to end; a connection thread waits for it */
#define LOAD_SECONDS  60 /* for the ranks to load an adapter; the same */

/* ---- which model ----------------------------------------------------------------------------------------- */

static bool is_named(const served_model *model, const char *name)
{
    return strcmp(name, model->name) == 0 || strcmp(name, model->folder) == 0;
}

/* NULL if no model has this name. */
static const served_model *find_model(const server *s, const char *name)
{
    for (int32_t i = 0; i < s->options.n_models; i++) {
        if (is_named(&s->options.models[i], name)) {
            return &s->options.models[i];
        }
    }
    return NULL;
}

/* The model that has the adapter; NULL: none has. */
static const served_model *find_adapted(const server *s, const char *name)
{
    for (int32_t i = 0; i < s->options.n_models; i++) {
        if (dispatcher_find_adapter(s->options.models[i].dispatcher, name) > 0) {
            return &s->options.models[i];
        }
    }
    return NULL;
}

static bool fail_unknown(api_error *error, const char *name)
{
    return api_fail(error, 404, "model", "model_not_found", "model %.200s does not exist", name);
}

static bool choose_named(call *c, const char *name, api_error *error)
{
    const served_model *model = find_model(c->server, name);
    model = model != NULL ? model : find_adapted(c->server, name);
    c->model = model;
    return model != NULL || fail_unknown(error, name);
}

bool call_choose_model(call *c, api_error *error)
{
    trm_json_document *document = NULL;
    const char *name = NULL;
    bool found = true;
    c->model = &c->server->options.models[0];
    if (c->server->options.n_models == 1 ||
        trm_json_parse("body", c->body.data == NULL ? "" : c->body.data, c->body.size, &document) != TRM_OK) {
        return true;
    }
    const trm_json *root = trm_json_root(document);
    if (trm_json_is_object(root) && trm_json_member_string(document, root, "model", false, &name) == TRM_OK) {
        found = name != NULL ? choose_named(c, name, error)
                             : api_fail(error, 400, "model", "missing_required_parameter",
                                        "model is missing, expected one of the %d models in /v1/models",
                                        c->server->options.n_models);
    }
    trm_json_close(document);
    return found;
}

const char *const *model_names(const served_model *model, trm_arena *arena)
{
    dispatcher_adapter *adapters;
    const int32_t n = dispatcher_list_adapters(model->dispatcher, arena, &adapters);
    const char **names = trm_arena_array(arena, (size_t)n + 3, sizeof(*names)); /* zeroed */
    for (int32_t i = 0; names != NULL && i < n + 2; i++) {
        names[i] = i == 0 ? model->name : i == 1 ? model->folder : adapters[i - 2].name;
    }
    return names;
}

bool model_find_adapter(const served_model *model, api_request *request, api_error *error)
{
    if (request->model == NULL || is_named(model, request->model)) {
        return true;
    }
    request->adapter = dispatcher_find_adapter(model->dispatcher, request->model);
    return request->adapter > 0 || fail_unknown(error, request->model);
}

/* ---- state ----------------------------------------------------------------------------------------------- */

/* Of a model among several. */
static const char *state_of(const served_model *model)
{
    const dispatcher_use use = dispatcher_get_use(model->dispatcher);
    return use.state == DISPATCHER_READY                     ? use.leaving ? "unloading" : "loaded"
           : use.state == DISPATCHER_SLEEPING && !use.asleep ? "unloaded"
                                                             : dispatcher_state_name(use.state);
}

/* Of several models: what they have in common. SLEEPING: all were put to sleep. */
static dispatcher_state common_state(const server *s)
{
    const dispatcher_use first = dispatcher_get_use(s->options.models[0].dispatcher);
    bool asleep = true;
    for (int32_t i = 0; i < s->options.n_models; i++) {
        asleep = asleep && dispatcher_get_use(s->options.models[i].dispatcher).asleep;
    }
    return first.state == DISPATCHER_DRAINING || first.state == DISPATCHER_ENDED ? first.state
           : asleep                                                              ? DISPATCHER_SLEEPING
                                                                                 : DISPATCHER_READY;
}

static dispatcher_state state_of_server(const server *s)
{
    return s->options.n_models > 1 ? common_state(s) : dispatcher_get_state(s->options.models[0].dispatcher);
}

static void write_replicas(json_text *json, dispatcher *d)
{
    metrics m;
    dispatcher_snapshot(d, &m);
    int32_t serving = 0;
    for (int32_t i = 0; i < m.replicas; i++) {
        serving += m.replica[i].serves;
    }
    if (m.replicas > 1) {
        json_integer(json, "replicas", m.replicas);
        json_integer(json, "replicas_serving", serving);
    }
}

enum MHD_Result model_routes_health(call *c)
{
    dispatcher_state state = state_of_server(c->server);
    json_text json = {0};
    const server_options *o = &c->server->options;
    json_object(&json, NULL);
    json_string(&json, "status", state == DISPATCHER_READY ? "ok" : dispatcher_state_name(state));
    if (o->n_models == 1) {
        write_replicas(&json, o->models[0].dispatcher);
    } else {
        json_object(&json, "models");
        for (int32_t i = 0; i < o->n_models; i++) {
            json_string(&json, o->models[i].name, state_of(&o->models[i]));
        }
        json_end_object(&json);
    }
    json_end_object(&json);
    return call_reply_json(c, state == DISPATCHER_READY ? 200 : 503, &json);
}

/* Healthy as long as the server intends to serve, also while it loads or recovers. */
enum MHD_Result model_routes_live(call *c)
{
    dispatcher_state state = state_of_server(c->server);
    json_text json = {0};
    json_object(&json, NULL);
    json_string(&json, "status", dispatcher_state_name(state));
    json_end_object(&json);
    return call_reply_json(c, state == DISPATCHER_ENDED ? 503 : 200, &json);
}

/* ---- lists ----------------------------------------------------------------------------------------------- */

static void write_model(json_text *json, const server *s, const served_model *model)
{
    ipc_ready ready;
    bool was_ready = dispatcher_get_ready(model->dispatcher, &ready);
    json_object(json, NULL);
    json_string(json, "id", model->name);
    json_string(json, "object", "model");
    json_integer(json, "created", s->started);
    json_string(json, "owned_by", "trireme");
    json_string(json, "root", model->folder);
    json_integer(json, "max_model_len", was_ready ? ready.max_context : model->info->context_length);
    if (s->options.n_models > 1) {
        json_object(json, "status");
        json_string(json, "value", state_of(model));
        json_end_object(json);
    }
    json_end_object(json);
}

static void write_adapter(json_text *json, const served_model *model, const dispatcher_adapter *adapter)
{
    json_object(json, NULL);
    json_string(json, "id", adapter->name);
    json_string(json, "object", "model");
    json_integer(json, "created", adapter->created);
    json_string(json, "owned_by", "trireme");
    json_string(json, "root", adapter->folder);
    json_string(json, "parent", model->name);
    json_end_object(json);
}

/* Writes the adapters of a model, or only that of a name. Returns how many. */
static int32_t write_adapters(json_text *json, const served_model *model, const char *name)
{
    trm_arena arena = {0};
    dispatcher_adapter *adapters;
    const int32_t n = dispatcher_list_adapters(model->dispatcher, &arena, &adapters);
    int32_t written = 0;
    for (int32_t i = 0; i < n; i++) {
        if (name == NULL || strcmp(name, adapters[i].name) == 0) {
            write_adapter(json, model, &adapters[i]);
            written++;
        }
    }
    trm_arena_fini(&arena);
    return written;
}

enum MHD_Result model_routes_models(call *c)
{
    const server *s = c->server;
    json_text json = {0};
    json_object(&json, NULL);
    json_string(&json, "object", "list");
    json_array(&json, "data");
    for (int32_t i = 0; i < s->options.n_models; i++) {
        write_model(&json, s, &s->options.models[i]);
    }
    for (int32_t i = 0; i < s->options.n_models; i++) {
        (void)write_adapters(&json, &s->options.models[i], NULL);
    }
    json_end_array(&json);
    json_end_object(&json);
    return call_reply_json(c, 200, &json);
}

enum MHD_Result model_routes_model(call *c)
{
    const server *s = c->server;
    const char *name = c->path + strlen(c->route->path);
    json_text json = {0};
    api_error error;
    for (int32_t i = 0; i < s->options.n_models; i++) {
        if (write_adapters(&json, &s->options.models[i], name) > 0) {
            return call_reply_json(c, 200, &json);
        }
    }
    for (int32_t i = 0; i < s->options.n_models; i++) {
        if (strcmp(name, s->options.models[i].name) == 0) {
            write_model(&json, s, &s->options.models[i]);
            return call_reply_json(c, 200, &json);
        }
    }
    api_fail(&error, 404, "model", "model_not_found", "model %s does not exist", name);
    return call_reply_error(c, &error);
}

/* Copies what the metrics of the models are written from. */
static trm_status collect_metrics(const server *s, trm_arena *arena, metrics_source **list)
{
    const int32_t n = s->options.n_models;
    metrics *copies = trm_arena_array(arena, (size_t)n, sizeof(*copies));
    *list = trm_arena_array(arena, (size_t)n, sizeof(**list));
    for (int32_t i = 0; i < n; i++) {
        trm_bytes stalls = {0};
        if (copies == NULL || *list == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        dispatcher_snapshot(s->options.models[i].dispatcher, &copies[i]);
        copies[i].connections = atomic_load(&s->connections);
        for (int32_t k = 0; k < 6; k++) {
            copies[i].replies[k] = atomic_load(&s->replies[k]);
        }
        trm_status status = dispatcher_stalls(s->options.models[i].dispatcher, &stalls);
        const char *text = status == TRM_OK ? trm_arena_strdup(arena, stalls.data) : NULL;
        trm_bytes_fini(&stalls);
        if (text == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        (*list)[i] = (metrics_source){&copies[i], s->options.models[i].name, text};
    }
    return TRM_OK;
}

enum MHD_Result model_routes_metrics(call *c)
{
    trm_arena arena = {0};
    metrics_source *models;
    json_text text = {0};
    enum MHD_Result result = MHD_NO;
    if (collect_metrics(c->server, &arena, &models) == TRM_OK) {
        metrics_write(models, c->server->options.n_models, &text);
        result = text.status == TRM_OK
                     ? call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", text.bytes.data, text.bytes.size)
                     : MHD_NO;
    }
    json_text_fini(&text);
    trm_arena_fini(&arena);
    return result;
}

/* ---- adapters -------------------------------------------------------------------------------------------- */

static bool may_load(const call *c, api_error *error)
{
    return c->server->options.loads || api_fail(error, 404, NULL, "not_found",
                                                "%s is disabled, start the server with --max-adapters", c->route->path);
}

static enum MHD_Result reply_text(call *c, const char *name, const char *what)
{
    char text[SERVER_LONGEST_NAME + 64];
    const int size = snprintf(text, sizeof(text), "Success: LoRA adapter '%s' %s successfully.", name, what);
    return call_reply(c, 200, "text/plain; charset=utf-8", text, (size_t)size);
}

/* Whether a model has this name, or an adapter of another model. */
static bool is_taken(const call *c, const char *name)
{
    const served_model *adapted = find_adapted(c->server, name);
    return find_model(c->server, name) != NULL || (adapted != NULL && adapted != c->model);
}

/* vLLM's names and fields, and its replies. */
enum MHD_Result model_routes_load_adapter(call *c)
{
    enum MHD_Result result = MHD_NO;
    api_error error;
    const char *name = NULL, *folder = NULL;
    bool replace = false;
    if (!call_choose_model(c, &error) || !may_load(c, &error)) {
        return call_reply_error(c, &error);
    }
    trm_json_document *document = call_parse_body(c, &result);
    if (document == NULL) {
        return result;
    }
    const trm_json *root = trm_json_root(document);
    trm_status status = trm_json_member_string(document, root, "lora_name", true, &name);
    status = status == TRM_OK ? trm_json_member_string(document, root, "lora_path", true, &folder) : status;
    status = status == TRM_OK ? trm_json_member_bool(document, root, "load_inplace", false, &replace) : status;
    if (status == TRM_OK &&
        (name[0] == '\0' || strlen(name) > SERVER_LONGEST_NAME || folder[0] == '\0' || is_taken(c, name))) {
        status = trm_fail(TRM_ERROR_INVALID_ARGUMENT,
                          "lora_name is that of a model, empty or longer than %d bytes, or lora_path is empty",
                          SERVER_LONGEST_NAME);
    }
    if (status == TRM_OK) {
        status = dispatcher_load_adapter(c->model->dispatcher, name, folder, replace, LOAD_SECONDS);
    }
    if (status == TRM_OK) {
        result = reply_text(c, name, "added");
    } else {
        const bool theirs = status != TRM_ERROR_OUT_OF_MEMORY && status != TRM_ERROR_INTERNAL;
        api_fail(&error, theirs ? 400 : 500, NULL, NULL, "%s", trm_last_error());
        result = call_reply_error(c, &error);
    }
    trm_json_close(document);
    return result;
}

static bool unload_adapter(const server *s, const char *name)
{
    const served_model *model = find_adapted(s, name);
    return model != NULL && dispatcher_unload_adapter(model->dispatcher, name);
}

enum MHD_Result model_routes_unload_adapter(call *c)
{
    enum MHD_Result result = MHD_NO;
    api_error error;
    const char *name = NULL;
    if (!may_load(c, &error)) {
        return call_reply_error(c, &error);
    }
    trm_json_document *document = call_parse_body(c, &result);
    if (document == NULL) {
        return result;
    }
    if (trm_json_member_string(document, trm_json_root(document), "lora_name", true, &name) != TRM_OK) {
        result = call_reply_failure(c, TRM_ERROR_INVALID_ARGUMENT, "lora_name");
    } else if (unload_adapter(c->server, name)) {
        result = reply_text(c, name, "removed");
    } else {
        api_fail(&error, 404, "lora_name", "model_not_found", "the lora adapter '%.200s' cannot be found", name);
        result = call_reply_error(c, &error);
    }
    trm_json_close(document);
    return result;
}

/* ---- sleep ----------------------------------------------------------------------------------------------- */

static bool may_sleep(const call *c, api_error *error)
{
    return c->server->options.sleeps || api_fail(error, 404, NULL, "not_found",
                                                 "%s is disabled, start the server with --sleep-mode", c->route->path);
}

/* Chooses the model that the query names; c->model is NULL if it names none. */
static bool choose_queried(call *c, api_error *error)
{
    const char *name = MHD_lookup_connection_value(c->connection, MHD_GET_ARGUMENT_KIND, "model");
    c->model = name != NULL ? find_model(c->server, name) : NULL;
    return name == NULL || c->model != NULL || fail_unknown(error, name);
}

/* Whether the call is for this model. */
static bool concerns(const call *c, const served_model *model)
{
    return c->model == NULL || c->model == model;
}

/* vLLM's names. Every level frees the devices: weights are read again from files that the system has cached. */
enum MHD_Result model_routes_sleep(call *c)
{
    const server_options *o = &c->server->options;
    api_error error;
    if (!may_sleep(c, &error) || !choose_queried(c, &error)) {
        return call_reply_error(c, &error);
    }
    for (int32_t i = 0; i < o->n_models; i++) {
        const trm_status status =
            concerns(c, &o->models[i]) ? dispatcher_sleep(o->models[i].dispatcher, SLEEP_SECONDS) : TRM_OK;
        if (status != TRM_OK) {
            api_fail(&error, status == TRM_ERROR_BUSY ? 409 : 500, NULL, NULL, "%s", trm_last_error());
            for (int32_t k = 0; k < i; k++) { /* all or none */
                if (concerns(c, &o->models[k])) {
                    dispatcher_wake(o->models[k].dispatcher, false);
                }
            }
            return call_reply_error(c, &error);
        }
    }
    return call_reply(c, 200, "text/plain", "", 0);
}

enum MHD_Result model_routes_wake(call *c)
{
    const server_options *o = &c->server->options;
    api_error error;
    if (!may_sleep(c, &error) || !choose_queried(c, &error)) {
        return call_reply_error(c, &error);
    }
    for (int32_t i = 0; i < o->n_models; i++) {
        if (concerns(c, &o->models[i])) {
            dispatcher_wake(o->models[i].dispatcher, c->model != NULL);
        }
    }
    return call_reply(c, 200, "text/plain", "", 0);
}

enum MHD_Result model_routes_is_sleeping(call *c)
{
    const server_options *o = &c->server->options;
    api_error error;
    if (!may_sleep(c, &error) || !choose_queried(c, &error)) {
        return call_reply_error(c, &error);
    }
    bool sleeps = true;
    for (int32_t i = 0; i < o->n_models; i++) {
        sleeps = sleeps &&
                 (!concerns(c, &o->models[i]) || dispatcher_get_state(o->models[i].dispatcher) == DISPATCHER_SLEEPING);
    }
    json_text json = {0};
    json_object(&json, NULL);
    json_bool(&json, "is_sleeping", sleeps);
    json_end_object(&json);
    return call_reply_json(c, 200, &json);
}
