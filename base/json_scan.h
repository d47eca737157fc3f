/*
 * A strict scan of JSON text (RFC 8259) before cJSON builds the tree: cJSON itself accepts invalid UTF-8, control
 * characters, numbers such as 01, and a thousand levels of nesting.
 */
#ifndef TRM_BASE_JSON_SCAN_H
#define TRM_BASE_JSON_SCAN_H

#include <stddef.h>

#include <trireme/status.h>

#define TRM_JSON_MAX_DEPTH 64
#define TRM_JSON_MAX_VALUES                                                                                            \
    ((size_t)1 << 22) /* a tree takes about 130 bytes a value; a large tokenizer has 2 million */

/* Checks that `text` [size] is one JSON value. TRM_ERROR_INVALID_MODEL: "<name>: line 3 column 7: ...". */
trm_status trm_json_scan(const char *name, const char *text, size_t size);

/* Fails with `what` at the line and column of mark number `mark`. Each key and each number is a mark, counted from 0 in
 * text order. trm_json_scan must have accepted the text. */
trm_status trm_json_fail_at_mark(const char *name, const char *text, size_t size, size_t mark, const char *what);

#endif
