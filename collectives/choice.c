/* Chooses ways of exchanges by size, from times at some sizes. */
#include "collectives/choice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define KIB               ((size_t)1024)
#define MOST_MICROSECONDS 1e9 /* for a hand-edited line: no exchange takes a quarter of an hour */

/* Every size at which a way between 2, 4 or 8 ranks has its largest vector is among them. */
static const size_t sum_sizes[TRM_CHOICE_SIZES] = {4 * KIB,    16 * KIB,   64 * KIB,   256 * KIB, 512 * KIB,
                                                   1024 * KIB, 2048 * KIB, 4096 * KIB, 8192 * KIB};
static const size_t gather_sizes[] = {4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB};

int32_t trm_choice_n_sizes(trm_choice_op op)
{
    return op == TRM_CHOICE_ALL_REDUCE ? TRM_CHOICE_SIZES : (int32_t)(sizeof(gather_sizes) / sizeof(*gather_sizes));
}

size_t trm_choice_size(trm_choice_op op, int32_t index)
{
    return op == TRM_CHOICE_ALL_REDUCE ? sum_sizes[index] : gather_sizes[index];
}

static const char *const way_names[TRM_PEER_WAYS] = {"nccl", "one_shot", "two_shot", "bulk"};

const char *trm_peer_way_name(trm_peer_way way)
{
    return (unsigned)way < TRM_PEER_WAYS ? way_names[way] : "invalid";
}

void trm_choice_problem(const trm_choice_machine *machine, trm_choice_op op, size_t bytes,
                        char text[TRM_PROBLEM_TEXT_SIZE])
{
    static const char *const ops[TRM_CHOICE_OPS] = {"all_reduce", "all_gather"};
    static const char *const joints[] = {"an unknown link", "PCIe", "NVLink"};
    snprintf(text, TRM_PROBLEM_TEXT_SIZE, "nccl %d, driver %d; %d ranks, %s; %s of %zu bytes of bf16", machine->nccl,
             machine->driver, machine->ranks, joints[machine->joint], ops[op], bytes);
}

static int32_t find_way(const trm_choice_times *times, trm_peer_way way)
{
    for (int32_t i = 0; i < times->n; i++) {
        if (times->ways[i] == way) {
            return i;
        }
    }
    return -1;
}

void trm_choice_read(const trm_timing *timing, trm_choice_times *times)
{
    *times = (trm_choice_times){.n = 0};
    for (int32_t i = 0; i < timing->n_tactics; i++) {
        for (int32_t w = 0; w < TRM_PEER_WAYS; w++) {
            const double microseconds = timing->tactics[i].microseconds;
            if (strcmp(timing->tactics[i].name, way_names[w]) == 0 && find_way(times, (trm_peer_way)w) < 0 &&
                microseconds > 0 && microseconds <= MOST_MICROSECONDS) {
                times->ways[times->n] = (trm_peer_way)w;
                times->microseconds[times->n++] = microseconds;
            }
        }
    }
}

/* The order in which the tuner records. */
static bool comes_before(const trm_tactic *a, const trm_tactic *b)
{
    return a->microseconds < b->microseconds || (a->microseconds == b->microseconds && strcmp(a->name, b->name) < 0);
}

void trm_choice_write(trm_choice_times *times, trm_tactic *tactics)
{
    for (int32_t i = 0; i < times->n; i++) {
        trm_tactic tactic = {.microseconds = fmax(round(times->microseconds[i] * 1000), 1) / 1000};
        snprintf(tactic.name, sizeof(tactic.name), "%s", trm_peer_way_name(times->ways[i]));
        int32_t at = i;
        for (; at > 0 && comes_before(&tactic, &tactics[at - 1]); at--) {
            tactics[at] = tactics[at - 1];
        }
        tactics[at] = tactic;
    }
    trm_choice_read(&(trm_timing){.n_tactics = times->n, .tactics = tactics}, times);
}

/* Adds this way up to this many bytes, unless another way covers them. */
static void add_range(trm_choice *choice, trm_peer_way way, size_t most)
{
    if (choice->n > 0 && choice->ranges[choice->n - 1].most >= most) {
        return;
    }
    choice->n += choice->n == 0 || choice->ranges[choice->n - 1].way != way;
    choice->ranges[choice->n - 1].way = way;
    choice->ranges[choice->n - 1].most = most;
}

/* Two neighbouring sizes and the ways with times at both. */
typedef struct interval {
    size_t from, to;
    const trm_choice_times *first, *last; /* at `from` and at `to` */
} interval;

/* Whether the first way of a size is the fastest; if not, a user edited the order. */
static bool is_measured(const trm_choice_times *times)
{
    for (int32_t i = 1; i < times->n; i++) {
        if (times->microseconds[i] < times->microseconds[0]) {
            return false;
        }
    }
    return true;
}

static bool is_known(const interval *v, trm_peer_way way)
{
    return find_way(v->first, way) >= 0 && find_way(v->last, way) >= 0;
}

/* Difference between the times of two ways at an end. */
static double ahead(const trm_choice_times *times, trm_peer_way way, trm_peer_way other)
{
    return times->microseconds[find_way(times, other)] - times->microseconds[find_way(times, way)];
}

/* The first way that becomes faster than `way` after `share`, and where between the sizes; NO: none. */
static bool find_next(const interval *v, trm_peer_way way, double *share, trm_peer_way *next)
{
    double nearest = 1;
    for (int32_t w = 0; w < TRM_PEER_WAYS; w++) {
        const trm_peer_way other = (trm_peer_way)w;
        if (other == way || !is_known(v, other)) {
            continue;
        }
        const double before = ahead(v->first, way, other), after = ahead(v->last, way, other);
        if (after >= 0 || before <= after) {
            continue; /* does not become faster */
        }
        const double at = before <= 0 ? 0 : before / (before - after);
        if (at >= *share && at < nearest) {
            nearest = at;
            *next = other;
        }
    }
    *share = nearest;
    return nearest < 1;
}

/* The fastest way at the smaller size of those that reach the larger one. */
static trm_peer_way fastest_known(const interval *v, trm_peer_way otherwise)
{
    trm_peer_way best = otherwise;
    double least = INFINITY;
    for (int32_t i = 0; i < v->first->n; i++) {
        if (is_known(v, v->first->ways[i]) && v->first->microseconds[i] < least) {
            best = v->first->ways[i];
            least = v->first->microseconds[i];
        }
    }
    return best;
}

/* Adds the ranges that end between two sizes. The way of the larger one continues. */
static void add_interval(trm_choice *choice, const interval *v)
{
    trm_peer_way way = v->first->ways[0], next;
    const trm_peer_way end = v->last->ways[0];
    if (!is_measured(v->first) || !is_measured(v->last)) {
        if (way != end) {
            add_range(choice, way, (v->from + v->to) / 2 / KIB * KIB);
        }
        return;
    }
    if (!is_known(v, way)) { /* its largest vector is of the smaller size */
        add_range(choice, way, v->from);
        way = fastest_known(v, end);
    }
    for (double share = 0; is_known(v, way) && find_next(v, way, &share, &next); way = next) {
        const size_t most = (v->from + (size_t)((double)(v->to - v->from) * share)) / KIB * KIB;
        add_range(choice, way, most < v->to ? most : v->to - 1);
    }
    if (way != end) { /* which is not known at the smaller size, or as fast */
        add_range(choice, way, v->to - 1);
    }
}

void trm_choice_make(trm_choice_op op, const trm_choice_times *times, trm_choice *choice)
{
    const int32_t n = trm_choice_n_sizes(op);
    *choice = (trm_choice){.n = 0};
    for (int32_t i = 0; i < n; i++) {
        if (times[i].n == 0) {
            return;
        }
    }
    for (int32_t i = 0; i + 1 < n; i++) {
        add_interval(choice, &(interval){trm_choice_size(op, i), trm_choice_size(op, i + 1), &times[i], &times[i + 1]});
    }
    add_range(choice, times[n - 1].ways[0], trm_choice_size(op, n - 1));
}

trm_peer_way trm_choice_way(const trm_choice *choice, size_t bytes)
{
    for (int32_t i = 0; i < choice->n; i++) {
        if (bytes <= choice->ranges[i].most) {
            return choice->ranges[i].way;
        }
    }
    return TRM_PEER_NO_WAY;
}

void trm_choice_describe(const trm_choice *choice, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < choice->n && used < size; i++) {
        if (choice->ranges[i].way != TRM_PEER_NO_WAY || i + 1 < choice->n) {
            used += (size_t)snprintf(text + used, size - used, "%s up to %zu KiB, ",
                                     trm_peer_way_name(choice->ranges[i].way), choice->ranges[i].most / KIB);
        }
    }
    if (used < size) {
        snprintf(text + used, size - used, "%s", trm_peer_way_name(TRM_PEER_NO_WAY));
    }
}
