/*
 * Tokens of a template, with the white space control of chat templates: trim_blocks and lstrip_blocks.
 */
#ifndef TRM_LAUNCHER_TEXT_JINJA_LEXER_H
#define TRM_LAUNCHER_TEXT_JINJA_LEXER_H

#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "base/arena.h"
#include "launcher/text/jinja/value.h"

typedef enum trm_jinja_token_kind {
    TRM_JINJA_TOKEN_END, /* of the template */
    TRM_JINJA_TOKEN_DATA,
    TRM_JINJA_TOKEN_VARIABLE_BEGIN,
    TRM_JINJA_TOKEN_VARIABLE_END,
    TRM_JINJA_TOKEN_BLOCK_BEGIN,
    TRM_JINJA_TOKEN_BLOCK_END,
    TRM_JINJA_TOKEN_NAME,
    TRM_JINJA_TOKEN_STRING,
    TRM_JINJA_TOKEN_NUMBER,
    TRM_JINJA_TOKEN_OPERATOR
} trm_jinja_token_kind;

typedef struct trm_jinja_token {
    trm_jinja_token_kind kind;
    int32_t line;
    trm_jinja_value value; /* STRING of data, names, strings and operators; INTEGER or FLOAT of numbers */
} trm_jinja_token;

typedef struct trm_jinja_tokens {
    trm_jinja_token *items; /* [count], the last one is END */
    size_t count, capacity;
} trm_jinja_tokens;

/* Splits valid UTF-8 into tokens, which are in the arena. INVALID_MODEL with the line. */
trm_status trm_jinja_lex(trm_arena *arena, const char *name, const char *source, size_t size, trm_jinja_tokens *tokens);

#endif
