/*
 * Memory of other processes, and copies from any thread: for servers whose clients pass tensors on the device.
 */
#ifndef TRM_KERNELS_DEVICE_IMPORT_H
#define TRM_KERNELS_DEVICE_IMPORT_H

#include <trireme/mesh.h>

#include "kernels/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of this device that another process of this machine allocated and exported: `handle`, TRM_MEMORY_HANDLE_BYTES,
 * is its cudaIpcMemHandle_t. `size` bytes must lie in the allocation, which stays while it is imported, whatever
 * becomes of the other process. Errors: UNSUPPORTED on the host, INVALID_ARGUMENT (no such memory, or it is smaller).
 */
trm_status trm_device_import(trm_device *device, const void *handle, size_t size, void **memory);
void trm_device_release(trm_device *device, void *memory); /* accepts NULL */
/* Copies between host and device memory, in any direction, and waits. Any thread may call it at any time. */
trm_status trm_device_copy(trm_device *device, const trm_memory_copy *copies, int32_t n);

#ifdef __cplusplus
}
#endif
#endif
