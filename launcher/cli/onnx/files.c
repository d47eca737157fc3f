/* Files of one tensor: .npy, .pb, and raw elements as trtexec reads and writes them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "launcher/cli/onnx/job.h"
#include "launcher/cli/tensors/npy.h"

static bool ends_in(const char *file, const char *ending)
{
    const size_t length = strlen(file), own = strlen(ending);
    return length > own && strcmp(file + length - own, ending) == 0;
}

/* Elements alone, without type and dims. */
static bool is_raw(const char *file)
{
    return ends_in(file, ".bin") || ends_in(file, ".raw") || ends_in(file, ".dat");
}

/* A block with room for `bytes` of elements behind the value. */
static trm_status new_block(const char *file, size_t bytes, trm_onnx_fixed_value **block)
{
    size_t all;
    *block = trm_checked_add(sizeof(**block), bytes, &all) ? malloc(all) : NULL;
    if (*block == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for %s", bytes, file);
    }
    **block = (trm_onnx_fixed_value){.data = *block + 1};
    return TRM_OK;
}

/* The dims of `bytes` of elements: one that is not known follows from their number. */
static trm_status raw_dims(const char *file, const trm_onnx_port *port, size_t bytes, trm_dims *dims)
{
    size_t known = trm_dtype_size(port->dtype);
    int32_t open = -1, n_open = 0;
    bool fits = true;
    *dims = port->dims;
    for (int32_t i = 0; i < dims->n; i++) {
        open = dims->d[i] < 0 ? i : open;
        n_open += dims->d[i] < 0;
        fits = fits && (dims->d[i] < 0 || trm_checked_mul(known, (size_t)dims->d[i], &known));
    }
    if (!port->has_dims || port->dtype == TRM_DTYPE_NONE || n_open > (known > 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s holds raw elements, and the dims of %s are not known: give its dims",
                 file, port->name);
    }
    if (open >= 0) {
        dims->d[open] = (int64_t)(bytes / known);
        fits = fits && trm_checked_mul(known, (size_t)dims->d[open], &known);
    }
    if (!fits || known != bytes) {
        char text[160];
        onnx_dims_text(&port->dims, text, sizeof(text));
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has %zu bytes of elements, expected %s of dims %s for %s", file, bytes,
                 trm_dtype_name(port->dtype), text, port->name);
    }
    return TRM_OK;
}

static trm_status read_raw(const char *file, const trm_onnx_port *port, trm_onnx_fixed_value **value)
{
    trm_mapping mapping;
    trm_dims dims;
    TRM_TRY(trm_file_map(file, &mapping));
    trm_status status = raw_dims(file, port, mapping.size, &dims);
    if (status == TRM_OK) {
        status = new_block(file, mapping.size, value);
    }
    if (status == TRM_OK) {
        (*value)->dtype = port->dtype;
        (*value)->dims = dims;
        memcpy(*value + 1, mapping.bytes, mapping.size);
    }
    trm_file_unmap(&mapping);
    return status;
}

static trm_status read_numpy(const char *file, trm_onnx_fixed_value **value)
{
    npy_array array;
    TRM_TRY(npy_read(file, &array));
    size_t bytes = trm_dtype_size(array.dtype);
    for (int32_t i = 0; i < array.dims.n; i++) {
        bytes *= (size_t)array.dims.d[i];
    }
    const trm_status status = new_block(file, bytes, value);
    if (status == TRM_OK) {
        (*value)->dtype = array.dtype;
        (*value)->dims = array.dims;
        memcpy(*value + 1, array.data, bytes);
    }
    free(array.data);
    return status;
}

trm_status onnx_read_file(const char *file, const trm_onnx_port *port, trm_onnx_fixed_value **values, int32_t *n)
{
    *n = 1;
    return is_raw(file)            ? read_raw(file, port, values)
           : ends_in(file, ".npy") ? read_numpy(file, values)
                                   : trm_onnx_read_value(file, port->type, values, n);
}

static trm_status write_raw(const char *file, const void *data, size_t bytes)
{
    FILE *to = fopen(file, "wb");
    if (to == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", file, strerror(errno));
    }
    const bool written = fwrite(data, 1, bytes, to) == bytes;
    const int cause = errno;
    if (fclose(to) != 0 || !written) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", file, strerror(written ? errno : cause));
    }
    return TRM_OK;
}

trm_status onnx_write_file(const char *file, trm_dtype dtype, const trm_dims *dims, const void *data)
{
    size_t bytes = trm_dtype_size(dtype);
    for (int32_t i = 0; i < dims->n; i++) {
        bytes *= (size_t)dims->d[i];
    }
    return is_raw(file) ? write_raw(file, data, bytes) : npy_write(file, dtype, dims, data);
}
