/*
 * The ranks of a job: world, mesh and communicator.
 *
 * A process started by mpirun, srun or torchrun is one rank of a world; any other process is a world of one rank. A
 * mesh arranges the ranks of a world along named axes.
 *
 * One thread at a time uses a world, and every rank makes its collective calls in the same order. Contexts on several
 * threads may share a world only if it has one rank.
 */
#ifndef TRIREME_MESH_H
#define TRIREME_MESH_H

#include <trireme/layers/collective.h>
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
    TRM_AXIS_DP,     /* data parallel: each rank has a share of the batch; networks with state are replicated */
    TRM_AXIS_COUNT
} trm_axis;

/* In options a size of 0 counts as 1, and a mesh of zeros puts all ranks on tp. */
typedef struct trm_mesh {
    int32_t size[TRM_AXIS_COUNT]; /* the library returns sizes of at least 1 */
} trm_mesh;

/* Parses "tp=2,pp=2"; axes that are not named have size 1. NULL or "" puts all `world_size` ranks on tp. Error:
 * INVALID_ARGUMENT (syntax, or the product of the sizes is not world_size). */
TRM_API trm_status trm_mesh_parse(const char *text, int32_t world_size, trm_mesh *mesh);
/* Writes "tp=2,pp=2" into text [size]. */
TRM_API void trm_mesh_format(const trm_mesh *mesh, char *text, size_t size);
/* Position of `rank` along `axis`; -1 if the mesh has no such rank or axis. */
TRM_API int32_t trm_mesh_coordinate(const trm_mesh *mesh, trm_axis axis, int32_t rank);
/* Writes the ranks of the group of `rank` along `axis` into ranks [size of the axis]; nothing if the mesh has no such
 * rank or axis. */
TRM_API void trm_mesh_group(const trm_mesh *mesh, trm_axis axis, int32_t rank, int32_t *ranks);

typedef struct trm_world trm_world;

typedef struct trm_world_options {
    size_t size;         /* sizeof(trm_world_options) */
    trm_backend backend; /* where data lives; all ranks need the same */
    int32_t gpu;         /* CUDA: the number of the GPU, from 1, among those that the process sees; 0: by local rank */
    int32_t threads;     /* host threads per rank; 0: the rank's share of this machine's CPUs */
    double deadline_seconds; /* of every collective and handshake; 0: TRIREME_DEADLINE, else 60 */
    bool no_bind;            /* do not bind the process near its GPU (CUDA) or to its share of cores (host) */
    int32_t replica;         /* 0 .. replicas - 1: index of this world; it takes the GPUs, CPUs and host memory that */
    int32_t replicas;        /* follow those of the replicas before it. Equal worlds on this machine; 0 or 1: one */
    int32_t starting;        /* replicas that start now, this one included: they share the free host memory, and none
                                takes more than an even part of all memory; 0: all replicas */
} trm_world_options;
#define TRM_WORLD_OPTIONS_INIT TRM_MAKE(trm_world_options, TRM_SET(size, sizeof(trm_world_options)))

/*
 * Joins the world: takes rank and size from the variables of Open MPI, PMIx, Slurm or torchrun, starts MPI if there are
 * peers, and opens the device and a communicator over all ranks. Collective. `options` may be NULL.
 *
 * On CUDA, ranks of one host exchange small sums over each other's memory if they can, everything else over NCCL.
 * TRIREME_EXCHANGE (auto, peer, nccl) asks for one of them; it must be the same on every rank.
 *
 * Errors: INVALID_ARGUMENT (contradicting variables, two ranks on one GPU, ranks with different options), NO_DEVICE
 * (also if replicas need more GPUs than there are), LOST_RANK.
 */
TRM_API trm_status trm_world_open(const trm_world_options *options, trm_world **world);
/* Leaves the world. Destroy everything that was made with it before. Collective if nothing failed. A process can join a
 * world of several ranks only once. */
TRM_API void trm_world_close(trm_world *world);
/* Ends the whole job because this rank failed: logs rank and cause here and on every rank that has not failed itself,
 * stops the peers, and exits with trm_status_exit_code(status). Returns if the world has one rank or is NULL. */
TRM_API void trm_world_abort(trm_world *world, trm_status status);

/* Compares the status of all ranks. If one failed, ranks that succeeded return the status of the first that failed,
 * with "rank 1: <cause>" in the error record; ranks that failed return their own. Collective: ranks that failed call it
 * too, before they clean up. */
TRM_API trm_status trm_world_all_ok(trm_world *world, trm_status mine);

/* Sets the recorder (recorder.h) for failed calls about the world and about objects made in it that have no recorder of
 * their own; NULL: none. Must not run while another thread makes such a call. */
TRM_API void trm_world_set_recorder(trm_world *world, trm_recorder *recorder);

/* HOST or CUDA, also if the options said AUTO. */
TRM_API trm_backend trm_world_backend(const trm_world *world);
TRM_API int32_t trm_world_rank(const trm_world *world);
TRM_API int32_t trm_world_size(const trm_world *world);
/* Index of this rank among those of its machine; the ranks of earlier replicas come first. */
TRM_API int32_t trm_world_local_rank(const trm_world *world);
/* CUDA: the number of this rank's GPU, from 1, among those that the process sees; 0 on the host. */
TRM_API int32_t trm_world_gpu(const trm_world *world);
/* Allocates memory [bytes] on the world's device, aligned to 256 bytes: for inputs and outputs that a context binds,
 * and for trm_context_create_in. On CUDA it belongs to the device's primary context; on the host it is ordinary memory.
 * Free it before the world closes. Error: OUT_OF_MEMORY. */
TRM_API trm_status trm_memory_allocate(trm_world *world, size_t bytes, void **memory);
/* Waits for work of the device that may use the memory. NULL is ignored. */
TRM_API void trm_memory_free(trm_world *world, void *memory);
/*
 * Device memory that another process of this machine allocated: `handle`, TRM_MEMORY_HANDLE_BYTES, is its
 * cudaIpcMemHandle_t, and `bytes` must lie in the allocation. The memory stays until it is closed, also if the other
 * process ends. A handle may be opened again. Close it before the world closes, and after the runs that use it. Errors:
 * UNSUPPORTED (the world's device is the host), INVALID_ARGUMENT (the handle is none of this device, its process has
 * ended, or the memory is smaller).
 */
#define TRM_MEMORY_HANDLE_BYTES 64
TRM_API trm_status trm_memory_open(trm_world *world, const void *handle, size_t bytes, void **memory);
TRM_API void trm_memory_close(trm_world *world, void *memory); /* NULL is ignored */
/* Pins host memory [bytes], as of a mapped file, so that the device copies from it at full speed and without the CPU,
 * until it is unpinned; its pages stay in memory. Nothing to do on the host. Errors: OUT_OF_MEMORY, UNSUPPORTED (the
 * system refuses). */
TRM_API trm_status trm_memory_pin(trm_world *world, void *memory, size_t bytes);
TRM_API void trm_memory_unpin(trm_world *world, void *memory); /* NULL is ignored */
/* Copies memory of the host or of the world's device [bytes], in any direction, and waits. Any thread may call it. */
typedef struct trm_memory_copy {
    void *to;
    const void *data;
    size_t bytes;
} trm_memory_copy;
TRM_API trm_status trm_memory_move(trm_world *world, const trm_memory_copy *copies, int32_t n);
/* Copies host memory `bytes` [size] from rank `root` to every rank. Collective. */
TRM_API trm_status trm_world_broadcast(trm_world *world, void *bytes, size_t size, int32_t root);

/*
 * Runs one collective operation on flat buffers, as a DIST_COLLECTIVE layer does (layers/collective.h has the table),
 * and waits for it. Reads op, reduce, root and groups of `params`, and ignores axis, n_ranks, dtype and dims: blocks
 * lie one after the other in the order of the group.
 *
 *   ALL_GATHER, GATHER           from [count]      to [n * count]
 *   REDUCE_SCATTER, SCATTER      from [n * count]  to [count]
 *   ALL_TO_ALL                   from [n * count]  to [n * count]
 *   others                       from [count]      to [count]
 *
 * from == to is allowed if the sizes agree. A buffer that a rank does not use (`to` of a GATHER, `from` of a BROADCAST,
 * away from the root) may be NULL. Buffers are host memory, or, with `on_device` in a world on CUDA, memory of the
 * world's device.
 *
 * Every rank of the world makes the call; ranks outside all groups return at once. SEND and RECV take no groups, and
 * only the two ranks make them. Errors: INVALID_ARGUMENT, LOST_RANK (a peer misses the deadline).
 */
TRM_API trm_status trm_world_collective(trm_world *world, const trm_collective_params *params, trm_dtype dtype,
                                        const void *from, void *to, size_t count, bool on_device);

#ifdef __cplusplus
}
#endif
#endif
