/* Random calls of the layers of a mixture of experts. */
#include "kernels/moe_cases.h"

#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "support/support.h"

const moe_shape moe_shapes[] = {
    {1, 64, 64, 4, 0, 4, 2, TRM_BF16, TRM_MOE_HALVES, TRM_EXPERT_SILU, false, false, false, false, 0, 0, false},
    {3, 264, 136, 5, 0, 5, 3, TRM_BF16, TRM_MOE_HALVES, TRM_EXPERT_SILU, false, false, true, true, 0, 0, false},
    {4, 256, 72, 8, 0, 8, 8, TRM_F16, TRM_MOE_HALVES, TRM_EXPERT_GELU_TANH, false, false, false, true, 0, 0, false},
    {9, 136, 200, 4, 2, 8, 4, TRM_BF16, TRM_MOE_HALVES, TRM_EXPERT_SWIGLU_OAI, true, false, true, false, 10, 0, false},
    {40, 128, 136, 6, 0, 6, 2, TRM_F16, TRM_MOE_HALVES, TRM_EXPERT_GELU, true, false, false, true, 0, 0, false},
    {70, 192, 64, 3, 0, 3, 1, TRM_BF16, TRM_MOE_HALVES, TRM_EXPERT_SILU, false, true, false, true, 0, 0, false},
    {33, 72, 328, 7, 3, 16, 6, TRM_BF16, TRM_MOE_HALVES, TRM_EXPERT_RELU2, false, false, true, false, 0, 0, false},
    {300, 192, 128, 3, 0, 4, 2, TRM_BF16, TRM_MOE_HALVES, TRM_EXPERT_SWIGLU_OAI, true, false, true, true, 3, 0, false},
    {520, 64, 72, 2, 0, 2, 1, TRM_F16, TRM_MOE_HALVES, TRM_EXPERT_SILU, false, false, false, false, 0, 0, false},
    {2, 96, 64, 4, 0, 4, 2, TRM_BF16, TRM_MOE_MXFP4, TRM_EXPERT_SWIGLU_OAI, true, false, true, false, 0, 0, false},
    {4, 2880, 160, 3, 1, 5, 4, TRM_BF16, TRM_MOE_MXFP4, TRM_EXPERT_SWIGLU_OAI, true, false, true, true, 5, 0, false},
    {40, 160, 352, 3, 0, 4, 2, TRM_BF16, TRM_MOE_MXFP4, TRM_EXPERT_SWIGLU_OAI, true, false, true, false, 5, 0, false},
    {300, 96, 192, 3, 0, 3, 2, TRM_BF16, TRM_MOE_MXFP4, TRM_EXPERT_SILU, false, false, false, true, 0, 0, false},
    {3, 256, 192, 4, 0, 4, 2, TRM_BF16, TRM_MOE_F8_BLOCKS, TRM_EXPERT_SILU, false, false, false, false, 0, 0, false},
    {50, 384, 320, 4, 0, 4, 2, TRM_BF16, TRM_MOE_F8_BLOCKS, TRM_EXPERT_SILU, false, false, false, true, 0, 0, false},
    {20, 160, 96, 4, 0, 4, 2, TRM_F16, TRM_MOE_F8_ROWS, TRM_EXPERT_RELU2, false, false, true, false, 0, 0, false},
    {7, 96, 64, 4, 0, 4, 2, TRM_BF16, TRM_MOE_INT4, TRM_EXPERT_SILU, false, false, false, true, 0, 32, true},
    {5, 96, 72, 4, 1, 6, 3, TRM_F16, TRM_MOE_INT4, TRM_EXPERT_SWIGLU_OAI, true, false, true, false, 0, 0, false},
    {3, 80, 48, 4, 0, 4, 2, TRM_BF16, TRM_MOE_INT8, TRM_EXPERT_RELU2, false, true, false, false, 0, 16, false},
};
const int32_t moe_shapes_n = (int32_t)(sizeof(moe_shapes) / sizeof(moe_shapes[0]));

const moe_router_shape moe_router_shapes[] = {
    {1, 256, 128, 8, TRM_BF16, TRM_BF16, TRM_ROUTER_SOFTMAX, 0, 0, false, true, false, false, false, false, 1.0f},
    {9, 2048, 128, 8, TRM_BF16, TRM_BF16, TRM_ROUTER_SOFTMAX, 0, 0, false, false, false, false, false, true, 1.0f},
    {5, 360, 32, 4, TRM_BF16, TRM_BF16, TRM_ROUTER_SOFTMAX_CHOSEN, 0, 0, false, false, false, true, false, false, 1.0f},
    {7, 512, 256, 8, TRM_BF16, TRM_F32, TRM_ROUTER_SIGMOID, 8, 4, true, true, false, false, true, false, 2.5f},
    {3, 264, 64, 6, TRM_F16, TRM_F16, TRM_ROUTER_SOFTMAX, 8, 3, false, false, false, false, false, false, 16.0f},
    {2, 128, 384, 8, TRM_F32, TRM_F32, TRM_ROUTER_SQRT_SOFTPLUS, 0, 0, false, true, false, false, true, false, 1.5f},
    {6, 4096, 8, 2, TRM_F32, TRM_BF16, TRM_ROUTER_SOFTMAX_CHOSEN, 0, 0, false, false, false, false, false, false, 1.0f},
    {4, 200, 16, 1, TRM_F16, TRM_F32, TRM_ROUTER_SIGMOID, 0, 0, false, false, false, false, false, false, 1.0f},
    {37, 2880, 32, 4, TRM_BF16, TRM_BF16, TRM_ROUTER_SOFTMAX_CHOSEN, 0, 0, false, false, false, true, false, false,
     1.0f},
    {70, 520, 256, 8, TRM_F16, TRM_F16, TRM_ROUTER_SIGMOID, 8, 4, true, true, false, false, true, true, 2.5f},
    {100, 0, 128, 8, TRM_F32, TRM_F32, TRM_ROUTER_SOFTMAX, 0, 0, false, true, true, false, false, false, 1.0f},
    {67, 0, 512, 10, TRM_F32, TRM_F32, TRM_ROUTER_SOFTMAX, 4, 2, true, true, true, true, false, false, 1.0f},
    {30, 0, 16, 2, TRM_F32, TRM_F32, TRM_ROUTER_SPARSE_MIXER, 0, 0, false, false, true, false, false, false, 1.0f},
    {4, 200, 16, 3, TRM_BF16, TRM_BF16, TRM_ROUTER_SPARSE_MIXER, 0, 0, false, false, false, true, false, true, 1.5f},
};
const int32_t moe_router_shapes_n = (int32_t)(sizeof(moe_router_shapes) / sizeof(moe_router_shapes[0]));

/* ---- filling ---- */

void *moe_allocate(size_t bytes)
{
    void *memory = malloc(bytes + 16);
    assert_non_null(memory);
    return memory;
}

static void *fill_halves(size_t n, trm_dtype type, float spread, uint64_t *seed)
{
    uint16_t *to = moe_allocate(n * 2);
    for (size_t i = 0; i < n; i++) {
        const float v = test_random_float(seed) * spread;
        to[i] = type == TRM_F16 ? trm_f32_to_f16(v) : trm_f32_to_bf16(v);
    }
    return to;
}

static void *fill_floats(size_t n, float low, float high, uint64_t *seed)
{
    float *to = moe_allocate(n * 4);
    for (size_t i = 0; i < n; i++) {
        to[i] = low + (high - low) * 0.5f * (1.0f + test_random_float(seed));
    }
    return to;
}

/* Bytes in [low, high], each with a sign where `sign` says so. */
static void *fill_bytes(size_t n, int low, int high, bool sign, uint64_t *seed)
{
    uint8_t *to = moe_allocate(n);
    for (size_t i = 0; i < n; i++) {
        const int v = low + (int)test_random_below(seed, high - low + 1);
        to[i] = (uint8_t)(v | (sign && (test_random(seed) >> 40 & 1) != 0 ? 128 : 0));
    }
    return to;
}

/* A matrix of each expert and its scales, such that a product of `columns` terms is about as large as its factor. */
static void fill_matrix(moe_call *call, int which, const moe_shape *s, int64_t rows, int64_t columns, uint64_t *seed)
{
    const size_t n = (size_t)s->experts * (size_t)rows * (size_t)columns;
    const float spread = 2.0f / sqrtf((float)columns);
    size_t scales = 0;
    if (s->format == TRM_MOE_HALVES) {
        call->bytes[which] = n * 2;
        call->buffers[which] = fill_halves(n, s->type, spread, seed);
    } else if (s->format == TRM_MOE_MXFP4) {
        scales = n / 32;
        call->bytes[which] = n / 2;
        call->buffers[which] = fill_bytes(n / 2, 0, 255, false, seed);
        call->bytes[which + 1] = scales;
        call->buffers[which + 1] = fill_bytes(scales, 121, 124, false, seed);
    } else if (s->format == TRM_MOE_INT4 || s->format == TRM_MOE_INT8) {
        const float largest = s->format == TRM_MOE_INT4 ? 8.0f : 128.0f;
        scales = n / (size_t)(s->group > 0 ? s->group : columns);
        call->bytes[which] = s->format == TRM_MOE_INT4 ? n / 2 : n;
        call->buffers[which] = fill_bytes(call->bytes[which], 0, 255, false, seed);
        call->bytes[which + 1] = scales * 2;
        call->buffers[which + 1] = fill_halves(scales, s->type, spread / largest, seed);
        call->bytes[which + 2] = s->zeros ? scales : 0;
        call->buffers[which + 2] = s->zeros ? fill_bytes(scales, 5, 11, false, seed) : NULL;
    } else {
        const size_t blocks = (size_t)s->experts * (size_t)((rows + 127) / 128) * (size_t)((columns + 127) / 128);
        scales = s->format == TRM_MOE_F8_BLOCKS ? blocks : (size_t)(s->experts * rows);
        call->bytes[which] = n;
        call->buffers[which] = fill_bytes(n, 0, 64, true, seed); /* up to 2 in size */
        call->bytes[which + 1] = scales * 4;
        call->buffers[which + 1] = fill_floats(scales, 0.5f * spread, 2.0f * spread, seed);
    }
}

static void fill_ids(moe_call *call, const moe_shape *s, uint64_t *seed)
{
    int32_t *ids = moe_allocate(sizeof(int32_t) * (size_t)(s->tokens * s->k));
    for (int32_t i = 0; i < s->tokens * s->k; i++) {
        bool used = true;
        while (used) {
            ids[i] = (int32_t)test_random_below(seed, s->routed);
            /* Half of the calls' choices fall on the first experts, so that these have many tokens. */
            ids[i] = s->routed > 2 * s->k && test_random_below(seed, 2) == 0 ? ids[i] / 2 : ids[i];
            used = false;
            for (int32_t j = i / s->k * s->k; j < i; j++) {
                used = used || ids[j] == ids[i];
            }
        }
    }
    for (int32_t i = 0; i < s->tokens * s->k; i++) {
        ids[i] = test_random_below(seed, 100) < s->missing ? -1 : ids[i];
    }
    call->bytes[MOE_IDS] = sizeof(int32_t) * (size_t)(s->tokens * s->k);
    call->buffers[MOE_IDS] = ids;
}

static void put(moe_call *call, int which, size_t bytes, void *buffer)
{
    call->bytes[which] = bytes;
    call->buffers[which] = buffer;
}

void moe_call_init(moe_call *call, const moe_shape *s, uint64_t seed)
{
    memset(call, 0, sizeof(*call));
    const size_t rows = (size_t)s->tokens * (size_t)s->hidden;
    const int64_t up_rows = s->activation == TRM_EXPERT_RELU2 ? s->width : 2 * (int64_t)s->width;
    call->experts = (trm_moe_experts){.tokens = s->tokens,
                                      .hidden = s->hidden,
                                      .width = s->width,
                                      .experts = s->experts,
                                      .first = s->first,
                                      .k = s->k,
                                      .type = s->type,
                                      .format = s->format,
                                      .activation = s->activation,
                                      .limit = s->activation == TRM_EXPERT_SWIGLU_OAI ? 1.5f : INFINITY,
                                      .alpha = 1.702f,
                                      .scale_type = s->type,
                                      .up_group = s->group > 0 ? s->group : s->hidden,
                                      .down_group = s->group > 0 ? s->group : s->width,
                                      .interleaved = s->interleaved,
                                      .weighted_input = s->weighted_input,
                                      .constant_weights = true};
    put(call, MOE_X, rows * 2, fill_halves(rows, s->type, 1.5f, &seed));
    fill_ids(call, s, &seed);
    put(call, MOE_WEIGHTS, (size_t)(s->tokens * s->k) * 4, fill_floats((size_t)(s->tokens * s->k), 0.1f, 1.0f, &seed));
    fill_matrix(call, MOE_UP, s, up_rows, s->hidden, &seed);
    fill_matrix(call, MOE_DOWN, s, s->hidden, s->width, &seed);
    if (s->bias) {
        const size_t n = (size_t)(s->experts * up_rows), m = (size_t)s->experts * (size_t)s->hidden;
        put(call, MOE_UP_BIAS, n * 2, fill_halves(n, s->type, 0.5f, &seed));
        put(call, MOE_DOWN_BIAS, m * 2, fill_halves(m, s->type, 0.5f, &seed));
    }
    if (s->residual) {
        put(call, MOE_RESIDUAL, rows * 2, fill_halves(rows, s->type, 1.0f, &seed));
    }
    put(call, MOE_Y, rows * 2, fill_halves(rows, s->type, 1.0f, &seed));
    call->experts = moe_call_with(call, call->buffers);
}

void moe_call_fini(moe_call *call)
{
    for (int i = 0; i < MOE_BUFFERS; i++) {
        free(call->buffers[i]);
    }
}

trm_moe_experts moe_call_with(const moe_call *call, void *const b[MOE_BUFFERS])
{
    trm_moe_experts p = call->experts;
    p.x = b[MOE_X];
    p.ids = b[MOE_IDS];
    p.weights = b[MOE_WEIGHTS];
    p.gate_up = b[MOE_UP];
    p.gate_up_scale = b[MOE_UP_SCALE];
    p.gate_up_zero = b[MOE_UP_ZERO];
    p.gate_up_bias = b[MOE_UP_BIAS];
    p.down = b[MOE_DOWN];
    p.down_scale = b[MOE_DOWN_SCALE];
    p.down_zero = b[MOE_DOWN_ZERO];
    p.down_bias = b[MOE_DOWN_BIAS];
    p.residual = b[MOE_RESIDUAL];
    p.y = b[MOE_Y];
    return p;
}

const char *moe_shape_name(const moe_shape *s)
{
    static char text[200];
    (void)snprintf(text, sizeof(text), "T %d H %d I %d E %d+%d of %d k %d type %d format %d activation %d%s%s%s%s",
                   s->tokens, s->hidden, s->width, s->first, s->experts, s->routed, s->k, (int)s->type, (int)s->format,
                   (int)s->activation, s->interleaved ? " interleaved" : "", s->weighted_input ? " weighted input" : "",
                   s->bias ? " bias" : "", s->residual ? " residual" : "");
    return text;
}

/* ---- routers ---- */

static void put_router(moe_router_call *call, int which, size_t bytes, void *buffer)
{
    call->bytes[which] = bytes;
    call->buffers[which] = buffer;
}

static void put_typed(moe_router_call *call, int which, size_t n, trm_dtype type, float spread, uint64_t *seed)
{
    if (type == TRM_F32) {
        put_router(call, which, n * 4, fill_floats(n, -spread, spread, seed));
    } else {
        put_router(call, which, n * 2, fill_halves(n, type, spread, seed));
    }
}

void moe_router_call_init(moe_router_call *call, const moe_router_shape *s, uint64_t seed)
{
    memset(call, 0, sizeof(*call));
    const size_t tokens = (size_t)s->tokens, hidden = (size_t)s->hidden, experts = (size_t)s->experts;
    call->router = (trm_moe_router){.tokens = s->tokens,
                                    .hidden = s->hidden,
                                    .experts = s->experts,
                                    .k = s->k,
                                    .x_type = s->x_type,
                                    .weight_type = s->weight_type,
                                    .scoring = s->scoring,
                                    .groups = s->groups,
                                    .top_groups = s->top_groups,
                                    .group_sum = s->group_sum,
                                    .renormalize = s->renormalize,
                                    .epsilon = s->scoring == TRM_ROUTER_SPARSE_MIXER ? 0.3f : 1e-20f,
                                    .scale = s->scale};
    if (s->logits) {
        put_router(call, MOE_ROUTER_LOGITS, tokens * experts * 4, fill_floats(tokens * experts, -4.0f, 4.0f, &seed));
    } else {
        put_typed(call, MOE_ROUTER_X, tokens * hidden, s->x_type, 1.0f, &seed);
        put_typed(call, MOE_ROUTER_WEIGHT, experts * hidden, s->weight_type, 6.0f / sqrtf((float)hidden), &seed);
    }
    if (s->bias) {
        put_router(call, MOE_ROUTER_BIAS, experts * 4, fill_floats(experts, -1.0f, 1.0f, &seed));
    }
    if (s->correction) {
        put_router(call, MOE_ROUTER_CORRECTION, experts * 4, fill_floats(experts, -0.2f, 0.2f, &seed));
    }
    if (s->expert_scale) {
        put_router(call, MOE_ROUTER_SCALE, experts * 4, fill_floats(experts, 0.5f, 2.0f, &seed));
    }
    put_router(call, MOE_ROUTER_IDS, tokens * (size_t)s->k * 4,
               fill_bytes(tokens * (size_t)s->k * 4, 0, 255, false, &seed));
    put_router(call, MOE_ROUTER_WEIGHTS, tokens * (size_t)s->k * 4,
               fill_floats(tokens * (size_t)s->k, 0.0f, 1.0f, &seed));
    call->router = moe_router_call_with(call, call->buffers);
}

void moe_router_call_fini(moe_router_call *call)
{
    for (int i = 0; i < MOE_ROUTER_BUFFERS; i++) {
        free(call->buffers[i]);
    }
}

trm_moe_router moe_router_call_with(const moe_router_call *call, void *const b[MOE_ROUTER_BUFFERS])
{
    trm_moe_router p = call->router;
    p.x = b[MOE_ROUTER_X];
    p.weight = b[MOE_ROUTER_WEIGHT];
    p.logits = b[MOE_ROUTER_LOGITS];
    p.bias = b[MOE_ROUTER_BIAS];
    p.correction = b[MOE_ROUTER_CORRECTION];
    p.expert_scale = b[MOE_ROUTER_SCALE];
    p.ids = b[MOE_ROUTER_IDS];
    p.weights = b[MOE_ROUTER_WEIGHTS];
    return p;
}
