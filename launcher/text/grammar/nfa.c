/* From expressions to nondeterministic automata, with characters as their UTF-8 bytes. */
#include "launcher/text/grammar/nfa.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/buffer.h"
#include "launcher/text/strings/utf8.h"

#define MAX_STATES 400000
#define MAX_EDGES  1500000
#define DEEPEST    2000

typedef struct nfa_builder {
    const trm_grammar_tree *tree;
    trm_grammar_nfa *nfa;
    int32_t depth;
} nfa_builder;

static trm_status new_state(trm_grammar_nfa *nfa, uint32_t *state)
{
    if (nfa->n_states == MAX_STATES) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar is too large: its repetitions make more than %d states",
                 MAX_STATES);
    }
    void *data = nfa->first_edge;
    TRM_TRY(trm_array_grow(&data, &nfa->state_capacity, nfa->n_states + 1, sizeof(*nfa->first_edge)));
    nfa->first_edge = data;
    nfa->first_edge[nfa->n_states] = TRM_GRAMMAR_NONE;
    *state = (uint32_t)nfa->n_states++;
    return TRM_OK;
}

static trm_status add_edge(trm_grammar_nfa *nfa, uint32_t from, trm_grammar_edge edge)
{
    if (nfa->n_edges == MAX_EDGES) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar is too large: it makes more than %d edges", MAX_EDGES);
    }
    void *data = nfa->edges;
    TRM_TRY(trm_array_grow(&data, &nfa->edge_capacity, nfa->n_edges + 1, sizeof(*nfa->edges)));
    nfa->edges = data;
    edge.next = nfa->first_edge[from];
    nfa->edges[nfa->n_edges] = edge;
    nfa->first_edge[from] = (uint32_t)nfa->n_edges++;
    return TRM_OK;
}

static trm_status link_empty(trm_grammar_nfa *nfa, uint32_t from, uint32_t to)
{
    return add_edge(nfa, from, (trm_grammar_edge){.target = to, .kind = TRM_GRAMMAR_EDGE_EMPTY});
}

static trm_status link_bytes(trm_grammar_nfa *nfa, uint32_t from, uint32_t to, uint8_t first, uint8_t last)
{
    return add_edge(nfa, from,
                    (trm_grammar_edge){.target = to, .kind = TRM_GRAMMAR_EDGE_BYTES, .first = first, .last = last});
}

/* The code points from first[] to last[], all of `size` bytes, as a tree of byte ranges. */
static trm_status link_encoded(trm_grammar_nfa *nfa, uint32_t from, uint32_t to, const uint8_t *first,
                               const uint8_t *last, size_t size)
{
    if (size == 1) {
        return link_bytes(nfa, from, to, first[0], last[0]);
    }
    static const uint8_t lowest[3] = {0x80, 0x80, 0x80}, highest[3] = {0xbf, 0xbf, 0xbf};
    uint8_t low = first[0], high = last[0];
    uint32_t next = 0;
    if (low == high) {
        TRM_TRY(new_state(nfa, &next));
        TRM_TRY(link_bytes(nfa, from, next, low, low));
        return link_encoded(nfa, next, to, first + 1, last + 1, size - 1);
    }
    if (memcmp(first + 1, lowest, size - 1) != 0) {
        TRM_TRY(new_state(nfa, &next));
        TRM_TRY(link_bytes(nfa, from, next, low, low));
        TRM_TRY(link_encoded(nfa, next, to, first + 1, highest, size - 1));
        low++;
    }
    if (memcmp(last + 1, highest, size - 1) != 0) {
        TRM_TRY(new_state(nfa, &next));
        TRM_TRY(link_bytes(nfa, from, next, high, high));
        TRM_TRY(link_encoded(nfa, next, to, lowest, last + 1, size - 1));
        high--;
    }
    if (low <= high) {
        TRM_TRY(new_state(nfa, &next));
        TRM_TRY(link_bytes(nfa, from, next, low, high));
        return link_encoded(nfa, next, to, lowest, highest, size - 1);
    }
    return TRM_OK;
}

static trm_status link_class(trm_grammar_nfa *nfa, uint32_t from, uint32_t to, const trm_grammar_node *node)
{
    static const int32_t ends[4] = {0x7f, 0x7ff, 0xffff, 0x10ffff};
    for (size_t i = 0; i < node->size; i++) {
        int32_t at = node->ranges[i].first;
        for (size_t length = 1; length <= 4; length++) { /* parts with equally long encodings */
            int32_t end = node->ranges[i].last < ends[length - 1] ? node->ranges[i].last : ends[length - 1];
            if (at > end) {
                continue;
            }
            uint8_t first[4], last[4];
            (void)trm_utf8_write((char *)first, at);
            (void)trm_utf8_write((char *)last, end);
            TRM_TRY(link_encoded(nfa, from, to, first, last, length));
            at = end + 1;
        }
    }
    return TRM_OK;
}

static trm_status link_node(nfa_builder *builder, uint32_t from, uint32_t to, const trm_grammar_node *node);

static trm_status link_text(trm_grammar_nfa *nfa, uint32_t from, uint32_t to, const trm_grammar_node *node)
{
    if (node->size == 0) {
        return link_empty(nfa, from, to);
    }
    for (size_t i = 0; i < node->size; i++) {
        uint32_t next = to;
        if (i + 1 < node->size) {
            TRM_TRY(new_state(nfa, &next));
        }
        TRM_TRY(link_bytes(nfa, from, next, (uint8_t)node->text[i], (uint8_t)node->text[i]));
        from = next;
    }
    return TRM_OK;
}

static trm_status link_sequence(nfa_builder *builder, uint32_t from, uint32_t to, const trm_grammar_node *node)
{
    if (node->child == NULL) {
        return link_empty(builder->nfa, from, to);
    }
    for (const trm_grammar_node *child = node->child; child != NULL; child = child->next) {
        uint32_t next = to;
        if (child->next != NULL) {
            TRM_TRY(new_state(builder->nfa, &next));
        }
        TRM_TRY(link_node(builder, from, next, child));
        from = next;
    }
    return TRM_OK;
}

static trm_status link_repeat(nfa_builder *builder, uint32_t from, uint32_t to, const trm_grammar_node *node)
{
    trm_grammar_nfa *nfa = builder->nfa;
    uint32_t at = from, next = 0;
    int32_t copies = node->max < 0 && node->min > 0 ? node->min - 1 : node->min; /* a loop is the last one itself */
    for (int32_t i = 0; i < copies; i++) {
        TRM_TRY(new_state(nfa, &next));
        TRM_TRY(link_node(builder, at, next, node->child));
        at = next;
    }
    if (node->max < 0) { /* a loop between its own states, so that nothing else enters it */
        uint32_t loop = 0;
        TRM_TRY(new_state(nfa, &loop));
        TRM_TRY(new_state(nfa, &next));
        TRM_TRY(link_empty(nfa, at, loop));
        TRM_TRY(link_node(builder, loop, next, node->child));
        TRM_TRY(link_empty(nfa, next, loop));
        return link_empty(nfa, node->min > 0 ? next : loop, to);
    }
    for (int32_t i = node->min; i < node->max; i++) {
        TRM_TRY(link_empty(nfa, at, to));
        TRM_TRY(new_state(nfa, &next));
        TRM_TRY(link_node(builder, at, next, node->child));
        at = next;
    }
    return link_empty(nfa, at, to);
}

static trm_status link_any_of(nfa_builder *builder, uint32_t from, uint32_t to, const trm_grammar_node *node)
{
    for (const trm_grammar_node *child = node->child; child != NULL; child = child->next) {
        uint32_t begin = 0;
        TRM_TRY(new_state(builder->nfa, &begin));
        TRM_TRY(link_empty(builder->nfa, from, begin));
        TRM_TRY(link_node(builder, begin, to, child));
    }
    return TRM_OK;
}

/* Leads from one state to the other by everything that the expression matches. Neighbors may share edges that end at
 * `to` or begin at `from`, but none leads back into `from` or out of `to` from here. */
static trm_status link_node(nfa_builder *builder, uint32_t from, uint32_t to, const trm_grammar_node *node)
{
    if (++builder->depth > DEEPEST) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar is nested too deeply");
    }
    trm_status status = TRM_OK;
    switch (node->kind) {
    case TRM_GRAMMAR_TEXT:
        status = link_text(builder->nfa, from, to, node);
        break;
    case TRM_GRAMMAR_CLASS:
        status = link_class(builder->nfa, from, to, node);
        break;
    case TRM_GRAMMAR_SEQUENCE:
        status = link_sequence(builder, from, to, node);
        break;
    case TRM_GRAMMAR_ANY_OF:
        status = link_any_of(builder, from, to, node);
        break;
    case TRM_GRAMMAR_REPEAT:
        status = link_repeat(builder, from, to, node);
        break;
    case TRM_GRAMMAR_RULE:
        status =
            add_edge(builder->nfa, from,
                     (trm_grammar_edge){.target = to, .kind = TRM_GRAMMAR_EDGE_CALL, .rule = (uint32_t)node->rule});
        break;
    }
    builder->depth--;
    return status;
}

trm_status trm_grammar_nfa_build(const trm_grammar_tree *tree, trm_grammar_nfa *nfa)
{
    nfa_builder builder = {.tree = tree, .nfa = nfa};
    nfa->begin = calloc(tree->n_rules + 1, sizeof(*nfa->begin));
    nfa->end = calloc(tree->n_rules + 1, sizeof(*nfa->end));
    if (nfa->begin == NULL || nfa->end == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu rules of a grammar", tree->n_rules);
    }
    for (size_t i = 0; i < tree->n_rules; i++) {
        TRM_TRY(new_state(nfa, &nfa->begin[i]));
        TRM_TRY(new_state(nfa, &nfa->end[i]));
        TRM_TRY(link_node(&builder, nfa->begin[i], nfa->end[i], tree->rules[i].node));
    }
    return TRM_OK;
}

void trm_grammar_nfa_fini(trm_grammar_nfa *nfa)
{
    free(nfa->first_edge);
    free(nfa->edges);
    free(nfa->begin);
    free(nfa->end);
    *nfa = (trm_grammar_nfa){0};
}
