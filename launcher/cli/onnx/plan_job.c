/* Plan files: `trireme build` and `refit`, and how the other commands open one; plan_inspect.c shows them. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/unit.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/job/report.h"
#include "launcher/cli/onnx/job.h"

/* ---- plans in place of models -------------------------------------------------------------------------- */

trm_status plan_check_mesh(const settings *all, const trm_plan_info *info, int32_t ranks)
{
    const char *mesh = settings_text(all, SETTING_MESH);
    if (mesh != NULL) {
        trm_mesh wanted;
        char has[64];
        TRM_TRY(trm_mesh_parse(mesh, ranks, &wanted));
        trm_mesh_format(&info->mesh, has, sizeof(has));
        if (memcmp(&wanted, &info->mesh, sizeof(wanted)) != 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "mesh is \"%s\", but the plan was built for \"%s\"", mesh, has);
        }
    }
    return TRM_OK;
}

trm_status plan_load(const settings *all, const char *path, int32_t rank, trm_plan **plan)
{
    const char *weights = settings_text(all, SETTING_WEIGHTS);
    trm_status status = weights == NULL ? trm_plan_load(path, rank, plan) : trm_plan_refit(path, rank, weights, plan);
    return status == TRM_ERROR_IO ? TRM_ERROR_INVALID_MODEL : status;
}

/* With --allow-other-device, drops tactics that do not fit this machine. */
static void settle_tactics(onnx_job *j)
{
    trm_plan_info info;
    if (settings_flag(j->all, SETTING_ALLOW_OTHER_DEVICE) && j->job.world != NULL &&
        trm_plan_check_device(j->plan, j->job.world) != TRM_OK) {
        trm_plan_drop_tactics(j->plan);
        if (j->job.is_leader && !settings_flag(j->all, SETTING_QUIET)) {
            fprintf(stderr, "trireme: ignoring the tactics of the plan: %s\n", trm_last_error());
        }
    }
    trm_plan_get_info(j->plan, &info);
    j->n_tactics = info.n_tactics;
}

trm_status plan_open(onnx_job *j, const char *path)
{
    double began = wall_seconds();
    trm_plan_info info;
    TRM_TRY(plan_load(j->all, path, j->job.world == NULL ? 0 : trm_world_rank(j->job.world), &j->plan));
    settle_tactics(j);
    trm_plan_get_info(j->plan, &info);
    trm_plan_memory(j->plan, &j->memory);
    j->shown = trm_plan_network(j->plan);
    j->mesh = info.mesh;
    j->backend = info.backend;
    j->n_ranks = j->job.world == NULL ? 1 : trm_world_size(j->job.world);
    TRM_TRY(plan_check_mesh(j->all, &info, j->n_ranks));
    int32_t n = trm_network_input_count(j->shown);
    j->inputs = calloc((size_t)n + 1, sizeof(*j->inputs));
    if (j->inputs == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %d inputs", n);
    }
    for (int32_t i = 0; i < n; i++) {
        const trm_tensor *tensor = trm_network_input(j->shown, i);
        onnx_input *input = &j->inputs[j->n_inputs++];
        input->port = (trm_onnx_port){.name = trm_tensor_name(tensor),
                                      .type = trm_dtype_name(trm_tensor_dtype(tensor)),
                                      .dtype = trm_tensor_dtype(tensor),
                                      .has_dims = true,
                                      .dims = trm_tensor_dims(tensor)};
        for (int32_t k = 0; k < input->port.dims.n; k++) {
            input->port.dim_names[k] = trm_tensor_dim_name(tensor, k);
        }
        input->dims.n = input->min.n = input->max.n = -1;
    }
    j->import_seconds = wall_seconds() - began;
    return TRM_OK;
}

/* The bound of an input in the requested profile, or in the first. */
static bool find_bound(const onnx_job *j, const char *name, trm_shape_bound *bound)
{
    int64_t profile = settings_integer(j->all, SETTING_OPT_PROFILE);
    trm_shape_bound next;
    bool found = false;
    for (int32_t i = 0; trm_plan_get_bound(j->plan, i, &next); i++) {
        bool is_better = next.profile == profile || (next.profile == 0 && !found);
        if (is_better && strcmp(next.tensor, name) == 0) {
            *bound = next;
            found = true;
        }
    }
    return found;
}

/* Refuses dims other than those the plan fixes: outputs would differ from their references for no visible reason. */
static trm_status check_dims(const onnx_input *input, const trm_dims *planned)
{
    bool fits = input->dims.n == planned->n;
    for (int32_t i = 0; fits && i < planned->n; i++) {
        fits = planned->d[i] < 0 || input->dims.d[i] == planned->d[i];
    }
    if (!fits) {
        char found[160], expected[160];
        onnx_dims_text(&input->dims, found, sizeof(found));
        onnx_dims_text(planned, expected, sizeof(expected));
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "input %s is %s, expected %s as in the plan", input->port.name, found,
                 expected);
    }
    return TRM_OK;
}

trm_status plan_settle_dims(onnx_job *j, int32_t index)
{
    onnx_input *input = &j->inputs[index];
    trm_shape_bound bound;
    if (input->dims.n >= 0) {
        const trm_dims planned = trm_tensor_dims(trm_network_input(j->shown, index));
        return check_dims(input, &planned);
    }
    input->dims = input->port.dims;
    if (find_bound(j, input->port.name, &bound)) {
        input->dims = bound.opt.n > 0 ? bound.opt : bound.max;
    }
    onnx_follow_names(j, input);
    return TRM_OK;
}

const void *plan_values(const onnx_job *j, const onnx_input *input)
{
    trm_shape_bound bound;
    if (j->plan == NULL || !find_bound(j, input->port.name, &bound)) {
        return NULL;
    }
    const void *values = bound.opt_values != NULL ? bound.opt_values : bound.max_values;
    const trm_dims *dims = bound.opt_values != NULL && bound.opt.n > 0 ? &bound.opt : &bound.max;
    bool same = dims->n == input->dims.n;
    for (int32_t i = 0; same && i < dims->n; i++) {
        same = dims->d[i] == input->dims.d[i];
    }
    return same ? values : NULL;
}

/* ---- build --------------------------------------------------------------------------------------------- */

/* As many ranks as --ranks says, otherwise as --mesh has. */
static int32_t count_ranks(const settings *all)
{
    int32_t ranks = (int32_t)settings_integer(all, SETTING_RANKS);
    const char *mesh = settings_text(all, SETTING_MESH);
    bool given = strcmp(all->origins[SETTING_RANKS], "default") != 0;
    trm_mesh found;
    for (int32_t n = 1; !given && mesh != NULL && n <= TRM_MAX_RANKS; n++) {
        if (trm_mesh_parse(mesh, n, &found) == TRM_OK) {
            return n;
        }
    }
    return ranks;
}

/* Opens a world for tuning if the plan is for CUDA and there is a device. Returns false, with a note on stderr, if only
 * a plan without tactics can be built here. */
static bool can_tune(onnx_job *j)
{
    const char *why = NULL;
    if (j->backend != TRM_BACKEND_CUDA || settings_flag(j->all, SETTING_NO_TUNE)) {
        return false;
    }
    if (launched_rank() != NULL) {
        why = "build runs as one process, but was started by a launcher of ranks: start it directly";
    } else if (job_open_world(&j->job, j->all) != TRM_OK) {
        why = trm_last_error();
    }
    if (why != NULL && !settings_flag(j->all, SETTING_QUIET)) {
        fprintf(stderr, "trireme: the plan has no tactics and is tuned when it runs: %s\n", why);
    }
    return why == NULL;
}

static void print_built(const onnx_job *j, const char *path, const trm_plan_info *info, double seconds)
{
    char mesh[64];
    trm_mesh_format(&j->mesh, mesh, sizeof(mesh));
    if (settings_flag(j->all, SETTING_JSON)) {
        report r;
        report_begin(&r, stdout);
        report_text(&r, "plan", path);
        report_text(&r, "backend", trm_backend_name(j->backend));
        report_integer(&r, "ranks", j->n_ranks);
        report_text(&r, "mesh", mesh);
        report_integer(&r, "collectives", info->n_collectives);
        report_text(&r, "device", info->device);
        report_integer(&r, "tactics", info->n_tactics);
        report_integer(&r, "device_bytes_per_rank", (int64_t)j->memory.total);
        report_number(&r, "import_seconds", j->import_seconds);
        report_number(&r, "build_seconds", seconds);
        report_number(&r, "tune_seconds", j->tune_seconds);
        report_end(&r);
    } else if (!settings_flag(j->all, SETTING_QUIET)) {
        printf("%s: %s, %d rank%s (%s), %d collectives, %s per rank; imported in %.2f s, built in %.2f s", path,
               trm_backend_name(j->backend), j->n_ranks, j->n_ranks == 1 ? "" : "s", mesh, info->n_collectives,
               trm_size_text((double)j->memory.total).text, j->import_seconds, seconds);
        if (info->n_tactics > 0) {
            printf(", tuned on %s in %.2f s (%d tactics)", info->device, j->tune_seconds, info->n_tactics);
        }
        printf("\n");
    }
}

/* The file to write: --out, or the model's name with another extension, in `default_path`. */
static trm_status plan_path(const settings *all, const char *path, char default_path[4096], const char **out)
{
    *out = settings_text(all, SETTING_OUT);
    if (*out != NULL && !names_plan(*out)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "out is \"%s\", expected a name that ends in .plan", *out);
    }
    if (*out == NULL) {
        int length = (int)strlen(path) - 5;
        if (snprintf(default_path, 4096, "%.*s.plan", length, path) >= 4096) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the path of the plan is too long");
        }
        *out = default_path;
    }
    return TRM_OK;
}

static trm_plan_weights kept_weights(const settings *all)
{
    return settings_flag(all, SETTING_EMBED_WEIGHTS)   ? TRM_PLAN_WEIGHTS_EMBEDDED
           : settings_flag(all, SETTING_STRIP_WEIGHTS) ? TRM_PLAN_WEIGHTS_STRIPPED
                                                       : TRM_PLAN_WEIGHTS_REFERENCED;
}

static trm_status make_plans(onnx_job *j, const char *out, trm_plan **plans)
{
    double began = wall_seconds();
    for (int32_t rank = 0; rank < j->n_ranks; rank++) {
        TRM_TRY(onnx_plan(j, rank, NULL, NULL, &plans[rank]));
    }
    double seconds = wall_seconds() - began;
    if (can_tune(j)) {
        TRM_TRY(onnx_tune_plans(j, plans));
    }
    TRM_TRY(trm_plan_save((const trm_plan *const *)plans, j->n_ranks, kept_weights(j->all), out));
    trm_plan_info info;
    trm_plan_get_info(plans[0], &info);
    print_built(j, out, &info, seconds);
    return TRM_OK;
}

static trm_status build(onnx_job *j, const char *path)
{
    char default_path[4096];
    const char *out;
    if (!names_onnx(path)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "build takes a .onnx file, found %s", path);
    }
    if (settings_flag(j->all, SETTING_EMBED_WEIGHTS) && settings_flag(j->all, SETTING_STRIP_WEIGHTS)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "--embed-weights and --strip-weights are both given, expected at most one");
    }
    TRM_TRY(plan_path(j->all, path, default_path, &out));
    TRM_TRY(onnx_open(j, path, count_ranks(j->all)));
    TRM_TRY(onnx_build(j, false));
    trm_plan *plans[TRM_MAX_RANKS] = {NULL};
    trm_status status = make_plans(j, out, plans);
    for (int32_t rank = 0; rank < j->n_ranks; rank++) {
        trm_plan_destroy(plans[rank]);
    }
    return status;
}

int command_build(const settings *all)
{
    if (!is_first_rank()) { /* one process builds for all ranks */
        return 0;
    }
    onnx_job j = {.all = all, .job = {.all = all, .is_leader = true}};
    trm_status status = build(&j, all->operands[0]);
    int code = status == TRM_OK ? 0 : print_failure(status);
    onnx_close(&j);
    trm_world_close(j.job.world);
    return code;
}

/* ---- refit --------------------------------------------------------------------------------------------- */

static trm_status refit(const settings *all, const char *path)
{
    const char *out = settings_text(all, SETTING_OUT);
    trm_plan *plans[TRM_MAX_RANKS] = {NULL};
    trm_plan_info info;
    int32_t n = 1;
    if (!names_plan(path) || settings_text(all, SETTING_WEIGHTS) == NULL || out == NULL || !names_plan(out)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "refit takes a .plan file, --weights, and --out with a name that ends in .plan");
    }
    trm_status status = plan_load(all, path, 0, &plans[0]);
    if (status == TRM_OK) {
        trm_plan_get_info(plans[0], &info);
        n = info.n_ranks;
    }
    for (int32_t rank = 1; rank < n && status == TRM_OK; rank++) {
        status = plan_load(all, path, rank, &plans[rank]);
    }
    if (status == TRM_OK) {
        status = trm_plan_save((const trm_plan *const *)plans, n, kept_weights(all), out);
    }
    for (int32_t rank = 0; rank < n; rank++) {
        trm_plan_destroy(plans[rank]);
    }
    TRM_TRY(status);
    if (settings_flag(all, SETTING_JSON)) {
        report r;
        report_begin(&r, stdout);
        report_text(&r, "plan", out);
        report_integer(&r, "ranks", n);
        report_end(&r);
    } else if (!settings_flag(all, SETTING_QUIET)) {
        printf("%s: %d rank%s, weights of %s\n", out, n, n == 1 ? "" : "s", settings_text(all, SETTING_WEIGHTS));
    }
    return TRM_OK;
}

int command_refit(const settings *all)
{
    if (!is_first_rank()) {
        return 0;
    }
    trm_status status = refit(all, all->operands[0]);
    return status == TRM_OK ? 0 : print_failure(status);
}
