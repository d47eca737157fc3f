/* Serializes parsed JSON. */
#include "launcher/serve/json/json_value.h"

#include <stdio.h>
#include <stdlib.h>

void json_value(json_text *json, const char *key, const trm_json *value)
{
    int64_t integer;
    if (trm_json_is_object(value) || trm_json_is_array(value)) {
        bool object = trm_json_is_object(value);
        if (object) {
            json_object(json, key);
        } else {
            json_array(json, key);
        }
        for (const trm_json *child = trm_json_first(value); child != NULL; child = trm_json_next(child)) {
            json_value(json, object ? trm_json_key(child) : NULL, child);
        }
        if (object) {
            json_end_object(json);
        } else {
            json_end_array(json);
        }
    } else if (trm_json_is_string(value)) {
        json_string(json, key, trm_json_string(value));
    } else if (trm_json_integer(value, &integer)) {
        json_integer(json, key, integer);
    } else if (trm_json_is_number(value)) {
        char text[32];
        double number = trm_json_number(value, 0);
        int size = snprintf(text, sizeof(text), "%.15g", number);
        if (strtod(text, NULL) != number) {
            size = snprintf(text, sizeof(text), "%.17g", number);
        }
        json_raw(json, key, text, (size_t)size);
    } else if (trm_json_is_bool(value)) {
        json_bool(json, key, trm_json_truth(value, false));
    } else {
        json_null(json, key);
    }
}
