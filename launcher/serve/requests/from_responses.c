/* Turns items of responses into messages of a chat. */
#include "launcher/serve/requests/from_responses.h"

#include <stdio.h>
#include <string.h>

#include "launcher/serve/json/json_value.h"
#include "launcher/serve/requests/turns.h"

#define LONGEST_NAME 256 /* bytes, with the NUL */

static bool is_word(const char *word, const char *expected)
{
    return word != NULL && strcmp(word, expected) == 0;
}

static const char *type_of(const trm_json *value)
{
    return trm_json_string(trm_json_get(value, "type"));
}

/* The name under which the model is shown a function of a namespace; false: it is too long. */
static bool join_names(char shown[LONGEST_NAME], const char *space, const char *name)
{
    const size_t size = strlen(space);
    const int written =
        snprintf(shown, LONGEST_NAME, "%s%s%s", space, size > 0 && space[size - 1] == '_' ? "" : "__", name);
    return written > 0 && written < LONGEST_NAME;
}

static bool check_parts(const trm_json *parts, int32_t index, const char *key, api_error *error)
{
    for (const trm_json *part = trm_json_first(parts); part != NULL; part = trm_json_next(part)) {
        const char *type = type_of(part);
        if (type == NULL || strstr(type, "text") == NULL || !trm_json_is_string(trm_json_get(part, "text"))) {
            return api_fail(error, 400, "input", "unsupported_content",
                            "input[%d].%s has a part of type %.40s, expected text", index, key,
                            type == NULL ? "none" : type);
        }
    }
    return true;
}

/* A message; instructions in the middle of a conversation are the system's. */
static bool take_message(turns *t, int32_t index, const trm_json *item, api_error *error)
{
    static const char *const roles[][2] = {
        {"user", "user"}, {"assistant", "assistant"}, {"system", "system"}, {"developer", "system"}};
    const char *given = trm_json_string(trm_json_get(item, "role")), *role = NULL;
    const trm_json *content = trm_json_get(item, "content");
    for (size_t i = 0; given != NULL && i < sizeof(roles) / sizeof(roles[0]); i++) {
        role = strcmp(given, roles[i][0]) == 0 ? roles[i][1] : role;
    }
    if (role == NULL) {
        return api_fail(error, 400, "input", "invalid_value",
                        "input[%d] is not a message with role user, assistant, system or developer", index);
    }
    turns_begin(t);
    if (trm_json_is_string(content)) {
        turns_text(t, role, trm_json_string(content));
        return true;
    }
    if (!trm_json_is_array(content)) {
        return api_fail(error, 400, "input", "invalid_type", "input[%d].content is neither text nor an array of parts",
                        index);
    }
    if (!check_parts(content, index, "content", error)) {
        return false;
    }
    for (const trm_json *part = trm_json_first(content); part != NULL; part = trm_json_next(part)) {
        turns_text(t, role, trm_json_string(trm_json_get(part, "text")));
    }
    return true;
}

/* Reasoning with its text, or with what this server wrote in its place; that of other servers is ignored. */
static void take_reasoning(turns *t, const trm_json *item)
{
    const trm_json *content = trm_json_get(item, "content");
    const char *kept = trm_json_string(trm_json_get(item, "encrypted_content"));
    bool any = false;
    for (const trm_json *part = trm_json_is_array(content) ? trm_json_first(content) : NULL; part != NULL;
         part = trm_json_next(part)) {
        const char *text = trm_json_string(trm_json_get(part, "text"));
        turns_reasoning(t, text);
        any = any || text != NULL;
    }
    if (!any) {
        turns_kept(t, kept);
    }
}

static bool take_call(turns *t, int32_t index, const trm_json *item, api_error *error)
{
    const char *id = trm_json_string(trm_json_get(item, "call_id")),
               *name = trm_json_string(trm_json_get(item, "name"));
    const trm_json *arguments = trm_json_get(item, "arguments");
    if (id == NULL || name == NULL || (arguments != NULL && !trm_json_is_string(arguments))) {
        return api_fail(error, 400, "input", "invalid_type",
                        "input[%d] is a function_call without a call_id, a name or the text of its arguments", index);
    }
    char shown[LONGEST_NAME];
    const char *space = trm_json_string(trm_json_get(item, "namespace"));
    const bool none = arguments == NULL || *trm_json_string(arguments) == '\0';
    turns_call(t, id, space != NULL && join_names(shown, space, name) ? shown : name, none ? NULL : arguments);
    return true;
}

static bool take_output(turns *t, int32_t index, const trm_json *item, api_error *error)
{
    const char *id = trm_json_string(trm_json_get(item, "call_id"));
    const trm_json *output = trm_json_get(item, "output");
    if (id == NULL || (!trm_json_is_string(output) && !trm_json_is_array(output))) {
        return api_fail(error, 400, "input", "invalid_type",
                        "input[%d] is a function_call_output without a call_id or an output", index);
    }
    if (trm_json_is_array(output) && !check_parts(output, index, "output", error)) {
        return false;
    }
    turns_answer(t, id, output, false);
    return true;
}

static bool take_item(turns *t, int32_t index, const trm_json *item, api_error *error)
{
    const char *type = type_of(item);
    if (type == NULL || is_word(type, "message")) {
        return take_message(t, index, item, error);
    }
    if (is_word(type, "reasoning")) {
        take_reasoning(t, item);
        return true;
    }
    if (is_word(type, "function_call")) {
        return take_call(t, index, item, error);
    }
    if (is_word(type, "function_call_output")) {
        return take_output(t, index, item, error);
    }
    return api_fail(error, 400, "input", "unsupported_content",
                    "input[%d] has type %.60s, expected message, reasoning, function_call or function_call_output",
                    index, type);
}

static bool write_messages(const trm_json *root, json_text *json, api_error *error)
{
    const trm_json *input = trm_json_get(root, "input");
    turns t = {.json = json};
    int32_t index = 0;
    bool taken = trm_json_is_string(input) || (trm_json_is_array(input) && trm_json_count(input) > 0) ||
                 api_fail(error, 400, "input", "invalid_type", "input is neither a string nor an array of items");
    json_array(json, "messages");
    turns_text(&t, "system", trm_json_string(trm_json_get(root, "instructions")));
    turns_begin(&t);
    turns_text(&t, "user", trm_json_string(input));
    for (const trm_json *at = trm_json_is_array(input) ? trm_json_first(input) : NULL; at != NULL && taken;
         at = trm_json_next(at)) {
        taken = take_item(&t, index++, at, error);
    }
    turns_end(&t);
    json_end_array(json);
    return taken;
}

bool from_responses_takes(const trm_json *tool)
{
    return is_word(type_of(tool), "function") || is_word(type_of(tool), "namespace");
}

void from_responses_write_name(json_text *json, const trm_json *root, const char *name, size_t size)
{
    const trm_json *tool = trm_json_first(trm_json_get(root, "tools"));
    for (; tool != NULL; tool = trm_json_next(tool)) {
        const char *space = trm_json_string(trm_json_get(tool, "name"));
        for (const trm_json *at = space != NULL ? trm_json_first(trm_json_get(tool, "tools")) : NULL; at != NULL;
             at = trm_json_next(at)) {
            char shown[LONGEST_NAME];
            const char *own = trm_json_string(trm_json_get(at, "name"));
            if (own != NULL && join_names(shown, space, own) && strlen(shown) == size &&
                memcmp(shown, name, size) == 0) {
                json_string(json, "name", own);
                json_string(json, "namespace", space);
                return;
            }
        }
    }
    json_bytes(json, "name", name, size);
}

/* A tool of OpenAI's servers that a model may do without. */
static bool is_ignored(const trm_json *tool)
{
    static const char *const types[] = {"web_search", "image_generation", "tool_search"};
    const char *type = type_of(tool);
    bool found = false;
    for (size_t i = 0; type != NULL && i < sizeof(types) / sizeof(types[0]); i++) {
        found = found || strncmp(type, types[i], strlen(types[i])) == 0;
    }
    return found;
}

static void write_function(json_text *json, const trm_json *tool, const char *name)
{
    static const char *const keys[] = {"description", "parameters"};
    json_object(json, NULL);
    json_string(json, "type", "function");
    json_object(json, "function");
    json_string(json, "name", name);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (trm_json_get(tool, keys[i]) != NULL) {
            json_value(json, keys[i], trm_json_get(tool, keys[i]));
        }
    }
    json_end_object(json);
    json_end_object(json);
}

static bool write_namespace(json_text *json, const trm_json *space, int32_t index, api_error *error)
{
    const char *prefix = trm_json_string(trm_json_get(space, "name"));
    for (const trm_json *tool = trm_json_first(trm_json_get(space, "tools")); tool != NULL;
         tool = trm_json_next(tool)) {
        char shown[LONGEST_NAME];
        const char *name = trm_json_string(trm_json_get(tool, "name"));
        if (prefix == NULL || name == NULL || !is_word(type_of(tool), "function") || !join_names(shown, prefix, name)) {
            return api_fail(error, 400, "tools", "invalid_value",
                            "tools[%d] is a namespace with something else than functions with names", index);
        }
        write_function(json, tool, shown);
    }
    return true;
}

/* Functions. Built-in tools are refused, or ignored where there are functions besides them. */
static bool write_tools(const trm_json *root, json_text *json, api_error *error)
{
    const trm_json *tools = trm_json_get(root, "tools");
    bool any = false, written = true;
    int32_t index = 0;
    if (tools != NULL && !trm_json_is_array(tools)) {
        return api_fail(error, 400, "tools", "invalid_type", "tools is not an array");
    }
    for (const trm_json *tool = trm_json_first(tools); tool != NULL; tool = trm_json_next(tool)) {
        any = any || from_responses_takes(tool);
    }
    json_array(json, "tools");
    for (const trm_json *tool = trm_json_first(tools); tool != NULL && written; tool = trm_json_next(tool), index++) {
        const char *type = type_of(tool);
        if (is_word(type, "namespace")) {
            written = write_namespace(json, tool, index, error);
        } else if (is_word(type, "function")) {
            write_function(json, tool, trm_json_string(trm_json_get(tool, "name")));
        } else if (!any || !is_ignored(tool)) {
            return api_fail(error, 400, "tools", "unsupported_parameter",
                            "tools[%d] has type %.60s, which this server does not have; expected function", index,
                            type != NULL ? type : "none");
        }
    }
    json_end_array(json);
    return written;
}

/* A word, allowed_tools, or {"type": "function", "name": ...}, whose name is a level deeper in chats. */
static bool write_choice(const trm_json *root, json_text *json, api_error *error)
{
    const trm_json *choice = trm_json_get(root, "tool_choice");
    const char *type = type_of(choice), *name = trm_json_string(trm_json_get(choice, "name"));
    if (choice == NULL || trm_json_is_string(choice) || is_word(type, "allowed_tools")) {
        if (choice != NULL) {
            json_value(json, "tool_choice", choice);
        }
        return true;
    }
    if (!is_word(type, "function") || name == NULL) {
        return api_fail(error, 400, "tool_choice", "invalid_value",
                        "tool_choice is not none, auto, required, allowed_tools or a function with a name");
    }
    json_object(json, "tool_choice");
    json_string(json, "type", "function");
    json_object(json, "function");
    json_string(json, "name", name);
    json_end_object(json);
    json_end_object(json);
    return true;
}

bool from_responses_write(const trm_json *root, json_text *json, api_error *error)
{
    const trm_json *parallel = trm_json_get(root, "parallel_tool_calls");
    if (parallel != NULL) {
        json_value(json, "parallel_tool_calls", parallel);
    }
    return write_messages(root, json, error) && write_tools(root, json, error) && write_choice(root, json, error);
}
