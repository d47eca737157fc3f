/* Compares the tensors of a run with a reference: matched by the name of the whole tensor, in order of computation. */
#include "launcher/cli/compare/compare.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "launcher/cli/onnx/job.h"

/* One tensor on both sides. */
typedef struct row {
    const saved_tensor *found, *expected; /* expected: NULL if a file is the reference */
    char dims[160], place[128];           /* place: of the worst element */
    char why[384];                        /* why it cannot match; "" if it can */
    int32_t rank;                         /* the rank of the worst copy */
    tensor_error error;
    tensor_tolerance tolerance; /* of the error */
    bool holds;
} row;

typedef struct comparison {
    const settings *all;
    const compare_reference *reference;
    const tensor_folder *found;
    const char *title;
    report *r; /* NULL: print a table */
    compare_result *result;
    trm_dtype coarsest; /* of the floats so far: later tensors carry their errors, whatever their own type */
    int32_t rows, differing, only_found, only_expected;
} comparison;

/* ---- matching ------------------------------------------------------------------------------------------ */

/* Finds the reference of a tensor. *there is false if the folder lacks it. */
static trm_status find_expected(const compare_reference *reference, const char *key, const saved_tensor **tensor,
                                tensor_value *value, bool *there)
{
    *tensor = NULL;
    *there = false;
    *value = (tensor_value){0};
    if (reference->folder != NULL) {
        int32_t rank = 0;
        *tensor = tensor_folder_find_best(reference->folder, key, &rank);
        return *tensor == NULL ? TRM_OK : tensor_folder_join(reference->folder, rank, *tensor, value, there);
    }
    const expected_tensor *given = expected_find(reference->files, key);
    if (given != NULL) {
        *value = given->value; /* owned by the caller */
        *there = true;
    }
    return TRM_OK;
}

/* ---- one tensor ---------------------------------------------------------------------------------------- */

/* Notes a type, for the tolerance of later tensors. */
static void note_type(comparison *c, trm_dtype dtype)
{
    c->coarsest = tensor_coarsest(c->all, c->coarsest, dtype);
}

/* The type that determines the tolerance: that of the tensor, even if partial sums were added as f64. */
static void measure(const comparison *c, row *made, const tensor_value *found, const tensor_value *expected,
                    trm_dtype expected_dtype, int32_t rank)
{
    tensor_error error;
    trm_dtype own = made->found->dtype;
    tensor_tolerance tolerance = tensor_tolerance_of(
        c->all, tensor_is_float(own) && tensor_is_float(c->coarsest) ? c->coarsest : own, expected_dtype);
    tensor_error_measure(found, expected, &tolerance, &error);
    bool holds = tensor_error_holds(&error, &tolerance);
    made->holds = made->holds && holds;
    if (made->error.count == 0 || tensor_error_is_worse(&error, &made->error)) {
        made->error = error;
        made->tolerance = tolerance;
        made->rank = rank;
        made->place[0] = '\0';
        if (error.worst >= 0) {
            tensor_error_place(expected, error.worst, made->place, sizeof(made->place));
        }
    }
}

/* Compares the copies on other ranks and keeps the worst. */
static trm_status measure_copies(const comparison *c, row *made, const tensor_value *expected, trm_dtype dtype,
                                 int32_t rank)
{
    const char *key = tensor_folder_key(c->found, made->found);
    for (int32_t r = 0; made->found->part.kind == TRM_PART_WHOLE && r < c->found->n_ranks; r++) {
        const saved_tensor *other = r == rank ? NULL : tensor_folder_find(c->found, r, made->found->name);
        bool is_copy = other != NULL && other->part.kind == TRM_PART_WHOLE && strcmp(other->part.of, key) == 0;
        if (!is_copy || !tensor_same_dims(&other->dims, &expected->dims)) {
            continue;
        }
        tensor_value copy;
        TRM_TRY(tensor_folder_read(c->found, r, other, &copy));
        measure(c, made, &copy, expected, dtype, r);
        tensor_value_fini(&copy);
    }
    return TRM_OK;
}

/* Reads and measures a pair; *there is false if a side has no such tensor. */
static trm_status compare_tensor(const comparison *c, int32_t rank, const saved_tensor *tensor, row *made, bool *there)
{
    *made = (row){.found = tensor, .rank = rank, .holds = true};
    const char *key = tensor_folder_key(c->found, tensor);
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
        if (tensor_same_dims(&found.dims, &expected.dims)) {
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
    printf("%-44s %-18s %-10s %-16s ", "tensor", "kind", "part", "dims");
    tensor_error_print_head();
    putchar('\n');
}

static void print_row(const comparison *c, const row *made)
{
    char part[32] = "";
    if (made->found->part.kind == TRM_PART_SPLIT || made->found->part.kind == TRM_PART_SUMMAND) {
        snprintf(part, sizeof(part), "%s %d", made->found->part.kind == TRM_PART_SPLIT ? "split" : "sum",
                 (int)made->found->part.parts);
    }
    printf("%-44s %-18s %-10s %-16s ", made->found->name, made->found->kind, part, made->dims);
    if (made->why[0] != '\0') {
        printf("%s  differs\n", made->why);
        return;
    }
    tensor_error_print(&made->error);
    if (made->rank != 0 && c->found->n_ranks > 1 && made->found->part.kind == TRM_PART_WHOLE) {
        printf("  on rank %d", (int)made->rank);
    }
    printf("%s\n", made->holds ? "" : "  differs");
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
static void describe_difference(const row *made, const char *title, char *text, size_t size)
{
    const saved_tensor *found = made->found;
    char kernels[256] = "", what[400];
    if (made->expected != NULL && (found->kernel[0] != '\0' || made->expected->kernel[0] != '\0')) {
        snprintf(kernels, sizeof(kernels), ", %s after %s", found->kernel[0] == '\0' ? "no kernel" : found->kernel,
                 made->expected->kernel[0] == '\0' ? "no kernel" : made->expected->kernel);
    }
    if (made->why[0] != '\0') {
        snprintf(what, sizeof(what), "%s", made->why);
    } else {
        tensor_error_describe(&made->error, &made->tolerance, made->place, what, sizeof(what));
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
        for (int32_t i = 0; tensor_folder_begins_group(c->found, rank) && i < c->found->ranks[rank].n; i++) {
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
            c->differing += !made.holds;
            if (!made.holds && c->result->first[0] == '\0') {
                describe_difference(&made, c->title, c->result->first, sizeof(c->result->first));
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

/* Counts tensors that only the reference has. Given files must all be matched. */
static trm_status count_missing(comparison *c)
{
    const compare_reference *reference = c->reference;
    int32_t rank;
    for (int32_t i = 0; reference->files != NULL && i < reference->files->n; i++) {
        const char *name = reference->files->items[i].name;
        if (tensor_folder_find_best(c->found, name, &rank) == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "--expect: the network has no tensor %s, or fuses it away (--every-layer keeps it)", name);
        }
    }
    for (int32_t r = 0; reference->folder != NULL && r < reference->folder->n_ranks; r++) {
        for (int32_t i = 0; tensor_folder_begins_group(reference->folder, r) && i < reference->folder->ranks[r].n;
             i++) {
            const char *key = tensor_folder_key(reference->folder, &reference->folder->ranks[r].tensors[i]);
            c->only_expected += key == NULL || tensor_folder_find_best(c->found, key, &rank) == NULL;
        }
    }
    return TRM_OK;
}

static void print_end(comparison *c)
{
    if (c->r != NULL) {
        report_close(c->r);
        report_integer(c->r, "compared", c->rows);
        report_integer(c->r, "differing", c->differing);
        report_integer(c->r, "only_found", c->only_found);
        report_integer(c->r, "only_reference", c->only_expected);
        report_close(c->r);
        return;
    }
    printf("%d tensor%s on both sides, of which %d differ%s; %d only in %s, %d only in the reference\n", c->rows,
           c->rows == 1 ? "" : "s", c->differing, c->differing == 1 ? "s" : "", c->only_found, c->title,
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
                 as_written
                     ? ": a network with its own collectives does not say which parts of whole tensors its ranks have"
                     : "");
    }
    result->compared += c.rows;
    result->differing += c.differing;
    return TRM_OK;
}
