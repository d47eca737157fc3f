/*
 * Checks that a request has one reading: one end of its head, one end of its body, one host. What a proxy could read in
 * another way is refused, as a part of one request would be the next one here (RFC 9112, 11.2).
 */
#ifndef TRM_LAUNCHER_SERVE_HTTP_SERVER_FRAMING_H
#define TRM_LAUNCHER_SERVE_HTTP_SERVER_FRAMING_H

#include <microhttpd.h>

#include "launcher/serve/requests/api_request.h"

/* `target` is the raw request target as MHD_OPTION_URI_LOG_CALLBACK gave it; `clean` says what framing_target_is_clean
 * said of it then. *chunked: the body has no length. Call when the headers have arrived. Returns false with an error
 * of status 400; the connection must then be closed. */
bool framing_check(struct MHD_Connection *connection, const char *method, const char *target, bool clean,
                   const char *version, bool *chunked, api_error *error);

/* Whether a raw request target consists of visible characters. */
bool framing_target_is_clean(const char *target);

/* Whether `host` is the value of a Host header: a name or an address, with or without a port (RFC 9110, 7.2). */
bool framing_host_is_valid(const char *host);

#endif
