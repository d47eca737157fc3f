/* Writes the response object and its events. */
#include "launcher/serve/responses/response.h"

#include <stdio.h>
#include <string.h>

#include "launcher/serve/json/json_value.h"
#include "launcher/serve/requests/from_responses.h"
#include "launcher/serve/responses/reply_part.h"

/* Writes the logprobs of the message's tokens from a position of their text on, if requested. */
static void write_logprobs(json_text *json, const choice *ch, size_t from)
{
    const trm_bytes *all = &ch->logprobs.bytes;
    from += from > 0 && from < all->size; /* the comma between two of them */
    json_array(json, "logprobs");
    if (all->size > from) {
        json_literal_bytes(json, all->data + from, all->size - from);
    }
    json_end_array(json);
}

/* Writes the text of a message or of reasoning, unless it is `empty`. */
static void write_part(json_text *json, const char *key, const choice *ch, const reply_part *part, bool empty)
{
    const bool reasoning = part->kind == REPLY_REASONING;
    json_object(json, key);
    json_string(json, "type", reasoning ? "reasoning_text" : "output_text");
    json_bytes(json, "text", part->text.data, empty ? 0 : part->text.size);
    if (!reasoning) {
        json_array(json, "annotations");
        json_end_array(json);
        if (!empty && ch->owner->request.logprobs >= 0) {
            write_logprobs(json, ch, 0);
        }
    }
    json_end_object(json);
}

static void write_id(json_text *json, const char *key, const completion *c, const reply_part *part)
{
    static const char *const prefixes[] = {"msg", "rs", "fc"};
    char id[80], number[16] = "";
    if (part->index > 0) {
        snprintf(number, sizeof(number), "_%d", part->index);
    }
    snprintf(id, sizeof(id), "%s_%s%s", prefixes[part->kind], c->id, number);
    json_string(json, key, id);
}

/* Writes a part's item, a message, reasoning or call; its text once it is finished. */
static void write_item(json_text *json, const char *key, const completion *c, const reply_part *part,
                       const char *status, bool finished)
{
    static const char *const types[] = {"message", "reasoning", "function_call"};
    json_object(json, key);
    json_string(json, "type", types[part->kind]);
    write_id(json, "id", c, part);
    json_string(json, "status", status);
    if (part->kind == REPLY_CALL) {
        json_string(json, "call_id", part->id);
        from_responses_write_name(json, trm_json_root(c->request.document), part->name.data, part->name.size);
        json_bytes(json, "arguments", part->text.data, finished ? part->text.size : 0);
        json_end_object(json);
        return;
    }
    if (part->kind == REPLY_REASONING) {
        json_array(json, "summary");
        json_end_array(json);
    } else {
        json_string(json, "role", "assistant");
    }
    json_array(json, "content");
    if (finished) {
        write_part(json, NULL, &c->choices[0], part, false);
    }
    json_end_array(json);
    if (finished && part->kind == REPLY_REASONING && c->request.keeps_reasoning) {
        reply_part_write_kept(json, "encrypted_content", part);
    }
    json_end_object(json);
}

static void write_usage(json_text *json, const completion *c)
{
    json_object(json, "usage");
    json_integer(json, "input_tokens", c->prompt_tokens);
    json_object(json, "input_tokens_details");
    json_integer(json, "cached_tokens", c->cached_tokens);
    json_end_object(json);
    json_integer(json, "output_tokens", c->output_tokens);
    json_object(json, "output_tokens_details");
    json_integer(json, "reasoning_tokens", 0);
    json_end_object(json);
    json_integer(json, "total_tokens", c->prompt_tokens + c->output_tokens);
    json_end_object(json);
}

static bool is_cut(const completion *c)
{
    return strcmp(c->choices[0].finish_reason, "length") == 0;
}

typedef struct output_writer {
    json_text *json;
    const completion *c;
    const char *status;
} output_writer;

static void write_output(void *user, const reply_part *part)
{
    const output_writer *w = user;
    write_item(w->json, NULL, w->c, part, w->status, true);
}

/* Repeats what the request asked for. */
static void write_request(json_text *json, const completion *c)
{
    const trm_json *root = trm_json_root(c->request.document), *asked = trm_json_get(root, "tool_choice");
    json_bool(json, "parallel_tool_calls", c->request.parallel_tools);
    if (asked != NULL) {
        json_value(json, "tool_choice", asked);
    } else {
        json_string(json, "tool_choice", "auto");
    }
    json_array(json, "tools");
    for (const trm_json *tool = trm_json_first(trm_json_get(root, "tools")); tool != NULL; tool = trm_json_next(tool)) {
        if (from_responses_takes(tool)) {
            json_value(json, NULL, tool);
        }
    }
    json_end_array(json);
    json_value(json, "reasoning", trm_json_get(root, "reasoning"));
    json_value(json, "metadata", trm_json_get(root, "metadata"));
    json_number(json, "temperature", (double)c->request.temperature);
    json_number(json, "top_p", (double)c->request.top_p);
    json_bool(json, "store", false);
}

/* `failure`: why there is no reply; otherwise NULL. */
static void write_response(json_text *json, const char *key, const completion *c, bool finished,
                           const api_error *failure)
{
    static const reply_part_writer parts = {.end = write_output};
    const char *status = failure != NULL ? "failed"
                         : !finished     ? "in_progress"
                         : is_cut(c)     ? "incomplete"
                                         : "completed";
    output_writer w = {.json = json, .c = c, .status = status};
    json_object(json, key);
    json_string(json, "id", c->id);
    json_string(json, "object", "response");
    json_integer(json, "created_at", c->created);
    json_string(json, "status", status);
    if (failure != NULL) {
        json_object(json, "error");
        json_string(json, "code", failure->code != NULL ? failure->code : failure->type);
        json_string(json, "message", failure->message);
        json_end_object(json);
    } else {
        json_null(json, "error");
    }
    if (finished && is_cut(c)) {
        json_object(json, "incomplete_details");
        json_string(json, "reason", "max_output_tokens");
        json_end_object(json);
    } else {
        json_null(json, "incomplete_details");
    }
    json_string(json, "instructions",
                trm_json_string(trm_json_get(trm_json_root(c->request.document), "instructions")));
    json_string(json, "model", c->model);
    json_array(json, "output");
    if (finished && reply_part_write(&c->choices[0], &parts, &w) != TRM_OK) {
        json->status = TRM_ERROR_OUT_OF_MEMORY;
    }
    json_end_array(json);
    write_request(json, c);
    if (finished) {
        write_usage(json, c);
    }
    json_end_object(json);
}

void response_write(const completion *c, json_text *json)
{
    write_response(json, NULL, c, true, NULL);
}

static json_text begin_event(completion *c, const char *type)
{
    json_text json = completion_begin_event(type);
    json_integer(&json, "sequence_number", c->n_events++);
    return json;
}

/* Writes where text of a part belongs. */
static void write_place(json_text *json, const completion *c, const reply_part *part)
{
    write_id(json, "item_id", c, part);
    json_integer(json, "output_index", part->index);
    if (part->kind != REPLY_CALL) {
        json_integer(json, "content_index", 0);
    }
}

static void begin_part(void *user, const reply_part *part)
{
    completion *c = user;
    json_text json = begin_event(c, "response.output_item.added");
    json_integer(&json, "output_index", part->index);
    write_item(&json, "item", c, part, "in_progress", false);
    completion_end_event(c, &json);
    if (part->kind != REPLY_CALL) {
        json = begin_event(c, "response.content_part.added");
        write_place(&json, c, part);
        write_part(&json, "part", &c->choices[0], part, true);
        completion_end_event(c, &json);
    }
}

static void write_delta(void *user, const reply_part *part, const char *text, size_t size)
{
    static const char *const types[] = {"response.output_text.delta", "response.reasoning_text.delta",
                                        "response.function_call_arguments.delta"};
    completion *c = user;
    choice *ch = &c->choices[0];
    json_text json = begin_event(c, types[part->kind]);
    write_place(&json, c, part);
    json_bytes(&json, "delta", text, size);
    if (part->kind == REPLY_CONTENT) {
        write_logprobs(&json, ch, ch->streamed_logprobs);
        ch->streamed_logprobs = ch->logprobs.bytes.size;
    }
    completion_end_event(c, &json);
}

static void end_part(void *user, const reply_part *part)
{
    static const char *const types[] = {"response.output_text.done", "response.reasoning_text.done",
                                        "response.function_call_arguments.done"};
    completion *c = user;
    const choice *ch = &c->choices[0];
    const bool cut = ch->finish_reason != NULL && is_cut(c), call = part->kind == REPLY_CALL;
    json_text json = begin_event(c, types[part->kind]);
    write_place(&json, c, part);
    if (call) {
        from_responses_write_name(&json, trm_json_root(c->request.document), part->name.data, part->name.size);
    }
    json_bytes(&json, call ? "arguments" : "text", part->text.data, part->text.size);
    if (part->kind == REPLY_CONTENT) {
        write_logprobs(&json, ch, 0);
    }
    completion_end_event(c, &json);
    if (!call) {
        json = begin_event(c, "response.content_part.done");
        write_place(&json, c, part);
        write_part(&json, "part", ch, part, false);
        completion_end_event(c, &json);
    }
    json = begin_event(c, "response.output_item.done");
    json_integer(&json, "output_index", part->index);
    write_item(&json, "item", c, part, cut ? "incomplete" : "completed", true);
    completion_end_event(c, &json);
}

static const reply_part_writer writer = {begin_part, write_delta, end_part};

void response_begin(completion *c)
{
    static const char *const types[] = {"response.created", "response.in_progress"};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        json_text json = begin_event(c, types[i]);
        write_response(&json, "response", c, false, NULL);
        completion_end_event(c, &json);
    }
}

trm_status response_delta(completion *c)
{
    return reply_part_stream(&c->choices[0], &writer, c);
}

void response_end(completion *c)
{
    reply_part_finish(&c->choices[0], &writer, c);
    json_text json = begin_event(c, is_cut(c) ? "response.incomplete" : "response.completed");
    write_response(&json, "response", c, true, NULL);
    completion_end_event(c, &json);
}

void response_fail(completion *c, const api_error *error)
{
    if (!c->begun) { /* only comments were sent */
        response_begin(c);
    }
    json_text json = begin_event(c, "response.failed");
    write_response(&json, "response", c, false, error);
    completion_end_event(c, &json);
}
