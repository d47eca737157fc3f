/* Shards, their headers and the index. */
#include "weight_stream/safetensors_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_writer.h"
#include "kernels/kernel.h"

#define ALIGNMENT 8 /* of the first tensor */

typedef struct place {
    size_t index, shard, bytes, element_size;
} place;

typedef struct writing {
    const char *folder;
    const trm_safetensors_output *outputs;
    place *places; /* [count], in the order of the files */
    size_t count, n_shards;
    trm_safetensors_write_fn write;
    void *user;
} writing;

trm_status trm_safetensors_put(FILE *file, const void *bytes, size_t size)
{
    if (fwrite(bytes, 1, size, file) != size) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write weights: %s", strerror(errno));
    }
    return TRM_OK;
}

static int compare_places(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->shard != y->shard) {
        return x->shard < y->shard ? -1 : 1;
    }
    if (x->element_size != y->element_size) {
        return x->element_size > y->element_size ? -1 : 1;
    }
    return x->index < y->index ? -1 : 1;
}

/* Fills shards in the order of the tensors, then sorts each. */
static void assign(writing *w, size_t most)
{
    size_t used = 0;
    for (size_t i = 0; i < w->count; i++) {
        const trm_safetensors_output *output = &w->outputs[i];
        const size_t bytes = (size_t)trm_dims_count(&output->dims) * output->element_size;
        if (used > 0 && bytes > most - (used < most ? used : most)) {
            w->n_shards++;
            used = 0;
        }
        used += bytes;
        w->places[i] = (place){i, w->n_shards, bytes, output->element_size};
    }
    w->n_shards++;
    qsort(w->places, w->count, sizeof(*w->places), compare_places);
}

static void shard_name(const writing *w, size_t shard, char name[64])
{
    if (w->n_shards == 1) {
        snprintf(name, 64, "model.safetensors");
    } else {
        snprintf(name, 64, "model-%05zu-of-%05zu.safetensors", shard + 1, w->n_shards);
    }
}

static trm_status open_file(const writing *w, const char *name, FILE **file)
{
    char path[4096];
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", w->folder, name) >= sizeof(path)) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: the path is too long", name);
    }
    *file = fopen(path, "wbe");
    if (*file == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    return TRM_OK;
}

static trm_status close_file(FILE *file, const char *name, trm_status status)
{
    const bool failed = ferror(file) != 0;
    if ((fclose(file) != 0 || failed) && status == TRM_OK) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", name, strerror(errno));
    }
    return status;
}

/* Places first to end - 1 are those of the shard. */
static trm_status write_header(const writing *w, size_t first, size_t end, FILE *file)
{
    char *text = NULL;
    size_t size = 0, at = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the names of %zu weights", end - first);
    }
    trm_json_writer json;
    trm_json_writer_begin(&json, out);
    trm_json_writer_open(&json, "__metadata__", '{');
    trm_json_writer_text(&json, "format", "pt");
    trm_json_writer_close(&json);
    for (size_t i = first; i < end; i++) {
        const trm_safetensors_output *output = &w->outputs[w->places[i].index];
        trm_json_writer_open(&json, output->name, '{');
        trm_json_writer_text(&json, "dtype", output->type);
        trm_json_writer_open(&json, "shape", '[');
        for (int32_t d = 0; d < output->dims.n; d++) {
            trm_json_writer_integer(&json, NULL, output->dims.d[d]);
        }
        trm_json_writer_close(&json);
        trm_json_writer_open(&json, "data_offsets", '[');
        trm_json_writer_integer(&json, NULL, (int64_t)at);
        at += w->places[i].bytes;
        trm_json_writer_integer(&json, NULL, (int64_t)at);
        trm_json_writer_close(&json);
        trm_json_writer_close(&json);
    }
    trm_json_writer_end(&json);
    if (fclose(out) != 0 || text == NULL) {
        free(text);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the names of %zu weights", end - first);
    }
    const size_t padding = (ALIGNMENT - size % ALIGNMENT) % ALIGNMENT;
    const uint64_t length = size + padding;
    unsigned char little[8];
    for (int i = 0; i < 8; i++) {
        little[i] = (unsigned char)(length >> (8 * i));
    }
    trm_status status = trm_safetensors_put(file, little, sizeof(little));
    status = status == TRM_OK ? trm_safetensors_put(file, text, size) : status;
    status = status == TRM_OK ? trm_safetensors_put(file, "        ", padding) : status;
    free(text);
    return status;
}

static trm_status write_shard(const writing *w, size_t first, size_t end)
{
    char name[64];
    FILE *file;
    shard_name(w, w->places[first].shard, name);
    TRM_TRY(open_file(w, name, &file));
    trm_status status = write_header(w, first, end, file);
    for (size_t i = first; status == TRM_OK && i < end; i++) {
        status = w->write(w->user, w->places[i].index, file);
    }
    return close_file(file, name, status);
}

static trm_status write_index(const writing *w)
{
    static const char name[] = "model.safetensors.index.json";
    char shard[64];
    FILE *file;
    int64_t total = 0;
    trm_json_writer json;
    for (size_t i = 0; i < w->count; i++) {
        total += (int64_t)w->places[i].bytes;
    }
    TRM_TRY(open_file(w, name, &file));
    trm_json_writer_begin(&json, file);
    trm_json_writer_open(&json, "metadata", '{');
    trm_json_writer_integer(&json, "total_size", total);
    trm_json_writer_close(&json);
    trm_json_writer_open(&json, "weight_map", '{');
    for (size_t i = 0; i < w->count; i++) {
        shard_name(w, w->places[i].shard, shard);
        trm_json_writer_text(&json, w->outputs[w->places[i].index].name, shard);
    }
    trm_json_writer_end(&json);
    return close_file(file, name, TRM_OK);
}

trm_status trm_safetensors_write(const char *folder, const trm_safetensors_output *outputs, size_t count, size_t most,
                                 trm_safetensors_write_fn write, void *user)
{
    writing w = {.folder = folder, .outputs = outputs, .count = count, .write = write, .user = user};
    w.places = calloc(count + 1, sizeof(*w.places));
    if (w.places == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of %zu weights", count);
    }
    assign(&w, most);
    trm_status status = TRM_OK;
    for (size_t first = 0, end; status == TRM_OK && first < count; first = end) {
        for (end = first; end < count && w.places[end].shard == w.places[first].shard; end++) {
        }
        status = write_shard(&w, first, end);
    }
    if (status == TRM_OK && w.n_shards > 1) {
        status = write_index(&w);
    }
    free(w.places);
    return status;
}
