/* Prompt lookup against a plain search, and what the speculator makes of times and records. */
#include "support/support.h"

#include "dist/llm/scheduler/ngram_draft.h"
#include "dist/llm/scheduler/speculator.h"

#define MOST 400

/* The newest of the places where most tokens agree, among the 16 newest with two that do. */
static int32_t guess_plainly(const int32_t *tokens, int32_t n, int32_t most, int32_t *draft, int32_t *agreed)
{
    int32_t best = 0, places = 0;
    *agreed = 0;
    for (int32_t at = n - 1; at >= 2 && places < 16; at--) {
        int32_t agreeing = 0;
        while (agreeing < TRM_NGRAM_LONGEST && agreeing < at && tokens[at - 1 - agreeing] == tokens[n - 1 - agreeing]) {
            agreeing++;
        }
        places += agreeing >= 2;
        if (agreeing >= 2 && agreeing > *agreed) {
            *agreed = agreeing;
            best = at;
        }
    }
    for (int32_t i = 0; i < most && best > 0; i++) {
        draft[i] = best + i < n ? tokens[best + i] : draft[best + i - n];
    }
    return best > 0 ? most : 0;
}

static void guesses_are_those_of_a_plain_search(void **state)
{
    (void)state;
    static int32_t tokens[MOST], memory[4 * MOST];
    uint64_t random = test_seed();
    int32_t found = 0;
    for (int32_t turn = 0; turn < 60; turn++) {
        int32_t n = 0, vocab = 2 + turn % 9;
        trm_ngram_draft lookup;
        assert_true(trm_ngram_draft_bytes(MOST) <= sizeof(memory));
        trm_ngram_draft_init(&lookup, memory, MOST);
        while (n < MOST) {
            int64_t more = 1 + test_random_below(&random, 7);
            for (; more > 0 && n < MOST; more--) {
                tokens[n++] = 50000 + (int32_t)test_random_below(&random, vocab);
            }
            int32_t draft[16], expected[16], agreed, expected_agreed, most = (int32_t)test_random_below(&random, 17);
            int32_t n_draft = trm_ngram_draft_guess(&lookup, tokens, n, most, draft, &agreed);
            assert_int_equal(n_draft, guess_plainly(tokens, n, most, expected, &expected_agreed));
            assert_int_equal(agreed, expected_agreed);
            assert_memory_equal(draft, expected, (size_t)n_draft * sizeof(*draft));
            found += n_draft > 0;
        }
    }
    assert_true(found > 1000);
}

static void a_cycle_is_drafted_on(void **state)
{
    (void)state;
    static const int32_t tokens[] = {9, 1, 2, 3, 1, 2};
    int32_t memory[64], draft[7], agreed;
    static const int32_t expected[] = {3, 1, 2, 3, 1, 2, 3};
    trm_ngram_draft lookup;
    assert_true(trm_ngram_draft_bytes(16) <= sizeof(memory));
    trm_ngram_draft_init(&lookup, memory, 16);
    assert_int_equal(trm_ngram_draft_guess(&lookup, tokens, 1, 7, draft, &agreed), 0);
    assert_int_equal(trm_ngram_draft_guess(&lookup, tokens, 2, 7, draft, &agreed), 0);
    assert_int_equal(trm_ngram_draft_guess(&lookup, tokens, 6, 7, draft, &agreed), 7);
    assert_memory_equal(draft, expected, sizeof(expected));
    assert_int_equal(agreed, 2);
}

static int32_t choose_with(trm_speculator *speculator, int32_t sequences, float right, int32_t n)
{
    trm_draft drafts[4];
    for (int32_t i = 0; i < 4; i++) {
        drafts[i] = (trm_draft){n, right};
    }
    return trm_speculator_choose(speculator, sequences, drafts, sequences, 16, 64);
}

static void drafts_are_verified_as_far_as_it_pays(void **state)
{
    (void)state;
    trm_speculator free_tokens = {0}, dear = {0}, fallen = {0};
    assert_int_equal(choose_with(&free_tokens, 1, 0.9f, 16), 0); /* nothing is known of steps without */
    for (int32_t i = 0; i < 5; i++) {
        trm_speculator_note(&free_tokens, 1, 0, 0.27);
        trm_speculator_note(&dear, 1, 0, 0.010);
    }
    for (int32_t i = 0; i < 4; i++) { /* weights that stream: a step is a step */
        trm_speculator_note(&free_tokens, 1, choose_with(&free_tokens, 1, 0.9f, 16), 0.27);
    }
    assert_in_range(choose_with(&free_tokens, 1, 0.9f, 16), 15, 16);
    assert_int_equal(choose_with(&free_tokens, 1, 0.0f, 16), 0);
    for (int32_t size = 1; size <= 16; size++) { /* every token costs as much as the first */
        trm_speculator_note(&dear, 1, size, 0.010 * (size + 1));
    }
    assert_int_equal(choose_with(&dear, 1, 0.8f, 16), 0);
    fallen = dear;
    for (int32_t i = 0; i < 128; i++) { /* the draft checks it again */
        choose_with(&fallen, 1, 0.8f, 16);
    }
    assert_true(choose_with(&fallen, 1, 0.8f, 16) > 0);
    /* one that is slow once is not given up, one that is always slow is */
    trm_speculator steady = {0};
    for (int32_t i = 0; i < 5; i++) {
        trm_speculator_note(&steady, 1, 0, 0.004);
        trm_speculator_note(&steady, 1, 3, i == 0 ? 0.5 : 0.005);
    }
    assert_in_range(choose_with(&steady, 1, 0.9f, 3), 1, 3);
    trm_draft_record record;
    trm_draft_record_init(&record);
    for (int32_t i = 0; i < 40; i++) {
        trm_draft_record_note(&record, 1, 1, 0);
        trm_draft_record_note(&record, 2, 4, 4);
    }
    assert_true(record.right[1] < 0.05f && record.right[2] > 0.95f && record.right[0] > 0.3f);
}

static void ways_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        trm_speculation expected;
    } good[] = {{"off", {TRM_SPECULATION_OFF, 0}},
                {"lookup", {TRM_SPECULATION_NGRAM, 0}},
                {"lookup:1", {TRM_SPECULATION_NGRAM, 1}},
                {"auto", {TRM_SPECULATION_AUTO, 0}},
                {"auto:15", {TRM_SPECULATION_AUTO, 15}}};
    static const char *const bad[] = {"",        "on",      "off:3",    "lookup:",   "lookup:0",
                                      "auto:16", "auto:-1", "lookups",  "lookup:3x", "lookup:99999999999999999999",
                                      "auto: 3", "AUTO",    "lookup:+3"};
    trm_speculation found;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_ok(trm_speculation_parse(good[i].text, &found));
        assert_int_equal(found.kind, good[i].expected.kind);
        assert_int_equal(found.tokens, good[i].expected.tokens);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_fails(trm_speculation_parse(bad[i], &found), TRM_ERROR_INVALID_ARGUMENT, "expected off, lookup");
    }
    assert_fails(trm_speculation_parse(NULL, &found), TRM_ERROR_INVALID_ARGUMENT, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses_are_those_of_a_plain_search),
        cmocka_unit_test(a_cycle_is_drafted_on),
        cmocka_unit_test(drafts_are_verified_as_far_as_it_pays),
        cmocka_unit_test(ways_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
