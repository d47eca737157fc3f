/* .npy: "\x93NUMPY", version, length of a header that is a Python dictionary, the elements. */
#include "launcher/cli/tensors/npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

static const struct {
    const char *name;
    trm_dtype dtype;
} types[] = {{"<f4", TRM_F32}, {"<f2", TRM_F16}, {"<V2", TRM_BF16}, {"|V2", TRM_BF16}, {"<f8", TRM_F64},
             {"|i1", TRM_I8},  {"|u1", TRM_U8},  {"<i2", TRM_I16},  {"<u2", TRM_U16},  {"<i4", TRM_I32},
             {"<u4", TRM_U32}, {"<i8", TRM_I64}, {"<u8", TRM_U64},  {"|b1", TRM_BOOL}};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

/* The text after 'key': in the header, or NULL. */
static const char *find_key(const char *header, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof(quoted), "'%s'", key);
    const char *at = strstr(header, quoted);
    if (at == NULL) {
        return NULL;
    }
    at += strlen(quoted);
    at += strspn(at, " ");
    at += *at == ':';
    return at + strspn(at, " ");
}

static trm_status read_header(const char *path, const char *header, npy_array *array, bool *fortran)
{
    const char *descr = find_key(header, "descr"), *order = find_key(header, "fortran_order");
    const char *shape = find_key(header, "shape");
    if (descr == NULL || order == NULL || shape == NULL || descr[0] != '\'' || shape[0] != '(') {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the header has no descr, fortran_order and shape", path);
    }
    *fortran = strncmp(order, "True", 4) == 0;
    size_t length = strcspn(descr + 1, "'");
    for (int i = 0; i < TYPES; i++) {
        if (strlen(types[i].name) == length && strncmp(types[i].name, descr + 1, length) == 0) {
            array->dtype = types[i].dtype;
        }
    }
    if (array->dtype == TRM_DTYPE_NONE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: element type %.*s is not supported", path,
                 (int)(length < 40 ? length : 40), descr + 1);
    }
    for (const char *at = shape + 1; *at != ')';) {
        char *end;
        long long size = strtoll(at, &end, 10);
        if (end == at || size < 0 || array->dims.n == TRM_MAX_DIMS) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the shape is not a list of at most %d sizes", path, TRM_MAX_DIMS);
        }
        array->dims.d[array->dims.n++] = size;
        at = end + strspn(end, ", ");
    }
    return TRM_OK;
}

/* Copies elements whose first axis runs fastest into the order in which the last does. */
static void copy_fortran(const npy_array *array, const unsigned char *from)
{
    const size_t size = trm_dtype_size(array->dtype);
    const int32_t n = array->dims.n;
    int64_t at[TRM_MAX_DIMS] = {0};
    size_t steps[TRM_MAX_DIMS], step = size, place = 0;
    for (int32_t i = 0; i < n; i++) {
        steps[i] = step;
        step *= (size_t)array->dims.d[i];
    }
    for (unsigned char *to = array->data, *end = to + step; to < end; to += size) {
        memcpy(to, from + place, size);
        for (int32_t i = n - 1; i >= 0; i--) {
            place += steps[i];
            if (++at[i] < array->dims.d[i]) {
                break;
            }
            place -= steps[i] * (size_t)at[i];
            at[i] = 0;
        }
    }
}

static trm_status read_bytes(const char *path, const unsigned char *bytes, size_t size, npy_array *array)
{
    if (size < 12 || memcmp(bytes, magic, sizeof(magic)) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s is not a .npy file", path);
    }
    size_t start = bytes[6] >= 2 ? 12 : 10, length = bytes[8] | (size_t)bytes[9] << 8;
    length |= bytes[6] >= 2 ? (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24 : 0;
    if (length > size - start || length > (1 << 20)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the header is truncated", path);
    }
    char *header = strndup((const char *)bytes + start, length);
    if (header == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the header of %s", path);
    }
    bool fortran = false;
    trm_status status = read_header(path, header, array, &fortran);
    free(header);
    TRM_TRY(status);
    size_t expected = trm_dtype_size(array->dtype);
    bool fits = true, empty = false;
    for (int32_t i = 0; i < array->dims.n; i++) {
        empty = empty || array->dims.d[i] == 0;
        fits = fits && (array->dims.d[i] == 0 || trm_checked_mul(expected, (size_t)array->dims.d[i], &expected));
    }
    if (!fits || expected > SIZE_MAX / 4) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s has more elements than memory can hold", path);
    }
    expected = empty ? 0 : expected;
    start += length;
    if (size - start != expected) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s has %zu bytes of elements, expected %zu", path, size - start, expected);
    }
    array->data = malloc(expected + 1);
    if (array->data == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for %s", expected, path);
    }
    if (fortran && expected > 0) {
        copy_fortran(array, bytes + start);
    } else {
        memcpy(array->data, bytes + start, expected);
    }
    return TRM_OK;
}

trm_status npy_read(const char *path, npy_array *array)
{
    trm_mapping mapping;
    *array = (npy_array){0};
    TRM_TRY(trm_file_map(path, &mapping));
    trm_status status = read_bytes(path, mapping.bytes, mapping.size, array);
    trm_file_unmap(&mapping);
    return status;
}

trm_status npy_write(const char *path, trm_dtype dtype, const trm_dims *dims, const void *data)
{
    const char *descr = NULL;
    for (int i = TYPES; i-- > 0;) {
        descr = types[i].dtype == dtype ? types[i].name : descr;
    }
    if (descr == NULL) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: NumPy has no type for %s", path, trm_dtype_name(dtype));
    }
    char header[320];
    size_t bytes = trm_dtype_size(dtype);
    int used = snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int32_t i = 0; i < dims->n; i++) {
        bytes *= (size_t)dims->d[i];
        used += snprintf(header + used, sizeof(header) - (size_t)used, "%lld%s", (long long)dims->d[i],
                         i + 1 < dims->n ? ", "
                         : dims->n == 1  ? ","
                                         : "");
    }
    used += snprintf(header + used, sizeof(header) - (size_t)used, "), }");
    while ((10 + used + 1) % 64 != 0) { /* elements begin at a multiple of 64 */
        header[used++] = ' ';
    }
    header[used++] = '\n';
    unsigned char front[10] = {0, 0, 0, 0, 0, 0, 1, 0, (unsigned char)used, (unsigned char)(used >> 8)};
    memcpy(front, magic, sizeof(magic));
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    bool written = fwrite(front, 1, sizeof(front), file) == sizeof(front) &&
                   fwrite(header, 1, (size_t)used, file) == (size_t)used && fwrite(data, 1, bytes, file) == bytes;
    int cause = errno;
    if (fclose(file) != 0 || !written) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(written ? errno : cause));
    }
    return TRM_OK;
}
