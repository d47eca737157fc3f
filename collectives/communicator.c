/* Entry points of every communicator: argument checks, error texts, and sub-communicators for layers' groups. */
#include "collectives/communicator.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/ranges.h"
#include "base/trace.h"
#include "collectives/reduce.h"

struct trm_communicator_part {
    struct trm_communicator_part *next;
    trm_communicator *communicator; /* NULL if this rank is in no group */
    int32_t n_groups, group_size;
    int32_t groups[TRM_MAX_RANKS];
};

const char *trm_collective_op_name(trm_collective_op op)
{
    static const char *const names[] = {TRM_COLLECTIVE_OPS(TRM_ENUM_NAME)};
    return (unsigned)op <= TRM_RECV ? names[op] : "invalid";
}

const char *trm_reduce_op_name(trm_reduce_op op)
{
    static const char *const names[] = {TRM_REDUCE_OPS(TRM_ENUM_NAME)};
    return (unsigned)op <= TRM_REDUCE_NONE ? names[op] : "invalid";
}

bool trm_collective_reduces(trm_collective_op op)
{
    return op == TRM_ALL_REDUCE || op == TRM_REDUCE || op == TRM_REDUCE_SCATTER;
}

bool trm_collective_has_root(trm_collective_op op)
{
    return op == TRM_BROADCAST || op == TRM_REDUCE || op == TRM_GATHER || op == TRM_SCATTER || op == TRM_SEND ||
           op == TRM_RECV;
}

static trm_status check_exchange(const trm_communicator *communicator, const trm_exchange *x)
{
    const char *op = trm_collective_op_name(x->op);
    if ((unsigned)x->op > TRM_RECV) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "collective has op %d, expected 0 to %d", (int)x->op, (int)TRM_RECV);
    }
    size_t element = trm_dtype_size(x->dtype);
    if (element == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has element type %s", op, trm_dtype_name(x->dtype));
    }
    if (trm_collective_reduces(x->op) ? !trm_reduce_supported(x->dtype, x->reduce) : x->reduce != TRM_REDUCE_NONE) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s of %s has reduce operation %s", op, trm_dtype_name(x->dtype),
                 trm_reduce_op_name(x->reduce));
    }
    if (trm_collective_has_root(x->op)) {
        if (x->root < 0 || x->root >= communicator->size) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has root %d in a group of %d ranks", op, (int)x->root,
                     (int)communicator->size);
        }
        if ((x->op == TRM_SEND || x->op == TRM_RECV) && x->root == communicator->rank) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has the rank itself, %d, as its peer", op, (int)x->root);
        }
    }
    size_t bytes;
    if (!trm_checked_mul(x->count, element, &bytes) || !trm_checked_mul(bytes, (size_t)communicator->size, &bytes)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s of %zu %s between %d ranks is too large", op, x->count,
                 trm_dtype_name(x->dtype), (int)communicator->size);
    }
    bool root = !trm_collective_has_root(x->op) || x->root == communicator->rank;
    bool reads = x->op == TRM_RECV ? false : (x->op != TRM_BROADCAST && x->op != TRM_SCATTER) || root;
    bool writes = x->op == TRM_SEND ? false : x->op == TRM_RECV || (x->op != TRM_REDUCE && x->op != TRM_GATHER) || root;
    if (x->count > 0 && ((reads && x->from == NULL) || (writes && x->to == NULL))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s of %zu %s has no buffer", op, x->count, trm_dtype_name(x->dtype));
    }
    return TRM_OK;
}

/* Adds an exchange of host memory, which has ended, to the timeline; those of a stream are layers. */
static void trace_exchange(const trm_communicator *communicator, const trm_exchange *exchange, double began)
{
    const trm_trace_value values[] = {
        {.key = "bytes", .number = (int64_t)(exchange->count * trm_dtype_size(exchange->dtype))},
        {.key = "ranks", .number = communicator->size}};
    const trm_trace_span span = {.category = "exchange",
                                 .name = trm_collective_op_name(exchange->op),
                                 .begin = began,
                                 .seconds = trm_clock_seconds() - began,
                                 .row = trm_trace_thread_row(),
                                 .values = values,
                                 .n_values = 2};
    trm_trace_add(&span);
}

trm_status trm_communicator_exchange(trm_communicator *communicator, const trm_exchange *exchange, trm_stream *stream)
{
    TRM_TRY(check_exchange(communicator, exchange));
    if (exchange->count == 0) {
        return TRM_OK;
    }
    const bool traces = stream == NULL && communicator->size > 1 && trm_trace_is_on();
    const double began = traces ? trm_clock_seconds() : 0;
    trm_range_begin(trm_collective_op_name(exchange->op));
    trm_status status = communicator->ops->exchange(communicator, exchange, stream);
    trm_range_end();
    if (traces) {
        trace_exchange(communicator, exchange, began);
    }
    if (status != TRM_OK) {
        return trm_fail_in(status, "%s of %zu %s between %d ranks", trm_collective_op_name(exchange->op),
                           exchange->count, trm_dtype_name(exchange->dtype), (int)communicator->size);
    }
    return TRM_OK;
}

/* The rank in `communicator` of a world rank, or -1. */
static int32_t find_rank(const trm_communicator *communicator, int32_t world_rank)
{
    for (int32_t r = 0; r < communicator->size; r++) {
        if (communicator->world_ranks[r] == world_rank) {
            return r;
        }
    }
    return -1;
}

/* Fills in the members of this rank's group, as ranks of `communicator`; *colour is -1 if no group has it. */
static trm_status find_group(const trm_communicator *communicator, const int32_t *groups, int32_t n_groups,
                             int32_t group_size, int32_t *members, int32_t *colour)
{
    bool used[TRM_MAX_RANKS] = {false};
    *colour = -1;
    for (int32_t i = 0; i < n_groups * group_size; i++) {
        int32_t rank = find_rank(communicator, groups[i]);
        if (rank < 0) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "group has rank %d, expected one of %d ranks", (int)groups[i],
                     (int)communicator->size);
        }
        if (used[rank]) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "groups have rank %d twice", (int)groups[i]);
        }
        used[rank] = true;
        if (rank == communicator->rank) {
            *colour = i / group_size;
        }
    }
    for (int32_t i = 0; *colour >= 0 && i < group_size; i++) {
        members[i] = find_rank(communicator, groups[*colour * group_size + i]);
    }
    return TRM_OK;
}

static bool is_whole(const trm_communicator *communicator, const int32_t *groups, int32_t n_groups, int32_t group_size)
{
    return n_groups == 1 && group_size == communicator->size &&
           memcmp(groups, communicator->world_ranks, (size_t)group_size * sizeof(*groups)) == 0;
}

trm_status trm_communicator_part(trm_communicator *communicator, const int32_t *groups, int32_t n_groups,
                                 int32_t group_size, trm_communicator **part)
{
    if (n_groups == 0) {
        *part = communicator;
        return TRM_OK;
    }
    if (n_groups < 0 || group_size < 1 || group_size > TRM_MAX_RANKS || n_groups > TRM_MAX_RANKS / group_size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "collective has %d groups of %d ranks, expected at most %d ranks in all",
                 (int)n_groups, (int)group_size, TRM_MAX_RANKS);
    }
    if (is_whole(communicator, groups, n_groups, group_size)) {
        *part = communicator;
        return TRM_OK;
    }
    size_t bytes = (size_t)n_groups * (size_t)group_size * sizeof(*groups);
    for (struct trm_communicator_part *p = communicator->parts; p != NULL; p = p->next) {
        if (p->n_groups == n_groups && p->group_size == group_size && memcmp(p->groups, groups, bytes) == 0) {
            *part = p->communicator;
            return TRM_OK;
        }
    }
    int32_t members[TRM_MAX_RANKS], colour;
    TRM_TRY(find_group(communicator, groups, n_groups, group_size, members, &colour));
    struct trm_communicator_part *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a group of ranks");
    }
    trm_status status =
        communicator->ops->split(communicator, colour, members, colour >= 0 ? group_size : 0, &made->communicator);
    if (status != TRM_OK) {
        free(made);
        return trm_fail_in(status, "making groups of %d ranks", (int)group_size);
    }
    if (made->communicator != NULL) {
        made->communicator->watch = communicator->watch;
        made->communicator->watch_user = communicator->watch_user;
    }
    made->n_groups = n_groups;
    made->group_size = group_size;
    memcpy(made->groups, groups, bytes);
    made->next = communicator->parts;
    communicator->parts = made;
    *part = made->communicator;
    return TRM_OK;
}

trm_status trm_communicator_check(trm_communicator *communicator)
{
    if (communicator->watch != NULL) {
        TRM_TRY(communicator->watch(communicator->watch_user));
    }
    TRM_TRY(communicator->ops->check(communicator));
    for (struct trm_communicator_part *p = communicator->parts; p != NULL; p = p->next) {
        if (p->communicator != NULL) {
            TRM_TRY(p->communicator->ops->check(p->communicator));
        }
    }
    return TRM_OK;
}

void trm_communicator_abort(trm_communicator *communicator)
{
    for (struct trm_communicator_part *p = communicator->parts; p != NULL; p = p->next) {
        if (p->communicator != NULL) {
            p->communicator->ops->abort(p->communicator);
        }
    }
    communicator->ops->abort(communicator);
}

void trm_communicator_destroy(trm_communicator *communicator)
{
    if (communicator == NULL) {
        return;
    }
    while (communicator->parts != NULL) {
        struct trm_communicator_part *part = communicator->parts;
        communicator->parts = part->next;
        trm_communicator_destroy(part->communicator);
        free(part);
    }
    communicator->ops->destroy(communicator);
}
