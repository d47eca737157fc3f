/* Finds the parts of a reply, whole or while it is written. */
#include "launcher/serve/responses/reply_part.h"

/* The next piece that the reply shows. */
static bool next_piece(const choice *ch, harmony_reader *reader, harmony_piece *piece)
{
    const api_request *asked = &ch->owner->request;
    const bool at_end = ch->finish_reason != NULL;
    const size_t size = at_end ? ch->sink.size : ch->sink.certain;
    if (!asked->harmony) {
        *piece = (harmony_piece){.begins = !reader->begun, .begin = reader->at, .end = size};
        reader->begun = true;
        reader->at = size;
        return piece->begins || piece->end > piece->begin;
    }
    bool found = harmony_next(reader, ch->sink.text, size, at_end, piece);
    while (found && piece->kind == HARMONY_REASONING && !asked->include_reasoning) {
        found = harmony_next(reader, ch->sink.text, size, at_end, piece);
    }
    return found;
}

/* The part after `last`. */
static reply_part begin_part(const reply_part *last, const harmony_piece *piece)
{
    return (reply_part){.open = true,
                        .reasoning = piece->kind == HARMONY_REASONING,
                        .index = last->open ? last->index + 1 : 0,
                        .begin = piece->begin,
                        .end = piece->end};
}

bool reply_part_next(const choice *ch, harmony_reader *reader, reply_part *part)
{
    harmony_piece piece = {.begin = 0};
    if (!next_piece(ch, reader, &piece) && part->open) { /* a reply without any text has an empty part */
        return false;
    }
    *part = begin_part(part, &piece);
    return true;
}

void reply_part_stream(choice *ch, const reply_part_writer *writer)
{
    completion *c = ch->owner;
    harmony_piece piece;
    while (next_piece(ch, &ch->channels, &piece)) {
        if (piece.begins) {
            if (ch->part.open) {
                writer->end(c, &ch->part);
            }
            ch->part = begin_part(&ch->part, &piece);
            writer->begin(c, &ch->part);
        }
        ch->part.end = piece.end;
        if (piece.end > piece.begin) {
            writer->delta(c, &ch->part, ch->sink.text + piece.begin, piece.end - piece.begin);
        }
    }
}

void reply_part_finish(choice *ch, const reply_part_writer *writer)
{
    if (!ch->part.open) {
        ch->part.open = true;
        writer->begin(ch->owner, &ch->part);
    }
    writer->end(ch->owner, &ch->part);
}
