/* ModelInferRequest and ModelInferResponse. */
#include "launcher/serve/grpc/infer_proto.h"

#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"

#define LONGEST_NAME 1024

typedef struct reader {
    infer_request *request;
    shared_regions *regions;
    proto_view *raw; /* [n_raw] raw_input_contents */
    int32_t *inputs; /* [n_waiting] inputs whose elements are raw, in the order of the message */
    int32_t n_raw, n_waiting;
    bool typed; /* an input has contents */
    api_error *error;
} reader;

static bool damaged(api_error *error)
{
    return api_fail(error, 400, NULL, NULL, "the message is no ModelInferRequest");
}

static bool read_text(const proto_field *field, const char *what, char *text, size_t size, api_error *error)
{
    if (field->type != PROTO_BYTES) {
        return damaged(error);
    }
    return proto_text(field->bytes, text, size) ||
           api_fail(error, 400, NULL, NULL, "%s is longer than %zu bytes, or has a NUL", what, size - 1);
}

bool infer_proto_model(proto_view message, char *name, size_t name_size, char version[24], api_error *error)
{
    proto_field field;
    proto_step step;
    name[0] = version[0] = '\0';
    while ((step = proto_next(&message, &field)) == PROTO_FIELD) {
        if ((field.number == 1 && !read_text(&field, "model_name", name, name_size, error)) ||
            (field.number == 2 && !read_text(&field, "model_version", version, 24, error))) {
            return false;
        }
    }
    return step == PROTO_END || damaged(error);
}

/* A parameter: an entry of a map whose value is a oneof. */
typedef struct parameter {
    char key[64];
    bool is_text, is_number;
    char text[SHARED_LONGEST_NAME + 1];
    int64_t number;
} parameter;

static bool read_parameter(const proto_field *entry, parameter *p, api_error *error)
{
    proto_field field, value;
    proto_step step = PROTO_DAMAGED;
    proto_view view = entry->bytes, inner = {0};
    *p = (parameter){.is_text = false};
    if (entry->type != PROTO_BYTES) {
        return damaged(error);
    }
    while ((step = proto_next(&view, &field)) == PROTO_FIELD) {
        if (field.type == PROTO_BYTES && field.number == 1 && !proto_text(field.bytes, p->key, sizeof(p->key))) {
            strcpy(p->key, "?"); /* none of those that are known */
        }
        inner = field.type == PROTO_BYTES && field.number == 2 ? field.bytes : inner;
    }
    while (step == PROTO_END && inner.at != inner.end && (step = proto_next(&inner, &value)) == PROTO_FIELD) {
        p->is_text = value.number == 3 && value.type == PROTO_BYTES;
        p->is_number = (value.number == 2 || value.number == 5 || value.number == 1) && value.type == PROTO_VARINT;
        p->number = (int64_t)value.value;
        if (p->is_text && !proto_text(value.bytes, p->text, sizeof(p->text))) {
            return api_fail(error, 400, NULL, NULL, "parameter %s is longer than %d bytes", p->key,
                            SHARED_LONGEST_NAME);
        }
        step = PROTO_END;
    }
    return step == PROTO_END || damaged(error);
}

/* Where a tensor lies or goes in shared memory; region "": it does not. */
typedef struct shared_place {
    char region[SHARED_LONGEST_NAME + 1];
    int64_t offset, size;
} shared_place;

static bool read_place(const proto_field *entry, const char *tensor, shared_place *to, api_error *error)
{
    parameter p;
    bool good = true;
    if (!read_parameter(entry, &p, error)) {
        return false;
    }
    if (strcmp(p.key, "shared_memory_region") == 0) {
        good = p.is_text && p.text[0] != '\0';
        strcpy(to->region, p.text);
    } else if (strcmp(p.key, "shared_memory_byte_size") == 0) {
        good = p.is_number && p.number >= 0;
        to->size = p.number;
    } else if (strcmp(p.key, "shared_memory_offset") == 0) {
        good = p.is_number && p.number >= 0;
        to->offset = p.number;
    } else if (strcmp(p.key, "classification") == 0) {
        return api_fail(error, 400, NULL, NULL, "parameter classification of output %s is not supported", tensor);
    }
    return good ||
           api_fail(error, 400, NULL, NULL, "parameter %s of tensor %s has a wrong type or value", p.key, tensor);
}

/* The numbers of InferTensorContents that belong to a type. */
static uint32_t contents_field(trm_dtype dtype, proto_type *type)
{
    *type = dtype == TRM_F32 ? PROTO_FIXED32 : dtype == TRM_F64 ? PROTO_FIXED64 : PROTO_VARINT;
    switch (dtype) {
    case TRM_BOOL:
        return 1;
    case TRM_I8:
    case TRM_I16:
    case TRM_I32:
        return 2;
    case TRM_I64:
        return 3;
    case TRM_U8:
    case TRM_U16:
    case TRM_U32:
        return 4;
    case TRM_U64:
        return 5;
    case TRM_F32:
        return 6;
    case TRM_F64:
        return 7;
    default:
        return 0; /* FP16 and BF16 */
    }
}

static bool set_element(trm_dtype dtype, void *data, size_t i, uint64_t value)
{
    const size_t size = trm_dtype_size(dtype);
    const bool is_signed = dtype == TRM_I8 || dtype == TRM_I16 || dtype == TRM_I32;
    const int bits = (int)size * 8;
    if (dtype == TRM_BOOL && value > 1) {
        return false;
    }
    if (is_signed && (int64_t)value != (int64_t)(value << (64 - bits)) >> (64 - bits)) {
        return false;
    }
    if (!is_signed && bits < 64 && value >> bits != 0) {
        return false;
    }
    memcpy((char *)data + i * size, &value, size); /* little-endian, as all machines with these GPUs */
    return true;
}

static bool read_contents(const reader *r, const served_port *port, infer_input *input, proto_view contents)
{
    const size_t size = trm_dtype_size(port->dtype), count = input->bytes / size;
    proto_type type;
    const uint32_t wanted = contents_field(port->dtype, &type);
    proto_field field;
    proto_step step;
    size_t at = 0;
    if (wanted == 0) {
        return api_fail(r->error, 400, NULL, NULL, "input %s of type %s must be in raw_input_contents", port->name,
                        infer_type_name(port->dtype));
    }
    /* Every element has a byte at least: a shape beyond them is refused before it is allocated. */
    if (count > (size_t)(contents.end - contents.at)) {
        return api_fail(r->error, 400, NULL, NULL, "input %s has fewer than the %zu elements of its shape", port->name,
                        count);
    }
    if (!infer_allocate(port, input, r->error)) {
        return false;
    }
    while ((step = proto_next(&contents, &field)) == PROTO_FIELD) {
        uint64_t value;
        proto_step number;
        if (field.number != wanted) {
            return api_fail(r->error, 400, NULL, NULL, "input %s has contents of another type than %s", port->name,
                            infer_type_name(port->dtype));
        }
        while ((number = proto_number(&field, type, &value)) == PROTO_FIELD) {
            if (at == count) {
                return api_fail(r->error, 400, NULL, NULL, "input %s has more than the %zu elements of its shape",
                                port->name, count);
            }
            if (!set_element(port->dtype, input->owned, at, value)) {
                return api_fail(r->error, 400, NULL, NULL, "element %zu of input %s is not of type %s", at, port->name,
                                infer_type_name(port->dtype));
            }
            at++;
        }
        if (number == PROTO_DAMAGED) {
            return damaged(r->error);
        }
    }
    if (step == PROTO_DAMAGED) {
        return damaged(r->error);
    }
    return at == count || api_fail(r->error, 400, NULL, NULL, "input %s has %zu elements in contents, expected %zu",
                                   port->name, at, count);
}

typedef struct tensor {
    char name[LONGEST_NAME], type[32];
    int64_t shape[TRM_MAX_DIMS];
    size_t n;
    shared_place place;
    bool has_contents;
    proto_view contents;
} tensor;

static bool read_tensor(const reader *r, proto_view view, tensor *t)
{
    proto_field field;
    proto_step step;
    *t = (tensor){.n = 0};
    while ((step = proto_next(&view, &field)) == PROTO_FIELD) {
        uint64_t size;
        proto_step number = PROTO_END;
        bool good = true;
        switch (field.number) {
        case 1:
            good = read_text(&field, "the name of an input", t->name, sizeof(t->name), r->error);
            break;
        case 2:
            good = read_text(&field, "datatype", t->type, sizeof(t->type), r->error);
            break;
        case 3:
            while (good && (number = proto_number(&field, PROTO_VARINT, &size)) == PROTO_FIELD) {
                good = t->n < TRM_MAX_DIMS || api_fail(r->error, 400, NULL, NULL,
                                                       "input %s has more than %d dimensions", t->name, TRM_MAX_DIMS);
                if (good) {
                    t->shape[t->n++] = (int64_t)size;
                }
            }
            good = good && (number != PROTO_DAMAGED || damaged(r->error));
            break;
        case 4:
            good = read_place(&field, t->name, &t->place, r->error);
            break;
        case 5:
            good = field.type == PROTO_BYTES || damaged(r->error);
            t->has_contents = true;
            t->contents = field.bytes;
            break;
        default:
            break;
        }
        if (!good) {
            return false;
        }
    }
    return step == PROTO_END || damaged(r->error);
}

static bool read_input(reader *r, proto_view view)
{
    const served_port *port;
    infer_input *input;
    tensor t;
    if (!read_tensor(r, view, &t) ||
        !infer_begin_input(r->request, t.name, t.type, t.shape, t.n, &port, &input, r->error)) {
        return false;
    }
    if (t.place.region[0] != '\0') {
        return infer_take_shared(port, input, r->regions, t.place.region, (uint64_t)t.place.offset,
                                 (uint64_t)t.place.size, r->error);
    }
    if (t.has_contents && t.contents.at != t.contents.end) {
        r->typed = true;
        return read_contents(r, port, input, t.contents);
    }
    r->inputs[r->n_waiting++] = (int32_t)(input - r->request->inputs); /* no input comes twice */
    return true;
}

static bool read_output(const reader *r, proto_view view)
{
    proto_field field;
    proto_step step;
    char name[LONGEST_NAME] = "";
    shared_place to = {.size = 0};
    infer_output *output;
    while ((step = proto_next(&view, &field)) == PROTO_FIELD) {
        if ((field.number == 1 && !read_text(&field, "the name of an output", name, sizeof(name), r->error)) ||
            (field.number == 2 && !read_place(&field, name, &to, r->error))) {
            return false;
        }
    }
    if (step == PROTO_DAMAGED) {
        return damaged(r->error);
    }
    return infer_add_output(r->request, name, true, &output, r->error) &&
           (to.region[0] == '\0' ||
            infer_share_output(output, r->regions, to.region, (uint64_t)to.offset, (uint64_t)to.size, r->error));
}

static bool read_id(const reader *r, proto_view bytes)
{
    const size_t size = (size_t)(bytes.end - bytes.at);
    free(r->request->id);
    r->request->id = malloc(size + 1);
    if (r->request->id == NULL) {
        return api_fail(r->error, 503, NULL, NULL, "cannot allocate the id");
    }
    return proto_text(bytes, r->request->id, size + 1) || api_fail(r->error, 400, NULL, NULL, "the id has a NUL");
}

static bool take_parameter(const reader *r, const proto_field *entry)
{
    parameter p;
    if (!read_parameter(entry, &p, r->error)) {
        return false;
    }
    if (strcmp(p.key, "sequence_id") == 0) {
        return api_fail(r->error, 400, NULL, NULL, "parameter sequence_id is not supported: requests have no state");
    }
    if (strcmp(p.key, "timeout") == 0) {
        if (!p.is_number || p.number < 0) {
            return api_fail(r->error, 400, NULL, NULL, "parameter timeout is not a number of microseconds");
        }
        r->request->queue_seconds = (double)p.number * 1e-6;
    }
    return true;
}

static bool read_fields(reader *r, proto_view message)
{
    proto_field field;
    proto_step step;
    while ((step = proto_next(&message, &field)) == PROTO_FIELD) {
        bool good = true;
        if (field.number >= 3 && field.number <= 7 && field.type != PROTO_BYTES) {
            return damaged(r->error);
        }
        switch (field.number) {
        case 3:
            good = read_id(r, field.bytes);
            break;
        case 4:
            good = take_parameter(r, &field);
            break;
        case 5:
            good = read_input(r, field.bytes);
            break;
        case 6:
            good = read_output(r, field.bytes);
            break;
        case 7:
            good = r->n_raw < served_input_count(r->request->network) ||
                   api_fail(r->error, 400, NULL, NULL, "raw_input_contents has more elements than the network inputs");
            if (good) {
                r->raw[r->n_raw++] = field.bytes;
            }
            break;
        default:
            break;
        }
        if (!good) {
            return false;
        }
    }
    return step == PROTO_END || damaged(r->error);
}

static bool take_raw(const reader *r)
{
    if (r->n_raw != r->n_waiting || (r->typed && r->n_raw > 0)) {
        return api_fail(
            r->error, 400, NULL, NULL,
            "%d inputs are in raw_input_contents, expected %d: all inputs that are not in shared memory, or "
            "none with contents in all",
            r->n_raw, r->n_waiting);
    }
    for (int32_t i = 0; i < r->n_raw; i++) {
        const served_port *port = served_input(r->request->network, r->inputs[i]);
        infer_input *input = &r->request->inputs[r->inputs[i]];
        if (!infer_take_raw(port, input, r->raw[i].at, (size_t)(r->raw[i].end - r->raw[i].at), r->error)) {
            return false;
        }
    }
    return true;
}

infer_request *infer_proto_read(served_network *network, shared_regions *regions, proto_view message,
                                const infer_client *client, void *user, api_error *error)
{
    const size_t n = (size_t)served_input_count(network) + 1;
    infer_request *request = infer_create(network, client, user, error);
    reader r = {.request = request, .regions = regions, .error = error};
    if (request == NULL) {
        return NULL;
    }
    r.raw = calloc(n, sizeof(*r.raw));
    r.inputs = calloc(n, sizeof(*r.inputs));
    bool read = (r.raw != NULL && r.inputs != NULL) || api_fail(error, 503, NULL, NULL, "cannot allocate the request");
    read = read && read_fields(&r, message) && take_raw(&r) && infer_check(request, error);
    if (read && request->n_outputs == 0) {
        read = infer_add_all_outputs(request, true, error);
    }
    free(r.raw);
    free(r.inputs);
    if (!read) {
        infer_destroy(request);
        return NULL;
    }
    return request;
}

/* An entry of a tensor's parameters. */
static void put_parameter(proto_writer *w, const char *key, const char *text, uint64_t number)
{
    const size_t entry = proto_begin(w, 4);
    proto_put_text(w, 1, key);
    const size_t value = proto_begin(w, 2);
    if (text != NULL) {
        proto_put_text(w, 3, text);
    } else {
        const unsigned char zero[2] = {2 << 3, 0}; /* a oneof is written also if it is 0 */
        if (number == 0 && w->status == TRM_OK) {
            w->status = trm_bytes_append(&w->bytes, (const char *)zero, sizeof(zero));
        }
        proto_put_varint(w, 2, number);
    }
    proto_end(w, value);
    proto_end(w, entry);
}

trm_status infer_proto_write(infer_request *request, size_t place, bool streamed)
{
    const served_options *o = served_get_options(request->network);
    proto_writer w = {.bytes = request->reply};
    size_t all = place + 4096;
    TRM_TRY(infer_write_shared(request));
    for (int32_t i = 0; i < request->n_outputs; i++) {
        all += request->outputs[i].region == NULL ? request->outputs[i].bytes + 256 : 256;
    }
    w.status = trm_bytes_reserve(&w.bytes, all);
    for (size_t i = 0; i < place && w.status == TRM_OK; i++) {
        w.status = trm_bytes_append(&w.bytes, "", 1);
    }
    const size_t outer = streamed ? proto_begin(&w, 2) : 0;
    proto_put_text(&w, 1, o->name);
    proto_put_text(&w, 2, o->version);
    proto_put_text(&w, 3, request->id);
    for (int32_t i = 0; i < request->n_outputs; i++) {
        const infer_output *output = &request->outputs[i];
        const served_port *port = served_output(request->network, output->index);
        const size_t inner = proto_begin(&w, 5);
        proto_put_text(&w, 1, port->name);
        proto_put_text(&w, 2, infer_type_name(port->dtype));
        proto_put_packed(&w, 3, output->dims.d, (size_t)output->dims.n);
        if (output->region != NULL) {
            put_parameter(&w, "shared_memory_region", shared_name(output->region), 0);
            put_parameter(&w, "shared_memory_byte_size", NULL, output->bytes);
            put_parameter(&w, "shared_memory_offset", NULL, output->region_offset);
        }
        proto_end(&w, inner);
    }
    for (int32_t i = 0; i < request->n_outputs; i++) {
        const infer_output *output = &request->outputs[i];
        if (output->region == NULL) {
            proto_put_bytes(&w, 6, output->data, output->bytes);
        }
    }
    if (streamed) {
        proto_end(&w, outer);
    }
    request->reply = w.bytes;
    return w.status;
}
