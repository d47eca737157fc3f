/* The description of build, machine, GPUs and libraries. */
#include <trireme/system.h>
#include <trireme/version.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/launch.h"
#include "base/library.h"
#include "base/log.h"
#include "collectives/communicator.h"
#include "collectives/mpi_library.h"
#include "dist/parallel/topology.h"
#include "dist/parallel/world.h"
#include "kernels/device/device.h"

#if TRM_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

const char *trm_version(void)
{
    return TRM_VERSION;
}

int32_t trm_system_gpu_count(void)
{
    return trm_device_cuda_count(NULL, 0);
}

double trm_system_memory_rate(int32_t gpu)
{
    return gpu >= 0 && gpu < trm_system_gpu_count() ? trm_device_cuda_memory_rate(gpu) : 0.0;
}

trm_backend trm_system_backend(trm_backend wanted)
{
    static bool warned; /* AUTO is resolved several times on the way to a model */
    char why[256];
    if (wanted != TRM_BACKEND_AUTO) {
        return wanted;
    }
    const char *rank = trm_launcher_rank(trm_environment); /* one rank warns for all */
    if (trm_device_cuda_lacks_code(why, sizeof(why)) && !__atomic_exchange_n(&warned, true, __ATOMIC_RELAXED) &&
        (rank == NULL || strcmp(rank, "0") == 0)) {
        TRM_WARN("running on the CPU: %s (build option TRM_CUDA_ARCHITECTURES)", why);
    }
    return trm_system_gpu_count() > 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
}

/* ---- the description --------------------------------------------------------------------------------- */

typedef struct writer {
    trm_system_fn fn;
    void *user;
    const char *group;
    int32_t item;
} writer;

static void put_text(const writer *w, const char *name, const char *text)
{
    w->fn(w->user, &(trm_system_fact){.group = w->group, .item = w->item, .name = name, .text = text});
}

static void put_number(const writer *w, const char *name, int64_t number)
{
    w->fn(w->user,
          &(trm_system_fact){.group = w->group, .item = w->item, .name = name, .is_number = true, .number = number});
}

/* A version such as 13.0, of which CUDA makes 13000; 0: none. */
static void put_cuda_version(const writer *w, const char *name, int32_t version)
{
    char text[32];
    snprintf(text, sizeof(text), "%d.%d", version / 1000, version % 1000 / 10);
    put_text(w, name, version > 0 ? text : NULL);
}

static void describe_build(writer w)
{
    int runtime = 0, driver = 0;
#if TRM_HAVE_CUDA
    runtime = CUDART_VERSION;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) {
        driver = 0;
    }
#endif
    put_text(&w, "version", TRM_VERSION);
    put_cuda_version(&w, "cuda_runtime", runtime);
    put_cuda_version(&w, "cuda_driver", driver);
}

static void describe_topology(writer w, const trm_topology *topology)
{
    trm_topology_info info;
    char allowed[256];
    trm_topology_get_info(topology, &info);
    trm_topology_allowed(topology, allowed, sizeof(allowed));
    put_text(&w, "processor", info.processor[0] != '\0' ? info.processor : NULL);
    put_number(&w, "packages", info.packages);
    put_number(&w, "cores", info.cores);
    put_number(&w, "hardware_threads", info.hardware_threads);
    put_text(&w, "usable_hardware_threads", allowed);
}

static void describe_nodes(writer w, const trm_topology *topology)
{
    trm_topology_node node;
    for (w.item = 0; trm_topology_get_node(topology, w.item, &node); w.item++) {
        put_number(&w, "index", node.index);
        put_number(&w, "memory_bytes", node.memory_bytes);
        put_text(&w, "hardware_threads", node.hardware_threads);
    }
}

static void describe_launcher(writer w)
{
    trm_launcher launch;
    if (trm_launcher_detect(trm_environment, &launch) != TRM_OK) {
        put_text(&w, "launcher_error", trm_last_error());
        return;
    }
    put_text(&w, "launcher", launch.launcher);
    put_number(&w, "rank", launch.rank);
    put_number(&w, "ranks", launch.size);
}

static void describe_gpu(const writer *w, const trm_device_info *info)
{
    char capability[32];
    snprintf(capability, sizeof(capability), "%d.%d", info->compute_major, info->compute_minor);
    put_text(w, "name", info->name);
    put_text(w, "compute_capability", capability);
    put_number(w, "multiprocessors", info->multiprocessors);
    put_number(w, "memory_bytes", (int64_t)info->memory_total);
    put_number(w, "free_memory_bytes", (int64_t)info->memory_free);
    put_text(w, "pci_bus_id", info->pci_bus_id);
    put_text(w, "uuid", info->uuid);
}

static void describe_gpus(writer w, int32_t n)
{
    if (n == 0) {
        put_text(&w, NULL, NULL);
    }
    for (w.item = 0; w.item < n; w.item++) {
        trm_device *device = NULL;
        trm_device_info info;
        put_number(&w, "index", w.item);
        if (trm_device_open(TRM_BACKEND_CUDA, w.item, 0, &device) == TRM_OK &&
            trm_device_get_info(device, &info) == TRM_OK) {
            describe_gpu(&w, &info);
        } else {
            put_text(&w, "error", trm_last_error());
        }
        if (device != NULL) {
            trm_device_close(device);
        }
    }
}

static void describe_library(writer *w, const char *name, const char *const *files, int32_t n_files,
                             const char *version_symbol)
{
    size_t (*version)(void) = NULL;
    const trm_library_symbol symbol = {version_symbol, (void *)&version, true};
    void *handle;
    char path[1024] = "", text[32] = "";
    if (trm_library_open(files, n_files, &symbol, version_symbol == NULL ? 0 : 1, &handle) == TRM_OK) {
        trm_library_path(handle, path, sizeof(path));
        if (version != NULL) {
            snprintf(text, sizeof(text), "%zu", version());
        }
    }
    put_text(w, "name", name);
    put_text(w, "version", text[0] != '\0' ? text : NULL);
    put_text(w, "path", path[0] != '\0' ? path : NULL);
    w->item++;
}

static void describe_libraries(writer w)
{
    char text[32], path[1024] = "";
    w.item = 0;
    int32_t nccl = trm_nccl_version(path, sizeof(path));
    snprintf(text, sizeof(text), "%d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100);
    put_text(&w, "name", "NCCL");
    put_text(&w, "version", nccl > 0 ? text : NULL);
    put_text(&w, "path", nccl > 0 ? path : NULL);
    w.item++;
    static const char *const lt[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    static const char *const dnn[] = {"libcudnn.so.9", "libcudnn.so"};
    static const char *const rtc[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    describe_library(&w, "cuBLASLt", lt, 3, "cublasLtGetVersion");
    describe_library(&w, "cuDNN", dnn, 2, "cudnnGetVersion");
    describe_library(&w, "NVRTC", rtc, 3, NULL);
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    if (trm_mpi_load() == TRM_OK && trm_mpi.MPI_Get_library_version(mpi, &length) == MPI_SUCCESS) {
        mpi[strcspn(mpi, ",\n")] = '\0';
    }
    put_text(&w, "name", "MPI");
    put_text(&w, "version", mpi[0] != '\0' ? mpi : NULL);
}

void trm_system_describe(trm_system_fn fn, void *user)
{
    const writer build = {fn, user, "build", -1}, machine = {fn, user, "machine", -1};
    char why[512] = "";
    const int32_t n_gpus = trm_device_cuda_count(why, sizeof(why));
    trm_topology *topology = NULL;
    describe_build(build);
    if (trm_topology_open(&topology) == TRM_OK) {
        describe_topology(machine, topology);
    }
    describe_launcher(machine);
    put_text(&machine, "gpu_error", n_gpus == 0 ? why : NULL);
    if (topology != NULL) {
        describe_nodes((writer){fn, user, "numa_nodes", -1}, topology);
        trm_topology_close(topology);
    }
    describe_gpus((writer){fn, user, "gpus", -1}, n_gpus);
    describe_libraries((writer){fn, user, "libraries", -1});
}
