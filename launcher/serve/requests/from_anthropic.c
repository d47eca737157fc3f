/* Turns Anthropic's blocks into messages of a chat. */
#include "launcher/serve/requests/from_anthropic.h"

#include <string.h>

#include "launcher/serve/json/json_value.h"
#include "launcher/serve/requests/turns.h"

static bool is_type(const trm_json *block, const char *expected)
{
    const char *type = trm_json_string(trm_json_get(block, "type"));
    return type != NULL && strcmp(type, expected) == 0;
}

static bool refuse_block(const char *place, int32_t index, const trm_json *block, api_error *error)
{
    const char *type = trm_json_string(trm_json_get(block, "type"));
    return api_fail(error, 400, "messages", "unsupported_content", "%s[%d] has a block of type %.40s, expected %s",
                    place, index, type != NULL ? type : "none",
                    strcmp(place, "system") == 0 ? "text" : "text, thinking, tool_use or tool_result with text");
}

/* Whether a block is text; a type without it is refused elsewhere. */
static bool is_text(const trm_json *block)
{
    return is_type(block, "text") && trm_json_is_string(trm_json_get(block, "text"));
}

/* The tool that a block of a result refers to: from then on the model may call it. NULL: none. */
static const char *reference(const trm_json *block)
{
    return is_type(block, "tool_reference") ? trm_json_string(trm_json_get(block, "tool_name")) : NULL;
}

/* Adds the answer to a call. */
static bool take_result(turns *t, int32_t index, const trm_json *block, api_error *error)
{
    const trm_json *content = trm_json_get(block, "content");
    const char *id = trm_json_string(trm_json_get(block, "tool_use_id"));
    if (id == NULL) {
        return api_fail(error, 400, "messages", "invalid_type",
                        "messages[%d] has a block of type tool_result without a tool_use_id", index);
    }
    if (content != NULL && !trm_json_is_string(content) && !trm_json_is_array(content)) {
        return api_fail(error, 400, "messages", "invalid_type",
                        "the content of a tool_result in messages[%d] is neither text nor an array of blocks", index);
    }
    for (const trm_json *part = trm_json_is_array(content) ? trm_json_first(content) : NULL; part != NULL;
         part = trm_json_next(part)) {
        if (!is_text(part) && reference(part) == NULL) {
            return refuse_block("a tool_result of messages", index, part, error);
        }
    }
    turns_answer(t, id, content, trm_json_truth(trm_json_get(block, "is_error"), false));
    return true;
}

static bool take_block(turns *t, const char *role, int32_t index, const trm_json *block, api_error *error)
{
    const bool assistant = strcmp(role, "assistant") == 0;
    if (is_text(block)) {
        turns_text(t, role, trm_json_string(trm_json_get(block, "text")));
        return true;
    }
    if (assistant && is_type(block, "thinking")) {
        const char *text = trm_json_string(trm_json_get(block, "thinking"));
        if (text != NULL && *text != '\0') {
            turns_reasoning(t, text);
        } else {
            turns_kept(t, trm_json_string(trm_json_get(block, "signature")));
        }
        return true;
    }
    if (assistant && is_type(block, "redacted_thinking")) {
        return true;
    }
    if (assistant && is_type(block, "tool_use")) {
        const trm_json *input = trm_json_get(block, "input");
        const char *id = trm_json_string(trm_json_get(block, "id")),
                   *name = trm_json_string(trm_json_get(block, "name"));
        if (id == NULL || name == NULL || (input != NULL && !trm_json_is_object(input))) {
            return api_fail(error, 400, "messages", "invalid_type",
                            "messages[%d] has a block of type tool_use without an id, a name or an input object",
                            index);
        }
        turns_call(t, id, name, input);
        return true;
    }
    if (!assistant && is_type(block, "tool_result")) {
        return take_result(t, index, block, error);
    }
    return refuse_block("messages", index, block, error);
}

static bool take_message(turns *t, int32_t index, const trm_json *message, api_error *error)
{
    static const char *const roles[] = {"user", "assistant", "system"};
    const char *given = trm_json_string(trm_json_get(message, "role")), *role = NULL;
    const trm_json *content = trm_json_get(message, "content");
    for (size_t i = 0; given != NULL && i < sizeof(roles) / sizeof(roles[0]); i++) {
        role = strcmp(given, roles[i]) == 0 ? roles[i] : role;
    }
    if (role == NULL) {
        return api_fail(error, 400, "messages", "invalid_value",
                        "messages[%d] has role %.40s, expected user or assistant", index,
                        given != NULL ? given : "none");
    }
    turns_begin(t);
    if (trm_json_is_string(content)) {
        turns_text(t, role, trm_json_string(content));
        return true;
    }
    if (!trm_json_is_array(content)) {
        return api_fail(error, 400, "messages", "invalid_type",
                        "messages[%d].content is neither text nor an array of blocks", index);
    }
    for (const trm_json *block = trm_json_first(content); block != NULL; block = trm_json_next(block)) {
        if (!take_block(t, role, index, block, error)) {
            return false;
        }
    }
    return true;
}

static bool take_system(turns *t, const trm_json *system, api_error *error)
{
    int32_t index = 0;
    if (system == NULL || trm_json_is_string(system)) {
        turns_text(t, "system", trm_json_string(system));
        return true;
    }
    if (!trm_json_is_array(system)) {
        return api_fail(error, 400, "system", "invalid_type", "system is neither text nor an array of blocks");
    }
    for (const trm_json *block = trm_json_first(system); block != NULL; block = trm_json_next(block), index++) {
        if (!is_text(block)) {
            return refuse_block("system", index, block, error);
        }
        turns_text(t, "system", trm_json_string(trm_json_get(block, "text")));
    }
    return true;
}

static bool write_messages(const trm_json *root, json_text *json, api_error *error)
{
    const trm_json *messages = trm_json_get(root, "messages");
    turns t = {.json = json};
    int32_t index = 0;
    if (!trm_json_is_array(messages) || trm_json_count(messages) == 0) {
        return api_fail(error, 400, "messages", "invalid_type",
                        "messages is missing or empty, expected an array of messages");
    }
    json_array(json, "messages");
    bool taken = take_system(&t, trm_json_get(root, "system"), error);
    for (const trm_json *at = trm_json_first(messages); at != NULL && taken; at = trm_json_next(at)) {
        taken = take_message(&t, index++, at, error);
    }
    turns_end(&t);
    json_end_array(json);
    return taken;
}

/* Whether a message refers to a tool. */
static bool is_referred(const trm_json *root, const char *name)
{
    for (const trm_json *at = trm_json_first(trm_json_get(root, "messages")); at != NULL; at = trm_json_next(at)) {
        const trm_json *content = trm_json_get(at, "content");
        for (const trm_json *block = trm_json_is_array(content) ? trm_json_first(content) : NULL; block != NULL;
             block = trm_json_next(block)) {
            const trm_json *parts = trm_json_get(block, "content");
            for (const trm_json *part = trm_json_is_array(parts) ? trm_json_first(parts) : NULL; part != NULL;
                 part = trm_json_next(part)) {
                const char *found = reference(part);
                if (found != NULL && strcmp(found, name) == 0) {
                    return true;
                }
            }
        }
    }
    return false;
}

/* Tools that the client executes; those of Anthropic's servers, or of models trained for them, are refused. */
static bool write_tools(const trm_json *root, json_text *json, api_error *error)
{
    const trm_json *tools = trm_json_get(root, "tools");
    int32_t index = 0;
    if (tools != NULL && !trm_json_is_array(tools)) {
        return api_fail(error, 400, "tools", "invalid_type", "tools is not an array");
    }
    json_array(json, "tools");
    for (const trm_json *tool = trm_json_first(tools); tool != NULL; tool = trm_json_next(tool), index++) {
        const char *type = trm_json_string(trm_json_get(tool, "type"));
        const trm_json *schema = trm_json_get(tool, "input_schema");
        if (type != NULL && strcmp(type, "custom") != 0) {
            return api_fail(error, 400, "tools", "unsupported_parameter",
                            "tools[%d] has type %.60s, which this server does not have; expected custom", index, type);
        }
        if (!trm_json_is_object(schema)) {
            return api_fail(error, 400, "tools", "invalid_type", "tools[%d] has no input_schema object", index);
        }
        const char *name = trm_json_string(trm_json_get(tool, "name"));
        if (trm_json_truth(trm_json_get(tool, "defer_loading"), false) && name != NULL && !is_referred(root, name)) {
            continue;
        }
        json_object(json, NULL);
        json_string(json, "type", "function");
        json_object(json, "function");
        json_string(json, "name", name);
        if (trm_json_get(tool, "description") != NULL) {
            json_value(json, "description", trm_json_get(tool, "description"));
        }
        json_value(json, "parameters", schema);
        json_end_object(json);
        json_end_object(json);
    }
    json_end_array(json);
    return true;
}

static bool write_choice(const trm_json *root, json_text *json, api_error *error)
{
    const trm_json *choice = trm_json_get(root, "tool_choice");
    const char *name = trm_json_string(trm_json_get(choice, "name"));
    json_bool(json, "parallel_tool_calls", !trm_json_truth(trm_json_get(choice, "disable_parallel_tool_use"), false));
    if (choice == NULL || is_type(choice, "auto")) {
        json_string(json, "tool_choice", "auto");
    } else if (is_type(choice, "any")) {
        json_string(json, "tool_choice", "required");
    } else if (is_type(choice, "none")) {
        json_string(json, "tool_choice", "none");
    } else if (is_type(choice, "tool") && name != NULL) {
        json_object(json, "tool_choice");
        json_string(json, "type", "function");
        json_object(json, "function");
        json_string(json, "name", name);
        json_end_object(json);
        json_end_object(json);
    } else {
        return api_fail(error, 400, "tool_choice", "invalid_value",
                        "tool_choice is not of type auto, any, none, or tool with a name");
    }
    return true;
}

bool from_anthropic_write(const trm_json *root, json_text *json, api_error *error)
{
    return write_messages(root, json, error) && write_tools(root, json, error) && write_choice(root, json, error);
}
