/* The public calls: encoding, decoding, lookups. */
#include "launcher/text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/recorder.h"
#include "launcher/text/strings/utf8.h"

#define LARGEST_TEXT ((size_t)256 << 20) /* offsets within a piece are 32-bit, and normalizers lengthen text */

struct trm_decoder {
    const trm_tokenizer *tokenizer;
    trm_decode_stream stream;
    bool skip_special;
};

int32_t trm_tokenizer_vocab_size(const trm_tokenizer *tokenizer)
{
    return tokenizer->size;
}

int32_t trm_tokenizer_find(const trm_tokenizer *tokenizer, const char *token)
{
    for (size_t i = 0; i < tokenizer->added.count; i++) {
        if (strcmp(tokenizer->added.tokens[i].content, token) == 0) {
            return tokenizer->added.tokens[i].id;
        }
    }
    return trm_vocab_find(&tokenizer->model.vocab, token, strlen(token));
}

const char *trm_tokenizer_token(const trm_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->size ? tokenizer->entries[id].text : NULL;
}

void trm_tokens_fini(trm_tokens *tokens)
{
    if (tokens != NULL) {
        free(tokens->ids);
        *tokens = (trm_tokens){0};
    }
}

/* Normalizes each text piece and finds normalized added tokens in it. */
static trm_status normalize(const trm_tokenizer *tokenizer, trm_pieces *pieces)
{
    if (tokenizer->normalizers.count == 0 && !tokenizer->added.any_normalized) {
        return TRM_OK;
    }
    trm_bytes text = {0}, spare = {0};
    trm_status status = TRM_OK;
    for (size_t i = 0; i < pieces->list.count && status == TRM_OK; i++) {
        trm_piece piece = pieces->list.items[i];
        size_t base = pieces->next_text.size;
        bool start_cut = false;
        text.size = 0;
        TRM_TRY_GOTO(status, trm_bytes_append(&text, pieces->text.data + piece.begin, piece.end - piece.begin), done);
        if (piece.id < 0) {
            TRM_TRY_GOTO(status, trm_normalizers_apply(&tokenizer->normalizers, &text, &spare, &start_cut), done);
        }
        TRM_TRY_GOTO(status, trm_bytes_append(&pieces->next_text, text.data, text.size), done);
        if (piece.id >= 0) {
            piece = (trm_piece){base, pieces->next_text.size, piece.id, false};
            status = trm_piece_list_append(&pieces->next_list, piece);
        } else {
            status = trm_added_split(&tokenizer->added, true, text.data, text.size, base, piece.at_start && !start_cut,
                                     &pieces->next_list);
        }
    }
    trm_pieces_advance(pieces, true);
done:
    trm_bytes_fini(&text);
    trm_bytes_fini(&spare);
    return status;
}

static trm_status encode_pieces(const trm_tokenizer *tokenizer, const trm_pieces *pieces, trm_ids *ids)
{
    trm_model_scratch scratch = {0};
    trm_status status = TRM_OK;
    for (size_t i = 0; i < pieces->list.count && status == TRM_OK; i++) {
        const trm_piece *piece = &pieces->list.items[i];
        status = piece->id >= 0 ? trm_ids_append(ids, piece->id)
                                : trm_model_encode(&tokenizer->model, pieces->text.data + piece->begin,
                                                   piece->end - piece->begin, &scratch, ids);
    }
    trm_model_scratch_fini(&scratch);
    return status;
}

static trm_status encode(const trm_tokenizer *tokenizer, const char *text, size_t size, trm_pieces *pieces,
                         trm_ids *ids)
{
    TRM_TRY(trm_utf8_append_lossy(&pieces->text, text, size));
    TRM_TRY(trm_added_split(&tokenizer->added, false, pieces->text.data, pieces->text.size, 0, true, &pieces->list));
    TRM_TRY(normalize(tokenizer, pieces));
    TRM_TRY(trm_pretokenizers_apply(&tokenizer->pretokenizers, pieces));
    return encode_pieces(tokenizer, pieces, ids);
}

TRM_CALL(NULL, trm_tokenizer_encode,
         (const trm_tokenizer *tokenizer, const char *text, size_t size, bool add_special, trm_tokens *tokens),
         (tokenizer, text, size, add_special, tokens))
{
    if (tokenizer == NULL || tokens == NULL || (text == NULL && size > 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_tokenizer_encode needs a tokenizer, a text and an output argument");
    }
    if (size > LARGEST_TEXT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a text to encode has %zu bytes, expected at most %zu", size,
                 LARGEST_TEXT);
    }
    trm_pieces pieces = {0};
    trm_ids ids = {0}, out = {0};
    trm_status status;
    TRM_TRY_GOTO(status, encode(tokenizer, text, size, &pieces, &ids), done);
    TRM_TRY_GOTO(status, trm_postprocessor_apply(&tokenizer->postprocessor, &ids, add_special, &out), done);
    *tokens = (trm_tokens){.ids = out.data, .count = out.size};
    out = (trm_ids){0};
done:
    trm_pieces_fini(&pieces);
    trm_ids_fini(&ids);
    trm_ids_fini(&out);
    return status;
}

static trm_status push(const trm_tokenizer *tokenizer, trm_decode_stream *stream, int32_t id, bool skip_special)
{
    const trm_id_entry *entry = id >= 0 && id < tokenizer->size ? &tokenizer->entries[id] : NULL;
    if (entry == NULL || entry->text == NULL || (skip_special && entry->special)) {
        return TRM_OK;
    }
    return trm_decode_stream_push(stream, entry->decoded, entry->decoded_size);
}

TRM_CALL(NULL, trm_tokenizer_decode,
         (const trm_tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special, char **text,
          size_t *size),
         (tokenizer, ids, count, skip_special, text, size))
{
    if (tokenizer == NULL || text == NULL || size == NULL || (ids == NULL && count > 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_tokenizer_decode needs a tokenizer, ids and an output argument");
    }
    trm_decode_stream stream;
    TRM_TRY(trm_decode_stream_init(&stream, &tokenizer->decoder));
    trm_status status = TRM_OK;
    for (size_t i = 0; i < count && status == TRM_OK; i++) {
        status = push(tokenizer, &stream, ids[i], skip_special);
    }
    TRM_TRY_GOTO(status, status, done);
    TRM_TRY_GOTO(status, trm_decode_stream_finish(&stream), done);
    TRM_TRY_GOTO(status, trm_bytes_append(&stream.out, "", 1), done);
    *text = stream.out.data;
    *size = stream.out.size - 1;
    stream.out = (trm_bytes){0};
done:
    trm_decode_stream_fini(&stream);
    return status;
}

TRM_CALL(NULL, trm_decoder_create, (const trm_tokenizer *tokenizer, bool skip_special, trm_decoder **decoder),
         (tokenizer, skip_special, decoder))
{
    if (tokenizer == NULL || decoder == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_decoder_create needs a tokenizer and an output argument");
    }
    trm_decoder *created = calloc(1, sizeof(*created));
    if (created == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a decoder");
    }
    created->tokenizer = tokenizer;
    created->skip_special = skip_special;
    trm_status status = trm_decode_stream_init(&created->stream, &tokenizer->decoder);
    if (status != TRM_OK) {
        free(created);
        return status;
    }
    *decoder = created;
    return TRM_OK;
}

void trm_decoder_destroy(trm_decoder *decoder)
{
    if (decoder != NULL) {
        trm_decode_stream_fini(&decoder->stream);
        free(decoder);
    }
}

/* Returns the settled text, followed by a NUL that *size does not count. */
static trm_status take(trm_decode_stream *stream, const char **text, size_t *size)
{
    TRM_TRY(trm_bytes_append(&stream->out, "", 1));
    *text = stream->out.data;
    *size = stream->out.size - 1;
    return TRM_OK;
}

TRM_CALL(NULL, trm_decoder_push, (trm_decoder *decoder, int32_t id, const char **text, size_t *size),
         (decoder, id, text, size))
{
    if (decoder == NULL || text == NULL || size == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_decoder_push needs a decoder and an output argument");
    }
    decoder->stream.out.size = 0;
    TRM_TRY(push(decoder->tokenizer, &decoder->stream, id, decoder->skip_special));
    return take(&decoder->stream, text, size);
}

TRM_CALL(NULL, trm_decoder_finish, (trm_decoder *decoder, const char **text, size_t *size), (decoder, text, size))
{
    if (decoder == NULL || text == NULL || size == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_decoder_finish needs a decoder and an output argument");
    }
    decoder->stream.out.size = 0;
    TRM_TRY(trm_decode_stream_finish(&decoder->stream));
    return take(&decoder->stream, text, size);
}
