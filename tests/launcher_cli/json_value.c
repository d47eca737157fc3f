/*
 * Reads a JSON text from stdin and prints the value at a path such as results.0.text; a number is printed as %.15g, an
 * object or array as its count. Fails if the text is not JSON or has no such value.
 * usage: json_value PATH
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

static const trm_json *find(const trm_json *value, char *path)
{
    for (char *key = strtok(path, "."); key != NULL && value != NULL; key = strtok(NULL, ".")) {
        value = trm_json_is_array(value) ? trm_json_at(value, strtoul(key, NULL, 10)) : trm_json_get(value, key);
    }
    return value;
}

static void print(const trm_json *value)
{
    if (trm_json_is_string(value)) {
        printf("%s\n", trm_json_string(value));
    } else if (trm_json_is_number(value)) {
        printf("%.15g\n", trm_json_number(value, 0.0));
    } else if (trm_json_is_bool(value)) {
        printf("%s\n", trm_json_truth(value, false) ? "true" : "false");
    } else {
        printf("%zu\n", trm_json_count(value));
    }
}

/* All of stdin; NULL if memory is short or reading fails. The caller frees it. */
static char *read_all(size_t *size)
{
    char *text = NULL;
    size_t capacity = 0;
    for (*size = 0; !feof(stdin);) {
        if (*size == capacity) {
            capacity = capacity * 2 + 65536;
            char *grown = realloc(text, capacity);
            if (grown == NULL) {
                free(text);
                return NULL;
            }
            text = grown;
        }
        *size += fread(text + *size, 1, capacity - *size, stdin);
        if (ferror(stdin)) {
            free(text);
            return NULL;
        }
    }
    return text;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "json_value: expected one path\n");
        return 1;
    }
    size_t size;
    char *text = read_all(&size);
    trm_json_document *document;
    if (text == NULL || trm_json_parse("stdin", text, size, &document) != TRM_OK) {
        fprintf(stderr, "json_value: %s\n", text == NULL ? "cannot read stdin" : trm_last_error());
        free(text);
        return 1;
    }
    const trm_json *value = find(trm_json_root(document), argv[1]);
    if (value != NULL) {
        print(value);
    }
    trm_json_close(document);
    free(text);
    return value == NULL;
}
