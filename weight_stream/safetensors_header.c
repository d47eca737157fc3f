/* The header of a safetensors file. */
#include "weight_stream/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"

static const struct {
    const char *name;
    size_t bits;
    trm_dtype dtype;
} types[] = {
    {"F32", 32, TRM_F32},
    {"F16", 16, TRM_F16},
    {"BF16", 16, TRM_BF16},
    {"F64", 64, TRM_F64},
    {"I8", 8, TRM_I8},
    {"U8", 8, TRM_U8},
    {"I16", 16, TRM_I16},
    {"U16", 16, TRM_U16},
    {"I32", 32, TRM_I32},
    {"U32", 32, TRM_U32},
    {"I64", 64, TRM_I64},
    {"U64", 64, TRM_U64},
    {"BOOL", 8, TRM_BOOL},
    {"F8_E4M3", 8, TRM_F8E4M3},
    {"F8_E5M2", 8, TRM_DTYPE_NONE},
    {"F8_E8M0", 8, TRM_DTYPE_NONE},
    {"F8_E4M3FNUZ", 8, TRM_DTYPE_NONE},
    {"F8_E5M2FNUZ", 8, TRM_DTYPE_NONE},
    {"F6_E2M3", 6, TRM_DTYPE_NONE},
    {"F6_E3M2", 6, TRM_DTYPE_NONE},
    {"F4", 4, TRM_DTYPE_NONE},
    {"C64", 64, TRM_DTYPE_NONE},
};

bool trm_safetensors_name_is_plain(const char *name)
{
    size_t length = 0;
    for (; name[length] != '\0' && length <= TRM_SAFETENSORS_NAME_LIMIT; length++) {
        if ((unsigned char)name[length] < 0x20 || name[length] == 0x7f) {
            return false;
        }
    }
    return length <= TRM_SAFETENSORS_NAME_LIMIT;
}

static trm_status read_type(const char *file, const trm_json *value, trm_safetensors_entry *entry, size_t *bits)
{
    const char *type = trm_json_string(trm_json_get(value, "dtype"));
    if (type == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tensor %s has no dtype", file, entry->name);
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(types[i].name, type) == 0) {
            entry->type_name = types[i].name;
            entry->dtype = types[i].dtype;
            *bits = types[i].bits;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tensor %s has unknown dtype %.32s", file, entry->name,
             trm_safetensors_name_is_plain(type) ? type : "(unprintable)");
}

static trm_status read_shape(const char *file, const trm_json *value, trm_safetensors_entry *entry, size_t bits,
                             size_t *bytes)
{
    const trm_json *shape = trm_json_get(value, "shape");
    if (!trm_json_is_array(shape)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tensor %s has no shape", file, entry->name);
    }
    size_t rank = trm_json_count(shape), elements = 1, total;
    if (rank > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: tensor %s has %zu dimensions, at most %d are supported", file, entry->name,
                 rank, TRM_MAX_DIMS);
    }
    bool fits = true;
    for (const trm_json *dim = trm_json_first(shape); dim != NULL; dim = trm_json_next(dim)) {
        int64_t length;
        if (!trm_json_integer(dim, &length) || length < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: dimension %d of tensor %s is not a whole number of 0 or more", file,
                     entry->dims.n, entry->name);
        }
        entry->dims.d[entry->dims.n++] = length;
        fits = fits && trm_checked_mul(elements, (size_t)length, &elements);
    }
    if (!fits || !trm_checked_mul(elements, bits, &total)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the shape of tensor %s overflows", file, entry->name);
    }
    if (total % 8 != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tensor %s of %s ends inside a byte", file, entry->name,
                 entry->type_name);
    }
    *bytes = total / 8;
    return TRM_OK;
}

/* `data` is where offset 0 is in the file of `size` bytes. */
static trm_status read_entry(const char *file, const trm_json *value, size_t data, size_t size,
                             trm_safetensors_entry *entry)
{
    if (!trm_safetensors_name_is_plain(entry->name)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the name of a tensor has control characters or more than %d bytes", file,
                 TRM_SAFETENSORS_NAME_LIMIT);
    }
    if (!trm_json_is_object(value)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tensor %s is not an object", file, entry->name);
    }
    size_t bits = 0, bytes = 0;
    TRM_TRY(read_type(file, value, entry, &bits));
    TRM_TRY(read_shape(file, value, entry, bits, &bytes));
    const trm_json *offsets = trm_json_get(value, "data_offsets");
    int64_t begin, end;
    if (trm_json_count(offsets) != 2 || !trm_json_integer(trm_json_at(offsets, 0), &begin) ||
        !trm_json_integer(trm_json_at(offsets, 1), &end) || begin < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tensor %s has no data_offsets of two whole numbers", file, entry->name);
    }
    if (end < begin) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tensor %s ends at offset %lld, before its begin at %lld", file,
                 entry->name, (long long)end, (long long)begin);
    }
    if ((uint64_t)end > size - data) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "%s: tensor %s ends at offset %lld, but the file has %zu bytes after its header; is it truncated?",
                 file, entry->name, (long long)end, size - data);
    }
    if ((uint64_t)(end - begin) != bytes) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tensor %s has %lld bytes, its shape and dtype %s need %zu", file,
                 entry->name, (long long)(end - begin), entry->type_name, bytes);
    }
    entry->begin = data + (size_t)begin;
    entry->end = data + (size_t)end;
    return TRM_OK;
}

static int by_place(const void *left, const void *right)
{
    const trm_safetensors_entry *a = left, *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    if (a->end != b->end) {
        return a->end < b->end ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* The tensors must fill the file, one after the other. */
static trm_status check_places(const char *file, const trm_safetensors_entry *entries, size_t count, size_t data,
                               size_t size)
{
    size_t at = data;
    for (size_t i = 0; i < count; i++) {
        const trm_safetensors_entry *entry = &entries[i];
        if (entry->begin < at) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tensors %s and %s overlap at offset %zu", file, entries[i - 1].name,
                     entry->name, entry->begin - data);
        }
        if (entry->begin > at) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: %zu bytes before tensor %s belong to no tensor", file,
                     entry->begin - at, entry->name);
        }
        at = entry->end;
    }
    if (at != size) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: %zu bytes at the end belong to no tensor", file, size - at);
    }
    return TRM_OK;
}

static trm_status read_entries(const char *file, const trm_json *root, size_t data, size_t size, trm_arena *arena,
                               trm_safetensors_entry **entries, size_t *count)
{
    if (!trm_json_is_object(root)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the header is not a JSON object", file);
    }
    trm_safetensors_entry *list = trm_arena_array(arena, trm_json_count(root), sizeof(*list));
    if (list == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    size_t n = 0;
    for (const trm_json *member = trm_json_first(root); member != NULL; member = trm_json_next(member)) {
        if (strcmp(trm_json_key(member), "__metadata__") == 0) {
            continue;
        }
        list[n].name = trm_arena_strdup(arena, trm_json_key(member));
        if (list[n].name == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        TRM_TRY(read_entry(file, member, data, size, &list[n]));
        n++;
    }
    qsort(list, n, sizeof(*list), by_place);
    TRM_TRY(check_places(file, list, n, data, size));
    *entries = list;
    *count = n;
    return TRM_OK;
}

trm_status trm_safetensors_header_read(const char *name, const unsigned char *bytes, size_t size, trm_arena *arena,
                                       trm_safetensors_entry **entries, size_t *count)
{
    if (size < 8) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the file has %zu bytes, a safetensors file has 8 or more", name, size);
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) {
        length = length << 8 | bytes[i];
    }
    if (length > TRM_SAFETENSORS_HEADER_LIMIT) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the header has %llu bytes, more than the limit of %zu", name,
                 (unsigned long long)length, TRM_SAFETENSORS_HEADER_LIMIT);
    }
    if (length > size - 8) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "%s: the header has %llu bytes, but the file has %zu after its length; is it "
                 "truncated?",
                 name, (unsigned long long)length, size - 8);
    }
    trm_json_document *document;
    TRM_TRY(trm_json_parse(name, (const char *)bytes + 8, (size_t)length, &document));
    trm_status status = read_entries(name, trm_json_root(document), 8 + (size_t)length, size, arena, entries, count);
    trm_json_close(document);
    return status;
}
