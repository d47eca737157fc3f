/*
 * Weight streaming of a rank: plans for a budget, and again for another one. residency_inputs.c makes the planner's
 * input, budget.c parses options.
 */
#include "weight_stream/offload/streaming.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/recorder.h"
#include "base/unit.h"
#include "graph/layer_runs.h"
#include "graph/regions.h"
#include "weight_stream/offload/expert_cache.h"
#include "weight_stream/offload/expert_profile.h"

/* Gain that is worth a hint, and gain that is worth different last bits. */
#define CLEARLY_LESS 0.8
#define LESS         0.97

bool trm_streaming_fetches(const trm_plan *plan)
{
    return plan->streaming != NULL && plan->streaming->residency.n_fetches > 0; /* small steps copy some of them */
}

/* Plans both copy schedules for a residency. The small one uses the other's ring. */
static trm_status plan_schedules(trm_streaming_plan *s, const trm_residency_problem *problem, const bool *resident)
{
    trm_residency large, small = {0};
    trm_residency_problem of_small = *problem;
    TRM_TRY(trm_residency_of(problem, resident, &large));
    of_small.offloaded = s->offloaded;
    of_small.largest_seconds = NULL;
    of_small.ring_limit = large.ring_bytes;
    if (s->expert_slots > 0) {
        trm_expert_cache_estimate(s, problem->link_rate, s->cached_seconds);
        of_small.offloaded = s->cached;
        of_small.host_seconds = s->cached_seconds;
    }
    trm_status status = trm_streaming_copy_schedules(s) > 1 ? trm_residency_of(&of_small, resident, &small) : TRM_OK;
    if (status != TRM_OK) {
        trm_residency_fini(&large);
        return status;
    }
    trm_residency_fini(&s->residency);
    trm_residency_fini(&s->small);
    s->residency = large;
    s->small = small;
    return TRM_OK;
}

static void host_nothing(trm_streaming_plan *s)
{
    s->hosts = false;
    memset(s->offloaded, 0, (size_t)s->problem.n_layers * sizeof(*s->offloaded));
    memcpy(s->packs, s->packable, (size_t)s->problem.n_weights * sizeof(*s->packs));
    for (int32_t i = 0; i < s->problem.n_weights; i++) {
        s->link_bytes[i] = s->packable[i] ? s->packed_bytes[i] : s->link_bytes[i];
    }
}

/* Chooses offloaded layers, then the weights that stay, which may change, and so which are not packed. */
static trm_status choose_hosted(trm_streaming_plan *s, const trm_residency_problem *problem, const bool *resident)
{
    host_nothing(s);
    memcpy(s->stays, resident, (size_t)problem->n_weights * sizeof(*s->stays));
    if (s->asked.host_compute == TRM_HOST_COMPUTE_AUTO) {
        TRM_TRY(trm_residency_host_jointly(problem, s->stays, s->offloaded));
    } else if (s->asked.host_compute == TRM_HOST_COMPUTE_PERCENT) {
        TRM_TRY(trm_residency_host(problem, resident, s->asked.host_percent / 100, s->offloaded));
    }
    for (int32_t i = 0; i < s->problem.n_uses; i++) {
        const trm_residency_use *use = &s->uses[i];
        if (s->offloaded[use->layer]) {
            s->hosts = true;
            s->packs[use->weight] = s->packs[use->weight] && s->stays[use->weight];
        }
    }
    return TRM_OK;
}

/* Estimates the gain of CPU offload, by even shares only: a hint in a report is not worth more time. */
static trm_status look_for_hosting(trm_streaming_plan *s, const trm_residency_problem *problem, const bool *resident,
                                   double seconds)
{
    trm_residency found;
    trm_residency_problem quick = *problem;
    quick.quick = true;
    quick.largest_seconds = NULL;
    TRM_TRY(trm_residency_host(&quick, resident, -1, s->offloaded));
    quick.offloaded = s->offloaded;
    TRM_TRY(trm_residency_of(&quick, resident, &found));
    s->advised_seconds = found.seconds < seconds * CLEARLY_LESS ? found.seconds : 0;
    trm_residency_fini(&found);
    memset(s->offloaded, 0, (size_t)s->problem.n_layers * sizeof(*s->offloaded));
    return TRM_OK;
}

/* Plans with an expert cache, for the weights that stay beside it. The link brings experts as they are stored. */
static trm_status plan_cached(trm_streaming_plan *s, trm_residency_problem *problem)
{
    for (int32_t i = 0; i < s->problem.n_uses; i++) {
        const int32_t weight = s->uses[i].weight;
        if (s->cached[s->uses[i].layer]) {
            s->packs[weight] = false;
            s->link_bytes[weight] = s->part_bytes[weight];
            s->in_files[weight] = s->host_experts > 0;
        }
    }
    problem->link_bytes = s->link_bytes;
    TRM_TRY(plan_schedules(s, problem, s->stays));
    const double seconds = s->small.seconds, least = seconds - trm_expert_cache_gain(s);
    s->advised_seconds = s->advises && least < seconds * CLEARLY_LESS ? least : 0;
    return TRM_OK;
}

static trm_status plan_residency(trm_streaming_plan *s, size_t budget, size_t ring_limit)
{
    trm_residency made;
    s->problem.budget = budget < s->streamable ? budget : s->streamable;
    s->problem.ring_limit = ring_limit;
    trm_residency_problem problem = s->problem;
    /* ranks that share choose by what all know, and a fixed share does not depend on measurements */
    if (s->n_sharers > 1 || s->asked.host_compute == TRM_HOST_COMPUTE_PERCENT) {
        problem = s->first;
        problem.budget = s->problem.budget;
        problem.ring_limit = ring_limit;
        problem.quick = s->problem.quick;
    }
    host_nothing(s);
    if (trm_expert_cache_choose(s, s->problem.budget, s->stays)) {
        return plan_cached(s, &problem);
    }
    TRM_TRY(trm_residency_plan(&problem, &made));
    trm_status status = choose_hosted(s, &problem, made.resident);
    for (int32_t i = 0; status == TRM_OK && i < s->problem.n_weights; i++) {
        s->link_bytes[i] = s->packable[i] && !s->packs[i] ? s->part_bytes[i] : s->link_bytes[i];
    }
    problem.link_bytes = s->hosts ? s->link_bytes : problem.link_bytes;
    status = status == TRM_OK && s->hosts ? plan_schedules(s, &problem, s->stays) : status;
    s->advised_seconds = 0;
    if (status == TRM_OK && s->advises && !problem.quick) {
        status = look_for_hosting(s, &problem, made.resident, made.seconds);
    }
    if (status == TRM_OK && s->hosts && s->asked.host_compute == TRM_HOST_COMPUTE_AUTO &&
        s->small.seconds > made.seconds * LESS) {
        host_nothing(s);
    }
    if (status != TRM_OK || s->hosts) {
        trm_residency_fini(&made);
        return status;
    }
    trm_residency_fini(&s->residency);
    trm_residency_fini(&s->small);
    s->residency = made;
    return TRM_OK;
}

/* Offsets of weights that always stay depend on which weights are streamable. */
static trm_status set_streaming(trm_plan *plan, trm_streaming_plan *streaming)
{
    trm_streaming_plan *before = plan->streaming;
    plan->streaming = streaming;
    trm_status status = trm_plan_lay_out_weights(plan);
    if (status != TRM_OK) {
        plan->streaming = before;
        return status;
    }
    trm_streaming_plan_destroy(before);
    return TRM_OK;
}

static trm_status fail_regions(void)
{
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "CPU offload does not support networks with loops or branches");
}

/* For a plan that is not rejected. */
static const char *hosts_nothing_because(const trm_plan *plan, const trm_streaming_plan *s)
{
    return s->problem.sections != NULL ? "the network has loops or branches"
           : plan->batch_invariant     ? "the plan is batch invariant, but CPU offload depends on the number of rows"
           : s->n_sharers > 1          ? "replicas stream weights together (weight sharing)"
                                       : NULL;
}

/* A requested share is computed or rejected; `auto` computes what is possible. */
static trm_status check_hosting(const trm_plan *plan, const trm_streaming_plan *s, const trm_weight_budget *budget)
{
    const char *cause = hosts_nothing_because(plan, s);
    if (cause == NULL || budget->host_compute == TRM_HOST_COMPUTE_OFF || s->is_refused) {
        return TRM_OK;
    }
    if (trm_wants_share(budget)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "CPU offload cannot take %g %% of the streamed weights (host compute): %s",
                 budget->host_percent, cause);
    }
    const bool tells = plan->rank == 0 || s->problem.sections != NULL; /* other causes hold for all ranks */
    if (budget->host_compute == TRM_HOST_COMPUTE_AUTO && tells) {
        TRM_INFO("rank %d: no CPU offload (host compute auto): %s", plan->rank, cause);
    }
    return TRM_OK;
}

trm_status trm_streaming_check(const trm_plan *plan)
{
    return plan->streaming != NULL && plan->streaming->is_refused ? fail_regions() : TRM_OK;
}

TRM_CALL(NULL, trm_plan_set_weight_budget, (trm_plan *plan, const trm_weight_budget *budget), (plan, budget))
{
    if (plan == NULL || budget == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot set a weight budget: plan or budget is NULL");
    }
    TRM_TRY(trm_weight_budget_check(budget));
    if (budget->kind == TRM_WEIGHT_BUDGET_OFF) {
        return set_streaming(plan, NULL);
    }
    /* only by what all ranks know: if one rank failed alone, the others would wait */
    if (plan->partition.has_regions && trm_wants_share(budget)) {
        return fail_regions();
    }
    const bool has_regions = trm_network_has_regions(plan->network);
    trm_streaming_plan *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a streaming plan");
    }
    made->asked = *budget;
    made->is_refused = has_regions && trm_wants_share(budget);
    made->asked.host_compute = has_regions || plan->batch_invariant ? TRM_HOST_COMPUTE_OFF : budget->host_compute;
    trm_status status = trm_streaming_make_problem(plan, made);
    status = status == TRM_OK ? check_hosting(plan, made, budget) : status;
    size_t bytes = budget->kind == TRM_WEIGHT_BUDGET_BYTES ? budget->bytes
                   : budget->kind == TRM_WEIGHT_BUDGET_PERCENT
                       ? (size_t)(budget->percent / 100 * (double)made->streamable)
                       : made->streamable;
    status = status == TRM_OK ? plan_residency(made, bytes, SIZE_MAX) : status;
    status = status == TRM_OK ? set_streaming(plan, made) : status;
    if (status != TRM_OK) {
        trm_streaming_plan_destroy(made);
    }
    return status;
}

static size_t device_bytes(const trm_plan *plan)
{
    const trm_residency *residency = &plan->streaming->residency;
    return plan->weight_bytes + residency->resident_bytes + plan->streaming->expert_bytes +
           trm_streaming_staging(plan->streaming);
}

/* The largest budget that fits with a ring of at most `ring_limit`; false if not even 0 does. */
static trm_status fit_with_ring(trm_plan *plan, size_t room, size_t ring_limit, bool *fits)
{
    trm_streaming_plan *s = plan->streaming;
    size_t budget = s->streamable;
    TRM_TRY(plan_residency(s, budget, ring_limit));
    while (device_bytes(plan) > room && budget > 0) {
        size_t excess = device_bytes(plan) - room, resident = s->residency.resident_bytes + s->expert_bytes;
        budget = excess < resident ? resident - excess : 0;
        TRM_TRY(plan_residency(s, budget, ring_limit));
    }
    *fits = device_bytes(plan) <= room;
    return TRM_OK;
}

trm_status trm_streaming_fit(trm_plan *plan, size_t room)
{
    /* Memory for staging is memory that weights cannot stay in. */
    static const size_t limits[] = {0, (size_t)128 << 20, (size_t)512 << 20, SIZE_MAX};
    trm_streaming_plan *s = plan->streaming;
    double best = INFINITY;
    size_t budget = 0, limit = 0;
    bool fits;
    if (s == NULL || s->asked.kind != TRM_WEIGHT_BUDGET_AUTO) {
        return TRM_OK;
    }
    s->problem.quick = true;
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        TRM_TRY(fit_with_ring(plan, room, limits[i], &fits));
        double seconds = trm_streaming_copy_schedule(s, TRM_COPY_SCHEDULE_SMALL)->seconds;
        if (fits && seconds < best) {
            best = seconds;
            budget = s->problem.budget;
            limit = limits[i];
        }
    }
    s->problem.quick = false;
    TRM_TRY(plan_residency(s, budget, limit));
    if (device_bytes(plan) > room) { /* a better plan may need more staging */
        s->problem.quick = true;
        TRM_TRY(plan_residency(s, budget, limit));
        s->problem.quick = false;
    }
    if (device_bytes(plan) > room) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY,
                 "weights need at least %s of memory with everything streamed (%s cannot stream, %s are staging), but "
                 "there is room for %s",
                 trm_size_text((double)device_bytes(plan)).text, trm_size_text((double)plan->weight_bytes).text,
                 trm_size_text((double)trm_streaming_staging(s)).text, trm_size_text((double)room).text);
    }
    return TRM_OK;
}

/* Removes offloaded layers that the CPU cannot run because their weights are elsewhere, and an expert cache that cannot
 * read its experts. */
static void drop_unreadable(trm_streaming_plan *s, const trm_streaming_facts *facts)
{
    for (int32_t i = 0; i < s->problem.n_uses; i++) {
        const trm_residency_use *use = &s->uses[i];
        bool readable = facts->resident[use->weight] || facts->readable[use->weight];
        s->offloaded[use->layer] = s->offloaded[use->layer] && readable;
    }
    s->hosts = false;
    for (int32_t i = 0; i < s->problem.n_layers; i++) {
        bool reads = false; /* some weight in host memory */
        for (int32_t k = s->first_use[i]; k < s->first_use[i + 1]; k++) {
            reads = reads || !facts->resident[s->uses[k].weight];
        }
        s->offloaded[i] = s->offloaded[i] && reads;
        s->hosts = s->hosts || s->offloaded[i];
    }
    bool reads_files = false, reads_experts = false; /* in the order of one schedule */
    for (int32_t i = 0; i < s->problem.n_weights; i++) {
        reads_files = reads_files || (s->in_files[i] && !s->has_experts[i]);
        reads_experts = reads_experts || (s->in_files[i] && s->has_experts[i]);
    }
    s->hosts = s->hosts && !reads_files && !reads_experts;
    bool caches = facts->rows_in_place && !reads_files; /* kernels can read host memory */
    for (int32_t i = 0; i < s->problem.n_uses && s->host_experts == 0; i++) {
        const trm_residency_use *use = &s->uses[i];
        caches = caches && (!s->cached[use->layer] || facts->resident[use->weight] || facts->readable[use->weight]);
    }
    if (!caches) {
        trm_expert_cache_drop(s);
    }
}

static void use_rates(trm_residency_problem *problem, const trm_streaming_rates *rates)
{
    problem->link_rate = rates->link > 0 ? rates->link : problem->link_rate;
    problem->unpack_rate = rates->unpack > 0 ? rates->unpack : problem->unpack_rate;
    problem->file_rate = rates->file > 0 ? rates->file : problem->file_rate;
    problem->gather_rate = rates->gather > 0 ? rates->gather : problem->gather_rate;
}

trm_status trm_streaming_adjust(trm_plan *plan, const trm_streaming_facts *facts)
{
    trm_streaming_plan *s = plan->streaming;
    use_rates(&s->problem, &facts->rates);
    /* ranks that share have agreed on them and use no CPU offload */
    if (s->n_sharers > 1) {
        use_rates(&s->first, &facts->rates);
    }
    s->problem.uses = facts->rows_in_place ? s->uses : s->fetched_uses;
    drop_unreadable(s, facts);
    return plan_schedules(s, &s->problem, facts->resident);
}

trm_status trm_streaming_use_rates(trm_plan *plan, const trm_cpu_offload_rates *rates)
{
    trm_streaming_plan *s = plan->streaming;
    s->rates = *rates;
    s->measured = rates->link > 0;
    s->problem.link_rate = rates->link > 0 ? rates->link : s->problem.link_rate;
    trm_cpu_offload_estimate(plan, s, s->host_seconds);
    return s->asked.host_compute == TRM_HOST_COMPUTE_AUTO ? trm_streaming_replan(plan, s->problem.budget) : TRM_OK;
}

/* Share of free host memory that weights may take. */
#define HOST_SHARE 19
#define HOST_PARTS 20

size_t trm_streaming_host_room(int32_t sharing)
{
    return trm_memory_available() / (size_t)(sharing < 1 ? 1 : sharing) / HOST_PARTS * HOST_SHARE;
}

size_t trm_streaming_host_limit(const trm_streaming_plan *s, size_t room)
{
    const size_t others = trm_streaming_file_memory();
    return s->asked.host_bytes > 0 ? s->asked.host_bytes : room > others ? room - others : 0;
}

size_t trm_streaming_file_memory(void)
{
    return TRM_READER_HOST_BYTES;
}

trm_status trm_streaming_read(const trm_plan *plan, int32_t weight, size_t begin, size_t size, void *to)
{
    const trm_tensor *tensor = plan->streaming->tensors[weight];
    size_t element = trm_dtype_size(tensor->dtype);
    if (tensor->value != NULL) {
        memcpy(to, (const unsigned char *)tensor->value + begin, size);
        return TRM_OK;
    }
    trm_status status = trm_weight_read_direct(tensor->weight, tensor->dtype, begin / element, size / element, to);
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "weight %s", tensor->name);
}

trm_status trm_streaming_read_piece(void *plan, const trm_reader_piece *piece, void *to)
{
    const trm_plan *of = plan;
    const trm_streaming_plan *s = of->streaming;
    const size_t part = s->part_begin[piece->item], row_bytes = s->row_bytes[piece->item];
    if (piece->rows == 1) {
        return trm_streaming_read(of, piece->item, part + piece->row * row_bytes + piece->begin, piece->size, to);
    }
    const trm_tensor *tensor = s->tensors[piece->item];
    const size_t element = trm_dtype_size(tensor->dtype);
    trm_status status = trm_weight_read_box_direct(
        tensor->weight, tensor->dtype, (int64_t)(part / row_bytes + piece->row), (int64_t)piece->rows,
        (int64_t)(piece->begin / element), (int64_t)(piece->size / element), to);
    return status == TRM_OK ? TRM_OK : trm_fail_in(status, "weight %s", tensor->name);
}

bool trm_streaming_reads_in_place(const trm_plan *plan, int32_t weight)
{
    return trm_streaming_has_rows(plan->streaming, weight);
}

trm_status trm_streaming_replan(trm_plan *plan, size_t budget)
{
    return plan_residency(plan->streaming, budget, plan->streaming->problem.ring_limit);
}

/* Counts weights that do not stay. */
static size_t host_bytes(const trm_streaming_plan *s)
{
    size_t sum = 0;
    for (int32_t i = 0; i < s->problem.n_weights; i++) {
        const bool is_read = s->host_experts > 0 && s->has_experts[i];
        sum += s->residency.resident[i] || is_read ? 0 : s->link_bytes[i];
    }
    return sum + (size_t)s->host_experts * s->host_expert_bytes;
}

/* Bytes of a step's weights that other ranks copy. */
static size_t gathered_bytes(const trm_streaming_plan *s)
{
    size_t sum = 0;
    for (int32_t k = 0; k < s->residency.n_fetches; k++) { /* ranks that share use no CPU offload */
        int32_t weight = s->residency.fetches[k].weight;
        sum += s->bytes[weight] - s->part_bytes[weight];
    }
    return sum;
}

void trm_plan_stalls(const trm_plan *plan, trm_stall_fn fn, void *user)
{
    const trm_network *network = plan->network;
    const double *waits =
        plan->streaming == NULL ? NULL : trm_streaming_copy_schedule(plan->streaming, TRM_COPY_SCHEDULE_SMALL)->waits;
    for (int32_t i = 0; waits != NULL && i <= network->n_layers; i++) {
        if (waits[i] > 0) {
            fn(user, i == network->n_layers ? TRM_NEXT_STEP : network->layers[i]->name, waits[i]);
        }
    }
}

/* Rate at which the CPU reads in a step. */
static double host_rate(const trm_streaming_plan *s, const trm_residency *step)
{
    double reading = step->host_seconds - step->n_hosted * s->rates.handover;
    return step->n_hosted > 0 && reading > 0 ? (double)step->hosted_bytes / reading : 0;
}

/* The same for experts. */
static double expert_rate(const trm_streaming_plan *s)
{
    return s->rates.experts > 0 ? s->rates.experts : s->rates.host;
}

void trm_plan_streaming(const trm_plan *plan, trm_streaming_info *info)
{
    *info = (trm_streaming_info){0};
    const trm_streaming_plan *s = plan->streaming;
    if (s == NULL) {
        return;
    }
    const trm_residency *step = trm_streaming_copy_schedule(s, TRM_COPY_SCHEDULE_SMALL);
    const bool caches = s->expert_slots > 0;
    const size_t fetched = trm_expert_cache_fetched(s), hosted = trm_expert_cache_hosted(s);
    *info = (trm_streaming_info){
        .on = true,
        .streamable = s->streamable,
        .budget = s->problem.budget,
        .resident = s->residency.resident_bytes,
        .streamed = step->link_bytes + fetched,
        .unpacked = step->streamed_bytes + fetched,
        .offloaded = caches ? hosted : step->hosted_bytes,
        .offloaded_layers = !caches            ? step->n_hosted
                            : s->hosts_experts ? s->n_expert_layers
                                               : 0,
        .host_rate = !caches            ? host_rate(s, step)
                     : s->hosts_experts ? expert_rate(s)
                                        : 0,
        .host_seconds = caches ? (double)hosted / expert_rate(s) : step->host_seconds,
        .large_streamed = s->residency.link_bytes,
        .large_run_seconds = s->residency.seconds,
        .host_run_seconds = s->advised_seconds,
        .staging = trm_streaming_staging(s),
        .host = host_bytes(s),
        .copies = step->n_copies,
        .loop_passes = s->guesses_passes ? TRM_LOOP_PASSES : 0,
        .sharers = s->problem.sections == NULL ? s->n_sharers : 1,
        .gathered = gathered_bytes(s),
        .link_rate = s->problem.link_rate,
        .unpack_rate = step->stage_bytes > 0 ? s->problem.unpack_rate : 0,
        .run_seconds = step->seconds,
        .link_seconds = step->link_seconds + (double)fetched / s->problem.link_rate,
        .largest_run_seconds = s->largest_products > s->residency.seconds ? s->largest_products : s->residency.seconds,
        .expert_cache = s->expert_bytes,
        .cached_layers = caches ? s->n_expert_layers : 0,
        .expert_slots = s->expert_slots,
        .experts = caches ? trm_expert_cache_experts(s->expert_layers[0]) : 0,
        .expert_hit_rate = trm_expert_cache_hit_rate(s),
        .host_experts = s->host_experts,
        .host_expert_hit_rate = caches ? s->host_hit_rate : 0,
        .expert_profile = caches && trm_expert_profile_is_known(s),
        .expert_read = trm_expert_cache_read(s),
        .file_rate = s->problem.file_rate,
    };
}
