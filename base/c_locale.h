/*
 * Numbers and dates in the C locale. A program that embeds the library may have set a locale with a decimal comma, so
 * all text for files, other programs and models is written and read with these.
 */
#ifndef TRM_BASE_C_LOCALE_H
#define TRM_BASE_C_LOCALE_H

#include <stddef.h>
#include <time.h>

#include <trireme/status.h>

double trm_c_strtod(const char *text, char **end);
int trm_c_snprintf(char *text, size_t size, const char *format, ...) TRM_PRINTF(3, 4);
size_t trm_c_strftime(char *text, size_t size, const char *format, const struct tm *time);

#endif
