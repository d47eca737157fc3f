/* Streaming text with stop strings, on the shipped model's tokenizer. */
#include "support/support.h"

#include <stdio.h>

#include "launcher/text/text_sink.h"

#define MODEL TRM_SOURCE_DIR "/configs/models/kjv-7m"

static trm_tokenizer *tokenizer;
static char *printed;
static size_t printed_size;

static int open_tokenizer(void **state)
{
    (void)state;
    return trm_tokenizer_open(MODEL, &tokenizer) == TRM_OK ? 0 : -1;
}

static int close_tokenizer(void **state)
{
    (void)state;
    trm_tokenizer_close(tokenizer);
    return 0;
}

/* Pushes the tokens of `text` until the sink stops, checking after each that what has been printed is a beginning of
 * the text before `stop_at`. Returns how many tokens it took. `bytewise`: one token per byte. */
static size_t pour(text_sink *sink, const char *text, size_t stop_at, bool bytewise)
{
    trm_tokens tokens = {NULL, 0};
    if (bytewise) {
        for (const char *c = text; *c != '\0'; c++) {
            trm_tokens one;
            assert_ok(trm_tokenizer_encode(tokenizer, c, 1, false, &one));
            assert_int_equal(one.count, 1);
            tokens.ids = realloc(tokens.ids, (tokens.count + 1) * sizeof(*tokens.ids));
            tokens.ids[tokens.count++] = one.ids[0];
            trm_tokens_fini(&one);
        }
    } else {
        assert_ok(trm_tokenizer_encode(tokenizer, text, strlen(text), false, &tokens));
    }
    size_t taken = 0;
    while (taken < tokens.count && !sink->stopped) {
        assert_ok(text_sink_push(sink, tokens.ids[taken++]));
        fflush(sink->out);
        assert_true(printed_size <= stop_at);
        assert_memory_equal(printed, text, printed_size);
    }
    trm_tokens_fini(&tokens);
    return taken;
}

static void expect(const char *text, const char *const *stops, int32_t n_stops, size_t stop_at)
{
    for (int bytewise = 0; bytewise < 2; bytewise++) {
        text_sink sink;
        FILE *out = open_memstream(&printed, &printed_size);
        assert_ok(text_sink_init(&sink, tokenizer, true, stops, n_stops, out));
        pour(&sink, text, stop_at, bytewise == 1);
        assert_int_equal(sink.stopped, stop_at < strlen(text));
        assert_ok(text_sink_finish(&sink));
        fclose(out);
        assert_int_equal(sink.size, stop_at);
        assert_int_equal(strlen(sink.text), stop_at);
        assert_memory_equal(sink.text, text, stop_at);
        assert_int_equal(printed_size, stop_at);
        assert_memory_equal(printed, text, stop_at);
        text_sink_fini(&sink);
        free(printed);
    }
}

static const char verse[] = " God created the heaven and the earth.\nAnd the earth was without form, and void;";

static void without_stops_all_is_text(void **state)
{
    (void)state;
    expect(verse, NULL, 0, strlen(verse));
    expect("", NULL, 0, 0);
}

static void stops_end_the_text_before_them(void **state)
{
    (void)state;
    static const struct {
        const char *stops[3];
        int32_t n;
        const char *at; /* where the text ends; NULL: nowhere */
    } cases[] = {
        {{"earth"}, 1, "earth.\n"},
        {{" God"}, 1, " God"},
        {{".\nAnd the"}, 1, ".\nAnd"},             /* over tokens */
        {{"eart", "the heaven"}, 2, "the heaven"}, /* the earlier one wins */
        {{"heaven", "the heaven"}, 2, "the heaven"},
        {{"the earth was"}, 1, "the earth was"}, /* half matches "the heaven", "the earth." before it */
        {{"earth was without form, and void;"}, 1, "earth was"},
        {{"void; And"}, 1, NULL}, /* begins at the end, does not come */
        {{";;"}, 1, NULL},
        {{"Heaven", "EARTH", "x"}, 3, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *at = cases[i].at == NULL ? NULL : strstr(verse, cases[i].at);
        expect(verse, cases[i].stops, cases[i].n, at == NULL ? strlen(verse) : (size_t)(at - verse));
    }
    static const char *const overlapping[] = {"aab"};
    expect("aaab", overlapping, 1, 1);
    static const char *const repeated[] = {"abac"};
    expect("ababac", repeated, 1, 2);
}

static void text_waits_only_while_it_must(void **state)
{
    (void)state;
    static const char *const stops[] = {"earth was"};
    text_sink sink;
    FILE *out = open_memstream(&printed, &printed_size);
    assert_ok(text_sink_init(&sink, tokenizer, true, stops, 1, out));
    pour(&sink, " and the ear", 12, true);
    assert_int_equal(printed_size, strlen(" and the ")); /* "ear" may be the beginning of a stop */
    pour(&sink, "", 12, true);
    assert_ok(text_sink_finish(&sink));
    fclose(out);
    assert_string_equal(printed, " and the ear"); /* it was not */
    text_sink_fini(&sink);
    free(printed);
}

/* What may be the beginning of one stop string hides another until the end tells that it was none. */
static void what_a_beginning_hides_is_found_at_the_end(void **state)
{
    (void)state;
    static const char *const stops[] = {"form, and void; The", "void"};
    const size_t held = (size_t)(strstr(verse, "form") - verse), stop_at = (size_t)(strstr(verse, "void") - verse);
    text_sink sink;
    FILE *out = open_memstream(&printed, &printed_size);
    assert_ok(text_sink_init(&sink, tokenizer, true, stops, 2, out));
    pour(&sink, verse, stop_at, false);
    assert_false(sink.stopped);
    assert_int_equal(printed_size, held);
    assert_ok(text_sink_finish(&sink));
    fclose(out);
    assert_true(sink.stopped);
    assert_ptr_equal(sink.stop, stops[1]);
    assert_int_equal(sink.size, stop_at);
    assert_int_equal(printed_size, stop_at);
    text_sink_fini(&sink);
    free(printed);
}

static void a_stop_string_may_be_kept(void **state)
{
    (void)state;
    static const char *const stops[] = {"earth was"};
    const size_t end = (size_t)(strstr(verse, "earth was") - verse) + strlen("earth was");
    text_sink sink;
    FILE *out = open_memstream(&printed, &printed_size);
    assert_ok(text_sink_init(&sink, tokenizer, true, stops, 1, out));
    sink.keep_stop = true;
    pour(&sink, verse, end, true);
    assert_ok(text_sink_finish(&sink));
    fclose(out);
    assert_true(sink.stopped);
    assert_int_equal(sink.size, end);
    assert_int_equal(printed_size, end);
    text_sink_fini(&sink);
    free(printed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_stops_all_is_text),     cmocka_unit_test(stops_end_the_text_before_them),
        cmocka_unit_test(text_waits_only_while_it_must), cmocka_unit_test(what_a_beginning_hides_is_found_at_the_end),
        cmocka_unit_test(a_stop_string_may_be_kept),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
