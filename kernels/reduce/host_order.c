/*
 * Kernels that order elements along an axis: arg_reduce and topk. Keys and positions are compared
 * (kernels/reduce/order.h), for all types alike.
 */
#include "base/error.h"
#include "kernels/reduce/order.h"
#include "kernels/host/host.h"

static inline uint64_t key_of(const trm_order_args *args, int64_t row, int64_t i)
{
    return trm_order_key(args->dtype, args->x, row + i * args->inner) ^ args->flip;
}

static void arg_reduce_rows(void *user, int64_t begin, int64_t end)
{
    const trm_order_args args = *(const trm_order_args *)user;
    for (int64_t r = begin; r < end; r++) {
        const int64_t row = trm_order_row(&args, r);
        int64_t best = 0;
        uint64_t best_key = key_of(&args, row, 0);
        for (int64_t i = 1; i < args.n; i++) {
            const uint64_t key = key_of(&args, row, i);
            if (key > best_key || (args.last && key == best_key)) {
                best_key = key;
                best = i;
            }
        }
        args.indices[r] = best;
    }
}

bool trm_host_arg_reduce_accepts(const trm_kernel_call *call)
{
    trm_order_args args;
    return trm_arg_reduce_args_of(call, &args);
}

trm_status trm_host_arg_reduce_run(const trm_kernel_call *call)
{
    trm_order_args args;
    if (!trm_arg_reduce_args_of(call, &args) || args.rows == 0) {
        return TRM_OK;
    }
    if (args.n == 0) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "arg_reduce over an axis of size 0, expected at least 1");
    }
    trm_host_for(call, args.rows, trm_host_row_grain(args.n), arg_reduce_rows, &args);
    return TRM_OK;
}

/* ---- topk -------------------------------------------------------------------------------------- */

/* The k best of a row so far, as positions in the row, `inner` apart in the output of indices: a heap with the last of
 * them in order on top. */
typedef struct heap {
    const trm_order_args *args;
    int64_t row; /* first element in x */
    int64_t *positions;
} heap;

static inline bool before(const heap *h, int64_t a, int64_t b)
{
    return trm_order_before(key_of(h->args, h->row, a), a, key_of(h->args, h->row, b), b);
}

/* Lets what is at `at` sink among the first n. */
static void sink(const heap *h, int64_t at, int64_t n)
{
    const int64_t step = h->args->inner, moved = h->positions[at * step];
    for (int64_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && before(h, h->positions[child * step], h->positions[(child + 1) * step])) {
            child++;
        }
        if (!before(h, moved, h->positions[child * step])) {
            break;
        }
        h->positions[at * step] = h->positions[child * step];
        at = child;
    }
    h->positions[at * step] = moved;
}

#define RUN 64 /* elements compared with the least of the heap at a time */

/* Whether one of n floats has a key above `key`. Without branches, so that it becomes vector code. */
TRM_VECTOR_CLONES static bool any_above(const uint32_t *x, int64_t n, uint32_t key, uint32_t flip)
{
    uint32_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t magnitude = x[i] & 0x7fffffffu, positive = magnitude | 0x80000000u;
        uint32_t own = ((magnitude == 0) | (x[i] >> 31 == 0)) ? positive : 0x80000000u - magnitude;
        own = magnitude > 0x7f800000u ? 0xffffffffu : own;
        found |= (own ^ flip) > key;
    }
    return found != 0;
}

/* Where the next element may be that comes before the heap's last; elements that come later lose ties. */
static int64_t next_candidate(const heap *h, int64_t i)
{
    const trm_order_args *args = h->args;
    if (args->dtype != TRM_F32 || args->inner != 1) {
        return i;
    }
    const uint32_t key = (uint32_t)key_of(args, h->row, h->positions[0]), flip = (uint32_t)args->flip;
    const uint32_t *row = (const uint32_t *)args->x + h->row;
    while (args->n - i >= RUN && !any_above(row + i, RUN, key, flip)) {
        i += RUN;
    }
    return i;
}

/* Lets elements i .. end - 1 into the heap that come before its last. */
static void offer(const heap *h, int64_t i, int64_t end)
{
    for (; i < end; i++) {
        if (before(h, i, h->positions[0])) {
            h->positions[0] = i;
            sink(h, 0, h->args->k);
        }
    }
}

static void topk_rows(void *user, int64_t begin, int64_t end)
{
    const trm_order_args args = *(const trm_order_args *)user;
    for (int64_t r = begin; r < end; r++) {
        const int64_t outer = r / args.inner, to = outer * args.k * args.inner + (r - outer * args.inner);
        const heap h = {&args, trm_order_row(&args, r), args.indices + to};
        for (int64_t i = 0; i < args.k; i++) {
            h.positions[i * args.inner] = i;
        }
        for (int64_t i = args.k / 2 - 1; i >= 0; i--) {
            sink(&h, i, args.k);
        }
        for (int64_t i = next_candidate(&h, args.k); i < args.n; i = next_candidate(&h, i)) {
            offer(&h, i, trm_host_min(args.n, i + RUN));
            i = trm_host_min(args.n, i + RUN);
        }
        for (int64_t n = args.k - 1; n > 0; n--) { /* the last in order goes behind the rest */
            const int64_t last = h.positions[0];
            h.positions[0] = h.positions[n * args.inner];
            h.positions[n * args.inner] = last;
            sink(&h, 0, n);
        }
        for (int64_t i = 0; i < args.k; i++) {
            trm_element_move(args.size, args.values, to + i * args.inner, args.x,
                             h.row + h.positions[i * args.inner] * args.inner);
        }
    }
}

bool trm_host_topk_accepts(const trm_kernel_call *call)
{
    trm_order_args args;
    return trm_topk_args_of(call, &args);
}

trm_status trm_host_topk_run(const trm_kernel_call *call)
{
    trm_order_args args;
    if (trm_topk_args_of(call, &args) && args.rows > 0 && args.k > 0) {
        trm_host_for(call, args.rows, trm_host_row_grain(4 * args.n), topk_rows, &args);
    }
    return TRM_OK;
}
