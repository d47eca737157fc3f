/* Replies in the formats of the families: their reasoning, content and calls, whole and however the text grows. */
#include "launcher/serve/formats/reasoning.h"
#include "launcher/serve/formats/reply_reader.h"
#include "support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static api_request request;
static char found[2048];

/* Reads a text that comes `step` bytes at a time into `found`: "R[reasoning]C[content]name#id(arguments)". */
static void read_reply(const char *text, size_t step, bool whole)
{
    reply_reader reader = {.whole = whole};
    reply_piece piece;
    int last = -1;
    size_t size = strlen(text), written = 0;
    found[0] = '\0';
    for (size_t at = step < size ? step : size;; at = at + step < size ? at + step : size) {
        char *grown = malloc(at + (at == 0)); /* of its own size, so that reading past it is seen */
        assert_non_null(grown);
        memcpy(grown, text, at);
        while (reply_next(&reader, &request, grown, at, at == size, &piece)) {
            if (piece.begins || piece.kind != (reply_kind)last) {
                written += (size_t)sprintf(found + written, "%s", last < 0 ? "" : last == REPLY_CALL ? ")" : "]");
                written += piece.kind == REPLY_CALL
                               ? (size_t)sprintf(found + written, "%.*s%s%.*s(", (int)piece.name_size, piece.name,
                                                 piece.id != NULL ? "#" : "", (int)piece.id_size, piece.id)
                               : (size_t)sprintf(found + written, "%s[", piece.kind == REPLY_REASONING ? "R" : "C");
            }
            last = (int)piece.kind;
            written += (size_t)sprintf(found + written, "%.*s", (int)piece.size, piece.text);
        }
        free(grown);
        if (at == size) {
            break;
        }
    }
    sprintf(found + written, "%s", last < 0 ? "" : last == REPLY_CALL ? ")" : "]");
    reply_reader_fini(&reader);
}

static void reply_is(tool_style style, const char *text, const char *expected)
{
    request.tool_style = style;
    read_reply(text, strlen(text) + 1, true);
    assert_string_equal(found, expected);
    for (size_t step = 1; step < 40; step += step < 7 ? 1 : 11) {
        read_reply(text, step, false);
        assert_string_equal(found, expected);
    }
}

static int make_request(void **state)
{
    static const char body[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\",\"function\":{"
        "\"name\":"
        "\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":"
        "\"integer\"},\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},\"m\":{\"type\":[\"string\",\"null\"]}}}"
        "}},{\"type\":\"function\",\"function\":{\"name\":\"g\"}}]}";
    api_error error;
    (void)state;
    return api_request_parse(API_CHAT, body, sizeof(body) - 1, 10, NULL, &request, &error) ? 0 : 1;
}

static int free_request(void **state)
{
    (void)state;
    api_request_fini(&request);
    return 0;
}

static void names_and_json(void **state)
{
    (void)state;
    reply_is(TOOLS_DEEPSEEK,
             "So.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"s\": \"}\"}<｜tool▁call▁end｜>"
             "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
             "C[So.]f({\"s\": \"}\"})g({})");
    reply_is(TOOLS_DEEPSEEK,
             "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"n\": 1}\n```"
             "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜>",
             "f({\"n\": 1})g({})");
    reply_is(TOOLS_DEEPSEEK, "<｜tool▁calls▁begin｜> none", "C[<｜tool▁calls▁begin｜> none]");
    reply_is(TOOLS_KIMI,
             "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"n\": 1}"
             "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
             "<|tool_calls_section_end|>",
             "f#functions.f:0({\"n\": 1})g#functions.g:1({})");
    reply_is(TOOLS_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"n\": 1}[TOOL_CALLS]g[CALL_ID]a1b2[ARGS]{}",
             "f({\"n\": 1})g#a1b2({})");
    reply_is(TOOLS_MISTRAL, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]",
             "f({})g({})");
    reply_is(TOOLS_GRANITE,
             "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
             "f({\"n\": 1})g({})");
    reply_is(TOOLS_GRANITE, "<tool_call>[{\"name\": \"f\", \"arguments\": {}}]", "f({})");
    reply_is(TOOLS_COHERE,
             "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"n\": 1}},\n    "
             "{\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {}}\n]<|END_ACTION|>",
             "f({\"n\": 1})g({})");
    reply_is(TOOLS_APERTUS, "So.<|tools_prefix|>[{\"f\": {\"n\": 1}}, {\"g\": {}}]<|tools_suffix|>",
             "C[So.]f({\"n\": 1})g({})");
}

static void keys_and_values(void **state)
{
    (void)state;
    reply_is(TOOLS_GLM,
             "I look.\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>12 <b>\n</arg_value>\n<arg_key>n</arg_key>\n"
             "<arg_value>12</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>",
             "C[I look.\n]f({\"s\":\"12 <b>\\n\",\"n\":12})g({})");
    reply_is(TOOLS_GLM, "<tool_call>f<arg_key>o</arg_key><arg_value>{\"a\": [1]}</arg_value></tool_call>",
             "f({\"o\":{\"a\": [1]}})");
    reply_is(TOOLS_MINIMAX,
             "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">1</parameter>\n<parameter name=\"b\">"
             "True</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
             "f({\"s\":\"1\",\"b\":true})g({})");
    reply_is(TOOLS_QWEN_XML,
             "<tool_call>\n<function=f>\n<parameter=s>\nline 1\n  line 2\n</parameter>\n<parameter=m>\nnull\n"
             "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n<parameter=other>\n[1, 2]\n"
             "</parameter>\n</function>\n</tool_call>",
             "f({\"s\":\"line 1\\n  line 2\",\"m\":null})g({\"other\":[1, 2]})");
    reply_is(TOOLS_QWEN_XML, "<function=f>\n<parameter=o>\nnot JSON\n</parameter>\n</function>\n</tool_call>",
             "f({\"o\":\"not JSON\"})");
    reply_is(TOOLS_SEED, "<seed:tool_call>\n<function=f>\n<parameter=n>5</parameter>\n</function>\n</seed:tool_call>",
             "f({\"n\":5})");
    reply_is(TOOLS_QWEN_XML, "a < b and <tool", "C[a < b and <tool]");
}

static void typed_values(void **state)
{
    (void)state;
    reply_is(
        TOOLS_DSML,
        "So.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">"
        "12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">[12]</｜DSML｜parameter>\n"
        "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        "C[So.\n\n]f({\"s\":\"12\",\"n\":[12]})g({})");
    reply_is(TOOLS_DSML, "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>", "g({})");
}

static void literals(void **state)
{
    (void)state;
    reply_is(TOOLS_LLAMA4,
             "<|python_start|>[f(s='it\\'s \\u00e9', n=-1, o={'a': [1, None], \"b\": True}), g()]<|python_end|>",
             "f({\"s\":\"it's \u00e9\",\"n\":-1,\"o\":{\"a\":[1,null],\"b\":true}})g({})");
    reply_is(TOOLS_LLAMA4, "[f(s=\"a)b\")]", "f({\"s\":\"a)b\"})");
    reply_is(TOOLS_OLMO, "<function_calls>f(s=\"a\", o={\"k\": true})\ng()</function_calls>",
             "f({\"s\":\"a\",\"o\":{\"k\":true}})g({})");
    reply_is(TOOLS_LLAMA4, "{\"name\": \"f\", \"parameters\": {\"n\": 1}}", "f({\"n\": 1})");
    reply_is(TOOLS_LLAMA4, "[1] is a source.", "C[[1] is a source.]");
    reply_is(TOOLS_LLAMA4, "[h(n=1)]", "C[[h(n=1)]]");
    reply_is(TOOLS_GEMMA,
             "<|tool_call>call:f{s:<|\"|>a, \"b\"}<|\"|>,n:12,o:{k:[1,<|\"|>x<|\"|>],t:true}}<tool_call|>"
             "<|tool_call>call:g{}<tool_call|>",
             "f({\"s\":\"a, \\\"b\\\"}\",\"n\":12,\"o\":{\"k\":[1,\"x\"],\"t\":true}})g({})");
    reply_is(TOOLS_GEMMA_FUNCTION, "<start_function_call>call:f{s:<escape>dark<escape>,n:5}<end_function_call>",
             "f({\"s\":\"dark\",\"n\":5})");
}

/* A call that does not end is none in a whole reply, and one in a stream, which has begun to write it. */
static void calls_are_cut(void **state)
{
    (void)state;
    static const struct {
        tool_style style;
        const char *text, *streamed;
    } cases[] = {{TOOLS_GLM, "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n<arg_key>s", "f({\"n\":1)"},
                 {TOOLS_KIMI,
                  "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"n\": ", "f#functions.f:0({\"n\": )"},
                 {TOOLS_LLAMA4, "[f(n=1, s='a", "f({\"n\":1)"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char all[256];
        request.tool_style = cases[i].style;
        read_reply(cases[i].text, 3, false);
        assert_string_equal(found, cases[i].streamed);
        read_reply(cases[i].text, strlen(cases[i].text), true);
        snprintf(all, sizeof(all), "C[%s]", cases[i].text);
        assert_string_equal(found, all);
    }
    request.parallel_tools = false;
    reply_is(TOOLS_GLM, "<tool_call>f\n</tool_call><tool_call>g\n</tool_call>", "f({})");
    request.parallel_tools = true;
}

static void take_reasoning(const char *template)
{
    trm_chat_template *chat;
    assert_int_equal(trm_chat_template_parse("t", template, strlen(template), &chat), TRM_OK);
    request.reasoning = reasoning_of(chat);
    trm_chat_template_close(chat);
}

static void reasoning_comes_first(void **state)
{
    (void)state;
    take_reasoning("</think>");
    reply_is(TOOLS_GLM, "\n<think>Hm <tool_call> no.</think>\nYes.\n<tool_call>g\n</tool_call>",
             "R[Hm <tool_call> no.]C[Yes.\n]g({})");
    request.reasoning_open = true;
    reply_is(TOOLS_MINIMAX, "Hm.\n</think>\n\n<minimax:tool_call>\n<invoke name=\"g\">\n</invoke>", "R[Hm.]g({})");
    request.include_reasoning = false;
    reply_is(TOOLS_DEEPSEEK, "Hm.</think>Yes.", "C[Yes.]");
    request.include_reasoning = true;
    request.reasoning_open = false;
    take_reasoning("{{ '</seed:think>' }}");
    reply_is(TOOLS_SEED, "<seed:think>Hm.</seed:think>Yes.", "R[Hm.]C[Yes.]");
    take_reasoning("<|END_THINKING|>");
    reply_is(TOOLS_COHERE, "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Yes.<|END_RESPONSE|>",
             "R[Hm.]C[Yes.]");
    take_reasoning("[/THINK]");
    reply_is(TOOLS_MISTRAL, "[THINK]Hm.[/THINK]Yes.[TOOL_CALLS]g[ARGS]{}", "R[Hm.]C[Yes.]g({})");
    take_reasoning("<channel|>");
    reply_is(TOOLS_GEMMA, "<|channel>thought\nHm.<channel|>Yes.<|tool_call>call:g{}<tool_call|>", "R[Hm.]C[Yes.]g({})");
    reply_is(TOOLS_GEMMA, "<|channel>thought\n<channel|>Yes.", "C[Yes.]");
    take_reasoning("'Here is my thought process:' and 'Here is my response:'");
    reply_is(TOOLS_GRANITE, "Here is my thought process: Hm.\n\nHere is my response: Yes.", "R[Hm.]C[Yes.]");
    take_reasoning("<think></think> and <response></response>");
    reply_is(TOOLS_GRANITE, "<think>Hm.</think><response>\nYes.</response>", "R[Hm.]C[Yes.]");
    reply_is(TOOLS_GRANITE, "<think>Hm.</think> Yes </resp", "R[Hm.]C[Yes </resp]");
    request.reasoning = NULL;
}

static void styles_have_signs(void **state)
{
    static const struct {
        const char *text;
        tool_style style;
    } cases[] = {{"<tool_call> <function=f> <parameter=p>", TOOLS_QWEN_XML},
                 {"<tool_call>{name} <arg_key>", TOOLS_GLM},
                 {"<tool_call>", TOOLS_HERMES},
                 {"<|tool_call|>", TOOLS_GRANITE},
                 {"<|tool_call>", TOOLS_GEMMA},
                 {"[TOOL_CALLS]", TOOLS_MISTRAL},
                 {"<|python_start|>", TOOLS_LLAMA4}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        trm_chat_template *chat;
        assert_int_equal(trm_chat_template_parse("t", cases[i].text, strlen(cases[i].text), &chat), TRM_OK);
        assert_int_equal(tools_style(chat, NULL), cases[i].style);
        trm_chat_template_close(chat);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_and_json),   cmocka_unit_test(keys_and_values),
                                       cmocka_unit_test(typed_values),     cmocka_unit_test(literals),
                                       cmocka_unit_test(calls_are_cut),    cmocka_unit_test(reasoning_comes_first),
                                       cmocka_unit_test(styles_have_signs)};
    return cmocka_run_group_tests(tests, make_request, free_request);
}
