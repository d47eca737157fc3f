/* Building trees of grammars. */
#include "launcher/text/grammar/tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/buffer.h"
#include "launcher/text/strings/utf8.h"

#define MAX_NODES 400000
#define MAX_RULES 60000

void trm_grammar_tree_fini(trm_grammar_tree *tree)
{
    trm_arena_fini(&tree->arena);
    trm_map_fini(&tree->names);
    free(tree->rules);
    *tree = (trm_grammar_tree){0};
}

trm_grammar_node *trm_grammar_fail(trm_grammar_tree *tree, trm_status status, const char *format, ...)
{
    if (tree->status == TRM_OK) {
        char text[400];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        tree->status = trm_fail(status, "%.*s", (int)trm_utf8_valid_prefix(text, strlen(text)), text);
    }
    return NULL;
}

bool trm_grammar_enter(trm_grammar_tree *tree)
{
    if (++tree->depth > TRM_GRAMMAR_DEPTH) {
        trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "the grammar is nested more than %d levels deep",
                         TRM_GRAMMAR_DEPTH);
    }
    return tree->status == TRM_OK;
}

int32_t trm_grammar_add_rule(trm_grammar_tree *tree, const char *name, size_t size)
{
    if (tree->status != TRM_OK) {
        return -1;
    }
    if (tree->n_rules == MAX_RULES) {
        trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "the grammar has more than %d rules", MAX_RULES);
        return -1;
    }
    void *rules = tree->rules;
    tree->status = trm_array_grow(&rules, &tree->capacity, tree->n_rules + 1, sizeof(*tree->rules));
    tree->rules = rules;
    if (tree->status != TRM_OK) {
        return -1;
    }
    char *copy = trm_arena_alloc(&tree->arena, size + 1);
    if (copy == NULL) {
        tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return -1;
    }
    memcpy(copy, name, size);
    bool existing;
    tree->status = trm_map_add(&tree->names, copy, size, (uint32_t)tree->n_rules, &existing);
    tree->rules[tree->n_rules] = (trm_grammar_rule){.name = copy};
    return (int32_t)tree->n_rules++;
}

int32_t trm_grammar_find_rule(const trm_grammar_tree *tree, const char *name, size_t size)
{
    uint32_t rule;
    return trm_map_find(&tree->names, name, size, &rule) ? (int32_t)rule : -1;
}

static trm_grammar_node *new_node(trm_grammar_tree *tree, trm_grammar_node_kind kind)
{
    if (tree->status != TRM_OK) {
        return NULL;
    }
    if (tree->n_nodes++ == MAX_NODES) {
        return trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "the grammar is too large");
    }
    trm_grammar_node *node = trm_arena_alloc(&tree->arena, sizeof(*node));
    if (node == NULL) {
        tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    node->kind = kind;
    return node;
}

trm_grammar_node *trm_grammar_text(trm_grammar_tree *tree, const char *text, size_t size)
{
    trm_grammar_node *node = new_node(tree, TRM_GRAMMAR_TEXT);
    char *copy = node == NULL ? NULL : trm_arena_alloc(&tree->arena, size + 1);
    if (copy == NULL) {
        tree->status = tree->status == TRM_OK ? TRM_ERROR_OUT_OF_MEMORY : tree->status;
        return NULL;
    }
    memcpy(copy, text, size);
    node->text = copy;
    node->size = size;
    return node;
}

trm_grammar_node *trm_grammar_literal(trm_grammar_tree *tree, const char *text)
{
    return trm_grammar_text(tree, text, strlen(text));
}

static int by_first(const void *a, const void *b)
{
    const trm_grammar_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Writes the code points outside sorted, disjoint ranges into out [count + 2]. */
static size_t complement(const trm_grammar_range *ranges, size_t count, trm_grammar_range *out)
{
    size_t n = 0;
    int32_t next = 0;
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].first > next) {
            out[n++] = (trm_grammar_range){next, ranges[i].first - 1};
        }
        next = ranges[i].last + 1;
    }
    if (next <= 0x10ffff) {
        out[n++] = (trm_grammar_range){next, 0x10ffff};
    }
    return n;
}

/* Removes the surrogates, which UTF-8 cannot encode: one range may become two. */
static size_t drop_surrogates(const trm_grammar_range *ranges, size_t count, trm_grammar_range *out)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        trm_grammar_range low = {ranges[i].first, ranges[i].last < 0xd7ff ? ranges[i].last : 0xd7ff};
        trm_grammar_range high = {ranges[i].first > 0xe000 ? ranges[i].first : 0xe000, ranges[i].last};
        if (low.first <= low.last) {
            out[n++] = low;
        }
        if (high.first <= high.last) {
            out[n++] = high;
        }
    }
    return n;
}

trm_grammar_node *trm_grammar_class(trm_grammar_tree *tree, const trm_grammar_range *ranges, size_t count, bool negated)
{
    trm_grammar_node *node = new_node(tree, TRM_GRAMMAR_CLASS);
    trm_grammar_range *sorted = node == NULL ? NULL : trm_arena_array(&tree->arena, 3 * count + 4, sizeof(*sorted));
    if (sorted == NULL) {
        tree->status = tree->status == TRM_OK ? TRM_ERROR_OUT_OF_MEMORY : tree->status;
        return NULL;
    }
    size_t n = 0;
    if (count > 0) {
        memcpy(sorted, ranges, count * sizeof(*ranges));
        qsort(sorted, count, sizeof(*sorted), by_first);
    }
    for (size_t i = 0; i < count; i++) {
        if (n > 0 && sorted[i].first <= sorted[n - 1].last + 1) {
            sorted[n - 1].last = sorted[i].last > sorted[n - 1].last ? sorted[i].last : sorted[n - 1].last;
        } else {
            sorted[n++] = sorted[i];
        }
    }
    trm_grammar_range *out = sorted;
    if (negated) {
        out = trm_arena_array(&tree->arena, n + 2, sizeof(*out));
        n = out == NULL ? 0 : complement(sorted, n, out);
    }
    trm_grammar_range *kept = out == NULL ? NULL : trm_arena_array(&tree->arena, 2 * n + 1, sizeof(*kept));
    if (kept == NULL) {
        tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    node->size = drop_surrogates(out, n, kept);
    node->ranges = kept;
    return node;
}

trm_grammar_node *trm_grammar_list(trm_grammar_tree *tree, trm_grammar_node_kind kind)
{
    return new_node(tree, kind);
}

void trm_grammar_append(trm_grammar_tree *tree, trm_grammar_node *list, trm_grammar_node *child)
{
    if (tree->status != TRM_OK || list == NULL || child == NULL) {
        return;
    }
    if (list->last == NULL) {
        list->child = child;
    } else {
        list->last->next = child;
    }
    list->last = child;
}

static trm_grammar_node *list_of(trm_grammar_tree *tree, trm_grammar_node_kind kind, size_t count, va_list children)
{
    trm_grammar_node *list = trm_grammar_list(tree, kind);
    for (size_t i = 0; i < count; i++) {
        trm_grammar_append(tree, list, va_arg(children, trm_grammar_node *));
    }
    return tree->status == TRM_OK ? list : NULL;
}

trm_grammar_node *trm_grammar_sequence(trm_grammar_tree *tree, size_t count, ...)
{
    va_list children;
    va_start(children, count);
    trm_grammar_node *list = list_of(tree, TRM_GRAMMAR_SEQUENCE, count, children);
    va_end(children);
    return list;
}

trm_grammar_node *trm_grammar_any_of(trm_grammar_tree *tree, size_t count, ...)
{
    va_list children;
    va_start(children, count);
    trm_grammar_node *list = list_of(tree, TRM_GRAMMAR_ANY_OF, count, children);
    va_end(children);
    return list;
}

trm_grammar_node *trm_grammar_repeat(trm_grammar_tree *tree, trm_grammar_node *child, int32_t min, int32_t max)
{
    trm_grammar_node *node = new_node(tree, TRM_GRAMMAR_REPEAT);
    if (node == NULL || child == NULL) {
        return NULL;
    }
    if (max >= 0 && max < min) {
        return trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "a repetition of at least %d and at most %d", min,
                                max);
    }
    node->child = node->last = child;
    node->min = min;
    node->max = max;
    return node;
}

trm_grammar_node *trm_grammar_call(trm_grammar_tree *tree, int32_t rule)
{
    trm_grammar_node *node = new_node(tree, TRM_GRAMMAR_RULE);
    if (node != NULL) {
        node->rule = rule;
    }
    return node;
}

trm_grammar_node *trm_grammar_not(trm_grammar_tree *tree, trm_grammar_node *child)
{
    trm_grammar_node *node = new_node(tree, TRM_GRAMMAR_NOT);
    if (node == NULL || child == NULL) {
        return NULL;
    }
    node->child = node->last = child;
    return node;
}

trm_grammar_node *trm_grammar_unique(trm_grammar_tree *tree, trm_grammar_node *item, trm_grammar_node *space,
                                     trm_grammar_node *tail, int32_t min, int32_t max)
{
    trm_grammar_node *node = new_node(tree, TRM_GRAMMAR_UNIQUE);
    if (node != NULL) {
        node->min = min;
        node->max = max;
        trm_grammar_append(tree, node, item);
        trm_grammar_append(tree, node, space);
        trm_grammar_append(tree, node, tail);
    }
    return node;
}

trm_grammar_node *trm_grammar_copy(trm_grammar_tree *tree, const trm_grammar_node *node)
{
    if (node == NULL) {
        return NULL;
    }
    trm_grammar_node *copy = new_node(tree, node->kind);
    if (copy != NULL) {
        *copy = *node;
        copy->next = NULL;
    }
    return copy;
}
