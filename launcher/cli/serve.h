/*
 * What `trireme serve` has in common for language models and networks.
 */
#ifndef TRM_LAUNCHER_CLI_SERVE_H
#define TRM_LAUNCHER_CLI_SERVE_H

#include <signal.h>

#include "launcher/cli/settings/settings.h"
#include "launcher/serve/http/server.h"

/* --served-name, else the last part of the operand. */
trm_status serve_choose_name(const settings *all, const char *operand, char name[SERVER_LONGEST_NAME + 1]);
/* The settings that every server has. */
server_options serve_common_options(const settings *all, log_writer *log);
/* Logs where the server listens and `what` it does. */
void serve_log_address(log_writer *log, const server *started, const server_options *options, const char *what);

/* Whether the operand is a folder of networks, NAME/config.pbtxt or NAME/VERSION/. */
bool serve_is_repository(const settings *all);
/* Serves networks until a signal ends it; in serve_network.c. */
trm_status serve_networks(const settings *all, log_writer *log, const sigset_t *signals);

#endif
