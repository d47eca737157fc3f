/* Tells answers and reasoning apart and prints them. */
#include "launcher/cli/job/reply.h"

#include "base/error.h"

trm_status reply_init(reply *r, const trm_tokenizer *tokenizer, bool harmony, const char *const *stops, int32_t n_stops,
                      FILE *out, FILE *talk)
{
    *r = (reply){.harmony = harmony, .out = out, .talk = talk};
    return text_sink_init(&r->sink, tokenizer, !harmony, stops, n_stops, harmony ? NULL : out);
}

void reply_fini(reply *r)
{
    text_sink_fini(&r->sink);
    trm_bytes_fini(&r->answer_text);
    trm_bytes_fini(&r->reasoning);
}

static void print(FILE *to, const char *text, size_t size)
{
    if (to != NULL) {
        fwrite(text, 1, size, to);
        fflush(to);
    }
}

/* Adds text of a message, on a line of its own, and prints it. */
static trm_status add(trm_bytes *bytes, FILE *to, const harmony_piece *piece, const char *text)
{
    if (piece->begins && bytes->size > 0) {
        TRM_TRY(trm_bytes_append(bytes, "\n", 1));
        print(to, "\n", 1);
    }
    print(to, text + piece->begin, piece->end - piece->begin);
    return trm_bytes_append(bytes, text + piece->begin, piece->end - piece->begin);
}

static trm_status take(reply *r, bool at_end)
{
    harmony_piece piece;
    const size_t size = at_end ? r->sink.size : r->sink.certain;
    while (r->harmony && harmony_next(&r->reader, r->sink.text, size, at_end, &piece)) {
        if (piece.kind == HARMONY_REASONING) {
            TRM_TRY(add(&r->reasoning, r->talk, &piece, r->sink.text));
            r->printed_reasoning = true;
            continue;
        }
        if (r->printed_reasoning) {
            print(r->talk, "\n\n", 2);
            r->printed_reasoning = false;
        }
        TRM_TRY(add(&r->answer_text, r->out, &piece, r->sink.text)); /* also calls: there are no tools */
    }
    return TRM_OK;
}

trm_status reply_push(reply *r, int32_t token)
{
    TRM_TRY(text_sink_push(&r->sink, token));
    return r->sink.stopped ? TRM_OK : take(r, false);
}

trm_status reply_finish(reply *r)
{
    TRM_TRY(text_sink_finish(&r->sink));
    return take(r, true);
}

const char *reply_answer(const reply *r, size_t *size)
{
    *size = r->harmony ? r->answer_text.size : r->sink.size;
    return !r->harmony ? r->sink.text : r->answer_text.size > 0 ? r->answer_text.data : "";
}
