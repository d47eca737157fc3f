/*
 * Serializes a parsed JSON value.
 */
#ifndef TRM_LAUNCHER_SERVE_JSON_JSON_VALUE_H
#define TRM_LAUNCHER_SERVE_JSON_JSON_VALUE_H

#include "base/json.h"
#include "launcher/serve/json/json_text.h"

/* Writes `value` (NULL: null) with everything below it. */
void json_value(json_text *json, const char *key, const trm_json *value);

#endif
