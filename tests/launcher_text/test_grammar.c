/* Grammars: which texts they accept, byte by byte; masks against acceptance; errors. tests/goldens/grammars/check.py
 * has Python judge random texts of the same masks. */
#include "support/support.h"

#include <stdio.h>

#include <trireme/grammar.h>

#include "base/json.h"
#include "launcher/text/grammar/pushdown.h"
#include "launcher/text/tokenizer/tokenizer.h"
#include "support/byte_grammar.h"
#include "support/grammar_walk.h"

#define TOKENIZERS TRM_SOURCE_DIR "/tests/goldens/tokenizers/"

static trm_tokenizer *byte_tokenizer;
static trm_grammar_vocab *byte_vocab;

static int set_up(void **state)
{
    (void)state;
    test_byte_vocab(&byte_tokenizer, &byte_vocab);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    trm_grammar_vocab_destroy(byte_vocab);
    trm_tokenizer_close(byte_tokenizer);
    return 0;
}

static trm_status compile(trm_grammar_kind kind, const char *text)
{
    trm_grammar *grammar = NULL;
    trm_status status = trm_grammar_compile(byte_vocab, kind, text, strlen(text), &grammar);
    trm_grammar_destroy(grammar);
    return status;
}

#define CHECK(kind, grammar, ...)                                                                                      \
    test_grammar_texts(byte_vocab, kind, grammar, (const char *const[]){__VA_ARGS__, NULL})

static void test_regex(void **state)
{
    (void)state;
    CHECK(TRM_GRAMMAR_REGEX, "a(b|c)*d?", "a", "ab", "acbcd", NULL, "", "b", "add", "abx");
    CHECK(TRM_GRAMMAR_REGEX, "^[a-c]{2,3}$", "ab", "cba", NULL, "a", "abca", "ad");
    CHECK(TRM_GRAMMAR_REGEX, "[^a]", "b", "\xC3\xA9", "\xF0\x9F\x98\x80", "\n", NULL, "a", "bb", "\xC3", "\xFF");
    CHECK(TRM_GRAMMAR_REGEX, "\\d+\\.\\d\\s\\w", "12.3 _", "0.0\tz", NULL, "12.3", "a.1 b");
    CHECK(TRM_GRAMMAR_REGEX, "(?:x|(?<n>y)){2}", "xy", "yy", NULL, "x", "xyx");
    CHECK(TRM_GRAMMAR_REGEX, "(a?){3}b{0}", "", "a", "aaa", NULL, "aaaa", "b");
    CHECK(TRM_GRAMMAR_REGEX, "[\\u4e00-\\u4e10]|\\u{1F600}", "\xE4\xB8\x80", "\xF0\x9F\x98\x80", NULL, "\xE4\xB8\x91");
    CHECK(TRM_GRAMMAR_REGEX, "a{|b}|{x}", "a{", "b}", "{x}", NULL, "a");
    CHECK(TRM_GRAMMAR_REGEX, "(|a)(b|)", "", "a", "b", "ab", NULL, "ba");
    CHECK(TRM_GRAMMAR_REGEX, "", "", NULL, "a");
    CHECK(TRM_GRAMMAR_REGEX, "(ab(?=a)mc)*d|e(?!f)f", "d", NULL, "abmcd", "e", "ef");
    CHECK(TRM_GRAMMAR_REGEX, "((a{9999}){9999}){9999}|b", "b", NULL, "a", "ab");
    CHECK(TRM_GRAMMAR_REGEX, "(a|b)*a(a|b){20}", "aabababababababababab", "bbaaaaaaaaaaaaaaaaaaaabb", NULL,
          "babababababababababab", "a");
}

static void test_schema(void **state)
{
    (void)state;
    const trm_grammar_kind kind = TRM_GRAMMAR_JSON_SCHEMA;
    CHECK(kind,
          "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"}},"
          "\"required\":[\"b\"]}",
          "{\"b\":true}", "{\"a\": -10, \"b\": false}", "{\n  \"a\":0,\n  \"b\":true\n}", NULL, "{\"a\":1}", "{}",
          "{\"b\":true,\"a\":1}", "{\"a\":01,\"b\":true}", "{\"b\":true,}", "{\"b\":1}");
    CHECK(kind, "{\"enum\":[1,\"x\\\"\",null,{\"k\":[]}]}", "1", "\"x\\\"\"", "null", "{\"k\":[]}", "{ \"k\": [ ] }",
          NULL, "2", "\"x\"", "{}");
    CHECK(kind, "{\"type\":\"string\",\"enum\":[\"a\",1,null]}", "\"a\"", NULL, "1", "null");
    CHECK(kind, "{\"type\":[\"integer\",\"null\"],\"enum\":[\"a\",1,1.5,null,true]}", "1", "null", NULL, "\"a\"", "1.5",
          "true");
    CHECK(kind, "{\"type\":\"number\",\"anyOf\":[{\"enum\":[1.5,[]]},{\"const\":{}},{\"const\":2}]}", "1.5", "2", NULL,
          "[]", "{}");
    CHECK(kind, "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1,\"maxItems\":2}", "[\"\"]",
          "[\"a\", \"\\u00e9\\n\"]", "[\"\\ud83d\\ude00\"]", NULL, "[]", "[\"a\",\"b\",\"c\"]", "[\"\n\"]",
          "[\"\\ud83d\"]", "[\"\\x\"]");
    CHECK(kind, "{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}", "-12", "-9", "0", "99", "100", "105", NULL,
          "-13", "106", "007", "-0", "1000", "1.0");
    CHECK(kind, "{\"type\":\"number\",\"exclusiveMinimum\":0.25,\"maximum\":12.5}", "0.26", "0.2500001", "1", "3.75",
          "12.5", "12.50", "12", NULL, "0.25", "0.2", "0", "12.51", "13", "-1", "12.");
    CHECK(kind, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"ab\"", "\"\\n\xC3\xA9z\"", NULL, "\"a\"",
          "\"abcd\"");
    CHECK(kind, "{\"type\":\"string\",\"pattern\":\"^[\\\"a]\\\\\\\\+$\"}", "\"\\\"\\\\\"", "\"a\\\\\\\\\"", NULL,
          "\"a\"", "\"\"\\\\\"");
    CHECK(kind, "{\"type\":[\"string\",\"null\"]}", "\"\"", "null", NULL, "1");
    CHECK(kind, "{\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/t\"}}},\"$ref\":\"#/$defs/t\"}",
          "[]", "[[],[[]]]", NULL, "[1]", "[[]");
    CHECK(kind,
          "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":"
          "\"integer\"}}",
          "{}", "{\"ab\":null}", "{\"ab\":null,\"a\":1,\"abc\":2}", "{\"x\":1}", NULL, "{\"ab\":1}", "{\"x\":null}",
          "{\"x\":1,\"ab\":null}", "{\"\\u0061b\":1}");
    CHECK(kind,
          "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"null\"}],\"items\":false,"
          "\"minItems\":1}",
          "[1]", "[1,null]", NULL, "[]", "[null]", "[1,null,1]");
    CHECK(
        kind,
        "{\"oneOf\":[{\"const\":\"a\"},{\"const\":\"b\"}],\"discriminator\":{\"propertyName\":\"k\"}}", /* pydantic's */
        "\"a\"", "\"b\"", NULL, "\"c\"");
    CHECK(kind, "{\"anyOf\":[{\"const\":\"a\"},false,{\"type\":\"integer\",\"minimum\":5}]}", "\"a\"", "5", NULL, "4");
    CHECK(kind, "{}", "1", "{\"a\":[1,2.5e3,{\"b\":null}]}", "\"x\"", NULL, "", "{a:1}", "nul");
    CHECK(TRM_GRAMMAR_JSON, "", "{}", "{\"a\":[]}", NULL, "[]", "1");
}

static void test_ebnf(void **state)
{
    (void)state;
    CHECK(TRM_GRAMMAR_EBNF, "root ::= \"(\" root* \")\" # nested", "()", "(()())", NULL, "(", "())");
    CHECK(TRM_GRAMMAR_EBNF, "root ::= item (\",\" item)*\nitem ::= [0-9]{1,2} | \"x\"\n     | \"\\n\"", "1", "12,x,\n",
          NULL, "123", ",", "1,");
    CHECK(TRM_GRAMMAR_EBNF, "root ::= s\ns ::= \"a\" s \"b\" | \"a\" s \"c\" | \"\"", "", "ab", "aabc", "aacb", NULL,
          "aab", "abc");
    CHECK(TRM_GRAMMAR_EBNF, "root ::= .{2}", "ab", "\n\xC3\xA9", NULL, "a");
    CHECK(TRM_GRAMMAR_EBNF, "start: (NAME | \"Q\"i)~2 [tail] // two\nNAME: /[a-b]+/ \"!\"\ntail: \"0\"..\"3\" -> t\n",
          "a!q", "Qabb!2", NULL, "a!", "qq4", "aq");
    CHECK(TRM_GRAMMAR_CHOICE, "[\"yes\", \"no\", \"yes!\", \"\\u00e9\"]", "yes", "no", "yes!", "\xC3\xA9", NULL, "ye",
          "yesno", "");
}

static void test_errors(void **state)
{
    (void)state;
    const trm_status wrong = TRM_ERROR_INVALID_ARGUMENT, unknown = TRM_ERROR_UNSUPPORTED;
    assert_fails(compile(TRM_GRAMMAR_REGEX, "a)"), wrong, "character 2");
    assert_fails(compile(TRM_GRAMMAR_REGEX, "(a"), wrong, "an unterminated group");
    assert_fails(compile(TRM_GRAMMAR_REGEX, "[a"), wrong, "an unterminated class");
    assert_fails(compile(TRM_GRAMMAR_REGEX, "*a"), wrong, "nothing to repeat");
    assert_fails(compile(TRM_GRAMMAR_REGEX, "[z-a]"), wrong, "ends before it begins");
    assert_fails(compile(TRM_GRAMMAR_REGEX, "a(?=b)"), wrong, "no text at all");
    assert_fails(compile(TRM_GRAMMAR_REGEX, "(?<=a)b"), unknown, "group");
    assert_fails(compile(TRM_GRAMMAR_REGEX, "(a(?!bc))*"), unknown, "within a repetition");
    assert_fails(compile(TRM_GRAMMAR_REGEX, "(a)\\1"), unknown, "escape");
    assert_fails(compile(TRM_GRAMMAR_REGEX, "a{3,2}"), wrong, "at least 3 and at most 2");
    assert_fails(compile(TRM_GRAMMAR_REGEX, "[^\\s\\S]"), wrong, "no text at all");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"const\":[]}"), wrong, "no text at all");
    assert_fails(compile(TRM_GRAMMAR_EBNF, "root ::= a"), wrong, "the undefined rule a");
    assert_fails(compile(TRM_GRAMMAR_EBNF, "x ::= \"a\""), wrong, "no start rule root");
    assert_fails(compile(TRM_GRAMMAR_EBNF, "root ::= root \"a\" | \"b\""), wrong, "left recursion");
    assert_fails(compile(TRM_GRAMMAR_EBNF, "root ::= a? b\na ::= \"x\"\nb ::= a? root | \"y\""), wrong,
                 "left recursion");
    assert_fails(compile(TRM_GRAMMAR_EBNF, "root ::= \"a\" root"), wrong, "no text at all");
    assert_fails(compile(TRM_GRAMMAR_EBNF, "root ::= \"a\nb"), wrong, "line");
    assert_fails(compile(TRM_GRAMMAR_EBNF, "root = x"), wrong, "grammar line 1");
    assert_fails(compile(TRM_GRAMMAR_EBNF, "start: %import x"), wrong, "grammar line 1");
    assert_fails(compile(TRM_GRAMMAR_CHOICE, "[]"), wrong, "at least one");
    assert_fails(compile(TRM_GRAMMAR_CHOICE, "[1]"), wrong, "not a string");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "{"), wrong, "JSON schema: line 1");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "3"), wrong, "neither an object");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"strnig\"}"), wrong, "strnig");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "{\"not\":{}}"), wrong, "no text at all");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/x\"}"), wrong, "#/x does not exist");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#\"}"), wrong, "leads back to itself");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}"), wrong,
                 "no text");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"number\",\"minimum\":3,\"maximum\":2}"), wrong,
                 "no text");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},"
                                                  "\"required\":[\"a\"]}"),
                 wrong, "no text at all");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"uniqueItems\":true}"), unknown, "uniqueItems");
    assert_fails(compile(TRM_GRAMMAR_JSON_SCHEMA, "{\"properties\":{\"a/b\":{\"items\":{\"pattern\":\"(?<!x)y\"}}}}"),
                 unknown, "JSON schema at /properties/a~1b/items/pattern: ");
    assert_fails(compile((trm_grammar_kind)9, ""), wrong, "kind");
    trm_grammar_vocab *vocab = NULL;
    const int32_t end = 400;
    assert_fails(trm_grammar_vocab_create(byte_tokenizer, &end, 1, 300, &vocab), wrong, "end token 400");
    assert_fails(trm_grammar_vocab_create(NULL, NULL, 0, 0, &vocab), wrong, "tokenizer");
    trm_grammar_vocab_destroy(NULL);
    trm_grammar_destroy(NULL);
    trm_grammar_state_destroy(NULL);
}

/* Every bit of a mask tells what accept does, along a random walk of tokens with ids below `below` where there are
 * such. Its steps. */
static int32_t check_walk(const char *name, trm_grammar *grammar, int32_t size, int32_t end, int32_t below,
                          int32_t steps, uint64_t *seed)
{
    trm_grammar_state *state = NULL, *copy = NULL;
    uint32_t *mask = calloc((size_t)size / 32 + 1, sizeof(*mask));
    assert_non_null(mask);
    assert_ok(trm_grammar_state_create(grammar, &state));
    int32_t step = 0;
    for (; step < steps; step++) {
        int32_t next = -1, seen = 0;
        bool accepted = false;
        assert_ok(trm_grammar_state_mask(state, mask));
        for (int32_t id = 0; id < size; id++) {
            assert_ok(trm_grammar_state_copy(state, &copy));
            assert_ok(trm_grammar_state_accept(copy, id, &accepted));
            if (accepted != ((mask[id / 32] >> id % 32 & 1) != 0)) {
                fail_msg("%s: token %d is %s but the mask says otherwise", name, id, accepted ? "accepted" : "refused");
            }
            seen = accepted && id < below && next >= below ? 0 : seen;
            if (accepted && id != end && (id < below || next < 0 || next >= below) &&
                test_random_below(seed, ++seen) == 0) {
                next = id;
            }
            trm_grammar_state_destroy(copy);
        }
        if (next < 0) {
            break;
        }
        assert_ok(trm_grammar_state_accept(state, next, &accepted));
        assert_true(accepted);
    }
    trm_grammar_state_destroy(state);
    free(mask);
    return step;
}

/* Random walks over real vocabularies. */
static void check_masks(const char *file, trm_grammar_kind kind, const char *text, uint64_t *seed)
{
    char path[500];
    trm_tokenizer *tokenizer = NULL;
    trm_grammar_vocab *vocab = NULL;
    trm_grammar *grammar = NULL;
    snprintf(path, sizeof(path), TOKENIZERS "%s", file);
    assert_ok(trm_tokenizer_open(path, &tokenizer));
    int32_t size = trm_tokenizer_vocab_size(tokenizer), end = size - 1;
    assert_ok(trm_grammar_vocab_create(tokenizer, &end, 1, 0, &vocab));
    assert_ok(trm_grammar_compile(vocab, kind, text, strlen(text), &grammar));
    check_walk(file, grammar, size, end, size, 25, seed);
    trm_grammar_destroy(grammar);
    trm_grammar_vocab_destroy(vocab);
    trm_tokenizer_close(tokenizer);
}

/* Bounded repetitions near and far from their bounds, with tokens longer than what classes of states look at. */
static void test_masks_of_long_tokens(void **state)
{
    (void)state;
    static const struct {
        trm_grammar_kind kind;
        const char *text;
    } grammars[] = {
        {TRM_GRAMMAR_REGEX, "a{20,61}b"},
        {TRM_GRAMMAR_REGEX, "(a{0,33}b){2,3}"},
        {TRM_GRAMMAR_REGEX, "(a|b){40}|a*"},
        {TRM_GRAMMAR_REGEX, "(aaaa|aab){3,30}"},
        {TRM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"minLength\":25,\"maxLength\":70}"},
        {TRM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"^a+((b|ba)aaa)*$\",\"maxLength\":60}"},
        {TRM_GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"pattern\":\"a{9}b$\",\"minLength\":22,\"maxLength\":60}"},
        {TRM_GRAMMAR_JSON_SCHEMA,
         "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":40},\"maxItems\":3}"},
        {TRM_GRAMMAR_EBNF, "root ::= \"[\" part{0,20} \"]\"\npart ::= [a]{0,3} \"b\" | \"[\" root \"]\""},
    };
    static char vocab_text[20000];
    size_t n =
        (size_t)snprintf(vocab_text, sizeof(vocab_text), "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    int32_t size = 0;
    for (int32_t a = 1; a <= 40; a++) {
        static const char *const tails[] = {"", "b", "ba", "\\\"", "\\\",\\\"a", "]"};
        for (size_t t = 0; t < sizeof(tails) / sizeof(tails[0]); t++) {
            n += (size_t)snprintf(vocab_text + n, sizeof(vocab_text) - n, "\"%.*s%s\":%d,", a,
                                  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", tails[t], size++);
        }
    }
    snprintf(vocab_text + n, sizeof(vocab_text) - n, "\"b\":%d,\"\\\"\":%d,\"[\":%d,\"]\":%d,\",\":%d,\"<end>\":%d}}}",
             size, size + 1, size + 2, size + 3, size + 4, size + 5);
    trm_tokenizer *tokenizer = NULL;
    trm_grammar_vocab *vocab = NULL;
    const int32_t end = size + 5;
    uint64_t seed = test_seed();
    int32_t longest_walk = 0;
    size = end + 1;
    assert_ok(trm_tokenizer_parse("long tokens", vocab_text, strlen(vocab_text), &tokenizer));
    assert_ok(trm_grammar_vocab_create(tokenizer, &end, 1, 0, &vocab));
    for (size_t i = 0; i < sizeof(grammars) / sizeof(grammars[0]); i++) {
        for (int turn = 0; turn < 4; turn++) {
            trm_grammar *grammar = NULL;
            assert_ok(
                trm_grammar_compile(vocab, grammars[i].kind, grammars[i].text, strlen(grammars[i].text), &grammar));
            int32_t walked = check_walk("long tokens", grammar, size, end, turn % 2 == 0 ? 8 : 300, 80, &seed);
            longest_walk = walked > longest_walk ? walked : longest_walk;
            trm_grammar_destroy(grammar);
        }
    }
    assert_true(longest_walk > 10);
    trm_grammar_vocab_destroy(vocab);
    trm_tokenizer_close(tokenizer);
}

static void test_masks(void **state)
{
    (void)state;
    static const char *const files[] = {"llama3.json", "llama2.json", "qwen2.json", "gemma.json"};
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"s\":{\"type\":\"string\",\"maxLength\":30},"
                                 "\"n\":{\"type\":\"number\"},\"l\":{\"type\":\"array\"}},\"required\":[\"n\"],"
                                 "\"additionalProperties\":true}";
    uint64_t seed = test_seed();
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        check_masks(files[i], TRM_GRAMMAR_JSON_SCHEMA, schema, &seed);
        check_masks(files[i], TRM_GRAMMAR_REGEX, "([a-zA-Z ]+|[^a-z]{2}|\xE4\xBD\xA0.){1,20}", &seed);
        check_masks(files[i], TRM_GRAMMAR_EBNF, "root ::= w (\" \" w)* root?\nw ::= [a-z]+ | \"(\" root \")\"", &seed);
    }
}

static void test_walks(void **state)
{
    (void)state;
    trm_tokenizer *tokenizer = NULL;
    trm_grammar_vocab *vocab = NULL;
    trm_json_document *schemas = NULL;
    uint64_t seed = test_seed();
    assert_ok(trm_tokenizer_open(TOKENIZERS "llama3.json", &tokenizer));
    int32_t size = trm_tokenizer_vocab_size(tokenizer), end = size - 1, done = 0;
    assert_ok(trm_grammar_vocab_create(tokenizer, &end, 1, 0, &vocab));
    for (int i = 0; i < 30; i++) {
        trm_grammar *grammar = NULL;
        char *text = NULL;
        size_t length = 0;
        assert_ok(trm_grammar_compile(vocab, TRM_GRAMMAR_JSON, "", 0, &grammar));
        assert_ok(test_grammar_walk(grammar, tokenizer, size, &seed, &text, &length));
        if (text != NULL) {
            assert_ok(trm_json_parse("walk", text, length, &schemas) == TRM_OK ||
                              strstr(trm_last_error(), "duplicate") != NULL || strstr(trm_last_error(), "u0000") != NULL
                          ? TRM_OK
                          : TRM_ERROR_INTERNAL);
            trm_json_close(schemas);
            schemas = NULL;
            done++;
        }
        free(text);
        trm_grammar_destroy(grammar);
    }
    assert_true(done > 5);
    trm_grammar_vocab_destroy(vocab);
    trm_tokenizer_close(tokenizer);
}

/* What is dropped when a machine has grown too large changes nothing. */
static void check_collect(const char *schema, const char *text)
{
    trm_grammar_tree tree = {0};
    trm_grammar_automaton automaton = {0}, renewed = {0};
    trm_grammar_pushdown plain, collected;
    uint32_t a, b, other;
    if (schema == NULL) {
        trm_grammar_read_json(&tree);
    } else {
        trm_grammar_read_schema(&tree, schema, strlen(schema));
    }
    assert_ok(tree.status);
    assert_ok(trm_grammar_build(&tree, &automaton));
    assert_ok(trm_grammar_build(&tree, &renewed));
    assert_ok(trm_grammar_pushdown_init(&plain, &automaton));
    assert_ok(trm_grammar_pushdown_init(&collected, &renewed));
    trm_grammar_pushdown_begin(&plain);
    trm_grammar_pushdown_begin(&collected);
    assert_ok(trm_grammar_pushdown_start(&plain, &a));
    assert_ok(trm_grammar_pushdown_start(&collected, &b));
    other = b;
    for (size_t i = 0; text[i] != '\0'; i++) {
        uint32_t *const kept[] = {&b, &other};
        for (int byte = 0; byte < 256; byte++) {
            uint32_t x, y;
            assert_ok(trm_grammar_pushdown_step(&plain, a, (uint8_t)byte, &x));
            assert_ok(trm_grammar_pushdown_step(&collected, b, (uint8_t)byte, &y));
            assert_int_equal(x == TRM_GRAMMAR_NOWHERE, y == TRM_GRAMMAR_NOWHERE);
        }
        assert_ok(trm_grammar_pushdown_step(&plain, a, (uint8_t)text[i], &a));
        assert_ok(trm_grammar_pushdown_step(&collected, b, (uint8_t)text[i], &b));
        assert_ok(trm_grammar_pushdown_collect(&collected, kept, 2));
        assert_true(collected.n_configs <= 2);
        assert_int_equal(plain.configs[a].ends, collected.configs[b].ends);
    }
    assert_true(plain.configs[a].ends);
    trm_grammar_pushdown_fini(&plain);
    trm_grammar_pushdown_fini(&collected);
    trm_grammar_automaton_fini(&automaton);
    trm_grammar_automaton_fini(&renewed);
    trm_grammar_tree_fini(&tree);
}

static void test_collect(void **state)
{
    (void)state;
    check_collect(NULL, "{\"a\":[[[1,{\"b\":\"x\\n\",\"c\":[2.5,true]}],\"y\"]],\"d\":{}}");
    check_collect(
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":"
        "\"string\"}},\"n\":{\"type\":\"number\",\"multipleOf\":0.5},\"s\":{\"type\":\"string\",\"pattern\":\"b.c\","
        "\"maxLength\":9}},\"required\":[\"s\"]}",
        "{\"a\": [\"x\", \"y\", \"xy\"], \"n\": 12.5, \"s\": \"abxcabxc\", \"other\": {}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regex),  cmocka_unit_test(test_schema),  cmocka_unit_test(test_ebnf),
        cmocka_unit_test(test_errors), cmocka_unit_test(test_masks),   cmocka_unit_test(test_masks_of_long_tokens),
        cmocka_unit_test(test_walks),  cmocka_unit_test(test_collect),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
