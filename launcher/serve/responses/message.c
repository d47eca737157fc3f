/* Turns the text of chats into messages and deltas. */
#include "launcher/serve/responses/message.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

void message_parts_fini(message_parts *parts)
{
    trm_bytes_fini(&parts->reasoning);
    trm_bytes_fini(&parts->content);
    json_text_fini(&parts->calls);
}

/* Adds text of a part, on a line of its own. `streamed`: bytes before it. */
static trm_status add_text(trm_bytes *bytes, size_t *streamed, const reply_piece *piece)
{
    if (piece->begins && *streamed > 0) {
        TRM_TRY(trm_bytes_append(bytes, "\n", 1));
    }
    *streamed += piece->size;
    return trm_bytes_append(bytes, piece->text, piece->size);
}

static void begin_call(json_text *json, const choice *ch, const reply_piece *piece, bool chunk)
{
    json_object(json, NULL);
    if (chunk) {
        json_integer(json, "index", piece->call);
    }
    if (piece->begins) {
        char id[CALL_ID_SIZE];
        choice_call_id(ch, piece, "call_", id);
        json_string(json, "id", id);
        json_string(json, "type", "function");
    }
    json_object(json, "function");
    if (piece->begins) {
        json_bytes(json, "name", piece->name, piece->name_size);
    }
}

static void end_call(json_text *json, const trm_bytes *arguments)
{
    json_bytes(json, "arguments", arguments->size > 0 ? arguments->data : "", arguments->size);
    json_end_object(json);
    json_end_object(json);
}

trm_status message_take(choice *ch, bool chunk, message_parts *parts)
{
    trm_bytes arguments = {0}; /* of the call that has begun */
    trm_status status = TRM_OK;
    reply_piece piece;
    bool open = false;
    ch->reader.whole = !chunk;
    while (status == TRM_OK && choice_next_piece(ch, &piece)) {
        if (open && (piece.kind != REPLY_CALL || piece.begins)) {
            end_call(&parts->calls, &arguments);
            arguments.size = 0;
            open = false;
        }
        if (piece.kind == REPLY_REASONING) {
            status = add_text(&parts->reasoning, &ch->streamed_reasoning, &piece);
        } else if (piece.kind == REPLY_CONTENT) {
            status = add_text(&parts->content, &ch->streamed, &piece);
        } else {
            if (!open) {
                begin_call(&parts->calls, ch, &piece, chunk);
            }
            open = parts->any_calls = true;
            status = trm_bytes_append(&arguments, piece.text, piece.size);
        }
    }
    if (open) {
        end_call(&parts->calls, &arguments);
    }
    trm_bytes_fini(&arguments);
    if (ch->finish_reason != NULL && strcmp(ch->finish_reason, "stop") == 0 && choice_is_call(ch)) {
        ch->finish_reason = "tool_calls";
    }
    return status != TRM_OK ? status : parts->calls.status;
}

bool message_is_empty(const message_parts *parts)
{
    return parts->reasoning.size == 0 && parts->content.size == 0 && !parts->any_calls;
}

void message_write(json_text *json, bool chunk, const message_parts *parts)
{
    json_object(json, chunk ? "delta" : "message");
    if (!chunk) {
        json_string(json, "role", "assistant");
    }
    if (parts->reasoning.size > 0) {
        json_bytes(json, "reasoning_content", parts->reasoning.data, parts->reasoning.size);
    }
    if (parts->content.size > 0 || (!chunk && !parts->any_calls)) {
        json_bytes(json, "content", parts->content.size > 0 ? parts->content.data : "", parts->content.size);
    } else if (!chunk) {
        json_null(json, "content");
    }
    if (!chunk) {
        json_null(json, "refusal");
    }
    if (parts->any_calls) {
        json_array(json, "tool_calls");
        json_literal_bytes(json, parts->calls.bytes.data, parts->calls.bytes.size);
        json_end_array(json);
    }
    json_end_object(json);
}
