/* Derivatives of expressions, and what follows from them: whether anything matches, what may be called first. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/grammar/expression.h"

#define DEEPEST      3000  /* of nested expressions */
#define MAX_SEARCHED 40000 /* expressions to look through for one that matches the empty text */
#define MAX_DIGITS   15    /* of a multiple, which a double keeps */

typedef enum expression_life { LIFE_UNKNOWN, LIFE_DEAD, LIFE_ALIVE } expression_life;

/* What a MULTIPLE has read. */
typedef enum multiple_part {
    PART_BEGIN,
    PART_SIGN,
    PART_ZERO,
    PART_WHOLE,   /* digits, the first of them not 0 */
    PART_POINT,   /* the point without a digit behind it */
    PART_FRACTION /* max digits behind the point */
} multiple_part;

/* Whether a byte means something to itself: multiples read digits, and items that differ are kept as texts. */
static bool is_alone(const trm_expressions *x, int byte)
{
    return x->n_uniques > 0 || (x->n_multiples > 0 && ((byte >= '0' && byte <= '9') || byte == '-' || byte == '.'));
}

void trm_expression_find_classes(trm_expressions *x)
{
    uint32_t first[256]; /* the first byte of each class */
    x->n_classes = 0;
    for (int byte = 0; byte < 256; byte++) {
        uint32_t class = is_alone(x, byte) ? x->n_classes : 0;
        for (; class < x->n_classes; class ++) {
            size_t i = is_alone(x, (int)first[class]) ? SIZE_MAX : 0;
            const uint32_t other = first[class];
            while (i < x->n_sets &&
                   (x->sets[i].words[byte / 64] >> byte % 64 & 1) == (x->sets[i].words[other / 64] >> other % 64 & 1)) {
                i++;
            }
            if (i == x->n_sets) {
                break;
            }
        }
        if (class == x->n_classes) {
            first[x->n_classes++] = (uint32_t)byte;
        }
        x->class_of[byte] = (uint8_t) class;
        x->byte_of[class] = (uint8_t)first[class];
    }
}

/* ---- bytes that an expression does not tell apart ---- */

typedef struct front {
    uint32_t sets[64]; /* that the next byte may be in */
    size_t count;
    bool all; /* too many, or every byte counts */
} front;

/* Collects the sets that the next byte is compared with. */
static void find_front(const trm_expressions *x, trm_expression e, front *f, int32_t depth)
{
    const trm_expression_node *node = &x->nodes[e];
    size_t i = 0;
    if (f->all || !node->has_moves || e == TRM_ANY) {
        return;
    }
    switch ((trm_expression_kind)node->kind) {
    case TRM_EXPRESSION_BYTES:
        while (i < f->count && f->sets[i] != node->a) {
            i++;
        }
        if (i == f->count) {
            f->all = f->count == 64;
            f->sets[f->all ? 0 : f->count++] = node->a;
        }
        break;
    case TRM_EXPRESSION_SEQUENCE:
        find_front(x, node->a, f, depth + 1);
        if (x->nodes[node->a].nullable) {
            find_front(x, node->b, f, depth + 1);
        }
        break;
    case TRM_EXPRESSION_NOT:
    case TRM_EXPRESSION_REPEAT:
        find_front(x, node->a, f, depth + 1);
        break;
    case TRM_EXPRESSION_EITHER:
    case TRM_EXPRESSION_BOTH:
        for (uint32_t k = 0; k < node->b && !f->all; k++) {
            find_front(x, (trm_expression)x->pool.data[node->a + k], f, depth + 1);
        }
        break;
    case TRM_EXPRESSION_MULTIPLE:
    case TRM_EXPRESSION_UNIQUE:
    case TRM_EXPRESSION_UNIQUE_ITEM:
        f->all = true;
        break;
    case TRM_EXPRESSION_NOTHING:
    case TRM_EXPRESSION_EMPTY:
    case TRM_EXPRESSION_CALL:
        break;
    }
    f->all = f->all || depth > 500;
}

uint32_t trm_expression_groups(trm_expressions *x, trm_expression e, uint8_t group_of[256])
{
    uint64_t groups[256];
    front f = {.count = 0};
    uint32_t n = 0;
    find_front(x, e, &f, 0);
    x->work--;
    for (uint32_t class = 0; class < x->n_classes; class ++) {
        const uint8_t byte = x->byte_of[class];
        uint64_t in = 0;
        for (size_t i = 0; i < f.count && !f.all; i++) {
            in |= (x->sets[f.sets[i]].words[byte / 64] >> byte % 64 & 1) << i;
        }
        uint32_t group = f.all ? n : 0;
        while (group < n && groups[group] != in) {
            group++;
        }
        if (group == n) {
            groups[n++] = in;
        }
        group_of[class] = (uint8_t)group;
    }
    return n;
}

static bool enter(trm_expressions *x)
{
    if (++x->depth > DEEPEST) {
        trm_expression_fail(x, "is nested too deeply");
    } else if (--x->work < 0) {
        trm_expression_fail(x, "takes too long");
    }
    return x->status == TRM_OK;
}

static trm_expression multiple_node(trm_expressions *x, uint32_t which, multiple_part part, uint32_t remainder,
                                    int32_t digits);

static trm_expression derive_multiple(trm_expressions *x, const trm_expression_node *from, uint8_t byte)
{
    const trm_multiple m = x->multiples[from->a];
    const trm_expression_node node = *from;
    const bool digit = byte >= '0' && byte <= '9';
    const uint32_t remainder = digit ? (uint32_t)(((uint64_t)node.b * 10 + (uint64_t)(byte - '0')) % m.number) : node.b;
    switch ((multiple_part)node.min) {
    case PART_BEGIN:
        if (byte == '-') {
            return multiple_node(x, node.a, PART_SIGN, 0, 0);
        }
        /* fall through */
    case PART_SIGN:
        return digit ? multiple_node(x, node.a, byte == '0' ? PART_ZERO : PART_WHOLE, remainder, 1) : TRM_NOTHING;
    case PART_WHOLE:
        if (digit) {
            return node.max + (int32_t)m.scale < MAX_DIGITS
                       ? multiple_node(x, node.a, PART_WHOLE, remainder, node.max + 1)
                       : TRM_NOTHING;
        }
        /* fall through */
    case PART_ZERO:
        return byte == '.' && m.scale > 0 ? multiple_node(x, node.a, PART_POINT, node.b, 0) : TRM_NOTHING;
    case PART_POINT:
    case PART_FRACTION:
        return digit && node.max < (int32_t)m.scale ? multiple_node(x, node.a, PART_FRACTION, remainder, node.max + 1)
                                                    : TRM_NOTHING;
    }
    return TRM_NOTHING;
}

/* ---- items that differ ---- */

/* What an item may be that differs from those before. */
static trm_expression new_item(trm_expressions *x, const trm_expression_node *list)
{
    const trm_expression parts[2] = {x->uniques[list->a].item, trm_expression_not(x, list->b)};
    trm_expression item = trm_expression_both(x, parts, 2);
    return trm_expression_is_alive(x, item) ? item : TRM_NOTHING;
}

/* The list with one item more, whose text is `begin` backwards. */
static trm_expression_node with_item(trm_expressions *x, trm_expression list, trm_expression begin)
{
    const trm_expression_node node = x->nodes[list];
    trm_expression text = TRM_EMPTY;
    for (; x->nodes[begin].kind == TRM_EXPRESSION_SEQUENCE && x->status == TRM_OK; begin = x->nodes[begin].b) {
        text = trm_expression_sequence(x, x->nodes[begin].a, text);
        x->work--;
    }
    const trm_expression texts[2] = {node.b, begin == TRM_EMPTY ? text : trm_expression_sequence(x, begin, text)};
    return (trm_expression_node){.kind = TRM_EXPRESSION_UNIQUE,
                                 .a = node.a,
                                 .b = trm_expression_either(x, texts, 2),
                                 .min = node.min + 1,
                                 .has_moves = true,
                                 .has_calls = true};
}

/* What follows a comma behind the items of a list. */
static trm_expression next_item(trm_expressions *x, trm_expression_node list)
{
    const trm_unique unique = x->uniques[list.a];
    if ((unique.max >= 0 && list.min >= unique.max) || new_item(x, &list) == TRM_NOTHING) {
        return TRM_NOTHING;
    }
    const trm_expression_node next = {
        .kind = TRM_EXPRESSION_UNIQUE, .a = list.a, .b = list.b, .min = list.min, .has_moves = true, .has_calls = true};
    return trm_expression_sequence(x, unique.space, trm_expression_store(x, &next));
}

/* The state within an item: what may still come of it, and what has come, backwards. */
static trm_expression unique_item(trm_expressions *x, trm_expression list, trm_expression rest, trm_expression begin)
{
    const trm_unique unique = x->uniques[x->nodes[list].a];
    if (rest == TRM_NOTHING || x->status != TRM_OK) {
        return TRM_NOTHING;
    }
    if (unique.tail != TRM_EMPTY && x->nodes[rest].nullable) {
        trm_expression_node behind = with_item(x, list, begin);
        behind.max = 1;
        behind.nullable = behind.min >= unique.min;
        return trm_expression_sequence(x, unique.tail, trm_expression_store(x, &behind));
    }
    return trm_expression_store(
        x, &(trm_expression_node){.kind = TRM_EXPRESSION_UNIQUE_ITEM,
                                  .a = list,
                                  .b = rest,
                                  .min = (int32_t)begin,
                                  .nullable = x->nodes[rest].nullable && x->nodes[list].min + 1 >= unique.min,
                                  .has_moves = true,
                                  .has_calls = true});
}

static trm_expression derive_unique(trm_expressions *x, trm_expression e, uint8_t byte)
{
    const trm_expression_node node = x->nodes[e];
    const bool begins = node.kind == TRM_EXPRESSION_UNIQUE;
    if (begins && node.max == 1) {
        return byte == ',' ? next_item(x, node) : TRM_NOTHING;
    }
    const trm_expression list = begins ? e : node.a, item = begins ? new_item(x, &node) : node.b;
    const trm_expression begin = begins ? TRM_EMPTY : (trm_expression)node.min;
    trm_expression made = trm_expression_derive(x, item, byte);
    if (made != TRM_NOTHING) {
        made = unique_item(x, list, made, trm_expression_sequence(x, trm_expression_byte_range(x, byte, byte), begin));
    }
    if (!begins && byte == ',' && x->nodes[item].nullable) {
        const trm_expression parts[2] = {made, next_item(x, with_item(x, list, begin))};
        made = trm_expression_either(x, parts, 2);
    }
    return made;
}

/* Counts texts of an expression up to `most`. */
static int32_t count_texts(trm_expressions *x, trm_expression e, int32_t most, int32_t depth)
{
    int32_t count = x->nodes[e].nullable;
    for (uint32_t class = 0; class < x->n_classes && count < most && depth < 200 && x->status == TRM_OK; class ++) {
        const trm_expression next = trm_expression_derive(x, e, x->byte_of[class]);
        count += next == TRM_NOTHING ? 0 : count_texts(x, next, most - count, depth + 1);
    }
    return count;
}

void trm_expression_check_unique(trm_expressions *x, trm_expression e)
{
    const trm_unique unique = x->uniques[x->nodes[e].a];
    if (unique.min > 1000) {
        trm_expression_fail(x, "has an array of too many items that differ");
    } else if (count_texts(x, unique.item, unique.min, 0) < unique.min) {
        trm_expression_fail(x, "has an array whose items cannot differ as often as they must");
    }
}

/* ---- derivatives ---- */

/* The parts of a both or an either are derived each. */
static trm_expression derive_list(trm_expressions *x, const trm_expression_node *node, uint8_t byte)
{
    trm_ids list = {0};
    const uint32_t begin = node->a, count = node->b;
    const bool both = node->kind == TRM_EXPRESSION_BOTH;
    x->status = trm_ids_reserve(&list, count);
    for (uint32_t i = 0; i < count && x->status == TRM_OK; i++) {
        const trm_expression part = trm_expression_derive(x, (trm_expression)x->pool.data[begin + i], byte);
        if (part != TRM_NOTHING) {
            list.data[list.size++] = (int32_t)part;
        } else if (both) {
            list.size = 0;
            break;
        }
    }
    trm_expression e = TRM_NOTHING;
    if (x->status == TRM_OK && list.size > 0) {
        e = both ? trm_expression_both(x, (const trm_expression *)list.data, list.size)
                 : trm_expression_either(x, (const trm_expression *)list.data, list.size);
    }
    trm_ids_fini(&list);
    return e;
}

trm_expression trm_expression_derive(trm_expressions *x, trm_expression e, uint8_t byte)
{
    const trm_expression_node node = x->nodes[e];
    trm_expression made = TRM_NOTHING;
    if (!node.has_moves || e == TRM_ANY) {
        return e == TRM_ANY ? e : TRM_NOTHING;
    }
    if (node.kind == TRM_EXPRESSION_BYTES) {
        return (x->sets[node.a].words[byte / 64] >> byte % 64 & 1) != 0 ? TRM_EMPTY : TRM_NOTHING;
    }
    if (!enter(x)) {
        return TRM_NOTHING;
    }
    const bool decides =
        node.kind == TRM_EXPRESSION_BOTH || node.kind == TRM_EXPRESSION_NOT || node.kind == TRM_EXPRESSION_MULTIPLE;
    x->inside += decides;
    if (node.kind == TRM_EXPRESSION_SEQUENCE) {
        made = trm_expression_sequence(x, trm_expression_derive(x, node.a, byte), node.b);
        if (x->nodes[node.a].nullable) {
            const trm_expression parts[2] = {made, trm_expression_derive(x, node.b, byte)};
            made = trm_expression_either(x, parts, 2);
        }
    } else if (node.kind == TRM_EXPRESSION_REPEAT) {
        made = trm_expression_derive(x, node.a, byte);
        if (made != TRM_NOTHING) {
            made = trm_expression_sequence(
                x, made,
                trm_expression_repeat(x, node.a, node.min > 0 ? node.min - 1 : 0, node.max < 0 ? -1 : node.max - 1));
        }
    } else if (node.kind == TRM_EXPRESSION_NOT) {
        made = trm_expression_not(x, trm_expression_derive(x, node.a, byte));
    } else if (node.kind == TRM_EXPRESSION_MULTIPLE) {
        made = derive_multiple(x, &node, byte);
    } else if (node.kind == TRM_EXPRESSION_UNIQUE || node.kind == TRM_EXPRESSION_UNIQUE_ITEM) {
        made = derive_unique(x, e, byte);
    } else {
        made = derive_list(x, &node, byte);
    }
    x->inside -= decides;
    x->depth--;
    if (x->status != TRM_OK) {
        return TRM_NOTHING;
    }
    /* What an intersection becomes may match nothing. Within one, only the whole matters. */
    return decides && x->inside == 0 && !trm_expression_is_alive(x, made) ? TRM_NOTHING : made;
}

/* ---- whether anything matches ---- */

#define FAR ((int64_t)1 << 40) /* a length that is as good as none */

/* The length of an expression's shortest text, and of the longest among the shortest texts of what it becomes. */
static int64_t shortest(const trm_expressions *x, trm_expression e, int64_t *later, int32_t depth)
{
    const trm_expression_node *node = &x->nodes[e];
    int64_t length = FAR, one, later_one;
    *later = FAR;
    if (depth > 60) {
        return FAR;
    }
    if (node->kind == TRM_EXPRESSION_EMPTY || node->kind == TRM_EXPRESSION_BYTES) {
        length = *later = node->kind == TRM_EXPRESSION_BYTES;
    } else if (node->kind == TRM_EXPRESSION_SEQUENCE) {
        const int64_t rest = shortest(x, node->b, later, depth + 1);
        one = shortest(x, node->a, &later_one, depth + 1);
        length = one + rest;
        *later = later_one + rest > *later ? later_one + rest : *later;
    } else if (node->kind == TRM_EXPRESSION_REPEAT) {
        one = shortest(x, node->a, &later_one, depth + 1);
        length = node->min * one;
        *later = later_one + (node->min > 0 ? (node->min - 1) * one : 0);
    } else if (node->kind == TRM_EXPRESSION_EITHER) {
        *later = 0;
        for (uint32_t i = 0; i < node->b; i++) {
            one = shortest(x, (trm_expression)x->pool.data[node->a + i], &later_one, depth + 1);
            length = one < length ? one : length;
            *later = later_one > *later ? later_one : *later;
        }
    }
    *later = *later > FAR ? FAR : *later;
    return length > FAR ? FAR : length;
}

typedef struct life_search {
    trm_ids found, from; /* expressions met, and the index of the one that each was derived from */
    trm_ids heap, cost;  /* indices of those to derive, least cost first; of each expression met */
    trm_ids bits;        /* which expressions were met, by number */
} life_search;

/* An estimate of how far the end of a text is. */
static int32_t cost_of(const trm_expressions *x, trm_expression e)
{
    const trm_expression_node *node = &x->nodes[e];
    int64_t later, sum = 0;
    if (node->kind != TRM_EXPRESSION_BOTH) {
        sum = shortest(x, e, &later, 0);
    }
    for (uint32_t i = 0; node->kind == TRM_EXPRESSION_BOTH && i < node->b; i++) {
        const int64_t length = shortest(x, (trm_expression)x->pool.data[node->a + i], &later, 0);
        sum += length == FAR ? 0 : length;
    }
    return sum > INT32_MAX ? INT32_MAX : (int32_t)sum;
}

static trm_status meet(trm_expressions *x, life_search *search, trm_expression e, int32_t from)
{
    while (search->bits.size <= e / 32) {
        TRM_TRY(trm_ids_append(&search->bits, 0));
    }
    if (((uint32_t)search->bits.data[e / 32] >> e % 32 & 1) != 0) {
        return TRM_OK;
    }
    search->bits.data[e / 32] = (int32_t)((uint32_t)search->bits.data[e / 32] | (uint32_t)1 << e % 32);
    const int32_t cost = cost_of(x, e);
    x->work -= 4;
    TRM_TRY(trm_ids_append(&search->found, (int32_t)e));
    TRM_TRY(trm_ids_append(&search->from, from));
    TRM_TRY(trm_ids_append(&search->cost, cost));
    TRM_TRY(trm_ids_append(&search->heap, (int32_t)search->found.size - 1));
    int32_t *heap = search->heap.data;
    for (size_t at = search->heap.size - 1; at > 0 && search->cost.data[heap[(at - 1) / 2]] > cost; at = (at - 1) / 2) {
        const int32_t above = heap[(at - 1) / 2];
        heap[(at - 1) / 2] = heap[at];
        heap[at] = above;
    }
    return TRM_OK;
}

/* Takes the expression of least cost. */
static size_t take_cheapest(life_search *search)
{
    int32_t *heap = search->heap.data;
    const int32_t first = heap[0], last = heap[--search->heap.size];
    size_t at = 0;
    for (size_t child = 1; child < search->heap.size; child = 2 * at + 1) {
        child += child + 1 < search->heap.size && search->cost.data[heap[child + 1]] < search->cost.data[heap[child]];
        if (search->cost.data[heap[child]] >= search->cost.data[last]) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return (size_t)first;
}

/* Derives, the nearest to an end first, until something matches the empty text or is known to be alive. */
static bool search_life(trm_expressions *x, life_search *search)
{
    for (size_t count = 0; search->heap.size > 0 && x->status == TRM_OK; count++) {
        const size_t i = take_cheapest(search);
        const trm_expression e = (trm_expression)search->found.data[i];
        const trm_expression_node *node = &x->nodes[e];
        if (node->nullable || !node->has_both || node->life == LIFE_ALIVE) {
            for (int32_t at = (int32_t)i; at >= 0; at = search->from.data[at]) {
                x->nodes[search->found.data[at]].life = LIFE_ALIVE;
            }
            return true;
        }
        if (count == MAX_SEARCHED) {
            trm_expression_fail(x, "has an intersection of expressions that is too large");
        }
        uint8_t group_of[256];
        const uint32_t n_groups = trm_expression_groups(x, e, group_of);
        uint32_t done = 0; /* groups come in the order of their first classes */
        for (uint32_t class = 0; done < n_groups && node->life != LIFE_DEAD && x->status == TRM_OK; class ++) {
            if (group_of[class] != done) {
                continue;
            }
            done++;
            const trm_expression next = trm_expression_derive(x, e, x->byte_of[class]);
            if (next != TRM_NOTHING && x->status == TRM_OK) {
                x->status = meet(x, search, next, (int32_t)i);
            }
            node = &x->nodes[e];
        }
    }
    for (size_t i = 0; i < search->found.size && x->status == TRM_OK; i++) {
        x->nodes[search->found.data[i]].life = LIFE_DEAD;
    }
    return false;
}

bool trm_expression_is_alive(trm_expressions *x, trm_expression e)
{
    const trm_expression_node *node = &x->nodes[e];
    if (e == TRM_NOTHING || !node->has_both || node->nullable || node->life != LIFE_UNKNOWN) {
        return e != TRM_NOTHING && node->life != LIFE_DEAD;
    }
    life_search search = {0};
    x->inside++;
    x->status = meet(x, &search, e, -1);
    const bool alive = x->status == TRM_OK && search_life(x, &search);
    x->inside--;
    trm_ids_fini(&search.found);
    trm_ids_fini(&search.from);
    trm_ids_fini(&search.heap);
    trm_ids_fini(&search.cost);
    trm_ids_fini(&search.bits);
    return alive;
}

bool trm_expression_matches(trm_expressions *x, trm_expression e, const char *text, size_t size)
{
    x->inside++;
    for (size_t i = 0; i < size && e != TRM_NOTHING; i++) {
        e = trm_expression_derive(x, e, (uint8_t)text[i]);
    }
    x->inside--;
    return x->nodes[e].nullable;
}

/* ---- calls ---- */

static void add_call(trm_expressions *x, uint32_t rule, trm_expression rest, trm_ids *pairs)
{
    for (size_t i = 0; i < pairs->size; i += 2) {
        if (pairs->data[i] == (int32_t)rule) {
            const trm_expression both[2] = {(trm_expression)pairs->data[i + 1], rest};
            pairs->data[i + 1] = (int32_t)trm_expression_either(x, both, 2);
            return;
        }
    }
    x->status = x->status == TRM_OK ? trm_ids_append(pairs, (int32_t)rule) : x->status;
    x->status = x->status == TRM_OK ? trm_ids_append(pairs, (int32_t)rest) : x->status;
}

void trm_expression_calls(trm_expressions *x, trm_expression e, trm_ids *pairs)
{
    const trm_expression_node node = x->nodes[e];
    if (!node.has_calls || !enter(x)) {
        x->depth -= node.has_calls;
        return;
    }
    trm_ids inner = {0};
    switch ((trm_expression_kind)node.kind) {
    case TRM_EXPRESSION_CALL:
        add_call(x, node.a, TRM_EMPTY, pairs);
        break;
    case TRM_EXPRESSION_SEQUENCE:
    case TRM_EXPRESSION_REPEAT:
        trm_expression_calls(x, node.a, &inner);
        if (inner.size > 0 && x->status == TRM_OK) {
            const trm_expression behind = node.kind == TRM_EXPRESSION_SEQUENCE
                                              ? node.b
                                              : trm_expression_repeat(x, node.a, node.min > 0 ? node.min - 1 : 0,
                                                                      node.max < 0 ? -1 : node.max - 1);
            for (size_t i = 0; i < inner.size && x->status == TRM_OK; i += 2) {
                add_call(x, (uint32_t)inner.data[i],
                         trm_expression_sequence(x, (trm_expression)inner.data[i + 1], behind), pairs);
            }
        }
        if (node.kind == TRM_EXPRESSION_SEQUENCE && x->nodes[node.a].nullable) {
            trm_expression_calls(x, node.b, pairs);
        }
        break;
    case TRM_EXPRESSION_EITHER:
        for (uint32_t i = 0; i < node.b && x->status == TRM_OK; i++) {
            trm_expression_calls(x, (trm_expression)x->pool.data[node.a + i], pairs);
        }
        break;
    case TRM_EXPRESSION_NOTHING:
    case TRM_EXPRESSION_EMPTY:
    case TRM_EXPRESSION_BYTES:
    case TRM_EXPRESSION_BOTH:
    case TRM_EXPRESSION_NOT:
    case TRM_EXPRESSION_MULTIPLE:
    case TRM_EXPRESSION_UNIQUE:
    case TRM_EXPRESSION_UNIQUE_ITEM:
        break;
    }
    trm_ids_fini(&inner);
    x->depth--;
}

/* ---- free text ---- */

/* Whether every byte from first to last, and `more` bytes that continue a character, complete the expression. */
static bool covers_bytes(trm_expressions *x, trm_expression e, int first, int last, int more)
{
    bool seen[256] = {false};
    for (int byte = first; byte <= last && x->status == TRM_OK; byte++) {
        if (seen[x->class_of[byte]] || byte == '"' || byte == '\\') {
            continue;
        }
        seen[x->class_of[byte]] = true;
        const trm_expression next = trm_expression_derive(x, e, (uint8_t)byte);
        if (more == 0 ? !x->nodes[next].nullable
                      : next == TRM_NOTHING || !covers_bytes(x, next, 0x80, 0xbf, more - 1)) {
            return false;
        }
    }
    return x->status == TRM_OK;
}

/* A lead byte, then a first continuation byte within bounds, then `more`. */
static bool covers_led(trm_expressions *x, trm_expression e, int lead, int first, int last, int more)
{
    const trm_expression next = trm_expression_derive(x, e, (uint8_t)lead);
    return next != TRM_NOTHING && covers_bytes(x, next, first, last, more);
}

/* Whether an expression matches every character that stands for itself in a JSON string. */
static bool covers_characters(trm_expressions *x, trm_expression e)
{
    return covers_bytes(x, e, 0x20, 0x7e, 0) && covers_bytes(x, e, 0xc2, 0xdf, 1) &&
           covers_led(x, e, 0xe0, 0xa0, 0xbf, 1) && covers_bytes(x, e, 0xe1, 0xec, 2) &&
           covers_led(x, e, 0xed, 0x80, 0x9f, 1) && covers_bytes(x, e, 0xee, 0xef, 2) &&
           covers_led(x, e, 0xf0, 0x90, 0xbf, 2) && covers_bytes(x, e, 0xf1, 0xf3, 3) &&
           covers_led(x, e, 0xf4, 0x80, 0x8f, 2);
}

bool trm_expression_is_free(trm_expressions *x, trm_expression e)
{
    const trm_expression_node node = x->nodes[e];
    bool is_free = false;
    if (node.freedom != 0 || x->depth > 50) {
        return node.freedom == 2;
    }
    x->depth++;
    if (node.kind == TRM_EXPRESSION_REPEAT && node.max < 0) {
        is_free = covers_characters(x, node.a);
    } else if (node.kind == TRM_EXPRESSION_SEQUENCE) {
        is_free = trm_expression_is_free(x, node.a);
    } else if (node.kind == TRM_EXPRESSION_EITHER) {
        for (uint32_t i = 0; i < node.b && !is_free; i++) {
            is_free = trm_expression_is_free(x, (trm_expression)x->pool.data[node.a + i]);
        }
    }
    x->depth--;
    if (x->status == TRM_OK) {
        x->nodes[e].freedom = is_free ? 2 : 1;
    }
    return is_free && x->status == TRM_OK;
}

/* ---- smaller counters ---- */

/* Whether an expression is a character of a JSON string with its shortest escape. */
static bool is_string_character(trm_expressions *x, trm_expression e)
{
    return trm_expression_matches(x, e, "\\n", 2) && trm_expression_matches(x, e, "\\\"", 2) &&
           trm_expression_matches(x, e, "\\\\", 2) && trm_expression_matches(x, e, "\\u0001", 6) &&
           covers_characters(x, e);
}

/* A text whose length is bounded, far from the bound: whatever comes of it in TRM_GRAMMAR_NEAR bytes can be completed
 * within the bound, so the bound makes no difference. */
static trm_expression unbounded(trm_expressions *x, trm_expression e)
{
    const trm_expression_node node = x->nodes[e];
    int64_t later;
    for (uint32_t i = 0; i < 2 && node.b == 2; i++) {
        const trm_expression text = (trm_expression)x->pool.data[node.a + i];
        const trm_expression bound = (trm_expression)x->pool.data[node.a + 1 - i];
        const trm_expression_node repeat = x->nodes[bound];
        if (repeat.kind == TRM_EXPRESSION_REPEAT && repeat.min == 0 && repeat.max > TRM_GRAMMAR_NEAR) {
            (void)shortest(x, text, &later, 0);
            if (later + TRM_GRAMMAR_NEAR < repeat.max && is_string_character(x, repeat.a)) {
                const trm_expression parts[2] = {trm_expression_alike(x, text),
                                                 trm_expression_repeat(x, repeat.a, 0, -1)};
                return trm_expression_both(x, parts, 2);
            }
        }
    }
    return e;
}

/* Within TRM_GRAMMAR_NEAR bytes a repetition takes place at most so often; more of it makes no difference. Other
 * intersections stay as they are, since their whole rest decides what may come. */
trm_expression trm_expression_alike(trm_expressions *x, trm_expression e)
{
    const trm_expression_node node = x->nodes[e];
    const int32_t most = TRM_GRAMMAR_NEAR + 1;
    trm_expression made = e;
    if (node.alike != 0 || x->status != TRM_OK) {
        return node.alike != 0 ? node.alike - 1 : e;
    }
    if (x->depth > 100) {
        return e;
    }
    x->depth++;
    if (node.kind == TRM_EXPRESSION_SEQUENCE) {
        const trm_expression a = trm_expression_alike(x, node.a), b = trm_expression_alike(x, node.b);
        made = trm_expression_sequence(x, a, b);
    } else if (node.kind == TRM_EXPRESSION_REPEAT) {
        const trm_expression a = trm_expression_alike(x, node.a);
        made = trm_expression_repeat(x, a, node.min < most ? node.min : most, node.max > most ? -1 : node.max);
    } else if (node.kind == TRM_EXPRESSION_EITHER) {
        trm_ids list = {0};
        for (uint32_t i = 0; i < node.b && x->status == TRM_OK; i++) {
            const trm_expression part = trm_expression_alike(x, (trm_expression)x->pool.data[node.a + i]);
            x->status = x->status == TRM_OK ? trm_ids_append(&list, (int32_t)part) : x->status;
        }
        made = x->status == TRM_OK ? trm_expression_either(x, (const trm_expression *)list.data, list.size) : e;
        trm_ids_fini(&list);
    }
    if (node.kind == TRM_EXPRESSION_BOTH) {
        made = unbounded(x, e);
    }
    x->depth--;
    if (x->status == TRM_OK) {
        x->nodes[e].alike = made + 1;
    }
    return x->status == TRM_OK ? made : e;
}

/* ---- multiples ---- */

static trm_expression multiple_node(trm_expressions *x, uint32_t which, multiple_part part, uint32_t remainder,
                                    int32_t digits)
{
    const trm_multiple m = x->multiples[which];
    uint64_t whole = remainder;
    for (uint32_t i = part == PART_FRACTION ? (uint32_t)digits : 0; i < m.scale; i++) {
        whole = whole * 10 % m.number;
    }
    const bool complete = part == PART_ZERO || part == PART_WHOLE || part == PART_FRACTION;
    return trm_expression_store(x, &(trm_expression_node){.kind = TRM_EXPRESSION_MULTIPLE,
                                                          .a = which,
                                                          .b = remainder,
                                                          .min = (int32_t)part,
                                                          .max = digits,
                                                          .nullable = complete && whole == 0,
                                                          .has_both = true,
                                                          .has_moves = true});
}
