/*
 * The parts of a RESPONSE's or MESSAGES' text, reasoning and answers in the order in which they were written. A reply
 * without channels is one part.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_REPLY_PART_H
#define TRM_LAUNCHER_SERVE_RESPONSES_REPLY_PART_H

#include "launcher/serve/responses/completion.h"

/* What a stream of parts writes. */
typedef struct reply_part_writer {
    void (*begin)(completion *c, const reply_part *part);
    void (*delta)(completion *c, const reply_part *part, const char *text, size_t size);
    void (*end)(completion *c, const reply_part *part);
} reply_part_writer;

/* The next part of a finished choice; false: there are no more. Begin with zero-initialized arguments. */
bool reply_part_next(const choice *ch, harmony_reader *reader, reply_part *part);
/* Streams what is complete and not yet streamed. */
void reply_part_stream(choice *ch, const reply_part_writer *writer);
/* Ends the last part; there is at least one. */
void reply_part_finish(choice *ch, const reply_part_writer *writer);

#endif
