/*
 * Regular expressions of tokenizer files: Oniguruma patterns, translated and run by PCRE2 with JIT. A pattern comes
 * from a file and is not trusted: its length, nesting and match steps are limited, and constructs that the two engines
 * understand differently are translated (regex_translate.c) or refused.
 */
#ifndef TRM_LAUNCHER_TEXT_REGEX_REGEX_H
#define TRM_LAUNCHER_TEXT_REGEX_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include <trireme/status.h>

#include "launcher/text/strings/buffer.h"

/* PCRE2 class items of \s, of Oniguruma's \w within a class and outside one (which includes some Latin-1 signs), and
 * of Rust's \w. */
#define TRM_REGEX_SPACE     "\\p{White_Space}"
#define TRM_REGEX_WORD      "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define TRM_REGEX_ONIG_WORD TRM_REGEX_WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define TRM_REGEX_RUST_WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}"

typedef struct trm_regex trm_regex;

/* Compiles an Oniguruma pattern (valid UTF-8). INVALID_MODEL if it does not compile, UNSUPPORTED with the construct
 * that has no translation. */
trm_status trm_regex_compile(const char *pattern, trm_regex **regex);
/* Compiles a PCRE2 pattern as it is. */
trm_status trm_regex_compile_own(const char *pattern, trm_regex **regex);
/* Puts a regex at the front of a list (NULL is empty); trm_regex_destroy frees the whole list. */
void trm_regex_keep(trm_regex **list, trm_regex *regex);
void trm_regex_destroy(trm_regex *list);

/* Finds the first match in text[from .. size) of valid UTF-8; look-behind sees the text before `from`. INVALID_MODEL if
 * the match takes too many steps. Safe from several threads. */
trm_status trm_regex_find(const trm_regex *regex, const char *text, size_t size, size_t from, bool *found,
                          size_t *begin, size_t *end);

/* Translates an Oniguruma pattern to PCRE2's syntax (UTF, UCP, MULTILINE). */
trm_status trm_regex_translate(const char *pattern, trm_bytes *translated);
/* Whether PCRE2 accepts this pattern. */
bool trm_regex_compiles(const char *pattern);

#endif
