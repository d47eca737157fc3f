/* Patterns, and typed members of tokenizer.json. */
#include "launcher/text/tokenizer/loader.h"

#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/utf8.h"

trm_status trm_loader_type(const trm_text_loader *loader, const trm_json *json, const char *what, const char *list,
                           const char **type, bool *sequence, const trm_json **parts)
{
    if (!trm_json_is_object(json)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: a %s is not an object", loader->name, what);
    }
    TRM_TRY(trm_json_member_string(loader->document, json, "type", true, type));
    *sequence = strcmp(*type, "Sequence") == 0;
    if (!*sequence) {
        return TRM_OK;
    }
    *parts = trm_json_get(json, list);
    if (!trm_json_is_array(*parts)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: the sequence of a %s has no array \"%s\"", loader->name, what, list);
    }
    return TRM_OK;
}

trm_status trm_loader_unknown_type(const trm_text_loader *loader, const char *what, const char *type)
{
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%s: %s type \"%.80s\" is not supported", loader->name, what, type);
}

trm_status trm_loader_string(const trm_text_loader *loader, const trm_json *json, const char *key, const char **text)
{
    const char *value = NULL;
    TRM_TRY(trm_json_member_string(loader->document, json, key, true, &value));
    *text = trm_arena_strdup(loader->arena, value);
    return *text == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
}

trm_status trm_loader_character(const trm_text_loader *loader, const trm_json *json, const char *key,
                                int32_t *codepoint)
{
    const char *value = NULL;
    TRM_TRY(trm_json_member_string(loader->document, json, key, true, &value));
    size_t size = 0;
    *codepoint = *value == '\0' ? -1 : trm_utf8_read(value, &size);
    if (*codepoint < 0 || value[size] != '\0') {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: %s is \"%.80s\", expected one character", loader->name, key, value);
    }
    return TRM_OK;
}

trm_status trm_loader_count(const trm_text_loader *loader, const trm_json *json, const char *key, size_t *count)
{
    int64_t value = 0;
    TRM_TRY(trm_json_member_integer(loader->document, json, key, true, &value));
    if (value < 0 || value > INT32_MAX) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: %s is %lld, expected 0 to %d", loader->name, key, (long long)value,
                 INT32_MAX);
    }
    *count = (size_t)value;
    return TRM_OK;
}

trm_status trm_pattern_create(const trm_text_loader *loader, const char *regex, trm_pattern *pattern)
{
    *pattern = (trm_pattern){0};
    TRM_TRY(trm_regex_compile_own(regex, &pattern->regex));
    trm_regex_keep(loader->regexes, pattern->regex);
    return TRM_OK;
}

trm_status trm_pattern_load(const trm_text_loader *loader, const trm_json *json, trm_pattern *pattern)
{
    *pattern = (trm_pattern){0};
    const char *literal = trm_json_string(trm_json_get(json, "String"));
    const char *regex = trm_json_string(trm_json_get(json, "Regex"));
    if ((literal == NULL) == (regex == NULL) || trm_json_count(json) != 1) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: a pattern is neither {\"String\": ...} nor {\"Regex\": ...}",
                 loader->name);
    }
    if (literal != NULL && *literal != '\0') {
        pattern->size = strlen(literal);
        pattern->literal = trm_arena_strdup(loader->arena, literal);
        return pattern->literal == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
    }
    trm_status status = trm_regex_compile(regex == NULL ? "" : regex, &pattern->regex);
    if (status != TRM_OK) {
        return trm_fail_in(status, "%s", loader->name);
    }
    trm_regex_keep(loader->regexes, pattern->regex);
    return TRM_OK;
}

trm_status trm_pattern_next(const trm_pattern *pattern, const char *text, size_t size, trm_pattern_scan *scan,
                            bool *found, size_t *begin, size_t *end)
{
    *found = false;
    if (pattern->literal != NULL) {
        const char *at = memmem(text + scan->from, size - scan->from, pattern->literal, pattern->size);
        *found = at != NULL;
        if (at != NULL) {
            *begin = (size_t)(at - text);
            *end = scan->from = *begin + pattern->size;
        }
        return TRM_OK;
    }
    while (scan->from <= size) {
        TRM_TRY(trm_regex_find(pattern->regex, text, size, scan->from, found, begin, end));
        if (!*found) {
            return TRM_OK;
        }
        if (*begin < *end || !scan->any || scan->last_end != *end) {
            scan->from = scan->last_end = *end;
            scan->any = true;
            return TRM_OK;
        }
        *found = false;
        scan->from += scan->from < size ? trm_utf8_size(text[scan->from]) : 1;
    }
    return TRM_OK;
}
