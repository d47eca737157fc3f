/*
 * The ranks of a job: world, mesh and communicator.
 *
 * A process that was started by mpirun, srun or torchrun is one rank of a world; any other process is a
 * world of its own. A mesh arranges the world along named axes.
 *
 * A world is used by one thread at a time, and its collective calls are made in the same order on every rank. Only a
 * world of one rank may be shared by contexts on several threads.
 */
#ifndef TRIREME_MESH_H
#define TRIREME_MESH_H

#include <trireme/layers.h>
#include <trireme/recorder.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Axes, outermost first: the rank of a process is ((dp * pp_size + pp) * cp_size + cp) * tp_size + tp, with
 * ep laid over dp. */
typedef enum trm_axis {
    TRM_AXIS_TP = 0, /* tensor parallel */
    TRM_AXIS_PP,     /* pipeline stages */
    TRM_AXIS_CP,     /* context (sequence) parallel */
    TRM_AXIS_EP,     /* expert parallel */
    TRM_AXIS_DP,     /* data parallel: a share of the batch each; of a network with state, replicas */
    TRM_AXIS_COUNT
} trm_axis;

/* In options a size of 0 is 1, and a mesh of zeros alone is the usual one: all ranks on tp. */
typedef struct trm_mesh {
    int32_t size[TRM_AXIS_COUNT]; /* >= 1 each in what the library gives */
} trm_mesh;

/* Reads "tp=2,pp=2"; axes not named have size 1. NULL or "" puts all `world_size` ranks on tp. Fails unless the
 * product of the sizes is world_size. */
TRM_API trm_status trm_mesh_parse(const char *text, int32_t world_size, trm_mesh *mesh);
/* "tp=2,pp=2" into text [size]. */
TRM_API void trm_mesh_format(const trm_mesh *mesh, char *text, size_t size);
/* Position of `rank` along `axis`, and the ranks of its group along that axis (ranks [size of the axis]). -1, and
 * nothing written, where the mesh has no such rank or axis. */
TRM_API int32_t trm_mesh_coordinate(const trm_mesh *mesh, trm_axis axis, int32_t rank);
TRM_API void trm_mesh_group(const trm_mesh *mesh, trm_axis axis, int32_t rank, int32_t *ranks);

typedef struct trm_world trm_world;

typedef struct trm_world_options {
    size_t size;             /* sizeof(trm_world_options) */
    trm_backend backend;     /* where data will live; decides which communicator is made. All ranks have the same */
    int32_t gpu;             /* CUDA: the number of the GPU, from 1, among those that the process sees; 0: by local rank */
    int32_t threads;         /* host threads per rank; 0: the rank's share of this machine's CPUs */
    double deadline_seconds; /* for every collective and hand-shake; 0: 60 seconds, or TRIREME_DEADLINE */
    bool no_bind;            /* do not bind the process near its GPU (CUDA) or to its share of cores (host) */
    int32_t replica;         /* of several worlds alike on one machine, which this is: its ranks take the GPUs and */
    int32_t replicas;        /* shares of processors and memory behind those before it; 0 or 1: it has them alone */
    int32_t starting;        /* of them, those that start now, this one included: memory that is free on the host is
                                divided among these, as the others have theirs, but none takes more than an
                                even part of all memory; 0: all */
} trm_world_options;
#define TRM_WORLD_OPTIONS_INIT TRM_MAKE(trm_world_options, TRM_SET(size, sizeof(trm_world_options)))

/*
 * On CUDA, ranks of one host exchange small sums over each other's memory where they can, everything else over NCCL;
 * TRIREME_EXCHANGE (auto, peer, nccl), the same on every rank, asks for one of them.
 *
 * Joins the world: rank and size from Open MPI, PMIx, Slurm or torchrun variables; starts MPI when there are peers;
 * opens the device and a communicator over all ranks. Collective: every rank must call it.
 * Errors: INVALID_ARGUMENT (contradicting variables, two ranks on one GPU, ranks that asked for different
 * options), NO_DEVICE (also where replicas need more GPUs than there are), LOST_RANK.
 */
TRM_API trm_status trm_world_open(const trm_world_options *options, trm_world **world);
/* Leaves the world in order, after everything that was made with it is destroyed. Collective when nothing failed. NULL
 * is ignored. A process joins a world of several ranks once. */
TRM_API void trm_world_close(trm_world *world);
/* Ends the whole job because this rank failed: reports rank and cause on its log and on that of every rank that
 * has not failed itself, stops the peers and ends this process with trm_status_exit_code(status). With one rank, or
 * NULL, it returns. */
TRM_API void trm_world_abort(trm_world *world, trm_status status);

/* Whether every rank succeeded so far: if not, ranks that did get the status of the first that failed and its cause in
 * the error record, "rank 1: <cause>"; ranks that failed keep theirs. Collective: they call it too, before they give
 * up. */
TRM_API trm_status trm_world_all_ok(trm_world *world, trm_status mine);

/* The recorder of failures (recorder.h) of calls about the world, and about what is made in it as far as that has none
 * of its own; NULL: none. Not while another thread makes such a call. */
TRM_API void trm_world_set_recorder(trm_world *world, trm_recorder *recorder);

/* Where its data lives: what TRM_BACKEND_AUTO became. */
TRM_API trm_backend trm_world_backend(const trm_world *world);
TRM_API int32_t trm_world_rank(const trm_world *world);
TRM_API int32_t trm_world_size(const trm_world *world);
/* Its number among the ranks of its machine, behind those of earlier replicas. */
TRM_API int32_t trm_world_local_rank(const trm_world *world);
/* Host bytes from `root` to every rank. Collective. */
TRM_API trm_status trm_world_broadcast(trm_world *world, void *bytes, size_t size, int32_t root);

/*
 * The world's communicator: one exchange of flat buffers, as a DIST_COLLECTIVE layer does it (layers.h has the table),
 * and waits for it. Of `params` op, reduce, root and groups are read; axis, n_ranks, dtype and dims are not: blocks lie
 * one after the other in the order of the group.
 *
 *   ALL_GATHER, GATHER           from [count]      to [n * count]
 *   REDUCE_SCATTER, SCATTER      from [n * count]  to [count]
 *   ALL_TO_ALL                   from [n * count]  to [n * count]
 *   others                       from [count]      to [count]
 *
 * from == to is allowed where the sizes agree. Buffers a rank has no use for (`to` of a GATHER off the root, `from` of
 * a BROADCAST off the root, ...) may be NULL. Memory is the host's, or, with `on_device` in a world on CUDA, that of
 * the world's device.
 *
 * Every rank of the world makes the call, those that no group names too: they return at once. SEND and RECV take no
 * groups, and only the two ranks make them. Errors: INVALID_ARGUMENT, LOST_RANK when a peer does not come within the
 * deadline.
 */
TRM_API trm_status trm_world_collective(trm_world *world, const trm_collective_params *params, trm_dtype dtype,
                                        const void *from, void *to, size_t count, bool on_device);

#ifdef __cplusplus
}
#endif
#endif
