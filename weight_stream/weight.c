/*
 * Weights: bases and who owns them, weights of each kind of base, comparison. Derived weights are in weight_derive.c
 * and weight_recode.c, files in weight_file.c, reading in weight_read.c.
 */
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "weight_stream/weight_internal.h"

/* ---- dims ------------------------------------------------------------------------------------------ */

void trm_weight_print_dims(const trm_dims *dims, char text[160])
{
    size_t used = (size_t)snprintf(text, 160, "[");
    for (int32_t i = 0; i < dims->n && i < TRM_MAX_DIMS && used < 140; i++) {
        used += (size_t)snprintf(text + used, 160 - used, "%s%lld", i == 0 ? "" : ", ", (long long)dims->d[i]);
    }
    snprintf(text + used, 160 - used, "]");
}

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
        trm_weight_print_dims(dims, text);
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight of dims %s exceeds the address space", text);
    }
    *count = empty ? 0 : elements;
    return TRM_OK;
}

/* ---- bases ----------------------------------------------------------------------------------------- */

static trm_weight_base *create_base(trm_weight_base_kind kind, trm_dtype dtype, const trm_dims *dims)
{
    trm_weight_base *base = calloc(1, sizeof(*base));
    if (base == NULL) {
        trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a weight");
        return NULL;
    }
    atomic_init(&base->references, 1);
    base->kind = kind;
    base->terms = 1;
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
    free(base->memo);
    free(base->name);
    trm_weight_file_release(base->file);
    free(base);
}

/* ---- weights of a base ----------------------------------------------------------------------------- */

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
    result->count = trm_weight_extent(&view->dims, 0, view->dims.n);
    trm_weight_view_runs(view, &result->runs);
    if (base->kind == TRM_WEIGHT_JOINED && base->n_parts == 1 && trm_weight_is_join(result)) {
        trm_status status = trm_weight_clone(base->parts[0], weight); /* back at the start of the nesting */
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

trm_status trm_weight_zeros(trm_dtype dtype, const trm_dims *dims, trm_weight **weight)
{
    trm_weight_base *base = create_base(TRM_WEIGHT_ZEROS, dtype, dims);
    return base == NULL ? TRM_ERROR_OUT_OF_MEMORY : create_whole(base, weight);
}

/* Whether its elements are contiguous in the base. */
static bool is_one_run(const trm_weight *weight)
{
    return weight->runs.n == 0 || (weight->runs.n == 1 && weight->runs.steps[0].stride == 1);
}

bool trm_weight_is_join(const trm_weight *weight)
{
    const trm_weight_base *base = weight->base;
    return base->kind == TRM_WEIGHT_JOINED && trm_weight_same_dims(&weight->view.dims, &base->dims) &&
           weight->view.offset == 0 && is_one_run(weight) &&
           weight->count == trm_weight_extent(&base->dims, 0, base->dims.n);
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

void trm_weight_parts_destroy(trm_weight **parts, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        trm_weight_destroy(parts[i]);
    }
    free(parts);
}

trm_weight **trm_weight_parts_create(int32_t n)
{
    trm_weight **parts = calloc((size_t)n, sizeof(trm_weight *));
    if (parts == NULL) {
        trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a weight of %d parts", n);
    }
    return parts;
}

/* Walking through a weight recurses, and files may nest parts. */
#define MOST_DEPTH 32

static trm_status depth_of(trm_weight *const *parts, int32_t n, int32_t *depth)
{
    *depth = 0;
    for (int32_t i = 0; i < n; i++) {
        *depth = parts[i]->base->depth >= *depth ? parts[i]->base->depth + 1 : *depth;
    }
    if (*depth > MOST_DEPTH) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "weights are nested more than %d deep", MOST_DEPTH);
    }
    return TRM_OK;
}

/* Makes a base of the parts, which it takes over with their array, also when it fails. */
static trm_status join_parts(trm_weight **parts, int32_t n, int32_t axis, trm_weight_base **base)
{
    int32_t depth;
    const trm_status status = depth_of(parts, n, &depth);
    if (status != TRM_OK) {
        trm_weight_parts_destroy(parts, n);
        return status;
    }
    trm_weight_base *result = create_base(TRM_WEIGHT_JOINED, parts[0]->base->dtype, &parts[0]->view.dims);
    size_t *starts = calloc((size_t)n + 1, sizeof(*starts));
    if (result == NULL || starts == NULL) {
        trm_weight_parts_destroy(parts, n);
        free(starts);
        release_base(result);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a weight of %d parts", n);
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t terms = parts[i]->base->terms;
        result->terms = terms > result->terms ? terms : result->terms;
        starts[i + 1] = starts[i] + trm_weight_extent(&parts[i]->view.dims, axis, parts[i]->view.dims.n);
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

/* A weight whose base is `weight`, so that any reshape or slice of it is again a simple view. */
static trm_status create_nested(const trm_weight *weight, trm_weight_base **base)
{
    trm_weight **parts = trm_weight_parts_create(1);
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

trm_status trm_weight_nest(const trm_weight *weight, const trm_weight_view *view, trm_weight **nested)
{
    trm_weight_base *base = NULL;
    TRM_TRY(create_nested(weight, &base));
    return create_weight(base, view, nested);
}

trm_status trm_weight_join(trm_weight **parts, int32_t n, int32_t axis, trm_weight **joined)
{
    trm_weight_base *base = NULL;
    TRM_TRY(join_parts(parts, n, axis, &base));
    return create_whole(base, joined);
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
    if (code == TRM_WEIGHT_CODE_LARGEST) {
        base->memo = calloc(count, sizeof(*base->memo));
        if (base->memo == NULL) {
            release_base(base);
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the largest magnitudes of %zu rows", count);
        }
    }
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

/* Reading visits all of them for every element, and files may name a part twice at every level. */
#define MOST_TERMS 256

trm_status trm_weight_compute(trm_weight_op op, trm_dtype dtype, const trm_weight *a, const trm_weight *b,
                              trm_weight **computed)
{
    const trm_weight *const operands[] = {a, b};
    const int32_t n = b == NULL ? 1 : 2;
    trm_dims dims;
    size_t inner[2] = {0}, count;
    int32_t terms = 0;
    TRM_TRY(trm_weight_check_compute(op, dtype, operands, n, &dims, inner));
    TRM_TRY(trm_weight_count_elements(dtype, &dims, &count));
    if (count == 0) {
        return trm_weight_zeros(dtype, &dims, computed);
    }
    for (int32_t i = 0; i < n; i++) {
        terms += operands[i]->base->terms;
    }
    if (terms > MOST_TERMS) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "a weight is computed from %d others, expected at most %d", terms, MOST_TERMS);
    }
    trm_weight **parts = trm_weight_parts_create(n);
    trm_status status = parts == NULL ? TRM_ERROR_OUT_OF_MEMORY : trm_weight_clone(a, &parts[0]);
    if (status == TRM_OK && n == 2) {
        status = trm_weight_clone(b, &parts[1]);
    }
    if (status != TRM_OK) {
        if (parts != NULL) {
            trm_weight_parts_destroy(parts, n);
        }
        return status;
    }
    trm_weight_base *base = NULL;
    TRM_TRY(join_parts(parts, n, 0, &base)); /* keeps the parts */
    base->kind = TRM_WEIGHT_COMPUTED;
    base->dtype = dtype;
    base->dims = dims;
    base->terms = terms;
    base->op = op;
    memcpy(base->inner, inner, sizeof(base->inner));
    return create_whole(base, computed);
}

trm_status trm_weight_of_view(const trm_weight *weight, const trm_weight_view *view, trm_weight **result)
{
    return create_weight(retain_base(weight->base), view, result);
}

trm_status trm_weight_of_join(const trm_weight *const *parts, int32_t n, int32_t axis, const trm_weight_view *view,
                              trm_weight **result)
{
    trm_weight **copies = trm_weight_parts_create(n);
    if (copies == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    for (int32_t i = 0; i < n; i++) {
        trm_status status = trm_weight_clone(parts[i], &copies[i]);
        if (status != TRM_OK) {
            trm_weight_parts_destroy(copies, i);
            return status;
        }
    }
    trm_weight_base *base = NULL;
    TRM_TRY(join_parts(copies, n, axis, &base));
    return create_weight(base, view, result);
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

bool trm_weight_same_base(const trm_weight_base *a, const trm_weight_base *b)
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
    case TRM_WEIGHT_COMPUTED:
        if (a->op != b->op) {
            return false;
        }
        break;
    case TRM_WEIGHT_JOINED:
        break;
    }
    if (a->n_parts != b->n_parts || a->axis != b->axis || !trm_weight_same_dims(&a->dims, &b->dims)) {
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
    if (!trm_weight_same_dims(&a->view.dims, &b->view.dims) || !trm_weight_same_base(a->base, b->base)) {
        return false;
    }
    if (trm_weight_is_zeros(a)) {
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
