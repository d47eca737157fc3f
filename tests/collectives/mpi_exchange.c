/* The case table between processes. */
#include "support/support.h"

#include "cases.h"
#include "collectives/mpi_library.h"
#include "collectives/transport.h"

static const size_t counts[] = {0, 1, 37, 1000};

static trm_communicator *open_communicator(void)
{
    trm_transport *transport;
    trm_communicator *communicator;
    assert_ok(trm_transport_mpi_create(30.0, &transport));
    assert_ok(trm_communicator_pairwise_create(transport, 30.0, &communicator));
    trm_transport_release(transport);
    return communicator;
}

static void run_table(void)
{
    trm_communicator *c = open_communicator();
    assert_string_equal(c->ops->name, "mpi");
    case_result result = {0};
    case_setup setup = {NULL, NULL, counts, sizeof(counts) / sizeof(counts[0]), &result};
    case_run_groups(c, &setup);
    if (result.failed > 0) {
        fail_msg("%d of %d cases failed, first: %s", result.failed, result.run, result.why);
    }
    assert_ok(trm_communicator_check(c));
    trm_communicator_destroy(c);
}

static void test_cases(void **state)
{
    (void)state;
    run_table();
}

static void test_cases_in_chunks(void **state)
{
    (void)state;
    size_t scratch = trm_pairwise_scratch_size, small = trm_pairwise_small_size, message = trm_mpi_message_size;
    trm_pairwise_scratch_size = 600;
    trm_pairwise_small_size = 64;
    trm_mpi_message_size = 100;
    run_table();
    trm_pairwise_scratch_size = scratch;
    trm_pairwise_small_size = small;
    trm_mpi_message_size = message;
}

/* Large enough for the transport's own protocols for large messages. */
static void test_large(void **state)
{
    (void)state;
    trm_communicator *c = open_communicator();
    case_result result = {0};
    case_setup setup = {NULL, NULL, NULL, 0, &result};
    for (int op = TRM_ALL_REDUCE; op <= TRM_SCATTER; op++) {
        trm_exchange x = {(trm_collective_op)op, TRM_REDUCE_NONE, TRM_F32, NULL, NULL, 700001, 0};
        x.reduce = trm_collective_reduces(x.op) ? TRM_REDUCE_SUM : TRM_REDUCE_NONE;
        case_run(c, &setup, x, false);
    }
    if (result.failed > 0) {
        fail_msg("%s", result.why);
    }
    trm_communicator_destroy(c);
}

int main(int argc, char **argv)
{
    int provided;
    assert_ok(trm_mpi_load());
    trm_mpi.MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_cases_in_chunks),
        cmocka_unit_test(test_large),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trm_mpi.MPI_Finalize();
    return failed;
}
