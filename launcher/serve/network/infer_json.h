/*
 * The form of inference requests over HTTP: a JSON object, and behind it the raw elements of tensors that say so (the
 * binary tensor extension).
 */
#ifndef TRM_LAUNCHER_SERVE_NETWORK_INFER_JSON_H
#define TRM_LAUNCHER_SERVE_NETWORK_INFER_JSON_H

#include "launcher/serve/network/infer.h"

/* Parses a body whose first json_size bytes are JSON; the body must outlive the request. `regions` NULL: there is
 * no shared memory. NULL with an error. */
infer_request *infer_parse(served_network *network, shared_regions *regions, const char *body, size_t size,
                           size_t json_size, const infer_client *client, void *user, api_error *error);
/* The `write` of clients over HTTP. */
trm_status infer_write_json(infer_request *request);

#endif
