/* Reads the marks, names and arguments of tool calls. */
#include "launcher/serve/formats/tool_format.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/serve/json/json_value.h"
#include "launcher/serve/formats/tool_literal.h"

#define LONGEST_NAME ((size_t)256) /* bytes of names, ids and keys */

static void skip_spaces(tool_reader *r)
{
    while (r->at < r->size && tools_is_space(r->text[r->at])) {
        r->at++;
    }
}

/* Reads a word; sets `short_of` if the text ends within it. */
static bool read_here(tool_reader *r, const char *word)
{
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

bool tool_reader_word(tool_reader *r, const char *word)
{
    skip_spaces(r);
    return read_here(r, word);
}

/* Reads one of two words; the longer must not begin with the shorter. */
static bool read_either(tool_reader *r, const char *first, const char *second)
{
    if (tool_reader_word(r, first)) {
        return true;
    }
    bool short_of = r->short_of;
    r->short_of = false;
    bool found = tool_reader_word(r, second);
    r->short_of = !found && (r->short_of || short_of);
    return found;
}

/* Passes a word if it is there; false if the text is too short to tell. */
static bool pass(tool_reader *r, const char *word)
{
    return tool_reader_word(r, word) || !r->short_of;
}

/* A part of the text. */
typedef struct span {
    const char *text;
    size_t size;
} span;

/* Reads up to a word, and the word; at most `limit` bytes. */
static bool read_until(tool_reader *r, const char *word, size_t limit, span *found)
{
    const char *begin = r->text + r->at, *end = memmem(begin, r->size - r->at, word, strlen(word));
    if (end == NULL) {
        r->short_of = r->size - r->at <= limit;
        return false;
    }
    *found = (span){begin, (size_t)(end - begin)};
    r->at += found->size + strlen(word);
    return found->size <= limit;
}

static void trim(span *s)
{
    while (s->size > 0 && tools_is_space(s->text[0])) {
        s->text++;
        s->size--;
    }
    while (s->size > 0 && tools_is_space(s->text[s->size - 1])) {
        s->size--;
    }
}

/* Takes a name: a word without spaces, quotes or brackets. */
static bool take_name(tool_opening *opening, span name)
{
    trim(&name);
    for (size_t i = 0; i < name.size; i++) {
        if (tools_is_space(name.text[i]) || strchr("\"'<>{}()[]", name.text[i]) != NULL) {
            return false;
        }
    }
    opening->name = name.text;
    opening->name_size = name.size;
    return name.size > 0 && name.size <= LONGEST_NAME;
}

/* Reads the brace of JSON arguments, which stays unread. */
static bool read_json(tool_reader *r, tool_opening *opening)
{
    if (!tool_reader_word(r, "{")) {
        return false;
    }
    r->at--;
    opening->is_json = true;
    return true;
}

/* Reads a quoted name. Names with escapes are left to the parser at the end of the text. */
static bool read_quoted(tool_reader *r, tool_opening *opening)
{
    span name;
    if (!tool_reader_word(r, "\"") || !read_until(r, "\"", r->size, &name)) {
        return false;
    }
    opening->name = name.text;
    opening->name_size = name.size;
    return memchr(name.text, '\\', name.size) == NULL;
}

bool tool_reader_object(tool_reader *r, tool_opening *opening)
{
    opening->is_member = true;
    return tool_reader_word(r, "{") && tool_reader_word(r, "\"name\"") && tool_reader_word(r, ":") &&
           read_quoted(r, opening) && tool_reader_word(r, ",") && read_either(r, "\"arguments\"", "\"parameters\"") &&
           tool_reader_word(r, ":") && read_json(r, opening);
}

static bool open_hermes(tool_reader *r, int32_t count, tool_opening *opening)
{
    (void)count;
    return tool_reader_word(r, "<tool_call>") && tool_reader_object(r, opening);
}

static bool open_mistral(tool_reader *r, int32_t count, tool_opening *opening)
{
    span name, id;
    if (count > 0 && tool_reader_word(r, ",")) {
        return tool_reader_object(r, opening);
    }
    if (r->short_of || !tool_reader_word(r, "[TOOL_CALLS]")) {
        return false;
    }
    skip_spaces(r);
    if (r->at == r->size) {
        r->short_of = true;
        return false;
    }
    if (r->text[r->at] == '[') {
        return count == 0 && tool_reader_word(r, "[") && tool_reader_object(r, opening);
    }
    if (!read_until(r, "[ARGS]", LONGEST_NAME * 2, &name)) {
        return false;
    }
    const char *mark = memmem(name.text, name.size, "[CALL_ID]", strlen("[CALL_ID]"));
    if (mark != NULL) {
        id.text = mark + strlen("[CALL_ID]");
        id.size = (size_t)(name.text + name.size - id.text);
        name.size = (size_t)(mark - name.text);
        opening->id = id.text;
        opening->id_size = id.size;
    }
    return take_name(opening, name) && read_json(r, opening);
}

static bool open_llama(tool_reader *r, int32_t count, tool_opening *opening)
{
    return count == 0 && pass(r, "<|python_tag|>") && tool_reader_object(r, opening);
}

/* NAME( of a call in the syntax of Python. */
static bool open_python(tool_reader *r, tool_opening *opening)
{
    span name;
    return read_until(r, "(", LONGEST_NAME, &name) && take_name(opening, name);
}

static bool open_llama4(tool_reader *r, int32_t count, tool_opening *opening)
{
    if (count > 0) {
        return tool_reader_word(r, ",") && open_python(r, opening);
    }
    if (!pass(r, "<|python_start|>")) {
        return false;
    }
    if (tool_reader_word(r, "[")) {
        return open_python(r, opening);
    }
    return !r->short_of && tool_reader_object(r, opening);
}

static bool open_granite(tool_reader *r, int32_t count, tool_opening *opening)
{
    if (count > 0) {
        return tool_reader_word(r, ",") && tool_reader_object(r, opening);
    }
    return read_either(r, "<|tool_call|>", "<tool_call>") && tool_reader_word(r, "[") && tool_reader_object(r, opening);
}

/* The name stands before its separator, or behind it if "function" does. */
static bool open_deepseek(tool_reader *r, int32_t count, tool_opening *opening)
{
    span name;
    if ((count == 0 && !pass(r, "<｜tool▁calls▁begin｜>")) || !tool_reader_word(r, "<｜tool▁call▁begin｜>") ||
        !read_until(r, "<｜tool▁sep｜>", LONGEST_NAME, &name)) {
        return false;
    }
    trim(&name);
    const bool typed = name.size == strlen("function") && memcmp(name.text, "function", name.size) == 0;
    if (typed && tool_reader_word(r, "{")) { /* a function of that name */
        r->at--;
    } else if (typed && (r->short_of || !read_until(r, "\n", LONGEST_NAME, &name))) {
        return false;
    }
    return take_name(opening, name) && pass(r, "```json") && read_json(r, opening);
}

static bool open_dsml(tool_reader *r, int32_t count, tool_opening *opening)
{
    span name;
    return (count > 0 || read_either(r, "<｜DSML｜function_calls>", "<｜DSML｜tool_calls>")) &&
           tool_reader_word(r, "<｜DSML｜invoke name=\"") && read_until(r, "\">", LONGEST_NAME, &name) &&
           take_name(opening, name);
}

static bool open_kimi(tool_reader *r, int32_t count, tool_opening *opening)
{
    static const char prefix[] = "functions.";
    span id;
    if ((count == 0 && !pass(r, "<|tool_calls_section_begin|>")) || !tool_reader_word(r, "<|tool_call_begin|>") ||
        !read_until(r, "<|tool_call_argument_begin|>", LONGEST_NAME, &id)) {
        return false;
    }
    trim(&id);
    span name = id;
    if (name.size > strlen(prefix) && memcmp(name.text, prefix, strlen(prefix)) == 0) {
        name.text += strlen(prefix);
        name.size -= strlen(prefix);
    }
    const char *colon = memchr(name.text, ':', name.size);
    name.size = colon != NULL ? (size_t)(colon - name.text) : name.size;
    opening->id = id.text;
    opening->id_size = id.size;
    return take_name(opening, name) && read_json(r, opening);
}

static bool open_glm(tool_reader *r, int32_t count, tool_opening *opening)
{
    (void)count;
    if (!tool_reader_word(r, "<tool_call>")) {
        return false;
    }
    skip_spaces(r);
    const size_t begin = r->at;
    while (r->at < r->size && r->text[r->at] != '\n' && r->text[r->at] != '<') {
        r->at++;
    }
    r->short_of = r->at == r->size;
    return !r->short_of && take_name(opening, (span){r->text + begin, r->at - begin});
}

static bool open_minimax(tool_reader *r, int32_t count, tool_opening *opening)
{
    span name;
    (void)count;
    return pass(r, "<minimax:tool_call>") && tool_reader_word(r, "<invoke name=\"") &&
           read_until(r, "\">", LONGEST_NAME, &name) && take_name(opening, name);
}

static bool open_function(tool_reader *r, const char *mark, tool_opening *opening)
{
    span name;
    return pass(r, mark) && tool_reader_word(r, "<function=") && read_until(r, ">", LONGEST_NAME, &name) &&
           take_name(opening, name);
}

static bool open_qwen_xml(tool_reader *r, int32_t count, tool_opening *opening)
{
    (void)count;
    return open_function(r, "<tool_call>", opening);
}

static bool open_seed(tool_reader *r, int32_t count, tool_opening *opening)
{
    (void)count;
    return open_function(r, "<seed:tool_call>", opening);
}

static bool open_cohere(tool_reader *r, int32_t count, tool_opening *opening)
{
    tool_opening id = {.name = NULL};
    opening->is_member = true;
    return (count > 0 ? tool_reader_word(r, ",")
                      : tool_reader_word(r, "<|START_ACTION|>") && tool_reader_word(r, "[")) &&
           tool_reader_word(r, "{") && tool_reader_word(r, "\"tool_call_id\"") && tool_reader_word(r, ":") &&
           read_quoted(r, &id) && tool_reader_word(r, ",") && tool_reader_word(r, "\"tool_name\"") &&
           tool_reader_word(r, ":") && read_quoted(r, opening) && tool_reader_word(r, ",") &&
           tool_reader_word(r, "\"parameters\"") && tool_reader_word(r, ":") && read_json(r, opening);
}

static bool open_apertus(tool_reader *r, int32_t count, tool_opening *opening)
{
    opening->is_member = true;
    return (count > 0 ? tool_reader_word(r, ",")
                      : tool_reader_word(r, "<|tools_prefix|>") && tool_reader_word(r, "[")) &&
           tool_reader_word(r, "{") && read_quoted(r, opening) && tool_reader_word(r, ":") && read_json(r, opening);
}

static bool open_olmo(tool_reader *r, int32_t count, tool_opening *opening)
{
    if (count == 0 && !tool_reader_word(r, "<function_calls>")) {
        return false;
    }
    skip_spaces(r);
    return (r->at == r->size || r->text[r->at] != '<') && open_python(r, opening);
}

static bool open_gemma(tool_reader *r, int32_t count, tool_opening *opening)
{
    span name;
    (void)count;
    return read_either(r, "<|tool_call>", "<start_function_call>") && tool_reader_word(r, "call:") &&
           read_until(r, "{", LONGEST_NAME, &name) && take_name(opening, name);
}

/* Whether a schema asks for a type. */
static bool has_type(const trm_json *schema, const char *expected)
{
    const trm_json *type = trm_json_get(schema, "type");
    const char *word = trm_json_string(type);
    bool found = word != NULL && strcmp(word, expected) == 0;
    for (const trm_json *at = trm_json_is_array(type) ? trm_json_first(type) : NULL; at != NULL && !found;
         at = trm_json_next(at)) {
        word = trm_json_string(at);
        found = word != NULL && strcmp(word, expected) == 0;
    }
    return found;
}

static bool is_word(span value, const char *word)
{
    return value.size == strlen(word) && memcmp(value.text, word, value.size) == 0;
}

static void copy_key(char name[LONGEST_NAME + 1], span key)
{
    memcpy(name, key.text, key.size);
    name[key.size] = '\0';
}

static void write_string(json_text *json, span key, span value)
{
    char name[LONGEST_NAME + 1];
    copy_key(name, key);
    json_bytes(json, name, value.text, value.size);
}

/* Writes an argument that is plain text: a string if the tool asks for one, else JSON if it is that. */
static void write_text(json_text *json, const trm_json *properties, span key, span value)
{
    char name[LONGEST_NAME + 1];
    copy_key(name, key);
    const trm_json *schema = trm_json_get(properties, name);
    span word = value;
    trim(&word);
    trm_json_document *document = NULL;
    if (has_type(schema, "string") && !(has_type(schema, "null") && is_word(word, "null"))) {
        json_bytes(json, name, value.text, value.size);
    } else if (has_type(schema, "boolean") && (is_word(word, "True") || is_word(word, "False"))) {
        json_bool(json, name, is_word(word, "True"));
    } else if (trm_json_parse("argument", word.text, word.size, &document) == TRM_OK) {
        json_raw(json, name, word.text, word.size);
        trm_json_close(document);
    } else {
        json_bytes(json, name, value.text, value.size);
    }
}

/* Reads KEY, `middle`, VALUE, `end` after `begin`; `last` instead of `begin` ends the arguments. */
static tool_argument read_text(tool_reader *r, const char *begin, const char *middle, const char *end, const char *last,
                               bool on_lines, const trm_json *properties, json_text *json)
{
    span key, value;
    if (tool_reader_word(r, last)) {
        return TOOL_ARGUMENTS_END;
    }
    const bool short_of = r->short_of;
    r->short_of = false;
    if (!tool_reader_word(r, begin)) {
        r->short_of = r->short_of || short_of;
        return TOOL_ARGUMENT_WRONG;
    }
    if (!read_until(r, middle, LONGEST_NAME, &key) || !read_until(r, end, r->size, &value)) {
        return TOOL_ARGUMENT_WRONG;
    }
    trim(&key);
    if (on_lines && value.size > 0 && value.text[0] == '\n') { /* the value's own lines lie between two line ends */
        value.text++;
        value.size--;
        value.size -= value.size > 0 && value.text[value.size - 1] == '\n';
    }
    write_text(json, properties, key, value);
    return TOOL_ARGUMENT_READ;
}

static tool_argument argument_glm(tool_reader *r, const trm_json *properties, json_text *json)
{
    const size_t begin = r->at;
    span between;
    tool_argument found = TOOL_ARGUMENT_WRONG;
    if (tool_reader_word(r, "</tool_call>")) {
        return TOOL_ARGUMENTS_END;
    }
    const bool short_of = r->short_of;
    r->short_of = false;
    if (!tool_reader_word(r, "<arg_key>")) {
        r->short_of = r->short_of || short_of;
    } else if (read_until(r, "</arg_key>", LONGEST_NAME, &between) && tool_reader_word(r, "<arg_value>")) {
        trim(&between);
        span value;
        if (read_until(r, "</arg_value>", r->size, &value)) {
            write_text(json, properties, between, value);
            found = TOOL_ARGUMENT_READ;
        }
    }
    r->at = found == TOOL_ARGUMENT_READ ? r->at : begin;
    return found;
}

/* Its own mark says whether a value is a string or JSON. */
static tool_argument argument_dsml(tool_reader *r, const trm_json *properties, json_text *json)
{
    span key, kind, value;
    (void)properties;
    if (tool_reader_word(r, "</｜DSML｜invoke>")) {
        return TOOL_ARGUMENTS_END;
    }
    const bool short_of = r->short_of;
    r->short_of = false;
    if (!tool_reader_word(r, "<｜DSML｜parameter name=\"")) {
        r->short_of = r->short_of || short_of;
        return TOOL_ARGUMENT_WRONG;
    }
    if (!read_until(r, "\" string=\"", LONGEST_NAME, &key) || !read_until(r, "\">", LONGEST_NAME, &kind) ||
        !read_until(r, "</｜DSML｜parameter>", r->size, &value)) {
        return TOOL_ARGUMENT_WRONG;
    }
    if (is_word(kind, "true")) {
        write_string(json, key, value);
    } else {
        write_text(json, NULL, key, value);
    }
    return TOOL_ARGUMENT_READ;
}

static tool_argument argument_minimax(tool_reader *r, const trm_json *properties, json_text *json)
{
    return read_text(r, "<parameter name=\"", "\">", "</parameter>", "</invoke>", true, properties, json);
}

static tool_argument argument_xml(tool_reader *r, const trm_json *properties, json_text *json)
{
    return read_text(r, "<parameter=", ">", "</parameter>", "</function>", true, properties, json);
}

/* Reads KEY, `middle` and a literal, after a comma unless it is the first one; `last` ends the arguments. */
static tool_argument read_literal(tool_reader *r, char middle, const char *last, json_text *json)
{
    const char word[2] = {middle, '\0'};
    span key;
    if (tool_reader_word(r, last)) {
        return TOOL_ARGUMENTS_END;
    }
    if (!r->short_of && pass(r, ",") && read_until(r, word, LONGEST_NAME, &key)) {
        char name[LONGEST_NAME + 1];
        trim(&key);
        copy_key(name, key);
        if (tool_literal_write(r, name, json)) {
            return TOOL_ARGUMENT_READ;
        }
    }
    return TOOL_ARGUMENT_WRONG;
}

static tool_argument argument_python(tool_reader *r, const trm_json *properties, json_text *json)
{
    (void)properties;
    return read_literal(r, '=', ")", json);
}

static tool_argument argument_gemma(tool_reader *r, const trm_json *properties, json_text *json)
{
    (void)properties;
    return read_literal(r, ':', "}", json);
}

/* By style. The first row whose sign is found decides, so marks that several formats have come last. */
static const tool_format formats[TOOL_STYLES] = {
    [TOOLS_KIMI] = {.sign = "<|tool_call_argument_begin|>",
                    .opens = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
                    .closes = {"<|tool_call_end|>"},
                    .open = open_kimi},
    [TOOLS_DEEPSEEK] = {.sign = "<｜tool▁call▁begin｜>",
                        .opens = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
                        .closes = {"```", "<｜tool▁call▁end｜>"},
                        .open = open_deepseek},
    [TOOLS_DSML] = {.sign = "｜DSML｜",
                    .opens = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"},
                    .open = open_dsml,
                    .argument = argument_dsml},
    [TOOLS_MINIMAX] = {.sign = "<minimax:tool_call>",
                       .opens = {"<minimax:tool_call>"},
                       .closes = {"</minimax:tool_call>"},
                       .open = open_minimax,
                       .argument = argument_minimax},
    [TOOLS_GLM] = {.sign = "<arg_key>", .opens = {"<tool_call>"}, .open = open_glm, .argument = argument_glm},
    [TOOLS_SEED] = {.sign = "<seed:tool_call>",
                    .opens = {"<seed:tool_call>"},
                    .closes = {"</seed:tool_call>"},
                    .open = open_seed,
                    .argument = argument_xml},
    [TOOLS_QWEN_XML] = {.sign = "<function=",
                        .opens = {"<tool_call>", "<function="},
                        .closes = {"</tool_call>"},
                        .open = open_qwen_xml,
                        .argument = argument_xml},
    [TOOLS_COHERE] = {.sign = "<|START_ACTION|>", .opens = {"<|START_ACTION|>"}, .open = open_cohere},
    [TOOLS_APERTUS] = {.sign = "<|tools_prefix|>", .opens = {"<|tools_prefix|>"}, .open = open_apertus},
    [TOOLS_OLMO] = {.sign = "<function_calls>",
                    .opens = {"<function_calls>"},
                    .open = open_olmo,
                    .argument = argument_python},
    [TOOLS_GEMMA] = {.sign = "<|tool_call>",
                     .opens = {"<|tool_call>"},
                     .closes = {"<tool_call|>"},
                     .open = open_gemma,
                     .argument = argument_gemma},
    [TOOLS_GEMMA_FUNCTION] = {.sign = "<start_function_call>",
                              .opens = {"<start_function_call>"},
                              .closes = {"<end_function_call>"},
                              .open = open_gemma,
                              .argument = argument_gemma},
    [TOOLS_GRANITE] = {.sign = "<|tool_call|>",
                       .opens = {"<|tool_call|>", "<tool_call>"},
                       .open = open_granite,
                       .declared = true,
                       .objects = true},
    [TOOLS_HERMES] = {.sign = "<tool_call>",
                      .opens = {"<tool_call>"},
                      .closes = {"</tool_call>"},
                      .open = open_hermes,
                      .declared = true,
                      .objects = true},
    [TOOLS_MISTRAL] =
        {.sign = "[TOOL_CALLS]", .opens = {"[TOOL_CALLS]"}, .open = open_mistral, .declared = true, .objects = true},
    [TOOLS_LLAMA4] = {.sign = "<|python_start|>",
                      .opens = {"<|python_start|>"},
                      .begins = "{[",
                      .closes = {"<|python_end|>"},
                      .open = open_llama4,
                      .argument = argument_python,
                      .declared = true,
                      .objects = true},
    [TOOLS_LLAMA] = {.sign = "<|python_tag|>",
                     .opens = {"<|python_tag|>"},
                     .begins = "{",
                     .open = open_llama,
                     .declared = true,
                     .objects = true},
};

const tool_format *tool_format_of(tool_style style)
{
    return &formats[style];
}

tool_style tools_style(const trm_chat_template *chat, const trm_tokenizer *tokenizer)
{
    for (int style = 0; style < TOOL_STYLES; style++) {
        if (trm_chat_template_mentions(chat, formats[style].sign)) {
            return (tool_style)style;
        }
    }
    for (int style = 0; style < TOOL_STYLES; style++) {
        if (trm_tokenizer_find(tokenizer, formats[style].sign) >= 0) {
            return (tool_style)style;
        }
    }
    return TOOLS_HERMES;
}

/* The position of a word in text from `at` on, or of a prefix of it at the end of the text; otherwise size. */
static size_t find_word(const char *text, size_t at, size_t size, const char *word, bool at_end)
{
    size_t length = strlen(word);
    while (at < size) {
        const char *found = memchr(text + at, word[0], size - at);
        if (found == NULL) {
            return size;
        }
        at = (size_t)(found - text);
        size_t rest = size - at;
        if (memcmp(text + at, word, rest < length ? rest : length) == 0 && (rest >= length || !at_end)) {
            return at;
        }
        at++;
    }
    return size;
}

size_t tools_content_size(tool_style style, const char *text, size_t from, size_t size, bool at_end)
{
    const tool_format *format = &formats[style];
    size_t spaces = 0, end = size;
    while (format->begins != NULL && spaces < size && tools_is_space(text[spaces])) {
        spaces++;
    }
    if (format->begins != NULL && spaces == size) {
        return at_end ? size : 0;
    }
    if (format->begins != NULL && text[spaces] != '\0' && strchr(format->begins, text[spaces]) != NULL) {
        return 0;
    }
    for (size_t i = 0; i < 2 && format->opens[i] != NULL; i++) {
        end = find_word(text, from, end, format->opens[i], at_end || end < size);
    }
    return end;
}

void tool_calls_fini(tool_calls *calls)
{
    for (int32_t i = 0; i < calls->count; i++) {
        free(calls->calls[i].name);
        free(calls->calls[i].arguments);
    }
    calls->count = 0;
}

/* Adds the call in a JSON object. */
static bool add_call(tool_calls *calls, const trm_json *object)
{
    const char *name = trm_json_string(trm_json_get(object, "name"));
    const trm_json *arguments = trm_json_get(object, "arguments");
    arguments = arguments != NULL ? arguments : trm_json_get(object, "parameters");
    if (name == NULL || (arguments != NULL && !trm_json_is_object(arguments)) || calls->count == TOOLS_MAX_CALLS) {
        return false;
    }
    json_text json = {0};
    if (arguments != NULL) {
        json_value(&json, NULL, arguments);
    } else {
        json_object(&json, NULL);
        json_end_object(&json);
    }
    if (json.status == TRM_OK) {
        json.status = trm_bytes_append(&json.bytes, "", 1);
    }
    tool_call call = {.name = strdup(name)};
    if (json.status == TRM_OK) {
        call.arguments = json.bytes.data;
        json.bytes = (trm_bytes){0};
    }
    json_text_fini(&json);
    if (call.name == NULL || call.arguments == NULL) {
        free(call.name);
        free(call.arguments);
        return false;
    }
    calls->calls[calls->count++] = call;
    return true;
}

/* Adds the calls in a JSON text: an object, or an array of them. */
static bool add_text(tool_calls *calls, const char *text, size_t size)
{
    trm_json_document *document;
    if (trm_json_parse("call", text, size, &document) != TRM_OK) {
        return false;
    }
    const trm_json *root = trm_json_root(document);
    bool added = trm_json_is_object(root) ? add_call(calls, root) : trm_json_count(root) > 0;
    for (const trm_json *item = trm_json_is_array(root) ? trm_json_first(root) : NULL; item != NULL && added;
         item = trm_json_next(item)) {
        added = add_call(calls, item);
    }
    trm_json_close(document);
    return added;
}

/* Any number of calls, each between marks. */
static bool add_marked(tool_calls *calls, const tool_format *format, const char *text, size_t size)
{
    size_t at = 0, length = strlen(format->opens[0]);
    while (at < size) {
        if (size - at < length || memcmp(text + at, format->opens[0], length) != 0) {
            return false;
        }
        at += length;
        size_t end = find_word(text, at, size, format->closes[0], true);
        if (!add_text(calls, text + at, end - at)) {
            return false;
        }
        at = end == size ? size : end + strlen(format->closes[0]);
        while (at < size && tools_is_space(text[at])) {
            at++;
        }
    }
    return calls->count > 0;
}

bool tools_parse(tool_style style, const char *text, size_t size, tool_calls *calls)
{
    const tool_format *format = &formats[style];
    bool parsed = false;
    *calls = (tool_calls){0};
    if (style == TOOLS_HERMES) {
        parsed = add_marked(calls, format, text, size);
    } else if (format->objects) {
        for (size_t i = 0; i < 2 && format->opens[i] != NULL; i++) {
            const size_t length = strlen(format->opens[i]);
            if (size >= length && memcmp(text, format->opens[i], length) == 0) {
                text += length;
                size -= length;
                break;
            }
        }
        parsed = add_text(calls, text, size);
    }
    if (!parsed) {
        tool_calls_fini(calls);
    }
    return parsed;
}

bool tools_parse_required(const char *text, size_t size, tool_calls *calls)
{
    *calls = (tool_calls){0};
    bool parsed = add_text(calls, text, size);
    if (!parsed) {
        tool_calls_fini(calls);
    }
    return parsed;
}
