/*
 * Tensors of a file as constants of a network.
 *
 * Elements lie in the mapped file, in a file named as external data, or (few of them) in the message. Large ones become
 * weights that view the file; if the file's format differs from memory, they are copied.
 */
#include "graph/import/onnx/model.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/half.h"
#include "graph/import/onnx/protobuf_scan.h"
#include "kernels/small_types.h"
#include "weight_stream/weight_form.h"

#define SMALLEST_VIEW  ((size_t)1024)      /* bytes of what is not copied */
#define LARGEST_SPARSE ((size_t)256 << 20) /* bytes once it is dense: the file holds only a part of them */

trm_status trm_onnx_tensor_check(const Onnx__TensorProto *proto, const char *what, trm_onnx_elements *elements)
{
    trm_onnx_elements result = {.dtype = trm_onnx_dtype(proto->data_type), .count = 1};
    if (result.dtype == TRM_DTYPE_NONE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "tensor %s has element type %s (%d), which is not supported", what,
                 trm_onnx_dtype_name(proto->data_type), (int)proto->data_type);
    }
    if (proto->n_dims > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "tensor %s has %zu dimensions, at most %d are supported", what, proto->n_dims,
                 TRM_MAX_DIMS);
    }
    result.dims.n = (int32_t)proto->n_dims;
    bool fits = true;
    /* Of the dims that are not 0: what strides are made of must be numbers in an empty tensor, too. */
    size_t extent = 1;
    for (size_t i = 0; i < proto->n_dims; i++) {
        if (proto->dims[i] < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s has dimension %lld, expected none below 0", what,
                     (long long)proto->dims[i]);
        }
        result.dims.d[i] = proto->dims[i];
        result.count = proto->dims[i] == 0 ? 0 : result.count;
        fits = fits && (proto->dims[i] == 0 || trm_checked_mul(extent, (size_t)proto->dims[i], &extent));
    }
    size_t bytes;
    if (!fits || !trm_checked_mul(extent, trm_dtype_size(result.dtype), &bytes) || bytes > SIZE_MAX / 4) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s has more elements than memory can hold", what);
    }
    result.count = result.count == 0 ? 0 : extent;
    result.bytes = result.count == 0 ? 0 : bytes;
    const size_t bits = (size_t)trm_element_bits(result.dtype);
    result.stored_count = bits < 8 ? result.count / 8 * bits + (result.count % 8 * bits + 7) / 8 : result.count;
    result.stored_bytes = bits < 8 ? result.stored_count : result.bytes;
    *elements = result;
    return TRM_OK;
}

/* ---- external data ------------------------------------------------------------------------------------- */

/* Below the model's folder, and not through "..". */
static bool is_inside(const char *location)
{
    if (location[0] == '\0' || location[0] == '/') {
        return false;
    }
    for (const char *part = location; part != NULL; part = strchr(part, '/')) {
        part += part[0] == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) {
            return false;
        }
    }
    return true;
}

/* Links are followed, and must not lead out of the folder either. */
static trm_status resolve(const trm_onnx *model, const char *what, const char *location, char path[PATH_MAX])
{
    if (model->folder == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s is in file %s, but the model has no folder", what, location);
    }
    if (!is_inside(location)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s is in file \"%s\", expected one in the model's folder", what,
                 location);
    }
    char joined[PATH_MAX];
    if ((size_t)snprintf(joined, sizeof(joined), "%s/%s", model->folder, location) >= sizeof(joined)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s is in a file whose path is too long", what);
    }
    if (realpath(joined, path) == NULL) {
        const trm_status status = errno == ENOENT || errno == ENOTDIR ? TRM_ERROR_INVALID_MODEL : TRM_ERROR_IO;
        TRM_FAIL(status, "tensor %s: cannot open %s: %s", what, joined, strerror(errno));
    }
    size_t length = strlen(model->folder);
    if (strncmp(path, model->folder, length) != 0 || (path[length] != '/' && model->folder[length - 1] != '/')) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s: file %s leads out of the model's folder", what, location);
    }
    return TRM_OK;
}

/* A file is opened only once, under any name. */
static trm_status open_external(trm_onnx *model, const char *what, const char *location, int32_t *file)
{
    uint32_t index;
    if (trm_map_find(&model->external_names, location, strlen(location), &index)) {
        *file = (int32_t)index;
        return TRM_OK;
    }
    char path[PATH_MAX];
    TRM_TRY(resolve(model, what, location, path));
    bool existing;
    if (trm_map_find(&model->external_names, path, strlen(path), &index)) {
        *file = (int32_t)index;
        return trm_map_add(&model->external_names, location, strlen(location), index, &existing);
    }
    if (model->n_external == model->external_capacity) {
        int32_t wanted = model->external_capacity * 2 + 8;
        trm_weight_file **grown = realloc(model->external, (size_t)wanted * sizeof(trm_weight_file *));
        if (grown == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d files", wanted);
        }
        model->external = grown;
        model->external_capacity = wanted;
    }
    TRM_TRY(trm_weight_file_open(path, location, &model->external[model->n_external]));
    *file = model->n_external++;
    TRM_TRY(trm_map_add(&model->external_names, location, strlen(location), (uint32_t)*file, &existing));
    return trm_map_add(&model->external_names, path, strlen(path), (uint32_t)*file, &existing);
}

static trm_status note_range(trm_onnx *model, trm_onnx_range range)
{
    if (model->n_ranges == model->range_capacity) {
        int32_t wanted = model->range_capacity * 2 + 64;
        trm_onnx_range *grown = realloc(model->ranges, (size_t)wanted * sizeof(*grown));
        if (grown == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %d tensors in files of their own", wanted);
        }
        model->ranges = grown;
        model->range_capacity = wanted;
    }
    model->ranges[model->n_ranges++] = range;
    return TRM_OK;
}

static int compare_ranges(const void *left, const void *right)
{
    const trm_onnx_range *a = left, *b = right;
    return a->file != b->file     ? (a->file > b->file) - (a->file < b->file)
           : a->begin != b->begin ? (a->begin > b->begin) - (a->begin < b->begin)
                                  : (a->end > b->end) - (a->end < b->end);
}

trm_status trm_onnx_check_ranges(trm_onnx *model)
{
    if (model->n_ranges > 0) {
        qsort(model->ranges, (size_t)model->n_ranges, sizeof(*model->ranges), compare_ranges);
    }
    const int32_t n = model->n_ranges;
    model->n_ranges = 0;
    for (int32_t i = 1; i < n; i++) {
        const trm_onnx_range *a = &model->ranges[i - 1], *b = &model->ranges[i];
        if (a->file == b->file && a->end > b->begin && compare_ranges(a, b) != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                     "tensors %s and %s have bytes %zu to %zu and %zu to %zu of %s, expected the same ones or none in "
                     "common",
                     a->tensor, b->tensor, a->begin, a->end, b->begin, b->end,
                     trm_weight_file_name(model->external[a->file]));
        }
    }
    return TRM_OK;
}

static trm_status parse_size(const char *what, const char *key, const char *text, size_t *value)
{
    char *end;
    errno = 0;
    unsigned long long parsed = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s: %s of its external data is \"%s\", expected a number", what, key,
                 text);
    }
    *value = (size_t)parsed;
    return TRM_OK;
}

/* Where the elements lie as they are in memory: file and byte; *file stays NULL where they do not. */
static trm_status locate_external(trm_onnx *model, const Onnx__TensorProto *proto, const char *what,
                                  const trm_onnx_elements *elements, trm_weight_file **file, size_t *begin)
{
    const char *location = NULL;
    size_t offset = 0, length = elements->stored_bytes;
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const char *key = trm_onnx_text(proto->external_data[i]->key);
        const char *value = trm_onnx_text(proto->external_data[i]->value);
        if (strcmp(key, "location") == 0) {
            location = value;
        } else if (strcmp(key, "offset") == 0) {
            TRM_TRY(parse_size(what, key, value, &offset));
        } else if (strcmp(key, "length") == 0) {
            TRM_TRY(parse_size(what, key, value, &length));
        }
    }
    if (location == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s has external data without a location", what);
    }
    if (length != elements->stored_bytes) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s has %zu bytes of external data, expected %zu", what, length,
                 elements->stored_bytes);
    }
    int32_t index;
    TRM_TRY(open_external(model, what, location, &index));
    *file = model->external[index];
    size_t size = trm_weight_file_bytes(*file).size;
    if (offset > size || length > size - offset) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s: bytes %zu to %zu of %s, which has %zu", what, offset,
                 offset + length, location, size);
    }
    *begin = offset;
    return length == 0 ? TRM_OK : note_range(model, (trm_onnx_range){index, offset, offset + length, what});
}

/* ---- in the model's own file --------------------------------------------------------------------------- */

static trm_status wrong_count(const char *what, size_t found, size_t expected)
{
    return trm_fail(TRM_ERROR_INVALID_MODEL, "tensor %s has %zu elements, expected %zu", what, found, expected);
}

static trm_status wrong_field(const char *what, const trm_onnx_elements *elements)
{
    return trm_fail(TRM_ERROR_INVALID_MODEL, "tensor %s of type %s has its elements in the field of another type", what,
                    trm_dtype_name(elements->dtype));
}

/* Whether the field holds elements of this type, and as they are in memory. */
static bool field_is_plain(uint32_t field, trm_dtype dtype)
{
    return field == TRM_ONNX_RAW_DATA || (field == TRM_ONNX_FLOAT_DATA && dtype == TRM_F32) ||
           (field == TRM_ONNX_DOUBLE_DATA && dtype == TRM_F64);
}

static bool field_is_number(uint32_t field, trm_dtype dtype)
{
    switch (dtype) {
    case TRM_I8:
    case TRM_U8:
    case TRM_I16:
    case TRM_U16:
    case TRM_I32:
    case TRM_BOOL:
    case TRM_F16:
    case TRM_BF16:
    case TRM_F8E4M3:
    case TRM_F8E4M3FNUZ:
    case TRM_F8E5M2:
    case TRM_F8E5M2FNUZ:
    case TRM_F8E8M0:
    case TRM_F4E2M1:
    case TRM_F6E2M3:
    case TRM_F6E3M2:
    case TRM_I4:
    case TRM_U4:
    case TRM_I2:
    case TRM_U2:
        return field == TRM_ONNX_INT32_DATA;
    case TRM_I64:
        return field == TRM_ONNX_INT64_DATA;
    case TRM_U32:
    case TRM_U64:
        return field == TRM_ONNX_UINT64_DATA;
    default:
        return false;
    }
}

static trm_status locate_stored(trm_onnx *model, const Onnx__TensorProto *proto, const char *what,
                                const trm_onnx_elements *elements, trm_weight_file **file, size_t *begin)
{
    if (!field_is_plain(proto->stored_field, elements->dtype)) {
        return field_is_number(proto->stored_field, elements->dtype) ? TRM_OK : wrong_field(what, elements);
    }
    if (proto->stored_size != elements->stored_bytes) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s has %zu bytes, expected %zu", what, (size_t)proto->stored_size,
                 elements->stored_bytes);
    }
    *file = model->file;
    *begin = (size_t)proto->stored_begin;
    return TRM_OK;
}

static trm_status locate(trm_onnx *model, const Onnx__TensorProto *proto, const char *what,
                         const trm_onnx_elements *elements, trm_weight_file **file, size_t *begin)
{
    *file = NULL;
    if (proto->data_location == 1) {
        return locate_external(model, proto, what, elements, file, begin);
    }
    if (proto->data_location != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "tensor %s has its data at location %d, expected 0 or 1", what,
                 (int)proto->data_location);
    }
    return proto->has_stored_field ? locate_stored(model, proto, what, elements, file, begin) : TRM_OK;
}

/* ---- copying ------------------------------------------------------------------------------------------- */

static void store_number(trm_dtype dtype, size_t index, uint64_t value, void *to)
{
    switch (trm_dtype_size(dtype)) {
    case 1:
        ((uint8_t *)to)[index] = (uint8_t)value;
        break;
    case 2:
        ((uint16_t *)to)[index] = (uint16_t)value;
        break;
    case 4:
        ((uint32_t *)to)[index] = (uint32_t)value;
        break;
    default:
        ((uint64_t *)to)[index] = value;
        break;
    }
}

/* Numbers that stayed in the file, each as long as it needs to be. */
static trm_status read_varints(const trm_onnx *model, const Onnx__TensorProto *proto, const char *what,
                               const trm_onnx_elements *elements, void *to)
{
    const uint8_t *bytes = trm_weight_file_bytes(model->file).bytes + proto->stored_begin;
    size_t at = 0, size = (size_t)proto->stored_size, count = 0;
    for (; at < size; count++) {
        uint64_t value;
        if (!trm_onnx_read_varint(bytes, size, &at, &value)) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s: element %zu is cut off", what, count);
        }
        if (count < elements->stored_count) {
            store_number(elements->dtype, count, value, to);
        }
    }
    return count == elements->stored_count ? TRM_OK : wrong_count(what, count, elements->stored_count);
}

/* Elements in the message. */
static trm_status read_inline(const Onnx__TensorProto *proto, const char *what, const trm_onnx_elements *elements,
                              void *to)
{
    if (proto->has_raw_data) {
        if (proto->raw_data.len != elements->stored_bytes) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s has %zu bytes, expected %zu", what, proto->raw_data.len,
                     elements->stored_bytes);
        }
        if (elements->stored_bytes > 0) {
            memcpy(to, proto->raw_data.data, elements->stored_bytes);
        }
        return TRM_OK;
    }
    trm_dtype dtype = elements->dtype;
    const void *plain = dtype == TRM_F32 ? (const void *)proto->float_data : proto->double_data;
    size_t count = dtype == TRM_F32 ? proto->n_float_data : dtype == TRM_F64 ? proto->n_double_data : 0;
    bool i32 = field_is_number(TRM_ONNX_INT32_DATA, dtype), i64 = field_is_number(TRM_ONNX_INT64_DATA, dtype);
    bool u64 = field_is_number(TRM_ONNX_UINT64_DATA, dtype);
    count = i32 ? proto->n_int32_data : i64 ? proto->n_int64_data : u64 ? proto->n_uint64_data : count;
    if (count != elements->stored_count) {
        return wrong_count(what, count, elements->stored_count);
    }
    for (size_t i = 0; i < count; i++) {
        if (i32) {
            store_number(dtype, i, (uint64_t)(int64_t)proto->int32_data[i], to);
        } else if (i64) {
            store_number(dtype, i, (uint64_t)proto->int64_data[i], to);
        } else if (u64) {
            store_number(dtype, i, proto->uint64_data[i], to);
        }
    }
    if (!i32 && !i64 && !u64 && count > 0) {
        memcpy(to, plain, elements->stored_bytes);
    }
    return TRM_OK;
}

/* Elements of fewer than 8 bits, packed from the low bits on at the beginning of `to`, each into a byte of its own.
 * From the last to the first, none is overwritten before it is read. */
static void unpack(const trm_onnx_elements *elements, uint8_t *to)
{
    const size_t bits = (size_t)trm_element_bits(elements->dtype);
    if (bits >= 8) {
        return;
    }
    const bool has_sign = elements->dtype == TRM_I4 || elements->dtype == TRM_I2;
    const unsigned mask = (1u << bits) - 1, sign = 1u << (bits - 1);
    for (size_t i = elements->count; i-- > 0;) {
        const size_t at = i / 8 * bits + i % 8 * bits / 8, shift = i % 8 * bits % 8;
        unsigned value = to[at];
        if (shift + bits > 8) {
            value |= (unsigned)to[at + 1] << 8;
        }
        value = value >> shift & mask;
        to[i] = (uint8_t)(has_sign ? (value ^ sign) - sign : value);
    }
}

trm_status trm_onnx_tensor_read(trm_onnx *model, const Onnx__TensorProto *proto, const char *what,
                                const trm_onnx_elements *elements, void *to)
{
    trm_weight_file *file = NULL;
    size_t begin = 0;
    TRM_TRY(locate(model, proto, what, elements, &file, &begin));
    if (file != NULL) {
        if (elements->bytes > 0) {
            memcpy(to, trm_weight_file_bytes(file).bytes + begin, elements->stored_bytes);
        }
    } else if (proto->has_stored_field) {
        TRM_TRY(read_varints(model, proto, what, elements, to));
    } else {
        TRM_TRY(read_inline(proto, what, elements, to));
    }
    unpack(elements, to);
    for (size_t i = 0; elements->dtype == TRM_BOOL && i < elements->count; i++) {
        ((uint8_t *)to)[i] = ((uint8_t *)to)[i] != 0; /* kernels count on it */
    }
    return TRM_OK;
}

bool trm_onnx_tensor_is_there(const Onnx__TensorProto *proto, const trm_onnx_elements *elements)
{
    const size_t counts[] = {proto->has_stored_field ? (size_t)proto->stored_size : 0,
                             proto->raw_data.len,
                             proto->n_float_data,
                             proto->n_double_data,
                             proto->n_int32_data,
                             proto->n_int64_data,
                             proto->n_uint64_data};
    size_t most = 0;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        most = counts[i] > most ? counts[i] : most;
    }
    return elements->stored_count <= most || proto->data_location == 1;
}

static bool is_initializer(const Onnx__GraphProto *graph, const Onnx__TensorProto *proto)
{
    bool is = false;
    for (size_t i = 0; i < graph->n_initializer && !is; i++) {
        is = graph->initializer[i] == proto;
    }
    return is;
}

trm_status trm_onnx_tensor_add(trm_onnx *model, const Onnx__TensorProto *proto, const char *name, trm_network *network,
                               trm_tensor **tensor)
{
    trm_onnx_elements elements;
    trm_weight_file *file = NULL;
    size_t begin = 0;
    TRM_TRY(trm_onnx_tensor_check(proto, name, &elements));
    TRM_TRY(locate(model, proto, name, &elements, &file, &begin));
    bool plain = file != NULL && elements.dtype != TRM_BOOL && elements.stored_bytes == elements.bytes;
    bool refits = network->refittable && trm_dtype_is_float(elements.dtype) && elements.count > 1 &&
                  is_initializer(model->graph, proto);
    if (refits && !plain) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "tensor %s cannot be refittable: it is not stored in the memory format of %s",
                 name, trm_dtype_name(elements.dtype));
    }
    if (plain && (refits || elements.bytes >= SMALLEST_VIEW)) {
        trm_weight *weight;
        TRM_TRY(trm_weight_from_file(file, begin, name, elements.dtype, &elements.dims, &weight));
        return trm_network_add_weight(network, name, weight, elements.dtype, tensor);
    }
    if (file == NULL && !trm_onnx_tensor_is_there(proto, &elements)) {
        return wrong_count(name, 0, elements.count);
    }
    void *copy = calloc(1, elements.bytes > 0 ? elements.bytes : 1);
    if (copy == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "tensor %s: cannot allocate %zu bytes of host memory", name, elements.bytes);
    }
    trm_status status = trm_onnx_tensor_read(model, proto, name, &elements, copy);
    if (status == TRM_OK) {
        status = trm_network_add_constant(network, name, elements.dtype, elements.dims, copy, tensor);
    }
    free(copy);
    return status;
}

trm_status trm_onnx_find_weight(trm_onnx *model, const char *name, trm_weight **weight)
{
    const Onnx__TensorProto *proto = NULL;
    for (size_t i = 0; i < model->graph->n_initializer && proto == NULL; i++) {
        const Onnx__TensorProto *initializer = model->graph->initializer[i];
        proto = strcmp(trm_onnx_text(initializer->name), name) == 0 ? initializer : NULL;
    }
    size_t length = strlen(name), end = sizeof("/value") - 1;
    bool of_node = length > end && strcmp(name + length - end, "/value") == 0;
    for (size_t i = 0; of_node && i < model->graph->n_node && proto == NULL; i++) { /* named after their output */
        const Onnx__NodeProto *node = model->graph->node[i];
        bool named = strcmp(trm_onnx_text(node->op_type), "Constant") == 0 && node->n_output == 1 &&
                     strlen(node->output[0]) == length - end && strncmp(node->output[0], name, length - end) == 0;
        for (size_t k = 0; named && k < node->n_attribute && proto == NULL; k++) {
            bool is_value = strcmp(trm_onnx_text(node->attribute[k]->name), "value") == 0;
            proto = is_value ? node->attribute[k]->t : NULL;
        }
    }
    *weight = NULL;
    if (proto == NULL) {
        return TRM_OK;
    }
    trm_onnx_elements elements;
    trm_weight_file *file = NULL;
    size_t begin = 0;
    TRM_TRY(trm_onnx_tensor_check(proto, name, &elements));
    TRM_TRY(locate(model, proto, name, &elements, &file, &begin));
    if (file == NULL || elements.dtype == TRM_BOOL || elements.stored_bytes != elements.bytes) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: tensor %s is not stored in the memory format of %s", model->path, name,
                 trm_dtype_name(elements.dtype));
    }
    return trm_weight_from_file(file, begin, name, elements.dtype, &elements.dims, weight);
}

/* ---- sparse -------------------------------------------------------------------------------------------- */

/* The position in the dense tensor that row `i` of the indices means: indices [n] of flattened elements, or [n, rank].
 */
static trm_status sparse_position(const int64_t *indices, size_t i, bool flat, const trm_onnx_elements *dense,
                                  const char *name, size_t *position)
{
    size_t result = 0;
    int32_t rank = flat ? 1 : dense->dims.n;
    for (int32_t axis = 0; axis < rank; axis++) {
        int64_t size = flat ? (int64_t)dense->count : dense->dims.d[axis];
        int64_t index = indices[i * (size_t)rank + (size_t)axis];
        if (index < 0 || index >= size) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "sparse tensor %s has index %lld, expected 0 to %lld", name,
                     (long long)index, (long long)size - 1);
        }
        result = result * (size_t)size + (size_t)index;
    }
    *position = result;
    return TRM_OK;
}

static trm_status fill_sparse(trm_onnx *model, const Onnx__SparseTensorProto *proto, const char *name,
                              const trm_onnx_elements *dense, unsigned char *to)
{
    trm_onnx_elements values, where;
    TRM_TRY(trm_onnx_tensor_check(proto->values, name, &values));
    TRM_TRY(trm_onnx_tensor_check(proto->indices, name, &where));
    bool flat = where.dims.n == 1;
    size_t width = flat ? 1 : (size_t)dense->dims.n, expected;
    if (where.dtype != TRM_I64 || where.dims.n < 1 || where.dims.n > 2 ||
        !trm_checked_mul(values.count, width, &expected) || where.count != expected) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "sparse tensor %s has indices that do not fit its values", name);
    }
    if (!trm_onnx_tensor_is_there(proto->values, &values) || !trm_onnx_tensor_is_there(proto->indices, &where)) {
        return wrong_count(name, 0, values.count);
    }
    size_t size = trm_dtype_size(values.dtype);
    unsigned char *elements = calloc(values.bytes + 1, 1);
    int64_t *indices = calloc(where.bytes + 8, 1);
    trm_status status = TRM_OK;
    if (elements == NULL || indices == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "sparse tensor %s: cannot allocate host memory", name);
        goto out;
    }
    TRM_TRY_GOTO(status, trm_onnx_tensor_read(model, proto->values, name, &values, elements), out);
    TRM_TRY_GOTO(status, trm_onnx_tensor_read(model, proto->indices, name, &where, indices), out);
    for (size_t i = 0; i < values.count; i++) {
        size_t position = 0;
        TRM_TRY_GOTO(status, sparse_position(indices, i, flat, dense, name, &position), out);
        memcpy(to + position * size, elements + i * size, size);
    }
out:
    free(elements);
    free(indices);
    return status;
}

trm_status trm_onnx_sparse_tensor_add(trm_onnx *model, const Onnx__SparseTensorProto *proto, const char *name,
                                      trm_network *network, trm_tensor **tensor)
{
    if (proto->values == NULL || proto->indices == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "sparse tensor %s has no values or no indices", name);
    }
    Onnx__TensorProto like = *proto->values; /* type of the values, dims of the whole */
    like.dims = proto->dims;
    like.n_dims = proto->n_dims;
    trm_onnx_elements dense;
    TRM_TRY(trm_onnx_tensor_check(&like, name, &dense));
    if (dense.bytes > LARGEST_SPARSE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "sparse tensor %s takes %zu MiB, at most %zu are supported", name,
                 dense.bytes >> 20, LARGEST_SPARSE >> 20);
    }
    unsigned char *copy = calloc(dense.bytes + 1, 1);
    if (copy == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "sparse tensor %s: cannot allocate %zu bytes of host memory", name,
                 dense.bytes);
    }
    trm_status status = fill_sparse(model, proto, name, &dense, copy);
    if (status == TRM_OK) {
        status = trm_network_add_constant(network, name, dense.dtype, dense.dims, copy, tensor);
    }
    free(copy);
    return status;
}
