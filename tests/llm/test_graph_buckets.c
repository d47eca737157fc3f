/* What steps are padded to, and which of those forms the cache of captured runs keeps. */
#include "support/support.h"

#include "dist/llm/graph_buckets.h"

static trm_graph_buckets buckets;

static void decode_steps_are_padded_to_the_next(void **state)
{
    (void)state;
    trm_graph_buckets_init(&buckets, 100, 7, 228, 4);
    for (int32_t n = 1; n <= 100; n++) {
        const trm_step_form form = trm_graph_bucket_decode(&buckets, n, 5),
                            narrow = trm_graph_bucket_decode(&buckets, n, 4);
        assert_true(form.table_blocks == 0 && narrow.table_blocks == 4);
        assert_true(narrow.sequences == form.sequences && narrow.tokens == form.tokens);
        assert_true(form.sequences >= n && form.sequences <= 100);
        assert_true(form.sequences < n + 8);
        assert_int_equal(form.tokens, form.sequences);
        assert_int_equal(form.rows, form.sequences);
    }
    for (int32_t n = 2; n <= 8; n++) {
        const trm_step_form *form = trm_graph_bucket_draft(&buckets, n);
        assert_true(form->tokens >= n && form->tokens < 2 * n);
        assert_int_equal(form->rows, form->tokens);
        assert_int_equal(form->sequences, 1);
    }
    assert_null(trm_graph_bucket_draft(&buckets, 9));
    trm_graph_buckets_init(&buckets, 1, 0, 1, 0);
    assert_int_equal(trm_graph_bucket_decode(&buckets, 1, 1).tokens, 1);
    assert_null(trm_graph_bucket_draft(&buckets, 2));
}

static void other_steps_fit_their_form(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    int32_t found = 0;
    for (int32_t i = 0; i < 20000; i++) {
        trm_step_form most = {1 + (int32_t)(test_random(&random) % 9000), 1 + (int32_t)(test_random(&random) % 300), 0,
                              0};
        most.tokens += most.sequences;
        most.rows = most.sequences + (int32_t)(test_random(&random) % 128);
        trm_step_form form, found_form, again;
        form.sequences = 1 + (int32_t)(test_random(&random) % (uint64_t)most.sequences);
        int32_t room = most.tokens - form.sequences;
        form.tokens = form.sequences + (int32_t)(test_random(&random) % (uint64_t)(room < 3000 ? room + 1 : 3000));
        int32_t rows = form.tokens < most.rows ? form.tokens : most.rows;
        form.rows = (int32_t)(test_random(&random) % (uint64_t)(rows + 1));
        if (!trm_graph_bucket_mixed(&form, &most, &found_form)) {
            assert_true(form.tokens > 2048 || most.tokens <= 2 * most.sequences + 64 || form.rows > form.sequences);
            continue;
        }
        found++;
        const trm_step_form *padded = &found_form;
        assert_true(padded->tokens >= form.tokens && padded->tokens <= most.tokens);
        assert_true(padded->sequences >= form.sequences && padded->sequences <= most.sequences);
        assert_true(padded->rows >= form.rows && padded->rows <= most.rows);
        assert_true(padded->tokens > padded->sequences);
        assert_int_equal(padded->rows == 0, form.rows == 0);
        assert_true(trm_graph_bucket_mixed(&form, &most, &again));
        assert_memory_equal(&again, padded, sizeof(again));
    }
    assert_true(found > 10000);
}

/* Long steps have few forms: by 128 tokens, and 8, 32, 128 or 512 sequences. */
static void long_steps_share_forms(void **state)
{
    (void)state;
    static const struct {
        int32_t tokens, sequences, padded_tokens, padded_sequences;
    } cases[] = {{130, 20, 192, 32},  {300, 33, 320, 64},     {511, 65, 512, 128},    {512, 9, 512, 32},
                 {513, 33, 640, 128}, {1024, 127, 1024, 128}, {1025, 129, 1152, 300}, {30, 5, 32, 8}};
    const trm_step_form most = {8192, 300, 300, 0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const trm_step_form form = {cases[i].tokens, cases[i].sequences, cases[i].sequences, 0};
        trm_step_form padded;
        assert_true(trm_graph_bucket_mixed(&form, &most, &padded));
        assert_int_equal(padded.tokens, cases[i].padded_tokens);
        assert_int_equal(padded.sequences, cases[i].padded_sequences);
        assert_int_equal(padded.rows, cases[i].padded_sequences);
    }
}

static trm_captured_shape *get(trm_capture_cache *cache, int32_t tokens, int32_t sequences, int32_t rows)
{
    const trm_step_form form = {tokens, sequences, rows, 0}, most = {8192, 64, 64, 0};
    trm_step_form padded;
    assert_true(trm_graph_bucket_mixed(&form, &most, &padded));
    trm_captured_shape *step = trm_capture_cache_get(cache, &padded);
    assert_memory_equal(trm_graph_bucket_form(step), &padded, sizeof(padded));
    return step;
}

/* The form not used for longest gives way, those of decode steps do not. */
static void forms_give_way_to_others(void **state)
{
    (void)state;
    trm_capture_cache cache;
    trm_graph_buckets_init(&buckets, 64, 0, 64, 4);
    const trm_step_form five = trm_graph_bucket_decode(&buckets, 5, 9),
                        narrow = trm_graph_bucket_decode(&buckets, 5, 2);
    assert_ok(trm_graph_buckets_open(&buckets, &cache));
    trm_captured_shape *decode = trm_capture_cache_find(&cache, &five);
    assert_true(decode != NULL && decode->stays && trm_capture_cache_find(&cache, &narrow) != decode);
    trm_captured_shape *first = get(&cache, 128, 8, 8);
    first->uses = 2;
    for (int32_t i = 0; i < 3 * TRM_MIXED_FORMS; i++) { /* 16 sizes of each of three numbers of sequences */
        assert_ptr_not_equal(get(&cache, 192 + 64 * (i % 13), 8 << i % 3, 8), first);
        assert_ptr_equal(get(&cache, 128, 8, 8), first);
    }
    assert_int_equal(first->uses, 2);
    for (int32_t i = 0; i < TRM_MIXED_FORMS; i++) {
        (void)get(&cache, 65 + 32 * i, 32, i % 2 == 0 ? 0 : 8);
        (void)get(&cache, 65 + 32 * i, 64, i % 2 == 0 ? 0 : 8);
    }
    assert_int_equal(get(&cache, 128, 8, 8)->uses, 0);
    assert_ptr_equal(trm_capture_cache_find(&cache, &five), decode);
    assert_true(trm_capture_cache_find(&cache, &narrow)->stays);
    trm_capture_cache_fini(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_steps_are_padded_to_the_next),
        cmocka_unit_test(other_steps_fit_their_form),
        cmocka_unit_test(long_steps_share_forms),
        cmocka_unit_test(forms_give_way_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
