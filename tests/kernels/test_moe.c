/* The layers of a mixture of experts on the host against their formulas, written out in f64. */
#include <math.h>

#include "base/half.h"
#include "kernels/moe/host_few.h"
#include "kernels/moe_cases.h"
#include "support/support.h"

/* ---- router --------------------------------------------------------------------------------------- */

static double number(trm_dtype type, const void *data, int64_t i)
{
    return type == TRM_F32   ? (double)((const float *)data)[i]
           : type == TRM_F16 ? (double)trm_f16_to_f32(((const uint16_t *)data)[i])
                             : (double)trm_bf16_to_f32(((const uint16_t *)data)[i]);
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* Sorts ids by descending key: by repeated search, as a formula would say it. */
static void order_by(const double *keys, int32_t n, int32_t *ids, int32_t k)
{
    for (int32_t i = 0; i < k; i++) {
        ids[i] = -1;
        for (int32_t e = 0; e < n; e++) {
            bool used = false;
            for (int32_t j = 0; j < i; j++) {
                used = used || ids[j] == e;
            }
            if (!used && (ids[i] < 0 || keys[e] > keys[ids[i]])) {
                ids[i] = e;
            }
        }
    }
}

/* Weights of SPARSE_MIXER, from logits; `used` are those chosen before. */
static void expected_mix(const trm_moe_router *p, const double *logits, int32_t *ids, double *weights)
{
    bool used[1024] = {false};
    for (int32_t i = 0; i < p->k; i++) {
        double sum = 0.0;
        ids[i] = -1;
        for (int32_t e = 0; e < p->experts; e++) {
            ids[i] = !used[e] && (ids[i] < 0 || logits[e] > logits[ids[i]]) ? e : ids[i];
        }
        for (int32_t e = 0; e < p->experts; e++) {
            const double distance = (logits[ids[i]] - logits[e]) / fmax(fabs(logits[e]), logits[ids[i]]);
            sum += !used[e] && distance <= 2.0 * (double)p->epsilon ? exp(logits[e] - logits[ids[i]]) : 0.0;
        }
        used[ids[i]] = true;
        weights[i] = (double)p->scale * (p->expert_scale != NULL ? (double)p->expert_scale[ids[i]] : 1.0) / sum;
    }
}

static void expected_route(const trm_moe_router *p, int64_t token, int32_t *ids, double *weights)
{
    double logits[1024], scores[1024], keys[1024], most = -INFINITY, sum = 0.0, chosen = 0.0;
    for (int32_t e = 0; e < p->experts; e++) {
        logits[e] = p->logits != NULL ? (double)p->logits[token * p->experts + e] : 0.0;
        for (int64_t i = 0; p->logits == NULL && i < p->hidden; i++) {
            logits[e] += number(p->x_type, p->x, token * p->hidden + i) *
                         number(p->weight_type, p->weight, e * (int64_t)p->hidden + i);
        }
        logits[e] += p->bias != NULL ? (double)p->bias[e] : 0.0;
        most = fmax(most, logits[e]);
    }
    if (p->scoring == TRM_ROUTER_SPARSE_MIXER) {
        expected_mix(p, logits, ids, weights);
        return;
    }
    for (int32_t e = 0; e < p->experts; e++) {
        sum += exp(logits[e] - most);
    }
    for (int32_t e = 0; e < p->experts; e++) {
        scores[e] = p->scoring == TRM_ROUTER_SIGMOID         ? sigmoid(logits[e])
                    : p->scoring == TRM_ROUTER_SQRT_SOFTPLUS ? sqrt(log1p(exp(logits[e])))
                                                             : exp(logits[e] - most) / sum;
        keys[e] = scores[e] + (p->correction != NULL ? (double)p->correction[e] : 0.0);
    }
    if (p->groups > 1) {
        const int32_t members = p->experts / p->groups;
        double of_groups[1024];
        int32_t kept[1024];
        for (int32_t g = 0; g < p->groups; g++) {
            int32_t best[2];
            order_by(keys + g * members, members, best, 2);
            of_groups[g] = keys[g * members + best[0]] + (p->group_sum ? keys[g * members + best[1]] : 0.0);
        }
        order_by(of_groups, p->groups, kept, p->top_groups);
        for (int32_t e = 0; e < p->experts; e++) {
            bool in = false;
            for (int32_t i = 0; i < p->top_groups; i++) {
                in = in || kept[i] == e / members;
            }
            keys[e] = in ? keys[e] : -INFINITY;
        }
    }
    order_by(keys, p->experts, ids, p->k);
    for (int32_t i = 0; i < p->k; i++) {
        chosen += scores[ids[i]];
    }
    for (int32_t i = 0; i < p->k; i++) {
        weights[i] = scores[ids[i]];
        weights[i] /= p->scoring == TRM_ROUTER_SOFTMAX_CHOSEN || p->renormalize ? chosen : 1.0;
        weights[i] *= (double)p->scale * (p->expert_scale != NULL ? (double)p->expert_scale[ids[i]] : 1.0);
    }
}

static void routers_follow_the_formula(void **state)
{
    (void)state;
    for (int32_t i = 0; i < moe_router_shapes_n; i++) {
        moe_router_call call;
        moe_router_call_init(&call, &moe_router_shapes[i], test_seed() + (uint64_t)i);
        const trm_moe_router *p = &call.router;
        assert_ok(trm_moe_router_host(p));
        for (int64_t t = 0; t < p->tokens; t++) {
            int32_t ids[TRM_MOE_MOST_CHOSEN];
            double weights[TRM_MOE_MOST_CHOSEN];
            expected_route(p, t, ids, weights);
            for (int32_t s = 0; s < p->k; s++) {
                assert_int_equal(p->ids[t * p->k + s], ids[s]);
                assert_true(fabs((double)p->weights[t * p->k + s] - weights[s]) <= 2e-6 * weights[s] + 1e-12);
            }
        }
        moe_router_call_fini(&call);
    }
}

/* Equal logits, infinities and what is no number. */
static void equal_keys_take_the_lower_id(void **state)
{
    (void)state;
    const float logits[2][6] = {{1.0f, 2.0f, 2.0f, 2.0f, -0.0f, 0.0f}, {NAN, -INFINITY, 0.0f, NAN, 0.0f, -INFINITY}};
    const int32_t expected[2][4] = {{1, 2, 3, 0}, {2, 4, 1, 5}};
    int32_t ids[8];
    float weights[8];
    const trm_moe_router p = {.tokens = 2,
                              .experts = 6,
                              .k = 4,
                              .scoring = TRM_ROUTER_SOFTMAX_CHOSEN,
                              .scale = 1.0f,
                              .logits = logits[0],
                              .ids = ids,
                              .weights = weights};
    assert_ok(trm_moe_router_host(&p));
    assert_memory_equal(ids, expected, sizeof(ids));
    assert_true(weights[4] == 0.5f && weights[5] == 0.5f && weights[6] == 0.0f);
}

static void routers_that_cannot_be_are_refused(void **state)
{
    (void)state;
    float logits[8] = {0}, weights[8];
    int32_t ids[8];
    trm_moe_router p = {.tokens = 1, .experts = 8, .k = 9, .logits = logits, .ids = ids, .weights = weights};
    assert_fails(trm_moe_router_host(&p), TRM_ERROR_INVALID_ARGUMENT, "router of 8 experts chooses 9");
    p.k = 4;
    p.groups = 4;
    p.top_groups = 1;
    assert_fails(trm_moe_router_host(&p), TRM_ERROR_INVALID_ARGUMENT, "from 1 of 4 groups");
    p.groups = 0;
    p.logits = NULL;
    assert_fails(trm_moe_router_host(&p), TRM_ERROR_INVALID_ARGUMENT, "expected f32, f16 or bf16");
}

/* ---- experts -------------------------------------------------------------------------------------- */

static double power(int exponent)
{
    return ldexp(1.0, exponent);
}

static double weight_at(const trm_moe_experts *p, bool up, int64_t expert, int64_t row, int64_t column)
{
    const void *data = up ? p->gate_up : p->down, *scales = up ? p->gate_up_scale : p->down_scale;
    const int64_t columns = up ? p->hidden : p->width;
    const int64_t rows = !up ? p->hidden : p->activation == TRM_EXPERT_RELU2 ? p->width : 2 * p->width;
    static const double f4[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
    const int64_t at = (expert * rows + row) * columns + column;
    const uint8_t *bytes = data;
    if (p->format == TRM_MOE_HALVES) {
        return number(p->type, data, at);
    }
    if (p->format == TRM_MOE_MXFP4) {
        const int nibble = at % 2 == 0 ? bytes[at / 2] & 15 : bytes[at / 2] >> 4;
        return (nibble & 8 ? -f4[nibble & 7] : f4[nibble & 7]) * power(((const uint8_t *)scales)[at / 32] - 127);
    }
    if (p->format == TRM_MOE_INT4 || p->format == TRM_MOE_INT8) {
        const int64_t width = up ? p->up_group : p->down_group;
        const int64_t group = (expert * rows + row) * (columns / width) + column / width;
        const uint8_t *zeros = up ? p->gate_up_zero : p->down_zero;
        if (p->format == TRM_MOE_INT8) {
            return (bytes[at] < 128 ? bytes[at] : bytes[at] - 256) * number(p->scale_type, scales, group);
        }
        const int nibble = at % 2 == 0 ? bytes[at / 2] & 15 : bytes[at / 2] >> 4;
        return (nibble - (zeros != NULL ? zeros[group] : 8)) * number(p->scale_type, scales, group);
    }
    const int exponent = bytes[at] >> 3 & 15, mantissa = bytes[at] & 7;
    const double size = exponent == 0 ? mantissa * power(-9) : (8 + mantissa) * power(exponent - 10);
    const int64_t of_blocks = (expert * ((rows + 127) / 128) + row / 128) * ((columns + 127) / 128) + column / 128;
    const int64_t scale = p->format == TRM_MOE_F8_BLOCKS ? of_blocks : expert * rows + row;
    return (bytes[at] & 128 ? -size : size) * (double)((const float *)scales)[scale];
}

static double activated(const trm_moe_experts *p, double g, double u)
{
    const double c = 0.7978845608028654;
    switch (p->activation) {
    case TRM_EXPERT_SILU:
        return g * sigmoid(g) * u;
    case TRM_EXPERT_GELU:
        return 0.5 * g * (1.0 + erf(g / sqrt(2.0))) * u;
    case TRM_EXPERT_GELU_TANH:
        return 0.5 * g * (1.0 + tanh(c * (g + 0.044715 * g * g * g))) * u;
    case TRM_EXPERT_SWIGLU_OAI:
        g = fmin(g, (double)p->limit);
        u = fmax(fmin(u, (double)p->limit), -(double)p->limit);
        return g * sigmoid((double)p->alpha * g) * (u + 1.0);
    default:
        return u > 0.0 ? u * u : 0.0;
    }
}

/* What one slot of a token adds to y, before the sum. */
static void add_expert(const trm_moe_experts *p, int64_t token, int64_t slot, double *y)
{
    const int64_t expert = p->ids[slot] - p->first, rows = p->activation == TRM_EXPERT_RELU2 ? p->width : 2 * p->width;
    const double weight = (double)p->weights[slot];
    double *h = moe_allocate(sizeof(double) * (size_t)p->width);
    if (p->ids[slot] < p->first || expert >= p->experts) {
        free(h);
        return;
    }
    for (int64_t i = 0; i < p->width; i++) {
        double both[2] = {0.0, 0.0};
        for (int f = p->activation == TRM_EXPERT_RELU2 ? 1 : 0; f < 2; f++) {
            const int64_t row = p->activation == TRM_EXPERT_RELU2 ? i : p->interleaved ? 2 * i + f : i + f * p->width;
            for (int64_t j = 0; j < p->hidden; j++) {
                both[f] += weight_at(p, true, expert, row, j) * number(p->type, p->x, token * p->hidden + j) *
                           (p->weighted_input ? weight : 1.0);
            }
            both[f] += p->gate_up_bias != NULL ? number(p->type, p->gate_up_bias, expert * rows + row) : 0.0;
        }
        const float exact = (float)activated(p, both[0], both[1]);
        h[i] = p->type == TRM_F16 ? (double)trm_f16_to_f32(trm_f32_to_f16(exact))
                                  : (double)trm_bf16_to_f32(trm_f32_to_bf16(exact));
    }
    for (int64_t o = 0; o < p->hidden; o++) {
        double sum = p->down_bias != NULL ? number(p->type, p->down_bias, expert * p->hidden + o) : 0.0;
        for (int64_t i = 0; i < p->width; i++) {
            sum += weight_at(p, false, expert, o, i) * h[i];
        }
        y[o] += (p->weighted_input ? 1.0 : weight) * sum;
    }
    free(h);
}

static void experts_follow_the_formula(void **state)
{
    (void)state;
    for (int32_t i = 0; i < moe_shapes_n; i++) {
        moe_shape shape = moe_shapes[i];
        shape.tokens = shape.tokens > 12 ? 12 : shape.tokens;
        moe_call call;
        moe_call_init(&call, &shape, test_seed() + (uint64_t)i);
        const trm_moe_experts *p = &call.experts;
        double *y = moe_allocate(sizeof(double) * (size_t)p->hidden);
        assert_ok(trm_moe_experts_host(p));
        for (int64_t t = 0; t < p->tokens; t++) {
            double error = 0.0, size = 0.0;
            for (int64_t o = 0; o < p->hidden; o++) {
                y[o] = p->residual != NULL ? number(p->type, p->residual, t * p->hidden + o) : 0.0;
            }
            for (int64_t s = t * p->k; s < (t + 1) * p->k; s++) {
                add_expert(p, t, s, y);
            }
            for (int64_t o = 0; o < p->hidden; o++) {
                const double difference = number(p->type, p->y, t * p->hidden + o) - y[o];
                error += difference * difference;
                size += y[o] * y[o];
            }
            if (!(error <= (p->type == TRM_F16 ? 1e-6 : 1e-5) * size)) { /* a rounding of y, and h's seldom differ */
                print_error("%s, token %d: error %g of %g\n", moe_shape_name(&shape), (int)t, sqrt(error), sqrt(size));
                fail();
            }
        }
        free(y);
        moe_call_fini(&call);
    }
}

/* Groups that the products of bf16 take: whole units, and all of a row. */
static const moe_shape grouped_shapes[] = {
    {8, 256, 384, 6, 0, 6, 3, TRM_BF16, TRM_MOE_INT4, TRM_EXPERT_SILU, false, false, false, true, 0, 128, true},
    {2, 256, 192, 6, 0, 6, 3, TRM_BF16, TRM_MOE_INT4, TRM_EXPERT_SILU, false, false, false, false, 0, 64, false},
    {5, 100, 72, 4, 0, 4, 2, TRM_BF16, TRM_MOE_INT4, TRM_EXPERT_SILU, true, false, true, true, 0, 0, true},
    {3, 320, 128, 40, 5, 50, 8, TRM_BF16, TRM_MOE_INT8, TRM_EXPERT_GELU, false, true, true, false, 20, 64, false},
    {1, 1088, 544, 12, 0, 12, 4, TRM_BF16, TRM_MOE_MXFP4, TRM_EXPERT_SWIGLU_OAI, true, false, true, false, 0, 0, false},
    {7, 200, 168, 4, 0, 4, 2, TRM_BF16, TRM_MOE_F8_ROWS, TRM_EXPERT_SILU, false, false, false, true, 0, 0, false},
};

/* What trm_moe_few_run makes of a shape, against the layer's definition. */
static void check_few(const moe_shape *shape, trm_dtype type, uint64_t seed)
{
    moe_shape few = *shape;
    few.tokens = few.tokens > TRM_MOE_FEW_TOKENS ? TRM_MOE_FEW_TOKENS : few.tokens;
    few.type = type;
    moe_call call;
    moe_call_init(&call, &few, seed);
    const trm_moe_experts *p = &call.experts;
    const int64_t n = p->tokens * p->hidden;
    const size_t needs = trm_moe_few_workspace(p, p->tokens);
    float *y = moe_allocate(sizeof(float) * (size_t)n), *again = moe_allocate(sizeof(float) * (size_t)n);
    unsigned char *workspace = aligned_alloc(64, (needs + 127) / 64 * 64);
    trm_pool *pool;
    assert_non_null(workspace);
    memset(workspace, 0xff, needs); /* NaN */
    memset(workspace + needs, 0x5a, 64);
    trm_moe_few_run(NULL, p, workspace, y);
    assert_int_equal(workspace[needs], 0x5a);
    assert_ok(trm_pool_create(3, &pool));
    trm_moe_few_run(pool, p, workspace, again);
    trm_pool_destroy(pool);
    assert_memory_equal(again, y, sizeof(float) * (size_t)n);
    assert_ok(trm_moe_experts_host(p));
    double error = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double expected = number(p->type, p->y, i);
        const double found = (double)y[i] + (p->residual != NULL ? number(p->type, p->residual, i) : 0.0);
        error += (found - expected) * (found - expected);
        size += expected * expected;
    }
    if (!(error <= 1e-5 * size)) {
        print_error("%s: error %g of %g\n", moe_shape_name(&few), sqrt(error), sqrt(size));
        fail();
    }
    free(workspace);
    free(again);
    free(y);
    moe_call_fini(&call);
}

static void experts_of_few_tokens_are_the_same(void **state)
{
    (void)state;
    const int32_t n = (int32_t)(sizeof(grouped_shapes) / sizeof(grouped_shapes[0]));
    for (int32_t i = 0; i < moe_shapes_n + n; i++) {
        const moe_shape *shape = i < n ? &grouped_shapes[i] : &moe_shapes[i - n];
        check_few(shape, TRM_BF16, test_seed() + (uint64_t)i);
        check_few(shape, TRM_F16, test_seed() + (uint64_t)i);
    }
}

static void experts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    moe_call call;
    moe_call_init(&call, &moe_shapes[0], test_seed());
    trm_moe_experts p = call.experts;
    p.type = TRM_F64;
    assert_fails(trm_moe_experts_host(&p), TRM_ERROR_INVALID_ARGUMENT,
                 "experts layer of f64, expected f32, f16 or bf16");
    p = call.experts;
    p.format = TRM_MOE_MXFP4;
    p.width = 40;
    assert_fails(trm_moe_experts_host(&p), TRM_ERROR_INVALID_ARGUMENT, "expected multiples of 32");
    p.width = 0;
    assert_fails(trm_moe_experts_host(&p), TRM_ERROR_INVALID_ARGUMENT, "of width 0");
    p.width = 64;
    p.format = TRM_MOE_INT4;
    p.scale_type = TRM_F32;
    p.up_group = 64;
    p.down_group = 48;
    assert_fails(trm_moe_experts_host(&p), TRM_ERROR_INVALID_ARGUMENT, "groups of 64 of 64 columns and 48 of 64");
    moe_call_fini(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routers_follow_the_formula),         cmocka_unit_test(equal_keys_take_the_lower_id),
        cmocka_unit_test(routers_that_cannot_be_are_refused), cmocka_unit_test(experts_follow_the_formula),
        cmocka_unit_test(experts_of_few_tokens_are_the_same), cmocka_unit_test(experts_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
