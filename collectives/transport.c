/* What all transports share: notices and lifetime. */
#include "collectives/transport.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"

static trm_status fail_with_notice(const trm_transport *transport)
{
    const trm_notice *notice = &transport->notice;
    if (notice->rank == transport->rank) {
        return trm_fail((trm_status)notice->status, "%s", notice->cause);
    }
    return trm_fail(TRM_ERROR_LOST_RANK, "rank %d failed: %s: %s", (int)notice->rank,
                    trm_status_name((trm_status)notice->status), notice->cause);
}

trm_status trm_transport_break(trm_transport *transport, const trm_notice *notice)
{
    if (transport->notice.status == TRM_OK) {
        transport->notice = *notice;
        transport->notice.cause[sizeof(transport->notice.cause) - 1] = '\0';
        if (notice->rank != transport->rank) {
            trm_log(TRM_LOG_ERROR, "rank %d failed: %s: %s", (int)notice->rank,
                    trm_status_name((trm_status)notice->status), transport->notice.cause);
        }
    }
    return fail_with_notice(transport);
}

trm_status trm_transport_lost(trm_transport *transport, int32_t rank, const char *format, ...)
{
    trm_notice notice = {.rank = transport->rank, .status = TRM_ERROR_LOST_RANK};
    int used = snprintf(notice.cause, sizeof(notice.cause), "rank %d ", (int)rank);
    va_list args;
    va_start(args, format);
    vsnprintf(notice.cause + used, sizeof(notice.cause) - (size_t)used, format, args);
    va_end(args);
    return trm_transport_break(transport, &notice);
}

trm_status trm_transport_check(trm_transport *transport)
{
    if (transport->notice.status == TRM_OK) {
        transport->ops->poll(transport);
    }
    return transport->notice.status == TRM_OK ? TRM_OK : fail_with_notice(transport);
}

void trm_transport_retain(trm_transport *transport)
{
    transport->users++;
}

void trm_transport_release(trm_transport *transport)
{
    if (transport != NULL && --transport->users == 0) {
        transport->ops->destroy(transport);
    }
}
