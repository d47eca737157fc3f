/* The models that are loaded. */
#include "launcher/serve/replicas/model_pool.h"

static bool is_better(const dispatcher_use *a, const dispatcher_use *b)
{
    return (a->live == 0) != (b->live == 0) ? a->live == 0 : a->used < b->used;
}

pool_step pool_choose(const dispatcher_use *models, int32_t n, int32_t most_loaded)
{
    pool_step step = {-1, -1, -1, -1};
    int32_t n_loaded = 0, wanted = -1, victim = -1;
    for (int32_t i = 0; i < n; i++) {
        const dispatcher_use *at = &models[i];
        if (at->gone) {
            const bool waits = at->wanted > 0 && at->state == DISPATCHER_SLEEPING;
            wanted = waits && (wanted < 0 || at->wanted < models[wanted].wanted) ? i : wanted;
        } else if (at->state != DISPATCHER_READY || at->leaving) {
            return step; /* it is not known yet what this one takes, or leaves */
        } else {
            victim = victim < 0 || is_better(at, &models[victim]) ? i : victim;
            n_loaded++;
        }
    }
    if (wanted < 0) {
        return step;
    }
    if (n_loaded < most_loaded && !models[wanted].lacks_memory) {
        step.load = wanted;
    } else if (victim >= 0) {
        step.unload = victim;
        step.retry = models[wanted].lacks_memory ? wanted : -1;
    } else {
        step.give_up = wanted;
    }
    return step;
}

void pool_tend(dispatcher *const *models, int32_t n, int32_t most_loaded)
{
    dispatcher_use uses[POOL_MAX_MODELS];
    for (int32_t i = 0; i < n; i++) {
        uses[i] = dispatcher_get_use(models[i]);
    }
    const pool_step step = pool_choose(uses, n, most_loaded);
    if (step.load >= 0) {
        dispatcher_load(models[step.load]);
    }
    if (step.unload >= 0) {
        dispatcher_unload(models[step.unload]);
    }
    if (step.retry >= 0) {
        dispatcher_retry(models[step.retry]);
    }
    if (step.give_up >= 0) {
        dispatcher_give_up(models[step.give_up]);
    }
}
