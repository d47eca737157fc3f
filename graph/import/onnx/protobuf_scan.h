/*
 * The pass over a file's bytes before protobuf-c unpacks them.
 *
 * protobuf-c copies every field, refuses more than 2 GiB and recurses as deep as the file says. This pass checks the
 * nesting and every length, drops what the importer does not read, and leaves elements of tensors in the file: its
 * compact message holds their offset instead.
 */
#ifndef TRM_GRAPH_IMPORT_ONNX_PROTOBUF_SCAN_H
#define TRM_GRAPH_IMPORT_ONNX_PROTOBUF_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

/* Field numbers of TensorProto that the importer sees as stored_field. */
enum {
    TRM_ONNX_FLOAT_DATA = 4,
    TRM_ONNX_INT32_DATA = 5,
    TRM_ONNX_INT64_DATA = 7,
    TRM_ONNX_RAW_DATA = 9,
    TRM_ONNX_DOUBLE_DATA = 10,
    TRM_ONNX_UINT64_DATA = 11
};

typedef enum trm_onnx_message {
    TRM_ONNX_MODEL = 0,
    TRM_ONNX_GRAPH,
    TRM_ONNX_NODE,
    TRM_ONNX_ATTRIBUTE,
    TRM_ONNX_FUNCTION,
    TRM_ONNX_TENSOR,
    TRM_ONNX_SPARSE_TENSOR,
    TRM_ONNX_VALUE_INFO,
    TRM_ONNX_TYPE,
    TRM_ONNX_TYPE_TENSOR,
    TRM_ONNX_TYPE_ELEMENT, /* Sequence and Optional: one TypeProto */
    TRM_ONNX_TYPE_MAP,
    TRM_ONNX_SHAPE,
    TRM_ONNX_DIMENSION,
    TRM_ONNX_ENTRY,
    TRM_ONNX_OPSET,
    TRM_ONNX_SEQUENCE,
    TRM_ONNX_OPTIONAL,
    TRM_ONNX_MESSAGE_COUNT
} trm_onnx_message;

/* Elements of at least this many bytes stay in the file. */
#define TRM_ONNX_STORED_SIZE 4

/* The compact form of the message in bytes [size], to free(). INVALID_MODEL, with `file` in front, for bytes that are
 * no such message. */
trm_status trm_onnx_compact(const char *file, trm_onnx_message message, const uint8_t *bytes, size_t size,
                            uint8_t **compact, size_t *compact_size);

/* Reads a varint at *at; false if it is cut off or too long. */
bool trm_onnx_read_varint(const uint8_t *bytes, size_t size, size_t *at, uint64_t *value);

#endif
