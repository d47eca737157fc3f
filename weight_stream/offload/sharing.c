/*
 * Ranks with the same weights stream them together: which weights, which groups, and what the ranks must agree on.
 * Replicas along dp have the same network; each copies an equal part of a weight, and an all-gather on the layers'
 * stream brings the others before a layer needs them.
 */
#include "base/error.h"
#include "base/hash.h"
#include "dist/parallel/bandwidth_probe.h"
#include "weight_stream/offload/streaming.h"
#include "dist/parallel/world.h"

/* For measuring the all-gather: bytes per rank, and repetitions. */
#define GATHERED_PART ((size_t)32 << 20)
#define GATHERS       4

/* Replicas may run different layers of regions, since their inputs differ, so a network with regions shares nothing. If
 * it is a stage, other stages may share, for which all ranks make the groups. */
static bool wants_sharing(const trm_plan *plan, const trm_streaming_plan *s)
{
    const bool may = s->problem.sections == NULL || plan->mesh.size[TRM_AXIS_PP] > 1;
    return may && s->asked.sharing == TRM_WEIGHT_SHARING_ON && plan->mesh.size[TRM_AXIS_DP] > 1 &&
           !plan->partition.as_written;
}

/* Ranks with the same position in every replica. */
static void list_groups(const trm_plan *plan, trm_streaming_plan *s)
{
    const int32_t n = plan->mesh.size[TRM_AXIS_DP];
    s->n_sharers = n;
    s->share = trm_mesh_coordinate(&plan->mesh, TRM_AXIS_DP, plan->rank);
    s->n_groups = trm_mesh_ranks(&plan->mesh) / n;
    for (int32_t g = 0; g < s->n_groups; g++) { /* dp is the slowest digit: the first replica has ranks 0 .. n_groups */
        trm_mesh_group(&plan->mesh, TRM_AXIS_DP, g, s->groups + (size_t)g * (size_t)n);
    }
}

void trm_streaming_share(const trm_plan *plan, trm_streaming_plan *s)
{
    s->n_sharers = 1;
    if (wants_sharing(plan, s)) {
        list_groups(plan, s);
    }
    for (int32_t i = 0; i < s->problem.n_weights; i++) { /* tables whose rows are read in host memory are not split */
        size_t grain = (size_t)s->n_sharers * TRM_RING_ALIGNMENT;
        s->shared[i] = s->n_sharers > 1 && s->problem.sections == NULL && s->bytes[i] % grain == 0 &&
                       !trm_streaming_has_rows(s, i);
        s->part_bytes[i] = s->shared[i] ? s->bytes[i] / (size_t)s->n_sharers : s->bytes[i];
        s->part_begin[i] = s->shared[i] ? s->part_bytes[i] * (size_t)s->share : 0;
    }
}

trm_status trm_streaming_agree(trm_plan *plan, trm_world *world)
{
    trm_streaming_plan *s = plan->streaming;
    if (s == NULL || s->n_sharers == 1 || s->asked.kind != TRM_WEIGHT_BUDGET_AUTO) {
        return TRM_OK;
    }
    int64_t budget = (int64_t)s->problem.budget, ring = (int64_t)(s->problem.ring_limit & (SIZE_MAX >> 1));
    TRM_TRY(trm_world_minimum(world, &budget, 1));
    TRM_TRY(trm_world_minimum(world, &ring, 1));
    s->problem.ring_limit = (size_t)ring;
    s->asked.kind = TRM_WEIGHT_BUDGET_BYTES; /* it has been resolved */
    s->asked.bytes = (size_t)budget;
    return trm_streaming_replan(plan, (size_t)budget);
}

trm_status trm_streaming_check_alike(const trm_plan *plan, trm_world *world)
{
    const trm_streaming_plan *s = plan->streaming;
    if (s == NULL || s->n_sharers == 1) {
        return TRM_OK;
    }
    /* pipeline stages have different layers: only ranks of a group are compared */
    trm_communicator *host, *group;
    TRM_TRY(trm_world_host_communicator(world, &host));
    TRM_TRY(trm_communicator_part(host, s->groups, s->n_groups, s->n_sharers, &group));
    uint64_t mine = TRM_HASH_START, all[TRM_MAX_RANKS];
    for (int32_t i = 0; i < s->problem.n_weights; i++) {
        uint64_t item = (uint64_t)s->bytes[i] * 2 + (s->residency.resident[i] ? 1 : 0);
        mine = trm_hash_bytes(mine, &item, sizeof(item));
    }
    const trm_exchange x = {TRM_ALL_GATHER, TRM_REDUCE_NONE, TRM_U64, &mine, all, 1, 0};
    TRM_TRY(trm_communicator_exchange(group, &x, NULL));
    for (int32_t r = 0; r < s->n_sharers; r++) {
        if (all[r] != mine) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                     "rank %d keeps other weights on the device than rank %d, with which it shares weights: give "
                     "both the same weight budget",
                     plan->rank, (int)group->world_ranks[r]);
        }
    }
    return TRM_OK;
}

trm_status trm_streaming_open_group(const trm_plan *plan, trm_world *world, trm_communicator **group)
{
    const trm_streaming_plan *s = plan->streaming;
    *group = NULL;
    return s == NULL || s->n_sharers == 1
               ? TRM_OK
               : trm_communicator_part(world->communicator, s->groups, s->n_groups, s->n_sharers, group);
}

trm_status trm_streaming_gather(void *user, void *memory, size_t part_bytes, trm_stream *stream)
{
    trm_communicator *group = user;
    const unsigned char *own = (unsigned char *)memory + part_bytes * (size_t)group->rank;
    const trm_exchange x = {TRM_ALL_GATHER, TRM_REDUCE_NONE, TRM_U8, own, memory, part_bytes, 0};
    return trm_communicator_exchange(group, &x, stream);
}

/* Gathers into `memory` once, then times more gathers. */
static trm_status time_gathers(trm_bandwidth_probe *p, void *memory, trm_world *world, trm_communicator *group,
                               double *rate)
{
    for (int32_t i = 0; i <= GATHERS; i++) {
        if (i == 1) { /* the first one connects */
            TRM_TRY(trm_bandwidth_probe_begin(p));
        }
        TRM_TRY(trm_streaming_gather(group, memory, GATHERED_PART, p->stream));
    }
    TRM_TRY(trm_bandwidth_probe_end(p));
    TRM_TRY(trm_world_await(world, p->end, "measuring how fast ranks exchange weights"));
    return trm_bandwidth_probe_rate(p, (double)GATHERS * (double)GATHERED_PART * (group->size - 1), rate);
}

trm_status trm_streaming_measure_gather(trm_world *world, trm_communicator *group, double *rate)
{
    *rate = 0;
    if (group == NULL || !trm_world_has_host_communicator(world)) { /* the same as on every rank */
        return TRM_OK;
    }
    trm_bandwidth_probe p = {0};
    void *memory = NULL;
    int64_t ready = trm_bandwidth_probe_init(&p, world->device) == TRM_OK &&
                    trm_device_alloc(world->device, GATHERED_PART * (size_t)group->size, &memory) == TRM_OK;
    trm_status status = trm_world_minimum(world, &ready, 1);
    if (status == TRM_OK && ready) {
        status = time_gathers(&p, memory, world, group, rate);
    }
    trm_device_free(world->device, memory);
    trm_bandwidth_probe_fini(&p);
    return trm_world_all_ok(world, status);
}

trm_status trm_streaming_agree_on_rates(trm_world *world, const trm_communicator *group, trm_streaming_rates *rates)
{
    if (!trm_world_has_host_communicator(world)) {
        *rates = group == NULL ? *rates : (trm_streaming_rates){0}; /* ranks that share plan with assumed rates */
        return TRM_OK;
    }
    double *all[] = {&rates->link, &rates->unpack, &rates->file, &rates->gather};
    const size_t n = sizeof(all) / sizeof(*all);
    int64_t found[sizeof(all) / sizeof(*all)];
    for (size_t i = 0; i < n; i++) {
        found[i] = *all[i] >= 1 ? (int64_t)*all[i] : INT64_MAX; /* ranks without a measurement do not count */
    }
    TRM_TRY(trm_world_minimum(world, found, n));
    for (size_t i = 0; i < n; i++) {
        *all[i] = found[i] == INT64_MAX ? 0 : (double)found[i];
    }
    return TRM_OK;
}
