/* Frames written and read. */
#include "launcher/serve/ipc/wire.h"

#include <string.h>

#include "base/error.h"

#define WIRE_MAGIC 0x314d5254u /* "TRM1" */

typedef struct frame_header {
    uint32_t magic, kind;
    uint64_t size; /* of the payload */
} frame_header;

wire_writer wire_begin(trm_bytes *out, wire_kind kind)
{
    wire_writer writer = {.out = out, .start = out->size};
    frame_header header = {.magic = WIRE_MAGIC, .kind = (uint32_t)kind};
    wire_put(&writer, &header, sizeof(header));
    return writer;
}

void wire_put(wire_writer *writer, const void *bytes, size_t size)
{
    if (writer->status == TRM_OK && size > 0) {
        writer->status = trm_bytes_append(writer->out, bytes, size);
    }
}

trm_status wire_end(wire_writer *writer)
{
    uint64_t size = writer->out->size - writer->start - sizeof(frame_header);
    if (writer->status == TRM_OK && size > WIRE_LONGEST_FRAME) {
        writer->status = trm_fail(TRM_ERROR_INVALID_ARGUMENT, "message has %llu bytes, expected at most %zu",
                                  (unsigned long long)size, WIRE_LONGEST_FRAME);
    }
    if (writer->status != TRM_OK) {
        writer->out->size = writer->start;
        return writer->status;
    }
    memcpy(writer->out->data + writer->start + offsetof(frame_header, size), &size, sizeof(size));
    return TRM_OK;
}

trm_status wire_write(trm_bytes *out, wire_kind kind, const void *payload, size_t size)
{
    wire_writer writer = wire_begin(out, kind);
    wire_put(&writer, payload, size);
    return wire_end(&writer);
}

/* Texts go last in a frame, with their NUL. */
static void put_text(wire_writer *writer, const char *text)
{
    wire_put(writer, text == NULL ? "" : text, text == NULL ? 1 : strlen(text) + 1);
}

trm_status wire_write_failure(trm_bytes *out, trm_status failure, const char *cause)
{
    int32_t number = (int32_t)failure;
    wire_writer writer = wire_begin(out, WIRE_FAILED);
    wire_put(&writer, &number, sizeof(number));
    put_text(&writer, cause);
    return wire_end(&writer);
}

trm_status wire_write_refusal(trm_bytes *out, uint64_t id, trm_status failure, const char *cause)
{
    int32_t number = (int32_t)failure;
    wire_writer writer = wire_begin(out, WIRE_REFUSED);
    wire_put(&writer, &id, sizeof(id));
    wire_put(&writer, &number, sizeof(number));
    put_text(&writer, cause);
    return wire_end(&writer);
}

trm_status wire_write_stalls(trm_bytes *out, const wire_stalls *stalls)
{
    wire_writer writer = wire_begin(out, WIRE_STALLS);
    wire_put(&writer, &stalls->steps, sizeof(stalls->steps));
    put_text(&writer, stalls->layers);
    return wire_end(&writer);
}

/* The struct as it is, its pointers meaning nothing, and then what they point to. */
trm_status wire_write_submission(trm_bytes *out, const wire_submission *submission)
{
    const trm_serving_request *request = &submission->request;
    wire_writer writer = wire_begin(out, WIRE_SUBMIT);
    wire_put(&writer, submission, sizeof(*submission));
    wire_put(&writer, request->prompt, (size_t)request->n_prompt * sizeof(int32_t));
    wire_put(&writer, request->stop_tokens, (size_t)request->n_stop_tokens * sizeof(int32_t));
    wire_put(&writer, request->sampling.bias, (size_t)request->sampling.n_bias * sizeof(trm_logit_bias));
    put_text(&writer, submission->grammar);
    return wire_end(&writer);
}

trm_status wire_write_event(trm_bytes *out, const trm_serving_event *event)
{
    wire_writer writer = wire_begin(out, WIRE_EVENT);
    wire_put(&writer, event, sizeof(*event));
    wire_put(&writer, event->top, (size_t)event->n_top * sizeof(trm_token_logprob));
    wire_put(&writer, event->embedding, (size_t)event->n_embedding * sizeof(float));
    put_text(&writer, event->error);
    return wire_end(&writer);
}

trm_status wire_next(const char *data, size_t size, bool *complete, wire_frame *frame)
{
    frame_header header;
    *complete = false;
    if (size < sizeof(header)) {
        return TRM_OK;
    }
    memcpy(&header, data, sizeof(header));
    if (header.magic != WIRE_MAGIC || header.kind == 0 || header.kind >= WIRE_KIND_COUNT ||
        header.size > WIRE_LONGEST_FRAME) {
        TRM_FAIL(TRM_ERROR_IO, "message has magic %x, kind %u and size %llu, expected one of this program",
                 header.magic, header.kind, (unsigned long long)header.size);
    }
    if (size - sizeof(header) < header.size) {
        return TRM_OK;
    }
    *complete = true;
    *frame = (wire_frame){.kind = (wire_kind)header.kind,
                          .payload = data + sizeof(header),
                          .size = (size_t)header.size,
                          .whole = sizeof(header) + (size_t)header.size};
    return TRM_OK;
}

static trm_status fail_short(const wire_frame *frame)
{
    TRM_FAIL(TRM_ERROR_IO, "message of kind %d has %zu bytes, expected another size", (int)frame->kind, frame->size);
}

trm_status wire_read(const wire_frame *frame, void *payload, size_t size)
{
    if (frame->size != size) {
        return fail_short(frame);
    }
    memcpy(payload, frame->payload, size);
    return TRM_OK;
}

/* Bytes of a payload taken one after the other. */
typedef struct cursor {
    const wire_frame *frame;
    size_t at;
    bool failed;
} cursor;

static const char *take(cursor *c, size_t size)
{
    if (c->failed || size > c->frame->size - c->at) {
        c->failed = true;
        return NULL;
    }
    const char *bytes = c->frame->payload + c->at;
    c->at += size;
    return bytes;
}

static void take_into(cursor *c, void *to, size_t size)
{
    const char *bytes = take(c, size);
    if (bytes != NULL) {
        memcpy(to, bytes, size);
    }
}

/* The rest of the payload, which must be one text. */
static const char *take_text(cursor *c)
{
    size_t size = c->frame->size - c->at;
    const char *text = size > 0 ? take(c, size) : NULL;
    if (text == NULL || memchr(text, '\0', size) != text + size - 1) {
        c->failed = true;
        return NULL;
    }
    return text;
}

trm_status wire_read_failure(const wire_frame *frame, wire_failure *failure)
{
    cursor c = {.frame = frame};
    int32_t number = 0;
    take_into(&c, &number, sizeof(number));
    failure->cause = take_text(&c);
    failure->status = (trm_status)number;
    return c.failed ? fail_short(frame) : TRM_OK;
}

trm_status wire_read_refusal(const wire_frame *frame, wire_refusal *refusal)
{
    cursor c = {.frame = frame};
    int32_t number = 0;
    take_into(&c, &refusal->id, sizeof(refusal->id));
    take_into(&c, &number, sizeof(number));
    refusal->cause = take_text(&c);
    refusal->status = (trm_status)number;
    return c.failed ? fail_short(frame) : TRM_OK;
}

trm_status wire_read_stalls(const wire_frame *frame, wire_stalls *stalls)
{
    cursor c = {.frame = frame};
    stalls->steps = 0;
    take_into(&c, &stalls->steps, sizeof(stalls->steps));
    stalls->layers = take_text(&c);
    return c.failed ? fail_short(frame) : TRM_OK;
}

/* Counts are within what a frame can hold, so that sizes cannot overflow. */
static bool count_is_sane(int64_t count)
{
    return count >= 0 && (uint64_t)count <= WIRE_LONGEST_FRAME;
}

trm_status wire_read_submission(const wire_frame *frame, wire_submission *submission)
{
    cursor c = {.frame = frame};
    trm_serving_request *request = &submission->request;
    *submission = (wire_submission){0};
    take_into(&c, submission, sizeof(*submission));
    if (c.failed || request->size != sizeof(*request) || !count_is_sane(request->n_prompt) ||
        !count_is_sane(request->n_stop_tokens) || !count_is_sane(request->sampling.n_bias)) {
        return fail_short(frame);
    }
    /* All arrays are of 4-byte elements, and frames begin wherever the last one ended: a payload is aligned by its
     * reader (channel.c). */
    request->prompt = (const int32_t *)(const void *)take(&c, (size_t)request->n_prompt * sizeof(int32_t));
    request->stop_tokens = (const int32_t *)(const void *)take(&c, (size_t)request->n_stop_tokens * sizeof(int32_t));
    request->sampling.bias =
        (const trm_logit_bias *)(const void *)take(&c, (size_t)request->sampling.n_bias * sizeof(trm_logit_bias));
    submission->grammar = take_text(&c);
    request->mask = NULL;
    request->mask_user = NULL;
    return c.failed ? fail_short(frame) : TRM_OK;
}

trm_status wire_read_event(const wire_frame *frame, wire_event *event)
{
    cursor c = {.frame = frame};
    *event = (wire_event){0};
    take_into(&c, &event->event, sizeof(event->event));
    if (c.failed || event->event.n_top < 0 || event->event.n_top > TRM_MAX_TOP_LOGPROBS ||
        !count_is_sane(event->event.n_embedding)) {
        return fail_short(frame);
    }
    take_into(&c, event->top, (size_t)event->event.n_top * sizeof(trm_token_logprob));
    event->event.top = event->top;
    event->event.embedding = (const float *)(const void *)take(&c, (size_t)event->event.n_embedding * sizeof(float));
    event->event.error = take_text(&c);
    return c.failed ? fail_short(frame) : TRM_OK;
}
