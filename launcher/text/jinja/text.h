/*
 * Characters with the properties of Python's str, by utf8proc.
 */
#ifndef TRM_LAUNCHER_TEXT_JINJA_TEXT_H
#define TRM_LAUNCHER_TEXT_JINJA_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/status.h>

#include "launcher/text/strings/buffer.h"

bool trm_jinja_is_space(int32_t codepoint);     /* str.isspace; what strip() removes and \s matches */
bool trm_jinja_is_printable(int32_t codepoint); /* str.isprintable; what repr() does not escape */
bool trm_jinja_is_line_end(int32_t codepoint);  /* where str.splitlines breaks; "\r\n" is one break */
bool trm_jinja_is_letter(int32_t codepoint);    /* str.isalpha */
bool trm_jinja_is_decimal(int32_t codepoint);   /* str.isdecimal */
bool trm_jinja_is_digit(int32_t codepoint);     /* str.isdigit */
bool trm_jinja_is_numeric(int32_t codepoint);   /* str.isnumeric */
bool trm_jinja_is_upper(int32_t codepoint);
bool trm_jinja_is_lower(int32_t codepoint);
bool trm_jinja_is_word(int32_t codepoint); /* \w of a regular expression */

typedef enum trm_jinja_case { TRM_JINJA_CASE_UPPER, TRM_JINJA_CASE_LOWER, TRM_JINJA_CASE_TITLE } trm_jinja_case;
/* Appends a character in another case, which may be several characters. */
trm_status trm_jinja_append_cased(trm_bytes *out, int32_t codepoint, trm_jinja_case to);

/* Bytes of white space at the start and at the end of text[size]. */
size_t trm_jinja_leading_space(const char *text, size_t size);
size_t trm_jinja_trailing_space(const char *text, size_t size);

#endif
