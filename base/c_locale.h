/*
 * Numbers and dates as the C locale has them: a program that embeds the library may have set another, with a comma for
 * a point. What a file, another program or a model reads goes through these.
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
