/* Memory of a planned rank, as text and as JSON. */
#include "launcher/cli/onnx/plan_memory.h"

#include "base/unit.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/job/stalls.h"

trm_status plan_memory_print(const trm_plan *plan, int32_t rank)
{
    trm_memory_plan m;
    trm_streaming_info streaming;
    stall_list stalls = {0};
    char text[768];
    trm_plan_memory(plan, &m);
    trm_plan_streaming(plan, &streaming);
    trm_plan_stalls(plan, stall_list_add, &stalls);
    const trm_unit unit = trm_unit_of((double)m.total);
    printf("rank %d: %.3f %s: weights %.3f, staging %.3f, state %.3f, activations %.3f, workspace %.3f\n", rank,
           (double)m.total / unit.bytes, unit.name, (double)m.weights / unit.bytes, (double)m.staging / unit.bytes,
           (double)m.state / unit.bytes, (double)m.activations / unit.bytes, (double)m.workspace / unit.bytes);
    describe_streaming(&streaming, text, sizeof(text));
    if (text[0] != '\0') {
        printf("  %s\n", text);
    }
    stall_list_print(&stalls, "  waits for weights in such a step");
    const trm_status status = stalls.status;
    stall_list_fini(&stalls);
    return status;
}

trm_status plan_memory_report(report *r, const trm_plan *plan)
{
    trm_memory_plan m;
    trm_streaming_info streaming;
    stall_list stalls = {0};
    trm_plan_memory(plan, &m);
    trm_plan_streaming(plan, &streaming);
    trm_plan_stalls(plan, stall_list_add, &stalls);
    report_integer(r, "weights", (int64_t)m.weights);
    report_integer(r, "staging", (int64_t)m.staging);
    report_integer(r, "state", (int64_t)m.state);
    report_integer(r, "activations", (int64_t)m.activations);
    report_integer(r, "workspace", (int64_t)m.workspace);
    report_integer(r, "total", (int64_t)m.total);
    report_streaming(r, &streaming);
    if (streaming.on) {
        stall_list_report(&stalls, r, "weight_waits");
    }
    const trm_status status = stalls.status;
    stall_list_fini(&stalls);
    return status;
}
