/*
 * Renders the cases that tests/goldens/templates/compare.py writes to stdin: a JSON array of {"template", "messages",
 * "tools", "extra", "add_generation_prompt"} with JSON in strings. Prints for each "ok SIZE\n", the text and a newline,
 * or "error MESSAGE\n".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trireme/chat.h>
#include <trireme/network.h>

#include "base/json.h"

static int render_case(const trm_json *item)
{
    const char *source = trm_json_string(trm_json_get(item, "template"));
    trm_chat_template *chat = NULL;
    char *text = NULL;
    size_t size = 0;
    trm_chat_input input = TRM_CHAT_INPUT_INIT;
    input.messages = trm_json_string(trm_json_get(item, "messages"));
    input.tools = trm_json_string(trm_json_get(item, "tools"));
    input.extra = trm_json_string(trm_json_get(item, "extra"));
    input.no_generation_prompt = !trm_json_truth(trm_json_get(item, "add_generation_prompt"), false);
    input.now = 1700000000;
    if (trm_chat_template_parse("template", source, strlen(source), &chat) != TRM_OK ||
        trm_chat_template_render(chat, &input, &text, &size) != TRM_OK) {
        printf("error %s\n", trm_last_error());
    } else {
        printf("ok %zu\n", size);
        fwrite(text, 1, size, stdout);
        putchar('\n');
    }
    trm_free(text);
    trm_chat_template_close(chat);
    return 0;
}

int main(void)
{
    size_t size = 0, capacity = (size_t)64 << 20;
    char *text = malloc(capacity);
    if (text == NULL) {
        return 1;
    }
    size = fread(text, 1, capacity, stdin);
    trm_json_document *document = NULL;
    if (trm_json_parse("stdin", text, size, &document) != TRM_OK) {
        fprintf(stderr, "%s\n", trm_last_error());
        free(text);
        return 1;
    }
    const trm_json *root = trm_json_root(document);
    for (const trm_json *item = trm_json_first(root); item != NULL; item = trm_json_next(item)) {
        render_case(item);
    }
    trm_json_close(document);
    free(text);
    return 0;
}
