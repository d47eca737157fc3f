/*
 * Who may call the server: API keys, and origins of browser pages.
 */
#ifndef TRM_LAUNCHER_SERVE_HTTP_SERVER_ACCESS_H
#define TRM_LAUNCHER_SERVE_HTTP_SERVER_ACCESS_H

#include "launcher/serve/http/server_internal.h"

/* Reads the key file and checks the origins of the options. */
trm_status access_init(server *s);

/* The number of the request's API key, from 1; 0: none. */
size_t access_key(const call *c);
/* The Origin of the request if it is allowed; otherwise NULL. */
const char *access_origin(const call *c);

#endif
