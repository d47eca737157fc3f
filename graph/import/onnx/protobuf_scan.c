/* The walk over the wire format: one table row for each field that the importer reads. */
#include "graph/import/onnx/protobuf_scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

#define DEEPEST        64                  /* messages in messages */
#define MOST_MESSAGES  ((size_t)4 << 20)   /* each costs memory once it is unpacked */
#define LARGEST_RESULT ((size_t)256 << 20) /* unpacked it is several times as much */
#define LONGEST_NAME   ((size_t)4 << 10)
#define LENGTH_BYTES   5 /* room for any length below 2^35, as a varint of fixed size */

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

typedef enum action {
    DROP = 0, /* also every field that has no row */
    COPY,
    NAME, /* text without control characters */
    INTO, /* a message, any number of times */
    ONCE, /* a message, at most once */
    DATA  /* elements: stay in the file if there are many */
} action;

typedef struct row {
    uint8_t message, field, action, child;
} row;

static const row rows[] = {
    {TRM_ONNX_MODEL, 1, COPY, 0},
    {TRM_ONNX_MODEL, 2, NAME, 0},
    {TRM_ONNX_MODEL, 3, NAME, 0},
    {TRM_ONNX_MODEL, 4, NAME, 0},
    {TRM_ONNX_MODEL, 5, COPY, 0},
    {TRM_ONNX_MODEL, 7, ONCE, TRM_ONNX_GRAPH},
    {TRM_ONNX_MODEL, 8, INTO, TRM_ONNX_OPSET},
    {TRM_ONNX_MODEL, 25, INTO, TRM_ONNX_FUNCTION},
    {TRM_ONNX_GRAPH, 1, INTO, TRM_ONNX_NODE},
    {TRM_ONNX_GRAPH, 2, NAME, 0},
    {TRM_ONNX_GRAPH, 5, INTO, TRM_ONNX_TENSOR},
    {TRM_ONNX_GRAPH, 11, INTO, TRM_ONNX_VALUE_INFO},
    {TRM_ONNX_GRAPH, 12, INTO, TRM_ONNX_VALUE_INFO},
    {TRM_ONNX_GRAPH, 15, INTO, TRM_ONNX_SPARSE_TENSOR},
    {TRM_ONNX_NODE, 1, NAME, 0},
    {TRM_ONNX_NODE, 2, NAME, 0},
    {TRM_ONNX_NODE, 3, NAME, 0},
    {TRM_ONNX_NODE, 4, NAME, 0},
    {TRM_ONNX_NODE, 5, INTO, TRM_ONNX_ATTRIBUTE},
    {TRM_ONNX_NODE, 7, NAME, 0},
    {TRM_ONNX_NODE, 8, NAME, 0},
    {TRM_ONNX_ATTRIBUTE, 1, NAME, 0},
    {TRM_ONNX_ATTRIBUTE, 2, COPY, 0},
    {TRM_ONNX_ATTRIBUTE, 3, COPY, 0},
    {TRM_ONNX_ATTRIBUTE, 4, COPY, 0},
    {TRM_ONNX_ATTRIBUTE, 5, ONCE, TRM_ONNX_TENSOR},
    {TRM_ONNX_ATTRIBUTE, 6, ONCE, TRM_ONNX_GRAPH},
    {TRM_ONNX_ATTRIBUTE, 7, COPY, 0},
    {TRM_ONNX_ATTRIBUTE, 8, COPY, 0},
    {TRM_ONNX_ATTRIBUTE, 9, COPY, 0},
    {TRM_ONNX_ATTRIBUTE, 10, INTO, TRM_ONNX_TENSOR},
    {TRM_ONNX_ATTRIBUTE, 11, INTO, TRM_ONNX_GRAPH},
    {TRM_ONNX_ATTRIBUTE, 14, ONCE, TRM_ONNX_TYPE},
    {TRM_ONNX_ATTRIBUTE, 15, INTO, TRM_ONNX_TYPE},
    {TRM_ONNX_ATTRIBUTE, 20, COPY, 0},
    {TRM_ONNX_ATTRIBUTE, 21, NAME, 0},
    {TRM_ONNX_ATTRIBUTE, 22, ONCE, TRM_ONNX_SPARSE_TENSOR},
    {TRM_ONNX_ATTRIBUTE, 23, INTO, TRM_ONNX_SPARSE_TENSOR},
    {TRM_ONNX_FUNCTION, 1, NAME, 0},
    {TRM_ONNX_FUNCTION, 4, NAME, 0},
    {TRM_ONNX_FUNCTION, 5, NAME, 0},
    {TRM_ONNX_FUNCTION, 6, NAME, 0},
    {TRM_ONNX_FUNCTION, 7, INTO, TRM_ONNX_NODE},
    {TRM_ONNX_FUNCTION, 9, INTO, TRM_ONNX_OPSET},
    {TRM_ONNX_FUNCTION, 10, NAME, 0},
    {TRM_ONNX_FUNCTION, 11, INTO, TRM_ONNX_ATTRIBUTE},
    {TRM_ONNX_FUNCTION, 13, NAME, 0},
    {TRM_ONNX_TENSOR, 1, COPY, 0},
    {TRM_ONNX_TENSOR, 2, COPY, 0},
    {TRM_ONNX_TENSOR, TRM_ONNX_FLOAT_DATA, DATA, 0},
    {TRM_ONNX_TENSOR, TRM_ONNX_INT32_DATA, DATA, 0},
    {TRM_ONNX_TENSOR, 6, COPY, 0},
    {TRM_ONNX_TENSOR, TRM_ONNX_INT64_DATA, DATA, 0},
    {TRM_ONNX_TENSOR, 8, NAME, 0},
    {TRM_ONNX_TENSOR, TRM_ONNX_RAW_DATA, DATA, 0},
    {TRM_ONNX_TENSOR, TRM_ONNX_DOUBLE_DATA, DATA, 0},
    {TRM_ONNX_TENSOR, TRM_ONNX_UINT64_DATA, DATA, 0},
    {TRM_ONNX_TENSOR, 13, INTO, TRM_ONNX_ENTRY},
    {TRM_ONNX_TENSOR, 14, COPY, 0},
    {TRM_ONNX_SPARSE_TENSOR, 1, ONCE, TRM_ONNX_TENSOR},
    {TRM_ONNX_SPARSE_TENSOR, 2, ONCE, TRM_ONNX_TENSOR},
    {TRM_ONNX_SPARSE_TENSOR, 3, COPY, 0},
    {TRM_ONNX_VALUE_INFO, 1, NAME, 0},
    {TRM_ONNX_VALUE_INFO, 2, ONCE, TRM_ONNX_TYPE},
    {TRM_ONNX_TYPE, 1, ONCE, TRM_ONNX_TYPE_TENSOR},
    {TRM_ONNX_TYPE, 4, ONCE, TRM_ONNX_TYPE_ELEMENT},
    {TRM_ONNX_TYPE, 5, ONCE, TRM_ONNX_TYPE_MAP},
    {TRM_ONNX_TYPE, 8, ONCE, TRM_ONNX_TYPE_TENSOR},
    {TRM_ONNX_TYPE, 9, ONCE, TRM_ONNX_TYPE_ELEMENT},
    {TRM_ONNX_TYPE_TENSOR, 1, COPY, 0},
    {TRM_ONNX_TYPE_TENSOR, 2, ONCE, TRM_ONNX_SHAPE},
    {TRM_ONNX_TYPE_ELEMENT, 1, ONCE, TRM_ONNX_TYPE},
    {TRM_ONNX_TYPE_MAP, 1, COPY, 0},
    {TRM_ONNX_TYPE_MAP, 2, ONCE, TRM_ONNX_TYPE},
    {TRM_ONNX_SHAPE, 1, INTO, TRM_ONNX_DIMENSION},
    {TRM_ONNX_DIMENSION, 1, COPY, 0},
    {TRM_ONNX_DIMENSION, 2, NAME, 0},
    {TRM_ONNX_ENTRY, 1, NAME, 0},
    {TRM_ONNX_ENTRY, 2, NAME, 0},
    {TRM_ONNX_OPSET, 1, NAME, 0},
    {TRM_ONNX_OPSET, 2, COPY, 0},
    {TRM_ONNX_SEQUENCE, 1, NAME, 0},
    {TRM_ONNX_SEQUENCE, 2, COPY, 0},
    {TRM_ONNX_SEQUENCE, 3, INTO, TRM_ONNX_TENSOR},
    {TRM_ONNX_SEQUENCE, 5, INTO, TRM_ONNX_SEQUENCE},
    {TRM_ONNX_OPTIONAL, 1, NAME, 0},
    {TRM_ONNX_OPTIONAL, 2, COPY, 0},
    {TRM_ONNX_OPTIONAL, 3, ONCE, TRM_ONNX_TENSOR},
    {TRM_ONNX_OPTIONAL, 5, ONCE, TRM_ONNX_SEQUENCE},
    {TRM_ONNX_OPTIONAL, 7, ONCE, TRM_ONNX_OPTIONAL},
};

static const char *const message_names[TRM_ONNX_MESSAGE_COUNT] = {
    "model",         "graph", "node",  "attribute",   "function",     "tensor",
    "sparse tensor", "value", "type",  "tensor type", "element type", "map type",
    "shape",         "dim",   "entry", "opset",       "sequence",     "optional"};

#define MOST_FIELDS 32
typedef struct walk {
    const char *file;
    const uint8_t *bytes; /* of the whole file: places in it are offsets from here */
    size_t size;
    uint8_t *out;
    size_t out_size, out_capacity;
    size_t messages;
    row table[TRM_ONNX_MESSAGE_COUNT][MOST_FIELDS]; /* rows by field number */
} walk;

bool trm_onnx_read_varint(const uint8_t *bytes, size_t size, size_t *at, uint64_t *value)
{
    uint64_t result = 0;
    for (int shift = 0; shift < 64 && *at < size; shift += 7) {
        uint8_t byte = bytes[(*at)++];
        result |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *value = result;
            return true;
        }
    }
    return false;
}

static trm_status malformed(const walk *self, trm_onnx_message message, size_t at, const char *what)
{
    return trm_fail(TRM_ERROR_INVALID_MODEL, "%s: %s at byte %zu: %s", self->file, message_names[message], at, what);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static trm_status write_bytes(walk *self, const uint8_t *bytes, size_t size)
{
    if (size > LARGEST_RESULT - self->out_size) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: more than %zu MiB besides the elements of tensors", self->file,
                 LARGEST_RESULT >> 20);
    }
    if (self->out_size + size > self->out_capacity) {
        size_t wanted = self->out_capacity * 2 + size + 4096;
        uint8_t *grown = realloc(self->out, wanted);
        if (grown == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "%s: cannot allocate %zu bytes of host memory", self->file, wanted);
        }
        self->out = grown;
        self->out_capacity = wanted;
    }
    if (size > 0) {
        memcpy(self->out + self->out_size, bytes, size);
    }
    self->out_size += size;
    return TRM_OK;
}

static trm_status write_varint(walk *self, uint64_t value)
{
    uint8_t bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value > 0);
    return write_bytes(self, bytes, n);
}

/* A length of fixed size, so that it can be written before it is known. */
static void put_length(uint8_t *to, size_t length)
{
    for (int i = 0; i < LENGTH_BYTES; i++) {
        to[i] = (uint8_t)(((length >> (7 * i)) & 0x7f) | (i < LENGTH_BYTES - 1 ? 0x80 : 0));
    }
}

static trm_status write_stored(walk *self, uint32_t field, size_t begin, size_t size)
{
    const uint64_t pairs[][2] = {{1000, field}, {1001, begin}, {1002, size}};
    for (int i = 0; i < 3; i++) {
        TRM_TRY(write_varint(self, pairs[i][0] << 3 | WIRE_VARINT));
        TRM_TRY(write_varint(self, pairs[i][1]));
    }
    return TRM_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

typedef struct field {
    uint64_t number;
    int wire;
    size_t begin, end;    /* the whole field */
    size_t content, size; /* what stands behind the tag, and behind the length if there is one */
} field;

static trm_status read_field(const walk *self, trm_onnx_message message, size_t *at, size_t end, field *to)
{
    uint64_t tag, length;
    to->begin = *at;
    if (!trm_onnx_read_varint(self->bytes, end, at, &tag)) {
        return malformed(self, message, to->begin, "field is cut off");
    }
    to->number = tag >> 3;
    to->wire = (int)(tag & 7);
    to->content = *at;
    switch (to->wire) {
    case WIRE_VARINT:
        if (!trm_onnx_read_varint(self->bytes, end, at, &length)) {
            return malformed(self, message, to->begin, "number is cut off");
        }
        to->size = *at - to->content;
        break;
    case WIRE_FIXED64:
    case WIRE_FIXED32:
        to->size = to->wire == WIRE_FIXED64 ? 8 : 4;
        break;
    case WIRE_BYTES:
        if (!trm_onnx_read_varint(self->bytes, end, at, &length)) {
            return malformed(self, message, to->begin, "length is cut off");
        }
        if (length > end - *at) {
            return malformed(self, message, to->begin, "field extends past the end of its message");
        }
        to->content = *at;
        to->size = (size_t)length;
        break;
    default:
        return malformed(self, message, to->begin, "field has an unknown wire type");
    }
    if (to->number == 0 || to->size > end - to->content) {
        return malformed(self, message, to->begin, "field is cut off or has no number");
    }
    to->end = *at = to->content + to->size;
    return TRM_OK;
}

static trm_status check_name(const walk *self, trm_onnx_message message, const field *name)
{
    if (name->wire != WIRE_BYTES) {
        return malformed(self, message, name->begin, "name is not a string");
    }
    if (name->size > LONGEST_NAME) {
        return malformed(self, message, name->begin, "name is longer than 4 KiB");
    }
    for (size_t i = 0; i < name->size; i++) {
        if (self->bytes[name->content + i] < 0x20 || self->bytes[name->content + i] == 0x7f) {
            return malformed(self, message, name->begin, "name has control characters");
        }
    }
    return TRM_OK;
}

static trm_status walk_message(walk *self, trm_onnx_message message, size_t begin, size_t end, int depth);

static trm_status walk_child(walk *self, trm_onnx_message message, const field *from, trm_onnx_message child, int depth)
{
    if (from->wire != WIRE_BYTES) {
        return malformed(self, message, from->begin, "message is a number");
    }
    TRM_TRY(write_varint(self, from->number << 3 | WIRE_BYTES));
    uint8_t length[LENGTH_BYTES] = {0};
    TRM_TRY(write_bytes(self, length, LENGTH_BYTES));
    size_t start = self->out_size;
    TRM_TRY(walk_message(self, child, from->content, from->end, depth + 1));
    put_length(self->out + start - LENGTH_BYTES, self->out_size - start);
    return TRM_OK;
}

static trm_status walk_field(walk *self, trm_onnx_message message, const field *from, uint64_t *seen, int depth)
{
    const row *found = from->number < MOST_FIELDS ? &self->table[message][from->number] : NULL;
    action what = found == NULL ? DROP : (action)found->action;
    bool many = what == DATA && from->wire == WIRE_BYTES && from->size >= TRM_ONNX_STORED_SIZE;
    if (what == ONCE || many) {
        uint64_t bit = (uint64_t)1 << (many ? MOST_FIELDS : from->number); /* one field alone may hold elements */
        if ((*seen & bit) != 0) {
            return malformed(self, message, from->begin, many ? "elements in several fields" : "repeated field");
        }
        *seen |= bit;
    }
    switch (what) {
    case DROP:
        return TRM_OK;
    case NAME:
        TRM_TRY(check_name(self, message, from));
        break;
    case INTO:
    case ONCE:
        return walk_child(self, message, from, (trm_onnx_message)found->child, depth);
    case DATA:
        if (many) {
            return write_stored(self, (uint32_t)from->number, from->content, from->size);
        }
        break;
    case COPY:
        break;
    }
    return write_bytes(self, self->bytes + from->begin, from->end - from->begin);
}

static trm_status walk_message(walk *self, trm_onnx_message message, size_t begin, size_t end, int depth)
{
    if (depth > DEEPEST) {
        return malformed(self, message, begin, "messages are nested too deep");
    }
    if (++self->messages > MOST_MESSAGES) {
        return malformed(self, message, begin, "too many messages");
    }
    uint64_t seen = 0;
    for (size_t at = begin; at < end;) {
        field next = {0};
        TRM_TRY(read_field(self, message, &at, end, &next));
        TRM_TRY(walk_field(self, message, &next, &seen, depth));
    }
    return TRM_OK;
}

trm_status trm_onnx_compact(const char *file, trm_onnx_message message, const uint8_t *bytes, size_t size,
                            uint8_t **compact, size_t *compact_size)
{
    walk self = {.file = file, .bytes = bytes, .size = size};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        self.table[rows[i].message][rows[i].field] = rows[i];
    }
    trm_status status = walk_message(&self, message, 0, size, 0);
    if (status != TRM_OK) {
        free(self.out);
        return status;
    }
    *compact = self.out;
    *compact_size = self.out_size;
    return TRM_OK;
}
