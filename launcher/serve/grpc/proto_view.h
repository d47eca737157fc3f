/*
 * Protobuf's wire format (https://protobuf.dev/programming-guides/encoding) as views of a message that is not copied,
 * and a writer of it. The reader looks at one field after the other and allocates nothing.
 */
#ifndef TRM_LAUNCHER_SERVE_GRPC_PROTO_VIEW_H
#define TRM_LAUNCHER_SERVE_GRPC_PROTO_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/text/strings/buffer.h"

typedef struct proto_view {
    const unsigned char *at, *end;
} proto_view;

typedef enum proto_type { PROTO_VARINT = 0, PROTO_FIXED64 = 1, PROTO_BYTES = 2, PROTO_FIXED32 = 5 } proto_type;

typedef struct proto_field {
    uint32_t number;
    proto_type type;
    uint64_t value;   /* of VARINT, FIXED64 and FIXED32 */
    proto_view bytes; /* of BYTES, inside the message */
} proto_field;

typedef enum proto_step { PROTO_END, PROTO_FIELD, PROTO_DAMAGED } proto_step;

proto_view proto_view_of(const void *data, size_t size);
/* The next field. DAMAGED: the rest is no message; groups count as damage. */
proto_step proto_next(proto_view *view, proto_field *field);
bool proto_varint(proto_view *view, uint64_t *value);
/* Copies bytes as text of at most size - 1 bytes. False: they are longer, or have a NUL. */
bool proto_text(proto_view bytes, char *text, size_t size);

/* The next number of a repeated field, packed (`field` is BYTES) or one alone; `type` is its type on the wire.
 * *step: FIELD, DAMAGED, or END after the last. */
proto_step proto_number(proto_field *field, proto_type type, uint64_t *value);

/* The writer keeps the first failure. Numbers of value 0 and empty texts are left out, as proto3 does. */
typedef struct proto_writer {
    trm_bytes bytes;
    trm_status status;
} proto_writer;

void proto_put_varint(proto_writer *w, uint32_t number, uint64_t value);
void proto_put_text(proto_writer *w, uint32_t number, const char *text);
/* Also if empty. */
void proto_put_bytes(proto_writer *w, uint32_t number, const void *data, size_t size);
void proto_put_packed(proto_writer *w, uint32_t number, const int64_t *values, size_t n);
/* A message inside: begin returns its place for end. */
size_t proto_begin(proto_writer *w, uint32_t number);
void proto_end(proto_writer *w, size_t place);

#endif
