/* Joins what belongs to a message. */
#include "launcher/serve/requests/turns.h"

#include <string.h>

#include "launcher/serve/json/json_value.h"

static void append(turns *t, trm_bytes *bytes, const char *text)
{
    if (t->json->status == TRM_OK) {
        t->json->status = trm_bytes_append(bytes, text, strlen(text));
    }
}

/* Writes the message that has begun. */
static void flush(turns *t)
{
    if (t->role == NULL) {
        return;
    }
    json_object(t->json, NULL);
    json_string(t->json, "role", t->role);
    if (t->reasoning.size > 0) {
        json_bytes(t->json, "reasoning_content", t->reasoning.data, t->reasoning.size);
    }
    if (t->any_calls && t->content.size == 0) {
        json_null(t->json, "content");
    } else {
        json_bytes(t->json, "content", t->content.size > 0 ? t->content.data : "", t->content.size);
    }
    if (t->any_calls) {
        t->json->status = t->json->status == TRM_OK ? t->calls.status : t->json->status;
        json_array(t->json, "tool_calls");
        json_literal_bytes(t->json, t->calls.bytes.data, t->calls.bytes.size);
        json_end_array(t->json);
    }
    json_end_object(t->json);
    json_text_fini(&t->calls);
    t->content.size = t->reasoning.size = 0;
    t->role = NULL;
    t->any_calls = t->begun = t->any_of = false;
}

static void become(turns *t, const char *role)
{
    const bool system = strcmp(role, "system") == 0;
    role = system && t->past_system ? "user" : role;
    t->past_system = t->past_system || !system;
    if (t->role == NULL || strcmp(t->role, role) != 0) {
        flush(t);
        t->role = role;
    }
}

void turns_begin(turns *t)
{
    t->any_of = false;
}

void turns_text(turns *t, const char *role, const char *text)
{
    if (text == NULL) {
        return;
    }
    become(t, role);
    if (t->begun) {
        append(t, &t->content, t->any_of ? "\n" : "\n\n");
    }
    append(t, &t->content, text);
    t->begun = t->any_of = true;
}

void turns_reasoning(turns *t, const char *text)
{
    if (text == NULL || *text == '\0') {
        return;
    }
    become(t, "assistant");
    if (t->reasoning.size > 0) {
        append(t, &t->reasoning, "\n");
    }
    append(t, &t->reasoning, text);
}

void turns_kept(turns *t, const char *kept)
{
    if (kept != NULL && strncmp(kept, TURNS_KEPT, strlen(TURNS_KEPT)) == 0) {
        turns_reasoning(t, kept + strlen(TURNS_KEPT));
    }
}

void turns_call(turns *t, const char *id, const char *name, const trm_json *arguments)
{
    json_text *json = &t->calls;
    become(t, "assistant");
    t->any_calls = true;
    json_object(json, NULL);
    json_string(json, "id", id);
    json_string(json, "type", "function");
    json_object(json, "function");
    json_string(json, "name", name);
    if (arguments != NULL) {
        json_value(json, "arguments", arguments);
    } else {
        json_object(json, "arguments");
        json_end_object(json);
    }
    json_end_object(json);
    json_end_object(json);
}

void turns_answer(turns *t, const char *id, const trm_json *content, bool is_error)
{
    trm_bytes text = {0};
    flush(t);
    t->past_system = true;
    append(t, &text, is_error ? "Error: " : "");
    if (trm_json_is_string(content)) {
        append(t, &text, trm_json_string(content));
    }
    for (const trm_json *part = trm_json_is_array(content) ? trm_json_first(content) : NULL; part != NULL;
         part = trm_json_next(part)) {
        append(t, &text, part == trm_json_first(content) ? "" : "\n");
        const char *piece = trm_json_string(trm_json_get(part, "text"));
        const char *tool = trm_json_string(trm_json_get(part, "tool_name"));
        append(t, &text, piece != NULL ? piece : tool != NULL ? "Loaded tool: " : "");
        append(t, &text, piece == NULL && tool != NULL ? tool : "");
    }
    json_object(t->json, NULL);
    json_string(t->json, "role", "tool");
    json_string(t->json, "tool_call_id", id);
    json_bytes(t->json, "content", text.size > 0 ? text.data : "", text.size);
    json_end_object(t->json);
    trm_bytes_fini(&text);
}

void turns_end(turns *t)
{
    flush(t);
    trm_bytes_fini(&t->content);
    trm_bytes_fini(&t->reasoning);
    json_text_fini(&t->calls);
}
