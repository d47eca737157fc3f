/*
 * The cases that every communicator must pass, against a plain reference computed from all ranks' inputs. Each rank can
 * make the input of every rank, so nothing but the exchange under test moves data.
 */
#ifndef TESTS_COLLECTIVES_CASES_H
#define TESTS_COLLECTIVES_CASES_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/hash.h"
#include "collectives/communicator.h"
#include "collectives/reduce.h"

typedef struct case_result {
    int32_t run, failed;
    char why[1024]; /* of the first failure */
} case_result;

/* What the cases run on. */
typedef struct case_setup {
    trm_stream *stream;               /* NULL: host memory */
    bool (*reduces)(trm_dtype dtype); /* types the communicator reduces; NULL: all that can be */
    const size_t *counts;
    int32_t n_counts;
    case_result *result;
} case_setup;

static inline uint64_t case_hash(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t z = a * 0x9e3779b97f4a7c15ull + b * 0xbf58476d1ce4e5b9ull + c * 0x94d049bb133111ebull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static inline bool case_is_float(trm_dtype dtype)
{
    return dtype == TRM_F32 || dtype == TRM_F64 || dtype == TRM_F16 || dtype == TRM_BF16;
}

static inline void case_store_float(trm_dtype dtype, double value, void *at)
{
    float f = (float)value;
    uint16_t half = dtype == TRM_F16 ? trm_f32_to_f16(f) : trm_f32_to_bf16(f);
    const void *from = dtype == TRM_F32 ? (void *)&f : dtype == TRM_F64 ? (void *)&value : (void *)&half;
    memcpy(at, from, trm_dtype_size(dtype));
}

static inline double case_load_float(trm_dtype dtype, const void *at)
{
    float f;
    double d;
    uint16_t half;
    switch (dtype) {
    case TRM_F32:
        memcpy(&f, at, sizeof(f));
        return f;
    case TRM_F64:
        memcpy(&d, at, sizeof(d));
        return d;
    default:
        memcpy(&half, at, sizeof(half));
        return dtype == TRM_F16 ? trm_f16_to_f32(half) : trm_bf16_to_f32(half);
    }
}

/* Sign- or zero-extended. */
static inline int64_t case_load_integer(trm_dtype dtype, const void *at)
{
    uint64_t bits = 0;
    size_t size = trm_dtype_size(dtype);
    memcpy(&bits, at, size);
    bool is_signed = dtype == TRM_I8 || dtype == TRM_I16 || dtype == TRM_I32 || dtype == TRM_I64;
    if (is_signed && size < 8 && (bits >> (8 * size - 1)) != 0) {
        bits |= ~0ull << (8 * size);
    }
    return (int64_t)bits;
}

/* Element `i` of the input of world rank `rank`: floats in [-2, 2), any bits of an integer: its sums and products wrap.
 */
static inline void case_input(trm_dtype dtype, int32_t rank, size_t i, void *at)
{
    uint64_t bits = case_hash((uint64_t)rank + 1, i + 1, (uint64_t)dtype);
    if (case_is_float(dtype)) {
        case_store_float(dtype, 2.0 * ((double)(bits >> 40) * 0x1p-23 - 1.0), at);
        return;
    }
    bits = dtype == TRM_BOOL ? bits & 1 : bits;
    memcpy(at, &bits, trm_dtype_size(dtype));
}

/* Element i of the reduction over `ranks` [n], into `at`. */
static inline void case_reduced(trm_dtype dtype, trm_reduce_op op, const int32_t *ranks, int32_t n, size_t i, void *at)
{
    unsigned char element[8];
    double sum = 0;
    int64_t whole = 0;
    bool is_float = case_is_float(dtype), u64 = dtype == TRM_U64;
    for (int32_t r = 0; r < n; r++) {
        case_input(dtype, ranks[r], i, element);
        double f = is_float ? case_load_float(dtype, element) : 0;
        int64_t v = is_float ? 0 : case_load_integer(dtype, element);
        bool less = is_float ? f < sum : u64 ? (uint64_t)v < (uint64_t)whole : v < whole;
        bool more = is_float ? f > sum : u64 ? (uint64_t)v > (uint64_t)whole : v > whole;
        if (r == 0 || (op == TRM_REDUCE_MAX && more) || (op == TRM_REDUCE_MIN && less)) {
            sum = f;
            whole = v;
        } else if (op == TRM_REDUCE_PROD) {
            sum *= f;
            whole = (int64_t)((uint64_t)whole * (uint64_t)v);
        } else if (op == TRM_REDUCE_SUM || op == TRM_REDUCE_AVG) {
            sum += f;
            whole = (int64_t)((uint64_t)whole + (uint64_t)v);
        }
    }
    if (is_float) {
        case_store_float(dtype, op == TRM_REDUCE_AVG ? sum / n : sum, at);
        return;
    }
    memcpy(element, &whole, sizeof(whole));
    whole = case_load_integer(dtype, element); /* wrapped to the type's width */
    if (op == TRM_REDUCE_AVG) {
        whole = u64 ? (int64_t)((uint64_t)whole / (uint64_t)n) : whole / n;
    }
    memcpy(at, &whole, trm_dtype_size(dtype));
}

/* Elements of an op's input and output for n ranks, in units of `count`. */
static inline void case_extents(trm_collective_op op, int32_t n, size_t *in, size_t *out)
{
    *in = op == TRM_REDUCE_SCATTER || op == TRM_SCATTER || op == TRM_ALL_TO_ALL ? (size_t)n : 1;
    *out = op == TRM_ALL_GATHER || op == TRM_GATHER || op == TRM_ALL_TO_ALL ? (size_t)n : 1;
}

/* Whether the output of an op is defined on rank `me`. */
static inline bool case_defined(const trm_exchange *x, int32_t me)
{
    return x->op != TRM_SEND && ((x->op != TRM_REDUCE && x->op != TRM_GATHER) || me == x->root);
}

/* Element i of block r of what must stand in `to` of group rank `me`. */
static inline void case_expect(const trm_exchange *x, const int32_t *ranks, int32_t n, int32_t me, size_t r, size_t i,
                               void *at)
{
    switch (x->op) {
    case TRM_ALL_REDUCE:
    case TRM_REDUCE:
        case_reduced(x->dtype, x->reduce, ranks, n, i, at);
        break;
    case TRM_REDUCE_SCATTER:
        case_reduced(x->dtype, x->reduce, ranks, n, (size_t)me * x->count + i, at);
        break;
    case TRM_ALL_GATHER:
    case TRM_GATHER:
        case_input(x->dtype, ranks[r], i, at);
        break;
    case TRM_ALL_TO_ALL:
        case_input(x->dtype, ranks[r], (size_t)me * x->count + i, at);
        break;
    case TRM_SCATTER:
        case_input(x->dtype, ranks[x->root], (size_t)me * x->count + i, at);
        break;
    default:
        case_input(x->dtype, ranks[x->root], i, at);
        break;
    }
}

/* How far a reduction of n floats of up to 2 may lie from the exact one. */
static inline double case_tolerance(trm_dtype dtype, int32_t n)
{
    double unit = dtype == TRM_F32 ? 0x1p-23 : dtype == TRM_F16 ? 0x1p-10 : dtype == TRM_BF16 ? 0x1p-7 : 0x1p-51;
    return n * unit * (double)(1 << n);
}

static inline bool case_correct(const trm_communicator *c, const trm_exchange *x, const unsigned char *found,
                                size_t *where)
{
    size_t s = trm_dtype_size(x->dtype), in, out;
    case_extents(x->op, c->size, &in, &out);
    bool exact = !case_is_float(x->dtype) || !trm_collective_reduces(x->op);
    for (size_t at = 0; case_defined(x, c->rank) && at < out * x->count; at++) {
        unsigned char expected[8];
        case_expect(x, c->world_ranks, c->size, c->rank, at / x->count, at % x->count, expected);
        *where = at;
        if (exact ? memcmp(found + at * s, expected, s) != 0
                  : !(fabs(case_load_float(x->dtype, found + at * s) - case_load_float(x->dtype, expected)) <=
                      case_tolerance(x->dtype, c->size))) {
            return false;
        }
    }
    return true;
}

static inline void case_fail(const case_setup *setup, const trm_communicator *c, const trm_exchange *x, bool in_place,
                             const char *what)
{
    case_result *result = setup->result;
    if (result->failed++ == 0) {
        snprintf(result->why, sizeof(result->why), "%s rank %d of %d: %s %s of %zu %s, root %d%s: %s", c->ops->name,
                 (int)c->rank, (int)c->size, trm_collective_op_name(x->op), trm_reduce_op_name(x->reduce), x->count,
                 trm_dtype_name(x->dtype), (int)x->root, in_place ? ", in place" : "", what);
    }
}

/* The exchange on the memory under test: uploads `from` and `to`, downloads `to`. */
static inline trm_status case_exchange(trm_communicator *c, trm_stream *stream, trm_exchange *x, bool in_place,
                                       const void *from, size_t from_size, void *to, size_t to_size)
{
    if (stream == NULL) {
        if (in_place) {
            memcpy(to, from, from_size);
        }
        x->from = in_place ? to : from;
        x->to = to;
        return trm_communicator_exchange(c, x, NULL);
    }
    trm_device *device = trm_stream_device(stream);
    void *device_from = NULL, *device_to = NULL;
    trm_status status;
    TRM_TRY_GOTO(status, trm_device_alloc(device, from_size + 1, &device_from), done);
    TRM_TRY_GOTO(status, trm_device_alloc(device, to_size + 1, &device_to), done);
    TRM_TRY_GOTO(status, trm_stream_upload(stream, device_to, to, to_size), done);
    TRM_TRY_GOTO(status, trm_stream_upload(stream, in_place ? device_to : device_from, from, from_size), done);
    x->from = in_place ? device_to : device_from;
    x->to = device_to;
    TRM_TRY_GOTO(status, trm_communicator_exchange(c, x, stream), done);
    TRM_TRY_GOTO(status, trm_stream_download(stream, to, device_to, to_size), done);
    status = trm_stream_synchronize(stream);
done:
    trm_device_free(device, device_from);
    trm_device_free(device, device_to);
    return status;
}

/* Whether every rank of the group holds the same bytes. */
static inline bool case_identical(trm_communicator *c, trm_stream *stream, const unsigned char *bytes, size_t size)
{
    uint64_t hash = trm_hash_bytes(TRM_HASH_START, bytes, size), all[TRM_MAX_RANKS] = {0};
    trm_exchange x = {TRM_ALL_GATHER, TRM_REDUCE_NONE, TRM_U64, NULL, NULL, 1, 0};
    if (case_exchange(c, stream, &x, false, &hash, sizeof(hash), all, sizeof(hash) * (size_t)c->size) != TRM_OK) {
        return false;
    }
    for (int32_t r = 0; r < c->size; r++) {
        if (all[r] != hash) {
            return false;
        }
    }
    return true;
}

static inline void case_run(trm_communicator *c, const case_setup *setup, trm_exchange x, bool in_place)
{
    size_t in, out, s = trm_dtype_size(x.dtype);
    case_extents(x.op, c->size, &in, &out);
    size_t from_size = in * x.count * s, to_size = out * x.count * s;
    unsigned char *from = malloc(from_size + 1), *to = malloc(to_size + 1);
    bool ignored = ((x.op == TRM_BROADCAST || x.op == TRM_SCATTER) && c->rank != x.root) || x.op == TRM_RECV;
    for (size_t i = 0; i < in * x.count; i++) {
        case_input(x.dtype, ignored ? 99 : c->world_ranks[c->rank], i, from + i * s);
    }
    memset(to, 0xa5, to_size + 1);
    setup->result->run++;
    trm_status status = case_exchange(c, setup->stream, &x, in_place, from, from_size, to, to_size);
    size_t where = 0;
    char text[128];
    if (status != TRM_OK) {
        case_fail(setup, c, &x, in_place, trm_last_error());
    } else if (!case_correct(c, &x, to, &where)) {
        snprintf(text, sizeof(text), "element %zu is wrong", where);
        case_fail(setup, c, &x, in_place, text);
    } else if (to[to_size] != 0xa5) {
        case_fail(setup, c, &x, in_place, "wrote past the end");
    }
    if (status == TRM_OK && x.op == TRM_ALL_REDUCE && !case_identical(c, setup->stream, to, to_size)) {
        case_fail(setup, c, &x, in_place, "the result differs between ranks");
    }
    free(from);
    free(to);
}

/* Each rank sends to the next of the ring. */
static inline void case_ring(trm_communicator *c, const case_setup *setup, trm_dtype dtype, size_t count)
{
    int32_t n = c->size, next = (c->rank + 1) % n, before = (c->rank + n - 1) % n;
    trm_exchange send = {TRM_SEND, TRM_REDUCE_NONE, dtype, NULL, NULL, count, next};
    trm_exchange receive = {TRM_RECV, TRM_REDUCE_NONE, dtype, NULL, NULL, count, before};
    bool first = c->rank == 0;
    case_run(c, setup, first ? send : receive, false);
    case_run(c, setup, first ? receive : send, false);
}

static inline void case_run_op(trm_communicator *c, const case_setup *setup, trm_collective_op op, trm_dtype dtype,
                               size_t count)
{
    bool reducing = trm_collective_reduces(op);
    size_t in, out;
    case_extents(op, c->size, &in, &out);
    for (int reduce = 0; reduce <= TRM_REDUCE_NONE; reduce++) {
        if (reducing ? !trm_reduce_supported(dtype, (trm_reduce_op)reduce) ||
                           (setup->reduces != NULL && !setup->reduces(dtype))
                     : reduce != TRM_REDUCE_NONE) {
            continue;
        }
        for (int32_t root = 0; root < (trm_collective_has_root(op) ? c->size : 1); root++) {
            trm_exchange x = {op, (trm_reduce_op)reduce, dtype, NULL, NULL, count, root};
            case_run(c, setup, x, false);
            bool nccl = strcmp(c->ops->name, "nccl") == 0 || strcmp(c->ops->name, "peer") == 0;
            bool nccl_all_to_all = op == TRM_ALL_TO_ALL && nccl;
            if (in == out && !nccl_all_to_all) {
                case_run(c, setup, x, true);
            }
        }
    }
}

/* Every op on one communicator. */
static inline void case_run_all(trm_communicator *c, const case_setup *setup, int32_t n_counts)
{
    for (int dtype = TRM_F32; dtype < TRM_DTYPE_COUNT; dtype++) {
        for (int32_t k = 0; k < n_counts; k++) {
            for (int op = TRM_ALL_REDUCE; op <= TRM_SCATTER; op++) {
                case_run_op(c, setup, (trm_collective_op)op, (trm_dtype)dtype, setup->counts[k]);
            }
            if (c->size > 1) {
                case_ring(c, setup, (trm_dtype)dtype, setup->counts[k]);
            }
        }
    }
}

/* The whole, and groups of it: all reversed, two halves, odd and even, last and first only. */
static inline void case_run_groups(trm_communicator *c, const case_setup *setup)
{
    case_run_all(c, setup, setup->n_counts);
    int32_t n = c->size;
    for (int kind = 0; kind < 4 && n > 1; kind++) {
        int32_t groups[TRM_MAX_RANKS], n_groups = kind == 1 || kind == 2 ? 2 : 1;
        int32_t size = kind == 0 ? n : kind == 3 ? 2 : n / 2;
        for (int32_t i = 0; i < n_groups * size; i++) {
            int32_t ranks[] = {n - 1 - i, i, i < size ? 2 * i : 2 * (i - size) + 1, i == 0 ? n - 1 : 0};
            groups[i] = ranks[kind];
        }
        trm_communicator *part = NULL, *again = NULL;
        if (trm_communicator_part(c, groups, n_groups, size, &part) != TRM_OK ||
            trm_communicator_part(c, groups, n_groups, size, &again) != TRM_OK || part != again) {
            setup->result->failed++;
            snprintf(setup->result->why, sizeof(setup->result->why), "groups of kind %d: %s", kind, trm_last_error());
            return;
        }
        if (part != NULL) {
            case_run_all(part, setup, setup->n_counts < 3 ? setup->n_counts : 3);
        }
    }
}

#endif
