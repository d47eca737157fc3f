/*
 * Random calls of the layers of a mixture of experts, with all they point to, for the host and for a GPU.
 */
#ifndef TESTS_KERNELS_MOE_CASES_H
#define TESTS_KERNELS_MOE_CASES_H

#include "kernels/moe/moe.h"

/* What a call of the experts' layer is like; ids go beyond the experts held where first + experts < routed. */
typedef struct moe_shape {
    int32_t tokens, hidden, width, experts, first, routed, k;
    trm_dtype type;
    trm_moe_format format;
    trm_expert_activation activation;
    bool interleaved, weighted_input, bias, residual;
    int32_t missing; /* percent of ids that are -1 */
    int32_t group;   /* INT4, INT8: columns that share a scale; 0: all of a row */
    bool zeros;      /* INT4: zero points */
} moe_shape;

extern const moe_shape moe_shapes[];
extern const int32_t moe_shapes_n;

/* The buffers of a call, in the order of its pointers; what it does not have is of 0 bytes. */
enum {
    MOE_X,
    MOE_IDS,
    MOE_WEIGHTS,
    MOE_UP,
    MOE_UP_SCALE,
    MOE_UP_ZERO,
    MOE_UP_BIAS,
    MOE_DOWN,
    MOE_DOWN_SCALE,
    MOE_DOWN_ZERO,
    MOE_DOWN_BIAS,
    MOE_RESIDUAL,
    MOE_Y,
    MOE_BUFFERS
};

typedef struct moe_call {
    trm_moe_experts experts; /* its pointers are those of the buffers */
    void *buffers[MOE_BUFFERS];
    size_t bytes[MOE_BUFFERS];
} moe_call;

/* From the heap; fails the test if there is no more. */
void *moe_allocate(size_t bytes);

/* Makes a call with buffers on the heap. */
void moe_call_init(moe_call *call, const moe_shape *shape, uint64_t seed);
void moe_call_fini(moe_call *call);
/* The call with other buffers of the same sizes, where there are any. */
trm_moe_experts moe_call_with(const moe_call *call, void *const buffers[MOE_BUFFERS]);
/* One line that says what a shape is. */
const char *moe_shape_name(const moe_shape *shape);

/* Random routers: what they choose from are logits or, with x and weight, products. */
typedef struct moe_router_shape {
    int32_t tokens, hidden, experts, k;
    trm_dtype x_type, weight_type;
    trm_router_scoring scoring;
    int32_t groups, top_groups;
    bool group_sum, renormalize, logits, bias, correction, expert_scale;
    float scale;
} moe_router_shape;

extern const moe_router_shape moe_router_shapes[];
extern const int32_t moe_router_shapes_n;

enum {
    MOE_ROUTER_X,
    MOE_ROUTER_WEIGHT,
    MOE_ROUTER_LOGITS,
    MOE_ROUTER_BIAS,
    MOE_ROUTER_CORRECTION,
    MOE_ROUTER_SCALE,
    MOE_ROUTER_IDS,
    MOE_ROUTER_WEIGHTS,
    MOE_ROUTER_BUFFERS
};

typedef struct moe_router_call {
    trm_moe_router router;
    void *buffers[MOE_ROUTER_BUFFERS];
    size_t bytes[MOE_ROUTER_BUFFERS];
} moe_router_call;

void moe_router_call_init(moe_router_call *call, const moe_router_shape *shape, uint64_t seed);
void moe_router_call_fini(moe_router_call *call);
trm_moe_router moe_router_call_with(const moe_router_call *call, void *const buffers[MOE_ROUTER_BUFFERS]);

#endif
