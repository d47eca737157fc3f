/* Reading and writing protobuf's wire format. */
#include "launcher/serve/grpc/proto_view.h"

#include <string.h>

#include "base/error.h"

proto_view proto_view_of(const void *data, size_t size)
{
    const unsigned char *at = data != NULL ? data : (const void *)"";
    return (proto_view){at, at + size};
}

bool proto_varint(proto_view *view, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && view->at < view->end; shift += 7) {
        const unsigned char byte = *view->at++;
        if (shift == 63 && byte > 1) {
            return false;
        }
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return true;
        }
    }
    return false;
}

static bool fixed(proto_view *view, size_t size, uint64_t *value)
{
    *value = 0;
    if ((size_t)(view->end - view->at) < size) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        *value |= (uint64_t)*view->at++ << (8 * i);
    }
    return true;
}

static bool read_value(proto_view *view, proto_type type, uint64_t *value)
{
    return type == PROTO_VARINT    ? proto_varint(view, value)
           : type == PROTO_FIXED64 ? fixed(view, 8, value)
                                   : fixed(view, 4, value);
}

proto_step proto_next(proto_view *view, proto_field *field)
{
    uint64_t tag, size;
    if (view->at == view->end) {
        return PROTO_END;
    }
    if (!proto_varint(view, &tag) || tag >> 3 == 0 || tag >> 3 >= (uint64_t)1 << 29) {
        return PROTO_DAMAGED;
    }
    *field = (proto_field){.number = (uint32_t)(tag >> 3), .type = (proto_type)(tag & 7)};
    switch (tag & 7) {
    case PROTO_VARINT:
    case PROTO_FIXED64:
    case PROTO_FIXED32:
        return read_value(view, field->type, &field->value) ? PROTO_FIELD : PROTO_DAMAGED;
    case PROTO_BYTES:
        if (!proto_varint(view, &size) || size > (uint64_t)(view->end - view->at)) {
            return PROTO_DAMAGED;
        }
        field->bytes = (proto_view){view->at, view->at + size};
        view->at += size;
        return PROTO_FIELD;
    default:
        return PROTO_DAMAGED;
    }
}

bool proto_text(proto_view bytes, char *text, size_t size)
{
    const size_t n = (size_t)(bytes.end - bytes.at);
    if (n >= size || memchr(bytes.at, 0, n) != NULL) {
        return false;
    }
    memcpy(text, bytes.at, n);
    text[n] = '\0';
    return true;
}

proto_step proto_number(proto_field *field, proto_type type, uint64_t *value)
{
    if (field->type == PROTO_BYTES) {
        return field->bytes.at == field->bytes.end      ? PROTO_END
               : read_value(&field->bytes, type, value) ? PROTO_FIELD
                                                        : PROTO_DAMAGED;
    }
    if (field->number == 0) { /* it was read already */
        return PROTO_END;
    }
    *value = field->value;
    field->number = 0;
    return field->type == type ? PROTO_FIELD : PROTO_DAMAGED;
}

static void put(proto_writer *w, const void *data, size_t size)
{
    if (w->status == TRM_OK) {
        w->status = trm_bytes_append(&w->bytes, data, size);
    }
}

static size_t encode(uint64_t value, unsigned char to[10])
{
    size_t n = 0;
    while (value >= 0x80) {
        to[n++] = (unsigned char)(value | 0x80);
        value >>= 7;
    }
    to[n++] = (unsigned char)value;
    return n;
}

static void put_number(proto_writer *w, uint64_t value)
{
    unsigned char bytes[10];
    put(w, bytes, encode(value, bytes));
}

void proto_put_varint(proto_writer *w, uint32_t number, uint64_t value)
{
    if (value != 0) {
        put_number(w, (uint64_t)number << 3 | PROTO_VARINT);
        put_number(w, value);
    }
}

void proto_put_bytes(proto_writer *w, uint32_t number, const void *data, size_t size)
{
    put_number(w, (uint64_t)number << 3 | PROTO_BYTES);
    put_number(w, size);
    if (size > 0) {
        put(w, data, size);
    }
}

void proto_put_text(proto_writer *w, uint32_t number, const char *text)
{
    if (text != NULL && text[0] != '\0') {
        proto_put_bytes(w, number, text, strlen(text));
    }
}

void proto_put_packed(proto_writer *w, uint32_t number, const int64_t *values, size_t n)
{
    if (n == 0) {
        return;
    }
    const size_t place = proto_begin(w, number);
    for (size_t i = 0; i < n; i++) {
        put_number(w, (uint64_t)values[i]);
    }
    proto_end(w, place);
}

/* The size is written with five bytes, as far as a message may be long. */
size_t proto_begin(proto_writer *w, uint32_t number)
{
    put_number(w, (uint64_t)number << 3 | PROTO_BYTES);
    put(w, "\x80\x80\x80\x80\0", 5);
    return w->bytes.size;
}

void proto_end(proto_writer *w, size_t place)
{
    if (w->status != TRM_OK) {
        return;
    }
    const uint64_t size = w->bytes.size - place;
    for (size_t i = 0; i < 5; i++) {
        w->bytes.data[place - 5 + i] = (char)((size >> (7 * i) & 0x7f) | (i < 4 ? 0x80 : 0));
    }
    if (size > INT32_MAX) {
        w->status = trm_fail(TRM_ERROR_UNSUPPORTED, "a message has %llu bytes, more than protobuf allows",
                             (unsigned long long)size);
    }
}
