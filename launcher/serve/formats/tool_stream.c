/* Reads tool calls while they are generated. */
#include "launcher/serve/formats/tool_stream.h"

#include <string.h>

#include "launcher/serve/requests/tools.h"

/* Forced calls are an array in every format. */
static bool open_required(tool_reader *r, int32_t count, tool_opening *opening)
{
    return tool_reader_word(r, count > 0 ? "," : "[") && tool_reader_object(r, opening);
}

/* Reads the marks after a call: the brace of its object, and those of the format. */
static bool read_closing(tool_reader *r, const tool_stream *stream, const tool_format *format)
{
    if (stream->is_member && !tool_reader_word(r, "}")) {
        return false;
    }
    for (size_t i = 0; format != NULL && i < sizeof(format->closes) / sizeof(format->closes[0]); i++) {
        if (format->closes[i] != NULL && !tool_reader_word(r, format->closes[i]) && r->short_of) {
            return false;
        }
    }
    return true;
}

/* Reads everything up to the arguments of the next call. */
static bool read_opening(tool_reader *r, const tool_stream *stream, const api_request *request, tool_opening *opening)
{
    const bool required = request->tool_mode == TOOL_REQUIRED;
    const tool_format *format = required ? NULL : tool_format_of(request->tool_style);
    if (stream->count > 0 && !read_closing(r, stream, format)) {
        return false;
    }
    return (required ? open_required : format->open)(r, stream->count, opening) &&
           ((!required && !format->declared) || tools_find(request, opening->name, opening->name_size) != NULL);
}

/* The end of JSON arguments, or of the text. */
static size_t pass_json(tool_stream *stream, const char *text, size_t size)
{
    size_t at = stream->at;
    while (at < size) {
        char c = text[at++];
        if (stream->escaped) {
            stream->escaped = false;
        } else if (stream->in_string) {
            stream->escaped = c == '\\';
            stream->in_string = c != '"';
        } else if (c == '"') {
            stream->in_string = true;
        } else if (c == '{' || c == '[') {
            stream->depth++;
        } else if ((c == '}' || c == ']') && --stream->depth == 0) {
            stream->state = TOOL_STREAM_OPENING;
            break;
        }
    }
    return at;
}

/* Reads arguments that are not JSON as far as they are complete, and writes them as JSON. */
static void make_arguments(tool_stream *stream, const api_request *request, const char *text, size_t size)
{
    const tool_format *format = tool_format_of(request->tool_style);
    tool_reader r = {.text = text, .at = stream->at, .size = size};
    while (stream->state == TOOL_STREAM_ARGUMENTS) {
        const json_text before = stream->made;
        switch (format->argument(&r, stream->properties, &stream->made)) {
        case TOOL_ARGUMENT_READ:
            stream->at = r.at;
            break;
        case TOOL_ARGUMENTS_END:
            json_end_object(&stream->made);
            stream->at = r.at;
            stream->state = TOOL_STREAM_OPENING;
            break;
        case TOOL_ARGUMENT_WRONG:
            stream->made.bytes.size = before.bytes.size;
            stream->made.comma = before.comma;
            if (r.short_of) {
                return;
            }
            json_end_object(&stream->made); /* the call ends before what cannot be read */
            stream->state = TOOL_STREAM_ENDED;
            break;
        }
    }
}

/* Takes the arguments of the call as far as they are complete. */
static void take_arguments(tool_stream *stream, const api_request *request, const char *text, size_t size,
                           tool_piece *piece)
{
    if (stream->is_json) {
        const size_t begin = stream->at;
        stream->at = pass_json(stream, text, size);
        piece->arguments = text + begin;
        piece->size = stream->at - begin;
    } else {
        make_arguments(stream, request, text, size);
        piece->arguments = stream->made.bytes.data;
        piece->size = stream->made.bytes.size;
    }
}

/* Begins the next call. */
static bool begin_call(tool_stream *stream, const api_request *request, const char *text, size_t size,
                       tool_piece *piece)
{
    tool_reader r = {.text = text, .at = stream->at, .size = size};
    tool_opening opening = {.is_json = false};
    const bool another = stream->count == 0 || request->parallel_tools;
    if (!another || stream->count == TOOLS_MAX_CALLS || !read_opening(&r, stream, request, &opening)) {
        stream->state = r.short_of ? TOOL_STREAM_OPENING : TOOL_STREAM_ENDED;
        return false;
    }
    const trm_json *function = tools_find(request, opening.name, opening.name_size);
    stream->at = r.at;
    stream->state = TOOL_STREAM_ARGUMENTS;
    stream->count++;
    stream->is_member = opening.is_member;
    stream->is_json = opening.is_json;
    stream->properties = trm_json_get(trm_json_get(function, "parameters"), "properties");
    if (!opening.is_json) {
        stream->made.comma = false;
        json_object(&stream->made, NULL);
    }
    piece->name = opening.name;
    piece->name_size = opening.name_size;
    piece->id = opening.id;
    piece->id_size = opening.id_size;
    return true;
}

void tool_stream_fini(tool_stream *stream)
{
    json_text_fini(&stream->made);
}

bool tool_stream_next(tool_stream *stream, const api_request *request, const char *text, size_t start, size_t size,
                      bool whole, tool_piece *piece)
{
    const tool_stream before = *stream;
    stream->at = stream->at > start ? stream->at : start;
    stream->made.bytes.size = 0;
    *piece = (tool_piece){.name = NULL};
    const bool begins = stream->state == TOOL_STREAM_OPENING && begin_call(stream, request, text, size, piece);
    if (stream->state != TOOL_STREAM_ARGUMENTS) {
        return false;
    }
    piece->index = stream->count - 1;
    take_arguments(stream, request, text, size, piece);
    if (whole && stream->state == TOOL_STREAM_ARGUMENTS) {
        stream->count = before.count;
        stream->state = TOOL_STREAM_ENDED;
        return false;
    }
    return begins || piece->size > 0;
}
