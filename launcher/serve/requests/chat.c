/* Converts messages to the form that templates expect: contents as one text, arguments of tool calls as objects. For
 * harmony's templates also: reasoning before calls as "thinking", no content instead of null, one call a message. */
#include "launcher/serve/requests/chat.h"

#include <string.h>

#include "base/error.h"
#include "launcher/serve/formats/reasoning.h"
#include "launcher/serve/json/json_value.h"
#include "launcher/text/harmony.h"

#define SHORT_ID ((size_t)9)

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

/* What a template asks of calls. */
typedef struct call_form {
    bool text_arguments; /* it prints arguments as they are, so they must be text */
    bool short_ids;      /* it refuses ids that do not have SHORT_ID characters, as Mistral's do */
    bool null_content;   /* it knows messages with calls by their content null; most print or take apart a text */
} call_form;

/* Writes an id of a call; another one in place of an id that is too long or too short, the same for the same id. */
static void write_call_id(json_text *json, const char *key, const trm_json *value, call_form form)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    const char *id = trm_json_string(value);
    if (!form.short_ids || id == NULL || strlen(id) == SHORT_ID) {
        json_value(json, key, value);
        return;
    }
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *at = id; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    }
    char text[SHORT_ID];
    for (size_t i = 0; i < SHORT_ID; i++, hash /= 36) {
        text[i] = digits[hash % 36];
    }
    json_bytes(json, key, text, SHORT_ID);
}

/* Clients send the arguments of a call as a JSON string; most templates print an object, some a text. */
static void write_arguments(json_text *json, const trm_json *arguments, call_form form)
{
    trm_json_document *document = NULL;
    const char *text = trm_json_string(arguments);
    if (form.text_arguments && text == NULL) {
        json_text written = {0};
        json_value(&written, NULL, arguments);
        json->status = json->status == TRM_OK ? written.status : json->status;
        json_bytes(json, "arguments", written.bytes.size > 0 ? written.bytes.data : "", written.bytes.size);
        json_text_fini(&written);
    } else if (!form.text_arguments && text != NULL &&
               trm_json_parse("arguments", text, strlen(text), &document) == TRM_OK) {
        json_value(json, "arguments", trm_json_root(document));
        trm_json_close(document);
    } else {
        json_value(json, "arguments", arguments);
    }
}

/* Writes all calls, or the one called `only`. */
static void write_tool_calls(json_text *json, const trm_json *calls, const trm_json *only, call_form form)
{
    json_array(json, "tool_calls");
    for (const trm_json *call = trm_json_first(calls); call != NULL; call = trm_json_next(call)) {
        if (only != NULL && call != only) {
            continue;
        }
        json_object(json, NULL);
        for (const trm_json *member = trm_json_first(call); member != NULL; member = trm_json_next(member)) {
            if (strcmp(trm_json_key(member), "id") == 0) {
                write_call_id(json, "id", member, form);
                continue;
            }
            if (strcmp(trm_json_key(member), "function") != 0) {
                json_value(json, trm_json_key(member), member);
                continue;
            }
            json_object(json, "function");
            for (const trm_json *part = trm_json_first(member); part != NULL; part = trm_json_next(part)) {
                if (strcmp(trm_json_key(part), "arguments") == 0) {
                    write_arguments(json, part, form);
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

static void write_message(json_text *json, const trm_json *message, call_form form)
{
    const bool empty = trm_json_get(message, "content") == NULL && !form.null_content &&
                       trm_json_count(trm_json_get(message, "tool_calls")) > 0;
    json_object(json, NULL);
    if (empty) {
        json_string(json, "content", "");
    }
    for (const trm_json *member = trm_json_first(message); member != NULL; member = trm_json_next(member)) {
        const char *key = trm_json_key(member);
        if (empty && strcmp(key, "content") == 0) {
            continue;
        }
        if (strcmp(key, "content") == 0 && trm_json_is_array(member)) {
            write_parts(json, member);
        } else if (strcmp(key, "tool_calls") == 0 && trm_json_is_array(member)) {
            write_tool_calls(json, member, NULL, form);
        } else if (strcmp(key, "tool_call_id") == 0) {
            write_call_id(json, key, member, form);
        } else {
            json_value(json, key, member);
        }
    }
    json_end_object(json);
}

/* Writes the reasoning before calls, and their content, as "thinking": harmony's templates take one of the two. */
static void write_thinking(json_text *json, const trm_json *message)
{
    const char *given = trm_json_string(trm_json_get(message, "reasoning_content"));
    given = given != NULL ? given : trm_json_string(trm_json_get(message, "reasoning"));
    const char *reasoning = given != NULL ? given : trm_json_string(trm_json_get(message, "thinking"));
    const trm_json *content = trm_json_get(message, "content");
    const char *said = trm_json_string(content);
    if (trm_json_is_array(content)) {
        write_parts(json, content);
    } else if (reasoning == NULL || *reasoning == '\0') {
        json_string(json, "content", said != NULL ? said : "");
    } else {
        trm_bytes text = {0};
        bool both = said != NULL && *said != '\0';
        if (trm_bytes_append(&text, reasoning, strlen(reasoning)) != TRM_OK ||
            (both &&
             (trm_bytes_append(&text, "\n\n", 2) != TRM_OK || trm_bytes_append(&text, said, strlen(said)) != TRM_OK))) {
            json->status = TRM_ERROR_OUT_OF_MEMORY;
        }
        json_bytes(json, "thinking", text.data, text.size);
        trm_bytes_fini(&text);
    }
}

static bool has_role(const trm_json *message, const char *expected)
{
    const char *role = trm_json_string(trm_json_get(message, "role"));
    return role != NULL && strcmp(role, expected) == 0;
}

/* The message that answers call `index`, by its id or by its place after the calls; NULL: none. */
static const trm_json *find_answer(const trm_json *message, const trm_json *call, int32_t index)
{
    const char *id = trm_json_string(trm_json_get(call, "id"));
    for (const trm_json *at = trm_json_next(message); at != NULL && has_role(at, "tool"); at = trm_json_next(at)) {
        const char *answered = trm_json_string(trm_json_get(at, "tool_call_id"));
        if (id != NULL && answered != NULL ? strcmp(id, answered) == 0 : index == 0) {
            return at;
        }
        index--;
    }
    return NULL;
}

/* Whether a message answers one of the calls. */
static bool answers(const trm_json *message, const trm_json *answer)
{
    int32_t index = 0;
    for (const trm_json *call = trm_json_first(trm_json_get(message, "tool_calls")); call != NULL;
         call = trm_json_next(call), index++) {
        if (find_answer(message, call, index) == answer) {
            return true;
        }
    }
    return false;
}

/* Writes a message with calls for a template that knows one call a message and takes the next message for its answer:
 * each call with its answer. Returns the last message that is written. */
static const trm_json *write_called(json_text *json, const trm_json *message)
{
    const trm_json *calls = trm_json_get(message, "tool_calls"), *last = message;
    int32_t index = 0;
    for (const trm_json *call = trm_json_first(calls); call != NULL; call = trm_json_next(call), index++) {
        const trm_json *answer = find_answer(message, call, index);
        json_object(json, NULL);
        json_string(json, "role", "assistant");
        if (index == 0) {
            write_thinking(json, message);
        }
        write_tool_calls(json, calls, call, (call_form){0});
        json_end_object(json);
        if (answer != NULL) {
            write_message(json, answer, (call_form){0});
        }
    }
    while (trm_json_next(last) != NULL && has_role(trm_json_next(last), "tool")) {
        last = trm_json_next(last);
        if (!answers(message, last)) {
            write_message(json, last, (call_form){0});
        }
    }
    return last;
}

/* Writes the messages of a request as a JSON array. */
static void write_messages(json_text *json, const api_request *request, call_form form)
{
    json_array(json, NULL);
    for (const trm_json *message = trm_json_first(request->messages); message != NULL;
         message = trm_json_next(message)) {
        if (request->harmony && has_role(message, "assistant") &&
            trm_json_count(trm_json_get(message, "tool_calls")) > 0) {
            message = write_called(json, message);
        } else {
            write_message(json, message, form);
        }
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

/* The effort of reasoning that a request asks for; NULL: none. */
static const trm_json *find_effort(const api_request *request)
{
    const trm_json *root = trm_json_root(request->document);
    switch (request->kind) {
    case API_RESPONSE:
        return trm_json_get(trm_json_get(root, "reasoning"), "effort");
    case API_MESSAGES:
        return trm_json_get(trm_json_get(root, "output_config"), "effort");
    default:
        return trm_json_get(root, "reasoning_effort");
    }
}

/* The effort as a word. Harmony's models know three; those of other APIs become the nearest. */
static const char *effort_word(const api_request *request)
{
    static const char *const near[][2] = {{"minimal", "low"}, {"xhigh", "high"}, {"max", "high"}};
    const char *word = trm_json_string(find_effort(request));
    for (size_t i = 0;
         word != NULL && request->harmony && request->kind != API_CHAT && i < sizeof(near) / sizeof(near[0]); i++) {
        word = strcmp(word, near[i][0]) == 0 ? near[i][1] : word;
    }
    return word;
}

/* Templates that are not harmony's decide about their efforts. */
static bool check_effort(const api_request *request, api_error *error)
{
    const char *word = effort_word(request);
    if (find_effort(request) == NULL || (word != NULL && !request->harmony)) {
        return true;
    }
    return (word != NULL && (strcmp(word, "low") == 0 || strcmp(word, "medium") == 0 || strcmp(word, "high") == 0)) ||
           api_fail(error, 400, "reasoning_effort", "invalid_value",
                    "reasoning_effort is %.40s, expected low, medium or high", word != NULL ? word : "not a string");
}

/* Writes the variables of a request: its template arguments, and unless they have them, the effort and whether to
 * think, which templates know under two names. */
static void write_extra(json_text *json, const api_request *request)
{
    static const char name[] = "reasoning_effort";
    static const char *const switches[] = {"enable_thinking", "thinking"};
    const char *effort = effort_word(request);
    const bool none = effort != NULL && strcmp(effort, "none") == 0;
    json_object(json, NULL);
    if (effort != NULL && trm_json_get(request->template_arguments, name) == NULL) {
        json_string(json, name, effort);
    }
    for (size_t i = 0; (request->has_thinking || none) && i < sizeof(switches) / sizeof(switches[0]); i++) {
        if (trm_json_get(request->template_arguments, switches[i]) == NULL) {
            json_bool(json, switches[i], request->thinks && !none);
        }
    }
    for (const trm_json *at = trm_json_first(request->template_arguments); at != NULL; at = trm_json_next(at)) {
        json_value(json, trm_json_key(at), at);
    }
    json_end_object(json);
}

/* What a model whose reply must be JSON would have written before it; NULL: nothing. `prompt`: as rendered. */
static const char *forced_header(api_request *request, const char *prompt, size_t size)
{
    static const char opening[] = "<|start|>assistant";
    const size_t length = sizeof(opening) - 1;
    if (request->continued != NULL || (request->format != API_FORMAT_JSON && request->format != API_FORMAT_SCHEMA)) {
        return NULL;
    }
    if (!request->harmony) {
        const bool open = request->reasoning != NULL && reasoning_is_open(request->reasoning, prompt);
        return open ? trm_arena_printf(&request->arena, "\n%s\n\n", request->reasoning->close) : NULL;
    }
    request->harmony = false; /* the reply is the text of one message */
    return size < length || memcmp(prompt + size - length, opening, length) != 0 ? NULL
           : request->tool_mode == TOOL_NAMED
               ? trm_arena_printf(&request->arena, "<|channel|>commentary to=functions.%s <|constrain|>json<|message|>",
                                  request->tool_name)
               : "<|channel|>final<|message|>";
}

static trm_status render(const trm_chat_template *chat, const api_request *request, bool text_arguments, char **text,
                         size_t *size)
{
    trm_chat_input input = TRM_CHAT_INPUT_INIT;
    const call_form form = {.text_arguments = text_arguments,
                            .short_ids = trm_chat_template_mentions(chat, "length != 9"),
                            .null_content =
                                trm_chat_template_mentions(chat, "assistant' and message['content'] is none")};
    json_text messages = {0}, tools = {0}, extra = {0};
    write_messages(&messages, request, form);
    input.messages = terminated(&messages);
    if (request->tools != NULL && trm_json_count(request->tools) > 0) {
        json_value(&tools, NULL, request->tools);
        input.tools = terminated(&tools);
    }
    write_extra(&extra, request);
    input.extra = terminated(&extra);
    input.no_generation_prompt = request->continued != NULL;
    trm_status status = TRM_OK;
    if (messages.status != TRM_OK || tools.status != TRM_OK || extra.status != TRM_OK) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the messages");
    }
    if (status == TRM_OK) {
        status = trm_chat_template_render(chat, &input, text, size);
    }
    json_text_fini(&messages);
    json_text_fini(&tools);
    json_text_fini(&extra);
    return status;
}

static bool has_calls(const api_request *request)
{
    for (const trm_json *at = trm_json_first(request->messages); at != NULL; at = trm_json_next(at)) {
        if (trm_json_count(trm_json_get(at, "tool_calls")) > 0) {
            return true;
        }
    }
    return false;
}

/* The end of the last place in text [size] where a word is; 0: it is not there. */
static size_t find_end(const char *text, size_t size, const char *word, size_t length)
{
    for (size_t end = size; length > 0 && end >= length; end--) {
        if (memcmp(text + end - length, word, length) == 0) {
            return end;
        }
    }
    return 0;
}

/* Cuts a prompt behind its last message, which templates may have trimmed. The reply is plain text of that message. */
static trm_status cut_behind(api_request *request, char *text, size_t *size)
{
    const char *word = request->continued;
    size_t length = strlen(word), end = find_end(text, *size, word, length);
    if (end == 0) {
        while (length > 0 && strchr(" \t\r\n", word[length - 1]) != NULL) {
            length--;
        }
        while (length > 0 && strchr(" \t\r\n", *word) != NULL) {
            word++;
            length--;
        }
        end = find_end(text, *size, word, length);
    }
    if (end == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "the chat template does not print the last message, so it cannot be continued");
    }
    text[end] = '\0';
    *size = end;
    request->harmony = false;
    return TRM_OK;
}

static trm_status make_prompt(const trm_chat_template *chat, api_request *request)
{
    char *text = NULL;
    size_t size = 0;
    trm_status status = render(chat, request, false, &text, &size);
    if (status == TRM_ERROR_INVALID_ARGUMENT && has_calls(request)) { /* the template adds arguments to a text */
        status = render(chat, request, true, &text, &size);
    }
    if (status == TRM_OK && request->continued != NULL) {
        status = cut_behind(request, text, &size);
    }
    if (status != TRM_OK) {
        trm_free(text);
        return status;
    }
    const char *header = forced_header(request, text, size);
    const char *kept = trm_arena_printf(&request->arena, "%s%s", text, header != NULL ? header : "");
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
    if (chat == NULL) {
        return api_fail(error, 400, "messages", "no_chat_template",
                        "the model has no chat template; start the server with --chat-template");
    }
    request->harmony = harmony_is_written(chat);
    request->reasoning = request->harmony ? NULL : reasoning_of(chat);
    if (!check_effort(request, error)) {
        return false;
    }
    const trm_status status = make_prompt(chat, request);
    return status == TRM_OK || api_fail_status(error, status, request->kind == API_RESPONSE ? "input" : "messages");
}
