/*
 * NVRTC, the run-time compiler, behind a table of functions found at run time, and its results on disk. A file's name
 * is a hash of all that decides its content: source, headers, options and the compiler's version.
 */
#include <nvrtc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"
#include "base/file.h"
#include "base/library.h"
#include "base/log.h"
#include "kernels/fused/cuda_headers.h"
#include "kernels/fused/cuda.h"

#define NVRTC_FUNCTIONS(X)                                                                                             \
    X(nvrtcVersion)                                                                                                    \
    X(nvrtcGetErrorString)                                                                                             \
    X(nvrtcCreateProgram)                                                                                              \
    X(nvrtcDestroyProgram)                                                                                             \
    X(nvrtcCompileProgram)                                                                                             \
    X(nvrtcGetProgramLogSize)                                                                                          \
    X(nvrtcGetProgramLog)                                                                                              \
    X(nvrtcGetCUBINSize)                                                                                               \
    X(nvrtcGetCUBIN)

#define MOST_HEADERS  16
#define LARGEST_IMAGE ((size_t)64 << 20)

static struct {
#define FIELD(name) __typeof__(&name) name;
    NVRTC_FUNCTIONS(FIELD)
#undef FIELD
} nvrtc;

static struct {
    pthread_mutex_t mutex;
    void *library;
    int major, minor;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* What standard headers would say, as far as ours need it. */
static const trm_device_header standard[] = {
    {"math.h", ""},
    {"stdbool.h", ""},
    {"stddef.h", "typedef unsigned long size_t;\n"},
    {"stdint.h",
     "typedef signed char int8_t;\ntypedef short int16_t;\ntypedef int int32_t;\ntypedef long long int64_t;\n"
     "typedef unsigned char uint8_t;\ntypedef unsigned short uint16_t;\ntypedef unsigned int uint32_t;\n"
     "typedef unsigned long long uint64_t;\n#define INT64_MAX 0x7fffffffffffffffLL\n"},
    {"kernels/element.h", "#define TRM_ELEMENT static __device__ __forceinline__\n"},
};
#define STANDARD ((int)(sizeof(standard) / sizeof(standard[0])))

trm_status trm_nvrtc_open(void)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    static const trm_library_symbol symbols[] = {
#define SYMBOL(name) {#name, &nvrtc.name, false},
        NVRTC_FUNCTIONS(SYMBOL)
#undef SYMBOL
    };
    trm_status status = TRM_OK;
    pthread_mutex_lock(&state.mutex);
    if (state.library == NULL) {
        status = trm_library_open(names, 3, symbols, (int32_t)(sizeof(symbols) / sizeof(symbols[0])), &state.library);
        if (status == TRM_OK && nvrtc.nvrtcVersion(&state.major, &state.minor) != NVRTC_SUCCESS) {
            state.major = state.minor = 0;
        }
    }
    pthread_mutex_unlock(&state.mutex);
    return status;
}

/* ---- compiling --------------------------------------------------------------------------------- */

static trm_status fail_with_log(nvrtcProgram program, nvrtcResult result, const char *what)
{
    size_t size = 0;
    char *log = NULL;
    if (program != NULL && nvrtc.nvrtcGetProgramLogSize(program, &size) == NVRTC_SUCCESS && size > 1) {
        log = malloc(size);
    }
    if (log != NULL && nvrtc.nvrtcGetProgramLog(program, log) != NVRTC_SUCCESS) {
        log[0] = '\0';
    }
    for (char *at = log; at != NULL && *at != '\0'; at++) { /* a cause is one line */
        *at = (unsigned char)*at < ' ' ? ' ' : *at;
    }
    trm_status status = trm_fail(TRM_ERROR_INTERNAL, "cannot compile a kernel: %s failed: %s%s%.600s", what,
                                 nvrtc.nvrtcGetErrorString(result), log == NULL ? "" : ": ", log == NULL ? "" : log);
    free(log);
    return status;
}

/* Under no lock: NVRTC may be called by several threads. */
static trm_status compile(const char *source, const char *const *options, int n_options, void **image, size_t *size)
{
    const char *names[MOST_HEADERS], *texts[MOST_HEADERS];
    int n = 0;
    for (int i = 0; i < STANDARD; i++, n++) {
        names[n] = standard[i].name;
        texts[n] = standard[i].text;
    }
    for (int i = 0; i < trm_device_headers_count && n < MOST_HEADERS; i++, n++) {
        names[n] = trm_device_headers[i].name;
        texts[n] = trm_device_headers[i].text;
    }
    nvrtcProgram program = NULL;
    void *made = NULL;
    trm_status status = TRM_OK;
    nvrtcResult result = nvrtc.nvrtcCreateProgram(&program, source, "kernel.cu", n, texts, names);
    if (result != NVRTC_SUCCESS) {
        return fail_with_log(NULL, result, "nvrtcCreateProgram");
    }
    result = nvrtc.nvrtcCompileProgram(program, n_options, options);
    if (result != NVRTC_SUCCESS) {
        status = fail_with_log(program, result, "nvrtcCompileProgram");
        goto destroy;
    }
    result = nvrtc.nvrtcGetCUBINSize(program, size);
    made = result == NVRTC_SUCCESS && *size > 0 && *size <= LARGEST_IMAGE ? malloc(*size) : NULL;
    if (made == NULL || nvrtc.nvrtcGetCUBIN(program, made) != NVRTC_SUCCESS) {
        status = trm_fail(TRM_ERROR_INTERNAL, "cannot take a compiled kernel of %zu bytes", *size);
        free(made);
        goto destroy;
    }
    *image = made;
destroy:
    (void)nvrtc.nvrtcDestroyProgram(&program);
    return status;
}

/* ---- results on disk --------------------------------------------------------------------------- */

/* A file: these 16 bytes, the hash of what follows, the image. */
static const char magic[16] = "trireme kernel 1";

static bool cache_folder(char *path, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool own = cache != NULL && cache[0] == '/';
    if (!own && (home == NULL || home[0] != '/')) {
        return false;
    }
    int n = snprintf(path, size, "%s%s/trireme/kernels", own ? cache : home, own ? "" : "/.cache");
    return n > 0 && (size_t)n < size;
}

/* Makes the folders of a path that are missing; failing shows when a file is written. */
static void make_folders(char *path)
{
    for (char *at = path + 1; *at != '\0'; at++) {
        if (*at == '/') {
            *at = '\0';
            (void)mkdir(path, 0777);
            *at = '/';
        }
    }
    (void)mkdir(path, 0777);
}

static bool cache_path(const char *source, const char *const *options, int n_options, char *path, size_t size)
{
    char folder[3800];
    XXH3_state_t hash;
    if (!cache_folder(folder, sizeof(folder))) {
        return false;
    }
    (void)XXH3_128bits_reset(&hash);
    (void)XXH3_128bits_update(&hash, &state.major, sizeof(state.major));
    (void)XXH3_128bits_update(&hash, &state.minor, sizeof(state.minor));
    for (int i = 0; i < n_options; i++) {
        (void)XXH3_128bits_update(&hash, options[i], strlen(options[i]) + 1);
    }
    for (int i = 0; i < STANDARD; i++) {
        (void)XXH3_128bits_update(&hash, standard[i].text, strlen(standard[i].text) + 1);
    }
    for (int i = 0; i < trm_device_headers_count; i++) {
        (void)XXH3_128bits_update(&hash, trm_device_headers[i].text, strlen(trm_device_headers[i].text) + 1);
    }
    (void)XXH3_128bits_update(&hash, source, strlen(source));
    XXH128_hash_t key = XXH3_128bits_digest(&hash);
    int n = snprintf(path, size, "%s/%016llx%016llx.cubin", folder, (unsigned long long)key.high64,
                     (unsigned long long)key.low64);
    return n > 0 && (size_t)n < size;
}

/* A file that is damaged counts as none. */
static bool cache_read(const char *path, void **image, size_t *size)
{
    const size_t head = sizeof(magic) + sizeof(uint64_t);
    char *bytes = NULL;
    size_t all = 0;
    uint64_t hash;
    if (!trm_file_exists(path) || trm_file_read(path, LARGEST_IMAGE, &bytes, &all) != TRM_OK) {
        return false;
    }
    bool good = all > head && memcmp(bytes, magic, sizeof(magic)) == 0;
    if (good) {
        memcpy(&hash, bytes + sizeof(magic), sizeof(hash));
        good = hash == XXH3_64bits(bytes + head, all - head);
    }
    if (!good) {
        TRM_WARN("%s is damaged: the kernel is compiled anew", path);
        free(bytes);
        return false;
    }
    memmove(bytes, bytes + head, all - head);
    *image = bytes;
    *size = all - head;
    return true;
}

/* Written under another name first, so that no one reads half of it. What cannot be written is compiled again. */
static void cache_write(const char *path, const void *image, size_t size)
{
    char made[4200], folder[3800];
    const uint64_t hash = XXH3_64bits(image, size);
    int n = snprintf(made, sizeof(made), "%s.%ld.tmp", path, (long)getpid());
    if (n <= 0 || (size_t)n >= sizeof(made) || !cache_folder(folder, sizeof(folder))) {
        return;
    }
    make_folders(folder);
    FILE *file = fopen(made, "wb");
    if (file == NULL) {
        TRM_DEBUG("cannot write %s: the kernel is not kept", made);
        return;
    }
    bool written = fwrite(magic, sizeof(magic), 1, file) == 1 && fwrite(&hash, sizeof(hash), 1, file) == 1 &&
                   fwrite(image, size, 1, file) == 1;
    written = fclose(file) == 0 && written;
    if (!written || rename(made, path) != 0) {
        (void)unlink(made);
    }
}

/* The option for headers of the CUDA toolkit: of the one that the compiler lies in, or of the one that is installed;
 * false if there are none. */
static bool find_toolkit(char *option, size_t size)
{
    char library[3800];
    trm_library_path(state.library, library, sizeof(library));
    char *slash = strrchr(library, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    const struct {
        const char *folder, *below;
    } places[] = {{slash == NULL ? NULL : library, "/../include"},
                  {getenv("CUDA_HOME"), "/include"},
                  {getenv("CUDA_PATH"), "/include"},
                  {"/usr/local/cuda", "/include"}};
    static const char prefix[] = "--include-path=";
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        char header[4096];
        if (places[i].folder == NULL) {
            continue;
        }
        int n = snprintf(option, size, "%s%s%s", prefix, places[i].folder, places[i].below);
        int m = snprintf(header, sizeof(header), "%s%s/cuda_fp16.h", places[i].folder, places[i].below);
        if (n > 0 && (size_t)n < size && m > 0 && (size_t)m < sizeof(header) && trm_file_exists(header)) {
            return true;
        }
    }
    return false;
}

trm_status trm_nvrtc_compile(const char *source, int32_t arch, bool toolkit, void **image, size_t *size)
{
    char target[64], path[4096], include[4096];
    TRM_TRY(trm_nvrtc_open());
    snprintf(target, sizeof(target), "--gpu-architecture=sm_%d", (int)arch);
    const char *const options[] = {target, "--std=c++17", "-default-device", /* headers declare functions of the host */
                                   include};
    const int n_options = toolkit && find_toolkit(include, sizeof(include)) ? 4 : 3;
    const bool keeps = cache_path(source, options, n_options, path, sizeof(path));
    if (keeps && cache_read(path, image, size)) {
        return TRM_OK;
    }
    TRM_TRY(compile(source, options, n_options, image, size));
    if (keeps) {
        cache_write(path, *image, *size);
    }
    return TRM_OK;
}
