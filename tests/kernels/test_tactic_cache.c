/* The table of problems: what gives way to what when places run out, and which relative is the nearest. */
#include "tests/support/support.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/tuner/tactic_cache.h"

#define PLACES 8 /* as many as a key has: all problems compete */

typedef struct test_key {
    int64_t size, kind;
} test_key;

typedef struct test_slot {
    trm_tactic_state state;
    test_key key;
    int32_t *released; /* counted up */
} test_slot;

static void release(void *slot)
{
    int32_t *released = ((test_slot *)slot)->released;
    if (released != NULL) {
        (*released)++;
    }
}

static test_slot slots[PLACES + 1];
static trm_tactic_cache table = {slots,   PLACES, sizeof(test_slot), offsetof(test_slot, key), sizeof(test_key),
                                 release, NULL};

static void empty_table(void)
{
    memset(slots, 0, sizeof(slots));
    for (trm_tactic_cache *more = table.more; more != NULL; more = table.more) {
        table.more = more->more;
        free(more->slots);
        free(more);
    }
}

static test_key key_of(int64_t size)
{
    return (test_key){.size = size, .kind = 1};
}

static test_slot *find(int64_t size)
{
    const test_key key = key_of(size);
    return trm_tactic_cache_find(&table, &key);
}

/* As a library does that knows an answer now. */
static test_slot *put(int64_t size, trm_tactic_state known)
{
    const test_key key = key_of(size);
    test_slot *slot = trm_tactic_cache_get(&table, &key, known == TRM_TACTIC_TUNED);
    assert_memory_equal(&slot->key, &key, sizeof(key));
    slot->state = known;
    return slot;
}

static void fill(trm_tactic_state known)
{
    empty_table();
    for (int64_t i = 0; i < PLACES; i++) {
        put(i, known);
    }
}

static int32_t count(trm_tactic_state known, int64_t below)
{
    int32_t n = 0;
    for (int64_t i = 0; i < below; i++) {
        n += find(i) != NULL && find(i)->state == known;
    }
    return n;
}

static void test_every_place_is_used(void **unused)
{
    (void)unused;
    fill(TRM_TACTIC_PROPOSED);
    assert_int_equal(count(TRM_TACTIC_PROPOSED, PLACES), PLACES);
    assert_null(find(PLACES));
    assert_ptr_equal(put(3, TRM_TACTIC_PROPOSED), find(3));
    assert_int_equal(count(TRM_TACTIC_PROPOSED, PLACES), PLACES);
    find(3)->state = TRM_TACTIC_FREE;
    assert_null(find(3));
}

static void test_proposals_give_way(void **unused)
{
    (void)unused;
    fill(TRM_TACTIC_PROPOSED);
    put(100, TRM_TACTIC_PROPOSED);
    put(101, TRM_TACTIC_TUNED);
    put(102, TRM_TACTIC_PROPOSED);
    assert_int_equal(find(101)->state, TRM_TACTIC_TUNED);
    assert_non_null(find(102));
    assert_in_range(count(TRM_TACTIC_PROPOSED, PLACES), PLACES - 3, PLACES - 2);
}

static void test_what_was_tuned_stays(void **unused)
{
    (void)unused;
    static const trm_tactic_state staying[] = {TRM_TACTIC_TUNED, TRM_TACTIC_NONE, TRM_TACTIC_ASKED};
    for (int32_t i = 0; i < 3; i++) {
        fill(staying[i]);
        assert_ptr_equal(put(100, TRM_TACTIC_PROPOSED), &slots[PLACES]);
        assert_ptr_equal(put(101, TRM_TACTIC_PROPOSED), &slots[PLACES]);
        assert_null(find(100));
        assert_int_equal(count(staying[i], PLACES), PLACES);
        put(102, TRM_TACTIC_TUNED);
        assert_int_equal(find(102)->state, TRM_TACTIC_TUNED);
        assert_ptr_not_equal(find(102), &slots[PLACES]);
        assert_int_equal(count(staying[i], PLACES), PLACES);
    }
}

/* Whatever the number: in three tables here. */
static void test_nothing_tuned_is_forgotten(void **unused)
{
    (void)unused;
    fill(TRM_TACTIC_TUNED);
    for (int64_t i = PLACES; i < 3 * PLACES; i++) {
        put(i, TRM_TACTIC_TUNED);
        assert_int_equal(count(TRM_TACTIC_TUNED, i + 1), i + 1);
    }
    assert_ptr_equal(put(100, TRM_TACTIC_PROPOSED), &slots[PLACES]);
    find(3)->state = TRM_TACTIC_PROPOSED;
    put(101, TRM_TACTIC_TUNED);
    assert_null(find(3));
}

static void test_what_is_tuned_leaves_the_spare(void **unused)
{
    (void)unused;
    fill(TRM_TACTIC_TUNED);
    put(100, TRM_TACTIC_PROPOSED);
    put(100, TRM_TACTIC_TUNED);
    assert_ptr_not_equal(find(100), &slots[PLACES]);
    assert_int_equal(slots[PLACES].state, TRM_TACTIC_FREE);
}

static void test_what_gives_way_is_released_once(void **unused)
{
    (void)unused;
    int32_t proposed = 0, spare = 0;
    fill(TRM_TACTIC_TUNED);
    find(5)->state = TRM_TACTIC_PROPOSED;
    find(5)->released = &proposed;
    put(5, TRM_TACTIC_TUNED)->state = TRM_TACTIC_PROPOSED;
    assert_int_equal(proposed, 0);
    put(100, TRM_TACTIC_TUNED);
    assert_int_equal(proposed, 1);
    put(101, TRM_TACTIC_PROPOSED)->released = &spare;
    put(101, TRM_TACTIC_TUNED);
    assert_int_equal(spare, 1);
    put(102, TRM_TACTIC_PROPOSED);
    assert_int_equal(spare, 1);
}

static double size_ratio(const void *theirs, const void *ours)
{
    const test_key *a = theirs, *b = ours;
    const double times = (double)a->size / (double)b->size;
    return a->kind != b->kind ? INFINITY : times > 1 ? times : 1 / times;
}

static int64_t nearest_to(int64_t size, double most)
{
    const test_key key = key_of(size);
    const test_slot *slot = trm_tactic_cache_nearest(&table, &key, most, size_ratio);
    return slot != NULL ? slot->key.size : -1;
}

static void test_nearest(void **unused)
{
    (void)unused;
    empty_table();
    put(8, TRM_TACTIC_TUNED);
    put(32, TRM_TACTIC_TUNED);
    put(11, TRM_TACTIC_PROPOSED);
    put(13, TRM_TACTIC_NONE);
    const test_key other = {.size = 12, .kind = 2};
    ((test_slot *)trm_tactic_cache_get(&table, &other, true))->state = TRM_TACTIC_TUNED;
    assert_int_equal(nearest_to(8, 1), 8);
    assert_int_equal(nearest_to(12, 4), 8);
    assert_int_equal(nearest_to(20, 4), 32);
    assert_int_equal(nearest_to(2, 4), 8);
    assert_int_equal(nearest_to(1, 4), -1);
    assert_int_equal(nearest_to(128, 4), 32);
    assert_int_equal(nearest_to(129, 4), -1);
    int64_t found[2];
    for (int32_t i = 0; i < 2; i++) { /* of equals, whichever was there first */
        empty_table();
        put(i == 0 ? 4 : 16, TRM_TACTIC_TUNED);
        put(i == 0 ? 16 : 4, TRM_TACTIC_TUNED);
        found[i] = nearest_to(8, 4);
    }
    assert_int_equal(found[0], found[1]);
    fill(TRM_TACTIC_TUNED);
    put(200, TRM_TACTIC_TUNED); /* in a second table */
    assert_int_equal(nearest_to(190, 4), 200);
    empty_table();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_place_is_used),
        cmocka_unit_test(test_proposals_give_way),
        cmocka_unit_test(test_what_was_tuned_stays),
        cmocka_unit_test(test_nothing_tuned_is_forgotten),
        cmocka_unit_test(test_what_is_tuned_leaves_the_spare),
        cmocka_unit_test(test_what_gives_way_is_released_once),
        cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
