/* Writes the response object and its events. */
#include "launcher/serve/responses/response.h"

#include <stdio.h>
#include <string.h>

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

/* Writes the text of a part; `part` is NULL before there is any. */
static void write_part(json_text *json, const char *key, const choice *ch, bool reasoning, const reply_part *part)
{
    json_object(json, key);
    json_string(json, "type", reasoning ? "reasoning_text" : "output_text");
    json_bytes(json, "text", part != NULL ? ch->sink.text + part->begin : "",
               part != NULL ? part->end - part->begin : 0);
    if (!reasoning) {
        json_array(json, "annotations");
        json_end_array(json);
        if (part != NULL && ch->owner->request.logprobs >= 0) {
            write_logprobs(json, ch, 0);
        }
    }
    json_end_object(json);
}

static void write_id(json_text *json, const char *key, const completion *c, const reply_part *part)
{
    char id[80], number[16] = "";
    if (part->index > 0) {
        snprintf(number, sizeof(number), "_%d", part->index);
    }
    snprintf(id, sizeof(id), "%s_%s%s", part->reasoning ? "rs" : "msg", c->id, number);
    json_string(json, key, id);
}

/* Writes a part's item, a message or reasoning; its text once it is finished. */
static void write_item(json_text *json, const char *key, const completion *c, const reply_part *part,
                       const char *status, bool finished)
{
    json_object(json, key);
    json_string(json, "type", part->reasoning ? "reasoning" : "message");
    write_id(json, "id", c, part);
    json_string(json, "status", status);
    if (part->reasoning) {
        json_array(json, "summary");
        json_end_array(json);
    } else {
        json_string(json, "role", "assistant");
    }
    json_array(json, "content");
    if (finished) {
        write_part(json, NULL, &c->choices[0], part->reasoning, part);
    }
    json_end_array(json);
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

static void write_response(json_text *json, const char *key, const completion *c, bool finished)
{
    const char *status = !finished ? "in_progress" : is_cut(c) ? "incomplete" : "completed";
    json_object(json, key);
    json_string(json, "id", c->id);
    json_string(json, "object", "response");
    json_integer(json, "created_at", c->created);
    json_string(json, "status", status);
    json_null(json, "error");
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
    reply_part part = {.index = 0};
    harmony_reader reader = {.at = 0};
    while (finished && reply_part_next(&c->choices[0], &reader, &part)) {
        write_item(json, NULL, c, &part, status, true);
    }
    json_end_array(json);
    json_bool(json, "parallel_tool_calls", true);
    json_string(json, "tool_choice", "auto");
    json_array(json, "tools");
    json_end_array(json);
    json_number(json, "temperature", (double)c->request.temperature);
    json_number(json, "top_p", (double)c->request.top_p);
    json_bool(json, "store", false);
    if (finished) {
        write_usage(json, c);
    }
    json_end_object(json);
}

void response_write(const completion *c, json_text *json)
{
    write_response(json, NULL, c, true);
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
    json_integer(json, "content_index", 0);
}

static void begin_part(completion *c, const reply_part *part)
{
    json_text json = begin_event(c, "response.output_item.added");
    json_integer(&json, "output_index", part->index);
    write_item(&json, "item", c, part, "in_progress", false);
    completion_end_event(c, &json);
    json = begin_event(c, "response.content_part.added");
    write_place(&json, c, part);
    write_part(&json, "part", NULL, part->reasoning, NULL);
    completion_end_event(c, &json);
}

static void write_delta(completion *c, const reply_part *part, const char *text, size_t size)
{
    choice *ch = &c->choices[0];
    json_text json = begin_event(c, part->reasoning ? "response.reasoning_text.delta" : "response.output_text.delta");
    write_place(&json, c, part);
    json_bytes(&json, "delta", text, size);
    if (!part->reasoning) {
        write_logprobs(&json, ch, ch->streamed_logprobs);
        ch->streamed_logprobs = ch->logprobs.bytes.size;
    }
    completion_end_event(c, &json);
}

static void end_part(completion *c, const reply_part *part)
{
    const choice *ch = &c->choices[0];
    const bool cut = ch->finish_reason != NULL && is_cut(c);
    json_text json = begin_event(c, part->reasoning ? "response.reasoning_text.done" : "response.output_text.done");
    write_place(&json, c, part);
    json_bytes(&json, "text", ch->sink.text + part->begin, part->end - part->begin);
    if (!part->reasoning) {
        write_logprobs(&json, ch, 0);
    }
    completion_end_event(c, &json);
    json = begin_event(c, "response.content_part.done");
    write_place(&json, c, part);
    write_part(&json, "part", ch, part->reasoning, part);
    completion_end_event(c, &json);
    json = begin_event(c, "response.output_item.done");
    json_integer(&json, "output_index", part->index);
    write_item(&json, "item", c, part, cut ? "incomplete" : "completed", true);
    completion_end_event(c, &json);
}

static const reply_part_writer writer = {begin_part, write_delta, end_part};

void response_begin(completion *c)
{
    json_text json = begin_event(c, "response.created");
    write_response(&json, "response", c, false);
    completion_end_event(c, &json);
    json = begin_event(c, "response.in_progress");
    write_response(&json, "response", c, false);
    completion_end_event(c, &json);
    reply_part_stream(&c->choices[0], &writer);
}

void response_delta(completion *c)
{
    reply_part_stream(&c->choices[0], &writer);
}

void response_end(completion *c)
{
    reply_part_finish(&c->choices[0], &writer);
    json_text json = begin_event(c, is_cut(c) ? "response.incomplete" : "response.completed");
    write_response(&json, "response", c, true);
    completion_end_event(c, &json);
}
