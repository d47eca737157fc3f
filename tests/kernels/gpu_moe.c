/*
 * The layers of a mixture of experts on CUDA device 0 against the host's, in every form that CUDA has of them: results,
 * that all is written, and that a token's bits do not depend on the others of its call. Exits 77 if there is no GPU.
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>

#include "base/half.h"
#include "kernels/moe/cuda_moe.h"
#include "kernels/moe_cases.h"
#include "support/support.h"

static void *on_device(const void *from, size_t bytes)
{
    void *to = NULL;
    assert_int_equal(cudaMalloc(&to, bytes + 16), cudaSuccess);
    assert_int_equal(cudaMemset(to, 0xff, bytes), cudaSuccess);
    if (from != NULL) {
        assert_int_equal(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    }
    return to;
}

static float value_of(trm_dtype type, uint16_t bits)
{
    return type == TRM_F16 ? trm_f16_to_f32(bits) : trm_bf16_to_f32(bits);
}

/* ||got - expected|| / ||expected|| of the worst row; infinite if something is no number. */
static double worst_row(const moe_call *call, const uint16_t *got)
{
    const trm_moe_experts *p = &call->experts;
    const uint16_t *expected = p->y;
    double worst = 0.0;
    for (int64_t t = 0; t < p->tokens; t++) {
        double error = 0.0, size = 0.0;
        for (int64_t i = t * p->hidden; i < (t + 1) * p->hidden; i++) {
            const double e = (double)value_of(p->type, expected[i]), d = (double)value_of(p->type, got[i]) - e;
            error += d * d;
            size += e * e;
        }
        const double share = size > 0.0 ? sqrt(error / size) : error > 0.0 ? INFINITY : 0.0;
        worst = isfinite(error) ? fmax(worst, share) : INFINITY;
    }
    return worst;
}

/* Runs a plan with poisoned memory and copies y back. */
static void run_plan(const trm_moe_experts *p, const trm_moe_plan *plan, size_t y_bytes, uint16_t *y)
{
    const size_t bytes = trm_cuda_moe_experts_workspace(p, plan);
    void *workspace = on_device(NULL, bytes);
    assert_int_equal(cudaMemset(p->y, 0xff, y_bytes), cudaSuccess);
    assert_ok(trm_cuda_moe_experts_run(p, plan, workspace, NULL));
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    assert_int_equal(cudaMemcpy(y, p->y, y_bytes, cudaMemcpyDeviceToHost), cudaSuccess);
    (void)cudaFree(workspace);
}

static void check_plan(const moe_call *call, const moe_shape *shape, const trm_moe_experts *p, const trm_moe_plan *plan)
{
    uint16_t *all = moe_allocate(call->bytes[MOE_Y]), *part = moe_allocate(call->bytes[MOE_Y]);
    run_plan(p, plan, call->bytes[MOE_Y], all);
    const double worst = worst_row(call, all), most = shape->type == TRM_F16 ? 2e-3 : 1e-2;
    if (!(worst < most)) {
        print_error("%s, regime %d form %d %d rows %d: error %g\n", moe_shape_name(shape), (int)plan->regime,
                    (int)plan->up, (int)plan->down, (int)plan->rows, worst);
        fail();
    }
    trm_moe_experts few = *p;
    few.tokens = (p->tokens + 2) / 3;
    const size_t bytes = (size_t)few.tokens * (size_t)p->hidden * 2;
    run_plan(&few, plan, bytes, part);
    assert_memory_equal(all, part, bytes);
    free(all);
    free(part);
}

static void experts_match_the_host(void **state)
{
    (void)state;
    int32_t ran = 0;
    for (int32_t i = 0; i < moe_shapes_n; i++) {
        const moe_shape *shape = &moe_shapes[i];
        moe_call call;
        void *buffers[MOE_BUFFERS] = {NULL};
        moe_call_init(&call, shape, test_seed() + (uint64_t)i);
        assert_ok(trm_moe_experts_host(&call.experts));
        for (int b = 0; b < MOE_BUFFERS; b++) {
            buffers[b] = call.bytes[b] > 0 ? on_device(call.buffers[b], call.bytes[b]) : NULL;
        }
        const trm_moe_experts p = moe_call_with(&call, buffers);
        if (trm_cuda_moe_experts_accepts(&p)) {
            trm_moe_plan plan = trm_cuda_moe_experts_plan(&p);
            check_plan(&call, shape, &p, &plan);
            const bool grouped = trm_cuda_moe_grouped_accepts(&p);
            for (int32_t f = 0; p.tokens <= 16 && f < trm_cuda_moe_pairs_forms(); f++) {
                plan = (trm_moe_plan){TRM_MOE_PAIRS, f, f, 0};
                check_plan(&call, shape, &p, &plan);
            }
            for (int32_t rows = 16; grouped && rows <= 256; rows *= 2) {
                plan = (trm_moe_plan){TRM_MOE_GROUPED, 0, 0, rows};
                check_plan(&call, shape, &p, &plan);
            }
            ran++;
        }
        for (int b = 0; b < MOE_BUFFERS; b++) {
            (void)cudaFree(buffers[b]);
        }
        moe_call_fini(&call);
    }
    print_message("%d of %d shapes of experts\n", ran, moe_shapes_n);
    assert_true(ran > 0);
}

static void routers_match_the_host(void **state)
{
    (void)state;
    for (int32_t i = 0; i < moe_router_shapes_n; i++) {
        moe_router_call call;
        void *buffers[MOE_ROUTER_BUFFERS] = {NULL};
        moe_router_call_init(&call, &moe_router_shapes[i], test_seed() + (uint64_t)i);
        assert_ok(trm_moe_router_host(&call.router));
        for (int b = 0; b < MOE_ROUTER_BUFFERS; b++) {
            const bool out = b == MOE_ROUTER_IDS || b == MOE_ROUTER_WEIGHTS;
            buffers[b] = call.bytes[b] > 0 ? on_device(out ? NULL : call.buffers[b], call.bytes[b]) : NULL;
        }
        const trm_moe_router p = moe_router_call_with(&call, buffers);
        const bool fast = trm_cuda_moe_router_accepts(&p);
        assert_true(fast || p.scoring == TRM_ROUTER_SPARSE_MIXER);
        assert_ok(fast ? trm_cuda_moe_router_run(&p, true, NULL) : trm_cuda_moe_router_plain(&p, NULL));
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
        int32_t *ids = moe_allocate(call.bytes[MOE_ROUTER_IDS]);
        float *weights = moe_allocate(call.bytes[MOE_ROUTER_WEIGHTS]);
        assert_int_equal(cudaMemcpy(ids, p.ids, call.bytes[MOE_ROUTER_IDS], cudaMemcpyDeviceToHost), cudaSuccess);
        assert_int_equal(cudaMemcpy(weights, p.weights, call.bytes[MOE_ROUTER_WEIGHTS], cudaMemcpyDeviceToHost),
                         cudaSuccess);
        for (int64_t j = 0; j < p.tokens * p.k; j++) {
            const float expected = call.router.weights[j];
            if (ids[j] != call.router.ids[j] || !(fabsf(weights[j] - expected) <= 1e-5f * fabsf(expected) + 1e-7f)) {
                print_error("router %d, token %d, slot %d: expert %d by %g, expected %d by %g\n", i, (int)(j / p.k),
                            (int)(j % p.k), ids[j], (double)weights[j], call.router.ids[j], (double)expected);
                fail();
            }
        }
        free(ids);
        free(weights);
        for (int b = 0; b < MOE_ROUTER_BUFFERS; b++) {
            (void)cudaFree(buffers[b]);
        }
        moe_router_call_fini(&call);
    }
}

int main(void)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        print_message("no GPU\n");
        return TEST_SKIPPED;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(routers_match_the_host),
                                       cmocka_unit_test(experts_match_the_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
