/* Commands of a conversation at a terminal. */
#include "launcher/cli/terminal/chat_commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/job/report.h"

typedef struct chat_command_row {
    const char *name, *argument; /* argument NULL: none */
    const char *help;
    trm_status (*run)(conversation *talk, const char *argument, trm_bytes *message);
    chat_action action; /* if it succeeds */
} chat_command_row;

static trm_status show_help(conversation *talk, const char *argument, trm_bytes *message);

static trm_status clear_talk(conversation *talk, const char *argument, trm_bytes *message)
{
    (void)argument;
    (void)message;
    while (talk->count > 0 && strcmp(talk->messages[talk->count - 1].role, "system") != 0) {
        conversation_unsay(talk);
    }
    return TRM_OK;
}

static trm_status set_system(conversation *talk, const char *argument, trm_bytes *message)
{
    (void)message;
    return conversation_set_system(talk, argument);
}

static trm_status save_talk(conversation *talk, const char *argument, trm_bytes *message)
{
    (void)message;
    if (argument[0] == '\0') {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "/save needs the name of a file");
    }
    FILE *file = fopen(argument, "wx"); /* of another file nothing is lost */
    if (file == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot create %s: %s", argument, strerror(errno));
    }
    report r;
    report_begin(&r, file);
    conversation_write(talk, &r);
    report_end(&r);
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", argument, strerror(errno));
    }
    fprintf(stderr, "%zu messages are in %s\n", talk->count, argument);
    return TRM_OK;
}

static trm_status take_back(conversation *talk, const char *argument, trm_bytes *message)
{
    size_t last = talk->count;
    (void)argument;
    while (last > 0 && strcmp(talk->messages[last - 1].role, "user") != 0) {
        last--;
    }
    if (last == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "there is no message to answer again");
    }
    message->size = 0;
    TRM_TRY(trm_bytes_append(message, talk->messages[last - 1].text, talk->messages[last - 1].size));
    while (talk->count >= last) {
        conversation_unsay(talk);
    }
    return TRM_OK;
}

static trm_status do_nothing(conversation *talk, const char *argument, trm_bytes *message)
{
    (void)talk;
    (void)argument;
    (void)message;
    return TRM_OK;
}

static const chat_command_row rows[] = {
    {"help", NULL, "list the commands", show_help, CHAT_NOTHING},
    {"clear", NULL, "forget all messages but the system's", clear_talk, CHAT_NOTHING},
    {"system", "TEXT", "set the system message; without TEXT: remove it", set_system, CHAT_NOTHING},
    {"save", "FILE", "write the messages to a new file, as JSON", save_talk, CHAT_NOTHING},
    {"retry", NULL, "answer the last message again, with another seed", take_back, CHAT_RETRY},
    {"exit", NULL, "end, as Ctrl-D does", do_nothing, CHAT_EXIT},
};

static trm_status show_help(conversation *talk, const char *argument, trm_bytes *message)
{
    (void)talk;
    (void)argument;
    (void)message;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char call[32];
        snprintf(call, sizeof(call), "/%s %s", rows[i].name, rows[i].argument != NULL ? rows[i].argument : "");
        fprintf(stderr, "%-14s %s\n", call, rows[i].help);
    }
    fputs("A backslash at the end of a line continues the message, a space before a slash says the slash.\n"
          "Ctrl-C ends a reply.\n",
          stderr);
    return TRM_OK;
}

chat_action chat_command(conversation *talk, const char *line, trm_bytes *message)
{
    if (line[0] != '/') {
        return CHAT_SAY;
    }
    const size_t size = strcspn(line + 1, " \t\n");
    const char *argument = line + 1 + size;
    argument += strspn(argument, " \t\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const chat_command_row *row = &rows[i];
        if (strlen(row->name) != size || strncmp(row->name, line + 1, size) != 0) {
            continue;
        }
        trm_status status = row->argument == NULL && argument[0] != '\0'
                                ? trm_fail(TRM_ERROR_INVALID_ARGUMENT, "/%s takes no argument", row->name)
                                : row->run(talk, argument, message);
        if (status != TRM_OK) {
            print_failure(status);
        }
        return status == TRM_OK ? row->action : CHAT_NOTHING;
    }
    print_failure(
        trm_fail(TRM_ERROR_INVALID_ARGUMENT, "there is no command /%.*s, /help lists all", (int)size, line + 1));
    return CHAT_NOTHING;
}
