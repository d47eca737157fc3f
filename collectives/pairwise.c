/*
 * The communicator over a transport: every exchange is one or two rounds of messages between all pairs.
 *
 * Ranks are few and memory is shared or the network switched, so direct exchanges beat rings: fewer rounds. A reduction
 * adds in rank order, each element on one rank or in the same order on all: the result is bit-identical on every rank,
 * and does not depend on the size or the number of rounds.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "collectives/reduce.h"
#include "collectives/transport.h"

size_t trm_pairwise_scratch_size = 4u << 20;
size_t trm_pairwise_small_size = 32u << 10;

typedef struct pairwise {
    trm_communicator base;
    trm_transport *transport;
    uint32_t channel;
    unsigned char *scratch; /* [scratch_size] blocks of peers being reduced */
    size_t scratch_size;
} pairwise;

/* The messages of one round. */
typedef struct round {
    trm_message sends[TRM_MAX_RANKS], receives[TRM_MAX_RANKS];
    int32_t n_sends, n_receives;
} round;

static void add_send(const pairwise *p, round *r, int32_t rank, const void *bytes, size_t size)
{
    if (size > 0) {
        r->sends[r->n_sends++] = (trm_message){p->base.world_ranks[rank], (void *)bytes, size};
    }
}

static void add_receive(const pairwise *p, round *r, int32_t rank, void *bytes, size_t size)
{
    if (size > 0) {
        r->receives[r->n_receives++] = (trm_message){p->base.world_ranks[rank], bytes, size};
    }
}

static trm_status run_round(pairwise *p, round *r)
{
    trm_status status = p->transport->ops->transfer(p->transport, p->channel, p->base.deadline_seconds, r->sends,
                                                    r->n_sends, r->receives, r->n_receives);
    r->n_sends = r->n_receives = 0;
    return status;
}

static void copy_own(void *to, const void *from, size_t size)
{
    if (to != from) {
        memmove(to, from, size);
    }
}

/* Elements per block such that one block of every rank fits the scratch memory. */
static trm_status need_scratch(pairwise *p, size_t element, size_t *count)
{
    size_t least = (size_t)p->base.size * element;
    size_t size = trm_pairwise_scratch_size > least ? trm_pairwise_scratch_size : least;
    if (p->scratch_size != size) {
        free(p->scratch);
        p->scratch_size = 0;
        p->scratch = malloc(size);
        if (p->scratch == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu bytes for reductions", size);
        }
        p->scratch_size = size;
    }
    *count = size / least;
    return TRM_OK;
}

/* Receives a block of `count` elements from every peer into scratch; blocks[rank] is `own`. */
static void receive_blocks(pairwise *p, round *r, const void *own, size_t count, size_t element, const void **blocks)
{
    for (int32_t peer = 0; peer < p->base.size; peer++) {
        unsigned char *block = p->scratch + (size_t)peer * count * element;
        blocks[peer] = peer == p->base.rank ? own : block;
        if (peer != p->base.rank) {
            add_receive(p, r, peer, block, count * element);
        }
    }
}

static trm_status reduce_chunk_everywhere(pairwise *p, const trm_exchange *x, size_t element, const void *from,
                                          void *to, size_t count)
{
    round r = {.n_sends = 0};
    const void *blocks[TRM_MAX_RANKS];
    for (int32_t peer = 0; peer < p->base.size; peer++) {
        if (peer != p->base.rank) {
            add_send(p, &r, peer, from, count * element);
        }
    }
    receive_blocks(p, &r, from, count, element, blocks);
    TRM_TRY(run_round(p, &r));
    trm_reduce_blocks(x->dtype, x->reduce, blocks, p->base.size, to, count);
    return TRM_OK;
}

/* Slice r of n of `count` elements. */
static size_t slice_begin(size_t count, int32_t n, int32_t r)
{
    return count / (size_t)n * (size_t)r + (count % (size_t)n) * (size_t)r / (size_t)n;
}

/* Reduce-scatter, then all-gather. */
static trm_status reduce_chunk_in_slices(pairwise *p, const trm_exchange *x, size_t element, const unsigned char *from,
                                         unsigned char *to, size_t count)
{
    int32_t n = p->base.size, rank = p->base.rank;
    size_t begin = slice_begin(count, n, rank), width = slice_begin(count, n, rank + 1) - begin;
    round r = {.n_sends = 0};
    const void *blocks[TRM_MAX_RANKS];
    for (int32_t peer = 0; peer < n; peer++) {
        size_t at = slice_begin(count, n, peer);
        if (peer != rank) {
            add_send(p, &r, peer, from + at * element, (slice_begin(count, n, peer + 1) - at) * element);
        }
    }
    receive_blocks(p, &r, from + begin * element, width, element, blocks);
    TRM_TRY(run_round(p, &r));
    if (width > 0) {
        trm_reduce_blocks(x->dtype, x->reduce, blocks, n, to + begin * element, width);
    }
    for (int32_t peer = 0; peer < n; peer++) {
        size_t at = slice_begin(count, n, peer);
        if (peer != rank) {
            add_send(p, &r, peer, to + begin * element, width * element);
            add_receive(p, &r, peer, to + at * element, (slice_begin(count, n, peer + 1) - at) * element);
        }
    }
    return run_round(p, &r);
}

static trm_status all_reduce(pairwise *p, const trm_exchange *x, size_t element)
{
    size_t block = 0;
    TRM_TRY(need_scratch(p, element, &block));
    if (x->count <= block && x->count * element <= trm_pairwise_small_size) {
        return reduce_chunk_everywhere(p, x, element, x->from, x->to, x->count);
    }
    size_t chunk = block * (size_t)p->base.size;
    for (size_t at = 0; at < x->count; at += chunk) {
        size_t count = x->count - at < chunk ? x->count - at : chunk;
        TRM_TRY(reduce_chunk_in_slices(p, x, element, (const unsigned char *)x->from + at * element,
                                       (unsigned char *)x->to + at * element, count));
    }
    return TRM_OK;
}

static trm_status reduce_to_root(pairwise *p, const trm_exchange *x, size_t element)
{
    size_t block = 0;
    TRM_TRY(need_scratch(p, element, &block));
    for (size_t at = 0; at < x->count; at += block) {
        size_t count = x->count - at < block ? x->count - at : block;
        const unsigned char *from = (const unsigned char *)x->from + at * element;
        round r = {.n_sends = 0};
        if (p->base.rank != x->root) {
            add_send(p, &r, x->root, from, count * element);
            TRM_TRY(run_round(p, &r));
            continue;
        }
        const void *blocks[TRM_MAX_RANKS];
        receive_blocks(p, &r, from, count, element, blocks);
        TRM_TRY(run_round(p, &r));
        trm_reduce_blocks(x->dtype, x->reduce, blocks, p->base.size, (unsigned char *)x->to + at * element, count);
    }
    return TRM_OK;
}

static trm_status reduce_scatter(pairwise *p, const trm_exchange *x, size_t element)
{
    size_t block = 0;
    TRM_TRY(need_scratch(p, element, &block));
    for (size_t at = 0; at < x->count; at += block) {
        size_t count = x->count - at < block ? x->count - at : block;
        const unsigned char *from = x->from;
        round r = {.n_sends = 0};
        for (int32_t peer = 0; peer < p->base.size; peer++) {
            if (peer != p->base.rank) {
                add_send(p, &r, peer, from + ((size_t)peer * x->count + at) * element, count * element);
            }
        }
        const void *blocks[TRM_MAX_RANKS];
        receive_blocks(p, &r, from + ((size_t)p->base.rank * x->count + at) * element, count, element, blocks);
        TRM_TRY(run_round(p, &r));
        trm_reduce_blocks(x->dtype, x->reduce, blocks, p->base.size, (unsigned char *)x->to + at * element, count);
    }
    return TRM_OK;
}

static trm_status all_to_all_in_place(pairwise *p, const trm_exchange *x, size_t element)
{
    size_t block = 0;
    TRM_TRY(need_scratch(p, element, &block));
    unsigned char *data = x->to;
    for (size_t at = 0; at < x->count; at += block) {
        size_t size = (x->count - at < block ? x->count - at : block) * element;
        round r = {.n_sends = 0};
        for (int32_t peer = 0; peer < p->base.size; peer++) {
            unsigned char *place = data + ((size_t)peer * x->count + at) * element;
            if (peer != p->base.rank) {
                memcpy(p->scratch + (size_t)peer * size, place, size);
                add_send(p, &r, peer, p->scratch + (size_t)peer * size, size);
                add_receive(p, &r, peer, place, size);
            }
        }
        TRM_TRY(run_round(p, &r));
    }
    return TRM_OK;
}

/* One round without reduction: for all ops that only move data. */
static trm_status move(pairwise *p, const trm_exchange *x, size_t size)
{
    int32_t rank = p->base.rank;
    const unsigned char *from = x->from;
    unsigned char *to = x->to;
    round r = {.n_sends = 0};
    for (int32_t peer = 0; peer < p->base.size; peer++) {
        if (peer == rank) {
            continue;
        }
        size_t at = (size_t)peer * size;
        bool to_root = peer == x->root, at_root = rank == x->root;
        switch (x->op) {
        case TRM_ALL_GATHER:
            add_send(p, &r, peer, from, size);
            add_receive(p, &r, peer, to + at, size);
            break;
        case TRM_ALL_TO_ALL:
            add_send(p, &r, peer, from + at, size);
            add_receive(p, &r, peer, to + at, size);
            break;
        case TRM_BROADCAST:
            add_send(p, &r, peer, from, at_root ? size : 0);
            add_receive(p, &r, peer, to, to_root ? size : 0);
            break;
        case TRM_GATHER:
            add_send(p, &r, peer, from, to_root ? size : 0);
            if (at_root) {
                add_receive(p, &r, peer, to + at, size);
            }
            break;
        case TRM_SCATTER:
            if (at_root) {
                add_send(p, &r, peer, from + at, size);
            }
            add_receive(p, &r, peer, to, to_root ? size : 0);
            break;
        case TRM_SEND:
            add_send(p, &r, peer, from, to_root ? size : 0);
            break;
        default:
            add_receive(p, &r, peer, to, to_root ? size : 0);
            break;
        }
    }
    size_t own = (size_t)rank * size;
    if (x->op == TRM_ALL_GATHER || (x->op == TRM_GATHER && rank == x->root)) {
        copy_own(to + own, from, size);
    } else if (x->op == TRM_ALL_TO_ALL) {
        copy_own(to + own, from + own, size);
    } else if (x->op == TRM_BROADCAST && rank == x->root) {
        copy_own(to, from, size);
    } else if (x->op == TRM_SCATTER && rank == x->root) {
        TRM_TRY(run_round(p, &r)); /* in place, the root's own slice would overwrite unsent data */
        copy_own(to, from + own, size);
        return TRM_OK;
    }
    return run_round(p, &r);
}

static trm_status pairwise_exchange(trm_communicator *communicator, const trm_exchange *x, trm_stream *stream)
{
    pairwise *p = (pairwise *)communicator;
    if (stream != NULL && trm_device_backend(trm_stream_device(stream)) != TRM_BACKEND_HOST) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the %s communicator moves host memory, not that of a cuda stream",
                 communicator->ops->name);
    }
    TRM_TRY(trm_transport_check(p->transport));
    size_t element = trm_dtype_size(x->dtype);
    switch (x->op) {
    case TRM_ALL_REDUCE:
        return all_reduce(p, x, element);
    case TRM_REDUCE:
        return reduce_to_root(p, x, element);
    case TRM_REDUCE_SCATTER:
        return reduce_scatter(p, x, element);
    case TRM_ALL_TO_ALL:
        if (x->from == x->to) {
            return all_to_all_in_place(p, x, element);
        }
        return move(p, x, x->count * element);
    default:
        return move(p, x, x->count * element);
    }
}

static trm_status create(trm_transport *transport, const trm_communicator_ops *ops, double deadline_seconds,
                         pairwise **communicator)
{
    pairwise *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a communicator");
    }
    p->base.ops = ops;
    p->base.deadline_seconds = deadline_seconds;
    p->transport = transport;
    trm_transport_retain(transport);
    *communicator = p;
    return TRM_OK;
}

/* Members know each other, so nothing is exchanged; the channel is a hash of the members. Messages of two groups on the
 * same channel would still match, since two ranks make their common exchanges in the same order. */
static trm_status pairwise_split(trm_communicator *communicator, int32_t colour, const int32_t *members,
                                 int32_t n_members, trm_communicator **part)
{
    (void)colour;
    pairwise *parent = (pairwise *)communicator, *p = NULL;
    *part = NULL;
    if (n_members == 0) {
        return TRM_OK;
    }
    TRM_TRY(create(parent->transport, communicator->ops, communicator->deadline_seconds, &p));
    uint32_t hash = 2166136261u;
    p->base.size = n_members;
    for (int32_t i = 0; i < n_members; i++) {
        p->base.world_ranks[i] = communicator->world_ranks[members[i]];
        if (members[i] == communicator->rank) {
            p->base.rank = i;
        }
        hash = (hash ^ (uint32_t)(p->base.world_ranks[i] + 1)) * 16777619u;
    }
    p->channel = hash % 32749u + 1u; /* an MPI tag is at least 15 bits wide */
    *part = &p->base;
    return TRM_OK;
}

static trm_status pairwise_check(trm_communicator *communicator)
{
    return trm_transport_check(((pairwise *)communicator)->transport);
}

static void pairwise_abort(trm_communicator *communicator)
{
    trm_transport *transport = ((pairwise *)communicator)->transport;
    trm_notice notice = {transport->rank, TRM_ERROR_LOST_RANK, "gave up"};
    if (transport->notice.status == TRM_OK) {
        transport->ops->notify(transport, &notice, 0.0);
        trm_transport_break(transport, &notice);
    }
}

static void pairwise_destroy(trm_communicator *communicator)
{
    pairwise *p = (pairwise *)communicator;
    trm_transport_release(p->transport);
    free(p->scratch);
    free(p);
}

#define PAIRWISE_OPS(name)                                                                                             \
    {                                                                                                                  \
        name, pairwise_exchange, pairwise_split, pairwise_check, pairwise_abort, pairwise_destroy                      \
    }
static const trm_communicator_ops local_ops = PAIRWISE_OPS("local");
static const trm_communicator_ops mpi_ops = PAIRWISE_OPS("mpi");
static const trm_communicator_ops tcp_ops = PAIRWISE_OPS("tcp");

trm_status trm_communicator_pairwise_create(trm_transport *transport, double deadline_seconds,
                                            trm_communicator **communicator)
{
    const trm_communicator_ops *ops = strcmp(transport->ops->name, "mpi") == 0   ? &mpi_ops
                                      : strcmp(transport->ops->name, "tcp") == 0 ? &tcp_ops
                                                                                 : &local_ops;
    pairwise *p = NULL;
    TRM_TRY(create(transport, ops, deadline_seconds, &p));
    p->base.rank = transport->rank;
    p->base.size = transport->size;
    for (int32_t r = 0; r < transport->size; r++) {
        p->base.world_ranks[r] = r;
    }
    *communicator = &p->base;
    return TRM_OK;
}
