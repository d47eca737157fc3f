/* Shares of the cores of this machine, whatever it is. */
#include "support/support.h"

#include <sched.h>
#include <stdio.h>

#include "dist/parallel/topology.h"

static void test_shares(void **state)
{
    (void)state;
    trm_topology *topology;
    int32_t all, sum = 0, threads;
    unsetenv("OMP_NUM_THREADS");
    assert_ok(trm_topology_open(&topology));
    assert_ok(trm_topology_take_share(topology, 0, 1, false, &all));
    assert_true(all >= 1);
    for (int32_t i = 0; i < all; i++) {
        assert_ok(trm_topology_take_share(topology, i, all, false, &threads));
        assert_int_equal(threads, 1);
        sum += threads;
    }
    assert_int_equal(sum, all);
    assert_ok(trm_topology_take_share(topology, 63, 64, false, &threads)); /* likely more ranks than cores */
    assert_true(threads >= 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    assert_ok(trm_topology_take_share(topology, 0, 1, false, &threads));
    assert_int_equal(threads, 1);
    unsetenv("OMP_NUM_THREADS");
    trm_topology_close(topology);
}

/* Binding narrows the mask to the share, and never widens it again. */
static void test_bind(void **state)
{
    (void)state;
    trm_topology *topology;
    int32_t all, threads;
    cpu_set_t before, after;
    char text[256], again[256];
    assert_ok(trm_topology_open(&topology));
    assert_ok(trm_topology_take_share(topology, 0, 1, false, &all));
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_ok(trm_topology_take_share(topology, 0, all + 1, true, &threads)); /* a core for each there is not */
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_ok(trm_topology_take_share(topology, all - 1, all, true, &threads));
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    CPU_AND(&before, &before, &after);
    assert_true(CPU_EQUAL(&before, &after));
    assert_true(CPU_COUNT(&after) >= 1);
    trm_topology_allowed(topology, text, sizeof(text));
    trm_topology_close(topology);
    assert_ok(trm_topology_open(&topology));
    trm_topology_allowed(topology, again, sizeof(again));
    assert_string_equal(text, again);
    assert_ok(trm_topology_take_share(topology, 0, 1, true, &threads));
    assert_int_equal(threads, 1);
    assert_ok(trm_topology_bind_near(topology, "0000:FF:1f.7")); /* no such device: nothing happens */
    trm_topology_close(topology);
    trm_topology_close(NULL);
}

static void test_describe(void **state)
{
    (void)state;
    trm_topology *topology;
    trm_topology_info info;
    trm_topology_node node;
    int32_t nodes = 0;
    assert_ok(trm_topology_open(&topology));
    trm_topology_get_info(topology, &info);
    assert_true(info.hardware_threads >= 1);
    assert_true(info.cores <= info.hardware_threads && info.packages <= info.hardware_threads);
    while (trm_topology_get_node(topology, nodes, &node)) {
        assert_true(node.index >= 0 && node.memory_bytes > 0 && node.hardware_threads[0] != '\0');
        nodes++;
    }
    assert_true(nodes >= 1);
    trm_topology_close(topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_bind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
