/*
 * Chat templates: render messages to the text of a prompt with a model's template.
 *
 * Templates are written in Jinja2. They have what Hugging Face transformers gives them: its white space rules, tojson,
 * raise_exception, strftime_now, break and continue. Steps, depth, memory and output of a rendering are bounded, so
 * neither a template nor messages can hang the caller. Several threads may use a template.
 */
#ifndef TRIREME_CHAT_H
#define TRIREME_CHAT_H

#include <trireme/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trm_chat_template trm_chat_template;

/* Opens the template of a model folder: chat_template.jinja, else "chat_template" of tokenizer_config.json (one text,
 * or several with names), else chat_template.json. Special tokens such as bos_token come from tokenizer_config.json and
 * special_tokens_map.json. Any other path is a template file; it has no special tokens.
 * `name` chooses one of several templates; NULL: "tool_use" for messages with tools if there is one, else "default".
 * Errors: IO, INVALID_MODEL (the folder has no template, or the syntax is wrong, with the line), UNSUPPORTED. */
TRM_API trm_status trm_chat_template_open(const char *path, const char *name, trm_chat_template **chat);
/* Makes a template from its text [size]; errors mention `name`. */
TRM_API trm_status trm_chat_template_parse(const char *name, const char *text, size_t size, trm_chat_template **chat);
TRM_API void trm_chat_template_close(trm_chat_template *chat);

/* Whether one of its templates contains a text, such as "</think>". */
TRM_API bool trm_chat_template_mentions(const trm_chat_template *chat, const char *text);

typedef struct trm_chat_input {
    size_t size;          /* sizeof(trm_chat_input) */
    const char *messages; /* JSON array of objects */
    const char *tools;    /* JSON array; NULL: none */
    const char *extra;    /* JSON object of more variables, such as {"enable_thinking": false}, which take precedence;
                             NULL: none */
    bool no_generation_prompt; /* do not end with the beginning of the assistant's answer */
    int64_t now;               /* seconds since 1970 for strftime_now; 0: the clock */
} trm_chat_input;

#define TRM_CHAT_INPUT_INIT TRM_MAKE(trm_chat_input, TRM_SET(size, sizeof(trm_chat_input)))

/* Renders. *text is NUL-terminated, *text_size does not count the NUL; release with trm_free. Error: INVALID_ARGUMENT
 * (wrong JSON; what the template or its functions refuse, such as "conversation roles must alternate", with the line).
 */
TRM_API trm_status trm_chat_template_render(const trm_chat_template *chat, const trm_chat_input *input, char **text,
                                            size_t *text_size);

/*
 * Replies: a reader divides a model's output into messages while it is generated. In the harmony format of gpt-oss
 * these are reasoning, the answer, and calls of tools; any other reply is one answer. One thread at a time uses a
 * reader.
 */
typedef struct trm_reply trm_reply;

typedef enum trm_reply_kind { TRM_REPLY_ANSWER = 1, TRM_REPLY_REASONING, TRM_REPLY_CALL } trm_reply_kind;

/* A part of a message. Strings are valid until the next push, and not NUL-terminated. */
typedef struct trm_reply_piece {
    trm_reply_kind kind;
    bool begins;      /* it is the first of its message */
    const char *name; /* [name_size] of the function, where a CALL begins; else NULL */
    size_t name_size;
    const char *text; /* [size]; of a CALL the arguments, as the model wrote them, or "{}" if it wrote none */
    size_t size;
} trm_reply_piece;

/* Makes a reader for a reply to a prompt of `chat`, which may be closed afterwards. Error: OUT_OF_MEMORY. */
TRM_API trm_status trm_reply_create(const trm_chat_template *chat, trm_reply **reply);
TRM_API void trm_reply_destroy(trm_reply *reply);
/* Whether special tokens divide the reply: its text must then be decoded with them (tokenizer.h, skip_special off). */
TRM_API bool trm_reply_has_special(const trm_reply *reply);
/* Adds text [size]; with `at_end` no more follows. Error: OUT_OF_MEMORY. */
TRM_API trm_status trm_reply_push(trm_reply *reply, const char *text, size_t size, bool at_end);
/* The next piece; false if more text must come first. */
TRM_API bool trm_reply_next(trm_reply *reply, trm_reply_piece *piece);

#ifdef __cplusplus
}
#endif
#endif
