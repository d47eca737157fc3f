/* Any bytes as what a model has written, in any format: reasoning and calls lie within the text, and what is found
 * while it is written is what is found in the whole. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "launcher/serve/formats/reasoning.h"
#include "launcher/serve/formats/reply_reader.h"
#include "launcher/serve/requests/tools.h"
#include "launcher/text/harmony.h"

static api_request request;
static const reasoning_marks *marks[3]; /* some families' */

static void make_request(void)
{
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\","
        "\"function\":{\"name\":\"f\"}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}";
    api_error error;
    FUZZ_REQUIRE(api_request_parse(API_CHAT, body, sizeof(body) - 1, 10, NULL, &request, &error));
    static const char *const templates[] = {"</think>", "</response>", "<channel|>"};
    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++) {
        trm_chat_template *chat;
        FUZZ_REQUIRE(trm_chat_template_parse("t", templates[i], strlen(templates[i]), &chat) == TRM_OK);
        marks[i] = reasoning_of(chat);
        trm_chat_template_close(chat);
    }
}

/* The calls of a text that comes in pieces of `step` bytes: how many, and a sum over names and arguments. */
static uint64_t stream(const char *text, size_t size, size_t step, int32_t *count)
{
    tool_stream calls = {.count = 0};
    uint64_t sum = 0;
    for (size_t at = step < size ? step : size;; at = at + step < size ? at + step : size) {
        tool_piece piece;
        bool required = request.tool_mode == TOOL_REQUIRED;
        size_t start = required ? 0 : tools_content_size(request.tool_style, text, 0, at, false);
        FUZZ_REQUIRE(start <= at);
        while (tool_stream_next(&calls, &request, text, start, at, false, &piece)) {
            FUZZ_REQUIRE(piece.index == calls.count - 1);
            for (size_t i = 0; i < piece.name_size; i++) {
                sum = sum * 31 + (uint64_t)(unsigned char)piece.name[i] + 1000;
            }
            for (size_t i = 0; i < piece.size; i++) {
                sum = sum * 31 + (uint64_t)(unsigned char)piece.arguments[i];
            }
        }
        if (at == size) {
            break;
        }
    }
    *count = calls.count;
    tool_stream_fini(&calls);
    return sum;
}

static void check_reasoning(const char *text, size_t size, bool open)
{
    reasoning_parts last = {0};
    for (size_t at = 0; at <= size; at++) {
        reasoning_parts p = reasoning_find(marks[0], text, at, open, at == size);
        FUZZ_REQUIRE(p.begin <= p.end && p.end <= at && p.content <= at && (p.end <= p.content || p.content == 0));
        bool answers = at > 0 && last.content < at - 1; /* the last has told something of the answer */
        FUZZ_REQUIRE(p.end >= last.end && (!answers || p.content == last.content));
        last = p;
    }
}

/* The pieces of a text in the harmony format that comes `step` bytes at a time: a sum over kinds, names and text. */
static uint64_t read_channels(const char *text, size_t size, size_t step)
{
    harmony_reader reader = {.at = 0};
    harmony_piece p;
    uint64_t sum = 0;
    size_t last = 0;
    for (size_t at = step < size ? step : size;; at = at + step < size ? at + step : size) {
        char *grown = malloc(at + (at == 0)); /* of its own size, so that reading past it is seen */
        FUZZ_REQUIRE(grown != NULL);
        memcpy(grown, text, at);
        while (harmony_next(&reader, grown, at, at == size, &p)) {
            FUZZ_REQUIRE(last <= p.begin && p.begin <= p.end && p.end <= at && p.name + p.name_size <= at);
            last = p.end;
            for (size_t i = 0; i < p.name_size; i++) {
                sum = sum * 31 + (uint64_t)(unsigned char)grown[p.name + i] + 1000;
            }
            sum = p.begins ? sum * 31 + 2000 + p.kind : sum;
            for (size_t i = p.begin; i < p.end; i++) {
                sum = sum * 31 + (uint64_t)(unsigned char)grown[i];
            }
            sum = p.blank ? sum * 31 + 3000 : sum;
        }
        free(grown);
        if (at == size) {
            break;
        }
    }
    return sum;
}

/* The pieces of a reply that comes `step` bytes at a time: a sum over kinds, names and text. */
static uint64_t read_reply(const char *text, size_t size, size_t step)
{
    reply_reader reader = {.whole = false};
    reply_piece p;
    uint64_t sum = 0;
    int last = -1;
    for (size_t at = step < size ? step : size;; at = at + step < size ? at + step : size) {
        char *grown = malloc(at + (at == 0)); /* of its own size, so that reading past it is seen */
        FUZZ_REQUIRE(grown != NULL);
        memcpy(grown, text, at);
        while (reply_next(&reader, &request, grown, at, at == size, &p)) {
            sum = p.begins || (int)p.kind != last ? sum * 31 + 2000 + p.kind : sum;
            last = (int)p.kind;
            for (size_t i = 0; p.name != NULL && i < p.name_size; i++) {
                sum = sum * 31 + (uint64_t)(unsigned char)p.name[i] + 1000;
            }
            for (size_t i = 0; i < p.size; i++) {
                sum = sum * 31 + (uint64_t)(unsigned char)p.text[i];
            }
        }
        free(grown);
        if (at == size) {
            break;
        }
    }
    reply_reader_fini(&reader);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 2000) {
        return 0;
    }
    if (request.tools == NULL) {
        make_request();
    }
    char *text = malloc(size); /* of its own size, so that reading past it is seen */
    FUZZ_REQUIRE(text != NULL);
    size_t step = 1 + data[0] % 13;
    memcpy(text, data + 1, size - 1);
    size--;
    for (int style = 0; style < TOOL_STYLES; style++) {
        tool_calls calls;
        int32_t count, whole_count;
        request.tool_style = (tool_style)style;
        request.tool_mode = data[0] % 3 == 0 ? TOOL_REQUIRED : TOOL_AUTO;
        uint64_t whole = stream(text, size, size + 1, &whole_count), pieces = stream(text, size, step, &count);
        FUZZ_REQUIRE(whole == pieces && whole_count == count && count <= TOOLS_MAX_CALLS);
        size_t content = tools_content_size(request.tool_style, text, 0, size, true);
        FUZZ_REQUIRE(content <= size);
        if (tools_parse(request.tool_style, text + content, size - content, &calls)) {
            FUZZ_REQUIRE(calls.count > 0 && calls.count <= TOOLS_MAX_CALLS);
        }
        tool_calls_fini(&calls);
        request.reasoning = data[0] % 5 < 3 && request.tool_mode == TOOL_AUTO ? marks[data[0] % 7 % 3] : NULL;
        request.reasoning_open = data[0] % 5 < 1;
        FUZZ_REQUIRE(read_reply(text, size, size + 1) == read_reply(text, size, step));
        if (tools_parse_required(text, size, &calls)) {
            FUZZ_REQUIRE(calls.count > 0 && calls.count <= TOOLS_MAX_CALLS);
        }
        tool_calls_fini(&calls);
    }
    check_reasoning(text, size, data[0] % 2 == 0);
    FUZZ_REQUIRE(read_channels(text, size, size + 1) == read_channels(text, size, step));
    free(text);
    return 0;
}
