/* Turns declared tools into grammars. */
#include "launcher/serve/requests/tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/serve/json/json_value.h"

#define MAX_TOOLS 1024

/* The function of a tool; NULL if it has none. */
static const trm_json *function_of(const trm_json *tool)
{
    const trm_json *function = trm_json_get(tool, "function");
    const char *type = trm_json_string(trm_json_get(tool, "type"));
    const char *name = trm_json_string(trm_json_get(function, "name"));
    const trm_json *parameters = trm_json_get(function, "parameters");
    bool fits = type != NULL && strcmp(type, "function") == 0 && name != NULL && *name != '\0' && strlen(name) <= 256 &&
                (parameters == NULL || trm_json_is_object(parameters));
    return fits ? function : NULL;
}

static bool has_reference(const trm_json *schema)
{
    bool found = trm_json_is_object(schema) && trm_json_get(schema, "$ref") != NULL;
    for (const trm_json *at = trm_json_first(schema); at != NULL && !found; at = trm_json_next(at)) {
        found = has_reference(at);
    }
    return found;
}

/* Arguments are an object even if the schema does not say so. */
static void write_parameters(json_text *json, const char *key, const trm_json *function)
{
    const trm_json *parameters = trm_json_get(function, "parameters");
    json_object(json, key);
    json_string(json, "type", "object");
    if (key != NULL && has_reference(parameters) && trm_json_get(parameters, "$id") == NULL) {
        json_string(json, "$id", "tool"); /* what they are relative to */
    }
    for (const trm_json *at = trm_json_first(parameters); at != NULL; at = trm_json_next(at)) {
        if (strcmp(trm_json_key(at), "type") != 0) {
            json_value(json, trm_json_key(at), at);
        }
    }
    json_end_object(json);
}

/* An array of calls, each of one of the tools. */
static void write_required(json_text *json, const api_request *request)
{
    json_object(json, NULL);
    json_string(json, "type", "array");
    json_integer(json, "minItems", 1);
    json_integer(json, "maxItems", request->parallel_tools ? 16 : 1);
    json_object(json, "items");
    json_array(json, "anyOf");
    for (const trm_json *tool = trm_json_first(request->tools); tool != NULL; tool = trm_json_next(tool)) {
        const trm_json *function = function_of(tool);
        json_object(json, NULL);
        json_string(json, "type", "object");
        json_object(json, "properties");
        json_object(json, "name");
        json_string(json, "const", trm_json_string(trm_json_get(function, "name")));
        json_end_object(json);
        write_parameters(json, "parameters", function);
        json_end_object(json);
        json_array(json, "required");
        json_string(json, NULL, "name");
        json_string(json, NULL, "parameters");
        json_end_array(json);
        json_bool(json, "additionalProperties", false);
        json_end_object(json);
    }
    json_end_array(json);
    json_end_object(json);
    json_end_object(json);
}

/* The grammar of a forced call. */
static bool force(api_request *request, const trm_json *function, api_error *error)
{
    json_text json = {0};
    if (request->format != API_FORMAT_TEXT) {
        return api_fail(error, 400, "tool_choice", "invalid_value",
                        "a forced tool call cannot be combined with response_format");
    }
    if (function != NULL) {
        write_parameters(&json, NULL, function);
    } else {
        write_required(&json, request);
    }
    char *kept = json.status == TRM_OK ? trm_arena_alloc(&request->arena, json.bytes.size + 1) : NULL;
    if (kept != NULL) {
        memcpy(kept, json.bytes.data, json.bytes.size);
    }
    json_text_fini(&json);
    request->format = API_FORMAT_SCHEMA;
    request->format_key = "tools";
    request->grammar = kept;
    return kept != NULL || api_fail(error, 503, NULL, NULL, "cannot allocate the grammar of the tools");
}

static bool check_tools(const api_request *request, api_error *error)
{
    int32_t index = 0;
    if (trm_json_count(request->tools) > MAX_TOOLS) {
        return api_fail(error, 400, "tools", "invalid_value", "tools has more than %d entries", MAX_TOOLS);
    }
    for (const trm_json *tool = trm_json_first(request->tools); tool != NULL; tool = trm_json_next(tool), index++) {
        if (function_of(tool) == NULL) {
            return api_fail(error, 400, "tools", "invalid_value",
                            "tools[%d] is not a tool of type function with a name and a parameters object", index);
        }
    }
    return true;
}

/* Keeps the tools that an allowed_tools choice lists, as chats or responses write it. */
static bool take_allowed(api_request *request, const trm_json *allowed, api_error *error)
{
    json_text json = {0};
    json_array(&json, NULL);
    bool found = true;
    for (const trm_json *at = trm_json_first(trm_json_get(allowed, "tools")); at != NULL && found;
         at = trm_json_next(at)) {
        const trm_json *function = trm_json_get(at, "function");
        const char *name = trm_json_string(trm_json_get(function != NULL ? function : at, "name"));
        function = name != NULL ? tools_find(request, name, strlen(name)) : NULL;
        found = function != NULL;
        if (found) {
            json_object(&json, NULL);
            json_string(&json, "type", "function");
            json_value(&json, "function", function);
            json_end_object(&json);
        }
    }
    json_end_array(&json);
    trm_status status = json.status;
    if (status == TRM_OK && found) {
        status = trm_json_parse("allowed_tools", json.bytes.data, json.bytes.size, &request->allowed);
    }
    json_text_fini(&json);
    if (!found || status != TRM_OK) {
        return found ? api_fail_status(error, status, "tool_choice")
                     : api_fail(error, 400, "tool_choice", "invalid_value",
                                "tool_choice allows something that is not a function of tools");
    }
    request->tools = trm_json_root(request->allowed);
    return trm_json_count(request->tools) > 0 ||
           api_fail(error, 400, "tool_choice", "invalid_value", "tool_choice allows no tools");
}

/* Whether a model may, or must, call one of several tools. */
static bool choose_mode(api_request *request, const char *word, api_error *error)
{
    if (word != NULL && strcmp(word, "auto") == 0) {
        request->tool_mode = TOOL_AUTO;
        return true;
    }
    if (word != NULL && strcmp(word, "required") == 0) {
        request->tool_mode = TOOL_REQUIRED;
        return force(request, NULL, error);
    }
    return api_fail(error, 400, "tool_choice", "invalid_value",
                    "tool_choice is not none, auto, required, allowed_tools or a function of tools");
}

bool tools_read(api_request *request, api_error *error)
{
    const trm_json *choice = request->tool_choice;
    const char *word = trm_json_string(choice), *type = trm_json_string(trm_json_get(choice, "type"));
    const char *name = trm_json_string(trm_json_get(trm_json_get(choice, "function"), "name"));
    if (request->tools == NULL || trm_json_count(request->tools) == 0) {
        bool none = choice == NULL || (word != NULL && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0));
        request->tools = NULL;
        return none ||
               api_fail(error, 400, "tool_choice", "invalid_value", "tool_choice needs tools, but there are none");
    }
    if (!check_tools(request, error)) {
        return false;
    }
    if (word != NULL && strcmp(word, "none") == 0) {
        request->tools = NULL;
        return true;
    }
    if (type != NULL && strcmp(type, "allowed_tools") == 0) {
        const trm_json *inner = trm_json_get(choice, "allowed_tools"), *allowed = inner != NULL ? inner : choice;
        return take_allowed(request, allowed, error) &&
               choose_mode(request, trm_json_string(trm_json_get(allowed, "mode")), error);
    }
    const trm_json *function = name != NULL ? tools_find(request, name, strlen(name)) : NULL;
    if (function != NULL) {
        request->tool_mode = TOOL_NAMED;
        request->tool_name = name;
        return force(request, function, error);
    }
    return choose_mode(request, choice == NULL ? "auto" : word, error);
}

void tools_explain(const api_request *request, api_error *error)
{
    static const char prefix[] = "JSON schema at /items/anyOf/", parameters[] = "/properties/parameters";
    const char *name = request->tool_mode == TOOL_NAMED ? request->tool_name : NULL, *rest = error->message;
    char message[sizeof(error->message)];
    if (request->tool_mode == TOOL_REQUIRED && strncmp(rest, prefix, sizeof(prefix) - 1) == 0) {
        char *end;
        const size_t index = (size_t)strtoul(rest + sizeof(prefix) - 1, &end, 10);
        name = trm_json_string(trm_json_get(trm_json_get(trm_json_at(request->tools, index), "function"), "name"));
        if (name == NULL || strncmp(end, parameters, sizeof(parameters) - 1) != 0) {
            return;
        }
        rest = end + sizeof(parameters) - 1;
        snprintf(message, sizeof(message), "JSON schema%s%s", *rest == '/' ? " at " : "", rest);
    } else {
        snprintf(message, sizeof(message), "%s", rest);
    }
    if (name != NULL) {
        snprintf(error->message, sizeof(error->message), "tool %.64s: %.300s", name, message);
    }
}

const trm_json *tools_find(const api_request *request, const char *name, size_t size)
{
    for (const trm_json *tool = trm_json_first(request->tools); tool != NULL; tool = trm_json_next(tool)) {
        const trm_json *function = trm_json_get(tool, "function");
        const char *declared = trm_json_string(trm_json_get(function, "name"));
        if (declared != NULL && strlen(declared) == size && memcmp(declared, name, size) == 0) {
            return function;
        }
    }
    return NULL;
}
