/*
 * ONNX models made by the tests: the wire format itself, so that they can write what no library would.
 */
#ifndef TESTS_ONNX_MESSAGE_H
#define TESTS_ONNX_MESSAGE_H

#include <stdio.h>

#include "support/support.h"

/* A message that grows. */
typedef struct message {
    unsigned char bytes[16384];
    size_t size;
} message;

static inline void put_varint(message *to, uint64_t value)
{
    for (; value > 0x7f; value >>= 7) {
        to->bytes[to->size++] = (unsigned char)(value | 0x80);
    }
    to->bytes[to->size++] = (unsigned char)value;
}

static inline void put_number(message *to, int field, uint64_t value)
{
    put_varint(to, (uint64_t)field << 3);
    put_varint(to, value);
}

static inline void put_bytes(message *to, int field, const void *bytes, size_t size)
{
    put_varint(to, (uint64_t)field << 3 | 2);
    put_varint(to, size);
    assert_true(to->size + size <= sizeof(to->bytes));
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

static inline void put_text(message *to, int field, const char *text)
{
    put_bytes(to, field, text, strlen(text));
}

static inline void put_message(message *to, int field, const message *from)
{
    put_bytes(to, field, from->bytes, from->size);
}

/* An input or output: f32 (or another type), dims of -1 named "n". */
static inline message port(const char *name, int type, int n, const int64_t *dims)
{
    message shape = {0}, tensor = {0}, kind = {0}, info = {0};
    for (int i = 0; i < n; i++) {
        message dim = {0};
        if (dims[i] >= 0) {
            put_number(&dim, 1, (uint64_t)dims[i]);
        } else {
            put_text(&dim, 2, "n");
        }
        put_message(&shape, 1, &dim);
    }
    put_number(&tensor, 1, (uint64_t)type);
    put_message(&tensor, 2, &shape);
    put_message(&kind, 1, &tensor);
    put_text(&info, 1, name);
    put_message(&info, 2, &kind);
    return info;
}

/* "Add x w y": operator, inputs, output. */
static inline message node(const char *text)
{
    message made = {0};
    char copy[128], *rest = copy, *words[12];
    int n = 0;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *word = strtok_r(rest, " ", &rest); word != NULL && n < 12; word = strtok_r(rest, " ", &rest)) {
        words[n++] = word;
    }
    for (int i = 1; i < n; i++) {
        put_text(&made, i < n - 1 ? 1 : 2, words[i]);
    }
    put_text(&made, 4, words[0]);
    return made;
}

/* A model whose graph is given, of ONNX's operators as they are in an opset. */
static inline message model_of_opset(const message *graph, uint64_t version)
{
    message opset = {0}, made = {0};
    put_number(&opset, 2, version);
    put_number(&made, 1, 8);
    put_text(&made, 2, "test");
    put_message(&made, 7, graph);
    put_message(&made, 8, &opset);
    return made;
}

static inline message model_of(const message *graph)
{
    return model_of_opset(graph, 17);
}

static inline void put_graph(message *graph, int field, message part)
{
    put_message(graph, field, &part);
}

/* A weight of a graph: its type as ONNX numbers them, and its elements as they lie. */
static inline void put_weight(message *graph, const char *name, int type, int n, const int64_t *dims,
                              const void *elements, size_t size)
{
    message tensor = {0};
    for (int i = 0; i < n; i++) {
        put_number(&tensor, 1, (uint64_t)dims[i]);
    }
    put_number(&tensor, 2, (uint64_t)type);
    put_text(&tensor, 8, name);
    put_bytes(&tensor, 9, elements, size);
    put_message(graph, 5, &tensor);
}

/* An attribute that is a whole number, or a graph. */
static inline message attribute(const char *name, int64_t number, const message *graph)
{
    message made = {0};
    put_text(&made, 1, name);
    if (graph == NULL) {
        put_number(&made, 3, (uint64_t)number);
    } else {
        put_message(&made, 6, graph);
    }
    put_number(&made, 20, graph == NULL ? 2 : 5);
    return made;
}

#endif
