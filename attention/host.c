/*
 * Attention on the host, the reference of the layer. A task is up to ROWS query rows that share one key-value head
 * (neighbouring queries, and the heads of a group); keys pass in tiles of KEYS, with a running maximum and sum per
 * row (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"). All arithmetic is f32.
 *
 * Latent attention is the same over latents and rope keys, which all heads share, whose beginning is the value. A row's
 * query is made of the layer's when it is loaded, and the layer's output of the row's when it is stored.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "attention/attention_impl.h"
#include "base/half.h"
#include "base/range_check.h"
#include "kernels/host/host.h"
#include "kernels/kernel.h"

#define ROWS    32
#define KEYS    64
#define MAX_DIM 576
#define LOG2_E  1.44269504088896341f

typedef struct attention {
    trm_attention_shape shape;
    const trm_kernel_call *call;
    int64_t group;                  /* query heads per key-value head */
    int64_t chunks;                 /* tasks per sequence and key-value head: the longest sequence's */
    const trm_latent_shape *latent; /* LATENT_ATTENTION, else NULL */
} attention;

/* One task. */
typedef struct task {
    const attention *at;
    int64_t sequence, kv_head;
    int64_t queries, keys; /* of the sequence */
    int64_t first_token;   /* of the sequence, packed */
    int64_t first_row;     /* row r is query (first_row + r) / group, head (first_row + r) % group of the group */
    int64_t rows;
    int64_t low[ROWS], high[ROWS]; /* keys low .. high - 1 are seen */
    float max[ROWS], sum[ROWS];
    float q[ROWS * MAX_DIM], out[ROWS * MAX_DIM];
    float scores[ROWS * KEYS];
    float tile[KEYS * MAX_DIM]; /* keys transposed [D, KEYS], then values [KEYS, Dv] */
} task;

bool trm_host_attention_accepts(const trm_kernel_call *call)
{
    trm_attention_shape s;
    if (!trm_attention_describe(call, &s) || call->layer->attention.n_ranks > 1 || s.dim > MAX_DIM ||
        s.value_dim > MAX_DIM || !trm_host_is_float(call->outputs[0].dtype)) {
        return false;
    }
    for (int32_t i = TRM_ATTENTION_Q; i <= TRM_ATTENTION_V; i++) {
        if (!trm_host_is_float(call->inputs[i].dtype)) {
            return false;
        }
    }
    if (s.cached && s.cache_dtype != TRM_F8E4M3 &&
        (s.cache_dtype != call->inputs[TRM_ATTENTION_K].dtype ||
         s.cache_dtype != call->inputs[TRM_ATTENTION_V].dtype)) {
        return false;
    }
    const trm_dtype mask = s.masked ? call->inputs[TRM_ATTENTION_MASK].dtype : TRM_BOOL;
    return mask == TRM_BOOL || trm_host_is_float(mask);
}

static int32_t input_i32(const attention *at, int32_t input, int64_t i)
{
    return ((const int32_t *)at->call->inputs[input].data)[i];
}

/* Queries, keys and first token of a sequence. */
static void sequence_extent(const attention *at, int64_t sequence, int64_t *first, int64_t *queries, int64_t *keys)
{
    if (!at->shape.packed) {
        *first = 0;
        *queries = at->shape.queries;
        *keys = at->shape.keys;
        return;
    }
    *first = input_i32(at, TRM_ATTENTION_SEQUENCE_STARTS, sequence);
    *queries = input_i32(at, TRM_ATTENTION_SEQUENCE_STARTS, sequence + 1) - *first;
    *keys = at->shape.cached ? input_i32(at, TRM_ATTENTION_SEQUENCE_LENGTHS, sequence) : *queries;
}

/* Row of the cache (in units of one head's vector) that holds key `key` of those that it has of a sequence. */
static int64_t cache_row(const attention *at, int64_t sequence, int64_t key, int64_t kv_head)
{
    const trm_attention_shape *s = &at->shape;
    const int64_t block = input_i32(at, TRM_ATTENTION_BLOCK_TABLE, sequence * s->table_blocks + key / s->block_size);
    return (block * s->block_size + key % s->block_size) * s->kv_heads + kv_head;
}

/* A token's keys, or values, into a row of the cache; `width` elements each. */
static void store_row(const trm_view *from, int64_t token, const trm_view *cache, int64_t row, int64_t width,
                      float inverse)
{
    if (cache->dtype != TRM_F8E4M3) {
        const size_t bytes = (size_t)width * trm_dtype_size(from->dtype);
        memcpy((char *)cache->data + (size_t)row * bytes, (const char *)from->data + (size_t)token * bytes, bytes);
        return;
    }
    uint8_t *to = (uint8_t *)cache->data + row * width;
    for (int64_t i = 0; i < width; i++) {
        float buffer, value = *trm_host_load(from->dtype, from->data, token * width + i, 1, &buffer);
        to[i] = trm_f32_to_f8e4m3(value * inverse);
    }
}

/* `n` elements of keys or values from element `start` on; of an F8E4M3 cache as stored. */
static const float *load_elements(const trm_view *view, int64_t start, int64_t n, float *buffer)
{
    if (view->dtype != TRM_F8E4M3) {
        return trm_host_load(view->dtype, view->data, start, n, buffer);
    }
    const uint8_t *from = (const uint8_t *)view->data + start;
    for (int64_t i = 0; i < n; i++) {
        buffer[i] = trm_f8e4m3_to_f32(from[i]);
    }
    return buffer;
}

/* A token's latent and rope key into a row of the cache. */
static void store_latent(const attention *at, int64_t token, int64_t row)
{
    const trm_view *inputs = at->call->inputs;
    const size_t size = trm_dtype_size(inputs[TRM_ATTENTION_K].dtype);
    const size_t latent = (size_t)at->latent->rank * size, rotated = (size_t)at->latent->rotated * size;
    char *to = (char *)inputs[TRM_ATTENTION_KEY_CACHE].data + (size_t)row * (latent + rotated);
    memcpy(to, (const char *)inputs[TRM_ATTENTION_K].data + (size_t)token * latent, latent);
    memcpy(to + latent, (const char *)inputs[TRM_ATTENTION_V].data + (size_t)token * rotated, rotated);
}

/* Stores the step's keys and values of sequences begin .. end - 1, as far as they are in the cache's share. */
static void store_sequences(void *user, int64_t begin, int64_t end)
{
    const attention *at = user;
    const trm_attention_shape *s = &at->shape;
    const trm_view *inputs = at->call->inputs;
    for (int64_t sequence = begin; sequence < end; sequence++) {
        int64_t first, queries, keys;
        sequence_extent(at, sequence, &first, &queries, &keys);
        for (int64_t i = 0; i < queries; i++) {
            const int32_t key = trm_cache_share_place(s->share, (int32_t)(keys - queries + i));
            if (key < 0) {
                continue;
            }
            const int64_t row = cache_row(at, sequence, key, 0) / s->kv_heads;
            if (at->latent != NULL) {
                store_latent(at, first + i, row);
                continue;
            }
            store_row(&inputs[TRM_ATTENTION_K], first + i, &inputs[TRM_ATTENTION_KEY_CACHE], row, s->kv_heads * s->dim,
                      s->key_inverse);
            store_row(&inputs[TRM_ATTENTION_V], first + i, &inputs[TRM_ATTENTION_VALUE_CACHE], row,
                      s->kv_heads * s->value_dim, s->value_inverse);
        }
    }
}

/* Query and head of a row. */
static void row_place(const task *t, int64_t row, int64_t *query, int64_t *head)
{
    *query = (t->first_row + row) / t->at->group;
    *head = t->kv_head * t->at->group + (t->first_row + row) % t->at->group;
}

/* Vector of a row in q or in the output. */
static int64_t row_vector(const task *t, int64_t row)
{
    const trm_attention_shape *s = &t->at->shape;
    int64_t query, head;
    row_place(t, row, &query, &head);
    const int64_t first = s->packed ? t->first_token : t->sequence * s->queries;
    return s->packed || s->rows_first ? (first + query) * s->query_heads + head
                                      : (t->sequence * s->query_heads + head) * s->queries + query;
}

/* Vector of a key or value. */
static int64_t key_vector(const task *t, int64_t key)
{
    const trm_attention_shape *s = &t->at->shape;
    const int64_t first = s->packed ? t->first_token : t->sequence * s->keys;
    return s->cached                    ? cache_row(t->at, t->sequence, key, t->kv_head)
           : s->packed || s->rows_first ? (first + key) * s->kv_heads + t->kv_head
                                        : (t->sequence * s->kv_heads + t->kv_head) * s->keys + key;
}

/* Keys that each row sees. */
static void find_ranges(task *t)
{
    const trm_attention_params *p = &t->at->call->layer->attention;
    for (int64_t row = 0; row < t->rows; row++) {
        int64_t query, head;
        row_place(t, row, &query, &head);
        const int64_t last = query + (p->causal == TRM_CAUSAL_LOWER_RIGHT ? t->keys - t->queries : 0);
        t->low[row] = p->window > 0 && last >= p->window ? last - p->window + 1 : 0;
        t->low[row] = p->chunked && last >= 0 ? last / p->window * p->window : t->low[row];
        t->high[row] = p->causal == TRM_CAUSAL_NONE || last >= t->keys ? t->keys : last + 1;
        if (t->at->shape.share.ranks > 1) {
            t->low[row] = trm_cache_share_count(t->at->shape.share, (int32_t)t->low[row]);
            t->high[row] = trm_cache_share_count(t->at->shape.share, (int32_t)(t->high[row] > 0 ? t->high[row] : 0));
        }
        if (t->high[row] < t->low[row]) { /* before the first key, or past the window of the last */
            t->low[row] = t->high[row] = 0;
        }
    }
}

/* out [d] += weights [n] times the values in tile [n, d]. */
TRM_VECTOR_CLONES TRM_RANGES_CHECKED static void add_values(const float *weights, int64_t n, const float *tile,
                                                            int64_t d, float *out)
{
    for (int64_t j = 0; j < n; j++) {
        const float w = weights[j];
        for (int64_t i = 0; i < d; i++) {
            out[i] += w * tile[j * d + i];
        }
    }
}

/* to [rank + rotated]: a row's query, q [plain] times the weights of its head's keys, and q's rotated elements. */
static void absorb_query(const task *t, int64_t row, float *to)
{
    const trm_latent_shape *s = t->at->latent;
    const trm_view *q = &t->at->call->inputs[TRM_ATTENTION_Q];
    const int64_t width = s->plain + s->rotated, vector = row_vector(t, row), head = vector % s->heads;
    float query[MAX_DIM], weights[MAX_DIM];
    const float *from = trm_host_load(q->dtype, q->data, vector * width, width, query);
    memset(to, 0, (size_t)s->rank * sizeof(float));
    for (int64_t i = 0; i < s->plain; i++) {
        const int64_t start = (head * (s->plain + s->value_dim) + i) * s->rank;
        add_values(from + i, 1, trm_host_load(s->weight.dtype, s->weight.data, start, s->rank, weights), s->rank, to);
    }
    memcpy(to + s->rank, from + s->plain, (size_t)s->rotated * sizeof(float));
}

/* A row of the output: the weights of its head's values times `sum` [rank]. */
static void store_value(const task *t, int64_t row, const float *sum)
{
    const trm_latent_shape *s = t->at->latent;
    const trm_view *to = &t->at->call->outputs[0];
    const int64_t vector = row_vector(t, row), head = vector % s->heads;
    float value[MAX_DIM], weights[MAX_DIM];
    for (int64_t i = 0; i < s->value_dim; i++) {
        const int64_t start = (head * (s->plain + s->value_dim) + s->plain + i) * s->rank;
        const float *w = trm_host_load(s->weight.dtype, s->weight.data, start, s->rank, weights);
        value[i] = 0.0f;
        for (int64_t k = 0; k < s->rank; k++) {
            value[i] += w[k] * sum[k];
        }
    }
    trm_host_store(to->dtype, to->data, vector * s->value_dim, s->value_dim, value);
}

static void load_queries(task *t)
{
    const trm_view *q = &t->at->call->inputs[TRM_ATTENTION_Q];
    const int64_t d = t->at->shape.dim;
    for (int64_t row = 0; row < t->rows; row++) {
        float *to = t->q + row * d;
        if (t->at->latent != NULL) {
            absorb_query(t, row, to);
            continue;
        }
        const float *from = trm_host_load(q->dtype, q->data, row_vector(t, row) * d, d, to);
        if (from != to) {
            memcpy(to, from, (size_t)d * sizeof(float));
        }
    }
}

/* A key's `d` elements into a column of the tile. */
TRM_RANGES_CHECKED static void set_column(const float *from, int64_t d, float *column)
{
    for (int64_t i = 0; i < d; i++) {
        column[i * KEYS] = from[i];
    }
}

/* Keys key .. key + n - 1 into the tile, one column each. */
static void load_keys(task *t, int64_t key, int64_t n)
{
    const trm_view *view = &t->at->call->inputs[t->at->shape.cached ? TRM_ATTENTION_KEY_CACHE : TRM_ATTENTION_K];
    const int64_t d = t->at->shape.dim;
    float buffer[MAX_DIM];
    for (int64_t j = 0; j < n; j++) {
        const float *from = load_elements(view, key_vector(t, key + j) * d, d, buffer);
        trm_check_range(from, d, sizeof(float));
        set_column(from, d, t->tile + j);
    }
    for (int64_t i = 0; n < KEYS && i < d; i++) {
        memset(t->tile + i * KEYS + n, 0, (size_t)(KEYS - n) * sizeof(float));
    }
}

static void load_values(task *t, int64_t key, int64_t n)
{
    const trm_view *view = &t->at->call->inputs[t->at->shape.cached ? TRM_ATTENTION_VALUE_CACHE : TRM_ATTENTION_V];
    const int64_t d = t->at->shape.value_dim, pitch = t->at->latent != NULL ? t->at->shape.dim : d;
    for (int64_t j = 0; j < n; j++) {
        float *to = t->tile + j * d;
        const float *from = load_elements(view, key_vector(t, key + j) * pitch, d, to);
        if (from != to) {
            memcpy(to, from, (size_t)d * sizeof(float));
        }
    }
}

/* scores [KEYS] = q [d] times the keys in tile [d, KEYS]. */
TRM_VECTOR_CLONES TRM_RANGES_CHECKED static void multiply_keys(const float *q, int64_t d, const float *tile,
                                                               float *scores)
{
    float sums[KEYS] = {0};
    for (int64_t i = 0; i < d; i++) {
        const float v = q[i];
        for (int j = 0; j < KEYS; j++) {
            sums[j] += v * tile[i * KEYS + j];
        }
    }
    memcpy(scores, sums, sizeof(sums));
}

/* The mask of a row over keys key .. key + n - 1. */
static void apply_mask(const task *t, int64_t row, int64_t key, int64_t n, float *scores)
{
    const trm_view *mask = &t->at->call->inputs[TRM_ATTENTION_MASK];
    const int64_t *strides = t->at->shape.mask_strides;
    int64_t query, head;
    row_place(t, row, &query, &head);
    const int64_t start = t->sequence * strides[0] + head * strides[1] + query * strides[2];
    for (int64_t j = 0; j < n; j++) {
        const int64_t at = start + (key + j) * strides[3];
        float added;
        if (mask->dtype == TRM_BOOL) {
            added = ((const uint8_t *)mask->data)[at] != 0 ? 0.0f : -INFINITY;
        } else {
            added = *trm_host_load(mask->dtype, mask->data, at, 1, &added);
        }
        scores[j] += added;
    }
}

/* Scores of one row against the key tile, masked; then the row's maximum, weights and sum move on. Returns how much
 * what was summed before must shrink. */
static float weigh_row(task *t, int64_t row, int64_t key, int64_t n)
{
    const trm_attention_params *p = &t->at->call->layer->attention;
    float *scores = t->scores + row * KEYS;
    assert(row < ROWS && t->at->shape.dim <= MAX_DIM);
    multiply_keys(t->q + row * t->at->shape.dim, t->at->shape.dim, t->tile, scores);
    for (int64_t j = 0; j < n; j++) {
        scores[j] *= t->at->shape.scale;
    }
    for (int64_t j = 0; p->softcap > 0.0f && j < n; j++) {
        scores[j] = p->softcap * tanhf(scores[j] / p->softcap);
    }
    if (t->at->shape.masked) {
        apply_mask(t, row, key, n, scores);
    }
    float max = t->max[row];
    for (int64_t j = 0; j < n; j++) {
        if (key + j < t->low[row] || key + j >= t->high[row]) {
            scores[j] = -INFINITY;
        }
        max = scores[j] > max ? scores[j] : max;
    }
    if (max == -INFINITY) { /* nothing seen yet (or only NaN, which then shows in the sum) */
        for (int64_t j = 0; j < n; j++) {
            scores[j] = isnan(scores[j]) ? scores[j] : 0.0f;
            t->sum[row] += scores[j];
        }
        return 1.0f;
    }
    const float shrink = expf(t->max[row] - max);
    for (int64_t j = 0; j < n; j++) {
        scores[j] -= max;
    }
    trm_host_exp(scores, n);
    float sum = 0.0f;
    for (int64_t j = 0; j < n; j++) {
        sum += scores[j];
    }
    t->sum[row] = t->sum[row] * shrink + sum;
    t->max[row] = max;
    return shrink;
}

/* The row's sum of weights, that of its head's sink included. A sink far above the row's maximum gives infinity, and
 * the row zeros. */
static float whole_sum(const task *t, int64_t row)
{
    int64_t query, head;
    if (!t->at->shape.sinks || t->sum[row] == 0.0f) {
        return t->sum[row];
    }
    row_place(t, row, &query, &head);
    return t->sum[row] + expf(((const float *)t->at->call->inputs[TRM_ATTENTION_SINKS].data)[head] - t->max[row]);
}

static void run_task(task *t)
{
    const int64_t dv = t->at->shape.value_dim;
    int64_t low = INT64_MAX, high = 0;
    find_ranges(t);
    load_queries(t);
    for (int64_t row = 0; row < t->rows; row++) {
        t->max[row] = -INFINITY;
        t->sum[row] = 0.0f;
        if (t->low[row] < t->high[row]) {
            low = trm_host_min(low, t->low[row]);
            high = t->high[row] > high ? t->high[row] : high;
        }
    }
    memset(t->out, 0, (size_t)(t->rows * dv) * sizeof(float));
    for (int64_t key = low; key < high; key += KEYS) {
        const int64_t n = trm_host_min(high - key, KEYS);
        float shrink[ROWS];
        load_keys(t, key, n);
        for (int64_t row = 0; row < t->rows; row++) {
            shrink[row] = weigh_row(t, row, key, n);
        }
        load_values(t, key, n);
        for (int64_t row = 0; row < t->rows; row++) {
            float *out = t->out + row * dv;
            for (int64_t i = 0; shrink[row] != 1.0f && i < dv; i++) {
                out[i] *= shrink[row];
            }
            assert(n <= KEYS && dv <= MAX_DIM);
            add_values(t->scores + row * KEYS, n, t->tile, dv, out);
        }
    }
    const trm_view *to = &t->at->call->outputs[0];
    for (int64_t row = 0; row < t->rows; row++) {
        float *out = t->out + row * dv;
        const float sum = whole_sum(t, row), scale = sum == 0.0f ? 0.0f : t->at->shape.value_scale / sum;
        for (int64_t i = 0; i < dv; i++) {
            out[i] *= scale;
        }
        if (t->at->latent != NULL) {
            store_value(t, row, out);
            continue;
        }
        trm_host_store(to->dtype, to->data, row_vector(t, row) * dv, dv, out);
        if (t->at->shape.share.ranks > 1) {
            ((float *)t->at->call->outputs[1].data)[row_vector(t, row)] = t->max[row] * LOG2_E + log2f(sum);
        }
    }
}

static void run_tasks(void *user, int64_t begin, int64_t end)
{
    const attention *at = user;
    task t;
    for (int64_t i = begin; i < end; i++) {
        t.at = at;
        t.sequence = i / (at->chunks * at->shape.kv_heads);
        t.kv_head = i / at->chunks % at->shape.kv_heads;
        t.first_row = i % at->chunks * ROWS;
        sequence_extent(at, t.sequence, &t.first_token, &t.queries, &t.keys);
        t.rows = trm_host_min(t.queries * at->group - t.first_row, ROWS);
        if (t.rows > 0) {
            run_task(&t);
        }
    }
}

typedef struct launch_args {
    attention at;
    trm_kernel_call call;
    trm_layer_desc desc; /* LATENT_ATTENTION: of `call` */
    trm_latent_shape latent;
} launch_args;

static trm_status attention_run(void *user, trm_stream *stream)
{
    launch_args *args = user;
    attention *at = &args->at;
    args->call.stream = stream;
    trm_pool *pool = trm_host_pool(&args->call);
    if (at->shape.cached) {
        trm_pool_for(pool, at->shape.sequences, 1, store_sequences, at);
    }
    int64_t longest = 0;
    for (int64_t i = 0; i < at->shape.sequences; i++) {
        int64_t first, queries, keys;
        sequence_extent(at, i, &first, &queries, &keys);
        longest = queries > longest ? queries : longest;
    }
    at->chunks = (longest * at->group + ROWS - 1) / ROWS;
    trm_pool_for(pool, at->shape.sequences * at->shape.kv_heads * at->chunks, 1, run_tasks, at);
    return TRM_OK;
}

trm_status trm_host_attention_prepare(const trm_kernel_call *call, trm_program *program)
{
    trm_attention_shape shape;
    if (!trm_attention_describe(call, &shape) || trm_dims_count(&call->outputs[0].dims) == 0) {
        return TRM_OK;
    }
    launch_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    args->call = *call;
    args->at = (attention){.call = &args->call, .shape = shape, .group = shape.query_heads / shape.kv_heads};
    return trm_program_append(program, "host.attention", attention_run, args);
}

bool trm_host_latent_attention_accepts(const trm_kernel_call *call)
{
    trm_layer_desc desc;
    trm_kernel_call absorbed;
    trm_latent_shape s;
    return trm_latent_attention_describe(call, &desc, &absorbed, &s) && s.absorbed.dim <= MAX_DIM &&
           s.plain + s.rotated <= MAX_DIM && s.value_dim <= MAX_DIM && trm_host_is_float(call->outputs[0].dtype);
}

trm_status trm_host_latent_attention_prepare(const trm_kernel_call *call, trm_program *program)
{
    launch_args *args = trm_program_alloc(program, sizeof(*args));
    if (args == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (!trm_latent_attention_describe(call, &args->desc, &args->call, &args->latent) ||
        trm_dims_count(&call->outputs[0].dims) == 0) {
        return TRM_OK;
    }
    args->at = (attention){
        .call = &args->call, .shape = args->latent.absorbed, .group = args->latent.heads, .latent = &args->latent};
    return trm_program_append(program, "host.latent_attention", attention_run, args);
}

/* ---- joining shares ---------------------------------------------------------------------------- */

typedef struct join {
    trm_attention_join_shape shape;
    const trm_kernel_call *call;
} join;

bool trm_host_attention_join_accepts(const trm_kernel_call *call)
{
    trm_attention_join_shape s;
    return trm_attention_join_describe(call, &s) && trm_host_is_float(call->outputs[0].dtype) && s.value_dim <= MAX_DIM;
}

/* Rows of a query and head, begin .. end - 1. */
static void join_rows(void *user, int64_t begin, int64_t end)
{
    const join *j = user;
    const trm_attention_join_shape *s = &j->shape;
    const trm_view *inputs = j->call->inputs, *results = &inputs[TRM_ATTENTION_JOIN_RESULTS];
    const float *logs = inputs[TRM_ATTENTION_JOIN_LOGS].data;
    const bool sinks = j->call->n_inputs > TRM_ATTENTION_JOIN_SINKS && inputs[TRM_ATTENTION_JOIN_SINKS].data != NULL;
    const int64_t rows = s->tokens * s->heads;
    for (int64_t row = begin; row < end; row++) {
        float out[MAX_DIM] = {0}, buffer[MAX_DIM], largest = -INFINITY, total = 0.0f;
        for (int32_t r = 0; r < s->ranks; r++) {
            largest = logs[r * rows + row] > largest ? logs[r * rows + row] : largest;
        }
        for (int32_t r = 0; r < s->ranks && largest > -INFINITY; r++) {
            const float weight = exp2f(logs[r * rows + row] - largest);
            const float *from =
                trm_host_load(results->dtype, results->data, (r * rows + row) * s->value_dim, s->value_dim, buffer);
            total += weight;
            for (int64_t i = 0; i < s->value_dim; i++) {
                out[i] += weight * from[i];
            }
        }
        if (sinks && total > 0.0f) {
            const float *sink = inputs[TRM_ATTENTION_JOIN_SINKS].data;
            total += exp2f(sink[row % s->heads] * LOG2_E - largest);
        }
        const float scale = total == 0.0f ? 0.0f : 1.0f / total;
        for (int64_t i = 0; i < s->value_dim; i++) {
            out[i] *= scale;
        }
        trm_host_store(j->call->outputs[0].dtype, j->call->outputs[0].data, row * s->value_dim, s->value_dim, out);
    }
}

trm_status trm_host_attention_join_run(const trm_kernel_call *call)
{
    join j = {.call = call};
    if (trm_attention_join_describe(call, &j.shape)) {
        trm_host_for(call, j.shape.tokens * j.shape.heads, 16, join_rows, &j);
    }
    return TRM_OK;
}
