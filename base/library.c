/* Run-time loading of shared libraries through tables of symbols. */
#include "base/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Failures so far, for the error text. */
typedef struct attempts {
    char text[1024];
    size_t used;
} attempts;

static void attempts_add(attempts *tried, const char *format, ...) TRM_PRINTF(2, 3);

static void attempts_add(attempts *tried, const char *format, ...)
{
    va_list arguments;
    if (tried->used > 0 && tried->used + 2 < sizeof(tried->text)) {
        memcpy(tried->text + tried->used, "; ", 3);
        tried->used += 2;
    }
    size_t left = sizeof(tried->text) - tried->used;
    va_start(arguments, format);
    int n = vsnprintf(tried->text + tried->used, left, format, arguments);
    va_end(arguments);
    if (n > 0) {
        tried->used += (size_t)n < left ? (size_t)n : left - 1;
    }
}

static void symbols_clear(const trm_library_symbol *symbols, int32_t n_symbols)
{
    static void *const none = NULL;
    for (int32_t i = 0; i < n_symbols; i++) {
        memcpy(symbols[i].pointer, &none, sizeof(none));
    }
}

/* Fills the table; returns false and notes the name if a symbol is missing. */
static bool symbols_resolve(void *library, const char *path, const trm_library_symbol *symbols, int32_t n_symbols,
                            attempts *tried)
{
    for (int32_t i = 0; i < n_symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL && !symbols[i].optional) {
            attempts_add(tried, "%s has no function %s", path, symbols[i].name);
            symbols_clear(symbols, n_symbols);
            return false;
        }
        /* dlsym returns an object pointer; POSIX allows to copy its bits to a function pointer. */
        memcpy(symbols[i].pointer, &address, sizeof(address));
    }
    return true;
}

static void *library_try(const char *path, const trm_library_symbol *symbols, int32_t n_symbols, attempts *tried)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();
        attempts_add(tried, "%s", reason != NULL ? reason : path);
        return NULL;
    }
    if (!symbols_resolve(library, path, symbols, n_symbols, tried)) {
        dlclose(library);
        return NULL;
    }
    return library;
}

trm_status trm_library_open(const char *const *names, int32_t n_names, const trm_library_symbol *symbols,
                            int32_t n_symbols, void **handle)
{
    const struct {
        const char *folder, *suffix;
    } folders[] = {{getenv("CUDA_HOME"), "/lib64/"}, {getenv("CUDA_PATH"), "/lib64/"}, {"/usr/local/cuda", "/lib64/"}};
    attempts tried = {.used = 0};
    symbols_clear(symbols, n_symbols);
    for (int32_t i = 0; i < n_names; i++) {
        void *library = library_try(names[i], symbols, n_symbols, &tried);
        if (library != NULL) {
            *handle = library;
            return TRM_OK;
        }
    }
    for (size_t f = 0; f < sizeof(folders) / sizeof(folders[0]); f++) {
        for (int32_t i = 0; folders[f].folder != NULL && i < n_names; i++) {
            char path[4096];
            int n = snprintf(path, sizeof(path), "%s%s%s", folders[f].folder, folders[f].suffix, names[i]);
            if (n < 0 || (size_t)n >= sizeof(path)) {
                continue;
            }
            void *library = library_try(path, symbols, n_symbols, &tried);
            if (library != NULL) {
                *handle = library;
                return TRM_OK;
            }
        }
    }
    TRM_FAIL(TRM_ERROR_NO_DEVICE, "cannot load %s: %s", n_names > 0 ? names[0] : "no library name", tried.text);
}

const char *trm_library_path(void *handle, char *path, size_t size)
{
    struct link_map *map = NULL;
    const char *name = "";
    if (handle != NULL && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != NULL) {
        name = map->l_name;
    }
    snprintf(path, size, "%s", name);
    return path;
}
