/*
 * Sampling on the host. Candidates come off a heap in the order of the walk, so a row is sorted only as far as its
 * draw needs. Weights e^(logit - largest) are f64 and added in a fixed order.
 */
#include <math.h>
#include <stdlib.h>

#include "base/pool.h"
#include "kernels/sampling/backends.h"

/* A token's distance from the typical surprise. */
typedef struct typical {
    float distance;
    int32_t token;
} typical;

typedef struct row {
    float *logits; /* [vocab] */
    int32_t *heap; /* [vocab]: 0 .. left - 1 the heap, behind it what was taken, the first taken last */
    int64_t vocab, left;
    float largest;
} row;

size_t trm_host_sample_workspace(const trm_stream *stream, int64_t rows, int64_t vocab)
{
    (void)stream;
    return (size_t)rows * (size_t)vocab * sizeof(typical); /* a row's heap lies in the same place, later */
}

/* The largest logit, the lowest id among equals. */
static int32_t find_largest(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t i = 1; i < vocab; i++) {
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i]))) {
            best = i;
        }
    }
    /* NaN counts as -inf: an earlier NaN ties with a later -inf. */
    return isnan(logits[best]) || logits[best] == -INFINITY ? 0 : (int32_t)best;
}

static double weight(const row *r, int32_t token)
{
    /* Equal before the difference, which is NaN between infinities. */
    return r->logits[token] == r->largest ? 1.0 : exp((double)r->logits[token] - (double)r->largest);
}

/* Whether token a is walked before token b. */
static bool is_before(const row *r, int32_t a, int32_t b)
{
    return r->logits[a] > r->logits[b] || (r->logits[a] == r->logits[b] && a < b);
}

static void sift_down(row *r, int64_t at)
{
    const int32_t token = r->heap[at];
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= r->left) {
            break;
        }
        if (child + 1 < r->left && is_before(r, r->heap[child + 1], r->heap[child])) {
            child++;
        }
        if (!is_before(r, r->heap[child], token)) {
            break;
        }
        r->heap[at] = r->heap[child];
        at = child;
    }
    r->heap[at] = token;
}

static void build_heap(row *r)
{
    for (int64_t i = 0; i < r->vocab; i++) {
        r->heap[i] = (int32_t)i;
    }
    r->left = r->vocab;
    for (int64_t i = r->vocab / 2 - 1; i >= 0; i--) {
        sift_down(r, i);
    }
    r->largest = r->logits[r->heap[0]];
}

/* The token that is walked as number i. */
static int32_t take(row *r, int64_t i)
{
    while (r->vocab - r->left <= i) {
        const int32_t token = r->heap[0];
        r->left--;
        r->heap[0] = r->heap[r->left];
        if (r->left > 0) {
            sift_down(r, 0);
        }
        r->heap[r->left] = token;
    }
    return r->heap[r->vocab - 1 - i];
}

/* How many tokens, in the order of the walk, remain after top-k, top-p and min-p; `mass` is theirs. */
static int64_t limit(row *r, const trm_sample_row *p, double *mass)
{
    int64_t remain = p->top_k > 0 && p->top_k < r->vocab ? p->top_k : r->vocab;
    double all = 0.0;
    if (remain < r->vocab) {
        for (int64_t i = 0; i < remain; i++) {
            all += weight(r, take(r, i));
        }
    } else {
        for (int64_t i = 0; i < r->vocab; i++) {
            all += weight(r, (int32_t)i);
        }
    }
    if (!(p->top_p < 1.0f) && !(p->min_p > 0.0f)) {
        *mass = all;
        return remain;
    }
    const double enough = p->top_p < 1.0f ? (double)p->top_p * all : INFINITY;
    double sum = weight(r, take(r, 0));
    int64_t n = 1;
    while (n < remain && sum < enough) {
        const double w = weight(r, take(r, n));
        if (w < (double)p->min_p) { /* the largest weight is 1 */
            break;
        }
        sum += w;
        n++;
    }
    *mass = sum;
    return n;
}

static int by_distance(const void *a, const void *b)
{
    const typical *x = a, *y = b;
    return (x->distance > y->distance) - (x->distance < y->distance);
}

/* Leaves the typical tokens; the others get -inf. */
static void keep_typical(const row *r, float typical_p, typical *order)
{
    float largest = -INFINITY;
    double mass = 0.0, sum = 0.0, kept = 0.0;
    for (int64_t i = 0; i < r->vocab; i++) {
        largest = r->logits[i] > largest ? r->logits[i] : largest;
    }
    if (isinf(largest)) {
        return;
    }
    for (int64_t i = 0; i < r->vocab; i++) {
        const double x = (double)r->logits[i] - (double)largest, w = exp(x);
        mass += w;
        sum += w > 0.0 ? w * x : 0.0;
    }
    /* surprise less entropy: the logarithm of the mass is in both */
    for (int64_t i = 0; i < r->vocab; i++) {
        const double x = (double)r->logits[i] - (double)largest;
        order[i] = (typical){(float)fabs(x - sum / mass), (int32_t)i};
    }
    qsort(order, (size_t)r->vocab, sizeof(*order), by_distance);
    int64_t n = 0;
    while (n < r->vocab && kept < (double)typical_p * mass) {
        kept += exp((double)r->logits[order[n++].token] - (double)largest);
    }
    for (int64_t i = n; i < r->vocab; i++) {
        if (n == 0 || order[i].distance > order[n - 1].distance) {
            r->logits[order[i].token] = -INFINITY;
        }
    }
}

static int32_t draw(row *r, const trm_sample_row *p, typical *order)
{
    for (int64_t i = 0; i < r->vocab; i++) {
        r->logits[i] = isnan(r->logits[i]) ? -INFINITY : r->logits[i] / p->temperature;
    }
    if (p->typical_p < 1.0f) {
        keep_typical(r, p->typical_p, order);
    }
    build_heap(r);
    double mass;
    const int64_t remain = limit(r, p, &mass);
    const double target = trm_random_uniform(p->seed, p->counter) * mass;
    double sum = 0.0;
    int32_t token = take(r, 0);
    for (int64_t i = 0; i < remain; i++) {
        const int32_t next = take(r, i);
        const double w = weight(r, next);
        if (w == 0.0) {
            break; /* rounding left the target just out of reach: the last token with any mass */
        }
        token = next;
        sum += w;
        if (sum > target) {
            break;
        }
    }
    return token;
}

static void sample_rows(void *user, int64_t begin, int64_t end)
{
    const trm_sample_args *args = user;
    for (int64_t i = begin; i < end; i++) {
        row r = {.logits = args->logits + i * args->vocab, .vocab = args->vocab};
        const trm_sample_row *p = args->greedy_only ? NULL : &args->parameters[i];
        int32_t token;
        if (p == NULL || !(p->temperature > 0.0f)) {
            token = find_largest(r.logits, r.vocab);
        } else {
            typical *order = (typical *)args->workspace + i * args->vocab;
            r.heap = (int32_t *)(void *)order;
            token = draw(&r, p, order);
        }
        args->tokens[i] = token;
    }
}

trm_status trm_host_sample(trm_stream *stream, const trm_sample_args *args)
{
    trm_sample_args copy = *args;
    trm_pool_for(trm_stream_native(stream), args->rows, 1, sample_rows, &copy);
    return TRM_OK;
}

trm_status trm_host_sample_advance(trm_stream *stream, const trm_sample_advance_args *args)
{
    (void)stream;
    for (int64_t i = 0; i < args->rows; i++) {
        if (args->lengths[i] <= 0) {
            continue;
        }
        args->token_ids[i] = args->chosen[i];
        args->positions[i]++;
        args->lengths[i]++;
        if (args->rope_lengths != NULL) {
            args->rope_lengths[i] = args->lengths[i];
        }
        if (args->parameters != NULL) {
            args->parameters[i].counter++;
        }
    }
    return TRM_OK;
}
