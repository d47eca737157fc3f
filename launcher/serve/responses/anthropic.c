/* Writes the message object and its events. */
#include "launcher/serve/responses/anthropic.h"

#include <string.h>

#include "launcher/serve/responses/reply_part.h"

/* Why a finished message ended, and at which stop sequence. */
static void write_end(json_text *json, const completion *c)
{
    const choice *ch = &c->choices[0];
    bool cut = ch->finish_reason != NULL && strcmp(ch->finish_reason, "length") == 0;
    json_string(json, "stop_reason",
                !ch->finished      ? NULL
                : ch->sink.stopped ? "stop_sequence"
                : cut              ? "max_tokens"
                                   : "end_turn");
    json_string(json, "stop_sequence", ch->finished ? ch->sink.stop : NULL);
}

/* Writes a block of content. Thinking has no signature. */
static void write_block(json_text *json, const char *key, bool thinking, const char *text, size_t size)
{
    const char *type = thinking ? "thinking" : "text";
    json_object(json, key);
    json_string(json, "type", type);
    json_bytes(json, type, text, size);
    if (thinking) {
        json_string(json, "signature", "");
    }
    json_end_object(json);
}

/* Cached prompt tokens are reported separately. */
static void write_usage(json_text *json, const completion *c)
{
    json_object(json, "usage");
    json_integer(json, "input_tokens", c->prompt_tokens - c->cached_tokens);
    json_integer(json, "cache_creation_input_tokens", 0);
    json_integer(json, "cache_read_input_tokens", c->cached_tokens);
    json_integer(json, "output_tokens", c->output_tokens);
    json_end_object(json);
}

static void write_message(json_text *json, const char *key, const completion *c)
{
    const choice *ch = &c->choices[0];
    json_object(json, key);
    json_string(json, "id", c->id);
    json_string(json, "type", "message");
    json_string(json, "role", "assistant");
    json_string(json, "model", c->model);
    json_array(json, "content");
    reply_part part = {.index = 0};
    harmony_reader reader = {.at = 0};
    while (ch->finished && reply_part_next(ch, &reader, &part)) {
        write_block(json, NULL, part.reasoning, ch->sink.text + part.begin, part.end - part.begin);
    }
    json_end_array(json);
    write_end(json, c);
    write_usage(json, c);
    json_end_object(json);
}

void anthropic_write(const completion *c, json_text *json)
{
    write_message(json, NULL, c);
}

static void begin_block(completion *c, const reply_part *part)
{
    json_text json = completion_begin_event("content_block_start");
    json_integer(&json, "index", part->index);
    write_block(&json, "content_block", part->reasoning, "", 0);
    completion_end_event(c, &json);
}

static void write_delta(completion *c, const reply_part *part, const char *text, size_t size)
{
    json_text json = completion_begin_event("content_block_delta");
    json_integer(&json, "index", part->index);
    json_object(&json, "delta");
    json_string(&json, "type", part->reasoning ? "thinking_delta" : "text_delta");
    json_bytes(&json, part->reasoning ? "thinking" : "text", text, size);
    json_end_object(&json);
    completion_end_event(c, &json);
}

static void end_block(completion *c, const reply_part *part)
{
    json_text json = completion_begin_event("content_block_stop");
    json_integer(&json, "index", part->index);
    completion_end_event(c, &json);
}

static const reply_part_writer writer = {begin_block, write_delta, end_block};

void anthropic_begin(completion *c)
{
    json_text json = completion_begin_event("message_start");
    write_message(&json, "message", c);
    completion_end_event(c, &json);
    reply_part_stream(&c->choices[0], &writer);
}

void anthropic_delta(completion *c)
{
    reply_part_stream(&c->choices[0], &writer);
}

void anthropic_end(completion *c)
{
    reply_part_finish(&c->choices[0], &writer);
    json_text json = completion_begin_event("message_delta");
    json_object(&json, "delta");
    write_end(&json, c);
    json_end_object(&json);
    write_usage(&json, c);
    completion_end_event(c, &json);
    json = completion_begin_event("message_stop");
    completion_end_event(c, &json);
}

void anthropic_fail(completion *c, const api_error *error)
{
    json_text json = {0};
    json_literal(&json, "event: error\ndata: ");
    api_error_write(error, &json);
    completion_send(c, &json);
}
