/* Device helpers of the experts' kernels: activations, loads of ids, sums. */
#ifndef TRM_KERNELS_MOE_CUDA_EXPERTS_CUH
#define TRM_KERNELS_MOE_CUDA_EXPERTS_CUH

#include "kernels/cuda/common.cuh"
#include "kernels/moe/element.h"

/* All activations with a gate but GELU by erf are g / (1 + exp(-g (linear + cubic g^2))) * (u + offset). */
typedef struct gate_form {
    float linear, cubic, offset;
    bool erf;
} gate_form;

static inline gate_form gate_form_of(const trm_moe_experts *p)
{
    const float tangent = 1.5957691216057308f; /* 2 sqrt(2 / pi) */
    gate_form form = {1.0f, 0.0f, 0.0f, p->activation == TRM_EXPERT_GELU};
    if (p->activation == TRM_EXPERT_GELU_TANH) {
        form.linear = tangent;
        form.cubic = 0.044715f * tangent;
    } else if (p->activation == TRM_EXPERT_SWIGLU_OAI) {
        form.linear = p->alpha;
        form.offset = 1.0f;
    }
    return form;
}

/* trm_moe_gated to a few units in the last place of f32, which is rounded to 16 bits. */
static __device__ __forceinline__ float gated_by(const trm_moe_experts &p, const gate_form &form, float g, float u)
{
    g = g > p.limit ? p.limit : g;
    u = trm_moe_limited(u, -p.limit, p.limit) + form.offset;
    if (form.erf) {
        return gelu_narrow(g) * u;
    }
    const float square = fminf(g * g, 1e30f); /* 0 times infinity is no number */
    return __fdividef(g, 1.0f + __expf(-g * fmaf(form.cubic, square, form.linear))) * u;
}

/* 16 bytes that are read once, by a load that stays ahead of a wait for the kernel before. */
static __device__ __forceinline__ uint4 load_weight16(const void *from)
{
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

/* Ids and weights are read past L1: by a kernel that may have begun before the one that wrote them had ended, where the
 * kernel between them is known to have waited for it. */
static __device__ __forceinline__ int32_t local_expert(const trm_moe_experts &p, int64_t pair)
{
    return trm_moe_local(&p, __ldcg(p.ids + pair));
}

template <typename T> static __device__ __forceinline__ float bias_of(const void *bias, int64_t i)
{
    return bias != NULL ? to_float(((const T *)bias)[i]) : 0.0f;
}

#endif
