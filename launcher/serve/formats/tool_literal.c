/* Reads literals. */
#include "launcher/serve/formats/tool_literal.h"

#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "base/json.h"

#define DEEPEST     32
#define LONGEST_KEY ((size_t)256)

/* Marks that Gemma writes for quotes; between them nothing is escaped. */
static const char *const marks[] = {"<|\"|>", "<escape>"};

static bool fails_short(tool_reader *r)
{
    r->short_of = true;
    return false;
}

static trm_status append_escaped(trm_bytes *text, char c)
{
    static const char escapes[] = "n\nt\tr\rb\bf\f";
    const char *found = strchr("ntrbf", c) != NULL && c != '\0' ? strchr(escapes, c) : NULL;
    return trm_bytes_append(text, found != NULL ? found + 1 : &c, 1);
}

/* Reads four hexadecimal digits. */
static bool read_code(const char *text, int32_t *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++) {
        const int digit = trm_hex_digit(text[i]);
        if (digit < 0) {
            return false;
        }
        *code = *code * 16 + digit;
    }
    return true;
}

/* Reads a string up to its quote, which has been read at its beginning. */
static bool read_quoted(tool_reader *r, char quote, trm_bytes *text)
{
    trm_status status = TRM_OK;
    while (r->at < r->size && status == TRM_OK) {
        const char c = r->text[r->at++];
        int32_t code;
        if (c == quote) {
            return true;
        }
        if (c != '\\') {
            status = trm_bytes_append(text, &c, 1);
            continue;
        }
        const size_t rest = r->size - r->at;
        if (rest == 0 || (r->text[r->at] == 'u' && rest < 5)) {
            return fails_short(r);
        }
        const char escaped = r->text[r->at++];
        if (escaped == 'u' && read_code(r->text + r->at, &code)) {
            r->at += 4;
            status = trm_bytes_append_codepoint(text, code);
        } else {
            status = append_escaped(text, escaped);
        }
    }
    return fails_short(r);
}

/* Reads a string into `text`. *is_string: there is one. */
static bool read_string(tool_reader *r, trm_bytes *text, bool *is_string)
{
    *is_string = true;
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        const size_t length = strlen(marks[i]);
        if (tool_reader_word(r, marks[i])) {
            const char *begin = r->text + r->at, *end = memmem(begin, r->size - r->at, marks[i], length);
            if (end == NULL) {
                return fails_short(r);
            }
            r->at += (size_t)(end - begin) + length;
            return trm_bytes_append(text, begin, (size_t)(end - begin)) == TRM_OK;
        }
        if (r->short_of) {
            return false;
        }
    }
    if (tool_reader_word(r, "'")) {
        return read_quoted(r, '\'', text);
    }
    if (tool_reader_word(r, "\"")) {
        return read_quoted(r, '"', text);
    }
    *is_string = false;
    return !r->short_of;
}

/* Reads a number or constant, which ends before a space, comma or bracket. */
static bool write_word(tool_reader *r, const char *key, json_text *json)
{
    static const struct {
        const char *word, *json;
    } constants[] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                     {"true", "true"}, {"false", "false"}, {"null", "null"}};
    const char *word = r->text + r->at;
    size_t size = 0;
    while (r->at + size < r->size && !tools_is_space(word[size]) && memchr(",]})", word[size], 4) == NULL) {
        size++;
    }
    if (r->at + size == r->size) {
        return fails_short(r);
    }
    r->at += size;
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
        if (size == strlen(constants[i].word) && memcmp(word, constants[i].word, size) == 0) {
            json_raw(json, key, constants[i].json, strlen(constants[i].json));
            return true;
        }
    }
    trm_json_document *document = NULL;
    const bool number = size > 0 && size < LONGEST_KEY && trm_json_parse("number", word, size, &document) == TRM_OK &&
                        trm_json_is_number(trm_json_root(document));
    trm_json_close(document);
    if (number) {
        json_raw(json, key, word, size);
    }
    return number;
}

static bool write_value(tool_reader *r, const char *key, json_text *json, int depth);

/* Reads the key of a dictionary's member and its colon. */
static bool read_key(tool_reader *r, char key[LONGEST_KEY + 1])
{
    trm_bytes text = {0};
    bool is_string, read = read_string(r, &text, &is_string);
    if (read && is_string) {
        read = text.size <= LONGEST_KEY;
        if (read) {
            memcpy(key, text.size > 0 ? text.data : "", text.size);
            key[text.size] = '\0';
        }
    } else if (read) {
        const char *begin = r->text + r->at, *colon = memchr(begin, ':', r->size - r->at);
        size_t size = colon != NULL ? (size_t)(colon - begin) : 0;
        read = colon != NULL ? size > 0 && size <= LONGEST_KEY : r->size - r->at <= LONGEST_KEY && fails_short(r);
        if (read) {
            r->at += size;
            while (tools_is_space(begin[size - 1]) && size > 1) {
                size--;
            }
            memcpy(key, begin, size);
            key[size] = '\0';
        }
    }
    trm_bytes_fini(&text);
    return read && tool_reader_word(r, ":");
}

/* Reads the elements of a list or the members of a dictionary up to its closing bracket. */
static bool write_elements(tool_reader *r, const char *close, bool keyed, json_text *json, int depth)
{
    for (int32_t count = 0;; count++) {
        char key[LONGEST_KEY + 1];
        if (tool_reader_word(r, close)) {
            return true;
        }
        if (r->short_of || (count > 0 && !tool_reader_word(r, ",")) || (keyed && !read_key(r, key)) ||
            !write_value(r, keyed ? key : NULL, json, depth - 1)) {
            return false;
        }
    }
}

static bool write_value(tool_reader *r, const char *key, json_text *json, int depth)
{
    trm_bytes text = {0};
    bool is_string, written = depth > 0 && read_string(r, &text, &is_string);
    if (written && is_string) {
        json_bytes(json, key, text.size > 0 ? text.data : "", text.size);
    } else if (written && tool_reader_word(r, "[")) {
        json_array(json, key);
        written = write_elements(r, "]", false, json, depth);
        json_end_array(json);
    } else if (written && tool_reader_word(r, "{")) {
        json_object(json, key);
        written = write_elements(r, "}", true, json, depth);
        json_end_object(json);
    } else if (written) {
        written = write_word(r, key, json);
    }
    trm_bytes_fini(&text);
    return written;
}

bool tool_literal_write(tool_reader *r, const char *key, json_text *json)
{
    return write_value(r, key, json, DEEPEST);
}
