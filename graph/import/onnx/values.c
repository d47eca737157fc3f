/* Values in files of their own: tensors, sequences, optionals. */
#include "graph/import/onnx/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/recorder.h"
#include "graph/import/onnx/protobuf_scan.h"

/* A reader that counts on its first round and copies on its second. */
typedef struct reader {
    trm_onnx model; /* the file alone: what reading a tensor needs */
    trm_onnx_fixed_value *values;
    unsigned char *data; /* NULL on the first round */
    size_t used;
    int32_t n;
} reader;

static trm_status add_tensor(reader *self, const Onnx__TensorProto *proto)
{
    trm_onnx_elements elements;
    TRM_TRY(trm_onnx_tensor_check(proto, self->model.path, &elements));
    if (proto->data_location == 1) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: its elements are external data, which only models have", self->model.path);
    }
    if (self->data != NULL) {
        void *to = self->data + self->used;
        TRM_TRY(trm_onnx_tensor_read(&self->model, proto, self->model.path, &elements, to));
        self->values[self->n] = (trm_onnx_fixed_value){NULL, elements.dtype, elements.dims, to};
    } else if (!trm_onnx_tensor_is_there(proto, &elements)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: fewer elements than its dims need", self->model.path);
    }
    self->used += trm_align_up(elements.bytes, 16);
    self->n++;
    return TRM_OK;
}

static trm_status add_sequence(reader *self, const Onnx__SequenceProto *proto)
{
    if (proto->n_sequence_values > 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: a sequence of sequences", self->model.path);
    }
    for (size_t i = 0; i < proto->n_tensor_values; i++) {
        TRM_TRY(add_tensor(self, proto->tensor_values[i]));
    }
    return TRM_OK;
}

static trm_status add_optional(reader *self, const Onnx__OptionalProto *proto)
{
    while (proto->optional_value != NULL) {
        proto = proto->optional_value;
    }
    if (proto->tensor_value != NULL) {
        return add_tensor(self, proto->tensor_value);
    }
    return proto->sequence_value != NULL ? add_sequence(self, proto->sequence_value) : TRM_OK;
}

typedef union message {
    ProtobufCMessage *any;
    Onnx__TensorProto *tensor;
    Onnx__SequenceProto *sequence;
    Onnx__OptionalProto *optional;
} message;

static trm_status add_message(reader *self, trm_onnx_message kind, message root)
{
    return kind == TRM_ONNX_TENSOR     ? add_tensor(self, root.tensor)
           : kind == TRM_ONNX_SEQUENCE ? add_sequence(self, root.sequence)
                                       : add_optional(self, root.optional);
}

static trm_status read_values(reader *self, trm_onnx_message kind, message root)
{
    TRM_TRY(add_message(self, kind, root));
    size_t head = trm_align_up(((size_t)self->n + 1) * sizeof(trm_onnx_fixed_value), 16);
    unsigned char *block = calloc(1, head + self->used + 1);
    if (block == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "%s: cannot allocate %zu bytes of host memory", self->model.path,
                 head + self->used);
    }
    self->values = (trm_onnx_fixed_value *)(void *)block;
    self->data = block + head;
    self->used = 0;
    self->n = 0;
    return add_message(self, kind, root);
}

static trm_status read_file(reader *self, trm_onnx_message kind)
{
    static const ProtobufCMessageDescriptor *const descriptors[] = {
        [TRM_ONNX_TENSOR] = &onnx__tensor_proto__descriptor,
        [TRM_ONNX_SEQUENCE] = &onnx__sequence_proto__descriptor,
        [TRM_ONNX_OPTIONAL] = &onnx__optional_proto__descriptor};
    trm_mapping bytes = trm_weight_file_bytes(self->model.file);
    uint8_t *compact = NULL;
    size_t size = 0;
    TRM_TRY(trm_onnx_compact(self->model.path, kind, bytes.bytes, bytes.size, &compact, &size));
    message root = {.any = protobuf_c_message_unpack(descriptors[kind], NULL, size, compact)};
    free(compact);
    if (root.any == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: a field has another wire type than in the ONNX format",
                 self->model.path);
    }
    trm_status status = read_values(self, kind, root);
    protobuf_c_message_free_unpacked(root.any, NULL);
    return status;
}

TRM_CALL(NULL, trm_onnx_read_value, (const char *path, const char *type, trm_onnx_fixed_value **values, int32_t *n),
         (path, type, values, n))
{
    if (path == NULL || values == NULL || n == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read a value: path, values or n is NULL");
    }
    type = trm_onnx_text(type);
    trm_onnx_message kind = strncmp(type, "sequence", 8) == 0   ? TRM_ONNX_SEQUENCE
                            : strncmp(type, "optional", 8) == 0 ? TRM_ONNX_OPTIONAL
                                                                : TRM_ONNX_TENSOR;
    reader self = {.model = {.path = path, .name = path}};
    TRM_TRY(trm_weight_file_open(path, path, &self.model.file));
    trm_status status = read_file(&self, kind);
    trm_weight_file_release(self.model.file);
    if (status != TRM_OK) {
        free(self.values);
        return status;
    }
    *values = self.values;
    *n = self.n == 0 ? 1 : self.n; /* the block has room for one more, of type NONE */
    return TRM_OK;
}
