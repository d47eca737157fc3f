/*
 * Inference requests as ModelInferRequest, and their replies as ModelInferResponse.
 */
#ifndef TRM_LAUNCHER_SERVE_GRPC_INFER_PROTO_H
#define TRM_LAUNCHER_SERVE_GRPC_INFER_PROTO_H

#include "launcher/serve/grpc/proto_view.h"
#include "launcher/serve/network/infer.h"

/* Whether a message is a ModelInferRequest as far as this function reads it: the network's name and version (""). */
bool infer_proto_model(proto_view message, char *name, size_t name_size, char version[24], api_error *error);
/* Reads a message, which must outlive the request. `regions` NULL: no shared memory. NULL with an error. */
infer_request *infer_proto_read(served_network *network, shared_regions *regions, proto_view message,
                                const infer_client *client, void *user, api_error *error);
/* The `write` of clients over gRPC. The message begins at `place` of the reply, and is field 2 of a
 * ModelStreamInferResponse if `streamed`. */
trm_status infer_proto_write(infer_request *request, size_t place, bool streamed);

#endif
