/*
 * The formats in which models write tool calls, one row each:
 *
 *   HERMES (Qwen 2.5, Qwen 3)  <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of times
 *   MISTRAL                    [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], later [TOOL_CALLS]NAME[ARGS]{...}
 *   LLAMA (3.1 and later)      {"name": ..., "parameters": {...}} and nothing else, after an optional <|python_tag|>
 *   LLAMA4                     the same after an optional <|python_start|>, or [NAME(KEY=VALUE, ...), ...]
 *   GRANITE                    <|tool_call|> or <tool_call>, and an array as Mistral's
 *   DEEPSEEK (V3, R1, V3.1)    a call between its marks: NAME and JSON
 *   DSML (DeepSeek V3.2, V4)   <｜DSML｜invoke name="NAME"><｜DSML｜parameter name="KEY" string="true">VALUE ...
 *   KIMI (K2)                  a call between its marks: functions.NAME:INDEX and JSON
 *   GLM (4.5 and later)        <tool_call>NAME <arg_key>KEY</arg_key><arg_value>VALUE</arg_value> ... </tool_call>
 *   MINIMAX (M2)               <minimax:tool_call><invoke name="NAME"><parameter name="KEY">VALUE</parameter> ...
 *   QWEN_XML (Qwen 3 Coder)    <tool_call><function=NAME><parameter=KEY>VALUE</parameter> ... </function></tool_call>
 *   SEED                       the same in <seed:tool_call>
 *   COHERE (Command R7B, A)    <|START_ACTION|>[{"tool_call_id": ..., "tool_name": ..., "parameters": {...}}, ...]
 *   APERTUS                    <|tools_prefix|>[{NAME: {...}}, ...]<|tools_suffix|>
 *   OLMO (3)                   <function_calls>NAME(KEY=VALUE, ...) on lines </function_calls>
 *   GEMMA (4), GEMMA_FUNCTION  call:NAME{KEY:VALUE, ...} between marks, with marks for quotes
 *
 * Source: the models' chat templates.
 */
#ifndef TRM_LAUNCHER_SERVE_FORMATS_TOOL_FORMAT_H
#define TRM_LAUNCHER_SERVE_FORMATS_TOOL_FORMAT_H

#include <trireme/chat.h>
#include <trireme/tokenizer.h>

#include "launcher/serve/json/json_text.h"
#include "launcher/serve/requests/api_request.h"

#define TOOLS_MAX_CALLS 64

/* Reads a text that may end anywhere. */
typedef struct tool_reader {
    const char *text;
    size_t at, size;
    bool short_of; /* the text ended before the next part was complete */
} tool_reader;

/* What comes before the arguments of a call. Texts lie in the text that is read. */
typedef struct tool_opening {
    const char *name, *id; /* id NULL: the format has none */
    size_t name_size, id_size;
    bool is_member; /* the arguments are a member of the call's object, whose brace follows them */
    bool is_json;   /* the arguments are a JSON object; otherwise tool_format.argument reads them */
} tool_opening;

/* Of arguments that are not JSON: another one was read, the last one was, or neither. */
typedef enum tool_argument { TOOL_ARGUMENT_READ, TOOL_ARGUMENTS_END, TOOL_ARGUMENT_WRONG } tool_argument;

typedef struct tool_format {
    const char *sign;      /* in templates of models that write it, or a special token */
    const char *opens[2];  /* marks before calls; the second may be NULL */
    const char *begins;    /* characters that begin a call at the beginning of a text; NULL: none */
    const char *closes[3]; /* marks that may follow a call's arguments */
    /* Reads the marks and name of call number `count`, up to its arguments. */
    bool (*open)(tool_reader *r, int32_t count, tool_opening *opening);
    /* Reads the next argument and writes it as a member; `properties` are the tool's. NULL: arguments are JSON. */
    tool_argument (*argument)(tool_reader *r, const trm_json *properties, json_text *json);
    bool declared; /* what has no declared name is no call: a text may begin as one */
    bool objects;  /* calls are JSON objects, which tools_parse reads, too */
} tool_format;

const tool_format *tool_format_of(tool_style style);
/* The style of a model, by its template or its special tokens; HERMES if neither has a sign. */
tool_style tools_style(const trm_chat_template *chat, const trm_tokenizer *tokenizer);

/* JSON white space. */
static inline bool tools_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}
/* Reads a word after white space. */
bool tool_reader_word(tool_reader *r, const char *word);
/* Reads the beginning of a call's object, up to its arguments. */
bool tool_reader_object(tool_reader *r, tool_opening *opening);

/* Number of leading bytes of text [size] that are not part of a call and cannot become one; the first `from` are known
 * to be such. At the end of a text nothing can follow. */
size_t tools_content_size(tool_style style, const char *text, size_t from, size_t size, bool at_end);

typedef struct tool_call {
    char *name, *arguments; /* arguments are JSON */
} tool_call;
typedef struct tool_calls {
    tool_call calls[TOOLS_MAX_CALLS];
    int32_t count;
} tool_calls;
void tool_calls_fini(tool_calls *calls);

/* Reads calls that are JSON objects, with members in any order, in text [size], which begins at tools_content_size.
 * Returns false, and no calls, if the text is something else. */
bool tools_parse(tool_style style, const char *text, size_t size, tool_calls *calls);
/* Reads the output of a TOOL_REQUIRED grammar: an array of {"name": ..., "parameters": ...}. */
bool tools_parse_required(const char *text, size_t size, tool_calls *calls);

#endif
