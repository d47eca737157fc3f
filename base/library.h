/*
 * Shared libraries loaded at run time: CUDA libraries, Open MPI and OpenBLAS are never linked.
 */
#ifndef TRM_BASE_LIBRARY_H
#define TRM_BASE_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

/* One function to look up. `pointer` is the address of a function pointer variable, which receives it. */
typedef struct trm_library_symbol {
    const char *name;
    void *pointer;
    bool optional; /* NULL is stored if the library has no such function */
} trm_library_symbol;

/*
 * Opens the first of `names` [n_names] that loads and fills in every symbol. Each name is tried on the loader's own
 * path (LD_LIBRARY_PATH, ld.so.conf), then in $CUDA_HOME/lib64, $CUDA_PATH/lib64 and /usr/local/cuda/lib64. A library
 * that lacks a symbol is closed again and the next is tried. TRM_ERROR_NO_DEVICE with the names tried and why the last
 * attempts failed; all pointers are then NULL. Libraries are never closed: `handle` lives as long as the process.
 */
trm_status trm_library_open(const char *const *names, int32_t n_names, const trm_library_symbol *symbols,
                            int32_t n_symbols, void **handle);

/* Writes the file that a library was loaded from to `path`, empty if unknown, and returns `path`. */
const char *trm_library_path(void *handle, char *path, size_t size);

#endif
