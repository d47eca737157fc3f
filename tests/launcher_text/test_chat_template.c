/* Chat templates against texts made by Jinja2 (tests/goldens/templates/make_goldens.py), and what opening reads. */
#include "support/support.h"

#include <stdio.h>
#include <sys/stat.h>

#include <trireme/chat.h>
#include <trireme/network.h>

#include "base/file.h"
#include "base/json.h"

#define GOLDENS TRM_SOURCE_DIR "/tests/goldens/templates/"

static trm_status render_text(const trm_chat_template *chat, const char *messages, const char *extra, char **text)
{
    trm_chat_input input = TRM_CHAT_INPUT_INIT;
    size_t size = 0;
    input.messages = messages;
    input.extra = extra;
    return trm_chat_template_render(chat, &input, text, &size);
}

static void check_case(const trm_json *item)
{
    const char *name = trm_json_string(trm_json_get(item, "name"));
    const char *source = trm_json_string(trm_json_get(item, "template"));
    const char *file = trm_json_string(trm_json_get(item, "file"));
    const char *expected = trm_json_string(trm_json_get(item, "expected"));
    char path[500], *text = NULL;
    size_t size = 0;
    trm_chat_template *chat = NULL;
    trm_chat_input input = TRM_CHAT_INPUT_INIT;
    input.messages = trm_json_string(trm_json_get(item, "messages"));
    input.tools = trm_json_string(trm_json_get(item, "tools"));
    input.extra = trm_json_string(trm_json_get(item, "extra"));
    input.no_generation_prompt = !trm_json_truth(trm_json_get(item, "add_generation_prompt"), false);
    input.now = 1700000000;
    snprintf(path, sizeof(path), GOLDENS "%s", file == NULL ? "" : file);
    trm_status status = file != NULL ? trm_chat_template_open(path, NULL, &chat)
                                     : trm_chat_template_parse("template", source, strlen(source), &chat);
    if (status == TRM_OK) {
        status = trm_chat_template_render(chat, &input, &text, &size);
    }
    if (expected == NULL) {
        if (status == TRM_OK) {
            fail_msg("%s: gave \"%s\", expected an error", name, text);
        }
    } else if (status != TRM_OK) {
        fail_msg("%s: %s", name, trm_last_error());
    } else if (strcmp(text, expected) != 0 || size != strlen(expected)) {
        fail_msg("%s: gave\n%s\nexpected\n%s", name, text, expected);
    }
    trm_free(text);
    trm_chat_template_close(chat);
}

static void test_goldens(void **state)
{
    (void)state;
    trm_json_document *document = NULL;
    assert_ok(trm_json_read(GOLDENS "cases.json", (size_t)64 << 20, &document));
    const trm_json *root = trm_json_root(document);
    assert_true(trm_json_count(root) > 200);
    for (const trm_json *item = trm_json_first(root); item != NULL; item = trm_json_next(item)) {
        check_case(item);
    }
    trm_json_close(document);
}

static trm_status parse(const char *source)
{
    trm_chat_template *chat = NULL;
    trm_status status = trm_chat_template_parse("t", source, strlen(source), &chat);
    trm_chat_template_close(chat);
    return status;
}

static trm_status render(const char *source)
{
    trm_chat_template *chat = NULL;
    char *text = NULL;
    assert_ok(trm_chat_template_parse("t", source, strlen(source), &chat));
    trm_status status = render_text(chat, "[]", NULL, &text);
    trm_free(text);
    trm_chat_template_close(chat);
    return status;
}

static void test_syntax_errors(void **state)
{
    (void)state;
    assert_fails(parse("a\n{% if x %}b"), TRM_ERROR_INVALID_MODEL, "t line 2: found the end of the template");
    assert_fails(parse("{{ x"), TRM_ERROR_INVALID_MODEL, "the template ends within a tag");
    assert_fails(parse("{{ 'x }}"), TRM_ERROR_INVALID_MODEL, "an unterminated string");
    assert_fails(parse("\n\n{% foo %}"), TRM_ERROR_INVALID_MODEL, "t line 3: unknown tag 'foo'");
    assert_fails(parse("{% include 'x' %}"), TRM_ERROR_UNSUPPORTED, "'include'");
    assert_fails(parse("{% endif %}"), TRM_ERROR_INVALID_MODEL, "unknown tag 'endif'");
    assert_fails(parse("{{ (1] }}"), TRM_ERROR_INVALID_MODEL, "bracket");
    assert_fails(parse("{{ a b }}"), TRM_ERROR_INVALID_MODEL, "found 'b', expected '}}'");
    assert_fails(parse("{# x"), TRM_ERROR_INVALID_MODEL, "comment");
    assert_fails(parse("{% break %}"), TRM_ERROR_INVALID_MODEL, "inside loops");
    assert_fails(parse("{% set 1 = 2 %}"), TRM_ERROR_INVALID_MODEL, "assign");
    assert_fails(parse("\xff"), TRM_ERROR_INVALID_MODEL, "not UTF-8");
    char deep[2000];
    memset(deep, '(', sizeof(deep));
    memcpy(deep, "{{", 2);
    assert_fails((deep[sizeof(deep) - 1] = '\0', parse(deep)), TRM_ERROR_INVALID_MODEL, "deep");
    memset(deep + 2, '-', 1000);
    assert_fails(parse(deep), TRM_ERROR_INVALID_MODEL, "deep");
}

static void test_bounds(void **state)
{
    (void)state;
    assert_fails(render("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"),
                 TRM_ERROR_INVALID_ARGUMENT, "t line 1: ");
    assert_fails(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), TRM_ERROR_INVALID_ARGUMENT, "too deep");
    assert_fails(render("{% set ns = namespace(x='ab') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% "
                        "endfor %}"),
                 TRM_ERROR_INVALID_ARGUMENT, "memory");
    assert_fails(render("{% for i in range(1000) %}{{ 'a' * 1000000 }}{% endfor %}"), TRM_ERROR_INVALID_ARGUMENT,
                 "MiB");
    assert_fails(render("{{ 'a' * 99999999999 }}"), TRM_ERROR_INVALID_ARGUMENT, "memory");
    assert_fails(render("{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}"
                        "{{ ns.x == [ns.x] }}{{ ns.x }}"),
                 TRM_ERROR_INVALID_ARGUMENT, "t line 1: ");
    assert_fails(render("{{ '%999999999d' % 1 }}"), TRM_ERROR_INVALID_ARGUMENT, "wider");
    assert_fails(render("{{ 'x'.replace('', 'y' * 100000) | replace('y', 'z' * 100000) }}"), TRM_ERROR_INVALID_ARGUMENT,
                 "too long");
    assert_fails(render("{{ 9223372036854775807 + 1 }}"), TRM_ERROR_INVALID_ARGUMENT, "64 bits");
    assert_fails(render("{{ -9223372036854775807 - 2 }}"), TRM_ERROR_INVALID_ARGUMENT, "64 bits");
    assert_fails(render("\n{{ raise_exception('roles must alternate') }}"), TRM_ERROR_INVALID_ARGUMENT,
                 "t line 2: roles must alternate");
}

static void test_input(void **state)
{
    (void)state;
    trm_chat_template *chat = NULL;
    char *text = NULL;
    size_t size = 0;
    trm_chat_input input = TRM_CHAT_INPUT_INIT;
    assert_ok(trm_chat_template_parse("t", "{{ messages }}", 14, &chat));
    assert_fails(trm_chat_template_render(chat, &input, &text, &size), TRM_ERROR_INVALID_ARGUMENT, "messages");
    input.messages = "[}";
    assert_fails(trm_chat_template_render(chat, &input, &text, &size), TRM_ERROR_INVALID_ARGUMENT, "messages: line 1");
    input.messages = "{}";
    assert_fails(trm_chat_template_render(chat, &input, &text, &size), TRM_ERROR_INVALID_ARGUMENT, "not a JSON array");
    input.messages = "[]";
    input.tools = "3";
    assert_fails(trm_chat_template_render(chat, &input, &text, &size), TRM_ERROR_INVALID_ARGUMENT, "tools is no");
    input.tools = NULL;
    input.extra = "[]";
    assert_fails(trm_chat_template_render(chat, &input, &text, &size), TRM_ERROR_INVALID_ARGUMENT, "not a JSON object");
    input.extra = "{\"messages\": [1, 2.50, \"\\u00e9\\ud83d\\ude00\"]}";
    assert_ok(trm_chat_template_render(chat, &input, &text, &size));
    assert_string_equal(text, "[1, 2.5, '\xC3\xA9\xF0\x9F\x98\x80']");
    trm_free(text);
    input.size = 1;
    assert_fails(trm_chat_template_render(chat, &input, &text, &size), TRM_ERROR_INVALID_ARGUMENT, "INIT");
    trm_chat_template_close(chat);
    assert_fails(trm_chat_template_open(NULL, NULL, &chat), TRM_ERROR_INVALID_ARGUMENT, "path");
    assert_fails(trm_chat_template_parse("t", NULL, 3, &chat), TRM_ERROR_INVALID_ARGUMENT, "text");
    trm_chat_template_close(NULL);
}

static void write_in(const char *folder, const char *file, const char *text)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    test_write_file(path, text, strlen(text));
}

static void check_folder(const char *folder, const char *name, const char *expected)
{
    trm_chat_template *chat = NULL;
    char *text = NULL;
    assert_ok(trm_chat_template_open(folder, name, &chat));
    assert_ok(render_text(chat, "[{\"role\": \"user\", \"content\": \"hi\"}]", NULL, &text));
    assert_string_equal(text, expected);
    trm_free(text);
    trm_chat_template_close(chat);
}

static void test_folders(void **state)
{
    (void)state;
    char folder[500];
    trm_chat_template *chat = NULL;
    snprintf(folder, sizeof(folder), "%s", test_temporary_folder());
    assert_fails(trm_chat_template_open(folder, NULL, &chat), TRM_ERROR_INVALID_MODEL, "no chat template");
    write_in(folder, "chat_template.json", "{\"chat_template\": \"json {{ bos_token }}\"}");
    write_in(folder, "special_tokens_map.json", "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\"}");
    check_folder(folder, NULL, "json <s>");
    write_in(folder, "tokenizer_config.json",
             "{\"bos_token\": \"<B>\", \"pad_token\": null, \"chat_template\": [{\"name\": \"default\", \"template\": "
             "\"{{ bos_token }}{{ eos_token }}\"}, {\"name\": \"rag\", \"template\": \"rag {{ messages[0].content "
             "}}\"}]}");
    check_folder(folder, NULL, "<B></s>");
    check_folder(folder, "rag", "rag hi");
    assert_fails(trm_chat_template_open(folder, "nope", &chat), TRM_ERROR_INVALID_ARGUMENT, "named nope");
    write_in(folder, "chat_template.jinja", "file {{ eos_token }}\n");
    check_folder(folder, NULL, "file </s>");
    write_in(folder, "chat_template.jinja", "\n{{");
    assert_fails(trm_chat_template_open(folder, NULL, &chat), TRM_ERROR_INVALID_MODEL, "chat_template.jinja line 2");
    char path[600];
    snprintf(path, sizeof(path), "%s/absent.jinja", folder);
    assert_fails(trm_chat_template_open(path, NULL, &chat), TRM_ERROR_IO, "absent.jinja");
}

static void test_tool_use(void **state)
{
    (void)state;
    char folder[500];
    trm_chat_template *chat = NULL;
    char *text = NULL;
    size_t size = 0;
    snprintf(folder, sizeof(folder), "%s", test_temporary_folder());
    write_in(folder, "tokenizer_config.json",
             "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"}, {\"name\": \"tool_use\", "
             "\"template\": \"tools\"}]}");
    assert_ok(trm_chat_template_open(folder, NULL, &chat));
    trm_chat_input input = TRM_CHAT_INPUT_INIT;
    input.messages = "[]";
    input.tools = "[{}]";
    assert_ok(trm_chat_template_render(chat, &input, &text, &size));
    assert_string_equal(text, "tools");
    trm_free(text);
    input.tools = "[]";
    assert_ok(trm_chat_template_render(chat, &input, &text, &size));
    assert_string_equal(text, "plain");
    trm_free(text);
    trm_chat_template_close(chat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens), cmocka_unit_test(test_syntax_errors), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_input),   cmocka_unit_test(test_folders),       cmocka_unit_test(test_tool_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
