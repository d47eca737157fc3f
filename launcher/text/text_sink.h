/*
 * Text of one continuation as its tokens come: decoded, searched for stop strings, printed or kept.
 */
#ifndef TRM_LAUNCHER_TEXT_TEXT_SINK_H
#define TRM_LAUNCHER_TEXT_TEXT_SINK_H

#include <stdio.h>

#include <trireme/tokenizer.h>

typedef struct text_sink {
    trm_decoder *decoder;
    const char *const *stops; /* [n_stops], none empty */
    int32_t n_stops;
    FILE *out;  /* where text goes as soon as it is certain; NULL: it is only kept */
    char *text; /* all of it so far, NUL-terminated */
    size_t size, capacity;
    size_t certain;   /* bytes that no stop string can take back any more; printed when out is set */
    bool deaf;        /* stop strings that end in the text of the tokens that come now do not count */
    size_t passed;    /* bytes of text of such tokens */
    bool keep_stop;   /* text ends behind a stop string, not before it */
    bool stopped;     /* a stop string has come */
    const char *stop; /* that one, else NULL */
} text_sink;

/* With `skip_special` special tokens have no text. */
trm_status text_sink_init(text_sink *sink, const trm_tokenizer *tokenizer, bool skip_special, const char *const *stops,
                          int32_t n_stops, FILE *out);
void text_sink_fini(text_sink *sink);
/* Takes a token; sink->stopped tells whether the continuation ends here. */
trm_status text_sink_push(text_sink *sink, int32_t token);
/* Takes what the decoder still holds. */
trm_status text_sink_finish(text_sink *sink);

#endif
