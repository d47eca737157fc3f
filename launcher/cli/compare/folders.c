/* Tensors of a run against a reference: matched by the name of the whole tensor, in the order in which they were made.
 */
#include "launcher/cli/compare/compare.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/cli/onnx/job.h"

/* One tensor on both sides. */
typedef struct row {
    const saved_tensor *found, *expected; /* expected: NULL where a file is the reference */
    char dims[160], place[128];           /* place: of the worst element */
    char why[384];                        /* why it cannot be near; "" */
    int32_t rank;                         /* whose copy the figures are of */
    tensor_error error;
    bool holds;
} row;

typedef struct comparison {
    const settings *all;
    const compare_reference *reference;
    const tensor_folder *found;
    const char *title;
    report *r; /* NULL: a table */
    compare_result *result;
    trm_dtype coarsest; /* of the floats so far: what is computed of them has their errors, whatever its own type */
    int32_t rows, departed, only_found, only_expected;
} comparison;

/* ---- matching ------------------------------------------------------------------------------------------ */

/* The whole tensor that a saved one stands for; NULL for what a pass made after the partition, which has no meaning on
 * another side. */
static const char *key_of(const tensor_folder *folder, const saved_tensor *tensor)
{
    return folder->knows_parts ? tensor->part.of : folder->n_ranks == 1 ? tensor->name : NULL;
}

/* Ranks that begin a tp group, one for each pipeline stage of the first replica. */
static bool begins_group(const tensor_folder *folder, int32_t rank)
{
    return trm_mesh_coordinate(&folder->mesh, TRM_AXIS_TP, rank) == 0 &&
           trm_mesh_coordinate(&folder->mesh, TRM_AXIS_CP, rank) == 0 &&
           trm_mesh_coordinate(&folder->mesh, TRM_AXIS_DP, rank) == 0;
}

/* The form of a tensor that is closest to the whole one. */
static const saved_tensor *find_best(const tensor_folder *folder, const char *key, int32_t *rank)
{
    static const int32_t worth[] = {
        [TRM_PART_UNKNOWN] = 1, [TRM_PART_WHOLE] = 4, [TRM_PART_SPLIT] = 3, [TRM_PART_SUMMAND] = 2};
    const saved_tensor *best = NULL;
    for (int32_t r = 0; r < folder->n_ranks; r++) {
        for (int32_t i = 0; begins_group(folder, r) && i < folder->ranks[r].n; i++) {
            const saved_tensor *tensor = &folder->ranks[r].tensors[i];
            const char *its = key_of(folder, tensor);
            bool is_it = its != NULL && strcmp(its, key) == 0;
            if (is_it && (best == NULL || worth[tensor->part.kind] > worth[best->part.kind])) {
                best = tensor;
                *rank = r;
            }
        }
    }
    return best;
}

/* The reference of a tensor. *there is false where there is none. */
static trm_status find_expected(const compare_reference *reference, const char *key, const saved_tensor **tensor,
                                tensor_value *value, bool *there)
{
    *tensor = NULL;
    *there = false;
    *value = (tensor_value){0};
    if (reference->folder != NULL) {
        int32_t rank = 0;
        *tensor = find_best(reference->folder, key, &rank);
        return *tensor == NULL ? TRM_OK : tensor_folder_join(reference->folder, rank, *tensor, value, there);
    }
    for (int32_t i = 0; i < reference->n_files; i++) {
        if (strcmp(reference->files[i].name, key) == 0) {
            *value = reference->files[i].value; /* stays the caller's */
            *there = true;
        }
    }
    return TRM_OK;
}

static bool same_dims(const trm_dims *a, const trm_dims *b)
{
    bool same = a->n == b->n;
    for (int32_t i = 0; same && i < a->n; i++) {
        same = a->d[i] == b->d[i];
    }
    return same;
}

/* ---- one tensor ---------------------------------------------------------------------------------------- */

/* The coarser of two types decides what is near. */
static tensor_tolerance tolerance_of(const settings *all, trm_dtype a, trm_dtype b)
{
    tensor_tolerance x = tensor_tolerance_for(all, a), y = tensor_tolerance_for(all, b);
    return x.relative > y.relative || x.of_rms > y.of_rms ? x : y;
}

static bool is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F16 || dtype == TRM_BF16 || dtype == TRM_F64;
}

/* Takes a type into account for what comes after it. */
static void note_type(comparison *c, trm_dtype dtype)
{
    tensor_tolerance known = tensor_tolerance_for(c->all, c->coarsest), its = tensor_tolerance_for(c->all, dtype);
    bool is_coarser = its.relative > known.relative || its.of_rms > known.of_rms;
    c->coarsest = is_float(dtype) && (c->coarsest == TRM_DTYPE_NONE || is_coarser) ? dtype : c->coarsest;
}

/* What the figures are measured by: the type of the tensor, also where summands were added up as f64. */
static void measure(const comparison *c, row *made, const tensor_value *found, const tensor_value *expected,
                    trm_dtype expected_dtype, int32_t rank)
{
    tensor_error error;
    trm_dtype own = made->found->dtype;
    tensor_tolerance tolerance =
        tolerance_of(c->all, is_float(own) && is_float(c->coarsest) ? c->coarsest : own, expected_dtype);
    tensor_error_measure(found, expected, &tolerance, &error);
    bool worse = error.outside > made->error.outside ||
                 (error.outside == made->error.outside && error.max_absolute > made->error.max_absolute);
    bool holds = tensor_error_holds(&error, &tolerance);
    made->holds = made->holds && holds;
    if (made->error.count == 0 || worse) {
        made->error = error;
        made->rank = rank;
        made->place[0] = '\0';
        if (error.worst >= 0) {
            tensor_error_place(expected, error.worst, made->place, sizeof(made->place));
        }
    }
}

/* Copies of a whole tensor on other ranks; the worst is kept. */
static trm_status measure_copies(const comparison *c, row *made, const tensor_value *expected, trm_dtype dtype,
                                 int32_t rank)
{
    const char *key = key_of(c->found, made->found);
    for (int32_t r = 0; made->found->part.kind == TRM_PART_WHOLE && r < c->found->n_ranks; r++) {
        const saved_tensor *other = r == rank ? NULL : tensor_folder_find(c->found, r, made->found->name);
        bool is_copy = other != NULL && other->part.kind == TRM_PART_WHOLE && strcmp(other->part.of, key) == 0;
        if (!is_copy || !same_dims(&other->dims, &expected->dims)) {
            continue;
        }
        tensor_value copy;
        TRM_TRY(tensor_folder_read(c->found, r, other, &copy));
        measure(c, made, &copy, expected, dtype, r);
        tensor_value_fini(&copy);
    }
    return TRM_OK;
}

/* Reads and measures; *there is false where a side has no such tensor. */
static trm_status compare_tensor(const comparison *c, int32_t rank, const saved_tensor *tensor, row *made, bool *there)
{
    *made = (row){.found = tensor, .rank = rank, .holds = true};
    const char *key = key_of(c->found, tensor);
    tensor_value found = {0}, expected = {0};
    *there = false;
    if (key == NULL) {
        return TRM_OK;
    }
    trm_status status = find_expected(c->reference, key, &made->expected, &expected, there);
    if (status == TRM_OK && *there) {
        status = tensor_folder_join(c->found, rank, tensor, &found, there);
    }
    if (status == TRM_OK && *there) {
        trm_dtype dtype = made->expected != NULL ? made->expected->dtype : expected.dtype;
        char other[160];
        onnx_dims_text(&found.dims, made->dims, sizeof(made->dims));
        if (same_dims(&found.dims, &expected.dims)) {
            measure(c, made, &found, &expected, dtype, rank);
            status = measure_copies(c, made, &expected, dtype, rank);
        } else {
            made->holds = false;
            onnx_dims_text(&expected.dims, other, sizeof(other));
            snprintf(made->why, sizeof(made->why), "it is %s, the reference %s", made->dims, other);
        }
    }
    tensor_value_fini(&found);
    if (c->reference->folder != NULL) {
        tensor_value_fini(&expected);
    }
    return status;
}

/* ---- printing ------------------------------------------------------------------------------------------ */

static void print_head(const comparison *c)
{
    printf("%s, compared with %s\n", c->title, c->reference->title);
    printf("%-44s %-18s %-10s %-16s %10s %10s %10s %11s %9s\n", "tensor", "kind", "part", "dims", "max abs", "max rel",
           "mean abs", "1 - cosine", "outside");
}

static void print_row(const comparison *c, const row *made)
{
    char part[32] = "";
    const tensor_error *e = &made->error;
    if (made->found->part.kind == TRM_PART_SPLIT || made->found->part.kind == TRM_PART_SUMMAND) {
        snprintf(part, sizeof(part), "%s %d", made->found->part.kind == TRM_PART_SPLIT ? "split" : "sum",
                 (int)made->found->part.parts);
    }
    printf("%-44s %-18s %-10s %-16s ", made->found->name, made->found->kind, part, made->dims);
    if (made->why[0] != '\0') {
        printf("%s  departs\n", made->why);
        return;
    }
    printf("%10.3g %10.3g %10.3g %11.3g %8.3g%%", e->max_absolute, e->max_relative, e->mean_absolute,
           e->cosine < 1 ? 1 - e->cosine : 0, e->count == 0 ? 0 : 100.0 * (double)e->outside / (double)e->count);
    if (e->nan_found + e->nan_expected + e->infinite_found + e->infinite_expected > 0) {
        printf("  NaN %lld (%lld), infinite %lld (%lld)", (long long)e->nan_found, (long long)e->nan_expected,
               (long long)e->infinite_found, (long long)e->infinite_expected);
    }
    if (made->rank != 0 && c->found->n_ranks > 1 && made->found->part.kind == TRM_PART_WHOLE) {
        printf("  on rank %d", (int)made->rank);
    }
    printf("%s\n", made->holds ? "" : "  departs");
}

static void report_row(report *r, const row *made)
{
    report_open(r, NULL, '{');
    report_text(r, "tensor", made->found->name);
    report_text(r, "of", made->found->part.of);
    report_text(r, "part", trm_part_kind_name(made->found->part.kind));
    report_integer(r, "parts", made->found->part.parts);
    report_text(r, "layer", made->found->layer);
    report_text(r, "kind", made->found->kind);
    report_text(r, "kernel", made->found->kernel);
    report_text(r, "reference_kernel", made->expected == NULL ? NULL : made->expected->kernel);
    report_text(r, "dtype", trm_dtype_name(made->found->dtype));
    report_text(r, "dims", made->dims);
    report_integer(r, "rank", made->rank);
    report_bool(r, "holds", made->holds);
    report_text(r, "cause", made->why[0] == '\0' ? NULL : made->why);
    tensor_error_report(r, &made->error);
    report_close(r);
}

/* "layer conv1 (convolution; reference kernel a, kernel b), tensor conv1: 12 of 100 elements ..." */
static void describe_departure(const row *made, const char *title, char *text, size_t size)
{
    const tensor_error *e = &made->error;
    const saved_tensor *found = made->found;
    char kernels[256] = "", what[400];
    if (made->expected != NULL && (found->kernel[0] != '\0' || made->expected->kernel[0] != '\0')) {
        snprintf(kernels, sizeof(kernels), ", %s after %s", found->kernel[0] == '\0' ? "no kernel" : found->kernel,
                 made->expected->kernel[0] == '\0' ? "no kernel" : made->expected->kernel);
    }
    if (made->why[0] != '\0') {
        snprintf(what, sizeof(what), "%s", made->why);
    } else {
        snprintf(what, sizeof(what), "%lld of %lld elements are off, at %s it is %.6g, expected %.6g",
                 (long long)e->outside, (long long)e->count, made->place, e->worst_found, e->worst_expected);
    }
    char rank[32] = "";
    if (made->rank > 0) {
        snprintf(rank, sizeof(rank), ", rank %d", (int)made->rank);
    }
    snprintf(text, size, "%s%s: layer %s (%s%s), tensor %s: %s", title, rank, found->layer, found->kind, kernels,
             found->name, what);
}

/* ---- all tensors --------------------------------------------------------------------------------------- */

static trm_status compare_all(comparison *c)
{
    for (int32_t rank = 0; rank < c->found->n_ranks; rank++) {
        for (int32_t i = 0; begins_group(c->found, rank) && i < c->found->ranks[rank].n; i++) {
            row made;
            bool there;
            note_type(c, c->found->ranks[rank].tensors[i].dtype);
            TRM_TRY(compare_tensor(c, rank, &c->found->ranks[rank].tensors[i], &made, &there));
            if (!there) {
                c->only_found++;
                continue;
            }
            note_type(c, made.expected != NULL ? made.expected->dtype : TRM_DTYPE_NONE);
            c->rows++;
            c->departed += !made.holds;
            if (!made.holds && c->result->first[0] == '\0') {
                describe_departure(&made, c->title, c->result->first, sizeof(c->result->first));
            }
            if (c->r != NULL) {
                report_row(c->r, &made);
            } else if (!settings_flag(c->all, SETTING_QUIET) || !made.holds) {
                print_row(c, &made);
            }
        }
    }
    return TRM_OK;
}

/* Tensors of the reference that the other side has not; given files must all be found. */
static trm_status count_missing(comparison *c)
{
    const compare_reference *reference = c->reference;
    int32_t rank;
    for (int32_t i = 0; i < reference->n_files; i++) {
        if (find_best(c->found, reference->files[i].name, &rank) == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "tensor %s, for which a reference is given, is not made by the network, or fused away: "
                     "--every-layer keeps it",
                     reference->files[i].name);
        }
    }
    for (int32_t r = 0; reference->folder != NULL && r < reference->folder->n_ranks; r++) {
        for (int32_t i = 0; begins_group(reference->folder, r) && i < reference->folder->ranks[r].n; i++) {
            const char *key = key_of(reference->folder, &reference->folder->ranks[r].tensors[i]);
            c->only_expected += key == NULL || find_best(c->found, key, &rank) == NULL;
        }
    }
    return TRM_OK;
}

static void print_end(comparison *c)
{
    if (c->r != NULL) {
        report_close(c->r);
        report_integer(c->r, "compared", c->rows);
        report_integer(c->r, "departed", c->departed);
        report_integer(c->r, "only_found", c->only_found);
        report_integer(c->r, "only_reference", c->only_expected);
        report_close(c->r);
        return;
    }
    printf("%d tensor%s on both sides, of which %d depart%s; %d only in %s, %d only in the reference\n", c->rows,
           c->rows == 1 ? "" : "s", c->departed, c->departed == 1 ? "s" : "", c->only_found, c->title,
           c->only_expected);
}

trm_status compare_folders(const settings *all, const compare_reference *reference, const tensor_folder *found,
                           const char *title, report *r, compare_result *result)
{
    comparison c = {.all = all, .reference = reference, .found = found, .title = title, .r = r, .result = result};
    TRM_TRY(count_missing(&c));
    if (r != NULL) {
        report_open(r, NULL, '{');
        report_text(r, "run", title);
        report_text(r, "reference", reference->title);
        report_open(r, "tensors", '[');
    } else {
        print_head(&c);
    }
    TRM_TRY(compare_all(&c));
    print_end(&c);
    if (c.rows == 0) {
        bool as_written = !found->knows_parts && found->n_ranks > 1;
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "no tensor of %s is in %s%s", title, reference->title,
                 as_written ? ": what ranks have of whole tensors is not known of a network with collectives of its own"
                            : "");
    }
    result->compared += c.rows;
    result->departed += c.departed;
    return TRM_OK;
}
