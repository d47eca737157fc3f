/* Pre-tokenizers. */
#include "launcher/text/tokenizer/pretokenize.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/unicode.h"
#include "launcher/text/strings/utf8.h"
#include "launcher/text/tokenizer/byte_level.h"

/* GPT-2's split, which is built into ByteLevel. */
#define GPT2_SPLIT "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define WORD_SPLIT "[" TRM_REGEX_RUST_WORD "]+|[^" TRM_REGEX_RUST_WORD TRM_REGEX_SPACE "]+"

/* Begins a piece of the next text with the content of `piece`; it ends at the end of the next text. */
static trm_piece begin_piece(const trm_pieces *pieces, trm_piece piece)
{
    return (trm_piece){.begin = pieces->next_text.size, .id = piece.id, .at_start = piece.at_start};
}

static trm_status copy_piece(trm_pieces *pieces, trm_piece piece)
{
    trm_piece copy = begin_piece(pieces, piece);
    TRM_TRY(trm_bytes_append(&pieces->next_text, pieces->text.data + piece.begin, piece.end - piece.begin));
    copy.end = pieces->next_text.size;
    return trm_piece_list_append(&pieces->next_list, copy);
}

/* Prefix space, GPT-2's split, then the byte alphabet. */
static trm_status byte_level(const trm_pretokenizer *step, trm_pieces *pieces)
{
    trm_bytes *out = &pieces->next_text;
    if (step->add_prefix_space) {
        for (size_t i = 0; i < pieces->list.count; i++) {
            trm_piece piece = pieces->list.items[i], copy = begin_piece(pieces, piece);
            const char *text = pieces->text.data + piece.begin;
            TRM_TRY(trm_bytes_append(out, " ", piece.id < 0 && *text != ' '));
            TRM_TRY(trm_bytes_append(out, text, piece.end - piece.begin));
            copy.end = out->size;
            TRM_TRY(trm_piece_list_append(&pieces->next_list, copy));
        }
        trm_pieces_advance(pieces, true);
    }
    if (step->split) {
        trm_delimiter delimiter = {.pattern = &step->pattern};
        for (size_t i = 0; i < pieces->list.count; i++) {
            trm_piece piece = pieces->list.items[i];
            TRM_TRY(piece.id >= 0 ? trm_piece_list_append(&pieces->next_list, piece)
                                  : trm_piece_split(&pieces->next_list, pieces->text.data, piece, &delimiter,
                                                    TRM_SPLIT_ISOLATED));
        }
        trm_pieces_advance(pieces, false);
    }
    TRM_TRY(trm_bytes_reserve(out, pieces->text.size * 2));
    for (size_t i = 0; i < pieces->list.count; i++) {
        trm_piece piece = pieces->list.items[i], copy = begin_piece(pieces, piece);
        if (piece.id >= 0) {
            TRM_TRY(copy_piece(pieces, piece));
            continue;
        }
        TRM_TRY(trm_byte_level_append(out, pieces->text.data + piece.begin, piece.end - piece.begin));
        copy.end = out->size;
        TRM_TRY(trm_piece_list_append(&pieces->next_list, copy));
    }
    trm_pieces_advance(pieces, true);
    return TRM_OK;
}

/* Spaces become the replacement, which may also precede the text; words begin at each replacement. */
static trm_status metaspace(const trm_pretokenizer *step, trm_pieces *pieces)
{
    char replacement[4];
    size_t size = trm_utf8_write(replacement, step->character);
    trm_bytes *out = &pieces->next_text;
    trm_delimiter delimiter = {.character = step->character};
    for (size_t i = 0; i < pieces->list.count; i++) {
        trm_piece piece = pieces->list.items[i], copy = begin_piece(pieces, piece);
        if (piece.id >= 0) {
            TRM_TRY(copy_piece(pieces, piece));
            continue;
        }
        const char *text = pieces->text.data + piece.begin;
        size_t left = piece.end - piece.begin;
        bool starts = *text == ' ' || (left >= size && memcmp(text, replacement, size) == 0);
        bool wanted = step->prepend == TRM_PREPEND_ALWAYS || (step->prepend == TRM_PREPEND_FIRST && piece.at_start);
        if (wanted && !starts) {
            TRM_TRY(trm_bytes_append(out, replacement, size));
        }
        while (left > 0) {
            const char *space = memchr(text, ' ', left);
            size_t before = space == NULL ? left : (size_t)(space - text);
            TRM_TRY(trm_bytes_append(out, text, before));
            TRM_TRY(trm_bytes_append(out, replacement, space == NULL ? 0 : size));
            text += before + (space != NULL);
            left -= before + (space != NULL);
        }
        copy.end = out->size;
        TRM_TRY(step->split
                    ? trm_piece_split(&pieces->next_list, out->data, copy, &delimiter, TRM_SPLIT_MERGED_WITH_NEXT)
                    : trm_piece_list_append(&pieces->next_list, copy));
    }
    trm_pieces_advance(pieces, true);
    return TRM_OK;
}

static trm_status fixed_length(const trm_pretokenizer *step, trm_pieces *pieces, trm_piece piece)
{
    const char *text = pieces->text.data;
    while (piece.begin < piece.end) {
        trm_piece part = piece;
        part.end = part.begin;
        for (size_t i = 0; i < step->length && part.end < piece.end; i++) {
            part.end += trm_utf8_size(text[part.end]);
        }
        TRM_TRY(trm_piece_list_append(&pieces->next_list, part));
        piece.begin = part.end;
        piece.at_start = false;
    }
    return TRM_OK;
}

/* Splits every text piece. */
static trm_status split_pieces(const trm_pretokenizer *step, trm_pieces *pieces, const trm_delimiter *delimiter,
                               trm_split_behavior behavior)
{
    for (size_t i = 0; i < pieces->list.count; i++) {
        trm_piece piece = pieces->list.items[i];
        if (piece.id >= 0) {
            TRM_TRY(trm_piece_list_append(&pieces->next_list, piece));
        } else if (step->kind == TRM_PRETOKENIZER_FIXED_LENGTH) {
            TRM_TRY(fixed_length(step, pieces, piece));
        } else {
            TRM_TRY(trm_piece_split(&pieces->next_list, pieces->text.data, piece, delimiter, behavior));
        }
    }
    trm_pieces_advance(pieces, false);
    return TRM_OK;
}

static trm_status apply_step(const trm_pretokenizer *step, trm_pieces *pieces)
{
    trm_delimiter delimiter = {.invert = step->invert};
    trm_split_behavior behavior = step->behavior;
    switch (step->kind) {
    case TRM_PRETOKENIZER_BYTE_LEVEL:
        return byte_level(step, pieces);
    case TRM_PRETOKENIZER_METASPACE:
        return metaspace(step, pieces);
    case TRM_PRETOKENIZER_SPLIT:
        delimiter.pattern = &step->pattern;
        break;
    case TRM_PRETOKENIZER_WHITESPACE_SPLIT:
        delimiter.test = trm_unicode_is_space;
        break;
    case TRM_PRETOKENIZER_BERT:
        delimiter.test = trm_unicode_is_space;
        TRM_TRY(split_pieces(step, pieces, &delimiter, TRM_SPLIT_REMOVED));
        delimiter.test = trm_unicode_is_punctuation;
        break;
    case TRM_PRETOKENIZER_PUNCTUATION:
        delimiter.test = trm_unicode_is_punctuation;
        break;
    case TRM_PRETOKENIZER_DIGITS:
        delimiter.test = trm_unicode_is_numeric;
        break;
    case TRM_PRETOKENIZER_DELIMITER:
        delimiter.character = step->character;
        break;
    case TRM_PRETOKENIZER_FIXED_LENGTH:
        break;
    }
    return split_pieces(step, pieces, &delimiter, behavior);
}

trm_status trm_pretokenizers_apply(const trm_pretokenizers *pretokenizers, trm_pieces *pieces)
{
    for (size_t i = 0; i < pretokenizers->count; i++) {
        pieces->next_list.count = 0;
        pieces->next_text.size = 0;
        TRM_TRY(apply_step(&pretokenizers->items[i], pieces));
    }
    return TRM_OK;
}

static trm_status load_behavior(const trm_text_loader *loader, const trm_json *json, bool required,
                                trm_split_behavior *behavior)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = NULL;
    TRM_TRY(trm_json_member_string(loader->document, json, "behavior", required, &name));
    if (name == NULL) {
        return TRM_OK;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            *behavior = (trm_split_behavior)i;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_MODEL,
             "%s: behavior is \"%.80s\", expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous",
             loader->name, name);
}

trm_status trm_metaspace_load(const trm_text_loader *loader, const trm_json *json, int32_t *replacement,
                              trm_prepend_scheme *prepend, bool *split)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *name = "always";
    bool add_prefix_space = true;
    TRM_TRY(trm_loader_character(loader, json, "replacement", replacement));
    TRM_TRY(trm_json_member_string(loader->document, json, "prepend_scheme", false, &name));
    TRM_TRY(trm_json_member_bool(loader->document, json, "add_prefix_space", false, &add_prefix_space));
    TRM_TRY(trm_json_member_bool(loader->document, json, "split", false, split));
    size_t scheme = 0;
    while (scheme < 3 && strcmp(name, names[scheme]) != 0) {
        scheme++;
    }
    if (scheme == 3) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: prepend_scheme is \"%.80s\", expected always, first or never",
                 loader->name, name);
    }
    *prepend = (trm_prepend_scheme)scheme;
    if (!add_prefix_space && *prepend != TRM_PREPEND_NEVER) {
        if (trm_json_get(json, "prepend_scheme") != NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: add_prefix_space is false, but prepend_scheme is %s", loader->name,
                     name);
        }
        *prepend = TRM_PREPEND_NEVER; /* a file from before there were schemes */
    }
    return TRM_OK;
}

static trm_status load_split(const trm_text_loader *loader, const trm_json *json, trm_pretokenizer *step)
{
    TRM_TRY(trm_pattern_load(loader, trm_json_get(json, "pattern"), &step->pattern));
    TRM_TRY(load_behavior(loader, json, true, &step->behavior));
    return trm_json_member_bool(loader->document, json, "invert", true, &step->invert);
}

static trm_status load_byte_level(const trm_text_loader *loader, const trm_json *json, trm_pretokenizer *step)
{
    step->split = true;
    TRM_TRY(trm_json_member_bool(loader->document, json, "add_prefix_space", true, &step->add_prefix_space));
    TRM_TRY(trm_json_member_bool(loader->document, json, "use_regex", false, &step->split));
    if (!step->split) {
        return TRM_OK;
    }
    trm_status status = trm_regex_compile(GPT2_SPLIT, &step->pattern.regex);
    if (status == TRM_OK) {
        trm_regex_keep(loader->regexes, step->pattern.regex);
    }
    return status;
}

static trm_status load_members(const trm_text_loader *loader, const trm_json *json, const char *type,
                               trm_pretokenizer *step)
{
    bool flag = false;
    step->behavior = TRM_SPLIT_REMOVED;
    switch (step->kind) {
    case TRM_PRETOKENIZER_BYTE_LEVEL:
        return load_byte_level(loader, json, step);
    case TRM_PRETOKENIZER_SPLIT:
        if (strcmp(type, "Whitespace") == 0) {
            step->invert = true;
            return trm_pattern_create(loader, WORD_SPLIT, &step->pattern);
        }
        return load_split(loader, json, step);
    case TRM_PRETOKENIZER_METASPACE:
        step->split = true;
        return trm_metaspace_load(loader, json, &step->character, &step->prepend, &step->split);
    case TRM_PRETOKENIZER_BERT:
        step->behavior = TRM_SPLIT_ISOLATED;
        return TRM_OK;
    case TRM_PRETOKENIZER_PUNCTUATION:
        step->behavior = TRM_SPLIT_ISOLATED;
        return load_behavior(loader, json, false, &step->behavior);
    case TRM_PRETOKENIZER_DIGITS:
        TRM_TRY(trm_json_member_bool(loader->document, json, "individual_digits", true, &flag));
        step->behavior = flag ? TRM_SPLIT_ISOLATED : TRM_SPLIT_CONTIGUOUS;
        return TRM_OK;
    case TRM_PRETOKENIZER_DELIMITER:
        return trm_loader_character(loader, json, "delimiter", &step->character);
    case TRM_PRETOKENIZER_FIXED_LENGTH:
        step->length = 5;
        if (trm_json_get(json, "length") != NULL) {
            TRM_TRY(trm_loader_count(loader, json, "length", &step->length));
        }
        if (step->length == 0) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the length of pre-tokenizer FixedLength is 0", loader->name);
        }
        return TRM_OK;
    case TRM_PRETOKENIZER_WHITESPACE_SPLIT:
        break;
    }
    return TRM_OK;
}

trm_status trm_pretokenizers_load(const trm_text_loader *loader, const trm_json *json, trm_pretokenizers *pretokenizers)
{
    static const struct {
        const char *name;
        trm_pretokenizer_kind kind;
    } types[] = {
        {"ByteLevel", TRM_PRETOKENIZER_BYTE_LEVEL},
        {"Split", TRM_PRETOKENIZER_SPLIT},
        {"Whitespace", TRM_PRETOKENIZER_SPLIT},
        {"Metaspace", TRM_PRETOKENIZER_METASPACE},
        {"WhitespaceSplit", TRM_PRETOKENIZER_WHITESPACE_SPLIT},
        {"BertPreTokenizer", TRM_PRETOKENIZER_BERT},
        {"Punctuation", TRM_PRETOKENIZER_PUNCTUATION},
        {"Digits", TRM_PRETOKENIZER_DIGITS},
        {"CharDelimiterSplit", TRM_PRETOKENIZER_DELIMITER},
        {"Delimiter", TRM_PRETOKENIZER_DELIMITER},
        {"FixedLength", TRM_PRETOKENIZER_FIXED_LENGTH},
    };
    if (json == NULL) {
        return TRM_OK;
    }
    const char *type = NULL;
    const trm_json *steps = NULL;
    bool sequence = false;
    TRM_TRY(trm_loader_type(loader, json, "pre-tokenizer", "pretokenizers", &type, &sequence, &steps));
    for (const trm_json *step = trm_json_first(steps); sequence && step != NULL; step = trm_json_next(step)) {
        TRM_TRY(trm_pretokenizers_load(loader, step, pretokenizers));
    }
    for (size_t i = 0; !sequence && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(type, types[i].name) == 0) {
            void *items = pretokenizers->items;
            TRM_TRY(trm_array_grow(&items, &pretokenizers->capacity, pretokenizers->count + 1,
                                   sizeof(*pretokenizers->items)));
            pretokenizers->items = items;
            trm_pretokenizer *step = &pretokenizers->items[pretokenizers->count];
            *step = (trm_pretokenizer){.kind = types[i].kind};
            pretokenizers->count++;
            return load_members(loader, json, type, step);
        }
    }
    return sequence ? TRM_OK : trm_loader_unknown_type(loader, "pre-tokenizer", type);
}

void trm_pretokenizers_fini(trm_pretokenizers *pretokenizers)
{
    free(pretokenizers->items);
    *pretokenizers = (trm_pretokenizers){0};
}
