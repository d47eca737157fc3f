/* Replies of models, divided into messages (include/trireme/chat.h): those in the harmony format, and plain text. */
#include <trireme/chat.h>

#include <stdlib.h>

#include "base/error.h"
#include "base/recorder.h"
#include "launcher/text/harmony.h"
#include "launcher/text/strings/buffer.h"

struct trm_reply {
    bool harmony, at_end;
    harmony_reader reader;
    trm_bytes text; /* so far */
    size_t given;   /* of plain text */
};

TRM_CALL(NULL, trm_reply_create, (const trm_chat_template *chat, trm_reply **reply), (chat, reply))
{
    if (chat == NULL || reply == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot make a reader of replies: chat or reply is NULL");
    }
    trm_reply *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a reader of replies");
    }
    made->harmony = harmony_is_written(chat);
    *reply = made;
    return TRM_OK;
}

void trm_reply_destroy(trm_reply *reply)
{
    if (reply != NULL) {
        trm_bytes_fini(&reply->text);
        free(reply);
    }
}

bool trm_reply_has_special(const trm_reply *reply)
{
    return reply->harmony;
}

TRM_CALL(NULL, trm_reply_push, (trm_reply * reply, const char *text, size_t size, bool at_end),
         (reply, text, size, at_end))
{
    if (reply == NULL || (text == NULL && size > 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot read a reply: reply or text is NULL");
    }
    TRM_TRY(trm_bytes_append(&reply->text, text, size));
    reply->at_end = at_end;
    return TRM_OK;
}

static bool next_plain(trm_reply *reply, trm_reply_piece *piece)
{
    if (reply->given == reply->text.size) {
        return false;
    }
    *piece = (trm_reply_piece){.kind = TRM_REPLY_ANSWER,
                               .begins = reply->given == 0,
                               .text = reply->text.data + reply->given,
                               .size = reply->text.size - reply->given};
    reply->given = reply->text.size;
    return true;
}

bool trm_reply_next(trm_reply *reply, trm_reply_piece *piece)
{
    static const trm_reply_kind kinds[] = {[HARMONY_CONTENT] = TRM_REPLY_ANSWER,
                                           [HARMONY_REASONING] = TRM_REPLY_REASONING,
                                           [HARMONY_CALL] = TRM_REPLY_CALL};
    harmony_piece found;
    if (!reply->harmony) {
        return next_plain(reply, piece);
    }
    if (!harmony_next(&reply->reader, reply->text.data, reply->text.size, reply->at_end, &found)) {
        return false;
    }
    *piece = (trm_reply_piece){.kind = kinds[found.kind], .begins = found.begins};
    if (found.kind == HARMONY_CALL && found.begins) {
        piece->name = reply->text.data + found.name;
        piece->name_size = found.name_size;
    }
    piece->text = found.blank ? "{}" : reply->text.data + found.begin;
    piece->size = found.blank ? 2 : found.end - found.begin;
    return true;
}
