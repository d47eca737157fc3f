/* JSON: what is refused and where, look-ups, typed members, large objects. */
#include "support/support.h"

#include <stdio.h>
#include <time.h>

#include "base/json.h"

static trm_json_document *parse(const char *text)
{
    trm_json_document *document = NULL;
    assert_ok(trm_json_parse("test.json", text, strlen(text), &document));
    return document;
}

static void refuse_bytes(const char *text, size_t size, const char *cause)
{
    /* A copy of the exact size, so that the address sanitizer sees a read past its end. */
    char *exact = malloc(size == 0 ? 1 : size);
    assert_non_null(exact);
    memcpy(exact, text, size);
    trm_json_document *document = NULL;
    assert_fails(trm_json_parse("test.json", exact, size, &document), TRM_ERROR_INVALID_MODEL, cause);
    assert_null(document);
    free(exact);
}

static void refuse(const char *text, const char *cause)
{
    refuse_bytes(text, strlen(text), cause);
}

static void malformed_text_is_refused_with_its_place(void **state)
{
    (void)state;
    refuse("", "test.json: line 1 column 1: unexpected end of text, expected a value");
    refuse(" \n ", "line 2 column 2: unexpected end of text, expected a value");
    refuse("{\n  \"a\": 1,\n  \"b\": ?\n}", "line 3 column 8: found '?', expected a value");
    refuse("{\"a\" 1}", "line 1 column 6: found '1', expected ':'");
    refuse("{\"a\":1 \"b\":2}", "found '\"', expected ',' or '}'");
    refuse("[1 2]", "found '2', expected ',' or ']'");
    refuse("[1,]", "found ']', expected a value");
    refuse("{\"a\":1,}", "found '}', expected a key in quotes");
    refuse("{a:1}", "found 'a', expected a key in quotes");
    refuse("{,}", "found ',', expected a key in quotes");
    refuse("[1}", "found '}', expected ',' or ']'");
    refuse("{\"a\":1]", "found ']', expected ',' or '}'");
    refuse("]", "found ']', expected a value");
    refuse("[", "unexpected end of text, expected a value");
    refuse("[1", "unexpected end of text, expected ',' or ']'");
    refuse("{\"a\":", "unexpected end of text, expected a value");
    refuse("1 2", "column 3: found '2', expected the end of the text");
    refuse("{} x", "found 'x', expected the end of the text");
    refuse("\xef\xbb\xbf{}", "found byte 0xef, expected a value");
    refuse_bytes("{}\0", 3, "column 3: found byte 0x00, expected the end of the text");
    refuse("\v1", "found byte 0x0b, expected a value");
    refuse("tru", "found 't', expected a value");
    refuse("nulL", "found 'n', expected a value");
    refuse("NaN", "found 'N', expected a value");
    refuse("trueish", "found 'i', expected the end of the text");
}

static void malformed_numbers_are_refused(void **state)
{
    (void)state;
    refuse("01", "column 2: found '1', expected the end of the text");
    refuse("+1", "found '+', expected a value");
    refuse("-", "unexpected end of text, expected a digit");
    refuse("-x", "found 'x', expected a digit");
    refuse("1.", "unexpected end of text, expected a digit");
    refuse(".5", "found '.', expected a value");
    refuse("1e", "unexpected end of text, expected a digit");
    refuse("1e+", "unexpected end of text, expected a digit");
    refuse("0x10", "found 'x', expected the end of the text");
    refuse("[1, 1e999]", "column 5: number out of range");
    refuse("{\"a\":{\"b\":[1,2]},\n\"c\":-2e308}", "line 2 column 5: number out of range");
    refuse("1111111111111111111111111111111111111111111111111111111111111111", "number of more than 63 characters");
}

static void malformed_strings_are_refused(void **state)
{
    (void)state;
    refuse("\"abc", "column 1: unterminated string");
    refuse("\"abc\\", "invalid escape");
    refuse("\"a\\x\"", "column 3: invalid escape");
    refuse("\"a\nb\"", "control character in a string");
    refuse_bytes("\"a\0b\"", 5, "control character in a string");
    refuse("\"\\u12g4\"", "\\u without four hexadecimal digits");
    refuse("\"\\u12", "\\u without four hexadecimal digits");
    refuse("\"\\u0000\"", "\\u0000 in a string");
    refuse("\"\\ud800\"", "unpaired surrogate");
    refuse("\"\\udc00\"", "unpaired surrogate");
    refuse("\"\\ud800\\u0041\"", "unpaired surrogate");
    refuse("\"\\ud800\\", "unpaired surrogate");
    refuse("\"\x80\"", "column 2: invalid UTF-8");
    refuse("\"\xc0\xaf\"", "invalid UTF-8");
    refuse("\"\xc3\"", "invalid UTF-8");
    refuse("\"\xe0\x80\x80\"", "invalid UTF-8");
    refuse("\"\xed\xa0\x80\"", "invalid UTF-8");
    refuse("\"\xf4\x90\x80\x80\"", "invalid UTF-8");
    refuse("\"\xf0\x9f\x98", "invalid UTF-8");
    refuse("\"\xf8\x88\x80\x80\x80\"", "invalid UTF-8");
}

static void well_formed_strings_are_decoded(void **state)
{
    (void)state;
    trm_json_document *document =
        parse("[\"\\u00e9\\ud83d\\ude00\\n\\\"\\/\", \"\xe0\xa0\x80\xf4\x8f\xbf\xbf\", \"\"]");
    const trm_json *root = trm_json_root(document);
    assert_string_equal(trm_json_string(trm_json_at(root, 0)), "\xc3\xa9\xf0\x9f\x98\x80\n\"/");
    assert_string_equal(trm_json_string(trm_json_at(root, 1)), "\xe0\xa0\x80\xf4\x8f\xbf\xbf");
    assert_string_equal(trm_json_string(trm_json_at(root, 2)), "");
    trm_json_close(document);
}

static void nesting_ends_at_64_levels(void **state)
{
    (void)state;
    char text[2 * 65 + 1];
    for (int depth = 64; depth <= 65; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        if (depth == 64) {
            trm_json_close(parse(text));
        } else {
            refuse(text, "column 65: nested more than 64 levels deep");
        }
    }
    size_t size = 10 << 20; /* a stack overflow if anything recursed */
    char *deep = malloc(size);
    assert_non_null(deep);
    memset(deep, '[', size);
    trm_json_document *document = NULL;
    assert_fails(trm_json_parse("deep", deep, size, &document), TRM_ERROR_INVALID_MODEL, "nested more than 64 levels");
    free(deep);
}

/* A tree takes many times the memory of its text, so its values are counted before it is built. */
static void values_are_limited(void **state)
{
    (void)state;
    const size_t most = ((size_t)1 << 22) - 1; /* elements; the array is a value, too */
    for (size_t n = most; n <= most + 1; n++) {
        const size_t size = 2 * n + 1; /* [1,1,1] */
        char *text = malloc(size);
        assert_non_null(text);
        for (size_t i = 0; i < size; i++) {
            text[i] = i == 0 ? '[' : i + 1 == size ? ']' : i % 2 == 1 ? '1' : ',';
        }
        trm_json_document *document = NULL;
        if (n == most) {
            assert_ok(trm_json_parse("many", text, size, &document));
            assert_int_equal(trm_json_count(trm_json_root(document)), most);
            trm_json_close(document);
        } else {
            assert_fails(trm_json_parse("many", text, size, &document), TRM_ERROR_INVALID_MODEL,
                         "many: line 1 column 8388608: more than 4194304 values");
        }
        free(text);
    }
}

static void duplicate_keys_are_refused(void **state)
{
    (void)state;
    refuse("{\"a\":1,\n \"a\":2}", "line 2 column 2: duplicate key \"a\"");
    refuse("{\"x\":{\"b\":1,\"c\":[{\"q\":1}],\"\\u0062\":2}}", "column 27: duplicate key \"b\"");
    refuse("{\"\":1,\"\":2}", "duplicate key \"\"");
    refuse("{\"\\n\":1,\"\\n\":2}", "duplicate key \"\\n\"");
    trm_json_close(parse("{\"a\":{\"a\":1},\"A\":2}")); /* not duplicates */
    refuse("{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"j\":1,\n\"c\":2}",
           "line 2 column 1: duplicate key \"c\"");
}

static void look_ups(void **state)
{
    (void)state;
    trm_json_document *document =
        parse("{\"s\":\"x\",\"n\":2.5,\"i\":-7,\"t\":true,\"f\":false,\"z\":null,\"a\":[1,null,3],\"o\":{\"k\":1}}");
    const trm_json *root = trm_json_root(document);
    assert_true(trm_json_is_object(root));
    assert_int_equal(trm_json_count(root), 8);
    assert_string_equal(trm_json_string(trm_json_get(root, "s")), "x");
    assert_null(trm_json_get(root, "S"));
    assert_null(trm_json_get(root, "z"));
    assert_null(trm_json_get(NULL, "s"));
    assert_null(trm_json_get(trm_json_get(root, "a"), "s"));
    assert_true(trm_json_number(trm_json_get(root, "n"), 0) == 2.5);
    assert_true(trm_json_number(trm_json_get(root, "s"), 9) == 9);
    assert_true(trm_json_truth(trm_json_get(root, "t"), false));
    assert_false(trm_json_truth(trm_json_get(root, "f"), true));
    assert_true(trm_json_truth(trm_json_get(root, "z"), true));
    int64_t integer = 0;
    assert_true(trm_json_integer(trm_json_get(root, "i"), &integer));
    assert_int_equal(integer, -7);
    assert_false(trm_json_integer(trm_json_get(root, "n"), &integer));
    assert_false(trm_json_integer(NULL, &integer));
    const trm_json *array = trm_json_get(root, "a");
    assert_int_equal(trm_json_count(array), 3);
    assert_null(trm_json_at(array, 1));
    assert_non_null(trm_json_at(array, 2));
    assert_null(trm_json_at(array, 3));
    assert_null(trm_json_at(root, 0));
    size_t steps = 0;
    for (const trm_json *element = trm_json_first(array); element != NULL; element = trm_json_next(element)) {
        steps++;
    }
    assert_int_equal(steps, 3); /* null is an element */
    assert_string_equal(trm_json_key(trm_json_first(trm_json_get(root, "o"))), "k");
    assert_null(trm_json_first(trm_json_get(root, "s")));
    trm_json_close(document);
    trm_json_close(NULL);
}

static void integers_must_be_exact(void **state)
{
    (void)state;
    trm_json_document *document = parse("[9007199254740991,9007199254740992,-9007199254740991,1e3,1.5,1e300,-0]");
    const trm_json *root = trm_json_root(document);
    int64_t integer = 0;
    assert_true(trm_json_integer(trm_json_at(root, 0), &integer));
    assert_true(integer == 9007199254740991);
    assert_false(trm_json_integer(trm_json_at(root, 1), &integer));
    assert_true(trm_json_integer(trm_json_at(root, 2), &integer));
    assert_true(trm_json_integer(trm_json_at(root, 3), &integer));
    assert_int_equal(integer, 1000);
    assert_false(trm_json_integer(trm_json_at(root, 4), &integer));
    assert_false(trm_json_integer(trm_json_at(root, 5), &integer));
    assert_true(trm_json_integer(trm_json_at(root, 6), &integer));
    assert_int_equal(integer, 0);
    trm_json_close(document);
}

static void typed_members(void **state)
{
    (void)state;
    trm_json_document *document = parse("{\"s\":\"x\",\"n\":2.5,\"i\":7,\"t\":true,\"z\":null,\"a\":[1]}");
    const trm_json *root = trm_json_root(document);
    int64_t integer = 1;
    double number = 1;
    bool truth = false;
    const char *string = "before";
    assert_ok(trm_json_member_integer(document, root, "i", true, &integer));
    assert_int_equal(integer, 7);
    assert_ok(trm_json_member_integer(document, root, "z", false, &integer));
    assert_ok(trm_json_member_integer(document, root, "none", false, &integer));
    assert_int_equal(integer, 7);
    assert_fails(trm_json_member_integer(document, root, "z", true, &integer), TRM_ERROR_INVALID_MODEL,
                 "test.json: z is missing");
    assert_fails(trm_json_member_integer(document, root, "s", false, &integer), TRM_ERROR_INVALID_MODEL,
                 "test.json: s is \"x\", expected an integer");
    assert_fails(trm_json_member_integer(document, root, "n", false, &integer), TRM_ERROR_INVALID_MODEL,
                 "n is 2.5, expected an integer");
    assert_ok(trm_json_member_number(document, root, "n", true, &number));
    assert_true(number == 2.5);
    assert_fails(trm_json_member_number(document, root, "a", false, &number), TRM_ERROR_INVALID_MODEL,
                 "a is an array, expected a number");
    assert_ok(trm_json_member_bool(document, root, "t", true, &truth));
    assert_true(truth);
    assert_fails(trm_json_member_bool(document, root, "i", true, &truth), TRM_ERROR_INVALID_MODEL,
                 "i is 7, expected true or false");
    assert_ok(trm_json_member_string(document, root, "none", false, &string));
    assert_string_equal(string, "before");
    assert_ok(trm_json_member_string(document, root, "s", true, &string));
    assert_string_equal(string, "x");
    assert_fails(trm_json_member_string(document, root, "t", true, &string), TRM_ERROR_INVALID_MODEL,
                 "t is true, expected a string");
    trm_json_close(document);
}

static void long_values_are_cut_in_errors(void **state)
{
    (void)state;
    trm_json_document *document = parse("{\"s\":\"0123456789012345678901234567890123456789012345678901234567"
                                        "\xc3\xa9 and more than that\"}");
    int64_t integer;
    assert_fails(trm_json_member_integer(document, trm_json_root(document), "s", true, &integer),
                 TRM_ERROR_INVALID_MODEL, "01234567..., expected an integer");
    trm_json_close(document);
}

/* An object of `n` keys: room is left for one more. */
static char *vocabulary(int keys, size_t *size)
{
    char *text = malloc((size_t)keys * 32);
    assert_non_null(text);
    *size = 0;
    for (int i = 0; i < keys; i++) {
        *size += (size_t)sprintf(text + *size, "%s\"token-%d\":%d", i == 0 ? "{" : ",\n", i, i);
    }
    text[(*size)++] = '}';
    return text;
}

/* Seconds of the processor that parsing it takes, which other processes do not add to: the least of several tries. */
static double seconds_of(int keys, int times)
{
    size_t size;
    double least = 1e9;
    char *text = vocabulary(keys, &size);
    for (int i = 0; i < times; i++) {
        struct timespec start, end;
        trm_json_document *document = NULL;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
        assert_ok(trm_json_parse("vocabulary", text, size, &document));
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        assert_int_equal(trm_json_count(trm_json_root(document)), keys);
        trm_json_close(document);
        double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
        least = seconds < least ? seconds : least;
    }
    free(text);
    return least;
}

/* The keys of a large vocabulary are not all compared with each other: of 8 times as many each may take 5 times as
 * long, in memory that is farther away, but not 8 times. */
static void large_objects_parse_fast(void **state)
{
    (void)state;
    const int few = 30000, keys = 8 * few;
    double small = seconds_of(few, 5), large = seconds_of(keys, 3);
    print_message("%d keys: %.4f s, %d keys: %.4f s\n", few, small, keys, large);
    assert_true(large < 5 * 8 * small);

    size_t size;
    char *text = vocabulary(keys, &size), cause[96];
    trm_json_document *document = NULL;
    size--; /* a duplicate at the very end */
    size += (size_t)sprintf(text + size, ",\n\"token-77\":1}");
    snprintf(cause, sizeof(cause), "vocabulary: line %d column 1: duplicate key \"token-77\"", keys + 1);
    assert_fails(trm_json_parse("vocabulary", text, size, &document), TRM_ERROR_INVALID_MODEL, cause);
    free(text);
}

static void files_are_read_with_a_limit(void **state)
{
    (void)state;
    char path[4200];
    snprintf(path, sizeof(path), "%s/a.json", test_temporary_folder());
    test_write_file(path, "{\"a\": 1}", 8);
    trm_json_document *document = NULL;
    assert_ok(trm_json_read(path, 8, &document));
    trm_json_close(document);
    assert_fails(trm_json_read(path, 7, &document), TRM_ERROR_IO, "a.json has 8 bytes, more than the limit of 7");
    test_write_file(path, "{\"a\": x}", 8);
    assert_fails(trm_json_read(path, 8, &document), TRM_ERROR_INVALID_MODEL, "a.json: line 1 column 7: found 'x'");
}

static void files_of_python_have_infinite_numbers(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": [-Infinity, Infinity, 1], \"b\": \"\\\"Infinity\", \"c\": Infinite}";
    char path[4200];
    snprintf(path, sizeof(path), "%s/b.json", test_temporary_folder());
    test_write_file(path, text, sizeof(text) - 1);
    trm_json_document *document = NULL;
    assert_fails(trm_json_read(path, 100, &document), TRM_ERROR_INVALID_MODEL, "b.json: line 1 column 9: found 'I'");
    assert_fails(trm_json_read_config(path, 100, &document), TRM_ERROR_INVALID_MODEL,
                 "b.json: line 1 column 57: found 'I'");
    test_write_file(path, "{\"a\": [-Infinity, Infinity, 1], \"b\": \"\\\"Infinity\"}", 50);
    assert_ok(trm_json_read_config(path, 100, &document));
    const trm_json *root = trm_json_root(document), *list = trm_json_get(root, "a");
    assert_int_equal(trm_json_count(list), 3);
    assert_false(trm_json_is_number(trm_json_at(list, 0)));
    assert_false(trm_json_is_number(trm_json_at(list, 1)));
    assert_string_equal(trm_json_string(trm_json_get(root, "b")), "\"Infinity");
    trm_json_close(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_text_is_refused_with_its_place),
        cmocka_unit_test(malformed_numbers_are_refused),
        cmocka_unit_test(malformed_strings_are_refused),
        cmocka_unit_test(well_formed_strings_are_decoded),
        cmocka_unit_test(nesting_ends_at_64_levels),
        cmocka_unit_test(values_are_limited),
        cmocka_unit_test(duplicate_keys_are_refused),
        cmocka_unit_test(look_ups),
        cmocka_unit_test(integers_must_be_exact),
        cmocka_unit_test(typed_members),
        cmocka_unit_test(long_values_are_cut_in_errors),
        cmocka_unit_test(large_objects_parse_fast),
        cmocka_unit_test(files_are_read_with_a_limit),
        cmocka_unit_test(files_of_python_have_infinite_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
