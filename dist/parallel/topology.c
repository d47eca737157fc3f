/* The machine's topology, by hwloc. */
#include "dist/parallel/topology.h"

#include <hwloc.h>
#include <hwloc/linux.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"

#define MOST_SHELLS 16 /* between a launcher and this process */

struct trm_topology {
    hwloc_topology_t machine;
    hwloc_bitmap_t allowed; /* processors in this process's mask */
};

trm_status trm_topology_open(trm_topology **topology)
{
    trm_topology *t = calloc(1, sizeof(*t));
    if (t == NULL || (t->allowed = hwloc_bitmap_alloc()) == NULL) {
        free(t);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the topology");
    }
    if (hwloc_topology_init(&t->machine) != 0) {
        hwloc_bitmap_free(t->allowed);
        free(t);
        TRM_FAIL(TRM_ERROR_INTERNAL, "hwloc_topology_init failed");
    }
    if (hwloc_topology_load(t->machine) != 0) {
        trm_topology_close(t);
        TRM_FAIL(TRM_ERROR_INTERNAL, "hwloc cannot read the topology of this machine: %s", strerror(errno));
    }
    hwloc_const_bitmap_t all = hwloc_topology_get_allowed_cpuset(t->machine);
    if (hwloc_get_cpubind(t->machine, t->allowed, HWLOC_CPUBIND_PROCESS) != 0) {
        hwloc_bitmap_copy(t->allowed, all);
    }
    hwloc_bitmap_and(t->allowed, t->allowed, all);
    *topology = t;
    return TRM_OK;
}

void trm_topology_close(trm_topology *topology)
{
    if (topology == NULL) {
        return;
    }
    hwloc_topology_destroy(topology->machine);
    hwloc_bitmap_free(topology->allowed);
    free(topology);
}

void trm_topology_allowed(const trm_topology *topology, char *text, size_t size)
{
    hwloc_bitmap_list_snprintf(text, size, topology->allowed);
}

static int32_t count_cores(const trm_topology *t)
{
    int cores = hwloc_get_nbobjs_inside_cpuset_by_type(t->machine, t->allowed, HWLOC_OBJ_CORE);
    int processors = hwloc_bitmap_weight(t->allowed);
    if (cores > 0) { /* counts whole cores; a mask may have only part of one */
        return cores;
    }
    return processors > 0 ? processors : 1;
}

/* The processors of cores begin .. end - 1 among those allowed. */
static void cores_between(const trm_topology *t, int32_t begin, int32_t end, hwloc_bitmap_t set)
{
    hwloc_bitmap_zero(set);
    int whole = hwloc_get_nbobjs_inside_cpuset_by_type(t->machine, t->allowed, HWLOC_OBJ_CORE);
    if (whole > 0) {
        for (int32_t i = begin; i < end; i++) {
            hwloc_obj_t core = hwloc_get_obj_inside_cpuset_by_type(t->machine, t->allowed, HWLOC_OBJ_CORE, (unsigned)i);
            hwloc_bitmap_or(set, set, core->cpuset);
        }
        return;
    }
    int id = hwloc_bitmap_first(t->allowed);
    for (int32_t i = 0; i < end && id >= 0; i++, id = hwloc_bitmap_next(t->allowed, id)) {
        if (i >= begin) {
            hwloc_bitmap_set(set, (unsigned)id);
        }
    }
}

/* Binds to `set`, which must be allowed. If the system refuses, the job continues. */
static void bind_to(trm_topology *t, hwloc_const_bitmap_t set)
{
    char text[256];
    hwloc_bitmap_list_snprintf(text, sizeof(text), set);
    if (hwloc_set_cpubind(t->machine, set, HWLOC_CPUBIND_PROCESS) != 0) {
        TRM_WARN("cannot bind to processors %s: %s", text, strerror(errno));
        return;
    }
    hwloc_bitmap_copy(t->allowed, set);
    TRM_DEBUG("bound to processors %s", text);
}

/* The nearest process of Open MPI above this one, which may have started it through shells; 0: none. */
static pid_t find_launcher(void)
{
    static const char *const names[] = {"(mpirun)", "(mpiexec)", "(orterun)", "(orted)"};
    pid_t pid = getppid();
    for (int32_t depth = 0; pid > 1 && depth < MOST_SHELLS; depth++) {
        char path[64], text[512];
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid); /* "7 (mpirun) S 6 ..." */
        FILE *file = fopen(path, "r");
        const size_t size = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
        if (file != NULL) {
            fclose(file);
        }
        text[size] = '\0';
        const char *name = strchr(text, '('), *end = strrchr(text, ')');
        if (name == NULL || end == NULL) {
            return 0;
        }
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
            if (strlen(names[i]) == (size_t)(end + 1 - name) && strncmp(name, names[i], strlen(names[i])) == 0) {
                return pid;
            }
        }
        int parent = 0;
        pid = sscanf(end + 1, " %*c %d", &parent) == 1 ? (pid_t)parent : 0;
    }
    return 0;
}

trm_status trm_topology_unbind(trm_topology *topology)
{
    const pid_t launcher = find_launcher();
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a set of processors");
    }
    if (launcher > 0 && hwloc_get_proc_cpubind(topology->machine, launcher, set, HWLOC_CPUBIND_PROCESS) == 0) {
        hwloc_bitmap_and(set, set, hwloc_topology_get_allowed_cpuset(topology->machine));
        if (hwloc_bitmap_isincluded(topology->allowed, set) && !hwloc_bitmap_isequal(topology->allowed, set)) {
            bind_to(topology, set);
        }
    }
    hwloc_bitmap_free(set);
    return TRM_OK;
}

static void limit_by_openmp(int32_t *threads)
{
    const char *text = getenv("OMP_NUM_THREADS");
    long limit = text != NULL ? strtol(text, NULL, 10) : 0;
    if (limit >= 1 && limit < *threads) {
        *threads = (int32_t)limit;
    }
}

trm_status trm_topology_take_share(trm_topology *topology, int32_t index, int32_t count, bool bind, int32_t *threads)
{
    int32_t cores = count_cores(topology);
    int32_t begin = (int32_t)((int64_t)cores * index / count), end = (int32_t)((int64_t)cores * (index + 1) / count);
    *threads = end > begin ? end - begin : 1;
    limit_by_openmp(threads);
    if (!bind || count == 1 || cores < count) {
        return TRM_OK;
    }
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a set of processors");
    }
    cores_between(topology, begin, end, set);
    bind_to(topology, set);
    hwloc_bitmap_free(set);
    return TRM_OK;
}

trm_status trm_topology_bind_near(trm_topology *topology, const char *pci_bus_id)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a set of processors");
    }
    char path[128];
    int used = snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/local_cpus", pci_bus_id);
    for (char *c = path; *c != '\0'; c++) {
        *c = *c >= 'A' && *c <= 'F' ? (char)(*c - 'A' + 'a') : *c; /* CUDA writes upper case, the kernel lower */
    }
    if (used > 0 && (size_t)used < sizeof(path) && hwloc_linux_read_path_as_cpumask(path, set) == 0) {
        hwloc_bitmap_and(set, set, topology->allowed);
        if (!hwloc_bitmap_iszero(set) && !hwloc_bitmap_isequal(set, topology->allowed)) {
            bind_to(topology, set);
        }
    }
    hwloc_bitmap_free(set);
    return TRM_OK;
}

static int32_t count_objects(const trm_topology *t, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(t->machine, type);
    return n > 0 ? n : 0;
}

void trm_topology_get_info(const trm_topology *topology, trm_topology_info *info)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(topology->machine, HWLOC_OBJ_PACKAGE, 0);
    const char *model = package != NULL ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    snprintf(info->processor, sizeof(info->processor), "%s", model != NULL ? model : "");
    info->packages = count_objects(topology, HWLOC_OBJ_PACKAGE);
    info->cores = count_objects(topology, HWLOC_OBJ_CORE);
    info->hardware_threads = count_objects(topology, HWLOC_OBJ_PU);
}

bool trm_topology_get_node(const trm_topology *topology, int32_t position, trm_topology_node *node)
{
    hwloc_obj_t found = hwloc_get_obj_by_type(topology->machine, HWLOC_OBJ_NUMANODE, (unsigned)position);
    if (found == NULL) {
        return false;
    }
    node->index = (int32_t)found->os_index;
    node->memory_bytes = (int64_t)found->attr->numanode.local_memory;
    hwloc_bitmap_list_snprintf(node->hardware_threads, sizeof(node->hardware_threads), found->cpuset);
    return true;
}
