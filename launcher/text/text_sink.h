/*
 * The text of one continuation, token by token: decoded, searched for stop strings, printed or kept.
 */
#ifndef TRM_LAUNCHER_TEXT_TEXT_SINK_H
#define TRM_LAUNCHER_TEXT_TEXT_SINK_H

#include <stdio.h>

#include <trireme/tokenizer.h>

typedef struct text_sink {
    trm_decoder *decoder;
    const char *const *stops; /* [n_stops], none empty */
    int32_t n_stops;
    FILE *out;  /* text is written here as soon as it is settled; NULL: it is only kept */
    char *text; /* all text so far, NUL-terminated */
    size_t size, capacity;
    size_t certain;   /* bytes that no stop string can remove any more; printed if out is set */
    bool deaf;        /* stop strings that end within the tokens now coming are ignored */
    size_t passed;    /* bytes of text of such tokens */
    bool keep_stop;   /* the text ends after the stop string, not before it */
    bool stopped;     /* a stop string was found */
    const char *stop; /* that one, otherwise NULL */
} text_sink;

/* With `skip_special`, special tokens have no text. */
trm_status text_sink_init(text_sink *sink, const trm_tokenizer *tokenizer, bool skip_special, const char *const *stops,
                          int32_t n_stops, FILE *out);
void text_sink_fini(text_sink *sink);
/* Adds a token; sink->stopped says whether the continuation ends here. */
trm_status text_sink_push(text_sink *sink, int32_t token);
/* Flushes the decoder. */
trm_status text_sink_finish(text_sink *sink);

#endif
