/* `trireme inspect NET.plan`: the build, weights, inputs and outputs, and memory and collectives of every rank. */
#include <string.h>

#include "base/error.h"
#include "launcher/cli/job/report.h"
#include "launcher/cli/onnx/job.h"
#include "launcher/cli/onnx/plan_memory.h"

/* The plans of all ranks. */
typedef struct plan_set {
    trm_plan *plans[TRM_MAX_RANKS];
    int32_t n, rank; /* rank: the requested one */
} plan_set;

static void close_plans(plan_set *set)
{
    for (int32_t i = 0; i < set->n; i++) {
        trm_plan_destroy(set->plans[i]);
    }
}

/* The requested rank comes first: its plan says how many there are. */
static trm_status open_plans(const settings *all, const char *path, trm_plan *asked, plan_set *set)
{
    trm_plan_info info;
    trm_plan_get_info(asked, &info);
    *set = (plan_set){.rank = info.rank};
    for (; set->n < info.n_ranks; set->n++) {
        trm_status status = TRM_OK;
        if (set->n == info.rank) {
            set->plans[set->n] = asked;
        } else {
            status = plan_load(all, path, set->n, &set->plans[set->n]);
        }
        if (status != TRM_OK) {
            set->plans[info.rank] = NULL; /* owned by the caller */
            close_plans(set);
            return status;
        }
    }
    return TRM_OK;
}

/* Applies --weight-budget as a run of the plan would. */
static trm_status set_budgets(const settings *all, const plan_set *set)
{
    trm_weight_budget budget;
    TRM_TRY(job_budget(all, &budget));
    for (int32_t i = 0; i < set->n && budget.kind != TRM_WEIGHT_BUDGET_OFF; i++) {
        TRM_TRY(trm_plan_set_weight_budget(set->plans[i], &budget));
    }
    return TRM_OK;
}

/* ---- exchanges ----------------------------------------------------------------------------------------- */

/* The collective of a layer, or NULL. */
static const trm_collective_params *collective_of(const trm_layer_info *layer)
{
    return layer->desc->kind == TRM_LAYER_DIST_COLLECTIVE   ? &layer->desc->collective
           : layer->desc->kind == TRM_LAYER_ALL_REDUCE_NORM ? &layer->desc->all_reduce_norm.collective
                                                            : NULL;
}

/* Such as "all_reduce sum f32 4x64 among 2", with the dims of the last tensor. */
static void describe_collective(const trm_layer_info *layer, const trm_collective_params *params, char *text,
                                size_t size)
{
    char dims[160];
    const bool reduces = params->op == TRM_ALL_REDUCE || params->op == TRM_REDUCE || params->op == TRM_REDUCE_SCATTER;
    const trm_tensor *made = layer->outputs[0];
    const trm_dims known = trm_tensor_dims(made);
    onnx_dims_text(&known, dims, sizeof(dims));
    snprintf(text, size, "%s%s%s %s %s among %d", trm_collective_op_name(params->op), reduces ? " " : "",
             reduces ? trm_reduce_op_name(params->reduce) : "", trm_dtype_name(trm_tensor_dtype(made)), dims,
             (int)params->n_ranks);
}

/* Whether two ranks have the same collectives in the same order. */
static bool same_collectives(const trm_plan *a, const trm_plan *b)
{
    const trm_network *of_a = trm_plan_network(a), *of_b = trm_plan_network(b);
    trm_layer_info in_a, in_b;
    int32_t i = 0, k = 0;
    for (;;) {
        const trm_collective_params *found_a = NULL, *found_b = NULL;
        while (found_a == NULL && trm_network_get_layer(of_a, i++, &in_a)) {
            found_a = collective_of(&in_a);
        }
        while (found_b == NULL && trm_network_get_layer(of_b, k++, &in_b)) {
            found_b = collective_of(&in_b);
        }
        if (found_a == NULL || found_b == NULL) {
            return found_a == found_b;
        }
        char text_a[256], text_b[256];
        describe_collective(&in_a, found_a, text_a, sizeof(text_a));
        describe_collective(&in_b, found_b, text_b, sizeof(text_b));
        if (strcmp(in_a.name, in_b.name) != 0 || strcmp(text_a, text_b) != 0) {
            return false;
        }
    }
}

static void print_collectives(const plan_set *set)
{
    if (set->n < 2) {
        return;
    }
    printf("collectives\n");
    for (int32_t rank = 0; rank < set->n; rank++) {
        trm_layer_info layer;
        int32_t same = 0;
        while (same < rank && !same_collectives(set->plans[rank], set->plans[same])) {
            same++;
        }
        if (same < rank) {
            printf("  rank %d: same as rank %d\n", rank, same);
            continue;
        }
        printf("  rank %d:\n", rank);
        for (int32_t i = 0; trm_network_get_layer(trm_plan_network(set->plans[rank]), i, &layer); i++) {
            const trm_collective_params *params = collective_of(&layer);
            char text[256];
            if (params != NULL) {
                describe_collective(&layer, params, text, sizeof(text));
                printf("    %-40s %s\n", layer.name, text);
            }
        }
    }
}

static void report_collectives(report *r, const trm_plan *plan)
{
    trm_layer_info layer;
    report_open(r, "collectives", '[');
    for (int32_t i = 0; trm_network_get_layer(trm_plan_network(plan), i, &layer); i++) {
        const trm_collective_params *params = collective_of(&layer);
        if (params == NULL) {
            continue;
        }
        char dims[160];
        const trm_dims known = trm_tensor_dims(layer.outputs[0]);
        onnx_dims_text(&known, dims, sizeof(dims));
        report_open(r, NULL, '{');
        report_text(r, "layer", layer.name);
        report_text(r, "operation", trm_collective_op_name(params->op));
        report_text(r, "reduce", trm_reduce_op_name(params->reduce));
        report_text(r, "type", trm_dtype_name(trm_tensor_dtype(layer.outputs[0])));
        report_text(r, "dims", dims);
        report_integer(r, "among", params->n_ranks);
        report_close(r);
    }
    report_close(r);
}

/* ---- the plan ------------------------------------------------------------------------------------------ */

static const char *const weight_kinds[] = {"referenced", "embedded", "stripped"}; /* by trm_plan_weights */

static void print_range(const trm_plan *plan, const trm_tensor *tensor)
{
    char dims[160], least[160], usual[160], most[160];
    trm_dims known = trm_tensor_dims(tensor);
    trm_shape_bound bound;
    onnx_dims_text(&known, dims, sizeof(dims));
    printf("  %s %s %s", trm_tensor_name(tensor), trm_dtype_name(trm_tensor_dtype(tensor)), dims);
    for (int32_t i = 0; trm_plan_get_bound(plan, i, &bound); i++) {
        if (strcmp(bound.tensor, trm_tensor_name(tensor)) == 0) {
            onnx_dims_text(bound.min.n > 0 ? &bound.min : &bound.max, least, sizeof(least));
            onnx_dims_text(bound.opt.n > 0 ? &bound.opt : &bound.max, usual, sizeof(usual));
            onnx_dims_text(&bound.max, most, sizeof(most));
            printf(", profile %d: %s, %s, %s", bound.profile, least, usual, most);
        }
    }
    printf("\n");
}

static void print_origin(const trm_plan_info *info)
{
    bool some = false;
    printf("format %d, built by trireme %s%s; weights", info->format, info->library,
           info->refittable ? ", refittable" : "");
    for (int32_t i = 0; i < 3; i++) {
        if (info->n_weights[i] > 0) {
            printf("%s %d %s", some ? "," : "", info->n_weights[i], weight_kinds[i]);
            some = true;
        }
    }
    printf("%s\n", some ? "" : " constants only");
}

static trm_status print_plan(const char *path, const plan_set *set)
{
    const trm_plan *plan = set->plans[set->rank];
    const trm_network *network = trm_plan_network(plan);
    trm_plan_info info;
    char mesh[64];
    trm_plan_get_info(plan, &info);
    trm_mesh_format(&info.mesh, mesh, sizeof(mesh));
    printf("%s: %s, mesh %s; rank %d: %d layers, %d collectives, %d profile%s\n", path, trm_backend_name(info.backend),
           mesh, info.rank, trm_network_layer_count(network), info.n_collectives, info.n_profiles,
           info.n_profiles == 1 ? "" : "s");
    print_origin(&info);
    if (info.n_tactics > 0) {
        printf("tuned on %s (compute capability %d.%d, %d multiprocessors): %d tactics\n", info.device, info.cc_major,
               info.cc_minor, info.multiprocessors, info.n_tactics);
    }
    if (info.n_aux_streams > 0) {
        printf("branches on %d streams\n", info.n_aux_streams + 1);
    }
    printf("inputs\n");
    for (int32_t i = 0; i < trm_network_input_count(network); i++) {
        print_range(plan, trm_network_input(network, i));
    }
    printf("outputs\n");
    for (int32_t i = 0; i < trm_network_output_count(network); i++) {
        print_range(plan, trm_network_output(network, i));
    }
    print_collectives(set);
    for (int32_t rank = 0; rank < set->n; rank++) {
        TRM_TRY(plan_memory_print(set->plans[rank], rank));
    }
    return TRM_OK;
}

static void report_tactics(report *r, const trm_plan *plan, const trm_plan_info *info)
{
    const char *problem, *tactic;
    double microseconds;
    report_text(r, "device", info->device);
    report_open(r, "tactics", '[');
    for (int32_t i = 0; trm_plan_get_tactic(plan, i, &problem, &tactic, &microseconds); i++) {
        report_open(r, NULL, '{');
        report_text(r, "problem", problem);
        report_text(r, "tactic", tactic);
        report_number(r, "microseconds", microseconds);
        report_close(r);
    }
    report_close(r);
}

static trm_status report_plan(const char *path, const plan_set *set)
{
    const trm_plan *plan = set->plans[set->rank];
    trm_plan_info info;
    char mesh[64];
    report r;
    trm_plan_get_info(plan, &info);
    trm_mesh_format(&info.mesh, mesh, sizeof(mesh));
    report_begin(&r, stdout);
    report_text(&r, "plan", path);
    report_integer(&r, "format", info.format);
    report_text(&r, "library", info.library);
    report_text(&r, "backend", trm_backend_name(info.backend));
    report_text(&r, "mesh", mesh);
    report_integer(&r, "rank", info.rank);
    report_integer(&r, "layers", trm_network_layer_count(trm_plan_network(plan)));
    report_integer(&r, "collectives", info.n_collectives);
    report_integer(&r, "profiles", info.n_profiles);
    report_integer(&r, "aux_streams", info.n_aux_streams);
    report_bool(&r, "refittable", info.refittable);
    report_open(&r, "weights", '{');
    for (int32_t i = 0; i < 3; i++) {
        report_integer(&r, weight_kinds[i], info.n_weights[i]);
    }
    report_close(&r);
    report_open(&r, "memory", '{');
    trm_status status = plan_memory_report(&r, plan);
    report_close(&r);
    report_open(&r, "ranks", '[');
    for (int32_t rank = 0; rank < set->n; rank++) {
        report_open(&r, NULL, '{');
        report_integer(&r, "rank", rank);
        report_open(&r, "memory", '{');
        status = status == TRM_OK ? plan_memory_report(&r, set->plans[rank]) : status;
        report_close(&r);
        report_collectives(&r, set->plans[rank]);
        report_close(&r);
    }
    report_close(&r);
    report_tactics(&r, plan, &info);
    report_end(&r);
    return status;
}

static trm_status show_network(trm_plan *plan, bool json)
{
    char *text = json ? trm_plan_to_json(plan) : trm_plan_to_text(plan);
    if (text == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the text of a network");
    }
    fputs(text, stdout);
    trm_free(text);
    return TRM_OK;
}

/* Refuses options for other inputs or ranks than the plan was built for. */
static trm_status check_settings(const settings *all, const trm_plan *plan)
{
    static const setting_id of_runs[] = {SETTING_SHAPES, SETTING_ELEMENTS};
    trm_plan_info info;
    trm_plan_get_info(plan, &info);
    for (size_t i = 0; i < sizeof(of_runs) / sizeof(of_runs[0]); i++) {
        if (settings_is_option(all, of_runs[i])) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option %s is for building or running a plan",
                     all->origins[of_runs[i]]);
        }
    }
    if (settings_is_option(all, SETTING_RANKS) && settings_integer(all, SETTING_RANKS) != info.n_ranks) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "ranks is %s, but the plan was built for %d",
                 settings_text(all, SETTING_RANKS), (int)info.n_ranks);
    }
    TRM_TRY(job_check_sharing(all, &info.mesh));
    return plan_check_mesh(all, &info, info.n_ranks);
}

trm_status plan_inspect(const settings *all, const char *path)
{
    trm_plan *plan = NULL;
    const char *stage = settings_text(all, SETTING_AFTER);
    const bool json = settings_flag(all, SETTING_JSON);
    if (stage != NULL && strcmp(stage, "final") != 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "after is \"%s\", expected final: a plan file has no other stage (%s)",
                 stage, all->origins[SETTING_AFTER]);
    }
    TRM_TRY(plan_load(all, path, (int32_t)settings_integer(all, SETTING_RANK), &plan));
    trm_status status = check_settings(all, plan);
    plan_set set = {.plans = {plan}, .n = 1};
    if (status == TRM_OK && stage == NULL) {
        status = open_plans(all, path, plan, &set);
    }
    if (status != TRM_OK) {
        trm_plan_destroy(plan);
        return status;
    }
    status = set_budgets(all, &set);
    if (status == TRM_OK) {
        status = stage != NULL ? show_network(plan, json) : json ? report_plan(path, &set) : print_plan(path, &set);
    }
    close_plans(&set);
    return status;
}
