/* Key ranges, tiles and splits of the CUDA attention kernels, which are plain C: each against a count by hand. */
#include "support/support.h"

#include "attention/cuda/geometry.h"

/* The layer's words: query i sees keys 0 .. i (+ keys - queries), at most the last `window` of them. */
static bool sees(trm_causal causal, int32_t window, int32_t query, int32_t queries, int32_t keys, int32_t key)
{
    const int32_t last = causal == TRM_CAUSAL_LOWER_RIGHT ? query + keys - queries : query;
    return (causal == TRM_CAUSAL_NONE || key <= last) && (window == 0 || key > last - window);
}

static void ranges_are_what_is_seen(void **state)
{
    (void)state;
    for (int causal = TRM_CAUSAL_NONE; causal <= TRM_CAUSAL_LOWER_RIGHT; causal++) {
        for (int32_t window = 0; window < (causal == TRM_CAUSAL_NONE ? 1 : 6); window++) {
            for (int32_t queries = 1; queries < 9; queries++) {
                for (int32_t keys = 0; keys < 9; keys++) {
                    trm_key_range before = {0, 0};
                    for (int32_t query = 0; query < queries; query++) {
                        const trm_key_range r = trm_attention_range((trm_causal)causal, window, query, queries, keys);
                        assert_true(r.low >= before.low && r.high >= before.high && r.low <= r.high);
                        before = r;
                        for (int32_t key = 0; key < keys; key++) {
                            assert_int_equal(key >= r.low && key < r.high,
                                             sees((trm_causal)causal, window, query, queries, keys, key));
                        }
                    }
                }
            }
        }
    }
}

static void splits_cover_the_keys(void **state)
{
    (void)state;
    for (int32_t splits = 1; splits < 20; splits++) {
        for (int32_t keys = 0; keys < 2000; keys += keys < 200 ? 1 : 37) {
            const int32_t size = trm_attention_split_size(keys, splits, 64);
            const int32_t used = trm_attention_splits_used(keys, splits, 64);
            assert_int_equal(size % 64, 0);
            assert_true(used <= splits);
            assert_true((int64_t)used * size >= keys);
            assert_true(used == 0 ? keys == 0 : (used - 1) * size < keys);
        }
    }
}

static void tiles_hold_each_query_once(void **state)
{
    (void)state;
    uint64_t random = test_seed();
    for (int round = 0; round < 500; round++) {
        enum { MOST = 7, ROWS = 4 };
        int32_t starts[MOST + 1], sequences = (int32_t)test_random_below(&random, MOST + 1);
        int held[MOST * 12] = {0};
        const bool skip = test_random_below(&random, 2) == 1;
        starts[0] = 0;
        for (int32_t s = 0; s < sequences; s++) {
            starts[s + 1] = starts[s] + (int32_t)test_random_below(&random, 12);
        }
        const int32_t tokens = starts[sequences];
        int64_t tile = 0;
        for (;; tile++) {
            const trm_query_tile t = trm_attention_find_tile(starts, sequences, ROWS, skip, tile);
            if (t.sequence < 0) {
                break;
            }
            assert_int_equal(t.first, starts[t.sequence]);
            assert_int_equal(t.queries, starts[t.sequence + 1] - t.first);
            assert_true(t.start >= 0 && t.start < t.queries && t.start % ROWS == 0);
            for (int32_t i = t.start; i < t.queries && i < t.start + ROWS; i++) {
                held[t.first + i]++;
            }
        }
        assert_true(tile <= tokens / ROWS + (sequences < tokens ? sequences : tokens));
        for (int32_t i = 0; i < tokens; i++) {
            const int32_t s = trm_attention_sequence_of(starts, sequences, i);
            assert_true(s >= 0 && starts[s] <= i && i < starts[s + 1]);
            assert_int_equal(held[i], skip && starts[s + 1] - starts[s] == 1 ? 0 : 1);
        }
        assert_int_equal(trm_attention_sequence_of(starts, sequences, tokens), -1);
        assert_int_equal(trm_attention_sequence_of(starts, sequences, -1), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_what_is_seen),
        cmocka_unit_test(splits_cover_the_keys),
        cmocka_unit_test(tiles_hold_each_query_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
