/* Writes the message object and its events. */
#include "launcher/serve/responses/anthropic.h"

#include <string.h>

#include "launcher/serve/responses/reply_part.h"

/* Why a finished message ended, and at which stop sequence. */
static void write_end(json_text *json, const completion *c, bool called)
{
    const choice *ch = &c->choices[0];
    bool cut = ch->finish_reason != NULL && strcmp(ch->finish_reason, "length") == 0;
    json_string(json, "stop_reason",
                !ch->finished                  ? NULL
                : ch->sink.stopped             ? "stop_sequence"
                : cut && c->request.is_clipped ? "model_context_window_exceeded"
                : cut                          ? "max_tokens"
                : called                       ? "tool_use"
                                               : "end_turn");
    json_string(json, "stop_sequence", ch->finished ? ch->sink.stop : NULL);
}

/* Writes the input of a call: an object, also where the call is cut. */
static void write_input(json_text *json, const reply_part *part)
{
    trm_json_document *document = NULL;
    if (part->text.size > 0 && trm_json_parse("input", part->text.data, part->text.size, &document) == TRM_OK &&
        trm_json_is_object(trm_json_root(document))) {
        json_raw(json, "input", part->text.data, part->text.size);
    } else {
        json_object(json, "input");
        json_end_object(json);
    }
    trm_json_close(document);
}

/* Whether the text of a part is not shown. */
static bool omits(const completion *c, const reply_part *part)
{
    return part->kind == REPLY_REASONING && c->request.omits_thinking;
}

/* Writes a block of content, with its text unless it is `empty`. Thinking has a signature only where its text is
 * omitted: for clients to send back. */
static void write_block(json_text *json, const char *key, const completion *c, const reply_part *part, bool empty)
{
    static const char *const types[] = {"text", "thinking", "tool_use"};
    static const reply_part nothing;
    const char *type = types[part->kind];
    json_object(json, key);
    json_string(json, "type", type);
    if (part->kind == REPLY_CALL) {
        json_string(json, "id", part->id);
        json_bytes(json, "name", part->name.data, part->name.size);
        write_input(json, empty ? &nothing : part);
    } else {
        json_bytes(json, type, part->text.data, empty || omits(c, part) ? 0 : part->text.size);
    }
    if (part->kind == REPLY_REASONING && omits(c, part) && !empty) {
        reply_part_write_kept(json, "signature", part);
    } else if (part->kind == REPLY_REASONING) {
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

typedef struct message_writer {
    json_text *json;
    const completion *c;
    bool called;
} message_writer;

static void write_part(void *user, const reply_part *part)
{
    message_writer *w = user;
    write_block(w->json, NULL, w->c, part, false);
    w->called = w->called || part->kind == REPLY_CALL;
}

static void write_message(json_text *json, const char *key, const completion *c)
{
    static const reply_part_writer parts = {.end = write_part};
    const choice *ch = &c->choices[0];
    message_writer w = {.json = json, .c = c};
    json_object(json, key);
    json_string(json, "id", c->id);
    json_string(json, "type", "message");
    json_string(json, "role", "assistant");
    json_string(json, "model", c->model);
    json_array(json, "content");
    if (ch->finished && reply_part_write(ch, &parts, &w) != TRM_OK) {
        json->status = TRM_ERROR_OUT_OF_MEMORY;
    }
    json_end_array(json);
    write_end(json, c, w.called);
    write_usage(json, c);
    json_end_object(json);
}

void anthropic_write(const completion *c, json_text *json)
{
    write_message(json, NULL, c);
}

static void begin_block(void *user, const reply_part *part)
{
    json_text json = completion_begin_event("content_block_start");
    json_integer(&json, "index", part->index);
    write_block(&json, "content_block", user, part, true);
    completion_end_event(user, &json);
}

static void write_delta(void *user, const reply_part *part, const char *text, size_t size)
{
    static const char *const types[] = {"text_delta", "thinking_delta", "input_json_delta"};
    static const char *const keys[] = {"text", "thinking", "partial_json"};
    if (omits(user, part)) {
        return;
    }
    json_text json = completion_begin_event("content_block_delta");
    json_integer(&json, "index", part->index);
    json_object(&json, "delta");
    json_string(&json, "type", types[part->kind]);
    json_bytes(&json, keys[part->kind], text, size);
    json_end_object(&json);
    completion_end_event(user, &json);
}

static void end_block(void *user, const reply_part *part)
{
    if (omits(user, part)) {
        json_text kept = completion_begin_event("content_block_delta");
        json_integer(&kept, "index", part->index);
        json_object(&kept, "delta");
        json_string(&kept, "type", "signature_delta");
        reply_part_write_kept(&kept, "signature", part);
        json_end_object(&kept);
        completion_end_event(user, &kept);
    }
    json_text json = completion_begin_event("content_block_stop");
    json_integer(&json, "index", part->index);
    completion_end_event(user, &json);
}

static const reply_part_writer writer = {begin_block, write_delta, end_block};

void anthropic_begin(completion *c)
{
    json_text json = completion_begin_event("message_start");
    write_message(&json, "message", c);
    completion_end_event(c, &json);
}

trm_status anthropic_delta(completion *c)
{
    return reply_part_stream(&c->choices[0], &writer, c);
}

void anthropic_end(completion *c)
{
    reply_part_finish(&c->choices[0], &writer, c);
    json_text json = completion_begin_event("message_delta");
    json_object(&json, "delta");
    write_end(&json, c, choice_is_call(&c->choices[0]));
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
