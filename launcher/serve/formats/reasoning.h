/*
 * Reasoning: models that think write it between <think> and </think> at the beginning of their text, or their template
 * opens it in the prompt.
 */
#ifndef TRM_LAUNCHER_SERVE_FORMATS_REASONING_H
#define TRM_LAUNCHER_SERVE_FORMATS_REASONING_H

#include <stdbool.h>
#include <stddef.h>

#define REASONING_OPEN  "<think>"
#define REASONING_CLOSE "</think>"

/* The position of reasoning in a text, without surrounding spaces, and of the answer. */
typedef struct reasoning_parts {
    size_t begin, end; /* equal: none */
    size_t content;    /* the text's size until there is an answer */
} reasoning_parts;

/* `open`: the prompt ends inside reasoning. Bytes that may still become a tag, or spaces before one, belong to no part
 * unless the text is at its end. */
reasoning_parts reasoning_find(const char *text, size_t size, bool open, bool at_end);
/* Whether a prompt ends inside reasoning. */
bool reasoning_is_open(const char *prompt);

#endif
