/*
 * Compact JSON into memory, for replies and stream chunks. A failed allocation is remembered and reported once, by
 * json_text_status.
 */
#ifndef TRM_LAUNCHER_SERVE_JSON_JSON_TEXT_H
#define TRM_LAUNCHER_SERVE_JSON_JSON_TEXT_H

#include <trireme/types.h>

#include "launcher/text/strings/buffer.h"

/* Zero-initialized is empty and ready. */
typedef struct json_text {
    trm_bytes bytes;
    bool comma; /* the next value of this level follows another */
    trm_status status;
} json_text;

void json_text_fini(json_text *json);
/* Opens or closes an object or array; `key` is NULL inside arrays and at the top. */
void json_object(json_text *json, const char *key);
void json_array(json_text *json, const char *key);
void json_end_object(json_text *json);
void json_end_array(json_text *json);
void json_string(json_text *json, const char *key, const char *value); /* NULL value: null */
/* Any bytes; what is not UTF-8 becomes U+FFFD. */
void json_bytes(json_text *json, const char *key, const char *value, size_t size);
void json_integer(json_text *json, const char *key, int64_t value);
void json_number(json_text *json, const char *key, double value); /* not finite: null */
void json_bool(json_text *json, const char *key, bool value);
void json_null(json_text *json, const char *key);
/* `value` is JSON already. */
void json_raw(json_text *json, const char *key, const char *value, size_t size);
/* Bytes that are no JSON, such as "data: " before an event. */
void json_literal(json_text *json, const char *text);
/* Values of an array, written elsewhere, commas between them. */
void json_literal_bytes(json_text *json, const char *data, size_t size);

#endif
