/*
 * Weight streaming of a rank: which weights of its network can be streamed, the plan for a budget, and where each lies.
 *
 * A weight can be streamed if it is large enough for a copy of its own and layers read it as it is. One that does not
 * stay lies in host memory in its stored form (weight_stream/stored.h), which weight_stream/ring.c makes the device
 * form of in staging memory.
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

/* What a step waits for at its end, in the place of a layer's name. */
#define TRM_NEXT_STEP "next step"

/* Refuses a budget whose numbers are none. budget.c */
trm_status trm_weight_budget_check(const trm_weight_budget *budget);
/* Whether processors are to compute a share, whatever takes how long. budget.c */
bool trm_wants_share(const trm_weight_budget *budget);
/* Fills in what the network of a plan is to the planner, for the budget in `asked`; nothing is planned yet.
 * residency_inputs.c, as trm_streaming_has_rows and trm_streaming_packed_guess */
trm_status trm_streaming_make_problem(const trm_plan *plan, trm_streaming_plan *s);

/* Refuses what a plan was asked for though not all ranks knew that it cannot be: UNSUPPORTED, to be agreed on. */
trm_status trm_streaming_check(const trm_plan *plan);
/* Whether a step copies weights to the device at all; one whose weights all stay does not, whatever the budget. */
bool trm_streaming_fetches(const trm_plan *plan);
/* Resolves an automatic budget: as many weights as fit into `room` bytes with what must stay and staging. If not even
 * those do, OUT_OF_MEMORY names what is needed. Nothing to do for other budgets. */
trm_status trm_streaming_fit(trm_plan *plan, size_t room);
/* The least of the ranks' budgets, where weights are shared, so that they all fetch the same. Collective. */
trm_status trm_streaming_agree(trm_plan *plan, trm_world *world);
/* Bytes per second, measured when weights are loaded; 0: not measured. */
typedef struct trm_streaming_rates {
    double link, unpack, file;
    double gather; /* what comes from the ranks that share weights */
} trm_streaming_rates;
/* Checks that ranks which share weights keep the same ones. Collective. */
trm_status trm_streaming_check_alike(const trm_plan *plan, trm_world *world);
/* Makes the communicator of the ranks that share weights, NULL where none are shared. Collective. */
trm_status trm_streaming_open_group(const trm_plan *plan, trm_world *world, trm_communicator **group);
/* Brings the parts of a weight that other ranks have fetched: trm_ring_sharing's, `user` that communicator. */
trm_status trm_streaming_gather(void *user, void *memory, size_t part_bytes, trm_stream *stream);
/* Bytes per second that come from the others when `group` gathers, the same on all its ranks; stays 0 without a group
 * or where memory is full. Collective. */
trm_status trm_streaming_measure_gather(trm_world *world, trm_communicator *group, double *rate);
/* Makes the rates that were measured those of the slowest rank. `group`: as above. Collective. */
trm_status trm_streaming_agree_on_rates(trm_world *world, const trm_communicator *group, trm_streaming_rates *rates);
/* Which of the plan's weights are shared and what the part of this rank is. sharing.c, as the six above */
void trm_streaming_share(const trm_plan *plan, trm_streaming_plan *s);
/* Plans for another budget. */
trm_status trm_streaming_replan(trm_plan *plan, size_t budget);
/* Plans with what was measured of processors, where rates decide what they compute. Before weights are loaded. */
trm_status trm_streaming_use_rates(trm_plan *plan, const trm_cpu_offload_rates *rates);
/* Bytes of the device form of a weight from its source. */
trm_status trm_streaming_read(const trm_plan *plan, int32_t weight, size_t begin, size_t size, void *to);
/* A piece of the part that this rank fetches: a trm_reader_fn. `plan` is the trm_plan. */
trm_status trm_streaming_read_piece(void *plan, const trm_reader_piece *piece, void *to);
/* Threads that read files while steps run, and what they read into. */
#define TRM_READER_THREADS      6
#define TRM_READER_BUFFERS      12
#define TRM_READER_BUFFER_BYTES ((size_t)8 << 20)
#define TRM_READER_HOST_BYTES   (TRM_READER_BUFFERS * TRM_READER_BUFFER_BYTES + TRM_READER_THREADS * TRM_WEIGHT_WINDOW)
/* The last: the host memory that is left free where weights stay in their files. */
size_t trm_streaming_file_memory(void);
/* Whether a layer reads rows of the weight where it lies when it is streamed. */
bool trm_streaming_has_rows(const trm_streaming_plan *s, int32_t weight);
/* The same of a plan's. */
bool trm_streaming_reads_in_place(const trm_plan *plan, int32_t weight);
/* Bytes that are thought to be copied for a weight that is packed. */
size_t trm_streaming_packed_guess(size_t bytes);
/* What follows from weights being where they are [n_weights], from rates, and from whether tables can be read where
 * they lie. */
typedef struct trm_streaming_facts {
    const bool *resident;
    const bool *readable; /* [n_weights] processors can read it */
    trm_streaming_rates rates;
    bool rows_in_place;
} trm_streaming_facts;
trm_status trm_streaming_adjust(trm_plan *plan, const trm_streaming_facts *facts);

/* Where the weights are. */
typedef struct trm_weight_residency {
    int32_t n;
    void **resident;              /* [n] device memory, or NULL */
    trm_stored_weight *stored;    /* [n] those that are streamed; what has neither is read in every step */
    bool *is_pinned;              /* [n] */
    size_t *packed_took;          /* [n] host memory that it took when it was last packed, also where there was no room
                                     for it then, so that it is not packed in vain again; 0: it was not */
    bool pinned;                  /* all of them are */
    bool capturable;              /* and none is read in every step or gathered: steps can be captured */
    size_t host_room;             /* bytes for stored ones and what files are read through, of what was free at first */
    size_t host_limit, host_used; /* bytes of stored ones; before one is filled, of what it is thought to take */
    int32_t threads;              /* to pack with, when the budget changes */
    struct trm_pool *pool;        /* to pack with, while there is one; NULL: the caller alone */
    trm_streaming_rates measured; /* 0: there was nothing to measure with yet */
    bool refilled;                /* since the plan was made of where weights are */
    uint64_t version;             /* rises with every change */
} trm_weight_residency;

/* Memory for the weights as the plan says; those on the device are to be filled by the caller. Host memory is taken as
 * far as there is any, or as the budget allows. `sharing`: the ranks that take memory of this machine; `threads`: to
 * pack weights with. */
trm_status trm_weight_residency_init(trm_weight_residency *places, const trm_plan *plan, trm_device *device,
                                     int32_t sharing, int32_t threads);
void trm_weight_residency_fini(trm_weight_residency *places, const trm_plan *plan, trm_device *device);
/* Fills a stored weight with its part, reading its device form; a packed one that was filled before gets other memory.
 * If it turns out to take more than there is room for, it is dropped. */
trm_status trm_weight_residency_store(trm_weight_residency *places, trm_plan *plan, trm_device *device, int32_t weight,
                                      trm_stored_read_fn read, void *user);
/* To be called when stored weights have been filled again, also in part. */
trm_status trm_weight_residency_follow(trm_weight_residency *places, trm_plan *plan, trm_device *device);
/* Once stored weights are filled: leaves more of them to their files where some are and what those are read through
 * needs the room, and pins the others. Where the system refuses, copies go from ordinary memory. */
void trm_weight_residency_pin(trm_weight_residency *places, const trm_plan *plan, trm_device *device);
/* Measures the link, unpacking and files. Ranks call it at the same time, as their links share the memory of their
 * host: four at once may be slower than one. */
trm_status trm_weight_residency_measure(const trm_weight_residency *places, trm_plan *plan, trm_device *device,
                                        trm_streaming_rates *rates);
/* Plans with rates, which ranks that share weights have agreed on. */
trm_status trm_weight_residency_settle(trm_weight_residency *places, trm_plan *plan, const trm_streaming_rates *rates);

/* Plans again for another budget and moves weights to where they then belong. If that fails on the way, the plan is of
 * where they are. */
trm_status trm_weight_residency_change(trm_weight_residency *places, trm_plan *plan, trm_device *device, size_t budget);

#endif
