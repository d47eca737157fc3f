/*
 * Open MPI, which is loaded when ranks meet over it: a process that nobody launched needs none. Its handles are
 * addresses of objects of the library, so that MPI_COMM_WORLD and the like cannot be used: they would be linked.
 */
#ifndef TRM_COLLECTIVES_MPI_LIBRARY_H
#define TRM_COLLECTIVES_MPI_LIBRARY_H

#include <mpi.h>

#include <trireme/status.h>

#ifndef OPEN_MPI
#error "expected the mpi.h of Open MPI"
#endif

#define TRM_MPI_FUNCTIONS(X)                                                                                           \
    X(MPI_Abort)                                                                                                       \
    X(MPI_Cancel)                                                                                                      \
    X(MPI_Comm_free)                                                                                                   \
    X(MPI_Comm_idup)                                                                                                   \
    X(MPI_Comm_rank)                                                                                                   \
    X(MPI_Comm_set_errhandler)                                                                                         \
    X(MPI_Comm_size)                                                                                                   \
    X(MPI_Error_string)                                                                                                \
    X(MPI_Finalize)                                                                                                    \
    X(MPI_Finalized)                                                                                                   \
    X(MPI_Get_count)                                                                                                   \
    X(MPI_Get_library_version)                                                                                         \
    X(MPI_Init_thread)                                                                                                 \
    X(MPI_Initialized)                                                                                                 \
    X(MPI_Irecv)                                                                                                       \
    X(MPI_Isend)                                                                                                       \
    X(MPI_Request_free)                                                                                                \
    X(MPI_Request_get_status)                                                                                          \
    X(MPI_Test)                                                                                                        \
    X(MPI_Testall)                                                                                                     \
    X(MPI_Wait)

typedef struct trm_mpi_table {
#define FIELD(name) __typeof__(&name) name;
    TRM_MPI_FUNCTIONS(FIELD)
#undef FIELD
    MPI_Comm comm_world, comm_null;
    MPI_Datatype byte;
    MPI_Errhandler errors_return;
    MPI_Request request_null;
} trm_mpi_table;

/* trm_mpi.MPI_Isend, ...: valid once trm_mpi_load has succeeded. */
extern trm_mpi_table trm_mpi;

/* Finds and loads Open MPI at the first call; later calls return the same result. Any thread may call it. Without
 * Open MPI: TRM_ERROR_UNSUPPORTED, and the error names the files tried. */
trm_status trm_mpi_load(void);

#endif
