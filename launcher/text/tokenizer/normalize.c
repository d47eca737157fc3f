/* Normalizers. */
#include "launcher/text/tokenizer/normalize.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/unicode.h"
#include "launcher/text/strings/utf8.h"
#include "launcher/text/tokenizer/byte_level.h"

/* What a per-character step does with a character. */
#define KEEP   (-1)
#define REMOVE (-2)

typedef int32_t (*character_fn)(int32_t codepoint);

/* Applies fn to each character: KEEP, REMOVE, or its replacement. */
static trm_status map_characters(trm_bytes *out, const trm_bytes *in, character_fn fn, bool *start_cut)
{
    TRM_TRY(trm_bytes_reserve(out, in->size));
    for (size_t at = 0, step; at < in->size; at += step) {
        int32_t c = trm_utf8_read(in->data + at, &step);
        int32_t other = fn(c);
        if (other == KEEP) {
            TRM_TRY(trm_bytes_append(out, in->data + at, step));
        } else if (other != REMOVE) {
            TRM_TRY(trm_bytes_append_codepoint(out, other));
        } else if (at == 0) {
            *start_cut = true;
        }
    }
    return TRM_OK;
}

static int32_t remove_mark(int32_t c)
{
    return trm_unicode_is_mark(c) ? REMOVE : KEEP;
}

static int32_t remove_nonspacing_mark(int32_t c)
{
    return trm_unicode_is_mark_nonspacing(c) ? REMOVE : KEEP;
}

static int32_t clean_bert(int32_t c)
{
    if (c == '\t' || c == '\n' || c == '\r') {
        return ' ';
    }
    if (c == 0 || c == 0xFFFD || trm_unicode_is_control(c)) {
        return REMOVE;
    }
    return trm_unicode_is_space(c) ? ' ' : KEEP;
}

static int32_t clean_nmt(int32_t c)
{
    if ((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) {
        return REMOVE;
    }
    bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                 c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    return space ? ' ' : KEEP;
}

static trm_status lower(trm_bytes *out, const trm_bytes *in)
{
    TRM_TRY(trm_bytes_reserve(out, in->size));
    for (size_t at = 0, step; at < in->size; at += step) {
        TRM_TRY(trm_unicode_append_lower(out, trm_utf8_read(in->data + at, &step)));
    }
    return TRM_OK;
}

static trm_status separate_ideographs(trm_bytes *out, const trm_bytes *in)
{
    TRM_TRY(trm_bytes_reserve(out, in->size));
    for (size_t at = 0, step; at < in->size; at += step) {
        bool apart = trm_unicode_is_cjk_ideograph(trm_utf8_read(in->data + at, &step));
        TRM_TRY(trm_bytes_append(out, " ", apart));
        TRM_TRY(trm_bytes_append(out, in->data + at, step));
        TRM_TRY(trm_bytes_append(out, " ", apart));
    }
    return TRM_OK;
}

static trm_status strip(trm_bytes *out, const trm_bytes *in, bool left, bool right, bool *start_cut)
{
    size_t begin = 0, end = in->size, step;
    while (left && begin < end && trm_unicode_is_space(trm_utf8_read(in->data + begin, &step))) {
        begin += step;
        *start_cut = true;
    }
    while (right && begin < end && trm_unicode_is_space(trm_utf8_read_back(in->data, in->data + end, &step))) {
        end -= step;
    }
    return trm_bytes_append(out, in->data + begin, end - begin);
}

static trm_status replace(trm_bytes *out, const trm_bytes *in, const trm_pattern *pattern, const char *content)
{
    if (in->size == 0) {
        return TRM_OK;
    }
    trm_pattern_scan scan = {0};
    size_t done = 0, length = strlen(content);
    for (;;) {
        bool found;
        size_t begin, end;
        TRM_TRY(trm_pattern_next(pattern, in->data, in->size, &scan, &found, &begin, &end));
        if (!found) {
            return trm_bytes_append(out, in->data + done, in->size - done);
        }
        TRM_TRY(trm_bytes_append(out, in->data + done, begin - done));
        TRM_TRY(trm_bytes_append(out, content, length));
        done = end;
    }
}

static void swap(trm_bytes *a, trm_bytes *b)
{
    trm_bytes other = *a;
    *a = *b;
    *b = other;
    b->size = 0;
}

/* Runs BERT's steps one after another; the result is in `text`. */
static trm_status apply_bert(const trm_normalizer *step, trm_bytes *text, trm_bytes *spare, bool *start_cut)
{
    if (step->clean_text) {
        TRM_TRY(map_characters(spare, text, clean_bert, start_cut));
        swap(text, spare);
    }
    if (step->handle_chinese_chars) {
        TRM_TRY(separate_ideographs(spare, text));
        swap(text, spare);
    }
    if (step->strip_accents) {
        TRM_TRY(trm_unicode_append_normal(spare, text->data, text->size, TRM_NFD));
        swap(text, spare);
        TRM_TRY(map_characters(spare, text, remove_nonspacing_mark, start_cut));
        swap(text, spare);
    }
    if (step->lowercase) {
        TRM_TRY(lower(spare, text));
        swap(text, spare);
    }
    return TRM_OK;
}

static trm_status apply_step(const trm_normalizer *step, const trm_bytes *in, trm_bytes *out, bool *start_cut)
{
    switch (step->kind) {
    case TRM_NORMALIZER_NFC:
        return trm_unicode_append_normal(out, in->data, in->size, TRM_NFC);
    case TRM_NORMALIZER_NFD:
        return trm_unicode_append_normal(out, in->data, in->size, TRM_NFD);
    case TRM_NORMALIZER_NFKC:
        return trm_unicode_append_normal(out, in->data, in->size, TRM_NFKC);
    case TRM_NORMALIZER_NFKD:
        return trm_unicode_append_normal(out, in->data, in->size, TRM_NFKD);
    case TRM_NORMALIZER_LOWERCASE:
        return lower(out, in);
    case TRM_NORMALIZER_STRIP:
        return strip(out, in, step->left, step->right, start_cut);
    case TRM_NORMALIZER_STRIP_ACCENTS:
        return map_characters(out, in, remove_mark, start_cut);
    case TRM_NORMALIZER_PREPEND:
        if (in->size > 0) {
            TRM_TRY(trm_bytes_append(out, step->text, strlen(step->text)));
        }
        return trm_bytes_append(out, in->data, in->size);
    case TRM_NORMALIZER_REPLACE:
        return replace(out, in, &step->pattern, step->text);
    case TRM_NORMALIZER_PRECOMPILED:
        return trm_charsmap_append(&step->charsmap, out, in->data, in->size);
    case TRM_NORMALIZER_NMT:
        return map_characters(out, in, clean_nmt, start_cut);
    case TRM_NORMALIZER_BYTE_LEVEL:
        return trm_byte_level_append(out, in->data, in->size);
    case TRM_NORMALIZER_BERT:
        break;
    }
    return TRM_OK;
}

trm_status trm_normalizers_apply(const trm_normalizers *normalizers, trm_bytes *text, trm_bytes *spare, bool *start_cut)
{
    *start_cut = false;
    spare->size = 0;
    for (size_t i = 0; i < normalizers->count; i++) {
        const trm_normalizer *step = &normalizers->items[i];
        if (step->kind == TRM_NORMALIZER_BERT) {
            TRM_TRY(apply_bert(step, text, spare, start_cut));
        } else {
            TRM_TRY(apply_step(step, text, spare, start_cut));
            swap(text, spare);
        }
    }
    return TRM_OK;
}

static trm_status load_bert(const trm_text_loader *loader, const trm_json *json, trm_normalizer *step)
{
    TRM_TRY(trm_json_member_bool(loader->document, json, "clean_text", true, &step->clean_text));
    TRM_TRY(trm_json_member_bool(loader->document, json, "handle_chinese_chars", true, &step->handle_chinese_chars));
    TRM_TRY(trm_json_member_bool(loader->document, json, "lowercase", true, &step->lowercase));
    step->strip_accents = step->lowercase;
    return trm_json_member_bool(loader->document, json, "strip_accents", false, &step->strip_accents);
}

static trm_status load_charsmap(const trm_text_loader *loader, const trm_json *json, trm_normalizer *step)
{
    const char *base64 = NULL;
    TRM_TRY(trm_json_member_string(loader->document, json, "precompiled_charsmap", true, &base64));
    return trm_charsmap_load(loader, base64, &step->charsmap);
}

static trm_status load_members(const trm_text_loader *loader, const trm_json *json, trm_normalizer *step)
{
    switch (step->kind) {
    case TRM_NORMALIZER_STRIP:
        TRM_TRY(trm_json_member_bool(loader->document, json, "strip_left", true, &step->left));
        return trm_json_member_bool(loader->document, json, "strip_right", true, &step->right);
    case TRM_NORMALIZER_PREPEND:
        return trm_loader_string(loader, json, "prepend", &step->text);
    case TRM_NORMALIZER_REPLACE:
        TRM_TRY(trm_pattern_load(loader, trm_json_get(json, "pattern"), &step->pattern));
        return trm_loader_string(loader, json, "content", &step->text);
    case TRM_NORMALIZER_BERT:
        return load_bert(loader, json, step);
    case TRM_NORMALIZER_PRECOMPILED:
        return load_charsmap(loader, json, step);
    default:
        return TRM_OK;
    }
}

trm_status trm_normalizers_load(const trm_text_loader *loader, const trm_json *json, trm_normalizers *normalizers)
{
    static const struct {
        const char *name;
        trm_normalizer_kind kind;
    } types[] = {
        {"NFC", TRM_NORMALIZER_NFC},
        {"NFD", TRM_NORMALIZER_NFD},
        {"NFKC", TRM_NORMALIZER_NFKC},
        {"NFKD", TRM_NORMALIZER_NFKD},
        {"Lowercase", TRM_NORMALIZER_LOWERCASE},
        {"Strip", TRM_NORMALIZER_STRIP},
        {"StripAccents", TRM_NORMALIZER_STRIP_ACCENTS},
        {"Prepend", TRM_NORMALIZER_PREPEND},
        {"Replace", TRM_NORMALIZER_REPLACE},
        {"BertNormalizer", TRM_NORMALIZER_BERT},
        {"Bert", TRM_NORMALIZER_BERT},
        {"Precompiled", TRM_NORMALIZER_PRECOMPILED},
        {"Nmt", TRM_NORMALIZER_NMT},
        {"ByteLevel", TRM_NORMALIZER_BYTE_LEVEL},
    };
    if (json == NULL) {
        return TRM_OK;
    }
    const char *type = NULL;
    const trm_json *steps = NULL;
    bool sequence = false;
    TRM_TRY(trm_loader_type(loader, json, "normalizer", "normalizers", &type, &sequence, &steps));
    for (const trm_json *step = trm_json_first(steps); sequence && step != NULL; step = trm_json_next(step)) {
        TRM_TRY(trm_normalizers_load(loader, step, normalizers));
    }
    for (size_t i = 0; !sequence && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(type, types[i].name) == 0) {
            void *items = normalizers->items;
            TRM_TRY(
                trm_array_grow(&items, &normalizers->capacity, normalizers->count + 1, sizeof(*normalizers->items)));
            normalizers->items = items;
            trm_normalizer *step = &normalizers->items[normalizers->count];
            *step = (trm_normalizer){.kind = types[i].kind};
            normalizers->count++;
            return load_members(loader, json, step);
        }
    }
    return sequence ? TRM_OK : trm_loader_unknown_type(loader, "normalizer", type);
}

void trm_normalizers_fini(trm_normalizers *normalizers)
{
    free(normalizers->items);
    *normalizers = (trm_normalizers){0};
}
