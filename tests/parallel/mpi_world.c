/* A world under mpirun: who is who, host bytes, agreement, and the communicator. */
#include "support/support.h"

#include <stdio.h>

#include "dist/parallel/world.h"

static trm_world *world;
static int32_t replica; /* 1 of an odd number of ranks: that is the second of two worlds on the machine */

static void test_ranks(void **state)
{
    (void)state;
    const char *size = getenv("OMPI_COMM_WORLD_SIZE"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    assert_int_equal(trm_world_size(world), size != NULL ? atoi(size) : 1);
    assert_int_equal(trm_world_rank(world), rank != NULL ? atoi(rank) : 0);
    assert_int_equal(trm_world_local_rank(world), replica * trm_world_size(world) + trm_world_rank(world));
    assert_int_equal(world->local_size, (replica + 1) * trm_world_size(world));
    assert_int_equal(world->memory_sharers, trm_world_size(world)); /* the other one has its memory */
    assert_string_equal(world->launcher, size != NULL ? "openmpi" : "none");
    assert_string_equal(world->communicator->ops->name, trm_world_size(world) > 1 ? "mpi" : "self");
    assert_int_equal(trm_device_backend(world->device), TRM_BACKEND_HOST);
}

/* With 1000 B for each rank of the machine: as much as is free, at most that. */
static void test_memory_is_shared(void **state)
{
    (void)state;
    const size_t here = (size_t)trm_world_size(world), all = here * (size_t)(replica + 1);
    trm_device_info info = {.memory_total = 1000 * all, .memory_free = 800 * here};
    size_t reserve;
    trm_world_share_memory(world, &info, &reserve);
    assert_int_equal(info.memory_free, 800);
    assert_int_equal(reserve, 1000 * all / here / 20);
    info.memory_free = 1000 * all; /* the other one was lost as well */
    trm_world_share_memory(world, &info, &reserve);
    assert_int_equal(info.memory_free, 1000);
    assert_int_equal(reserve, 50);
}

static void test_broadcast(void **state)
{
    (void)state;
    for (int32_t root = 0; root < trm_world_size(world); root++) {
        char text[32] = "";
        if (trm_world_rank(world) == root) {
            snprintf(text, sizeof(text), "from %d", (int)root);
        }
        assert_ok(trm_world_broadcast(world, text, sizeof(text), root));
        char expected[32];
        snprintf(expected, sizeof(expected), "from %d", (int)root);
        assert_string_equal(text, expected);
    }
    char byte = 0;
    assert_fails(trm_world_broadcast(world, &byte, 1, trm_world_size(world)), TRM_ERROR_INVALID_ARGUMENT, "root");
}

static void test_agree(void **state)
{
    (void)state;
    assert_ok(trm_world_agree(world, "greeting", "hello", 5));
    if (trm_world_size(world) > 1) {
        const char *bytes = trm_world_rank(world) == 1 ? "hellO" : "hello";
        assert_fails(trm_world_agree(world, "greeting", bytes, 5), TRM_ERROR_INVALID_ARGUMENT,
                     "rank 1 differs from rank 0 in greeting");
    }
}

static void test_all_reduce(void **state)
{
    (void)state;
    trm_stream *stream;
    assert_ok(trm_stream_create(world->device, &stream));
    float value = (float)(trm_world_rank(world) + 1), sum = 0;
    trm_exchange x = {TRM_ALL_REDUCE, TRM_REDUCE_SUM, TRM_F32, &value, &sum, 1, 0};
    assert_ok(trm_communicator_exchange(world->communicator, &x, stream));
    int32_t n = trm_world_size(world);
    assert_int_equal((int)sum, n * (n + 1) / 2);
    trm_stream_destroy(stream);
}

int main(void)
{
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    const char *ranks = getenv("OMPI_COMM_WORLD_SIZE");
    replica = ranks == NULL ? 1 : atoi(ranks) % 2;
    options.replica = replica;
    options.replicas = replica + 1;
    options.starting = replica + 2;
    if (trm_world_open(&options, &world) != TRM_ERROR_INVALID_ARGUMENT) {
        fprintf(stderr, "more worlds start than there are\n");
        return 1;
    }
    options.starting = 1;
    if (trm_world_open(&options, &world) != TRM_OK) {
        fprintf(stderr, "cannot open the world: %s\n", trm_last_error());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks), cmocka_unit_test(test_memory_is_shared), cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_agree), cmocka_unit_test(test_all_reduce),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trm_world_close(world);
    return failed;
}
