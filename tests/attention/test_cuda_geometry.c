/* Key ranges, tiles and splits of the CUDA attention kernels, which are plain C: each against a count by hand. */
#include "support/support.h"

#include "attention/cuda/geometry.h"

/* The layer's words: query i sees keys 0 .. i (+ keys - queries), at most the last `window` of them, or those of its
 * chunk of -window. */
static bool sees(trm_causal causal, int32_t window, int32_t query, int32_t queries, int32_t keys, int32_t key)
{
    const int32_t last = causal == TRM_CAUSAL_LOWER_RIGHT ? query + keys - queries : query;
    const bool inside = window < 0 ? last >= 0 && key / -window == last / -window : window == 0 || key > last - window;
    return (causal == TRM_CAUSAL_NONE || key <= last) && inside;
}

static void ranges_are_what_is_seen(void **state)
{
    (void)state;
    for (int causal = TRM_CAUSAL_NONE; causal <= TRM_CAUSAL_LOWER_RIGHT; causal++) {
        const int32_t most = causal == TRM_CAUSAL_NONE ? 0 : 5;
        for (int32_t window = -most; window <= most; window++) {
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

/* What a block of a decode step walks over: every tile of every unit once, and a unit's blocks know each other's parts.
 */
static void shares_hold_each_tile_once(void **state)
{
    (void)state;
    enum { MOST = 9, MOST_GROUPS = 3, MOST_TILES = 40, MOST_BLOCKS = 12 };
    uint64_t random = test_seed();
    for (int round = 0; round < 2000; round++) {
        int32_t tiles[MOST], sums[MOST + 1] = {0}, held[MOST][MOST_GROUPS][MOST_TILES] = {{{0}}};
        bool parts[MOST_BLOCKS][2] = {{false}};
        const int32_t sequences = 1 + (int32_t)test_random_below(&random, MOST);
        const int32_t groups = 1 + (int32_t)test_random_below(&random, MOST_GROUPS);
        const int32_t blocks = 1 + (int32_t)test_random_below(&random, MOST_BLOCKS);
        const int32_t multiple = 1 << test_random_below(&random, 3);
        const bool equal = test_random_below(&random, 3) == 0;
        const int32_t length = 1 + (int32_t)test_random_below(&random, MOST_TILES * 16);
        int32_t units = 0, longest = 0;
        for (int32_t s = 0; s < sequences; s++) { /* of 0 tiles: without a query */
            const bool rests = test_random_below(&random, 4) == 0;
            const int32_t high = equal ? length : (int32_t)test_random_below(&random, MOST_TILES * 16 + 1);
            const trm_key_range range = {equal ? 0 : (int32_t)test_random_below(&random, (uint64_t)high + 1), high};
            tiles[s] = rests ? 0 : trm_key_tiles(range, 16);
            assert_true(rests || tiles[s] * 16 >= high - range.low);
            sums[s + 1] = sums[s] + tiles[s] * groups;
            units += tiles[s] > 0 ? groups : 0;
            longest = tiles[s] > longest ? tiles[s] : longest;
        }
        const int32_t total = sums[sequences], share = trm_key_share(total, units, longest, blocks, 4, multiple);
        assert_true((int64_t)share * blocks >= total && share >= 4 && (equal || share % multiple == 0));
        for (int32_t pass = 0; pass < 2; pass++) {
            for (int32_t block = 0; block * share < total; block++) {
                const int32_t begin = block * share, count = total - begin < share ? total - begin : share;
                int32_t first = 0, walked = 0;
                while (sums[first + 1] <= begin) {
                    first++;
                }
                trm_key_run run = trm_key_run_first(first, tiles[first], begin - sums[first], begin, count);
                for (;;) {
                    assert_true(run.tile < run.end && run.end <= run.tiles && run.group < groups);
                    assert_int_equal(run.at, begin + walked);
                    walked += run.end - run.tile;
                    const trm_key_owners owners = trm_key_run_owners(&run, share);
                    assert_true(owners.first <= block && block <= owners.last);
                    assert_int_equal(owners.first == owners.last, run.tile == 0 && run.end == run.tiles);
                    const int32_t part = run.at % share == 0 ? 0 : 1;
                    assert_int_equal(part, block == owners.first ? owners.first_part : 0);
                    if (pass == 0) {
                        for (int32_t t = run.tile; t < run.end; t++) {
                            held[run.sequence][run.group][t]++;
                        }
                        parts[block][part] = parts[block][part] || owners.first != owners.last;
                    } else {
                        for (int32_t b = owners.first; owners.first < owners.last && b <= owners.last; b++) {
                            assert_true(parts[b][b == owners.first ? owners.first_part : 0]);
                        }
                    }
                    if (run.left == 0) {
                        break;
                    }
                    int32_t sequence = run.sequence, group = run.group + 1;
                    if (group == groups) {
                        group = 0;
                        do {
                            sequence++;
                        } while (tiles[sequence] == 0);
                    }
                    trm_key_run_follow(&run, sequence, group, tiles[sequence]);
                }
                assert_int_equal(walked, count);
            }
        }
        for (int32_t s = 0; s < sequences; s++) {
            for (int32_t g = 0; g < groups; g++) {
                for (int32_t t = 0; t < MOST_TILES; t++) {
                    assert_int_equal(held[s][g][t], t < tiles[s] ? 1 : 0);
                }
            }
        }
    }
}

static void equal_units_are_cut_alike(void **state)
{
    (void)state;
    assert_int_equal(trm_key_share(256 * 64, 256, 64, 264, 4, 1), 64);     /* 62.06: a unit each */
    assert_int_equal(trm_key_share(256 * 129, 256, 129, 264, 4, 4), 129);  /* 125.1 */
    assert_int_equal(trm_key_share(512 * 10, 512, 10, 264, 4, 1), 20);     /* 19.4: two */
    assert_int_equal(trm_key_share(64 * 512, 64, 512, 264, 4, 4), 128);    /* 124.1: a quarter */
    assert_int_equal(trm_key_share(200 * 64, 200, 64, 264, 4, 4), 52);     /* 48.5: a unit would be too much */
    assert_int_equal(trm_key_share(256 * 64 + 1, 257, 64, 264, 4, 1), 63); /* one is shorter */
    assert_int_equal(trm_key_share(8 * 16, 8, 16, 264, 4, 4), 4);          /* few keys: fewer blocks */
    assert_int_equal(trm_key_share(0, 0, 0, 264, 4, 4), 4);
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
        cmocka_unit_test(ranges_are_what_is_seen),    cmocka_unit_test(splits_cover_the_keys),
        cmocka_unit_test(shares_hold_each_tile_once), cmocka_unit_test(equal_units_are_cut_alike),
        cmocka_unit_test(tiles_hold_each_query_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
