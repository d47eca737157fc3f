/* Adapters while requests run: loaded between two steps, unloaded when no request needs them. */
#include "base/error.h"
#include "base/recorder.h"
#include "dist/llm/scheduler/scheduler.h"

static void give_root(trm_scheduler *s, int32_t adapter)
{
    s->adapters[adapter - 1] = (trm_scheduled_adapter){.root = ++s->blocks.last_serial};
}

void trm_scheduler_init_adapters(trm_scheduler *s)
{
    for (int32_t adapter = 1; adapter <= s->g->adapters.n; adapter++) {
        give_root(s, adapter);
    }
}

void trm_scheduler_hold_adapter(trm_scheduler *s, int32_t adapter)
{
    if (adapter > 0) {
        s->adapters[adapter - 1].n_requests++;
    }
}

void trm_scheduler_drop_adapter(trm_scheduler *s, int32_t adapter)
{
    if (adapter > 0 && --s->adapters[adapter - 1].n_requests == 0 && s->adapters[adapter - 1].leaves) {
        s->g->adapters.loaded[adapter - 1] = false;
    }
}

TRM_CALL(trm_scheduler_recorder(s), trm_scheduler_load_adapter,
         (trm_scheduler *s, const char *folder, int32_t *adapter), (s, folder, adapter))
{
    int32_t found;
    if (s == NULL || folder == NULL || adapter == NULL || !trm_scheduler_leads(s) || s->ended) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot load an adapter: %s",
                 s == NULL || folder == NULL || adapter == NULL ? "scheduler, folder or adapter is NULL"
                 : s->ended                                     ? "the scheduler has ended"
                                                                : "this rank follows rank 0");
    }
    TRM_TRY(trm_generator_free_adapter(s->g, folder, &found));
    TRM_TRY(trm_scheduler_send_adapter(s, folder, found));
    TRM_TRY(trm_generator_load_adapter_as(s->g, folder, found));
    give_root(s, found);
    *adapter = found;
    return TRM_OK;
}

TRM_CALL(trm_scheduler_recorder(s), trm_scheduler_unload_adapter, (trm_scheduler *s, int32_t adapter), (s, adapter))
{
    if (s == NULL || adapter < 1 || !trm_generator_has_adapter(s->g, adapter) || s->adapters[adapter - 1].leaves) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot unload adapter %d: it is not loaded", adapter);
    }
    s->adapters[adapter - 1].leaves = true;
    s->g->adapters.loaded[adapter - 1] = s->adapters[adapter - 1].n_requests > 0;
    return TRM_OK;
}
