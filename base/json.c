/* cJSON behind a strict scan (json_scan.c), with duplicate keys refused. */
#include "base/json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_scan.h"
#include "base/map.h"

#define FEW_KEYS     8      /* up to this many are compared pairwise, more by hashing */
#define MAX_EXACT    0x1p53 /* from here on neighbouring integers have the same double */
#define EXCERPT_SIZE 64     /* of a value or key, in errors */

struct trm_json_document {
    cJSON *root;
    char name[];
};

typedef struct checker {
    const char *name, *text;
    size_t size;
    size_t marks; /* keys and numbers passed, counted as in trm_json_fail_at_mark */
} checker;

/* Copies the longest prefix of `from` that fits in whole UTF-8 characters, with "..." if it was cut. */
static void copy_excerpt(char to[EXCERPT_SIZE], const char *from)
{
    size_t length = strlen(from);
    if (length < EXCERPT_SIZE) {
        memcpy(to, from, length + 1);
        return;
    }
    length = EXCERPT_SIZE - 4;
    while (length > 0 && ((unsigned char)from[length] & 0xc0) == 0x80) {
        length--;
    }
    memcpy(to, from, length);
    memcpy(to + length, "...", 4);
}

/* A value as JSON text: quoted and escaped, on one line. */
static void print_excerpt(char to[EXCERPT_SIZE], const cJSON *value)
{
    if (cJSON_IsArray(value) || cJSON_IsObject(value)) {
        copy_excerpt(to, cJSON_IsArray(value) ? "an array" : "an object");
        return;
    }
    char *text = cJSON_PrintUnformatted(value);
    copy_excerpt(to, text == NULL ? "a value" : text);
    cJSON_free(text);
}

static trm_status fail_duplicate(const checker *check, const char *key)
{
    char excerpt[EXCERPT_SIZE], what[EXCERPT_SIZE + 32];
    cJSON printable = {.type = cJSON_String, .valuestring = (char *)(uintptr_t)key};
    print_excerpt(excerpt, &printable);
    snprintf(what, sizeof(what), "duplicate key %s", excerpt);
    return trm_json_fail_at_mark(check->name, check->text, check->size, check->marks, what);
}

static bool is_duplicate(const cJSON *object, const cJSON *member)
{
    for (const cJSON *other = object->child; other != member; other = other->next) {
        if (strcmp(other->string, member->string) == 0) {
            return true;
        }
    }
    return false;
}

/* Walks the tree in text order; the scan has bounded its depth. */
static trm_status check_value(checker *check, const cJSON *value)
{
    if (cJSON_IsNumber(value)) {
        if (!isfinite(value->valuedouble)) {
            return trm_json_fail_at_mark(check->name, check->text, check->size, check->marks, "number out of range");
        }
        check->marks++;
        return TRM_OK;
    }
    trm_status status = TRM_OK;
    trm_map keys = {0};
    bool object = cJSON_IsObject(value);
    size_t count = 0;
    for (const cJSON *child = value->child; child != NULL; child = child->next) {
        count++;
    }
    if (object && count > FEW_KEYS) {
        TRM_TRY(trm_map_reserve(&keys, count));
    }
    for (const cJSON *child = value->child; child != NULL; child = child->next) {
        if (object) {
            bool duplicate;
            if (count > FEW_KEYS) {
                TRM_TRY_GOTO(status, trm_map_add(&keys, child->string, strlen(child->string), 0, &duplicate), out);
            } else {
                duplicate = is_duplicate(value, child);
            }
            if (duplicate) {
                status = fail_duplicate(check, child->string);
                goto out;
            }
            check->marks++;
        }
        TRM_TRY_GOTO(status, check_value(check, child), out);
    }
out:
    trm_map_fini(&keys);
    return status;
}

trm_status trm_json_parse(const char *name, const char *text, size_t size, trm_json_document **document)
{
    TRM_TRY(trm_json_scan(name, text, size));
    size_t name_size = strlen(name) + 1;
    trm_json_document *result = malloc(sizeof(*result) + name_size);
    if (result == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the JSON tree of %s", name);
    }
    memcpy(result->name, name, name_size);
    result->root = cJSON_ParseWithLength(text, size);
    if (result->root == NULL) { /* the text is known to be well formed */
        free(result);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the JSON tree of %s", name);
    }
    checker check = {.name = name, .text = text, .size = size};
    trm_status status = check_value(&check, result->root);
    if (status != TRM_OK) {
        trm_json_close(result);
        return status;
    }
    *document = result;
    return TRM_OK;
}

/* Python writes infinite numbers as Infinity and -Infinity: outside strings they become null. */
static void replace_infinity(char *text, size_t size)
{
    static const char name[] = "Infinity";
    const size_t length = sizeof(name) - 1;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        if (in_string && text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && text[i] == 'I' && size - i >= length && memcmp(text + i, name, length) == 0) {
            memcpy(text + i, "null    ", length);
            if (i > 0 && text[i - 1] == '-') {
                text[i - 1] = ' ';
            }
        }
    }
}

trm_status trm_json_read_config(const char *path, size_t limit, trm_json_document **document)
{
    char *text;
    size_t size;
    TRM_TRY(trm_file_read(path, limit, &text, &size));
    replace_infinity(text, size);
    trm_status status = trm_json_parse(path, text, size, document);
    free(text);
    return status;
}

trm_status trm_json_read(const char *path, size_t limit, trm_json_document **document)
{
    char *text;
    size_t size;
    TRM_TRY(trm_file_read(path, limit, &text, &size));
    trm_status status = trm_json_parse(path, text, size, document);
    free(text);
    return status;
}

void trm_json_close(trm_json_document *document)
{
    if (document != NULL) {
        cJSON_Delete(document->root);
        free(document);
    }
}

const trm_json *trm_json_root(const trm_json_document *document)
{
    return document->root;
}

static const trm_json *null_to_absent(const trm_json *value)
{
    return value == NULL || cJSON_IsNull(value) ? NULL : value;
}

const trm_json *trm_json_get(const trm_json *object, const char *key)
{
    return trm_json_is_object(object) ? null_to_absent(cJSON_GetObjectItemCaseSensitive(object, key)) : NULL;
}

const trm_json *trm_json_at(const trm_json *array, size_t index)
{
    if (!trm_json_is_array(array)) {
        return NULL;
    }
    const trm_json *element = array->child;
    for (; element != NULL && index > 0; index--) {
        element = element->next;
    }
    return null_to_absent(element);
}

size_t trm_json_count(const trm_json *value)
{
    size_t count = 0;
    for (const trm_json *child = trm_json_first(value); child != NULL; child = child->next) {
        count++;
    }
    return count;
}

const char *trm_json_key(const trm_json *member)
{
    return member == NULL ? NULL : member->string;
}

const trm_json *trm_json_first(const trm_json *value)
{
    return trm_json_is_object(value) || trm_json_is_array(value) ? value->child : NULL;
}

const trm_json *trm_json_next(const trm_json *value)
{
    return value == NULL ? NULL : value->next;
}

bool trm_json_is_object(const trm_json *value)
{
    return cJSON_IsObject(value);
}

bool trm_json_is_array(const trm_json *value)
{
    return cJSON_IsArray(value);
}

bool trm_json_is_string(const trm_json *value)
{
    return cJSON_IsString(value);
}

bool trm_json_is_number(const trm_json *value)
{
    return cJSON_IsNumber(value);
}

bool trm_json_is_bool(const trm_json *value)
{
    return cJSON_IsBool(value);
}

const char *trm_json_string(const trm_json *value)
{
    return trm_json_is_string(value) ? value->valuestring : NULL;
}

double trm_json_number(const trm_json *value, double otherwise)
{
    return trm_json_is_number(value) ? value->valuedouble : otherwise;
}

bool trm_json_truth(const trm_json *value, bool otherwise)
{
    return trm_json_is_bool(value) ? cJSON_IsTrue(value) : otherwise;
}

bool trm_json_integer(const trm_json *value, int64_t *integer)
{
    if (!trm_json_is_number(value)) {
        return false;
    }
    double number = value->valuedouble;
    if (fabs(number) >= MAX_EXACT || number != floor(number)) {
        return false;
    }
    *integer = (int64_t)number;
    return true;
}

/* Finds a member; *found is NULL if it is absent and not required. */
static trm_status find_member(const trm_json_document *document, const trm_json *object, const char *key, bool required,
                              const trm_json **found)
{
    *found = trm_json_get(object, key);
    if (*found == NULL && required) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: %s is missing", document->name, key);
    }
    return TRM_OK;
}

static trm_status fail_type(const trm_json_document *document, const char *key, const trm_json *value,
                            const char *wanted)
{
    char excerpt[EXCERPT_SIZE];
    print_excerpt(excerpt, value);
    return trm_fail(TRM_ERROR_INVALID_MODEL, "%s: %s is %s, expected %s", document->name, key, excerpt, wanted);
}

trm_status trm_json_member_integer(const trm_json_document *document, const trm_json *object, const char *key,
                                   bool required, int64_t *value)
{
    const trm_json *member;
    TRM_TRY(find_member(document, object, key, required, &member));
    if (member != NULL && !trm_json_integer(member, value)) {
        return fail_type(document, key, member, "an integer");
    }
    return TRM_OK;
}

trm_status trm_json_member_number(const trm_json_document *document, const trm_json *object, const char *key,
                                  bool required, double *value)
{
    const trm_json *member;
    TRM_TRY(find_member(document, object, key, required, &member));
    if (member != NULL && !trm_json_is_number(member)) {
        return fail_type(document, key, member, "a number");
    }
    *value = trm_json_number(member, *value);
    return TRM_OK;
}

trm_status trm_json_member_bool(const trm_json_document *document, const trm_json *object, const char *key,
                                bool required, bool *value)
{
    const trm_json *member;
    TRM_TRY(find_member(document, object, key, required, &member));
    if (member != NULL && !trm_json_is_bool(member)) {
        return fail_type(document, key, member, "true or false");
    }
    *value = trm_json_truth(member, *value);
    return TRM_OK;
}

trm_status trm_json_member_string(const trm_json_document *document, const trm_json *object, const char *key,
                                  bool required, const char **value)
{
    const trm_json *member;
    TRM_TRY(find_member(document, object, key, required, &member));
    if (member != NULL && !trm_json_is_string(member)) {
        return fail_type(document, key, member, "a string");
    }
    *value = member != NULL ? trm_json_string(member) : *value;
    return TRM_OK;
}
