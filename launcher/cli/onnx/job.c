/* An ONNX model or a plan file from the settings: its inputs, its network, its engine. */
#include "launcher/cli/onnx/job.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

bool names_onnx(const char *name)
{
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".onnx") == 0;
}

bool names_plan(const char *name)
{
    size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".plan") == 0;
}

bool names_network(const char *name)
{
    return names_onnx(name) || names_plan(name);
}

/* Whether a setting affects this kind of file: a plan has been built already, and some options are for plans only. */
static bool has_effect_on_file(const settings *all, setting_id id)
{
    static const setting_id decided[] = {SETTING_VALUE,     SETTING_DIM,  SETTING_MARK,      SETTING_IO_TYPE,
                                         SETTING_MAX_TRIPS, SETTING_TF32, SETTING_WORKSPACE, SETTING_MAX_AUX_STREAMS};
    const char *name = all->operands[0];
    bool found = names_plan(name);
    for (size_t i = 0; found && i < sizeof(decided) / sizeof(decided[0]); i++) {
        found = id != decided[i];
    }
    return found || (names_onnx(name) && id != SETTING_ALLOW_OTHER_DEVICE) || !names_network(name);
}

bool has_effect_on_operand(const settings *all, setting_id id)
{
    const char *name = all->operands[0];
    return settings_has_effect(all, id, names_network(name)) && has_effect_on_file(all, id) &&
           (id != SETTING_LAYERS || names_shape(name)) &&
           (id != SETTING_WEIGHTS || names_shape(name) || names_plan(name)) && !job_passes_over(all, id);
}

/* Length of a list that affects the file; otherwise 0. */
static int32_t list_length(const onnx_job *j, setting_id id)
{
    return has_effect_on_file(j->all, id) ? j->all->list_counts[id] : 0;
}

static trm_status check_file(const settings *all)
{
    for (int32_t id = 0; id < SETTING_COUNT; id++) {
        if (settings_is_option(all, (setting_id)id) && !has_effect_on_file(all, (setting_id)id)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option %s is for %s", all->origins[id],
                     names_plan(all->operands[0]) ? "building a plan, not for running it" : "plan files");
        }
    }
    return TRM_OK;
}

trm_status check_operand(const settings *all)
{
    const char *name = all->operands[0];
    TRM_TRY(settings_check_operand(all, names_network(name)));
    TRM_TRY(check_file(all));
    if (names_onnx(name) && settings_is_option(all, SETTING_WEIGHTS)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option --weights is for plan files and named shapes, %s is an ONNX file",
                 name);
    }
    if (all->command == COMMAND_RUN && names_network(name) && settings_is_option(all, SETTING_SEED)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option %s is for language models, %s is a network, which does not sample",
                 all->origins[SETTING_SEED], name);
    }
    return job_check_options(all);
}

const char *onnx_assigned(const char *assignment, const char *name)
{
    size_t length = strlen(name);
    return strncmp(assignment, name, length) == 0 && assignment[length] == '=' ? assignment + length + 1 : NULL;
}

void onnx_dims_text(const trm_dims *dims, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s", dims->n == 0 ? "scalar" : "");
    for (int32_t i = 0; i < dims->n && used < size; i++) {
        const char *gap = i == 0 ? "" : "x";
        used += dims->d[i] < 0 ? (size_t)snprintf(text + used, size - used, "%s?", gap)
                               : (size_t)snprintf(text + used, size - used, "%s%lld", gap, (long long)dims->d[i]);
    }
}

/* ---- settings ------------------------------------------------------------------------------------------ */

static onnx_input *find_input(onnx_job *j, const char *name, size_t length)
{
    for (int32_t i = 0; i < j->n_inputs; i++) {
        if (strlen(j->inputs[i].port.name) == length && strncmp(j->inputs[i].port.name, name, length) == 0) {
            return &j->inputs[i];
        }
    }
    return NULL;
}

static trm_status unknown_input(onnx_job *j, const char *option, const char *name, size_t length)
{
    char known[256] = "";
    size_t used = 0;
    for (int32_t i = 0; i < j->n_inputs && used < sizeof(known); i++) {
        used +=
            (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i == 0 ? "" : ", ", j->inputs[i].port.name);
    }
    return trm_fail(TRM_ERROR_INVALID_ARGUMENT, "--%s: the model has no input \"%.*s\", its inputs are: %s", option,
                    (int)(length < 80 ? length : 80), name, known);
}

trm_status onnx_find_input(onnx_job *j, const char *option, const char *name, size_t length, onnx_input **input)
{
    *input = find_input(j, name, length);
    return *input != NULL ? TRM_OK : unknown_input(j, option, name, length);
}

/* Splits "NAME=FILE" into the input and the file. */
static trm_status split_assignment(onnx_job *j, const char *option, const char *text, onnx_input **input,
                                   const char **file)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals[1] == '\0') {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--%s is \"%s\", expected NAME=FILE", option, text);
    }
    *input = find_input(j, text, (size_t)(equals - text));
    *file = equals + 1;
    return *input != NULL ? TRM_OK : unknown_input(j, option, text, (size_t)(equals - text));
}

static trm_status keep_block(onnx_job *j, trm_onnx_fixed_value *block)
{
    trm_onnx_fixed_value **grown = realloc(j->blocks, ((size_t)j->n_blocks + 1) * sizeof(*grown));
    if (grown == NULL) {
        trm_free(block);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of inputs");
    }
    j->blocks = grown;
    j->blocks[j->n_blocks++] = block;
    return TRM_OK;
}

static trm_status check_dtype(const onnx_input *input, const char *file, trm_dtype dtype)
{
    if (input->port.dtype != TRM_DTYPE_NONE && dtype != TRM_DTYPE_NONE && dtype != input->port.dtype) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s holds %s, expected %s for input %s", file, trm_dtype_name(dtype),
                 trm_dtype_name(input->port.dtype), input->port.name);
    }
    return TRM_OK;
}

static trm_status read_input(onnx_job *j, onnx_input *input, const char *file)
{
    trm_onnx_fixed_value *value;
    int32_t n;
    trm_onnx_port port = input->port;
    port.dims = input->dims.n >= 0 ? input->dims : port.dims; /* of --shapes */
    port.has_dims = port.has_dims || input->dims.n >= 0;
    TRM_TRY(onnx_read_file(file, &port, &value, &n));
    TRM_TRY(keep_block(j, value));
    if (n != 1 || value->dtype == TRM_DTYPE_NONE) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s holds %d tensors for input %s: use --value", file, n,
                 input->port.name);
    }
    if (input->typed[0] != NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s is given by both %s and --elements", input->port.name, file);
    }
    TRM_TRY(check_dtype(input, file, value->dtype));
    input->dims = value->dims;
    input->dtype = value->dtype;
    input->data = (void *)(uintptr_t)value->data; /* part of the block; not freed separately */
    input->from_file = true;
    return TRM_OK;
}

static trm_status read_named_input(onnx_job *j, const char *text)
{
    onnx_input *input;
    const char *file;
    TRM_TRY(split_assignment(j, "input", text, &input, &file));
    return read_input(j, input, file);
}

bool onnx_find_numbered(const char *folder, const char *what, int32_t index, char *path, size_t size)
{
    static const char *const endings[] = {"pb", "npy"};
    bool found = false;
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]) && !found; i++) {
        int used = snprintf(path, size, "%s/%s_%d.%s", folder, what, (int)index, endings[i]);
        found = used > 0 && (size_t)used < size && trm_file_exists(path);
    }
    return found;
}

/* Reads input_0.pb and so on, for inputs that are not given otherwise. */
static trm_status read_numbered_inputs(onnx_job *j, const char *folder)
{
    char path[4096];
    int32_t n = 0;
    for (int32_t i = 0; i < j->n_inputs; i++) {
        onnx_input *input = &j->inputs[i];
        if (!input->fixed && !input->from_file && !input->has_default &&
            onnx_find_numbered(folder, "input", i, path, sizeof(path))) {
            TRM_TRY(read_input(j, input, path));
            n++;
        }
    }
    if (n == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--inputs: folder %s has no input_0.pb or input_0.npy", folder);
    }
    return TRM_OK;
}

static trm_status read_fixed(onnx_job *j, const char *text)
{
    onnx_input *input;
    const char *file;
    trm_onnx_fixed_value *values;
    int32_t n;
    TRM_TRY(split_assignment(j, "value", text, &input, &file));
    TRM_TRY(onnx_read_file(file, &input->port, &values, &n));
    TRM_TRY(keep_block(j, values));
    trm_onnx_fixed_value *grown = realloc(j->values, ((size_t)j->n_values + (size_t)n) * sizeof(*grown));
    if (grown == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of values");
    }
    j->values = grown;
    for (int32_t i = 0; i < n; i++) {
        TRM_TRY(check_dtype(input, file, input->port.has_dims ? values[i].dtype : TRM_DTYPE_NONE));
        j->values[j->n_values] = values[i];
        j->values[j->n_values++].input = input->port.name;
    }
    input->fixed = true;
    return TRM_OK;
}

/* Parses "NAME=f16" of each --io-type. Inputs have that type from here on. */
static trm_status read_types(onnx_job *j)
{
    const int32_t n = list_length(j, SETTING_IO_TYPE);
    j->types = calloc((size_t)n + 1, sizeof(*j->types));
    if (j->types == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d types", n);
    }
    for (int32_t i = 0; i < n; i++) {
        const char *text = j->all->lists[SETTING_IO_TYPE][i], *equals = strrchr(text, '=');
        const size_t length = equals == NULL ? 0 : (size_t)(equals - text);
        trm_dtype dtype = TRM_DTYPE_NONE;
        for (int32_t k = 1; equals != NULL && k < TRM_DTYPE_COUNT; k++) {
            dtype = strcmp(equals + 1, trm_dtype_name((trm_dtype)k)) == 0 ? (trm_dtype)k : dtype;
        }
        char *name = strndup(text, length);
        j->types[i] = (trm_onnx_port_type){name, dtype};
        if (name == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the name of an input");
        }
        if (length == 0 || dtype == TRM_DTYPE_NONE) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--io-type is \"%s\", expected NAME=TYPE such as x=f16", text);
        }
        onnx_input *input = find_input(j, text, length);
        if (input != NULL) {
            input->port.dtype = dtype;
            input->port.type = trm_dtype_name(dtype);
        }
    }
    return TRM_OK;
}

/* Parses "1x3x224x224", or nothing for a scalar, up to `end`. */
static bool parse_dims(const char *text, const char *end, trm_dims *dims)
{
    *dims = (trm_dims){0};
    while (text < end) {
        char *after;
        long long size = strtoll(text, &after, 10);
        if (after == text || after > end || size < 0 || dims->n == TRM_MAX_DIMS ||
            (after < end && (*after != 'x' || after + 1 == end))) {
            return false;
        }
        dims->d[dims->n++] = size;
        text = after + (after < end);
    }
    return true;
}

/* When building, a repeated option is for the next profile. */
static trm_status keep_dims(const onnx_job *j, setting_id id, onnx_input *input, const trm_dims *dims)
{
    const int32_t which = id == SETTING_SHAPES ? 0 : id == SETTING_MIN_SHAPES ? 1 : 2;
    const int32_t profile = j->all->command == COMMAND_BUILD ? input->given[which]++ : 0;
    if (profile >= TRM_MAX_PROFILES) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--%s is repeated more than %d times for input %s",
                 settings_table[id].name, TRM_MAX_PROFILES, input->port.name);
    }
    if (profile == 0) {
        *(which == 0 ? &input->dims : which == 1 ? &input->min : &input->max) = *dims;
    } else {
        input->more[profile][which] = *dims;
    }
    return TRM_OK;
}

/* Parses "x:1x3x224x224,y:5". Names may contain colons, so the last colon counts. */
static trm_status read_shapes(onnx_job *j, setting_id id, const char *text)
{
    const char *option = settings_table[id].name;
    while (*text != '\0') {
        size_t length = strcspn(text, ",");
        const char *end = text + length, *colon = end;
        while (colon > text && *colon != ':') {
            colon--;
        }
        trm_dims dims;
        if (colon == text || !parse_dims(colon + 1, end, &dims)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "--%s has \"%.*s\", expected NAME:1x3x224x224", option, (int)length,
                     text);
        }
        onnx_input *input = find_input(j, text, (size_t)(colon - text));
        if (input == NULL) {
            return unknown_input(j, option, text, (size_t)(colon - text));
        }
        TRM_TRY(keep_dims(j, id, input, &dims));
        input->port.has_dims = input->port.has_dims && input->port.dims.n == dims.n;
        text = end + (*end == ',');
    }
    return TRM_OK;
}

/* Fills in those of min <= usual <= max that are not given. */
static trm_status settle_point(const char *name, trm_dims *usual, trm_dims *min, trm_dims *max)
{
    if (usual->n < 0) {
        *usual = max->n >= 0 ? *max : *min;
    }
    *max = max->n < 0 ? *usual : *max;
    *min = min->n < 0 ? *usual : *min;
    bool fits = min->n == usual->n && max->n == usual->n;
    for (int32_t i = 0; fits && i < usual->n; i++) {
        fits = min->d[i] <= usual->d[i] && usual->d[i] <= max->d[i];
    }
    if (!fits) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "dims of --min-shapes, --shapes and --max-shapes of input %s do not increase in this order", name);
    }
    return TRM_OK;
}

/* With --min-shapes, --max-shapes or several --shapes, dims are dynamic. */
static trm_status settle_range(onnx_input *input)
{
    for (int32_t i = 0; i < 3; i++) {
        input->n_profiles = input->given[i] > input->n_profiles ? input->given[i] : input->n_profiles;
    }
    if (input->min.n < 0 && input->max.n < 0 && input->n_profiles < 2) {
        return TRM_OK;
    }
    TRM_TRY(settle_point(input->port.name, &input->dims, &input->min, &input->max));
    for (int32_t p = 1; p < input->n_profiles; p++) {
        trm_dims *dims = input->more[p];
        for (int32_t i = 0; i < 3; i++) {
            dims[i].n = input->given[i] > p ? dims[i].n : -1;
        }
        TRM_TRY(settle_point(input->port.name, &dims[0], &dims[1], &dims[2]));
        if (dims[0].n != input->dims.n) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "profile %d of input %s has %d dimensions, expected %d as in profile 0", p, input->port.name,
                     dims[0].n, input->dims.n);
        }
    }
    return TRM_OK;
}

static trm_status read_settings(onnx_job *j)
{
    const settings *all = j->all;
    TRM_TRY(read_types(j));
    static const setting_id shapes[] = {SETTING_SHAPES, SETTING_MIN_SHAPES, SETTING_MAX_SHAPES};
    for (size_t k = 0; k < sizeof(shapes) / sizeof(shapes[0]); k++) {
        for (int32_t i = 0; i < all->list_counts[shapes[k]]; i++) {
            TRM_TRY(read_shapes(j, shapes[k], all->lists[shapes[k]][i]));
        }
    }
    static const setting_id elements[] = {SETTING_ELEMENTS, SETTING_MIN_ELEMENTS, SETTING_MAX_ELEMENTS};
    for (size_t k = 0; k < sizeof(elements) / sizeof(elements[0]); k++) {
        for (int32_t i = 0; i < all->list_counts[elements[k]]; i++) {
            TRM_TRY(onnx_read_elements(j, elements[k], all->lists[elements[k]][i]));
        }
    }
    for (int32_t i = 0; i < j->n_inputs; i++) {
        TRM_TRY(settle_range(&j->inputs[i]));
        TRM_TRY(onnx_settle_elements(&j->inputs[i]));
    }
    for (int32_t i = 0; i < list_length(j, SETTING_VALUE); i++) {
        TRM_TRY(read_fixed(j, all->lists[SETTING_VALUE][i]));
    }
    for (int32_t i = 0; i < all->list_counts[SETTING_INPUT]; i++) {
        TRM_TRY(read_named_input(j, all->lists[SETTING_INPUT][i]));
    }
    if (settings_text(all, SETTING_INPUTS) != NULL) {
        TRM_TRY(read_numbered_inputs(j, settings_text(all, SETTING_INPUTS)));
    }
    return TRM_OK;
}

/* ---- stages -------------------------------------------------------------------------------------------- */

static void warn_of_opset(const onnx_job *j)
{
    trm_onnx_info info;
    trm_onnx_get_info(j->model, &info);
    if (info.newer_opset > 0 && !settings_flag(j->all, SETTING_QUIET) && is_first_rank()) {
        fprintf(stderr,
                "trireme: %s uses opset %lld, newer than the newest supported, %d: an operator whose meaning has "
                "changed is misread\n",
                info.path, (long long)info.newer_opset, TRM_ONNX_NEWEST_OPSET);
    }
}

/* Forgets inputs that keep their defaults: they are constants of the network. */
static void drop_defaults(onnx_job *j)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < j->n_inputs; i++) {
        const onnx_input *input = &j->inputs[i];
        if (!input->has_default || input->fixed || input->dims.n >= 0) {
            j->inputs[kept++] = *input;
        }
    }
    j->n_inputs = kept;
}

trm_status onnx_open(onnx_job *j, const char *path, int32_t ranks)
{
    if (names_plan(path)) {
        TRM_TRY(plan_open(j, path));
        return read_settings(j);
    }
    trm_status status = trm_onnx_open(path, &j->model);
    TRM_TRY(status == TRM_ERROR_IO ? TRM_ERROR_INVALID_MODEL : status);
    warn_of_opset(j);
    j->n_ranks = ranks;
    TRM_TRY(job_backend(j->all, &j->backend));
    TRM_TRY(trm_mesh_parse(settings_text(j->all, SETTING_MESH), ranks, &j->mesh));
    int32_t n = trm_onnx_input_count(j->model), n_defaults = 0;
    trm_onnx_port port;
    while (trm_onnx_get_default(j->model, n_defaults, &port)) {
        n_defaults++;
    }
    j->inputs = calloc((size_t)(n + n_defaults) + 1, sizeof(*j->inputs));
    if (j->inputs == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d inputs", n + n_defaults);
    }
    for (int32_t i = 0; i < n + n_defaults; i++) {
        onnx_input *input = &j->inputs[j->n_inputs++];
        input->has_default = i >= n;
        if (!(i < n ? trm_onnx_get_input(j->model, i, &input->port)
                    : trm_onnx_get_default(j->model, i - n, &input->port))) {
            return TRM_ERROR_OUT_OF_MEMORY;
        }
        input->dims.n = input->min.n = input->max.n = -1; /* not given yet */
    }
    TRM_TRY(read_settings(j));
    drop_defaults(j);
    return TRM_OK;
}

/* The dims of an input in the network: -1 if dynamic. */
static trm_dims network_dims(const onnx_input *input)
{
    trm_dims dims = input->dims;
    for (int32_t i = 0; input->max.n >= 0 && i < dims.n; i++) {
        bool same = input->min.d[i] == input->max.d[i];
        for (int32_t p = 1; p < input->n_profiles; p++) {
            same = same && input->more[p][1].d[i] == dims.d[i] && input->more[p][2].d[i] == dims.d[i];
        }
        dims.d[i] = same ? dims.d[i] : -1;
    }
    return dims;
}

/* Makes the tensors of --mark outputs, after those of the model. */
static trm_status mark_tensors(onnx_job *j)
{
    for (int32_t i = 0; i < j->all->list_counts[SETTING_MARK]; i++) {
        const char *name = j->all->lists[SETTING_MARK][i];
        trm_tensor *tensor = trm_network_find_tensor(j->network, name);
        if (tensor == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "--mark: the network has no tensor \"%s\"; list tensors with inspect --after import", name);
        }
        bool is_marked = false;
        for (int32_t k = 0; k < trm_network_output_count(j->network) && !is_marked; k++) {
            is_marked = trm_network_output(j->network, k) == tensor;
        }
        TRM_TRY(is_marked ? TRM_OK : trm_network_mark_output(j->network, tensor));
    }
    return TRM_OK;
}

trm_status onnx_build(onnx_job *j, bool open)
{
    if (j->plan != NULL) {
        for (int32_t i = 0; i < j->n_inputs; i++) {
            TRM_TRY(plan_settle_dims(j, i));
        }
        return TRM_OK;
    }
    double began = wall_seconds();
    trm_onnx_named_dim dims[MAX_LIST];
    static char names[MAX_LIST][64];
    trm_onnx_options options = TRM_ONNX_OPTIONS_INIT;
    TRM_TRY(onnx_named_dims(j, dims, names, &options.n_dims));
    trm_onnx_input_dims *shapes = calloc((size_t)j->n_inputs + 1, sizeof(*shapes));
    if (shapes == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d shapes", j->n_inputs);
    }
    for (int32_t i = 0; i < j->n_inputs; i++) {
        onnx_input *input = &j->inputs[i];
        if (!input->fixed && !open) {
            onnx_settle_dims(j, input, dims, options.n_dims);
        }
        if (!input->fixed && input->dims.n >= 0) {
            shapes[options.n_inputs++] = (trm_onnx_input_dims){input->port.name, network_dims(input)};
        }
    }
    options.values = j->values;
    options.n_values = j->n_values;
    options.dims = dims;
    options.inputs = shapes;
    options.n_ranks = j->n_ranks;
    options.refittable = settings_flag(j->all, SETTING_REFITTABLE);
    options.types = j->types;
    options.n_types = j->all->list_counts[SETTING_IO_TYPE];
    options.max_trips = settings_integer(j->all, SETTING_MAX_TRIPS);
    trm_status status = trm_onnx_build_network(j->model, &options, &j->network);
    free(shapes);
    TRM_TRY(status == TRM_OK ? mark_tensors(j) : status);
    j->shown = j->network;
    j->import_seconds = wall_seconds() - began;
    return TRM_OK;
}

trm_status onnx_plan(onnx_job *j, int32_t rank, trm_stage_fn on_stage, void *user, trm_plan **plan)
{
    trm_build_options options = TRM_BUILD_OPTIONS_INIT;
    options.backend = j->backend;
    options.mesh = j->mesh;
    options.rank = rank;
    options.batch_invariant = settings_flag(j->all, SETTING_BATCH_INVARIANT) &&
                              has_effect_on_operand(j->all, SETTING_BATCH_INVARIANT); /* of a model in compare */
    options.allow_tf32 = settings_flag(j->all, SETTING_TF32);
    options.max_aux_streams = (int32_t)settings_integer(j->all, SETTING_MAX_AUX_STREAMS);
    options.max_workspace = (size_t)settings_integer(j->all, SETTING_WORKSPACE) << 20;
    options.on_stage = on_stage;
    options.stage_user = user;
    trm_shape_bound *bounds = calloc((size_t)j->n_inputs * TRM_MAX_PROFILES + (size_t)j->n_states + 1, sizeof(*bounds));
    if (bounds == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d bounds", j->n_inputs);
    }
    for (int32_t i = 0; i < j->n_inputs; i++) {
        const onnx_input *input = &j->inputs[i];
        if (input->max.n >= 0 && !input->fixed) {
            bounds[options.n_bounds++] = (trm_shape_bound){.tensor = input->port.name,
                                                           .max = input->max,
                                                           .min = input->min,
                                                           .opt = input->dims,
                                                           .opt_values = input->typed[0],
                                                           .min_values = input->typed[1],
                                                           .max_values = input->typed[2]};
        }
        for (int32_t p = 1; p < input->n_profiles && !input->fixed; p++) {
            bounds[options.n_bounds++] = (trm_shape_bound){.tensor = input->port.name,
                                                           .max = input->more[p][2],
                                                           .min = input->more[p][1],
                                                           .opt = input->more[p][0],
                                                           .profile = p};
        }
    }
    for (int32_t i = 0; i < j->n_states; i++) {
        bounds[options.n_bounds++] = j->states[i];
    }
    options.bounds = bounds;
    trm_status status = trm_build(j->network, &options, plan);
    free(bounds);
    TRM_TRY(status);
    status = onnx_set_budget(j, *plan);
    if (status != TRM_OK) {
        trm_plan_destroy(*plan);
        *plan = NULL;
    }
    return status;
}

trm_status onnx_set_budget(onnx_job *j, trm_plan *plan)
{
    trm_weight_budget budget;
    TRM_TRY(job_budget(j->all, &budget));
    TRM_TRY(job_check_sharing(j->all, &j->mesh));
    if (budget.kind != TRM_WEIGHT_BUDGET_OFF) {
        TRM_TRY(trm_plan_set_weight_budget(plan, &budget));
    }
    trm_plan_memory(plan, &j->memory);
    trm_plan_streaming(plan, &j->streaming);
    return TRM_OK;
}

trm_status onnx_load(onnx_job *j)
{
    double began = wall_seconds();
    trm_plan *plan = j->plan;
    if (plan == NULL) {
        TRM_TRY(trm_world_all_ok(j->job.world, onnx_plan(j, trm_world_rank(j->job.world), NULL, NULL, &plan)));
    } else {
        TRM_TRY(trm_world_all_ok(j->job.world, onnx_set_budget(j, plan)));
    }
    j->plan = NULL;
    TRM_TRY(trm_engine_create(plan, j->job.world, NULL, NULL, &j->engine));
    trm_plan_memory(plan, &j->memory); /* an automatic budget is known by now */
    trm_engine_streaming(j->engine, &j->streaming);
    if (j->streaming.on && j->job.is_leader && !settings_flag(j->all, SETTING_QUIET)) {
        char text[768];
        describe_streaming(&j->streaming, text, sizeof(text));
        fprintf(stderr, "trireme: %s\n", text);
    }
    TRM_TRY(trm_world_all_ok(j->job.world, trm_context_create(j->engine, &j->context)));
    if (settings_text(j->all, SETTING_OPT_PROFILE) != NULL) {
        TRM_TRY(trm_world_all_ok(
            j->job.world,
            trm_context_set_optimization_profile(j->context, (int32_t)settings_integer(j->all, SETTING_OPT_PROFILE))));
    }
    j->build_seconds = wall_seconds() - began;
    return TRM_OK;
}

/* ---- inputs -------------------------------------------------------------------------------------------- */

/* Elements of any type from one sequence of random numbers. */
static void fill(trm_dtype dtype, size_t count, uint64_t *state, void *to)
{
    for (size_t i = 0; i < count; i++) {
        *state = *state * 6364136223846793005ull + 1442695040888963407ull;
        float unit = (float)((*state >> 40) & 0xffffff) / 8388608.0f - 1.0f;
        uint32_t bits;
        memcpy(&bits, &unit, sizeof(bits));
        double wide = (double)unit;
        uint64_t whole = *state >> 63;
        /* f16 from f32 by exponent and ten bits: |unit| < 1, and values too small become 0. */
        uint32_t exponent = (bits >> 23) & 0xff;
        uint16_t half =
            (uint16_t)((bits >> 16 & 0x8000) | (exponent < 113 ? 0 : (exponent - 112) << 10 | (bits >> 13 & 0x3ff)));
        uint16_t brain = (uint16_t)(bits >> 16);
        const void *from = dtype == TRM_F32    ? (const void *)&unit
                           : dtype == TRM_F64  ? (const void *)&wide
                           : dtype == TRM_F16  ? (const void *)&half
                           : dtype == TRM_BF16 ? (const void *)&brain
                                               : (const void *)&whole;
        size_t size = trm_dtype_size(dtype);
        memcpy((char *)to + i * size, from, size);
    }
}

trm_status onnx_fill_inputs(onnx_job *j, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;
    for (int32_t i = 0; i < j->n_inputs; i++) {
        onnx_input *input = &j->inputs[i];
        if (input->fixed || input->from_file || input->typed[0] != NULL) {
            continue;
        }
        size_t count = 1;
        for (int32_t k = 0; k < input->dims.n; k++) {
            count *= (size_t)input->dims.d[k];
        }
        input->dtype = input->port.dtype;
        input->data = calloc(count + 1, trm_dtype_size(input->dtype));
        if (input->data == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu elements for input %s", count, input->port.name);
        }
        const void *values = plan_values(j, input);
        if (values != NULL) {
            memcpy(input->data, values, count * trm_dtype_size(input->dtype));
        } else {
            fill(input->dtype, count, &state, input->data);
        }
    }
    return TRM_OK;
}

trm_status onnx_set_inputs(onnx_job *j, trm_context *context)
{
    for (int32_t i = 0; i < j->n_inputs; i++) {
        const onnx_input *input = &j->inputs[i];
        if (input->fixed) {
            continue;
        }
        if (input->data == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s is missing (give --input %s=FILE)", input->port.name,
                     input->port.name);
        }
        TRM_TRY(trm_context_set_input(context, input->port.name, input->dims, input->data));
    }
    return TRM_OK;
}

void onnx_close(onnx_job *j)
{
    trm_context_destroy(j->context);
    trm_engine_destroy(j->engine);
    trm_plan_destroy(j->plan);
    trm_network_destroy(j->network);
    for (int32_t i = 0; i < j->n_inputs; i++) {
        onnx_input *input = &j->inputs[i];
        if (!input->from_file && input->data != input->typed[0]) {
            free(input->data);
        }
        for (int32_t k = 0; k < 3; k++) {
            free(input->typed[k]);
        }
    }
    for (int32_t i = 0; i < j->n_blocks; i++) {
        trm_free(j->blocks[i]);
    }
    for (int32_t i = 0; j->types != NULL && i < list_length(j, SETTING_IO_TYPE); i++) {
        free((void *)(uintptr_t)j->types[i].port);
    }
    free(j->types);
    free(j->blocks);
    free(j->states);
    free(j->values);
    free(j->inputs);
    trm_onnx_close(j->model);
}
