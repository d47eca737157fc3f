/*
 * The communicator alone, without a network: what ranks tell each other between steps.
 *
 *   mpirun -np 4 communicator
 */
#include <stdio.h>

#include <trireme/trireme.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != TRM_OK) {                                                                                        \
            goto done;                                                                                                 \
        }                                                                                                              \
    } while (0)

int main(void)
{
    trm_world_options where = TRM_WORLD_OPTIONS_INIT; /* host; the same calls work in a world on CUDA */
    trm_world *world = NULL;
    trm_collective_params p = {.op = TRM_ALL_GATHER, .reduce = TRM_REDUCE_NONE};
    int32_t all[TRM_MAX_RANKS] = {0};
    bool right = true;
    trm_status status;
    TRY(trm_world_open(&where, &world));
    int32_t rank = trm_world_rank(world), n = trm_world_size(world), mine = 10 * rank, sum = 0, largest = 0;

    /* Everyone's value to everyone. */
    TRY(trm_world_collective(world, &p, TRM_I32, &mine, all, 1, false));
    for (int32_t r = 0; r < n; r++) {
        right = right && all[r] == 10 * r;
    }

    /* Their sum. */
    p = (trm_collective_params){.op = TRM_ALL_REDUCE, .reduce = TRM_REDUCE_SUM};
    TRY(trm_world_collective(world, &p, TRM_I32, &mine, &sum, 1, false));
    right = right && sum == 10 * n * (n - 1) / 2;

    /* The largest of each group: even ranks and odd ranks, and where their number is odd, the last one in none. */
    if (n > 1) {
        p = (trm_collective_params){.op = TRM_ALL_REDUCE, .reduce = TRM_REDUCE_MAX, .n_groups = 2, .group_size = n / 2};
        for (int32_t i = 0; i < n / 2; i++) {
            p.groups[i] = 2 * i;
            p.groups[n / 2 + i] = 2 * i + 1;
        }
        TRY(trm_world_collective(world, &p, TRM_I32, &mine, &largest, 1, false));
        int32_t last = n / 2 * 2 - 2 + rank % 2;
        right = right && largest == (rank < n / 2 * 2 ? 10 * last : 0);
    }

    /* From the first rank to the last. */
    if (n > 1 && (rank == 0 || rank == n - 1)) {
        int32_t message = rank == 0 ? 42 : 0;
        p = (trm_collective_params){.op = rank == 0 ? TRM_SEND : TRM_RECV, .reduce = TRM_REDUCE_NONE};
        p.root = n - 1 - rank;
        TRY(trm_world_collective(world, &p, TRM_I32, &message, &message, 1, false));
        right = right && message == 42;
    }
    printf("rank %d of %d: sum %d, largest of the group %d: %s\n", (int)rank, (int)n, (int)sum, (int)largest,
           right ? "right" : "wrong");
done:
    if (status != TRM_OK) {
        fprintf(stderr, "communicator: %s: %s\n", trm_status_name(status), trm_last_error());
        trm_world_abort(world, status);
    }
    trm_world_close(world);
    return status != TRM_OK ? trm_status_exit_code(status) : right ? 0 : 1;
}
