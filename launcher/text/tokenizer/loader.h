/*
 * The context for loading a tokenizer, and pieces of JSON that several parts share.
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_LOADER_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "base/arena.h"
#include "base/json.h"
#include "launcher/text/regex/regex.h"

typedef struct trm_text_loader {
    const trm_json_document *document;
    const char *name;    /* of the file, for errors */
    trm_arena *arena;    /* memory that lives as long as the tokenizer */
    trm_regex **regexes; /* list of regexes with the same lifetime */
} trm_text_loader;

/* A string or a regex to search for, as {"String": ...} or {"Regex": ...}. */
typedef struct trm_pattern {
    const char *literal; /* NULL for a regex */
    size_t size;
    trm_regex *regex;
} trm_pattern;

/* The position of a search over one text. Zero-initialized is its start. */
typedef struct trm_pattern_scan {
    size_t from, last_end;
    bool any;
} trm_pattern_scan;

trm_status trm_pattern_load(const trm_text_loader *loader, const trm_json *json, trm_pattern *pattern);
/* A regex in PCRE2's syntax. */
trm_status trm_pattern_create(const trm_text_loader *loader, const char *regex, trm_pattern *pattern);
/* Finds the next match that does not overlap the previous ones; an empty match must not follow one directly. */
trm_status trm_pattern_next(const trm_pattern *pattern, const char *text, size_t size, trm_pattern_scan *scan,
                            bool *found, size_t *begin, size_t *end);

/* The type of a component, called "<what>" in errors, and whether it is a Sequence, whose parts are the array `list`.
 */
trm_status trm_loader_type(const trm_text_loader *loader, const trm_json *json, const char *what, const char *list,
                           const char **type, bool *sequence, const trm_json **parts);
trm_status trm_loader_unknown_type(const trm_text_loader *loader, const char *what, const char *type);

/* A required string member, copied into the arena. */
trm_status trm_loader_string(const trm_text_loader *loader, const trm_json *json, const char *key, const char **text);
/* A required string member of one character. */
trm_status trm_loader_character(const trm_text_loader *loader, const trm_json *json, const char *key,
                                int32_t *codepoint);
/* A required count: 0 to 2^31 - 1. */
trm_status trm_loader_count(const trm_text_loader *loader, const trm_json *json, const char *key, size_t *count);

#endif
