/* Which replica a prompt goes to. */
#include "launcher/serve/replicas/router.h"
#include "support/support.h"

#include <trireme/serving.h>

#define MOST  4096
#define BLOCK TRM_KV_BLOCK_SIZE

static int32_t tokens[MOST];

/* A prompt that is another for each seed, from its first token on. */
static const int32_t *prompt(int32_t seed)
{
    for (int32_t i = 0; i < MOST; i++) {
        tokens[i] = seed * MOST + i;
    }
    return tokens;
}

static int32_t choose(router *r, const int32_t *prompt_tokens, size_t n, const router_replica *replicas)
{
    int64_t unseen = 0;
    int32_t best = router_choose(r, prompt_tokens, n, replicas, &unseen);
    assert_true(best < 0 || (unseen >= 1 && unseen <= (int64_t)n));
    return best;
}

static void equals_take_turns(void **state)
{
    (void)state;
    router r;
    router_replica all[3] = {{true, 0, 8, 0}, {true, 0, 8, 0}, {true, 0, 8, 0}};
    assert_ok(router_init(&r, 3, true));
    for (int32_t i = 0; i < 9; i++) {
        assert_int_equal(choose(&r, prompt(i), 40, all), i % 3);
    }
    all[1].serves = false;
    assert_int_equal(choose(&r, prompt(0), 40, all), 0);
    assert_int_equal(choose(&r, prompt(0), 40, all), 2);
    all[0].live = 1; /* more to do */
    assert_int_equal(choose(&r, prompt(0), 40, all), 2);
    all[0].serves = all[2].serves = false;
    assert_int_equal(choose(&r, prompt(0), 40, all), -1);
    router_fini(&r);
    assert_ok(router_init(&r, 1, true)); /* with one there is no choice */
    router_note(&r, prompt(1), 400, 0);
    assert_int_equal(choose(&r, prompt(1), 400, all + 1), -1);
    assert_int_equal(choose(&r, prompt(1), 400, &(router_replica){true, 9, 8, 0}), 0);
    router_forget(&r, 0);
    router_fini(&r);
    assert_fails(router_init(&r, 0, true), TRM_ERROR_INVALID_ARGUMENT, "0 replicas");
    assert_fails(router_init(&r, ROUTER_MAX_REPLICAS + 1, true), TRM_ERROR_INVALID_ARGUMENT, "expected 1 to 64");
}

static void prompts_go_where_they_began(void **state)
{
    (void)state;
    router r;
    router_replica all[4] = {{true, 0, 64, 0}, {true, 0, 64, 0}, {true, 0, 64, 0}, {true, 0, 64, 0}};
    assert_ok(router_init(&r, 4, true));
    router_note(&r, prompt(1), 1024, 2);
    for (int32_t i = 0; i < 6; i++) { /* longer, shorter, and not a multiple of a block */
        assert_int_equal(choose(&r, prompt(1), (size_t)(1030 - 200 * i), all), 2);
    }
    /* Three requests more are worth less than 1024 tokens, five more are worth more. */
    all[2].live = 3;
    assert_int_equal(choose(&r, prompt(1), 1024, all), 2);
    all[2].live = 5;
    assert_int_not_equal(choose(&r, prompt(1), 1024, all), 2);
    /* A part of a block is nothing, and what follows another beginning neither. */
    all[2].live = 1;
    assert_int_not_equal(choose(&r, prompt(1), BLOCK - 1, all), 2);
    prompt(1);
    tokens[3]++;
    assert_int_not_equal(choose(&r, tokens, 1024, all), 2);
    /* The longest beginning wins. */
    all[2].live = 0;
    router_note(&r, prompt(1), 2048, 3);
    assert_int_equal(choose(&r, prompt(1), 2048, all), 3);
    all[3].live = 1; /* both know the first 1024 */
    assert_int_equal(choose(&r, prompt(1), 1024, all), 2);
    /* One that began anew knows nothing. */
    router_forget(&r, 3);
    router_forget(&r, 2);
    for (int32_t i = 0; i < 4; i++) {
        all[i].live = i == 1 ? 0 : 1;
    }
    assert_int_equal(choose(&r, prompt(1), 2048, all), 1);
    router_fini(&r);
}

static void free_places_come_first(void **state)
{
    (void)state;
    router r;
    router_replica all[2] = {{true, 2, 2, 0}, {true, 1, 2, 0}};
    assert_ok(router_init(&r, 2, true));
    router_note(&r, prompt(1), MOST, 0);
    assert_int_equal(choose(&r, prompt(1), MOST, all), 1);
    all[1].live = 2; /* both are full: the least work */
    assert_int_equal(choose(&r, prompt(1), MOST, all), 0);
    router_fini(&r);
}

/* Long prompts that a replica has still to run count as what they are. */
static void long_prompts_are_work(void **state)
{
    (void)state;
    router r;
    router_replica all[2] = {{true, 1, 8, 100000}, {true, 6, 8, 0}};
    int64_t unseen;
    assert_ok(router_init(&r, 2, true));
    assert_int_equal(choose(&r, prompt(1), 64, all), 1);
    all[0].prompt = 0;
    assert_int_equal(choose(&r, prompt(1), 64, all), 0);
    router_note(&r, prompt(1), 64, 0);
    assert_int_equal(router_choose(&r, prompt(1), 64, all, &unseen), 0);
    assert_int_equal(unseen, 1);
    assert_int_equal(router_choose(&r, prompt(1), 100, all, &unseen), 0);
    assert_int_equal(unseen, 36);
    router_fini(&r);
}

static void without_caches_only_work_counts(void **state)
{
    (void)state;
    router r;
    router_replica all[2] = {{true, 1, 8, 0}, {true, 0, 8, 0}};
    assert_ok(router_init(&r, 2, false));
    router_note(&r, prompt(1), MOST, 0);
    assert_int_equal(choose(&r, prompt(1), MOST, all), 1);
    router_forget(&r, 1);
    router_fini(&r);
}

/* More prompts than it remembers: the latest are known still, the first are forgotten. */
static void old_prompts_are_forgotten(void **state)
{
    (void)state;
    enum { PROMPTS = 12000, SIZE = 64 * BLOCK };
    router r;
    router_replica all[2] = {{true, 1, 8, 0}, {true, 0, 8, 0}};
    int32_t known_first = 0, known_last = 0;
    assert_ok(router_init(&r, 2, true));
    for (int32_t i = 0; i < PROMPTS; i++) {
        router_note(&r, prompt(i), SIZE, 0);
    }
    for (int32_t i = 0; i < 100; i++) {
        known_first += choose(&r, prompt(i), SIZE, all) == 0;
        known_last += choose(&r, prompt(PROMPTS - 1 - i), SIZE, all) == 0;
    }
    assert_in_range(known_first, 0, 5);
    assert_int_equal(known_last, 100);
    router_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_take_turns),
        cmocka_unit_test(prompts_go_where_they_began),
        cmocka_unit_test(free_places_come_first),
        cmocka_unit_test(long_prompts_are_work),
        cmocka_unit_test(without_caches_only_work_counts),
        cmocka_unit_test(old_prompts_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
