/* Writes plan files: blobs in order of use, each once, then the index, then the header. */
#include "dist/plan/messages.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <trireme/trireme.h>

#include "base/error.h"
#include "base/file.h"
#include "base/map.h"
#include "base/recorder.h"
#include "dist/parallel/world.h"
#include "weight_stream/weight_form.h"

/* Every element of a weight that decided the network counts: checksums cover all of it, except for a tied head of
 * gigabytes, which is sampled. */
#define MOST_CHECKED ((size_t)16 << 20)

#define CHUNK_BYTES ((size_t)4 << 20)

/* A stripped weight. */
typedef struct stripped {
    const trm_weight_file *file;
    size_t begin;
} stripped;

typedef struct writer {
    const char *path;
    char *folder; /* folder of the plan, with a '/' at its end */
    FILE *out;
    uint64_t end; /* offset of the end of the file */
    trm_plan_weights keep;
    trm_arena arena; /* of all messages */
    /* the blob being written */
    XXH3_state_t hash;
    uint64_t begin;
    /* existing blobs, by hash and size */
    trm_map known;
    Trireme__Plan__Blob **blobs;
    uint32_t n_blobs, blob_capacity;
    /* files that weights refer to */
    trm_map file_names;
    Trireme__Plan__File **files;
    uint32_t n_files, file_capacity;
    /* weights of the network being written */
    Trireme__Plan__Weight **weights;
    uint32_t n_weights, weight_capacity;
    /* stripped weights, of all networks, by name */
    trm_map stripped_names;
    stripped **stripped;
    uint32_t n_stripped, stripped_capacity;
} writer;

/* Makes room for one more pointer. */
static trm_status reserve(writer *w, void ***items, uint32_t n, uint32_t *capacity)
{
    if (n < *capacity) {
        return TRM_OK;
    }
    uint32_t wanted = *capacity * 2 + 16;
    void **grown = trm_arena_array(&w->arena, wanted, sizeof(*grown));
    if (grown == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (n > 0) {
        memcpy(grown, *items, n * sizeof(*grown));
    }
    *items = grown;
    *capacity = wanted;
    return TRM_OK;
}

/* ---- blobs --------------------------------------------------------------------------------------------- */

static trm_status fail_write(const writer *w)
{
    return trm_fail(TRM_ERROR_IO, "cannot write %s: %s", w->path, strerror(errno));
}

static trm_status put(writer *w, const void *bytes, size_t size)
{
    if (size > 0 && fwrite(bytes, 1, size, w->out) != size) {
        return fail_write(w);
    }
    w->end += size;
    return TRM_OK;
}

static trm_status begin_blob(writer *w)
{
    static const unsigned char zeros[TRM_PLAN_ALIGNMENT];
    uint64_t odd = w->end % TRM_PLAN_ALIGNMENT;
    TRM_TRY(odd == 0 ? TRM_OK : put(w, zeros, TRM_PLAN_ALIGNMENT - odd));
    w->begin = w->end;
    XXH3_128bits_reset(&w->hash);
    return TRM_OK;
}

static trm_status add_to_blob(writer *w, const void *bytes, size_t size)
{
    if (size > 0) {
        XXH3_128bits_update(&w->hash, bytes, size);
    }
    return put(w, bytes, size);
}

typedef struct blob_key {
    XXH128_canonical_t hash;
    uint64_t size;
} blob_key;

/* Ends the blob; if an equal one exists, uses that and drops the bytes just written. */
static trm_status end_blob(writer *w, uint64_t checksum, Trireme__Plan__Blob **blob)
{
    blob_key *key = trm_arena_alloc(&w->arena, sizeof(*key));
    Trireme__Plan__Blob *made = trm_arena_alloc(&w->arena, sizeof(*made));
    if (key == NULL || made == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    XXH128_canonicalFromHash(&key->hash, XXH3_128bits_digest(&w->hash));
    key->size = w->end - w->begin;
    uint32_t index;
    if (trm_map_find(&w->known, (const char *)key, sizeof(*key), &index)) {
        if (fseeko(w->out, (off_t)w->begin, SEEK_SET) != 0) {
            return fail_write(w);
        }
        w->end = w->begin;
        *blob = w->blobs[index];
        return TRM_OK;
    }
    bool existing;
    TRM_TRY(reserve(w, (void ***)&w->blobs, w->n_blobs, &w->blob_capacity));
    TRM_TRY(trm_map_add(&w->known, (const char *)key, sizeof(*key), w->n_blobs, &existing));
    trireme__plan__blob__init(made);
    made->offset = w->begin;
    made->size = key->size;
    made->checksum = checksum;
    w->blobs[w->n_blobs++] = made;
    *blob = made;
    return TRM_OK;
}

static trm_status put_blob(writer *w, const void *bytes, size_t size, Trireme__Plan__Blob **blob)
{
    TRM_TRY(begin_blob(w));
    TRM_TRY(add_to_blob(w, bytes, size));
    return end_blob(w, trm_plan_checksum(bytes, size), blob);
}

static trm_status put_message(writer *w, const ProtobufCMessage *message, Trireme__Plan__Blob **blob)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    if (size > TRM_PLAN_LARGEST_MESSAGE) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "a network takes %zu bytes in a plan file, expected at most %zu", size,
                 TRM_PLAN_LARGEST_MESSAGE);
    }
    uint8_t *bytes = malloc(size + 1);
    if (bytes == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes of host memory", size);
    }
    protobuf_c_message_pack(message, bytes);
    trm_status status = put_blob(w, bytes, size, blob);
    free(bytes);
    return status;
}

/* ---- weights ------------------------------------------------------------------------------------------- */

static trm_status copy_int64s(writer *w, const int64_t *values, int32_t n, size_t *count, int64_t **copy)
{
    *count = (size_t)n;
    *copy = trm_arena_array(&w->arena, (size_t)n + 1, sizeof(**copy));
    if (*copy == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    memcpy(*copy, values, (size_t)n * sizeof(**copy));
    return TRM_OK;
}

/* The file of a weight, as a position from 1. */
static trm_status refer_to_file(writer *w, const trm_weight_file *file, uint32_t *position)
{
    const char *path = trm_weight_file_path(file);
    uint32_t index;
    bool existing;
    if (trm_map_find(&w->file_names, path, strlen(path), &index)) {
        *position = index + 1;
        return TRM_OK;
    }
    size_t folder = strlen(w->folder);
    Trireme__Plan__File *made = trm_arena_alloc(&w->arena, sizeof(*made));
    if (made == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trireme__plan__file__init(made);
    TRM_TRY(trm_plan_copy_text(&w->arena, strncmp(path, w->folder, folder) == 0 ? path + folder : path, &made->path));
    TRM_TRY(trm_plan_copy_text(&w->arena, trm_weight_file_name(file), &made->name));
    made->size = trm_weight_file_bytes(file).size;
    TRM_TRY(reserve(w, (void ***)&w->files, w->n_files, &w->file_capacity));
    TRM_TRY(trm_map_add(&w->file_names, path, strlen(path), w->n_files, &existing));
    w->files[w->n_files++] = made;
    *position = w->n_files;
    return TRM_OK;
}

static trm_status put_view(writer *w, const trm_weight_view *view, Trireme__Plan__Weight *to)
{
    int64_t sizes[TRM_WEIGHT_MAX_STEPS], strides[TRM_WEIGHT_MAX_STEPS];
    int32_t n_steps = view->first[view->dims.n];
    for (int32_t i = 0; i < n_steps; i++) {
        sizes[i] = view->steps[i].size;
        strides[i] = view->steps[i].stride;
    }
    to->offset = view->offset;
    to->n_first = (size_t)view->dims.n + 1;
    to->first = trm_arena_array(&w->arena, to->n_first, sizeof(*to->first));
    if (to->first == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i <= view->dims.n; i++) {
        to->first[i] = (uint32_t)view->first[i];
    }
    TRM_TRY(copy_int64s(w, view->dims.d, view->dims.n, &to->n_dims, &to->dims));
    TRM_TRY(copy_int64s(w, sizes, n_steps, &to->n_sizes, &to->sizes));
    return copy_int64s(w, strides, n_steps, &to->n_strides, &to->strides);
}

static trm_status add_weight(writer *w, Trireme__Plan__Weight *made, uint32_t *position)
{
    TRM_TRY(reserve(w, (void ***)&w->weights, w->n_weights, &w->weight_capacity));
    w->weights[w->n_weights++] = made;
    *position = w->n_weights;
    return TRM_OK;
}

static trm_status new_weight(writer *w, trm_dtype dtype, const trm_dims *base_dims, Trireme__Plan__Weight **made)
{
    *made = trm_arena_alloc(&w->arena, sizeof(**made));
    if (*made == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trireme__plan__weight__init(*made);
    TRM_TRY(trm_plan_copy_text(&w->arena, trm_dtype_name(dtype), &(*made)->dtype));
    return copy_int64s(w, base_dims->d, base_dims->n, &(*made)->n_base_dims, &(*made)->base_dims);
}

/* A stripped weight is found only by name, so its name must be unique. */
static trm_status strip(writer *w, const trm_weight_form *form, const char *name)
{
    uint32_t index;
    bool existing;
    if (trm_map_find(&w->stripped_names, name, strlen(name), &index)) {
        const stripped *known = w->stripped[index];
        if (known->begin != form->begin ||
            strcmp(trm_weight_file_path(known->file), trm_weight_file_path(form->file)) != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot strip weights: two of them are named %s", name);
        }
        return TRM_OK;
    }
    stripped *made = trm_arena_alloc(&w->arena, sizeof(*made));
    if (made == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *made = (stripped){form->file, form->begin};
    TRM_TRY(reserve(w, (void ***)&w->stripped, w->n_stripped, &w->stripped_capacity));
    w->stripped[w->n_stripped] = made;
    return trm_map_add(&w->stripped_names, name, strlen(name), w->n_stripped++, &existing);
}

/* Adds a weight to the list, after its parts; positions start at 1. */
static trm_status put_weight(writer *w, const trm_weight *weight, uint32_t *position)
{
    trm_weight_form form;
    Trireme__Plan__Weight *made;
    trm_weight_get_form(weight, &form);
    TRM_TRY(new_weight(w, form.dtype, &form.dims, &made));
    TRM_TRY(put_view(w, &form.view, made));
    made->kind = (Trireme__Plan__Weight__Kind)form.kind;
    switch (form.kind) {
    case TRM_WEIGHT_STORED:
        TRM_TRY(trm_plan_copy_text(&w->arena, form.name, &made->name));
        if (w->keep == TRM_PLAN_WEIGHTS_STRIPPED) {
            TRM_TRY(strip(w, &form, made->name));
            made->stripped = true;
        } else if (w->keep == TRM_PLAN_WEIGHTS_EMBEDDED) { /* whole and by its name, for refits */
            Trireme__Plan__Blob *blob;
            TRM_TRY(put_blob(w, trm_weight_file_bytes(form.file).bytes + form.begin,
                             trm_dims_bytes(&form.dims, form.dtype), &blob));
            made->begin = blob->offset;
            made->checksum = blob->checksum;
            return add_weight(w, made, position);
        } else {
            TRM_TRY(refer_to_file(w, form.file, &made->file));
            made->begin = form.begin;
        }
        made->sample = trm_plan_sample(trm_weight_file_bytes(form.file).bytes + form.begin,
                                       trm_dims_bytes(&form.dims, form.dtype));
        break;
    case TRM_WEIGHT_RANDOM:
        made->seed = form.seed;
        memcpy(&made->mean, &form.mean, sizeof(made->mean));
        memcpy(&made->spread, &form.spread, sizeof(made->spread));
        break;
    case TRM_WEIGHT_ZEROS:
        break;
    case TRM_WEIGHT_JOINED:
    case TRM_WEIGHT_RECODED:
    case TRM_WEIGHT_COMPUTED:
        made->axis = form.axis;
        made->code = form.kind == TRM_WEIGHT_COMPUTED ? (int32_t)form.op : (int32_t)form.code;
        made->times = form.times;
        made->n_parts = (size_t)form.n_parts;
        made->parts = trm_arena_array(&w->arena, made->n_parts, sizeof(*made->parts));
        if (made->parts == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        for (int32_t i = 0; i < form.n_parts; i++) {
            TRM_TRY(put_weight(w, form.parts[i], &made->parts[i]));
            made->parts[i]--;
        }
        break;
    }
    return add_weight(w, made, position);
}

/* Weights that decided the network are compared when a plan gets other weights: the file has those of the build. */
static trm_status put_deciding(writer *w, const trm_network *network, Trireme__Plan__Network *to)
{
    if (w->keep == TRM_PLAN_WEIGHTS_EMBEDDED || network->n_deciding == 0) {
        return TRM_OK;
    }
    to->deciding = trm_arena_array(&w->arena, (size_t)network->n_deciding, sizeof(*to->deciding));
    if (to->deciding == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < network->n_deciding; i++) {
        trm_weight_form form;
        trm_weight_get_form(network->deciding[i], &form);
        if (form.kind == TRM_WEIGHT_STORED) {
            uint32_t *position = &to->deciding[to->n_deciding++];
            TRM_TRY(put_weight(w, network->deciding[i], position));
            const size_t size = trm_dims_bytes(&form.dims, form.dtype);
            --*position;
            if (size <= MOST_CHECKED) {
                w->weights[*position]->checksum =
                    trm_plan_checksum(trm_weight_file_bytes(form.file).bytes + form.begin, size);
            }
        }
    }
    return TRM_OK;
}

/* Writes the elements of a weight as a blob, in the tensor's type. */
static trm_status put_elements(writer *w, const trm_tensor *tensor, Trireme__Plan__Blob **blob)
{
    size_t element = trm_dtype_size(tensor->dtype), count = trm_dims_bytes(&tensor->dims, tensor->dtype) / element;
    size_t most = CHUNK_BYTES / element;
    void *chunk = malloc(CHUNK_BYTES);
    XXH3_state_t hash;
    trm_status status =
        chunk == NULL ? trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes", CHUNK_BYTES) : begin_blob(w);
    XXH3_64bits_reset(&hash);
    for (size_t first = 0; status == TRM_OK && first < count; first += most) {
        size_t part = count - first < most ? count - first : most;
        status = trm_weight_read(tensor->weight, tensor->dtype, first, part, chunk);
        if (status == TRM_OK) {
            XXH3_64bits_update(&hash, chunk, part * element);
            status = add_to_blob(w, chunk, part * element);
        }
    }
    free(chunk);
    TRM_TRY(status);
    return end_blob(w, XXH3_64bits_digest(&hash), blob);
}

static trm_status embed_weight(writer *w, const trm_tensor *tensor, uint32_t *position)
{
    Trireme__Plan__Blob *blob;
    Trireme__Plan__Weight *made;
    trm_weight_view view;
    TRM_TRY(put_elements(w, tensor, &blob));
    TRM_TRY(new_weight(w, tensor->dtype, &tensor->dims, &made));
    trm_weight_view_whole(&tensor->dims, &view);
    TRM_TRY(put_view(w, &view, made));
    TRM_TRY(trm_plan_copy_text(&w->arena, tensor->name, &made->name));
    made->begin = blob->offset;
    made->checksum = blob->checksum;
    return add_weight(w, made, position);
}

/* ---- networks ------------------------------------------------------------------------------------------ */

static trm_status put_part(writer *w, const trm_tensor *tensor, Trireme__Plan__Part **to)
{
    const trm_tensor_part *part = &tensor->part;
    Trireme__Plan__Part *made = part->kind == TRM_PART_UNKNOWN ? NULL : trm_arena_alloc(&w->arena, sizeof(*made));
    *to = made;
    if (made == NULL) {
        return part->kind == TRM_PART_UNKNOWN ? TRM_OK : TRM_ERROR_OUT_OF_MEMORY;
    }
    trireme__plan__part__init(made);
    made->kind = (uint32_t)part->kind;
    made->axis = (uint32_t)part->axis;
    made->parts = (uint32_t)part->parts;
    made->whole = part->whole;
    return strcmp(part->of, tensor->name) == 0 ? TRM_OK : trm_plan_copy_text(&w->arena, part->of, &made->of);
}

static trm_status put_tensor(writer *w, const trm_tensor *tensor, Trireme__Plan__Tensor **to)
{
    Trireme__Plan__Tensor *made = trm_arena_alloc(&w->arena, sizeof(*made));
    if (made == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trireme__plan__tensor__init(made);
    *to = made;
    made->role = (Trireme__Plan__Tensor__Role)tensor->role;
    TRM_TRY(trm_plan_copy_text(&w->arena, tensor->name, &made->name));
    TRM_TRY(trm_plan_copy_text(&w->arena, trm_dtype_name(tensor->dtype), &made->dtype));
    TRM_TRY(copy_int64s(w, tensor->dims.d, tensor->dims.n, &made->n_dims, &made->dims));
    if (tensor->pin != NULL) {
        TRM_TRY(trm_plan_copy_text(&w->arena, tensor->pin, &made->pin));
    }
    made->batch_ranks = (uint32_t)tensor->batch_ranks;
    if (tensor->dim_names != NULL) {
        made->dim_names = trm_arena_array(&w->arena, (size_t)tensor->dims.n, sizeof(char *));
        if (made->dim_names == NULL) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        made->n_dim_names = (size_t)tensor->dims.n;
        for (int32_t i = 0; i < tensor->dims.n; i++) {
            const char *name = trm_tensor_dim_name(tensor, i);
            TRM_TRY(trm_plan_copy_text(&w->arena, name == NULL ? "" : name, &made->dim_names[i]));
        }
    }
    TRM_TRY(put_part(w, tensor, &made->part));
    if (tensor->value != NULL) {
        return put_blob(w, tensor->value, trm_dims_bytes(&tensor->dims, tensor->dtype), &made->value);
    }
    if (tensor->weight != NULL) {
        bool embeds = w->keep == TRM_PLAN_WEIGHTS_EMBEDDED && !tensor->network->refittable;
        bool some = trm_dims_bytes(&tensor->dims, tensor->dtype) > 0;
        return embeds && some ? embed_weight(w, tensor, &made->weight) : put_weight(w, tensor->weight, &made->weight);
    }
    return TRM_OK;
}

static trm_status put_point(writer *w, const trm_tensor *tensor, const trm_dims *dims, const trm_dims *max,
                            const void *values, Trireme__Plan__Bound__Point **to)
{
    Trireme__Plan__Bound__Point *made = trm_arena_alloc(&w->arena, sizeof(*made));
    if (made == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trireme__plan__bound__point__init(made);
    *to = made;
    TRM_TRY(copy_int64s(w, dims->d, dims->n, &made->n_dims, &made->dims));
    if (values == NULL) {
        return TRM_OK;
    }
    return put_blob(w, values, trm_dims_bytes(dims->n == 0 ? max : dims, tensor->dtype), &made->values);
}

static trm_status put_bound(writer *w, const trm_tensor *tensor, const trm_shape_bound *bound,
                            Trireme__Plan__Bound **to)
{
    Trireme__Plan__Bound *made = trm_arena_alloc(&w->arena, sizeof(*made));
    if (made == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trireme__plan__bound__init(made);
    *to = made;
    made->tensor = (uint32_t)tensor->index;
    made->profile = bound->profile;
    TRM_TRY(put_point(w, tensor, &bound->min, &bound->max, bound->min_values, &made->min));
    TRM_TRY(put_point(w, tensor, &bound->opt, &bound->max, bound->opt_values, &made->opt));
    return put_point(w, tensor, &bound->max, &bound->max, bound->max_values, &made->max);
}

/* Writes the bounds of inputs as given, and the planned sizes of states. */
static trm_status put_bounds(writer *w, const trm_plan *plan, Trireme__Plan__Network *to)
{
    const trm_network *network = plan->network;
    to->bounds = trm_arena_array(&w->arena, (size_t)plan->n_bounds + (size_t)network->n_tensors, sizeof(*to->bounds));
    if (to->bounds == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < plan->n_bounds; i++) {
        const trm_shape_bound *bound = &plan->bounds[i];
        TRM_TRY(put_bound(w, trm_network_find_tensor(network, bound->tensor), bound, &to->bounds[to->n_bounds++]));
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        const trm_tensor *tensor = network->tensors[i];
        if (tensor->role == TRM_TENSOR_STATE) {
            const trm_shape_bound bound = {.tensor = tensor->name, .max = plan->max_dims[i]};
            TRM_TRY(put_bound(w, tensor, &bound, &to->bounds[to->n_bounds++]));
        }
    }
    return TRM_OK;
}

static trm_status put_partition(writer *w, const trm_partition_report *report, Trireme__Plan__Network *to)
{
    Trireme__Plan__Partition *made = trm_arena_alloc(&w->arena, sizeof(*made));
    int32_t *parts = trm_arena_array(&w->arena, (size_t)report->n_parts + 1, sizeof(*parts));
    if (made == NULL || parts == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trireme__plan__partition__init(made);
    memcpy(parts, report->parts, (size_t)report->n_parts * sizeof(*parts));
    made->n_collectives = report->n_collectives;
    made->bytes_exchanged = report->bytes_exchanged;
    made->seconds = report->seconds;
    made->parts = parts;
    made->n_parts = (size_t)report->n_parts;
    made->shares_batch = report->shares_batch;
    made->shares_tokens = report->shares_tokens;
    made->as_written = report->as_written;
    made->has_regions = report->has_regions;
    to->partition = made;
    return trm_plan_copy_text(&w->arena, report->note, &made->note);
}

static trm_status put_tactic(writer *w, const trm_plan_tactic *from, Trireme__Plan__Tactic *to)
{
    trireme__plan__tactic__init(to);
    to->nanoseconds = from->timed[0].nanoseconds;
    to->n_others = (size_t)from->n - 1;
    TRM_TRY(trm_plan_copy_text(&w->arena, from->problem, &to->problem));
    TRM_TRY(trm_plan_copy_text(&w->arena, from->timed[0].name, &to->name));
    Trireme__Plan__Tactic__Other *others = trm_arena_array(&w->arena, to->n_others + 1, sizeof(*others));
    to->others = trm_arena_array(&w->arena, to->n_others + 1, sizeof(*to->others));
    if (others == NULL || to->others == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < to->n_others; i++) {
        trireme__plan__tactic__other__init(&others[i]);
        to->others[i] = &others[i];
        others[i].nanoseconds = from->timed[i + 1].nanoseconds;
        TRM_TRY(trm_plan_copy_text(&w->arena, from->timed[i + 1].name, &others[i].name));
    }
    return TRM_OK;
}

static trm_status put_tactics(writer *w, const trm_plan *plan, Trireme__Plan__Network *to)
{
    const size_t n = (size_t)plan->n_tactics;
    Trireme__Plan__Tactic *tactics = trm_arena_array(&w->arena, n + 1, sizeof(*tactics));
    to->tactics = trm_arena_array(&w->arena, n + 1, sizeof(*to->tactics));
    if (tactics == NULL || to->tactics == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    to->n_tactics = n;
    for (size_t i = 0; i < n; i++) {
        to->tactics[i] = &tactics[i];
        TRM_TRY(put_tactic(w, &plan->tactics[i], &tactics[i]));
    }
    return TRM_OK;
}

static trm_status put_network(writer *w, const trm_plan *plan, Trireme__Plan__Blob **blob)
{
    const trm_network *network = plan->network;
    Trireme__Plan__Network to = TRIREME__PLAN__NETWORK__INIT;
    w->n_weights = w->weight_capacity = 0;
    w->weights = NULL;
    to.n_tensors = (size_t)network->n_tensors;
    to.n_layers = (size_t)network->n_layers;
    to.n_outputs = (size_t)network->n_outputs;
    to.tensors = trm_arena_array(&w->arena, to.n_tensors + 1, sizeof(*to.tensors));
    to.layers = trm_arena_array(&w->arena, to.n_layers + 1, sizeof(*to.layers));
    to.outputs = trm_arena_array(&w->arena, to.n_outputs + 1, sizeof(*to.outputs));
    if (to.tensors == NULL || to.layers == NULL || to.outputs == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < network->n_tensors; i++) {
        TRM_TRY(put_tensor(w, network->tensors[i], &to.tensors[i]));
    }
    for (int32_t i = 0; i < network->n_layers; i++) {
        TRM_TRY(trm_plan_put_layer(&w->arena, network->layers[i], &to.layers[i]));
    }
    for (int32_t i = 0; i < network->n_outputs; i++) {
        to.outputs[i] = (uint32_t)network->outputs[i]->index;
    }
    TRM_TRY(put_deciding(w, network, &to));
    to.n_weights = w->n_weights;
    to.weights = w->weights;
    TRM_TRY(put_bounds(w, plan, &to));
    TRM_TRY(put_partition(w, &plan->partition, &to));
    TRM_TRY(put_tactics(w, plan, &to));
    to.refittable = network->refittable;
    return put_message(w, &to.base, blob);
}

/* ---- the file ------------------------------------------------------------------------------------------ */

/* The device of all plans with tactics; NULL: none. */
static const trm_plan_device *tuned_on(const trm_plan *const *plans, int32_t n_plans)
{
    const trm_plan_device *device = NULL;
    for (int32_t i = 0; i < n_plans && device == NULL; i++) {
        device = plans[i]->n_tactics > 0 ? &plans[i]->device : NULL;
    }
    return device;
}

static trm_status put_device(writer *w, const trm_plan_device *from, Trireme__Plan__Device *to)
{
    trireme__plan__device__init(to);
    to->multiprocessors = from->multiprocessors;
    to->major = from->major;
    to->minor = from->minor;
    return trm_plan_copy_text(&w->arena, from->name, &to->name);
}

static trm_status write_file(writer *w, const trm_plan *const *plans, int32_t n_plans)
{
    unsigned char bytes[TRM_PLAN_HEADER] = {0};
    const trm_plan_device *tuned = tuned_on(plans, n_plans);
    Trireme__Plan__Device device;
    int32_t mesh[TRM_AXIS_COUNT];
    Trireme__Plan__Blob *ranks[TRM_MAX_RANKS], *index_blob;
    Trireme__Plan__Index index = TRIREME__PLAN__INDEX__INIT;
    TRM_TRY(put(w, bytes, sizeof(bytes)));
    for (int32_t i = 0; i < n_plans; i++) {
        TRM_TRY(put_network(w, plans[i], &ranks[i]));
    }
    memcpy(mesh, plans[0]->mesh.size, sizeof(mesh));
    TRM_TRY(trm_plan_copy_text(&w->arena, trm_version(), &index.library));
    TRM_TRY(trm_plan_copy_text(&w->arena, trm_backend_name(plans[0]->backend), &index.backend));
    index.allow_tf32 = plans[0]->allow_tf32;
    index.batch_invariant = plans[0]->batch_invariant;
    index.max_workspace = plans[0]->max_workspace;
    index.max_aux_streams = plans[0]->max_aux_streams;
    if (tuned != NULL) {
        TRM_TRY(put_device(w, tuned, &device));
        index.device = &device;
    }
    index.n_mesh = TRM_AXIS_COUNT;
    index.mesh = mesh;
    index.n_ranks = (size_t)n_plans;
    index.ranks = ranks;
    index.n_files = w->n_files;
    index.files = w->files;
    TRM_TRY(put_message(w, &index.base, &index_blob));
    const trm_plan_header header = {w->end, index_blob->offset, index_blob->size, index_blob->checksum};
    trm_plan_put_header(&header, bytes);
    if (fflush(w->out) != 0 || ftruncate(fileno(w->out), (off_t)w->end) != 0 || fseeko(w->out, 0, SEEK_SET) != 0 ||
        fwrite(bytes, 1, sizeof(bytes), w->out) != sizeof(bytes)) {
        return fail_write(w);
    }
    return TRM_OK;
}

static trm_status check_plans(const trm_plan *const *plans, int32_t n_plans)
{
    for (int32_t i = 0; i < n_plans; i++) {
        if (plans[i] == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot save a plan file: plan %d is NULL", i);
        }
        int32_t ranks = trm_mesh_ranks(&plans[i]->mesh);
        if (ranks != n_plans || plans[i]->rank != i) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "cannot save a plan file: plan %d of %d is for rank %d of %d, expected all ranks in order", i,
                     n_plans, plans[i]->rank, ranks);
        }
        if (plans[i]->backend != plans[0]->backend || plans[i]->allow_tf32 != plans[0]->allow_tf32 ||
            plans[i]->batch_invariant != plans[0]->batch_invariant ||
            plans[i]->max_workspace != plans[0]->max_workspace ||
            plans[i]->max_aux_streams != plans[0]->max_aux_streams ||
            memcmp(&plans[i]->mesh, &plans[0]->mesh, sizeof(plans[0]->mesh)) != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "cannot save a plan file: plans 0 and %d have different meshes or "
                     "backends",
                     i);
        }
        const trm_plan_device *tuned = tuned_on(plans, n_plans);
        if (plans[i]->n_tactics > 0 && memcmp(tuned, &plans[i]->device, sizeof(*tuned)) != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot save a plan file: its plans were tuned on %s and on %s",
                     tuned->name, plans[i]->device.name);
        }
    }
    return TRM_OK;
}

/* The folder of a path, without links, with a '/' at its end. */
static trm_status folder_of(const char *path, trm_arena *arena, char **folder)
{
    const char *slash = strrchr(path, '/');
    char *given =
        trm_arena_printf(arena, "%.*s", slash == NULL ? 1 : (int)(slash - path) + 1, slash == NULL ? "." : path);
    char resolved[PATH_MAX];
    if (given == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (realpath(given, resolved) == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    *folder = trm_arena_printf(arena, "%s%s", resolved, strcmp(resolved, "/") == 0 ? "" : "/");
    return *folder == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
}

TRM_CALL(NULL, trm_plan_save,
         (const trm_plan *const *plans, int32_t n_plans, trm_plan_weights weights, const char *path),
         (plans, n_plans, weights, path))
{
    if ((unsigned)weights > TRM_PLAN_WEIGHTS_STRIPPED) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot save a plan file: weights have the invalid kind %d", (int)weights);
    }
    if (plans == NULL || path == NULL || n_plans < 1 || n_plans > TRM_MAX_RANKS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "cannot save a plan file of %d plans: plans or path is NULL, or expected "
                 "1 to %d plans",
                 n_plans, TRM_MAX_RANKS);
    }
    TRM_TRY(check_plans(plans, n_plans));
    TRM_TRY(trm_file_check_replaceable(path));
    writer w = {.path = path, .keep = weights};
    char *temporary = NULL;
    trm_status status;
    TRM_TRY_GOTO(status, folder_of(path, &w.arena, &w.folder), done);
    temporary = trm_arena_printf(&w.arena, "%s.%ld.part", path, (long)getpid());
    if (temporary == NULL) {
        status = TRM_ERROR_OUT_OF_MEMORY;
        goto done;
    }
    w.out = fopen(temporary, "wb");
    if (w.out == NULL) {
        status = fail_write(&w);
        goto done;
    }
    status = write_file(&w, plans, n_plans);
    if (fclose(w.out) != 0 && status == TRM_OK) {
        status = fail_write(&w);
    }
    if (status == TRM_OK && rename(temporary, path) != 0) {
        status = fail_write(&w);
    }
    if (status != TRM_OK) {
        unlink(temporary);
    }
done:
    trm_map_fini(&w.known);
    trm_map_fini(&w.file_names);
    trm_map_fini(&w.stripped_names);
    trm_arena_fini(&w.arena);
    return status;
}
