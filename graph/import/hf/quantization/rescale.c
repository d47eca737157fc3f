/* trm_model_rescale: a model folder with factors on some of its weights. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/recorder.h"
#include "graph/import/hf/folder.h"
#include "graph/import/hf/model.h"
#include "graph/network.h"
#include "kernels/kernel.h"
#include "weight_stream/convert.h"
#include "weight_stream/safetensors_write.h"

#define SHARD_BYTES ((size_t)5 << 30)
#define CHUNK       ((size_t)1 << 20) /* elements of a weight at a time */

typedef struct job {
    const trm_safetensors *stored;
    trm_safetensors_output *outputs; /* [count] */
    int32_t count;
    const trm_weight_factors *factors;
    int32_t *first, *next; /* [count], [n_factors]: those of a weight; -1: none */
    trm_rescale_fn progress;
    void *user;
    int64_t done;
} job;

static trm_status list_outputs(job *j)
{
    for (int32_t i = 0; i < j->count; i++) {
        trm_dtype dtype;
        trm_safetensors_output *output = &j->outputs[i];
        output->name = trm_safetensors_name(j->stored, i);
        output->type = trm_safetensors_type(j->stored, output->name);
        (void)trm_safetensors_describe(j->stored, output->name, &dtype, &output->dims);
        if (dtype == TRM_DTYPE_NONE) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weight %s is %s, which cannot be copied", output->name, output->type);
        }
        output->element_size = trm_dtype_size(dtype);
        j->first[i] = -1;
    }
    return TRM_OK;
}

/* Lists the factors of each weight in their order. */
static trm_status list_factors(job *j, int32_t n)
{
    for (int32_t i = n - 1; i >= 0; i--) {
        const trm_weight_factors *f = &j->factors[i];
        const int32_t at = f->weight != NULL ? trm_safetensors_find(j->stored, f->weight) : -1;
        trm_dtype dtype;
        trm_dims dims;
        if (at < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the model has no weight %s", f->weight != NULL ? f->weight : "NULL");
        }
        (void)trm_safetensors_describe(j->stored, f->weight, &dtype, &dims);
        if (dtype != TRM_F32 && dtype != TRM_F16 && dtype != TRM_BF16) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weight %s is %s, expected f32, f16 or bf16", f->weight,
                     trm_safetensors_type(j->stored, f->weight));
        }
        if (f->axis < 0 || f->axis >= dims.n || dims.d[f->axis] != f->n) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "weight %s has %lld factors for axis %d of %d, expected one per element", f->weight,
                     (long long)f->n, (int)f->axis, (int)dims.n);
        }
        j->next[i] = j->first[at];
        j->first[at] = i;
    }
    return TRM_OK;
}

/* `count` elements from `start` on. */
static void apply(const trm_weight_factors *f, const trm_dims *dims, size_t start, size_t count, float *numbers)
{
    int64_t inner = 1;
    for (int32_t i = f->axis + 1; i < dims->n; i++) {
        inner *= dims->d[i];
    }
    for (size_t i = 0; i < count; i++) {
        const float factor = f->factors[((int64_t)(start + i) / inner) % f->n];
        numbers[i] = (numbers[i] + f->offset) * factor - f->offset;
    }
}

static trm_status write_chunks(const job *j, size_t index, const trm_weight *weight, float *numbers, void *rounded,
                               FILE *file)
{
    const trm_dims dims = trm_weight_dims(weight);
    const trm_dtype dtype = trm_weight_dtype(weight);
    const size_t count = (size_t)trm_dims_count(&dims);
    for (size_t done = 0; done < count; done += CHUNK) {
        const size_t n = count - done < CHUNK ? count - done : CHUNK;
        if (j->first[index] < 0) {
            TRM_TRY(trm_weight_read(weight, dtype, done, n, rounded));
        } else {
            TRM_TRY(trm_weight_read(weight, TRM_F32, done, n, numbers));
            for (int32_t i = j->first[index]; i >= 0; i = j->next[i]) {
                apply(&j->factors[i], &dims, done, n, numbers);
            }
            trm_convert(TRM_F32, numbers, dtype, rounded, n);
        }
        TRM_TRY(trm_safetensors_put(file, rounded, n * trm_dtype_size(dtype)));
    }
    return TRM_OK;
}

static trm_status write_weight(void *user, size_t index, FILE *file)
{
    job *j = user;
    const trm_safetensors_output *output = &j->outputs[index];
    trm_weight *weight = NULL;
    float *numbers = malloc(CHUNK * (sizeof(*numbers) + sizeof(double)));
    trm_status status = numbers == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "no memory for weight %s", output->name)
                                        : trm_safetensors_weight(j->stored, output->name, &weight);
    status = status == TRM_OK ? write_chunks(j, index, weight, numbers, numbers + CHUNK, file) : status;
    trm_weight_destroy(weight);
    free(numbers);
    j->done += trm_dims_count(&output->dims) * (int64_t)output->element_size;
    if (status == TRM_OK && j->progress != NULL &&
        !j->progress(j->user, j->done, (int64_t)trm_safetensors_bytes(j->stored))) {
        TRM_FAIL(TRM_ERROR_CANCELLED, "rescaling was stopped");
    }
    return status;
}

static trm_status write_folder(job *j, int32_t n_factors, const char *from, const char *folder)
{
    char parent[512], config[4096];
    trm_temporary made = TRM_TEMPORARY_NONE;
    trm_status status;
    snprintf(config, sizeof(config), "%s/config.json", from);
    j->outputs = calloc((size_t)j->count + 1, sizeof(*j->outputs));
    j->first = calloc((size_t)j->count + 1, sizeof(*j->first));
    j->next = calloc((size_t)n_factors + 1, sizeof(*j->next));
    if (j->outputs == NULL || j->first == NULL || j->next == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for a list of %d weights", (int)j->count);
    }
    TRM_TRY(list_outputs(j));
    TRM_TRY(list_factors(j, n_factors));
    TRM_TRY(trm_hf_folder_parent(folder, parent));
    TRM_TRY(trm_temporary_create(parent, ".trireme-rescale", &made));
    TRM_TRY_GOTO(status, trm_safetensors_write(made.path, j->outputs, (size_t)j->count, SHARD_BYTES, write_weight, j),
                 done);
    TRM_TRY_GOTO(status, trm_hf_folder_copy_files(from, made.path), done);
    TRM_TRY_GOTO(status, trm_hf_folder_copy_file(config, made.path, "config.json"), done);
    status = trm_hf_folder_publish(&made, folder);
done:
    trm_temporary_remove(&made); /* what has been renamed is not there */
    return status;
}

TRM_CALL(NULL, trm_model_rescale,
         (const char *path, const char *folder, const trm_weight_factors *factors, int32_t n_factors,
          trm_rescale_fn progress, void *user),
         (path, folder, factors, n_factors, progress, user))
{
    struct stat info;
    trm_model *model;
    trm_model_info about;
    if (folder == NULL || folder[0] == '\0' || n_factors < 0 || (n_factors > 0 && factors == NULL)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot rescale a model: folder or factors are NULL");
    }
    if (lstat(folder, &info) == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "folder %s is there already, expected the name of a new one", folder);
    }
    TRM_TRY(trm_model_open(path, &model));
    trm_model_get_info(model, &about);
    job j = {.stored = trm_hf_model_checkpoint(model)->stored, .factors = factors, .progress = progress, .user = user};
    j.count = trm_safetensors_count(j.stored);
    trm_status status = write_folder(&j, n_factors, about.path, folder);
    free(j.outputs);
    free(j.first);
    free(j.next);
    trm_model_close(model);
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "rescaling model %s", path);
}
