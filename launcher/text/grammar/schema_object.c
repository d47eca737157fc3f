/*
 * Objects of JSON schemas. Members with names that the schema knows come first, in its order; then others. What the
 * others may be depends on the patterns that their names match: names are divided by which patterns match.
 */
#include "launcher/text/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define MAX_DIVIDED 5     /* with more patterns, a name may match only one; up to here every set is tried */
#define MAX_COUNTED 20000 /* rules of an object's members: their number, times how many may have come */

typedef struct object_member {
    const char *name;
    trm_grammar_node *node; /* key, colon and value; NULL: must not come */
    bool required;
} object_member;

typedef struct object_reader {
    schema_reader *reader;
    const schema_case *c;
    const schema_item **objects;
    size_t n_objects;
    object_member *members;
    size_t n_members, n_names; /* n_names: with those that must not come */
    const char **names;        /* [n_names] */
    trm_map known;             /* names */
    const char **patterns;
    size_t n_patterns;
    trm_grammar_node *extra;        /* a member with another name; NULL: none */
    trm_grammar_node *name, *value; /* its name, and what follows, if all such names are of one kind */
    int32_t min, max, most;         /* members; most: counts from here on are alike */
    int32_t *rules;                 /* [n_members + 1, most + 1] or -1 */
} object_reader;

static const trm_json *extra_of(const trm_json *schema)
{
    return trm_schema_member(schema, "additionalProperties");
}

/* Whether a pattern matches a name: asked of a name, or given by the set of patterns of the names at hand. */
typedef struct name_kind {
    const char *name; /* or NULL */
    uint32_t matched; /* bits of patterns */
} name_kind;

static bool matches_name(const object_reader *o, const name_kind *kind, const char *pattern)
{
    if (kind->name != NULL) {
        return trm_schema_pattern_matches(o->reader, pattern, kind->name);
    }
    for (size_t i = 0; i < o->n_patterns; i++) {
        if (strcmp(o->patterns[i], pattern) == 0) {
            return (kind->matched >> i & 1) != 0;
        }
    }
    return false;
}

/* Appends what a schema says about members of a kind of name; whether it says anything. */
static bool add_parts(const object_reader *o, const trm_json *schema, const name_kind *kind, schema_part *parts,
                      size_t *count)
{
    const trm_json *named =
        kind->name == NULL ? NULL : trm_schema_member(trm_schema_member(schema, "properties"), kind->name);
    const trm_json *patterns = trm_schema_member(schema, "patternProperties");
    bool found = named != NULL;
    if (named != NULL) {
        parts[(*count)++] = (schema_part){named, false};
    }
    for (const trm_json *item = trm_json_is_object(patterns) ? trm_json_first(patterns) : NULL; item != NULL;
         item = trm_json_next(item)) {
        if (matches_name(o, kind, trm_json_key(item))) {
            parts[(*count)++] = (schema_part){item, false};
            found = true;
        }
    }
    if (!found && extra_of(schema) != NULL) {
        parts[(*count)++] = (schema_part){extra_of(schema), false};
        found = true;
    }
    return found;
}

/* The schemas of a member of a kind of name. */
static schema_part *parts_of(const object_reader *o, const name_kind *kind, size_t *count)
{
    size_t capacity = 1, n = 0;
    schema_reader *reader = o->reader;
    for (size_t i = 0; i < o->n_objects; i++) {
        capacity += 2 + trm_json_count(trm_schema_member(o->objects[i]->schema, "patternProperties"));
    }
    for (const schema_item *item = o->c->members; item != NULL; item = item->next) {
        capacity++;
    }
    for (const schema_item *item = o->c->rest_members; item != NULL; item = item->next) {
        capacity++;
    }
    schema_part *parts = trm_arena_array(&reader->tree->arena, capacity, sizeof(*parts));
    bool *says = trm_arena_array(&reader->tree->arena, o->n_objects + 1, sizeof(*says));
    *count = 0;
    if (parts == NULL || says == NULL || !trm_schema_work(reader, (int64_t)capacity)) {
        reader->tree->status = reader->tree->status == TRM_OK ? TRM_ERROR_OUT_OF_MEMORY : reader->tree->status;
        return NULL;
    }
    for (size_t i = 0; i < o->n_objects; i++) {
        says[i] = add_parts(o, o->objects[i]->schema, kind, parts, &n);
    }
    for (const schema_item *item = o->c->members; item != NULL && kind->name != NULL; item = item->next) {
        if (strcmp(item->text, kind->name) == 0) {
            parts[n++] = (schema_part){item->schema, item->negated};
        }
    }
    for (const schema_item *rest = o->c->rest_members; rest != NULL; rest = rest->next) {
        bool evaluated = false;
        for (size_t i = 0; i < o->n_objects; i++) {
            evaluated |= says[i] && trm_schema_is_below(o->objects[i]->scope, rest->scope);
        }
        for (const schema_item *item = o->c->rest_members; item != NULL; item = item->next) {
            evaluated |= item != rest && trm_schema_is_below(item->scope, rest->scope);
        }
        if (!evaluated) {
            parts[n++] = (schema_part){rest->schema, false};
        }
    }
    *count = n;
    return parts;
}

/* ---- names ---- */

/* Names that the schema knows, between their quotes. */
static trm_grammar_node *known_names(const object_reader *o)
{
    trm_grammar_tree *tree = o->reader->tree;
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    for (size_t i = 0; i < o->n_names; i++) {
        trm_grammar_append(tree, list, trm_grammar_json_text(&o->reader->json, o->names[i]));
    }
    return list;
}

trm_grammar_node *trm_schema_names(schema_reader *reader, const schema_part *parts, size_t count)
{
    trm_grammar_tree *tree = reader->tree;
    schema_cases cases = {0};
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    bool all = false;
    trm_schema_find_cases(reader, parts, count, &cases);
    for (size_t i = 0; i < cases.count && tree->status == TRM_OK; i++) {
        const schema_case *c = &cases.items[i];
        for (const trm_json *value = !c->has_values ? NULL
                                     : c->is_const  ? c->values
                                                    : trm_json_first(c->values);
             value != NULL; value = c->is_const ? NULL : trm_json_next(value)) {
            bool allowed = trm_json_is_string(value);
            for (size_t k = 0; k < count && allowed; k++) {
                allowed = trm_schema_matches(reader, &parts[k], value);
            }
            if (allowed) {
                trm_grammar_append(tree, list, trm_grammar_json_text(&reader->json, trm_json_string(value)));
            }
        }
        if (!c->has_values && (c->types & SCHEMA_STRING) != 0) {
            trm_grammar_node *text = trm_schema_string_text(reader, c);
            all |= text == NULL;
            trm_grammar_append(tree, list, text);
        }
    }
    free(cases.items);
    return all || tree->status != TRM_OK ? NULL : list;
}

/* The names that propertyNames allow; NULL: all. */
static trm_grammar_node *allowed_names(const object_reader *o)
{
    size_t n = 0;
    for (const schema_item *item = o->c->names; item != NULL; item = item->next) {
        n++;
    }
    schema_part *parts = trm_arena_array(&o->reader->tree->arena, n + 1, sizeof(*parts));
    if (parts == NULL) {
        o->reader->tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    n = 0;
    for (const schema_item *item = o->c->names; item != NULL; item = item->next) {
        parts[n++] = (schema_part){item->schema, false};
    }
    return n == 0 ? NULL : trm_schema_names(o->reader, parts, n);
}

/* ---- members ---- */

static trm_grammar_node *member_node(schema_reader *reader, trm_grammar_node *key, const schema_part *parts,
                                     size_t count)
{
    trm_grammar_tree *tree = reader->tree;
    return trm_grammar_sequence(tree, 4, key, trm_grammar_literal(tree, ":"), trm_grammar_json_space(&reader->json),
                                trm_schema_call(reader, parts, count));
}

static void add_known(object_reader *o, const char *name, bool required, bool absent)
{
    uint32_t index;
    trm_grammar_tree *tree = o->reader->tree;
    bool existing;
    if (tree->status != TRM_OK) {
        return;
    }
    if (!trm_map_find(&o->known, name, strlen(name), &index)) {
        index = (uint32_t)o->n_names++;
        o->names[index] = name;
        o->members[index] = (object_member){.name = name};
        tree->status = trm_map_add(&o->known, name, strlen(name), index, &existing);
    }
    o->members[index].required |= required;
    o->members[index].name = absent ? NULL : o->members[index].name;
}

/* Collects the names that the schema knows, in its order. */
static bool list_members(object_reader *o)
{
    size_t capacity = 1, n;
    trm_grammar_tree *tree = o->reader->tree;
    const schema_item *const lists[3] = {o->c->members, o->c->required, o->c->absent};
    for (size_t i = 0; i < o->n_objects; i++) {
        capacity += trm_json_count(trm_schema_member(o->objects[i]->schema, "properties"));
    }
    for (int k = 0; k < 3; k++) {
        for (const schema_item *item = lists[k]; item != NULL; item = item->next) {
            capacity++;
        }
    }
    o->members = trm_arena_array(&tree->arena, capacity, sizeof(*o->members));
    o->names = trm_arena_array(&tree->arena, capacity, sizeof(const char *));
    if (o->members == NULL || o->names == NULL || !trm_schema_work(o->reader, (int64_t)capacity)) {
        tree->status = tree->status == TRM_OK ? TRM_ERROR_OUT_OF_MEMORY : tree->status;
        return false;
    }
    for (size_t i = 0; i < o->n_objects; i++) {
        const trm_json *properties = trm_schema_member(o->objects[i]->schema, "properties");
        for (const trm_json *item = trm_json_is_object(properties) ? trm_json_first(properties) : NULL; item != NULL;
             item = trm_json_next(item)) {
            add_known(o, trm_json_key(item), false, false);
        }
    }
    for (int k = 0; k < 3; k++) {
        const schema_item **items = trm_schema_in_order(o->reader, lists[k], &n);
        for (size_t i = 0; i < n; i++) {
            add_known(o, items[i]->text, k == 1, k == 2);
        }
    }
    return tree->status == TRM_OK;
}

/* Whether names allow a name, by their expression. */
static bool allows_name(const object_reader *o, const char *name)
{
    size_t n = 0;
    for (const schema_item *item = o->c->names; item != NULL; item = item->next, n++) {
        const schema_part part = {item->schema, false};
        trm_json_document *document = NULL;
        trm_grammar_tree text_tree = {0};
        trm_grammar_json json = {.tree = &text_tree};
        trm_bytes bytes = {0};
        const trm_grammar_node *node = trm_grammar_json_quoted(&json, name);
        trm_status status = text_tree.status;
        for (const trm_grammar_node *part_of = node == NULL ? NULL : node->child; part_of != NULL && status == TRM_OK;
             part_of = part_of->next) {
            status =
                part_of->kind == TRM_GRAMMAR_TEXT ? trm_bytes_append(&bytes, part_of->text, part_of->size) : status;
            for (const trm_grammar_node *piece = part_of->child; piece != NULL && status == TRM_OK;
                 piece = piece->next) {
                status = trm_bytes_append(&bytes, piece->text, piece->size);
            }
        }
        status = status == TRM_OK ? trm_json_parse("name", bytes.data, bytes.size, &document) : status;
        bool allowed = status == TRM_OK && trm_schema_matches(o->reader, &part, trm_json_root(document));
        trm_json_close(document);
        trm_bytes_fini(&bytes);
        trm_grammar_tree_fini(&text_tree);
        if (!allowed) {
            return false;
        }
    }
    return true;
}

/* Makes the members with known names; false if one that is required must not come. */
static bool make_members(object_reader *o)
{
    schema_reader *reader = o->reader;
    size_t n = 0;
    for (size_t i = 0; i < o->n_names && reader->tree->status == TRM_OK; i++) {
        object_member member = o->members[i];
        const name_kind kind = {.name = member.name};
        size_t count = 0;
        const schema_part *parts = member.name == NULL ? NULL : parts_of(o, &kind, &count);
        bool never = parts == NULL || !allows_name(o, member.name);
        for (size_t k = 0; k < count && !never; k++) {
            never = !parts[k].negated && trm_json_is_bool(parts[k].schema) && !trm_json_truth(parts[k].schema, true);
        }
        if (never && member.required) {
            return false;
        }
        if (!never) {
            member.node = member_node(reader, trm_grammar_json_quoted(&reader->json, member.name), parts, count);
            o->members[n++] = member;
        }
    }
    o->n_members = n;
    return true;
}

/* Names of one kind: those that match these patterns and no others, and are not known. */
static trm_grammar_node *names_of_kind(const object_reader *o, uint32_t matched, trm_grammar_node *allowed)
{
    trm_grammar_tree *tree = o->reader->tree;
    trm_grammar_node *any = trm_grammar_repeat(tree, trm_grammar_json_plain_character(&o->reader->json), 0, -1);
    trm_grammar_node *both = trm_grammar_list(tree, TRM_GRAMMAR_BOTH);
    trm_grammar_append(tree, both, any);
    trm_grammar_append(tree, both, trm_grammar_not(tree, known_names(o)));
    trm_grammar_append(tree, both, allowed == NULL ? NULL : trm_grammar_copy(tree, allowed));
    for (size_t i = 0; i < o->n_patterns && tree->status == TRM_OK; i++) {
        trm_grammar_node *pattern =
            trm_grammar_read_regex(tree, o->patterns[i], strlen(o->patterns[i]), TRM_GRAMMAR_SEARCH_JSON);
        trm_grammar_append(tree, both, (matched >> i & 1) != 0 ? pattern : trm_grammar_not(tree, pattern));
    }
    return both;
}

static void list_patterns(object_reader *o)
{
    size_t capacity = 1;
    for (size_t i = 0; i < o->n_objects; i++) {
        capacity += trm_json_count(trm_schema_member(o->objects[i]->schema, "patternProperties"));
    }
    o->patterns = trm_arena_array(&o->reader->tree->arena, capacity, sizeof(const char *));
    if (o->patterns == NULL) {
        o->reader->tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return;
    }
    for (size_t i = 0; i < o->n_objects; i++) {
        const trm_json *patterns = trm_schema_member(o->objects[i]->schema, "patternProperties");
        for (const trm_json *item = trm_json_is_object(patterns) ? trm_json_first(patterns) : NULL; item != NULL;
             item = trm_json_next(item)) {
            size_t k = 0;
            while (k < o->n_patterns && strcmp(o->patterns[k], trm_json_key(item)) != 0) {
                k++;
            }
            if (k == o->n_patterns) {
                o->patterns[o->n_patterns++] = trm_json_key(item);
            }
        }
    }
    if (o->n_patterns > 31) {
        trm_schema_fail(o->reader, TRM_ERROR_UNSUPPORTED, NULL, "more than 31 patternProperties are not supported");
    }
}

/* The expression of members with names that are not known. */
static trm_grammar_node *extra_member(object_reader *o)
{
    schema_reader *reader = o->reader;
    trm_grammar_tree *tree = reader->tree;
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    trm_grammar_node *allowed = allowed_names(o);
    const bool divided = o->n_patterns <= MAX_DIVIDED;
    const uint32_t kinds = divided ? 1u << o->n_patterns : (uint32_t)o->n_patterns + 1;
    bool any = false;
    for (uint32_t i = 0; i < kinds && tree->status == TRM_OK; i++) {
        const name_kind kind = {.matched = divided || i == 0 ? i : 1u << (i - 1)};
        size_t count;
        const schema_part *parts = parts_of(o, &kind, &count);
        bool never = parts == NULL;
        for (size_t k = 0; k < count && !never; k++) {
            never = !parts[k].negated && trm_json_is_bool(parts[k].schema) && !trm_json_truth(parts[k].schema, true);
        }
        if (!never) {
            o->name =
                any ? NULL
                    : trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, "\""),
                                           names_of_kind(o, kind.matched, allowed), trm_grammar_literal(tree, "\""));
            o->value = any ? NULL
                           : trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, ":"),
                                                  trm_grammar_json_space(&reader->json),
                                                  trm_schema_call(reader, parts, count));
            trm_grammar_node *key =
                o->n_names == 0 && o->n_patterns == 0 && allowed == NULL
                    ? trm_grammar_json_string(&reader->json)
                    : trm_grammar_sequence(tree, 3, trm_grammar_literal(tree, "\""),
                                           names_of_kind(o, kind.matched, allowed), trm_grammar_literal(tree, "\""));
            trm_grammar_append(tree, list, member_node(reader, key, parts, count));
            any = true;
        }
    }
    return any ? list : NULL;
}

/* Members with other names, behind `count` members. */
static trm_grammar_node *extra_members(const object_reader *o, int32_t count)
{
    schema_reader *reader = o->reader;
    trm_grammar_tree *tree = reader->tree;
    const int32_t min = o->min > count ? o->min - count : 0, max = o->max < 0 ? -1 : o->max - count;
    if (o->extra == NULL || max == 0) {
        return min > 0 ? trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF) : trm_grammar_literal(tree, "");
    }
    if (min > 1 && o->name != NULL) { /* the same name twice would count as one */
        trm_grammar_node *members =
            trm_grammar_unique(tree, trm_grammar_copy(tree, o->name), trm_grammar_json_space(&reader->json),
                               trm_grammar_copy(tree, o->value), min, max);
        return count > 0 ? trm_schema_comma_before(reader, members) : members;
    }
    if (min > 1 && o->n_members > 0) {
        return trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    }
    if (min > 1) {
        return trm_schema_fail(reader, TRM_ERROR_UNSUPPORTED, NULL,
                               "minProperties of two or more members with names of several patterns is not supported");
    }
    trm_grammar_node *more = trm_schema_comma_before(reader, trm_grammar_copy(tree, o->extra));
    if (count > 0) {
        return trm_grammar_repeat(tree, more, min, max);
    }
    trm_grammar_node *list = trm_grammar_sequence(tree, 2, trm_grammar_copy(tree, o->extra),
                                                  trm_grammar_repeat(tree, more, 0, max < 0 ? -1 : max - 1));
    return min > 0 ? list : trm_grammar_repeat(tree, list, 0, 1);
}

/* The rule of the members from `index` on, behind `count` members; counts from `most` on are alike. Made from the last
 * backwards. */
static void make_rules(object_reader *o)
{
    schema_reader *reader = o->reader;
    trm_grammar_tree *tree = reader->tree;
    const int32_t width = o->most + 1;
    for (size_t i = o->n_members + 1; i-- > 0 && tree->status == TRM_OK;) {
        for (int32_t count = 0; count <= o->most && (size_t)count <= i && tree->status == TRM_OK; count++) {
            trm_grammar_node *node = NULL;
            if (i == o->n_members) {
                node = extra_members(o, count);
            } else {
                const object_member *member = &o->members[i];
                const int32_t next = count < o->most ? count + 1 : count;
                const int32_t *after = &o->rules[(i + 1) * (size_t)width];
                node = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
                if (o->max < 0 || count < o->max) {
                    trm_grammar_node *copy = trm_grammar_copy(tree, member->node);
                    trm_grammar_append(tree, node,
                                       trm_grammar_sequence(tree, 2,
                                                            count > 0 ? trm_schema_comma_before(reader, copy) : copy,
                                                            trm_grammar_call(tree, after[next])));
                }
                if (!member->required) {
                    trm_grammar_append(tree, node, trm_grammar_call(tree, after[count]));
                }
            }
            int32_t rule = trm_grammar_add_rule(tree, "(members)", 9);
            o->rules[i * (size_t)width + (size_t)count] = rule;
            if (rule >= 0) {
                tree->rules[rule].node = node;
            }
        }
    }
}

trm_grammar_node *trm_schema_object(schema_reader *reader, const schema_case *c)
{
    trm_grammar_tree *tree = reader->tree;
    object_reader o = {.reader = reader, .c = c, .min = c->min_members, .max = c->max_members};
    if (c->objects == NULL && c->members == NULL && c->required == NULL && c->absent == NULL && c->names == NULL &&
        c->rest_members == NULL && o.min == 0 && o.max < 0) {
        return trm_grammar_json_object(&reader->json);
    }
    o.objects = trm_schema_in_order(reader, c->objects, &o.n_objects);
    trm_grammar_node *content = NULL;
    if (tree->status == TRM_OK && list_members(&o)) {
        bool possible = make_members(&o);
        list_patterns(&o);
        o.extra = tree->status == TRM_OK && possible ? extra_member(&o) : NULL;
        /* what the required members alone exceed needs no count */
        size_t n_required = 0;
        for (size_t i = 0; i < o.n_members; i++) {
            n_required += o.members[i].required;
        }
        o.min = (size_t)o.min <= n_required ? 0 : o.min;
        o.max = o.max >= 0 && o.extra == NULL && (size_t)o.max >= o.n_members ? -1 : o.max;
        o.most = o.max >= 0 ? o.max : o.min;
        o.most = o.most > (int32_t)o.n_members ? (int32_t)o.n_members : o.most < 1 ? 1 : o.most;
        if (!possible) {
            content = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
        } else if ((int64_t)(o.n_members + 1) * (o.most + 1) > MAX_COUNTED) {
            trm_schema_fail(reader, TRM_ERROR_UNSUPPORTED, NULL, "counting that many properties is not supported");
        } else if (tree->status == TRM_OK) {
            o.rules = trm_arena_array(&tree->arena, (o.n_members + 1) * (size_t)(o.most + 1), sizeof(*o.rules));
            tree->status = o.rules == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
            if (o.rules != NULL) {
                make_rules(&o);
                content = tree->status == TRM_OK ? trm_grammar_call(tree, o.rules[0]) : NULL;
            }
        }
    }
    trm_map_fini(&o.known);
    return content == NULL ? NULL : trm_grammar_json_brackets(&reader->json, "{", content, "}");
}
