/* The JSON writer: what it writes is JSON and reads back as what was given. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "launcher/cli/job/report.h"

static char *text;
static size_t text_size;

static void begin(report *r)
{
    FILE *out = open_memstream(&text, &text_size);
    assert_non_null(out);
    report_begin(r, out);
}

/* Ends the report and reads it back; the caller frees `text`. */
static trm_json_document *end(report *r)
{
    report_end(r);
    fclose(r->out);
    trm_json_document *document;
    assert_ok(trm_json_parse("report", text, text_size, &document));
    return document;
}

static void values_read_back(void **state)
{
    (void)state;
    report r;
    begin(&r);
    report_text(&r, "text", "a \"quoted\" \\ path\n\ttab \r\x01 end");
    report_text(&r, "none", NULL);
    report_integer(&r, "integer", -9007199254740991);
    report_number(&r, "number", 0.125);
    report_number(&r, "infinite", INFINITY);
    report_number(&r, "undefined", NAN);
    report_bool(&r, "yes", true);
    report_bool(&r, "no", false);
    trm_json_document *document = end(&r);
    const trm_json *root = trm_json_root(document);
    int64_t integer;
    assert_string_equal(trm_json_string(trm_json_get(root, "text")), "a \"quoted\" \\ path\n\ttab \r\x01 end");
    assert_non_null(strstr(text, "\"none\": null"));
    assert_true(trm_json_integer(trm_json_get(root, "integer"), &integer));
    assert_int_equal(integer, -9007199254740991);
    assert_true(trm_json_number(trm_json_get(root, "number"), 0.0) == 0.125);
    assert_non_null(strstr(text, "\"infinite\": null"));
    assert_non_null(strstr(text, "\"undefined\": null"));
    assert_true(trm_json_truth(trm_json_get(root, "yes"), false));
    assert_false(trm_json_truth(trm_json_get(root, "no"), true));
    assert_int_equal(trm_json_count(root), 8);
    trm_json_close(document);
    free(text);
}

static void nesting_closes_itself(void **state)
{
    (void)state;
    report r;
    begin(&r);
    report_open(&r, "list", '[');
    for (int i = 0; i < 3; i++) {
        report_open(&r, NULL, '{');
        report_integer(&r, "i", i);
        report_close(&r);
    }
    report_open(&r, NULL, '[');
    report_close(&r);
    report_close(&r);
    report_open(&r, "left open", '{');
    report_open(&r, "deeper", '[');
    report_integer(&r, NULL, 7);
    trm_json_document *document = end(&r);
    const trm_json *root = trm_json_root(document), *list = trm_json_get(root, "list");
    assert_int_equal(trm_json_count(list), 4);
    assert_true(trm_json_number(trm_json_get(trm_json_at(list, 2), "i"), -1.0) == 2.0);
    assert_true(trm_json_is_array(trm_json_at(list, 3)));
    assert_int_equal(trm_json_count(trm_json_get(trm_json_get(root, "left open"), "deeper")), 1);
    trm_json_close(document);
    free(text);
}

static void nothing_is_an_empty_object(void **state)
{
    (void)state;
    report r;
    begin(&r);
    trm_json_document *document = end(&r);
    assert_string_equal(text, "{}\n");
    trm_json_close(document);
    free(text);
}

static void bytes_become_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *expected;
    } cases[] = {
        {"", 0, ""},
        {"caf\xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80", 14, "caf\xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80"},
        {"a\xFF\xFE"
         "b",
         4,
         "a\xEF\xBF\xBD\xEF\xBF\xBD"
         "b"},
        {"cut \xE6\xBC", 6, "cut \xEF\xBF\xBD"},
        {"\xED\xA0\x80", 3, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"}, /* a surrogate */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        report r;
        begin(&r);
        report_bytes(&r, "key", cases[i].bytes, cases[i].size);
        trm_json_document *document = end(&r);
        assert_string_equal(trm_json_string(trm_json_get(trm_json_root(document), "key")), cases[i].expected);
        trm_json_close(document);
        free(text);
    }
    report r;
    begin(&r);
    report_bytes(&r, "nul", "a\0b", 3);
    report_end(&r);
    fclose(r.out);
    assert_non_null(strstr(text, "\"a\\u0000b\""));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_read_back),
        cmocka_unit_test(nesting_closes_itself),
        cmocka_unit_test(nothing_is_an_empty_object),
        cmocka_unit_test(bytes_become_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
