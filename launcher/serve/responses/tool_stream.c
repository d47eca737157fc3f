/* Parses tool calls while they are generated. */
#include "launcher/serve/responses/tool_stream.h"

#include <string.h>

#include "launcher/serve/requests/tools.h"

/* Reads a text that may end anywhere. */
typedef struct reader {
    const char *text;
    size_t at, size;
    bool short_of; /* the text ended before the next part was complete */
} reader;

static void skip_spaces(reader *r)
{
    while (r->at < r->size && tools_is_space(r->text[r->at])) {
        r->at++;
    }
}

/* Reads a word after white space; sets `more` if the text ends within it. */
static bool read_word(reader *r, const char *word)
{
    skip_spaces(r);
    size_t length = strlen(word), rest = r->size - r->at;
    if (memcmp(r->text + r->at, word, rest < length ? rest : length) != 0) {
        return false;
    }
    if (rest < length) {
        r->short_of = true;
        return false;
    }
    r->at += length;
    return true;
}

/* Reads one of two words; the longer must not begin with the shorter. */
static bool read_either(reader *r, const char *first, const char *second)
{
    if (read_word(r, first)) {
        return true;
    }
    bool short_of = r->short_of;
    r->short_of = false;
    bool found = read_word(r, second);
    r->short_of = !found && (r->short_of || short_of);
    return found;
}

static bool is_declared(const api_request *request, const char *name, size_t size)
{
    for (const trm_json *tool = trm_json_first(request->tools); tool != NULL; tool = trm_json_next(tool)) {
        const char *declared = trm_json_string(trm_json_get(trm_json_get(tool, "function"), "name"));
        if (declared != NULL && strlen(declared) == size && memcmp(declared, name, size) == 0) {
            return true;
        }
    }
    return false;
}

/* Reads a quoted name. Names with escapes are left to the parser at the end of the text. */
static bool read_name(reader *r, const char **name, size_t *size)
{
    if (!read_word(r, "\"")) {
        return false;
    }
    const char *begin = r->text + r->at, *end = memchr(begin, '"', r->size - r->at);
    if (end == NULL) {
        r->short_of = true;
        return false;
    }
    *name = begin;
    *size = (size_t)(end - begin);
    r->at += *size + 1;
    return memchr(begin, '\\', *size) == NULL;
}

/* Reads the marks before call number `count`. Forced calls are an array in every syntax. */
static bool read_marks(reader *r, const api_request *request, int32_t count)
{
    if (request->tool_mode == TOOL_REQUIRED) {
        return read_word(r, count > 0 ? "," : "[");
    }
    switch (request->tool_style) {
    case TOOLS_HERMES:
        return read_word(r, "<tool_call>");
    case TOOLS_MISTRAL:
        return count > 0 ? read_word(r, ",") : read_word(r, "[TOOL_CALLS]") && read_word(r, "[");
    case TOOLS_LLAMA:
        if (count > 0) {
            return false;
        }
        if (!read_word(r, "<|python_tag|>") && r->short_of) {
            return false;
        }
        return true;
    }
    return false;
}

/* Reads everything up to the arguments of a call, whose brace stays unread. */
static bool read_opening(reader *r, const tool_stream *stream, const api_request *request, tool_piece *piece)
{
    if (!read_marks(r, request, stream->count) || !read_word(r, "{") || !read_word(r, "\"name\"") ||
        !read_word(r, ":") || !read_name(r, &piece->name, &piece->name_size) ||
        !is_declared(request, piece->name, piece->name_size) || !read_word(r, ",") ||
        !read_either(r, "\"arguments\"", "\"parameters\"") || !read_word(r, ":") || !read_word(r, "{")) {
        return false;
    }
    r->at--;
    return true;
}

static bool read_closing(reader *r, const api_request *request)
{
    bool marked = request->tool_mode != TOOL_REQUIRED && request->tool_style == TOOLS_HERMES;
    return read_word(r, "}") && (!marked || read_word(r, "</tool_call>"));
}

/* The end of the arguments, or of the text. */
static size_t pass_arguments(tool_stream *stream, const char *text, size_t size)
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
            stream->state = TOOL_STREAM_CLOSING;
            break;
        }
    }
    return at;
}

bool tool_stream_next(tool_stream *stream, const api_request *request, const char *text, size_t start, size_t size,
                      tool_piece *piece)
{
    stream->at = stream->at > start ? stream->at : start;
    *piece = (tool_piece){0};
    if (stream->state == TOOL_STREAM_CLOSING || stream->state == TOOL_STREAM_OPENING) {
        reader r = {.text = text, .at = stream->at, .size = size};
        if (stream->state == TOOL_STREAM_CLOSING) {
            if (!read_closing(&r, request)) {
                stream->state = r.short_of ? TOOL_STREAM_CLOSING : TOOL_STREAM_ENDED;
                return false;
            }
            stream->at = r.at;
            stream->state = TOOL_STREAM_OPENING;
        }
        if (stream->count == TOOLS_MAX_CALLS || !read_opening(&r, stream, request, piece)) {
            stream->state = r.short_of ? TOOL_STREAM_OPENING : TOOL_STREAM_ENDED;
            return false;
        }
        stream->at = r.at;
        stream->state = TOOL_STREAM_ARGUMENTS;
        stream->count++;
    }
    if (stream->state != TOOL_STREAM_ARGUMENTS) {
        return false;
    }
    piece->index = stream->count - 1;
    piece->begin = stream->at;
    piece->end = stream->at = pass_arguments(stream, text, size);
    return piece->name != NULL || piece->end > piece->begin;
}
