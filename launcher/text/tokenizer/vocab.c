/* Token strings and their ids, both ways. */
#include "launcher/text/tokenizer/vocab.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"

uint64_t trm_text_hash(const char *text, size_t size)
{
    uint64_t hash = 0x9e3779b97f4a7c15u ^ size;
    for (; size >= 8; text += 8, size -= 8) {
        uint64_t block;
        memcpy(&block, text, 8);
        hash = (hash ^ block) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    uint64_t rest = 0;
    memcpy(&rest, text, size);
    hash = (hash ^ rest) * 0xc4ceb9fe1a85ec53u;
    hash ^= hash >> 29;
    hash *= 0x94d049bb133111ebu;
    return hash ^ hash >> 32;
}

trm_status trm_vocab_create(trm_arena *arena, int32_t size, trm_vocab *vocab)
{
    uint32_t slots = 16;
    while (slots < (uint32_t)size * 2) {
        slots *= 2;
    }
    *vocab = (trm_vocab){.size = size, .mask = slots - 1};
    vocab->tokens = trm_arena_array(arena, (size_t)size, sizeof(*vocab->tokens));
    vocab->slots = trm_arena_array(arena, slots, sizeof(*vocab->slots));
    if (vocab->tokens == NULL || vocab->slots == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    memset(vocab->slots, 0xFF, slots * sizeof(*vocab->slots));
    return TRM_OK;
}

/* The slot of the text, or the free slot where it would go. */
static uint32_t slot_of(const trm_vocab *vocab, const char *text, size_t size, uint32_t hash)
{
    uint32_t slot = hash & vocab->mask;
    for (; vocab->slots[slot] >= 0; slot = (slot + 1) & vocab->mask) {
        const trm_token *token = &vocab->tokens[vocab->slots[slot]];
        if (token->hash == hash && token->size == size && memcmp(token->text, text, size) == 0) {
            break;
        }
    }
    return slot;
}

void trm_vocab_add(trm_vocab *vocab, int32_t id, const char *text)
{
    assert(id >= 0 && id < vocab->size && vocab->tokens[id].text == NULL);
    size_t size = strlen(text);
    uint32_t hash = (uint32_t)trm_text_hash(text, size);
    uint32_t slot = slot_of(vocab, text, size, hash);
    vocab->tokens[id] = (trm_token){.text = text, .size = (uint32_t)size, .hash = hash};
    vocab->slots[slot] = id;
    vocab->count++;
}

int32_t trm_vocab_find(const trm_vocab *vocab, const char *text, size_t size)
{
    return vocab->slots[slot_of(vocab, text, size, (uint32_t)trm_text_hash(text, size))];
}
