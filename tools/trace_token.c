/*
 * Preloaded by tools/trace_token.sh into a program built with -finstrument-functions: keeps which functions the main
 * thread enters and leaves, and writes them to $TRACE_TOKEN when the program ends, one a line: + or -, and the address
 * in the executable.
 */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define QUIET __attribute__((no_instrument_function))
#define MOST  ((size_t)1 << 24)

static uintptr_t *events; /* [MOST] address * 2 + 1 for an entry, address * 2 for an exit */
static size_t n_events;
static uintptr_t base;

QUIET static int find_base(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    (void)user;
    base = info->dlpi_addr; /* the executable comes first */
    return 1;
}

QUIET __attribute__((constructor)) static void begin(void)
{
    dl_iterate_phdr(find_base, NULL);
    events = malloc(MOST * sizeof(*events));
}

QUIET static void keep(const void *function, uintptr_t entered)
{
    if (events != NULL && n_events < MOST && syscall(SYS_gettid) == getpid()) {
        events[n_events++] = ((uintptr_t)function - base) << 1 | entered;
    }
}

QUIET void __cyg_profile_func_enter(void *function, void *caller);
QUIET void __cyg_profile_func_exit(void *function, void *caller);

void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    keep(function, 1);
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)caller;
    keep(function, 0);
}

QUIET __attribute__((destructor)) static void end(void)
{
    const char *path = getenv("TRACE_TOKEN");
    FILE *file = path == NULL || events == NULL ? NULL : fopen(path, "w");
    for (size_t i = 0; file != NULL && i < n_events; i++) {
        fprintf(file, "%c 0x%lx\n", (events[i] & 1) != 0 ? '+' : '-', (unsigned long)(events[i] >> 1));
    }
    if (file != NULL) {
        fclose(file);
    }
}
