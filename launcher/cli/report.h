/*
 * JSON reports: written as they come, indented, keys in the order of the calls.
 */
#ifndef TRM_LAUNCHER_CLI_REPORT_H
#define TRM_LAUNCHER_CLI_REPORT_H

#include <stdio.h>

#include <trireme/types.h>

#define REPORT_DEPTH 16

typedef struct report {
    FILE *out;
    int32_t depth;
    char closers[REPORT_DEPTH];
    bool first[REPORT_DEPTH];
} report;

/* The outermost value is an object. Nothing is written before the first member. */
void report_begin(report *r, FILE *out);
void report_end(report *r); /* closes what is open and ends the line */

/* Opens (at most REPORT_DEPTH - 1 deep) an object '{' or an array '['. `key` is NULL inside arrays. */
void report_open(report *r, const char *key, char kind);
void report_close(report *r);
void report_text(report *r, const char *key, const char *value); /* NULL value: null */
/* The same for any bytes; what is not UTF-8 becomes U+FFFD. */
void report_bytes(report *r, const char *key, const char *value, size_t size);
void report_integer(report *r, const char *key, int64_t value);
void report_number(report *r, const char *key, double value); /* not finite: null */
void report_bool(report *r, const char *key, bool value);

#endif
