/* Encoding and decoding equal Hugging Face's on the goldens; look-ups; threads. */
#include <pthread.h>
#include <stdio.h>

#include <trireme/network.h>
#include <trireme/tokenizer.h>

#include "base/json.h"
#include "launcher/text/strings/utf8.h"
#include "launcher/text/tokenizer/tokenizer.h"
#include "support/support.h"

#define FOLDER TRM_SOURCE_DIR "/tests/goldens/tokenizers/"

static trm_json_document *read_json(const char *name, const char *suffix)
{
    char path[512];
    trm_json_document *document;
    snprintf(path, sizeof(path), FOLDER "%s%s", name, suffix);
    assert_ok(trm_json_read(path, (size_t)64 << 20, &document));
    return document;
}

static trm_tokenizer *open_tokenizer(const char *name)
{
    char path[512];
    trm_tokenizer *tokenizer;
    snprintf(path, sizeof(path), FOLDER "%s.json", name);
    assert_ok(trm_tokenizer_open(path, &tokenizer));
    return tokenizer;
}

static trm_bytes from_hex(const char *hex)
{
    trm_bytes bytes = {0};
    assert_ok(trm_bytes_reserve(&bytes, strlen(hex) / 2 + 1));
    for (; hex[0] != '\0' && hex[1] != '\0'; hex += 2) {
        char pair[3] = {hex[0], hex[1], '\0'};
        bytes.data[bytes.size++] = (char)strtoul(pair, NULL, 16);
    }
    return bytes;
}

/* Text of a golden: a string, or {"hex": ...}. */
static trm_bytes golden_text(const trm_json *json)
{
    if (trm_json_is_object(json)) {
        return from_hex(trm_json_string(trm_json_get(json, "hex")));
    }
    const char *string = trm_json_string(json);
    trm_bytes bytes = {0};
    assert_ok(trm_bytes_append(&bytes, string, strlen(string)));
    return bytes;
}

static void check_ids(const char *name, size_t row, const trm_json *json, const int32_t *ids, size_t count)
{
    size_t i = 0;
    for (const trm_json *id = trm_json_first(json); id != NULL; id = trm_json_next(id), i++) {
        if (i >= count || ids[i] != (int32_t)trm_json_number(id, -1)) {
            fail_msg("%s: text %zu: id %zu is %d, expected %d", name, row, i, i < count ? (int)ids[i] : -1,
                     (int)trm_json_number(id, -1));
        }
    }
    if (i != count) {
        fail_msg("%s: text %zu has %zu ids, expected %zu", name, row, count, i);
    }
}

/* Decoding as a whole and as a stream gives the expected text; the stream never cuts a character. */
static void check_text(const char *name, size_t row, const trm_tokenizer *tokenizer, const int32_t *ids, size_t count,
                       bool skip_special, const trm_json *json)
{
    trm_bytes expected = golden_text(json);
    char *text;
    size_t size, done = 0;
    assert_ok(trm_tokenizer_decode(tokenizer, ids, count, skip_special, &text, &size));
    if (size != expected.size || (size > 0 && memcmp(text, expected.data, size) != 0)) {
        fail_msg("%s: text %zu decodes to \"%s\", expected \"%.*s\"", name, row, text, (int)expected.size,
                 expected.data);
    }
    trm_decoder *decoder;
    assert_ok(trm_decoder_create(tokenizer, skip_special, &decoder));
    for (int round = 0; round < 2; round++, done = 0) { /* finishing makes it as new */
        for (size_t i = 0; i <= count; i++) {
            const char *part;
            size_t length;
            assert_ok(i < count ? trm_decoder_push(decoder, ids[i], &part, &length)
                                : trm_decoder_finish(decoder, &part, &length));
            if (length > size - done || memcmp(part, text + done, length) != 0) {
                fail_msg("%s: text %zu: the stream gives \"%s\" at token %zu, expected \"%s\"", name, row, part, i,
                         text + done);
            }
            assert_int_equal(trm_utf8_valid_prefix(part, length), length);
            done += length;
        }
        assert_int_equal(done, size);
    }
    trm_decoder_destroy(decoder);
    trm_free(text);
    trm_bytes_fini(&expected);
}

static void check_golden(const char *name, size_t row, const trm_tokenizer *tokenizer, const trm_json *golden,
                         const char *hex)
{
    const trm_json *plain = trm_json_at(golden, 0), *special = trm_json_at(golden, 1);
    special = trm_json_is_array(special) ? special : plain;
    trm_tokens tokens = {0};
    if (hex != NULL) {
        trm_bytes text = from_hex(hex);
        assert_ok(trm_tokenizer_encode(tokenizer, text.data, text.size, false, &tokens));
        check_ids(name, row, plain, tokens.ids, tokens.count);
        trm_tokens_fini(&tokens);
        assert_ok(trm_tokenizer_encode(tokenizer, text.data, text.size, true, &tokens));
        check_ids(name, row, special, tokens.ids, tokens.count);
        trm_bytes_fini(&text);
    } else { /* ids that no text gives */
        tokens.count = trm_json_count(plain);
        tokens.ids = calloc(tokens.count + 1, sizeof(*tokens.ids));
        size_t i = 0;
        for (const trm_json *id = trm_json_first(plain); id != NULL; id = trm_json_next(id)) {
            tokens.ids[i++] = (int32_t)trm_json_number(id, -1);
        }
    }
    const trm_json *all = trm_json_at(golden, 2), *without = trm_json_at(golden, 3);
    bool same = !trm_json_is_string(without) && !trm_json_is_object(without);
    check_text(name, row, tokenizer, tokens.ids, tokens.count, false, all);
    check_text(name, row, tokenizer, tokens.ids, tokens.count, true, same ? all : without);
    trm_tokens_fini(&tokens);
}

static void goldens(void **state)
{
    (void)state;
    trm_json_document *names = read_json("names", ".json"), *texts = read_json("texts", ".json");
    size_t checked = 0;
    for (const trm_json *name = trm_json_first(trm_json_root(names)); name != NULL; name = trm_json_next(name)) {
        trm_tokenizer *tokenizer = open_tokenizer(trm_json_string(name));
        trm_json_document *golden = read_json(trm_json_string(name), ".golden.json");
        const trm_json *text = trm_json_first(trm_json_root(texts));
        size_t row = 0;
        for (const trm_json *entry = trm_json_first(trm_json_root(golden)); entry != NULL;
             entry = trm_json_next(entry)) {
            check_golden(trm_json_string(name), row++, tokenizer, entry, trm_json_string(text));
            text = text == NULL ? NULL : trm_json_next(text);
            checked++;
        }
        assert_null(text);
        trm_json_close(golden);
        trm_tokenizer_close(tokenizer);
    }
    assert_true(checked > 2000);
    trm_json_close(names);
    trm_json_close(texts);
}

static void lookups(void **state)
{
    (void)state;
    trm_tokenizer *tokenizer = open_tokenizer("gpt2");
    assert_int_equal(trm_tokenizer_vocab_size(tokenizer), 705);
    assert_int_equal(trm_tokenizer_find(tokenizer, "<|endoftext|>"), 0);
    assert_string_equal(trm_tokenizer_token(tokenizer, 0), "<|endoftext|>");
    assert_int_equal(trm_tokenizer_find(tokenizer, "oneword"), 700);
    assert_string_equal(trm_tokenizer_token(tokenizer, 700), "oneword");
    assert_int_equal(trm_tokenizer_find(tokenizer, "no such token"), -1);
    for (int32_t id = 0; id < 705; id++) {
        assert_int_equal(trm_tokenizer_find(tokenizer, trm_tokenizer_token(tokenizer, id)), id);
    }
    assert_null(trm_tokenizer_token(tokenizer, -1));
    assert_null(trm_tokenizer_token(tokenizer, 705));
    trm_tokenizer_close(tokenizer);
    trm_tokenizer_close(NULL);
}

/* A folder is searched for tokenizer.json. */
static void opens_a_folder(void **state)
{
    (void)state;
    static const char json[] = "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"a\"}}";
    char path[4200];
    const char *folder = test_temporary_folder();
    snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
    test_write_file(path, json, strlen(json));
    trm_tokenizer *tokenizer;
    assert_ok(trm_tokenizer_open(folder, &tokenizer));
    assert_int_equal(trm_tokenizer_vocab_size(tokenizer), 1);
    trm_tokenizer_close(tokenizer);
}

/* Long pieces must not cost their square: these would take minutes if they did. */
static void long_runs(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "qwen2", "llama2", "gemma", "t5", "albert", "bert_uncased", "clip"};
    static const char *const units[] = {"a", " ", "\n", "ab", "\xCC\x81", "\xCC\x81\xCC\xA3", "\xE4\xB8\xAD", "!", "1"};
    size_t size = 300000;
    char *text = malloc(size);
    assert_non_null(text);
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        trm_tokenizer *tokenizer = open_tokenizer(names[n]);
        for (size_t u = 0; u < sizeof(units) / sizeof(units[0]); u++) {
            size_t length = strlen(units[u]);
            for (size_t i = 0; i < size; i++) {
                text[i] = units[u][i % length];
            }
            trm_tokens tokens;
            assert_ok(trm_tokenizer_encode(tokenizer, text, size, false, &tokens));
            assert_true(tokens.count <= size * 2);
            trm_tokens_fini(&tokens);
        }
        trm_tokenizer_close(tokenizer);
    }
    free(text);
}

/* What a stream keeps does not grow with what it has put out. */
static void stream_is_bounded(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "llama2", "t5", "bert_uncased", "clip", "gemma", "prefix_bpe"};
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        trm_tokenizer *tokenizer = open_tokenizer(names[n]);
        trm_decode_stream stream;
        assert_ok(trm_decode_stream_init(&stream, &tokenizer->decoder));
        uint64_t random = test_seed();
        for (int i = 0; i < 20000; i++) {
            /* no runs of byte tokens: those are not certain before they end */
            const trm_id_entry *entry = &tokenizer->entries[300 + test_random_below(&random, 300)];
            assert_ok(trm_decode_stream_push(&stream, entry->decoded, entry->decoded_size));
            stream.out.size = 0;
            for (size_t s = 0; s < tokenizer->decoder.count; s++) {
                assert_in_range(stream.states[s].pending.size, 0, 256);
                assert_in_range(stream.states[s].collected.size, 0, 256);
            }
        }
        trm_decode_stream_fini(&stream);
        trm_tokenizer_close(tokenizer);
    }
}

typedef struct encoder {
    const trm_tokenizer *tokenizer;
    uint64_t seed;
    size_t tokens;
} encoder;

static void *encode_many(void *user)
{
    encoder *e = user;
    static const char *const words[] = {"the ", "rowers ", "pulled ", "together", ", 12345 ",
                                        "\n",   "don't ",  "水手们",  "é"};
    uint64_t random = e->seed;
    for (int i = 0; i < 300; i++) {
        char text[256] = "";
        for (int w = 0; w < 12; w++) {
            strcat(text, words[test_random_below(&random, 9)]);
        }
        trm_tokens tokens;
        if (trm_tokenizer_encode(e->tokenizer, text, strlen(text), true, &tokens) == TRM_OK) {
            e->tokens += tokens.count;
            trm_tokens_fini(&tokens);
        }
    }
    return NULL;
}

static void several_threads(void **state)
{
    (void)state;
    trm_tokenizer *tokenizer = open_tokenizer("gpt4o");
    encoder encoders[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        encoders[i] = (encoder){tokenizer, test_seed(), 0};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, &encoders[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(encoders[i].tokens > 0);
        assert_int_equal(encoders[i].tokens, encoders[0].tokens);
    }
    trm_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),   cmocka_unit_test(lookups),           cmocka_unit_test(opens_a_folder),
        cmocka_unit_test(long_runs), cmocka_unit_test(stream_is_bounded), cmocka_unit_test(several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
