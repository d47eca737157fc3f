/* A set of safetensors files as one. The format of one file's header is in safetensors_header.c. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"
#include "base/map.h"
#include "weight_stream/safetensors_header.h"
#include "weight_stream/weight_internal.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME  "model.safetensors.index.json"
#define INDEX_LIMIT ((size_t)100 << 20)

typedef struct shard {
    trm_weight_file *file;
    trm_safetensors_entry *entries; /* [count] */
    size_t count;
} shard;

typedef struct tensor {
    const trm_safetensors_entry *entry;
    const shard *shard;
} tensor;

struct trm_safetensors {
    trm_arena arena;
    shard *shards; /* [n_shards] */
    size_t n_shards;
    tensor *tensors; /* [count], shard by shard in the order of the files */
    size_t count, bytes;
    trm_map names; /* to positions in `tensors` */
};

static trm_status open_shard(trm_safetensors *set, const char *folder, const char *name)
{
    char *path = trm_arena_printf(&set->arena, "%s/%s", folder, name);
    if (path == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the path of %s", name);
    }
    shard *next = &set->shards[set->n_shards];
    TRM_TRY(trm_weight_file_open(path, name, &next->file));
    set->n_shards++;
    return trm_safetensors_header_read(path, next->file->mapping.bytes, next->file->mapping.size, &set->arena,
                                       &next->entries, &next->count);
}

/* Fills the table of tensors from the shards. */
static trm_status collect_tensors(trm_safetensors *set)
{
    size_t total = 0;
    for (size_t i = 0; i < set->n_shards; i++) {
        total += set->shards[i].count;
    }
    if (total > INT32_MAX) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "%zu tensors, at most %d are supported", total, INT32_MAX);
    }
    set->tensors = trm_arena_array(&set->arena, total, sizeof(*set->tensors));
    if (set->tensors == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(trm_map_reserve(&set->names, total));
    for (size_t i = 0; i < set->n_shards; i++) {
        const shard *from = &set->shards[i];
        for (size_t k = 0; k < from->count; k++) {
            const trm_safetensors_entry *entry = &from->entries[k];
            bool existing;
            TRM_TRY(trm_map_add(&set->names, entry->name, strlen(entry->name), (uint32_t)set->count, &existing));
            if (existing) {
                uint32_t other = 0;
                trm_map_find(&set->names, entry->name, strlen(entry->name), &other);
                TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s is in two files, %s and %s", entry->name,
                         set->tensors[other].shard->file->name, from->file->name);
            }
            set->tensors[set->count++] = (tensor){entry, from};
            set->bytes += entry->end - entry->begin;
        }
    }
    return TRM_OK;
}

static const tensor *find_tensor(const trm_safetensors *set, const char *name)
{
    uint32_t index;
    return trm_map_find(&set->names, name, strlen(name), &index) ? &set->tensors[index] : NULL;
}

/* Files of an index must be in the model's folder. */
static bool is_inside(const char *name)
{
    if (name[0] == '\0' || name[0] == '/' || !trm_safetensors_name_is_plain(name)) {
        return false;
    }
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += part[0] == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) {
            return false;
        }
    }
    return true;
}

/* Opens every file that the weight map names, once. */
static trm_status open_shards(trm_safetensors *set, const char *folder, const char *index, const trm_json *weight_map)
{
    trm_map files = {0};
    trm_status status = TRM_OK;
    set->shards = trm_arena_array(&set->arena, trm_json_count(weight_map), sizeof(*set->shards));
    if (set->shards == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (const trm_json *member = trm_json_first(weight_map); member != NULL; member = trm_json_next(member)) {
        const char *file = trm_json_string(member);
        if (!trm_safetensors_name_is_plain(trm_json_key(member))) {
            status = trm_fail(TRM_ERROR_INVALID_MODEL,
                              "%s: the name of a tensor has control characters or more than %d bytes", index,
                              TRM_SAFETENSORS_NAME_LIMIT);
            goto out;
        }
        if (file == NULL || !is_inside(file)) {
            bool plain = file != NULL && trm_safetensors_name_is_plain(file);
            status = trm_fail(TRM_ERROR_INVALID_MODEL, "%s: tensor %s is in %s%s%s, expected a file of the folder",
                              index, trm_json_key(member), plain ? "\"" : "",
                              plain ? file : "a file without a plain name", plain ? "\"" : "");
            goto out;
        }
        bool existing;
        TRM_TRY_GOTO(status, trm_map_add(&files, file, strlen(file), 0, &existing), out);
        if (!existing) {
            status = open_shard(set, folder, file);
            if (status == TRM_ERROR_IO) {
                status = trm_fail_in(status, "%s names a file for tensor %s", index, trm_json_key(member));
            }
            if (status != TRM_OK) {
                goto out;
            }
        }
    }
out:
    trm_map_fini(&files);
    return status;
}

static trm_status check_index(const trm_safetensors *set, const char *index, const trm_json *weight_map)
{
    for (const trm_json *member = trm_json_first(weight_map); member != NULL; member = trm_json_next(member)) {
        const char *name = trm_json_key(member), *file = trm_json_string(member);
        const tensor *found = find_tensor(set, name);
        if (found == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tensor %s is not in %s", index, name, file);
        }
        if (strcmp(found->shard->file->name, file) != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: tensor %s is in %s, not in %s", index, name,
                     found->shard->file->name, file);
        }
    }
    return TRM_OK;
}

static trm_status open_index(trm_safetensors *set, const char *folder, const char *path)
{
    trm_json_document *document;
    TRM_TRY(trm_json_read(path, INDEX_LIMIT, &document));
    trm_status status = TRM_OK;
    const trm_json *weight_map = trm_json_get(trm_json_root(document), "weight_map");
    if (!trm_json_is_object(weight_map) || trm_json_count(weight_map) == 0) {
        status = trm_fail(TRM_ERROR_INVALID_MODEL, "%s: no weight_map of tensor names to files", path);
        goto out;
    }
    TRM_TRY_GOTO(status, open_shards(set, folder, path, weight_map), out);
    TRM_TRY_GOTO(status, collect_tensors(set), out);
    status = check_index(set, path, weight_map);
out:
    trm_json_close(document);
    return status;
}

static trm_status open_single(trm_safetensors *set, const char *folder, const char *name)
{
    set->shards = trm_arena_array(&set->arena, 1, sizeof(*set->shards));
    if (set->shards == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(open_shard(set, folder, name));
    return collect_tensors(set);
}

/* Like every loader of such folders: the single file if it is there, else the index. */
static trm_status open_folder(trm_safetensors *set, const char *folder)
{
    struct stat info;
    if (stat(folder, &info) != 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot open %s: %s", folder, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        TRM_FAIL(TRM_ERROR_IO, "cannot open %s: not a folder", folder);
    }
    char *single = trm_arena_printf(&set->arena, "%s/%s", folder, SINGLE_NAME);
    char *index = trm_arena_printf(&set->arena, "%s/%s", folder, INDEX_NAME);
    if (single == NULL || index == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the paths of %s", folder);
    }
    /* lstat: a dangling link is an error, not a missing file. */
    if (lstat(single, &info) == 0) {
        return open_single(set, folder, SINGLE_NAME);
    }
    if (lstat(index, &info) == 0) {
        return open_index(set, folder, index);
    }
    TRM_FAIL(TRM_ERROR_IO, "folder %s has neither %s nor %s", folder, SINGLE_NAME, INDEX_NAME);
}

trm_status trm_safetensors_open(const char *folder, trm_safetensors **set)
{
    return trm_safetensors_open_file(folder, NULL, set);
}

trm_status trm_safetensors_open_file(const char *folder, const char *name, trm_safetensors **set)
{
    trm_safetensors *result = calloc(1, sizeof(*result));
    if (result == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the weights of %s", folder);
    }
    trm_status status = name == NULL ? open_folder(result, folder) : open_single(result, folder, name);
    if (status != TRM_OK) {
        trm_safetensors_close(result);
        return status;
    }
    *set = result;
    return TRM_OK;
}

void trm_safetensors_close(trm_safetensors *set)
{
    if (set == NULL) {
        return;
    }
    for (size_t i = 0; i < set->n_shards; i++) {
        trm_weight_file_release(set->shards[i].file);
    }
    trm_map_fini(&set->names);
    trm_arena_fini(&set->arena);
    free(set);
}

int32_t trm_safetensors_count(const trm_safetensors *set)
{
    return (int32_t)set->count;
}

const char *trm_safetensors_name(const trm_safetensors *set, int32_t index)
{
    assert(index >= 0 && (size_t)index < set->count);
    return set->tensors[index].entry->name;
}

int32_t trm_safetensors_find(const trm_safetensors *set, const char *name)
{
    const tensor *found = find_tensor(set, name);
    return found == NULL ? -1 : (int32_t)(found - set->tensors);
}

bool trm_safetensors_has(const trm_safetensors *set, const char *name)
{
    return find_tensor(set, name) != NULL;
}

trm_status trm_safetensors_weight(const trm_safetensors *set, const char *name, trm_weight **weight)
{
    const tensor *found = find_tensor(set, name);
    if (found == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "weight %s is in none of the model's files", name);
    }
    const trm_safetensors_entry *entry = found->entry;
    if (entry->dtype == TRM_DTYPE_NONE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weight %s in %s has type %s, which is not supported", name,
                 found->shard->file->name, entry->type_name);
    }
    return trm_weight_from_file(found->shard->file, entry->begin, name, entry->dtype, &entry->dims, weight);
}

bool trm_safetensors_describe(const trm_safetensors *set, const char *name, trm_dtype *dtype, trm_dims *dims)
{
    const tensor *found = find_tensor(set, name);
    if (found != NULL) {
        *dtype = found->entry->dtype;
        *dims = found->entry->dims;
    }
    return found != NULL;
}

const char *trm_safetensors_type(const trm_safetensors *set, const char *name)
{
    const tensor *found = find_tensor(set, name);
    return found != NULL ? found->entry->type_name : "none";
}

size_t trm_safetensors_bytes(const trm_safetensors *set)
{
    return set->bytes;
}
