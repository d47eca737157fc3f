/*
 * Byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909): the characters of a piece are merged pair by pair,
 * always the pair with the lowest rank, the leftmost of equal ones. Short pieces are searched for that pair at each
 * step; long ones keep candidates in a heap over a linked list of symbols, so a piece of n characters takes n log n.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/utf8.h"
#include "launcher/text/tokenizer/model.h"

/* Pieces of at most this many symbols are searched; at about 64 it takes as long as the heap. */
#define SEARCHED_SYMBOLS ((size_t)48)
#define NO_PAIR          UINT64_MAX
#define NO_RANK          UINT32_MAX

struct trm_symbol {
    int32_t id;         /* -1: merged into its left neighbor */
    int32_t prev, next; /* -1: none */
};

struct trm_merge_candidate {
    uint64_t order; /* rank << 32 | position of the left symbol */
    int32_t id;     /* the result of the merge; reveals an outdated candidate */
};

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static uint32_t pair_slot(const trm_bpe *bpe, uint64_t pair)
{
    uint64_t hash = pair * 0x9e3779b97f4a7c15u;
    uint32_t slot = (uint32_t)(hash ^ hash >> 32) & bpe->merge_mask;
    while (bpe->merges[slot].pair != pair && bpe->merges[slot].pair != NO_PAIR) {
        slot = (slot + 1) & bpe->merge_mask;
    }
    return slot;
}

static const trm_merge *find_merge(const trm_bpe *bpe, int32_t left, int32_t right)
{
    const trm_merge *merge = &bpe->merges[pair_slot(bpe, pair_of(left, right))];
    return merge->pair == NO_PAIR ? NULL : merge;
}

static trm_status push_symbol(trm_model_scratch *scratch, size_t *count, int32_t id)
{
    void *data = scratch->symbols;
    TRM_TRY(trm_array_grow(&data, &scratch->symbol_capacity, *count + 1, sizeof(trm_symbol)));
    scratch->symbols = data;
    scratch->symbols[*count].id = id;
    ++*count;
    return TRM_OK;
}

/* Unknown characters are delayed: with fuse_unk a run of them is one token. */
static trm_status push_unknown(const trm_bpe *bpe, trm_model_scratch *scratch, size_t *count, const char *character,
                               size_t size, bool *waiting)
{
    if (bpe->unk_token == NULL) {
        return TRM_OK;
    }
    if (bpe->unk_id < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "character \"%.*s\" is not in the vocabulary, and neither is the unknown token \"%s\"", (int)size,
                 character, bpe->unk_token);
    }
    if (*waiting && !bpe->fuse_unk) {
        TRM_TRY(push_symbol(scratch, count, bpe->unk_id));
    }
    *waiting = true;
    return TRM_OK;
}

static trm_status push_bytes(const trm_bpe *bpe, trm_model_scratch *scratch, size_t *count, const char *text,
                             size_t size, bool *pushed)
{
    *pushed = false;
    for (size_t i = 0; i < size; i++) {
        if (bpe->byte_ids[(unsigned char)text[i]] < 0) {
            return TRM_OK;
        }
    }
    for (size_t i = 0; i < size; i++) {
        TRM_TRY(push_symbol(scratch, count, bpe->byte_ids[(unsigned char)text[i]]));
    }
    *pushed = true;
    return TRM_OK;
}

/* The vocabulary's text of a character at its position in the piece. */
static trm_status decorate(const trm_bpe *bpe, trm_model_scratch *scratch, const char **text, size_t *size, bool first,
                           bool last)
{
    const char *prefix = first ? "" : bpe->prefix, *suffix = last ? bpe->suffix : "";
    if (*prefix == '\0' && *suffix == '\0') {
        return TRM_OK;
    }
    scratch->text.size = 0;
    TRM_TRY(trm_bytes_append(&scratch->text, prefix, strlen(prefix)));
    TRM_TRY(trm_bytes_append(&scratch->text, *text, *size));
    TRM_TRY(trm_bytes_append(&scratch->text, suffix, strlen(suffix)));
    *text = scratch->text.data;
    *size = scratch->text.size;
    return TRM_OK;
}

/* The initial symbols: characters, bytes of those that are not in the vocabulary, or unknown. */
static trm_status split_characters(const trm_model *model, const char *piece, size_t size, trm_model_scratch *scratch,
                                   size_t *count)
{
    const trm_bpe *bpe = &model->bpe;
    bool plain = *bpe->prefix == '\0' && *bpe->suffix == '\0';
    bool waiting = false;
    *count = 0;
    for (size_t at = 0, step; at < size; at += step) {
        int32_t codepoint = trm_utf8_read(piece + at, &step), id;
        const char *text = piece + at;
        size_t length = step;
        if (plain && codepoint < (int32_t)(sizeof(bpe->character_ids) / sizeof(bpe->character_ids[0]))) {
            id = bpe->character_ids[codepoint];
        } else {
            TRM_TRY(decorate(bpe, scratch, &text, &length, at == 0, at + step == size));
            id = trm_vocab_find(&model->vocab, text, length);
        }
        if (id >= 0) {
            if (waiting) {
                TRM_TRY(push_symbol(scratch, count, bpe->unk_id));
                waiting = false;
            }
            TRM_TRY(push_symbol(scratch, count, id));
            continue;
        }
        bool pushed = false;
        if (bpe->byte_fallback) {
            TRM_TRY(push_bytes(bpe, scratch, count, text, length, &pushed));
        }
        if (!pushed) {
            TRM_TRY(push_unknown(bpe, scratch, count, text, length, &waiting));
        }
    }
    return waiting ? push_symbol(scratch, count, bpe->unk_id) : TRM_OK;
}

/* Merges at most SEARCHED_SYMBOLS symbols in place; returns the number that remains. */
static size_t merge_short(const trm_bpe *bpe, trm_symbol *symbols, size_t count)
{
    uint32_t ranks[SEARCHED_SYMBOLS];
    int32_t made[SEARCHED_SYMBOLS];
    for (size_t i = 0; i + 1 < count; i++) {
        const trm_merge *merge = find_merge(bpe, symbols[i].id, symbols[i + 1].id);
        ranks[i] = merge == NULL ? NO_RANK : merge->rank;
        made[i] = merge == NULL ? -1 : merge->id;
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++) {
            best = ranks[i] < ranks[best] ? i : best;
        }
        if (ranks[best] == NO_RANK) {
            break;
        }
        symbols[best].id = made[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            symbols[i].id = symbols[i + 1].id;
            ranks[i] = ranks[i + 1]; /* the last one is not read */
            made[i] = made[i + 1];
        }
        for (size_t i = best > 0 ? best - 1 : best; i <= best && i + 1 < count; i++) {
            const trm_merge *merge = find_merge(bpe, symbols[i].id, symbols[i + 1].id);
            ranks[i] = merge == NULL ? NO_RANK : merge->rank;
            made[i] = merge == NULL ? -1 : merge->id;
        }
    }
    return count;
}

static trm_status heap_push(trm_model_scratch *scratch, trm_merge_candidate candidate)
{
    void *data = scratch->heap;
    TRM_TRY(trm_array_grow(&data, &scratch->heap_capacity, scratch->heap_size + 1, sizeof(trm_merge_candidate)));
    scratch->heap = data;
    size_t at = scratch->heap_size++;
    while (at > 0 && candidate.order < scratch->heap[(at - 1) / 2].order) {
        scratch->heap[at] = scratch->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    scratch->heap[at] = candidate;
    return TRM_OK;
}

static trm_merge_candidate heap_pop(trm_model_scratch *scratch)
{
    trm_merge_candidate *heap = scratch->heap, top = heap[0], last = heap[--scratch->heap_size];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < scratch->heap_size; at = child) {
        if (child + 1 < scratch->heap_size && heap[child + 1].order < heap[child].order) {
            child++;
        }
        if (last.order <= heap[child].order) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

static trm_status push_candidate(const trm_bpe *bpe, trm_model_scratch *scratch, int32_t left)
{
    const trm_symbol *symbols = scratch->symbols;
    if (left < 0 || symbols[left].next < 0) {
        return TRM_OK;
    }
    const trm_merge *merge = find_merge(bpe, symbols[left].id, symbols[symbols[left].next].id);
    if (merge == NULL) {
        return TRM_OK;
    }
    return heap_push(scratch, (trm_merge_candidate){(uint64_t)merge->rank << 32 | (uint32_t)left, merge->id});
}

/* Merges any number of symbols; *count becomes the number that remains. */
static trm_status merge_long(const trm_bpe *bpe, trm_model_scratch *scratch, size_t *count)
{
    trm_symbol *symbols = scratch->symbols;
    for (size_t i = 0; i < *count; i++) {
        symbols[i].prev = (int32_t)i - 1;
        symbols[i].next = i + 1 < *count ? (int32_t)i + 1 : -1;
    }
    scratch->heap_size = 0;
    for (size_t i = 0; i < *count; i++) {
        TRM_TRY(push_candidate(bpe, scratch, (int32_t)i));
    }
    while (scratch->heap_size > 0) {
        trm_merge_candidate top = heap_pop(scratch);
        int32_t left = (int32_t)(uint32_t)top.order, right = symbols[left].next;
        if (symbols[left].id < 0 || right < 0) {
            continue;
        }
        const trm_merge *merge = find_merge(bpe, symbols[left].id, symbols[right].id);
        if (merge == NULL || merge->id != top.id) {
            continue; /* one of the two was merged with another symbol */
        }
        symbols[left].id = top.id;
        symbols[left].next = symbols[right].next;
        symbols[right].id = -1;
        if (symbols[left].next >= 0) {
            symbols[symbols[left].next].prev = left;
        }
        TRM_TRY(push_candidate(bpe, scratch, symbols[left].prev));
        TRM_TRY(push_candidate(bpe, scratch, left));
    }
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        if (symbols[i].id >= 0) {
            symbols[kept++].id = symbols[i].id;
        }
    }
    *count = kept;
    return TRM_OK;
}

trm_status trm_bpe_encode(const trm_model *model, const char *piece, size_t size, trm_model_scratch *scratch,
                          trm_ids *ids)
{
    const trm_bpe *bpe = &model->bpe;
    int32_t whole = trm_vocab_find(&model->vocab, piece, size);
    unsigned char known = 0;
    if (whole >= 0) {
        known = atomic_load_explicit(&bpe->whole[whole], memory_order_relaxed);
        if (known == 1) {
            return trm_ids_append(ids, whole);
        }
    }
    size_t count;
    TRM_TRY(split_characters(model, piece, size, scratch, &count));
    if (count <= SEARCHED_SYMBOLS) {
        count = merge_short(bpe, scratch->symbols, count);
    } else {
        TRM_TRY(merge_long(bpe, scratch, &count));
    }
    if (whole >= 0 && known == 0) {
        bool same = count == 1 && scratch->symbols[0].id == whole;
        atomic_store_explicit(&bpe->whole[whole], same ? 1 : 2, memory_order_relaxed);
    }
    TRM_TRY(trm_ids_reserve(ids, count));
    for (size_t i = 0; i < count; i++) {
        ids->data[ids->size++] = scratch->symbols[i].id;
    }
    return TRM_OK;
}

/* Reads an entry of "merges": "left right", or [left, right]. */
static trm_status read_merge(const trm_text_loader *loader, const trm_json *json, size_t index, const char **left,
                             size_t *left_size, const char **right)
{
    const char *text = trm_json_string(json);
    if (text != NULL) {
        const char *space = strchr(text, ' ');
        if (space == NULL || strchr(space + 1, ' ') != NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                     "%s: model.merges[%zu] is \"%.80s\", expected two tokens with a space between them", loader->name,
                     index, text);
        }
        *left = text;
        *left_size = (size_t)(space - text);
        *right = space + 1;
        return TRM_OK;
    }
    *left = trm_json_is_array(json) && trm_json_count(json) == 2 ? trm_json_string(trm_json_at(json, 0)) : NULL;
    *right = *left != NULL ? trm_json_string(trm_json_at(json, 1)) : NULL;
    if (*right == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: model.merges[%zu] is neither a string nor a pair of strings",
                 loader->name, index);
    }
    *left_size = strlen(*left);
    return TRM_OK;
}

static trm_status find_part(const trm_text_loader *loader, const trm_vocab *vocab, size_t index, const char *text,
                            size_t size, int32_t *id)
{
    *id = trm_vocab_find(vocab, text, size);
    if (*id < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: model.merges[%zu] names \"%.*s\", which is not in the vocabulary",
                 loader->name, index, (int)(size < 80 ? size : 80), text);
    }
    return TRM_OK;
}

static trm_status add_merge(const trm_text_loader *loader, trm_model *model, const trm_json *json, size_t index,
                            uint32_t rank, trm_bytes *joined)
{
    const char *left = NULL, *right = NULL;
    size_t left_size = 0, prefix_size = strlen(model->bpe.prefix);
    int32_t left_id, right_id, id;
    TRM_TRY(read_merge(loader, json, index, &left, &left_size, &right));
    TRM_TRY(find_part(loader, &model->vocab, index, left, left_size, &left_id));
    TRM_TRY(find_part(loader, &model->vocab, index, right, strlen(right), &right_id));
    if (strncmp(right, model->bpe.prefix, prefix_size) != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL,
                 "%s: model.merges[%zu] has the right part \"%.80s\" without the prefix \"%.80s\"", loader->name, index,
                 right, model->bpe.prefix);
    }
    joined->size = 0;
    TRM_TRY(trm_bytes_append(joined, left, left_size));
    TRM_TRY(trm_bytes_append(joined, right + prefix_size, strlen(right + prefix_size)));
    TRM_TRY(find_part(loader, &model->vocab, index, joined->data, joined->size, &id));
    uint64_t pair = pair_of(left_id, right_id);
    model->bpe.merges[pair_slot(&model->bpe, pair)] = (trm_merge){.pair = pair, .rank = rank, .id = id};
    return TRM_OK;
}

static trm_status load_merges(const trm_text_loader *loader, const trm_json *json, trm_model *model)
{
    const trm_json *merges = trm_json_get(json, "merges");
    if (!trm_json_is_array(merges)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: model.merges is %s, expected an array", loader->name,
                 merges == NULL ? "missing" : "something else");
    }
    size_t count = trm_json_count(merges), slots = 16;
    while (slots < count * 2) {
        slots *= 2;
    }
    if (slots > UINT32_MAX) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: model.merges has %zu entries, too many", loader->name, count);
    }
    trm_bpe *bpe = &model->bpe;
    bpe->merge_mask = (uint32_t)slots - 1;
    bpe->merges = trm_arena_array(loader->arena, slots, sizeof(*bpe->merges));
    if (bpe->merges == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    memset(bpe->merges, 0xFF, slots * sizeof(*bpe->merges));
    trm_bytes joined = {0};
    trm_status status = TRM_OK;
    size_t index = 0;
    uint32_t rank = 0;
    for (const trm_json *merge = trm_json_first(merges); merge != NULL && status == TRM_OK;
         merge = trm_json_next(merge), index++) {
        const char *text = trm_json_string(merge);
        if (text != NULL && strncmp(text, "#version", 8) == 0) {
            continue; /* the first line of a merges.txt */
        }
        status = add_merge(loader, model, merge, index, rank++, &joined);
    }
    trm_bytes_fini(&joined);
    return status;
}

static trm_status load_string(const trm_text_loader *loader, const trm_json *json, const char *key,
                              const char *otherwise, const char **value)
{
    const char *text = otherwise;
    TRM_TRY(trm_json_member_string(loader->document, json, key, false, &text));
    *value = text == NULL ? NULL : trm_arena_strdup(loader->arena, text);
    return text != NULL && *value == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
}

static void find_characters(const trm_vocab *vocab, trm_bpe *bpe)
{
    for (int32_t c = 0; c < (int32_t)(sizeof(bpe->character_ids) / sizeof(bpe->character_ids[0])); c++) {
        char text[4];
        size_t size = trm_utf8_write(text, c);
        bpe->character_ids[c] = trm_vocab_find(vocab, text, size);
    }
}

trm_status trm_bpe_load(const trm_text_loader *loader, const trm_json *json, trm_model *model)
{
    trm_bpe *bpe = &model->bpe;
    double dropout = 0;
    TRM_TRY(trm_json_member_number(loader->document, json, "dropout", false, &dropout));
    if (dropout != 0) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: model.dropout is %g: sampling of merges is not supported", loader->name,
                 dropout);
    }
    TRM_TRY(load_string(loader, json, "unk_token", NULL, &bpe->unk_token));
    TRM_TRY(load_string(loader, json, "continuing_subword_prefix", "", &bpe->prefix));
    TRM_TRY(load_string(loader, json, "end_of_word_suffix", "", &bpe->suffix));
    TRM_TRY(trm_json_member_bool(loader->document, json, "fuse_unk", false, &bpe->fuse_unk));
    TRM_TRY(trm_json_member_bool(loader->document, json, "byte_fallback", false, &bpe->byte_fallback));
    TRM_TRY(trm_json_member_bool(loader->document, json, "ignore_merges", false, &bpe->ignore_merges));
    bpe->unk_id = bpe->unk_token == NULL ? -1 : trm_vocab_find(&model->vocab, bpe->unk_token, strlen(bpe->unk_token));
    trm_model_find_bytes(&model->vocab, bpe->byte_ids);
    find_characters(&model->vocab, bpe);
    bpe->whole = trm_arena_alloc(loader->arena, (size_t)model->vocab.size);
    if (bpe->whole == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (bpe->ignore_merges) {
        memset((void *)bpe->whole, 1, (size_t)model->vocab.size);
    }
    return load_merges(loader, json, model);
}
