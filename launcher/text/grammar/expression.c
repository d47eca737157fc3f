/* Building expressions: simplification and storing each once. */
#include "launcher/text/grammar/expression.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/utf8.h"

#define MAX_FACTORED 500   /* depth to which alternatives share beginnings */
#define MAX_OPENED   64    /* parts of a sequence that is continued */
#define MAX_SETS     60000 /* of bytes */

trm_expression trm_expression_fail(trm_expressions *x, const char *what)
{
    if (x->status == TRM_OK) {
        x->status = trm_fail(TRM_ERROR_INVALID_ARGUMENT, "the grammar %s", what);
    }
    return TRM_NOTHING;
}

static bool grow(trm_expressions *x, void **data, size_t *capacity, size_t count, size_t element)
{
    if (x->status == TRM_OK) {
        x->status = trm_array_grow(data, capacity, count, element);
    }
    return x->status == TRM_OK;
}

static uint32_t hash_node(const trm_expressions *x, const trm_expression_node *node)
{
    uint64_t hash = node->kind;
    const bool listed = node->kind == TRM_EXPRESSION_EITHER || node->kind == TRM_EXPRESSION_BOTH;
    const uint64_t parts[4] = {listed ? 0 : node->a, node->b, (uint32_t)node->min, (uint32_t)node->max};
    for (int i = 0; i < 4; i++) {
        hash = (hash ^ parts[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    for (uint32_t i = 0; listed && i < node->b; i++) {
        hash = (hash ^ (uint32_t)x->pool.data[node->a + i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash >> 7);
}

static bool are_equal(const trm_expressions *x, const trm_expression_node *p, const trm_expression_node *q)
{
    bool equal = p->kind == q->kind && p->b == q->b && p->min == q->min && p->max == q->max;
    if (equal && (p->kind == TRM_EXPRESSION_EITHER || p->kind == TRM_EXPRESSION_BOTH)) {
        return memcmp(x->pool.data + p->a, x->pool.data + q->a, p->b * sizeof(int32_t)) == 0;
    }
    return equal && p->a == q->a;
}

static bool rehash(trm_expressions *x)
{
    size_t count = x->n_slots == 0 ? 1024 : 2 * x->n_slots;
    uint32_t *slots = calloc(count, sizeof(*slots));
    if (slots == NULL) {
        x->status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu expressions", count);
        return false;
    }
    free(x->slots);
    x->slots = slots;
    x->n_slots = count;
    for (size_t i = 0; i < x->n_nodes; i++) {
        uint32_t at = hash_node(x, &x->nodes[i]) & (uint32_t)(count - 1);
        x->nodes[i].next = slots[at];
        slots[at] = (uint32_t)i + 1;
    }
    return true;
}

trm_expression trm_expression_store(trm_expressions *x, const trm_expression_node *node)
{
    const bool listed = node->kind == TRM_EXPRESSION_EITHER || node->kind == TRM_EXPRESSION_BOTH;
    if (x->status != TRM_OK || (x->n_nodes >= x->n_slots / 2 && !rehash(x))) {
        return TRM_NOTHING;
    }
    uint32_t slot = hash_node(x, node) & (uint32_t)(x->n_slots - 1);
    for (uint32_t i = x->slots[slot]; i != 0; i = x->nodes[i - 1].next) {
        if (are_equal(x, &x->nodes[i - 1], node)) {
            x->pool.size -= listed ? node->b : 0;
            return i - 1;
        }
    }
    if (x->n_nodes >= x->max_nodes) {
        return trm_expression_fail(x, "is too large");
    }
    void *data = x->nodes;
    if (!grow(x, &data, &x->node_capacity, x->n_nodes + 1, sizeof(*x->nodes))) {
        return TRM_NOTHING;
    }
    x->nodes = data;
    x->nodes[x->n_nodes] = *node;
    x->nodes[x->n_nodes].next = x->slots[slot];
    x->slots[slot] = (uint32_t)++x->n_nodes;
    return (trm_expression)x->n_nodes - 1;
}

trm_status trm_expressions_init(trm_expressions *x)
{
    *x = (trm_expressions){.max_nodes = 1000000, .work = INT64_MAX};
    (void)trm_expression_store(x, &(trm_expression_node){.kind = TRM_EXPRESSION_NOTHING});
    (void)trm_expression_store(x, &(trm_expression_node){.kind = TRM_EXPRESSION_EMPTY, .nullable = true});
    (void)trm_expression_store(x,
                               &(trm_expression_node){.kind = TRM_EXPRESSION_NOT, .nullable = true, .has_moves = true});
    return x->status;
}

void trm_expressions_fini(trm_expressions *x)
{
    free(x->nodes);
    free(x->slots);
    free(x->sets);
    free(x->set_slots);
    free(x->multiples);
    free(x->uniques);
    trm_ids_fini(&x->pool);
    *x = (trm_expressions){0};
}

/* ---- leaves ---- */

static uint32_t hash_set(const trm_byte_set *set)
{
    uint64_t hash = 0;
    for (int i = 0; i < 4; i++) {
        hash = (hash ^ set->words[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash >> 9);
}

static bool rehash_sets(trm_expressions *x)
{
    size_t count = x->n_set_slots == 0 ? 128 : 2 * x->n_set_slots;
    while (x->n_sets >= count / 2) {
        count *= 2;
    }
    uint32_t *slots = calloc(count, sizeof(*slots));
    if (slots == NULL) {
        x->status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu classes of characters", count);
        return false;
    }
    free(x->set_slots);
    x->set_slots = slots;
    x->n_set_slots = count;
    for (size_t i = 0; i < x->n_sets; i++) {
        uint32_t slot = hash_set(&x->sets[i]) & (uint32_t)(count - 1);
        while (slots[slot] != 0) {
            slot = (slot + 1) & (uint32_t)(count - 1);
        }
        slots[slot] = (uint32_t)i + 1;
    }
    return true;
}

trm_expression trm_expression_bytes(trm_expressions *x, const trm_byte_set *set)
{
    if ((set->words[0] | set->words[1] | set->words[2] | set->words[3]) == 0) {
        return TRM_NOTHING;
    }
    if (x->n_sets >= x->n_set_slots / 2 && !rehash_sets(x)) {
        return TRM_NOTHING;
    }
    uint32_t slot = hash_set(set) & (uint32_t)(x->n_set_slots - 1);
    while (x->set_slots[slot] != 0 && memcmp(&x->sets[x->set_slots[slot] - 1], set, sizeof(*set)) != 0) {
        slot = (slot + 1) & (uint32_t)(x->n_set_slots - 1);
    }
    if (x->set_slots[slot] == 0) {
        void *data = x->sets;
        if (x->n_sets == MAX_SETS) {
            return trm_expression_fail(x, "has too many classes of characters");
        }
        if (!grow(x, &data, &x->set_capacity, x->n_sets + 1, sizeof(*x->sets))) {
            return TRM_NOTHING;
        }
        x->sets = data;
        x->sets[x->n_sets] = *set;
        x->set_slots[slot] = (uint32_t)++x->n_sets;
    }
    return trm_expression_store(
        x, &(trm_expression_node){.kind = TRM_EXPRESSION_BYTES, .a = x->set_slots[slot] - 1, .has_moves = true});
}

trm_expression trm_expression_byte_range(trm_expressions *x, uint8_t first, uint8_t last)
{
    trm_byte_set set = {{0}};
    if (first == last && x->single[first] != 0) {
        return x->single[first] - 1;
    }
    for (int byte = first; byte <= last; byte++) {
        set.words[byte / 64] |= (uint64_t)1 << byte % 64;
    }
    const trm_expression e = trm_expression_bytes(x, &set);
    if (first == last && x->status == TRM_OK) {
        x->single[first] = e + 1;
    }
    return e;
}

trm_expression trm_expression_call(trm_expressions *x, uint32_t rule)
{
    return trm_expression_store(x, &(trm_expression_node){.kind = TRM_EXPRESSION_CALL, .a = rule, .has_calls = true});
}

trm_expression trm_expression_multiple(trm_expressions *x, trm_multiple multiple)
{
    void *data = x->multiples;
    if (!grow(x, &data, &x->multiple_capacity, x->n_multiples + 1, sizeof(*x->multiples))) {
        return TRM_NOTHING;
    }
    x->multiples = data;
    x->multiples[x->n_multiples] = multiple;
    return trm_expression_store(
        x, &(trm_expression_node){
               .kind = TRM_EXPRESSION_MULTIPLE, .a = (uint32_t)x->n_multiples++, .has_both = true, .has_moves = true});
}

trm_expression trm_expression_unique(trm_expressions *x, trm_unique unique)
{
    void *data = x->uniques;
    if (!grow(x, &data, &x->unique_capacity, x->n_uniques + 1, sizeof(*x->uniques))) {
        return TRM_NOTHING;
    }
    x->uniques = data;
    x->uniques[x->n_uniques] = unique;
    return trm_expression_store(x, &(trm_expression_node){.kind = TRM_EXPRESSION_UNIQUE,
                                                          .a = (uint32_t)x->n_uniques++,
                                                          .b = TRM_NOTHING,
                                                          .nullable = unique.min == 0,
                                                          .has_moves = unique.max != 0,
                                                          .has_calls = true});
}

/* The code points from first[] to last[], all of `size` bytes. */
static trm_expression encoded(trm_expressions *x, const uint8_t *first, const uint8_t *last, size_t size)
{
    static const uint8_t lowest[3] = {0x80, 0x80, 0x80}, highest[3] = {0xbf, 0xbf, 0xbf};
    uint8_t low = first[0], high = last[0];
    trm_expression parts[3];
    size_t n = 0;
    if (size == 1) {
        return trm_expression_byte_range(x, low, high);
    }
    if (low == high) {
        return trm_expression_sequence(x, trm_expression_byte_range(x, low, low),
                                       encoded(x, first + 1, last + 1, size - 1));
    }
    if (memcmp(first + 1, lowest, size - 1) != 0) {
        parts[n++] = trm_expression_sequence(x, trm_expression_byte_range(x, low, low),
                                             encoded(x, first + 1, highest, size - 1));
        low++;
    }
    if (memcmp(last + 1, highest, size - 1) != 0) {
        parts[n++] = trm_expression_sequence(x, trm_expression_byte_range(x, high, high),
                                             encoded(x, lowest, last + 1, size - 1));
        high--;
    }
    if (low <= high) {
        parts[n++] =
            trm_expression_sequence(x, trm_expression_byte_range(x, low, high), encoded(x, lowest, highest, size - 1));
    }
    return trm_expression_either(x, parts, n);
}

trm_expression trm_expression_codepoints(trm_expressions *x, int32_t first, int32_t last)
{
    static const int32_t ends[4] = {0x7f, 0x7ff, 0xffff, 0x10ffff};
    trm_expression parts[4];
    size_t n = 0;
    for (size_t length = 1; length <= 4; length++) { /* parts with equally long encodings */
        int32_t end = last < ends[length - 1] ? last : ends[length - 1];
        if (first <= end) {
            uint8_t low[4], high[4];
            (void)trm_utf8_write((char *)low, first);
            (void)trm_utf8_write((char *)high, end);
            parts[n++] = encoded(x, low, high, length);
            first = end + 1;
        }
    }
    return trm_expression_either(x, parts, n);
}

/* ---- sequences and repetitions ---- */

trm_expression trm_expression_sequence(trm_expressions *x, trm_expression a, trm_expression b)
{
    const trm_expression_node *p = &x->nodes[a], *q = &x->nodes[b];
    if (x->status != TRM_OK || a == TRM_NOTHING || b == TRM_NOTHING) {
        return TRM_NOTHING;
    }
    if (a == TRM_EMPTY || b == TRM_EMPTY) {
        return a == TRM_EMPTY ? b : a;
    }
    if (a == TRM_ANY && b == TRM_ANY) {
        return a;
    }
    if (p->kind == TRM_EXPRESSION_SEQUENCE) { /* a short first part is opened, so that equal texts are stored once */
        trm_expression heads[MAX_OPENED];
        size_t n = 0;
        trm_expression at = a;
        for (; n < MAX_OPENED && x->nodes[at].kind == TRM_EXPRESSION_SEQUENCE; at = x->nodes[at].b) {
            heads[n++] = x->nodes[at].a;
        }
        if (x->nodes[at].kind != TRM_EXPRESSION_SEQUENCE && x->nodes[heads[0]].kind != TRM_EXPRESSION_SEQUENCE) {
            for (b = trm_expression_sequence(x, at, b); n > 0; n--) {
                b = trm_expression_sequence(x, heads[n - 1], b);
            }
            return b;
        }
    }
    return trm_expression_store(x, &(trm_expression_node){.kind = TRM_EXPRESSION_SEQUENCE,
                                                          .a = a,
                                                          .b = b,
                                                          .nullable = p->nullable && q->nullable,
                                                          .has_both = p->has_both || q->has_both,
                                                          .has_calls = p->has_calls || q->has_calls,
                                                          .has_moves = p->has_moves || (p->nullable && q->has_moves)});
}

trm_expression trm_expression_repeat(trm_expressions *x, trm_expression a, int32_t min, int32_t max)
{
    const trm_expression_node *p = &x->nodes[a];
    if (x->status != TRM_OK || (a == TRM_NOTHING && min > 0)) {
        return TRM_NOTHING;
    }
    if (max == 0 || a == TRM_EMPTY || a == TRM_NOTHING) {
        return TRM_EMPTY;
    }
    min = p->nullable ? 0 : min;
    if ((min == 1 && max == 1) || a == TRM_ANY) {
        return a;
    }
    if (p->kind == TRM_EXPRESSION_REPEAT && p->min == 0 && p->max < 0) {
        return a;
    }
    if (min == 0 && max == 1 && p->nullable) {
        return a;
    }
    return trm_expression_store(x, &(trm_expression_node){.kind = TRM_EXPRESSION_REPEAT,
                                                          .a = a,
                                                          .min = min,
                                                          .max = max < 0 ? -1 : max,
                                                          .nullable = min == 0,
                                                          .has_both = p->has_both,
                                                          .has_calls = p->has_calls,
                                                          .has_moves = p->has_moves});
}

/* ---- alternatives, intersections, complements ---- */

/* By number, since equal expressions have equal numbers. */
static int by_number(const void *a, const void *b)
{
    int32_t p = *(const int32_t *)a, q = *(const int32_t *)b;
    return (p > q) - (p < q);
}

/* Appends a list with the lists of the same kind in it opened, sorted and each once. */
static bool flatten(trm_expressions *x, const trm_expression *list, size_t count, trm_expression_kind kind,
                    trm_ids *out)
{
    for (size_t i = 0; i < count && x->status == TRM_OK; i++) {
        const trm_expression_node *node = &x->nodes[list[i]];
        if (node->kind == (uint8_t)kind) {
            x->status = trm_ids_reserve(out, node->b);
            for (uint32_t k = 0; k < node->b && x->status == TRM_OK; k++) {
                out->data[out->size++] = x->pool.data[node->a + k];
            }
        } else {
            x->status = trm_ids_append(out, (int32_t)list[i]);
        }
    }
    x->work -= (int64_t)out->size;
    if (x->work < 0) {
        trm_expression_fail(x, "takes too long");
    }
    if (x->status != TRM_OK) {
        return false;
    }
    if (out->size > 1) {
        qsort(out->data, out->size, sizeof(*out->data), by_number);
    }
    size_t n = 0;
    for (size_t i = 0; i < out->size; i++) {
        if (i == 0 || out->data[i] != out->data[i - 1]) {
            out->data[n++] = out->data[i];
        }
    }
    out->size = n;
    return true;
}

static trm_expression head_of(const trm_expressions *x, trm_expression e)
{
    return x->nodes[e].kind == TRM_EXPRESSION_SEQUENCE ? x->nodes[e].a : e;
}

typedef struct factor {
    trm_expression head, whole;
} factor;

static int by_head(const void *a, const void *b)
{
    const factor *p = a, *q = b;
    return p->head != q->head ? (p->head > q->head) - (p->head < q->head)
                              : (p->whole > q->whole) - (p->whole < q->whole);
}

/* Joins alternatives that begin alike: a b | a c becomes a (b | c). A rule is then called once. */
static bool factorize(trm_expressions *x, trm_ids *list)
{
    factor *factors = calloc(list->size + 1, sizeof(*factors));
    trm_expression *rests = calloc(list->size + 1, sizeof(*rests));
    size_t n = 0;
    bool changed = false;
    if (factors == NULL || rests == NULL) {
        x->status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu alternatives", list->size);
    }
    for (size_t i = 0; i < list->size && x->status == TRM_OK; i++) {
        factors[i] = (factor){head_of(x, (trm_expression)list->data[i]), (trm_expression)list->data[i]};
    }
    if (x->status == TRM_OK) {
        qsort(factors, list->size, sizeof(*factors), by_head);
    }
    for (size_t i = 0, end; i < list->size && x->status == TRM_OK; i = end) {
        for (end = i + 1; end < list->size && factors[end].head == factors[i].head; end++) {
        }
        if (end == i + 1 || factors[i].head == TRM_EMPTY) {
            list->data[n++] = (int32_t)factors[i].whole;
            continue;
        }
        for (size_t k = i; k < end; k++) {
            rests[k - i] = factors[k].whole == factors[k].head ? TRM_EMPTY : x->nodes[factors[k].whole].b;
        }
        trm_expression rest = trm_expression_either(x, rests, end - i);
        list->data[n++] = (int32_t)trm_expression_sequence(x, factors[i].head, rest);
        changed = true;
    }
    list->size = n;
    free(factors);
    free(rests);
    return changed && x->status == TRM_OK;
}

/* Joins bytes: [a] | [b] becomes [ab], also before the same rest. */
static void join_bytes(trm_expressions *x, trm_ids *list)
{
    size_t n = 0, joined = SIZE_MAX;
    for (size_t i = 0; i < list->size && x->status == TRM_OK; i++) {
        const trm_expression_node *node = &x->nodes[list->data[i]];
        if (node->kind == TRM_EXPRESSION_BYTES && joined != SIZE_MAX) {
            trm_byte_set set = x->sets[node->a];
            for (int w = 0; w < 4; w++) {
                set.words[w] |= x->sets[x->nodes[list->data[joined]].a].words[w];
            }
            list->data[joined] = (int32_t)trm_expression_bytes(x, &set);
            continue;
        }
        joined = node->kind == TRM_EXPRESSION_BYTES ? n : joined;
        list->data[n++] = list->data[i];
    }
    list->size = n;
}

static trm_expression store_list(trm_expressions *x, trm_expression_kind kind, const trm_ids *list)
{
    trm_expression_node node = {.kind = (uint8_t)kind, .a = (uint32_t)x->pool.size, .b = (uint32_t)list->size};
    if (x->pool.size + list->size > 16 * x->max_nodes) {
        return trm_expression_fail(x, "is too large");
    }
    x->status = x->status == TRM_OK ? trm_ids_reserve(&x->pool, list->size) : x->status;
    if (x->status != TRM_OK) {
        return TRM_NOTHING;
    }
    const bool both = kind == TRM_EXPRESSION_BOTH;
    node.nullable = both;
    node.has_both = both;
    node.has_moves = both;
    for (size_t i = 0; i < list->size; i++) {
        const trm_expression_node *child = &x->nodes[list->data[i]];
        x->pool.data[x->pool.size++] = list->data[i];
        node.nullable = both ? node.nullable && child->nullable : node.nullable || child->nullable;
        node.has_moves = both ? node.has_moves && child->has_moves : node.has_moves || child->has_moves;
        node.has_both = node.has_both || child->has_both;
        node.has_calls = node.has_calls || child->has_calls;
    }
    return trm_expression_store(x, &node);
}

trm_expression trm_expression_either(trm_expressions *x, const trm_expression *list, size_t count)
{
    trm_ids found = {0};
    trm_expression e = TRM_NOTHING;
    if (count == 2 && (list[0] == TRM_NOTHING || list[0] == list[1])) {
        return list[1];
    }
    if (count == 2 && list[1] == TRM_NOTHING) {
        return list[0];
    }
    x->depth++;
    if (flatten(x, list, count, TRM_EXPRESSION_EITHER, &found)) {
        bool calls = false, any = false;
        size_t n = 0;
        for (size_t i = 0; i < found.size; i++) {
            calls |= x->nodes[found.data[i]].has_calls;
            any |= found.data[i] == (int32_t)TRM_ANY;
            if (found.data[i] != (int32_t)TRM_NOTHING) {
                found.data[n++] = found.data[i];
            }
        }
        found.size = n;
        join_bytes(x, &found);
        trm_ids sorted = {0};
        if (any && !calls) {
            e = TRM_ANY;
        } else if (x->depth < MAX_FACTORED && factorize(x, &found)) {
            /* what was joined may be among the rest, or be a list of alternatives itself */
            (void)flatten(x, (const trm_expression *)found.data, found.size, TRM_EXPRESSION_EITHER, &sorted);
            e = sorted.size == 1 ? (trm_expression)sorted.data[0] : store_list(x, TRM_EXPRESSION_EITHER, &sorted);
        } else if (x->status == TRM_OK && found.size > 0) {
            qsort(found.data, found.size, sizeof(*found.data), by_number);
            e = found.size == 1 ? (trm_expression)found.data[0] : store_list(x, TRM_EXPRESSION_EITHER, &found);
        }
        trm_ids_fini(&sorted);
    }
    x->depth--;
    trm_ids_fini(&found);
    return x->status == TRM_OK ? e : TRM_NOTHING;
}

trm_expression trm_expression_both(trm_expressions *x, const trm_expression *list, size_t count)
{
    trm_ids found = {0};
    trm_expression e = TRM_NOTHING;
    if (flatten(x, list, count, TRM_EXPRESSION_BOTH, &found)) {
        size_t n = 0;
        bool nothing = false, empty = false, nullable = true;
        for (size_t i = 0; i < found.size; i++) {
            const trm_expression_node *child = &x->nodes[found.data[i]];
            nothing |= found.data[i] == (int32_t)TRM_NOTHING || child->has_calls;
            empty |= found.data[i] == (int32_t)TRM_EMPTY;
            nullable = nullable && child->nullable;
            if (child->kind == TRM_EXPRESSION_NOT && found.data[i] != (int32_t)TRM_ANY) {
                const int32_t without = (int32_t)child->a;
                nothing |= bsearch(&without, found.data, found.size, sizeof(without), by_number) != NULL;
            }
            if (found.data[i] != (int32_t)TRM_ANY) {
                found.data[n++] = found.data[i];
            }
        }
        found.size = n;
        e = nothing           ? TRM_NOTHING
            : empty           ? (nullable ? TRM_EMPTY : TRM_NOTHING)
            : found.size == 0 ? TRM_ANY
            : found.size == 1 ? (trm_expression)found.data[0]
                              : store_list(x, TRM_EXPRESSION_BOTH, &found);
    }
    trm_ids_fini(&found);
    return x->status == TRM_OK ? e : TRM_NOTHING;
}

trm_expression trm_expression_not(trm_expressions *x, trm_expression a)
{
    const trm_expression_node *p = &x->nodes[a];
    if (x->status != TRM_OK) {
        return TRM_NOTHING;
    }
    if (p->kind == TRM_EXPRESSION_NOT) {
        return p->a;
    }
    return trm_expression_store(x, &(trm_expression_node){.kind = TRM_EXPRESSION_NOT,
                                                          .a = a,
                                                          .nullable = !p->nullable,
                                                          .has_both = a != TRM_NOTHING,
                                                          .has_moves = true});
}

/* ---- copies ---- */

trm_expression trm_expression_copy(trm_expressions *x, const trm_expressions *from, trm_expression e, uint32_t *memo)
{
    const trm_expression_node *node = &from->nodes[e];
    trm_ids list = {0};
    trm_expression_node copy = *node;
    trm_expression made = TRM_NOTHING;
    if (memo[e] != 0) {
        return memo[e] - 1;
    }
    copy.next = copy.row = copy.alike = 0;
    switch ((trm_expression_kind)node->kind) {
    case TRM_EXPRESSION_NOT:
    case TRM_EXPRESSION_REPEAT:
        copy.a = trm_expression_copy(x, from, node->a, memo);
        made = trm_expression_store(x, &copy);
        break;
    case TRM_EXPRESSION_UNIQUE:
        copy.b = trm_expression_copy(x, from, node->b, memo);
        made = trm_expression_store(x, &copy);
        break;
    case TRM_EXPRESSION_UNIQUE_ITEM:
        copy.a = trm_expression_copy(x, from, node->a, memo);
        copy.b = trm_expression_copy(x, from, node->b, memo);
        copy.min = (int32_t)trm_expression_copy(x, from, (trm_expression)node->min, memo);
        made = trm_expression_store(x, &copy);
        break;
    case TRM_EXPRESSION_SEQUENCE: /* may be long: its parts are listed, the rest first */
        for (trm_expression at = e; x->status == TRM_OK; at = from->nodes[at].b) {
            x->status = trm_ids_append(&list, (int32_t)at);
            if (from->nodes[at].kind != TRM_EXPRESSION_SEQUENCE || memo[at] != 0) {
                break;
            }
        }
        made = x->status == TRM_OK ? trm_expression_copy(x, from, (trm_expression)list.data[--list.size], memo) : made;
        while (list.size > 0 && x->status == TRM_OK) {
            const trm_expression at = (trm_expression)list.data[--list.size];
            copy = from->nodes[at];
            copy.next = copy.row = copy.alike = 0;
            copy.a = trm_expression_copy(x, from, copy.a, memo);
            copy.b = made;
            made = trm_expression_store(x, &copy);
            memo[at] = made + 1;
        }
        trm_ids_fini(&list);
        break;
    case TRM_EXPRESSION_EITHER:
    case TRM_EXPRESSION_BOTH:
        for (uint32_t i = 0; i < node->b && x->status == TRM_OK; i++) {
            trm_expression child = trm_expression_copy(x, from, (trm_expression)from->pool.data[node->a + i], memo);
            x->status = x->status == TRM_OK ? trm_ids_append(&list, (int32_t)child) : x->status;
        }
        if (x->status == TRM_OK) {
            qsort(list.data, list.size, sizeof(*list.data), by_number);
            made = store_list(x, (trm_expression_kind)node->kind, &list);
        }
        trm_ids_fini(&list);
        break;
    case TRM_EXPRESSION_NOTHING:
    case TRM_EXPRESSION_EMPTY:
    case TRM_EXPRESSION_BYTES:
    case TRM_EXPRESSION_CALL:
    case TRM_EXPRESSION_MULTIPLE:
        made = trm_expression_store(x, &copy);
        break;
    }
    if (x->status == TRM_OK) {
        memo[e] = made + 1;
    }
    return made;
}
