/* Converts messages to the form that templates expect: contents as one text, arguments of tool calls as objects. */
#include "launcher/serve/requests/chat.h"

#include <string.h>

#include "base/error.h"
#include "launcher/serve/json/json_value.h"

/* Writes the text parts, one per line, as "content". */
static void write_parts(json_text *json, const trm_json *parts)
{
    trm_bytes text = {0};
    trm_status status = trm_bytes_reserve(&text, 1);
    for (const trm_json *part = trm_json_first(parts); part != NULL && status == TRM_OK; part = trm_json_next(part)) {
        const char *piece = trm_json_string(trm_json_get(part, "text"));
        if (text.size > 0) {
            status = trm_bytes_append(&text, "\n", 1);
        }
        if (status == TRM_OK) {
            status = trm_bytes_append(&text, piece, strlen(piece));
        }
    }
    if (status == TRM_OK) {
        json_bytes(json, "content", text.data, text.size);
    } else {
        json->status = status;
    }
    trm_bytes_fini(&text);
}

/* Clients send the arguments of a call as a JSON string; templates print an object. */
static void write_arguments(json_text *json, const trm_json *arguments)
{
    trm_json_document *document = NULL;
    const char *text = trm_json_string(arguments);
    if (text != NULL && trm_json_parse("arguments", text, strlen(text), &document) == TRM_OK) {
        json_value(json, "arguments", trm_json_root(document));
        trm_json_close(document);
    } else {
        json_value(json, "arguments", arguments);
    }
}

static void write_tool_calls(json_text *json, const trm_json *calls)
{
    json_array(json, "tool_calls");
    for (const trm_json *call = trm_json_first(calls); call != NULL; call = trm_json_next(call)) {
        json_object(json, NULL);
        for (const trm_json *member = trm_json_first(call); member != NULL; member = trm_json_next(member)) {
            if (strcmp(trm_json_key(member), "function") != 0) {
                json_value(json, trm_json_key(member), member);
                continue;
            }
            json_object(json, "function");
            for (const trm_json *part = trm_json_first(member); part != NULL; part = trm_json_next(part)) {
                if (strcmp(trm_json_key(part), "arguments") == 0) {
                    write_arguments(json, part);
                } else {
                    json_value(json, trm_json_key(part), part);
                }
            }
            json_end_object(json);
        }
        json_end_object(json);
    }
    json_end_array(json);
}

static void write_message(json_text *json, const trm_json *message)
{
    json_object(json, NULL);
    for (const trm_json *member = trm_json_first(message); member != NULL; member = trm_json_next(member)) {
        const char *key = trm_json_key(member);
        if (strcmp(key, "content") == 0 && trm_json_is_array(member)) {
            write_parts(json, member);
        } else if (strcmp(key, "tool_calls") == 0 && trm_json_is_array(member)) {
            write_tool_calls(json, member);
        } else {
            json_value(json, key, member);
        }
    }
    json_end_object(json);
}

static void write_simple_message(json_text *json, const char *role, const char *content)
{
    json_object(json, NULL);
    json_string(json, "role", role);
    json_string(json, "content", content);
    json_end_object(json);
}

/* Writes the messages of a request as a JSON array. */
static void write_messages(json_text *json, const api_request *request)
{
    json_array(json, NULL);
    if (request->kind == API_RESPONSE) {
        const trm_json *root = trm_json_root(request->document);
        const char *instructions = trm_json_string(trm_json_get(root, "instructions"));
        const char *input = trm_json_string(trm_json_get(root, "input"));
        if (instructions != NULL) {
            write_simple_message(json, "system", instructions);
        }
        if (input != NULL) {
            write_simple_message(json, "user", input);
        }
    }
    const trm_json *system =
        request->kind == API_MESSAGES ? trm_json_get(trm_json_root(request->document), "system") : NULL;
    if (trm_json_is_string(system)) {
        write_simple_message(json, "system", trm_json_string(system));
    } else if (system != NULL) {
        json_object(json, NULL);
        json_string(json, "role", "system");
        write_parts(json, system);
        json_end_object(json);
    }
    for (const trm_json *message = trm_json_first(request->messages); message != NULL;
         message = trm_json_next(message)) {
        write_message(json, message);
    }
    json_end_array(json);
}

/* JSON text that ends with NUL. */
static const char *terminated(json_text *json)
{
    if (json->status == TRM_OK) {
        json->status = trm_bytes_append(&json->bytes, "", 1);
    }
    return json->bytes.data;
}

static trm_status render(const trm_chat_template *chat, api_request *request, json_text *messages, json_text *tools,
                         json_text *extra)
{
    trm_chat_input input = TRM_CHAT_INPUT_INIT;
    char *text = NULL;
    size_t size;
    write_messages(messages, request);
    input.messages = terminated(messages);
    if (request->tools != NULL && trm_json_count(request->tools) > 0) {
        json_value(tools, NULL, request->tools);
        input.tools = terminated(tools);
    }
    if (request->template_arguments != NULL) {
        json_value(extra, NULL, request->template_arguments);
        input.extra = terminated(extra);
    }
    if (messages->status != TRM_OK || tools->status != TRM_OK || extra->status != TRM_OK) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the messages");
    }
    TRM_TRY(trm_chat_template_render(chat, &input, &text, &size));
    const char *kept = trm_arena_strdup(&request->arena, text);
    trm_free(text);
    request->prompts = trm_arena_array(&request->arena, 1, sizeof(api_prompt));
    if (kept == NULL || request->prompts == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    request->prompts[0].text = kept;
    request->n_prompts = 1;
    request->add_special = false; /* the template adds them */
    return TRM_OK;
}

bool chat_prompt(const trm_chat_template *chat, api_request *request, api_error *error)
{
    json_text messages = {0}, tools = {0}, extra = {0};
    if (chat == NULL) {
        return api_fail(error, 400, "messages", "no_chat_template",
                        "the model has no chat template; start the server with --chat-template");
    }
    trm_status status = render(chat, request, &messages, &tools, &extra);
    json_text_fini(&messages);
    json_text_fini(&tools);
    json_text_fini(&extra);
    return status == TRM_OK || api_fail_status(error, status, "messages");
}
