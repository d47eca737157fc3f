/* Writing and reading of frames. */
#include "launcher/serve/ipc/ipc_frames.h"

#include <string.h>

#include "base/error.h"

#define IPC_MAGIC 0x314d5254u /* "TRM1" */

typedef struct frame_header {
    uint32_t magic, kind;
    uint64_t size; /* of the payload */
} frame_header;

ipc_writer ipc_begin(trm_bytes *out, ipc_kind kind)
{
    ipc_writer writer = {.out = out, .start = out->size};
    frame_header header = {.magic = IPC_MAGIC, .kind = (uint32_t)kind};
    ipc_put(&writer, &header, sizeof(header));
    return writer;
}

void ipc_put(ipc_writer *writer, const void *bytes, size_t size)
{
    if (writer->status == TRM_OK && size > 0) {
        writer->status = trm_bytes_append(writer->out, bytes, size);
    }
}

trm_status ipc_end(ipc_writer *writer)
{
    uint64_t size = writer->out->size - writer->start - sizeof(frame_header);
    if (writer->status == TRM_OK && size > IPC_LONGEST_FRAME) {
        writer->status = trm_fail(TRM_ERROR_INVALID_ARGUMENT, "frame has %llu bytes, expected at most %zu",
                                  (unsigned long long)size, IPC_LONGEST_FRAME);
    }
    if (writer->status != TRM_OK) {
        writer->out->size = writer->start;
        return writer->status;
    }
    memcpy(writer->out->data + writer->start + offsetof(frame_header, size), &size, sizeof(size));
    return TRM_OK;
}

trm_status ipc_write(trm_bytes *out, ipc_kind kind, const void *payload, size_t size)
{
    ipc_writer writer = ipc_begin(out, kind);
    ipc_put(&writer, payload, size);
    return ipc_end(&writer);
}

/* Texts come last in a frame, with their NUL. */
static void put_text(ipc_writer *writer, const char *text)
{
    ipc_put(writer, text == NULL ? "" : text, text == NULL ? 1 : strlen(text) + 1);
}

trm_status ipc_write_failure(trm_bytes *out, trm_status failure, const char *cause)
{
    int32_t number = (int32_t)failure;
    ipc_writer writer = ipc_begin(out, IPC_FAILED);
    ipc_put(&writer, &number, sizeof(number));
    put_text(&writer, cause);
    return ipc_end(&writer);
}

trm_status ipc_write_refusal(trm_bytes *out, uint64_t id, trm_status failure, const char *cause)
{
    int32_t number = (int32_t)failure;
    ipc_writer writer = ipc_begin(out, IPC_REFUSED);
    ipc_put(&writer, &id, sizeof(id));
    ipc_put(&writer, &number, sizeof(number));
    put_text(&writer, cause);
    return ipc_end(&writer);
}

trm_status ipc_write_adapter(trm_bytes *out, ipc_kind kind, const ipc_adapter *adapter)
{
    const int32_t numbers[2] = {adapter->key, (int32_t)adapter->status};
    ipc_writer writer = ipc_begin(out, kind);
    ipc_put(&writer, numbers, sizeof(numbers));
    put_text(&writer, adapter->text);
    return ipc_end(&writer);
}

trm_status ipc_write_stalls(trm_bytes *out, const ipc_stalls *stalls)
{
    ipc_writer writer = ipc_begin(out, IPC_STALLS);
    ipc_put(&writer, &stalls->steps, sizeof(stalls->steps));
    put_text(&writer, stalls->layers);
    return ipc_end(&writer);
}

/* The struct, whose pointers have no meaning, and then what they point to. */
trm_status ipc_write_submission(trm_bytes *out, const ipc_submission *submission)
{
    const trm_serving_request *request = &submission->request;
    ipc_writer writer = ipc_begin(out, IPC_SUBMIT);
    ipc_put(&writer, submission, sizeof(*submission));
    ipc_put(&writer, request->prompt, (size_t)request->n_prompt * sizeof(int32_t));
    ipc_put(&writer, request->stop_tokens, (size_t)request->n_stop_tokens * sizeof(int32_t));
    ipc_put(&writer, request->sampling.bias, (size_t)request->sampling.n_bias * sizeof(trm_logit_bias));
    put_text(&writer, request->traceparent);
    put_text(&writer, request->tracestate);
    put_text(&writer, submission->grammar);
    return ipc_end(&writer);
}

trm_status ipc_write_event(trm_bytes *out, const trm_serving_event *event)
{
    ipc_writer writer = ipc_begin(out, IPC_EVENT);
    ipc_put(&writer, event, sizeof(*event));
    ipc_put(&writer, event->top, (size_t)event->n_top * sizeof(trm_token_logprob));
    ipc_put(&writer, event->embedding, (size_t)event->n_embedding * sizeof(float));
    put_text(&writer, event->error);
    return ipc_end(&writer);
}

trm_status ipc_next(const char *data, size_t size, bool *complete, ipc_frame *frame)
{
    frame_header header;
    *complete = false;
    if (size < sizeof(header)) {
        return TRM_OK;
    }
    memcpy(&header, data, sizeof(header));
    if (header.magic != IPC_MAGIC || header.kind == 0 || header.kind >= IPC_KIND_COUNT ||
        header.size > IPC_LONGEST_FRAME) {
        TRM_FAIL(TRM_ERROR_IO, "frame has magic %x, kind %u and size %llu, expected a frame of this program",
                 header.magic, header.kind, (unsigned long long)header.size);
    }
    if (size - sizeof(header) < header.size) {
        return TRM_OK;
    }
    *complete = true;
    *frame = (ipc_frame){.kind = (ipc_kind)header.kind,
                         .payload = data + sizeof(header),
                         .size = (size_t)header.size,
                         .whole = sizeof(header) + (size_t)header.size};
    return TRM_OK;
}

static trm_status fail_short(const ipc_frame *frame)
{
    TRM_FAIL(TRM_ERROR_IO, "frame of kind %d has %zu bytes, expected another size", (int)frame->kind, frame->size);
}

trm_status ipc_read(const ipc_frame *frame, void *payload, size_t size)
{
    if (frame->size != size) {
        return fail_short(frame);
    }
    memcpy(payload, frame->payload, size);
    return TRM_OK;
}

/* Reads the bytes of a payload in order. */
typedef struct cursor {
    const ipc_frame *frame;
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

/* A text that is followed by others; NULL: it is empty. */
static const char *take_inner_text(cursor *c)
{
    const size_t left = c->failed ? 0 : c->frame->size - c->at;
    const char *text = c->frame->payload + c->at, *end = left > 0 ? memchr(text, '\0', left) : NULL;
    const char *taken = take(c, end != NULL ? (size_t)(end - text) + 1 : left + 1); /* too much: it is cut */
    return taken != NULL && taken[0] != '\0' ? taken : NULL;
}

trm_status ipc_read_failure(const ipc_frame *frame, ipc_failure *failure)
{
    cursor c = {.frame = frame};
    int32_t number = 0;
    take_into(&c, &number, sizeof(number));
    failure->cause = take_text(&c);
    failure->status = (trm_status)number;
    return c.failed ? fail_short(frame) : TRM_OK;
}

trm_status ipc_read_refusal(const ipc_frame *frame, ipc_refusal *refusal)
{
    cursor c = {.frame = frame};
    int32_t number = 0;
    take_into(&c, &refusal->id, sizeof(refusal->id));
    take_into(&c, &number, sizeof(number));
    refusal->cause = take_text(&c);
    refusal->status = (trm_status)number;
    return c.failed ? fail_short(frame) : TRM_OK;
}

trm_status ipc_read_adapter(const ipc_frame *frame, ipc_adapter *adapter)
{
    cursor c = {.frame = frame};
    int32_t numbers[2] = {0};
    take_into(&c, numbers, sizeof(numbers));
    adapter->text = take_text(&c);
    adapter->key = numbers[0];
    adapter->status = (trm_status)numbers[1];
    return c.failed ? fail_short(frame) : TRM_OK;
}

trm_status ipc_read_stalls(const ipc_frame *frame, ipc_stalls *stalls)
{
    cursor c = {.frame = frame};
    stalls->steps = 0;
    take_into(&c, &stalls->steps, sizeof(stalls->steps));
    stalls->layers = take_text(&c);
    return c.failed ? fail_short(frame) : TRM_OK;
}

/* Counts are bounded by the size of a frame, so that sizes cannot overflow. */
static bool count_is_sane(int64_t count)
{
    return count >= 0 && (uint64_t)count <= IPC_LONGEST_FRAME;
}

trm_status ipc_read_submission(const ipc_frame *frame, ipc_submission *submission)
{
    cursor c = {.frame = frame};
    trm_serving_request *request = &submission->request;
    *submission = (ipc_submission){0};
    take_into(&c, submission, sizeof(*submission));
    if (c.failed || request->size != sizeof(*request) || !count_is_sane(request->n_prompt) ||
        !count_is_sane(request->n_stop_tokens) || !count_is_sane(request->sampling.n_bias)) {
        return fail_short(frame);
    }
    /* All arrays have 4-byte elements, but a frame begins wherever the last one ended: its reader (channel.c) aligns
     * the payload. */
    request->prompt = (const int32_t *)(const void *)take(&c, (size_t)request->n_prompt * sizeof(int32_t));
    request->stop_tokens = (const int32_t *)(const void *)take(&c, (size_t)request->n_stop_tokens * sizeof(int32_t));
    request->sampling.bias =
        (const trm_logit_bias *)(const void *)take(&c, (size_t)request->sampling.n_bias * sizeof(trm_logit_bias));
    request->traceparent = take_inner_text(&c);
    request->tracestate = take_inner_text(&c);
    submission->grammar = take_text(&c);
    request->mask = NULL;
    request->mask_user = NULL;
    return c.failed ? fail_short(frame) : TRM_OK;
}

trm_status ipc_read_event(const ipc_frame *frame, ipc_event *event)
{
    cursor c = {.frame = frame};
    *event = (ipc_event){0};
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
