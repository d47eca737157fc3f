/* A trie over the bytes of a vocabulary, built level by level from its sorted entries. */
#include "launcher/text/tokenizer/trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Entries [begin, end) share the first `depth` bytes, which lead to `node`. */
typedef struct pending {
    uint32_t begin, end, node, depth;
} pending;

static int compare(const void *a, const void *b)
{
    const trm_trie_entry *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    if (order == 0 && x->size != y->size) {
        order = x->size < y->size ? -1 : 1;
    }
    return order != 0 ? order : (x->id > y->id) - (x->id < y->id);
}

/* Counts nodes of the trie: the root, and every byte of an entry that it does not share with the previous one. */
static size_t count_nodes(const trm_trie_entry *entries, size_t count)
{
    size_t nodes = 1;
    for (size_t i = 0; i < count; i++) {
        size_t shared = 0;
        if (i > 0) {
            const trm_trie_entry *last = &entries[i - 1];
            size_t limit = last->size < entries[i].size ? last->size : entries[i].size;
            while (shared < limit && last->text[shared] == entries[i].text[shared]) {
                shared++;
            }
        }
        nodes += entries[i].size - shared;
    }
    return nodes;
}

static void add_children(trm_trie *trie, const trm_trie_entry *entries, pending work, pending *queue, size_t *queued)
{
    trm_trie_node *node = &trie->nodes[work.node];
    while (work.begin < work.end && entries[work.begin].size == work.depth) {
        node->id = work.depth > 0 ? entries[work.begin].id : -1;
        work.begin++;
    }
    node->children = trie->size;
    for (uint32_t begin = work.begin, end; begin < work.end; begin = end) {
        uint8_t label = (uint8_t)entries[begin].text[work.depth];
        for (end = begin + 1; end < work.end && (uint8_t)entries[end].text[work.depth] == label; end++) {
        }
        queue[(*queued)++] = (pending){begin, end, trie->size, work.depth + 1};
        trie->nodes[trie->size++] = (trm_trie_node){.id = -1, .label = label};
        node->count++;
    }
}

trm_status trm_trie_build(trm_arena *arena, trm_trie_entry *entries, size_t count, trm_trie *trie)
{
    memset(trie, 0, sizeof(*trie));
    if (count > 0) {
        qsort(entries, count, sizeof(*entries), compare);
    }
    size_t nodes = count_nodes(entries, count);
    if (nodes > UINT32_MAX / 2) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "a vocabulary has %zu bytes, too many for a trie", nodes);
    }
    trie->nodes = trm_arena_array(arena, nodes, sizeof(*trie->nodes));
    pending *queue = malloc(nodes * sizeof(*queue));
    if (trie->nodes == NULL || queue == NULL) {
        free(queue);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a trie of %zu nodes", nodes);
    }
    trie->nodes[0] = (trm_trie_node){.id = -1};
    trie->size = 1;
    queue[0] = (pending){0, (uint32_t)count, 0, 0};
    for (size_t next = 0, queued = 1; next < queued; next++) {
        add_children(trie, entries, queue[next], queue, &queued);
    }
    free(queue);
    for (uint32_t i = 0; i < trie->nodes[0].count; i++) {
        uint32_t child = trie->nodes[0].children + i;
        trie->root_children[trie->nodes[child].label] = child;
    }
    return TRM_OK;
}

uint32_t trm_trie_step(const trm_trie *trie, uint32_t node, uint8_t byte)
{
    if (node == 0) {
        return trie->root_children[byte];
    }
    uint32_t low = trie->nodes[node].children, high = low + trie->nodes[node].count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint8_t label = trie->nodes[middle].label;
        if (label == byte) {
            return middle;
        }
        if (label < byte) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return 0;
}

int32_t trm_trie_longest(const trm_trie *trie, uint32_t node, const char *text, size_t size, size_t *length)
{
    int32_t id = -1;
    for (size_t at = 0; at < size; at++) {
        node = trm_trie_step(trie, node, (uint8_t)text[at]);
        if (node == 0) {
            break;
        }
        if (trie->nodes[node].id >= 0) {
            id = trie->nodes[node].id;
            *length = at + 1;
        }
    }
    return id;
}
