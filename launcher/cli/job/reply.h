/*
 * Splits a text into answer and reasoning while it is generated: in a chat with a model that replies in the harmony
 * format. The whole of any other text is the answer.
 */
#ifndef TRM_LAUNCHER_CLI_JOB_REPLY_H
#define TRM_LAUNCHER_CLI_JOB_REPLY_H

#include "launcher/text/harmony.h"
#include "launcher/text/strings/buffer.h"
#include "launcher/text/text_sink.h"

typedef struct reply {
    text_sink sink;         /* all of the text */
    bool harmony;           /* answer and reasoning are its parts */
    FILE *out, *talk;       /* where parts are printed as they come: answers, reasoning; NULL: nowhere */
    trm_bytes answer_text;  /* of the harmony format; the answer of other texts is sink.text */
    trm_bytes reasoning;    /* of the harmony format */
    harmony_reader reader;  /* what of the text has been taken */
    bool printed_reasoning; /* last: the answer begins on a new line */
} reply;

trm_status reply_init(reply *r, const trm_tokenizer *tokenizer, bool harmony, const char *const *stops, int32_t n_stops,
                      FILE *out, FILE *talk);
void reply_fini(reply *r);
/* Adds a token; r->sink.stopped says whether the text ends here. */
trm_status reply_push(reply *r, int32_t token);
trm_status reply_finish(reply *r);
/* The answer so far. */
const char *reply_answer(const reply *r, size_t *size);

#endif
