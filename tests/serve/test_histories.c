/* Requests of other APIs as messages and tools of a chat. */
#include "launcher/serve/json/json_value.h"
#include "launcher/serve/requests/api_request.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

static void is_json(const trm_json *value, const char *expected)
{
    json_text json = {0};
    json_value(&json, NULL, value);
    assert_int_equal(trm_bytes_append(&json.bytes, "", 1), TRM_OK);
    assert_string_equal(json.bytes.data, expected);
    json_text_fini(&json);
}

/* Parses a body that begins with the members that every request needs. */
static bool parse(api_kind kind, const char *members, api_request *request, api_error *error)
{
    char body[4096];
    snprintf(body, sizeof(body), "{%s}", members);
    return api_request_parse(kind, body, strlen(body), 10, NULL, request, error);
}

static void becomes(api_kind kind, const char *members, const char *messages)
{
    api_request request;
    api_error error = {.status = 0};
    if (!parse(kind, members, &request, &error)) {
        fail_msg("%s: %s", members, error.message);
    }
    is_json(request.messages, messages);
    api_request_fini(&request);
}

static void is_refused(api_kind kind, const char *members, const char *param, const char *message)
{
    api_request request;
    api_error error = {.status = 0};
    if (parse(kind, members, &request, &error)) {
        fail_msg("%s is accepted", members);
    }
    assert_int_equal(error.status, 400);
    assert_string_equal(error.param, param);
    assert_non_null(strstr(error.message, message));
}

static void messages_have_calls(void **state)
{
    (void)state;
    becomes(API_MESSAGES,
            "\"system\":[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":\"ephemeral\"}},{\"type\":"
            "\"text\",\"text\":\"b\"}],\"messages\":[{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"user\","
            "\"content\":[{\"type\":\"text\",\"text\":\"d\"},{\"type\":\"text\",\"text\":\"e\"}]}]",
            "[{\"role\":\"system\",\"content\":\"a\\nb\"},{\"role\":\"user\",\"content\":\"c\\n\\nd\\ne\"}]");
    becomes(API_MESSAGES,
            "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":"
            "\"thinking\",\"thinking\":\"t\",\"signature\":\"\"},{\"type\":\"redacted_thinking\",\"data\":\"x\"},"
            "{\"type\":\"text\",\"text\":\"b\"},{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{\"x\":"
            "[1,\"y\"]}},{\"type\":\"tool_use\",\"id\":\"2\",\"name\":\"g\",\"input\":{}}]},{\"role\":\"user\","
            "\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":\"{\\\"z\\\":1}\"},{\"type\":"
            "\"tool_result\",\"tool_use_id\":\"2\",\"is_error\":true,\"content\":[{\"type\":\"text\",\"text\":\"no\"},"
            "{\"type\":\"text\",\"text\":\"way\"}]},{\"type\":\"text\",\"text\":\"c\"}]}]",
            "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"reasoning_content\":\"t\",\"content\":"
            "\"b\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
            "{\"x\":[1,\"y\"]}}},{\"id\":\"2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]},"
            "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"{\\\"z\\\":1}\"},{\"role\":\"tool\","
            "\"tool_call_id\":\"2\",\"content\":\"Error: no\\nway\"},{\"role\":\"user\",\"content\":\"c\"}]");
    becomes(API_MESSAGES,
            "\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\","
            "\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\"}]}]",
            "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
            "\"function\":{\"name\":\"f\",\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":"
            "\"\"}]");
}

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"

static void messages_declare_tools(void **state)
{
    static const struct {
        const char *choice;
        tool_mode mode;
        bool parallel;
    } cases[] = {{"{\"type\":\"auto\"}", TOOL_AUTO, true},
                 {"{\"type\":\"auto\",\"disable_parallel_tool_use\":true}", TOOL_AUTO, false},
                 {"{\"type\":\"any\"}", TOOL_REQUIRED, true},
                 {"{\"type\":\"tool\",\"name\":\"f\"}", TOOL_NAMED, true},
                 {"{\"type\":\"none\"}", TOOL_NONE, true},
                 {"null", TOOL_AUTO, true}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char members[1024];
        api_request request;
        api_error error;
        snprintf(members, sizeof(members),
                 USER ",\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{\"type\":\"object\"},"
                      "\"cache_control\":{\"type\":\"ephemeral\"}}],\"tool_choice\":%s",
                 cases[i].choice);
        assert_true(parse(API_MESSAGES, members, &request, &error));
        assert_int_equal(request.tool_mode, cases[i].mode);
        assert_int_equal(request.parallel_tools, cases[i].parallel);
        if (request.tool_mode != TOOL_NONE) {
            is_json(request.tools, "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
                                   "\"parameters\":{\"type\":\"object\"}}}]");
        }
        api_request_fini(&request);
    }
}

static void tools_are_loaded_late(void **state)
{
    static const char tools[] =
        "\"tools\":[{\"name\":\"find\",\"input_schema\":{}},{\"name\":\"f\",\"defer_loading\":true,"
        "\"input_schema\":{}}],\"messages\":[{\"role\":\"user\",\"content\":\"a\"}%s]";
    static const char found[] =
        ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":"
        "\"trireme:t\"},{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"find\",\"input\":{}}]},{\"role\":\"user\","
        "\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":[{\"type\":"
        "\"tool_reference\",\"tool_name\":\"f\"}]}]}";
    char members[2048];
    api_request request;
    api_error error;
    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(members, sizeof(members), tools, i == 0 ? "" : found);
        assert_true(parse(API_MESSAGES, members, &request, &error));
        assert_int_equal(trm_json_count(request.tools), 1 + i);
        if (i == 1) {
            is_json(request.messages, "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"reasoning_"
                                      "content\":\"t\",\"content\":null,"
                                      "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":"
                                      "\"find\",\"arguments\":{}}}]},{"
                                      "\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"Loaded tool: f\"}]");
        }
        api_request_fini(&request);
    }
}

static void messages_are_refused_by_name(void **state)
{
    (void)state;
    is_refused(API_MESSAGES, "\"messages\":[]", "messages", "missing or empty");
    is_refused(API_MESSAGES, "\"messages\":[{\"role\":\"user\",\"content\":[]}]", "messages", "nothing");
    is_refused(API_RESPONSE, "\"input\":[{\"type\":\"reasoning\",\"summary\":[]}]", "input", "nothing");
    is_refused(API_MESSAGES, "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"source\":{}}]}]",
               "messages", "messages[0] has a block of type image");
    is_refused(API_MESSAGES,
               "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\","
               "\"content\":[{\"type\":\"image\"}]}]}]",
               "messages", "type image");
    is_refused(API_MESSAGES, "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_use\"}]}]", "messages",
               "type tool_use");
    is_refused(API_MESSAGES, "\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\"}]}]",
               "messages", "without an id");
    is_refused(API_MESSAGES, "\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]", "messages", "role tool");
    is_refused(API_MESSAGES, "\"messages\":[{\"role\":\"user\"}]", "messages", "messages[0].content");
    is_refused(API_MESSAGES, USER ",\"system\":5", "system", "system is neither");
    is_refused(API_MESSAGES, USER ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]", "tools",
               "tools[0] has type web_search_20250305");
    is_refused(API_MESSAGES, USER ",\"tools\":[{\"name\":\"f\"}]", "tools", "input_schema");
    is_refused(API_MESSAGES, USER ",\"tool_choice\":{\"type\":\"any\"}", "tool_choice", "needs tools");
    is_refused(API_MESSAGES, USER ",\"tool_choice\":{\"type\":\"tool\"}", "tool_choice", "not of type");
    is_refused(API_MESSAGES, USER ",\"mcp_servers\":[{\"url\":\"x\"}]", "mcp_servers", "do not support");
    is_refused(API_MESSAGES, USER ",\"thinking\":{\"type\":\"often\"}", "thinking", "adaptive");
    is_refused(API_MESSAGES, USER ",\"output_config\":{\"format\":{\"type\":\"xml\"}}", "output_config.format", "xml");
}

static void responses_have_items(void **state)
{
    (void)state;
    becomes(API_RESPONSE,
            "\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"developer\",\"content\":\"b\"}]",
            "[{\"role\":\"user\",\"content\":\"a\\n\\nb\"}]");
    becomes(API_RESPONSE, "\"instructions\":\"a\",\"input\":\"b\"",
            "[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]");
    becomes(API_RESPONSE,
            "\"instructions\":\"a\",\"input\":[{\"type\":\"message\",\"role\":\"developer\",\"content\":[{\"type\":"
            "\"input_text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":\"c\"},{\"type\":\"reasoning\",\"id\":"
            "\"rs\",\"summary\":[],\"content\":null,\"encrypted_content\":\"trireme:t\"},{\"type\":\"function_call\","
            "\"call_id\":\"1\",\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"},{\"type\":\"function_call\",\"call_id\":"
            "\"2\",\"name\":\"g\",\"arguments\":\"\"},{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":"
            "\"o\"},{\"type\":\"function_call_output\",\"call_id\":\"2\",\"output\":[{\"type\":\"input_text\",\"text\":"
            "\"p\"}]},{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":"
            "\"d\"}]}]",
            "[{\"role\":\"system\",\"content\":\"a\\n\\nb\"},{\"role\":\"user\",\"content\":\"c\"},{\"role\":"
            "\"assistant\",\"reasoning_content\":\"t\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":"
            "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}},{\"id\":\"2\",\"type\":"
            "\"function\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\","
            "\"content\":\"o\"},{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"p\"},{\"role\":\"assistant\","
            "\"content\":\"d\"}]");
    becomes(API_RESPONSE,
            "\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"reasoning\",\"summary\":[],\"content\":[{"
            "\"type\":\"reasoning_text\",\"text\":\"t\"}]},{\"type\":\"reasoning\",\"encrypted_content\":\"gAAA\"},{"
            "\"role\":\"assistant\",\"content\":\"b\"}]",
            "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"reasoning_content\":\"t\",\"content\":"
            "\"b\"}]");
}

static void responses_declare_tools(void **state)
{
    static const char tools[] =
        "\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"description\":\"d\","
        "\"strict\":false,\"parameters\":{\"type\":\"object\"}},{\"type\":\"web_search\"}]";
    api_request request;
    api_error error;
    (void)state;
    assert_true(parse(API_RESPONSE, tools, &request, &error));
    assert_int_equal(request.tool_mode, TOOL_AUTO);
    is_json(request.tools, "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":"
                           "{\"type\":\"object\"}}}]");
    api_request_fini(&request);
    char members[1024];
    snprintf(members, sizeof(members),
             "%s,\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"},\"parallel_tool_calls\":false", tools);
    assert_true(parse(API_RESPONSE, members, &request, &error));
    assert_int_equal(request.tool_mode, TOOL_NAMED);
    assert_false(request.parallel_tools);
    api_request_fini(&request);
    static const char spaces[] =
        "\"tools\":[{\"type\":\"namespace\",\"name\":\"s\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]},{"
        "\"type\":\"namespace\",\"name\":\"mcp__t__\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]}],"
        "\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"function_call\",\"call_id\":\"1\",\"name\":"
        "\"f\",\"namespace\":\"s\",\"arguments\":\"{}\"}]";
    assert_true(parse(API_RESPONSE, spaces, &request, &error));
    is_json(request.tools,
            "[{\"type\":\"function\",\"function\":{\"name\":\"s__f\"}},{\"type\":\"function\",\"function\":{\"name\":"
            "\"mcp__t__f\"}}]");
    is_json(trm_json_get(
                trm_json_get(trm_json_at(trm_json_get(trm_json_at(request.messages, 1), "tool_calls"), 0), "function"),
                "name"),
            "\"s__f\"");
    api_request_fini(&request);
    is_refused(API_RESPONSE,
               "\"input\":\"a\",\"tools\":[{\"type\":\"namespace\",\"name\":\"s\",\"tools\":[{\"type\":\"custom\"}]}]",
               "tools", "tools[0] is a namespace");
    is_refused(API_RESPONSE, "\"input\":\"a\",\"tools\":[{\"type\":\"web_search\"}]", "tools", "type web_search");
    is_refused(API_RESPONSE, "\"input\":\"a\",\"tools\":[{\"type\":\"file_search\"}]", "tools", "type file_search");
    is_refused(API_RESPONSE, "\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]", "input", "item_reference");
    is_refused(API_RESPONSE, "\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]", "input",
               "input_image");
    is_refused(API_RESPONSE, "\"input\":[{\"type\":\"function_call\",\"name\":\"f\"}]", "input", "call_id");
    snprintf(members, sizeof(members), "%s,\"tool_choice\":{\"type\":\"web_search\"}", tools);
    is_refused(API_RESPONSE, members, "tool_choice", "allowed_tools or a function");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_have_calls),   cmocka_unit_test(messages_declare_tools),
        cmocka_unit_test(tools_are_loaded_late), cmocka_unit_test(messages_are_refused_by_name),
        cmocka_unit_test(responses_have_items),  cmocka_unit_test(responses_declare_tools)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
