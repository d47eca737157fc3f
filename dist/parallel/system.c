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

static void describe_library(trm_system_fn fn, void *user, const char *name, const char *const *files, int32_t n_files,
                             const char *version_symbol)
{
    size_t (*version)(void) = NULL;
    const trm_library_symbol symbol = {version_symbol, (void *)&version, true};
    void *handle;
    char path[1024], value[1400];
    if (trm_library_open(files, n_files, &symbol, version_symbol == NULL ? 0 : 1, &handle) != TRM_OK) {
        fn(user, "libraries", name, "not found");
        return;
    }
    trm_library_path(handle, path, sizeof(path));
    if (version != NULL) {
        snprintf(value, sizeof(value), "%zu, %s", version(), path);
    } else {
        snprintf(value, sizeof(value), "%s", path);
    }
    fn(user, "libraries", name, value);
}

static void describe_libraries(trm_system_fn fn, void *user)
{
    char value[1400], path[1024];
    int32_t nccl = trm_nccl_version(path, sizeof(path));
    if (nccl > 0) {
        snprintf(value, sizeof(value), "%d.%d.%d, %s", nccl / 10000, nccl / 100 % 100, nccl % 100, path);
        fn(user, "libraries", "NCCL", value);
    } else {
        fn(user, "libraries", "NCCL", "not found");
    }
    static const char *const lt[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
    static const char *const dnn[] = {"libcudnn.so.9", "libcudnn.so"};
    static const char *const rtc[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    describe_library(fn, user, "cuBLASLt", lt, 3, "cublasLtGetVersion");
    describe_library(fn, user, "cuDNN", dnn, 2, "cudnnGetVersion");
    describe_library(fn, user, "NVRTC", rtc, 3, NULL);
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    if (trm_mpi_load() == TRM_OK && trm_mpi.MPI_Get_library_version(mpi, &length) == MPI_SUCCESS) {
        mpi[strcspn(mpi, ",\n")] = '\0';
    }
    fn(user, "libraries", "MPI", mpi[0] != '\0' ? mpi : "not found");
}

static void describe_gpus(trm_system_fn fn, void *user)
{
    char why[512] = "";
    int32_t n = trm_device_cuda_count(why, sizeof(why));
    if (n == 0) {
        fn(user, "gpus", "none", why);
    }
    for (int32_t i = 0; i < n; i++) {
        trm_device *device;
        trm_device_info info;
        char name[32], value[512];
        snprintf(name, sizeof(name), "%d", i);
        if (trm_device_open(TRM_BACKEND_CUDA, i, 0, &device) != TRM_OK) {
            fn(user, "gpus", name, trm_last_error());
            continue;
        }
        if (trm_device_get_info(device, &info) == TRM_OK) {
            snprintf(value, sizeof(value), "%s, sm_%d%d, %d multiprocessors, %.1f of %.1f GiB free, PCI %s, %s",
                     info.name, info.compute_major, info.compute_minor, info.multiprocessors,
                     (double)info.memory_free / 0x1p30, (double)info.memory_total / 0x1p30, info.pci_bus_id, info.uuid);
            fn(user, "gpus", name, value);
        } else {
            fn(user, "gpus", name, trm_last_error());
        }
        trm_device_close(device);
    }
}

static void describe_machine(trm_system_fn fn, void *user)
{
    trm_topology *topology;
    if (trm_topology_open(&topology) == TRM_OK) {
        char text[4096];
        trm_topology_describe(topology, text, sizeof(text));
        trm_topology_close(topology);
        char *rest = NULL;
        for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
            fn(user, "machine", "", line);
        }
    }
    trm_launcher launch;
    char value[256];
    if (trm_launcher_detect(trm_environment, &launch) == TRM_OK) {
        snprintf(value, sizeof(value), "%s, rank %d of %d", launch.launcher, launch.rank, launch.size);
        fn(user, "machine", "launcher", value);
    } else {
        fn(user, "machine", "launcher", trm_last_error());
    }
}

void trm_system_describe(trm_system_fn fn, void *user)
{
    fn(user, "build", "version", TRM_VERSION);
#if TRM_HAVE_CUDA
    char value[256];
    int driver = 0;
    snprintf(value, sizeof(value), "runtime %d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
        size_t used = strlen(value);
        snprintf(value + used, sizeof(value) - used, ", driver supports %d.%d", driver / 1000, driver % 1000 / 10);
    }
    fn(user, "build", "CUDA", value);
#else
    fn(user, "build", "CUDA", "not built");
#endif
    describe_machine(fn, user);
    describe_gpus(fn, user);
    describe_libraries(fn, user);
}
