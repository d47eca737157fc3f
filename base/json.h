/*
 * JSON documents from files and strings: cJSON with limits on size and depth, and typed look-ups whose errors
 * name the file and the key.
 */
#ifndef TRM_BASE_JSON_H
#define TRM_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

typedef struct trm_json_document trm_json_document; /* owns the tree and the name for errors */
typedef struct cJSON trm_json;                      /* a value inside a document */

/* Parses `text` [size], at most 64 levels deep and 4194304 values; errors mention `name`. Rejects invalid UTF-8, bytes
 * after the value, and duplicate keys of one object. TRM_ERROR_INVALID_MODEL with line and column. */
trm_status trm_json_parse(const char *name, const char *text, size_t size, trm_json_document **document);
/* Reads and parses a file of at most `limit` bytes. */
trm_status trm_json_read(const char *path, size_t limit, trm_json_document **document);
/* The same of a file that Python may have written: Infinity is null. */
trm_status trm_json_read_config(const char *path, size_t limit, trm_json_document **document);
void trm_json_close(trm_json_document *document);
const trm_json *trm_json_root(const trm_json_document *document);

/* Member of an object, element of an array; NULL if absent, or if the value is JSON null. */
const trm_json *trm_json_get(const trm_json *object, const char *key);
const trm_json *trm_json_at(const trm_json *array, size_t index);
size_t trm_json_count(const trm_json *value);          /* members or elements; 0 for others */
const char *trm_json_key(const trm_json *member);      /* name of an object's member */
const trm_json *trm_json_first(const trm_json *value); /* iteration in document order */
const trm_json *trm_json_next(const trm_json *value);

bool trm_json_is_object(const trm_json *value); /* these accept NULL: false */
bool trm_json_is_array(const trm_json *value);
bool trm_json_is_string(const trm_json *value);
bool trm_json_is_number(const trm_json *value);
bool trm_json_is_bool(const trm_json *value);
const char *trm_json_string(const trm_json *value); /* NULL if not a string */
double trm_json_number(const trm_json *value, double otherwise);
bool trm_json_truth(const trm_json *value, bool otherwise);
/* An integer exactly representable in a double; false otherwise. */
bool trm_json_integer(const trm_json *value, int64_t *integer);

/* Typed members. If `required` is false, an absent or null member leaves *value unchanged. Wrong types are
 * TRM_ERROR_INVALID_MODEL: "config.json: hidden_size is "x", expected an integer". */
trm_status trm_json_member_integer(const trm_json_document *document, const trm_json *object, const char *key,
                                   bool required, int64_t *value);
trm_status trm_json_member_number(const trm_json_document *document, const trm_json *object, const char *key,
                                  bool required, double *value);
trm_status trm_json_member_bool(const trm_json_document *document, const trm_json *object, const char *key,
                                bool required, bool *value);
trm_status trm_json_member_string(const trm_json_document *document, const trm_json *object, const char *key,
                                  bool required, const char **value);

#endif
