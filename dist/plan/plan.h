/*
 * The plan, for engine and context. The public calls are in <trireme/engine.h>.
 */
#ifndef TRM_DIST_PLAN_PLAN_H
#define TRM_DIST_PLAN_PLAN_H

#include <trireme/engine.h>

#include "dist/partition/partition.h"
#include "dist/partition/shape_bounds.h"
#include "graph/network.h"
#include "graph/streams.h"
#include "kernels/kernel.h"
#include "kernels/tuner/shortlist.h"

typedef struct trm_plan_profile {
    bool has[TRM_POINT_COUNT];            /* MAX always */
    trm_dims *dims[TRM_POINT_COUNT];      /* [n_tensors], of inputs */
    const void **values[TRM_POINT_COUNT]; /* [n_tensors], of value inputs; NULL: unknown */
    trm_dims *least;                      /* [n_tensors], of inputs: the smallest that a run may have */
} trm_plan_profile;

typedef struct trm_plan_timed {
    const char *name;
    int64_t nanoseconds;
} trm_plan_timed;

/* The tactic that tuning chose for a problem, and those for other sizes of it (kernels/tuner/shortlist.h). */
typedef struct trm_plan_tactic {
    const char *problem;
    int32_t n; /* at least 1 */
    trm_plan_timed timed[TRM_MOST_SHORTLISTED];
} trm_plan_tactic;

/* The device that tactics were timed on. */
typedef struct trm_plan_device {
    char name[128];
    int32_t multiprocessors, major, minor;
} trm_plan_device;

#define TRM_PLAN_MOST_TACTICS 65536

struct trm_plan {
    trm_network *network; /* this rank's, after all passes */
    trm_backend backend;
    trm_mesh mesh;
    int32_t rank;
    bool allow_tf32;
    bool batch_invariant;
    size_t max_workspace; /* limit for kernels that can take less; 0: none */
    trm_arena arena;
    trm_shape_bound *bounds; /* [n_bounds] as given, of inputs that this rank has */
    int32_t n_bounds;
    int32_t n_profiles;
    trm_plan_profile profiles[TRM_MAX_PROFILES];
    trm_dims *max_dims;          /* [n_tensors]; of inputs and states, the largest of each axis in any profile */
    size_t *tensor_bytes;        /* [n_tensors] of activations, the most at any point; SIZE_MAX: known only in a run */
    bool *on_host;               /* [n_tensors] values computed on the host with the dims; they lie with the inputs */
    size_t *weight_offsets;      /* [n_tensors], SIZE_MAX if the tensor is not a constant, or another plan's */
    const trm_tensor **borrowed; /* [n_tensors] constants of another plan, whose memory these use, or NULL; or NULL */
    size_t *state_offsets;       /* [n_tensors] */
    size_t *input_offsets;       /* [n_tensors], in the region of the inputs */
    int32_t last_input;          /* the largest tensor, at its end; -1: it is empty */
    size_t *activation_offsets;  /* [n_tensors], as trm_memory_plan_place gives them */
    size_t weight_bytes, state_bytes, input_bytes, activation_bytes;
    size_t workspace_bytes;               /* of each stream */
    int32_t max_aux_streams;              /* asked for */
    trm_streams streams;                  /* streams that layers use */
    struct trm_streaming_plan *streaming; /* weight_stream/offload/streaming.h; NULL: every weight stays */
    const char *expert_profile;           /* folder of expert profiles for a budget that is set, or NULL; borrowed */
    bool grows;                           /* a run may allocate: some sizes are known only in a run */
    trm_plan_device device;               /* of the tactics */
    trm_plan_tactic *tactics;             /* [n_tactics] in the order in which layers first ask for them */
    int32_t n_tactics, tactic_capacity;
    trm_partition_report partition;
    int32_t format;            /* format of its plan file; 0: not loaded from one */
    int32_t n_file_weights[3]; /* weights in that file, by trm_plan_weights */
};

/* The kernel tables of all rooms, in order of preference. */
extern const trm_kernel_table *const trm_all_kernels[];
extern const int32_t trm_all_kernels_count;

/* Checks the collectives of a rank's network against rank and mesh. */
trm_status trm_plan_check_exchanges(const trm_plan *plan);
/* Checks the bounds against inputs and states of the caller's network. profiles.c */
trm_status trm_plan_check_bounds(const trm_network *network, const trm_build_options *options);
/* Copies the bounds into profiles. profiles.c */
trm_status trm_plan_set_profiles(trm_plan *plan, const trm_build_options *options);
/* Fills in sizes, offsets and totals from profiles and max_dims of states. */
trm_status trm_plan_lay_out_memory(trm_plan *plan);
/* Fills in only the offsets of constants, without streamed ones. */
trm_status trm_plan_lay_out_weights(trm_plan *plan);
/* Bytes of workspace on all streams. */
size_t trm_plan_workspace(const trm_plan *plan);
/* Whether all outputs of a layer are computed on the host, so that it does not run. */
bool trm_plan_layer_is_on_host(const trm_plan *plan, const trm_layer *layer);

/* Weights that `lender` has, too, of the same name and elements, take no memory in this plan: its engine uses those of
 * the lender's (trm_engine.lender). The lender must outlive it. */
trm_status trm_plan_borrow_weights(trm_plan *plan, const trm_plan *lender);
/* Whether a tensor is such a weight. */
static inline bool trm_plan_borrows(const trm_plan *plan, const trm_tensor *tensor)
{
    return plan->borrowed != NULL && plan->borrowed[tensor->index] != NULL;
}

/* Sets the unknown first dimension of states by block to `blocks`, and plans memory again. */
trm_status trm_plan_set_state_blocks(trm_plan *plan, int64_t blocks);
/* Bytes of the other states: those by sequence, and of fixed size. */
size_t trm_plan_slot_bytes(const trm_plan *plan);

/* Raises the workspace for these dims of inputs [n_tensors, others ignored] within the bounds: the largest dims do not
 * always need the most workspace. */
trm_status trm_plan_cover(trm_plan *plan, const trm_dims *dims);

/* The usual dims [n_tensors] of a profile, with the largest counts of data-dependent layers, -1 if only a run knows.
 * memory.c */
trm_status trm_plan_usual_dims(trm_plan *plan, int32_t profile, trm_dims *dims);
/* How often each layer [n_layers] runs in a usual run of profile 0 (trm_layer_runs): of the rank's network, and of the
 * network to build a plan from. memory.c, profiles.c */
trm_status trm_plan_layer_runs(const trm_plan *plan, int32_t *runs, bool *guessed);
trm_status trm_plan_expect_runs(const trm_network *network, const trm_build_options *options, int32_t *runs);
/* Workspace of a kernel for a call: what it asks for, or the plan's limit if it can take less. */
size_t trm_plan_kernel_workspace(const trm_plan *plan, const trm_kernel *kernel, const trm_kernel_call *call);
/* Whether all dims of a call are known. */
bool trm_plan_call_is_known(const trm_kernel_call *call);

/* Reads tuning options of any version. The level becomes 0 (off) to 5. tactics.c */
#define TRM_TUNE_USUAL 3
trm_status trm_tune_options_read(const trm_tune_options *options, trm_tune_options *own);
/* Appends a tactic with 1 to TRM_MOST_SHORTLISTED timed candidates [n]; copies the texts. tactics.c */
trm_status trm_plan_add_tactic(trm_plan *plan, const char *problem, const trm_plan_timed *timed, int32_t n);
/* Makes the kernels use the plan's tactics, without timing. INVALID_ARGUMENT if they are for another device or other
 * versions of its libraries. */
trm_status trm_plan_use_tactics(trm_plan *plan, trm_device *device);

/* Fills a call of `layer` for these dims; addresses are left NULL. */
void trm_plan_describe_call(const trm_layer *layer, const trm_dims *dims, trm_kernel_call *call);

#endif
