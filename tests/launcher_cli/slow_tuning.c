/*
 * Kernel tables in which the host's product has variants: two tactics that are the same in truth. The program that is
 * linked with them tunes on any machine.
 *
 * Where SLOW_TUNING_MARK names a file, it is made when the first tactics have been timed, and no others are until it is
 * gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "dist/plan/plan.h"
#include "kernels/program.h"
#include "kernels/tuner/tuner.h"

static const trm_kernel_table *const host[] = {&trm_host_kernels};

static bool accepts(const trm_kernel_call *call)
{
    return call->layer->kind == TRM_LAYER_MATMUL && trm_kernel_find(host, 1, TRM_BACKEND_HOST, call) != NULL;
}

static size_t workspace(const trm_kernel_call *call)
{
    const trm_kernel *kernel = trm_kernel_find(host, 1, TRM_BACKEND_HOST, call);
    return kernel->workspace == NULL ? 0 : kernel->workspace(call);
}

/* Every call is a problem of its own, in the order in which layers run. */
static trm_status tune(const trm_kernel_call *call, trm_tuner *tuner)
{
    static int32_t n; /* problems so far, known ones too */
    char problem[64];
    (void)call;
    snprintf(problem, sizeof(problem), "slow product %d", (int)n++);
    if (trm_tuner_find(tuner, problem) != NULL || trm_tuner_proposals(tuner) == 0) {
        return TRM_OK;
    }
    const trm_tactic tactics[] = {{"patient", 7.5}, {"hasty", 2.25}};
    trm_status status = trm_tuner_record(tuner, problem, tactics, 2);
    const char *mark = n == 1 ? getenv("SLOW_TUNING_MARK") : NULL;
    FILE *file = mark == NULL ? NULL : fopen(mark, "w");
    if (file != NULL) {
        fclose(file);
        for (int32_t i = 0; i < 60000 && access(mark, F_OK) == 0; i++) {
            usleep(10000);
        }
    }
    return status;
}

static trm_status prepare(const trm_kernel_call *call, trm_program *program)
{
    trm_tuner *tuner;
    TRM_TRY(trm_program_take_tuner(program, &tuner) ? tune(call, tuner) : TRM_OK);
    return trm_kernel_prepare(trm_kernel_find(host, 1, TRM_BACKEND_HOST, call), call, program);
}

static const trm_kernel slow_kernels[] = {
    {.name = "host.slow",
     .kind = TRM_LAYER_MATMUL,
     .backend = TRM_BACKEND_HOST,
     .accepts = accepts,
     .workspace = workspace,
     .prepare = prepare,
     .is_tuned = true},
};
static const trm_kernel_table slow = {slow_kernels, 1};

const trm_kernel_table *const trm_all_kernels[] = {
    &slow, &trm_cuda_kernels, &trm_host_kernels, &trm_attention_kernels, &trm_collective_kernels,
};
const int32_t trm_all_kernels_count = sizeof(trm_all_kernels) / sizeof(trm_all_kernels[0]);
