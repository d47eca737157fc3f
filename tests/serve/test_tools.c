/* Tool calls in what models write, and what a forced call must look like. */
#include "launcher/serve/formats/reasoning.h"
#include "launcher/serve/requests/tools.h"
#include "launcher/serve/formats/tool_stream.h"
#include "support/support.h"

#include <stdio.h>

static void calls_are(tool_style style, const char *text, size_t content, const char *names, const char *arguments)
{
    tool_calls calls;
    char found[256] = "", given[512] = "";
    size_t size = strlen(text);
    assert_int_equal(tools_content_size(style, text, 0, size, true), content);
    bool parsed = tools_parse(style, text + content, size - content, &calls);
    for (int32_t i = 0; i < calls.count; i++) {
        strcat(strcat(found, i == 0 ? "" : ","), calls.calls[i].name);
        strcat(strcat(given, i == 0 ? "" : ","), calls.calls[i].arguments);
    }
    assert_true(parsed == (*names != '\0'));
    assert_string_equal(found, names);
    assert_string_equal(given, arguments);
    tool_calls_fini(&calls);
}

static void hermes_calls(void **state)
{
    (void)state;
    calls_are(TOOLS_HERMES, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", 0, "f",
              "{\"a\":1}");
    calls_are(TOOLS_HERMES,
              "So: <tool_call>{\"name\":\"f\"}</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>",
              4, "f,g", "{},{}");
    calls_are(TOOLS_HERMES, "<tool_call>{\"name\":\"f\"}", 0, "f", "{}"); /* cut by a stop token */
    calls_are(TOOLS_HERMES, "<tool_call>{\"name\":", 0, "", "");
    calls_are(TOOLS_HERMES, "<tool_call>{\"name\":\"f\"}</tool_call> and then", 0, "", "");
    calls_are(TOOLS_HERMES, "<tool_call>[]</tool_call>", 0, "", "");
    calls_are(TOOLS_HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":5}</tool_call>", 0, "", "");
    calls_are(TOOLS_HERMES, "a < b <tool", 11, "", "");
}

static void mistral_calls(void **state)
{
    (void)state;
    calls_are(TOOLS_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1, null]}}, {\"name\": \"g\"}]", 0,
              "f,g", "{\"a\":[1,null]},{}");
    calls_are(TOOLS_MISTRAL, "Hi [TOOL_CALLS][]", 3, "", "");
}

static void llama_calls(void **state)
{
    (void)state;
    calls_are(TOOLS_LLAMA, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", 0, "f", "{\"a\":\"b\"}");
    calls_are(TOOLS_LLAMA, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", 0, "f", "{}");
    calls_are(TOOLS_LLAMA, "{\"answer\": 5}", 0, "", "");
    calls_are(TOOLS_LLAMA, "No call {}", 10, "", "");
}

/* Content never holds a beginning of a call, however the text comes. */
static void beginnings_are_held_back(void **state)
{
    static const char text[] = "a <t <tool_call>{}";
    (void)state;
    size_t last = 0;
    for (size_t size = 0; size <= strlen(text); size++) {
        size_t content = tools_content_size(TOOLS_HERMES, text, 0, size, false);
        assert_true(content >= last && content <= 5);
        last = content;
    }
    assert_int_equal(tools_content_size(TOOLS_HERMES, text, 0, 7, false), 5);
    assert_int_equal(tools_content_size(TOOLS_HERMES, text, 0, 7, true), 7);
    assert_int_equal(tools_content_size(TOOLS_LLAMA, "  ", 0, 2, false), 0);
    assert_int_equal(tools_content_size(TOOLS_LLAMA, "  x", 0, 3, false), 3);
}

static const char chat[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
    "\"f\",\"parameters\":{\"type\":\"object\"}}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}],"
    "\"parallel_tool_calls\":false,\"tool_choice\":%s}";

static void choices_become_grammars(void **state)
{
    api_request request;
    api_error error;
    char body[1024];
    (void)state;
    snprintf(body, sizeof(body), chat, "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}");
    assert_true(api_request_parse(API_CHAT, body, strlen(body), 10, NULL, &request, &error));
    assert_int_equal(request.tool_mode, TOOL_NAMED);
    assert_int_equal(request.format, API_FORMAT_SCHEMA);
    assert_string_equal(request.grammar, "{\"type\":\"object\"}");
    api_request_fini(&request);
    snprintf(body, sizeof(body), chat, "\"required\"");
    assert_true(api_request_parse(API_CHAT, body, strlen(body), 10, NULL, &request, &error));
    assert_int_equal(request.tool_mode, TOOL_REQUIRED);
    assert_non_null(strstr(request.grammar, "\"maxItems\":1"));
    assert_non_null(strstr(request.grammar, "{\"const\":\"g\"}"));
    api_request_fini(&request);
    static const char untyped[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tool_choice\":\"required\",\"tools\":[{\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}},{\"type\":\"function\",\"function\":{\"name\":"
        "\"g\","
        "\"parameters\":{\"properties\":{}}}}]}";
    assert_true(api_request_parse(API_CHAT, untyped, strlen(untyped), 10, NULL, &request, &error));
    assert_non_null(strstr(request.grammar, "\"parameters\":{\"type\":\"object\"}"));
    assert_non_null(strstr(request.grammar, "\"parameters\":{\"type\":\"object\",\"properties\":{}}"));
    api_request_fini(&request);
    static const char *const allowed[] = {
        "{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"auto\",\"tools\":[{\"type\":\"function\","
        "\"function\":"
        "{\"name\":\"g\"}}]}}",
        "{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[{\"type\":\"function\",\"name\":\"g\"}]}"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(body, sizeof(body), chat, allowed[i]);
        assert_true(api_request_parse(API_CHAT, body, strlen(body), 10, NULL, &request, &error));
        assert_int_equal(request.tool_mode, i == 0 ? TOOL_AUTO : TOOL_REQUIRED);
        assert_int_equal(trm_json_count(request.tools), 1);
        assert_non_null(tools_find(&request, "g", 1));
        assert_null(tools_find(&request, "f", 1));
        api_request_fini(&request);
    }
    snprintf(body, sizeof(body), chat, "{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{\"name\":\"h\"}]}");
    assert_false(api_request_parse(API_CHAT, body, strlen(body), 10, NULL, &request, &error));
    assert_string_equal(error.param, "tool_choice");
    snprintf(body, sizeof(body), chat, "\"none\"");
    assert_true(api_request_parse(API_CHAT, body, strlen(body), 10, NULL, &request, &error));
    assert_int_equal(request.tool_mode, TOOL_NONE);
    assert_null(request.tools);
    api_request_fini(&request);
    tool_calls calls;
    static const char written[] = "[{\"name\":\"f\",\"parameters\":{\"x\":1}}]";
    assert_true(tools_parse_required(written, strlen(written), &calls));
    assert_string_equal(calls.calls[0].arguments, "{\"x\":1}");
    tool_calls_fini(&calls);
    assert_false(tools_parse_required("[", 1, &calls));
}

/* What a text gives while it is written, piece by piece of `step` bytes: "name(arguments)" of each call. */
static void stream(const api_request *request, const char *text, size_t step, char *found)
{
    tool_stream calls = {.count = 0};
    size_t all = strlen(text), written = 0;
    for (size_t size = step < all ? step : all;; size = size + step < all ? size + step : all) {
        tool_piece piece;
        bool required = request->tool_mode == TOOL_REQUIRED;
        size_t start = required ? 0 : tools_content_size(request->tool_style, text, 0, size, false);
        while (tool_stream_next(&calls, request, text, start, size, false, &piece)) {
            if (piece.name != NULL) {
                written += (size_t)sprintf(found + written, "%.*s:", (int)piece.name_size, piece.name);
            }
            written += (size_t)sprintf(found + written, "%.*s", (int)piece.size, piece.arguments);
        }
        if (size == all) {
            break;
        }
    }
    found[written] = '\0';
    tool_stream_fini(&calls);
}

static void calls_stream(void **state)
{
    static const struct {
        tool_style style;
        const char *text, *expected;
        tool_mode mode;
    } cases[] = {
        {TOOLS_HERMES,
         "Hm <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
         "\"}\\\"{\"}}\n</tool_call>\n<tool_call>{\"name\":\"g\","
         "\"arguments\":{}}</tool_call>",
         "f:{\"a\": \"}\\\"{\"}g:{}", TOOL_AUTO},
        {TOOLS_HERMES, "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>", "", TOOL_AUTO},
        {TOOLS_HERMES, "<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call>", "", TOOL_AUTO},
        {TOOLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, {", "f:{\"a\": [1, {", TOOL_AUTO},
        {TOOLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": 5}</tool_call>", "", TOOL_AUTO},
        {TOOLS_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}} and more", "f:{}", TOOL_AUTO},
        {TOOLS_MISTRAL,
         "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1, null]}}, {\"name\": \"g\", \"arguments\": {}}]",
         "f:{\"a\": [1, null]}g:{}", TOOL_AUTO},
        {TOOLS_LLAMA, "{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}", "f:{\"a\": \"b\"}", TOOL_AUTO},
        {TOOLS_LLAMA, "<|python_tag|>{\"name\": \"g\", \"parameters\": {\"a\": {}}}; {", "g:{\"a\": {}}", TOOL_AUTO},
        {TOOLS_LLAMA, "{\"answer\": 5}", "", TOOL_AUTO},
        {TOOLS_LLAMA, "Plain text", "", TOOL_AUTO},
        {TOOLS_HERMES, "[ {\"name\": \"f\",\n\"parameters\": {\"a\": [\"]\"]} } , {\"name\":\"g\",\"parameters\":{}}]",
         "f:{\"a\": [\"]\"]}g:{}", TOOL_REQUIRED},
        {TOOLS_MISTRAL, "[{\"name\": \"f\", \"parameters\": {\"a\": ", "f:{\"a\": ", TOOL_REQUIRED},
    };
    api_request request;
    api_error error;
    char body[1024], found[512];
    (void)state;
    snprintf(body, sizeof(body), chat, "\"auto\"");
    assert_true(api_request_parse(API_CHAT, body, strlen(body), 10, NULL, &request, &error));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        request.tool_style = cases[i].style;
        request.tool_mode = cases[i].mode;
        request.parallel_tools = true;
        for (size_t step = 1; step < 120; step += step < 9 ? 1 : 37) {
            stream(&request, cases[i].text, step, found);
            assert_string_equal(found, cases[i].expected);
        }
    }
    api_request_fini(&request);
}

static const reasoning_marks *think;

static void reasoning_is(const char *text, bool open, bool at_end, const char *reasoning, const char *content)
{
    reasoning_parts p = reasoning_find(think, text, strlen(text), open, at_end);
    char found[128];
    snprintf(found, sizeof(found), "%.*s", (int)(p.end - p.begin), text + p.begin);
    assert_string_equal(found, reasoning);
    assert_string_equal(text + p.content, content);
}

static void reasoning_is_told_from_answers(void **state)
{
    trm_chat_template *template;
    (void)state;
    assert_int_equal(trm_chat_template_parse("t", "</think>", 8, &template), TRM_OK);
    think = reasoning_of(template);
    trm_chat_template_close(template);
    assert_non_null(think);
    reasoning_is("<think>\nI see.\n</think>\n\nYes.", false, true, "I see.", "Yes.");
    reasoning_is("I see.\n</think>\n\nYes.", true, true, "I see.", "Yes.");
    reasoning_is("<think> again</think>Yes.", true, true, "again", "Yes.");
    reasoning_is("Yes. <think>no</think>", false, true, "", "Yes. <think>no</think>");
    reasoning_is("<think></think>", false, true, "", "");
    reasoning_is("<think>cut", false, true, "cut", "");
    reasoning_is("cut </thi", true, true, "cut </thi", "");
    reasoning_is("cut </thi", true, false, "cut", "");
    reasoning_is("  <thi", false, false, "", "");
    reasoning_is("  <thi", false, true, "", "  <thi");
    reasoning_is("", true, false, "", "");
    assert_true(reasoning_is_open(think, "user\nassistant\n<think>\n"));
    assert_false(reasoning_is_open(think, "user\nassistant\n<think>\n\n</think>\n\n"));
    assert_false(reasoning_is_open(think, "think>"));
    /* parts only grow while a text does, and end as those of the whole */
    static const char text[] = "\n<think>a <b> c\n\n</think>\n\n Well </think> done";
    reasoning_parts last = {0}, whole = reasoning_find(think, text, strlen(text), false, true);
    for (size_t size = 0; size <= strlen(text); size++) {
        reasoning_parts p = reasoning_find(think, text, size, false, false);
        assert_true(p.end >= last.end && p.end <= whole.end && p.content >= last.content);
        assert_true(p.content == size || p.content == whole.content);
        last = p;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hermes_calls),
                                       cmocka_unit_test(mistral_calls),
                                       cmocka_unit_test(llama_calls),
                                       cmocka_unit_test(beginnings_are_held_back),
                                       cmocka_unit_test(choices_become_grammars),
                                       cmocka_unit_test(calls_stream),
                                       cmocka_unit_test(reasoning_is_told_from_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
