/* Scales by search, and GPTQ with the scales that it found. */
#include "launcher/cli/quantize/rounding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "launcher/cli/quantize/gptq.h"

#define SHRINKS 11 /* scales that are tried: 1, 0.95, ... */
#define STEP    0.05f

void rounding_fini(rounding *r)
{
    free(r->sums);
    free(r->summed);
    *r = (rounding){0};
}

/* ---- scales -------------------------------------------------------------------------------------------------------
 */

typedef struct clip {
    const trm_quantize_choice *choice;
    const double *square; /* [columns], or NULL: all alike */
} clip;

static float round_scale(trm_dtype type, float scale)
{
    return type == TRM_BF16  ? trm_bf16_to_f32(trm_f32_to_bf16(scale))
           : type == TRM_F16 ? trm_f16_to_f32(trm_f32_to_f16(scale))
                             : scale;
}

static int32_t nearest(const trm_quantize_choice *c, float weight, float scale)
{
    const float number = rintf(weight / scale);
    return number < (float)c->low ? c->low : number > (float)c->high ? c->high : (int32_t)number;
}

static double block_error(const clip *w, int64_t row, int64_t first, float scale)
{
    const trm_quantize_choice *c = w->choice;
    const float *weight = c->weight + row * c->columns + first;
    double error = 0.0;
    for (int64_t i = 0; i < c->group; i++) {
        const double d = (double)(weight[i] - (float)nearest(c, weight[i], scale) * scale);
        error += d * d * (w->square != NULL ? w->square[first + i] : 1.0);
    }
    return error;
}

static void clip_rows(void *user, int64_t begin, int64_t end)
{
    const clip *w = user;
    const trm_quantize_choice *c = w->choice;
    const int64_t blocks = c->columns / c->group;
    for (int64_t i = begin * blocks; i < end * blocks; i++) {
        const float whole = c->scales[i];
        double best = INFINITY;
        for (int k = 0; k < SHRINKS; k++) {
            const float scale = round_scale(c->scale_type, whole * (1.0f - STEP * (float)k));
            const double error = scale > 0.0f ? block_error(w, i / blocks, i % blocks * c->group, scale) : INFINITY;
            if (error < best) {
                best = error;
                c->scales[i] = scale;
            }
        }
    }
}

static bool is_q_or_k(const char *name)
{
    static const char *const words[] = {"q_proj", "k_proj", "qkv_proj", "query_key_value"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strstr(name, words[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static trm_status choose_scales(const rounding *r, const trm_quantize_choice *choice, const char *weight)
{
    const sample_stats *stats;
    TRM_TRY(samples_stats(r->s, weight, &stats));
    clip w = {choice, stats != NULL ? stats->square : NULL};
    trm_pool_for(r->pool, choice->rows, 1, clip_rows, &w);
    return TRM_OK;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------
 */

typedef struct summing {
    double *sums;
    int64_t columns;
    trm_pool *pool;
} summing;

static trm_status add_lines(void *user, const float *lines, int64_t n)
{
    const summing *w = user;
    gptq_add_inputs(w->pool, w->sums, lines, n, w->columns);
    return TRM_OK;
}

/* Whether two weights have the same inputs. */
static bool shares_inputs(const samples *s, const char *a, const char *b)
{
    const group *g = groups_of(&s->groups, a);
    if (g == NULL || g != groups_of(&s->groups, b)) {
        return false;
    }
    const char *end = strstr(a, ".experts.");
    const size_t size = end != NULL ? (size_t)(strchr(end + strlen(".experts."), '.') - a) : 0;
    return strncmp(a, b, size) == 0;
}

/* The factors of a weight's inputs, unless they are those that were made last. */
static trm_status prepare(rounding *r, const char *weight, int64_t columns, int64_t *n)
{
    *n = 1;
    if (r->summed != NULL && shares_inputs(r->s, weight, r->summed)) {
        return TRM_OK;
    }
    free(r->sums);
    free(r->summed);
    r->summed = NULL;
    r->sums = calloc((size_t)(columns * columns), sizeof(*r->sums));
    if (r->sums == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory for the products of %lld columns", (long long)columns);
    }
    summing w = {r->sums, columns, r->pool};
    TRM_TRY(samples_each(r->s, weight, add_lines, &w, n));
    if (*n > 0 && !gptq_factor(r->pool, r->sums, columns)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "the samples of weight %s are not finite", weight);
    }
    r->summed = *n > 0 ? strdup(weight) : NULL;
    return TRM_OK;
}

static void take_nearest(const trm_quantize_choice *c)
{
    for (int64_t i = 0; i < c->rows * c->columns; i++) {
        c->numbers[i] = (int8_t)nearest(c, c->weight[i], c->scales[i / c->group]);
    }
}

static trm_status choose_numbers(rounding *r, const trm_quantize_choice *choice, const char *weight)
{
    const group *g = groups_of(&r->s->groups, weight);
    int64_t n;
    take_nearest(choice);
    if (r->s->n == 0 || g == NULL || g->columns != choice->columns) {
        return TRM_OK;
    }
    if (!r->gptq) {
        const sample_stats *stats;
        TRM_TRY(samples_stats(r->s, weight, &stats));
        r->without += stats == NULL ? 1 : 0;
        return TRM_OK;
    }
    TRM_TRY(prepare(r, weight, choice->columns, &n));
    if (n == 0) {
        r->without++;
        return TRM_OK;
    }
    if (!gptq_round(r->pool, r->sums, choice->weight, choice->scales, choice->rows, choice->columns, choice->group,
                    choice->low, choice->high, choice->numbers)) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "no memory to round layer %s", choice->name);
    }
    r->chosen++;
    return TRM_OK;
}

trm_status rounding_choose(void *user, const trm_quantize_choice *choice)
{
    rounding *r = user;
    char weight[512];
    snprintf(weight, sizeof(weight), "%s.weight", choice->name);
    if (r->clip && !(r->keeps_q && is_q_or_k(choice->name))) {
        TRM_TRY(choose_scales(r, choice, weight));
    }
    return choice->numbers != NULL ? choose_numbers(r, choice, weight) : TRM_OK;
}
