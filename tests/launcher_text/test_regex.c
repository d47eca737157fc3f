/* Oniguruma patterns find what Oniguruma finds. The expected pieces were printed by Hugging Face tokenizers:
 * pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str(text). */
#include <stdio.h>

#include "launcher/text/regex/regex.h"
#include "launcher/text/tokenizer/pieces.h"
#include "support/support.h"

typedef struct example {
    const char *pattern, *text;
    const char *pieces; /* with | between */
} example;

static const example examples[] = {
    {"(?m)a.b", "xa\nbx", "x|a\nb|x"},
    {"a.b", "xa\nbx", "xa\nbx"},
    {"\\h", "ga b", "g|a| |b"},
    {"a{2}+", "aaaaa", "aaaa|a"},
    {"a{2}?", "aaaaa", "aa|aa|a"},
    {"a{,2}", "aaaaa", "aa|aa|a"},
    {"a{1,2}+a", "aaaaa", "aaaaa"},
    {"a{,}", "a{,}b", "a{,}|b"},
    {"^a", "a\na\n", "a|\n|a|\n"},
    {"a$", "a\na\n", "a|\n|a|\n"},
    {"[a-z&&[^b]]+", "abcd", "a|b|cd"},
    {"[a-z&&[^b]&&[^d]]", "abcd", "a|b|c|d"},
    {"\\v", "a\x0b\nb", "a|\x0b|\nb"},
    {"\\Qa", "xQax", "x|Qa|x"},
    {"\\u0061", "ba", "b|a"},
    {"\\x{61}", "ba", "b|a"},
    {"a(?i)b|c", "aB aC ab C", "aB| |aC| |ab| C"},
    {"[^\\W_]+", "a_b", "a|_|b"},
    {"[]a]", "[]a]", "[|]|a|]"},
    {"\\b", "a bc", "a| |bc"},
    {"", "abc", "a|b|c"},
    {"\\N", "a\nb", "a|\n|b"},
    {"\\O", "a\nb", "a|\n|b"},
    {"(?<n>a)b", "xab", "x|ab"},
    {"\\s+(?!\\S)|\\s+", "a   b \n", "a|  | |b| \n"},
    {"\\s",
     "a\xE1\xA0\x8E"
     "b\xC2\x85"
     "c",
     "a\xE1\xA0\x8E"
     "b|\xC2\x85|c"},
    {"\\w+", "x\xC2\xB2-\xC2\xBD", "x\xC2\xB2|-|\xC2\xBD"},
    {"\\w", "-\xC2\xB2-x", "-|\xC2\xB2|-|x"},
    {"[\\w]", "-\xC2\xB2-x", "-\xC2\xB2-|x"},
    {"[^\\W\\d]", "-\xC2\xB2-x", "-\xC2\xB2-|x"},
    {"\\W", "-\xC2\xB2-x", "-|\xC2\xB2|-|x"},
    {"\\p{Word}", "-\xC2\xB2-x", "-|\xC2\xB2|-|x"},
    {"[[:word:]]", "-\xC2\xB2-x", "-\xC2\xB2-|x"},
    {"[[:punct:]]", "a+b", "a|+|b"},
    {"\\p{Punct}", "a+b.", "a+b|."},
    {"\\p{^L}", "a1b", "a|1|b"},
    {"\\P{L}", "a1b", "a|1|b"},
    {"\\p{Han}+", "a\xE4\xB8\xAD\xE3\x80\x81", "a|\xE4\xB8\xAD|\xE3\x80\x81"},
    {"(?i:'S|'ll)", "I'LL it's", "I|'LL| it|'s"},
    {"(?>a|ab)c", "abcac", "abc|ac"},
    {"(?#note)a", "ba", "b|a"},
    {"(a)\\1", "aab", "aa|b"},
    {"a++b|a", "aab", "aab"},
    {"[\\d\\-x]", "1-x", "1|-|x"},
    {"[a\\-c]", "b-c", "b|-|c"},
    {"(?<=a)b(?=c)|(?<!a)d(?!e)", "abcadd", "a|b|cad|d"},
};

static void finds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        const example *e = &examples[i];
        trm_pattern pattern = {0};
        trm_piece_list list = {0};
        assert_ok(trm_regex_compile(e->pattern, &pattern.regex));
        trm_delimiter delimiter = {.pattern = &pattern};
        assert_ok(
            trm_piece_split(&list, e->text, (trm_piece){0, strlen(e->text), -1, true}, &delimiter, TRM_SPLIT_ISOLATED));
        char pieces[256] = "";
        for (size_t p = 0; p < list.count; p++) {
            sprintf(pieces + strlen(pieces), "%s%.*s", p > 0 ? "|" : "", (int)(list.items[p].end - list.items[p].begin),
                    e->text + list.items[p].begin);
        }
        if (strcmp(pieces, e->pieces) != 0) {
            fail_msg("regex \"%s\" cuts \"%s\" into \"%s\", expected \"%s\"", e->pattern, e->text, pieces, e->pieces);
        }
        trm_regex_destroy(pattern.regex);
        free(list.items);
    }
}

/* Hugging Face's documentation of the behaviors. */
static void splits(void **state)
{
    (void)state;
    static const char *const expected[][2] = {
        {"the|final|countdown", "-|-|-"},
        {"the|-|final|-|-|countdown", "the|-|final|-|-|countdown"},
        {"the-|final-|-|countdown", "the|-final|-|-countdown"},
        {"the|-final|-|-countdown", "the-|final-|-|countdown"},
        {"the|-|final|--|countdown", "the|-|final|--|countdown"},
    };
    const char *text = "the-final--countdown";
    for (int behavior = 0; behavior < 5; behavior++) {
        for (int invert = 0; invert < 2; invert++) {
            trm_piece_list list = {0};
            trm_delimiter delimiter = {.character = '-', .invert = invert == 1};
            assert_ok(trm_piece_split(&list, text, (trm_piece){0, strlen(text), -1, true}, &delimiter,
                                      (trm_split_behavior)behavior));
            char pieces[256] = "";
            for (size_t p = 0; p < list.count; p++) {
                sprintf(pieces + strlen(pieces), "%s%.*s", p > 0 ? "|" : "",
                        (int)(list.items[p].end - list.items[p].begin), text + list.items[p].begin);
                assert_int_equal(list.items[p].at_start, list.items[p].begin == 0);
            }
            assert_string_equal(pieces, expected[behavior][invert]);
            free(list.items);
        }
    }
}

typedef struct refusal {
    const char *pattern;
    trm_status status;
    const char *part;
} refusal;

static void refuses(void **state)
{
    (void)state;
    static const refusal refusals[] = {
        {"(a", TRM_ERROR_INVALID_MODEL, "an unterminated group"},
        {"a)", TRM_ERROR_INVALID_MODEL, "does not compile"},
        {"(?i)a)", TRM_ERROR_INVALID_MODEL, "an unmatched closing parenthesis"},
        {"[a", TRM_ERROR_INVALID_MODEL, "an unterminated class"},
        {"[z-a]", TRM_ERROR_INVALID_MODEL, "an invalid range"},
        {"[&&a]", TRM_ERROR_INVALID_MODEL, "an empty class"},
        {"a**{1}{2}(", TRM_ERROR_INVALID_MODEL, "does not compile"},
        {"{2}", TRM_ERROR_INVALID_MODEL, "nothing to repeat"},
        {"a{99999}", TRM_ERROR_INVALID_MODEL, "does not compile"},
        {"\\", TRM_ERROR_INVALID_MODEL, "a backslash at the end"},
        {"\\p{Nonsense}", TRM_ERROR_INVALID_MODEL, "unknown property \"Nonsense\""},
        {"\\p{L", TRM_ERROR_INVALID_MODEL, "without a closing brace"},
        {"\\x{110000}", TRM_ERROR_INVALID_MODEL, "an invalid character number"},
        {"\\x{d800}", TRM_ERROR_INVALID_MODEL, "an invalid character number"},
        {"(?<n>a", TRM_ERROR_INVALID_MODEL, "an unterminated group"},
        {"(?~a)", TRM_ERROR_UNSUPPORTED, "this group option"},
        {"(?s).", TRM_ERROR_UNSUPPORTED, "this group option"},
        {"\\Ka", TRM_ERROR_UNSUPPORTED, "the escape \\K"},
        {"\\k<n>", TRM_ERROR_UNSUPPORTED, "the escape \\k"},
        {"[[:graph:]]", TRM_ERROR_UNSUPPORTED, "[:graph:]"},
    };
    trm_regex *regex = NULL;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        assert_fails(trm_regex_compile(refusals[i].pattern, &regex), refusals[i].status, refusals[i].part);
    }
    char deep[2001];
    memset(deep, '(', 1000);
    memset(deep + 1000, ')', 1000);
    deep[2000] = '\0';
    assert_fails(trm_regex_compile(deep, &regex), TRM_ERROR_INVALID_MODEL, "too many nested groups");
    memset(deep, '[', 2000);
    assert_fails(trm_regex_compile(deep, &regex), TRM_ERROR_INVALID_MODEL, "too many nested groups");
    char *longest = malloc(70001);
    memset(longest, 'a', 70000);
    longest[70000] = '\0';
    assert_fails(trm_regex_compile(longest, &regex), TRM_ERROR_INVALID_MODEL, "70000 bytes");
    free(longest);
    assert_null(regex);
}

/* A pattern that takes exponential time ends in an error. */
static void gives_up(void **state)
{
    (void)state;
    trm_regex *regex;
    bool found;
    size_t begin, end;
    char text[65];
    memset(text, 'a', 64);
    text[64] = '\0';
    assert_ok(trm_regex_compile("(?:a*)*(?:a*)*[bc]", &regex));
    assert_fails(trm_regex_find(regex, text, 64, 0, &found, &begin, &end), TRM_ERROR_INVALID_MODEL, "match limit");
    trm_regex_destroy(regex);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds), cmocka_unit_test(splits), cmocka_unit_test(refuses),
                                       cmocka_unit_test(gives_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
