/* Builds without CUDA, or without NCCL's header, have no NCCL; see collectives/cuda/nccl.c for the others. */
#include "collectives/communicator.h"

#if !TRM_HAVE_CUDA || !__has_include(<nccl.h>)

#include <stdio.h>

#include "base/error.h"

static const char *const no_nccl =
    TRM_HAVE_CUDA ? "this build has no NCCL: nccl.h was not found" : "this build has no CUDA backend, and so no NCCL";

trm_status trm_nccl_make_id(unsigned char id[TRM_NCCL_ID_SIZE])
{
    (void)id;
    TRM_FAIL(TRM_ERROR_NO_DEVICE, "%s", no_nccl);
}

trm_status trm_communicator_nccl_create(trm_device *device, const unsigned char id[TRM_NCCL_ID_SIZE], int32_t rank,
                                        int32_t size, double deadline_seconds, trm_communicator **communicator)
{
    (void)device;
    (void)id;
    (void)rank;
    (void)size;
    (void)deadline_seconds;
    (void)communicator;
    TRM_FAIL(TRM_ERROR_NO_DEVICE, "%s", no_nccl);
}

int32_t trm_nccl_version(char *path, size_t size)
{
    snprintf(path, size, "%s", no_nccl);
    return 0;
}

#endif

#if !TRM_HAVE_CUDA
#include <stdio.h>

trm_status trm_communicator_peer_create(trm_device *device, trm_communicator *host, trm_communicator *inner,
                                        trm_communicator **communicator, char *why, size_t why_size)
{
    (void)device;
    (void)host;
    *communicator = inner;
    snprintf(why, why_size, "this build has no CUDA backend");
    return TRM_OK;
}
#endif
