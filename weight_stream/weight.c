/* Weights: sources, views and comparison. Reading is in weight_read.c. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "weight_stream/weight_internal.h"

/* ---- dims ------------------------------------------------------------------------------------------ */

static bool same_dims(const trm_dims *a, const trm_dims *b)
{
    return a->n == b->n && memcmp(a->d, b->d, (size_t)a->n * sizeof(a->d[0])) == 0;
}

static size_t product(const trm_dims *dims, int32_t from, int32_t to)
{
    size_t count = 1;
    for (int32_t i = from; i < to; i++) {
        count *= (size_t)dims->d[i];
    }
    return count;
}

static void print_dims(const trm_dims *dims, char text[160])
{
    size_t used = (size_t)snprintf(text, 160, "[");
    for (int32_t i = 0; i < dims->n && i < TRM_MAX_DIMS && used < 140; i++) {
        used += (size_t)snprintf(text + used, 160 - used, "%s%lld", i == 0 ? "" : ", ", (long long)dims->d[i]);
    }
    snprintf(text + used, 160 - used, "]");
}

/* Refuses dims whose bytes do not fit into half the address space, so that later arithmetic cannot overflow. */
trm_status trm_weight_count_elements(trm_dtype dtype, const trm_dims *dims, size_t *count)
{
    if (dims->n < 0 || dims->n > TRM_MAX_DIMS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight with %d dimensions, expected 0 to %d", dims->n, TRM_MAX_DIMS);
    }
    size_t elements = 1, bytes = trm_dtype_size(dtype);
    bool fits = true, empty = false;
    for (int32_t i = 0; i < dims->n; i++) {
        if (dims->d[i] < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight with dimension %lld, expected none below 0",
                     (long long)dims->d[i]);
        }
        empty = empty || dims->d[i] == 0;
        fits = fits && trm_checked_mul(elements, (size_t)dims->d[i], &elements);
        fits = fits && trm_checked_mul(elements, bytes, &bytes) && bytes <= SIZE_MAX / 2;
        bytes = trm_dtype_size(dtype);
    }
    if (!fits && !empty) {
        char text[160];
        print_dims(dims, text);
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight of dims %s exceeds the address space", text);
    }
    *count = empty ? 0 : elements;
    return TRM_OK;
}

/* ---- files and bases ------------------------------------------------------------------------------- */

trm_status trm_weight_file_open(const char *path, const char *name, trm_weight_file **file)
{
    trm_weight_file *result = calloc(1, sizeof(*result));
    char *copy = strdup(name), resolved[PATH_MAX];
    char *full = strdup(realpath(path, resolved) == NULL ? path : resolved);
    if (result == NULL || copy == NULL || full == NULL) {
        free(result);
        free(copy);
        free(full);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the record of file %s", path);
    }
    atomic_init(&result->references, 1);
    result->name = copy;
    result->path = full;
    trm_status status = trm_file_map(path, &result->mapping);
    result->descriptor = status == TRM_OK ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    result->direct = status == TRM_OK ? open(path, O_RDONLY | O_CLOEXEC | O_DIRECT) : -1;
    if (status == TRM_OK && result->descriptor < 0) {
        status = trm_fail(TRM_ERROR_IO, "cannot open %s: %s", path, strerror(errno));
    }
    if (status != TRM_OK) {
        trm_weight_file_release(result);
        return status;
    }
    *file = result;
    return TRM_OK;
}

void trm_weight_file_retain(trm_weight_file *file)
{
    atomic_fetch_add_explicit(&file->references, 1, memory_order_relaxed);
}

void trm_weight_file_release(trm_weight_file *file)
{
    if (file != NULL && atomic_fetch_sub_explicit(&file->references, 1, memory_order_acq_rel) == 1) {
        trm_file_unmap(&file->mapping);
        if (file->descriptor >= 0) {
            close(file->descriptor);
        }
        if (file->direct >= 0) {
            close(file->direct);
        }
        free(file->name);
        free(file->path);
        free(file);
    }
}

trm_status trm_weight_file_read(const trm_weight_file *file, size_t begin, size_t size, void *to)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(file->descriptor, (unsigned char *)to + done, size - done, (off_t)(begin + done));
        if (got < 0 && errno != EINTR) {
            TRM_FAIL(TRM_ERROR_IO, "cannot read %s: %s", file->path, strerror(errno));
        }
        if (got == 0) {
            TRM_FAIL(TRM_ERROR_IO, "%s ends at byte %zu, it had %zu bytes when it was opened", file->path, begin + done,
                     file->mapping.size);
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return TRM_OK;
}

/* What reads past the cache begins at a multiple of this, in the file and in memory, and is so long. */
#define DIRECT_ALIGNMENT ((size_t)4096)
#define DIRECT_BYTES     ((size_t)1 << 20)

/* Reads from byte `at` on into `window`, both aligned; the bytes got, less than asked for at the file's end only. */
static ssize_t read_window(const trm_weight_file *file, size_t at, unsigned char *window)
{
    ssize_t got;
    do {
        got = pread(file->direct, window, DIRECT_BYTES, (off_t)at);
    } while (got < 0 && errno == EINTR);
    return got;
}

trm_status trm_weight_file_read_direct(const trm_weight_file *file, size_t begin, size_t size, void *to)
{
    unsigned char *window = file->direct < 0 ? NULL : aligned_alloc(DIRECT_ALIGNMENT, DIRECT_BYTES);
    size_t done = 0;
    while (window != NULL && done < size) {
        size_t at = (begin + done) / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT, skipped = begin + done - at;
        ssize_t got = read_window(file, at, window);
        if (got < 0 || (size_t)got <= skipped) {
            break; /* the file system cannot, or the file ends: the other way to read tells */
        }
        size_t n = (size_t)got - skipped < size - done ? (size_t)got - skipped : size - done;
        memcpy((unsigned char *)to + done, window + skipped, n);
        done += n;
    }
    free(window);
    return done == size ? TRM_OK : trm_weight_file_read(file, begin + done, size - done, (unsigned char *)to + done);
}

trm_status trm_weight_file_check(const trm_weight_file *file)
{
    struct stat now;
    if (file->descriptor < 0) {
        return TRM_OK;
    }
    if (fstat(file->descriptor, &now) != 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot look at %s: %s", file->path, strerror(errno));
    }
    if ((uintmax_t)now.st_size < file->mapping.size) {
        TRM_FAIL(TRM_ERROR_IO, "%s has %jd bytes, it had %zu when it was opened", file->path, (intmax_t)now.st_size,
                 file->mapping.size);
    }
    return TRM_OK;
}

trm_mapping trm_weight_file_bytes(const trm_weight_file *file)
{
    return file->mapping;
}

static trm_weight_base *create_base(trm_weight_base_kind kind, trm_dtype dtype, const trm_dims *dims)
{
    trm_weight_base *base = calloc(1, sizeof(*base));
    if (base == NULL) {
        trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a weight");
        return NULL;
    }
    atomic_init(&base->references, 1);
    base->kind = kind;
    base->dtype = dtype;
    base->dims = *dims;
    return base;
}

static trm_weight_base *retain_base(trm_weight_base *base)
{
    atomic_fetch_add_explicit(&base->references, 1, memory_order_relaxed);
    return base;
}

static void release_base(trm_weight_base *base)
{
    if (base == NULL || atomic_fetch_sub_explicit(&base->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (int32_t i = 0; i < base->n_parts; i++) {
        trm_weight_destroy(base->parts[i]);
    }
    free(base->parts);
    free(base->part_starts);
    free(base->name);
    trm_weight_file_release(base->file);
    free(base);
}

/* ---- views ----------------------------------------------------------------------------------------- */

static bool same_base(const trm_weight_base *a, const trm_weight_base *b);
static bool is_join(const trm_weight *weight);

/* Makes a weight of a view; takes the reference to the base over, also when it fails. */
static trm_status create_weight(trm_weight_base *base, const trm_weight_view *view, trm_weight **weight)
{
    trm_weight *result = calloc(1, sizeof(*result));
    if (result == NULL) {
        release_base(base);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a weight");
    }
    result->base = base;
    result->view = *view;
    result->count = product(&view->dims, 0, view->dims.n);
    trm_weight_view_runs(view, &result->runs);
    if (base->kind == TRM_WEIGHT_JOINED && base->n_parts == 1 && is_join(result)) {
        trm_status status = trm_weight_clone(base->parts[0], weight); /* back where the nesting began */
        trm_weight_destroy(result);
        return status;
    }
    *weight = result;
    return TRM_OK;
}

static trm_status create_whole(trm_weight_base *base, trm_weight **weight)
{
    trm_weight_view view;
    trm_weight_view_whole(&base->dims, &view);
    return create_weight(base, &view, weight);
}

/* Zeros stand for padding and for every weight with no elements, whatever it was cut from. */
trm_status trm_weight_zeros(trm_dtype dtype, const trm_dims *dims, trm_weight **weight)
{
    trm_weight_base *base = create_base(TRM_WEIGHT_ZEROS, dtype, dims);
    return base == NULL ? TRM_ERROR_OUT_OF_MEMORY : create_whole(base, weight);
}

static bool is_zeros(const trm_weight *weight)
{
    return weight->base->kind == TRM_WEIGHT_ZEROS;
}

/* Whether its elements lie one behind the other in the base. */
static bool is_one_run(const trm_weight *weight)
{
    return weight->runs.n == 0 || (weight->runs.n == 1 && weight->runs.steps[0].stride == 1);
}

/* Whether the weight is a join as a whole, so that a view of it can be made of views of its parts. */
static bool is_join(const trm_weight *weight)
{
    const trm_weight_base *base = weight->base;
    return base->kind == TRM_WEIGHT_JOINED && same_dims(&weight->view.dims, &base->dims) && weight->view.offset == 0 &&
           is_one_run(weight) && weight->count == product(&base->dims, 0, base->dims.n);
}

trm_status trm_weight_from_file(trm_weight_file *file, size_t begin, const char *name, trm_dtype dtype,
                                const trm_dims *dims, trm_weight **weight)
{
    size_t count;
    TRM_TRY(trm_weight_count_elements(dtype, dims, &count));
    assert(begin <= file->mapping.size && count * trm_dtype_size(dtype) <= file->mapping.size - begin);
    if (count == 0) {
        return trm_weight_zeros(dtype, dims, weight);
    }
    trm_weight_base *base = create_base(TRM_WEIGHT_STORED, dtype, dims);
    if (base == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    base->bytes = file->mapping.bytes + begin;
    base->file = file;
    trm_weight_file_retain(file);
    base->name = strdup(name);
    if (base->name == NULL) {
        release_base(base);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate weight %s", name);
    }
    return create_whole(base, weight);
}

trm_status trm_weight_random(trm_dtype dtype, const trm_dims *dims, uint64_t seed, float mean, float spread,
                             trm_weight **weight)
{
    if (dtype != TRM_F32 && dtype != TRM_F16 && dtype != TRM_BF16 && dtype != TRM_F8E4M3 && dtype != TRM_I8 &&
        dtype != TRM_U8) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "random weight of type %s, expected f32, f16, bf16, f8e4m3, i8 or u8",
                 trm_dtype_name(dtype));
    }
    if (!isfinite(mean) || !isfinite(spread) || spread < 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "random weight with mean %g and spread %g, expected finite numbers, spread >= 0", (double)mean,
                 (double)spread);
    }
    size_t count;
    TRM_TRY(trm_weight_count_elements(dtype, dims, &count));
    if (count == 0) {
        return trm_weight_zeros(dtype, dims, weight);
    }
    trm_weight_base *base = create_base(TRM_WEIGHT_RANDOM, dtype, dims);
    if (base == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    base->seed = seed;
    base->mean = mean;
    base->spread = spread;
    return create_whole(base, weight);
}

trm_status trm_weight_clone(const trm_weight *weight, trm_weight **copy)
{
    return create_weight(retain_base(weight->base), &weight->view, copy);
}

void trm_weight_destroy(trm_weight *weight)
{
    if (weight != NULL) {
        release_base(weight->base);
        free(weight);
    }
}

static void destroy_parts(trm_weight **parts, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        trm_weight_destroy(parts[i]);
    }
    free(parts);
}

static trm_weight **create_parts(int32_t n)
{
    trm_weight **parts = calloc((size_t)n, sizeof(trm_weight *));
    if (parts == NULL) {
        trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a weight of %d parts", n);
    }
    return parts;
}

/* Whoever walks through a weight recurses; files may name parts of parts of parts. */
#define MOST_DEPTH 32

static trm_status depth_of(trm_weight *const *parts, int32_t n, int32_t *depth)
{
    *depth = 0;
    for (int32_t i = 0; i < n; i++) {
        *depth = parts[i]->base->depth >= *depth ? parts[i]->base->depth + 1 : *depth;
    }
    if (*depth > MOST_DEPTH) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "a weight is made of others more than %d deep", MOST_DEPTH);
    }
    return TRM_OK;
}

/* Makes a base of the parts, which it takes over with their array, also when it fails. */
static trm_status join_parts(trm_weight **parts, int32_t n, int32_t axis, trm_weight_base **base)
{
    int32_t depth;
    const trm_status status = depth_of(parts, n, &depth);
    if (status != TRM_OK) {
        destroy_parts(parts, n);
        return status;
    }
    trm_weight_base *result = create_base(TRM_WEIGHT_JOINED, parts[0]->base->dtype, &parts[0]->view.dims);
    size_t *starts = calloc((size_t)n + 1, sizeof(*starts));
    if (result == NULL || starts == NULL) {
        destroy_parts(parts, n);
        free(starts);
        release_base(result);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a weight of %d parts", n);
    }
    for (int32_t i = 0; i < n; i++) {
        starts[i + 1] = starts[i] + product(&parts[i]->view.dims, axis, parts[i]->view.dims.n);
        if (i > 0) {
            result->dims.d[axis] += parts[i]->view.dims.d[axis];
        }
    }
    result->depth = depth;
    result->axis = axis;
    result->n_parts = n;
    result->parts = parts;
    result->part_starts = starts;
    *base = result;
    return TRM_OK;
}

/* A weight whose base stands for `weight`, so that any reshape and slice of it is a simple view again. */
static trm_status create_nested(const trm_weight *weight, trm_weight_base **base)
{
    trm_weight **parts = create_parts(1);
    if (parts == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_status status = trm_weight_clone(weight, &parts[0]);
    if (status != TRM_OK) {
        free(parts);
        return status;
    }
    return join_parts(parts, 1, 0, base);
}

static trm_status recode(const trm_weight *weight, trm_weight_code code, int32_t times, trm_weight **recoded)
{
    trm_dtype dtype;
    trm_dims dims;
    trm_weight_base *base = NULL;
    size_t count;
    TRM_TRY(trm_weight_check_recode(weight, code, times, &dtype, &dims));
    TRM_TRY(trm_weight_count_elements(dtype, &dims, &count));
    if (count == 0) {
        return trm_weight_zeros(dtype, &dims, recoded);
    }
    TRM_TRY(create_nested(weight, &base));
    base->kind = TRM_WEIGHT_RECODED;
    base->dtype = dtype;
    base->dims = dims;
    base->code = code;
    base->times = times;
    return create_whole(base, recoded);
}

trm_status trm_weight_recode(const trm_weight *weight, trm_weight_code code, trm_weight **recoded)
{
    return recode(weight, code, 0, recoded);
}

trm_status trm_weight_repeat(const trm_weight *weight, int32_t times, trm_weight **repeated)
{
    return recode(weight, TRM_WEIGHT_CODE_REPEAT, times, repeated);
}

static trm_status fail_view(const trm_weight *weight, const char *what)
{
    char source[256];
    trm_weight_describe(weight, source, sizeof(source));
    return trm_fail(TRM_ERROR_INVALID_ARGUMENT, "weight %s: %s", source, what);
}

trm_status trm_weight_of_view(const trm_weight *weight, const trm_weight_view *view, trm_weight **result)
{
    return create_weight(retain_base(weight->base), view, result);
}

trm_status trm_weight_of_join(const trm_weight *const *parts, int32_t n, int32_t axis, const trm_weight_view *view,
                              trm_weight **result)
{
    trm_weight **copies = create_parts(n);
    if (copies == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < n; i++) {
        trm_status status = trm_weight_clone(parts[i], &copies[i]);
        if (status != TRM_OK) {
            destroy_parts(copies, i);
            return status;
        }
    }
    trm_weight_base *base = NULL;
    TRM_TRY(join_parts(copies, n, axis, &base));
    return create_weight(base, view, result);
}

/* ---- reshape --------------------------------------------------------------------------------------- */

/* If the reshape keeps the axis of a join apart, the dims of the parts follow from the new dims. */
static bool find_joined_axis(const trm_weight_base *base, const trm_dims *dims, int32_t *axis)
{
    size_t outer = product(&base->dims, 0, base->axis);
    for (int32_t i = 0; i < dims->n; i++) {
        size_t inner = product(dims, i + 1, dims->n);
        bool fits = product(dims, 0, i) == outer;
        for (int32_t k = 1; fits && k <= base->n_parts; k++) {
            fits = base->part_starts[k] % inner == 0;
        }
        if (fits) {
            *axis = i;
            return true;
        }
    }
    return false;
}

static trm_status reshape_parts(const trm_weight_base *base, const trm_dims *dims, int32_t axis, trm_weight **view)
{
    trm_weight **parts = create_parts(base->n_parts);
    if (parts == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_status status = TRM_OK;
    size_t inner = product(dims, axis + 1, dims->n);
    for (int32_t i = 0; i < base->n_parts && status == TRM_OK; i++) {
        trm_dims part_dims = *dims;
        part_dims.d[axis] = (int64_t)((base->part_starts[i + 1] - base->part_starts[i]) / inner);
        status = trm_weight_reshape(base->parts[i], &part_dims, &parts[i]);
    }
    if (status == TRM_OK) {
        status = trm_weight_concat((const trm_weight *const *)parts, base->n_parts, axis, view);
    }
    destroy_parts(parts, base->n_parts);
    return status;
}

trm_status trm_weight_reshape(const trm_weight *weight, const trm_dims *dims, trm_weight **view)
{
    size_t count;
    TRM_TRY(trm_weight_count_elements(weight->base->dtype, dims, &count));
    if (count != weight->count) {
        char from[160], to[160], what[400];
        print_dims(&weight->view.dims, from);
        print_dims(dims, to);
        snprintf(what, sizeof(what), "cannot reshape %s to %s", from, to);
        return fail_view(weight, what);
    }
    if (is_zeros(weight)) {
        return trm_weight_zeros(weight->base->dtype, dims, view);
    }
    int32_t axis;
    if (is_join(weight) && weight->base->n_parts > 1 && find_joined_axis(weight->base, dims, &axis)) {
        return reshape_parts(weight->base, dims, axis, view);
    }
    trm_weight_view result;
    if (trm_weight_view_reshape(&weight->view, dims, &result)) {
        return create_weight(retain_base(weight->base), &result, view);
    }
    trm_weight_base *base = NULL;
    TRM_TRY(create_nested(weight, &base));
    trm_weight_view_whole(dims, &result);
    return create_weight(base, &result, view);
}

/* ---- transpose ------------------------------------------------------------------------------------- */

static trm_status check_permutation(const trm_weight *weight, const int32_t *perm)
{
    unsigned seen = 0;
    for (int32_t i = 0; i < weight->view.dims.n; i++) {
        if (perm[i] < 0 || perm[i] >= weight->view.dims.n || (seen >> perm[i] & 1) != 0) {
            char what[128];
            snprintf(what, sizeof(what), "position %d of the permutation is %d, expected each of 0 to %d once", i,
                     perm[i], weight->view.dims.n - 1);
            return fail_view(weight, what);
        }
        seen |= 1u << perm[i];
    }
    return TRM_OK;
}

static trm_status transpose_parts(const trm_weight_base *base, const int32_t *perm, trm_weight **view)
{
    trm_weight **parts = create_parts(base->n_parts);
    if (parts == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    int32_t axis = 0;
    while (perm[axis] != base->axis) {
        axis++;
    }
    trm_status status = TRM_OK;
    for (int32_t i = 0; i < base->n_parts && status == TRM_OK; i++) {
        status = trm_weight_transpose(base->parts[i], perm, &parts[i]);
    }
    if (status == TRM_OK) {
        status = trm_weight_concat((const trm_weight *const *)parts, base->n_parts, axis, view);
    }
    destroy_parts(parts, base->n_parts);
    return status;
}

trm_status trm_weight_transpose(const trm_weight *weight, const int32_t *perm, trm_weight **view)
{
    TRM_TRY(check_permutation(weight, perm));
    if (is_join(weight) && weight->base->n_parts > 1) {
        return transpose_parts(weight->base, perm, view);
    }
    trm_weight_view result;
    trm_weight_view_transpose(&weight->view, perm, &result);
    if (is_zeros(weight)) {
        return trm_weight_zeros(weight->base->dtype, &result.dims, view);
    }
    return create_weight(retain_base(weight->base), &result, view);
}

/* ---- slice ----------------------------------------------------------------------------------------- */

static trm_status slice_parts(const trm_weight_base *base, int32_t axis, int64_t start, int64_t length,
                              trm_weight **view)
{
    trm_weight **parts = create_parts(base->n_parts);
    if (parts == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_status status = TRM_OK;
    int32_t n = 0;
    int64_t end = start + length, before = 0;
    for (int32_t i = 0; i < base->n_parts && status == TRM_OK; i++) {
        const trm_weight *part = base->parts[i];
        int64_t from = start, to = end;
        if (axis == base->axis) {
            int64_t size = part->view.dims.d[axis];
            from = start > before ? start - before : 0;
            to = end - before < size ? end - before : size;
            before += size;
        }
        if (from < to) {
            status = trm_weight_slice(part, axis, from, to - from, &parts[n]);
            n += status == TRM_OK;
        }
    }
    if (status == TRM_OK) {
        status = trm_weight_concat((const trm_weight *const *)parts, n, base->axis, view);
    }
    destroy_parts(parts, n);
    return status;
}

trm_status trm_weight_slice(const trm_weight *weight, int32_t axis, int64_t start, int64_t length, trm_weight **view)
{
    const trm_dims *dims = &weight->view.dims;
    if (axis < 0 || axis >= dims->n || start < 0 || length < 0 || start > dims->d[axis] ||
        length > dims->d[axis] - start) {
        char text[160], what[320];
        print_dims(dims, text);
        snprintf(what, sizeof(what), "cannot take %lld elements from %lld on of axis %d of %s", (long long)length,
                 (long long)start, axis, text);
        return fail_view(weight, what);
    }
    trm_weight_view result = weight->view;
    if (is_zeros(weight) || length == 0) {
        result.dims.d[axis] = length;
        return trm_weight_zeros(weight->base->dtype, &result.dims, view);
    }
    if (is_join(weight) && weight->base->n_parts > 1) {
        return slice_parts(weight->base, axis, start, length, view);
    }
    if (trm_weight_view_slice(&weight->view, axis, start, length, &result)) {
        return create_weight(retain_base(weight->base), &result, view);
    }
    trm_weight_base *base = NULL;
    TRM_TRY(create_nested(weight, &base));
    trm_weight_view_whole(dims, &result);
    bool sliced = trm_weight_view_slice(&result, axis, start, length, &result); /* one step a dimension */
    assert(sliced);
    (void)sliced;
    return create_weight(base, &result, view);
}

/* ---- concat ---------------------------------------------------------------------------------------- */

trm_status trm_weight_check_concat(const trm_weight *const *weights, int32_t n, int32_t axis)
{
    if (n < 1) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot join %d weights, expected at least one", n);
    }
    const trm_dims *dims = &weights[0]->view.dims;
    if (axis < 0 || axis >= dims->n) {
        char what[96];
        snprintf(what, sizeof(what), "cannot join along axis %d of %d dimensions", axis, dims->n);
        return fail_view(weights[0], what);
    }
    trm_dims joined = *dims;
    for (int32_t i = 1; i < n; i++) {
        trm_dims expected = *dims;
        const trm_weight *weight = weights[i];
        char have[160], want[160], what[420];
        if (weight->base->dtype != weights[0]->base->dtype) {
            snprintf(what, sizeof(what), "has type %s, expected %s as the weight it is joined to",
                     trm_dtype_name(weight->base->dtype), trm_dtype_name(weights[0]->base->dtype));
            return fail_view(weight, what);
        }
        expected.d[axis] = weight->view.dims.n == dims->n ? weight->view.dims.d[axis] : dims->d[axis];
        if (!same_dims(&weight->view.dims, &expected)) {
            print_dims(&weight->view.dims, have);
            print_dims(dims, want);
            snprintf(what, sizeof(what), "has dims %s, cannot be joined to %s along axis %d", have, want, axis);
            return fail_view(weight, what);
        }
        if (__builtin_add_overflow(joined.d[axis], expected.d[axis], &joined.d[axis])) {
            return fail_view(weight, "cannot be joined: the sum of the dimensions overflows");
        }
    }
    size_t count;
    return trm_weight_count_elements(weights[0]->base->dtype, &joined, &count);
}

static bool can_be_one(const trm_weight *a, const trm_weight *b)
{
    return a->base->kind != TRM_WEIGHT_JOINED && same_base(a->base, b->base);
}

/* Appends a part to the list, joined to the last one where that is one view. Takes the part over. */
static trm_status append_part(trm_weight **parts, int32_t *n, int32_t axis, trm_weight *part)
{
    trm_weight_view view;
    trm_weight *last = *n > 0 ? parts[*n - 1] : NULL;
    trm_weight *longer = NULL;
    trm_status status = TRM_OK;
    if (last != NULL && is_zeros(last) && is_zeros(part)) {
        trm_dims dims = last->view.dims;
        dims.d[axis] += part->view.dims.d[axis];
        status = trm_weight_zeros(last->base->dtype, &dims, &longer);
    } else if (last != NULL && can_be_one(last, part) && trm_weight_view_join(&last->view, &part->view, axis, &view)) {
        status = create_weight(retain_base(last->base), &view, &longer);
    } else {
        parts[(*n)++] = part;
        return TRM_OK;
    }
    trm_weight_destroy(part);
    if (status == TRM_OK) {
        trm_weight_destroy(last);
        parts[*n - 1] = longer;
    }
    return status;
}

trm_status trm_weight_concat(const trm_weight *const *weights, int32_t n, int32_t axis, trm_weight **joined)
{
    TRM_TRY(trm_weight_check_concat(weights, n, axis));
    int32_t capacity = 0;
    for (int32_t i = 0; i < n; i++) {
        capacity += is_join(weights[i]) ? weights[i]->base->n_parts : 1;
    }
    trm_weight **parts = create_parts(capacity);
    if (parts == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    trm_status status = TRM_OK;
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        const trm_weight *weight = weights[i];
        bool flat = is_join(weight) && weight->base->axis == axis;
        int32_t n_inner = weight->count == 0 ? 0 : flat ? weight->base->n_parts : 1;
        for (int32_t k = 0; k < n_inner; k++) {
            trm_weight *part;
            TRM_TRY_GOTO(status, trm_weight_clone(flat ? weight->base->parts[k] : weight, &part), fail);
            TRM_TRY_GOTO(status, append_part(parts, &count, axis, part), fail);
        }
    }
    if (count < 2) {
        trm_dims empty = weights[0]->view.dims;
        if (count == 0) { /* with other dims empty, the axis may still add up */
            for (int32_t i = 1; i < n; i++) {
                empty.d[axis] += weights[i]->view.dims.d[axis];
            }
            status = trm_weight_zeros(weights[0]->base->dtype, &empty, joined);
        } else {
            *joined = parts[0];
        }
        free(parts);
        return status;
    }
    trm_weight_base *base = NULL;
    TRM_TRY(join_parts(parts, count, axis, &base));
    return create_whole(base, joined);
fail:
    destroy_parts(parts, count);
    return status;
}

trm_status trm_weight_pad(const trm_weight *weight, int32_t axis, int64_t length, trm_weight **padded)
{
    trm_dims dims = weight->view.dims;
    if (axis < 0 || axis >= dims.n || length < dims.d[axis]) {
        char text[160], what[256];
        print_dims(&dims, text);
        snprintf(what, sizeof(what), "cannot pad axis %d of %s to %lld", axis, text, (long long)length);
        return fail_view(weight, what);
    }
    size_t count;
    int64_t have = dims.d[axis];
    dims.d[axis] = length;
    TRM_TRY(trm_weight_count_elements(weight->base->dtype, &dims, &count));
    if (length == have) {
        return trm_weight_clone(weight, padded);
    }
    dims.d[axis] = length - have;
    trm_weight *zeros;
    TRM_TRY(trm_weight_zeros(weight->base->dtype, &dims, &zeros));
    const trm_weight *both[] = {weight, zeros};
    trm_status status = trm_weight_concat(both, 2, axis, padded);
    trm_weight_destroy(zeros);
    return status;
}

/* ---- comparison and description -------------------------------------------------------------------- */

trm_dtype trm_weight_dtype(const trm_weight *weight)
{
    return weight->base->dtype;
}

trm_dims trm_weight_dims(const trm_weight *weight)
{
    return weight->view.dims;
}

static bool same_base(const trm_weight_base *a, const trm_weight_base *b)
{
    if (a == b) {
        return true;
    }
    if (a->kind != b->kind || a->dtype != b->dtype) {
        return false;
    }
    switch (a->kind) {
    case TRM_WEIGHT_STORED:
        return a->bytes == b->bytes;
    case TRM_WEIGHT_RANDOM:
        return a->seed == b->seed && a->mean == b->mean && a->spread == b->spread;
    case TRM_WEIGHT_ZEROS:
        return true;
    case TRM_WEIGHT_RECODED:
        return a->code == b->code && a->times == b->times && trm_weight_equal(a->parts[0], b->parts[0]);
    case TRM_WEIGHT_JOINED:
        break;
    }
    if (a->n_parts != b->n_parts || a->axis != b->axis || !same_dims(&a->dims, &b->dims)) {
        return false;
    }
    for (int32_t i = 0; i < a->n_parts; i++) {
        if (!trm_weight_equal(a->parts[i], b->parts[i])) {
            return false;
        }
    }
    return true;
}

bool trm_weight_equal(const trm_weight *a, const trm_weight *b)
{
    if (!same_dims(&a->view.dims, &b->view.dims) || !same_base(a->base, b->base)) {
        return false;
    }
    if (is_zeros(a)) {
        return true;
    }
    return trm_weight_view_equal(&a->view, &b->view);
}

const void *trm_weight_mapped(const trm_weight *weight)
{
    const trm_weight_base *base = weight->base;
    if (base->kind != TRM_WEIGHT_STORED || !is_one_run(weight)) {
        return NULL;
    }
    size_t size = trm_dtype_size(base->dtype);
    const unsigned char *address = base->bytes + (size_t)weight->view.offset * size;
    return (uintptr_t)address % size == 0 ? address : NULL;
}

bool trm_weight_as_random(const trm_weight *weight, trm_weight_random_view *view)
{
    const trm_weight_base *base = weight->base;
    if (base->kind != TRM_WEIGHT_RANDOM) {
        return false;
    }
    trm_weight_random_view result = {
        .seed = base->seed, .mean = base->mean, .spread = base->spread, .dims = weight->view.dims};
    result.offset = weight->view.offset;
    for (int32_t i = 0; i < weight->view.dims.n; i++) {
        int32_t first = weight->view.first[i], steps = weight->view.first[i + 1] - first;
        if (steps > 1) {
            return false;
        }
        result.strides[i] = steps == 1 ? weight->view.steps[first].stride : 0;
    }
    *view = result;
    return true;
}
