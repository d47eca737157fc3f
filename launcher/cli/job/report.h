/*
 * JSON reports of the commands: short names for the JSON writer (base/json_writer.h).
 */
#ifndef TRM_LAUNCHER_CLI_JOB_REPORT_H
#define TRM_LAUNCHER_CLI_JOB_REPORT_H

#include <trireme/types.h>

#include "base/json_writer.h"

typedef trm_json_writer report;

static inline void report_begin(report *r, FILE *out)
{
    trm_json_writer_begin(r, out);
}

static inline void report_end(report *r)
{
    trm_json_writer_end(r);
}

static inline void report_open(report *r, const char *key, char kind)
{
    trm_json_writer_open(r, key, kind);
}

static inline void report_close(report *r)
{
    trm_json_writer_close(r);
}

static inline void report_text(report *r, const char *key, const char *value)
{
    trm_json_writer_text(r, key, value);
}

static inline void report_bytes(report *r, const char *key, const char *value, size_t size)
{
    trm_json_writer_bytes(r, key, value, size);
}

static inline void report_integer(report *r, const char *key, int64_t value)
{
    trm_json_writer_integer(r, key, value);
}

static inline void report_number(report *r, const char *key, double value)
{
    trm_json_writer_number(r, key, value);
}

static inline void report_bool(report *r, const char *key, bool value)
{
    trm_json_writer_bool(r, key, value);
}

#endif
