/*
 * Reads lines from stdin: from a terminal with line editing and a history that is kept, if libedit is installed;
 * otherwise as they come. One at a time.
 */
#ifndef TRM_LAUNCHER_CLI_TERMINAL_LINE_READER_H
#define TRM_LAUNCHER_CLI_TERMINAL_LINE_READER_H

#include <stdbool.h>
#include <stddef.h>

#include "launcher/text/strings/buffer.h"

struct edit_library;

typedef struct line_reader {
    bool terminal;                    /* stdin is one, and stderr too: lines have a prompt */
    const struct edit_library *edits; /* NULL: no line editing */
    void *editor, *history;
    char *history_file; /* NULL: not kept */
    char *line;         /* of getline */
    size_t capacity;
    trm_bytes text; /* the lines of the last input, joined */
} line_reader;

typedef enum line_outcome { LINE_READ, LINE_INTERRUPTED, LINE_END } line_outcome;

/* `catches`: at a terminal SIGINT ends no longer the program, but what line_reader_was_interrupted asks about; a second
 * one before that is asked ends the program. */
void line_reader_init(line_reader *r, bool catches);
/* Reads a line without its end. At a terminal a backslash at the end of a line joins it with the next one. The text
 * has a NUL behind it and is valid until the next call. */
line_outcome line_reader_next(line_reader *r, const char **text, size_t *size);
void line_reader_fini(line_reader *r);

/* Whether SIGINT has come since the last call of line_reader_forget_interrupt. */
bool line_reader_was_interrupted(void);
void line_reader_forget_interrupt(void);

#endif
