/* Reads JSON schemas: sets of parts, their rules, references and errors. */
#include "launcher/text/grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "launcher/text/grammar/automaton.h"
#include "launcher/text/jinja/value.h"
#include "launcher/text/strings/buffer.h"

#define MAX_WORK 400000 /* steps to read a schema: a tenth of a second at most */

const trm_json *trm_schema_member(const trm_json *object, const char *key)
{
    for (const trm_json *item = trm_json_first(object); item != NULL; item = trm_json_next(item)) {
        if (strcmp(trm_json_key(item), key) == 0) {
            return item;
        }
    }
    return NULL;
}

bool trm_schema_is_null(const trm_json *value)
{
    return value != NULL && !trm_json_is_object(value) && !trm_json_is_array(value) && !trm_json_is_string(value) &&
           !trm_json_is_number(value) && !trm_json_is_bool(value);
}

/* ---- errors ---- */

/* Writes the JSON pointer of `wanted` below `value`, whose own is path [size]. */
static bool find_path(const trm_json *value, const trm_json *wanted, char *path, size_t size, size_t capacity)
{
    size_t index = 0;
    if (value == wanted) {
        return true;
    }
    for (const trm_json *item = trm_json_first(value); item != NULL; item = trm_json_next(item), index++) {
        size_t end = size;
        if (trm_json_is_object(value)) {
            end += end + 2 < capacity;
            path[end - 1] = '/';
            for (const char *key = trm_json_key(item); *key != '\0' && end + 3 < capacity; key++) {
                if (*key == '~' || *key == '/') {
                    path[end++] = '~';
                }
                path[end++] = *key == '~' ? '0' : *key == '/' ? '1' : *key;
            }
            path[end] = '\0';
        } else {
            int written = snprintf(path + size, capacity - size, "/%zu", index);
            end = size + (size_t)written < capacity ? size + (size_t)written : capacity - 1;
        }
        if (find_path(item, wanted, path, end, capacity)) {
            return true;
        }
        path[size] = '\0';
    }
    return false;
}

trm_grammar_node *trm_schema_fail(schema_reader *reader, trm_status status, const trm_json *at, const char *what)
{
    char path[300] = "";
    if (reader->tree->status == TRM_OK) {
        at = at == NULL ? reader->at : at;
        bool found = at != NULL && find_path(reader->root, at, path, 0, sizeof(path));
        trm_grammar_fail(reader->tree, status, "JSON schema%s%s: %s", found && path[0] != '\0' ? " at " : "",
                         found ? path : "", what);
    }
    return NULL;
}

bool trm_schema_work(schema_reader *reader, int64_t work)
{
    reader->work -= work;
    if (reader->work < 0) {
        trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, NULL, "it has too many combinations");
    }
    return reader->tree->status == TRM_OK;
}

/* ---- references ---- */

/* Reads a name of a JSON pointer in a URI fragment, with %20, ~0 and ~1. */
static bool take_name(const char **pointer, char *name, size_t capacity)
{
    size_t n = 0;
    while (**pointer != '\0' && **pointer != '/') {
        char c = *(*pointer)++;
        if (c == '%' && trm_hex_digit((*pointer)[0]) >= 0 && trm_hex_digit((*pointer)[1]) >= 0) {
            c = (char)(trm_hex_digit((*pointer)[0]) * 16 + trm_hex_digit((*pointer)[1]));
            *pointer += 2;
        }
        if (c == '~' && (**pointer == '0' || **pointer == '1')) {
            c = *(*pointer)++ == '0' ? '~' : '/';
        }
        if (n + 1 >= capacity) {
            return false;
        }
        name[n++] = c;
    }
    name[n] = '\0';
    return true;
}

static const trm_json *at_pointer(const trm_json *root, const char *pointer)
{
    const trm_json *at = root;
    while (*pointer == '/' && at != NULL) {
        char name[512];
        pointer++;
        if (!take_name(&pointer, name, sizeof(name))) {
            return NULL;
        }
        if (trm_json_is_array(at)) {
            char *end;
            const size_t index = (size_t)strtoul(name, &end, 10);
            at = *end == '\0' && end != name ? trm_json_at(at, index) : NULL;
        } else {
            at = trm_json_is_object(at) ? trm_schema_member(at, name) : NULL;
        }
    }
    return *pointer == '\0' ? at : NULL;
}

static bool has_id(const trm_json *value)
{
    const char *id = trm_json_is_object(value) ? trm_json_string(trm_schema_member(value, "$id")) : NULL;
    return id != NULL && id[0] != '#';
}

/* The schema below a value in which `key` has this text. Anchors within a schema with an identifier are its own. */
static const trm_json *find_named(const trm_json *value, const char *key, const char *name, bool is_anchor)
{
    const char *found = trm_json_is_object(value) ? trm_json_string(trm_schema_member(value, key)) : NULL;
    if (found != NULL && strcmp(found, name) == 0) {
        return value;
    }
    for (const trm_json *item = trm_json_first(value); item != NULL; item = trm_json_next(item)) {
        const trm_json *inner = is_anchor && has_id(item) ? NULL : find_named(item, key, name, is_anchor);
        if (inner != NULL) {
            return inner;
        }
    }
    return NULL;
}

/* Finds a schema below `value`; *base becomes the nearest schema with an identifier around it. */
static bool find_base(const trm_json *value, const trm_json *schema, const trm_json **base)
{
    bool found = value == schema;
    for (const trm_json *item = trm_json_first(value); item != NULL && !found; item = trm_json_next(item)) {
        found = find_base(item, schema, base);
    }
    *base = found && *base == NULL && has_id(value) ? value : *base;
    return found;
}

/* Counts values, and notes whether one within the root has an identifier. */
static void survey_document(schema_reader *reader, const trm_json *value)
{
    reader->n_values++;
    reader->has_ids |= value != reader->root && has_id(value);
    for (const trm_json *item = trm_json_first(value); item != NULL; item = trm_json_next(item)) {
        survey_document(reader, item);
    }
}

/* What a fragment refers to: a JSON pointer, or an anchor. */
static const trm_json *at_fragment(const trm_json *base, const char *fragment)
{
    char anchor[300];
    if (fragment[0] == '\0' || fragment[0] == '/') {
        return at_pointer(base, fragment);
    }
    snprintf(anchor, sizeof(anchor), "#%.290s", fragment);
    const trm_json *found = find_named(base, "$anchor", fragment, true);
    found = found == NULL ? find_named(base, "$id", anchor, true) : found;
    return found == NULL ? find_named(base, "id", anchor, true) : found;
}

const trm_json *trm_schema_follow(schema_reader *reader, const trm_json *schema, const trm_json *ref)
{
    const char *pointer = trm_json_string(ref);
    const trm_json *base = NULL, *found = NULL;
    char what[260], name[300];
    if (pointer == NULL) {
        trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, ref, "$ref is not a string");
        return NULL;
    }
    /* what stands before the fragment is the address of a schema; without it, that of the nearest one around */
    const size_t size = strcspn(pointer, "#");
    snprintf(name, sizeof(name), "%.*s", size < sizeof(name) ? (int)size : 0, pointer);
    const char *fragment = pointer[size] == '#' ? pointer + size + 1 : "";
    const bool looks = size != 0 || reader->has_ids || (fragment[0] != '/' && fragment[0] != '\0');
    if (looks && !trm_schema_work(reader, reader->n_values / 16)) { /* through the whole document */
        return NULL;
    }
    if (size == 0) {
        if (reader->has_ids) {
            (void)find_base(reader->root, schema, &base);
        }
        base = base == NULL ? reader->root : base;
    } else {
        const char *id = trm_json_string(trm_schema_member(reader->root, "$id"));
        id = id == NULL ? trm_json_string(trm_schema_member(reader->root, "id")) : id;
        const bool is_root = id != NULL && strcspn(id, "#") == size && strncmp(id, pointer, size) == 0;
        base = is_root ? reader->root : find_named(reader->root, "$id", name, false);
    }
    if (base == NULL) {
        snprintf(what, sizeof(what), "$ref %.200s is another document, which is not supported", pointer);
        trm_schema_fail(reader, TRM_ERROR_UNSUPPORTED, ref, what);
        return NULL;
    }
    found = at_fragment(base, fragment);
    if (found == NULL) {
        snprintf(what, sizeof(what), "$ref %.200s does not exist", pointer);
        trm_schema_fail(reader, TRM_ERROR_INVALID_ARGUMENT, ref, what);
    }
    return found;
}

/* ---- lists ---- */

const schema_item *trm_schema_add(schema_reader *reader, const schema_item *list, schema_item item)
{
    schema_item *made = trm_arena_alloc(&reader->tree->arena, sizeof(*made));
    if (made == NULL) {
        reader->tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return list;
    }
    *made = item;
    made->next = list;
    return made;
}

const schema_item **trm_schema_in_order(schema_reader *reader, const schema_item *list, size_t *count)
{
    *count = 0;
    for (const schema_item *item = list; item != NULL; item = item->next) {
        ++*count;
    }
    const schema_item **order = trm_arena_array(&reader->tree->arena, *count + 1, sizeof(const schema_item *));
    if (order == NULL) {
        reader->tree->status = TRM_ERROR_OUT_OF_MEMORY;
        *count = 0;
        return NULL;
    }
    size_t at = *count;
    for (const schema_item *item = list; item != NULL; item = item->next) {
        order[--at] = item;
    }
    return order;
}

bool trm_schema_is_below(const schema_scope *scope, const schema_scope *above)
{
    while (scope != NULL && scope != above) {
        scope = scope->parent;
    }
    return scope != NULL;
}

trm_grammar_node *trm_schema_comma_before(schema_reader *reader, trm_grammar_node *node)
{
    return trm_grammar_sequence(reader->tree, 3, trm_grammar_literal(reader->tree, ","),
                                trm_grammar_json_space(&reader->json), node);
}

/* ---- matching strings ---- */

/* Appends a string as it stands between quotes, with the shortest escapes. */
static trm_status write_text(const char *text, trm_bytes *out)
{
    trm_grammar_tree tree = {0};
    trm_grammar_json json = {.tree = &tree};
    const trm_grammar_node *node = trm_grammar_json_text(&json, text);
    trm_status status = tree.status;
    for (const trm_grammar_node *child = node == NULL ? NULL : node->child; child != NULL && status == TRM_OK;
         child = child->next) {
        status = trm_bytes_append(out, child->text, child->size);
    }
    trm_grammar_tree_fini(&tree);
    return status;
}

bool trm_schema_pattern_matches(schema_reader *reader, const char *pattern, const char *text)
{
    trm_grammar_tree *tree = reader->tree;
    trm_bytes bytes = {0};
    uint32_t e = TRM_NOTHING;
    bool existing;
    if (!trm_schema_work(reader, 10)) {
        return false;
    }
    if (!trm_map_find(&reader->patterns, pattern, strlen(pattern), &e)) {
        trm_grammar_node *node = trm_grammar_read_regex(tree, pattern, strlen(pattern), TRM_GRAMMAR_SEARCH_JSON);
        if (tree->status != TRM_OK) {
            return false;
        }
        e = trm_grammar_expression(tree, &reader->matcher, node);
        tree->status = reader->matcher.status;
        tree->status = tree->status == TRM_OK ? trm_map_add(&reader->patterns, pattern, strlen(pattern), e, &existing)
                                              : tree->status;
    }
    tree->status = tree->status == TRM_OK ? write_text(text, &bytes) : tree->status;
    bool matches = tree->status == TRM_OK &&
                   trm_expression_matches(&reader->matcher, e, bytes.data == NULL ? "" : bytes.data, bytes.size);
    tree->status = tree->status == TRM_OK ? reader->matcher.status : tree->status;
    trm_bytes_fini(&bytes);
    return matches && tree->status == TRM_OK;
}

/* ---- values of const and enum ---- */

trm_grammar_node *trm_schema_literal(schema_reader *reader, const trm_json *value)
{
    trm_grammar_tree *tree = reader->tree;
    if (trm_json_is_string(value)) {
        return trm_grammar_json_quoted(&reader->json, trm_json_string(value));
    }
    if (trm_json_is_number(value)) {
        char text[40];
        int64_t integer;
        if (trm_json_integer(value, &integer)) {
            snprintf(text, sizeof(text), "%lld", (long long)integer);
        } else {
            trm_jinja_format_float(trm_json_number(value, 0), text);
        }
        return trm_grammar_literal(tree, text);
    }
    if (!trm_json_is_object(value) && !trm_json_is_array(value)) {
        return trm_grammar_literal(tree, trm_schema_is_null(value)      ? "null"
                                         : trm_json_truth(value, false) ? "true"
                                                                        : "false");
    }
    bool object = trm_json_is_object(value);
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_SEQUENCE);
    for (const trm_json *item = trm_json_first(value); item != NULL && tree->status == TRM_OK;
         item = trm_json_next(item)) {
        if (item != trm_json_first(value)) {
            trm_grammar_append(tree, list, trm_grammar_literal(tree, ","));
            trm_grammar_append(tree, list, trm_grammar_json_space(&reader->json));
        }
        if (object) {
            trm_grammar_append(tree, list, trm_grammar_json_quoted(&reader->json, trm_json_key(item)));
            trm_grammar_append(tree, list, trm_grammar_literal(tree, ":"));
            trm_grammar_append(tree, list, trm_grammar_json_space(&reader->json));
        }
        trm_grammar_append(tree, list, trm_schema_literal(reader, item));
    }
    return trm_grammar_json_brackets(&reader->json, object ? "{" : "[", list, object ? "}" : "]");
}

trm_grammar_node *trm_schema_values(schema_reader *reader, const schema_case *c, const schema_part *parts, size_t count)
{
    trm_grammar_node *list = trm_grammar_list(reader->tree, TRM_GRAMMAR_ANY_OF);
    for (const trm_json *value = c->is_const ? c->values : trm_json_first(c->values);
         value != NULL && reader->tree->status == TRM_OK; value = c->is_const ? NULL : trm_json_next(value)) {
        bool allowed = true;
        for (size_t i = 0; i < count && allowed; i++) {
            allowed = trm_schema_matches(reader, &parts[i], value);
        }
        if (allowed) {
            trm_grammar_append(reader->tree, list, trm_schema_literal(reader, value));
        }
    }
    return list;
}

/* ---- sets ---- */

static int by_part(const void *a, const void *b)
{
    const schema_part *p = a, *q = b;
    return p->schema != q->schema
               ? ((uintptr_t)p->schema > (uintptr_t)q->schema) - ((uintptr_t)p->schema < (uintptr_t)q->schema)
               : (p->negated > q->negated) - (p->negated < q->negated);
}

/* Whether every value follows the schema, by a quick look. */
static bool says_nothing(const trm_json *schema)
{
    return (trm_json_is_bool(schema) && trm_json_truth(schema, false)) ||
           (trm_json_is_object(schema) && trm_json_first(schema) == NULL);
}

trm_grammar_node *trm_schema_call(schema_reader *reader, const schema_part *parts, size_t count)
{
    trm_grammar_tree *tree = reader->tree;
    schema_part *kept = trm_arena_array(&tree->arena, count + 1, sizeof(*kept));
    size_t n = 0;
    if (kept == NULL || tree->status != TRM_OK) {
        tree->status = tree->status == TRM_OK ? TRM_ERROR_OUT_OF_MEMORY : tree->status;
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (parts[i].negated || !says_nothing(parts[i].schema)) {
            kept[n++] = parts[i];
        }
    }
    if (n == 0) {
        return trm_grammar_json_value(&reader->json);
    }
    schema_part *sorted = trm_arena_array(&tree->arena, n, sizeof(*sorted));
    if (sorted == NULL) {
        tree->status = TRM_ERROR_OUT_OF_MEMORY;
        return NULL;
    }
    memcpy(sorted, kept, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), by_part);
    size_t distinct = 0;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || by_part(&sorted[i], &sorted[i - 1]) != 0) {
            sorted[distinct++] = sorted[i];
        }
    }
    uint32_t set;
    if (trm_map_find(&reader->keys, (const char *)sorted, distinct * sizeof(*sorted), &set)) {
        return trm_grammar_call(tree, reader->sets[set].rule);
    }
    char name[40];
    snprintf(name, sizeof(name), "(schema %zu)", reader->n_sets);
    int32_t rule = trm_grammar_add_rule(tree, name, strlen(name));
    void *sets = reader->sets;
    bool existing;
    if (rule < 0) {
        return NULL;
    }
    tree->status = trm_array_grow(&sets, &reader->capacity, reader->n_sets + 1, sizeof(*reader->sets));
    reader->sets = sets;
    if (tree->status != TRM_OK) {
        return NULL;
    }
    tree->status = trm_map_add(&reader->keys, (const char *)sorted, distinct * sizeof(*sorted),
                               (uint32_t)reader->n_sets, &existing);
    reader->sets[reader->n_sets++] = (schema_set){.parts = kept, .count = n, .rule = rule};
    return trm_grammar_call(tree, rule);
}

/* A case in which any value of the allowed types is allowed. */
static trm_grammar_node *case_node(schema_reader *reader, const schema_case *c, const schema_part *parts, size_t count)
{
    trm_grammar_tree *tree = reader->tree;
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    if (c->has_values) {
        return trm_schema_values(reader, c, parts, count);
    }
    static const struct {
        schema_type type;
        const char *text;
    } words[] = {{SCHEMA_NULL, "null"}, {SCHEMA_TRUE, "true"}, {SCHEMA_FALSE, "false"}};
    static const struct {
        schema_type type;
        trm_grammar_node *(*make)(schema_reader *reader, const schema_case *c);
    } makers[] = {{SCHEMA_NUMBER, trm_schema_number},
                  {SCHEMA_STRING, trm_schema_string},
                  {SCHEMA_ARRAY, trm_schema_array},
                  {SCHEMA_OBJECT, trm_schema_object}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if ((c->types & words[i].type) != 0) {
            trm_grammar_append(tree, list, trm_grammar_literal(tree, words[i].text));
        }
    }
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]) && tree->status == TRM_OK; i++) {
        if ((c->types & makers[i].type) != 0) {
            trm_grammar_append(tree, list, makers[i].make(reader, c));
        }
    }
    return list;
}

static void read_set(schema_reader *reader, const schema_set *set)
{
    trm_grammar_tree *tree = reader->tree;
    const int32_t rule = set->rule;
    const schema_part *parts = set->parts;
    const size_t count = set->count;
    schema_cases cases = {0};
    reader->at = parts[0].schema;
    trm_schema_find_cases(reader, parts, count, &cases);
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    for (size_t i = 0; i < cases.count && tree->status == TRM_OK; i++) {
        reader->at = parts[0].schema;
        trm_grammar_append(tree, list, case_node(reader, &cases.items[i], parts, count));
    }
    free(cases.items);
    if (tree->status == TRM_OK) {
        tree->rules[rule].node = list;
    }
}

static bool has_old_refs(const trm_json *root)
{
    const char *version = trm_json_string(trm_schema_member(root, "$schema"));
    return version != NULL && (strstr(version, "draft-03") != NULL || strstr(version, "draft-04") != NULL ||
                               strstr(version, "draft-06") != NULL || strstr(version, "draft-07") != NULL);
}

void trm_grammar_read_schema(trm_grammar_tree *tree, const char *text, size_t size)
{
    trm_json_document *document = NULL, *never = NULL;
    trm_status status = trm_json_parse("JSON schema", text, size, &document);
    status = status == TRM_OK ? trm_json_parse("schema", "false", 5, &never) : status;
    if (status != TRM_OK) {
        tree->status = status == TRM_ERROR_INVALID_MODEL ? TRM_ERROR_INVALID_ARGUMENT : status;
        trm_json_close(document);
        return;
    }
    schema_reader reader = {.tree = tree,
                            .json = {.tree = tree},
                            .root = trm_json_root(document),
                            .never = trm_json_root(never),
                            .work = MAX_WORK};
    const schema_part part = {reader.root, false};
    reader.refs_alone = has_old_refs(reader.root);
    survey_document(&reader, reader.root);
    tree->status = trm_expressions_init(&reader.matcher);
    reader.matcher.work = 10000000;
    reader.matcher.max_nodes = 300000;
    int32_t rule = trm_grammar_add_rule(tree, "root", 4);
    trm_grammar_node *root = trm_schema_call(&reader, &part, 1);
    for (size_t i = 0; i < reader.n_sets && tree->status == TRM_OK; i++) { /* grows while it runs */
        read_set(&reader, &reader.sets[i]);
    }
    if (tree->status == TRM_OK) {
        tree->rules[rule].node = root;
        tree->root = rule;
    }
    free(reader.sets);
    trm_map_fini(&reader.keys);
    trm_map_fini(&reader.patterns);
    trm_expressions_fini(&reader.matcher);
    trm_json_close(document);
    trm_json_close(never);
}
