/* Added tokens. */
#include "launcher/text/tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/unicode.h"
#include "launcher/text/strings/utf8.h"

/* Whether the character text[0 .. size) is one of `words`. */
static trm_status is_word(const trm_added *added, const char *text, size_t size, bool *word)
{
    size_t begin, end;
    return trm_regex_find(added->word, text, size, 0, word, &begin, &end);
}

/* Whether a match is a whole word. */
static trm_status stands_alone(const trm_added *added, const char *text, size_t size, size_t begin, size_t end,
                               bool *alone)
{
    bool before = false, after = false;
    if (begin > 0) {
        size_t step;
        trm_utf8_read_back(text, text + begin, &step);
        TRM_TRY(is_word(added, text + begin - step, step, &before));
    }
    if (end < size) {
        TRM_TRY(is_word(added, text + end, trm_utf8_size(text[end]), &after));
    }
    *alone = !before && !after;
    return TRM_OK;
}

static size_t spaces_before(const char *text, size_t end)
{
    size_t step;
    while (end > 0 && trm_unicode_is_space(trm_utf8_read_back(text, text + end, &step))) {
        end -= step;
    }
    return end;
}

static size_t spaces_after(const char *text, size_t size, size_t begin)
{
    size_t step;
    while (begin < size && trm_unicode_is_space(trm_utf8_read(text + begin, &step))) {
        begin += step;
    }
    return begin;
}

trm_status trm_added_split(const trm_added *added, bool normalized, const char *text, size_t size, size_t base,
                           bool at_start, trm_piece_list *list)
{
    const trm_trie *trie = normalized ? &added->normalized : &added->raw;
    size_t done = 0;
    for (size_t at = 0; at < size && (normalized ? added->any_normalized : added->any_raw);) {
        size_t length = 0;
        int32_t index = trie->root_children[(unsigned char)text[at]] == 0
                            ? -1
                            : trm_trie_longest(trie, 0, text + at, size - at, &length);
        if (index < 0) {
            at++;
            continue;
        }
        const trm_added_token *token = &added->tokens[index];
        size_t begin = at, end = at + length;
        at = end; /* a discarded match is excluded from the search, too */
        bool alone = true;
        if (token->single_word) {
            TRM_TRY(stands_alone(added, text, size, begin, end, &alone));
        }
        if (!alone) {
            continue;
        }
        if (token->lstrip) {
            begin = spaces_before(text, begin);
            begin = begin < done ? done : begin;
        }
        if (token->rstrip) {
            end = spaces_after(text, size, end);
        }
        if (done < begin) {
            TRM_TRY(trm_piece_list_append(list, (trm_piece){base + done, base + begin, -1, at_start && done == 0}));
        }
        TRM_TRY(trm_piece_list_append(list, (trm_piece){base + begin, base + end, token->id, false}));
        done = end;
    }
    if (done < size) {
        return trm_piece_list_append(list, (trm_piece){base + done, base + size, -1, at_start && done == 0});
    }
    return TRM_OK;
}

static trm_status load_token(const trm_text_loader *loader, const trm_json *json, trm_added_token *token)
{
    int64_t id = 0;
    if (!trm_json_is_object(json)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: an added token is not an object", loader->name);
    }
    *token = (trm_added_token){.id = -1};
    TRM_TRY(trm_loader_string(loader, json, "content", &token->content));
    TRM_TRY(trm_json_member_integer(loader->document, json, "id", true, &id));
    TRM_TRY(trm_json_member_bool(loader->document, json, "single_word", true, &token->single_word));
    TRM_TRY(trm_json_member_bool(loader->document, json, "lstrip", true, &token->lstrip));
    TRM_TRY(trm_json_member_bool(loader->document, json, "rstrip", true, &token->rstrip));
    TRM_TRY(trm_json_member_bool(loader->document, json, "normalized", true, &token->normalized));
    TRM_TRY(trm_json_member_bool(loader->document, json, "special", true, &token->special));
    if (id < 0 || id >= TRM_VOCAB_LIMIT) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: added token \"%.80s\" has id %lld, expected 0 to %lld", loader->name,
                 token->content, (long long)id, (long long)TRM_VOCAB_LIMIT - 1);
    }
    return TRM_OK;
}

static trm_status normalize_token(const trm_text_loader *loader, const trm_normalizers *normalizers,
                                  trm_added_token *token)
{
    token->sought = token->content;
    token->sought_size = strlen(token->content);
    if (!token->normalized || normalizers->count == 0) {
        return TRM_OK;
    }
    trm_bytes text = {0}, spare = {0};
    bool start_cut;
    trm_status status;
    TRM_TRY_GOTO(status, trm_bytes_append(&text, token->content, token->sought_size), done);
    TRM_TRY_GOTO(status, trm_normalizers_apply(normalizers, &text, &spare, &start_cut), done);
    char *copy = trm_arena_alloc(loader->arena, text.size + 1);
    if (copy == NULL) {
        status = TRM_ERROR_OUT_OF_MEMORY;
        goto done;
    }
    if (text.size > 0) {
        memcpy(copy, text.data, text.size);
    }
    token->sought = copy;
    token->sought_size = text.size;
done:
    trm_bytes_fini(&text);
    trm_bytes_fini(&spare);
    return status;
}

static trm_status build_trie(const trm_text_loader *loader, const trm_added *added, bool normalized, bool *any,
                             trm_trie *trie)
{
    trm_trie_entry *entries = malloc((added->count + 1) * sizeof(*entries));
    if (entries == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu added tokens", added->count);
    }
    size_t count = 0;
    for (size_t i = 0; i < added->count; i++) {
        const trm_added_token *token = &added->tokens[i];
        if (token->normalized == normalized && token->sought_size > 0) {
            entries[count++] = (trm_trie_entry){token->sought, (uint32_t)token->sought_size, (int32_t)i};
        }
    }
    *any = count > 0;
    trm_status status = trm_trie_build(loader->arena, entries, count, trie);
    free(entries);
    return status;
}

/* Of tokens with the same content the last definition counts, at the position and with the id of the first; special if
 * any is. */
static void add_token(trm_added *added, trm_vocab *seen, trm_added_token token, const trm_vocab *vocab,
                      int32_t *next_id)
{
    int32_t index = trm_vocab_find(seen, token.content, strlen(token.content));
    if (index >= 0) {
        token.id = added->tokens[index].id;
        token.special = token.special || added->tokens[index].special;
    } else {
        index = (int32_t)added->count++;
        trm_vocab_add(seen, index, token.content);
        token.id = trm_vocab_find(vocab, token.content, strlen(token.content));
        token.id = token.id >= 0 ? token.id : (*next_id)++;
    }
    added->tokens[index] = token;
}

trm_status trm_added_load(const trm_text_loader *loader, const trm_json *json, const trm_vocab *vocab,
                          const trm_normalizers *normalizers, trm_added *added)
{
    if (json != NULL && !trm_json_is_array(json)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: added_tokens is not an array", loader->name);
    }
    size_t most = trm_json_count(json);
    if (most > (size_t)TRM_VOCAB_LIMIT) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: added_tokens has %zu entries, expected at most %lld", loader->name, most,
                 (long long)TRM_VOCAB_LIMIT);
    }
    trm_vocab seen;
    TRM_TRY(trm_vocab_create(loader->arena, (int32_t)most, &seen));
    added->tokens = trm_arena_array(loader->arena, most, sizeof(*added->tokens));
    if (added->tokens == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    int32_t next_id = vocab->count;
    bool single_word = false;
    for (const trm_json *entry = trm_json_first(json); entry != NULL; entry = trm_json_next(entry)) {
        trm_added_token token;
        TRM_TRY(load_token(loader, entry, &token));
        TRM_TRY(normalize_token(loader, normalizers, &token));
        single_word = single_word || token.single_word;
        if (*token.content != '\0') {
            add_token(added, &seen, token, vocab, &next_id);
        }
    }
    if (next_id > TRM_VOCAB_LIMIT) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the added tokens end at id %d, expected at most %lld", loader->name,
                 (int)next_id - 1, (long long)TRM_VOCAB_LIMIT - 1);
    }
    if (single_word) {
        TRM_TRY(trm_regex_compile_own("[" TRM_REGEX_RUST_WORD "]", &added->word));
        trm_regex_keep(loader->regexes, added->word);
    }
    TRM_TRY(build_trie(loader, added, false, &added->any_raw, &added->raw));
    return build_trie(loader, added, true, &added->any_normalized, &added->normalized);
}
