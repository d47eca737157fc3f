/* Folders of tensors: written during a run, read and assembled by compare. */
#include "launcher/cli/tensors/tensor_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/element.h"
#include "base/error.h"
#include "base/file.h"
#include "launcher/cli/tensors/npy.h"

#define LIST_NAME  "tensors.json"
#define LIST_LIMIT ((size_t)1 << 30)

/* "a/b", to be freed; NULL when out of memory. */
static char *join_path(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path == NULL) {
        trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a path");
        return NULL;
    }
    snprintf(path, size, "%s/%s", folder, name);
    return path;
}

static char *rank_path(const char *folder, int32_t rank)
{
    char name[32];
    snprintf(name, sizeof(name), "rank-%d", (int)rank);
    return join_path(folder, name);
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static trm_status make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        TRM_FAIL(TRM_ERROR_IO, "cannot make folder %s: %s", path, strerror(errno));
    }
    return TRM_OK;
}

/* The list has this name until it is complete. */
static char *unfinished_path(const tensor_writer *w)
{
    return join_path(w->path, LIST_NAME ".part");
}

static trm_status open_list(tensor_writer *w)
{
    char *list = join_path(w->path, LIST_NAME), *unfinished = unfinished_path(w);
    trm_status status = list == NULL || unfinished == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
    if (status == TRM_OK) {
        unlink(list); /* an earlier run's, which must not be taken for this one's */
        w->file = fopen(unfinished, "w");
        if (w->file == NULL) {
            status = trm_fail(TRM_ERROR_IO, "cannot write %s: %s", unfinished, strerror(errno));
        }
    }
    free(list);
    free(unfinished);
    return status;
}

trm_status tensor_writer_open(tensor_writer *w, const char *folder, const tensor_run *run)
{
    char mesh[64];
    *w = (tensor_writer){0};
    TRM_TRY(make_folder(folder));
    w->path = rank_path(folder, run->rank);
    if (w->path == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    TRM_TRY(make_folder(w->path));
    TRM_TRY(open_list(w));
    trm_mesh_format(&run->mesh, mesh, sizeof(mesh));
    report_begin(&w->report, w->file);
    report_text(&w->report, "model", run->model);
    report_text(&w->report, "version", trm_version());
    report_text(&w->report, "backend", trm_backend_name(run->backend));
    report_text(&w->report, "mesh", mesh);
    report_integer(&w->report, "ranks", run->n_ranks);
    report_integer(&w->report, "rank", run->rank);
    report_open(&w->report, "tensors", '[');
    return TRM_OK;
}

/* NumPy's type for elements of this size, if it has none of this kind. */
static trm_dtype stored_type(trm_dtype dtype)
{
    return dtype > TRM_BOOL ? TRM_U8 : dtype;
}

static trm_status write_tensor(tensor_writer *w, const trm_debug_tensor *tensor, const char *name)
{
    char *path = join_path(w->path, name);
    if (path == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_status status = npy_write(path, stored_type(tensor->dtype), &tensor->dims, tensor->data);
    free(path);
    return status;
}

/* Number of times the tensor has come, this time included. */
static trm_status count_pass(tensor_writer *w, const char *name, uint32_t *pass)
{
    *pass = 0;
    (void)trm_map_find(&w->passes, name, strlen(name), pass);
    return trm_map_set(&w->passes, name, strlen(name), ++*pass);
}

static void note_failure(tensor_writer *w, trm_status status)
{
    if (w->failure.status == TRM_OK) {
        trm_error_hold(status, &w->failure);
    }
}

/* A name in the list; NULL for none. */
static void report_name(tensor_writer *w, const char *key, const char *name, uint32_t pass)
{
    if (name == NULL || pass < 2) {
        report_text(&w->report, key, name);
        return;
    }
    size_t size = strlen(name) + 32;
    char *text = malloc(size);
    if (text == NULL) {
        note_failure(w, trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a name"));
        return;
    }
    snprintf(text, size, "%s (pass %u)", name, (unsigned)pass);
    report_text(&w->report, key, text);
    free(text);
}

bool tensor_writer_add(void *writer, const trm_debug_tensor *tensor)
{
    tensor_writer *w = writer;
    report *r = &w->report;
    char name[32];
    uint32_t pass = 1;
    snprintf(name, sizeof(name), "%06d.npy", (int)w->n++);
    if (w->failure.status == TRM_OK) {
        note_failure(w, count_pass(w, tensor->name, &pass));
    }
    if (w->failure.status == TRM_OK) {
        note_failure(w, write_tensor(w, tensor, name));
    }
    report_open(r, NULL, '{');
    report_name(w, "name", tensor->name, pass);
    report_text(r, "layer", tensor->layer);
    report_text(r, "kind", trm_layer_kind_name(tensor->kind));
    report_text(r, "kernel", tensor->kernel);
    report_text(r, "file", name);
    report_text(r, "dtype", trm_dtype_name(tensor->dtype));
    report_open(r, "dims", '[');
    for (int32_t i = 0; i < tensor->dims.n; i++) {
        report_integer(r, NULL, tensor->dims.d[i]);
    }
    report_close(r);
    report_text(r, "part", trm_part_kind_name(tensor->part.kind));
    report_name(w, "of", tensor->part.of, pass);
    report_integer(r, "axis", tensor->part.axis);
    report_integer(r, "parts", tensor->part.parts);
    report_integer(r, "whole", tensor->part.whole);
    report_close(r);
    return w->failure.status == TRM_OK;
}

/* Completes the list and gives it its final name. */
static trm_status finish_list(tensor_writer *w)
{
    report_end(&w->report);
    bool written = !ferror(w->file);
    written = fclose(w->file) == 0 && written;
    w->file = NULL;
    char *list = join_path(w->path, LIST_NAME), *unfinished = unfinished_path(w);
    trm_status status = list == NULL || unfinished == NULL ? TRM_ERROR_OUT_OF_MEMORY : TRM_OK;
    if (status == TRM_OK && (!written || rename(unfinished, list) != 0)) {
        status = trm_fail(TRM_ERROR_IO, "cannot write %s: %s", list, strerror(errno));
    }
    free(list);
    free(unfinished);
    return status;
}

trm_status tensor_writer_close(tensor_writer *w, bool finished)
{
    trm_status status = trm_error_give_back(&w->failure);
    if (w->file != NULL && finished && status == TRM_OK) {
        status = finish_list(w);
    }
    if (w->file != NULL) {
        fclose(w->file);
    }
    free(w->path);
    trm_map_fini(&w->passes);
    *w = (tensor_writer){0};
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

bool tensor_folder_exists(const char *path)
{
    char *rank = rank_path(path, 0), *list = rank == NULL ? NULL : join_path(rank, LIST_NAME);
    bool exists = list != NULL && trm_file_exists(list);
    free(list);
    free(rank);
    return exists;
}

static trm_dtype dtype_by_name(const char *name)
{
    for (int32_t i = 1; i < TRM_DTYPE_COUNT; i++) {
        if (strcmp(trm_dtype_name((trm_dtype)i), name) == 0) {
            return (trm_dtype)i;
        }
    }
    return TRM_DTYPE_NONE;
}

/* An integer member, which must exist and be in a range. */
static trm_status read_integer(const saved_rank *rank, const trm_json *object, const char *key, int64_t least,
                               int64_t most, int64_t *value)
{
    TRM_TRY(trm_json_member_integer(rank->document, object, key, true, value));
    if (*value < least || *value > most) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s/" LIST_NAME ": %s is %lld, expected %lld to %lld", rank->path, key,
                 (long long)*value, (long long)least, (long long)most);
    }
    return TRM_OK;
}

static trm_status read_dims(const saved_rank *rank, const trm_json *member, trm_dims *dims)
{
    const trm_json *list = trm_json_get(member, "dims");
    size_t n = trm_json_count(list);
    bool good = trm_json_is_array(list) && n <= TRM_MAX_DIMS;
    for (size_t i = 0; good && i < n; i++) {
        good = trm_json_integer(trm_json_at(list, i), &dims->d[i]) && dims->d[i] >= 0;
    }
    if (!good) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s/" LIST_NAME ": a tensor has no dims", rank->path);
    }
    dims->n = (int32_t)n;
    return TRM_OK;
}

static trm_status read_part(const saved_rank *rank, const trm_json *member, int32_t n_dims, trm_tensor_part *part)
{
    const char *kind;
    int64_t axis, parts;
    TRM_TRY(trm_json_member_string(rank->document, member, "part", true, &kind));
    TRM_TRY(trm_json_member_string(rank->document, member, "of", false, &part->of));
    TRM_TRY(read_integer(rank, member, "axis", 0, TRM_MAX_DIMS - 1, &axis));
    TRM_TRY(read_integer(rank, member, "parts", 0, TRM_MAX_RANKS, &parts));
    TRM_TRY(read_integer(rank, member, "whole", 0, INT64_MAX, &part->whole));
    part->axis = (int32_t)axis;
    part->parts = (int32_t)parts;
    for (int32_t i = TRM_PART_WHOLE; i <= TRM_PART_SUMMAND; i++) {
        part->kind = strcmp(kind, trm_part_kind_name((trm_part_kind)i)) == 0 ? (trm_part_kind)i : part->kind;
    }
    bool is_part = part->kind != TRM_PART_UNKNOWN;
    if (is_part && (part->of == NULL || parts < 1 || (part->kind == TRM_PART_SPLIT && axis >= n_dims))) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s/" LIST_NAME ": the part of a tensor does not fit it", rank->path);
    }
    return TRM_OK;
}

static trm_status read_tensor(const saved_rank *rank, const trm_json *member, saved_tensor *tensor)
{
    const char *dtype;
    const struct {
        const char *key, **to;
    } texts[] = {{"name", &tensor->name},     {"layer", &tensor->layer}, {"kind", &tensor->kind},
                 {"kernel", &tensor->kernel}, {"file", &tensor->file},   {"dtype", &dtype}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        TRM_TRY(trm_json_member_string(rank->document, member, texts[i].key, true, texts[i].to));
    }
    tensor->dtype = dtype_by_name(dtype);
    if (tensor->dtype == TRM_DTYPE_NONE || strchr(tensor->file, '/') != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s/" LIST_NAME ": tensor %s has type %s and file %s", rank->path,
                 tensor->name, dtype, tensor->file);
    }
    TRM_TRY(read_dims(rank, member, &tensor->dims));
    return read_part(rank, member, tensor->dims.n, &tensor->part);
}

static trm_status read_rank(tensor_folder *folder, int32_t index)
{
    saved_rank *rank = &folder->ranks[index];
    rank->path = rank_path(folder->path, index);
    char *list = rank->path == NULL ? NULL : join_path(rank->path, LIST_NAME);
    trm_status status = list == NULL ? TRM_ERROR_OUT_OF_MEMORY : trm_json_read(list, LIST_LIMIT, &rank->document);
    free(list);
    TRM_TRY(status);
    const trm_json *tensors = trm_json_get(trm_json_root(rank->document), "tensors");
    rank->n = (int32_t)trm_json_count(tensors);
    rank->tensors = calloc((size_t)rank->n + 1, sizeof(*rank->tensors));
    if (rank->tensors == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the list of %d tensors", rank->n);
    }
    int32_t i = 0;
    for (const trm_json *member = trm_json_first(tensors); member != NULL; member = trm_json_next(member)) {
        TRM_TRY(read_tensor(rank, member, &rank->tensors[i]));
        folder->knows_parts = folder->knows_parts || rank->tensors[i].part.of != NULL;
        i++;
    }
    return TRM_OK;
}

static trm_status read_folder(tensor_folder *folder)
{
    TRM_TRY(read_rank(folder, 0));
    const saved_rank *first = &folder->ranks[0];
    const trm_json *root = trm_json_root(first->document);
    const char *backend, *mesh;
    int64_t ranks;
    TRM_TRY(trm_json_member_string(first->document, root, "backend", true, &backend));
    TRM_TRY(trm_json_member_string(first->document, root, "mesh", true, &mesh));
    TRM_TRY(read_integer(first, root, "ranks", 1, TRM_MAX_RANKS, &ranks));
    TRM_TRY(trm_mesh_parse(mesh, (int32_t)ranks, &folder->mesh));
    snprintf(folder->backend, sizeof(folder->backend), "%s", backend);
    folder->n_ranks = (int32_t)ranks;
    for (int32_t i = 1; i < folder->n_ranks; i++) {
        TRM_TRY(read_rank(folder, i));
    }
    return TRM_OK;
}

trm_status tensor_folder_open(tensor_folder *folder, const char *path)
{
    *folder = (tensor_folder){.path = path};
    return read_folder(folder);
}

void tensor_folder_close(tensor_folder *folder)
{
    for (int32_t i = 0; i < TRM_MAX_RANKS; i++) {
        free(folder->ranks[i].path);
        free(folder->ranks[i].tensors);
        trm_json_close(folder->ranks[i].document);
    }
    *folder = (tensor_folder){0};
}

const saved_tensor *tensor_folder_find(const tensor_folder *folder, int32_t rank, const char *name)
{
    const saved_rank *from = &folder->ranks[rank];
    for (int32_t i = 0; i < from->n; i++) {
        if (strcmp(from->tensors[i].name, name) == 0) {
            return &from->tensors[i];
        }
    }
    return NULL;
}

const char *tensor_folder_key(const tensor_folder *folder, const saved_tensor *tensor)
{
    return folder->knows_parts ? tensor->part.of : folder->n_ranks == 1 ? tensor->name : NULL;
}

bool tensor_folder_begins_group(const tensor_folder *folder, int32_t rank)
{
    return trm_mesh_coordinate(&folder->mesh, TRM_AXIS_TP, rank) == 0 &&
           trm_mesh_coordinate(&folder->mesh, TRM_AXIS_CP, rank) == 0 &&
           trm_mesh_coordinate(&folder->mesh, TRM_AXIS_DP, rank) == 0;
}

const saved_tensor *tensor_folder_find_best(const tensor_folder *folder, const char *key, int32_t *rank)
{
    static const int32_t worth[] = {
        [TRM_PART_UNKNOWN] = 1, [TRM_PART_WHOLE] = 4, [TRM_PART_SPLIT] = 3, [TRM_PART_SUMMAND] = 2};
    const saved_tensor *best = NULL;
    for (int32_t r = 0; r < folder->n_ranks; r++) {
        for (int32_t i = 0; tensor_folder_begins_group(folder, r) && i < folder->ranks[r].n; i++) {
            const saved_tensor *tensor = &folder->ranks[r].tensors[i];
            const char *its = tensor_folder_key(folder, tensor);
            bool is_it = its != NULL && strcmp(its, key) == 0;
            if (is_it && (best == NULL || worth[tensor->part.kind] > worth[best->part.kind])) {
                best = tensor;
                *rank = r;
            }
        }
    }
    return best;
}

trm_status tensor_folder_read(const tensor_folder *folder, int32_t rank, const saved_tensor *tensor,
                              tensor_value *value)
{
    npy_array array;
    char *path = join_path(folder->ranks[rank].path, tensor->file);
    if (path == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_status status = npy_read(path, &array);
    bool same = status == TRM_OK && array.dtype == stored_type(tensor->dtype) && array.dims.n == tensor->dims.n;
    for (int32_t i = 0; same && i < array.dims.n; i++) {
        same = array.dims.d[i] == tensor->dims.d[i];
    }
    if (status == TRM_OK && !same) {
        free(array.data);
        status = trm_fail(TRM_ERROR_INVALID_MODEL, "%s is not the tensor that " LIST_NAME " tells of", path);
    }
    free(path);
    TRM_TRY(status);
    *value = (tensor_value){tensor->dtype, tensor->dims, array.data};
    return TRM_OK;
}

/* ---- joining ------------------------------------------------------------------------------------------- */

/* Allocates the whole tensor, zeroed. */
static trm_status make_whole(const saved_tensor *tensor, tensor_value *value)
{
    const trm_tensor_part *part = &tensor->part;
    *value = (tensor_value){.dtype = part->kind == TRM_PART_SUMMAND ? TRM_F64 : tensor->dtype, .dims = tensor->dims};
    if (part->kind == TRM_PART_SPLIT) {
        value->dims.d[part->axis] = part->whole;
    }
    size_t bytes = trm_dtype_size(value->dtype);
    bool fits = true;
    for (int32_t i = 0; i < value->dims.n; i++) {
        fits = fits && trm_checked_mul(bytes, (size_t)value->dims.d[i], &bytes);
    }
    value->data = fits ? calloc(1, bytes + 1) : NULL;
    if (value->data == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate tensor %s", tensor->name);
    }
    return TRM_OK;
}

/* Adds the piece of a rank, the `index`-th of the whole. */
static void add_piece(const tensor_value *piece, const trm_tensor_part *part, int32_t index, tensor_value *whole)
{
    if (part->kind == TRM_PART_SUMMAND) {
        double *sum = whole->data;
        for (int64_t i = 0, n = tensor_value_count(piece); i < n; i++) {
            sum[i] += trm_element_as_double(piece->dtype, piece->data, i);
        }
        return;
    }
    int64_t outer = 1, each = piece->dims.d[part->axis], start = index * each, length = part->whole - start;
    size_t inner = trm_dtype_size(piece->dtype);
    for (int32_t i = 0; i < piece->dims.n; i++) {
        outer *= i < part->axis ? piece->dims.d[i] : 1;
        inner *= i > part->axis ? (size_t)piece->dims.d[i] : 1;
    }
    length = length < each ? length : each; /* zeros follow the end of the last */
    for (int64_t i = 0; i < outer && length > 0; i++) {
        memcpy((char *)whole->data + (size_t)(i * part->whole + start) * inner,
               (const char *)piece->data + (size_t)(i * each) * inner, (size_t)length * inner);
    }
}

static bool same_part(const saved_tensor *a, const saved_tensor *b)
{
    bool same = a->dims.n == b->dims.n && a->dtype == b->dtype && a->part.kind == b->part.kind &&
                a->part.axis == b->part.axis && a->part.parts == b->part.parts && a->part.whole == b->part.whole;
    for (int32_t i = 0; same && i < a->dims.n; i++) {
        same = a->dims.d[i] == b->dims.d[i];
    }
    return same;
}

trm_status tensor_folder_join(const tensor_folder *folder, int32_t first, const saved_tensor *tensor,
                              tensor_value *value, bool *complete)
{
    const trm_tensor_part *part = &tensor->part;
    const int32_t *size = folder->mesh.size;
    int32_t n = size[TRM_AXIS_TP] > 1 ? size[TRM_AXIS_TP] : size[TRM_AXIS_CP]; /* with both, parts along tp are known */
    int32_t apart = 1;                                                         /* differs between ranks */
    if (n == 1) {                                                              /* parts are those of a batch */
        n = folder->mesh.size[TRM_AXIS_DP];
        apart = folder->mesh.size[TRM_AXIS_PP];
    }
    *complete = true;
    if (part->kind == TRM_PART_WHOLE || part->kind == TRM_PART_UNKNOWN) {
        return tensor_folder_read(folder, first, tensor, value);
    }
    if (n % part->parts != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "tensor %s has %d parts, on %d ranks", tensor->name, part->parts, n);
    }
    TRM_TRY(make_whole(tensor, value));
    for (int32_t i = 0; i < part->parts && *complete; i++) {
        int32_t rank = first + i * (n / part->parts) * apart;
        const saved_tensor *other = tensor_folder_find(folder, rank, tensor->name);
        tensor_value piece = {0};
        *complete = other != NULL && same_part(tensor, other);
        trm_status status = *complete ? tensor_folder_read(folder, rank, other, &piece) : TRM_OK;
        if (status == TRM_OK && *complete) {
            add_piece(&piece, part, i, value);
        }
        tensor_value_fini(&piece);
        if (status != TRM_OK || !*complete) {
            tensor_value_fini(value);
            return status;
        }
    }
    return TRM_OK;
}

void tensor_folder_remove(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        bool is_inside = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
        char *child = is_inside ? join_path(path, entry->d_name) : NULL;
        if (child != NULL && unlink(child) != 0) {
            tensor_folder_remove(child);
        }
        free(child);
    }
    if (folder != NULL) {
        closedir(folder);
    }
    rmdir(path);
}
