/* The streaming plan: lookups, staging size, destruction. */
#include "dist/plan/streaming_plan.h"

#include <stdlib.h>

#include "dist/plan/plan.h"

int32_t trm_streaming_weight(const trm_plan *plan, const trm_tensor *tensor)
{
    return plan->streaming == NULL ? -1 : plan->streaming->weight_of[tensor->index];
}

void trm_streaming_plan_destroy(trm_streaming_plan *streaming)
{
    if (streaming != NULL) {
        trm_residency_fini(&streaming->residency);
        trm_residency_fini(&streaming->small);
        trm_arena_fini(&streaming->arena);
        free(streaming);
    }
}

int32_t trm_streaming_copy_schedules(const trm_streaming_plan *s)
{
    return s->hosts || s->expert_slots > 0 ? TRM_COPY_SCHEDULE_COUNT : 1;
}

const trm_residency *trm_streaming_copy_schedule(const trm_streaming_plan *s, int32_t schedule)
{
    return schedule < trm_streaming_copy_schedules(s) && schedule == TRM_COPY_SCHEDULE_SMALL ? &s->small
                                                                                             : &s->residency;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t trm_streaming_staging(const trm_streaming_plan *s)
{
    return larger(s->residency.ring_bytes, s->small.ring_bytes) +
           larger(s->residency.stage_bytes, s->small.stage_bytes);
}
