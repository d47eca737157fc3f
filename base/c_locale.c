/* Sets the thread's locale to C for the length of a call. */
#include "base/c_locale.h"

#include <locale.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static locale_t plain; /* (locale_t)0 if it could not be made: calls then use the program's */
static pthread_once_t plain_once = PTHREAD_ONCE_INIT;

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Returns the locale to restore with uselocale. */
static locale_t begin_plain(void)
{
    pthread_once(&plain_once, make_plain);
    return plain == (locale_t)0 ? (locale_t)0 : uselocale(plain);
}

static void end_plain(locale_t before)
{
    if (before != (locale_t)0) {
        uselocale(before);
    }
}

double trm_c_strtod(const char *text, char **end)
{
    locale_t before = begin_plain();
    double number = strtod(text, end);
    end_plain(before);
    return number;
}

size_t trm_c_strftime(char *text, size_t size, const char *format, const struct tm *time)
{
    locale_t before = begin_plain();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t length = strftime(text, size, format, time);
#pragma GCC diagnostic pop
    end_plain(before);
    return length;
}

int trm_c_snprintf(char *text, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    locale_t before = begin_plain();
    int length = vsnprintf(text, size, format, arguments);
    end_plain(before);
    va_end(arguments);
    return length;
}
