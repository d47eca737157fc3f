/* Exchanges between threads: the case table, argument checks, and ranks that do not come. */
#include "support/support.h"

#include "cases.h"
#include "collectives/transport.h"
#include "collectives/wait.h"
#include "threads.h"

static const size_t counts[] = {0, 1, 37, 1000};

static void run_cases(trm_communicator *c, void *user)
{
    case_setup setup = {NULL, NULL, counts, sizeof(counts) / sizeof(counts[0]), user};
    case_run_groups(c, &setup);
}

static void check_cases(int32_t n)
{
    case_result results[TRM_MAX_RANKS] = {{0}};
    run_ranks(n, 30.0, run_cases, results, sizeof(results[0]));
    for (int32_t r = 0; r < n; r++) {
        if (results[r].failed > 0) {
            fail_msg("%d of %d cases failed, first: %s", results[r].failed, results[r].run, results[r].why);
        }
        assert_true(results[r].run > 100);
    }
}

static void test_cases(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= 5; n++) {
        check_cases(n);
    }
}

/* The same with limits so small that every exchange takes many rounds. */
static void test_cases_in_chunks(void **state)
{
    (void)state;
    size_t scratch = trm_pairwise_scratch_size, small = trm_pairwise_small_size;
    trm_pairwise_scratch_size = 600;
    trm_pairwise_small_size = 64;
    for (int32_t n = 2; n <= 4; n++) {
        check_cases(n);
    }
    trm_pairwise_scratch_size = scratch;
    trm_pairwise_small_size = small;
}

static void test_self(void **state)
{
    (void)state;
    trm_communicator *self;
    assert_ok(trm_communicator_self_create(&self));
    case_result result = {0};
    run_cases(self, &result);
    if (result.failed > 0) {
        fail_msg("%s", result.why);
    }
    assert_ok(trm_communicator_check(self));
    trm_communicator_destroy(self);
    trm_communicator_destroy(NULL);
}

static void test_arguments(void **state)
{
    (void)state;
    trm_communicator *both[2];
    assert_ok(trm_communicator_local_create(2, 1.0, both));
    float data[4] = {0};
    trm_exchange good = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_F32, data, data, 0, 0}, x;
    assert_ok(trm_communicator_exchange(both[0], &good, NULL));
#define REFUSED(field, value, part)                                                                                    \
    x = good;                                                                                                          \
    x.field = value;                                                                                                   \
    assert_fails(trm_communicator_exchange(both[0], &x, NULL), TRM_ERROR_INVALID_ARGUMENT, part)
    REFUSED(op, (trm_collective_op)10, "op 10");
    REFUSED(dtype, TRM_DTYPE_NONE, "element type none");
    REFUSED(reduce, TRM_REDUCE_NONE, "reduce operation none");
    REFUSED(op, TRM_ALL_GATHER, "reduce operation sum");
    REFUSED(count, (size_t)-1 / 4, "too large");
    good.dtype = TRM_BOOL;
    REFUSED(reduce, TRM_REDUCE_SUM, "all_reduce of bool has reduce operation sum");
    good = (trm_exchange){TRM_BROADCAST, TRM_REDUCE_NONE, TRM_F32, data, data, 0, 0};
    REFUSED(root, 2, "root 2");
    REFUSED(root, -1, "root -1");
    good.op = TRM_SEND;
    REFUSED(root, 0, "the rank itself");
    good.count = 4;
    good.root = 1;
    REFUSED(from, NULL, "no buffer");
    int32_t groups[3] = {0, 2, 0};
    trm_communicator *part;
    assert_fails(trm_communicator_part(both[0], groups, 1, 2, &part), TRM_ERROR_INVALID_ARGUMENT, "has rank 2");
    groups[1] = 0;
    assert_fails(trm_communicator_part(both[0], groups, 1, 2, &part), TRM_ERROR_INVALID_ARGUMENT, "rank 0 twice");
    assert_fails(trm_communicator_part(both[0], groups, 2, 40, &part), TRM_ERROR_INVALID_ARGUMENT, "2 groups of 40");
    trm_communicator_destroy(both[0]);
    trm_communicator_destroy(both[1]);
    assert_fails(trm_communicator_local_create(0, 1.0, both), TRM_ERROR_INVALID_ARGUMENT, "local ranks are 0");
}

typedef struct outcome {
    trm_status status;
    double seconds;
    char cause[256];
} outcome;

static void all_reduce_one(trm_communicator *c, outcome *o)
{
    float value = 1.0f;
    trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_F32, &value, &value, 1, 0};
    double start = trm_wait_now();
    o->status = trm_communicator_exchange(c, &x, NULL);
    o->seconds = trm_wait_now() - start;
    snprintf(o->cause, sizeof(o->cause), "%s", trm_last_error());
}

/* Rank 1 stays away. */
static void leave_out_rank_1(trm_communicator *c, void *user)
{
    if (c->rank != 1) {
        all_reduce_one(c, user);
    }
}

static void test_rank_that_does_not_come(void **state)
{
    (void)state;
    outcome outcomes[3];
    run_ranks(3, 5.0, leave_out_rank_1, outcomes, sizeof(outcomes[0]));
    for (int32_t r = 0; r < 3; r += 2) {
        assert_int_equal(outcomes[r].status, TRM_ERROR_LOST_RANK);
        assert_non_null(
            strstr(outcomes[r].cause, "all_reduce of 1 f32 between 3 ranks: rank 1 did not arrive within 5 s"));
        assert_true(outcomes[r].seconds > 4.9);
    }
}

/* Rank 1 gives up: the others hear of it, and do not wait for the deadline. */
static void give_up_on_rank_1(trm_communicator *c, void *user)
{
    outcome *o = user;
    if (c->rank == 1) {
        trm_communicator_abort(c);
    }
    all_reduce_one(c, o);
    if (trm_communicator_check(c) != TRM_ERROR_LOST_RANK) {
        o->status = TRM_ERROR_INTERNAL;
    }
}

static void test_rank_that_gives_up(void **state)
{
    (void)state;
    outcome outcomes[3];
    run_ranks(3, 60.0, give_up_on_rank_1, outcomes, sizeof(outcomes[0]));
    for (int32_t r = 0; r < 3; r++) {
        assert_int_equal(outcomes[r].status, TRM_ERROR_LOST_RANK);
        assert_non_null(strstr(outcomes[r].cause, r == 1 ? "gave up" : "rank 1 failed: lost rank: gave up"));
    }
}

/* Ranks that do not agree on the size: one sees it, the other waits for the deadline. */
static void disagree(trm_communicator *c, void *user)
{
    outcome *o = user;
    float values[4] = {0};
    trm_exchange x = {c->rank == 0 ? TRM_SEND : TRM_RECV,
                      TRM_REDUCE_NONE,
                      TRM_F32,
                      values,
                      values,
                      c->rank == 0 ? 4 : 2,
                      1 - c->rank};
    o->status = trm_communicator_exchange(c, &x, NULL);
    snprintf(o->cause, sizeof(o->cause), "%s", trm_last_error());
}

static void test_sizes_that_differ(void **state)
{
    (void)state;
    outcome outcomes[2];
    run_ranks(2, 5.0, disagree, outcomes, sizeof(outcomes[0]));
    assert_int_equal(outcomes[1].status, TRM_ERROR_LOST_RANK);
    assert_non_null(strstr(outcomes[1].cause, "rank 0 sent 16 bytes, expected 8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_cases_in_chunks),
        cmocka_unit_test(test_self),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_rank_that_does_not_come),
        cmocka_unit_test(test_rank_that_gives_up),
        cmocka_unit_test(test_sizes_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
