/* Streams text up to stop strings. */
#include "launcher/text/text_sink.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/buffer.h"

trm_status text_sink_init(text_sink *sink, const trm_tokenizer *tokenizer, bool skip_special, const char *const *stops,
                          int32_t n_stops, FILE *out)
{
    *sink = (text_sink){.stops = stops, .n_stops = n_stops, .out = out};
    sink->text = calloc(1, 1);
    if (sink->text == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a continuation");
    }
    return trm_decoder_create(tokenizer, skip_special, &sink->decoder);
}

void text_sink_fini(text_sink *sink)
{
    trm_decoder_destroy(sink->decoder);
    free(sink->text);
    *sink = (text_sink){0};
}

static trm_status append(text_sink *sink, const char *text, size_t size)
{
    void *grown = sink->text;
    TRM_TRY(trm_array_grow(&grown, &sink->capacity, sink->size + size + 1, 1));
    sink->text = grown;
    memcpy(sink->text + sink->size, text, size);
    sink->size += size;
    sink->text[sink->size] = '\0';
    return TRM_OK;
}

/* The first position at or after `from` where a stop string begins, or where the rest of the text may be the beginning
 * of one. At the end it must be complete. */
static size_t find_stop(const text_sink *sink, size_t from, bool at_end, const char **whole)
{
    *whole = NULL;
    for (size_t at = from; at < sink->size; at++) {
        bool begins = false;
        for (int32_t i = 0; i < sink->n_stops; i++) {
            size_t length = strlen(sink->stops[i]), rest = sink->size - at;
            if (memcmp(sink->text + at, sink->stops[i], rest < length ? rest : length) == 0) {
                if (rest >= length && at + length <= sink->passed) {
                    continue;
                }
                if (rest >= length) {
                    *whole = sink->stops[i];
                    return at;
                }
                begins = !at_end;
            }
        }
        if (begins) {
            return at;
        }
    }
    return sink->size;
}

/* Settles and prints completed text. At the end nothing is held back. */
static void settle(text_sink *sink, bool at_end)
{
    const char *whole;
    size_t end = find_stop(sink, sink->certain, at_end, &whole);
    end += whole != NULL && sink->keep_stop ? strlen(whole) : 0;
    if (sink->out != NULL) {
        fwrite(sink->text + sink->certain, 1, end - sink->certain, sink->out);
        fflush(sink->out);
    }
    sink->certain = end;
    if (whole != NULL) {
        sink->stopped = true;
        sink->stop = whole;
        sink->size = end;
        sink->text[end] = '\0';
    }
}

trm_status text_sink_push(text_sink *sink, int32_t token)
{
    const char *text;
    size_t size;
    TRM_TRY(trm_decoder_push(sink->decoder, token, &text, &size));
    TRM_TRY(append(sink, text, size));
    sink->passed = sink->deaf ? sink->size : sink->passed;
    settle(sink, false);
    return TRM_OK;
}

trm_status text_sink_finish(text_sink *sink)
{
    const char *text;
    size_t size;
    if (sink->stopped) {
        return TRM_OK;
    }
    TRM_TRY(trm_decoder_finish(sink->decoder, &text, &size));
    TRM_TRY(append(sink, text, size));
    settle(sink, true);
    return TRM_OK;
}
