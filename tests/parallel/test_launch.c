/* Rank and size from the variables of each launcher, and variables that contradict each other. */
#include "support/support.h"

#include "dist/parallel/world.h"

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
}

static void test_detected(void **state)
{
    (void)state;
    check(ENVIRONMENT("HOME=/"), (trm_launcher){"none", 0, 1, 0, 1});
    check(ENVIRONMENT(OPENMPI), (trm_launcher){"openmpi", 3, 8, 1, 2});
    check(ENVIRONMENT("PMIX_RANK=3"), (trm_launcher){"pmix", 3, 0, -1, -1});
    check(ENVIRONMENT("PMI_RANK=1", "PMI_SIZE=2"), (trm_launcher){"pmi", 1, 2, -1, -1});
    check(ENVIRONMENT("PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1"),
          (trm_launcher){"pmi", 1, 2, 0, 1});
    check(ENVIRONMENT(SLURM), (trm_launcher){"slurm", 5, 7, 1, 3});
    check(ENVIRONMENT("PMIX_RANK=5", SLURM), (trm_launcher){"pmix", 5, 7, 1, 3});
    check(ENVIRONMENT(TORCHRUN), (trm_launcher){"torchrun", 2, 4, 0, 2});
    check(ENVIRONMENT("RANK=2"), (trm_launcher){"none", 0, 1, 0, 1});
    /* Inside a batch script, but not started by srun. */
    check(ENVIRONMENT("SLURM_PROCID=0", "SLURM_NTASKS=8"), (trm_launcher){"none", 0, 1, 0, 1});
    /* Slurm's variables of the daemon that started the rank. */
    check(ENVIRONMENT(OPENMPI, SLURM), (trm_launcher){"openmpi", 3, 8, 1, 2});
    check(ENVIRONMENT(TORCHRUN, SLURM), (trm_launcher){"torchrun", 2, 4, 0, 2});
    check(ENVIRONMENT(SLURM, "RANK=5", "WORLD_SIZE=7"), (trm_launcher){"slurm", 5, 7, 1, 3});
    check(ENVIRONMENT("SLURM_STEP_ID=1", "SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_STEP_NUM_TASKS=2"),
          (trm_launcher){"slurm", 1, 2, -1, -1});
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_detected), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
