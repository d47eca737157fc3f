/* The transport over TCP. */
#include "base/error.h"
#include "collectives/transport.h"

trm_status trm_transport_tcp_create(int32_t rank, int32_t size, const char *host, uint16_t port,
                                    double deadline_seconds, trm_transport **transport)
{
    (void)rank;
    (void)deadline_seconds;
    (void)transport;
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%d ranks without MPI, rank 0 at %s:%d, are not supported: use mpirun", (int)size,
             host, (int)port);
}
