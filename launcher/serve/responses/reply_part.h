/*
 * The parts of a RESPONSE's or MESSAGES' text, reasoning, answers and tool calls in the order in which they were
 * written.
 */
#ifndef TRM_LAUNCHER_SERVE_RESPONSES_REPLY_PART_H
#define TRM_LAUNCHER_SERVE_RESPONSES_REPLY_PART_H

#include "launcher/serve/responses/completion.h"

/* What is written of parts. `user`: where to. */
typedef struct reply_part_writer {
    void (*begin)(void *user, const reply_part *part); /* NULL: nothing */
    void (*delta)(void *user, const reply_part *part, const char *text, size_t size);
    void (*end)(void *user, const reply_part *part);
} reply_part_writer;

/* Streams what is complete and not yet streamed. */
trm_status reply_part_stream(choice *ch, const reply_part_writer *writer, void *user);
/* Ends the last part; there is at least one: a reply without any text has an empty one. */
void reply_part_finish(choice *ch, const reply_part_writer *writer, void *user);
/* Writes all parts of a finished choice, from the beginning. */
trm_status reply_part_write(const choice *ch, const reply_part_writer *writer, void *user);
void reply_part_fini(reply_part *part);
/* Writes a part's text for a client that sends it back (turns.h): nothing is stored. */
void reply_part_write_kept(json_text *json, const char *key, const reply_part *part);

#endif
