/*
 * The residency planner: a first choice by bytes and position, improved by exchanges against a model of the step.
 *
 * The model: the link does the fetches in order, each when its place in the ring is free, and packed weights are then
 * unpacked in pieces; a layer runs after the one before it, once its fetches have arrived. Costs follow from rates. A
 * step ends when its layers have run and the first weights of the next one have arrived.
 */
#include "weight_stream/residency.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

/* Staging beyond the largest weight, so that the link can be ahead of the layers while that one is in use: a share of
 * the streamed bytes, for large models a fixed size, and at least one more of the largest weights. */
#define RING_AHEAD ((size_t)1 << 30)
#define RING_SHARE 8
/* Ring positions to try for the first fetch that is not carried over from the previous step: for the final choice, and
 * during the search. */
#define MOST_STARTS 16
#define SOME_STARTS 4
/* Times within this factor are equal; then the largest step decides. */
#define AS_GOOD 1.002
/* Shares of offloadable layers to try, and sizes of the smallest; up to this many layers, any two are swapped; beyond,
 * only pairs with one offloaded. */
#define HOST_SHARES 32
#define HOST_SIZES  4
#define HOST_FEW    12
/* Exchanges stop after this many timed plans, weighted by their fetches. */
#define MOST_WORK ((int64_t)4 << 20)

/* Memory for one plan, allocated once and filled for every choice. */
typedef struct planner {
    const trm_residency_problem *problem;
    trm_residency_fetch *fetches; /* [n_uses] */
    int32_t *use_fetch;           /* [n_uses] */
    double *layer_ends;           /* [n_layers] */
    double *waits;                /* [n_layers + 1] */
    int32_t n_fetches, n_carried;
    size_t ring_bytes, streamed_bytes, link_bytes, stage_bytes;
    const bool *offloaded; /* [n_layers], or NULL */
    bool reads_files, is_final;
    int32_t n_copies;
    double seconds, link_seconds, compute_seconds, link_end;
    int64_t work;
} planner;

static size_t part_bytes(const trm_residency_problem *problem, int32_t weight)
{
    return problem->part_bytes == NULL ? problem->bytes[weight] : problem->part_bytes[weight];
}

static size_t link_bytes(const trm_residency_problem *problem, int32_t weight)
{
    return problem->link_bytes == NULL ? part_bytes(problem, weight) : problem->link_bytes[weight];
}

static bool is_packed(const trm_residency_problem *problem, int32_t weight)
{
    return link_bytes(problem, weight) != part_bytes(problem, weight);
}

/* Bytes of the parts that other ranks copy. */
static double gather_seconds(const trm_residency_problem *problem, int32_t weight)
{
    size_t others = problem->bytes[weight] - part_bytes(problem, weight);
    return others == 0 ? 0 : (double)others / problem->gather_rate;
}

static size_t padded(size_t bytes)
{
    return trm_align_up(bytes, TRM_RING_ALIGNMENT);
}

static int32_t runs_of(const trm_residency_problem *problem, int32_t layer)
{
    return problem->runs == NULL ? 1 : problem->runs[layer];
}

/* Whether a use needs no fetch of its own, the streamed one before it being `last`, or -1. */
static bool shares_fetch(const trm_residency_problem *problem, int32_t last, int32_t use)
{
    const trm_residency_use *a = &problem->uses[last < 0 ? use : last], *b = &problem->uses[use];
    return last >= 0 && a->weight == b->weight &&
           (problem->sections == NULL || problem->sections[a->layer] == problem->sections[b->layer]);
}

/* ---- what follows from a choice ---------------------------------------------------------------- */

static bool is_hosted(const planner *p, int32_t layer)
{
    return p->offloaded != NULL && p->offloaded[layer];
}

static void list_fetches(planner *p, const bool *resident)
{
    const trm_residency_problem *problem = p->problem;
    int32_t last = -1; /* the use of a streamed weight before this one */
    p->n_fetches = p->n_carried = 0;
    p->reads_files = false;
    p->streamed_bytes = p->link_bytes = p->stage_bytes = 0;
    for (int32_t i = 0; i < problem->n_uses; i++) {
        const trm_residency_use *use = &problem->uses[i];
        p->use_fetch[i] = -1;
        if (resident[use->weight] || use->in_place || is_hosted(p, use->layer)) {
            continue;
        }
        if (shares_fetch(problem, last, i)) {
            p->use_fetch[i] = p->use_fetch[last];
            p->fetches[p->use_fetch[i]].last_use = i;
            p->fetches[p->use_fetch[i]].last_layer = use->layer;
        } else {
            const size_t runs = (size_t)runs_of(problem, use->layer);
            p->use_fetch[i] = p->n_fetches;
            p->fetches[p->n_fetches++] = (trm_residency_fetch){use->weight, i, i, use->layer, use->layer, -1, 0};
            p->streamed_bytes += runs * problem->bytes[use->weight];
            p->link_bytes += runs * link_bytes(problem, use->weight);
            p->stage_bytes = is_packed(problem, use->weight) ? problem->stage_bytes : p->stage_bytes;
            p->reads_files = p->reads_files || (problem->in_files != NULL && problem->in_files[use->weight]);
        }
        last = i;
    }
}

static size_t fetch_bytes(const planner *p, int32_t k)
{
    return padded(p->problem->bytes[p->fetches[k].weight]);
}

static size_t carried_bytes(const planner *p)
{
    size_t sum = 0;
    for (int32_t k = 0; k < p->n_carried; k++) {
        sum += fetch_bytes(p, k);
    }
    return sum;
}

/* The last layer that reads bytes begin .. end - 1 of the ring, among the first n fetches; -1: none. */
static int32_t last_reader(const planner *p, size_t begin, size_t end, int32_t n)
{
    for (int32_t i = n - 1; i >= 0; i--) { /* earlier fetches are free earlier */
        const trm_residency_fetch *fetch = &p->fetches[i];
        if (fetch->offset < end && begin < fetch->offset + fetch_bytes(p, i)) {
            return fetch->last_layer;
        }
    }
    return -1;
}

/* Places the fetches one after the other in the ring, back at its begin if the next does not fit: carried over ones
 * from the begin, the others from `start`. False if a fetch would overlap one that is needed at the same time. */
static bool place_fetches(planner *p, size_t ring, size_t start)
{
    size_t at = 0;
    int32_t after = -1;
    for (int32_t k = 0; k < p->n_fetches; k++) {
        trm_residency_fetch *fetch = &p->fetches[k];
        size_t bytes = fetch_bytes(p, k);
        at = k == p->n_carried ? start : at;
        if (bytes > ring || (at + bytes > ring && k < p->n_carried)) {
            return false;
        }
        at = at + bytes > ring ? 0 : at;
        fetch->offset = at;
        if (k >= p->n_carried) {
            int32_t free = last_reader(p, at, at + bytes, k);
            after = free > after ? free : after; /* the copy before it already waits for that */
            fetch->after_layer = after;
            if (after >= fetch->first_layer) {
                return false;
            }
        }
        at += bytes;
    }
    for (int32_t k = 0; k < p->n_carried; k++) {
        trm_residency_fetch *fetch = &p->fetches[k];
        int32_t free = last_reader(p, fetch->offset, fetch->offset + fetch_bytes(p, k), p->n_fetches);
        after = free > after ? free : after;
        fetch->after_layer = after;
    }
    return true;
}

/* The largest total of fetches that one layer needs at once, and the largest fetch. */
static void measure_fetches(const planner *p, size_t *together, size_t *largest, size_t *all)
{
    *together = *largest = *all = 0;
    for (int32_t k = 0; k < p->n_fetches; k++) {
        size_t sum = 0, bytes = fetch_bytes(p, k);
        for (int32_t i = k; i < p->n_fetches && p->fetches[i].first_layer <= p->fetches[k].last_layer; i++) {
            sum += fetch_bytes(p, i);
        }
        *together = sum > *together ? sum : *together;
        *largest = bytes > *largest ? bytes : *largest;
        *all += bytes;
    }
}

static void size_ring(planner *p)
{
    size_t together, largest, all;
    measure_fetches(p, &together, &largest, &all);
    size_t ahead = all / RING_SHARE < RING_AHEAD ? all / RING_SHARE : RING_AHEAD;
    ahead = ahead < largest ? largest : ahead;
    size_t wanted = together + ahead < all ? together + ahead : all;
    wanted = wanted > p->problem->ring_limit ? p->problem->ring_limit : wanted;
    wanted = wanted < together ? together : wanted;
    p->ring_bytes = trm_align_up(wanted, TRM_RING_ALIGNMENT);
    if (!place_fetches(p, p->ring_bytes, 0)) { /* the gap at the ring's end is smaller than the largest */
        p->ring_bytes = together + largest;
        (void)place_fetches(p, p->ring_bytes, 0);
    }
}

/* Does a fetch whose place is free at a time; returns when the weight has arrived. */
static double time_fetch(planner *p, const trm_residency_fetch *fetch, double free_at, double *link_free,
                         double *unpack_free)
{
    const trm_residency_problem *problem = p->problem;
    const int32_t weight = fetch->weight, runs = runs_of(problem, fetch->first_layer);
    bool packed = is_packed(problem, weight);
    size_t bytes = part_bytes(problem, weight), piece = packed ? problem->piece_bytes : bytes;
    size_t copies = bytes == 0 ? 1 : (bytes + piece - 1) / piece;
    bool in_files = problem->in_files != NULL && problem->in_files[weight] && problem->file_rate < problem->link_rate;
    double rate = in_files ? problem->file_rate : problem->link_rate;
    double takes = runs * ((double)link_bytes(problem, weight) / rate + (double)copies * problem->copy_seconds);
    *link_free = (free_at > *link_free ? free_at : *link_free) + takes;
    p->link_seconds += takes;
    p->n_copies += runs * (int32_t)copies;
    if (!packed) {
        return *link_free;
    }
    double last = *link_free + (double)(bytes < piece ? bytes : piece) / problem->unpack_rate;
    double all = (free_at > *unpack_free ? free_at : *unpack_free) + runs * (double)bytes / problem->unpack_rate;
    *unpack_free = last > all ? last : all;
    return *unpack_free;
}

static void time_step(planner *p, const double *layer_seconds)
{
    const trm_residency_problem *problem = p->problem;
    double link_free = 0, unpack_free = 0, now = 0;
    int32_t k = p->n_carried;
    for (int32_t i = 0; i < p->n_carried; i++) {
        now += gather_seconds(problem, p->fetches[i].weight);
    }
    p->n_copies = 0;
    p->link_seconds = p->compute_seconds = 0;
    for (int32_t layer = 0; layer < problem->n_layers; layer++) {
        double gathered = 0, before = now;
        for (; k < p->n_fetches && p->fetches[k].first_layer == layer; k++) {
            const trm_residency_fetch *fetch = &p->fetches[k];
            double free_at = fetch->after_layer < 0 ? 0 : p->layer_ends[fetch->after_layer];
            double arrives = time_fetch(p, fetch, free_at, &link_free, &unpack_free);
            now = arrives > now ? arrives : now;
            gathered += gather_seconds(problem, fetch->weight);
        }
        p->waits[layer] = now - before;
        now += gathered;
        double takes = is_hosted(p, layer) ? problem->host_seconds[layer] : layer_seconds[layer];
        takes *= runs_of(problem, layer);
        now += takes;
        p->compute_seconds += takes;
        p->layer_ends[layer] = now;
    }
    p->seconds = now;
    for (k = 0; k < p->n_carried; k++) {
        double arrives =
            time_fetch(p, &p->fetches[k], p->layer_ends[p->fetches[k].after_layer], &link_free, &unpack_free);
        p->seconds = arrives > p->seconds ? arrives : p->seconds;
    }
    p->waits[problem->n_layers] = p->seconds - now;
    p->link_end = link_free;
}

/* Places and times the step with this many fetches carried over and the others from `start`; false if impossible. */
static bool try_to_carry(planner *p, int32_t n, size_t start)
{
    p->n_carried = n;
    p->work += p->n_fetches;
    if (!place_fetches(p, p->ring_bytes, start)) {
        return false;
    }
    time_step(p, p->problem->layer_seconds);
    p->work += p->problem->n_layers + 1;
    return true;
}

/* Seconds of the largest step with these places. */
static double time_largest(planner *p)
{
    if (!p->is_final || p->problem->largest_seconds == NULL) {
        return 0;
    }
    planner other = *p;
    time_step(&other, p->problem->largest_seconds);
    return other.seconds;
}

/* Chooses the fetches to carry over: while the last layers run, the link copies the first weights of the next step.
 * Where the others start decides what is placed over them at the end, and whether a large last weight overlaps ones
 * still in use, for which a long step waits. Weights from files keep the order of use. */
static void carry_over(planner *p)
{
    double idle = p->seconds - p->link_end, least = p->seconds, filled = 0;
    double chosen = p->seconds, chosen_largest = time_largest(p);
    int32_t chosen_n = 0, starts = p->is_final ? MOST_STARTS : SOME_STARTS;
    size_t chosen_start = 0;
    for (int32_t n = p->is_final ? 0 : 1; n == 0 || (n < p->n_fetches && filled < idle && !p->reads_files); n++) {
        filled += n == 0 ? 0 : (double)link_bytes(p->problem, p->fetches[n - 1].weight) / p->problem->link_rate;
        for (int32_t i = 0; i < starts; i++) {
            p->n_carried = n;
            size_t start = padded(carried_bytes(p) + p->ring_bytes / (size_t)starts * (size_t)i);
            start = start < p->ring_bytes ? start : start - p->ring_bytes;
            if (!try_to_carry(p, n, start)) {
                continue;
            }
            double largest = time_largest(p);
            least = p->seconds < least ? p->seconds : least;
            bool is_as_good = p->seconds <= least * AS_GOOD;
            if (is_as_good && (chosen > least * AS_GOOD || largest < chosen_largest ||
                               (largest <= chosen_largest && p->seconds < chosen))) {
                chosen = p->seconds;
                chosen_largest = largest;
                chosen_n = n;
                chosen_start = start;
            }
        }
    }
    (void)try_to_carry(p, chosen_n, chosen_start);
}

static void follow(planner *p, const bool *resident)
{
    list_fetches(p, resident);
    size_ring(p);
    time_step(p, p->problem->layer_seconds);
    p->work += p->n_fetches + p->problem->n_layers + 1;
    carry_over(p);
}

/* ---- choosing ---------------------------------------------------------------------------------- */

/* Number of fetches of a weight per step if all weights streamed. */
static void count_fetches(planner *p, int32_t *counts)
{
    const trm_residency_problem *problem = p->problem;
    int32_t last = -1;
    for (int32_t i = 0; i < problem->n_uses; i++) {
        const trm_residency_use *use = &problem->uses[i];
        if (!use->in_place) {
            counts[use->weight] += shares_fetch(problem, last, i) ? 0 : runs_of(problem, use->layer);
            last = i;
        }
    }
}

/* Weights in order of first use, for spreading; unused ones at the end. */
static void order_weights(const planner *p, int32_t *order, bool *listed)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->problem->n_uses; i++) {
        int32_t weight = p->problem->uses[i].weight;
        if (!listed[weight]) {
            listed[weight] = true;
            order[n++] = weight;
        }
    }
    for (int32_t i = 0; i < p->problem->n_weights; i++) {
        if (!listed[i]) {
            order[n++] = i;
        }
    }
}

/* Which of equally often fetched weights stay: an even share of every stretch of layers, or the first, or the last. */
typedef enum preference { EVENLY, EARLY, LATE, PREFERENCE_COUNT } preference;

/* Takes as many of the weights fetched `count` times per step as fit. */
static size_t take(const planner *p, const int32_t *order, const int32_t *counts, int32_t count, preference wish,
                   size_t left, bool *resident)
{
    const size_t *bytes = p->problem->bytes;
    int32_t n = p->problem->n_weights;
    double all = 0, seen = 0, taken = 0;
    for (int32_t i = 0; i < n; i++) {
        all += counts[i] == count ? (double)bytes[i] : 0;
    }
    double share = all > 0 && (double)left < all ? (double)left / all : 1;
    for (int32_t i = 0; i < n; i++) {
        int32_t weight = order[wish == LATE ? n - 1 - i : i];
        if (counts[weight] != count) {
            continue;
        }
        seen += (double)bytes[weight];
        bool due = wish != EVENLY || taken + (double)bytes[weight] / 2 <= seen * share;
        if (due && bytes[weight] <= left) {
            resident[weight] = true;
            taken += (double)bytes[weight];
            left -= bytes[weight];
        }
    }
    return left;
}

/* Fills what is left of the budget, largest weights first; they have `count` fetches. */
static size_t fill(const planner *p, const int32_t *counts, int32_t count, size_t left, bool *resident)
{
    for (;;) {
        int32_t best = -1;
        for (int32_t i = 0; i < p->problem->n_weights; i++) {
            if (!resident[i] && counts[i] == count && p->problem->bytes[i] <= left &&
                (best < 0 || p->problem->bytes[i] > p->problem->bytes[best])) {
                best = i;
            }
        }
        if (best < 0) {
            return left;
        }
        resident[best] = true;
        left -= p->problem->bytes[best];
    }
}

/* Whether a plan takes less time, or equal time with fewer bytes on the link. */
static bool is_better(const planner *p, double seconds, size_t streamed)
{
    return p->seconds < seconds * (1 - 1e-9) || (p->seconds <= seconds && p->link_bytes < streamed);
}

/* A choice being improved. */
typedef struct search {
    planner *p;
    bool *resident;
    size_t left, streamed; /* of the budget; per step */
    double seconds;
} search;

static void toggle(search *s, const int32_t *weights, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        bool *resident = &s->resident[weights[i]];
        s->left = *resident ? s->left + s->p->problem->bytes[weights[i]] : s->left - s->p->problem->bytes[weights[i]];
        *resident = !*resident;
    }
}

/* Swaps some weights in or out; keeps that if it fits and is better. */
static bool exchange(search *s, const int32_t *weights, int32_t n)
{
    size_t in = 0, out = 0;
    for (int32_t i = 0; i < n; i++) {
        *(s->resident[weights[i]] ? &out : &in) += s->p->problem->bytes[weights[i]];
    }
    if (in > s->left + out) {
        return false;
    }
    toggle(s, weights, n);
    follow(s->p, s->resident);
    if (is_better(s->p, s->seconds, s->streamed)) {
        s->seconds = s->p->seconds;
        s->streamed = s->p->link_bytes;
        return true;
    }
    toggle(s, weights, n);
    return false;
}

/* All exchanges of one, two or three weights that include `a`, within the work limit. */
static bool exchange_with(search *s, int32_t a, int32_t size, int64_t most_work)
{
    int32_t n = s->p->problem->n_weights;
    bool changed = size == 2 && !s->resident[a] && exchange(s, &a, 1);
    for (int32_t b = 0; b < n && s->p->work < most_work; b++) {
        if (size == 2 && s->resident[a] && !s->resident[b]) {
            changed = exchange(s, (int32_t[]){a, b}, 2) || changed;
        }
        for (int32_t c = b + 1; size == 3 && c < n && s->p->work < most_work && c != a && b != a; c++) {
            if (s->resident[a] != s->resident[b] && s->resident[b] == s->resident[c]) {
                changed = exchange(s, (int32_t[]){a, b, c}, 3) || changed;
            }
        }
    }
    return changed;
}

/* Exchanges of three are many: tried only if no others help. */
static void better(search *s)
{
    const int64_t most_work = s->p->problem->quick ? 0 : MOST_WORK / PREFERENCE_COUNT;
    follow(s->p, s->resident);
    s->seconds = s->p->seconds;
    s->streamed = s->p->link_bytes;
    s->p->work = 0;
    for (int32_t size = 2; size <= 3 && s->p->work < most_work;) {
        bool changed = false;
        for (int32_t a = 0; a < s->p->problem->n_weights && s->p->work < most_work; a++) {
            changed = exchange_with(s, a, size, most_work) || changed;
        }
        size = changed ? 2 : size + 1;
    }
}

/* Improves each of the first choices, and keeps the best. */
static trm_status choose(planner *p, trm_arena *arena, bool *resident)
{
    const trm_residency_problem *problem = p->problem;
    size_t n = (size_t)problem->n_weights;
    int32_t *order = trm_arena_array(arena, n + 1, sizeof(*order));
    int32_t *counts = trm_arena_array(arena, n + 1, sizeof(*counts));
    bool *listed = trm_arena_array(arena, n + 1, sizeof(*listed));
    bool *tried = trm_arena_array(arena, n + 1, sizeof(*tried));
    if (order == NULL || counts == NULL || listed == NULL || tried == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    order_weights(p, order, listed);
    count_fetches(p, counts);
    int32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        most = counts[i] > most ? counts[i] : most;
    }
    double best = 0;
    size_t least = 0;
    for (int32_t wish = 0; wish < PREFERENCE_COUNT; wish++) {
        search s = {.p = p, .resident = tried, .left = problem->budget};
        memset(tried, 0, n * sizeof(*tried));
        for (int32_t count = most; count >= 0; count--) {
            s.left = take(p, order, counts, count, (preference)wish, s.left, tried);
            s.left = fill(p, counts, count, s.left, tried);
        }
        better(&s);
        if (wish == 0 || s.seconds < best * (1 - 1e-9) || (s.seconds <= best && s.streamed < least)) {
            best = s.seconds;
            least = s.streamed;
            memcpy(resident, tried, n * sizeof(*tried));
        }
    }
    return TRM_OK;
}

/* ---- CPU offload ------------------------------------------------------------------- */

/* An offloadable layer, and the bytes that it saves the link. */
typedef struct candidate {
    int32_t layer;
    size_t bytes;
} candidate;

/* In layer order; *all: bytes of every use that would otherwise be fetched. */
static int32_t list_candidates(const trm_residency_problem *problem, const bool *resident, candidate *candidates,
                               size_t *all)
{
    int32_t n = 0;
    *all = 0;
    for (int32_t i = 0; i < problem->n_uses; i++) {
        const trm_residency_use *use = &problem->uses[i];
        if (resident[use->weight] || use->in_place) {
            continue;
        }
        *all += problem->bytes[use->weight];
        if (problem->host_seconds == NULL || problem->host_seconds[use->layer] < 0) {
            continue;
        }
        n += n == 0 || candidates[n - 1].layer != use->layer;
        candidates[n - 1].layer = use->layer;
        candidates[n - 1].bytes += problem->bytes[use->weight];
    }
    return n;
}

/* Chooses candidates of at least `least` bytes up to this total, an even share of every stretch. */
static void spread(const candidate *candidates, int32_t n, size_t least, double bytes, bool *offloaded)
{
    double all = 0, seen = 0, taken = 0;
    for (int32_t i = 0; i < n; i++) {
        all += candidates[i].bytes >= least ? (double)candidates[i].bytes : 0;
    }
    double share = bytes < all ? bytes / all : 1;
    for (int32_t i = 0; i < n; i++) {
        double takes = (double)candidates[i].bytes;
        offloaded[candidates[i].layer] = false;
        if (candidates[i].bytes >= least) {
            seen += takes;
            offloaded[candidates[i].layer] = taken + takes / 2 <= seen * share;
            taken += offloaded[candidates[i].layer] ? takes : 0;
        }
    }
}

/* A choice of layers being improved. */
typedef struct offloading {
    planner *p;
    const bool *resident;
    const candidate *candidates;
    int32_t n;
    bool *offloaded, *best; /* [n_layers] current, and best so far */
    double seconds;         /* of that */
    size_t streamed;
} offloading;

/* Keeps the current choice if it is better. */
static bool try_hosted(offloading *h)
{
    follow(h->p, h->resident);
    if (!is_better(h->p, h->seconds, h->streamed)) {
        return false;
    }
    h->seconds = h->p->seconds;
    h->streamed = h->p->link_bytes;
    memcpy(h->best, h->offloaded, (size_t)h->p->problem->n_layers * sizeof(*h->best));
    return true;
}

/* Tries even shares of all candidates, and of only the larger ones, since each has overhead. */
static void try_shares(offloading *h)
{
    size_t least = 0;
    const int32_t shares = h->p->problem->quick ? HOST_SHARES / 4 : HOST_SHARES;
    for (int32_t size = 0; size < HOST_SIZES; size++) {
        size_t next = SIZE_MAX;
        double all = 0;
        for (int32_t i = 0; i < h->n; i++) {
            size_t bytes = h->candidates[i].bytes;
            all += bytes >= least ? (double)bytes : 0;
            next = bytes > least && bytes < next ? bytes : next;
        }
        for (int32_t share = 1; share <= shares; share++) {
            spread(h->candidates, h->n, least, all * share / shares, h->offloaded);
            (void)try_hosted(h);
        }
        if (next == SIZE_MAX) {
            return;
        }
        least = next;
    }
}

/* Swaps one candidate, or two. */
static bool exchange_hosted(offloading *h, int32_t a, int32_t b)
{
    bool *first = &h->offloaded[h->candidates[a].layer], *second = &h->offloaded[h->candidates[b].layer];
    *first = !*first;
    *second = a == b ? *second : !*second;
    if (try_hosted(h)) {
        return true;
    }
    *first = !*first;
    *second = a == b ? *second : !*second;
    return false;
}

static void better_hosted(offloading *h)
{
    const int64_t most_work = h->p->problem->quick ? 0 : MOST_WORK / PREFERENCE_COUNT;
    memcpy(h->offloaded, h->best, (size_t)h->p->problem->n_layers * sizeof(*h->best));
    h->p->work = 0;
    for (bool changed = true; changed && h->p->work < most_work;) {
        changed = false;
        for (int32_t a = 0; a < h->n && h->p->work < most_work; a++) {
            for (int32_t b = a; b < h->n && h->p->work < most_work; b++) {
                bool alike = a != b && h->offloaded[h->candidates[a].layer] == h->offloaded[h->candidates[b].layer] &&
                             h->n > HOST_FEW;
                changed = (!alike && exchange_hosted(h, a, b)) || changed;
            }
        }
    }
}

/* ---- the calls --------------------------------------------------------------------------------- */

static trm_status planner_init(planner *p, const trm_residency_problem *problem, trm_residency *made)
{
    size_t uses = (size_t)problem->n_uses + 1, layers = (size_t)problem->n_layers + 1;
    *made = (trm_residency){0};
    *p = (planner){.problem = problem, .offloaded = problem->offloaded};
    made->resident = trm_arena_array(&made->arena, (size_t)problem->n_weights + 1, sizeof(*made->resident));
    p->fetches = trm_arena_array(&made->arena, uses, sizeof(*p->fetches));
    p->use_fetch = trm_arena_array(&made->arena, uses, sizeof(*p->use_fetch));
    p->layer_ends = trm_arena_array(&made->arena, layers, sizeof(*p->layer_ends));
    p->waits = trm_arena_array(&made->arena, layers, sizeof(*p->waits));
    bool allocated = made->resident != NULL && p->fetches != NULL && p->use_fetch != NULL && p->layer_ends != NULL &&
                     p->waits != NULL;
    return allocated ? TRM_OK : TRM_ERROR_OUT_OF_MEMORY;
}

static void sum_hosted(const planner *p, trm_residency *made)
{
    const trm_residency_problem *problem = p->problem;
    for (int32_t layer = 0; layer < problem->n_layers; layer++) {
        made->n_hosted += is_hosted(p, layer);
        made->host_seconds += is_hosted(p, layer) ? problem->host_seconds[layer] : 0;
    }
    for (int32_t i = 0; i < problem->n_uses; i++) {
        const trm_residency_use *use = &problem->uses[i];
        bool reads = is_hosted(p, use->layer) && !made->resident[use->weight] && !use->in_place;
        made->hosted_bytes += reads ? problem->bytes[use->weight] : 0;
    }
}

static void finish(planner *p, trm_residency *made)
{
    p->is_final = true;
    follow(p, made->resident);
    for (int32_t i = 0; i < p->problem->n_weights; i++) {
        made->resident_bytes += made->resident[i] ? p->problem->bytes[i] : 0;
    }
    sum_hosted(p, made);
    made->fetches = p->fetches;
    made->use_fetch = p->use_fetch;
    made->n_fetches = p->n_fetches;
    made->n_carried = p->n_carried;
    made->streamed_bytes = p->streamed_bytes;
    made->link_bytes = p->link_bytes;
    made->ring_bytes = p->ring_bytes;
    made->stage_bytes = p->stage_bytes;
    made->n_copies = p->n_copies;
    made->seconds = p->seconds;
    made->waits = p->waits;
    made->link_seconds = p->link_seconds;
    made->compute_seconds = p->compute_seconds;
}

trm_status trm_residency_of(const trm_residency_problem *problem, const bool *resident, trm_residency *residency)
{
    planner p;
    trm_residency made;
    trm_status status = planner_init(&p, problem, &made);
    if (status != TRM_OK) {
        trm_residency_fini(&made);
        return status;
    }
    memcpy(made.resident, resident, (size_t)problem->n_weights * sizeof(*resident));
    finish(&p, &made);
    *residency = made;
    return TRM_OK;
}

trm_status trm_residency_plan(const trm_residency_problem *problem, trm_residency *residency)
{
    planner p;
    trm_residency made;
    trm_status status = planner_init(&p, problem, &made);
    if (status == TRM_OK) {
        status = choose(&p, &made.arena, made.resident);
    }
    if (status != TRM_OK) {
        trm_residency_fini(&made);
        return status;
    }
    finish(&p, &made);
    *residency = made;
    return TRM_OK;
}

trm_status trm_residency_host(const trm_residency_problem *problem, const bool *resident, double share, bool *offloaded)
{
    planner p;
    trm_residency made;
    size_t all, layers = (size_t)problem->n_layers + 1;
    trm_status status = planner_init(&p, problem, &made);
    candidate *candidates = trm_arena_array(&made.arena, layers, sizeof(*candidates));
    bool *tried = trm_arena_array(&made.arena, layers, sizeof(*tried));
    if (status != TRM_OK || candidates == NULL || tried == NULL) {
        trm_residency_fini(&made);
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    memset(offloaded, 0, (size_t)problem->n_layers * sizeof(*offloaded));
    int32_t n = list_candidates(problem, resident, candidates, &all);
    if (share >= 0) {
        spread(candidates, n, 0, share * (double)all, offloaded);
    } else if (n > 0) {
        offloading h = {
            .p = &p, .resident = resident, .candidates = candidates, .n = n, .offloaded = tried, .best = offloaded};
        p.offloaded = tried;
        follow(&p, resident);
        h.seconds = p.seconds;
        h.streamed = p.link_bytes;
        try_shares(&h);
        better_hosted(&h);
    }
    trm_residency_fini(&made);
    return TRM_OK;
}

void trm_residency_fini(trm_residency *residency)
{
    trm_arena_fini(&residency->arena);
    *residency = (trm_residency){0};
}
