/*
 * What a rank of a planned network keeps in memory, what of its weights streams, and what layers wait for these: as
 * `inspect` prints and reports it, of a model and of a plan file.
 */
#ifndef TRM_LAUNCHER_CLI_ONNX_PLAN_MEMORY_H
#define TRM_LAUNCHER_CLI_ONNX_PLAN_MEMORY_H

#include <trireme/trireme.h>

#include "launcher/cli/job/report.h"

/* Lines "rank 0: ...". */
trm_status plan_memory_print(const trm_plan *plan, int32_t rank);
/* Members of the object that is open. */
trm_status plan_memory_report(report *r, const trm_plan *plan);

#endif
