/* Rank and size from the variables of each launcher, and variables that contradict each other. */
#include "support/support.h"

#include "base/launch.h"

/* "NAME=value" lines; the environment of the case under test. */
static const char *const *environment;

static const char *get(const char *name)
{
    size_t length = strlen(name);
    for (const char *const *line = environment; *line != NULL; line++) {
        if (strncmp(*line, name, length) == 0 && (*line)[length] == '=') {
            return *line + length + 1;
        }
    }
    return NULL;
}

#define ENVIRONMENT(...) ((const char *const[]){__VA_ARGS__, NULL})
#define OPENMPI                                                                                                        \
    "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_RANK=1",                                \
        "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_RANK=3"
#define SLURM                                                                                                          \
    "SLURM_STEP_ID=0", "SLURM_PROCID=5", "SLURM_NTASKS=7", "SLURM_LOCALID=1", "SLURM_NODEID=2",                        \
        "SLURM_STEP_TASKS_PER_NODE=2(x2),3"
#define TORCHRUN "RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=none"

static void check(const char *const *lines, trm_launcher expected)
{
    trm_launcher found;
    environment = lines;
    assert_ok(trm_launcher_detect(get, &found));
    assert_string_equal(found.launcher, expected.launcher);
    assert_int_equal(found.rank, expected.rank);
    assert_int_equal(found.size, expected.size);
    assert_int_equal(found.local_rank, expected.local_rank);
    assert_int_equal(found.local_size, expected.local_size);
    assert_int_equal(found.binds_by_default, expected.binds_by_default);
    const char *rank = trm_launcher_rank(get); /* the program and the library agree */
    assert_int_equal(rank != NULL, strcmp(expected.launcher, "none") != 0);
    assert_int_equal(rank != NULL ? strtol(rank, NULL, 10) : 0, expected.rank);
}

static void test_detected(void **state)
{
    (void)state;
    check(ENVIRONMENT("HOME=/"), (trm_launcher){"none", 0, 1, 0, 1, false});
    check(ENVIRONMENT(OPENMPI), (trm_launcher){"openmpi", 3, 8, 1, 2, false});
    check(ENVIRONMENT(OPENMPI, "OMPI_MCA_orte_bound_at_launch=1"), (trm_launcher){"openmpi", 3, 8, 1, 2, true});
    check(ENVIRONMENT(OPENMPI, "OMPI_MCA_orte_bound_at_launch=1", "OMPI_MCA_hwloc_base_binding_policy=core"),
          (trm_launcher){"openmpi", 3, 8, 1, 2, false});
    check(ENVIRONMENT(OPENMPI, "OMPI_MCA_orte_bound_at_launch=1", "OMPI_MCA_orte_rankfile=ranks"),
          (trm_launcher){"openmpi", 3, 8, 1, 2, false});
    check(ENVIRONMENT("PMIX_RANK=3"), (trm_launcher){"pmix", 3, 0, -1, -1, false});
    check(ENVIRONMENT("PMI_RANK=1", "PMI_SIZE=2"), (trm_launcher){"pmi", 1, 2, -1, -1, false});
    check(ENVIRONMENT("PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1"),
          (trm_launcher){"pmi", 1, 2, 0, 1, false});
    check(ENVIRONMENT(SLURM), (trm_launcher){"slurm", 5, 7, 1, 3, false});
    check(ENVIRONMENT("PMIX_RANK=5", SLURM), (trm_launcher){"pmix", 5, 7, 1, 3, false});
    check(ENVIRONMENT(TORCHRUN), (trm_launcher){"torchrun", 2, 4, 0, 2, false});
    check(ENVIRONMENT("RANK=2"), (trm_launcher){"none", 0, 1, 0, 1, false});
    /* Inside a batch script, but not started by srun. */
    check(ENVIRONMENT("SLURM_PROCID=0", "SLURM_NTASKS=8"), (trm_launcher){"none", 0, 1, 0, 1, false});
    /* Slurm's variables of the daemon that started the rank. */
    check(ENVIRONMENT(OPENMPI, SLURM), (trm_launcher){"openmpi", 3, 8, 1, 2, false});
    check(ENVIRONMENT(TORCHRUN, SLURM), (trm_launcher){"torchrun", 2, 4, 0, 2, false});
    check(ENVIRONMENT(SLURM, "RANK=5", "WORLD_SIZE=7"), (trm_launcher){"slurm", 5, 7, 1, 3, false});
    check(ENVIRONMENT("SLURM_STEP_ID=1", "SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_STEP_NUM_TASKS=2"),
          (trm_launcher){"slurm", 1, 2, -1, -1, false});
    /* srun --mpi=pmi2 */
    check(ENVIRONMENT("PMI_RANK=5", "PMI_SIZE=7", SLURM), (trm_launcher){"slurm", 5, 7, 1, 3, false});
}

static void check_refused(const char *const *lines, const char *part)
{
    trm_launcher found;
    environment = lines;
    assert_fails(trm_launcher_detect(get, &found), TRM_ERROR_INVALID_ARGUMENT, part);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused(ENVIRONMENT(OPENMPI, "RANK=2", "WORLD_SIZE=8"),
                  "OMPI_COMM_WORLD_RANK and RANK contradict each other: 3 and 2");
    check_refused(ENVIRONMENT(OPENMPI, "RANK=3", "WORLD_SIZE=4"),
                  "OMPI_COMM_WORLD_SIZE and WORLD_SIZE contradict each other: 8 and 4");
    check_refused(ENVIRONMENT("PMIX_RANK=1", SLURM), "PMIX_RANK and SLURM_PROCID contradict each other: 1 and 5");
    check_refused(ENVIRONMENT(SLURM, "RANK=5", "WORLD_SIZE=8"),
                  "SLURM_NTASKS and WORLD_SIZE contradict each other: 7 and 8");
    check_refused(ENVIRONMENT("OMPI_COMM_WORLD_RANK=3"), "OMPI_COMM_WORLD_SIZE is not");
    check_refused(ENVIRONMENT("RANK=4", "WORLD_SIZE=4"), "RANK is 4, expected less than WORLD_SIZE, which is 4");
    check_refused(ENVIRONMENT("RANK=x", "WORLD_SIZE=4"), "RANK is \"x\", expected a number");
    check_refused(ENVIRONMENT("RANK=-1", "WORLD_SIZE=4"), "RANK is \"-1\"");
    check_refused(ENVIRONMENT("RANK=", "WORLD_SIZE=4"), "RANK is \"\"");
    check_refused(ENVIRONMENT("RANK=0", "WORLD_SIZE=65"), "WORLD_SIZE is \"65\", expected a number from 0 to 64");
}

static void check_meeting(const char *const *lines, const char *host, int32_t port)
{
    trm_launcher launch;
    trm_meeting_point point;
    environment = lines;
    assert_ok(trm_launcher_detect(get, &launch));
    assert_true(trm_launcher_has_no_mpi(&launch));
    assert_ok(trm_launcher_meeting_point(get, &launch, &point));
    assert_string_equal(point.host, host);
    assert_int_equal(point.port, port);
}

static void test_meeting_point(void **state)
{
    (void)state;
    check_meeting(ENVIRONMENT(TORCHRUN, "MASTER_ADDR=here", "MASTER_PORT=29500"), "here", 29501);
    check_meeting(ENVIRONMENT(TORCHRUN, "MASTER_ADDR=here", "MASTER_PORT=29500", "TRIREME_PORT=7"), "here", 7);
    check_meeting(ENVIRONMENT(SLURM, "SLURM_JOB_ID=3", "SLURM_STEP_NODELIST=m7"), "m7", 20093);
    check_meeting(ENVIRONMENT(SLURM, "SLURM_JOB_ID=3", "SLURM_STEP_NODELIST=n[007-009,2],m7"), "n007", 20093);
    check_meeting(ENVIRONMENT(SLURM, "SLURM_JOB_ID=3", "SLURM_STEP_NODELIST=rack[1-2]node[03,5].org,m"),
                  "rack1node03.org", 20093);
    check_meeting(ENVIRONMENT(SLURM, "SLURM_JOB_ID=3", "SLURM_JOB_NODELIST=a,b"), "a", 20093);
    check_meeting(ENVIRONMENT(SLURM, "SLURM_JOB_ID=3", "SLURM_JOB_NODELIST=a,b", "SLURM_STEP_NODELIST=b"), "b", 20093);
    check_meeting(ENVIRONMENT(SLURM, "MASTER_ADDR=here", "MASTER_PORT=29500"), "here", 29501);
    check_meeting(ENVIRONMENT(SLURM, "SLURM_JOB_ID=3", "MASTER_ADDR=here"), "here", 20093);
    check_meeting(ENVIRONMENT(SLURM, "SLURM_STEP_NODELIST=b", "MASTER_PORT=29500"), "b", 29501);
    /* a step of one host */
    check_meeting(ENVIRONMENT("SLURM_STEP_ID=8999", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_NODEID=0",
                              "SLURM_STEP_TASKS_PER_NODE=2", "SLURM_JOB_ID=18000", "SLURM_STEP_NODELIST=b"),
                  "127.0.0.1", 28999);
}

static void check_no_meeting(const char *const *lines, const char *part)
{
    trm_launcher launch;
    trm_meeting_point point;
    environment = lines;
    assert_ok(trm_launcher_detect(get, &launch));
    assert_fails(trm_launcher_meeting_point(get, &launch, &point), TRM_ERROR_INVALID_ARGUMENT, part);
}

static void test_no_meeting_point(void **state)
{
    (void)state;
    check_no_meeting(ENVIRONMENT(TORCHRUN, "MASTER_PORT=1"), "MASTER_ADDR is not set, expected the host of rank 0");
    check_no_meeting(ENVIRONMENT(TORCHRUN, "MASTER_ADDR=a"), "MASTER_PORT is not set, expected a port for 4 ranks");
    check_no_meeting(ENVIRONMENT(TORCHRUN, "MASTER_ADDR=a", "MASTER_PORT=65535"),
                     "MASTER_PORT is 65535, expected a port");
    check_no_meeting(ENVIRONMENT(SLURM, "MASTER_PORT=x"), "MASTER_PORT is x, expected a port for 7 ranks");
    check_no_meeting(ENVIRONMENT(SLURM, "TRIREME_PORT=0"), "TRIREME_PORT is 0, expected a port");
    check_no_meeting(ENVIRONMENT(SLURM, "SLURM_JOB_ID=3"), "SLURM_JOB_NODELIST is not set");
    check_no_meeting(ENVIRONMENT(SLURM, "SLURM_JOB_ID=3", "SLURM_STEP_NODELIST="), "SLURM_STEP_NODELIST is ");
    check_no_meeting(ENVIRONMENT(SLURM, "SLURM_JOB_ID=3", "SLURM_STEP_NODELIST=n[1"),
                     "is n[1, expected a list of hosts");
    check_no_meeting(ENVIRONMENT(SLURM, "SLURM_JOB_ID=3", "SLURM_STEP_NODELIST=n[]"),
                     "is n[], expected a list of hosts");
    check_no_meeting(ENVIRONMENT(SLURM, "SLURM_STEP_NODELIST=a"), "SLURM_JOB_ID is not set");
    char host[280] = "MASTER_ADDR=";
    memset(host + strlen(host), 'a', 256);
    check_no_meeting(ENVIRONMENT(SLURM, "SLURM_JOB_ID=3", host), "MASTER_ADDR has 256 characters");
}

/* Started by a launcher that has MPI. */
static void test_mpi(void **state)
{
    (void)state;
    trm_launcher launch;
    const char *const *const all[] = {ENVIRONMENT(OPENMPI, SLURM), ENVIRONMENT("PMIX_RANK=5", SLURM),
                                      ENVIRONMENT("PMI_RANK=1", "PMI_SIZE=2")};
    for (size_t i = 0; i < 3; i++) {
        environment = all[i];
        assert_ok(trm_launcher_detect(get, &launch));
        assert_false(trm_launcher_has_no_mpi(&launch));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_detected), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_meeting_point), cmocka_unit_test(test_no_meeting_point),
                                       cmocka_unit_test(test_mpi)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
