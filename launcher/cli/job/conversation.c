/* Messages and the prompts rendered from them. */
#include "launcher/cli/job/conversation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/strings/buffer.h"

trm_status conversation_open(conversation *talk, const char *path, const char *system)
{
    TRM_TRY(trm_chat_template_open(path, NULL, &talk->chat));
    return system == NULL ? TRM_OK : conversation_say(talk, "system", system, strlen(system));
}

void conversation_close(conversation *talk)
{
    while (talk->count > 0) {
        conversation_unsay(talk);
    }
    free(talk->messages);
    trm_chat_template_close(talk->chat);
    *talk = (conversation){0};
}

trm_status conversation_say(conversation *talk, const char *role, const char *text, size_t size)
{
    void *messages = talk->messages;
    TRM_TRY(trm_array_grow(&messages, &talk->capacity, talk->count + 1, sizeof(*talk->messages)));
    talk->messages = messages;
    char *copy = malloc(size + 1);
    if (copy == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a message of %zu bytes", size);
    }
    if (size > 0) {
        memcpy(copy, text, size);
    }
    copy[size] = '\0';
    talk->messages[talk->count++] = (conversation_message){role, copy, size};
    return TRM_OK;
}

void conversation_unsay(conversation *talk)
{
    if (talk->count > 0) {
        free(talk->messages[--talk->count].text);
    }
}

trm_status conversation_set_system(conversation *talk, const char *text)
{
    const bool had = talk->count > 0 && strcmp(talk->messages[0].role, "system") == 0;
    conversation_message system = {.role = NULL};
    if (text[0] != '\0') {
        TRM_TRY(conversation_say(talk, "system", text, strlen(text)));
        system = talk->messages[--talk->count];
    }
    if (had) {
        free(talk->messages[0].text);
        memmove(talk->messages, talk->messages + 1, --talk->count * sizeof(*talk->messages));
    }
    if (system.role != NULL) { /* there is room for it */
        memmove(talk->messages + 1, talk->messages, talk->count++ * sizeof(*talk->messages));
        talk->messages[0] = system;
    }
    return TRM_OK;
}

void conversation_write(const conversation *talk, report *r)
{
    report_open(r, "messages", '[');
    for (size_t i = 0; i < talk->count; i++) {
        report_open(r, NULL, '{');
        report_text(r, "role", talk->messages[i].role);
        report_bytes(r, "content", talk->messages[i].text, talk->messages[i].size);
        report_close(r);
    }
    report_close(r);
}

trm_status conversation_prompt(const conversation *talk, char **text, size_t *size)
{
    char *json = NULL;
    size_t json_size = 0;
    FILE *out = open_memstream(&json, &json_size);
    if (out == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the text of %zu messages", talk->count);
    }
    report r;
    report_begin(&r, out);
    conversation_write(talk, &r);
    if (talk->effort != NULL) {
        report_text(&r, "reasoning_effort", talk->effort);
    }
    report_end(&r);
    bool written = fclose(out) == 0;
    trm_chat_input input = TRM_CHAT_INPUT_INIT;
    input.messages = "[]"; /* `extra` wins */
    input.extra = json;
    trm_status status = written ? trm_chat_template_render(talk->chat, &input, text, size)
                                : trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot serialize %zu messages", talk->count);
    free(json);
    return status;
}
