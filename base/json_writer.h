/*
 * Writes JSON as a stream: indented, keys in the order of the calls.
 */
#ifndef TRM_BASE_JSON_WRITER_H
#define TRM_BASE_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Writes a JSON string of any bytes; invalid UTF-8 becomes U+FFFD. */
void trm_json_write_text(FILE *out, const char *text, size_t size);

#define TRM_JSON_WRITER_DEPTH 16

typedef struct trm_json_writer {
    FILE *out;
    int32_t depth;
    char closers[TRM_JSON_WRITER_DEPTH];
    bool first[TRM_JSON_WRITER_DEPTH];
} trm_json_writer;

/* The outermost value is an object. Nothing is written before the first member. */
void trm_json_writer_begin(trm_json_writer *w, FILE *out);
void trm_json_writer_end(trm_json_writer *w); /* closes what is open and writes a newline */

/* Opens (at most TRM_JSON_WRITER_DEPTH - 1 deep) an object '{' or an array '['. `key` is NULL inside arrays. */
void trm_json_writer_open(trm_json_writer *w, const char *key, char kind);
void trm_json_writer_close(trm_json_writer *w);
void trm_json_writer_text(trm_json_writer *w, const char *key, const char *value); /* NULL value: null */
/* The same for any bytes, as trm_json_write_text. */
void trm_json_writer_bytes(trm_json_writer *w, const char *key, const char *value, size_t size);
void trm_json_writer_integer(trm_json_writer *w, const char *key, int64_t value);
void trm_json_writer_number(trm_json_writer *w, const char *key, double value); /* not finite: null */
void trm_json_writer_bool(trm_json_writer *w, const char *key, bool value);

#endif
