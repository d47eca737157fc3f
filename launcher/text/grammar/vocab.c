/* Derives the bytes of tokens from the tokenizer's decoder. */
#include "launcher/text/grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "base/recorder.h"
#include "launcher/text/grammar/expression.h"
#include "launcher/text/strings/utf8.h"
#include "launcher/text/tokenizer/byte_level.h"
#include "launcher/text/tokenizer/tokenizer.h"

#define LARGEST_SIZE ((int32_t)1 << 23)

uint8_t trm_grammar_group_of(uint8_t byte)
{
    if (byte >= 0x80) {
        return byte < 0xc0 ? 56 : byte < 0xe0 ? 57 : byte < 0xf0 ? 58 : 59;
    }
    if (byte < 0x20 || byte == 0x7f) {
        return byte == '\n' ? 48 : byte == '\t' ? 49 : byte == '\r' ? 50 : 51;
    }
    if (byte >= '0' && byte <= '9') {
        return 40;
    }
    if (byte >= 'A' && byte <= 'Z') {
        return 41;
    }
    if (byte >= 'a' && byte <= 'z') {
        return 42;
    }
    /* the 33 symbols and the space, in order */
    return byte < '0'   ? (uint8_t)(byte - ' ')
           : byte < 'A' ? (uint8_t)(byte - ':' + 16)
           : byte < 'a' ? (uint8_t)(byte - '[' + 23)
                        : (uint8_t)(byte - '{' + 29);
}

/* How token strings become bytes. */
typedef struct byte_rules {
    bool byte_level;
    bool byte_fallback; /* <0x0A> */
    int32_t space;      /* the character that stands for a space, or -1 */
} byte_rules;

static byte_rules find_rules(const trm_tokenizer *tokenizer)
{
    byte_rules rules = {.space = -1};
    for (size_t i = 0; i < tokenizer->decoder.count; i++) {
        const trm_decode_step *step = &tokenizer->decoder.items[i];
        rules.byte_level |= step->kind == TRM_DECODE_BYTE_LEVEL;
        rules.byte_fallback |= step->kind == TRM_DECODE_BYTE_FALLBACK;
        if (step->kind == TRM_DECODE_METASPACE) {
            rules.space = step->character;
        } else if (step->kind == TRM_DECODE_REPLACE && strcmp(step->text, " ") == 0) {
            rules.space = 0x2581;
        }
    }
    return rules;
}

static trm_status token_bytes(const trm_tokenizer *tokenizer, const byte_rules *rules, int32_t id, trm_bytes *out)
{
    const trm_id_entry *entry = &tokenizer->entries[id];
    const char *text = entry->decoded;
    size_t size = entry->decoded_size;
    out->size = 0;
    bool is_byte = rules->byte_fallback && size == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>' &&
                   trm_hex_digit(text[3]) >= 0 && trm_hex_digit(text[4]) >= 0;
    if (is_byte) {
        char byte = (char)(trm_hex_digit(text[3]) * 16 + trm_hex_digit(text[4]));
        return trm_bytes_append(out, &byte, 1);
    }
    for (size_t at = 0; rules->byte_level && at < size;) { /* a token with other characters is literal */
        size_t length;
        int byte = trm_byte_level_byte(trm_utf8_read(text + at, &length));
        char c = (char)byte;
        if (byte < 0) {
            out->size = 0;
            return trm_bytes_append(out, text, size);
        }
        TRM_TRY(trm_bytes_append(out, &c, 1));
        at += length;
    }
    if (rules->byte_level) {
        return TRM_OK;
    }
    for (size_t at = 0; at < size;) {
        size_t length;
        int32_t c = trm_utf8_read(text + at, &length);
        TRM_TRY(trm_bytes_append(out, c == rules->space ? " " : text + at, c == rules->space ? 1 : length));
        at += length;
    }
    return TRM_OK;
}

trm_status trm_grammar_token_bytes(const trm_tokenizer *tokenizer, int32_t id, trm_bytes *bytes)
{
    const byte_rules rules = find_rules(tokenizer);
    bytes->size = 0;
    if (id < 0 || id >= tokenizer->size || tokenizer->entries[id].text == NULL) {
        return TRM_OK;
    }
    return token_bytes(tokenizer, &rules, id, bytes);
}

/* Whether a text consists of characters that stand for themselves in a JSON string. */
static bool is_plain(const char *text, size_t size)
{
    bool plain = trm_utf8_valid_prefix(text, size) == size;
    for (size_t i = 0; i < size && plain; i++) {
        plain = (unsigned char)text[i] >= 0x20 && text[i] != '"' && text[i] != '\\' && text[i] != 0x7f;
    }
    return plain;
}

/* Keeps the bytes of all tokens that have text. */
static trm_status list_tokens(trm_grammar_vocab *vocab, const trm_tokenizer *tokenizer)
{
    const byte_rules rules = find_rules(tokenizer);
    trm_bytes bytes = {0};
    trm_status status = TRM_OK;
    int32_t count = tokenizer->size < vocab->size ? tokenizer->size : vocab->size;
    for (int32_t id = 0; id < count && status == TRM_OK; id++) {
        if (tokenizer->entries[id].text == NULL || tokenizer->entries[id].special) {
            continue;
        }
        bool ends = false;
        for (size_t i = 0; i < vocab->n_end_tokens; i++) {
            ends |= vocab->end_tokens[i] == id;
        }
        status = ends ? TRM_OK : token_bytes(tokenizer, &rules, id, &bytes);
        if (ends || status != TRM_OK || bytes.size == 0 || bytes.size > TRM_GRAMMAR_LONGEST_TOKEN) {
            continue;
        }
        uint8_t *copy = trm_arena_alloc(&vocab->arena, bytes.size);
        if (copy == NULL) {
            status = TRM_ERROR_OUT_OF_MEMORY;
            break;
        }
        memcpy(copy, bytes.data, bytes.size);
        vocab->bytes[id] = copy;
        vocab->lengths[id] = (uint8_t)bytes.size;
        if (is_plain(bytes.data, bytes.size)) {
            vocab->plain.order[vocab->plain.n_order++] = id;
            vocab->is_plain[id / 32] |= (uint32_t)1 << id % 32;
        } else {
            vocab->other.order[vocab->other.n_order++] = id;
        }
        if (bytes.size > TRM_GRAMMAR_NEAR) {
            vocab->longer.order[vocab->longer.n_order++] = id;
            vocab->is_longer[id / 32] |= (uint32_t)1 << id % 32;
        }
    }
    trm_bytes_fini(&bytes);
    return status;
}

static int by_bytes(const void *a, const void *b, void *user)
{
    const trm_grammar_vocab *vocab = user;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    size_t m = vocab->lengths[x], n = vocab->lengths[y];
    int order = memcmp(vocab->bytes[x], vocab->bytes[y], m < n ? m : n);
    return order != 0 ? order : m != n ? (m > n) - (m < n) : (x > y) - (x < y);
}

static size_t shared_bytes(const trm_grammar_vocab *vocab, const trm_grammar_trie *trie, uint32_t token)
{
    if (token == 0) {
        return 0;
    }
    int32_t x = trie->order[token - 1], y = trie->order[token];
    size_t shared = 0;
    while (shared < vocab->lengths[x] && shared < vocab->lengths[y] &&
           vocab->bytes[x][shared] == vocab->bytes[y][shared]) {
        shared++;
    }
    return shared;
}

static trm_status build_trie(trm_grammar_vocab *vocab, trm_grammar_trie *trie)
{
    size_t count = 0;
    qsort_r(trie->order, trie->n_order, sizeof(*trie->order), by_bytes, vocab);
    for (uint32_t i = 0; i < trie->n_order; i++) {
        count += vocab->lengths[trie->order[i]] - shared_bytes(vocab, trie, i);
    }
    trie->nodes = trm_arena_array(&vocab->arena, count + 1, sizeof(*trie->nodes));
    if (trie->nodes == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    uint32_t path[TRM_GRAMMAR_LONGEST_TOKEN + 1] = {0}, depth = 0;
    for (uint32_t i = 0; i < trie->n_order; i++) {
        int32_t id = trie->order[i];
        uint32_t shared = (uint32_t)shared_bytes(vocab, trie, i);
        for (; depth > shared; depth--) {
            trie->nodes[path[depth]].skip = trie->n_nodes;
        }
        for (; depth < vocab->lengths[id]; depth++) {
            path[depth + 1] = trie->n_nodes;
            trie->nodes[trie->n_nodes++] =
                (trm_grammar_trie_node){.token = i, .byte = vocab->bytes[id][depth], .depth = (uint8_t)(depth + 1)};
        }
        trm_grammar_trie_node *node = &trie->nodes[path[depth]];
        node->n_here += node->n_here < UINT16_MAX;
    }
    for (; depth > 0; depth--) {
        trie->nodes[path[depth]].skip = trie->n_nodes;
    }
    trie->nodes[trie->n_nodes] = (trm_grammar_trie_node){.token = trie->n_order, .skip = trie->n_nodes};
    uint64_t below[TRM_GRAMMAR_LONGEST_TOKEN + 2] = {0};
    for (uint32_t i = trie->n_nodes; i-- > 0;) {
        trm_grammar_trie_node *node = &trie->nodes[i];
        node->groups = below[node->depth + 1];
        below[node->depth + 1] = 0;
        below[node->depth] |= node->groups | (uint64_t)1 << trm_grammar_group_of(node->byte);
    }
    return TRM_OK;
}

static trm_status fill_vocab(trm_grammar_vocab *vocab, const trm_tokenizer *tokenizer, const int32_t *end_tokens,
                             size_t n)
{
    size_t size = (size_t)vocab->size;
    vocab->bytes = trm_arena_array(&vocab->arena, size, sizeof(*vocab->bytes));
    vocab->lengths = trm_arena_array(&vocab->arena, size, sizeof(*vocab->lengths));
    vocab->plain.order = trm_arena_array(&vocab->arena, size, sizeof(*vocab->plain.order));
    vocab->other.order = trm_arena_array(&vocab->arena, size, sizeof(*vocab->other.order));
    vocab->is_plain = trm_arena_array(&vocab->arena, size / 32 + 1, sizeof(*vocab->is_plain));
    vocab->longer.order = trm_arena_array(&vocab->arena, size, sizeof(*vocab->longer.order));
    vocab->is_longer = trm_arena_array(&vocab->arena, size / 32 + 1, sizeof(*vocab->is_longer));
    vocab->end_tokens = trm_arena_array(&vocab->arena, n + 1, sizeof(*vocab->end_tokens));
    if (vocab->bytes == NULL || vocab->lengths == NULL || vocab->plain.order == NULL || vocab->other.order == NULL ||
        vocab->longer.order == NULL || vocab->is_plain == NULL || vocab->is_longer == NULL ||
        vocab->end_tokens == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        if (end_tokens[i] < 0 || end_tokens[i] >= vocab->size) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "end token %d is outside the vocabulary of %d", end_tokens[i],
                     vocab->size);
        }
        vocab->end_tokens[vocab->n_end_tokens++] = end_tokens[i];
    }
    TRM_TRY(list_tokens(vocab, tokenizer));
    TRM_TRY(build_trie(vocab, &vocab->plain));
    TRM_TRY(build_trie(vocab, &vocab->other));
    return build_trie(vocab, &vocab->longer);
}

TRM_CALL(NULL, trm_grammar_vocab_create,
         (const trm_tokenizer *tokenizer, const int32_t *end_tokens, size_t n, int32_t size, trm_grammar_vocab **vocab),
         (tokenizer, end_tokens, n, size, vocab))
{
    if (tokenizer == NULL || (end_tokens == NULL && n > 0) || vocab == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "trm_grammar_vocab_create needs a tokenizer, end tokens and an output argument");
    }
    size = size == 0 ? tokenizer->size : size;
    if (size < 1 || size > LARGEST_SIZE) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a vocabulary of %d tokens, expected 1 to %d", size, LARGEST_SIZE);
    }
    trm_grammar_vocab *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a vocabulary");
    }
    made->size = size;
    trm_status status = fill_vocab(made, tokenizer, end_tokens, n);
    if (status != TRM_OK) {
        trm_grammar_vocab_destroy(made);
        return status;
    }
    *vocab = made;
    return TRM_OK;
}

void trm_grammar_vocab_destroy(trm_grammar_vocab *vocab)
{
    if (vocab != NULL) {
        trm_arena_fini(&vocab->arena);
        free(vocab);
    }
}
