/* Finds the parts of a reply, whole or while it is written. */
#include "launcher/serve/responses/reply_part.h"

#include <string.h>

#include "base/error.h"
#include "launcher/serve/requests/turns.h"

void reply_part_fini(reply_part *part)
{
    trm_bytes_fini(&part->text);
    trm_bytes_fini(&part->name);
    trm_bytes_fini(&part->blank);
}

static void end_part(reply_part *part, const reply_part_writer *writer, void *user)
{
    if (part->open) {
        writer->end(user, part);
        part->open = false;
        part->index++;
    }
}

static trm_status begin_part(const choice *ch, reply_part *part, const reply_piece *piece,
                             const reply_part_writer *writer, void *user)
{
    end_part(part, writer, user);
    part->open = true;
    part->kind = piece->kind;
    part->text.size = part->name.size = 0;
    TRM_TRY(trm_bytes_reserve(&part->text, 1));
    if (piece->kind == REPLY_CALL) {
        TRM_TRY(trm_bytes_append(&part->name, piece->name, piece->name_size));
        choice_call_id(ch, piece, ch->owner->request.kind == API_MESSAGES ? "toolu_" : "call_", part->id);
    }
    if (writer->begin != NULL) {
        writer->begin(user, part);
    }
    return TRM_OK;
}

static trm_status add_text(reply_part *part, const char *text, size_t size, const reply_part_writer *writer, void *user)
{
    TRM_TRY(trm_bytes_append(&part->text, text, size));
    if (writer->delta != NULL && size > 0) {
        writer->delta(user, part, text, size);
    }
    return TRM_OK;
}

static bool is_blank(const reply_piece *piece)
{
    for (size_t i = 0; i < piece->size; i++) {
        if (!tools_is_space(piece->text[i])) {
            return false;
        }
    }
    return true;
}

static trm_status take_piece(const choice *ch, reply_part *part, const reply_piece *piece,
                             const reply_part_writer *writer, void *user)
{
    const bool content = piece->kind == REPLY_CONTENT;
    const bool begins = piece->begins || !part->open || part->kind != piece->kind;
    if (content && begins && ch->owner->request.tool_mode == TOOL_AUTO && is_blank(piece)) {
        return trm_bytes_append(&part->blank, piece->text, piece->size);
    }
    if (begins) {
        TRM_TRY(begin_part(ch, part, piece, writer, user));
    }
    if (content && part->blank.size > 0) {
        TRM_TRY(add_text(part, part->blank.data, part->blank.size, writer, user));
    }
    part->blank.size = 0;
    return add_text(part, piece->text, piece->size, writer, user);
}

trm_status reply_part_stream(choice *ch, const reply_part_writer *writer, void *user)
{
    reply_piece piece;
    while (choice_next_piece(ch, &piece)) {
        TRM_TRY(take_piece(ch, &ch->part, &piece, writer, user));
    }
    return TRM_OK;
}

/* A reply without any part, or of white space, is one part. */
static trm_status end_parts(const choice *ch, reply_part *part, const reply_part_writer *writer, void *user)
{
    if (!part->open && part->index == 0) {
        const reply_piece nothing = {.kind = REPLY_CONTENT, .text = ""};
        TRM_TRY(begin_part(ch, part, &nothing, writer, user));
        TRM_TRY(add_text(part, part->blank.size > 0 ? part->blank.data : "", part->blank.size, writer, user));
    }
    end_part(part, writer, user);
    return TRM_OK;
}

void reply_part_finish(choice *ch, const reply_part_writer *writer, void *user)
{
    (void)end_parts(ch, &ch->part, writer, user);
}

trm_status reply_part_write(const choice *ch, const reply_part_writer *writer, void *user)
{
    const api_request *asked = &ch->owner->request;
    reply_reader reader = {.whole = !asked->stream};
    reply_part part = {.open = false};
    reply_piece piece;
    trm_status status = TRM_OK;
    while (status == TRM_OK && reply_next(&reader, asked, ch->sink.text, ch->sink.size, true, &piece)) {
        status = take_piece(ch, &part, &piece, writer, user);
    }
    status = status == TRM_OK ? end_parts(ch, &part, writer, user) : status;
    reply_reader_fini(&reader);
    reply_part_fini(&part);
    return status;
}

void reply_part_write_kept(json_text *json, const char *key, const reply_part *part)
{
    trm_bytes text = {0};
    if (trm_bytes_append(&text, TURNS_KEPT, strlen(TURNS_KEPT)) != TRM_OK ||
        trm_bytes_append(&text, part->text.data, part->text.size) != TRM_OK) {
        json->status = TRM_ERROR_OUT_OF_MEMORY;
    }
    json_bytes(json, key, text.size > 0 ? text.data : "", text.size);
    trm_bytes_fini(&text);
}
