/* Loading Open MPI at run time. */
#include "collectives/mpi_library.h"

#include <pthread.h>
#include <stdio.h>

#include "base/error.h"
#include "base/library.h"

trm_mpi_table trm_mpi;

static struct {
    pthread_once_t once;
    trm_status status;
    void *handle;
    char why[1024];
} library = {.once = PTHREAD_ONCE_INIT};

static void load_library(void)
{
    /* The loader's own path, then where it was found at build time. */
    static const char *const names[] = {"libmpi.so.40", TRM_MPI_LIBRARY};
    static const trm_library_symbol symbols[] = {
#define SYMBOL(name) {#name, &trm_mpi.name, false},
        TRM_MPI_FUNCTIONS(SYMBOL)
#undef SYMBOL
            {"ompi_mpi_comm_world", &trm_mpi.comm_world, false},
        {"ompi_mpi_comm_null", &trm_mpi.comm_null, false},
        {"ompi_mpi_byte", &trm_mpi.byte, false},
        {"ompi_mpi_errors_return", &trm_mpi.errors_return, false},
        {"ompi_request_null", &trm_mpi.request_null, false},
    };
    library.status =
        trm_library_open(names, 2, symbols, (int32_t)(sizeof(symbols) / sizeof(symbols[0])), &library.handle);
    if (library.status != TRM_OK) {
        snprintf(library.why, sizeof(library.why), "%s", trm_last_error());
    }
}

trm_status trm_mpi_load(void)
{
    pthread_once(&library.once, load_library);
    if (library.status != TRM_OK) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED,
                 "the launcher started this rank with MPI, which needs Open MPI (torchrun and srun do not): %s",
                 library.why);
    }
    return TRM_OK;
}
