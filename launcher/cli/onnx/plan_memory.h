/*
 * Memory of a rank of a planned network, its streamed weights, and the waits of layers for them: printed and reported
 * by inspect for an ONNX file and for a plan file.
 */
#ifndef TRM_LAUNCHER_CLI_ONNX_PLAN_MEMORY_H
#define TRM_LAUNCHER_CLI_ONNX_PLAN_MEMORY_H

#include <trireme/trireme.h>

#include "launcher/cli/job/report.h"

/* Prints lines "rank 0: ...". */
trm_status plan_memory_print(const trm_plan *plan, int32_t rank);
/* Reports members of the open object. */
trm_status plan_memory_report(report *r, const trm_plan *plan);

#endif
