/* Finds reasoning, content and calls in texts of all formats. */
#include "launcher/serve/formats/reply_reader.h"

#include <string.h>

#include "launcher/serve/formats/reasoning.h"

void reply_reader_fini(reply_reader *reader)
{
    tool_stream_fini(&reader->stream);
    tool_calls_fini(&reader->late);
}

static size_t later(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* In the harmony format; without tools, a call is content. */
static bool next_channel(reply_reader *reader, const api_request *request, const char *text, size_t size, bool at_end,
                         reply_piece *piece)
{
    harmony_piece found;
    while (harmony_next(&reader->channels, text, size, at_end, &found)) {
        const bool call = found.kind == HARMONY_CALL && request->tool_mode == TOOL_AUTO;
        const bool reasoning = found.kind == HARMONY_REASONING;
        reader->begins = found.begins || (reader->begins && !call);
        if (!call && (found.end == found.begin || (reasoning && !request->include_reasoning))) {
            continue;
        }
        *piece = (reply_piece){.kind = call        ? REPLY_CALL
                                       : reasoning ? REPLY_REASONING
                                                   : REPLY_CONTENT,
                               .begins = reader->begins,
                               .call = found.call,
                               .name = call && found.begins ? text + found.name : NULL,
                               .name_size = found.name_size,
                               .text = call && found.blank ? "{}" : text + found.begin,
                               .size = call && found.blank ? 2 : found.end - found.begin};
        reader->begins = false;
        return true;
    }
    return false;
}

/* The whole text is the arguments of one call. */
static bool next_named(reply_reader *reader, const api_request *request, const char *text, size_t size,
                       reply_piece *piece)
{
    *piece = (reply_piece){.kind = REPLY_CALL,
                           .begins = !reader->named,
                           .name = reader->named ? NULL : request->tool_name,
                           .name_size = strlen(request->tool_name),
                           .text = text + reader->content,
                           .size = size - reader->content};
    reader->named = true;
    reader->content = size;
    return piece->begins || piece->size > 0;
}

/* Reads reasoning; after it, `answer` is where the answer begins. */
static bool next_reasoning(reply_reader *reader, const api_request *request, const char *text, size_t size, bool at_end,
                           reply_piece *piece)
{
    const reasoning_parts p = request->reasoning != NULL
                                  ? reasoning_find(request->reasoning, text, size, request->reasoning_open, at_end)
                                  : (reasoning_parts){0};
    const size_t begin = later(reader->reasoning, p.begin);
    const bool first = reader->reasoning == 0;
    reader->answers = p.content < size || request->reasoning == NULL;
    reader->answer = p.content;
    if (p.end <= begin) {
        return false;
    }
    reader->reasoning = p.end;
    *piece = (reply_piece){.kind = REPLY_REASONING, .begins = first, .text = text + begin, .size = p.end - begin};
    return request->include_reasoning;
}

static bool give_content(reply_reader *reader, const char *text, size_t end, reply_piece *piece)
{
    const size_t begin = later(reader->content, reader->answer);
    if (end <= begin) {
        return false;
    }
    *piece =
        (reply_piece){.kind = REPLY_CONTENT, .begins = reader->content == 0, .text = text + begin, .size = end - begin};
    reader->content = end;
    return true;
}

/* A call that was found at the end of the text. */
static bool next_late(reply_reader *reader, reply_piece *piece)
{
    if (reader->n_late >= reader->late.count) {
        return false;
    }
    const tool_call *call = &reader->late.calls[reader->n_late];
    *piece = (reply_piece){.kind = REPLY_CALL,
                           .begins = true,
                           .call = reader->n_late++,
                           .name = call->name,
                           .name_size = strlen(call->name),
                           .text = call->arguments,
                           .size = strlen(call->arguments)};
    return true;
}

/* Reads what the stream of calls has left: calls with members in another order; without any call all is content. */
static bool end_calls(reply_reader *reader, const api_request *request, const char *text, size_t start, size_t size,
                      reply_piece *piece)
{
    const bool more = reader->stream.count == 0 || request->parallel_tools;
    if (!reader->ended && more && size > start) {
        if (request->tool_mode == TOOL_REQUIRED) {
            (void)tools_parse_required(text + start, size - start, &reader->late);
        } else {
            (void)tools_parse(request->tool_style, text + start, size - start, &reader->late);
        }
        reader->n_late = reader->stream.count;
        if (!request->parallel_tools) {
            while (reader->late.count > 1) {
                reader->late.count--;
                tool_calls last = {.count = 1, .calls = {reader->late.calls[reader->late.count]}};
                tool_calls_fini(&last);
            }
        }
    }
    reader->ended = true;
    if (next_late(reader, piece)) {
        return true;
    }
    return reader->stream.count == 0 && reader->late.count == 0 && give_content(reader, text, size, piece);
}

static bool next_call(reply_reader *reader, const api_request *request, const char *text, size_t start, size_t size,
                      reply_piece *piece)
{
    tool_piece found;
    if (!tool_stream_next(&reader->stream, request, text, start, size, reader->whole, &found)) {
        return false;
    }
    *piece = (reply_piece){.kind = REPLY_CALL,
                           .begins = found.name != NULL,
                           .call = found.index,
                           .name = found.name,
                           .name_size = found.name_size,
                           .id = found.id,
                           .id_size = found.id_size,
                           .text = found.arguments,
                           .size = found.size};
    return true;
}

bool reply_next(reply_reader *reader, const api_request *request, const char *text, size_t size, bool at_end,
                reply_piece *piece)
{
    if (request->harmony) {
        return next_channel(reader, request, text, size, at_end, piece);
    }
    if (request->tool_mode == TOOL_NAMED) {
        return next_named(reader, request, text, size, piece);
    }
    if (!reader->answers && next_reasoning(reader, request, text, size, at_end, piece)) {
        return true;
    }
    if (!reader->answers) {
        return false;
    }
    if (request->reasoning != NULL && reader->reasoning > 0) {
        size = reasoning_answer_end(request->reasoning, text, later(reader->content, reader->answer), size, at_end);
    }
    if (request->tool_mode == TOOL_NONE) {
        return give_content(reader, text, size, piece);
    }
    size_t start = later(reader->content, reader->answer);
    if (request->tool_mode == TOOL_AUTO && reader->stream.count == 0 && !reader->ended) {
        const size_t begin = reader->answer;
        start = begin + tools_content_size(request->tool_style, text + begin, start - begin, size - begin, at_end);
        if (give_content(reader, text, start, piece)) {
            return true;
        }
    }
    return (!reader->ended && next_call(reader, request, text, start, size, piece)) ||
           (at_end && end_calls(reader, request, text, start, size, piece));
}

int32_t reply_calls(const reply_reader *reader, const api_request *request)
{
    if (request->harmony) {
        return request->tool_mode == TOOL_AUTO ? reader->channels.n_calls : 0;
    }
    return reader->named ? 1 : reader->stream.count > reader->n_late ? reader->stream.count : reader->n_late;
}

bool reply_is_call(const reply_reader *reader, const api_request *request, bool stopped)
{
    const bool within =
        request->harmony || request->tool_mode == TOOL_NAMED ? stopped : reader->stream.state == TOOL_STREAM_ARGUMENTS;
    return reply_calls(reader, request) > 0 && !within;
}
