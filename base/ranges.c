/* The side of NVTX's protocol that an instrumented program has. */
#include "base/ranges.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/library.h"
#include "base/log.h"

/* Numbers of the protocol. */
enum { EXPORT_CALLBACKS = 1, EXPORT_VERSION = 3 };
enum { MODULE_CORE = 1, MODULE_CORE2 = 5 };
enum { CORE_RANGE_PUSH = 9, CORE_RANGE_POP = 11, CORE_FUNCTIONS = 16 };
#define NVTX_VERSION 3

typedef void (*any_function)(void);

typedef struct callbacks_table {
    size_t size;
    int (*get_module)(int32_t module, any_function ***functions, unsigned *n);
} callbacks_table;

typedef struct version_table {
    size_t size;
    uint32_t version, reserved;
    void (*set_tool_version)(uint32_t version);
} version_table;

bool trm_ranges_on_;

/* The tool writes its functions here. Those of CORE2, domains, are called by nobody, but a tool may expect the table.
 */
static any_function core[CORE_FUNCTIONS], core2[CORE_FUNCTIONS];
static any_function *core_places[CORE_FUNCTIONS], *core2_places[CORE_FUNCTIONS];

static int get_module(int32_t module, any_function ***functions, unsigned *n)
{
    any_function **places = module == MODULE_CORE ? core_places : module == MODULE_CORE2 ? core2_places : NULL;
    if (functions != NULL) {
        *functions = places;
    }
    if (n != NULL) {
        *n = places != NULL ? CORE_FUNCTIONS : 0;
    }
    return places != NULL;
}

static void set_tool_version(uint32_t version)
{
    (void)version;
}

static const void *get_table(uint32_t table)
{
    static const callbacks_table callbacks = {sizeof(callbacks), get_module};
    static const version_table version = {sizeof(version), NVTX_VERSION, 0, set_tool_version};
    return table == EXPORT_CALLBACKS ? (const void *)&callbacks : table == EXPORT_VERSION ? &version : NULL;
}

static void open_tool(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    int (*initialize)(const void *(*get_table)(uint32_t)) = NULL;
    const trm_library_symbol symbol = {"InitializeInjectionNvtx2", &initialize, false};
    void *library;
    for (int32_t i = 1; i < CORE_FUNCTIONS; i++) { /* number 0 is none */
        core_places[i] = &core[i];
        core2_places[i] = &core2[i];
    }
    if (path == NULL || path[0] == '\0') {
        return;
    }
    if (trm_library_open(&path, 1, &symbol, 1, &library) != TRM_OK || initialize(get_table) == 0) {
        TRM_WARN("no NVTX ranges: cannot use the tool of NVTX_INJECTION64_PATH, %s", path);
        return;
    }
    trm_ranges_on_ = core[CORE_RANGE_PUSH] != NULL && core[CORE_RANGE_POP] != NULL;
}

void trm_ranges_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_tool);
}

void trm_range_begin(const char *name)
{
    if (trm_ranges_are_on()) {
        (void)((int (*)(const char *))core[CORE_RANGE_PUSH])(name);
    }
}

void trm_range_end(void)
{
    if (trm_ranges_are_on()) {
        (void)((int (*)(void))core[CORE_RANGE_POP])();
    }
}
