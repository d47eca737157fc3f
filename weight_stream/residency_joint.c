/*
 * Chooses residents and offloaded layers together: tries the planner's residents, which consider only the link, and
 * others, each with its best offloaded layers.
 */
#include <string.h>

#include "base/error.h"
#include "weight_stream/residency.h"

/* Up to this many weights, any one or two are swapped. */
#define FEW 12
/* Other residents must be this much faster. */
#define LESS 0.999

static trm_status host_and_time(const trm_residency_problem *problem, const bool *resident, bool *offloaded,
                                double *seconds)
{
    trm_residency made;
    trm_residency_problem small = *problem;
    TRM_TRY(trm_residency_host(problem, resident, -1, offloaded));
    small.offloaded = offloaded;
    small.largest_seconds = NULL;
    TRM_TRY(trm_residency_of(&small, resident, &made));
    *seconds = made.seconds;
    trm_residency_fini(&made);
    return TRM_OK;
}

/* Residents if one weight stays: plans the others with the rest of the budget. `uses` has room for all. */
static trm_status plan_keeping(const trm_residency_problem *problem, int32_t weight, trm_residency_use *uses,
                               bool *resident)
{
    trm_residency made;
    trm_residency_problem others = *problem;
    others.budget -= problem->bytes[weight];
    others.uses = uses;
    others.n_uses = 0;
    for (int32_t i = 0; i < problem->n_uses; i++) {
        if (problem->uses[i].weight != weight) {
            uses[others.n_uses++] = problem->uses[i];
        }
    }
    TRM_TRY(trm_residency_plan(&others, &made));
    memcpy(resident, made.resident, (size_t)problem->n_weights * sizeof(*resident));
    resident[weight] = true;
    trm_residency_fini(&made);
    return TRM_OK;
}

/* The largest weight that can stay and is fetched if it does not; -1: none. */
static int32_t largest_weight(const trm_residency_problem *problem)
{
    int32_t largest = -1;
    for (int32_t i = 0; i < problem->n_uses; i++) {
        const size_t bytes = problem->bytes[problem->uses[i].weight];
        if (!problem->uses[i].in_place && bytes <= problem->budget &&
            (largest < 0 || bytes > problem->bytes[largest])) {
            largest = problem->uses[i].weight;
        }
    }
    return largest;
}

/* The best choice of both, and the current one. */
typedef struct joint {
    const trm_residency_problem *problem;
    bool *resident, *offloaded; /* [n_weights], [n_layers] */
    double seconds;
    bool *stays, *runs;
} joint;

/* Keeps the current choice if it is better. */
static trm_status try_jointly(joint *j, bool *better)
{
    double seconds;
    TRM_TRY(host_and_time(j->problem, j->stays, j->runs, &seconds));
    *better = seconds < j->seconds * LESS;
    if (*better) {
        j->seconds = seconds;
        memcpy(j->resident, j->stays, (size_t)j->problem->n_weights * sizeof(*j->resident));
        memcpy(j->offloaded, j->runs, (size_t)j->problem->n_layers * sizeof(*j->offloaded));
    }
    return TRM_OK;
}

/* For few weights, swaps one or two as long as that helps. */
static trm_status exchange_jointly(joint *j)
{
    const trm_residency_problem *problem = j->problem;
    const int32_t n = problem->n_weights;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = 0; i < n * n; i++) {
            const int32_t a = i / n, b = i % n;
            size_t bytes = 0;
            bool better;
            memcpy(j->stays, j->resident, (size_t)n * sizeof(*j->stays));
            j->stays[a] = !j->stays[a];
            j->stays[b] = a == b ? j->stays[b] : !j->stays[b];
            for (int32_t k = 0; k < n; k++) {
                bytes += j->stays[k] ? problem->bytes[k] : 0;
            }
            if (a <= b && bytes <= problem->budget) {
                TRM_TRY(try_jointly(j, &better));
                changed = changed || better;
            }
        }
    }
    return TRM_OK;
}

trm_status trm_residency_host_jointly(const trm_residency_problem *problem, bool *resident, bool *offloaded)
{
    trm_arena arena = {0};
    joint j = {.problem = problem, .resident = resident, .offloaded = offloaded};
    j.stays = trm_arena_array(&arena, (size_t)problem->n_weights + 1, sizeof(*j.stays));
    j.runs = trm_arena_array(&arena, (size_t)problem->n_layers + 1, sizeof(*j.runs));
    trm_residency_use *uses = trm_arena_array(&arena, (size_t)problem->n_uses + 1, sizeof(*uses));
    const int32_t largest = largest_weight(problem);
    bool better;
    trm_status status = j.stays == NULL || j.runs == NULL || uses == NULL
                            ? TRM_ERROR_OUT_OF_MEMORY
                            : host_and_time(problem, resident, offloaded, &j.seconds);
    if (status == TRM_OK && largest >= 0 && !resident[largest]) {
        status = plan_keeping(problem, largest, uses, j.stays);
        status = status == TRM_OK ? try_jointly(&j, &better) : status;
    }
    if (status == TRM_OK && problem->n_weights <= FEW && !problem->quick) {
        status = exchange_jointly(&j);
    }
    trm_arena_fini(&arena);
    return status;
}
