/* References of outputs: found, read, checked and compared. tensors/tensor_error.c measures how far two tensors differ.
 */
#include "launcher/cli/onnx/expect.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "launcher/cli/tensors/tensor_folder.h"

/* One output as ranks exchange it: the worst of the rank's contexts. */
struct expect_row {
    char output[256], from[512]; /* truncated if longer */
    char dims[160], place[128];
    char why[384]; /* why it cannot match; "" if it can */
    tensor_error error;
    tensor_tolerance tolerance;
    trm_dtype dtype, expected_dtype;
    int32_t rank, context;
    bool is_there, holds; /* is_there: false if a rank has fewer outputs than others */
};

/* ---- references by name -------------------------------------------------------------------------------- */

static void free_item(expected_tensor *item)
{
    if (item->block != NULL) {
        trm_free(item->block);
    } else {
        free(item->value.data);
    }
    free(item->name);
    free(item->from);
}

/* Takes ownership of the data and the block, also on failure. */
static trm_status add_item(expected_list *list, expected_tensor item, const char *name, const char *from)
{
    item.name = strdup(name);
    item.from = strdup(from);
    expected_tensor *to = (expected_tensor *)(uintptr_t)expected_find(list, name);
    if (to == NULL) {
        expected_tensor *grown = realloc(list->items, ((size_t)list->n + 1) * sizeof(*grown));
        list->items = grown != NULL ? grown : list->items;
        to = grown != NULL ? &grown[list->n] : NULL;
        if (to != NULL) {
            *to = (expected_tensor){0};
        }
    }
    if (to == NULL || item.name == NULL || item.from == NULL) {
        free_item(&item);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of references");
    }
    list->n += to->name == NULL;
    free_item(to);
    *to = item;
    return TRM_OK;
}

trm_status expected_add_file(expected_list *list, const char *name, const char *file, const trm_tensor *tensor)
{
    trm_onnx_port port = {.name = name, .type = ""};
    if (tensor != NULL) {
        port.dtype = trm_tensor_dtype(tensor);
        port.has_dims = true;
        port.dims = trm_tensor_dims(tensor);
    }
    trm_onnx_fixed_value *value;
    int32_t n;
    TRM_TRY(onnx_read_file(file, &port, &value, &n));
    if (n != 1 || value->dtype == TRM_DTYPE_NONE) {
        trm_free(value);
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s holds %d tensors, expected one as the reference of %s", file, n, name);
    }
    const expected_tensor item = {
        .value = {value->dtype, value->dims, (void *)(uintptr_t)value->data}, .dtype = value->dtype, .block = value};
    return add_item(list, item, name, file);
}

trm_status expected_add_numbered(expected_list *list, const char *name, const char *folder, int32_t index)
{
    char path[4096];
    bool is_there =
        expected_find(list, name) == NULL && onnx_find_numbered(folder, "output", index, path, sizeof(path));
    return is_there ? expected_add_file(list, name, path, NULL) : TRM_OK;
}

const expected_tensor *expected_find(const expected_list *list, const char *name)
{
    for (int32_t i = 0; list != NULL && i < list->n; i++) {
        if (strcmp(list->items[i].name, name) == 0) {
            return &list->items[i];
        }
    }
    return NULL;
}

void expected_fini(expected_list *list)
{
    for (int32_t i = 0; i < list->n; i++) {
        free_item(&list->items[i]);
    }
    free(list->items);
    *list = (expected_list){0};
}

/* ---- references of outputs ----------------------------------------------------------------------------- */

bool onnx_expects(const settings *all)
{
    return settings_text(all, SETTING_AGAINST) != NULL || all->list_counts[SETTING_EXPECT] > 0;
}

static const trm_tensor *output_of(const onnx_job *j, int32_t index)
{
    return trm_network_output(j->shown, index);
}

static trm_dtype type_of(const onnx_job *j, const char *output)
{
    trm_dtype dtype = TRM_DTYPE_NONE;
    for (int32_t i = 0; i < trm_network_output_count(j->shown); i++) {
        dtype = strcmp(trm_tensor_name(output_of(j, i)), output) == 0 ? trm_tensor_dtype(output_of(j, i)) : dtype;
    }
    return dtype;
}

/* Splits "NAME=FILE" at the longest name that an output has. */
static trm_status read_named(onnx_expect *e, const onnx_job *j, const char *text)
{
    const char *name = NULL, *file = NULL;
    const trm_tensor *tensor = NULL;
    for (int32_t i = 0; i < trm_network_output_count(j->shown); i++) {
        const char *own = trm_tensor_name(output_of(j, i)), *found = onnx_assigned(text, own);
        if (found != NULL && found[0] != '\0' && (file == NULL || found > file)) {
            name = own;
            file = found;
            tensor = output_of(j, i);
        }
    }
    if (file == NULL) {
        return onnx_unknown_output(j, "expect", text);
    }
    return expected_add_file(&e->references, name, file, tensor);
}

/* Reads the outputs of a run saved by compare --save. */
static trm_status read_run(onnx_expect *e, const onnx_job *j, const tensor_folder *run)
{
    const int32_t before = e->references.n;
    for (int32_t i = 0; i < trm_network_output_count(j->shown); i++) {
        const char *name = trm_tensor_name(output_of(j, i));
        int32_t rank = 0;
        bool complete = false;
        expected_tensor item = {0};
        const saved_tensor *saved =
            expected_find(&e->references, name) != NULL ? NULL : tensor_folder_find_best(run, name, &rank);
        TRM_TRY(saved == NULL ? TRM_OK : tensor_folder_join(run, rank, saved, &item.value, &complete));
        if (complete) {
            item.dtype = saved->dtype;
            TRM_TRY(add_item(&e->references, item, name, run->path));
        }
    }
    if (e->references.n == before && before == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the run saved in folder %s has none of the outputs of the network",
                 run->path);
    }
    return TRM_OK;
}

static trm_status read_folder(onnx_expect *e, const onnx_job *j, const char *path)
{
    struct stat found;
    if (stat(path, &found) != 0 || !S_ISDIR(found.st_mode)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--against is \"%s\", but there is no such folder", path);
    }
    if (!tensor_folder_exists(path)) {
        for (int32_t i = 0; i < trm_network_output_count(j->shown); i++) {
            TRM_TRY(expected_add_numbered(&e->references, trm_tensor_name(output_of(j, i)), path, i));
        }
        return TRM_OK;
    }
    tensor_folder run;
    trm_status status = tensor_folder_open(&run, path);
    if (status == TRM_OK) {
        status = read_run(e, j, &run);
    }
    tensor_folder_close(&run);
    return status;
}

/* The dims, with -1 for those known at run time only. */
static bool may_fit(const trm_dims *dims, const trm_dims *expected)
{
    bool fits = dims->n == expected->n;
    for (int32_t i = 0; fits && i < dims->n; i++) {
        fits = dims->d[i] < 0 || dims->d[i] == expected->d[i];
    }
    return fits;
}

static trm_status check_reference(const trm_tensor *output, const expected_tensor *reference)
{
    const trm_dtype own = trm_tensor_dtype(output);
    const trm_dims dims = trm_tensor_dims(output);
    if (own != reference->dtype && !(tensor_is_float(own) && tensor_is_float(reference->dtype))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s holds %s, expected %s for output %s", reference->from,
                 trm_dtype_name(reference->dtype), trm_dtype_name(own), reference->name);
    }
    if (!may_fit(&dims, &reference->value.dims)) {
        char found[160], expected[160];
        onnx_dims_text(&reference->value.dims, found, sizeof(found));
        onnx_dims_text(&dims, expected, sizeof(expected));
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s holds %s, expected %s for output %s", reference->from, found, expected,
                 reference->name);
    }
    return TRM_OK;
}

static trm_status read_references(onnx_expect *e, const onnx_job *j)
{
    const setting_id held[] = {SETTING_ATOL, SETTING_RTOL, SETTING_LIMIT};
    for (size_t i = 0; i < sizeof(held) / sizeof(held[0]) && !onnx_expects(j->all); i++) {
        if (settings_is_option(j->all, held[i])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option %s needs outputs to compare: add --expect or --against",
                     j->all->origins[held[i]]);
        }
    }
    TRM_TRY(tensor_check_limits(j->all));
    for (int32_t i = 0; i < j->all->list_counts[SETTING_EXPECT]; i++) {
        TRM_TRY(read_named(e, j, j->all->lists[SETTING_EXPECT][i]));
    }
    if (settings_text(j->all, SETTING_AGAINST) != NULL) {
        TRM_TRY(read_folder(e, j, settings_text(j->all, SETTING_AGAINST)));
    }
    for (int32_t i = 0; i < trm_network_output_count(j->shown); i++) {
        const expected_tensor *reference = expected_find(&e->references, trm_tensor_name(output_of(j, i)));
        TRM_TRY(reference == NULL ? TRM_OK : check_reference(output_of(j, i), reference));
    }
    return TRM_OK;
}

/* The coarsest float type of this rank's layers. */
static trm_dtype coarsest_of(const onnx_job *j)
{
    trm_dtype coarsest = TRM_DTYPE_NONE;
    trm_layer_info layer;
    for (int32_t i = 0; trm_network_get_layer(j->shown, i, &layer); i++) {
        for (int32_t k = 0; k < layer.n_outputs; k++) {
            coarsest = tensor_coarsest(j->all, coarsest, trm_tensor_dtype(layer.outputs[k]));
        }
    }
    return coarsest;
}

/* Gathers `size` bytes of every rank into `all` [n_ranks, size]. */
static trm_status gather(const onnx_job *j, const void *mine, void *all, size_t size)
{
    const trm_collective_params params = {.op = TRM_ALL_GATHER};
    return trm_world_collective(j->job.world, &params, TRM_U8, mine, all, size, false);
}

trm_status onnx_expect_open(onnx_expect *e, const onnx_job *j)
{
    int32_t all[TRM_MAX_RANKS][2], mine[2], total = 0;
    *e = (onnx_expect){0};
    TRM_TRY(trm_world_all_ok(j->job.world, read_references(e, j)));
    if (!onnx_expects(j->all)) {
        return TRM_OK;
    }
    mine[0] = e->references.n;
    mine[1] = (int32_t)coarsest_of(j);
    TRM_TRY(gather(j, mine, all, sizeof(mine)));
    for (int32_t i = 0; i < trm_world_size(j->job.world); i++) {
        e->most = all[i][0] > e->most ? all[i][0] : e->most;
        e->coarsest = tensor_coarsest(j->all, e->coarsest, (trm_dtype)all[i][1]);
        total += all[i][0];
    }
    if (total == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "folder %s has neither a completed run nor output_0.pb or output_0.npy",
                 settings_text(j->all, SETTING_AGAINST));
    }
    return TRM_OK;
}

void onnx_expect_close(onnx_expect *e)
{
    expected_fini(&e->references);
    free(e->rows);
    *e = (onnx_expect){0};
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

static trm_status local_fit(const onnx_expect *e, trm_context *const *contexts, int32_t n, bool *fits)
{
    *fits = true;
    for (int32_t i = 0; i < e->references.n * n; i++) {
        const expected_tensor *reference = &e->references.items[i / n];
        trm_dims dims;
        const void *data;
        TRM_TRY(trm_context_output(contexts[i % n], reference->name, &dims, &data));
        *fits = *fits && tensor_same_dims(&dims, &reference->value.dims);
    }
    return TRM_OK;
}

trm_status onnx_expect_fits(const onnx_expect *e, const onnx_job *j, trm_context *const *contexts, int32_t n,
                            bool *fits)
{
    uint8_t all[TRM_MAX_RANKS], mine;
    *fits = true;
    if (e->most == 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_world_all_ok(j->job.world, local_fit(e, contexts, n, fits)));
    mine = *fits;
    TRM_TRY(gather(j, &mine, all, sizeof(mine)));
    for (int32_t i = 0; i < trm_world_size(j->job.world); i++) {
        *fits = *fits && all[i] != 0;
    }
    return TRM_OK;
}

/* Whether `row` is worse than `other`, a row of the same output. */
static bool is_worse(const expect_row *row, const expect_row *other)
{
    if ((row->why[0] != '\0') != (other->why[0] != '\0')) {
        return row->why[0] != '\0';
    }
    return row->holds != other->holds ? !row->holds : tensor_error_is_worse(&row->error, &other->error);
}

/* The worse of two. */
static void merge(expect_row *to, const expect_row *row)
{
    if (!to->is_there || is_worse(row, to)) {
        *to = *row;
    }
}

static trm_status measure(const onnx_expect *e, const onnx_job *j, const expected_tensor *reference,
                          trm_context *context, expect_row *row)
{
    const void *data;
    tensor_value found = {.dtype = type_of(j, reference->name)};
    TRM_TRY(trm_context_output(context, reference->name, &found.dims, &data));
    found.data = (void *)(uintptr_t)data;
    row->is_there = true;
    row->dtype = found.dtype;
    row->expected_dtype = reference->dtype;
    snprintf(row->output, sizeof(row->output), "%s", reference->name);
    snprintf(row->from, sizeof(row->from), "%s", reference->from);
    onnx_dims_text(&found.dims, row->dims, sizeof(row->dims));
    if (!tensor_same_dims(&found.dims, &reference->value.dims)) {
        char other[160];
        onnx_dims_text(&reference->value.dims, other, sizeof(other));
        snprintf(row->why, sizeof(row->why), "it is %s, the reference %s", row->dims, other);
        return TRM_OK;
    }
    const bool is_float = tensor_is_float(found.dtype) && tensor_is_float(e->coarsest);
    row->tolerance = tensor_tolerance_of(j->all, is_float ? e->coarsest : found.dtype, reference->dtype);
    tensor_error_measure(&found, &reference->value, &row->tolerance, &row->error);
    row->holds = tensor_error_holds(&row->error, &row->tolerance);
    if (row->error.worst >= 0) {
        tensor_error_place(&found, row->error.worst, row->place, sizeof(row->place));
    }
    return TRM_OK;
}

/* The rows of this rank. */
static trm_status measure_all(const onnx_expect *e, const onnx_job *j, trm_context *const *contexts, int32_t n,
                              expect_row *rows)
{
    for (int32_t i = 0; i < e->references.n; i++) {
        for (int32_t k = 0; k < n; k++) {
            expect_row row = {.rank = trm_world_rank(j->job.world), .context = k};
            TRM_TRY(measure(e, j, &e->references.items[i], contexts[k], &row));
            merge(&rows[i], &row);
        }
    }
    return TRM_OK;
}

/* Merges the rows of all ranks, [n], into one per output. */
static void merge_all(onnx_expect *e, const expect_row *rows, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t k = 0;
        while (rows[i].is_there && k < e->n_rows && strcmp(e->rows[k].output, rows[i].output) != 0) {
            k++;
        }
        if (rows[i].is_there) {
            e->n_rows += k == e->n_rows;
            merge(&e->rows[k], &rows[i]);
        }
    }
    for (int32_t i = 0; i < e->n_rows; i++) {
        e->n_differing += !e->rows[i].holds;
    }
}

trm_status onnx_expect_compare(onnx_expect *e, const onnx_job *j, trm_context *const *contexts, int32_t n)
{
    const size_t most = (size_t)e->most, ranks = (size_t)trm_world_size(j->job.world);
    if (e->most == 0) {
        return TRM_OK;
    }
    expect_row *mine = calloc(most, sizeof(*mine)), *all = calloc(most * ranks, sizeof(*all));
    e->rows = calloc(most * ranks, sizeof(*e->rows));
    e->n_contexts = n;
    trm_status status = mine != NULL && all != NULL && e->rows != NULL
                            ? measure_all(e, j, contexts, n, mine)
                            : trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a comparison of %d outputs", e->most);
    status = trm_world_all_ok(j->job.world, status);
    if (status == TRM_OK) {
        status = gather(j, mine, all, most * sizeof(*mine));
    }
    if (status == TRM_OK) {
        merge_all(e, all, (int32_t)(most * ranks));
    }
    free(mine);
    free(all);
    return status;
}

/* ---- what came of it ----------------------------------------------------------------------------------- */

/* " on rank 1 in stream 2", unless it is the first of several. */
static void place_text(const onnx_expect *e, const expect_row *row, char *text, size_t size)
{
    char rank[32] = "", stream[32] = "";
    if (row->rank > 0) {
        snprintf(rank, sizeof(rank), " on rank %d", (int)row->rank);
    }
    if (e->n_contexts > 1 && row->context > 0) {
        snprintf(stream, sizeof(stream), " in stream %d", (int)row->context);
    }
    snprintf(text, size, "%s%s", rank, stream);
}

void onnx_expect_print(const onnx_expect *e, const settings *all)
{
    if (e->n_rows == 0) {
        return;
    }
    printf("\n%-44s %-6s %-16s ", "output, compared with its reference", "type", "dims");
    tensor_error_print_head();
    putchar('\n');
    for (int32_t i = 0; i < e->n_rows; i++) {
        const expect_row *row = &e->rows[i];
        char place[80];
        if (row->holds && settings_flag(all, SETTING_QUIET)) {
            continue;
        }
        place_text(e, row, place, sizeof(place));
        printf("%-44s %-6s %-16s ", row->output, trm_dtype_name(row->dtype), row->dims);
        if (row->why[0] != '\0') {
            printf("%s", row->why);
        } else {
            tensor_error_print(&row->error);
        }
        printf("%s%s  %s\n", place[0] == '\0' ? "" : " ", place, row->holds ? "holds" : "differs");
    }
    printf("%d output%s compared, of which %d differ%s\n", e->n_rows, e->n_rows == 1 ? "" : "s", e->n_differing,
           e->n_differing == 1 ? "s" : "");
}

static const expect_row *first_difference(const onnx_expect *e)
{
    for (int32_t i = 0; i < e->n_rows; i++) {
        if (!e->rows[i].holds) {
            return &e->rows[i];
        }
    }
    return NULL;
}

/* "output y on rank 1: 12 of 100 elements differ, ..." */
static void describe_difference(const onnx_expect *e, char *text, size_t size)
{
    const expect_row *row = first_difference(e);
    char place[80], what[400];
    if (row == NULL) {
        text[0] = '\0';
        return;
    }
    place_text(e, row, place, sizeof(place));
    if (row->why[0] != '\0') {
        snprintf(what, sizeof(what), "%s", row->why);
    } else {
        tensor_error_describe(&row->error, &row->tolerance, row->place, what, sizeof(what));
    }
    snprintf(text, size, "output %s%s: %s", row->output, place, what);
}

void onnx_expect_report(const onnx_expect *e, report *r)
{
    if (e->n_rows == 0) {
        return;
    }
    char first[1024];
    describe_difference(e, first, sizeof(first));
    report_open(r, "compared", '[');
    for (int32_t i = 0; i < e->n_rows; i++) {
        const expect_row *row = &e->rows[i];
        report_open(r, NULL, '{');
        report_text(r, "output", row->output);
        report_text(r, "dtype", trm_dtype_name(row->dtype));
        report_text(r, "dims", row->dims);
        report_text(r, "reference", row->from);
        report_text(r, "reference_dtype", trm_dtype_name(row->expected_dtype));
        report_integer(r, "rank", row->rank);
        report_integer(r, "stream", row->context);
        report_bool(r, "holds", row->holds);
        report_text(r, "cause", row->why[0] == '\0' ? NULL : row->why);
        tensor_error_report(r, &row->error);
        report_close(r);
    }
    report_close(r);
    report_bool(r, "holds", e->n_differing == 0);
    report_text(r, "first_difference", first[0] == '\0' ? NULL : first);
}

bool onnx_expect_conclude(const onnx_expect *e, bool is_leader)
{
    char first[1024];
    if (e->n_differing > 0 && is_leader) {
        describe_difference(e, first, sizeof(first));
        fflush(stdout);
        fprintf(stderr, "trireme: %d of %d outputs differ, first %s\n", e->n_differing, e->n_rows, first);
    }
    return e->n_differing == 0;
}
