/*
 * Lines of a conversation at a terminal that begin with a slash.
 */
#ifndef TRM_LAUNCHER_CLI_TERMINAL_CHAT_COMMANDS_H
#define TRM_LAUNCHER_CLI_TERMINAL_CHAT_COMMANDS_H

#include <stdbool.h>

#include "launcher/cli/job/conversation.h"
#include "launcher/text/strings/buffer.h"

/* What follows from a line. SAY: it is a message, and so is the last one of the user after RETRY. */
typedef enum chat_action { CHAT_SAY, CHAT_NOTHING, CHAT_RETRY, CHAT_EXIT } chat_action;

/* Carries out a command. RETRY removes the last message of the user with what follows, and copies it to `message`. A
 * command that fails is reported on stderr. */
chat_action chat_command(conversation *talk, const char *line, trm_bytes *message);

#endif
