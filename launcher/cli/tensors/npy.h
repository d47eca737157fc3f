/*
 * Arrays in files: NumPy's .npy format, little-endian; written in C order.
 */
#ifndef TRM_LAUNCHER_CLI_NPY_H
#define TRM_LAUNCHER_CLI_NPY_H

#include <trireme/types.h>

typedef struct npy_array {
    trm_dtype dtype; /* NumPy calls bf16 V2 */
    trm_dims dims;
    void *data; /* to free() */
} npy_array;

/* TRM_ERROR_IO, TRM_ERROR_INVALID_MODEL (not such a file) or TRM_ERROR_UNSUPPORTED (another type). */
trm_status npy_read(const char *path, npy_array *array);
trm_status npy_write(const char *path, trm_dtype dtype, const trm_dims *dims, const void *data);

#endif
