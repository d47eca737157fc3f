/* Request bodies and JSON out, as units. */
#include "launcher/serve/json/json_value.h"
#include "launcher/serve/requests/api_request.h"
#include "support/support.h"

#include <stdio.h>

static const char *const names[] = {"m", NULL};

static api_request parsed(api_kind kind, const char *body)
{
    api_request request;
    api_error error = {0};
    bool ok = api_request_parse(kind, body, strlen(body), 100, names, &request, &error);
    if (!ok) {
        print_error("%s: %s\n", body, error.message);
    }
    assert_true(ok);
    return request;
}

static void refused(api_kind kind, const char *body, int status, const char *param, const char *part)
{
    api_request request;
    api_error error;
    assert_false(api_request_parse(kind, body, strlen(body), 100, names, &request, &error));
    assert_int_equal(error.status, status);
    if (param == NULL) {
        assert_null(error.param);
    } else {
        assert_string_equal(error.param, param);
    }
    if (strstr(error.message, part) == NULL) {
        fail_msg("\"%s\" has no \"%s\"", error.message, part);
    }
}

static void defaults_are_openais(void **state)
{
    (void)state;
    api_request r = parsed(API_COMPLETION, "{\"prompt\":\"a\"}");
    assert_int_equal(r.max_tokens, 16);
    assert_true(r.temperature == 1 && r.top_p == 1 && r.repetition_penalty == 1 && r.presence_penalty == 0);
    assert_int_equal(r.logprobs, -1);
    assert_false(r.stream || r.echo || r.has_seed || r.ignore_eos);
    assert_string_equal(r.prompts[0].text, "a");
    api_request_fini(&r);
    r = parsed(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");
    assert_int_equal(r.max_tokens, -1);
    api_request_fini(&r);
}

static void values_are_taken(void **state)
{
    (void)state;
    api_request r = parsed(
        API_COMPLETION,
        "{\"model\":\"m\",\"prompt\":[[1,2],[3]],\"n\":3,\"seed\":-1,\"top_k\":-1,\"stop\":\"x\","
        "\"stop_token_ids\":[9],\"logprobs\":0,\"logit_bias\":{\"5\":-2.5},"
        "\"max_tokens\":0,\"top_p\":0,\"typical_p\":0,\"min_tokens\":4,\"timeout\":1.5,\"user\":\"u\",\"unknown\":[]}");
    assert_int_equal(r.n_prompts, 2);
    assert_int_equal(r.prompts[0].n_ids, 2);
    assert_int_equal(r.prompts[1].ids[0], 3);
    assert_int_equal(r.seed, UINT64_MAX);
    assert_int_equal(r.top_k, 0);
    assert_true(r.top_p > 0 && r.typical_p > 0);
    assert_string_equal(r.stops[0], "x");
    assert_int_equal(r.stop_ids[0], 9);
    assert_int_equal(r.logprobs, 0);
    assert_int_equal(r.biases[0].token, 5);
    assert_true(r.biases[0].bias == -2.5f);
    assert_int_equal(r.max_tokens, 0);
    assert_int_equal(r.min_tokens, 4);
    assert_true(r.timeout == 1.5);
    api_request_fini(&r);
    r = parsed(API_CHAT,
               "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"response_format\":{\"type\":\"json_schema\","
               "\"json_schema\":{\"name\":\"n\",\"schema\":{\"type\":\"object\",\"maximum\":1.5}}}}");
    assert_int_equal(r.format, API_FORMAT_SCHEMA);
    assert_string_equal(r.grammar, "{\"type\":\"object\",\"maximum\":1.5}");
    api_request_fini(&r);
}

static void what_is_not_supported_is_refused(void **state)
{
    (void)state;
    static const char *const asked[] = {
        "\"function_call\":\"f\"",  "\"bad_words\":\"none\"", "\"truncate_prompt_tokens\":4",
        "\"use_beam_search\":true", "\"functions\":[{}]",     "\"prompt_embeds\":\"auto\"",
        "\"chat_template\":\"x\"",  "\"documents\":[{}]",
    };
    static const char *const nothing[] = {
        "\"function_call\":\"none\"",
        "\"function_call\":\"auto\"",
        "\"prompt_embeds\":\"\"",
        "\"bad_words\":[]",
        "\"grammar\":\"\"",
        "\"suffix\":\"\"",
        "\"structured_outputs\":{\"json_object\":false}",
        "\"chat_template\":null",
        "\"truncate_prompt_tokens\":0",
        "\"chat_template\":\"\"",
        "\"documents\":[]",
    };
    char body[256];
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        char key[32];
        sscanf(asked[i], "\"%31[a-z_]", key);
        snprintf(body, sizeof(body), "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],%s}", asked[i]);
        refused(API_CHAT, body, 400, key, "is not supported");
    }
    for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++) {
        snprintf(body, sizeof(body), "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],%s}", nothing[i]);
        api_request r = parsed(API_CHAT, body);
        api_request_fini(&r);
    }
    api_request r = parsed(API_COMPLETION, "{\"prompt\":\"a\",\"documents\":[{}]}"); /* a word of chats only */
    api_request_fini(&r);
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    refused(API_COMPLETION, "", 400, NULL, "body: line 1");
    refused(API_COMPLETION, "[]", 400, NULL, "not a JSON object");
    refused(API_COMPLETION, "{}", 400, "prompt", "prompt is missing");
    refused(API_COMPLETION, "{\"model\":\"x\",\"prompt\":\"a\"}", 404, "model", "model x does not exist");
    refused(API_COMPLETION, "{\"prompt\":[1,100]}", 400, "prompt", "not a token id from 0 to 99");
    refused(API_COMPLETION, "{\"prompt\":\"a\",\"temperature\":-1}", 400, "temperature", "temperature is -1");
    refused(API_COMPLETION, "{\"prompt\":\"a\",\"n\":129}", 400, "n", "n is 129");
    refused(API_COMPLETION, "{\"prompt\":[\"a\",\"b\"],\"n\":128}", 400, "prompt",
            "prompt has 2 entries, expected at most 1");
    refused(API_COMPLETION, "{\"prompt\":\"a\",\"n\":2,\"best_of\":1}", 400, "best_of", "best_of is 1");
    refused(API_COMPLETION, "{\"prompt\":\"a\",\"stream\":true,\"best_of\":3}", 400, "best_of", "the same");
    refused(API_COMPLETION, "{\"prompt\":\"a\",\"seed\":0.5}", 400, "seed", "expected an integer");
    refused(API_COMPLETION, "{\"prompt\":\"a\",\"logit_bias\":{\"99999999999\":1}}", 400, "logit_bias", "99999999999");
    refused(API_COMPLETION, "{\"prompt\":\"a\",\"guided_regex\":\"a\",\"guided_choice\":[\"a\"]}", 400, "guided_choice",
            "another output format");
    refused(API_CHAT, "{\"messages\":[]}", 400, "messages", "messages is missing or empty");
    refused(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"top_logprobs\":2}", 400, "top_logprobs",
            "needs logprobs");
    refused(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"response_format\":{\"type\":\"xml\"}}",
            400, "response_format", "type xml");
    refused(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":null}]}]}", 400,
            "messages", "part of type text without a text");
    refused(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"modalities\":[\"text\",\"audio\"]}", 400,
            "modalities", "audio");
    refused(API_COMPLETION, "{\"prompt\":\"a\",\"stream\":true,\"stream_options\":{\"include_usage\":\"yes\"}}", 400,
            "stream_options", "include_usage is \"yes\"");
    refused(API_RESPONSE, "{\"input\":\"a\",\"instructions\":[\"b\"]}", 400, "instructions", "expected a string");
    refused(API_EMBEDDING, "{\"input\":[[100]]}", 400, "input",
            "input has an element that is not a token id from 0 to 99");
    refused(API_RESPONSE, "{\"input\":\"a\",\"background\":true}", 400, "background", "not stored");
    refused(API_RESPONSE, "{\"input\":\"a\",\"conversation\":\"c\"}", 400, "conversation", "not stored");
    refused(API_RESPONSE, "{\"input\":\"a\",\"prompt\":{\"id\":\"p\"}}", 400, "prompt", "no prompts are stored");
    refused(API_RESPONSE, "{\"input\":\"a\",\"tool_choice\":\"required\"}", 400, "tool_choice", "needs tools");
    refused(API_RESPONSE, "{\"input\":\"a\",\"text\":\"json\"}", 400, "text", "not an object");
    refused(API_RESPONSE, "{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"xml\"}}}", 400, "text.format", "type xml");
    refused(API_RESPONSE, "{\"input\":\"a\",\"include\":\"x\"}", 400, "include", "array of strings");
    refused(API_RESPONSE, "{\"input\":\"a\",\"top_logprobs\":21}", 400, "top_logprobs", "is 21");
    refused(API_EMBEDDING, "{\"input\":\"a\",\"truncate_prompt_tokens\":5}", 400, "truncate_prompt_tokens",
            "not supported");
    refused(API_EMBEDDING, "{\"input\":\"a\",\"normalize\":false}", 400, "normalize", "length 1");
    refused(API_COMPLETION, "{\"prompt\":\"a\",\"structured_outputs\":{\"structural_tag\":\"{}\"}}", 400,
            "structured_outputs", "structural_tag");
    refused(API_COMPLETION, "{\"prompt\":\"a\",\"structured_outputs\":{\"json_object\":1}}", 400, "structured_outputs",
            "not true or false");
    refused(API_COMPLETION, "{\"prompt\":\"a\",\"grammar\":\"root ::= [a]\",\"json_schema\":{}}", 400, "grammar",
            "another output format");
    refused(API_RESPONSE, "{\"input\":\"a\",\"prompt_logprobs\":0}", 400, "prompt_logprobs", "responses have no");
    refused(API_MESSAGES,
            "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"prompt_logprobs\":2}", 400,
            "prompt_logprobs", "messages have no");
    api_request r = parsed(API_RESPONSE, "{\"input\":\"a\",\"background\":false,\"conversation\":null,"
                                         "\"prompt_logprobs\":null,\"tool_choice\":\"auto\",\"text\":{}}");
    api_request_fini(&r);
}

static void format_is(api_kind kind, const char *member, api_format format, const char *grammar)
{
    char body[256];
    snprintf(body, sizeof(body), "{\"prompt\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],%s}", member);
    api_request r = parsed(kind, body);
    assert_int_equal(r.format, format);
    assert_true((grammar == NULL) == (r.grammar == NULL));
    if (grammar != NULL) {
        assert_string_equal(r.grammar, grammar);
    }
    api_request_fini(&r);
}

/* Under the names that several servers have for them. */
static void formats_are_taken(void **state)
{
    (void)state;
    format_is(API_CHAT, "\"response_format\":{\"type\":\"json_object\"}", API_FORMAT_JSON, NULL);
    format_is(API_CHAT, "\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"null\"}}",
              API_FORMAT_SCHEMA, "{\"type\":\"null\"}");
    format_is(API_CHAT, "\"response_format\":{\"type\":\"text\"}", API_FORMAT_TEXT, NULL);
    format_is(API_CHAT, "\"json_schema\":{\"type\":\"null\"}", API_FORMAT_SCHEMA, "{\"type\":\"null\"}");
    format_is(API_COMPLETION, "\"grammar\":\"root ::= [a]\"", API_FORMAT_EBNF, "root ::= [a]");
    format_is(API_COMPLETION, "\"structured_outputs\":{\"json_object\":true}", API_FORMAT_JSON, NULL);
    format_is(API_COMPLETION, "\"structured_outputs\":{\"json\":{\"const\":1}}", API_FORMAT_SCHEMA, "{\"const\":1}");
    format_is(API_MESSAGES, "\"max_tokens\":1,\"guided_regex\":\"a\"", API_FORMAT_REGEX, "a");
}

static void json_is_escaped(void **state)
{
    (void)state;
    json_text json = {0};
    json_object(&json, NULL);
    json_bytes(&json, "a\"b", "q\"\\\n\x01\x7f\xc3\xa9\xff.", 10);
    json_array(&json, "n");
    json_integer(&json, NULL, -5);
    json_integer(&json, NULL, 0);
    json_integer(&json, NULL, 1234567890123);
    json_integer(&json, NULL, INT64_MIN);
    json_integer(&json, NULL, INT64_MAX);
    json_number(&json, NULL, 0.25);
    json_number(&json, NULL, 1.0 / 0.0);
    json_bool(&json, NULL, true);
    json_null(&json, NULL);
    json_end_array(&json);
    json_object(&json, "o");
    json_end_object(&json);
    json_end_object(&json);
    assert_int_equal(json.status, TRM_OK);
    assert_int_equal(trm_bytes_append(&json.bytes, "", 1), TRM_OK);
    assert_string_equal(json.bytes.data,
                        "{\"a\\\"b\":\"q\\\"\\\\\\n\\u0001\\u007f\xc3\xa9\xef\xbf\xbd.\",\"n\":[-5,0,1234567890123,"
                        "-9223372036854775808,9223372036854775807,0.25,null,true,null],\"o\":{}}");
    json_text_fini(&json);
}

static void values_are_written_again(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":[1,2.5,-3e+100,true,null,\"x\\ny\"],\"b\":{\"c\":{}}}";
    trm_json_document *document;
    json_text json = {0};
    assert_ok(trm_json_parse("t", text, strlen(text), &document));
    json_value(&json, NULL, trm_json_root(document));
    assert_int_equal(json.bytes.size, strlen("{\"a\":[1,2.5,-3e+100,true,null,\"x\\ny\"],\"b\":{\"c\":{}}}"));
    assert_memory_equal(json.bytes.data, text, json.bytes.size);
    json_text_fini(&json);
    trm_json_close(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults_are_openais),
                                       cmocka_unit_test(values_are_taken),
                                       cmocka_unit_test(what_is_not_supported_is_refused),
                                       cmocka_unit_test(wrong_values_are_refused),
                                       cmocka_unit_test(formats_are_taken),
                                       cmocka_unit_test(json_is_escaped),
                                       cmocka_unit_test(values_are_written_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
