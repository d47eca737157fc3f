/* Runs the steps of decoding. */
#include "launcher/text/tokenizer/decode.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "launcher/text/strings/utf8.h"
#include "launcher/text/tokenizer/byte_level.h"

static trm_status feed(trm_decode_stream *stream, size_t index, const char *text, size_t size);

/* Replaces a literal everywhere, like Rust's str::replace: an empty one matches between all characters. */
static trm_status replace_all(trm_bytes *out, const char *text, size_t size, const char *literal, const char *content)
{
    size_t length = strlen(literal), put = strlen(content);
    if (length == 0) {
        for (size_t at = 0, step; at < size; at += step) {
            step = trm_utf8_size(text[at]);
            TRM_TRY(trm_bytes_append(out, content, put));
            TRM_TRY(trm_bytes_append(out, text + at, step));
        }
        return trm_bytes_append(out, content, put);
    }
    const char *at;
    while (size >= length && (at = memmem(text, size, literal, length)) != NULL) {
        TRM_TRY(trm_bytes_append(out, text, (size_t)(at - text)));
        TRM_TRY(trm_bytes_append(out, content, put));
        size -= (size_t)(at - text) + length;
        text = at + length;
    }
    return trm_bytes_append(out, text, size);
}

/* WordPiece's cleanup of English on one token; the result is in `text`. */
static trm_status clean_up(trm_bytes *text, trm_bytes *spare)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (text->size == 0 || memmem(text->data, text->size, pairs[i][0], strlen(pairs[i][0])) == NULL) {
            continue;
        }
        spare->size = 0;
        TRM_TRY(replace_all(spare, text->data, text->size, pairs[i][0], pairs[i][1]));
        trm_bytes other = *text;
        *text = *spare;
        *spare = other;
    }
    return TRM_OK;
}

/* Bytes of tokens, emitted as whole characters. */
static trm_status push_byte_level(trm_decode_stream *stream, size_t index, const char *token, size_t size)
{
    trm_decode_state *state = &stream->states[index];
    trm_bytes *pending = &state->pending;
    size_t before = pending->size;
    TRM_TRY(trm_bytes_reserve(pending, size));
    for (size_t at = 0, step; at < size; at += step) {
        int byte = trm_byte_level_byte(trm_utf8_read(token + at, &step));
        if (byte < 0) { /* not of the byte alphabet: an added token, which is literal */
            pending->size = before;
            TRM_TRY(trm_bytes_append(pending, token, size));
            break;
        }
        char c = (char)byte;
        TRM_TRY(trm_bytes_append(pending, &c, 1));
    }
    /* Everything except an unfinished character at the end is settled. */
    size_t tail = pending->size;
    for (size_t back = 1; back <= 3 && back <= pending->size; back++) {
        size_t length;
        const char *start = pending->data + pending->size - back;
        if (!trm_utf8_is_continuation(*start)) {
            tail -= trm_utf8_examine(start, back, &length) == TRM_UTF8_INCOMPLETE ? back : 0;
            break;
        }
    }
    state->scratch.size = 0;
    TRM_TRY(trm_utf8_append_lossy(&state->scratch, pending->data, tail));
    memmove(pending->data, pending->data + tail, pending->size - tail);
    pending->size -= tail;
    return feed(stream, index + 1, state->scratch.data, state->scratch.size);
}

static trm_status push_metaspace(trm_decode_stream *stream, size_t index, const char *token, size_t size)
{
    const trm_decode_step *step = &stream->steps->items[index];
    trm_decode_state *state = &stream->states[index];
    bool drop = (state->count == 0 || step->fused) && step->prepend != TRM_PREPEND_NEVER;
    state->count++;
    state->scratch.size = 0;
    for (size_t at = 0, length; at < size; at += length) {
        if (trm_utf8_read(token + at, &length) != step->character) {
            TRM_TRY(trm_bytes_append(&state->scratch, token + at, length));
        } else {
            TRM_TRY(trm_bytes_append(&state->scratch, " ", !drop));
        }
    }
    return feed(stream, index + 1, state->scratch.data, state->scratch.size);
}

static trm_status push_wordpiece(trm_decode_stream *stream, size_t index, const char *token, size_t size)
{
    const trm_decode_step *step = &stream->steps->items[index];
    trm_decode_state *state = &stream->states[index];
    size_t prefix = strlen(step->text);
    state->scratch.size = 0;
    if (state->count > 0) {
        if (size >= prefix && memcmp(token, step->text, prefix) == 0) {
            token += prefix;
            size -= prefix;
        } else {
            TRM_TRY(trm_bytes_append(&state->scratch, " ", 1));
        }
    }
    state->count++;
    TRM_TRY(trm_bytes_append(&state->scratch, token, size));
    if (step->cleanup) {
        TRM_TRY(clean_up(&state->scratch, &state->pending));
    }
    return feed(stream, index + 1, state->scratch.data, state->scratch.size);
}

/* The byte of a token such as <0x0A>; -1 for other tokens. */
static int byte_of(const char *token, size_t size)
{
    if (size != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') {
        return -1;
    }
    int high = token[3] == '+' ? 0 : trm_hex_digit(token[3]), low = trm_hex_digit(token[4]); /* Rust accepts a sign */
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static trm_status feed_replacements(trm_decode_stream *stream, size_t index, size_t count)
{
    for (; count > 0; count--) {
        TRM_TRY(feed(stream, index, TRM_REPLACEMENT_TEXT, TRM_REPLACEMENT_SIZE));
    }
    return TRM_OK;
}

/* Ends a run of byte tokens: text if all of it is UTF-8, otherwise a replacement for each byte. */
static trm_status end_bytes(trm_decode_stream *stream, size_t index)
{
    trm_decode_state *state = &stream->states[index];
    size_t size = state->pending.size;
    bool whole = state->mark == size;
    state->mark = state->pending.size = 0;
    state->broken = false;
    if (size == 0) {
        return TRM_OK;
    }
    return whole ? feed(stream, index + 1, state->pending.data, size) : feed_replacements(stream, index + 1, size);
}

static trm_status push_byte_fallback(trm_decode_stream *stream, size_t index, const char *token, size_t size)
{
    trm_decode_state *state = &stream->states[index];
    int byte = byte_of(token, size);
    if (byte < 0) {
        TRM_TRY(end_bytes(stream, index));
        return feed(stream, index + 1, token, size);
    }
    if (state->broken) {
        return feed_replacements(stream, index + 1, 1);
    }
    char c = (char)byte;
    TRM_TRY(trm_bytes_append(&state->pending, &c, 1));
    size_t length, count = state->pending.size;
    switch (trm_utf8_examine(state->pending.data + state->mark, count - state->mark, &length)) {
    case TRM_UTF8_VALID:
        state->mark = count;
        break;
    case TRM_UTF8_INCOMPLETE:
        break;
    case TRM_UTF8_INVALID: /* the run is invalid from its start on */
        state->mark = state->pending.size = 0;
        state->broken = true;
        return feed_replacements(stream, index + 1, count);
    }
    return TRM_OK;
}

static trm_status push_strip(trm_decode_stream *stream, size_t index, const char *token, size_t size)
{
    const trm_decode_step *step = &stream->steps->items[index];
    size_t length;
    for (size_t i = 0; i < step->start && size > 0 && trm_utf8_read(token, &length) == step->character; i++) {
        token += length;
        size -= length;
    }
    for (size_t i = 0; i < step->stop && size > 0; i++) {
        if (trm_utf8_read_back(token, token + size, &length) != step->character) {
            break;
        }
        size -= length;
    }
    return feed(stream, index + 1, token, size);
}

static trm_status replace_pattern(const trm_decode_step *step, trm_bytes *out, const char *text, size_t size)
{
    trm_pattern_scan scan = {0};
    size_t done = 0;
    for (bool found = size > 0; found;) {
        size_t begin, end;
        TRM_TRY(trm_pattern_next(&step->pattern, text, size, &scan, &found, &begin, &end));
        if (found) {
            TRM_TRY(trm_bytes_append(out, text + done, begin - done));
            TRM_TRY(trm_bytes_append(out, step->text, strlen(step->text)));
            done = end;
        }
    }
    return trm_bytes_append(out, text + done, size - done);
}

static trm_status push_replace(trm_decode_stream *stream, size_t index, const char *token, size_t size)
{
    trm_decode_state *state = &stream->states[index];
    state->scratch.size = 0;
    TRM_TRY(replace_pattern(&stream->steps->items[index], &state->scratch, token, size));
    return feed(stream, index + 1, state->scratch.data, state->scratch.size);
}

/* Emits the token held back, with its end-of-word suffix as a space, or as nothing for the last one. */
static trm_status release_bpe(trm_decode_stream *stream, size_t index, const char *space)
{
    trm_decode_state *state = &stream->states[index];
    if (state->count == 0) {
        return TRM_OK;
    }
    state->scratch.size = 0;
    TRM_TRY(replace_all(&state->scratch, state->pending.data, state->pending.size, stream->steps->items[index].text,
                        space));
    state->pending.size = 0;
    return feed(stream, index + 1, state->scratch.data, state->scratch.size);
}

static trm_status push_bpe(trm_decode_stream *stream, size_t index, const char *token, size_t size)
{
    trm_decode_state *state = &stream->states[index];
    TRM_TRY(release_bpe(stream, index, " "));
    state->count++;
    return trm_bytes_append(&state->pending, token, size);
}

/* Repetitions of a token count once; a pad token between keeps them apart. */
static trm_status push_ctc(trm_decode_stream *stream, size_t index, const char *token, size_t size)
{
    const trm_decode_step *step = &stream->steps->items[index];
    trm_decode_state *state = &stream->states[index];
    trm_bytes *last = &state->pending;
    if (state->count > 0 && last->size == size && (size == 0 || memcmp(last->data, token, size) == 0)) {
        return TRM_OK;
    }
    state->count++;
    last->size = 0;
    TRM_TRY(trm_bytes_append(last, token, size));
    state->scratch.size = 0;
    TRM_TRY(replace_all(&state->scratch, token, size, step->text, ""));
    if (step->cleanup) {
        TRM_TRY(clean_up(&state->scratch, &state->collected));
        state->collected.size = 0;
        TRM_TRY(replace_all(&state->collected, state->scratch.data, state->scratch.size, step->delimiter, " "));
        trm_bytes other = state->scratch;
        state->scratch = state->collected;
        state->collected = other;
        state->collected.size = 0;
    }
    return state->scratch.size == 0 ? TRM_OK : feed(stream, index + 1, state->scratch.data, state->scratch.size);
}

static trm_status push_join(trm_decode_stream *stream, size_t index, const char *token, size_t size)
{
    TRM_TRY(stream->states[index].count++ > 0 ? feed(stream, index + 1, " ", 1) : TRM_OK);
    return feed(stream, index + 1, token, size);
}

static trm_status push_token(trm_decode_stream *stream, size_t index, const char *token, size_t size)
{
    switch (stream->steps->items[index].kind) {
    case TRM_DECODE_JOIN:
        return push_join(stream, index, token, size);
    case TRM_DECODE_BYTE_LEVEL:
        return push_byte_level(stream, index, token, size);
    case TRM_DECODE_METASPACE:
        return push_metaspace(stream, index, token, size);
    case TRM_DECODE_WORDPIECE:
        return push_wordpiece(stream, index, token, size);
    case TRM_DECODE_BYTE_FALLBACK:
        return push_byte_fallback(stream, index, token, size);
    case TRM_DECODE_FUSE:
        return feed(stream, index + 1, token, size);
    case TRM_DECODE_STRIP:
        return push_strip(stream, index, token, size);
    case TRM_DECODE_REPLACE:
        return push_replace(stream, index, token, size);
    case TRM_DECODE_BPE:
        return push_bpe(stream, index, token, size);
    case TRM_DECODE_CTC:
        return push_ctc(stream, index, token, size);
    }
    return TRM_OK;
}

/* Strip on a continuous token: its start at once, the last `stop` characters held back. */
static trm_status continue_strip(trm_decode_stream *stream, size_t index, const char *text, size_t size)
{
    const trm_decode_step *step = &stream->steps->items[index];
    trm_decode_state *state = &stream->states[index];
    while (!state->started && size > 0) {
        size_t length;
        if (state->count == step->start || trm_utf8_read(text, &length) != step->character) {
            state->started = true;
        } else {
            state->count++;
            text += length;
            size -= length;
        }
    }
    if (step->stop == 0) {
        return feed(stream, index + 1, text, size);
    }
    trm_bytes *pending = &state->pending;
    TRM_TRY(trm_bytes_append(pending, text, size));
    size_t certain = pending->size;
    for (size_t i = 0, length; i < step->stop && certain > 0; i++) {
        trm_utf8_read_back(pending->data, pending->data + certain, &length);
        certain -= length;
    }
    state->scratch.size = 0;
    TRM_TRY(trm_bytes_append(&state->scratch, pending->data, certain));
    memmove(pending->data, pending->data + certain, pending->size - certain);
    pending->size -= certain;
    return feed(stream, index + 1, state->scratch.data, certain);
}

/* Replace of a literal on a continuous token: text that may begin a match is held back. */
static trm_status continue_replace(trm_decode_stream *stream, size_t index, const char *text, size_t size)
{
    const trm_decode_step *step = &stream->steps->items[index];
    trm_decode_state *state = &stream->states[index];
    trm_bytes *pending = &state->pending;
    TRM_TRY(trm_bytes_append(pending, text, size));
    size_t done = 0, length = step->pattern.size;
    state->scratch.size = 0;
    const char *at;
    while (pending->size - done >= length &&
           (at = memmem(pending->data + done, pending->size - done, step->pattern.literal, length)) != NULL) {
        TRM_TRY(trm_bytes_append(&state->scratch, pending->data + done, (size_t)(at - pending->data) - done));
        TRM_TRY(trm_bytes_append(&state->scratch, step->text, strlen(step->text)));
        done = (size_t)(at - pending->data) + length;
    }
    size_t certain = pending->size - done < length ? done : pending->size - (length - 1);
    while (certain > done && trm_utf8_is_continuation(pending->data[certain])) {
        certain--;
    }
    TRM_TRY(trm_bytes_append(&state->scratch, pending->data + done, certain - done));
    memmove(pending->data, pending->data + certain, pending->size - certain);
    pending->size -= certain;
    return feed(stream, index + 1, state->scratch.data, state->scratch.size);
}

/* Handles a part of the continuous token. */
static trm_status push_part(trm_decode_stream *stream, size_t index, const char *text, size_t size)
{
    const trm_decode_step *step = &stream->steps->items[index];
    switch (step->kind) {
    case TRM_DECODE_FUSE:
        return feed(stream, index + 1, text, size);
    case TRM_DECODE_METASPACE:
        return push_metaspace(stream, index, text, size);
    case TRM_DECODE_STRIP:
        return continue_strip(stream, index, text, size);
    case TRM_DECODE_REPLACE:
        if (step->pattern.literal != NULL) {
            return continue_replace(stream, index, text, size);
        }
        break;
    default:
        break;
    }
    return trm_bytes_append(&stream->states[index].collected, text,
                            size); /* needs the whole token: waits for the end */
}

static trm_status feed(trm_decode_stream *stream, size_t index, const char *text, size_t size)
{
    if (index == stream->steps->count) {
        return trm_bytes_append(&stream->out, text, size);
    }
    return stream->steps->items[index].fused ? push_part(stream, index, text, size)
                                             : push_token(stream, index, text, size);
}

static trm_status finish_step(trm_decode_stream *stream, size_t index)
{
    const trm_decode_step *step = &stream->steps->items[index];
    trm_decode_state *state = &stream->states[index];
    trm_bytes *pending = &state->pending;
    bool literal = step->kind == TRM_DECODE_REPLACE && step->pattern.literal != NULL;
    if (step->fused && step->kind != TRM_DECODE_FUSE && step->kind != TRM_DECODE_METASPACE &&
        step->kind != TRM_DECODE_STRIP && !literal) {
        trm_bytes whole = state->collected;
        state->collected = (trm_bytes){0};
        trm_status status = push_token(stream, index, whole.data == NULL ? "" : whole.data, whole.size);
        trm_bytes_fini(&whole);
        TRM_TRY(status);
    }
    size_t length;
    switch (step->kind) {
    case TRM_DECODE_BYTE_LEVEL:
        return pending->size == 0 ? TRM_OK : feed_replacements(stream, index + 1, 1);
    case TRM_DECODE_BYTE_FALLBACK:
        return end_bytes(stream, index);
    case TRM_DECODE_BPE:
        return release_bpe(stream, index, "");
    case TRM_DECODE_STRIP:
        for (size_t i = 0; step->fused && i < step->stop && pending->size > 0; i++) {
            if (trm_utf8_read_back(pending->data, pending->data + pending->size, &length) != step->character) {
                break;
            }
            pending->size -= length;
        }
        return pending->size > 0 ? feed(stream, index + 1, pending->data, pending->size) : TRM_OK;
    case TRM_DECODE_REPLACE:
        return pending->size > 0 ? feed(stream, index + 1, pending->data, pending->size) : TRM_OK;
    default:
        return TRM_OK;
    }
}

trm_status trm_decode_stream_init(trm_decode_stream *stream, const trm_decode_steps *steps)
{
    *stream = (trm_decode_stream){.steps = steps};
    stream->states = calloc(steps->count, sizeof(*stream->states));
    if (stream->states == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a decoder");
    }
    return TRM_OK;
}

void trm_decode_stream_fini(trm_decode_stream *stream)
{
    for (size_t i = 0; stream->states != NULL && i < stream->steps->count; i++) {
        trm_bytes_fini(&stream->states[i].pending);
        trm_bytes_fini(&stream->states[i].collected);
        trm_bytes_fini(&stream->states[i].scratch);
    }
    free(stream->states);
    trm_bytes_fini(&stream->out);
    *stream = (trm_decode_stream){0};
}

trm_status trm_decode_stream_push(trm_decode_stream *stream, const char *token, size_t size)
{
    return feed(stream, 0, token, size);
}

trm_status trm_decode_stream_finish(trm_decode_stream *stream)
{
    trm_status status = TRM_OK;
    for (size_t i = 0; i < stream->steps->count && status == TRM_OK; i++) {
        status = finish_step(stream, i);
    }
    for (size_t i = 0; i < stream->steps->count; i++) {
        trm_decode_state *state = &stream->states[i];
        state->count = state->mark = state->pending.size = state->collected.size = 0;
        state->started = state->broken = false;
    }
    return status;
}
