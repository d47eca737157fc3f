/*
 * A case's inputs come from files. Those that must be known when the network is built (sequences, and tensors that
 * decide ranks) are fixed; which ones those are is found out by building: the fewest that let it succeed. Where none
 * is, one context runs all data sets, whatever their dims, and the first one again.
 *
 * Results are compared as ONNX's own runner does: |a - b| <= atol + rtol * |b|, NaN equal to NaN, integers the same.
 */
#include "conformance/onnx_case.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/element.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

#define MOST_PORTS 64
#define MOST_SETS  16

struct conformance_world {
    trm_backend backend;
    trm_mesh mesh;
    trm_world *world;
};

/* The values of one input or output in a data set. */
typedef struct value {
    trm_onnx_port port;
    trm_onnx_fixed_value *items; /* [n]; NULL: the file is not there */
    int32_t n;
    bool fixed;
} value;

typedef struct data_set {
    value inputs[MOST_PORTS], outputs[MOST_PORTS];
    int32_t n_inputs, n_outputs;
    double rtol, atol;
} data_set;

/* ---- life ---------------------------------------------------------------------------------------------- */

static void explain(conformance_result *result, const char *format, ...) TRM_PRINTF(2, 3);
static void explain(conformance_result *result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(result->text, sizeof(result->text), format, arguments);
    va_end(arguments);
}

static void set_cause(conformance_result *result, trm_status status, const char *what)
{
    result->outcome = status == TRM_ERROR_UNSUPPORTED ? CONFORMANCE_UNSUPPORTED : CONFORMANCE_FAILED;
    explain(result, "%s%s", what, trm_last_error());
}

bool conformance_open(trm_backend backend, const char *mesh, conformance_world **world, conformance_result *result)
{
    conformance_world *opened = calloc(1, sizeof(*opened));
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = backend;
    options.threads = 1;
    options.no_bind = true;
    trm_status status = opened == NULL ? TRM_ERROR_OUT_OF_MEMORY : trm_world_open(&options, &opened->world);
    if (status == TRM_OK) {
        status = trm_mesh_parse(mesh, trm_world_size(opened->world), &opened->mesh);
    }
    if (status != TRM_OK) {
        set_cause(result, status, "");
        trm_world_close(opened == NULL ? NULL : opened->world);
        free(opened);
        return false;
    }
    opened->backend = backend;
    *world = opened;
    return true;
}

int32_t conformance_rank(const conformance_world *world)
{
    return trm_world_rank(world->world);
}

void conformance_close(conformance_world *world)
{
    trm_world_close(world->world);
    free(world);
}

static void free_data(data_set *data)
{
    for (int32_t i = 0; i < data->n_inputs; i++) {
        trm_free(data->inputs[i].items);
    }
    for (int32_t i = 0; i < data->n_outputs; i++) {
        trm_free(data->outputs[i].items);
    }
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static void read_tolerances(const char *folder, data_set *data)
{
    char path[4096];
    trm_json_document *document;
    data->rtol = 1e-3;
    data->atol = 1e-7;
    snprintf(path, sizeof(path), "%s/data.json", folder);
    if (trm_file_exists(path) && trm_json_read(path, 1 << 20, &document) == TRM_OK) {
        data->rtol = trm_json_number(trm_json_get(trm_json_root(document), "rtol"), data->rtol);
        data->atol = trm_json_number(trm_json_get(trm_json_root(document), "atol"), data->atol);
        trm_json_close(document);
    }
}

static trm_status read_value(const char *folder, int set, const char *kind, int32_t index, value *to)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/test_data_set_%d/%s_%d.pb", folder, set, kind, index);
    if (!trm_file_exists(path)) {
        return TRM_OK;
    }
    TRM_TRY(trm_onnx_read_value(path, to->port.type, &to->items, &to->n));
    for (int32_t i = 0; i < to->n; i++) {
        to->items[i].input = to->port.name;
    }
    return TRM_OK;
}

static trm_status read_data(trm_onnx *model, const char *folder, int set, data_set *data)
{
    *data = (data_set){0};
    read_tolerances(folder, data);
    for (int32_t i = 0; i < MOST_PORTS && trm_onnx_get_input(model, i, &data->inputs[i].port); i++) {
        data->n_inputs++;
        TRM_TRY(read_value(folder, set, "input", i, &data->inputs[i]));
    }
    for (int32_t i = 0; i < MOST_PORTS && trm_onnx_get_output(model, i, &data->outputs[i].port); i++) {
        data->n_outputs++;
        TRM_TRY(read_value(folder, set, "output", i, &data->outputs[i]));
    }
    return TRM_OK;
}

/* ---- building ------------------------------------------------------------------------------------------ */

static trm_status build_network(trm_onnx *model, const data_set *data, trm_network **network)
{
    trm_onnx_fixed_value fixed[256];
    trm_onnx_input_dims dims[MOST_PORTS];
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    options.values = fixed;
    options.inputs = dims;
    for (int32_t i = 0; i < data->n_inputs; i++) {
        const value *input = &data->inputs[i];
        for (int32_t k = 0; input->fixed && k < input->n && options.n_values < 256; k++) {
            fixed[options.n_values++] = input->items[k];
        }
        if (!input->fixed && !input->port.has_dims && input->n == 1) {
            dims[options.n_inputs++] = (trm_onnx_input_dims){input->port.name, input->items[0].dims};
        }
    }
    return trm_onnx_build_network(model, &options, network);
}

static bool builds(trm_onnx *model, const data_set *data)
{
    trm_network *network;
    if (build_network(model, data, &network) != TRM_OK) {
        return false;
    }
    trm_network_destroy(network);
    return true;
}

/* Fixes the fewest inputs that let the network be built; none more where nothing helps. */
static void choose_fixed(trm_onnx *model, data_set *data)
{
    for (int32_t i = 0; i < data->n_inputs; i++) {
        value *input = &data->inputs[i];
        input->fixed = strncmp(input->port.type, "sequence", 8) == 0 || strncmp(input->port.type, "optional", 8) == 0;
    }
    if (builds(model, data)) {
        return;
    }
    bool tried[MOST_PORTS] = {false};
    for (int32_t i = 0; i < data->n_inputs; i++) {
        tried[i] = !data->inputs[i].fixed && data->inputs[i].n == 1;
        data->inputs[i].fixed = data->inputs[i].fixed || tried[i];
    }
    bool helps = builds(model, data);
    for (int32_t i = 0; i < data->n_inputs; i++) {
        if (tried[i]) {
            data->inputs[i].fixed = false;
            data->inputs[i].fixed = helps && !builds(model, data);
        }
    }
}

/* Says which tensors were fixed, though a network could have had them as inputs. */
static void tell_fixed(const data_set *data, conformance_result *result)
{
    size_t used = 0;
    for (int32_t i = 0; i < data->n_inputs && used < sizeof(result->text); i++) {
        const value *input = &data->inputs[i];
        if (input->fixed && input->port.dtype != TRM_DTYPE_NONE) {
            used += (size_t)snprintf(result->text + used, sizeof(result->text) - used, "%s%s",
                                     used == 0 ? "fixed: " : ", ", input->port.name);
        }
    }
}

/* Elementwise the smaller or larger of dims of two data sets. */
static trm_dims extreme_dims(const data_set *sets, int n, int32_t input, bool largest)
{
    trm_dims dims = sets[0].inputs[input].items[0].dims;
    for (int k = 1; k < n; k++) {
        const trm_dims *other = &sets[k].inputs[input].items[0].dims;
        for (int32_t i = 0; i < dims.n; i++) {
            bool more = other->d[i] > dims.d[i];
            dims.d[i] = more == largest ? other->d[i] : dims.d[i];
        }
    }
    return dims;
}

/* What the plan becomes when it is written to a file and read again. */
static trm_status through_file(const conformance_world *world, const trm_network *network, trm_build_options *options,
                               const char *folder, trm_plan **plan)
{
    trm_plan *all[16] = {NULL};
    int32_t n = trm_world_size(world->world), rank = options->rank;
    char path[4096];
    trm_status status = TRM_OK;
    snprintf(path, sizeof(path), "%s.%d", folder, (int)rank);
    for (options->rank = 0; status == TRM_OK && options->rank < n && options->rank < 16; options->rank++) {
        status = trm_build(network, options, &all[options->rank]);
    }
    options->rank = rank;
    if (status == TRM_OK) {
        status = trm_plan_save((const trm_plan *const *)all, n, false, path);
    }
    for (int32_t i = 0; i < n && i < 16; i++) {
        trm_plan_destroy(all[i]);
    }
    TRM_TRY(status);
    return trm_plan_load(path, rank, plan);
}

/* A plan for the dims of all sets. */
static trm_status build_plan(const conformance_world *world, const trm_network *network, const data_set *sets, int n,
                             trm_plan **plan)
{
    trm_shape_bound bounds[MOST_PORTS];
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = world->backend;
    options.mesh = world->mesh;
    options.rank = trm_world_rank(world->world);
    options.bounds = bounds;
    for (int32_t i = 0; i < sets[0].n_inputs; i++) {
        const value *input = &sets[0].inputs[i];
        const trm_tensor *tensor = trm_network_find_tensor(network, input->port.name);
        if (tensor != NULL && !input->fixed && input->n == 1) {
            trm_shape_bound bound = {.tensor = input->port.name, .max = extreme_dims(sets, n, i, true)};
            if (n == 1) { /* the values too: they may decide dims */
                bound.max_values = input->items[0].data;
            } else {
                bound.min = extreme_dims(sets, n, i, false);
            }
            bounds[options.n_bounds++] = bound;
        }
    }
    const char *path = getenv("TRM_TEST_PLAN_FILE"); /* runs what comes back from a plan file */
    return path != NULL ? through_file(world, network, &options, path, plan) : trm_build(network, &options, plan);
}

static trm_status build_engine(conformance_world *world, const trm_network *network, const data_set *sets, int n,
                               trm_engine **engine)
{
    trm_plan *plan;
    TRM_TRY(build_plan(world, network, sets, n, &plan));
    trm_weight_budget budget;
    const char *asked = getenv("TRM_TEST_WEIGHT_BUDGET"), *host_bytes = getenv("TRM_TEST_WEIGHT_HOST_BYTES");
    if (asked != NULL) {
        trm_status status = trm_weight_budget_parse(asked, &budget);
        budget.host_bytes = host_bytes == NULL ? 0 : (size_t)strtoull(host_bytes, NULL, 10);
        status = status == TRM_OK ? trm_plan_set_weight_budget(plan, &budget) : status;
        if (status != TRM_OK) {
            trm_plan_destroy(plan);
            return status;
        }
    }
    return trm_engine_create(plan, world->world, NULL, NULL, engine);
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

static bool is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F64 || dtype == TRM_F16 || dtype == TRM_BF16;
}

static int64_t count_of(const trm_dims *dims)
{
    int64_t count = 1;
    for (int32_t i = 0; i < dims->n; i++) {
        count *= dims->d[i];
    }
    return count;
}

static void dims_text(const trm_dims *dims, char text[120])
{
    size_t used = (size_t)snprintf(text, 120, "[");
    for (int32_t i = 0; i < dims->n && used < 100; i++) {
        used += (size_t)snprintf(text + used, 120 - used, "%s%lld", i == 0 ? "" : ", ", (long long)dims->d[i]);
    }
    snprintf(text + used, 120 - used, "]");
}

static bool same_elements(const data_set *data, const char *name, const trm_onnx_fixed_value *expected,
                          const void *found, conformance_result *result)
{
    trm_dtype dtype = expected->dtype;
    int64_t count = count_of(&expected->dims), wrong = 0, first = -1;
    /* The 16-bit types round to 11 and 8 bits; references are computed in them or beside them. */
    double rtol = dtype == TRM_F16 ? fmax(data->rtol, 4e-3) : dtype == TRM_BF16 ? fmax(data->rtol, 2e-2) : data->rtol;
    double atol = dtype == TRM_F16 ? fmax(data->atol, 1e-4) : dtype == TRM_BF16 ? fmax(data->atol, 1e-3) : data->atol;
    size_t size = trm_dtype_size(dtype);
    for (int64_t i = 0; i < count; i++) {
        bool same;
        if (is_float(dtype)) {
            double a = trm_element_as_double(dtype, found, i), b = trm_element_as_double(dtype, expected->data, i);
            same = a == b || (isnan(a) && isnan(b)) ||
                   (isfinite(a) && isfinite(b) && fabs(a - b) <= atol + rtol * fabs(b));
        } else {
            same = memcmp((const char *)found + (size_t)i * size, (const char *)expected->data + (size_t)i * size,
                          size) == 0;
        }
        first = same || first >= 0 ? first : i;
        wrong += !same;
    }
    if (wrong > 0 && is_float(dtype)) {
        explain(result, "output %s: %lld of %lld elements differ, element %lld is %.7g, expected %.7g", name,
                (long long)wrong, (long long)count, (long long)first, trm_element_as_double(dtype, found, first),
                trm_element_as_double(dtype, expected->data, first));
    } else if (wrong > 0) {
        unsigned long long a = 0, b = 0;
        memcpy(&a, (const char *)found + (size_t)first * size, size);
        memcpy(&b, (const char *)expected->data + (size_t)first * size, size);
        explain(result, "output %s: %lld of %lld elements differ, element %lld is %#llx, expected %#llx", name,
                (long long)wrong, (long long)count, (long long)first, a, b);
    }
    return wrong == 0;
}

static bool same_tensor(trm_context *context, const trm_network *network, const data_set *data, const char *name,
                        const trm_onnx_fixed_value *expected, conformance_result *result)
{
    trm_dims dims;
    const void *found;
    const trm_tensor *tensor = trm_network_find_tensor(network, name);
    if (tensor == NULL || trm_context_output(context, name, &dims, &found) != TRM_OK) {
        explain(result, "output %s: %s", name, tensor == NULL ? "not in the network" : trm_last_error());
        return false;
    }
    if (trm_tensor_dtype(tensor) != expected->dtype) {
        explain(result, "output %s is of type %s, expected %s", name, trm_dtype_name(trm_tensor_dtype(tensor)),
                trm_dtype_name(expected->dtype));
        return false;
    }
    bool same = dims.n == expected->dims.n;
    for (int32_t i = 0; same && i < dims.n; i++) {
        same = dims.d[i] == expected->dims.d[i];
    }
    if (!same) {
        char a[120], b[120];
        dims_text(&dims, a);
        dims_text(&expected->dims, b);
        explain(result, "output %s has dims %s, expected %s", name, a, b);
        return false;
    }
    return same_elements(data, name, expected, found, result);
}

static bool same_output(trm_context *context, const trm_network *network, const data_set *data, const value *output,
                        conformance_result *result)
{
    if (output->items == NULL || output->port.name[0] == '\0') {
        return true; /* not asked for */
    }
    bool list = strstr(output->port.type, "sequence") != NULL;
    int32_t n = output->n == 1 && output->items[0].dtype == TRM_DTYPE_NONE ? 0 : output->n;
    char name[512];
    for (int32_t i = 0; i < n; i++) {
        snprintf(name, sizeof(name), list ? "%s.%d" : "%s", output->port.name, (int)i);
        if (!same_tensor(context, network, data, name, &output->items[i], result)) {
            return false;
        }
    }
    snprintf(name, sizeof(name), list ? "%s.%d" : "%s", output->port.name, (int)n);
    if (n != 1 && trm_network_find_tensor(network, name) != NULL) {
        explain(result, "output %s has more than %d elements", output->port.name, (int)n);
        return false;
    }
    return true;
}

/* ---- the case ------------------------------------------------------------------------------------------ */

static trm_status run_context(trm_context *context, const data_set *data)
{
    for (int32_t i = 0; i < data->n_inputs; i++) {
        const value *input = &data->inputs[i];
        if (!input->fixed && input->n == 1) {
            TRM_TRY(trm_context_set_input(context, input->port.name, input->items[0].dims, input->items[0].data));
        }
    }
    return trm_context_run(context);
}

static bool same_outputs(trm_context *context, const trm_network *network, const data_set *data,
                         conformance_result *result)
{
    for (int32_t i = 0; i < data->n_outputs; i++) {
        if (!same_output(context, network, data, &data->outputs[i], result)) {
            result->outcome = CONFORMANCE_FAILED;
            return false;
        }
    }
    return true;
}

static bool run_network(conformance_world *world, const trm_network *network, const data_set *sets, int n,
                        conformance_result *result)
{
    trm_engine *engine = NULL;
    trm_context *context = NULL;
    const char *what = "build: ";
    bool same = true;
    trm_status status = build_engine(world, network, sets, n, &engine);
    if (status == TRM_OK) {
        what = "run: ";
        status = trm_context_create(engine, &context);
    }
    for (int k = 0; status == TRM_OK && same && k < (n > 1 ? n + 1 : 1); k++) { /* the first once more */
        status = run_context(context, &sets[k % n]);
        same = status != TRM_OK || same_outputs(context, network, &sets[k % n], result);
    }
    if (status != TRM_OK) {
        set_cause(result, status, what);
    }
    trm_context_destroy(context);
    trm_engine_destroy(engine);
    return status == TRM_OK && same;
}

/* Runs n sets with one engine. */
static bool run_sets(conformance_world *world, trm_onnx *model, const data_set *sets, int n, conformance_result *result)
{
    trm_network *network = NULL;
    trm_status status = build_network(model, &sets[0], &network);
    if (status != TRM_OK) {
        set_cause(result, status, "");
        return false;
    }
    bool ok = run_network(world, network, sets, n, result);
    if (ok) {
        tell_fixed(&sets[0], result);
    }
    trm_network_destroy(network);
    return ok;
}

/* Whether an engine that runs one set can run the others: nothing is fixed, ranks agree, dims that differ are open. */
static bool are_alike(const data_set *sets, int n)
{
    for (int k = 0; k < n; k++) {
        for (int32_t i = 0; i < sets[k].n_inputs; i++) {
            const value *input = &sets[k].inputs[i], *first = &sets[0].inputs[i];
            if (input->fixed || input->n != 1 || first->n != 1 || input->items[0].dims.n != first->items[0].dims.n ||
                !input->port.has_dims) {
                return false;
            }
        }
    }
    return true;
}

/* Whether ranks that share a batch divide that of a set. What else fails is found when it is run. */
static bool divides(const conformance_world *world, trm_onnx *model, const data_set *set)
{
    trm_network *network;
    trm_plan *plan;
    if (build_network(model, set, &network) != TRM_OK) {
        return true;
    }
    const trm_status status = build_plan(world, network, set, 1, &plan);
    trm_network_destroy(network);
    if (status == TRM_OK) {
        trm_plan_destroy(plan);
    }
    return status == TRM_OK || strstr(trm_last_error(), "that share it") == NULL;
}

/* Moves sets whose batch the ranks divide to the front; returns how many there are. */
static int keep_divided(const conformance_world *world, trm_onnx *model, data_set *sets, int n)
{
    int kept = 0;
    for (int k = 0; k < n; k++) {
        if (divides(world, model, &sets[k])) {
            const data_set other = sets[kept];
            sets[kept++] = sets[k];
            sets[k] = other;
        }
    }
    return kept;
}

static void run_all(conformance_world *world, trm_onnx *model, const char *folder, data_set *sets,
                    conformance_result *result)
{
    char path[4096];
    int n = 0;
    for (; n < MOST_SETS; n++) {
        snprintf(path, sizeof(path), "%s/test_data_set_%d", folder, n);
        if (access(path, F_OK) != 0) {
            break;
        }
        trm_status status = read_data(model, folder, n, &sets[n]);
        if (status != TRM_OK) {
            set_cause(result, status, "");
            n++;
            break;
        }
        choose_fixed(model, &sets[n]);
    }
    const bool shares = world->mesh.size[TRM_AXIS_DP] > 1 && result->outcome == CONFORMANCE_OK;
    const int n_run = shares ? keep_divided(world, model, sets, n) : n;
    if (result->outcome == CONFORMANCE_OK && n == 0) {
        result->outcome = CONFORMANCE_FAILED;
        explain(result, "it has no data sets");
    } else if (result->outcome == CONFORMANCE_OK && n_run == 0) {
        result->outcome = CONFORMANCE_EXCLUDED;
        explain(result, "no data set has a batch that %d ranks divide", (int)world->mesh.size[TRM_AXIS_DP]);
    } else if (result->outcome == CONFORMANCE_OK && are_alike(sets, n_run)) {
        run_sets(world, model, sets, n_run, result);
    } else {
        for (int k = 0; result->outcome == CONFORMANCE_OK && k < n_run; k++) {
            run_sets(world, model, &sets[k], 1, result);
        }
    }
    for (int k = 0; k < n; k++) {
        free_data(&sets[k]);
    }
}

/* The outcome is that of all ranks: a failure anywhere is one. */
static void join_ranks(conformance_world *world, conformance_result *result)
{
    trm_status mine = TRM_OK;
    if (result->outcome != CONFORMANCE_OK) {
        mine = trm_fail(result->outcome == CONFORMANCE_UNSUPPORTED ? TRM_ERROR_UNSUPPORTED : TRM_ERROR_INTERNAL, "%s",
                        result->text);
    }
    trm_status all = trm_world_all_ok(world->world, mine);
    if (mine == TRM_OK && all != TRM_OK) {
        set_cause(result, all, "");
    }
}

void conformance_run(conformance_world *world, const char *folder, conformance_result *result)
{
    char path[4096];
    trm_onnx *model;
    data_set *sets = calloc(MOST_SETS, sizeof(*sets));
    *result = (conformance_result){.outcome = CONFORMANCE_OK};
    snprintf(path, sizeof(path), "%s/model.onnx", folder);
    trm_status status = sets == NULL ? TRM_ERROR_OUT_OF_MEMORY : trm_onnx_open(path, &model);
    if (status != TRM_OK) {
        set_cause(result, status, "open: ");
    } else {
        run_all(world, model, folder, sets, result);
        trm_onnx_close(model);
    }
    free(sets);
    join_ranks(world, result);
}
