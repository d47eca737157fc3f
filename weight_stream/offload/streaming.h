/*
 * Weight streaming of a rank: which weights of its network are streamable, the plan for a budget, and where each weight
 * lies.
 *
 * A weight is streamable if it is large enough for a copy of its own and layers read it unchanged. A weight that does
 * not stay lies in host memory in its stored form (weight_stream/stored.h), from which weight_stream/ring.c makes the
 * device form in staging memory.
 */
#ifndef TRM_WEIGHT_STREAM_OFFLOAD_STREAMING_H
#define TRM_WEIGHT_STREAM_OFFLOAD_STREAMING_H

#include "weight_stream/offload/cpu_offload.h"
#include "dist/plan/plan.h"
#include "dist/plan/streaming_plan.h"
#include "dist/parallel/world.h"
#include "kernels/device/device.h"
#include "weight_stream/reader.h"
#include "weight_stream/residency.h"
#include "weight_stream/stored.h"

/* Stands for a layer's name in waits at the end of a step. */
#define TRM_NEXT_STEP "next step"

/* Checks the numbers of a budget. budget.c */
trm_status trm_weight_budget_check(const trm_weight_budget *budget);
/* Whether a fixed share of CPU offload was asked for. budget.c */
bool trm_wants_share(const trm_weight_budget *budget);
/* Fills in the planner's input for the network of a plan and the budget in `asked`; plans nothing yet.
 * residency_inputs.c, as trm_streaming_has_rows and trm_streaming_packed_guess */
trm_status trm_streaming_make_problem(const trm_plan *plan, trm_streaming_plan *s);

/* Fails with UNSUPPORTED if the plan cannot do what was asked and not all ranks know it; the ranks compare the status.
 */
trm_status trm_streaming_check(const trm_plan *plan);
/* Whether a step copies weights to the device; with any budget it does not if all weights stay. */
bool trm_streaming_fetches(const trm_plan *plan);
/* Resolves an automatic budget: as many weights as fit into `room` bytes, with staging and weights that must stay.
 * OUT_OF_MEMORY, with the bytes needed, if not even those fit. Ignores other budgets. */
trm_status trm_streaming_fit(trm_plan *plan, size_t room);
/* If weights are shared, takes the smallest of the ranks' budgets, so that they all stream the same. Collective. */
trm_status trm_streaming_agree(trm_plan *plan, trm_world *world);
/* Bytes per second, measured when weights are loaded; 0: not measured. */
typedef struct trm_streaming_rates {
    double link, unpack, file;
    double gather; /* bytes from the ranks that share weights */
} trm_streaming_rates;
/* Checks that ranks that share weights keep the same ones. Collective. */
trm_status trm_streaming_check_alike(const trm_plan *plan, trm_world *world);
/* Makes the communicator of the ranks that share weights; NULL if none are shared. Collective. */
trm_status trm_streaming_open_group(const trm_plan *plan, trm_world *world, trm_communicator **group);
/* Gathers the parts of a weight from the other ranks: for trm_ring_sharing, with that communicator as `user`. */
trm_status trm_streaming_gather(void *user, void *memory, size_t part_bytes, trm_stream *stream);
/* Measures bytes per second from the other ranks when `group` gathers, the same on all its ranks; stays 0 without a
 * group or memory. Collective. */
trm_status trm_streaming_measure_gather(trm_world *world, trm_communicator *group, double *rate);
/* Replaces measured rates by those of the slowest rank of `group`. Collective. */
trm_status trm_streaming_agree_on_rates(trm_world *world, const trm_communicator *group, trm_streaming_rates *rates);
/* Marks the plan's shared weights and this rank's part of them. sharing.c, as the six above */
void trm_streaming_share(const trm_plan *plan, trm_streaming_plan *s);
/* Plans again for another budget. */
trm_status trm_streaming_replan(trm_plan *plan, size_t budget);
/* Plans with the measured rates of the CPU, if rates decide the offloaded layers. Before weights are loaded. */
trm_status trm_streaming_use_rates(trm_plan *plan, const trm_cpu_offload_rates *rates);
/* Bytes of the device form of a weight from its source. */
trm_status trm_streaming_read(const trm_plan *plan, int32_t weight, size_t begin, size_t size, void *to);
/* Reads a piece of this rank's part: a trm_reader_fn. `plan` is the trm_plan. */
trm_status trm_streaming_read_piece(void *plan, const trm_reader_piece *piece, void *to);
/* Number of threads that read files while steps run, and their buffers. */
#define TRM_READER_THREADS      6
#define TRM_READER_BUFFERS      12
#define TRM_READER_BUFFER_BYTES ((size_t)8 << 20)
#define TRM_READER_HOST_BYTES   (TRM_READER_BUFFERS * TRM_READER_BUFFER_BYTES + TRM_READER_THREADS * TRM_WEIGHT_WINDOW)
/* The last: host memory left free if weights stay in their files. */
size_t trm_streaming_file_memory(void);
/* Host memory that weights may take of what is free now, on one of `sharing` ranks of this machine; and of that, what
 * they take if some stay in their files, unless the budget says how much. */
size_t trm_streaming_host_room(int32_t sharing);
size_t trm_streaming_host_limit(const trm_streaming_plan *s, size_t room);
/* Whether a layer reads rows of the streamed weight in place. */
bool trm_streaming_has_rows(const trm_streaming_plan *s, int32_t weight);
/* The same for a weight of a plan. */
bool trm_streaming_reads_in_place(const trm_plan *plan, int32_t weight);
/* Estimated packed bytes of a weight. */
size_t trm_streaming_packed_guess(size_t bytes);
/* Plans for a residency [n_weights], rates, and whether tables can be read in place. */
typedef struct trm_streaming_facts {
    const bool *resident;
    const bool *readable; /* [n_weights] the CPU can read it */
    trm_streaming_rates rates;
    bool rows_in_place;
} trm_streaming_facts;
trm_status trm_streaming_adjust(trm_plan *plan, const trm_streaming_facts *facts);

/* The residency of the weights. */
typedef struct trm_weight_residency {
    int32_t n;
    void **resident;           /* [n] device memory, or NULL */
    trm_stored_weight *stored; /* [n] streamed weights; a weight with neither is read in every step */
    bool *is_pinned;           /* [n] */
    size_t *packed_took; /* [n] host memory that it took when last packed, even without room, so that it is not packed
                            in vain again; 0: never packed */
    void *experts;       /* host memory of plan->streaming->host_experts experts, or NULL */
    size_t expert_bytes; /* of it */
    bool experts_are_pinned;
    bool pinned;                  /* all of it is pinned */
    bool capturable;              /* and no weight is read in every step or gathered: steps can be captured */
    size_t host_room;             /* bytes for stored weights and file buffers, of the memory free at the start */
    size_t host_limit, host_used; /* bytes of stored weights; estimates for unfilled ones */
    int32_t threads;              /* threads to pack with when the budget changes */
    struct trm_pool *pool;        /* pool to pack with, while it exists; NULL: only the caller */
    trm_streaming_rates measured; /* 0: not yet measured */
    bool refilled;                /* since the plan was made for this residency */
    uint64_t version;             /* rises with every change */
} trm_weight_residency;

/* Allocates memory for the weights by the plan; the caller fills those on the device. Takes host memory as far as it is
 * free and the budget allows, and plans what an expert cache has of it. `sharing`: ranks
 * that take memory of this machine; `threads`: to pack weights with. */
trm_status trm_weight_residency_init(trm_weight_residency *places, trm_plan *plan, trm_device *device, int32_t sharing,
                                     int32_t threads);
void trm_weight_residency_fini(trm_weight_residency *places, const trm_plan *plan, trm_device *device);
/* Fills a stored weight with its part of the device form; a packed one that was filled before gets new memory. If it
 * needs more than there is room for, it is dropped. */
trm_status trm_weight_residency_store(trm_weight_residency *places, trm_plan *plan, trm_device *device, int32_t weight,
                                      trm_stored_read_fn read, void *user);
/* Call it after stored weights have been filled again, even partly. */
trm_status trm_weight_residency_follow(trm_weight_residency *places, trm_plan *plan, trm_device *device);
/* After stored weights are filled: leaves more of them in files if file buffers need the room, and pins the others. If
 * the system refuses, copies use pageable memory. */
void trm_weight_residency_pin(trm_weight_residency *places, const trm_plan *plan, trm_device *device);
/* Measures the link, unpacking and files. Ranks call it at the same time, since their links share host memory: four at
 * once may be slower than one. */
trm_status trm_weight_residency_measure(const trm_weight_residency *places, trm_plan *plan, trm_device *device,
                                        trm_streaming_rates *rates);
/* Plans with measured rates, on which ranks that share weights agree. */
trm_status trm_weight_residency_settle(trm_weight_residency *places, trm_plan *plan, const trm_streaming_rates *rates);

/* Plans again for another budget and moves weights accordingly. After a failure the plan matches where they are. */
trm_status trm_weight_residency_change(trm_weight_residency *places, trm_plan *plan, trm_device *device, size_t budget);

#endif
