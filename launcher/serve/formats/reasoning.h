/*
 * Reasoning: models that think write it between marks at the beginning of their text, or their template opens it in the
 * prompt.
 */
#ifndef TRM_LAUNCHER_SERVE_FORMATS_REASONING_H
#define TRM_LAUNCHER_SERVE_FORMATS_REASONING_H

#include <stdbool.h>
#include <stddef.h>

#include <trireme/chat.h>

/* The marks of a family. */
typedef struct reasoning_marks {
    const char *sign; /* in templates of models that write them */
    const char *open, *close;
    const char *answer_open, *answer_close; /* around the answer; NULL: none */
    bool special;                           /* they are special tokens */
} reasoning_marks;

/* The marks that a template's model writes; NULL: it does not think. */
const reasoning_marks *reasoning_of(const trm_chat_template *chat);

/* The position of reasoning in a text, without surrounding spaces, and of the answer. */
typedef struct reasoning_parts {
    size_t begin, end; /* equal: none */
    size_t content;    /* the text's size until there is an answer */
} reasoning_parts;

/* `open`: the prompt ends inside reasoning. Bytes that may still become a mark, or spaces before one, belong to no part
 * unless the text is at its end. */
reasoning_parts reasoning_find(const reasoning_marks *marks, const char *text, size_t size, bool open, bool at_end);
/* The end of an answer, which begins at or before `from`. */
size_t reasoning_answer_end(const reasoning_marks *marks, const char *text, size_t from, size_t size, bool at_end);
/* Whether a prompt ends inside reasoning. */
bool reasoning_is_open(const reasoning_marks *marks, const char *prompt);

#endif
