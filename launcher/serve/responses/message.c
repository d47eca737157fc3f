/* Turns the text of chats into messages and deltas. */
#include "launcher/serve/responses/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/serve/requests/reasoning.h"
#include "launcher/serve/requests/tools.h"

/* The parts of a choice's text, as far as they are complete. */
typedef struct parts {
    reasoning_parts reasoning;
    size_t content; /* end of content, where calls may begin */
} parts;

/* Whether the text may contain marked tool calls. */
static bool writes_calls(const api_request *asked)
{
    return asked->tool_mode == TOOL_AUTO || asked->tool_mode == TOOL_REQUIRED;
}

/* Length of the content of a text; the rest is, or may become, tool calls. */
static size_t content_size(const choice *ch, const char *text, size_t size)
{
    const api_request *asked = &ch->owner->request;
    switch (asked->tool_mode) {
    case TOOL_AUTO:
        return tools_content_size(asked->tool_style, text, size, ch->finish_reason != NULL);
    case TOOL_REQUIRED:
        return 0;
    case TOOL_NONE:
    case TOOL_NAMED:
        break;
    }
    return size;
}

static parts find_parts(const choice *ch)
{
    const api_request *asked = &ch->owner->request;
    size_t size = ch->finish_reason != NULL ? ch->sink.size : ch->sink.certain;
    parts p = {.content = 0};
    if (asked->has_reasoning) {
        p.reasoning = reasoning_find(ch->sink.text, size, asked->reasoning_open, ch->finish_reason != NULL);
    }
    size_t begin = p.reasoning.content;
    p.content = begin + content_size(ch, ch->sink.text + begin, size - begin);
    return p;
}

/* Walks the tool stream of a finished choice to the end of its text and adds complete calls to `calls`, which may be
 * NULL if some were streamed already. Returns whether the text ends within a call, at a stop string: such a call cannot
 * be executed. */
static bool walk_calls(const choice *ch, size_t start, tool_calls *calls)
{
    const char *text = ch->sink.text;
    tool_stream stream = ch->calls; /* a copy: the stream does not advance */
    tool_piece piece;
    while (tool_stream_next(&stream, &ch->owner->request, text, start, ch->sink.size, &piece)) {
        if (calls == NULL || piece.name == NULL || stream.state != TOOL_STREAM_CLOSING) {
            continue;
        }
        tool_call call = {strndup(piece.name, piece.name_size), strndup(text + piece.begin, piece.end - piece.begin)};
        if (call.name == NULL || call.arguments == NULL) {
            free(call.name);
            free(call.arguments);
            break;
        }
        calls->calls[calls->count++] = call;
    }
    return stream.state == TOOL_STREAM_ARGUMENTS;
}

/* The tool calls of a finished choice; without any, everything except reasoning is content. */
static void take_calls(choice *ch, parts *p, tool_calls *calls)
{
    const api_request *asked = &ch->owner->request;
    const char *text = ch->sink.text + p->content;
    size_t start = p->content, size = ch->sink.size - start;
    bool cut = asked->tool_mode == TOOL_NAMED && ch->sink.stopped;
    calls->count = 0;
    if (writes_calls(asked) && size > 0) {
        bool parsed = asked->tool_mode == TOOL_REQUIRED ? tools_parse_required(text, size, calls)
                                                        : tools_parse(asked->tool_style, text, size, calls);
        if (asked->stream) {
            cut = walk_calls(ch, start, NULL);
        } else if (!parsed) { /* calls followed by other text or by an incomplete call, as streamed */
            (void)walk_calls(ch, start, calls);
        }
    }
    bool called = calls->count > 0 || ch->calls.count > 0 || asked->tool_mode == TOOL_NAMED;
    if (!called) {
        p->content = ch->sink.size;
    }
    if (called && !cut && strcmp(ch->finish_reason, "stop") == 0) {
        ch->finish_reason = "tool_calls";
    }
}

static void write_call(json_text *json, const choice *ch, int32_t index, bool chunk, const char *name, size_t name_size,
                       const char *arguments, size_t size)
{
    char id[96];
    snprintf(id, sizeof(id), "call_%.40s_%d_%d", ch->owner->exchange->id, ch->index, index);
    json_object(json, NULL);
    if (chunk) {
        json_integer(json, "index", index);
    }
    if (name != NULL) {
        json_string(json, "id", id);
        json_string(json, "type", "function");
    }
    json_object(json, "function");
    if (name != NULL) {
        json_bytes(json, "name", name, name_size);
    }
    json_bytes(json, "arguments", arguments, size);
    json_end_object(json);
    json_end_object(json);
}

/* Writes calls `first` and later. */
static void write_calls(json_text *json, const choice *ch, bool chunk, const tool_calls *calls, int32_t first)
{
    for (int32_t i = first; i < calls->count; i++) {
        const tool_call *call = &calls->calls[i];
        write_call(json, ch, i, chunk, call->name, strlen(call->name), call->arguments, strlen(call->arguments));
    }
}

/* What the messages of a reply in the harmony format come to. */
typedef struct channels {
    trm_bytes reasoning, content;
    json_text calls; /* the elements of an array */
    bool any_calls;
} channels;

static void channels_fini(channels *found)
{
    trm_bytes_fini(&found->reasoning);
    trm_bytes_fini(&found->content);
    json_text_fini(&found->calls);
}

/* Whether a piece is in the reply, and as what: without tools, a call is content. */
static bool shows_piece(const api_request *asked, harmony_piece *piece)
{
    if (piece->kind == HARMONY_CALL && asked->tool_mode != TOOL_AUTO) {
        piece->kind = HARMONY_CONTENT;
    }
    return piece->kind == HARMONY_CALL ||
           (piece->end > piece->begin && (piece->kind != HARMONY_REASONING || asked->include_reasoning));
}

/* Adds text of a message, on a line of its own. `streamed`: bytes before it. */
static trm_status add_piece(trm_bytes *bytes, size_t *streamed, const harmony_piece *piece, const char *text)
{
    if (piece->begins && *streamed > 0) {
        TRM_TRY(trm_bytes_append(bytes, "\n", 1));
    }
    *streamed += piece->end - piece->begin;
    return trm_bytes_append(bytes, text + piece->begin, piece->end - piece->begin);
}

static void add_call_piece(json_text *json, const choice *ch, const harmony_piece *piece, bool chunk)
{
    const char *text = ch->sink.text;
    const bool blank = piece->blank;
    write_call(json, ch, piece->call, chunk, piece->begins ? text + piece->name : NULL, piece->name_size,
               blank ? "{}" : text + piece->begin, blank ? 2 : piece->end - piece->begin);
}

static bool next_piece(const choice *ch, harmony_reader *reader, harmony_piece *piece)
{
    const bool at_end = ch->finish_reason != NULL;
    return harmony_next(reader, ch->sink.text, at_end ? ch->sink.size : ch->sink.certain, at_end, piece);
}

/* Takes what is complete and not yet taken; at the end may change the finish reason. */
static trm_status take_channels(choice *ch, bool chunk, channels *found)
{
    const api_request *asked = &ch->owner->request;
    harmony_piece piece;
    while (next_piece(ch, &ch->channels, &piece)) {
        if (!shows_piece(asked, &piece)) {
            continue;
        }
        if (piece.kind == HARMONY_CALL) {
            add_call_piece(&found->calls, ch, &piece, chunk);
            found->any_calls = true;
        } else if (piece.kind == HARMONY_REASONING) {
            TRM_TRY(add_piece(&found->reasoning, &ch->streamed_reasoning, &piece, ch->sink.text));
        } else {
            TRM_TRY(add_piece(&found->content, &ch->streamed, &piece, ch->sink.text));
        }
    }
    const bool stopped = ch->finish_reason != NULL && strcmp(ch->finish_reason, "stop") == 0 && !ch->sink.stopped;
    if (stopped && asked->tool_mode == TOOL_AUTO && ch->channels.n_calls > 0) {
        ch->finish_reason = "tool_calls";
    }
    return found->calls.status;
}

/* Writes the members of a message or delta in the harmony format. */
static void write_channels(json_text *json, choice *ch, bool chunk)
{
    channels found = {.any_calls = false};
    const trm_status status = take_channels(ch, chunk, &found);
    json->status = json->status == TRM_OK ? status : json->status;
    if (found.reasoning.size > 0) {
        json_bytes(json, "reasoning_content", found.reasoning.data, found.reasoning.size);
    }
    if (found.content.size > 0 || (!chunk && !found.any_calls)) {
        json_bytes(json, "content", found.content.size > 0 ? found.content.data : "", found.content.size);
    } else if (!chunk) {
        json_null(json, "content");
    }
    if (!chunk) {
        json_null(json, "refusal");
    }
    if (found.any_calls) {
        json_array(json, "tool_calls");
        json_literal_bytes(json, found.calls.bytes.data, found.calls.bytes.size);
        json_end_array(json);
    }
    channels_fini(&found);
}

/* Whether the text goes on with something that the reply has. */
static bool has_more_channels(const choice *ch)
{
    harmony_reader reader = ch->channels; /* a copy: it does not advance */
    harmony_piece piece;
    while (next_piece(ch, &reader, &piece)) {
        if (shows_piece(&ch->owner->request, &piece)) {
            return true;
        }
    }
    return false;
}

void message_write(json_text *json, choice *ch)
{
    const api_request *asked = &ch->owner->request;
    if (asked->harmony) {
        json_object(json, "message");
        json_string(json, "role", "assistant");
        write_channels(json, ch, false);
        json_end_object(json);
        return;
    }
    bool named = asked->tool_mode == TOOL_NAMED;
    const char *text = ch->sink.text;
    parts p = find_parts(ch);
    tool_calls calls;
    take_calls(ch, &p, &calls);
    json_object(json, "message");
    json_string(json, "role", "assistant");
    if (p.reasoning.end > p.reasoning.begin && asked->include_reasoning) {
        json_bytes(json, "reasoning_content", text + p.reasoning.begin, p.reasoning.end - p.reasoning.begin);
    }
    if (named || (calls.count > 0 && p.content == p.reasoning.content)) {
        json_null(json, "content");
    } else {
        json_bytes(json, "content", text + p.reasoning.content, p.content - p.reasoning.content);
    }
    json_null(json, "refusal");
    if (named || calls.count > 0) {
        json_array(json, "tool_calls");
        if (named) {
            write_call(json, ch, 0, false, asked->tool_name, strlen(asked->tool_name), text, ch->sink.size);
        } else {
            write_calls(json, ch, false, &calls, 0);
        }
        json_end_array(json);
    }
    json_end_object(json);
    tool_calls_fini(&calls);
}

static size_t later(size_t a, size_t b)
{
    return a > b ? a : b;
}

bool message_has_more(const choice *ch)
{
    const api_request *asked = &ch->owner->request;
    if (asked->harmony) {
        return has_more_channels(ch);
    }
    parts p = find_parts(ch);
    tool_stream calls = ch->calls; /* a copy: the stream does not advance */
    tool_piece piece;
    bool reasoning = asked->include_reasoning && p.reasoning.end > later(ch->streamed_reasoning, p.reasoning.begin);
    return reasoning || p.content > later(ch->streamed, p.reasoning.content) ||
           (writes_calls(asked) && tool_stream_next(&calls, asked, ch->sink.text, p.content, ch->sink.certain, &piece));
}

/* Streams tool calls as they are generated; at the end, those that were not streamed. */
static void write_call_pieces(json_text *json, choice *ch, size_t start, const tool_calls *calls)
{
    const api_request *asked = &ch->owner->request;
    const char *text = ch->sink.text;
    size_t size = ch->finish_reason != NULL ? ch->sink.size : ch->sink.certain;
    tool_piece piece;
    bool any = false;
    while (writes_calls(asked) && tool_stream_next(&ch->calls, asked, text, start, size, &piece)) {
        if (!any) {
            json_array(json, "tool_calls");
        }
        any = true;
        write_call(json, ch, piece.index, true, piece.name, piece.name_size, text + piece.begin,
                   piece.end - piece.begin);
    }
    if (!any && calls->count > ch->calls.count) {
        json_array(json, "tool_calls");
        any = true;
    }
    write_calls(json, ch, true, calls, ch->calls.count);
    if (any) {
        json_end_array(json);
    }
}

void message_write_delta(json_text *json, choice *ch)
{
    const api_request *asked = &ch->owner->request;
    if (asked->harmony) {
        json_object(json, "delta");
        write_channels(json, ch, true);
        json_end_object(json);
        return;
    }
    const char *text = ch->sink.text;
    parts p = find_parts(ch);
    size_t start = p.content;
    tool_calls calls = {.count = 0};
    if (ch->finish_reason != NULL) {
        take_calls(ch, &p, &calls);
    }
    size_t reasoning = later(ch->streamed_reasoning, p.reasoning.begin),
           content = later(ch->streamed, p.reasoning.content);
    json_object(json, "delta");
    if (asked->tool_mode == TOOL_NAMED) {
        json_array(json, "tool_calls");
        write_call(json, ch, 0, true, ch->named ? NULL : asked->tool_name, strlen(asked->tool_name), text + content,
                   p.content - content);
        json_end_array(json);
        ch->named = true;
    } else {
        if (p.reasoning.end > reasoning && asked->include_reasoning) {
            json_bytes(json, "reasoning_content", text + reasoning, p.reasoning.end - reasoning);
        }
        if (p.content > content) {
            json_bytes(json, "content", text + content, p.content - content);
        }
        write_call_pieces(json, ch, start, &calls);
    }
    json_end_object(json);
    ch->streamed_reasoning = later(reasoning, p.reasoning.end);
    ch->streamed = later(content, p.content);
    tool_calls_fini(&calls);
}
