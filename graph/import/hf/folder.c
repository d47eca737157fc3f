/* Files that are copied to a new model folder, and its name. */
#include "graph/import/hf/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "weight_stream/safetensors_write.h"

trm_status trm_hf_folder_close(FILE *file, const char *path, trm_status status)
{
    const bool failed = ferror(file) != 0;
    if ((fclose(file) != 0 || failed) && status == TRM_OK) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    return status;
}

trm_status trm_hf_folder_create(const char *folder, const char *name, char path[4096], FILE **file)
{
    if (snprintf(path, 4096, "%s/%s", folder, name) >= 4096) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: the path is too long", name);
    }
    *file = fopen(path, "wbe");
    if (*file == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    return TRM_OK;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t size = strlen(name), n = strlen(end);
    return size >= n && strcmp(name + size - n, end) == 0;
}

static bool is_copied(const char *name)
{
    static const char *const weights[] = {
        ".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf", ".h5", ".msgpack",
        ".onnx"};
    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
        if (ends_with(name, weights[i])) {
            return false;
        }
    }
    return name[0] != '.' && strcmp(name, "config.json") != 0;
}

trm_status trm_hf_folder_copy_file(const char *from, const char *folder, const char *name)
{
    char path[4096], buffer[1 << 16];
    FILE *file;
    size_t n;
    FILE *source = fopen(from, "rbe");
    if (source == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot open %s: %s", from, strerror(errno));
    }
    trm_status status = trm_hf_folder_create(folder, name, path, &file);
    if (status == TRM_OK) {
        while (status == TRM_OK && (n = fread(buffer, 1, sizeof(buffer), source)) > 0) {
            status = trm_safetensors_put(file, buffer, n);
        }
        if (status == TRM_OK && ferror(source)) {
            status = trm_fail(TRM_ERROR_IO, "cannot read %s: %s", from, strerror(errno));
        }
        status = trm_hf_folder_close(file, path, status);
    }
    fclose(source);
    return status;
}

trm_status trm_hf_folder_copy_files(const char *from, const char *folder)
{
    trm_status status = TRM_OK;
    char path[4096];
    struct stat info;
    DIR *all = opendir(from);
    if (all == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot read folder %s: %s", from, strerror(errno));
    }
    for (struct dirent *entry; status == TRM_OK && (entry = readdir(all)) != NULL;) {
        if (is_copied(entry->d_name) &&
            (size_t)snprintf(path, sizeof(path), "%s/%s", from, entry->d_name) < sizeof(path) &&
            stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
            status = trm_hf_folder_copy_file(path, folder, entry->d_name);
        }
    }
    closedir(all);
    return status;
}

trm_status trm_hf_folder_parent(const char *folder, char parent[512])
{
    size_t size = strlen(folder);
    while (size > 1 && folder[size - 1] == '/') {
        size--;
    }
    while (size > 0 && folder[size - 1] != '/') {
        size--;
    }
    if (snprintf(parent, 512, "%.*s", size > 0 ? (int)size : 1, size > 0 ? folder : ".") >= 512) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot write %s: the path is too long", folder);
    }
    return TRM_OK;
}

trm_status trm_hf_folder_publish(const trm_temporary *made, const char *folder)
{
    const mode_t mask = umask(0);
    umask(mask);
    if (chmod(made->path, 0777 & ~mask) != 0 || rename(made->path, folder) != 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot rename %s to %s: %s", made->path, folder, strerror(errno));
    }
    return TRM_OK;
}
