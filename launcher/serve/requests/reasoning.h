/*
 * Reasoning: models that think first write it between <think> and </think> at the beginning of their text, or go on
 * where their template has opened it.
 */
#ifndef TRM_LAUNCHER_SERVE_REQUESTS_REASONING_H
#define TRM_LAUNCHER_SERVE_REQUESTS_REASONING_H

#include <stdbool.h>
#include <stddef.h>

#define REASONING_OPEN  "<think>"
#define REASONING_CLOSE "</think>"

/* Where a text has reasoning, without spaces around it, and where its answer begins. */
typedef struct reasoning_parts {
    size_t begin, end; /* equal: none */
    size_t content;    /* the text's size as long as there is no answer */
} reasoning_parts;

/* `open`: the prompt ends inside of reasoning. What may still become a mark or a space before one is in no part, unless
 * the text is at its end. */
reasoning_parts reasoning_find(const char *text, size_t size, bool open, bool at_end);
/* Whether a prompt ends with an opened reasoning. */
bool reasoning_is_open(const char *prompt);

#endif
