/* Reads the output format of a request into the kind and text of its grammar. */
#include "launcher/serve/requests/api_format.h"

#include <string.h>

#include "launcher/serve/json/json_text.h"
#include "launcher/serve/json/json_value.h"

/* Takes a value, serialized as JSON, as the grammar that `key` asked for. */
static bool take_json(api_request *r, const char *key, const trm_json *value, api_error *error)
{
    json_text text = {0};
    json_value(&text, NULL, value);
    char *kept = NULL;
    if (text.status == TRM_OK && text.bytes.size <= API_LONGEST_SCHEMA) {
        kept = trm_arena_alloc(&r->arena, text.bytes.size + 1);
    }
    if (kept != NULL) {
        memcpy(kept, text.bytes.data, text.bytes.size);
    } else if (text.bytes.size > API_LONGEST_SCHEMA) {
        api_fail(error, 400, key, "invalid_value", "the schema has %zu bytes, expected at most %zu", text.bytes.size,
                 API_LONGEST_SCHEMA);
    } else {
        api_fail(error, 503, NULL, NULL, "cannot allocate the request");
    }
    json_text_fini(&text);
    r->grammar = kept;
    return kept != NULL;
}

/* Reads one guided_... field; an empty or false value asks for nothing. */
static bool read_guided(api_request *r, const char *key, api_format format, const trm_json *value, api_error *error)
{
    const char *text = trm_json_string(value);
    bool is_flag = format == API_FORMAT_JSON, is_choice = format == API_FORMAT_CHOICE;
    if (value == NULL || (is_flag && trm_json_is_bool(value) && !trm_json_truth(value, false)) ||
        (text != NULL && *text == '\0')) {
        return true;
    }
    if (r->format != API_FORMAT_TEXT) {
        return api_fail(error, 400, key, "invalid_value", "%s cannot be combined with another output format", key);
    }
    if (is_choice ? !trm_json_is_array(value)
        : is_flag ? !trm_json_is_bool(value)
                  : text == NULL && format != API_FORMAT_SCHEMA) {
        return api_fail(error, 400, key, "invalid_type", "%s is not %s", key,
                        is_choice ? "an array of strings"
                        : is_flag ? "true or false"
                                  : "a string");
    }
    r->format = format;
    r->format_key = key;
    r->grammar = text;
    return is_flag || text != NULL || take_json(r, key, value, error);
}

/* vLLM's guided_json and similar fields, which are also members of structured_outputs; llama-server's json_schema and
 * grammar. */
static bool read_all_guided(api_request *r, api_error *error)
{
    static const struct {
        const char *key, *member;
        api_format format;
    } fields[] = {{"guided_json", "json", API_FORMAT_SCHEMA},     {"guided_regex", "regex", API_FORMAT_REGEX},
                  {"guided_choice", "choice", API_FORMAT_CHOICE}, {"guided_grammar", "grammar", API_FORMAT_EBNF},
                  {"json_schema", NULL, API_FORMAT_SCHEMA},       {"grammar", NULL, API_FORMAT_EBNF},
                  {NULL, "json_object", API_FORMAT_JSON}};
    static const char outputs_key[] = "structured_outputs";
    const trm_json *root = trm_json_root(r->document), *outputs = trm_json_get(root, outputs_key);
    if (outputs != NULL && !trm_json_is_object(outputs)) {
        return api_fail(error, 400, outputs_key, "invalid_type", "structured_outputs is not an object");
    }
    if (trm_json_get(outputs, "structural_tag") != NULL) {
        return api_fail(error, 400, outputs_key, "unsupported_parameter",
                        "structured_outputs.structural_tag is not supported");
    }
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const trm_json *value = fields[i].key == NULL ? NULL : trm_json_get(root, fields[i].key);
        const trm_json *member = fields[i].member == NULL ? NULL : trm_json_get(outputs, fields[i].member);
        if (!read_guided(r, fields[i].key, fields[i].format, value, error) ||
            !read_guided(r, outputs_key, fields[i].format, member, error)) {
            return false;
        }
    }
    return true;
}

/* The schema of a response is one level higher. json_object may have one, too, as in llama-server. */
static bool read_openai(api_request *r, const char *key, const trm_json *format, api_error *error)
{
    const char *type = trm_json_string(trm_json_get(format, "type"));
    if (type == NULL) {
        return api_fail(error, 400, key, "invalid_type", "%s has no type", key);
    }
    bool has_schema = strcmp(type, "json_schema") == 0;
    if (strcmp(type, "text") == 0) {
        return true;
    }
    if (!has_schema && strcmp(type, "json_object") != 0) {
        return api_fail(error, 400, key, "invalid_value",
                        "%s has type %.60s, expected text, json_object or json_schema", key, type);
    }
    const trm_json *inner = trm_json_get(format, "json_schema");
    const trm_json *schema = trm_json_get(inner != NULL ? inner : format, "schema");
    r->format = has_schema || schema != NULL ? API_FORMAT_SCHEMA : API_FORMAT_JSON;
    r->format_key = key;
    if (r->format == API_FORMAT_SCHEMA && !trm_json_is_object(schema)) {
        return api_fail(error, 400, key, "invalid_type", "%s of type %s has no json_schema.schema object", key, type);
    }
    return r->format == API_FORMAT_JSON || take_json(r, key, schema, error);
}

bool api_read_format(api_request *r, api_error *error)
{
    const trm_json *root = trm_json_root(r->document), *text = trm_json_get(root, "text");
    bool is_response = r->kind == API_RESPONSE;
    if (is_response && text != NULL && !trm_json_is_object(text)) {
        return api_fail(error, 400, "text", "invalid_type", "text is not an object");
    }
    const char *key = is_response               ? "text.format"
                      : r->kind == API_MESSAGES ? "output_config.format"
                                                : "response_format";
    const trm_json *format = is_response               ? trm_json_get(text, "format")
                             : r->kind == API_MESSAGES ? trm_json_get(trm_json_get(root, "output_config"), "format")
                                                       : trm_json_get(root, "response_format");
    if (format == NULL && r->kind == API_MESSAGES) { /* its name in betas */
        key = "output_format";
        format = trm_json_get(root, key);
    }
    return (format == NULL || read_openai(r, key, format, error)) && read_all_guided(r, error);
}
