/* What steps are padded to, and which of those forms are remembered. */
#include "support/support.h"

#include "dist/llm/graph_buckets.h"

static trm_graph_buckets steps;

static void decode_steps_are_padded_to_the_next(void **state)
{
    (void)state;
    trm_graph_buckets_init(&steps, 100, 7, 228, 4);
    for (int32_t n = 1; n <= 100; n++) {
        const trm_graph_bucket *step = trm_graph_bucket_decode(&steps, n, 5),
                               *narrow = trm_graph_bucket_decode(&steps, n, 4);
        assert_true(step->form.table_blocks == 0 && narrow->form.table_blocks == 4);
        assert_true(narrow->form.sequences == step->form.sequences && narrow->form.tokens == step->form.tokens);
        assert_true(step->form.sequences >= n && step->form.sequences <= 100);
        assert_true(step->form.sequences < n + 8);
        assert_int_equal(step->form.tokens, step->form.sequences);
        assert_int_equal(step->form.rows, step->form.sequences);
    }
    for (int32_t n = 2; n <= 8; n++) {
        const trm_graph_bucket *step = trm_graph_bucket_draft(&steps, n);
        assert_true(step->form.tokens >= n && step->form.tokens < 2 * n);
        assert_int_equal(step->form.rows, step->form.tokens);
        assert_int_equal(step->form.sequences, 1);
    }
    assert_null(trm_graph_bucket_draft(&steps, 9));
    trm_graph_buckets_init(&steps, 1, 0, 1, 0);
    assert_int_equal(trm_graph_bucket_decode(&steps, 1, 1)->form.tokens, 1);
    assert_null(trm_graph_bucket_draft(&steps, 2));
}

static void other_steps_fit_their_form(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    int32_t found = 0;
    trm_graph_buckets_init(&steps, 100, 0, 100, 0);
    for (int32_t i = 0; i < 20000; i++) {
        trm_step_form most = {1 + (int32_t)(test_random(&random) % 9000), 1 + (int32_t)(test_random(&random) % 300), 0,
                              0};
        most.tokens += most.sequences;
        most.rows = most.sequences + (int32_t)(test_random(&random) % 128);
        trm_step_form form;
        form.sequences = 1 + (int32_t)(test_random(&random) % (uint64_t)most.sequences);
        int32_t room = most.tokens - form.sequences;
        form.tokens = form.sequences + (int32_t)(test_random(&random) % (uint64_t)(room < 3000 ? room + 1 : 3000));
        int32_t rows = form.tokens < most.rows ? form.tokens : most.rows;
        form.rows = (int32_t)(test_random(&random) % (uint64_t)(rows + 1));
        const trm_graph_bucket *step = trm_graph_bucket_mixed(&steps, &form, &most);
        if (step == NULL) {
            assert_true(form.tokens > 2048 || most.tokens <= 2 * most.sequences + 64 || form.rows > form.sequences);
            continue;
        }
        found++;
        const trm_step_form *padded = &step->form;
        assert_true(padded->tokens >= form.tokens && padded->tokens <= most.tokens);
        assert_true(padded->sequences >= form.sequences && padded->sequences <= most.sequences);
        assert_true(padded->rows >= form.rows && padded->rows <= most.rows);
        assert_true(padded->tokens > padded->sequences);
        assert_int_equal(padded->rows == 0, form.rows == 0);
        assert_ptr_equal(trm_graph_bucket_mixed(&steps, &form, &most), step);
    }
    assert_true(found > 10000);
}

/* The form not used for longest gives way. */
static void forms_give_way_to_others(void **state)
{
    (void)state;
    const trm_step_form most = {8192, 64, 64, 0};
    trm_graph_buckets_init(&steps, 64, 0, 64, 0);
    trm_step_form kept = {128, 8, 8, 0};
    trm_graph_bucket *first = trm_graph_bucket_mixed(&steps, &kept, &most);
    first->uses = 2;
    for (int32_t i = 0; i < 3 * TRM_MIXED_FORMS; i++) { /* 16 sizes of each of three numbers of sequences */
        trm_step_form form = {192 + 64 * (i % 13), 8 << i % 3, 8, 0};
        assert_ptr_not_equal(trm_graph_bucket_mixed(&steps, &form, &most), first);
        assert_ptr_equal(trm_graph_bucket_mixed(&steps, &kept, &most), first);
    }
    assert_int_equal(first->uses, 2);
    for (int32_t i = 0; i < TRM_MIXED_FORMS; i++) {
        trm_step_form form = {65 + 32 * i, 32, i % 2 == 0 ? 0 : 8, 0};
        assert_non_null(trm_graph_bucket_mixed(&steps, &form, &most));
        form.sequences = 64;
        assert_non_null(trm_graph_bucket_mixed(&steps, &form, &most));
    }
    assert_int_equal(trm_graph_bucket_mixed(&steps, &kept, &most)->uses, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode_steps_are_padded_to_the_next),
        cmocka_unit_test(other_steps_fit_their_form),
        cmocka_unit_test(forms_give_way_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
