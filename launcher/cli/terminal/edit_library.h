/*
 * libedit, found at run time: line editing and history. Its header is not needed to build.
 */
#ifndef TRM_LAUNCHER_CLI_TERMINAL_EDIT_LIBRARY_H
#define TRM_LAUNCHER_CLI_TERMINAL_EDIT_LIBRARY_H

#include <stdio.h>

#include <trireme/status.h>

/* Of its interface (histedit.h), which has been the same since libedit.so.2: operations of el_set and history. */
enum {
    EDIT_PROMPT = 0,
    EDIT_EDITOR = 2,
    EDIT_SIGNAL = 3,
    EDIT_BIND = 4,
    EDIT_HISTORY = 10,
    EDIT_READ = 13,
    HISTORY_SIZE = 1,
    HISTORY_ENTER = 10,
    HISTORY_LOAD = 17,
    HISTORY_SAVE = 18,
    HISTORY_UNIQUE = 20
};

typedef struct history_event {
    int number;
    const char *text;
} history_event;

typedef struct edit_library {
    void *(*el_init)(const char *program, FILE *in, FILE *out, FILE *error);
    void (*el_end)(void *editor);
    int (*el_set)(void *editor, int operation, ...);
    int (*el_source)(void *editor, const char *file);
    void (*el_resize)(void *editor);
    const char *(*el_gets)(void *editor, int *size);
    void *(*history_init)(void);
    void (*history_end)(void *history);
    int (*history)(void *history, history_event *event, int operation, ...);
} edit_library;

/* Error: UNSUPPORTED (the library is not installed). */
trm_status edit_library_open(const edit_library **result);

#endif
