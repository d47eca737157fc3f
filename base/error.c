/* The error record and the names of statuses. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char record[TRM_CAUSE_SIZE];

trm_status trm_fail(trm_status status, const char *format, ...)
{
    char cause[TRM_CAUSE_SIZE]; /* the arguments may point into the record */
    va_list args;
    va_start(args, format);
    if (vsnprintf(cause, sizeof(cause), format, args) < 0) {
        cause[0] = '\0';
    }
    va_end(args);
    memcpy(record, cause, strlen(cause) + 1);
    return status;
}

void trm_error_hold(trm_status status, trm_held_error *held)
{
    held->status = status;
    if (status != TRM_OK) {
        memcpy(held->cause, record, sizeof(record));
    }
}

trm_status trm_error_give_back(const trm_held_error *held)
{
    if (held->status != TRM_OK) {
        memcpy(record, held->cause, sizeof(record));
    }
    return held->status;
}

trm_status trm_fail_in(trm_status status, const char *format, ...)
{
    char cause[TRM_CAUSE_SIZE];
    memcpy(cause, record, sizeof(cause));
    cause[TRM_CAUSE_SIZE - 1] = '\0';
    va_list args;
    va_start(args, format);
    int used = vsnprintf(record, sizeof(record), format, args);
    va_end(args);
    if (used < 0) {
        used = 0;
    }
    size_t at = (size_t)used < sizeof(record) ? (size_t)used : sizeof(record) - 1;
    for (const char *part = ": "; *part != '\0' && at + 1 < sizeof(record); part++) {
        record[at++] = *part;
    }
    size_t rest = strnlen(cause, sizeof(record) - at - 1);
    memcpy(record + at, cause, rest);
    record[at + rest] = '\0';
    return status;
}

const char *trm_last_error(void)
{
    return record;
}

const char *trm_status_name(trm_status status)
{
    static const char *const names[] = {
        [TRM_OK] = "ok",
        [TRM_ERROR_INTERNAL] = "internal error",
        [TRM_ERROR_INVALID_ARGUMENT] = "invalid argument",
        [TRM_ERROR_INVALID_MODEL] = "invalid model",
        [TRM_ERROR_UNSUPPORTED] = "unsupported",
        [TRM_ERROR_IO] = "input/output error",
        [TRM_ERROR_NO_DEVICE] = "no device",
        [TRM_ERROR_OUT_OF_MEMORY] = "out of memory",
        [TRM_ERROR_LOST_RANK] = "lost rank",
        [TRM_ERROR_CANCELLED] = "cancelled",
        [TRM_ERROR_BUSY] = "busy",
    };
    if ((unsigned)status >= sizeof(names) / sizeof(names[0])) {
        return "unknown status";
    }
    return names[status];
}

int trm_status_exit_code(trm_status status)
{
    switch (status) {
    case TRM_OK:
        return 0;
    case TRM_ERROR_INVALID_ARGUMENT:
        return 2;
    case TRM_ERROR_INVALID_MODEL:
    case TRM_ERROR_UNSUPPORTED:
        return 3;
    case TRM_ERROR_NO_DEVICE:
        return 4;
    case TRM_ERROR_OUT_OF_MEMORY:
        return 5;
    case TRM_ERROR_LOST_RANK:
        return 6;
    case TRM_ERROR_INTERNAL:
    case TRM_ERROR_IO:
    case TRM_ERROR_CANCELLED:
    case TRM_ERROR_BUSY:
        break;
    }
    return 1;
}
