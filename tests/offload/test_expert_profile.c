/* Predictions of the expert cache against tables of the host that run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/moe/expert_table.h"
#include "support/device.h"
#include "support/support.h"
#include "weight_stream/offload/expert_profile.h"

enum { EXPERTS = 128, STEPS = 20000 };

/* Chooses k different experts of these weights. */
static void choose(const double *weights, int32_t k, uint64_t *random, int32_t *ids)
{
    double left[EXPERTS], sum = 0;
    for (int32_t e = 0; e < EXPERTS; e++) {
        left[e] = weights[e];
        sum += weights[e];
    }
    for (int32_t i = 0; i < k; i++) {
        double at = (double)test_random_below(random, 1u << 30) / (1u << 30) * sum;
        int32_t e = 0;
        while (e < EXPERTS - 1 && (at >= left[e] || left[e] == 0)) {
            at -= left[e++];
        }
        ids[i] = e;
        sum -= left[e];
        left[e] = 0;
    }
}

/* Runs a table; returns the share of experts that it found, and counts uses and misses. */
static double run_table(const double *weights, int32_t slots, int32_t k, double *uses, double *misses)
{
    static int32_t slot_of[EXPERTS], expert_of[EXPERTS], missing[1 + 2 * EXPERTS], slot_ids[EXPERTS];
    static int64_t used[EXPERTS], clock[TRM_EXPERT_CLOCKS], counts[TRM_EXPERT_CLOCKS], last[EXPERTS], by[EXPERTS];
    const trm_expert_table table = {.experts = EXPERTS,
                                    .slots = slots,
                                    .slot_of = slot_of,
                                    .expert_of = expert_of,
                                    .used = used,
                                    .clock = clock,
                                    .missing = missing,
                                    .counts = counts,
                                    .last = last,
                                    .uses = by};
    uint64_t random = test_seed() + (uint64_t)slots;
    memset(slot_of, 0, sizeof(slot_of));
    memset(expert_of, 0, sizeof(expert_of));
    memset(used, 0, sizeof(used));
    memset(clock, 0, sizeof(clock));
    memset(by, 0, sizeof(by));
    memset(misses, 0, EXPERTS * sizeof(*misses));
    for (int32_t n = 0; n < STEPS; n++) {
        int32_t ids[EXPERTS];
        choose(weights, k, &random, ids);
        assert_ok(trm_expert_table_select(test_stream, &table, ids, k, slot_ids, NULL));
        for (int32_t j = 0; j < missing[0]; j++) {
            misses[missing[1 + 2 * j]] += 1.0 / STEPS;
        }
    }
    for (int32_t e = 0; e < EXPERTS; e++) {
        uses[e] = (double)by[e];
    }
    return (double)clock[TRM_EXPERT_HITS] / ((double)k * STEPS);
}

/* What is predicted from counted uses is what tables find, for routers of any skew. */
static void predictions_come_true(void **state)
{
    (void)state;
    const double skews[] = {0, 0.5, 1, 1.5};
    const int32_t slots[] = {10, 32, 100};
    for (size_t i = 0; i < 12; i++) {
        double weights[EXPERTS], uses[EXPERTS], misses[EXPERTS], expected[EXPERTS];
        const int32_t k = i % 3 == 0 ? 2 : 8;
        for (int32_t e = 0; e < EXPERTS; e++) {
            weights[e] = pow(1 + e * 37 % EXPERTS, -skews[i / 3]);
        }
        const double found = run_table(weights, slots[i % 3], k, uses, misses);
        const double predicted = trm_expert_profile_predict(uses, EXPERTS, k, slots[i % 3], expected);
        assert_true(fabs(found - predicted) < 0.03);
        for (int32_t e = 0; e < EXPERTS; e++) {
            assert_true(fabs(misses[e] - expected[e]) < 0.03);
        }
        if (skews[i / 3] == 0) {
            const double plain = trm_expert_profile_predict(NULL, EXPERTS, k, slots[i % 3], expected);
            assert_true(fabs(found - plain) < 0.03);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(predictions_come_true)};
    return cmocka_run_group_tests(tests, test_open_host, test_close_device);
}
