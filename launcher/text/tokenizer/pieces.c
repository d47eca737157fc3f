/* Lists of pieces, and splitting by delimiters. */
#include "launcher/text/tokenizer/pieces.h"

#include <stdlib.h>

#include "base/error.h"
#include "launcher/text/strings/utf8.h"

void trm_pieces_fini(trm_pieces *pieces)
{
    trm_bytes_fini(&pieces->text);
    trm_bytes_fini(&pieces->next_text);
    free(pieces->list.items);
    free(pieces->next_list.items);
    *pieces = (trm_pieces){0};
}

trm_status trm_piece_list_append(trm_piece_list *list, trm_piece piece)
{
    if (list->count == list->capacity) {
        void *items = list->items;
        TRM_TRY(trm_array_grow(&items, &list->capacity, list->count + 1, sizeof(*list->items)));
        list->items = items;
    }
    list->items[list->count++] = piece;
    return TRM_OK;
}

void trm_pieces_advance(trm_pieces *pieces, bool text)
{
    trm_piece_list list = pieces->list;
    pieces->list = pieces->next_list;
    pieces->next_list = list;
    pieces->next_list.count = 0;
    if (text) {
        trm_bytes bytes = pieces->text;
        pieces->text = pieces->next_text;
        pieces->next_text = bytes;
        pieces->next_text.size = 0;
    }
}

/* A split in progress: segments of the piece come in order, delimiters and the text between them. */
typedef struct splitter {
    trm_piece_list *list;
    trm_piece piece;
    trm_split_behavior behavior;
    size_t begin, end; /* part of the piece that may still grow */
    bool open;         /* there is one */
    bool previous;     /* the last segment was a delimiter */
    bool invert;
} splitter;

static trm_status flush(splitter *s)
{
    if (!s->open || s->begin == s->end) {
        s->open = false;
        return TRM_OK;
    }
    s->open = false;
    return trm_piece_list_append(s->list,
                                 (trm_piece){s->begin, s->end, -1, s->piece.at_start && s->begin == s->piece.begin});
}

static trm_status segment(splitter *s, size_t begin, size_t end, bool match)
{
    match = match != s->invert;
    bool joins = false;
    switch (s->behavior) {
    case TRM_SPLIT_REMOVED:
        if (match) {
            return flush(s);
        }
        break;
    case TRM_SPLIT_ISOLATED:
        break;
    case TRM_SPLIT_MERGED_WITH_PREVIOUS:
        joins = match && !s->previous;
        break;
    case TRM_SPLIT_MERGED_WITH_NEXT:
        joins = !match && s->previous;
        break;
    case TRM_SPLIT_CONTIGUOUS:
        joins = match == s->previous;
        break;
    }
    s->previous = match;
    if (joins && s->open) {
        s->end = end;
        return TRM_OK;
    }
    TRM_TRY(flush(s));
    s->begin = begin;
    s->end = end;
    s->open = true;
    return TRM_OK;
}

static trm_status split_by_pattern(splitter *s, const char *text, const trm_pattern *pattern)
{
    const char *start = text + s->piece.begin;
    size_t size = s->piece.end - s->piece.begin, done = 0;
    trm_pattern_scan scan = {0};
    for (;;) {
        bool found;
        size_t begin, end;
        TRM_TRY(trm_pattern_next(pattern, start, size, &scan, &found, &begin, &end));
        if (!found) {
            break;
        }
        if (begin > done) {
            TRM_TRY(segment(s, s->piece.begin + done, s->piece.begin + begin, false));
        }
        TRM_TRY(segment(s, s->piece.begin + begin, s->piece.begin + end, true));
        done = end;
    }
    return done < size ? segment(s, s->piece.begin + done, s->piece.end, false) : TRM_OK;
}

static trm_status split_by_character(splitter *s, const char *text, const trm_delimiter *delimiter)
{
    size_t done = s->piece.begin;
    for (size_t at = done, step; at < s->piece.end; at += step) {
        int32_t c = trm_utf8_read(text + at, &step);
        if (delimiter->test != NULL ? !delimiter->test(c) : c != delimiter->character) {
            continue;
        }
        if (at > done) {
            TRM_TRY(segment(s, done, at, false));
        }
        done = at + step;
        TRM_TRY(segment(s, at, done, true));
    }
    return done < s->piece.end ? segment(s, done, s->piece.end, false) : TRM_OK;
}

trm_status trm_piece_split(trm_piece_list *list, const char *text, trm_piece piece, const trm_delimiter *delimiter,
                           trm_split_behavior behavior)
{
    splitter s = {.list = list, .piece = piece, .behavior = behavior, .invert = delimiter->invert};
    if (delimiter->pattern != NULL) {
        TRM_TRY(split_by_pattern(&s, text, delimiter->pattern));
    } else {
        TRM_TRY(split_by_character(&s, text, delimiter));
    }
    return flush(&s);
}
