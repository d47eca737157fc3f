/* `trireme inspect NET.onnx`: inputs and outputs of a model, operators that cannot be imported, its network, its
 * memory. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/unit.h"
#include "launcher/cli/job/report.h"
#include "launcher/cli/onnx/job.h"
#include "launcher/cli/onnx/plan_memory.h"

/* The dims of a port with the model's names, such as "batchx3x224x?". */
static void port_dims(const trm_onnx_port *port, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s", !port->has_dims ? "" : port->dims.n == 0 ? "scalar" : "");
    for (int32_t i = 0; port->has_dims && i < port->dims.n && used < size; i++) {
        char number[32];
        snprintf(number, sizeof(number), "%lld", (long long)port->dims.d[i]);
        const char *part = port->dims.d[i] >= 0 ? number : port->dim_names[i] != NULL ? port->dim_names[i] : "?";
        used += (size_t)snprintf(text + used, size - used, "%s%s", i == 0 ? "" : "x", part);
    }
}

static void print_ports(const onnx_job *j, const char *title, bool (*get)(trm_onnx *, int32_t, trm_onnx_port *))
{
    trm_onnx_port port;
    for (int32_t i = 0; get(j->model, i, &port); i++) {
        char dims[512];
        port_dims(&port, dims, sizeof(dims));
        printf("%s", i == 0 ? title : "");
        printf("  %-40s %-16s %s\n", port.name, port.type, dims);
    }
}

static void report_ports(const onnx_job *j, report *r, const char *key,
                         bool (*get)(trm_onnx *, int32_t, trm_onnx_port *))
{
    trm_onnx_port port;
    report_open(r, key, '[');
    for (int32_t i = 0; get(j->model, i, &port); i++) {
        char dims[512];
        port_dims(&port, dims, sizeof(dims));
        report_open(r, NULL, '{');
        report_text(r, "name", port.name);
        report_text(r, "type", port.type);
        report_text(r, "dims", port.has_dims ? dims : NULL);
        report_close(r);
    }
    report_close(r);
}

static void print_model(const onnx_job *j, bool built)
{
    trm_onnx_info info;
    trm_onnx_get_info(j->model, &info);
    printf("%s\n", info.path);
    if (info.producer[0] != '\0') {
        printf("  made by         %s\n", info.producer);
    }
    printf("  format          IR %lld, opset %lld\n  nodes           %d, %d local functions\n"
           "  parameters      %s, %s\n",
           (long long)info.ir_version, (long long)info.opset, info.nodes, info.functions,
           trm_count_text(info.parameters).text, trm_size_text((double)info.weight_bytes).text);
    if (info.newer_opset > 0) {
        printf("  opset %lld is newer than %d, the newest supported: operators may have another meaning\n",
               (long long)info.newer_opset, TRM_ONNX_NEWEST_OPSET);
    }
    print_ports(j, "inputs\n", trm_onnx_get_input);
    print_ports(j, "inputs with a default\n", trm_onnx_get_default);
    print_ports(j, "outputs\n", trm_onnx_get_output);
    printf("operators\n");
    trm_onnx_use use;
    for (int32_t i = 0; trm_onnx_get_use(j->model, i, &use); i++) {
        char name[160];
        snprintf(name, sizeof(name), "%s%s%s", use.domain, use.domain[0] == '\0' ? "" : ".", use.op);
        printf("  %-40s opset %-3lld %6d%s\n", name, (long long)use.opset, use.nodes,
               use.known ? "" : "  not supported");
    }
    int32_t n = trm_onnx_issue_count(j->model);
    if (built) {
        printf("it can be imported: %d layers\n", trm_network_layer_count(j->network));
        return;
    }
    printf("it cannot be imported: %d issue%s\n", n, n == 1 ? "" : "s");
    trm_onnx_issue issue;
    for (int32_t i = 0; trm_onnx_get_issue(j->model, i, &issue); i++) {
        printf("  %s\n", issue.text);
    }
}

static void report_model(const onnx_job *j, report *r, bool built)
{
    trm_onnx_info info;
    trm_onnx_get_info(j->model, &info);
    report_text(r, "path", info.path);
    report_text(r, "producer", info.producer);
    report_integer(r, "ir_version", info.ir_version);
    report_integer(r, "opset", info.opset);
    report_integer(r, "newest_known_opset", TRM_ONNX_NEWEST_OPSET);
    report_bool(r, "opset_is_known", info.newer_opset == 0);
    report_integer(r, "nodes", info.nodes);
    report_integer(r, "functions", info.functions);
    report_integer(r, "parameters", info.parameters);
    report_integer(r, "weight_bytes", (int64_t)info.weight_bytes);
    report_ports(j, r, "inputs", trm_onnx_get_input);
    report_ports(j, r, "inputs_with_default", trm_onnx_get_default);
    report_ports(j, r, "outputs", trm_onnx_get_output);
    report_open(r, "operators", '[');
    trm_onnx_use use;
    for (int32_t i = 0; trm_onnx_get_use(j->model, i, &use); i++) {
        report_open(r, NULL, '{');
        report_text(r, "domain", use.domain);
        report_text(r, "operator", use.op);
        report_integer(r, "opset", use.opset);
        report_integer(r, "nodes", use.nodes);
        report_bool(r, "supported", use.known);
        report_close(r);
    }
    report_close(r);
    report_bool(r, "can_be_imported", built);
    report_open(r, "issues", '[');
    trm_onnx_issue issue;
    for (int32_t i = 0; trm_onnx_get_issue(j->model, i, &issue); i++) {
        report_open(r, NULL, '{');
        report_text(r, "place", issue.place);
        report_integer(r, "node", issue.node);
        report_text(r, "name", issue.name);
        report_text(r, "domain", issue.domain);
        report_text(r, "operator", issue.op);
        report_integer(r, "opset", issue.opset);
        report_text(r, "status", trm_status_name(issue.status));
        report_text(r, "cause", issue.cause);
        report_close(r);
    }
    report_close(r);
}

typedef struct stage_text {
    const char *wanted;
    char *text;
} stage_text;

static void keep_stage(void *user, const char *stage, const trm_network *network)
{
    stage_text *kept = user;
    if (kept->text == NULL && strcmp(stage, kept->wanted) == 0) {
        kept->text = trm_network_to_text(network);
    }
}

static trm_status show_stage(onnx_job *j, const char *stage)
{
    stage_text kept = {.wanted = stage};
    trm_plan *plan = NULL;
    int32_t rank = (int32_t)settings_integer(j->all, SETTING_RANK);
    trm_status status = onnx_plan(j, rank, keep_stage, &kept, &plan);
    if (status == TRM_OK && kept.text == NULL) {
        status =
            trm_fail(TRM_ERROR_INVALID_ARGUMENT, "after is \"%s\", expected import, passes, partition or final (%s)",
                     stage, j->all->origins[SETTING_AFTER]);
    }
    if (status == TRM_OK && !settings_flag(j->all, SETTING_JSON)) {
        fputs(kept.text, stdout);
    } else if (status == TRM_OK) {
        status = report_stage(stage, rank, j->n_ranks, kept.text, plan);
    }
    trm_plan_destroy(plan);
    trm_free(kept.text);
    return status;
}

static trm_status show_memory(onnx_job *j, report *r)
{
    if (r != NULL) {
        report_open(r, "memory", '[');
    }
    for (int32_t rank = 0; rank < j->n_ranks; rank++) {
        trm_plan *plan = NULL;
        TRM_TRY(onnx_plan(j, rank, NULL, NULL, &plan));
        if (r != NULL) {
            report_open(r, NULL, '{');
            report_integer(r, "rank", rank);
        }
        const trm_status status = r != NULL ? plan_memory_report(r, plan) : plan_memory_print(plan, rank);
        if (r != NULL) {
            report_close(r);
        }
        trm_plan_destroy(plan);
        TRM_TRY(status);
    }
    if (r != NULL) {
        report_close(r);
    }
    return TRM_OK;
}

static trm_status show(onnx_job *j)
{
    const char *stage = settings_text(j->all, SETTING_AFTER);
    bool memory = settings_flag(j->all, SETTING_MEMORY_PLAN);
    trm_status status = onnx_build(j, stage == NULL && !memory);
    bool built = status == TRM_OK;
    trm_held_error held; /* printing the model may overwrite it */
    trm_error_hold(status, &held);
    if (!built && trm_onnx_issue_count(j->model) == 0) {
        return status;
    }
    if (stage != NULL) {
        return built ? show_stage(j, stage) : status;
    }
    memory = memory && built;
    trm_status planned = TRM_OK;
    if (settings_flag(j->all, SETTING_JSON)) {
        report r;
        report_begin(&r, stdout);
        report_model(j, &r, built);
        planned = memory ? show_memory(j, &r) : TRM_OK;
        report_end(&r);
    } else {
        print_model(j, built);
        planned = memory ? show_memory(j, NULL) : TRM_OK;
    }
    return built ? planned : trm_error_give_back(&held);
}

trm_status onnx_inspect(const settings *all, const char *path)
{
    onnx_job j = {.all = all};
    trm_status status = onnx_open(&j, path, (int32_t)settings_integer(all, SETTING_RANKS));
    if (status == TRM_OK) {
        status = show(&j);
    }
    onnx_close(&j);
    return status;
}
