/* Plan files as bytes: header, checksums, and the check of a message before it is unpacked. */
#include "dist/plan/file.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"

#define SAMPLE_PIECES 4
#define SAMPLE_PIECE  ((size_t)2 << 10)
#define MOST_MESSAGES ((size_t)4 << 20) /* each costs memory once it is unpacked */
#define DEEPEST       8                 /* more than the schema nests */

static const unsigned char magic[8] = {0x89, 'T', 'R', 'M', 'P', 'L', 'A', 'N'};

/* ---- checksums ----------------------------------------------------------------------------------------- */

uint64_t trm_plan_checksum(const void *bytes, size_t size)
{
    return size == 0 ? 0 : XXH3_64bits(bytes, size);
}

uint64_t trm_plan_sample(const unsigned char *bytes, size_t size)
{
    unsigned char taken[SAMPLE_PIECES * SAMPLE_PIECE];
    if (size <= sizeof(taken)) {
        return size == 0 ? 0 : XXH3_64bits_withSeed(bytes, size, size);
    }
    size_t step = (size - SAMPLE_PIECE) / (SAMPLE_PIECES - 1);
    for (size_t i = 0; i < SAMPLE_PIECES; i++) {
        size_t from = i + 1 < SAMPLE_PIECES ? i * step : size - SAMPLE_PIECE;
        memcpy(taken + i * SAMPLE_PIECE, bytes + from, SAMPLE_PIECE);
    }
    return XXH3_64bits_withSeed(taken, sizeof(taken), size);
}

/* ---- header -------------------------------------------------------------------------------------------- */

/* magic, format u32, 0 u32, size of the file, index: offset, size, checksum, 0 u64, checksum of all before. */

static void put_u64(unsigned char *to, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        to[i] = (unsigned char)(value >> 8 * i);
    }
}

static uint64_t get_u64(const unsigned char *from)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) {
        value |= (uint64_t)from[i] << 8 * i;
    }
    return value;
}

void trm_plan_put_header(const trm_plan_header *header, unsigned char bytes[TRM_PLAN_HEADER])
{
    memset(bytes, 0, TRM_PLAN_HEADER);
    memcpy(bytes, magic, sizeof(magic));
    put_u64(bytes + 8, TRM_PLAN_FORMAT);
    put_u64(bytes + 16, header->file_size);
    put_u64(bytes + 24, header->index_offset);
    put_u64(bytes + 32, header->index_size);
    put_u64(bytes + 40, header->index_checksum);
    put_u64(bytes + 56, trm_plan_checksum(bytes, 56));
}

trm_status trm_plan_get_header(const char *name, const unsigned char *bytes, size_t size, bool trusting,
                               trm_plan_header *header)
{
    if (size < sizeof(magic) || memcmp(bytes, magic, sizeof(magic)) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s is not a plan file", name);
    }
    if (size < TRM_PLAN_HEADER) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the plan file is cut off: it has %zu of the %d bytes of its header",
                 name, size, TRM_PLAN_HEADER);
    }
    uint64_t format = get_u64(bytes + 8);
    if (format != TRM_PLAN_FORMAT) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: the plan file has format %llu, this version reads format %d", name,
                 (unsigned long long)format, TRM_PLAN_FORMAT);
    }
    *header = (trm_plan_header){get_u64(bytes + 16), get_u64(bytes + 24), get_u64(bytes + 32), get_u64(bytes + 40)};
    if (!trusting && get_u64(bytes + 56) != trm_plan_checksum(bytes, 56)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the header of the plan file is damaged: its checksum differs", name);
    }
    if (header->file_size != size) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the plan file has %zu bytes, expected %llu: it is %s", name, size,
                 (unsigned long long)header->file_size, size < header->file_size ? "cut off" : "too long");
    }
    return TRM_OK;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

typedef struct walk {
    const char *name;
    const unsigned char *bytes;
    size_t messages;
} walk;

static trm_status malformed(const walk *self, const ProtobufCMessageDescriptor *type, size_t at, const char *what)
{
    return trm_fail(TRM_ERROR_INVALID_MODEL, "%s: %s at byte %zu of its message: %s", self->name, type->short_name, at,
                    what);
}

bool trm_plan_is_text(const char *text, size_t size)
{
    bool is = true;
    for (size_t i = 0; i < size; i++) {
        is = is && (unsigned char)text[i] >= 0x20 && text[i] != 0x7f;
    }
    return is;
}

static bool read_varint(const walk *self, size_t end, size_t *at, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        unsigned char byte = self->bytes[(*at)++];
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return true;
        }
    }
    return false;
}

/* The wire type of a field's unpacked values. */
static int wire_of(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return WIRE_FIXED32;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return WIRE_FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_BYTES;
    default:
        return WIRE_VARINT;
    }
}

static trm_status walk_message(walk *self, const ProtobufCMessageDescriptor *type, size_t begin, size_t end, int depth);

/* Checks a length-delimited field: text, a message, or packed numbers. */
static trm_status walk_bytes(walk *self, const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                             size_t *at, size_t end, int depth)
{
    size_t begin = *at;
    uint64_t length, value;
    if (!read_varint(self, end, at, &length) || length > end - *at) {
        return malformed(self, type, begin, "field extends past the end of its message");
    }
    size_t content = *at;
    *at += (size_t)length;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        return walk_message(self, field->descriptor, content, *at, depth + 1);
    }
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        return trm_plan_is_text((const char *)self->bytes + content, (size_t)length)
                   ? TRM_OK
                   : malformed(self, type, begin, "text has control characters");
    }
    if (field->type == PROTOBUF_C_TYPE_BYTES) {
        return TRM_OK;
    }
    int wire = wire_of(field);
    if (field->label != PROTOBUF_C_LABEL_REPEATED || wire == WIRE_BYTES) {
        return malformed(self, type, begin, "field has another wire type than in the schema");
    }
    if (wire != WIRE_VARINT) {
        return length % (wire == WIRE_FIXED32 ? 4 : 8) == 0 ? TRM_OK
                                                            : malformed(self, type, begin, "number is cut off");
    }
    while (content < *at) {
        if (!read_varint(self, *at, &content, &value)) {
            return malformed(self, type, begin, "number is cut off");
        }
    }
    return TRM_OK;
}

static trm_status walk_message(walk *self, const ProtobufCMessageDescriptor *type, size_t begin, size_t end, int depth)
{
    if (depth > DEEPEST || ++self->messages > MOST_MESSAGES) {
        return malformed(self, type, begin, "too many messages");
    }
    for (size_t at = begin; at < end;) {
        size_t start = at;
        uint64_t tag, value;
        if (!read_varint(self, end, &at, &tag) || tag >> 3 == 0 || tag >> 3 > 1000) {
            return malformed(self, type, start, "field is cut off or has an unknown number");
        }
        int wire = (int)(tag & 7);
        const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
        if (field == NULL) {
            return malformed(self, type, start, "unknown field");
        }
        if (wire == WIRE_BYTES) {
            TRM_TRY(walk_bytes(self, type, field, &at, end, depth));
            continue;
        }
        if (wire != wire_of(field)) {
            return malformed(self, type, start, "field has another wire type than in the schema");
        }
        size_t fixed = wire == WIRE_FIXED32 ? 4 : 8;
        if (wire == WIRE_VARINT ? !read_varint(self, end, &at, &value) : fixed > end - at) {
            return malformed(self, type, start, "number is cut off");
        }
        at += wire == WIRE_VARINT ? 0 : fixed;
    }
    return TRM_OK;
}

trm_status trm_plan_check_message(const char *name, const ProtobufCMessageDescriptor *type, const unsigned char *bytes,
                                  size_t size)
{
    walk self = {.name = name, .bytes = bytes};
    if (size > TRM_PLAN_LARGEST_MESSAGE) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: %s of %zu bytes, expected at most %zu", name, type->short_name, size,
                 TRM_PLAN_LARGEST_MESSAGE);
    }
    return walk_message(&self, type, 0, size, 0);
}
