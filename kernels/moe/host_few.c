/*
 * Experts of a few tokens on the CPU. Threads take rows of gate_up of all chosen experts, then rows of down; a row
 * meets all tokens that chose its expert. Rows of x and h are arranged once for the products: f32, or bf16 in units of
 * 64 columns (host_few_dot.c).
 */
#include "kernels/moe/host_few.h"

#include <string.h>

#include "base/half.h"
#include "kernels/host/host.h"
#include "kernels/moe/element.h"
#include "kernels/moe/host_few_dot.h"

#define PAIRS (TRM_MOE_FEW_TOKENS * TRM_MOE_MOST_CHOSEN)
#define ROWS  16 /* of down at a time, expert by expert */

typedef struct few {
    const trm_moe_experts *p;
    trm_moe_matrix up, down;
    trm_moe_dot dot_up, dot_down;
    unsigned char *x, *h; /* arranged: [tokens], [pairs] */
    size_t x_bytes, h_bytes;
    float *y;
    int32_t n;                                /* experts that some token chose, the lowest first */
    int32_t experts[PAIRS], first[PAIRS + 1]; /* pairs first[j] .. first[j + 1] - 1 are of experts[j] */
    int32_t pairs[PAIRS];                     /* token * k + slot */
    int32_t place[PAIRS];                     /* of a pair, by token * k + slot, in `pairs`; -1: not held here */
} few;

size_t trm_moe_few_workspace(const trm_moe_experts *p, int64_t tokens)
{
    return (size_t)tokens * (trm_moe_row_bytes(p->hidden) + (size_t)p->k * trm_moe_row_bytes(p->width));
}

/* Lists the pairs by expert. */
static void sort_pairs(few *f)
{
    const trm_moe_experts *p = f->p;
    const int32_t all = (int32_t)p->tokens * p->k;
    int32_t chosen[PAIRS], n = 0;
    for (int32_t i = 0; i < all; i++) {
        chosen[i] = trm_moe_local(p, p->ids[i]);
        f->place[i] = -1;
    }
    for (int32_t last = -1;;) {
        int32_t next = INT32_MAX;
        for (int32_t i = 0; i < all; i++) {
            next = chosen[i] > last && chosen[i] < next ? chosen[i] : next;
        }
        if (next == INT32_MAX) {
            break;
        }
        f->experts[f->n] = last = next;
        f->first[f->n++] = n;
        for (int32_t i = 0; i < all; i++) {
            if (chosen[i] == next) {
                f->place[i] = n;
                f->pairs[n++] = i;
            }
        }
    }
    f->first[f->n] = n;
}

static void arrange_x(few *f)
{
    const trm_moe_experts *p = f->p;
    float buffer[TRM_HOST_BLOCK];
    for (int64_t t = 0; t < p->tokens; t++) {
        unsigned char *to = f->x + (size_t)t * f->x_bytes;
        memset(to, 0, f->x_bytes);
        for (int64_t i = 0; i < p->hidden; i += TRM_HOST_BLOCK) {
            const int64_t n = trm_host_min(p->hidden - i, TRM_HOST_BLOCK);
            const float *from = trm_host_load(p->type, p->x, t * p->hidden + i, n, buffer);
            for (int64_t j = 0; j < n; j++) {
                trm_moe_arrange(&f->dot_up, to, i + j, from[j]);
            }
        }
    }
}

static float rounded(trm_dtype type, float x)
{
    return type == TRM_F32   ? x
           : type == TRM_F16 ? trm_f16_to_f32(trm_f32_to_f16(x))
                             : trm_bf16_to_f32(trm_f32_to_bf16(x));
}

static float bias_at(const trm_moe_experts *p, const void *bias, int64_t i)
{
    return bias != NULL ? trm_element_load_f32(p->type, bias, i) : 0.0f;
}

/* Output i of gate_up of an expert, for all its pairs. */
static void find_hidden(few *f, int32_t j, int64_t i, const void *const *x)
{
    const trm_moe_experts *p = f->p;
    const int32_t n = f->first[j + 1] - f->first[j];
    const int64_t expert = f->experts[j], gate = trm_moe_gate_row(p, i), up = trm_moe_up_row(p, i);
    float u[TRM_MOE_FEW_TOKENS], g[TRM_MOE_FEW_TOKENS] = {0};
    if (p->activation != TRM_EXPERT_RELU2) {
        f->dot_up.run(&f->up, expert, gate, x, n, g);
    }
    f->dot_up.run(&f->up, expert, up, x, n, u);
    const int64_t first = expert * trm_moe_up_rows(p);
    const float gate_bias = p->activation == TRM_EXPERT_RELU2 ? 0.0f : bias_at(p, p->gate_up_bias, first + gate);
    const float up_bias = bias_at(p, p->gate_up_bias, first + up);
    for (int32_t r = 0; r < n; r++) {
        const float scale = p->weighted_input ? p->weights[f->pairs[f->first[j] + r]] : 1.0f;
        const float h = trm_moe_gated(p, scale * g[r] + gate_bias, scale * u[r] + up_bias);
        trm_moe_arrange(&f->dot_down, f->h + (size_t)(f->first[j] + r) * f->h_bytes, i, rounded(p->type, h));
    }
}

static void run_up(void *user, int64_t begin, int64_t end)
{
    few *f = user;
    const trm_moe_experts *p = f->p;
    while (begin < end) {
        const int32_t j = (int32_t)(begin / p->width);
        const int64_t stop = trm_host_min(end, (j + 1) * (int64_t)p->width);
        const void *x[TRM_MOE_FEW_TOKENS];
        for (int32_t i = f->first[j]; i < f->first[j + 1]; i++) {
            x[i - f->first[j]] = f->x + (size_t)(f->pairs[i] / p->k) * f->x_bytes;
        }
        for (; begin < stop; begin++) {
            find_hidden(f, j, begin - j * (int64_t)p->width, x);
        }
    }
}

/* Sums of rows begin .. end - 1 of down, at most ROWS. */
static void sum_rows(few *f, int64_t begin, int64_t end)
{
    const trm_moe_experts *p = f->p;
    float outs[PAIRS][ROWS], out[TRM_MOE_FEW_TOKENS];
    for (int32_t j = 0; j < f->n; j++) {
        const int32_t first = f->first[j], n = f->first[j + 1] - first;
        const void *h[TRM_MOE_FEW_TOKENS];
        for (int32_t r = 0; r < n; r++) {
            h[r] = f->h + (size_t)(first + r) * f->h_bytes;
        }
        for (int64_t i = begin; i < end; i++) {
            f->dot_down.run(&f->down, f->experts[j], i, h, n, out);
            const float bias = bias_at(p, p->down_bias, f->experts[j] * (int64_t)p->hidden + i);
            for (int32_t r = 0; r < n; r++) {
                outs[first + r][i - begin] = out[r] + bias;
            }
        }
    }
    for (int64_t t = 0; t < p->tokens; t++) {
        float *y = f->y + t * p->hidden;
        memset(y + begin, 0, (size_t)(end - begin) * sizeof(*y));
        for (int64_t s = t * p->k; s < (t + 1) * p->k; s++) {
            const float weight = p->weighted_input ? 1.0f : p->weights[s];
            for (int64_t i = begin; f->place[s] >= 0 && i < end; i++) {
                y[i] += weight * outs[f->place[s]][i - begin];
            }
        }
    }
}

static void run_down(void *user, int64_t begin, int64_t end)
{
    for (; begin < end; begin += ROWS) {
        sum_rows(user, begin, trm_host_min(begin + ROWS, end));
    }
}

void trm_moe_few_run(trm_pool *pool, const trm_moe_experts *p, void *workspace, float *y)
{
    few f = {.p = p, .up = trm_moe_up_matrix(p), .down = trm_moe_down_matrix(p), .y = y};
    f.dot_up = trm_moe_dot_of(&f.up);
    f.dot_down = trm_moe_dot_of(&f.down);
    f.x_bytes = trm_moe_row_bytes(p->hidden);
    f.h_bytes = trm_moe_row_bytes(p->width);
    f.x = workspace;
    f.h = f.x + (size_t)p->tokens * f.x_bytes;
    sort_pairs(&f);
    arrange_x(&f);
    for (int32_t i = 0; i < f.first[f.n]; i++) { /* what is past the last column meets weights, too */
        unsigned char *row = f.h + (size_t)i * f.h_bytes;
        memset(row, 0, f.h_bytes);
    }
    trm_pool_for(pool, f.n * (int64_t)p->width, 4, run_up, &f);
    trm_pool_for(pool, p->hidden, ROWS, run_down, &f);
}
