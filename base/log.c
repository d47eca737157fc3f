/* The logging callback. */
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

static trm_log_fn log_fn;
static void *log_user;
static trm_log_level log_level;

void trm_log_set(trm_log_fn fn, void *user, trm_log_level level)
{
    log_fn = fn;
    log_user = user;
    log_level = level;
}

void trm_log(trm_log_level level, const char *format, ...)
{
    if (log_fn == NULL || level > log_level) {
        return;
    }
    char message[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    log_fn(log_user, level, message);
}
