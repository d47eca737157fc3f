/*
 * A writer of compact JSON into memory, for replies and stream chunks. It keeps the first allocation failure for
 * json_text_status.
 */
#ifndef TRM_LAUNCHER_SERVE_JSON_JSON_TEXT_H
#define TRM_LAUNCHER_SERVE_JSON_JSON_TEXT_H

#include <trireme/types.h>

#include "launcher/text/strings/buffer.h"

/* Zero-initialized is empty and ready. */
typedef struct json_text {
    trm_bytes bytes;
    bool comma; /* the next value of this level needs a comma */
    trm_status status;
} json_text;

void json_text_fini(json_text *json);
/* Opens or closes an object or array; `key` is NULL inside arrays and at the top. */
void json_object(json_text *json, const char *key);
void json_array(json_text *json, const char *key);
void json_end_object(json_text *json);
void json_end_array(json_text *json);
void json_string(json_text *json, const char *key, const char *value); /* NULL value: null */
/* Any bytes; invalid UTF-8 becomes U+FFFD. */
void json_bytes(json_text *json, const char *key, const char *value, size_t size);
void json_integer(json_text *json, const char *key, int64_t value);
void json_number(json_text *json, const char *key, double value); /* not finite: null */
void json_bool(json_text *json, const char *key, bool value);
void json_null(json_text *json, const char *key);
/* `value` is JSON already. */
void json_raw(json_text *json, const char *key, const char *value, size_t size);
/* Raw bytes, such as "data: " before an event. */
void json_literal(json_text *json, const char *text);
/* Values of an array written elsewhere, with commas between them. */
void json_literal_bytes(json_text *json, const char *data, size_t size);

#endif
