/* A hostile or broken tokenizer.json gets one clear error; a text that it cannot encode too. */
#include <stdio.h>

#include <trireme/network.h>

#include "base/json.h"
#include "launcher/text/tokenizer/tokenizer.h"
#include "support/support.h"

#define BPE       "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}"
#define WORDLEVEL "\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"?\"}"
#define ADDED(id, rest)                                                                                                \
    "\"added_tokens\": [{\"id\": " id ", \"content\": \"<s>\", \"single_word\": false, \"lstrip\": false, "            \
    "\"rstrip\": false, \"normalized\": false, " rest "}]"

typedef struct refusal {
    const char *json;
    trm_status status;
    const char *part;
} refusal;

static const refusal refusals[] = {
    /* the file */
    {"", TRM_ERROR_INVALID_MODEL, "bad.json"},
    {"{", TRM_ERROR_INVALID_MODEL, "bad.json"},
    {"[]", TRM_ERROR_INVALID_MODEL, "bad.json: not an object"},
    {"{}", TRM_ERROR_INVALID_MODEL, "model is missing"},
    {"{\"model\": 1}", TRM_ERROR_INVALID_MODEL, "model is something else"},
    {"{\"model\": {\"type\": \"Magic\"}}", TRM_ERROR_UNSUPPORTED, "model type \"Magic\""},
    {"{\"model\": {\"type\": 3}}", TRM_ERROR_INVALID_MODEL, "type"},
    /* vocabularies */
    {"{\"model\": {\"type\": \"BPE\", \"merges\": []}}", TRM_ERROR_INVALID_MODEL, "model.vocab is missing"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": [], \"merges\": []}}", TRM_ERROR_INVALID_MODEL,
     "model.vocab is something else"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}", TRM_ERROR_INVALID_MODEL,
     "model.vocab is empty"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": \"0\"}, \"merges\": []}}", TRM_ERROR_INVALID_MODEL,
     "the id of token \"a\" is not an integer"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0.5}, \"merges\": []}}", TRM_ERROR_INVALID_MODEL,
     "the id of token \"a\" is not an integer"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", TRM_ERROR_INVALID_MODEL,
     "token \"a\" has id -1, expected 0 to 4194303"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 4194304}, \"merges\": []}}", TRM_ERROR_INVALID_MODEL,
     "token \"a\" has id 4194304"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1e300}, \"merges\": []}}", TRM_ERROR_INVALID_MODEL,
     "token \"a\""},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}", TRM_ERROR_INVALID_MODEL,
     "tokens \"a\" and \"b\" both have id 0"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"a\": 1}, \"merges\": []}}", TRM_ERROR_INVALID_MODEL,
     "bad.json"},
    /* merges */
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", TRM_ERROR_INVALID_MODEL, "model.merges is missing"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": {}}}", TRM_ERROR_INVALID_MODEL,
     "model.merges is something else"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"aa\": 1}, \"merges\": [\"a a\", \"a b\"]}}",
     TRM_ERROR_INVALID_MODEL, "model.merges[1] names \"b\", which is not in the vocabulary"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}}", TRM_ERROR_INVALID_MODEL,
     "model.merges[0] names \"aa\""},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}}", TRM_ERROR_INVALID_MODEL,
     "model.merges[0] is \"a\", expected two tokens"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a a\"]}}", TRM_ERROR_INVALID_MODEL,
     "model.merges[0]"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}", TRM_ERROR_INVALID_MODEL,
     "model.merges[0] is neither"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\", 1]]}}", TRM_ERROR_INVALID_MODEL,
     "model.merges[0] is neither"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"aa\": 1}, \"merges\": [\"a a\"], "
     "\"continuing_subword_prefix\": \"##\"}}",
     TRM_ERROR_INVALID_MODEL, "without the prefix \"##\""},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"dropout\": 0.1}}", TRM_ERROR_UNSUPPORTED,
     "model.dropout is 0.1"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"fuse_unk\": 1}}",
     TRM_ERROR_INVALID_MODEL, "fuse_unk"},
    /* Unigram and WordPiece */
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", TRM_ERROR_INVALID_MODEL, "expected an array of 1 to"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}}", TRM_ERROR_INVALID_MODEL, "model.vocab[0]"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", \"b\"]]}}", TRM_ERROR_INVALID_MODEL, "model.vocab[0]"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 1]], \"unk_id\": 1}}", TRM_ERROR_INVALID_MODEL,
     "model.unk_id is 1, expected 0 to 0"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 1]], \"unk_id\": -1}}", TRM_ERROR_INVALID_MODEL,
     "model.unk_id is -1"},
    {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}, \"max_input_chars_per_word\": -1}}",
     TRM_ERROR_INVALID_MODEL, "max_input_chars_per_word is -1"},
    /* normalizers */
    {"{" BPE ", \"normalizer\": []}", TRM_ERROR_INVALID_MODEL, "a normalizer is not an object"},
    {"{" BPE ", \"normalizer\": {}}", TRM_ERROR_INVALID_MODEL, "type"},
    {"{" BPE ", \"normalizer\": {\"type\": \"Rot13\"}}", TRM_ERROR_UNSUPPORTED, "normalizer type \"Rot13\""},
    {"{" BPE ", \"normalizer\": {\"type\": \"Sequence\"}}", TRM_ERROR_INVALID_MODEL, "no array \"normalizers\""},
    {"{" BPE ", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [null]}}", TRM_ERROR_INVALID_MODEL,
     "a normalizer is not an object"},
    {"{" BPE ", \"normalizer\": {\"type\": \"Strip\"}}", TRM_ERROR_INVALID_MODEL, "strip_left"},
    {"{" BPE ", \"normalizer\": {\"type\": \"Replace\", \"content\": \"\"}}", TRM_ERROR_INVALID_MODEL,
     "a pattern is neither"},
    {"{" BPE ", \"normalizer\": {\"type\": \"Replace\", \"content\": \"\", \"pattern\": {\"Regex\": \"(\"}}}",
     TRM_ERROR_INVALID_MODEL, "bad.json: regex \"(\""},
    {"{" BPE ", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"*\"}}", TRM_ERROR_INVALID_MODEL,
     "not base64"},
    {"{" BPE ", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"\"}}", TRM_ERROR_INVALID_MODEL,
     "precompiled_charsmap has 0 bytes"},
    {"{" BPE ", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"/wAAAAAAAAA=\"}}",
     TRM_ERROR_INVALID_MODEL, "too few for its trie of 255"},
    {"{" BPE ", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAAD/\"}}",
     TRM_ERROR_INVALID_MODEL, "not UTF-8"},
    /* pre-tokenizers */
    {"{" BPE ", \"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}}", TRM_ERROR_UNSUPPORTED,
     "pre-tokenizer type \"UnicodeScripts\""},
    {"{" BPE ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[\"}, \"behavior\": \"Isolated\", "
     "\"invert\": false}}",
     TRM_ERROR_INVALID_MODEL, "bad.json: regex \"[\""},
    {"{" BPE ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": \"Eaten\", "
     "\"invert\": false}}",
     TRM_ERROR_INVALID_MODEL, "behavior is \"Eaten\""},
    {"{" BPE ", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"ab\"}}", TRM_ERROR_INVALID_MODEL,
     "replacement is \"ab\", expected one character"},
    {"{" BPE ", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"often\"}}",
     TRM_ERROR_INVALID_MODEL, "prepend_scheme is \"often\""},
    {"{" BPE ", \"pre_tokenizer\": {\"type\": \"FixedLength\", \"length\": 0}}", TRM_ERROR_INVALID_MODEL, "length"},
    /* post-processors */
    {"{" BPE ", \"post_processor\": {\"type\": \"Stamp\"}}", TRM_ERROR_UNSUPPORTED, "post-processor type \"Stamp\""},
    {"{" BPE ", \"post_processor\": {\"type\": \"TemplateProcessing\"}}", TRM_ERROR_INVALID_MODEL,
     "no array \"single\""},
    {"{" BPE
     ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}]}}",
     TRM_ERROR_INVALID_MODEL, "token \"<s>\", which is not in special_tokens"},
    {"{" BPE ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"B\"}}]}}",
     TRM_ERROR_INVALID_MODEL, "neither sequence A"},
    {"{" BPE
     ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\"}}], "
     "\"special_tokens\": {\"x\": {\"ids\": [4000000000]}}}}",
     TRM_ERROR_INVALID_MODEL, "token x has no id from 0 to"},
    {"{" BPE ", \"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"a\", 0]}}", TRM_ERROR_INVALID_MODEL,
     "cls is not a pair"},
    /* decoders */
    {"{" BPE ", \"decoder\": {\"type\": \"Enigma\"}}", TRM_ERROR_UNSUPPORTED, "decoder type \"Enigma\""},
    {"{" BPE ", \"decoder\": {\"type\": \"Strip\", \"content\": \"\", \"start\": 1, \"stop\": 0}}",
     TRM_ERROR_INVALID_MODEL, "content is \"\", expected one character"},
    {"{" BPE ", \"decoder\": {\"type\": \"Strip\", \"content\": \"x\", \"start\": -1, \"stop\": 0}}",
     TRM_ERROR_INVALID_MODEL, "start is -1"},
    {"{" BPE ", \"decoder\": {\"type\": \"Sequence\", \"decoders\": {}}}", TRM_ERROR_INVALID_MODEL,
     "no array \"decoders\""},
    /* added tokens */
    {"{" BPE ", \"added_tokens\": {}}", TRM_ERROR_INVALID_MODEL, "added_tokens is not an array"},
    {"{" BPE ", \"added_tokens\": [1]}", TRM_ERROR_INVALID_MODEL, "an added token is not an object"},
    {"{" BPE ", \"added_tokens\": [{\"id\": 3}]}", TRM_ERROR_INVALID_MODEL, "content"},
    {"{" BPE ", " ADDED("-3", "\"special\": true") "}", TRM_ERROR_INVALID_MODEL, "added token \"<s>\" has id -3"},
    {"{" BPE ", " ADDED("3", "\"special\": 1") "}", TRM_ERROR_INVALID_MODEL, "special"},
};

static void refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        trm_tokenizer *tokenizer = NULL;
        const refusal *r = &refusals[i];
        trm_status status = trm_tokenizer_parse("bad.json", r->json, strlen(r->json), &tokenizer);
        if (status != r->status || strstr(trm_last_error(), r->part) == NULL ||
            strncmp(trm_last_error(), "bad.json", 8) != 0) {
            fail_msg("%s\ngave %s: \"%s\", expected %s with \"%s\"", r->json, trm_status_name(status), trm_last_error(),
                     trm_status_name(r->status), r->part);
        }
        assert_null(tokenizer);
    }
}

static void deep_sequences(void **state)
{
    (void)state;
    char *json = malloc(100000);
    assert_non_null(json);
    strcpy(json, "{" BPE ", \"normalizer\": ");
    for (int i = 0; i < 1000; i++) {
        strcat(json, "{\"type\": \"Sequence\", \"normalizers\": [");
    }
    trm_tokenizer *tokenizer = NULL;
    assert_fails(trm_tokenizer_parse("deep.json", json, strlen(json), &tokenizer), TRM_ERROR_INVALID_MODEL,
                 "deep.json");
    assert_null(tokenizer);
    free(json);
}

/* Templates in a row double what is before them: refused before it costs memory. */
static void doubling_templates(void **state)
{
    (void)state;
    char json[16384] = "{" BPE ", \"post_processor\": {\"type\": \"Sequence\", \"processors\": [";
    for (int i = 0; i < 40; i++) {
        strcat(json, i > 0 ? "," : "");
        strcat(
            json,
            "{\"type\": \"TemplateProcessing\", \"special_tokens\": {}, \"single\": [{\"Sequence\": {\"id\": \"A\"}}, "
            "{\"Sequence\": {\"id\": \"A\"}}]}");
    }
    strcat(json, "]}}");
    trm_tokenizer *tokenizer = NULL;
    assert_fails(trm_tokenizer_parse("many.json", json, strlen(json), &tokenizer), TRM_ERROR_INVALID_MODEL,
                 "more than 1024 tokens");
}

static void encode_fails(const char *json, const char *text, const char *part)
{
    trm_tokenizer *tokenizer;
    trm_tokens tokens = {0};
    assert_ok(trm_tokenizer_parse("good.json", json, strlen(json), &tokenizer));
    assert_fails(trm_tokenizer_encode(tokenizer, text, strlen(text), true, &tokens), TRM_ERROR_INVALID_MODEL, part);
    assert_null(tokens.ids);
    trm_tokenizer_close(tokenizer);
}

static void texts_without_a_token(void **state)
{
    (void)state;
    encode_fails("{" WORDLEVEL "}", "b", "word \"b\" is not in the vocabulary");
    encode_fails("{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}, \"unk_token\": \"?\"}}", "ab",
                 "word \"ab\" is not in the vocabulary");
    encode_fails("{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 1]]}}", "b", "the model has no unk_id");
    encode_fails("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"?\"}}", "b",
                 "character \"b\" is not in the vocabulary");
    encode_fails("{" BPE ", \"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?:a*)*(?:a*)*[bc]\"}, "
                 "\"behavior\": \"Isolated\", \"invert\": false}}",
                 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "match limit");
}

/* A character map of one entry, "a", whose replacement would start behind the end of the replacements. */
static void charsmap_out_of_range(void **state)
{
    (void)state;
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enum { UNITS = 512, SIZE = 4 + 4 * UNITS + 3 };
    uint32_t units[UNITS] = {[0] = 1u << 10, [1 ^ 'a'] = 'a' | 1u << 8 | 256u << 10, [1 ^ 'a' ^ 256] = 1u << 31 | 1000};
    unsigned char blob[SIZE] = {(4 * UNITS) & 0xFF, (4 * UNITS) >> 8};
    for (size_t i = 0; i < UNITS; i++) {
        for (int byte = 0; byte < 4; byte++) {
            blob[4 + 4 * i + (size_t)byte] = (unsigned char)(units[i] >> 8 * byte);
        }
    }
    char json[SIZE * 2], *out = json;
    out += sprintf(out, "{" BPE ", \"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"");
    for (size_t i = 0; i < SIZE; i += 3) { /* SIZE is a multiple of 3 */
        uint32_t group = (uint32_t)blob[i] << 16 | (uint32_t)blob[i + 1] << 8 | blob[i + 2];
        for (int shift = 18; shift >= 0; shift -= 6) {
            *out++ = alphabet[group >> shift & 63];
        }
    }
    strcpy(out, "\"}}");
    encode_fails(json, "a", "refers to replacement 1000 of 3 bytes");
}

static void bad_arguments(void **state)
{
    (void)state;
    trm_tokenizer *tokenizer;
    trm_tokens tokens;
    const char *json = "{" BPE "}";
    assert_fails(trm_tokenizer_open("/no/such/folder", &tokenizer), TRM_ERROR_IO, "/no/such/folder");
    assert_fails(trm_tokenizer_open(test_temporary_folder(), &tokenizer), TRM_ERROR_IO, "tokenizer.json");
    assert_fails(trm_tokenizer_open(NULL, &tokenizer), TRM_ERROR_INVALID_ARGUMENT, "path");
    assert_ok(trm_tokenizer_parse("good.json", json, strlen(json), &tokenizer));
    assert_fails(trm_tokenizer_encode(tokenizer, NULL, 1, false, &tokens), TRM_ERROR_INVALID_ARGUMENT, "text");
    assert_fails(trm_tokenizer_encode(tokenizer, "a", (size_t)1 << 40, false, &tokens), TRM_ERROR_INVALID_ARGUMENT,
                 "at most");
    assert_ok(trm_tokenizer_encode(tokenizer, NULL, 0, false, &tokens));
    assert_int_equal(tokens.count, 0);
    trm_tokens_fini(&tokens);
    int32_t strange[] = {-1, 3, INT32_MAX, INT32_MIN, 2};
    char *text;
    size_t size;
    assert_ok(trm_tokenizer_decode(tokenizer, strange, 5, false, &text, &size));
    assert_string_equal(text, "ab");
    trm_free(text);
    trm_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses),
        cmocka_unit_test(deep_sequences),
        cmocka_unit_test(doubling_templates),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(texts_without_a_token),
        cmocka_unit_test(charsmap_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
