/*
 * Who may call the server: API keys, origins of browser pages, and names of the server.
 */
#ifndef TRM_LAUNCHER_SERVE_HTTP_SERVER_ACCESS_H
#define TRM_LAUNCHER_SERVE_HTTP_SERVER_ACCESS_H

#include "launcher/serve/http/server_internal.h"

/* Reads the key file, finds the names of this machine, and checks the origins of the options. */
trm_status access_init(server *s);

/* The number of the request's API key, from 1; 0: none. */
size_t access_key(const call *c);
/* The Origin of the request if it is allowed; otherwise NULL. */
const char *access_origin(const call *c);
/* Without keys the server is open to whoever reaches it, but not to any page that a browser next to it shows. Such a
 * page sends its origin, or its own name as our host if its name server answers our address (DNS rebinding). Returns
 * false with an error of status 403. */
bool access_check_page(const call *c, api_error *error);

#endif
