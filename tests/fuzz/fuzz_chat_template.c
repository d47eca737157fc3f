/* Any bytes as a template, and behind a NUL any as its messages: what renders is UTF-8, and renders the same again. */
#include <string.h>

#include <trireme/chat.h>
#include <trireme/network.h>

#include "fuzz.h"
#include "launcher/text/strings/utf8.h"

static const char sample[] =
    "[{\"role\": \"user\", \"content\": \"hi \\u00e9\"}, {\"role\": \"assistant\", \"content\": "
    "null, \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5]}}}]}]";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char messages[4096];
    const uint8_t *end = memchr(data, 0, size);
    size_t template_size = end == NULL ? size : (size_t)(end - data), rest = size - template_size;
    if (size > (1 << 16) || rest > sizeof(messages)) {
        return 0;
    }
    messages[0] = '\0';
    if (rest > 1) {
        memcpy(messages, end + 1, rest - 1);
        messages[rest - 1] = '\0';
    }
    trm_chat_template *chat = NULL;
    trm_status status = trm_chat_template_parse("template", (const char *)data, template_size, &chat);
    if (status != TRM_OK) {
        FUZZ_REQUIRE(chat == NULL && trm_last_error()[0] != '\0');
        FUZZ_REQUIRE(status == TRM_ERROR_INVALID_MODEL || status == TRM_ERROR_UNSUPPORTED);
        return 0;
    }
    trm_chat_input input = TRM_CHAT_INPUT_INIT;
    input.messages = rest > 1 ? messages : sample;
    input.tools = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}]";
    input.extra = "{\"bos_token\": \"<s>\", \"x\": 3, \"s\": \"some Text, with\\nlines\"}";
    input.now = 1700000000;
    char *text = NULL, *again = NULL;
    size_t text_size = 0, again_size = 0;
    status = trm_chat_template_render(chat, &input, &text, &text_size);
    FUZZ_REQUIRE(status == TRM_OK || (status == TRM_ERROR_INVALID_ARGUMENT && text == NULL));
    if (status == TRM_OK) {
        FUZZ_REQUIRE(trm_utf8_valid_prefix(text, text_size) == text_size);
        if (text_size < 100000) {
            FUZZ_REQUIRE(trm_chat_template_render(chat, &input, &again, &again_size) == TRM_OK);
            FUZZ_REQUIRE(again_size == text_size && memcmp(text, again, text_size) == 0);
        }
    }
    trm_free(text);
    trm_free(again);
    trm_chat_template_close(chat);
    return 0;
}
