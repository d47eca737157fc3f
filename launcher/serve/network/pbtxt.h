/*
 * Protobuf's text format as a tree of names and values, without a schema
 * (https://protobuf.dev/reference/protobuf/textformat-spec). The same tree is made of JSON.
 */
#ifndef TRM_LAUNCHER_SERVE_NETWORK_PBTXT_H
#define TRM_LAUNCHER_SERVE_NETWORK_PBTXT_H

#include <trireme/status.h>

#include "base/json.h"

#define PBTXT_MAX_BYTES ((size_t)1 << 20)
#define PBTXT_MAX_DEPTH 32

/* A field: a scalar has `text`, a message children. A list is a field several times. */
typedef struct pbtxt_field {
    struct pbtxt_field *next, *first; /* of the same message; of this one */
    char *name, *text;                /* text NULL: a message */
    int32_t line;                     /* 0: unknown */
} pbtxt_field;

/* *first: the fields of the outer message, NULL for an empty message. Error: INVALID_MODEL with source and line. */
trm_status pbtxt_parse(const char *source, const char *text, size_t size, pbtxt_field **first);
trm_status pbtxt_from_json(const char *source, const trm_json *object, pbtxt_field **first);
/* Accepts NULL. */
void pbtxt_free(pbtxt_field *first);

#endif
