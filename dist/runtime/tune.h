/* Tuning of a context: what was timed for its layers. */
#ifndef TRM_DIST_RUNTIME_TUNE_H
#define TRM_DIST_RUNTIME_TUNE_H

#include <trireme/engine.h>

#include "kernels/program.h"
#include "kernels/tuner/tuner.h"

/* tune.c alone looks inside. */
typedef struct trm_context_tuning {
    trm_tuner *tuner;           /* NULL before the first tuning */
    const trm_timing **timings; /* [n_layers] of the last tuning, NULL if nothing was chosen */
    struct trm_tuning *running; /* during tuning */
    bool is_paused;
} trm_context_tuning;

void trm_context_tuning_fini(trm_context *context);
/* trm_context_tune without exchanges between ranks, for a generator, which chose those before its context was created.
 */
trm_status trm_context_tune_kernels(trm_context *context, const trm_tune_options *options);
/* Whether runs choose kernels now; and while launches are prepared for later runs, not. */
bool trm_context_is_tuning(const trm_context *context);
void trm_context_pause_tuning(trm_context *context, bool pause);
/* During tuning, before and after the kernel of a layer is prepared: lets it choose among its variants. */
trm_status trm_context_begin_choice(trm_context *context, int32_t layer, trm_program *program);
void trm_context_end_choice(trm_context *context, int32_t layer, trm_program *program);
/* What the last tuning knows of a layer, or NULL. */
const trm_timing *trm_context_timing(const trm_context *context, int32_t layer);

#endif
