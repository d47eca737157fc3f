/*
 * trm_onnx_quantize: a model file with its products in int8, by QuantizeLinear and DequantizeLinear nodes.
 *
 * The new file is the old one, message by message, with other nodes and initializers; what this library does not read
 * stays as it is.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/recorder.h"
#include "graph/import/onnx/model.h"
#include "kernels/kernel.h"
#include "weight_stream/weight.h"

#define LEAST_OPSET 13 /* DequantizeLinear has an axis from here on */
#define LARGEST     127.0f

/* Numbers of fields of ModelProto, GraphProto, NodeProto, TensorProto and AttributeProto, and of types. */
enum {
    MODEL_GRAPH = 7,
    GRAPH_NODE = 1,
    GRAPH_INITIALIZER = 5,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP_TYPE = 4,
    NODE_ATTRIBUTE = 5,
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_INT = 3,
    ATTRIBUTE_TYPE = 20,
    ATTRIBUTE_TYPE_INT = 2,
    TYPE_FLOAT = 1,
    TYPE_INT8 = 3,
    WIRE_BYTES = 2
};

/* ---- which products ------------------------------------------------------------------------------------------- */

static int64_t attribute_of(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_attribute; i++) {
        if (strcmp(trm_onnx_text(node->attribute[i]->name), name) == 0) {
            return node->attribute[i]->i;
        }
    }
    return 0;
}

/* Whether a node is a product of a tensor with a weight; *axis becomes that of the weight's channels. */
static bool is_product(const trm_onnx *model, const Onnx__NodeProto *node, trm_onnx_product *product)
{
    const char *op = trm_onnx_text(node->op_type);
    const bool conv = strcmp(op, "Conv") == 0, gemm = strcmp(op, "Gemm") == 0, matmul = strcmp(op, "MatMul") == 0;
    if ((!conv && !gemm && !matmul) || trm_onnx_domain(node->domain)[0] != '\0' || node->n_input < 2 ||
        node->n_output < 1) {
        return false;
    }
    trm_onnx_elements found;
    for (size_t i = 0; i < model->graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = model->graph->initializer[i];
        const char *name = trm_onnx_text(tensor->name);
        if (strcmp(name, node->input[0]) == 0) {
            return false;
        }
        if (strcmp(name, node->input[1]) == 0 && trm_onnx_tensor_check(tensor, name, &found) == TRM_OK &&
            found.dtype == TRM_F32 && (conv ? found.dims.n >= 3 : found.dims.n == 2) && found.count > 0) {
            *product = (trm_onnx_product){.output = node->output[0],
                                          .input = node->input[0],
                                          .weight = node->input[1],
                                          .axis = conv || (gemm && attribute_of(node, "transB") != 0) ? 0 : 1};
            return true;
        }
    }
    return false;
}

static bool is_graph_input(const trm_onnx *model, const char *name)
{
    for (size_t i = 0; i < model->graph->n_input; i++) {
        if (strcmp(trm_onnx_text(model->graph->input[i]->name), name) == 0) {
            return true;
        }
    }
    return false;
}

bool trm_onnx_get_product(const trm_onnx *model, int32_t index, trm_onnx_product *product)
{
    for (size_t i = 0; index >= 0 && i < model->graph->n_node; i++) {
        if (is_product(model, model->graph->node[i], product) && !is_graph_input(model, product->weight) &&
            index-- == 0) {
            return true;
        }
    }
    return false;
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

/* Bytes of the file, or of our own. */
typedef struct piece {
    const unsigned char *bytes;
    size_t size;
    unsigned char *own; /* or NULL */
} piece;

typedef struct pieces {
    piece *list;
    size_t n, room, size;
} pieces;

static void fini_pieces(pieces *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->list[i].own);
    }
    free(p->list);
}

static trm_status add_piece(pieces *p, const unsigned char *bytes, size_t size, unsigned char *own)
{
    if (p->n == p->room) {
        const size_t room = 2 * p->room + 64;
        piece *list = realloc(p->list, room * sizeof(*list));
        if (list == NULL) {
            free(own);
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the messages of a model");
        }
        p->list = list;
        p->room = room;
    }
    p->list[p->n++] = (piece){bytes, size, own};
    p->size += size;
    return TRM_OK;
}

/* A message that grows. */
typedef struct message {
    FILE *file;
    char *bytes;
    size_t size;
} message;

static trm_status begin_message(message *m)
{
    *m = (message){0};
    m->file = open_memstream(&m->bytes, &m->size);
    if (m->file == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a message");
    }
    return TRM_OK;
}

static void put_varint(FILE *file, uint64_t value)
{
    for (; value > 0x7f; value >>= 7) {
        fputc((int)(value & 0x7f) | 0x80, file);
    }
    fputc((int)value, file);
}

static void put_number(FILE *file, int field, uint64_t value)
{
    put_varint(file, (uint64_t)field << 3);
    put_varint(file, value);
}

static void put_bytes(FILE *file, int field, const void *bytes, size_t size)
{
    put_varint(file, (uint64_t)field << 3 | WIRE_BYTES);
    put_varint(file, size);
    fwrite(bytes, 1, size, file);
}

static void put_text(FILE *file, int field, const char *text)
{
    put_bytes(file, field, text, strlen(text));
}

/* Ends a message, and adds it as a field of what the pieces are of. */
static trm_status end_message(message *m, int field, pieces *to)
{
    message head = {0};
    const bool failed = fclose(m->file) != 0;
    trm_status status = begin_message(&head);
    if (status == TRM_OK) {
        put_varint(head.file, (uint64_t)field << 3 | WIRE_BYTES);
        put_varint(head.file, m->size);
        status =
            fclose(head.file) != 0 || failed ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for a message") : TRM_OK;
    }
    if (status != TRM_OK) {
        free(head.bytes);
        free(m->bytes);
        return status;
    }
    status = add_piece(to, (unsigned char *)head.bytes, head.size, (unsigned char *)head.bytes);
    if (status != TRM_OK) {
        free(m->bytes);
        return status;
    }
    return add_piece(to, (unsigned char *)m->bytes, m->size, (unsigned char *)m->bytes);
}

/* A field of a message in the file. */
typedef struct field {
    int number, wire;
    const unsigned char *begin, *body, *end; /* all of it; of its bytes */
} field;

static bool read_varint(const unsigned char **at, const unsigned char *end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        const unsigned char byte = *(*at)++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return true;
        }
    }
    return false;
}

/* The next field; false at the end, and for what no open model has. */
static bool next_field(const unsigned char **at, const unsigned char *end, field *f)
{
    uint64_t tag, size = 0;
    f->begin = *at;
    if (!read_varint(at, end, &tag)) {
        return false;
    }
    f->number = (int)(tag >> 3);
    f->wire = (int)(tag & 7);
    if (f->wire == 0) {
        f->body = *at;
        if (!read_varint(at, end, &size)) {
            return false;
        }
    } else {
        if (f->wire == WIRE_BYTES && !read_varint(at, end, &size)) {
            return false;
        }
        size = f->wire == 1 ? 8 : f->wire == 5 ? 4 : size;
        f->body = *at;
        if (size > (uint64_t)(end - *at)) {
            return false;
        }
        *at += size;
    }
    f->end = *at;
    return true;
}

static bool is_text(const field *f, const char *text)
{
    const size_t size = (size_t)(f->end - f->body);
    return strlen(text) == size && memcmp(f->body, text, size) == 0;
}

/* Whether a message has a text in the first of its fields of a number. */
static bool has_text(const field *of, int number, const char *text)
{
    field f;
    for (const unsigned char *at = of->body; next_field(&at, of->end, &f);) {
        if (f.number == number && f.wire == WIRE_BYTES) {
            return is_text(&f, text);
        }
    }
    return false;
}

/* ---- the new graph ---------------------------------------------------------------------------------------------- */

typedef struct work {
    trm_onnx *model;
    const trm_onnx_scale *scales; /* [n] */
    int32_t n;
    trm_onnx_product *products; /* [n], of the scales */
    trm_quantize_fn on_layer;
    void *user;
    pieces graph, tail; /* nodes in the order of the file; initializers behind them */
} work;

static trm_status add_tensor(work *w, const char *name, const char *suffix, int type, const trm_dims *dims,
                             const void *bytes, size_t size)
{
    message m;
    char text[1024];
    snprintf(text, sizeof(text), "%.900s%s", name, suffix);
    TRM_TRY(begin_message(&m));
    for (int32_t i = 0; i < dims->n; i++) {
        put_number(m.file, TENSOR_DIMS, (uint64_t)dims->d[i]);
    }
    put_number(m.file, TENSOR_TYPE, (uint64_t)type);
    put_text(m.file, TENSOR_NAME, text);
    put_bytes(m.file, TENSOR_RAW, bytes, size);
    return end_message(&m, GRAPH_INITIALIZER, &w->tail);
}

/* op(from, name/scale, name/zero_point) -> to */
static trm_status add_linear(work *w, const char *op, const char *name, const char *from, const char *to, int64_t axis)
{
    message m, attribute;
    char text[1024];
    TRM_TRY(begin_message(&m));
    snprintf(text, sizeof(text), "%.900s%s", name, from);
    put_text(m.file, NODE_INPUT, text);
    snprintf(text, sizeof(text), "%.900s/scale", name);
    put_text(m.file, NODE_INPUT, text);
    snprintf(text, sizeof(text), "%.900s/zero_point", name);
    put_text(m.file, NODE_INPUT, text);
    snprintf(text, sizeof(text), "%.900s%s", name, to);
    put_text(m.file, NODE_OUTPUT, text);
    put_text(m.file, NODE_NAME, text);
    put_text(m.file, NODE_OP_TYPE, op);
    if (axis >= 0) {
        const trm_status status = begin_message(&attribute);
        if (status != TRM_OK) {
            fclose(m.file);
            free(m.bytes);
            return status;
        }
        put_text(attribute.file, ATTRIBUTE_NAME, "axis");
        put_number(attribute.file, ATTRIBUTE_INT, (uint64_t)axis);
        put_number(attribute.file, ATTRIBUTE_TYPE, ATTRIBUTE_TYPE_INT);
        fclose(attribute.file);
        put_bytes(m.file, NODE_ATTRIBUTE, attribute.bytes, attribute.size);
        free(attribute.bytes);
    }
    return end_message(&m, GRAPH_NODE, &w->graph);
}

/* Q and DQ of an input. */
static trm_status add_input(work *w, const char *name, float scale)
{
    const int8_t zero = 0;
    const trm_dims one = {0};
    TRM_TRY(add_tensor(w, name, "/scale", TYPE_FLOAT, &one, &scale, sizeof(scale)));
    TRM_TRY(add_tensor(w, name, "/zero_point", TYPE_INT8, &one, &zero, sizeof(zero)));
    TRM_TRY(add_linear(w, "QuantizeLinear", name, "", "/quantized", -1));
    return add_linear(w, "DequantizeLinear", name, "/quantized", "/dequantized", -1);
}

typedef struct channels {
    float *weight, *scales;
    int8_t *numbers, *zeros;
    int64_t n, inner, count; /* channels, elements of one that lie in a row, all elements */
    double difference, square;
} channels;

static trm_status round_channels(channels *c, const char *name)
{
    for (int64_t i = 0; i < c->count; i++) {
        float *most = &c->scales[i / c->inner % c->n];
        const float size = fabsf(c->weight[i]);
        if (!isfinite(size)) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s has numbers that are not finite", name);
        }
        *most = size > *most ? size : *most;
    }
    for (int64_t i = 0; i < c->n; i++) {
        c->scales[i] = c->scales[i] > 0.0f ? c->scales[i] / LARGEST : 1.0f;
    }
    for (int64_t i = 0; i < c->count; i++) {
        const float scale = c->scales[i / c->inner % c->n];
        c->numbers[i] = (int8_t)fminf(fmaxf(rintf(c->weight[i] / scale), -LARGEST), LARGEST);
        const double d = (double)(c->weight[i] - (float)c->numbers[i] * scale);
        c->difference += d * d;
        c->square += (double)c->weight[i] * (double)c->weight[i];
    }
    return TRM_OK;
}

static trm_status note(const work *w, const trm_onnx_product *p, const channels *c, int32_t index)
{
    const trm_quantized_layer layer = {.name = p->output,
                                       .rows = c->n,
                                       .columns = c->count / c->n,
                                       .bytes_before = c->count * (int64_t)sizeof(float),
                                       .bytes_after = c->count + c->n * (int64_t)(sizeof(float) + 1),
                                       .error = c->square > 0.0 ? sqrt(c->difference / c->square) : 0.0,
                                       .done = index + 1,
                                       .total = w->n};
    if (w->on_layer != NULL && !w->on_layer(w->user, &layer)) {
        TRM_FAIL(TRM_ERROR_CANCELLED, "quantizing was stopped");
    }
    return TRM_OK;
}

/* The numbers, scales and DQ of a weight. */
static trm_status add_weight(work *w, const trm_onnx_product *p, int32_t index)
{
    trm_weight *weight = NULL;
    TRM_TRY(trm_onnx_find_weight(w->model, p->weight, &weight));
    const trm_dims dims = trm_weight_dims(weight);
    channels c = {.n = dims.d[p->axis], .inner = 1, .count = trm_dims_count(&dims)};
    for (int32_t i = p->axis + 1; i < dims.n; i++) {
        c.inner *= dims.d[i];
    }
    const trm_dims line = {1, {c.n}};
    c.weight = malloc((size_t)c.count * sizeof(float));
    c.scales = calloc((size_t)c.n, sizeof(float));
    c.numbers = malloc((size_t)c.count);
    c.zeros = calloc((size_t)c.n, 1);
    trm_status status = c.weight == NULL || c.scales == NULL || c.numbers == NULL || c.zeros == NULL
                            ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for weight %s", p->weight)
                            : trm_weight_read(weight, TRM_F32, 0, (size_t)c.count, c.weight);
    TRM_TRY_GOTO(status, status, done);
    TRM_TRY_GOTO(status, round_channels(&c, p->weight), done);
    TRM_TRY_GOTO(status, add_tensor(w, p->weight, "/quantized", TYPE_INT8, &dims, c.numbers, (size_t)c.count), done);
    TRM_TRY_GOTO(status, add_tensor(w, p->weight, "/scale", TYPE_FLOAT, &line, c.scales, (size_t)c.n * sizeof(float)),
                 done);
    TRM_TRY_GOTO(status, add_tensor(w, p->weight, "/zero_point", TYPE_INT8, &line, c.zeros, (size_t)c.n), done);
    TRM_TRY_GOTO(status, add_linear(w, "DequantizeLinear", p->weight, "/quantized", "/dequantized", p->axis), done);
    status = note(w, p, &c, index);
done:
    trm_weight_destroy(weight);
    free(c.weight);
    free(c.scales);
    free(c.numbers);
    free(c.zeros);
    return status;
}

/* The node with "/dequantized" behind its first two inputs. */
static trm_status add_product(work *w, const field *node)
{
    message m;
    field f;
    int inputs = 0;
    TRM_TRY(begin_message(&m));
    for (const unsigned char *at = node->body; next_field(&at, node->end, &f);) {
        if (f.number == NODE_INPUT && f.wire == WIRE_BYTES && inputs++ < 2) {
            char text[1024];
            snprintf(text, sizeof(text), "%.*s/dequantized", (int)(f.end - f.body < 900 ? f.end - f.body : 900),
                     (const char *)f.body);
            put_text(m.file, NODE_INPUT, text);
        } else {
            fwrite(f.begin, 1, (size_t)(f.end - f.begin), m.file);
        }
    }
    return end_message(&m, GRAPH_NODE, &w->graph);
}

static trm_status add_node(work *w, const field *node)
{
    for (int32_t i = 0; i < w->n; i++) {
        const trm_onnx_product *p = &w->products[i];
        if (!has_text(node, NODE_OUTPUT, p->output)) {
            continue;
        }
        bool has_input = false, has_weight = false;
        for (int32_t k = 0; k < w->n; k++) { /* those before it in the file have axis -1 */
            has_input = has_input || (w->products[k].axis < 0 && strcmp(w->products[k].input, p->input) == 0);
            has_weight = has_weight || (w->products[k].axis < 0 && strcmp(w->products[k].weight, p->weight) == 0);
        }
        TRM_TRY(has_input ? TRM_OK : add_input(w, p->input, w->scales[i].scale));
        TRM_TRY(has_weight ? TRM_OK : add_weight(w, p, i));
        w->products[i].axis = -1;
        return add_product(w, node);
    }
    return add_piece(&w->graph, node->begin, (size_t)(node->end - node->begin), NULL);
}

/* Places that read a tensor in a graph and in those within it. */
static int32_t count_reads(const Onnx__GraphProto *graph, const char *name)
{
    int32_t reads = 0;
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        for (size_t k = 0; k < node->n_input; k++) {
            reads += strcmp(node->input[k], name) == 0 ? 1 : 0;
        }
        for (size_t k = 0; k < node->n_attribute; k++) {
            const Onnx__AttributeProto *a = node->attribute[k];
            reads += a->g != NULL ? count_reads(a->g, name) : 0;
            for (size_t g = 0; g < a->n_graphs; g++) {
                reads += count_reads(a->graphs[g], name);
            }
        }
    }
    for (size_t i = 0; i < graph->n_output; i++) {
        reads += strcmp(trm_onnx_text(graph->output[i]->name), name) == 0 ? 1 : 0;
    }
    return reads;
}

/* Whether nothing but quantized products reads an initializer. */
static bool is_replaced(const work *w, const field *initializer)
{
    int32_t products = 0;
    const char *name = NULL;
    for (int32_t i = 0; i < w->n; i++) {
        if (has_text(initializer, TENSOR_NAME, w->products[i].weight)) {
            name = w->products[i].weight;
            products++;
        }
    }
    return name != NULL && count_reads(w->model->graph, name) == products;
}

static trm_status make_graph(work *w, const field *graph)
{
    field f;
    for (const unsigned char *at = graph->body; next_field(&at, graph->end, &f);) {
        if (f.number == GRAPH_NODE && f.wire == WIRE_BYTES) {
            TRM_TRY(add_node(w, &f));
        } else if (f.number != GRAPH_INITIALIZER || !is_replaced(w, &f)) {
            TRM_TRY(add_piece(&w->graph, f.begin, (size_t)(f.end - f.begin), NULL));
        }
    }
    return TRM_OK;
}

/* ---- the new file ----------------------------------------------------------------------------------------------- */

static trm_status write_pieces(const pieces *p, FILE *file)
{
    for (size_t i = 0; i < p->n; i++) {
        if (fwrite(p->list[i].bytes, 1, p->list[i].size, file) != p->list[i].size) {
            TRM_FAIL(TRM_ERROR_IO, "cannot write a model: %s", strerror(errno));
        }
    }
    return TRM_OK;
}

static trm_status write_model(work *w, FILE *file)
{
    const trm_mapping all = trm_weight_file_bytes(w->model->file);
    field f;
    for (const unsigned char *at = all.bytes; next_field(&at, all.bytes + all.size, &f);) {
        if (f.number != MODEL_GRAPH || f.wire != WIRE_BYTES) {
            fwrite(f.begin, 1, (size_t)(f.end - f.begin), file);
            continue;
        }
        TRM_TRY(make_graph(w, &f));
        put_varint(file, (uint64_t)MODEL_GRAPH << 3 | WIRE_BYTES);
        put_varint(file, w->graph.size + w->tail.size);
        TRM_TRY(write_pieces(&w->graph, file));
        TRM_TRY(write_pieces(&w->tail, file));
    }
    return TRM_OK;
}

/* Under another name until it is complete. */
static trm_status write_file(work *w, const char *path)
{
    char name[4096];
    if ((size_t)snprintf(name, sizeof(name), "%s.XXXXXX", path) >= sizeof(name)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot write %s: the path is too long", path);
    }
    const int fd = mkstemp(name);
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (file == NULL) {
        const int cause = errno;
        if (fd >= 0) {
            close(fd);
            unlink(name);
        }
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(cause));
    }
    trm_status status = write_model(w, file);
    const bool failed = ferror(file) != 0;
    const mode_t mask = umask(0);
    umask(mask);
    if ((fchmod(fd, 0666 & ~mask) != 0 || fclose(file) != 0 || failed ||
         (status == TRM_OK && rename(name, path) != 0)) &&
        status == TRM_OK) {
        status = trm_fail(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    if (status != TRM_OK) {
        unlink(name);
    }
    return status;
}

/* ---- all -------------------------------------------------------------------------------------------------------- */

static trm_status find_products(work *w)
{
    for (int32_t i = 0; i < w->n; i++) {
        bool found = false;
        for (int32_t k = 0; !found && trm_onnx_get_product(w->model, k, &w->products[i]); k++) {
            found = w->scales[i].output != NULL && strcmp(w->products[i].output, w->scales[i].output) == 0;
        }
        if (!found) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "no product is named %s",
                     w->scales[i].output != NULL ? w->scales[i].output : "NULL");
        }
        if (!(w->scales[i].scale > 0.0f) || isinf(w->scales[i].scale)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the input of product %s has a scale of %g, expected a number above 0",
                     w->scales[i].output, (double)w->scales[i].scale);
        }
        for (int32_t k = 0; k < i; k++) { /* a weight has one DequantizeLinear */
            if (strcmp(w->products[k].weight, w->products[i].weight) == 0 &&
                w->products[k].axis != w->products[i].axis) {
                TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weight %s has channels on two axes, expected one: keep product %s",
                         w->products[i].weight, w->products[i].output);
            }
        }
    }
    return TRM_OK;
}

static trm_status check_place(const trm_onnx *model, const char *path)
{
    char *folder = NULL, *slash, *copy = strdup(path);
    bool same = copy == NULL;
    for (size_t i = 0; !same && i < model->graph->n_initializer; i++) {
        if (model->graph->initializer[i]->n_external_data > 0) {
            slash = strrchr(copy, '/');
            if (slash != NULL) {
                slash[slash == copy ? 1 : 0] = '\0';
            }
            folder = realpath(slash != NULL ? copy : ".", NULL);
            same = folder != NULL && model->folder != NULL && strcmp(folder, model->folder) == 0;
            free(folder);
            free(copy);
            if (!same) {
                TRM_FAIL(TRM_ERROR_UNSUPPORTED, "model %s has weights in other files: write %s beside them",
                         model->path, path);
            }
            return TRM_OK;
        }
    }
    free(copy);
    return TRM_OK;
}

TRM_CALL(NULL, trm_onnx_quantize,
         (trm_onnx *model, const char *path, const trm_onnx_scale *scales, int32_t n, trm_quantize_fn on_layer,
          void *user),
         (model, path, scales, n, on_layer, user))
{
    struct stat info;
    trm_onnx_info about;
    if (model == NULL || path == NULL || scales == NULL || n < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot quantize a network: it has no products, or no path was given");
    }
    trm_onnx_get_info(model, &about);
    if (about.opset < LEAST_OPSET) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "model %s has opset %lld, expected %d or more: scales of channels need it",
                 about.path, (long long)about.opset, LEAST_OPSET);
    }
    if (lstat(path, &info) == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "file %s is there already, expected the name of a new one", path);
    }
    TRM_TRY(check_place(model, path));
    work w = {.model = model, .scales = scales, .n = n, .on_layer = on_layer, .user = user};
    w.products = calloc((size_t)n, sizeof(*w.products));
    trm_status status =
        w.products == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for %d products", (int)n) : find_products(&w);
    status = status == TRM_OK ? write_file(&w, path) : status;
    fini_pieces(&w.graph);
    fini_pieces(&w.tail);
    free(w.products);
    return status;
}
