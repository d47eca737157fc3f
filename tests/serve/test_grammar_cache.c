/* Walks along grammars whose last tokens are taken back: as walks that never went another way. */
#include "support/support.h"

#include <unistd.h>

#include <trireme/tokenizer.h>

#include "launcher/serve/requests/grammar_cache.h"

#define MODEL TRM_SOURCE_DIR "/configs/models/kjv-7m"

enum { MOST = 120, WORDS = 4096 / 32 };

static int32_t allowed_token(const uint32_t *mask, uint64_t *random, int32_t other_than)
{
    int32_t allowed[4096], n = 0;
    for (int32_t i = 0; i < 4096; i++) {
        if (i != other_than && (mask[i / 32] >> (i % 32) & 1u) != 0) {
            allowed[n++] = i;
        }
    }
    return n == 0 ? -1 : allowed[test_random_below(random, n)];
}

static void drafts_can_be_taken_back(void **state)
{
    (void)state;
    static const char schema[] = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":{\"type\":"
                                 "\"integer\"}},\"b\":{\"type\":\"string\"}},\"required\":[\"a\",\"b\"]}";
    trm_tokenizer *tokenizer;
    grammar_cache *cache;
    cached_grammar *g;
    const int32_t end = 1;
    uint64_t random = test_seed();
    assert_ok(trm_tokenizer_open(MODEL, &tokenizer));
    assert_ok(grammar_cache_create(tokenizer, &end, 1, 4096, &cache));
    assert_ok(grammar_cache_ask(cache, API_FORMAT_SCHEMA, schema, &g));
    while (!grammar_cache_is_ready(cache, g)) {
        usleep(1000);
    }
    assert_ok(grammar_cache_outcome(g));
    grammar_walk walk, straight;
    assert_ok(grammar_walk_init(g, &walk));
    assert_ok(grammar_walk_init(g, &straight));
    int32_t tokens[MOST + 32], n = 0, taken_back = 0;
    while (n < MOST) {
        uint32_t mask[WORDS], expected[WORDS], drafted[WORDS];
        memset(mask, 0xff, sizeof(mask));
        memset(expected, 0xff, sizeof(expected));
        assert_ok(grammar_walk_mask(&walk, tokens, n, mask));
        assert_ok(grammar_walk_mask(&straight, tokens, n, expected));
        assert_memory_equal(mask, expected, sizeof(mask));
        int32_t token = allowed_token(mask, &random, end);
        if (token < 0) {
            break;
        }
        memcpy(drafted, mask, sizeof(mask));
        int64_t most = test_random_below(&random, 17); /* drafts that go another way, or the same */
        for (int32_t k = 0; k < most; k++) {
            int32_t draft = k == 0 && test_random_below(&random, 2) == 0 ? token : allowed_token(drafted, &random, end);
            if (draft < 0) {
                break;
            }
            tokens[n + k] = draft;
            memset(drafted, 0xff, sizeof(drafted));
            assert_ok(grammar_walk_mask(&walk, tokens, n + k + 1, drafted));
            taken_back += k == 0 && draft != token;
        }
        tokens[n++] = token;
    }
    assert_true(n > 20 && taken_back > 5);
    grammar_walk_fini(&walk);
    grammar_walk_fini(&straight);
    grammar_cache_release(cache, g);
    grammar_cache_destroy(cache);
    trm_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_can_be_taken_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
